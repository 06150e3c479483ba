"""The toy problem (section 4.1): the theorems, seen on two hyperparameters.

f satisfies the assumptions of Theorem 3.4; f~ = f + 5 |lam - (1, 0)|^2 breaks the third.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float
from rich.console import Console
from rich.progress import track

from ...._hypergradient import hypergradient
from ...._outer.minimize import minimize
from ...._outer.step_size import inverse_sqrt_schedule, scale_first_update
from ...._rules.reverse import Reverse
from ....diagnostics import diagnose
from ....problems import Problem, toy
from ...records import Records, Row

PULL = {"f": 0.0, "f~": 5.0}
KEYS = ("kind", "objective", "K", "step", "y")


@dataclass(frozen=True)
class Config:
    """Settings; the defaults are the paper's."""

    T: int = 100
    gamma: float = 0.1
    depths: tuple[int, ...] = (1, 2, 5, 10, 25, 100)
    """K of the trajectories."""
    steps: int = 100
    """Hyper-iterations, with steps eta_0 / sqrt(tau)."""
    first: float = 0.6
    """Norm of the first update, which fixes eta_0."""
    start: tuple[float, float] = (-1.0, 1.0)
    """Across from the (1, 0) that pulls in f~: on the way Lemma 3.2 fails there, as it may."""
    grid: int = 61
    """Points of the surface along each axis."""
    reach: float = 3.0
    """The surface spans [-reach, reach]."""
    preset: str = "paper"
    experiment: str = "toy"

    @classmethod
    def quick(cls) -> "Config":
        return cls(depths=(1, 5, 100), steps=40, grid=21, preset="quick")


def run(config: Config, out: Path, *, resume: bool = False, data_dir: str | None = None) -> None:
    """All figures of section 4.1, as records in `out`; in float64. Needs no data."""
    with Records(out, asdict(config), keys=KEYS, resume=resume) as records, jax.enable_x64(True):
        records.extend(_surface(config))
        records.extend(_bias(config))
        for name, pull in PULL.items():
            problem = toy(config.T, config.gamma, pull)
            lams = {K: _trajectory(problem, K, config) for K in _shown(config.depths, name)}
            best = _optimum(problem, lams[max(config.depths)][-1])
            records.extend(_iterates(problem, name, lams, best))
            records.extend(_descent(problem, name, lams[min(config.depths)], config.depths))


def _shown(depths: tuple[int, ...], name: str) -> Iterable[int]:
    console = Console(stderr=True)
    what = f"trajectories on {name}"
    return track(depths, what, console=console, disable=not console.is_terminal)


def _surface(config: Config) -> Iterator[Row]:
    """f(w_T(lam), lam) over a square of lam, a row for each lam_2 (Figure 1, left)."""
    problem = toy(config.T, config.gamma)
    x = np.linspace(-config.reach, config.reach, config.grid)
    value = _exact(problem, np.stack(np.meshgrid(x, x), -1).reshape(-1, 2)).value
    for y, row in zip(x, np.asarray(value).reshape(len(x), len(x)), strict=True):
        yield {"kind": "surface", "y": y, "x": x.round(6).tolist(), "f": row.round(6).tolist()}


def _bias(config: Config) -> Iterator[Row]:
    """|h_{T-K} - d_lam f| and its bounds at lam = (1, 1), for every K (Figure 1, right)."""
    p = toy(config.T, config.gamma)
    found = diagnose(p.f, p.xi, jnp.ones(2), p.S, T=p.T, lanczos=2)
    assert found.bound is not None and found.local_bound is not None
    for i, K in enumerate(found.depths.tolist()):
        bounds = {"bound": found.bound[i], "local_bound": found.local_bound[i]}
        yield {"kind": "bias", "K": K, "bias": found.bias[i]} | bounds


def _trajectory(problem: Problem, K: int, config: Config) -> Float[Array, "steps+1 2"]:
    """lam_tau under K-RMD, from the start."""
    lam = jnp.asarray(config.start)
    optimizer = scale_first_update(optax.sgd(inverse_sqrt_schedule(1.0)), norm=config.first)
    result = minimize(
        problem.f, problem.xi, Reverse(K=K), lam, T=problem.T, steps=config.steps, S=problem.S,
        optimizer=optimizer, evaluate=lambda lam: {"x": lam[0], "y": lam[1]}, progress=False,
    )  # fmt: skip
    seen = np.stack([result.evaluations["x"], result.evaluations["y"]], 1)
    return jnp.concatenate([lam[None], jnp.asarray(seen)])


def _optimum(problem: Problem, lam: Array) -> Array:
    """Newton's method on the closed form of d_lam f, from the end of the longest run."""
    gradient = lambda lam: problem.finite(lam, problem.S)  # pyright: ignore[reportOptionalCall]
    for _ in range(20):
        lam = lam - jnp.linalg.solve(jax.jacfwd(gradient)(lam), gradient(lam))
    return lam


def _iterates(problem: Problem, name: str, lams: dict[int, Array], best: Array) -> Iterator[Row]:
    """Trajectories with the true gradient at every point (Figures 3 and 4)."""
    value = _exact(problem, best[None]).value[0]
    yield {"kind": "optimum", "objective": name, **_pair("lam", best), "value": float(value)}
    for K, path in lams.items():
        true = _exact(problem, path)
        for step, lam in enumerate(path):
            label = {"kind": "iterate", "objective": name, "K": K, "step": step}
            yield (
                label
                | _pair("lam", lam)
                | _pair("gradient", true.h[step])
                | {
                    "value": float(true.value[step]),
                    "gradient_norm": float(jnp.linalg.norm(true.h[step])),
                    "distance": float(jnp.linalg.norm(lam - best)),
                }
            )


def _descent(problem: Problem, name: str, path: Array, depths: tuple[int, ...]) -> Iterator[Row]:
    """h_{T-K}' d / |d|^2 along the trajectory of the smallest K (Lemma 3.2, Figure 2)."""
    d = _exact(problem, path).h
    for K in depths:
        h = _estimate(problem, Reverse(K=K), path).h
        ratio = jnp.sum(h * d, axis=1) / jnp.sum(d**2, axis=1)
        for step, r in enumerate(ratio.tolist()):
            yield {"kind": "descent", "objective": name, "K": K, "step": step, "ratio": r}


def _exact(problem: Problem, lams: Any):
    return _estimate(problem, Reverse(), lams)


def _estimate(problem: Problem, rule: Reverse, lams: Any):
    """The hypergradient at many lam at once."""
    one = hypergradient(problem.f, problem.xi, rule, T=problem.T)
    return jax.jit(jax.vmap(one, (0, None)))(jnp.asarray(lams), problem.S)


def _pair(name: str, vector: Array) -> Row:
    return {f"{name}_1": float(vector[0]), f"{name}_2": float(vector[1])}

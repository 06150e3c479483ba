"""`diagnose`: what every truncation is worth here, and what the theory says of it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._hypergradient import check_dynamics, check_objective
from .._types import Context, Hyper, Objective
from .._visible import entrances
from ._diagnosis import Diagnosis, Theory
from ._spectrum import Spectrum, least_singular_value, spectrum, stationarity
from ._sweep import Sweep, sweep


def diagnose(
    f: Objective,
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context = None,
    *,
    T: int,
    depths: Sequence[int] | None = None,
    lanczos: int = 20,
) -> Diagnosis:
    """What a truncated hypergradient is worth on this problem, and which rule to use.

    One sweep back over all T steps gives the error of `Reverse(K)` for every K, since each
    truncation is a prefix of the same sum; memory is that of 2 sqrt(T) states. The assumptions
    of Prop. 3.1 and Theorem 3.4 are measured beside it.

    **Arguments:**

    - `f`, `xi`, `lam`, `S`, `T`: as in `hypergradient`.
    - `depths`: which K to look at. Default: every K from 1 to T, which keeps T cotangents of
        lam; for large problems give a few, as in (1, 2, 5, 10, 20, 50).
    - `lanczos`: how many products to spend on the extreme eigenvalues of a step; 0 leaves the
        spectrum, and with it the bounds, out.

    **Returns:**

    A `Diagnosis`: print it, look at its arrays (`error`, `cosine`, `bound`, ... over `depths`),
    `.plot()` it, or keep it with `.as_dict()`. `advice` says in words which rule to use.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax import problems
        >>> p = problems.quadratic(T=100)
        >>> print(bx.diagnose(p.f, p.xi, p.lam, p.S, T=p.T).advice[0])
        Reverse(K=16) is within 10 % of the whole hypergradient, Reverse(K=65) within 1 %.
    """
    check_objective(f)
    check_dynamics(xi)
    T, lam = check.horizon(T), check.floating(lam, "lam")
    lanczos = check.integer(lanczos, "lanczos", "0 leaves the spectrum out", least=0)
    table = _depths(depths, T)
    numbers = _measure(f, xi, lam, S, T, jnp.asarray(table, jnp.int32))
    check.finite(None, numbers.bad[None], [check.diverged(T)])
    theory = _examine(xi, lam, S, T, numbers.marks, lanczos) if lanczos else None
    return _conclude(
        jax.tree.map(np.asarray, numbers._replace(marks=None)), table, theory, xi, lam, S
    )


def _depths(depths: Sequence[int] | None, T: int) -> list[int]:
    if depths is None:
        return list(range(1, T + 1))
    out = sorted(
        {check.integer(K, "depths", "give numbers of steps, as in (1, 5, 20)") for K in depths}
    )
    if not out or out[-1] > T:
        raise ValueError(f"depths must lie between 1 and T = {T}, got {list(depths)}.")
    return out


class Numbers(NamedTuple):
    """What the sweep gives, as numbers over the depths."""

    h_norm: Array
    bias: Array
    dots: Array
    norms: Array
    direct: Array
    interference: Array
    slope: Array
    alphas: Array
    parts: Array
    start: Array
    still: Array
    """|residual| of the equilibrium at the end, relative to that at the start."""
    bad: Array
    marks: Any


@eqx.filter_jit
def _measure(f, xi, lam, S, T: int, depths: Int[Array, " n"]) -> Numbers:
    out: Sweep = sweep(f, xi, lam, S, T, depths)
    whole = tree.add(out.direct, out.whole)

    def compare(part):
        h = tree.add(out.direct, part)
        assumption = tree.dot(out.direct, tree.add(whole, part))  # of Theorem 3.4, the third
        return tree.norm(tree.sub(h, whole)), tree.dot(h, whole), tree.norm(h), assumption

    bias, dots, norms, third = jax.lax.map(compare, out.sums)
    first = jax.tree.map(lambda a: a[0], out.marks)
    still = stationarity(xi, lam, S, out.end, T - 1) / stationarity(xi, lam, S, first, 0)
    size = tree.norm(out.direct)
    interference = third / jnp.where(size > 0, size, jnp.inf) ** 2
    marks = jax.tree.map(lambda a, b: jnp.concatenate([a, b[None]]), out.marks, out.end)
    return Numbers(
        tree.norm(whole),
        bias,
        dots,
        norms,
        size,
        interference,
        tree.norm(out.slope),
        out.alphas,
        out.parts,
        out.start,
        still,
        ~tree.all_finite((out.end, whole)),
        marks,
    )


@eqx.filter_jit
def _spectra(xi, lam, S, states, times: Int[Array, " p"], steps: int) -> Spectrum:
    return jax.lax.map(lambda x: spectrum(xi, lam, S, x[0], x[1], steps), (states, times))


def _examine(xi, lam, S, T: int, marks, steps: int) -> Theory:
    """The assumptions of Prop. 3.1 and Theorem 3.4, at s_T, before it, and at the start."""
    n = jax.tree.leaves(marks)[0].shape[0]
    which = np.unique([0, max(n - 3, 0), n - 1])
    times = np.minimum(which * T // max(n - 1, 1), T - 1)
    states = jax.tree.map(lambda a: a[which], marks)
    found: Spectrum = jax.tree.map(
        np.asarray, _spectra(xi, lam, S, states, jnp.asarray(times, jnp.int32), steps)
    )
    end = jax.tree.map(lambda a: a[-1], marks)
    singular = eqx.filter_jit(least_singular_value)(xi, lam, S, end, T - 1)
    symmetric = bool(found.symmetric.all())
    late = slice(1 if len(which) > 1 else 0, None)  # around {w_{T-K-1}, ..., w_T}
    return Theory(
        symmetric=symmetric,
        gamma_alpha=float(1 - found.high[late].max()) if symmetric else None,
        gamma_beta=float(1 - found.low[late].min()) if symmetric else None,
        doubt=float(found.doubt[late].max()),
        norm_B=float(found.norm_B.max()),
        least_singular=None if singular is None else float(singular[0] / singular[1]),
        M=tree.size(tree.inexact(end)),
        N=tree.size(lam),
    )


def _conclude(n: Any, depths: list[int], theory: Theory | None, xi, lam, S) -> Diagnosis:
    K = np.asarray(depths)
    size = float(n.h_norm)
    over = lambda x, y: np.divide(x, y, out=np.full_like(x, np.nan), where=np.asarray(y) != 0)
    with np.errstate(all="ignore"):  # an unstable loop overflows, which the advice says in words
        ratios = {
            "error": over(n.bias, np.full_like(n.bias, size)),
            "cosine": over(n.dots, n.norms * size),
            "descent": over(n.dots, np.full_like(n.dots, size**2)),
        }
    return Diagnosis(
        **ratios,
        T=len(n.parts),
        depths=K,
        bias=n.bias,
        interference=n.interference if n.direct > 0 else None,
        h_norm=size,
        slope=float(n.slope),
        alphas=n.alphas,
        parts=n.parts,
        start=float(n.start),
        stationarity=float(n.still),
        theory=theory,
        only_start=_only_start(xi, lam, S),
    )


def _only_start(xi: AbstractDynamics, lam: Hyper, S: Context) -> list[str]:
    """Leaves of lam that enter the inner loop through its initialisation alone."""

    def ask(lam, S):
        reach = entrances(xi, lam, S, jax.eval_shape(xi.start, lam, S))
        leaves = jax.tree_util.tree_leaves_with_path(lam)
        for (path, _), a, b in zip(leaves, *reach.values(), strict=True):
            if a and not b:
                names.append(check.name_of("lam", path))

    names: list[str] = []
    eqx.filter_eval_shape(ask, lam, S)
    return names

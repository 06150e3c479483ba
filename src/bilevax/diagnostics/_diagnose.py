"""`diagnose`: what every truncation is worth here, and what the theory says of it."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check, diagnostics, outcome
from .._hypergradient import check_dynamics, check_objective, loss_of
from .._types import Context, Hyper, Objective
from .._visible import entrances
from ._diagnosis import Diagnosis, Theory
from ._measure import measure, residual
from ._symmetry import asymmetry


def diagnose(
    f: Objective,
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context = None,
    *,
    T: int,
    depths: Sequence[int] | None = None,
    lanczos: int = 20,
    has_aux: bool = False,
) -> Diagnosis:
    """What a truncated hypergradient is worth on this problem, and which rule to use.

    One sweep back over all T steps gives the error of `Reverse(K)` for every K, since each
    truncation is a prefix of the same sum. It holds 2 sqrt(T) states. The assumptions of
    Prop. 3.1 and Theorem 3.4 are measured too, and what the bounds of Eq. 9 and 10 need.

    **Arguments:**

    - `f`, `xi`, `lam`, `S`, `T`: as in `hypergradient`.
    - `depths`: which K to look at. Default: every K from 1 to T, which keeps T cotangents of
        lam; for large problems give a few, as in (1, 2, 5, 10, 20, 50).
    - `lanczos`: how many products to spend on the extreme eigenvalues of a step; 0 leaves the
        spectrum, and with it the bounds, out.
    - `has_aux`: whether f returns a pair (scalar, anything else).

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
    f = loss_of(f, has_aux)
    T, lam, S = check.horizon(T), check.floating(lam, "lam"), check.context(S)
    diagnostics.outside("diagnose", lam, S)
    lanczos = check.integer(lanczos, "lanczos", "0 leaves the spectrum out", least=0)
    K = np.arange(1, T + 1) if depths is None else np.asarray(diagnostics.depths(depths, T))
    fails = optimum_fails(xi, lam, S)
    found = measure(f, xi, lam, S, jnp.asarray(K, jnp.int32), T, lanczos, fails is None)
    outcome.finite(None, ~found.finite[None], [outcome.diverged(T)])
    found = jax.tree.map(np.asarray, found)
    return _conclude(found, K, xi, lam, S, fails, asymmetry(xi, lam, S, T))


def optimum_fails(xi: AbstractDynamics, lam: Hyper, S: Context) -> str | None:
    """Why the optimum has no equation on the whole S, as where only `sample` adds rows to it."""
    ask = lambda xi, lam, S: residual(xi, lam, S, xi.start(lam, S), 0)
    try:
        eqx.filter_eval_shape(ask, xi, lam, S)
    except Exception as error:  # whatever the user's g says; if a step fails too, that is raised
        error = error.__cause__ or error
        return f"{type(error).__name__}: {error}"
    return None


def _conclude(
    n: Any, K: np.ndarray, xi: AbstractDynamics, lam: Hyper, S: Context,
    fails: str | None, asymmetry: float | None,
) -> Diagnosis:  # fmt: skip
    """From a `Measured` with numpy's arrays."""
    names = [check.name_of("lam", path) for path, _ in jax.tree_util.tree_leaves_with_path(lam)]
    return Diagnosis(
        **_agreement(n, names),
        T=len(n.parts),
        depths=K,
        interference=n.third / n.direct**2 if n.direct > 0 else None,
        slope=float(n.slope),
        alphas=n.alphas,
        parts=n.parts,
        start=float(n.start),
        stationarity=None if n.stationarity is None else float(n.stationarity),
        optimum_fails=fails,
        theory=None if n.theory is None else _theory(n.theory, tree.size(lam)),
        only_start=_only_start(xi, lam, S, names),
        asymmetry=asymmetry,
    )


def _agreement(n: Any, names: list[str]) -> dict[str, Any]:
    """Of h_{T-K} with d_lam f, in the whole and in each leaf of lam."""
    bias, norms = np.hypot.reduce(n.leaf_bias, axis=1), np.hypot.reduce(n.leaf_norms, axis=1)
    size, dots = np.hypot.reduce(n.leaf_sizes), n.leaf_dots.sum(axis=1)
    by_leaf = lambda x: dict(zip(names, x.T, strict=True))
    with np.errstate(all="ignore"):  # an unstable loop overflows, which the advice says in words
        return {
            "h_norm": float(size),
            "bias": bias,
            "error": _over(bias, size),
            "cosine": _over(dots, norms * size),
            "descent": _over(dots, size**2),
            "leaf_error": by_leaf(_over(n.leaf_bias, n.leaf_sizes)),
            "leaf_cosine": by_leaf(_over(n.leaf_dots, n.leaf_norms * n.leaf_sizes)),
        }


def _over(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y, and nan where y is zero."""
    y = np.broadcast_to(y, x.shape)
    return np.divide(x, y, out=np.full_like(x, np.nan), where=y != 0)


def _theory(found: dict[str, Any], N: int) -> Theory:
    numbers: dict[str, Any] = {name: None if x is None else x.item() for name, x in found.items()}
    if not numbers["symmetric"]:
        numbers |= {"gamma_alpha": None, "gamma_beta": None}
    return Theory(**numbers, N=N)


def _only_start(xi: AbstractDynamics, lam: Hyper, S: Context, names: list[str]) -> list[str]:
    """Leaves of lam that enter the inner loop through its initialisation alone."""

    def ask(xi, lam, S):  # xi too: JAX remembers each tracing that meets an array from outside
        s = jax.eval_shape(lambda lam, S: xi.start(lam, S), lam, S)  # a method would compare its xi
        start, step = entrances(xi, lam, S, s).values()
        found.extend(name for name, a, b in zip(names, start, step, strict=True) if a and not b)

    found: list[str] = []
    eqx.filter_eval_shape(ask, xi, lam, S)
    return found

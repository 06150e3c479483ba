"""A rule against finite differences of lam -> f(w_T(lam), lam, S).

Along a unit direction v, with F for that function,

    D(eps) = (F(lam + eps v) - F(lam - eps v)) / (2 eps) = F'(lam) v + c eps^2 + rounding / eps .

No single eps serves every problem. A sweep over eps shows both errors: coming down from large
steps, D settles as eps^2, until rounding takes over. The step behind which D changes least is the
best one, and that change says how far D can be trusted.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._hypergradient import hypergradient
from .._loop import unroll
from .._rules.base import AbstractRule
from .._types import Context, Hyper, Objective

STEPS = np.exp2(-np.arange(0, 44, 2.0))
"""eps, from 1 down by factors of 4; in float32 the smaller half is rounding only."""


class GradientCheck(NamedTuple):
    """Slopes along random unit directions; `print` it for a table.

    !!! example

        >>> import bilevax as bx, jax
        >>> from bilevax import problems
        >>> p = problems.quadratic()
        >>> out = bx.check_gradient(p.f, p.xi, bx.Reverse(), p.lam, p.S, T=p.T,
        ...                         key=jax.random.key(0))
        >>> out.agrees, out.slope.shape
        (True, (4,))
    """

    slope: np.ndarray
    """`<h, v>` by the rule."""
    difference: np.ndarray
    """The finite difference at the best step."""
    uncertainty: np.ndarray
    """How far `difference` can be trusted."""
    eps: np.ndarray
    """The steps of the sweep,"""
    sweep: np.ndarray
    """and the finite difference at each: one row for each direction."""

    @property
    def error(self) -> float:
        """|slope - difference| over all directions, relative to |difference|."""
        size = np.linalg.norm(self.difference)
        return float(np.linalg.norm(self.slope - self.difference) / (size if size > 0 else 1.0))

    @property
    def resolution(self) -> float:
        """The error that the finite differences themselves may have."""
        size = np.linalg.norm(self.difference)
        return float(np.linalg.norm(self.uncertainty) / (size if size > 0 else 1.0))

    @property
    def agrees(self) -> bool:
        """Whether no difference is seen beyond what finite differences can tell."""
        return bool(np.all(np.abs(self.slope - self.difference) <= 3 * self.uncertainty))

    def __str__(self) -> str:
        rows = zip(self.slope, self.difference, self.uncertainty, strict=True)
        lines = [f"{a:14.6g} {b:18.6g} {c:10.1e} {a - b:12.1e}" for a, b, c in rows]
        verdict = "they agree" if self.agrees else "THEY DIFFER"
        last = f"relative error {self.error:.1e}, visible from {self.resolution:.1e}: {verdict}"
        head = f"{'<h, v>':>14} {'finite difference':>18} {'+-':>10} {'they differ':>12}"
        return "\n".join([head, *lines, last])


def check_gradient(
    f: Objective,
    xi: AbstractDynamics,
    rule: AbstractRule,
    lam: Hyper,
    S: Context = None,
    *,
    T: int,
    key: Any,
    directions: int = 4,
) -> GradientCheck:
    """Compare the hypergradient of a rule with finite differences along random directions.

    Exact rules agree to rounding, in float64 to about 1e-9; for the others `error` is what they
    miss along these directions. Takes 44 inner loops for each direction.

    **Arguments:**

    - `f`, `xi`, `rule`, `lam`, `S`, `T`: as in `hypergradient`.
    - `key`: for the directions, as in jax.random.key(0).
    - `directions`: how many.

    **Returns:**

    A `GradientCheck(slope, difference, uncertainty, eps, sweep)`, with `error`, `resolution`
    and `agrees`.

    !!! example

        >>> import bilevax as bx, jax, jax.numpy as jnp
        >>> from bilevax import problems
        >>> p = problems.ridge()
        >>> exact = bx.check_gradient(p.f, p.xi, bx.Reverse(), p.lam, p.S, T=p.T,
        ...                           key=jax.random.key(0))
        >>> short = bx.check_gradient(p.f, p.xi, bx.Reverse(K=1), p.lam, p.S, T=p.T,
        ...                           key=jax.random.key(0))
        >>> exact.error < 0.01, short.error > 0.1
        (True, True)
    """
    check.integer(directions, "directions", "give the number of random directions")
    lam = check.floating(lam, "lam")
    h = hypergradient(f, xi, rule, T=T)(lam, S).h
    v = _directions(key, lam, directions)
    slope = np.asarray(jax.vmap(tree.dot, (None, 0))(h, v), np.float64)
    sweep, size = _differences(f, xi, lam, S, v, jnp.asarray(STEPS, tree.widest(lam)), T)
    best, uncertainty = _settled(np.asarray(sweep, np.float64), float(size), tree.widest(lam))
    return GradientCheck(slope, best, uncertainty, STEPS, np.asarray(sweep))


def _directions(key: Any, lam: Hyper, n: int) -> Hyper:
    """n unit vectors in the space of lam, stacked."""
    v = tree.normal(key, tree.stack_of_zeros(n, lam))
    return jax.vmap(lambda v: tree.scale(1 / tree.positive(tree.norm(v)), v))(v)


@eqx.filter_jit
def _differences(f, xi, lam, S, v, steps, T: int) -> tuple[Array, Array]:
    """D(eps) for every direction and step, and |F|."""

    def F(lam):
        s = unroll(xi, lam, S, xi.start(lam, S), 0, T)
        return f(xi.read(s), lam, S)

    def at(pair):
        v, eps = pair
        there = lambda c: F(tree.add(lam, tree.scale(c, v)))
        return (there(eps) - there(-eps)) / (2 * eps)

    n, m = jax.tree.leaves(v)[0].shape[0], steps.shape[0]
    pairs = jax.tree.map(lambda a: jnp.repeat(a, m, axis=0), v), jnp.tile(steps, n)
    return lax.map(at, pairs).reshape(n, m), jnp.abs(F(lam))


def _settled(sweep: np.ndarray, size: float, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """D at the step behind which it changes least, and its uncertainty."""
    change = np.abs(np.diff(sweep, axis=1))
    change = np.where(np.isfinite(change), change, np.inf)
    rounding = float(jnp.finfo(dtype).eps) * size / STEPS[1:]  # of the step that follows
    doubt = change + rounding[None]
    i = np.argmin(doubt, axis=1)
    rows = np.arange(len(i))
    return sweep[rows, i + 1], doubt[rows, i]

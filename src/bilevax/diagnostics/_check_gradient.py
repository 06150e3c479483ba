"""A rule against finite differences of lam -> f(w_T(lam), lam, S).

Along a unit direction v, with F for that function,

    D(eps) = (F(lam + eps v) - F(lam - eps v)) / (2 eps) = F'(lam) v + c eps^2 + rounding / eps .

No single eps serves every problem. A sweep over eps shows both errors: coming down from large
steps, D settles as eps^2, until rounding takes over. The step after which D changes least is the
best one; that change, and the rounding that smaller steps show, say how far D can be trusted.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array

from .. import _tree as tree
from .._compile import weak_jit
from .._dynamics import AbstractDynamics
from .._errors import check
from .._errors.mixed import not_symmetric
from .._hypergradient import check_problem, hypergradient, loss_of
from .._loop import solved
from .._rules.base import AbstractRule
from .._types import Context, Hyper, Objective
from ._symmetry import asymmetry

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
    """The steps of the sweep."""
    sweep: np.ndarray
    """The finite difference at each of these steps: one row for each direction."""
    rounding: np.ndarray
    """The part of `uncertainty` that is rounding, of the finite difference and of the rule."""
    dtype: str
    """That of lam, the widest of its leaves."""
    asymmetry: float | None = None
    """How far from symmetric the second derivatives of g are, where `Descent(symmetric=True)` is
    wrong about them; else None."""

    @property
    def error(self) -> float:
        """|slope - difference| over all directions, relative to |difference|."""
        return self._relative(self._gap())

    @property
    def resolution(self) -> float:
        """The error that the finite differences themselves may have."""
        return self._relative(self.uncertainty)

    @property
    def agrees(self) -> bool:
        """Whether no difference shows beyond what finite differences can tell."""
        return self.asymmetry is None and bool(np.all(self._gap() <= 3 * self.uncertainty))

    @property
    def rounded(self) -> bool:
        """Whether rounding may explain why they differ: check again in a wider dtype."""
        return bool(np.all(self._gap() <= 3 * self.uncertainty + 30 * self.rounding))

    def _relative(self, x: np.ndarray) -> float:
        return float(np.linalg.norm(x) / (np.linalg.norm(self.difference) or 1.0))

    def _gap(self) -> np.ndarray:
        return np.abs(self.slope - self.difference)

    def __str__(self) -> str:
        rows = zip(self.slope, self.difference, self.uncertainty, strict=True)
        lines = [f"{a:14.6g} {b:18.6g} {c:10.1e} {a - b:12.1e}" for a, b, c in rows]
        head = f"{'<h, v>':>14} {'finite difference':>18} {'+-':>10} {'they differ':>12}"
        last = f"relative error {self.error:.1e}, visible from {self.resolution:.1e}: "
        return "\n".join([head, *lines, last + self._verdict()])

    def _verdict(self) -> str:
        if self.asymmetry is not None:
            return f"THEY DIFFER.\n{not_symmetric(self.asymmetry)}"
        if self.agrees:
            return "they agree"
        if self.rounded:
            return f"THEY DIFFER, as rounding in {self.dtype} may explain: check in a wider dtype"
        times = np.max(self._gap() / np.maximum(self.rounding, np.finfo(float).tiny))
        return f"THEY DIFFER, by {times:.0e} times what rounding in {self.dtype} explains"


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
    has_aux: bool = False,
) -> GradientCheck:
    """Compare the hypergradient of a rule with finite differences along random directions.

    Exact rules agree to rounding, in float64 to about 1e-9; for the others `error` is what they
    miss along these directions. It takes 44 inner loops for each direction. If `xi` is a
    `Descent(symmetric=True)`, it also tests whether that is right.

    **Arguments:**

    - `f`, `xi`, `rule`, `lam`, `S`, `T`: as in `hypergradient`.
    - `key`: for the directions, as in jax.random.key(0).
    - `directions`: how many.
    - `has_aux`: whether f returns a pair (scalar, anything else).

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
    check_problem(f, xi, rule)
    f = loss_of(f, has_aux)
    check.integer(directions, "directions", "give the number of random directions")
    lam, S = check.floating(lam, "lam"), check.context(S)
    dtype = tree.widest(lam)
    v = jax.vmap(tree.unit)(tree.normal(key, tree.stack_of_zeros(directions, lam)))
    hg = hypergradient(f, xi, rule, T=T)
    along = lambda lam: np.asarray(jax.vmap(tree.dot, (None, 0))(hg(lam, S).h, v), np.float64)
    slope, nudged = along(lam), along(_nudged(key, lam))
    sweep, size = _differences(f, xi, lam, S, v, jnp.asarray(STEPS, dtype), T)
    floor = float(jnp.finfo(dtype).eps) * float(size)
    best, change, rounding = _settled(np.asarray(sweep, np.float64), floor)
    rounding = rounding + np.abs(nudged - slope)
    return GradientCheck(
        slope, best, change + rounding, STEPS, np.asarray(sweep), rounding, jnp.dtype(dtype).name,
        asymmetry(xi, lam, S, T),
    )  # fmt: skip


def _nudged(key: Any, lam: Hyper) -> Hyper:
    """lam, moved by its rounding error: what changes with it is rounding too."""

    def move(a: Array, noise: Array) -> Array:
        size = jnp.maximum(jnp.max(jnp.abs(a), initial=0.0), 1.0)
        return a + jnp.finfo(a.dtype).eps * size.astype(a.dtype) * noise

    return jax.tree.map(move, lam, tree.normal(key, lam))


@weak_jit
def _differences(f, xi, lam, S, v, steps, T: int) -> tuple[Array, Array]:
    """D(eps) for every direction and step, and |F|."""
    F = lambda lam: f(xi.read(solved(xi, lam, S, T)), lam, S)

    def at(pair):
        v, eps = pair
        there = lambda c: F(optax.tree.add(lam, tree.scale(c, v)))
        return (there(eps) - there(-eps)) / (2 * eps)

    n, m = jax.tree.leaves(v)[0].shape[0], steps.shape[0]
    pairs = jax.tree.map(lambda a: jnp.repeat(a, m, axis=0), v), jnp.tile(steps, n)
    return lax.map(at, pairs).reshape(n, m), jnp.abs(F(lam))


def _settled(sweep: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """D at the step after which it changes least, that change, and its rounding.

    F carries an error of about sigma, whatever eps is, and D one of sigma / eps: sigma is the
    largest change of D times eps at this step or a smaller one, and at least `floor`. Where F
    does not change at all, eps is below what F resolves, and nothing was measured.
    """
    change = np.abs(np.diff(sweep, axis=1))
    change = np.where(np.isfinite(change), change, np.inf)
    noise = np.maximum.accumulate((change * STEPS[1:])[:, ::-1], axis=1)[:, ::-1]
    rounding = np.maximum(noise, floor) / STEPS[1:]
    silent = (sweep[:, 1:] == 0) & (sweep != 0).any(axis=1, keepdims=True)
    i = np.argmin(np.where(silent, np.inf, change + rounding), axis=1)
    rows = np.arange(len(i))
    return sweep[rows, i + 1], change[rows, i], rounding[rows, i]

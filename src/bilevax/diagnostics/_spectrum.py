"""What the theory asks of the inner loop: eigenvalues of A, norms and rank of B."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._loop import step_vjp
from .._rules.krylov.arnoldi import begin, grow
from .._types import Context, Hyper, State, Time

SMALL = 400
"""Up to so many parameters the singular values of B are computed, all of them."""


class Spectrum(NamedTuple):
    """Of one linearised step; for gradient descent A = I - gamma H."""

    low: Float[Array, ""]
    """The smallest eigenvalue of A, 1 - gamma beta."""
    high: Float[Array, ""]
    """The largest, 1 - gamma alpha."""
    doubt: Float[Array, ""]
    """By how much `high` may be too small: the residual of its Ritz vector."""
    symmetric: Bool[Array, ""]
    norm_B: Float[Array, ""]


def spectrum(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time, steps: int
) -> Spectrum:
    """Lanczos on A, power iteration on B B', at s."""
    product = step_vjp(xi, lam, S, s, t)
    x = tree.inexact(s)
    steps = min(steps, tree.size(x))
    v = tree.normal(jax.random.key(0), x)
    space = grow(begin(v, lam, steps, False), product, steps)
    H = space.H[:steps]
    skew = jnp.linalg.norm(H - H.T) / tree.positive(jnp.linalg.norm(H))
    values, vectors = jnp.linalg.eigh((H + H.T) / 2)
    # directions that were not built, where the space closed early, have no eigenvalues
    built = jnp.sum(vectors**2 * _alive(space.Q)[:steps, None], axis=0) > 0.5
    high = jnp.max(jnp.where(built, values, -jnp.inf))
    low = jnp.min(jnp.where(built, values, jnp.inf))
    top = vectors[-1, jnp.argmax(jnp.where(built, values, -jnp.inf))]
    doubt = jnp.abs(space.H[steps, steps - 1] * top)
    return Spectrum(low, high, doubt, skew < 1e-3, _norm_B(xi, lam, S, s, t, x))


def _alive(Q: PyTree) -> Float[Array, " m+1"]:
    return (jax.vmap(tree.norm)(Q) > 0).astype(tree.widest(Q))


def _push(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time) -> Callable:
    """v -> B' v: the change of the next state with lam."""
    step = lambda lam: tree.inexact(xi.advance(s, lam, S, t))
    return lambda v: jax.jvp(step, (lam,), (v,))[1]


def _norm_B(xi, lam, S, s, t, x, rounds: int = 8) -> Float[Array, ""]:
    """|B| from below, by power iteration; a few percent suffice for a bound."""
    pull, push = step_vjp(xi, lam, S, s, t), _push(xi, lam, S, s, t)

    def body(_, carry):
        v, _ = carry
        b = pull(v)[1]
        size = tree.norm(b)
        v = push(tree.scale(1 / tree.positive(size), b))
        return tree.scale(1 / tree.positive(tree.norm(v)), v), tree.norm(v)

    v = tree.normal(jax.random.key(1), x)
    v = tree.scale(1 / tree.positive(tree.norm(v)), v)
    start = (v, jnp.zeros((), tree.widest(x)))
    return lax.fori_loop(0, rounds, lambda i, c: tree.cast_like(body(i, c), c), start)[1]


def least_singular_value(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: Time
) -> tuple[Float[Array, ""], Float[Array, ""]] | None:
    """(smallest, largest) singular value of B as a map from states; None if it is too large."""
    x = tree.inexact(s)
    M = tree.size(x)
    if M > SMALL or tree.size(lam) < M:
        return None
    pull = step_vjp(xi, lam, S, s, t)
    flat = lambda b: jnp.concatenate([jnp.ravel(a) for a in jax.tree.leaves(b)])
    rows = lax.map(lambda i: flat(pull(tree.basis(x, i))[1]), jnp.arange(M, dtype=jnp.int32))
    values = jnp.linalg.svd(rows, compute_uv=False)
    return values[-1], values[0]


def stationarity(
    xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: int
) -> Float[Array, ""]:
    """|residual| of the equation that the limit satisfies: |grad g|, or |s - Xi(s)|."""
    equation = xi.equilibrium(s, lam, S, t)
    return tree.norm(equation.residual(equation.x, lam))

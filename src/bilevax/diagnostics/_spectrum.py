"""What the theory asks of the inner loop: eigenvalues of A, norms and rank of B."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._rules.krylov.arnoldi import begin, grow
from .._types import Context, Hyper, State, Time
from ._sweep import Visited

SMALL = 400
"""Up to so many parameters the singular values of B are computed, all of them."""


def spectra(
    xi: AbstractDynamics, lam: Hyper, S: Context, iterates: Sequence[Visited], steps: int
) -> dict[str, Array | None]:
    """The fields of `Theory`, by so many steps of Lanczos's process at s_0 and two late iterates.

    For gradient descent A = I - gamma H, whose eigenvalues are 1 - gamma beta to 1 - gamma alpha.
    """
    states = jax.tree.map(lambda *a: jnp.stack(a), *(it.s for it in iterates))
    times = jnp.asarray([it.t for it in iterates], jnp.int32)
    eigenvalues = lambda x: _eigenvalues(xi, lam, S, x[0], x[1], steps)
    low, high, doubt, symmetric = lax.map(eigenvalues, (states, times))
    norm_B = lax.map(lambda x: _norm_B(xi, lam, S, x[0], x[1]), (states, times))
    s, t = iterates[-1]
    singular = _singular_values(xi, lam, S, s, t)
    return {
        "symmetric": jnp.all(symmetric),
        "gamma_alpha": 1 - jnp.max(high[1:]),
        "gamma_beta": 1 - jnp.min(low[1:]),
        "doubt": jnp.max(doubt[1:]),
        "norm_B": jnp.max(norm_B),
        "least_singular": None if singular is None else singular[-1] / singular[0],
        "M": jnp.asarray(tree.size(tree.inexact(s))),
    }


def _eigenvalues(
    xi, lam: Hyper, S: Context, s: State, t: Time, steps: int
) -> tuple[Array, Array, Array, Array]:
    """The smallest and the largest eigenvalue of A, how much too small the latter may be (the
    residual of its Ritz vector), and whether A is symmetric.
    """
    x = tree.inexact(s)
    steps = min(steps, tree.size(x))
    v = tree.normal(jax.random.key(0), x)
    space = grow(begin(v, lam, steps, False), xi.advance_vjp(s, lam, S, t), steps)
    H = space.H[:steps]
    skew = jnp.linalg.norm(H - H.T) / tree.positive(jnp.linalg.norm(H))
    values, vectors = jnp.linalg.eigh((H + H.T) / 2)
    # directions that were not built, where the space closed early, have no eigenvalues
    alive = (jax.vmap(tree.norm)(space.Q) > 0)[:steps, None]
    built = jnp.sum(jnp.where(alive, vectors**2, 0.0), axis=0) > 0.5
    high = jnp.where(built, values, -jnp.inf)
    low = jnp.min(jnp.where(built, values, jnp.inf))
    doubt = jnp.abs(space.H[steps, steps - 1] * vectors[-1, jnp.argmax(high)])
    return low, jnp.max(high), doubt, skew < 1e-3


def _norm_B(xi, lam: Hyper, S: Context, s: State, t: Time, rounds: int = 8) -> Float[Array, ""]:
    """|B| from below, by power iteration on B B'; a few percent suffice for a bound."""
    pull = xi.advance_vjp(s, lam, S, t)
    step = lambda lam: tree.inexact(xi.advance(s, lam, S, t))
    push = lambda b: jax.jvp(step, (lam,), (b,))[1]  # B' b
    start = tree.normal(jax.random.key(1), tree.inexact(s))
    return tree.growth(lambda v: push(tree.unit(pull(v)[1])), start, rounds)


def _singular_values(xi, lam: Hyper, S: Context, s: State, t: Time) -> Float[Array, " M"] | None:
    """Of B as a map from states, descending; None if there are too many, or more than lam has."""
    x = tree.inexact(s)
    M = tree.size(x)
    if M > SMALL or tree.size(lam) < M:
        return None
    pull = xi.advance_vjp(s, lam, S, t)
    flat = lambda b: jnp.concatenate([jnp.ravel(a) for a in jax.tree.leaves(b)])
    rows = lax.map(lambda i: flat(pull(tree.basis(x, i))[1]), jnp.arange(M, dtype=jnp.int32))
    return jnp.linalg.svd(rows, compute_uv=False)

"""Quadratic inner problems: everything about them is known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from .._dynamics import Descent, constant
from ._problem import Problem


def _bowl(w: Array, lam: Array, S: dict) -> Array:
    return (w - lam) @ S["G"] @ (w - lam) / 2


def _contraction(S: dict, gamma: float, T: int) -> Array:
    """C = (I - gamma G)^T, with which w_T = C w_0 + (I - C) lam."""
    identity = jnp.eye(S["G"].shape[0])
    return jnp.linalg.matrix_power(identity - gamma * S["G"], T)


def quadratic(M: int = 5, T: int = 40, gamma: float = 0.4, seed: int = 0) -> Problem:
    """g = (w - lam)' G (w - lam) / 2 with a dense G, and f = |w - b|^2 / 2.

    **Arguments:**

    - `M`: the dimension of w and of lam.
    - `T`: the number of inner steps.
    - `gamma`: the inner step size; the spectrum of G lies in [0.1, 1].
    - `seed`: of G, b, lam and the start.

    **Returns:**

    A `Problem`, with `finite` and `limit`.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp
        >>> from bilevax import problems
        >>> p = problems.quadratic()
        >>> h = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=p.T)(p.lam, p.S).h
        >>> bool(jnp.allclose(h, p.finite(p.lam, p.S), rtol=1e-3))
        True
    """
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(M, M)))
    G = jnp.asarray(basis * np.linspace(0.1, 1.0, M) @ basis.T)
    w_0, lam, b = (jnp.asarray(rng.normal(size=M)) for _ in range(3))

    def finite(lam, S):
        C = _contraction(S, gamma, T)
        w_T = C @ w_0 + lam - C @ lam
        return (w_T - S["b"]) - C @ (w_T - S["b"])  # (I - C) grad_w f

    return Problem(
        "quadratic",
        lambda w, lam, S: jnp.sum((w - S["b"]) ** 2) / 2,
        Descent(_bowl, constant(w_0), optax.sgd(gamma)),
        lam,
        {"G": G, "b": b},
        T,
        finite=finite,
        limit=lambda lam, S: lam - S["b"],
    )


def toy(T: int = 100, gamma: float = 0.1, pull: float = 0.0) -> Problem:
    """The problem of section 4.1: f = |w|^2 + 10 |sin w|^2 with G = diag(1, 1/2).

    **Arguments:**

    - `T`: the number of inner steps.
    - `gamma`: the inner step size.
    - `pull`: the factor c of an added c |lam - (1, 0)|^2, which breaks assumption 3 of
        Theorem 3.4; the paper uses 5.

    **Returns:**

    A `Problem`, with `finite`.

    !!! example

        >>> from bilevax import problems
        >>> problems.toy(pull=5.0).lam
        Array([1., 1.], dtype=float32)
    """
    w_0 = jnp.asarray([2.0, 2.0])
    G = jnp.diag(jnp.asarray([1.0, 0.5]))
    target = jnp.asarray([1.0, 0.0])

    def f(w, lam, S):
        own = jnp.sum(w**2) + 10 * jnp.sum(jnp.sin(w) ** 2)
        return own + pull * jnp.sum((lam - target) ** 2)

    def finite(lam, S):
        C = _contraction(S, gamma, T)
        w_T = C @ w_0 + lam - C @ lam
        alpha, direct = jax.grad(f, (0, 1))(w_T, lam, S)
        return direct + alpha - C @ alpha

    xi = Descent(_bowl, constant(w_0), optax.sgd(gamma))
    return Problem("toy", f, xi, jnp.ones(2), {"G": G}, T, finite=finite)


def counterexample(
    T: int = 20, gamma: float = 0.2, w_0: float = 1.0, lam_0: float = 1.0
) -> Problem:
    """The scalar problem of Theorem 3.5, on which truncation does not converge.

    g = (w - lam)^2 / 2 and f = w^2 / 2 + (lam - lam_0)^2 / 2. Assumption 3 of
    Theorem 3.4 fails: grad_lam f and the pullback point in opposite directions.

    **Arguments:**

    - `T`: the number of inner steps.
    - `gamma`: the inner step size, between 0 and 1.
    - `w_0`: the start of the inner loop.
    - `lam_0`: where grad_lam f vanishes.

    **Returns:**

    A `Problem`, with `finite` and `limit`.

    !!! example

        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> print(p.limit(p.lam, p.S))  # lam = 1/2 is where the whole hypergradient vanishes
        0.0
    """

    def finite(lam, S):
        c = (1 - gamma) ** T
        w_T = c * w_0 + (1 - c) * lam
        return (lam - lam_0) + (1 - c) * w_T

    return Problem(
        "counterexample",
        lambda w, lam, S: w**2 / 2 + (lam - lam_0) ** 2 / 2,
        Descent(
            lambda w, lam, S: (w - lam) ** 2 / 2,
            constant(jnp.asarray(w_0)),
            optax.sgd(gamma),
        ),
        jnp.asarray(0.5),
        None,
        T,
        finite=finite,
        limit=lambda lam, S: (lam - lam_0) + lam,
    )

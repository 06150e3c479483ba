"""What makes a call the call that it is: enough to refuse to go on with another one's tape."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from .. import _tree as tree
from .._loop import Back
from .._outer.checkpoints import named
from .._outer.fingerprint import digest, trace
from .programs import Shardings, ahead, behind_in_segments, finish, turn


def fingerprint(
    parts: tuple, has_aux: bool, inner: tuple[int, ...], shardings: Shardings
) -> dict[str, Any]:
    """Of f, xi, lam, what the start sees, mu and s_0: values by their bits, functions by programs.

    The tape holds pieces of arrays, so where they lie is part of it.
    """
    f, xi, lam, X, mu, s = parts
    T = jnp.zeros((), jnp.int32)
    at = Back(tree.inexact(s), mu, T)
    programs = [
        trace(ahead, xi, mu, X, s, 1, shardings),
        trace(turn, *parts, T, has_aux, shardings),
        trace(behind_in_segments, xi, mu, X, s, at, 1, inner, shardings),
        trace(finish, xi, lam, X, at, lam, True),
    ]
    return {
        "float64": bool(jax.config.read("jax_enable_x64")),
        "forms": {n: f"{a.dtype}{list(a.shape)}" for n, a in named("lam", lam).items()},
        "lam": digest(lam),
        "S": digest(X.S),
        "devices": [jax.process_count(), *(str(a.spec) for a in shardings.s or ())],
        "program": digest(f, xi, s, programs),
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
    }

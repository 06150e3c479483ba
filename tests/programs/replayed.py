"""A replayed hypergradient that a test may kill: python replayed.py DIR; in the end, its bits."""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilevax as bx

T = 300


class Slow:
    """Batch t by t; each takes a while, so that there is time to be killed."""

    def __getitem__(self, t):
        time.sleep(0.002)
        return np.random.default_rng(t).normal(size=(4, 3))


def g(w, lam, x):
    return jnp.mean(jnp.tanh(x @ w - 1.0) ** 2) + jnp.sum(lam * w**2)


def main(directory):
    jax.config.update("jax_enable_x64", True)
    xi = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.adamw(0.01, eps_root=1e-8))
    f = lambda w, lam, S: jnp.sum((w - S) ** 2)
    store = bx.Store(directory, host=1000)
    hg = bx.replay(f, xi, T=T, batches=Slow(), segment=7, store=store)
    out = hg(jnp.full(3, 0.1), jnp.ones(3))
    print(*(float(x).hex() for x in (out.value, *out.h, *out.w)))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""One problem, rule and optimizer for all tests of the outer loop: they compile once."""

import jax
import numpy as np
import optax

import bilevax as bx
from bilevax import problems

P = problems.ridge()
RULE = bx.Reverse(K=5)
ADAM = optax.adam(0.05)


def run(rule=RULE, *, xi=P.xi, f=P.f, lam=P.lam, T=20, steps=12, optimizer=ADAM, **more):
    return bx.minimize(f, xi, rule, lam, T=T, steps=steps, optimizer=optimizer, **more)


def saved_run(directory, steps, *, every=4, keep=3, **more):
    """A run on P.S with a checkpoint after every fourth hyper-iteration."""
    checkpoint = directory and bx.Checkpoint(directory, every=every, keep=keep)
    return run(steps=steps, checkpoint=checkpoint, **({"S": P.S} | more))


def equal(a, b):
    """The same bits."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)


def same(a, b):
    """The same run."""
    return equal((a.lam, a.history), (b.lam, b.history))


def files(directory):
    """The checkpoints in a directory, and what else is in it, without its lock."""
    return sorted(p.name for p in directory.iterdir() if not p.name.startswith("."))

"""Training a GPT as the inner problem, what its documents are worth as the outer one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilevax as bx

from .model import GPT, losses
from .text import SYMBOLS, Batches, Texts, texts, windows


class Setting(NamedTuple):
    """Sizes. As they stand: 0.8 million parameters, and 1,000 steps."""

    documents: int = 240
    judges: int = 40
    """Documents to validate by, and as many to test by."""
    size: int = 2048
    """Signs of a document."""
    length: int = 32
    rows: int = 6
    layers: int = 4
    width: int = 128
    heads: int = 4
    T: int = 1000
    every: int = 50
    """Steps with one learning rate."""
    warm: int = 100
    segment: int = 25


class Problem(NamedTuple):
    """What the rest of the program needs."""

    setting: Setting
    texts: Texts
    f: Any
    xi: bx.Descent
    batches: Batches
    valid: jax.Array
    test: jax.Array

    def start(self, rate):
        """lam: equal weights, and one learning rate, in logarithms."""
        n = -(-self.setting.T // self.setting.every)
        return {"weight": jnp.zeros(self.setting.documents), "rate": jnp.full(n, np.log(rate))}

    def cosine(self, rate):
        """lam of a rate that falls to zero along a cosine."""
        n = len(self.start(rate)["rate"])
        fall = np.log((1 + np.cos(np.pi * (np.arange(n) + 0.5) / n)) / 2)
        return self.start(rate) | {"rate": np.log(rate) + jnp.asarray(fall, jnp.float32)}

    def judge(self, w):
        return {name: f(w, None, S) for name, S in (("valid", self.valid), ("test", self.test))}

    def metagradient(self, store=None):
        p = self.setting
        return bx.replay(
            self.f, self.xi, T=p.T, batches=self.batches, segment=p.segment, store=store
        )

    def train(self):
        """lam -> w_T, by one program that holds all batches."""
        of_t = lambda S, t: jax.tree.map(lambda a: a[t], S)
        xi = bx.Descent(self.xi.g, self.xi.init, self.xi.opt, of_t)
        found = [self.batches[t] for t in range(self.setting.T)]
        stack = jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *found)
        run = jax.jit(lambda lam, S: bx.solve(xi, lam, S, T=self.setting.T))
        return lambda lam: run(lam, stack)


def g(w, lam, batch):
    """Each document has a weight between 0 and 2, which is 1 at lam = 0."""
    weight = 2 * jax.nn.sigmoid(lam["weight"][batch["documents"]])
    return jnp.mean(weight * losses(w, batch["tokens"]))


def f(w, lam, S):
    del lam
    return jnp.mean(losses(w, S))


def adamw(setting):
    """lam -> AdamW with a warm-up, and a learning rate for each `every` steps."""

    def rate(lam, t):
        value = lam["rate"][jnp.minimum(t // setting.every, len(lam["rate"]) - 1)]
        return jnp.exp(value) * jnp.minimum(1.0, (t + 1) / setting.warm)

    return lambda lam: optax.adamw(
        lambda t: rate(lam, t), b2=0.99, eps_root=EPS_ROOT, weight_decay=0.1
    )


EPS_ROOT = 1e-7
"""Far above Adam's default, zero: training is smooth in lam only if small gradients stay small."""


def problem(setting):
    p, found = setting, texts(setting.documents, setting.judges, setting.size)
    model = GPT(SYMBOLS, p.length, p.layers, p.width, p.heads, jax.random.key(0))
    xi = bx.Descent(g, bx.constant(model), adamw(p), symmetric=True)
    batches = Batches(found.train, p.rows, p.length)
    rows = lambda texts: jnp.asarray(windows(texts, p.length + 1).reshape(-1, p.length + 1)[::4])
    return Problem(p, found, f, xi, batches, rows(found.valid), rows(found.test))

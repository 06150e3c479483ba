"""One problem with a batch for each step, and the same one with all batches on the device."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilevax as bx

T = 17
draw = np.random.default_rng(0).normal
BATCHES = [(draw(size=(4, 3)), draw(size=(4,))) for _ in range(T)]
LAM = {"penalty": jnp.asarray(-1.0), "rate": jnp.full(T, -3.0), "start": jnp.ones(3)}
LAM |= {"direct": jnp.asarray(0.5)}
S = {"x": jnp.asarray(draw(size=(5, 3))), "scale": jnp.asarray(0.7)}


def g(w, lam, batch):
    x, y = batch
    return jnp.mean(jnp.tanh(x @ w - y) ** 2) + jnp.exp(lam["penalty"]) * jnp.sum(w**2)


def f(w, lam, S):
    return jnp.mean((S["x"] @ w - lam["direct"]) ** 2) + lam["direct"] ** 2


def init(lam, S):
    return S["scale"] * lam["start"]


def rate(lam):
    return lambda count: jnp.exp(lam["rate"][count])


OPTIMIZERS = {
    "sgd": lambda lam: optax.sgd(rate(lam), momentum=0.9, nesterov=True),
    "adamw": lambda lam: optax.adamw(rate(lam), eps_root=1e-8, weight_decay=lam["direct"]),
    "rmsprop": lambda lam: optax.rmsprop(rate(lam), eps=1e-4),
    "clipped": lambda lam: optax.chain(optax.clip_by_global_norm(0.5), optax.adam(rate(lam))),
    "twice": lambda lam: optax.MultiSteps(optax.sgd(jnp.exp(lam["rate"][0])), 2),
}
XI = bx.Descent(g, init, OPTIMIZERS["adamw"])


class Shown(bx.extend.AbstractDynamics):
    """xi with all batches on the device: its start sees S["S"], step t sees S["batches"][t]."""

    xi: bx.extend.AbstractDynamics

    def start(self, lam, S):
        return self.xi.start(lam, S["S"])

    def advance(self, s, lam, S, t):
        batch = jax.tree.map(lambda a: a[t], S["batches"])
        return self.xi.loop().advance(s, self.xi.mu(lam, S["S"]), batch, t)

    def read(self, s):
        return self.xi.read(s)


def whole(xi=XI, f=f, lam=LAM, K=None, **more):
    """The oracle: one program that holds all data and all states."""
    stacked = {"batches": jax.tree.map(lambda *a: jnp.stack(a), *BATCHES), "S": S}
    of_S = lambda w, lam, S: f(w, lam, S["S"])
    return bx.hypergradient(of_S, Shown(xi), bx.Reverse(K=K), T=T, **more)(lam, stacked)


def replayed(xi=XI, f=f, lam=LAM, *, T=T, batches=BATCHES, segment=5, **more):
    return bx.replay(f, xi, T=T, batches=batches, segment=segment, **more)(lam, S)


def same_bits(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)

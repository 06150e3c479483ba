"""The three families of the Krylov benchmarks, as f, xi, lam and T for `bx.hypergradient`.

- `hypercleaning`: softmax regression on MNIST with a weight for each training example;
- `few_shot_network`: Omniglot, 5 ways and 1 shot, the hyperparameters being the lower half
  of a convolutional network, the start and centre of the upper half, and how it is trained;
- `multilayer`: one hidden layer on digits, with gradient descent, momentum or Adam inside.
"""

import jax
import jax.numpy as jnp
import optax

import bilevax as bx
from bilevax.problems import Problem


def cross_entropy(logits, y):
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


def hypercleaning(n: int = 5000, decay: float = 0.001, rate: float = 1.0) -> Problem:
    """g = mean sigmoid(lam_i) CE_i + decay |W|^2 from W = 0, T = 100; f = validation CE."""

    def g(W, lam, S):
        x, y = S["train"]
        return jnp.mean(jax.nn.sigmoid(lam) * cross_entropy(x @ W, y)) + decay * jnp.sum(W**2)

    f = lambda W, lam, S: jnp.mean(cross_entropy(S["val"][0] @ W, S["val"][1]))
    xi = bx.Descent(g, bx.constant(jnp.zeros((785, 10))), optax.sgd(rate))
    return Problem("mnist", f, xi, jnp.zeros(n), None, 100)


def _patches(x):
    """(n, h, w, c) -> (n, h, w, 9 c): the 3 x 3 surroundings of each pixel."""
    h, w = x.shape[1:3]
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return jnp.concatenate([x[:, i : i + h, j : j + w] for i in range(3) for j in range(3)], -1)


def _pool(x):
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def _block(layer, x):
    """3 x 3 convolution, 2 x 2 max-pool, batch norm by batch statistics, ReLU."""
    x = _pool(_patches(x) @ layer["W"])
    x = (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-3)
    return jax.nn.relu(x)


def _blocks(layers, x):
    for name in sorted(k for k in layers if k.startswith("conv")):
        x = _block(layers[name], x)
    return x


def few_shot_network() -> Problem:
    """Two convolutions in lam, two and a linear layer in w, which starts at lam's centre c."""

    def logits(w, lam, x):
        x = _blocks(w, _blocks(lam["base"], x[..., None]))
        return x.reshape(x.shape[0], -1) @ w["linear"]["W"] + w["linear"]["b"]

    def g(w, lam, S):
        loss = jnp.mean(cross_entropy(logits(w, lam, S["train"][0]), S["train"][1]))
        distance = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), w, lam["c"])
        each = {k: jnp.exp(lam["rho"][k]) * sum(distance[k].values()) for k in w}
        return loss + sum(each.values())

    f = lambda w, lam, S: jnp.mean(cross_entropy(logits(w, lam, S["val"][0]), S["val"][1]))
    rate = lambda lam: optax.sgd(jnp.exp(lam["gamma"]))
    xi = bx.Descent(g, lambda lam, S: lam["c"], rate)
    return Problem("omniglot", f, xi, few_shot_start("regular"), None, 50)


REGIMES = {"regular": (0.1, 0.1, 1.0), "he": (0.1, 0.1, None), "weak": (0.002, 0.5, None)}
"""rho, gamma and the deviation of the first convolution weights; None is He's."""


def few_shot_start(regime: str, F: int = 64) -> dict:
    """lam before any training.

    Behind a batch norm without scale and shift the size of W is no part of the network; it
    divides the gradient, and its square divides the curvature. Weights of unit size make the
    inner loop contract; He's size, 17 times smaller, with the same rho and gamma does not.
    """
    rho, gamma, size = REGIMES[regime]
    keys = jax.random.split(jax.random.key(0), 5)

    def conv(key, inputs):
        return {"W": jax.random.normal(key, (9 * inputs, F)) * (size or (2 / 9 / inputs) ** 0.5)}

    c = {"conv3": conv(keys[2], F), "conv4": conv(keys[3], F)}
    c["linear"] = {"W": jax.random.normal(keys[4], (F, 5)) / F**0.5, "b": jnp.zeros(5)}
    return {
        "base": {"conv1": conv(keys[0], 1), "conv2": conv(keys[1], F)},
        "c": c,
        "rho": {k: jnp.log(jnp.float32(rho)) for k in c},
        "gamma": jnp.log(jnp.float32(gamma)),
    }


OPTIMIZERS = {
    "gd": (optax.sgd, 0.3),
    "momentum": (lambda rate: optax.sgd(rate, momentum=0.9), 0.03),
    "adam": (lambda rate: optax.adam(rate, eps_root=1e-8), 0.003),
}


def multilayer(optimizer: str, n: int = 200, hidden: int = 32) -> Problem:
    """lam: a weight for each example, a decay for each layer and the learning rate; T = 100."""
    make, rate = OPTIMIZERS[optimizer]
    logits = lambda w, x: jnp.tanh(x @ w["W1"] + w["b1"]) @ w["W2"] + w["b2"]

    def g(w, lam, S):
        x, y = S["train"]
        loss = jnp.mean(jax.nn.sigmoid(lam["weight"]) * cross_entropy(logits(w, x), y))
        decay = jnp.stack([jnp.sum(w["W1"] ** 2), jnp.sum(w["W2"] ** 2)])
        return loss + jnp.sum(jnp.exp(lam["decay"]) * decay)

    f = lambda w, lam, S: jnp.mean(cross_entropy(logits(w, S["val"][0]), S["val"][1]))
    k1, k2 = jax.random.split(jax.random.key(0))
    w_0 = {"W1": jax.random.normal(k1, (64, hidden)) / 8, "b1": jnp.zeros(hidden)}
    w_0 |= {"W2": jax.random.normal(k2, (hidden, 10)) / hidden**0.5, "b2": jnp.zeros(10)}
    lam = {
        "weight": jnp.zeros(n),
        "decay": jnp.full(2, jnp.log(1e-3)),
        "rate": jnp.log(jnp.float32(rate)),
    }
    xi = bx.Descent(g, bx.constant(w_0), lambda lam: make(jnp.exp(lam["rate"])))
    return Problem(f"mlp {optimizer}", f, xi, lam, None, 100)

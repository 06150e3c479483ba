"""The one-shot network of the appendix as a bilevel problem.

Two convolutions belong to lam and are the same for all tasks; two more and a linear layer are
w, trained on a task of one drawing a class from where lam says (c), and held near it:

    g = CE(w; support) + sum_j rho_j |w_j - c_j|^2,   T steps with the learned step gamma
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from .._dynamics import Descent, Prepared
from .convolution import block, first_layer, normalise, patches, pool
from .episodes import Task
from .rows import cross_entropy

Hyper = dict[str, Any]


def first_lam(key: Array, ways: int, filters: int, rho: float, gamma: float) -> Hyper:
    """lam before any training; rho and gamma are kept as logarithms, so they stay positive."""
    keys = jax.random.split(key, 5)
    linear = jax.random.normal(keys[4], (filters, ways)) / filters**0.5
    c = {
        "conv3": first_layer(keys[2], filters, filters),
        "conv4": first_layer(keys[3], filters, filters),
        "linear": {"kernel": linear, "shift": jnp.zeros(ways)},
    }
    base = {
        "conv1": first_layer(keys[0], 1, filters),
        "conv2": first_layer(keys[1], filters, filters),
    }
    log = lambda value: jnp.log(jnp.asarray(value, jnp.result_type(float)))
    return {"base": base, "c": c, "rho": {name: log(rho) for name in c}, "gamma": log(gamma)}


def represent(lam: Hyper, x: Array) -> Array:
    """The part of the network that no task changes: (n, 28, 28) -> (n, 7, 7, filters)."""
    return block(lam["base"]["conv2"], block(lam["base"]["conv1"], x[..., None]))


def classify(w: PyTree, P: Array) -> Array:
    """Logits, from the patches of a representation; 28 = 2 * 2 * 7 pixels leave one of 1 x 1."""
    x = block(w["conv4"], normalise(w["conv3"], pool(P, w["conv3"]["kernel"])))
    return x.reshape(x.shape[0], -1) @ w["linear"]["kernel"] + w["linear"]["shift"][None]


def prepare(lam: Hyper, S: Task) -> Hyper:
    """What the inner loop sees of lam: the support set as patches, c, rho and gamma."""
    rho, gamma = jax.tree.map(jnp.exp, (lam["rho"], lam["gamma"]))
    return {"P": patches(represent(lam, S.x)), "c": lam["c"], "rho": rho, "gamma": gamma}


def g(w: PyTree, mu: Hyper, S: Task) -> Array:
    far = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), w, mu["c"])
    pull = sum(mu["rho"][name] * sum(far[name].values()) for name in w)
    return jnp.mean(cross_entropy(classify(w, mu["P"]), S.y)) + pull


def f(w: PyTree, lam: Hyper, S: Task) -> Array:
    return jnp.mean(cross_entropy(query(w, lam, S), S.y_val))


def query(w: PyTree, lam: Hyper, S: Task) -> Array:
    """Logits of the query images, normalised among themselves (transductive, as in MAML)."""
    return classify(w, patches(represent(lam, S.x_val)))


def dynamics() -> Prepared:
    """Gradient descent from c; the representation of the support set is computed once a task."""
    inner = Descent(g, lambda mu, S: mu["c"], lambda mu: optax.sgd(mu["gamma"]))
    return Prepared(prepare, inner)


def slowing_adam(steps: int, rate: float, slow: float = 0.1) -> optax.GradientTransformation:
    """Adam for lam; its rate falls to a hundredth as half a cosine.

    It is smaller by `slow` for the logarithms of rho and gamma: with the rate of the weights
    gamma grows until it hurts.
    """
    decay = lambda rate: optax.adam(optax.cosine_decay_schedule(rate, steps, 0.01))
    kinds = {"base": "weights", "c": "weights", "rho": "logarithms", "gamma": "logarithms"}
    return optax.partition({"weights": decay(rate), "logarithms": decay(slow * rate)}, kinds)

"""Three ways to suspect a document, each larger for a worse one; and how good a ranking is."""

import jax
import jax.numpy as jnp
import numpy as np

from .model import losses
from .text import windows


def area(score, bad):
    """Under the ROC curve: how often a bad document has a larger score than a good one."""
    higher = score[bad][:, None] - score[~bad][None]
    return float(np.mean((higher > 0) + (higher == 0) / 2))


def curve(score, bad):
    """The ROC curve: shares of good and of bad documents among the first suspects."""
    order = np.argsort(-score, kind="stable")
    share = lambda hit: np.concatenate([[0], np.cumsum(hit[order]) / hit.sum()])
    return share(~bad), share(bad)


def at_the_end(w, p):
    """Of each document, with the trained model: its loss, and minus the cosine of its gradient
    with that of the validation loss."""
    rows = jnp.asarray(windows(p.texts.train, p.setting.length + 1))
    want = jax.grad(lambda w: jnp.mean(losses(w, p.valid)))(w)
    flat = lambda tree: jnp.concatenate([a.ravel() for a in jax.tree.leaves(tree)])
    want = flat(want)

    def one(tokens):
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(losses(w, tokens)))(w)
        gradient = flat(gradient)
        return loss, -gradient @ want / jnp.linalg.norm(gradient) / jnp.linalg.norm(want)

    loss, cosine = jax.jit(lambda rows: jax.lax.map(one, rows))(rows)
    return {"loss": loss, "cosine": cosine}

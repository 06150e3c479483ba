"""Cleaning as a bilevel problem (section 4.2.1).

    g(w, lam) = mean_i sigmoid(lam_i) l(w, x_i, y_i) + decay |w|^2
    f(w)      = mean of l over the trusted rows

with l the cross-entropy. Everything that differs between data sets of one shape is an array, so
that they share one compiled program.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import _tree as tree
from .._compile import weak_jit
from .._dynamics import Descent, all_of
from .._loop import unroll
from .._models.rows import Rows, cross_entropy, descent
from .._types import Context, Hyper, Params

Apply = Callable[[Params, Array], Array]

ALL = 30.0
"""A lam whose weight is one."""
PRODUCTS = 20
"""Power iterations for the largest curvature."""


class Inner(eqx.Module):
    """g; a minibatch says in S["rows"] which lam are its own."""

    apply: Apply

    def __call__(self, w: Params, lam: Hyper, S: Context) -> Array:
        x, y = S["train"]
        lam = lam[S["rows"]] if "rows" in S else lam
        loss = jnp.mean(jax.nn.sigmoid(lam) * cross_entropy(self.apply(w, x), y))
        return S["unit"] * loss + S["decay"] * tree.dot(w, w)


class Outer(eqx.Module):
    """f."""

    apply: Apply

    def __call__(self, w: Params, lam: Hyper, S: Context) -> Array:
        del lam
        x, y = S["trusted"]
        return jnp.mean(cross_entropy(self.apply(w, x), y))


class Batches(eqx.Module):
    """What step t sees: rows drawn from fold_in(key, t), so that a step can be replayed."""

    size: int = eqx.field(static=True)

    def __call__(self, S: Context, t: Any) -> Context:
        rows = _draw(jax.random.fold_in(S["key"], t), self.size, S["train"].y.shape[0])
        return S | {"train": Rows(*(a[rows] for a in S["train"])), "rows": rows}


class Contexts(eqx.Module):
    """key -> S of a hyper-iteration: other minibatches inside, and another one outside."""

    S: Context
    size: int = eqx.field(static=True)

    def __call__(self, key: Array) -> Context:
        inside, outside = jax.random.split(key)
        trusted = self.S["trusted"]
        if trusted.y.shape[0] > self.size:
            rows = _draw(outside, self.size, trusted.y.shape[0])
            trusted = Rows(*(a[rows] for a in trusted))
        return self.S | {"trusted": trusted, "key": inside}


def _draw(key: Array, size: int, n: int) -> Int[Array, " size"]:
    return jax.random.randint(key, (size,), 0, n, jnp.int32)


class Cleaning(NamedTuple):
    """The problem, with everything that `diagnose` and `minimize` ask for."""

    f: Outer
    xi: Descent
    lam: Hyper
    S: Context
    T: int
    size: int | None
    """Rows in a minibatch; None if every step sees all."""

    def at_rate(self, gamma: float) -> "Cleaning":
        w = self.xi.init(self.lam, self.S)
        return self._replace(xi=descent(self.xi.g, w, gamma, self.xi.sample))

    def on(self, train: Rows, weight: Array) -> "Cleaning":
        """The same, for other rows to learn from, with weights that count in proportion."""
        lam = jax.scipy.special.logit(jnp.clip(weight, 1e-12, 1 - 1e-6))
        return self._replace(lam=lam, S=self.S | {"train": train, "unit": 1 / jnp.mean(weight)})


def cleaning(
    apply: Apply,
    w: Params,
    train: Rows,
    trusted: Rows,
    *,
    T: int,
    decay: float,
    size: int | None,
    key: Array,
) -> Cleaning:
    """The problem with a step size of one, for `at_rate` to set."""
    xi = descent(Inner(apply), w, 1.0, all_of if size is None else Batches(size))
    S = {"train": train, "trusted": trusted, "decay": jnp.asarray(decay, jnp.float32)}
    S |= {"unit": jnp.ones((), jnp.float32), "key": key}
    lam = jnp.zeros(train.y.shape[0], jnp.float32)
    return Cleaning(Outer(apply), xi, lam, S, T, size)


@weak_jit
def train(p: Cleaning, lam: Hyper) -> Params:
    """w_T; not finite if the step size is too large."""
    return p.xi.read(unroll(p.xi, lam, p.S, p.xi.start(lam, p.S), 0, p.T))


@weak_jit
def belief(p: Cleaning, w: Params) -> Float[Array, " n"]:
    """The probability that the model gives to the label of each row."""
    return jnp.exp(-cross_entropy(p.f.apply(w, p.S["train"].x), p.S["train"].y))


@weak_jit
def smoothness(p: Cleaning, w: Params, lam: Hyper) -> Float[Array, ""]:
    """The largest curvature of g at w, by power iterations, on what step 0 sees."""
    S = p.xi.sample(p.S, jnp.zeros((), jnp.int32))
    gradient = jax.grad(lambda w: p.xi.g(w, lam, S))
    step = lambda v: jax.jvp(gradient, (w,), (v,))[1]
    return tree.growth(step, tree.normal(p.S["key"], w), PRODUCTS)

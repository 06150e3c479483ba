"""A step of descent, linearised in mixed mode: forward over reverse (Kemaev et al., ICML 2025).

Reverse mode over a gradient keeps what the gradient computes. Where the second derivatives of g are
symmetric, one jvp of the joint gradient gives A and B together, and keeps what a gradient keeps:

    (d_w, d_lam) <v, grad_w g(w, lam)>  =  d/de grad_(w, lam) g(w + e v, lam)  at e = 0
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from .. import _tree as tree
from .._errors.mixed import has_forward_mode
from .._types import Hyper, Params, Product
from .base import Stateful

Model: TypeAlias = Params | Stateful
Objective: TypeAlias = Callable[[Model, Hyper], tuple[Array, PyTree]]
"""(model, lam) -> (g, the new state of the model), on what a step sees of S."""


class Slope(NamedTuple):
    """What a step asks of g; or the cotangents of that."""

    value: Array
    gradient: Params
    state: PyTree
    """The new state of the model; None where there is none."""


def slope(objective: Objective, model: Model, lam: Hyper) -> Slope:
    line = lambda w: objective(replaced(model, w), lam)
    (value, state), gradient = jax.value_and_grad(line, has_aux=True)(trained(model))
    return Slope(value, gradient, state)


def mixed_vjp(
    objective: Objective, follow: Callable[[Slope, Any, Hyper], Any], s: Any, lam: Hyper
) -> Product:
    """alpha -> (A alpha, B alpha) of s -> follow(slope, s, lam), which is what the optimizer does.

    Reverse mode takes alpha through the optimizer alone, to cotangents of the slope and of
    all else that it uses, such as g itself in a line search.
    """
    x, rest = eqx.partition(s, eqx.is_inexact_array)
    at, fixed = eqx.partition(slope(objective, s.w, lam), eqx.is_inexact_array)
    smooth = lambda at, x, lam: follow(eqx.combine(at, fixed), eqx.combine(x, rest), lam)
    pull = jax.vjp(lambda at, x, lam: tree.inexact(smooth(at, x, lam)), at, x, lam)[1]

    def product(alpha: PyTree) -> tuple[PyTree, Hyper]:
        bar, x_bar, lam_bar = pull(alpha)
        model_bar, more = curvature(objective, s.w, lam, bar)
        x_bar = x_bar._replace(w=optax.tree.add(x_bar.w, model_bar))
        return x_bar, optax.tree.add(lam_bar, more)

    return product


def curvature(objective: Objective, model: Model, lam: Hyper, bar: Slope) -> tuple[Model, Hyper]:
    """The pullback of `slope` in (model, lam), by one jvp.

    With c, v, u for the cotangents of the value g, its gradient and the new state G: the equation
    above, of g + e (c g + <u, G>).
    """
    x, rest = eqx.partition(model, eqx.is_inexact_array)

    def tilted(x, lam, e):
        g, G = objective(eqx.combine(x, rest), lam)
        tilt = jnp.real(tree.dot(bar.state, tree.inexact(G))).astype(g.dtype)
        return g + e.astype(g.dtype) * (bar.value.astype(g.dtype) * g + tilt)

    joint = lambda x, e: jax.grad(tilted, (0, 1))(x, lam, e)
    here, along = (
        (x, jnp.zeros(())),
        (replaced(optax.tree.zeros_like(x), bar.gradient), jnp.ones(())),
    )
    has_forward_mode(joint, here, along)
    return jax.jvp(joint, here, along)[1]


def trained(model: Model) -> Params:
    """w, of a model with or without a state."""
    return model.w if isinstance(model, Stateful) else model


def replaced(model: Model, w: Params) -> Model:
    return model._replace(w=w) if isinstance(model, Stateful) else w

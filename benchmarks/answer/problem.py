"""What a problem is, and how a lam is judged: train with it to the end, look at the loss."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax

Arrays = dict[str, Any]
Loss = Callable[[Any, Any, Arrays], jax.Array]


class Problem(NamedTuple):
    """min over lam of f(w, lam), where w minimises g(w, lam)."""

    f: Loss
    """The validation loss."""
    g: Loss
    """The training loss; S["rows"] says whose weights a minibatch has, None means all."""
    lam: jax.Array
    w: jax.Array
    """Where training starts."""
    S: Arrays
    """x, y, x_val, y_val, rows."""
    gamma: Any
    """The step size of gradient descent on g, for every method: 1 / the largest curvature."""
    judge: Callable[["Problem", jax.Array], jax.Array]
    """lam -> validation loss of a model that is trained with it from the start."""

    def sample(self, t: Any, size: int | None) -> Arrays:
        """What iteration t sees: everything, or blocks of rows in a random order."""
        return self.S if size is None else blocks(self.S, jax.random.fold_in(KEY, t), size)


KEY = jax.random.key(0)


def blocks(S: Arrays, key: jax.Array, size: int) -> Arrays:
    """A block of rows for g, and one for f."""
    inner, outer = jax.random.split(key)
    x, y, rows = _block(inner, size, S["x"], S["y"], jnp.arange(len(S["y"])))
    x_val, y_val = _block(outer, size, S["x_val"], S["y_val"])
    return {"x": x, "y": y, "rows": rows, "x_val": x_val, "y_val": y_val}


def _block(key: jax.Array, size: int, *arrays: jax.Array) -> list[jax.Array]:
    begin = size * jax.random.randint(key, (), 0, len(arrays[0]) // size)
    return [lax.dynamic_slice_in_dim(a, begin, size) for a in arrays]


def weights(lam: jax.Array, S: Arrays) -> jax.Array:
    """A weight between 0 and 1 for each example that S has."""
    return jax.nn.sigmoid(lam if S["rows"] is None else lam[S["rows"]])


def curvature(g: Loss, w: jax.Array, lam: jax.Array, S: Arrays) -> jax.Array:
    """The largest eigenvalue of the Hessian of g, by power iterations."""
    product = lambda v: jax.jvp(lambda w: jax.grad(g)(w, lam, S), (w,), (v,))[1]
    unit = lambda v: v / jnp.linalg.norm(v)
    v = jax.random.normal(jax.random.key(0), w.shape, w.dtype)
    v = lax.fori_loop(0, 50, lambda _, v: unit(product(v)), v)
    return jnp.vdot(v, product(v))


def solved(problem: Problem, lam: jax.Array, most: int = 500) -> jax.Array:
    """The validation loss where L-BFGS has made the gradient of g small: for a convex g."""
    _, g, _, w, S, _, _ = problem
    bfgs, loss = optax.lbfgs(), lambda w: g(w, lam, S)
    first = jnp.linalg.norm(jax.grad(loss)(w))

    def unfinished(carry):
        _, _, size, k = carry
        return (size > 3e-4 * first) & (k < most)

    def body(carry):
        w, state, _, k = carry
        value, grad = optax.value_and_grad_from_state(loss)(w, state=state)
        step, state = bfgs.update(grad, state, w, value=value, grad=grad, value_fn=loss)
        return w + step, state, jnp.linalg.norm(grad), k + 1

    w, *_ = lax.while_loop(unfinished, body, (w, bfgs.init(w), first, 0))
    return problem.f(w, lam, S)

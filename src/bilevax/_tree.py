"""Algebra on pytrees: the vectors of the paper, whatever their structure."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Int, PyTree


def scale(c: Array | float, x: PyTree) -> PyTree:
    """c x, keeping the dtype of every leaf of x."""
    return jax.tree.map(lambda a: jnp.asarray(c, a.dtype) * a, x)


def dot(x: PyTree, y: PyTree) -> Array:
    """<x, y>, accumulated in the widest dtype among the leaves."""
    pairs = list(zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))
    dtype = widest(x)
    terms = (jnp.sum(a * b).astype(dtype) for a, b in pairs)
    return sum(terms, start=jnp.zeros((), dtype))


def norm(x: PyTree) -> Array:
    """The Euclidean norm, free of overflow and underflow; its derivative at zero is zero."""
    dtype = widest(x)
    peaks = [jnp.max(jnp.abs(a)).astype(dtype) for a in jax.tree.leaves(x) if a.size]
    if not peaks:
        return jnp.zeros((), dtype)
    safe = lax.stop_gradient(positive(jnp.max(jnp.stack(peaks))))
    return safe * root(dot(scale(1 / safe, x), scale(1 / safe, x)))


def unit(x: PyTree) -> PyTree:
    """x / |x|; zero stays zero."""
    return scale(1 / positive(norm(x)), x)


def growth(step: Callable[[PyTree], PyTree], x: PyTree, rounds: int) -> Array:
    """The norm of a linear map, from below, by power iteration from x."""

    def body(_, carry):
        y = optax.tree.cast_like(step(unit(carry[0])), x)
        return y, norm(y)

    return lax.fori_loop(0, rounds, body, (x, jnp.zeros((), widest(x))))[1]


def root(x: Array) -> Array:
    """The square root, with the derivative 0 at 0 in place of infinity."""
    return jnp.where(x <= 0, jnp.zeros_like(x), jnp.sqrt(positive(x)))  # nan stays nan


def positive(x: Array) -> Array:
    """x, or 1 where x is zero: a length that may stand below a fraction."""
    return jnp.where(x <= 0, jnp.ones_like(x), x)


def combine(c: Array, Q: PyTree) -> PyTree:
    """sum_j c_j Q_j, for vectors stacked along the first axis of every leaf."""
    return jax.tree.map(lambda q: jnp.tensordot(c.astype(q.dtype), q, axes=1), Q)


def coordinates(Q: PyTree, x: PyTree) -> Array:
    """<Q_j, x> for vectors stacked along the first axis of every leaf."""
    return jax.vmap(dot, (0, None))(Q, x)


def stack_of_zeros(n: int, x: PyTree) -> PyTree:
    return jax.tree.map(lambda a: jnp.zeros((n, *a.shape), a.dtype), x)


def normal(key: Array, x: PyTree) -> PyTree:
    """Random numbers in the shapes of x."""
    leaves, treedef = jax.tree.flatten(x)
    keys = jax.random.split(key, max(len(leaves), 1))
    pairs = zip(keys, leaves, strict=False)
    return treedef.unflatten([jax.random.normal(k, a.shape, a.dtype) for k, a in pairs])


def put(Q: PyTree, j: Any, x: PyTree) -> PyTree:
    """Q with Q_j = x."""
    return jax.tree.map(lambda q, a: q.at[j].set(a), Q, x)


def take(Q: PyTree, j: Any) -> PyTree:
    """Q_j."""
    return jax.tree.map(lambda q: q[j], Q)


def all_finite(x: PyTree) -> Array:
    checks = [jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(x)]
    return jnp.all(jnp.stack(checks)) if checks else jnp.asarray(True)


def size(x: PyTree) -> int:
    """The dimension of the space x lives in: N for lam, M for w."""
    return sum(a.size for a in jax.tree.leaves(x))


def widest(x: PyTree, *least: Any) -> Any:
    """The widest dtype among the leaves, and any others that are given."""
    dtypes = [*(a.dtype for a in jax.tree.leaves(x)), *least]
    with jax.numpy_dtype_promotion("standard"):
        return jnp.result_type(*dtypes) if dtypes else jnp.result_type(float)


def inexact(x: PyTree) -> PyTree:
    """The differentiable part of a state; integer counts and keys become None."""
    return eqx.filter(x, eqx.is_inexact_array)


def strong(x: PyTree) -> PyTree:
    """Arrays with settled types: numpy becomes JAX, weak types become strong.

    A weakly typed start (a state built from Python numbers) would otherwise change its
    type in the first step, which `lax.scan` refuses.
    """
    return jax.tree.map(_strong, x)


def _strong(a: Any) -> Any:
    if (isinstance(a, jax.Array) and not a.aval.weak_type) or not eqx.is_array_like(a):
        return a
    a = jnp.asarray(a)
    plain = jnp.issubdtype(a.dtype, jnp.number) or a.dtype == jnp.bool_
    return lax.convert_element_type(a, a.dtype) if plain else a


def basis(x: PyTree, i: Int[Array, ""]) -> PyTree:
    """The i-th unit vector of the space of x, built without an identity matrix."""
    leaves, treedef = jax.tree.flatten(x)
    out, offset = [], 0
    for a in leaves:
        index = jnp.arange(a.size, dtype=jnp.int32) + offset
        out.append((index == i).astype(a.dtype).reshape(a.shape))
        offset += a.size
    return treedef.unflatten(out)


def from_coordinates(x: PyTree, c: Array) -> PyTree:
    """The vector with coordinates c in the basis of `basis`, in the shapes of x."""
    leaves, treedef = jax.tree.flatten(x)
    out, offset = [], 0
    for a in leaves:
        out.append(c[offset : offset + a.size].astype(a.dtype).reshape(a.shape))
        offset += a.size
    return treedef.unflatten(out)

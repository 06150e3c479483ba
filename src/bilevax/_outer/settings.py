"""What a run is: enough to refuse to go on with another one."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from .. import _tree as tree
from .._types import Context, Hyper
from .average import Outer
from .contexts import Reader
from .journal import named


def describe(outer: Outer, lam: Hyper, S: Context, reader: Reader | None) -> dict[str, Any]:
    """The settings, as JSON. Functions cannot be compared; what they do to lam_0 and S can."""
    key = None if outer.key is None else np.asarray(jax.random.key_data(outer.key)).tolist()
    opt = jax.eval_shape(outer.optimizer.init, lam)
    forms = named("lam", lam) | named("opt", opt)
    return {
        "T": outer.T,
        "rule": re.sub(r" at 0x[0-9a-f]+", "", repr(outer.rule)),
        "batch": outer.batch,
        "warm_start": outer.warm,
        "contexts": "an iterator" if reader else "a sampler" if outer.draw else "one, S",
        "float64": bool(jax.config.read("jax_enable_x64")),
        "shapes": {name: f"{a.dtype}{list(a.shape)}" for name, a in forms.items()},
        "key": key,
        "lam0": sketch(lam),
        "S": sketch(outer.S),
        "optimizer": sketch(_first_update(outer, lam)),
        "first context": sketch(S) if reader and not reader.knows else None,
        "first step": sketch(_first_step(outer, lam, S)) if not (reader and reader.knows) else None,
    }


@eqx.filter_jit
def _first_step(outer: Outer, lam: Hyper, S: Context) -> Any:
    """w_1 and f there: another g, f, inner step size or sampler would give other numbers."""
    S = outer.draw(outer.key) if outer.draw is not None else S
    w = outer.xi.read(outer.xi.advance(outer.xi.start(lam, S), lam, S, 0))
    return w, outer.f(w, lam, S)


def _first_update(outer: Outer, lam: Hyper) -> Hyper:
    ones = jax.tree.map(jnp.ones_like, lam)
    value = tree.dot(lam, ones)
    with jax.numpy_dtype_promotion("standard"):
        state = outer.optimizer.init(lam)
        line = lambda x: tree.dot(x, ones)
        return outer.optimizer.update(ones, state, lam, value=value, grad=ones, value_fn=line)[0]


def sketch(x: PyTree) -> list[Any]:
    """Two numbers for each leaf that other values would not share.

    They are compared up to rounding: another machine may draw the same lam_0 with other last
    bits.
    """
    return [_sketch(a) if hasattr(a, "dtype") else repr(a) for a in jax.tree.leaves(x)]


def _sketch(a: Array) -> list[float]:
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a = jax.random.key_data(a)
    size, side = _project(a)
    return [float(size), float(side) / (float(size) or 1.0)]


@jax.jit
def _project(a: Array) -> tuple[Array, Array]:
    """|a|, and the inner product of a with a fixed vector of signs."""
    a = jnp.nan_to_num(a.astype(jnp.float32))
    index = jnp.zeros(a.shape, jnp.uint32)
    for axis, length in enumerate(a.shape):  # without a reshape, which would gather the shards
        index = index * jnp.uint32(length) + lax.broadcasted_iota(jnp.uint32, a.shape, axis)
    mixed = (index + jnp.uint32(1)) * jnp.uint32(2654435761)
    signs = jnp.where(mixed >> 31 == 1, jnp.float32(-1), jnp.float32(1))
    return tree.norm(a), jnp.sum(a * signs)

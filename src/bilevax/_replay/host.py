"""Arrays in host memory, in the pieces in which the devices of this process hold them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jaxtyping import PyTree

from .._outer.checkpoints import Arrays, named


class Leaf(NamedTuple):
    """Where an array lies, and what a key is made of."""

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    key: Any = None


class Skeleton(NamedTuple):
    """What is to be known of a pytree to put it back on the devices."""

    treedef: Any
    leaves: dict[str, Leaf]


def skeleton(x: PyTree) -> Skeleton:
    return Skeleton(jax.tree.structure(x), {name: _leaf(a) for name, a in named("", x).items()})


def _leaf(a: jax.Array) -> Leaf:
    numbers = _numbers(a)
    key = None if numbers is a else jax.random.key_impl(a)
    return Leaf(numbers.shape, numbers.dtype, numbers.sharding, key)


def _numbers(a: jax.Array) -> jax.Array:
    return jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a


def to_host(x: PyTree) -> Arrays:
    """What the devices of this process hold of x, each piece once."""
    out = {}
    for name, a in named("", x).items():
        for shard in _numbers(a).addressable_shards:
            piece = f"{name} {_span(shard.index)}"
            if piece not in out:
                out[piece] = np.asarray(shard.data)
    return out


def from_host(skeleton: Skeleton, arrays: Arrays) -> PyTree:
    """What `to_host` made of an x of this skeleton, as x again, in the same places."""
    return skeleton.treedef.unflatten(
        [_restored(name, leaf, arrays) for name, leaf in skeleton.leaves.items()]
    )


def _restored(name: str, leaf: Leaf, arrays: Arrays) -> jax.Array:
    piece = lambda index: arrays[f"{name} {_span(index)}"]
    if isinstance(leaf.sharding, NamedSharding):
        a = jax.make_array_from_callback(leaf.shape, leaf.sharding, piece, dtype=leaf.dtype)
    else:  # not bound to a device, as it was: a program is compiled for one or the other
        a = jnp.asarray(piece((slice(None),) * len(leaf.shape)))
    return a if leaf.key is None else jax.random.wrap_key_data(a, impl=leaf.key)


def _span(index: tuple[slice, ...]) -> str:
    return ",".join(f"{i.start or 0}:{'' if i.stop is None else i.stop}" for i in index)


def size(arrays: Arrays) -> int:
    return sum(a.nbytes for a in arrays.values())

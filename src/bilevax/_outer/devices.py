"""Where the arrays of a run live: on one device, or on a mesh of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, Sharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree


def mesh_of(mesh: Mesh | None, x: PyTree) -> Mesh | None:
    """The given mesh, or else the one over which an array of x is already divided.

    Its axes become automatic: the run says where its own arrays go, and XLA finds the rest.
    """
    used = [a.sharding.mesh for a in jax.tree.leaves(x) if _has_place(a)]
    mesh = mesh or (used[0] if used else None)
    return mesh and Mesh(mesh.devices, mesh.axis_names)


def on_device(x: PyTree) -> PyTree:
    """numpy becomes JAX, once and not at every call."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, x)


def everywhere(x: PyTree, mesh: Mesh | None) -> PyTree:
    """Arrays of x on every device of the mesh; what already has a place stays there."""
    if mesh is None:
        return x

    def place(a):
        if not isinstance(a, jax.Array):
            return a
        if _has_place(a):  # moves nothing, names this mesh
            return jax.device_put(a, NamedSharding(mesh, a.sharding.spec))  # pyright: ignore
        return put(a, NamedSharding(mesh, P()))

    return jax.tree.map(place, x)


def divided(x: PyTree, mesh: Mesh) -> PyTree:
    """x divided among the devices of the mesh along the first axis."""
    place = NamedSharding(mesh, P(mesh.axis_names))
    return jax.tree.map(lambda a: put(a, place), x)


def put(a: Any, place: Sharding) -> jax.Array:
    """Every process has all of a, and puts what belongs to its own devices."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(
            put(jax.random.key_data(a), place), impl=jax.random.key_impl(a)
        )
    values = np.asarray(a)
    return jax.make_array_from_callback(values.shape, place, lambda index: values[index])


def on_host(a: Any) -> np.ndarray:
    """All of a, in the memory of every process; a key as its numbers."""
    if not isinstance(a, jax.Array):
        return np.asarray(a)
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a = jax.random.key_data(a)
    if a.is_fully_addressable or a.is_fully_replicated:
        return np.asarray(a)
    return np.asarray(multihost_utils.process_allgather(a, tiled=True))


def like(a: jax.Array, values: np.ndarray) -> jax.Array:
    """What `on_host` made of an array such as a, as that array again, in the same place."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        data = like(jax.random.key_data(a), values)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(a))
    return put(values.view(a.dtype), a.sharding)  # numpy does not know bfloat16


def constrained(x: PyTree, places: tuple[Any, ...] | None) -> PyTree:
    """Inside a program: the leaves of x in these places."""
    if places is None:
        return x
    leaves, treedef = jax.tree.flatten(x)
    return treedef.unflatten(map(lax.with_sharding_constraint, leaves, places))


def replicated(x: PyTree, mesh: Mesh | None) -> PyTree:
    """Inside a program: x, whole on every device, because each process reads it."""
    return x if mesh is None else lax.with_sharding_constraint(x, NamedSharding(mesh, P()))


def agreed(n: int, *flags: int) -> tuple[int, ...]:
    """The first process's n, and every flag that any process raises (the largest)."""
    if jax.process_count() == 1:
        return n, *flags
    table = np.asarray(multihost_utils.process_allgather(np.array([n, *flags], np.int32)))
    return int(table[0, 0]), *(int(x) for x in table[:, 1:].max(axis=0))


def _has_place(a: Any) -> bool:
    """Whether somebody has put a on a mesh."""
    return isinstance(a, jax.Array) and isinstance(a.sharding, NamedSharding)

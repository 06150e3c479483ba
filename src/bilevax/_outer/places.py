"""Where the arrays of a run live: on one device, or copied over a mesh of them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree


def mesh_of(mesh: Mesh | None, x: PyTree) -> Mesh | None:
    """The given mesh, or else the one over which an array of x is already spread.

    Its axes become automatic: the run says where its own arrays go, and XLA finds the rest.
    """
    spread = [a.sharding.mesh for a in jax.tree.leaves(x) if _is_spread(a)]
    mesh = mesh or (spread[0] if spread else None)
    return mesh and Mesh(mesh.devices, mesh.axis_names)


def on_device(x: PyTree) -> PyTree:
    """numpy becomes JAX, once and not at every call."""
    return jax.tree.map(lambda a: jnp.asarray(a) if isinstance(a, np.ndarray) else a, x)


def everywhere(x: PyTree, mesh: Mesh | None) -> PyTree:
    """Arrays of x on every device of the mesh; what is already spread stays where it is."""
    if mesh is None:
        return x

    def place(a):
        if not isinstance(a, jax.Array):
            return a
        if _is_spread(a):  # moves nothing, names this mesh
            return jax.device_put(a, NamedSharding(mesh, a.sharding.spec))  # pyright: ignore
        return put(a, NamedSharding(mesh, P()))

    return jax.tree.map(place, x)


def copied(x: PyTree) -> PyTree:
    """Arrays of one's own: those of a run are overwritten by its next step."""
    return jax.tree.map(lambda a: jnp.array(a, copy=True), x)


def divided(x: PyTree, mesh: Mesh) -> PyTree:
    """x divided among the devices of the mesh along the first axis."""
    place = NamedSharding(mesh, P(mesh.axis_names))
    return jax.tree.map(lambda a: put(a, place), x)


def put(a: Any, place: NamedSharding) -> jax.Array:
    """Every process has all of a, and puts what belongs to its own devices."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(
            put(jax.random.key_data(a), place), impl=jax.random.key_impl(a)
        )
    values = np.asarray(a)
    return jax.make_array_from_callback(values.shape, place, lambda index: values[index])


def _is_spread(a: Any) -> bool:
    """Whether somebody has given a a place on a mesh."""
    return isinstance(a, jax.Array) and isinstance(a.sharding, NamedSharding)


def agreed(n: int, *flags: int) -> tuple[int, ...]:
    """The first process's n, and every flag that any process raises (the largest)."""
    if jax.process_count() == 1:
        return n, *flags
    table = np.asarray(multihost_utils.process_allgather(np.array([n, *flags], np.int32)))
    return int(table[0, 0]), *(int(x) for x in table[:, 1:].max(axis=0))

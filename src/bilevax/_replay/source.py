"""Batches from a random-access source, a segment at a time, read ahead by a thread."""

import collections
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from .._errors import replay as check
from .._outer.devices import put
from .._outer.fingerprint import digest
from .route import Leg, Segment

AHEAD = 1
"""Segments that are read while another one is worked on."""
R = TypeVar("R")


class Source:
    """What `batches` holds, in batches of one form."""

    def __init__(self, batches: Any, T: int):
        check.source(batches, T)
        self._batches, self._T = batches, T
        self._form = None

    def read(self, segment: Segment) -> tuple[PyTree, str]:
        """The batches of a segment, stacked, and their checksum."""
        items = [self._item(t) for t in range(segment.t, segment.t + segment.n)]
        stack = jax.tree.map(lambda *xs: np.stack(xs), *items)
        return stack, digest(stack)

    def _item(self, t: int) -> PyTree:
        with check.short(t, self._T):
            item = self._batches[t]
        paths = jax.tree_util.tree_leaves_with_path(item)
        item = jax.tree.structure(item).unflatten([check.batch(t, *leaf) for leaf in paths])
        leaves, treedef = jax.tree.flatten(item)
        form = treedef, [f"{a.dtype}{list(a.shape)}" for a in leaves]
        t_first, first = self._form = self._form or (t, form)
        if form != first:
            told = [jax.tree.unflatten(*parts) for parts in (form, first)]
            check.other_form(t, told[0], t_first, told[1])
        return item


def on_devices(stack: PyTree, mesh: Mesh | None) -> PyTree:
    """Whole on every device; a g that wants them divided says so."""
    if mesh is None:
        return jax.tree.map(jnp.asarray, stack)
    return jax.tree.map(lambda a: put(a, NamedSharding(mesh, P())), stack)


def read_ahead(read: Callable[[Leg], R], route: Iterator[Leg]) -> Generator[tuple[Leg, R]]:
    """Every leg with what `read` finds for it, while the one before it is worked on."""
    waiting = collections.deque()
    with ThreadPoolExecutor(1) as pool:
        for leg in route:
            waiting.append((leg, pool.submit(read, leg)))
            if len(waiting) > AHEAD:
                leg, found = waiting.popleft()
                yield leg, found.result()
        for leg, found in waiting:
            yield leg, found.result()

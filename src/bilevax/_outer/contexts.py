"""Contexts from a Python iterator: read ahead in a thread, stacked, put on the devices.

A position in the iterator is a pair: what the iterator says of itself before a group was read
(Grain's `get_state`, torchdata's `state_dict`; None if it says nothing), and how many items
were taken since. Whoever resumes restores the one and skips the other.
"""

import json
import queue
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from .._errors import outer as check
from .._types import Context
from .devices import put

AHEAD = 2
"""Groups that wait, ready, while one is in use."""
BYTES = 16e6
"""A group holds about so much,"""
LONGEST = 64
"""but not the contexts of more hyper-iterations than this."""


class Position(NamedTuple):
    """Where an iterator stands."""

    state: Any
    skip: int


class Group(NamedTuple):
    """The contexts of `n` hyper-iterations, stacked [room, batch, ...]."""

    contexts: Context
    n: int
    position: Position
    """Before the first of them."""


class Reader:
    """The items one after the other, again from the start when a re-iterable ends.

    `start` is where the first item of a run was; an iterator that can is brought back there.
    """

    def __init__(self, contexts: Iterable, start: Any = None):
        self._source, self._items = contexts, iter(contexts)
        self._again = self._items is not contexts
        self._taken, self._peeked = 0, []
        if start is not None and self._state() is not None:
            self._restore(_decode(start))
        self.start = self._state()
        """What the iterator says of itself before its first item; None if it says nothing."""
        self._peeked = [self._next_item()]
        self.first: Context = jax.tree.map(_to_array, self._peeked[0])
        """It stays to be read."""
        self._form = _form(self.first)

    def seek(self, at: Position) -> None:
        if at.state is not None:
            self._peeked = []
            self._restore(_decode(at.state))
        for _ in range(at.skip):
            self._next_item()
        self._taken = at.skip

    def position(self) -> Position:
        state = self.start if self._peeked else self._state()
        if state is None:
            return Position(None, self._taken)
        self._taken = 0
        return Position(state, 0)

    def next(self) -> Context:
        item = jax.tree.map(_to_array, self._next_item())
        if (form := _form(item)) != self._form:
            check.other_form(self._taken, self._form, form)
        self._taken += 1
        return item

    def _next_item(self) -> Any:
        if self._peeked:
            return self._peeked.pop()
        for _ in range(1 + self._again):
            for item in self._items:
                return item
            self._items = iter(self._source)
        check.contexts_ended(self._taken)

    def _state(self) -> Any:
        """Grain's iterators know where they stand, torchdata's loaders do."""
        get = getattr(self._items, "get_state", None) or getattr(self._source, "state_dict", None)
        return _encode(get()) if get else None

    def _restore(self, state: Any) -> None:
        if hasattr(self._items, "set_state"):
            self._items.set_state(state)  # pyright: ignore
        else:
            self._source.load_state_dict(state)  # pyright: ignore
            self._items = iter(self._source)


class Stream:
    """Groups of contexts, in order, read ahead by a thread of its own."""

    def __init__(self, reader: Reader, at: Position, batch: int, steps: int, mesh: Mesh | None):
        self._reader, self._batch, self._steps, self._mesh = reader, batch, steps, mesh
        each = sum(a.nbytes for a in jax.tree.leaves(reader.first)) * batch
        self._room = int(np.clip(BYTES / max(each, 1), 1, LONGEST))
        self._group, self._used = Group(None, 0, at), 0
        self._queue: queue.Queue = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(at,), daemon=True)
        self._thread.start()

    def wait(self) -> int:
        """How many hyper-iterations there are contexts for; waits until there are some."""
        if self._used == self._group.n:
            group = self._queue.get()
            if isinstance(group, BaseException):  # of the iterator, or ours about it
                raise group
            self._group, self._used = group, 0
        return self._group.n - self._used

    def contexts(self) -> tuple[Context, int]:
        """(contexts, which of them comes next)."""
        return self._group.contexts, self._used

    def use(self, n: int) -> None:
        self._used += n

    def position(self) -> Position:
        state, skip = self._group.position
        return Position(state, skip + self._used * self._batch)

    def close(self) -> None:
        self._closed.set()
        while self._thread.is_alive() and not self._queue.empty():  # it may wait for room
            self._queue.get()
            self._thread.join(timeout=0.05)

    def _work(self, at: Position) -> None:
        try:
            self._reader.seek(at)
            done, n = 0, 1  # few at first, so that the run begins soon
            while done < self._steps and not self._closed.is_set():
                n = min(n, self._steps - done)
                self._queue.put(self._read(n))
                done, n = done + n, min(2 * n, self._room)
        except BaseException as error:
            self._queue.put(error)

    def _read(self, n: int) -> Group:
        position = self._reader.position()
        items = [self._reader.next() for _ in range(n * self._batch)]
        return Group(_stack(items, self._room, self._batch, self._mesh), n, position)


def _to_array(a: Any) -> Any:
    return a if isinstance(a, jax.Array) else np.asarray(a)


def _form(item: Context) -> PyTree:
    return jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", item)


def _stack(items: list[Context], n: int, batch: int, mesh: Mesh | None) -> Context:
    """[n, batch, ...] on the devices; with a mesh, each process puts its part of every batch.

    Missing items are filled up with the last one, and not used: one shape, one program.
    """
    items = items + [items[-1]] * (n * batch - len(items))

    def stack(*xs):
        if jnp.issubdtype(xs[0].dtype, jax.dtypes.prng_key):
            data = stack(*map(jax.random.key_data, xs))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(xs[0]))
        a = np.stack(xs)  # not by JAX, which would compile a program with as many inputs
        a = a.reshape(n, batch, *a.shape[1:])
        axes = None if mesh is None or batch == 1 else mesh.axis_names
        return jnp.asarray(a) if mesh is None else put(a, NamedSharding(mesh, P(None, axes)))

    return jax.tree.map(stack, *items)


def _encode(state: Any) -> Any:
    """What JSON can hold of a state: Grain's is bytes; None where it cannot."""
    if isinstance(state, bytes):
        return {"bytes": state.hex()}
    try:
        return json.loads(json.dumps({"json": state}))
    except TypeError:
        return None


def _decode(state: dict[str, Any]) -> Any:
    return bytes.fromhex(state["bytes"]) if "bytes" in state else state["json"]

"""`weak_jit`: compiled programs that live no longer than the functions they were made of.

`jax.jit` keeps a program as long as the one function that it compiled. A program of bilevax is
made of several: f, g, an optimizer's closures. They travel as arguments, so that the same ones
compile once, and a cache that owned them would never give them back: each new lambda would add a
program until the process may map no more memory.
"""

import functools
import inspect
import logging
import re
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import jax

R = TypeVar("R")

LOG = logging.getLogger("jax._src.callback")

ARRAY = object()
"""Stands where an array was."""

NOTHING = object()
"""Stands where nothing was found."""

MOST = 256
"""Programs that one function keeps at most, for what cannot be referred to weakly."""


class weak_jit(Generic[R]):
    """`equinox.filter_jit` with a cache that does not own the functions among the arguments.

    Arrays are traced, everything else is static. A program goes when any function that it was
    compiled for goes. All arguments are positional. If `gives` is set, the last one is an array
    or a pytree of arrays that the caller gives away: what the program returns takes its room.
    A call waits for all that the program returns, or for what `waits_for` picks of it.
    """

    def __init__(
        self,
        fun: Callable[..., R],
        gives: bool = False,
        waits_for: Callable[[R], Any] = lambda out: out,
    ):
        functools.update_wrapper(self, fun)
        self._fun, self._programs = fun, _Weakly()
        self._gives, self._waits_for = gives, waits_for

    def __call__(self, *args: Any) -> R:
        return self.given()(*args)

    def given(self, *first: Any) -> Callable[..., R]:
        """The function of the other arguments; these are taken apart now, not at every call."""
        kept, first_tree, first_parts = _apart(first, self._programs.forget)
        last: dict[Any, Callable] = {}  # the program of the last call, by its structure

        def call(*rest: Any, _holds: Any = first) -> R:  # who has it, has what it is made of
            arrays, rest_tree = jax.tree_util.tree_flatten(rest)
            alone = all(map(eqx.is_array, arrays))
            program = last.get(rest_tree) if alone else None
            if program is None:
                arrays, _, parts = _apart(rest)
                key = (first_tree, rest_tree), first_parts + parts
                program = self._programs.get(key, self._compiled)
                last.clear()
                last.update({rest_tree: program} if alone else {})
            with ERRORS_OF_EQUINOX:
                out = program(*kept, *arrays)
                jax.block_until_ready(self._waits_for(out))
                return out

        return call

    def _compiled(self, trees: tuple, parts: tuple) -> Callable:
        arrays = sum(part is ARRAY for part in parts)
        given = trees[1].children()[-1].num_leaves if self._gives else 0
        fun, last = _program(self._fun, trees, parts), range(arrays - given, arrays)
        return jax.jit(fun, donate_argnums=tuple(last))


class weak_cache(Generic[R]):
    """What a function of functions and arrays gives, where only the form of the arrays counts.

    Kept no longer than the functions among its arguments. All arguments are positional.
    """

    def __init__(self, fun: Callable[..., R]):
        functools.update_wrapper(self, fun)
        self._fun, self._found = fun, _Weakly()

    def __call__(self, *args: Any) -> R:
        arrays, treedef, parts = _apart(args)
        forms = tuple((a.shape, a.dtype, getattr(a, "weak_type", False)) for a in arrays)
        return self._found.get(((treedef, forms), parts), lambda *_: self._fun(*args))


class _Weakly:
    """By (anything, leaves of arguments): gone when a function among the leaves is."""

    def __init__(self):
        self._kept = OrderedDict[Any, Any]()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: tuple[Any, tuple], make: Callable[[Any, tuple], Any]) -> Any:
        found = self._kept.get(key, NOTHING)
        if found is NOTHING:
            rest, parts = key
            weak = lambda p: _weak(p(), self.forget) if isinstance(p, weakref.ref) else p
            parts = tuple(map(weak, parts))
            found = self._kept[rest, parts] = make(rest, parts)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found

    def forget(self, dead: weakref.ref, *, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if ending():  # keys cannot be hashed any more
            return
        for key in [key for key in self._kept if any(part is dead for part in key[1])]:
            self._kept.pop(key, None)


class _ErrorsOfEquinox(logging.Filter):
    """What `eqx.error_if` says, alone, as `equinox.filter_jit` gives it."""

    def __init__(self):
        super().__init__()
        self._inside: list[None] = []  # a list, and no number: threads may come and go
        LOG.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return not self._inside

    def __enter__(self) -> None:
        self._inside.append(None)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._inside.pop()
        if isinstance(error, (jax.errors.JaxRuntimeError, ValueError)):  # at once, or waited for
            said = re.search(r"_EquinoxRuntimeError: (.*?)\n\n\n-{20}", str(error), re.DOTALL)
            if said is not None:
                raise eqx.EquinoxRuntimeError(said[1]) from None


ERRORS_OF_EQUINOX = _ErrorsOfEquinox()
"""There is one: a filter costs more to put in than a call."""


def weakly(static: Any) -> Callable[[], Any]:
    """A function that gives `static` back while somebody else holds the functions in it."""
    _, treedef, parts = _apart(static)
    return lambda: treedef.unflatten([_there(part) for part in parts])


def _program(fun: Callable, trees: tuple, parts: tuple) -> Callable:
    """fun of the arrays alone; whoever calls it holds the functions that it is made of."""

    @functools.wraps(fun)
    def program(*arrays: Any) -> Any:
        following = iter(arrays)
        leaves = iter([next(following) if p is ARRAY else _there(p) for p in parts])
        args = (tree.unflatten(islice(leaves, tree.num_leaves)) for tree in trees)
        return fun(*chain.from_iterable(args))

    del program.__wrapped__  # its name, but not its signature
    return program


def _apart(x: Any, forget: Callable | None = None) -> tuple[list, Any, tuple]:
    """The arrays in x, its structure, and its leaves without the arrays."""
    leaves, treedef = jax.tree.flatten(x)
    arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
    parts = tuple(ARRAY if eqx.is_array(leaf) else _weak(leaf, forget) for leaf in leaves)
    return arrays, treedef, parts


class _Number(NamedTuple):
    """A number of Python, equal to no other: True == 1 == 1.0 and 0.0 == -0.0, but not to JAX."""

    kind: type
    digits: str
    value: Any


def _weak(leaf: Any, forget: Callable | None) -> Any:
    """A weak reference to a function, equal to any other one to it; anything else as it is.

    A bound method is made at every access, and would be gone at once: it stays while its object
    does.
    """
    if isinstance(leaf, (int, float, complex)):  # a bool is an int
        return _Number(type(leaf), repr(leaf), leaf)
    if not callable(leaf) or isinstance(leaf, type):
        return leaf
    owner = getattr(leaf, "__self__", None)
    bound = inspect.ismethod(leaf) and type(owner).__eq__ is object.__eq__  # itself, or another one
    if owner is not None and not bound:
        return leaf
    try:
        return weakref.WeakMethod(leaf, forget) if bound else weakref.ref(leaf, forget)
    except TypeError:
        return leaf


def _there(part: Any) -> Any:
    if isinstance(part, _Number):
        return part.value
    return part() if isinstance(part, weakref.ref) else part

"""`weak_jit`: compiled programs that live no longer than the functions they were made of.

`jax.jit` keeps a program as long as the one function that it compiled. A program of bilevax is
made of several: f, g, an optimizer's closures. They travel as arguments, so that the same ones
compile once, and a cache that owned them would never give them back: each new lambda would add a
program until the process may map no more memory.
"""

import functools
import logging
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import equinox as eqx
import jax

R = TypeVar("R")

MOST = 256
"""Programs that one function keeps at most, for what cannot be referred to weakly."""


def weak_jit(fun: Callable[..., R]) -> Callable[..., R]:
    """`equinox.filter_jit` with a cache that does not own the functions among the arguments.

    Arrays are traced, everything else is static. A program goes when any function that it was
    compiled for goes. All arguments are positional.
    """
    programs: OrderedDict[Any, Callable] = OrderedDict()

    def forget(dead: weakref.ref) -> None:
        for key in [key for key in programs if any(part is dead for part in key[1])]:
            programs.pop(key, None)

    def find(static: Any) -> Callable:
        key = _weak_parts(static)
        if key not in programs:
            key = _weak_parts(static, forget)
            programs[key] = jax.jit(_program(fun, *key))
            while len(programs) > MOST:
                programs.popitem(last=False)
        programs.move_to_end(key)
        return programs[key]

    @functools.wraps(fun)
    def call(*args: Any) -> R:
        arrays, static = eqx.partition(args, eqx.is_array)
        with _errors_of_equinox():
            return jax.block_until_ready(find(static)(*arrays))

    return call


@contextmanager
def _errors_of_equinox() -> Iterator[None]:
    """What `eqx.error_if` says, alone, as `equinox.filter_jit` gives it."""
    log, quiet = logging.getLogger("jax._src.callback"), lambda record: False
    log.addFilter(quiet)
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # at once, or when it is waited for
        said = re.search(r"_EquinoxRuntimeError: (.*?)\n\n\n-{20}", str(error), re.DOTALL)
        if said is None:
            raise
        raise eqx.EquinoxRuntimeError(said[1]) from None
    finally:
        log.removeFilter(quiet)


def weakly(static: Any) -> Callable[[], Any]:
    """A function that gives `static` back while somebody else holds the functions in it."""
    key = _weak_parts(static)
    return lambda: _whole(*key)


def _program(fun: Callable, treedef: Any, parts: tuple) -> Callable:
    """fun of the arrays alone; whoever calls it holds the functions that it is made of."""

    @functools.wraps(fun)
    def program(*arrays: Any) -> Any:
        return fun(*eqx.combine(arrays, _whole(treedef, parts)))

    return program


def _weak_parts(static: Any, forget: Callable | None = None) -> tuple[Any, tuple]:
    leaves, treedef = jax.tree.flatten(static)
    return treedef, tuple(_weak(leaf, forget) for leaf in leaves)


def _weak(leaf: Any, forget: Callable | None) -> Any:
    """A weak reference to a function, equal to any other one to it; numbers and names as they are.

    A bound method is made at every access, and would be gone at once.
    """
    if not callable(leaf) or isinstance(leaf, type) or hasattr(leaf, "__self__"):
        return leaf
    try:
        return weakref.ref(leaf, forget)
    except TypeError:
        return leaf


def _whole(treedef: Any, parts: tuple) -> Any:
    return treedef.unflatten([p() if isinstance(p, weakref.ref) else p for p in parts])

"""Saying, from inside a compiled program, that a tolerance was not met."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Bool, Float

from . import outcome


def say_if_missed(rule: Any, remedy: str, error: Float[Array, ""], missed: Bool[Array, ""]) -> None:
    """When the program runs and the tolerance is missed, warn of it with the error."""
    say = functools.partial(_say, rule, remedy)
    lax.cond(missed, lambda *x: jax.debug.callback(say, *x), lambda *x: None, error, missed)


_waiting: dict[str, Callable[[], None]] | None = None
"""Inside `said_once`: what is to be said, by rule; None once it has been said."""


@contextmanager
def said_once() -> Iterator[Callable[[], None]]:
    """Inside, every rule warns once, and only when the given function is called.

    A loop would otherwise repeat itself in each iteration, and a warning that is an error would
    be raised inside the compiled program, far from the line that called it.
    """
    global _waiting
    before, _waiting = _waiting, {}
    try:
        yield _say_what_waits
    finally:
        _waiting = before


def _say_what_waits() -> None:
    jax.effects_barrier()
    for name, say in list((_waiting or {}).items()):
        _waiting[name] = lambda: None  # pyright: ignore
        say()


def _say(rule: Any, remedy: str, error: Array, missed: Array) -> None:
    if not missed:  # asked again, because under vmap both branches run
        return
    say = functools.partial(outcome.missed_tolerance, rule, float(error), remedy)
    if _waiting is None:
        say()
    else:
        _waiting.setdefault(repr(rule), say)

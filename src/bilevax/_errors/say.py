"""Saying, from inside a compiled program, that a tolerance was not met."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from jax import lax
from jaxtyping import Array, Bool, Float

from .._rules.base import AbstractRule
from . import check


def say_if_missed(
    rule: AbstractRule, remedy: str, error: Float[Array, ""], missed: Bool[Array, ""]
) -> None:
    """When the program runs and the tolerance is missed, warn of it with the error."""
    say = functools.partial(_say, rule, remedy)
    lax.cond(missed, lambda *x: jax.debug.callback(say, *x), lambda *x: None, error, missed)


_said: set[str] | None = None


@contextmanager
def said_once() -> Iterator[None]:
    """Inside, every rule warns once: a loop would repeat itself in each iteration."""
    global _said
    before, _said = _said, set()
    try:
        yield
        jax.effects_barrier()
    finally:
        _said = before


def _say(rule: AbstractRule, remedy: str, error: Array, missed: Array) -> None:
    if not missed:  # asked again, because under vmap both branches run
        return
    if _said is not None:
        if repr(rule) in _said:
            return
        _said.add(repr(rule))
    check.missed_tolerance(rule, float(error), remedy)

"""Saying, from inside a compiled program, that a tolerance was not met."""

import functools

import jax
from jax import lax
from jaxtyping import Array, Bool, Float

from . import _check as check
from ._rule import AbstractRule


def say_if_missed(
    rule: AbstractRule, remedy: str, error: Float[Array, ""], missed: Bool[Array, ""]
) -> None:
    """When the program runs and the tolerance is missed, warn of it with the error."""
    say = functools.partial(_say, rule, remedy)
    lax.cond(missed, lambda *x: jax.debug.callback(say, *x), lambda *x: None, error, missed)


def _say(rule: AbstractRule, remedy: str, error: Array, missed: Array) -> None:
    if missed:  # asked again, because under vmap both branches run
        check.missed_tolerance(rule, float(error), remedy)

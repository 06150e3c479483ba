"""Saying, from inside a compiled program, that a tolerance was not met."""

import functools

import jax
from jax import lax
from jaxtyping import Array, Float

from . import _check as check
from ._rule import AbstractRule


def say_if_missed(
    rule: AbstractRule, remedy: str, error: Float[Array, ""], rtol: float
) -> Float[Array, ""]:
    """Return the error; when the program runs and it is above rtol, warn of it."""
    say = functools.partial(_say, rule, remedy, rtol)
    lax.cond(error <= rtol, lambda e: None, lambda e: jax.debug.callback(say, e), error)
    return error


def _say(rule: AbstractRule, remedy: str, rtol: float, error: Array) -> None:
    # Under vmap both branches run, so the question is asked again here.
    if not float(error) <= rtol:
        check.missed_tolerance(rule, float(error), remedy)

"""What is said about rules: their settings, and texts that name them."""

import itertools
from collections.abc import Iterable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from equinox.internal import nondifferentiable_backward
from jaxtyping import PyTree

from . import check


def segments(value: Any) -> tuple[int, ...]:
    """The steps in a segment, or in a segment of each level, the outermost first."""
    remedy = "give the steps in a segment, or several as in (100, 10)"
    given = value if isinstance(value, tuple) else (value,)
    levels = tuple(check.integer(c, "segment", remedy) for c in given)
    if not levels or any(c <= d for c, d in itertools.pairwise(levels)):
        raise ValueError(
            f"segment must have a level, and each level shorter segments than the one before, got "
            f"{value!r}: give the outermost first, as in segment=(100, 10)."
        )
    return levels


def alone(name: str, **others: Any) -> None:
    """An argument that takes the place of others."""
    for other, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name} chooses {other} itself, but {other}={value!r} is given, too: leave one of "
                "them out."
            )


def no_room(memory: float, n: int, least: int, state: int) -> NoReturn:
    raise ValueError(
        f"memory={memory:.4g} bytes cannot hold the way back over {n} steps: a state takes "
        f"{state}, and the deepest segments keep {least} bytes. Raise memory, lower K, or use "
        "Forward() or Krylov(), which keep fewer states."
    )


def depth(rule: Any, K: int, T: int) -> None:
    if K > T:
        raise ValueError(
            f"{rule!r} looks K = {K} steps back, but the inner loop has only T = {T}: "
            f"lower K to at most {T}, raise T, or use Reverse() for every step."
        )


def exact_steps(rule: Any, n: int, T: int) -> None:
    if n > T:
        raise ValueError(
            f"{rule!r} takes K + head = {n} steps exactly, but the inner loop has only T = {T}: "
            f"lower K + head to at most {T}, raise T, or use Reverse() for every step."
        )


def power_of_two(value: Any, name: str) -> None:
    check.integer(value, name, "one piece covers the whole horizon")
    if value & (value - 1):
        near = 1 << (value.bit_length() - 1)
        raise ValueError(f"{name} must be a power of two, got {value}: give {near} or {2 * near}.")


def real(x: PyTree, rule: Any) -> None:
    """Inner products of complex cotangents are not what a Krylov space needs."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(x):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise TypeError(
                f"{rule!r} needs a real state, but {check.name_of('state', path)} is {leaf.dtype}: "
                "keep real and imaginary parts as two arrays, or use Reverse(segment=...)."
            )


def forward_only(rule: Any, h: PyTree) -> PyTree:
    """h, whose derivatives by reverse mode are refused in words."""
    said = (
        f"The hypergradient of {rule!r} has derivatives by forward mode only, since its loop has "
        "no fixed length: use jax.jvp or jax.jacfwd, or a rule whose loops have "
        "one, as Reverse(segment=...) and Krylov(pieces, rank)."
    )
    return nondifferentiable_backward(h, msg=said)


def exact(name: str, rule: Any, is_exact: bool) -> None:
    """Of a rule that stands in for another one."""
    if not is_exact:
        raise ValueError(
            f"{name} must be exact, but {rule!r} is not: give Reverse(), Reverse(segment=...) or "
            "Forward(), or leave it out."
        )


def no_such_rule(text: str, rules: Iterable[str]) -> NoReturn:
    raise ValueError(f"rule {text!r} names no rule; give one of {', '.join(rules)}.")


def wrong_arguments(text: str, signature: str) -> NoReturn:
    raise ValueError(f"rule {text!r} has wrong arguments; it is {signature}.") from None


def unreadable_rule(text: str) -> NoReturn:
    raise ValueError(f"rule {text!r} cannot be read; write it as in 'Reverse(K=5)'.") from None

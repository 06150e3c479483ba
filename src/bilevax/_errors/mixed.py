"""What is said about mixed mode: forward over reverse, where both are possible and agree."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr


@contextmanager
def forward_mode(gradient: Callable, *args: Any) -> Iterator[None]:
    """A custom_vjp inside the gradient of g has no forward mode."""
    try:
        yield
    except TypeError as error:
        if "custom_vjp" not in str(error):
            raise
        names = sorted(set(_custom_vjps(jax.make_jaxpr(gradient)(*args).jaxpr)))
        raise TypeError(
            f"symmetric=True differentiates the gradient of g by forward mode, which the "
            f"custom_vjp of {', '.join(names) or 'a function in g'} has not: leave symmetric out."
        ) from error


def _custom_vjps(jaxpr: Jaxpr) -> Iterator[str]:
    """What the functions are called, and where they are."""
    for eqn in jaxpr.eqns:
        inside = [p.jaxpr for p in eqn.params.values() if isinstance(p, ClosedJaxpr)]
        inside += [p for p in eqn.params.values() if isinstance(p, Jaxpr)]
        if eqn.primitive.name.startswith("custom_vjp"):
            yield from (getattr(p.debug_info, "func_src_info", None) or "?" for p in inside[:1])
        for p in inside:
            yield from _custom_vjps(p)


def not_symmetric(error: float) -> str:
    return (
        f"symmetric=True is wrong here: forward over reverse and reverse over reverse differ by "
        f"{error:.1g} of their size, because something in g, such as a jax.custom_vjp, has a "
        "gradient that is not that of a function: leave symmetric out."
    )

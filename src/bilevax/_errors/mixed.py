"""What is said about mixed mode: forward over reverse, where both are possible and agree."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn


def has_forward_mode(gradient: Callable, here: tuple, along: tuple) -> None:
    """A custom_vjp inside the gradient has none, which JAX says late, and without its name."""
    inside = list(_equations(jax.make_jaxpr(gradient)(*here)))
    names = {_name(eqn) for eqn in inside if eqn.primitive.name.startswith("custom_vjp")}
    if not names:
        return
    pushed = jax.make_jaxpr(lambda: jax.jvp(gradient, here, along)[1])()
    if any(eqn.primitive.name == "custom_lin" for eqn in _equations(pushed)):
        raise TypeError(
            "symmetric=True differentiates the gradient of g by forward mode, which the custom_vjp "
            f"of {', '.join(sorted(names))} does not have: leave symmetric out."
        )


def _equations(jaxpr: Any) -> Iterator[JaxprEqn]:
    """Of a program, and of those that it calls."""
    for eqn in jaxpr.eqns:
        yield eqn
        for p in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program):
            if _is_program(p):
                yield from _equations(p)


def _is_program(x: Any) -> bool:
    return isinstance(x, (Jaxpr, ClosedJaxpr))


def _name(eqn: JaxprEqn) -> str:
    """What the function is called, and where it is."""
    info = getattr(eqn.params.get("call_jaxpr"), "jaxpr", None)
    return getattr(getattr(info, "debug_info", None), "func_src_info", None) or "a function"


def not_symmetric(error: float) -> str:
    return (
        f"symmetric=True is wrong here: forward over reverse and reverse over reverse differ by "
        f"{error:.1g} of their size, because something in g, such as a custom_vjp or a "
        "custom_jvp, gives another derivative than its own: leave symmetric out."
    )

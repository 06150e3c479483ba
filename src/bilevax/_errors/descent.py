"""What is said about inner algorithms: an optimizer, a g on the whole S, a start elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


@contextmanager
def whole(sampled: bool) -> Iterator[None]:
    """Where `sample` makes S_t, g may ask for something that S itself does not have."""
    try:
        yield
    except (KeyError, AttributeError) as error:
        if not sampled:
            raise
        raise ValueError(
            f"Implicit and Neumann describe the optimum of g on the whole S, where g raises "
            f"{type(error).__name__}: {error}, which only sample gives: put it into S too (as in "
            "S | {'rows': jnp.arange(n)}, all rows), or use Reverse(K=...)."
        ) from error


@contextmanager
def optimizer(opt: Any) -> Iterator[None]:
    """An optimizer with a protocol of its own, such as optax.lookahead, ends in its own errors."""
    try:
        yield
    except (TypeError, AttributeError, ValueError) as error:
        raise TypeError(
            f"opt={type(opt).__name__}(...) cannot be run as init(w) and update(grad, state, w): "
            f"{error} If opt is a function such as optax.adam, call it, as in optax.adam(0.01); "
            "an optimizer of your own is written as bx.Dynamics(init, step, params)."
        ) from error


def cannot_start_at(xi: Any) -> NoReturn:
    raise TypeError(
        f"warm_start=True starts the inner loop at a given w, which {type(xi).__name__} cannot: "
        "Descent can, Dynamics can if its whole state is w (leave out params, and let f pick what "
        "it reads), and an algorithm of your own can if it defines at(w)."
    )

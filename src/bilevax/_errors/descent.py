"""What is said where `Descent` runs what is the user's: an optimizer, a g on the whole S."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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

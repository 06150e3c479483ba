"""A compiled program, and what it takes: bytes from XLA, operations from its jaxpr."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from ._flops import Count, count_flops


class CompiledProgram(NamedTuple):
    """A function of arrays, and what XLA makes of it."""

    run: Callable[[PyTree], PyTree]
    shapes: PyTree
    compiled: Any

    @property
    def bytes(self) -> int:
        """Temporaries and results, without the arguments."""
        memory = self.compiled.memory_analysis()
        return memory.temp_size_in_bytes + memory.output_size_in_bytes

    def operations(self) -> Count:
        with jax.disable_jit(False):
            return count_flops(self.run, self.shapes)


def compile_program(fun: Callable, *args: Any) -> CompiledProgram:
    """The program of fun(*args), for arrays or their shapes; all else is fixed.

    Nothing is run, so `jax.disable_jit`, which would unroll every loop, has no say here.
    """
    arrays, fixed = eqx.partition(args, _is_array)
    run = lambda arrays: fun(*eqx.combine(arrays, fixed))
    shapes = jax.eval_shape(lambda x: x, arrays)
    with jax.disable_jit(False):
        return CompiledProgram(run, shapes, jax.jit(run).lower(shapes).compile())


def _is_array(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


def largest(size: Callable[[int], int], most: int, budget: float) -> int:
    """The largest n <= most with size(n) <= budget; 0 if there is none.

    For sizes that grow, and nearly in a straight line: the line through two known sizes guesses
    the answer, so that four sizes are enough as a rule. What is returned fits, and one more
    does not.
    """
    low, high = (1, size(1)), (most, size(most))
    if high[1] <= budget:
        return most
    if low[1] > budget:
        return 0
    tries = 0
    while high[0] - low[0] > 1:
        n = _on_the_line(low, high, budget) if tries < 4 else (low[0] + high[0]) // 2
        point, tries = (n, size(n)), tries + 1
        low, high = (point, high) if point[1] <= budget else (low, point)
    return low[0]


def _on_the_line(low: tuple[int, int], high: tuple[int, int], budget: float) -> int:
    """Where the line through two points meets the budget, strictly between them."""
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return min(max(low[0] + int((budget - low[1]) / slope), low[0] + 1), high[0] - 1)

"""What a rule costs in a hyper-iteration: seconds, and bytes of the compiled program (Table 1)."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from ..._dynamics import AbstractDynamics
from ..._hypergradient import hypergradient
from ..._rules.base import AbstractRule
from ..._solve import solve
from ..._types import Context, Hyper, Objective
from ..records import Records

REPEATS = 7


def costs(
    records: Records,
    f: Objective,
    xi: AbstractDynamics,
    rules: Mapping[str, AbstractRule],
    lam: Hyper,
    S: Context,
    T: int,
    label: Mapping[str, Any],
) -> None:
    """A record for each rule that has none: the least of several times, taken in turn with
    those of the forward pass, so that both meet the same machine.
    """
    forward, forward_bytes = _compile(lambda lam, S: f(solve(xi, lam, S, T=T), lam, S), lam, S)
    for text, rule in rules.items():
        if records.has(kind="cost", rule=text, **label):
            continue
        program, size = _compile(lambda lam, S: hypergradient(f, xi, rule, T=T)(lam, S), lam, S)  # noqa: B023
        pairs = [(_seconds(forward, lam, S), _seconds(program, lam, S)) for _ in range(REPEATS)]
        least = [min(times) for times in zip(*pairs, strict=True)]
        records.add(
            kind="cost", rule=text, **label, forward_seconds=least[0], seconds=least[1],
            forward_bytes=forward_bytes, bytes=size,
        )  # fmt: skip


def _compile(program: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], int]:
    """A compiled program and the bytes it allocates in addition to arguments and results."""
    compiled = jax.jit(program).lower(*arguments).compile()
    analysis: Any = compiled.memory_analysis()
    return compiled, int(analysis.temp_size_in_bytes)


def _seconds(program: Callable[..., Any], *arguments: Any) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - begin

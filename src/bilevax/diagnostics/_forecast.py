"""`forecast`: what each rule will take, before anything is run. Table 1, executable."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check
from .._hypergradient import _checked, check_problem
from .._loop import unroll
from .._rules.base import AbstractRule
from .._rules.implicit import Neumann
from .._rules.krylov.rule import Krylov
from .._rules.reverse import Reverse
from .._types import Context, Hyper, Objective
from ._fit import largest
from ._flops import Count, count_flops
from ._forecast_table import Forecast, ForecastRow
from ._program import seconds


def forecast(
    f: Objective,
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context = None,
    *,
    T: int,
    rules: Sequence[AbstractRule] | None = None,
    memory: float | None = None,
) -> Forecast:
    """Bytes, operations and time of each rule, without running any; and what fits.

    The program of each rule is compiled, which is all that it costs, and read. Bytes are what
    XLA allocates for it, temporaries and results, beside `lam`, `S` and the arrays in `xi`; they
    are exact. Operations are counted over all steps. Time, relative to the forward pass, is
    predicted from the kernels and loops of the program on a CPU, and is the ratio of operations
    on other devices. Nothing is computed and no array is made.

    **Arguments:**

    - `f`, `xi`, `T`: as in `hypergradient`.
    - `lam`, `S`: as in `hypergradient`, or `jax.ShapeDtypeStruct`s in the place of arrays.
    - `rules`: the rules to compare, as in `[bx.Reverse(), bx.Reverse(K=10)]`. Default: full,
        checkpointed and truncated reverse mode, `Krylov`, `Neumann`; each compiles for seconds.
    - `memory`: a budget in bytes, beside `lam` and `S`. With it the forecast says which rules
        fit, and the largest K for which `Reverse(K)` does, for about six more compilations.

    **Returns:**

    A `Forecast`: print it, look at its `rows`, or keep it with `.as_dict()`. `advice` says in
    words what fits.

    !!! example

        >>> import bilevax as bx, jax
        >>> from bilevax import problems
        >>> p = problems.quadratic(M=500, T=100)
        >>> out = bx.forecast(p.f, p.xi, p.lam, p.S, T=100, rules=[bx.Forward()], memory=100_000)
        >>> print(out.advice[0])
        None of the rules fits into 100 kB.
    """
    T = check.horizon(T)
    rules = _usual(T) if rules is None else _rules(rules)
    for rule in rules:
        check_problem(f, xi, rule)
    if memory is not None:
        check.positive(memory, "memory", "give the bytes that there are, as in memory=8e9")
    _require_floating(lam)
    lam = jax.eval_shape(tree.strong, lam)
    program = lambda rule: _compile(_checked, f, xi, rule, lam, S, T)
    forward = _compile(_forward, f, xi, lam, S, T).cost()
    rows = tuple(_row(rule, program(rule), forward, memory) for rule in rules)
    if memory is None:
        return Forecast(T, rows, memory, None, None)
    fits = lambda rule: program(rule).bytes <= memory
    K = largest(lambda K: program(Reverse(K=K)).bytes, T, memory)
    c = math.isqrt(T - 1) + 1
    segment = c if not fits(Reverse()) and fits(Reverse(segment=c)) else None
    return Forecast(T, rows, memory, K, segment)


def _row(
    rule: AbstractRule, program: "_Program", forward: "_Cost", memory: float | None
) -> ForecastRow:
    ours = program.cost()
    return ForecastRow(
        rule=rule,
        bytes=ours.bytes,
        forward_bytes=forward.bytes,
        flops=ours.work.flops,
        forward_flops=forward.work.flops,
        relative_time=_relative_time(ours, forward),
        at_least=ours.work.at_least,
        fits=None if memory is None else ours.bytes <= memory,
    )


def _relative_time(ours: "_Cost", forward: "_Cost") -> float:
    if ours.seconds and forward.seconds:
        return ours.seconds / forward.seconds
    return ours.work.flops / max(forward.work.flops, 1)


def _forward(f: Objective, xi: AbstractDynamics, lam: Hyper, S: Context, T: int):
    """The forward pass: what there is to do without any derivative in lam."""
    w = xi.read(unroll(xi, lam, S, xi.start(lam, S), 0, T))
    return f(w, lam, S), w


class _Program(NamedTuple):
    """A function of arrays, and what XLA makes of it."""

    run: Callable[[PyTree], PyTree]
    arrays: PyTree
    compiled: Any

    @property
    def bytes(self) -> int:
        """Temporaries and results."""
        memory = self.compiled.memory_analysis()
        return memory.temp_size_in_bytes + memory.output_size_in_bytes

    def cost(self) -> "_Cost":
        time = seconds(self.compiled.as_text(), jax.default_backend())
        return _Cost(self.bytes, count_flops(self.run, self.arrays), time)


class _Cost(NamedTuple):
    """What is read off a program."""

    bytes: int
    work: Count
    seconds: float | None
    """None on devices without prices."""


def _compile(fun: Callable, *args: Any) -> _Program:
    """The program of `equinox.filter_jit(fun)`, to the byte, for arrays or their shapes.

    Arrays are traced, all else is fixed, and a zero stands before the result.
    """
    arrays, fixed = eqx.partition(args, _is_array)
    run = lambda arrays: (jnp.array(0), fun(*eqx.combine(arrays, fixed)))
    arrays = jax.eval_shape(lambda x: x, arrays)
    return _Program(run, arrays, jax.jit(run).lower(arrays).compile())


def _is_array(x: Any) -> bool:
    return eqx.is_array(x) or isinstance(x, jax.ShapeDtypeStruct)


def _usual(T: int) -> list[AbstractRule]:
    """Of every kind one, but for `Forward`, which is slow to compile for what it is rarely for."""
    c = math.isqrt(T - 1) + 1
    K = max(T // 10, 1)
    out = [Reverse(), Reverse(segment=c), Reverse(K=K), Krylov(), Neumann(K)]
    return [rule for rule in out if T >= 8 or not isinstance(rule, Krylov)]


def _rules(rules: Any) -> list[AbstractRule]:
    if not isinstance(rules, Sequence) or isinstance(rules, str) or not rules:
        raise TypeError(
            f"rules must be a list of rules, got {rules!r}: write rules=[bx.Reverse(), "
            "bx.Reverse(K=10)]."
        )
    return list(rules)


def _require_floating(lam: Hyper) -> None:
    """As for `hypergradient`; only the dtype of an array matters here."""
    sample = lambda a: np.zeros((), a.dtype) if isinstance(a, jax.ShapeDtypeStruct) else a
    check.floating(jax.tree.map(sample, lam), "lam")

"""`forecast`: what each rule will take, before anything is run. Table 1, executable."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import jax
import numpy as np

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check, diagnostics
from .._hypergradient import _checked, check_problem, loss_of
from .._loop import solved
from .._rules.base import AbstractRule
from .._rules.budget import least, root
from .._rules.implicit import Neumann
from .._rules.krylov.rule import Krylov
from .._rules.reverse import Reverse
from .._types import Context, Hyper, Objective
from ._diagnose import optimum_fails
from ._forecast_table import Forecast, ForecastRow
from ._program import CompiledProgram, compile_program, largest


def forecast(
    f: Objective,
    xi: AbstractDynamics,
    lam: Hyper,
    S: Context = None,
    *,
    T: int,
    rules: Sequence[AbstractRule] | None = None,
    memory: float | None = None,
    has_aux: bool = False,
) -> Forecast:
    """Bytes and operations of each rule, without running any; and what fits.

    The program of each rule is compiled, which is all that it costs. Bytes are what XLA allocates
    for its temporaries and results, in addition to `lam`, `S` and the arrays in `xi`; they are
    exact (Table 1 has the laws). Operations are counted over all steps. Their ratio to those of the
    forward pass says about how long a rule will take. No array is made. On a terminal a bar shows
    which rule is being compiled.

    **Arguments:**

    - `f`, `xi`, `T`: as in `hypergradient`.
    - `lam`, `S`: as in `hypergradient`, or `jax.ShapeDtypeStruct`s in place of arrays.
    - `rules`: the rules to compare, as in `[bx.Reverse(), bx.Reverse(K=10)]`. Default: full,
        checkpointed and truncated reverse mode, `Krylov`, `Neumann`; each compiles for seconds.
    - `memory`: a budget in bytes, without `lam` and `S`. With it the forecast says which rules
        fit, and the largest K for which `Reverse(K)` does, for about six more compilations.
    - `has_aux`: whether f returns a pair (scalar, anything else).

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
    usual = rules is None
    rules = _usual(T) if usual else diagnostics.rules(rules)
    for rule in rules:
        check_problem(f, xi, rule)
    f = loss_of(f, has_aux)
    if memory is not None:
        check.positive(memory, "memory", "give the number of bytes, as in memory=8e9")
    _require_floating(lam)
    lam, S = jax.eval_shape(tree.strong, lam), check.context(S)
    if usual and optimum_fails(xi, lam, S):  # as where only `sample` adds rows to S
        rules = [rule for rule in rules if not isinstance(rule, Neumann)]
    with _bar(1 + len(rules)) as show:

        def compiled(rule: AbstractRule) -> CompiledProgram:
            show(f"compiling {rule!r}")
            return compile_program(_checked, f, xi, rule, T, False, lam, S)

        again = cache(compiled)  # a budget asks for some of the rules once more
        program = lambda rule: again(rule) if isinstance(rule, Reverse) else compiled(rule)
        show("compiling the forward pass")
        forward = compile_program(_forward, f, xi, lam, S, T)
        passed = forward.bytes, forward.operations().flops
        rows = tuple(_row(rule, program(rule), *passed, memory) for rule in rules)
        fitting = (None, None) if memory is None else _fitting(program, T, memory)
    return Forecast(T, rows, memory, *fitting)


def _forward(f: Objective, xi: AbstractDynamics, lam: Hyper, S: Context, T: int):
    """The forward pass: what there is to do without any derivative in lam."""
    w = xi.read(solved(xi, lam, S, T))
    return f(w, lam, S), w


def _row(
    rule: AbstractRule, program: CompiledProgram, bytes: int, flops: int, memory: float | None
) -> ForecastRow:
    """A rule, compared with a forward pass of so many bytes and operations."""
    fits = None if memory is None else program.bytes <= memory
    count = program.operations()
    return ForecastRow(rule, program.bytes, bytes, count.flops, flops, count.at_least, fits)


def _fitting(
    program: Callable[[AbstractRule], CompiledProgram], T: int, memory: float
) -> tuple[int, int | tuple[int, ...] | None]:
    """The largest K that fits, and the segment that makes all of Reverse() fit if it does not."""
    bytes_of = lambda rule: program(rule).bytes
    K = largest(lambda K: bytes_of(Reverse(K=K)), T, memory)
    if bytes_of(Reverse()) <= memory:
        return K, None
    fits = lambda c: bytes_of(Reverse(segment=c)) <= memory
    return K, next((c for c in (root(T), *least(T)[1:]) if fits(c)), None)


def _usual(T: int) -> list[AbstractRule]:
    """One of each kind, except `Forward`, which compiles slowly and is rarely the answer."""
    K = max(T // 10, 1)
    out = [Reverse(), Reverse(segment=root(T)), Reverse(K=K), Krylov(), Neumann(K)]
    return [rule for rule in out if T >= 8 or not isinstance(rule, Krylov)]


def _require_floating(lam: Hyper) -> None:
    """As for `hypergradient`; only the dtype of an array matters here."""
    sample = lambda a: np.zeros((), a.dtype) if isinstance(a, jax.ShapeDtypeStruct) else a
    check.floating(jax.tree.map(sample, lam), "lam")


@contextmanager
def _bar(programs: int) -> Iterator[Callable[[str], None]]:
    """On a terminal, a bar over the programs and the one being compiled; nothing elsewhere.

    What a budget asks for is not counted beforehand: the bar grows.
    """
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    text = progress.TextColumn("{task.description}", markup=False)
    columns = progress.MofNCompleteColumn(), progress.BarColumn(), text
    hidden = not console.is_terminal
    with progress.Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=programs, completed=-1)

        def show(text: str) -> None:
            done = int(bar.tasks[0].completed) + 1
            bar.update(task, completed=done, total=max(programs, done + 1), description=text)
            bar.refresh()  # while a program is compiled nothing else may draw

        yield show

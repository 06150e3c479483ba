"""A forecast: what each rule will take, which of them fit, and advice in words."""

import dataclasses
from typing import Any

from .._rules.base import AbstractRule, Channel
from .._rules.reverse import Reverse


@dataclasses.dataclass(frozen=True)
class ForecastRow:
    """What one rule will take.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax import problems
        >>> p = problems.quadratic(T=100)
        >>> rules = [bx.Reverse(), bx.Reverse(K=10)]
        >>> full, short = bx.forecast(p.f, p.xi, p.lam, p.S, T=p.T, rules=rules).rows
        >>> short.relative_flops < full.relative_flops
        True
    """

    rule: AbstractRule
    bytes: int
    """What XLA allocates for the program: temporaries and results, without its arguments."""
    forward_bytes: int
    """The same of the forward pass alone, lam -> f(w_T, lam, S)."""
    flops: int
    """Floating-point operations, counted without those whose results are not used."""
    forward_flops: int
    at_least: bool
    """Whether flops are a lower limit, because a loop or solver of the rule stops by itself."""
    fits: bool | None
    """Whether bytes are within the budget; None without one."""

    @property
    def relative_flops(self) -> float:
        """Over those of the forward pass: about how much longer than it the rule will take."""
        return self.flops / max(self.forward_flops, 1)

    @property
    def exact(self) -> bool:
        """Whether the rule gives the whole hypergradient of w_T, to rounding."""
        return Channel.EACH in self.rule.sees()


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What `forecast` returns.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax import problems
        >>> p = problems.counterexample()
        >>> out = bx.forecast(p.f, p.xi, p.lam, p.S, T=p.T, rules=[bx.Reverse(K=5)])
        >>> out.rows[0].rule, out.rows[0].exact, out.rows[0].bytes < 1000
        (Reverse(K=5), False, True)
    """

    T: int
    rows: tuple[ForecastRow, ...]
    """One for each rule, in the order in which they were given."""
    memory: float | None
    """The budget, in bytes."""
    largest_K: int | None
    """The largest K for which Reverse(K) fits, 0 if none does; None without a budget."""
    segment: int | tuple[int, ...] | None
    """c, where Reverse(segment=c) fits the budget and Reverse() does not; else None."""

    @property
    def advice(self) -> list[str]:
        """What to do, in sentences, the most important first."""
        return [*self._fitting(), *self._exact(), *self._depth(), *self._limits()]

    def _fitting(self) -> list[str]:
        if self.memory is None:
            return []
        good = [repr(row.rule) for row in self.rows if row.fits]
        bad = [repr(row.rule) for row in self.rows if not row.fits]
        budget = _size(self.memory)
        if not bad:
            return [f"Every rule fits into {budget}."]
        if not good:
            return [f"None of the rules fits into {budget}."]
        return [f"Into {budget} fit {', '.join(good)}; not {', '.join(bad)}."]

    def _exact(self) -> list[str]:
        exact = [row for row in self.rows if row.exact and row.fits is not False]
        that_fits = "" if self.memory is None else " that fits"
        out = []
        if exact:
            row = min(exact, key=lambda row: row.flops)
            work = f"with {row.relative_flops:.2g} times the operations of the forward pass"
            out.append(f"The cheapest exact rule{that_fits} is {row.rule!r}, {work}.")
        if self.segment is not None:
            rule = Reverse(segment=self.segment)
            out.append(f"Reverse() does not fit, but {rule!r} does, and is as exact.")
        return out

    def _depth(self) -> list[str]:
        if self.largest_K is None:
            return []
        if self.largest_K == 0:
            return ["Not even Reverse(K=1) fits."]
        if self.largest_K == self.T:
            return [f"Reverse(K) fits for every K up to T = {self.T}."]
        return [f"The largest K for which Reverse(K) fits is {self.largest_K}, of T = {self.T}."]

    def _limits(self) -> list[str]:
        names = ", ".join(repr(row.rule) for row in self.rows if row.at_least)
        if not names:
            return []
        return [f"{names}: stops by itself, so the operations below are a lower limit."]

    def as_dict(self) -> dict[str, Any]:
        """Numbers, texts and lists, for JSON; rules as they are written."""
        more = ("relative_flops", "exact")
        rows = [
            vars(row) | {"rule": repr(row.rule)} | {name: getattr(row, name) for name in more}
            for row in self.rows
        ]
        return vars(self) | {"rows": rows, "advice": self.advice}

    def __str__(self) -> str:
        return "\n".join([*(f"* {sentence}" for sentence in self.advice), "", *self._table()])

    def _table(self) -> list[str]:
        width = max([len(repr(row.rule)) for row in self.rows] + [len("forward pass")])
        memory, flops = _size(self.rows[0].forward_bytes), self.rows[0].forward_flops
        out = [
            f"{'':{width}} {'memory':>10} {'flops':>9} {'x forward':>10} {'fits':>5}",
            f"{'forward pass':{width}} {memory:>10} {flops:9.2e} {1:10.2f}",
        ]
        for row in self.rows:
            ratio = f"{'>' if row.at_least else ''}{row.relative_flops:.2f}"
            fits = {None: "", True: "yes", False: "no"}[row.fits]
            line = f"{row.rule!r:{width}} {_size(row.bytes):>10} {row.flops:9.2e} {ratio:>10}"
            out.append(f"{line} {fits:>5}".rstrip())
        return out


def _size(n: float) -> str:
    """Bytes, as people say them."""
    for unit in ("B", "kB", "MB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB" if n < 999.5 else f"{n:,.0f} GB"

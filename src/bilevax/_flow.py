"""What a traced step depends on: which of its inputs reach its outputs, and which are switched.

Labels travel through a jaxpr from inputs to outputs. An equation that picks among values (a
gather, a slice, a `where`, a `cond`) by something that carries one label makes every other label
among the values *switched* by it: lam[t] is switched by t, and so is lam in `where(t < 3, lam, 0)`
and in `(t < 3) * lam`.
"""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal

Labels = frozenset[str]

CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Where an equation keeps the program that it calls."""


COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
MASKS = {*COMPARISONS, "convert_element_type", "broadcast_in_dim", "reshape", "squeeze"}
MASKS |= {"and", "or", "not", "xor", "add", "sub", "mul"}
"""What makes a mask of a mask."""
IF = "if "
"""Begins the label of a mask."""


class Flow:
    """Labels of the outputs of a closed jaxpr, and pairs (what is switched, by what)."""

    def __init__(self, closed: Any, labels: Sequence[Labels]):
        self.switched: set[tuple[str, str]] = set()
        self.outputs = self._follow(closed.jaxpr, labels)

    def _follow(self, jaxpr: Any, labels: Sequence[Labels]) -> list[Labels]:
        known: dict[Any, Labels] = dict(zip(jaxpr.invars, labels, strict=True))
        of = lambda v: Labels() if isinstance(v, Literal) else known.get(v, Labels())
        for eqn in jaxpr.eqns:
            outs = self._equation(eqn, [of(v) for v in eqn.invars])
            known.update(zip(eqn.outvars, outs, strict=True))
        return [of(v) for v in jaxpr.outvars]

    def _equation(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        name, everything = eqn.primitive.name, Labels().union(*labels)
        if name == "scan":
            return self._scan(eqn, labels)
        if name == "cond":
            self._switch(labels[0], labels[1:])
            each = [self._follow(branch.jaxpr, labels[1:]) for branch in eqn.params["branches"]]
            return [labels[0].union(*outs) for outs in zip(*each, strict=True)]
        inner = next((eqn.params[key] for key in CALLS if key in eqn.params), None)
        inner = getattr(inner, "jaxpr", inner)
        if inner is not None and len(getattr(inner, "invars", ())) == len(labels):
            return self._follow(inner, labels)
        if name == "select_n":
            self._switch(labels[0], labels[1:])
        if name in ("gather", "dynamic_slice"):
            self._switch(Labels().union(*labels[1:]), labels[:1])
        if name == "mul":
            for mask, other in (labels, labels[::-1]):
                self._switch(Labels(x.removeprefix(IF) for x in mask if x.startswith(IF)), [other])
        if name in COMPARISONS:
            everything |= {IF + label for label in everything if not label.startswith(IF)}
        if name not in MASKS:
            everything = Labels(label for label in everything if not label.startswith(IF))
        return [everything] * len(eqn.outvars)

    def _scan(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        """The carry gathers labels until nothing new comes."""
        body = eqn.params["jaxpr"].jaxpr
        n, k = eqn.params["num_consts"], eqn.params["num_carry"]
        while True:
            outs = self._follow(body, labels)
            carry = [a | b for a, b in zip(labels[n : n + k], outs[:k], strict=True)]
            if carry == labels[n : n + k]:
                return outs
            labels = [*labels[:n], *carry, *labels[n + k :]]

    def _switch(self, by: Labels, values: Sequence[Labels]) -> None:
        self.switched |= {(a, b) for a in Labels().union(*values) for b in by if a != b}

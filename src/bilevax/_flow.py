"""What the number of a step switches on and off, found in the traced step.

Labels travel through a jaxpr from inputs to outputs. A leaf of lam is *switched* by the number of
the step where an entry of it is picked by that number, lam[t], or where something that depends on
it is taken or left, or multiplied by a mask, as the number says: `where(t < 3, lam, 0)`,
`(t % 4 == 0) * lam`, an optimizer that updates in every fifth step. Rows of a minibatch that are
drawn from S are not such a number: other steps draw them, too.
"""

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Literal

Labels = frozenset[str]

DATA = "data"
"""Depends on the state or on S."""
NUMBER = "number"
"""Depends on the number of the step, and on nothing else;"""
MASK = "mask"
"""and is 0 or 1."""


def leaf(i: int) -> Labels:
    """The labels of the i-th leaf of lam, as it is."""
    return Labels({f"lam {i}", f"raw {i}"})


CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Where an equation keeps the program that it calls."""
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
MASKS = {*COMPARISONS, "convert_element_type", "broadcast_in_dim", "reshape", "squeeze"}
MASKS |= {"and", "or", "not", "xor", "add", "sub", "mul"}
"""What makes a mask of a mask."""


class Flow:
    """The leaves of lam that are switched, after the labels of a jaxpr have been followed."""

    def __init__(self, closed: Any, labels: Sequence[Labels]):
        self.switched: set[int] = set()
        self._follow(closed.jaxpr, labels)

    def _follow(self, jaxpr: Any, labels: Sequence[Labels]) -> list[Labels]:
        known: dict[Any, Labels] = dict(zip(jaxpr.invars, labels, strict=True))
        of = lambda v: Labels() if isinstance(v, Literal) else known.get(v, Labels())
        for eqn in jaxpr.eqns:
            outs = self._equation(eqn, [of(v) for v in eqn.invars])
            known.update(zip(eqn.outvars, outs, strict=True))
        return [of(v) for v in jaxpr.outvars]

    def _equation(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        name = eqn.primitive.name
        if name == "scan":
            return self._scan(eqn, labels)
        if name == "cond":
            self._switch(labels[0], NUMBER, labels[1:], "lam ")
            each = [self._follow(branch.jaxpr, labels[1:]) for branch in eqn.params["branches"]]
            return [_mixed(name, [labels[0], *outs]) for outs in zip(*each, strict=True)]
        inner = next((eqn.params[key] for key in CALLS if key in eqn.params), None)
        inner = getattr(inner, "jaxpr", inner)
        if inner is not None and len(getattr(inner, "invars", ())) == len(labels):
            return self._follow(inner, labels)
        if name == "select_n":
            self._switch(labels[0], NUMBER, labels[1:], "lam ")
        if name in ("gather", "dynamic_slice"):
            self._switch(Labels().union(*labels[1:]), NUMBER, labels[:1], "raw ")
        if name == "mul":
            for mask, other in (labels, labels[::-1]):
                self._switch(mask, MASK, [other], "lam ")
        return [_mixed(name, labels)] * len(eqn.outvars)

    def _scan(self, eqn: Any, labels: list[Labels]) -> list[Labels]:
        """The carry gathers labels until nothing new comes."""
        n, k = eqn.params["num_consts"], eqn.params["num_carry"]
        while True:
            outs = self._follow(eqn.params["jaxpr"].jaxpr, labels)
            carry = [a | b for a, b in zip(labels[n : n + k], outs[:k], strict=True)]
            if carry == labels[n : n + k]:
                return outs
            labels = [*labels[:n], *carry, *labels[n + k :]]

    def _switch(self, by: Labels, how: str, values: Sequence[Labels], kind: str) -> None:
        if how in by:
            chosen = [label for label in Labels().union(*values) if label.startswith(kind)]
            self.switched |= {int(label.removeprefix(kind)) for label in chosen}


def _mixed(name: str, labels: Sequence[Labels]) -> Labels:
    """The labels of what an equation makes of its inputs."""
    out = Labels().union(*labels)
    if name in COMPARISONS and NUMBER in out:
        out |= {MASK}
    if name not in MASKS:
        out -= {MASK}
    if DATA in out:
        out = Labels(label for label in out if not label.startswith("raw "))
    if any(label == DATA or label.startswith("lam ") for label in out):
        out -= {NUMBER, MASK}
    return out

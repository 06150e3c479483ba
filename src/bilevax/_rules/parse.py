"""Rules written as text, "Reverse(K=5)": parsed, never evaluated."""

import ast
import inspect
from typing import Any

from .._errors import rules
from .adaptive import AdaptiveReverse
from .base import AbstractRule
from .forward import Forward
from .implicit import Implicit, Neumann
from .krylov.adaptive import AdaptiveKrylov
from .krylov.rule import Krylov
from .reverse import Reverse

RULES = {
    rule.__name__: rule
    for rule in (Reverse, Forward, Implicit, Neumann, AdaptiveReverse, Krylov, AdaptiveKrylov)
} | {"Adaptive": AdaptiveReverse}
"""Records of earlier runs say Adaptive."""


def parse_rule(text: str) -> AbstractRule:
    """The rule that a text names.

    **Arguments:**

    - `text`: as in Python, with plain numbers, as in `"Reverse(K=5)"`, `"Krylov(2, 4)"`,
        `"Reverse(segment=(100, 10))"`.

    **Returns:**

    The rule.

    !!! example

        >>> from bilevax.extend import parse_rule
        >>> parse_rule("Reverse(K=5)")
        Reverse(K=5)
    """
    name, values, named = _call(text)
    if name not in RULES:
        rules.no_such_rule(text, RULES)
    try:
        return RULES[name](*values, **named)
    except TypeError:
        rules.wrong_arguments(text, f"{name}{inspect.signature(RULES[name])}")


def _call(text: str) -> tuple[str, list, dict]:
    """Name, positional and named arguments of a call with literal arguments."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, [], {}
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        named = {k.arg: _value(k.value) for k in node.keywords if k.arg is not None}
        assert len(named) == len(node.keywords)
        return node.func.id, [_value(value) for value in node.args], named
    except (AssertionError, SyntaxError, ValueError, MemoryError, RecursionError):
        rules.unreadable_rule(text)


def _value(node: ast.expr) -> Any:
    """A number, or a tuple of them."""
    value = ast.literal_eval(node)
    numbers = value if isinstance(value, tuple) else (value,)
    assert value is None or all(type(x) in (int, float) for x in numbers)
    return value

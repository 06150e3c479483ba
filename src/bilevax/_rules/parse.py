"""Rules written as text, "Reverse(K=5)": parsed, never evaluated."""

import ast
import inspect

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
}


def parse_rule(text: str) -> AbstractRule:
    """The rule that a text names.

    **Arguments:**

    - `text`: as in Python, with plain numbers, as in `"Reverse(K=5)"`, `"Krylov(2, 4)"`.

    **Returns:**

    The rule.

    !!! example

        >>> from bilevax.extend import parse_rule
        >>> parse_rule("Reverse(K=5)")
        Reverse(K=5)
    """
    name, values, named = _call(text)
    if name not in RULES:
        raise ValueError(f"rule {text!r} names no rule; give one of {', '.join(RULES)}.")
    try:
        return RULES[name](*values, **named)
    except TypeError:
        signature = str(inspect.signature(RULES[name]))
        raise ValueError(f"rule {text!r} has wrong arguments; it is {name}{signature}.") from None


def _call(text: str) -> tuple[str, list, dict]:
    """Name, positional and named arguments of a call with literal arguments."""
    wrong = ValueError(f"rule {text!r} cannot be read; write it as in 'Reverse(K=5)'.")
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, [], {}
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise wrong
        named = {k.arg: _number(k.value) for k in node.keywords if k.arg is not None}
        if len(named) != len(node.keywords):
            raise wrong
        return node.func.id, [_number(value) for value in node.args], named
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise wrong from None


def _number(node: ast.expr) -> int | float | None:
    value = ast.literal_eval(node)
    if value is not None and type(value) not in (int, float):
        raise ValueError
    return value

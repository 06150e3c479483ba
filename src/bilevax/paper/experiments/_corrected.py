"""Rules of an experiment, with or without a correction: "Reverse(K=5) corrected"."""

from ..._outer.audits import Correction
from ..._rules.base import AbstractRule
from ..._rules.parse import parse_rule

WORD = " corrected"
SHARE = 0.2
"""Of the time, for audits: one in 13 hyper-iterations."""


def parse_corrected(text: str) -> tuple[AbstractRule, Correction | None]:
    """The rule, and its correction if the text asks for one."""
    rule = parse_rule(text.removesuffix(WORD))
    return rule, Correction(share=SHARE) if text.endswith(WORD) else None

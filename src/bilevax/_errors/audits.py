"""What is said about audits of a run, and about a rule that fails them."""

from typing import Any, NoReturn

from . import outcome, rules
from .warn import warn


def audit(name: str, rule: Any, exact: bool, share: Any) -> None:
    """Of an `Audit` or a `Correction`."""
    if not (isinstance(share, (int, float)) and 0 < share < 1):
        raise ValueError(
            f"{name}: share must be between 0 and 1, got {share!r}: give the part of the run's "
            "time that audits may take, as in share=0.2."
        )
    rules.exact(f"rule of {name}", rule, exact)


def audited(correct: Any, audit: Any, kinds: tuple[type, type], contexts: Any) -> Any:
    """The `Correction` or the `Audit` that was asked for, or None."""
    asked = {"correct": (correct, kinds[0]), "audit": (audit, kinds[1])}
    asked = {name: pair for name, pair in asked.items() if pair[0] not in (False, None)}
    for name, (value, kind) in asked.items():
        if value is not True and not isinstance(value, kind):
            raise TypeError(
                f"{name} must be True, False or a bx.{kind.__name__}(...), got {value!r}."
            )
    if "correct" in asked and contexts is not None:
        raise ValueError(
            "correct is for one fixed S, but contexts was given: what an audit finds belongs to "
            "the contexts that it saw, and does harm to others. Write audit=True to have the error "
            "of the rule reported, and raise K if it is large."
        )
    if len(asked) == 2:
        raise ValueError(
            "correct and audit were both given: a correction audits, so leave audit out."
        )
    return next((kind() if value is True else value for value, kind in asked.values()), None)


def two_truths(rule: Any) -> NoReturn:
    raise ValueError(
        f"audits compare {rule!r} with the exact hypergradient of T steps, but with warm_start=True"
        " this rule aims at the end of training instead: leave correct and audit out."
    )


def refused(rule: Any, step: int) -> None:
    warn(
        f"from hyper-iteration {step} on, {rule!r} could not be followed even with its correction: "
        "its hypergradient pointed uphill, was far too large, or not finite. minimize takes the "
        "exact one until an audit finds the rule good again; history['audit_refused'] says where.",
        outcome.ToleranceWarning,
    )

"""From numbers to words: which rule, which K, why, and what would change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._errors.mixed import not_symmetric
from .._rules.budget import root

if TYPE_CHECKING:
    from ._diagnosis import Diagnosis

NEAR = 0.1
"""An error that leaves a descent direction as good as exact."""
FINE = 0.95
"""A cosine that an outer optimizer hardly tells from 1."""
MANY = 20
"""Steps back beyond which compression may be cheaper."""
NAMED = 5
"""How many leaves of lam a sentence names."""


def advise(d: Diagnosis) -> list[str]:
    if d.h_norm == 0:
        return ["The hypergradient is exactly zero here: nothing can be said about rules."]
    return [
        *_claim(d), *_unstable(d), *_start(d), *_depth(d), *_leaves(d), *_interference(d),
        *_direction(d), *_implicit(d), *_theory(d),
    ]  # fmt: skip


def _claim(d: Diagnosis) -> list[str]:
    """All numbers are those of wrong products then."""
    return [] if d.asymmetry is None else [not_symmetric(d.asymmetry)]


def _unstable(d: Diagnosis) -> list[str]:
    """An inner loop that blows up makes everything else a matter of chance."""
    beta = d.theory.gamma_beta if d.theory else None
    if beta is None or beta <= 2 or d.contraction <= 1:
        return []
    return [
        f"The inner loop is unstable: gamma beta = {beta:.3g} > 2. Lower the inner step size below "
        f"{2 / beta:.2g} of what it is, and diagnose again."
    ]


def _segment(d: Diagnosis) -> str:
    return f"Reverse(segment={root(d.T)})"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _start(d: Diagnosis) -> list[str]:
    if not d.only_start:
        return []
    return [
        f"{_listed(d.only_start)} enters only through the initialisation: truncation, "
        f"AdaptiveReverse, Implicit and Neumann give it nothing. Use {_segment(d)}, which sees B_0."
    ]


def _depth(d: Diagnosis) -> list[str]:
    near, close = d.enough(NEAR), d.enough(NEAR / 10)
    if near is not None and near <= d.T / 2:
        also = f"Reverse(K={close}) within 1 %" if close else "none of the depths within 1 %"
        found = [f"Reverse(K={near}) is within 10 % of the whole hypergradient, {also}."]
        if near > MANY and d.theory is not None and d.theory.symmetric:
            found.append("Krylov(), with 10 products for all T steps, may be nearer than that.")
        return found
    return [_forgets(d)]


def _forgets(d: Diagnosis) -> str:
    half = int((d.depths <= max(d.T // 2, 1)).sum()) - 1
    left = f"after half of the T = {d.T} steps the error is still {d.error[half]:.0%}"
    if d.contraction >= 1 - 0.5 / d.T:
        return (
            f"No K is enough: the inner loop does not forget (|alpha_t| changes by "
            f"{d.contraction:.4g} in a step), {left}. Use {_segment(d)}; regularise g or run the "
            "inner loop longer if truncation is what you want."
        )
    rule = _segment(d)
    if d.theory is not None and d.theory.symmetric:
        rule = f"AdaptiveKrylov(rtol={NEAR}), or {rule} to be exact"
    return f"Truncation loses too much: {left}. Use {rule}."


def _leaves(d: Diagnosis) -> list[str]:
    """Where leaves of lam need different K: in the whole, the large ones hide the others."""
    by_K: dict[int | None, list[str]] = {}
    for name in d.leaf_error:
        if name not in d.only_start and not np.isnan(d.leaf_error[name]).all():
            by_K.setdefault(d.enough(NEAR, name), []).append(name)
    if len(by_K) < 2:
        return []
    last = d.depths[-1] + 1
    parts = [
        f"{_listed(by_K[K])} " + (f"from K = {K}" if K else "at none of the depths")
        for K in sorted(by_K, key=lambda K: K or last)
    ]
    return [f"By leaf, within 10 %: {'; '.join(parts)}.", *_wrong_way(d)]


def _wrong_way(d: Diagnosis) -> list[str]:
    against = {name: d.depths[cosine < 0] for name, cosine in d.leaf_cosine.items()}
    return [
        f"{name} is pushed the wrong way up to K = {K.max()} (cosine down to "
        f"{np.nanmin(d.leaf_cosine[name]):.2f}): it needs a larger K, or an exact rule."
        for name, K in list(against.items())[:NAMED]
        if len(K)
    ]


def _direction(d: Diagnosis) -> list[str]:
    """Where a shorter truncation points the right way: an outer optimizer needs no more."""
    near = d.enough(NEAR)
    of_leaves = [c for c in d.leaf_cosine.values() if not np.isnan(c).all()]
    worst = np.min([d.cosine, *of_leaves], axis=0)
    right = np.flatnonzero(worst >= FINE)
    if len(right) == 0 or near is None or d.depths[right[0]] >= near:
        return []
    i = right[0]
    each = "" if len(d.leaf_cosine) < 2 else f", and at least {FINE} in each leaf of lam"
    return [
        f"As a direction Reverse(K={d.depths[i]}) will do: its cosine with the whole hypergradient "
        f"is {d.cosine[i]:.2f}{each}. Its length, and where it leads in the end, are off by its "
        "error."
    ]


def _interference(d: Diagnosis) -> list[str]:
    if d.interference is None or d.interference.min() >= 0:
        return []
    worst = int(d.depths[d.interference < 0].max())
    return [
        f"Interference: up to K = {worst}, grad_lam f works against what comes through the inner "
        "loop (assumption 3 of Theorem 3.4 fails). Truncated descent may settle at a point that is "
        f"not stationary (Theorem 3.5): use a larger K, or {_segment(d)}."
    ]


def _implicit(d: Diagnosis) -> list[str]:
    if d.only_start:
        return []
    if d.stationarity is None:
        return [
            f"Implicit and Neumann cannot be used: on the whole S, which they need, g raises "
            f"{d.optimum_fails}."
        ]
    if d.stationarity < 1e-4:
        return ["w_T is stationary to the eye: Implicit and Neumann describe the same gradient."]
    fell = f"fell to {d.stationarity:.1g} of where it began"
    said = fell if d.stationarity < 1 else "did not fall"
    return [
        f"w_T is not stationary (|grad g| {said}): Implicit and Neumann answer for the optimum, "
        "not for w_T."
    ]


def _theory(d: Diagnosis) -> list[str]:
    t = d.theory
    if t is None or t.gamma_alpha is None or t.gamma_beta is None:
        return []
    out = []
    if t.gamma_beta > 2 and not _unstable(d):
        out.append(f"gamma beta = {t.gamma_beta:.3g} > 2: the inner step size is beyond stability.")
    elif 1 + 1e-6 < t.gamma_beta <= 2:
        out.append(f"gamma beta = {t.gamma_beta:.3g} > 1: Prop. 3.1 does not apply as it stands.")
    if t.gamma_alpha <= 0:
        out.append("g is not strongly convex around w_T: Prop. 3.1 gives no bound.")
    if t.N < t.M:
        out.append(
            f"N = {t.N} < M = {t.M}: B_t cannot have full column rank, and Theorem 3.4 does not "
            "apply."
        )
    elif t.least_singular is not None and t.least_singular < 1e-6:
        out.append("B_T is singular: Theorem 3.4 does not apply.")
    return out

"""How cost grows with T, K, M and N, against Table 1 of the paper.

A cheap problem: M numbers w are drawn to N numbers lam, each to its own; a step costs about M.
Memory is what XLA allocates; time is that beyond the forward pass, which every rule needs.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilevax as bx

from .growth_table import POWERS
from .measure import seconds_of

USUAL = {"T": 30, "K": 10, "M": 4096, "N": 16}
SWEEPS = {
    "T": (10, 100, 1000),
    "K": (1, 10, 100, 1000),
    "M": (1024, 8192, 65536, 1048576),
    "N": (1, 8, 64, 1024),
}
SECONDS = 1.5
"""After these a point is measured no more often than twice."""
QUICK = {"T": (16, 64), "K": (4, 16), "M": (512, 4096), "N": (1, 8)}


def rule(name: str, T: int, K: int) -> bx.extend.AbstractRule:
    segments = bx.Reverse(segment=max(round(T**0.5), 1))
    rules = {"Forward": bx.Forward(), "Reverse": bx.Reverse(), "Reverse, segments": segments}
    return rules.get(name) or bx.Reverse(K=K)


def problem(M: int, N: int):
    def g(w, lam, S):
        away = w.reshape(N, -1) - lam[:, None]
        return jnp.sum(jnp.sqrt(1 + away**2)) + jnp.sum(jnp.tanh(w) ** 2)

    xi = bx.Descent(g, bx.constant(jnp.linspace(-1.0, 1.0, M)), optax.sgd(0.1))
    return xi, lambda w, lam, S: jnp.mean(w**2), jnp.linspace(0.1, 0.5, N)


def point(name: str, sizes: dict[str, int], rounds: int) -> dict[str, Any]:
    T = sizes["T"]
    xi, f, lam = problem(sizes["M"], sizes["N"])
    hg = bx.hypergradient(f, xi, rule(name, T, sizes["K"]), T=T)
    whole = jax.jit(lambda lam: hg(lam).h).lower(lam).compile()
    forward = jax.jit(lambda lam: f(bx.solve(xi, lam, T=T), lam, None)).lower(lam).compile()
    best = least((whole, forward), lam, rounds)
    bytes_ = whole.memory_analysis().temp_size_in_bytes
    return {"bytes": bytes_, "ms": 1000 * best[0], "extra_ms": 1000 * (best[0] - best[1])}


def least(programs: Sequence, lam: jax.Array, rounds: int) -> np.ndarray:
    """The least seconds of each program; they take turns."""
    end, found = time.perf_counter() + SECONDS, []
    while len(found) < 2 or (len(found) < rounds and time.perf_counter() < end):
        found.append([seconds_of(lambda p=p: jax.block_until_ready(p(lam))) for p in programs])
    return np.min(found, axis=0)


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    for name, (time_powers, memory_powers) in POWERS.items():
        for letter, values in (QUICK if quick else SWEEPS).items():
            if letter not in time_powers | memory_powers:
                continue
            for value in values:
                sizes = USUAL | {letter: value}
                sizes["T"] = max(sizes["T"], sizes["K"])
                found = point(name, sizes, 3 if quick else 15)
                yield {"rule": name, "letter": letter, "value": value} | found


def slope(x: list[float], y: list[float]) -> float | None:
    """The power of x that y grows with: a line through the logarithms."""
    if len(x) < 2 or min(y) <= 0:
        return None
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])

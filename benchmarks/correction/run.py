"""Runs by cheap rules, with and without a correction, and by full reverse mode.

    python benchmarks/correction/run.py adam 0 1 2 3 4      # seeds; a few minutes each
    python benchmarks/correction/run.py adam 0 1 2 3 4 --starts 5
    python benchmarks/correction/run.py small 0
    python benchmarks/correction/run.py paper 0 --rule "Reverse(K=5) corrected"

A line of results/correction/CASE.jsonl is one run: the true loss and gradient along it, and how
often its rule and an audit were called. A run that is there is not taken again. `times.py`
measures what the calls cost, and `page.py` puts the two together: a time is then that of a
quiet machine, whatever else ran beside. Data are found by bilevax.paper.data.

With `--starts n` each seed has n runs: the first from the lam of the case, the others from near
it, moved by a tenth of the optimizer's first step. They show how far two runs of one rule part.
"""

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import optax
from cases import CASES, RULES

import bilevax as bx

OUT = Path(__file__).parents[2] / "results" / "correction"
EVERY = 25
MOVED = 0.01
"""How far another start is from the first one, in a coordinate."""
WORD = " corrected"


class Counted(bx.extend.AbstractRule):
    """A rule that tells of each of its calls, also of those that a run takes again."""

    rule: bx.extend.AbstractRule
    tell: Callable[[int], None] = eqx.field(static=True)

    def vjp(self, xi, lam, S, T):
        jax.debug.callback(lambda: self.tell(0))
        return self.rule.vjp(xi, lam, S, T)

    def audited(self, exact, xi, lam, S, T):
        jax.debug.callback(lambda: self.tell(1))
        return self.rule.audited(exact, xi, lam, S, T)

    def sees(self):
        return self.rule.sees()


def names(case: str) -> list[str]:
    return ["Reverse()", *(f"{r!r}{word}" for r in RULES[case] for word in ("", WORD))]


def started(case, start: int):
    noise = np.random.default_rng(start).normal(size=case.lam.shape).astype(case.lam.dtype)
    return case._replace(lam=case.lam + MOVED * noise) if start else case


def followed(case, text: str, steps: int) -> dict:
    """One run: numbers of every 25th hyper-iteration, and of its end."""
    exact = bx.hypergradient(case.f, case.xi, bx.Reverse(), T=case.T)
    calls: list[int] = []

    def measure(lam):
        jax.effects_barrier()
        end = exact(lam, case.S)
        size = float(optax.tree.norm(end.h))
        counts = {"rule": calls.count(0), "audits": calls.count(1)}
        return {"loss": float(end.value), "gradient": size} | counts

    correct = bx.Correction(share=case.share) if text.endswith(WORD) else None
    began = time.perf_counter()
    rule = Counted(bx.extend.parse_rule(text.removesuffix(WORD)), calls.append)
    result = bx.minimize(
        case.f, case.xi, rule, case.lam, T=case.T, S=case.S, steps=steps,
        optimizer=case.optimizer, correct=correct,
        evaluate=measure, evaluate_every=EVERY,
    )  # fmt: skip
    curve = {name: np.asarray(a).tolist() for name, a in result.evaluations.items()}
    values = np.asarray(result.history["value"], float).tolist()
    refused = float(np.sum(result.history.get("audit_refused", 0)))
    seconds = time.perf_counter() - began
    return {"refused": refused, "busy_seconds": seconds, "curve": curve, "values": values}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--rule", action="append", help='as in "Reverse(K=5) corrected"')
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--data")
    given = parser.parse_args()
    warnings.simplefilter("ignore", bx.ToleranceWarning)
    out = OUT / f"{given.case}.jsonl"
    out.parent.mkdir(exist_ok=True)
    there = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    there = {(row["seed"], row["start"], row["rule"]) for row in there}
    rules = given.rule or names(given.case)
    for seed, start, text in itertools.product(given.seeds, range(given.starts), rules):
        if (seed, start, text) in there:
            continue
        case = started(CASES[given.case](seed, given.data), start)
        row = {"seed": seed, "start": start, "rule": text} | followed(case, text, case.steps)
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        last = {name: a[-1] for name, a in row["curve"].items()}
        print(seed, start, text, last, row["refused"], f"{row['busy_seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""What a forward pass, a rule and an audit cost: CPU seconds of one thread, the least of several.

    export XLA_FLAGS=--xla_cpu_multi_thread_eigen=false
    python benchmarks/correction/times.py adam small paper

Writes results/correction/times.json. `run` has whole runs of the first seed, compiled before: of
"adam" only. CPU seconds of one thread do not depend on what else the machine does.
"""

import functools
import json
import sys
import time
import warnings

import jax
from cases import CASES, RULES
from run import OUT, WORD

import bilevax as bx
from bilevax._hypergradient import estimate
from bilevax._outer.audits import settled

REPEATS = 5
RUNS = ("Reverse()", "Reverse(K=5) corrected", "Reverse(K=20) corrected")


def programs(name: str, case) -> dict:
    """By name: the forward pass, each rule, and an audit of each."""
    exact = settled(bx.Correction(), case.T).rule
    at = lambda rule, more: jax.jit(
        lambda lam, S: estimate(case.f, case.xi, rule, lam, S, case.T, exact=more)
    )
    out = {"forward": jax.jit(lambda lam, S: case.f(bx.solve(case.xi, lam, S, T=case.T), lam, S))}
    out["Reverse()"] = at(bx.Reverse(), None)
    for rule in RULES[name]:
        out[repr(rule)], out[f"{rule!r}{WORD}"] = at(rule, None), at(rule, exact)
    return out


def seconds(program) -> float:
    began = time.process_time()
    jax.block_until_ready(program())
    return time.process_time() - began


def measured(name: str) -> dict:
    case = CASES[name](0, None)
    ready = {k: functools.partial(p, case.lam, case.S) for k, p in programs(name, case).items()}
    for program in ready.values():
        seconds(program)
    found = [{k: seconds(p) for k, p in ready.items()} for _ in range(REPEATS)]
    out = {"calls": {k: min(row[k] for row in found) for k in ready}}
    return out | ({"run": runs(case)} if name == "adam" else {})


def runs(case) -> dict:
    out = {}
    for text in RUNS:
        rule, correct = bx.extend.parse_rule(text.removesuffix(WORD)), text.endswith(WORD)
        go = functools.partial(
            bx.minimize, case.f, case.xi, rule, case.lam, T=case.T, S=case.S,
            optimizer=case.optimizer, correct=correct,
        )  # fmt: skip
        go(steps=2)
        out[text] = seconds(lambda: go(steps=case.steps).lam)  # noqa: B023
    return out


def main(cases: list[str]) -> None:
    warnings.simplefilter("ignore", bx.ToleranceWarning)
    out = OUT / "times.json"
    times = json.loads(out.read_text()) if out.exists() else {}
    for name in cases:
        times[name] = measured(name)
        out.write_text(json.dumps(times, indent=1) + "\n")
        print(name, times[name], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

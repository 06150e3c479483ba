"""Audits of a one-shot run: error and cosine of its rule along it, and what they cost.

    python benchmarks/correction/one_shot.py            # the runs
    python benchmarks/correction/one_shot.py --times    # the seconds of a call, on a quiet machine

The paper's network on Omniglot with T = 50 and four tasks in a hyper-iteration; the first 300
hyper-iterations of a run. Writes results/correction/one-shot.json.
"""

import functools
import json
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
from run import OUT, WORD, Counted
from times import REPEATS, seconds

import bilevax as bx
from bilevax._hypergradient import estimate
from bilevax._models.one_shot import f, slowing_adam
from bilevax._outer.audits import settled
from bilevax.paper.experiments.one_shot.config import Config
from bilevax.paper.experiments.one_shot.study import XI, Study

STEPS, RULES = 300, (bx.Reverse(K=1), bx.Krylov(2, 4))


def followed(study: Study, rule: bx.extend.AbstractRule) -> dict:
    config, calls = study.config, []
    result = bx.minimize(
        f, XI, Counted(rule, calls.append), study.lam, T=config.T, steps=STEPS,
        optimizer=slowing_adam(config.steps, config.rate, config.slow),
        contexts=study.samplers.train, key=study.key, batch=config.batch,
        at_once=config.at_once, audit=True,
    )  # fmt: skip
    jax.effects_barrier()
    at = np.flatnonzero(result.history["audit"])
    found = {k: result.history[k][at].tolist() for k in ("audit_cosine", "audit_error")}
    counts = {"rule": calls.count(0), "audits": calls.count(1)}
    return {"step": at.tolist()} | found | counts


def timed(study: Study) -> dict:
    """Seconds of a call for one task: of each rule, and of an audit of it."""
    T, S = study.config.T, jax.tree.map(lambda a: a[0], study.tasks)
    exact = settled(bx.Audit(), T).rule
    at = lambda rule, more: jax.jit(lambda lam, S: estimate(f, XI, rule, lam, S, T, exact=more))
    ready = {repr(r): at(r, None) for r in RULES} | {f"{r!r}{WORD}": at(r, exact) for r in RULES}
    ready = {k: functools.partial(p, study.lam, S) for k, p in ready.items()}
    found = [{k: seconds(p) for k, p in ready.items()} for _ in range(REPEATS)]
    return {k: min(row[k] for row in found) for k in ready}


def main(times: bool) -> None:
    warnings.simplefilter("ignore", bx.ToleranceWarning)
    out, study = OUT / "one-shot.json", Study(Config(), None)
    found = json.loads(out.read_text()) if out.exists() else {}
    if times:
        _write(found | {"calls": timed(study)}, out)
        return
    found["runs"] = {}
    for rule in RULES:
        found["runs"][repr(rule)] = followed(study, rule)
        _write(found, out)


def _write(found: dict, out: Path) -> None:
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(found, flush=True)


if __name__ == "__main__":
    main("--times" in sys.argv)

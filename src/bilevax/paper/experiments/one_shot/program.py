"""One-shot classification (section 4.3 and its appendix): a character from one drawing of it.

    min_lam  E_S CE(w_T; query drawings of task S)
    w_T from T steps on  CE(w; one drawing a class) + sum_j rho_j |w_j - c_j|^2,  w_0 = c

lam = {two convolutions, c, rho, gamma}; see `_models/network.py`.

Batch normalisation has no memory: a batch is normalised by its own mean and variance
(epsilon 1e-3), the support drawings of a task by theirs and its query drawings by theirs, in
training and in testing. A test drawing is so judged in the company of the others of its task,
which is transductive, as it is in the code of MAML.
"""

import re
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ...._models.one_shot import f, slowing_adam
from ...._outer.minimize import minimize
from ...._rules.parse import parse_rule
from ...._rules.reverse import Reverse
from ...records import Records
from .._follow import follow
from .config import Config
from .study import XI, Plan, Study

KEYS = ("kind", "rule", "seed", "step", "objective", "K")


def read_rule(text: str) -> Plan:
    """A rule, or "T=1" for all of a shorter horizon."""
    short = re.fullmatch(r"\s*T\s*=\s*([1-9]\d*)\s*", text)
    return Plan(Reverse(), int(short[1])) if short else Plan(parse_rule(text), None)


def run(config: Config, out: Path, *, resume: bool = False, data_dir: str | None = None) -> None:
    """Every rule from the same start on the same tasks; records in `out`."""
    plans = {text: read_rule(text) for text in config.rules}
    study = Study(config, data_dir)
    adam = slowing_adam(config.steps, config.rate, config.slow)
    with Records(out, asdict(config), keys=KEYS, resume=resume) as records:
        for text, (rule, horizon) in plans.items():
            T = horizon or config.T
            evaluate = partial(study.evaluate, rule, T)
            log = follow(records, out, text, config.seed, config.steps)
            if not records.has(kind="evaluation", rule=text, seed=config.seed, step=0):
                log.first(evaluate(study.lam))
            result = minimize(
                f, XI, rule, study.lam, T=T, steps=config.steps, optimizer=adam,
                contexts=study.samplers.train, key=study.key, batch=config.batch,
                at_once=config.at_once, evaluate=evaluate, evaluate_every=config.every,
                callback=log.write, checkpoint=log.checkpoints,
            )  # fmt: skip
            log.write(result)
            study.final(records, text, T, result.lam)
            if horizon is None:  # a shorter horizon is there to be cheap, not to be cut
                study.depths(records, text, T, result.lam)
        study.costs(records, plans)

"""What is done, in order. A row of the record is written when it is found, and not found again."""

import resource
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bilevax as bx
from bilevax.paper.records import Records, load

from .problem import Problem
from .scores import area, at_the_end
from .text import CODE, kinds

RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
STEPS = 10
PROBES = (0.01, 0.1)
OUTER = optax.adam(0.3)
"""Of logits of weights, and of logarithms of learning rates."""


class Run:
    """A folder with a record and a tape: whatever kills it, the same command goes on."""

    def __init__(self, p: Problem, folder, records: Records):
        self.p, self.folder, self._records = p, Path(folder), records
        self._train, self._judge = p.train(), jax.jit(p.judge)
        self._hg = p.metagradient(bx.Store(self.folder / "tape"))

    def row(self, kind, at, find):
        """A row of the record, which `find` gives if it is not there."""
        if not self._records.has(kind=kind, at=at):
            began, cpu = time.perf_counter(), time.process_time()
            found = jax.tree.map(short, find())
            spent = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
            self._records.add(kind=kind, at=at, **found, **spent, peak_bytes=peak())
        (row,) = load(self.folder).of(kind, at=at)
        if "valid" in row:
            print(f"{kind} {at}: validation loss {row['valid']:.4f}, test loss {row['test']:.4f}")
        return row

    def after(self, kind, at, lam):
        """Training with lam, and what it leads to."""
        return self.row(kind, at, lambda: self._judge(self._train(lam)))

    def metagradient(self, kind, at, lam):
        """The gradient of the validation loss through the whole training with lam."""

        def find():
            out = self._hg(lam, self.p.valid)
            return {"h": out.h} | self._judge(out.w)

        return self.row(kind, at, find)

    def scores(self, lam):
        """What the two baselines say of each document after training with lam."""
        return self.row("scores", 0, lambda: at_the_end(self._train(lam), self.p))


def main(p, folder, rates=RATES, steps=STEPS):
    config = {"experiment": "gpt", **p.setting._asdict()}
    with Records(folder, config, keys=("kind", "at"), resume=True) as records:
        run = Run(p, folder, records)
        constant, start = searched(run, rates)
        suspects(run, constant, start)
        lam = downhill(run, start, steps)
        run.after("learned", "weights and rates", lam)
        run.after("learned", "weights", lam | {"rate": start["rate"]})
        run.after("learned", "rates", lam | {"weight": start["weight"]})
        smooth(run, start)


def searched(run, rates):
    """Equal weights, with the best constant rate, and with this rate falling along a cosine."""
    loss = {rate: run.after("constant", rate, run.p.start(rate))["valid"] for rate in rates}
    for rate in rates:
        run.after("cosine", rate, run.p.cosine(rate))
    rate = min(rates, key=loss.__getitem__)
    return run.p.start(rate), run.p.cosine(rate)


def downhill(run, lam, steps):
    """Steps along metagradients."""
    state = OUTER.init(lam)
    for i in range(steps):
        h = {
            name: jnp.asarray(x)
            for name, x in run.metagradient("metagradient", i, lam)["h"].items()
        }
        updates, state = OUTER.update(h, state, lam)
        lam = optax.apply_updates(lam, updates)
    run.row("lam", steps, lambda: lam)
    return lam


def suspects(run, constant, lam):
    """How well one metagradient finds the bad documents, and how well the baselines do.

    A constant rate ends with the noise of its last batches, in w and in the metagradient.
    """
    noisy = run.metagradient("metagradient, constant rate", 0, constant)
    first, scores = run.metagradient("metagradient", 0, lam), run.scores(lam)
    ways = {"metagradient, constant rate": noisy["h"]["weight"]}
    ways |= {"metagradient": first["h"]["weight"]} | {k: scores[k] for k in ("loss", "cosine")}
    bad = kinds(run.p.setting.documents) != CODE
    for way, score in ways.items():
        print(f"{way}: area under the ROC curve {area(np.array(score), bad):.3f}")


def smooth(run, lam):
    """Whether the loss changes by what its gradient says, in small steps."""
    first = run.metagradient("metagradient", 0, lam)
    h = {name: jnp.asarray(x) for name, x in first["h"].items()}
    for e in PROBES:
        new = {name: lam[name] - e * jnp.sign(h[name]) for name in lam}
        said = -e * sum(float(jnp.sum(jnp.abs(x))) for x in h.values())
        found = run.after("probe", e, new)["valid"] - first["valid"]
        print(f"a step of {e}: {said:+.4f} by the metagradient, {found:+.4f} by training")


def short(a):
    """An array's numbers with as many digits as they have."""
    return np.vectorize(lambda x: float(str(x)), otypes=[float])(np.asarray(a)).tolist()


def peak():
    """The largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""Hypercleaning at paper size: what loss there is to be had, and how long a first step to take.

    python benchmarks/hypercleaning_settings.py [--data-dir DIR]      # some minutes

- The validation loss with all weights equal, and with weights of 1 for right labels and 0 for
  wrong ones, which no gradient tells us, after 100 and after 1000 inner steps.
- The validation loss after 100 hyper-iterations of `Reverse(K=5)`, for some lengths of the first
  update of Adam: the paper gives none.
"""

import argparse
import json
from pathlib import Path

import jax.numpy as jnp
import optax

import bilevax as bx
from bilevax.paper.experiments.hypercleaning import program as hypercleaning

OUT = Path(__file__).parent.parent / "results" / "hypercleaning" / "settings.json"
SURE = 40.0
"""sigmoid(SURE) is 1 to every digit."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-dir")
    config = hypercleaning.Config()
    data = hypercleaning.load(config, parser.parse_args().data_dir)
    xi, lam, S = hypercleaning.problem(data, config)
    loss = lambda lam, T: float(hypercleaning.f(bx.solve(xi, lam, S, T=T), lam, S))
    known = jnp.where(S["wrong"], -SURE, SURE)
    out = {"loss": {"equal weights": loss(lam, 100), "known": loss(known, 100)}}
    out["loss"]["known, T = 1000"] = loss(known, 1000)
    out["first update"] = {}
    for first in (0.1, 0.3, 1.0):
        adam = bx.scale_first_update(optax.adam(1.0), first * lam.size**0.5)
        result = bx.minimize(
            hypercleaning.f, xi, bx.Reverse(K=5), lam, T=config.T, steps=100, optimizer=adam, S=S
        )
        out["first update"][str(first)] = loss(result.lam, config.T)
        print(json.dumps(out, indent=1), flush=True)
    OUT.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

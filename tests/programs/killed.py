"""A run that a test may kill: python killed.py DIR STEPS LOG [correct]; in the end, lam's bits.

Corrected, it has one context; else it draws them.
"""

import sys
import time

import jax
import optax

import bilevax as bx
from bilevax import problems


def noted(log):
    """Write down how far the run has come, then wait a little: a target for signals."""

    def callback(progress):
        with open(log, "a") as file:
            file.write(f"{progress.step}\n")
        time.sleep(0.01)

    return callback


def main(directory, steps, log, correct=None):
    jax.config.update("jax_enable_x64", True)
    p = problems.ridge()
    draw = lambda key: p.S | {"train": (p.S["train"][0], jax.random.normal(key, (30,)))}
    drawn = dict(contexts=draw, key=jax.random.key(0), batch=2)
    result = bx.minimize(
        p.f,
        p.xi,
        bx.Reverse(K=5),
        p.lam,
        T=20,
        steps=int(steps),
        optimizer=optax.adam(0.01),
        correct=bx.Correction(share=0.2) if correct else None,
        **({"S": p.S} if correct else drawn),
        evaluate=lambda lam: lam[0],
        evaluate_every=30,
        checkpoint=bx.Checkpoint(directory, every=20),
        callback=noted(log),
    )
    numbers = [*result.lam, *result.history["value"], *result.evaluations["value"]]
    print(*(float(x).hex() for x in numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])

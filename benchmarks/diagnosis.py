"""What a diagnosis costs on the shape of the paper's hypercleaning, against one full hypergradient.

python benchmarks/diagnosis.py
"""

import json
import pathlib
import time

import jax
import jax.numpy as jnp
import optax

import bilevax as bx

OUT = pathlib.Path(__file__).parent.parent / "results" / "diagnosis.json"


def problem():
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (5000, 785))
    y = jax.random.randint(keys[1], (5000,), 0, 10)
    S = {"train": (x, y), "val": (jax.random.normal(keys[2], (5000, 785)), y)}
    losses = lambda w, data: optax.softmax_cross_entropy_with_integer_labels(data[0] @ w, data[1])
    weighted = lambda w, lam, S: jnp.mean(jax.nn.sigmoid(lam) * losses(w, S["train"]))
    g = lambda w, lam, S: weighted(w, lam, S) + 5e-4 * jnp.sum(w**2)
    f = lambda w, lam, S: jnp.mean(losses(w, S["val"]))
    xi = bx.Descent(g, bx.constant(jnp.zeros((785, 10))), optax.sgd(0.01))
    return f, xi, jnp.zeros(5000), S


def fastest(run, times: int = 4) -> float:
    run()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main():
    f, xi, lam, S = problem()
    full = bx.hypergradient(f, xi, bx.Reverse(), T=100)
    whole = fastest(lambda: jax.block_until_ready(full(lam, S)))
    cheap = lambda: bx.diagnose(f, xi, lam, S, T=100, depths=(1, 2, 5, 10, 20, 50), lanczos=0)
    every = lambda: bx.diagnose(f, xi, lam, S, T=100)
    record = {"full_hypergradient_s": whole}
    record |= {"cheap_ratio": fastest(cheap) / whole, "every_ratio": fastest(every) / whole}
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    print(record)


if __name__ == "__main__":
    main()

"""What the abstraction costs: bilevax against a hand-written scan, and against the loop.

The shape is the paper's data hypercleaning (5000 x 785 inputs, 10 classes, T = 100), on
random data. Everything is measured in one process, the programs taking turns, and only
ratios of the fastest times are reported; compilation is left out.

    python benchmarks/overhead.py [--rounds 7]
"""

import argparse
import time

import jax
import jax.numpy as jnp
import optax
from jax import lax

import bilevax as bx

N, D, C, T, GAMMA, DECAY = 5000, 785, 10, 100, 1.0, 0.001


def cross_entropy(w, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(x @ w, y)


def g(w, lam, S):
    x, y = S["train"]
    return jnp.mean(jax.nn.sigmoid(lam) * cross_entropy(w, x, y)) + DECAY * jnp.sum(w**2)


def f(w, lam, S):
    del lam
    return jnp.mean(cross_entropy(w, *S["val"]))


def by_hand(K):
    """K-RMD as a careful user would write it, for gradient descent alone."""
    step = lambda w, lam, S: w - GAMMA * jax.grad(g)(w, lam, S)

    def run(lam, S):
        w = jnp.zeros((D, C))
        w = lax.fori_loop(0, T - K, lambda _, w: step(w, lam, S), w)
        w, ws = lax.scan(lambda w, _: (step(w, lam, S), w), w, None, length=K)
        value, alpha = jax.value_and_grad(f)(w, lam, S)

        def back(carry, w):
            alpha, h = carry
            alpha, b = jax.vjp(lambda w, lam: step(w, lam, S), w, lam)[1](alpha)
            return (alpha, h + b), None

        (_, h), _ = lax.scan(back, (alpha, jnp.zeros(N)), ws, reverse=True)
        return value, h, w

    return run


def forward_pass(lam, S):
    w = lax.fori_loop(0, T, lambda _, w: w - GAMMA * jax.grad(g)(w, lam, S), jnp.zeros((D, C)))
    return f(w, lam, S), w


def data(key):
    def part(key):
        kx, ky = jax.random.split(key)
        x = jax.random.uniform(kx, (N, D)) * (jax.random.uniform(ky, (N, D)) < 0.2)
        return x, jax.random.randint(ky, (N,), 0, C)

    train, val = jax.random.split(key)
    return {"train": part(train), "val": part(val)}


def fastest(programs, args, rounds):
    """The fastest time of each program, taken in turns so that noise hits all alike."""
    for program in programs.values():
        jax.block_until_ready(program(*args))
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(rounds):
        for name, program in programs.items():
            begin = time.perf_counter()
            jax.block_until_ready(program(*args))
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    xi = bx.Descent(g, bx.constant(jnp.zeros((D, C))), optax.sgd(GAMMA))
    rules = {"K=5": bx.Reverse(K=5), "full": bx.Reverse(), "sqrt": bx.Reverse(segment=10)}
    programs = {
        "forward": forward_pass,
        "by hand K=5": by_hand(5),
        "by hand K=T": by_hand(T),
    }
    programs |= {k: bx.hypergradient(f, xi, rule, T=T) for k, rule in rules.items()}
    args = jnp.zeros(N), data(jax.random.key(0))
    best = fastest({k: jax.jit(p) for k, p in programs.items()}, args, rounds)
    ratio = lambda a, b: best[a] / best[b]
    print(f"forward pass, T = {T}: {best['forward'] * 1e3:.0f} ms")
    rows = [
        ("Reverse(K=5)", "K=5", "by hand K=5", 1.1),
        ("Reverse(K=5)", "K=5", "forward", 1.25),
        ("Reverse()", "full", "by hand K=T", 1.1),
        ("Reverse()", "full", "forward", 2.6),
        ("Reverse(segment=10)", "sqrt", "forward", 3.6),
    ]
    for name, a, b, goal in rows:
        print(f"{name:20s} / {b:12s} {ratio(a, b):5.2f}   (goal: at most {goal})")


if __name__ == "__main__":
    main()

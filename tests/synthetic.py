"""Runs as experiments write them: the toy problem in closed form, hypercleaning made up."""

import numpy as np

from bilevax.paper.records import Records

G, W_0, T, GAMMA = np.array([1.0, 0.5]), np.array([2.0, 2.0]), 100, 0.1
PULLS = {"f": 0.0, "f~": 5.0}
KS = (1, 2, 5, 10, 25, 100)


def left(K):
    """What K steps leave of a distance to the inner optimum."""
    return (1 - GAMMA * G) ** K


def toy_f(lam, pull=0.0):
    w = left(T) * W_0 + (1 - left(T)) * lam
    own = np.sum(w**2 + 10 * np.sin(w) ** 2, axis=-1)
    return own + pull * np.sum((lam - [1.0, 0.0]) ** 2, axis=-1)


def toy_h(lam, K, pull=0.0):
    w = left(T) * W_0 + (1 - left(T)) * lam
    alpha = 2 * w + 10 * np.sin(2 * w)
    return (1 - left(K)) * alpha + 2 * pull * (lam - [1.0, 0.0])


def trajectory(K, pull, steps):
    lam, out = np.array([1.4, 1.3]), []
    scale = 0.6 / np.linalg.norm(toy_h(lam, K, pull))
    for step in range(1, steps + 1):
        out.append(lam)
        lam = lam - scale / np.sqrt(step) * toy_h(lam, K, pull)
    return np.array(out)


def write_toy(path, steps=150, size=61, **config):
    settings = {"experiment": "toy", "preset": "paper", "T": T, "gamma": GAMMA, "seed": 0}
    with Records(path, settings | config) as records:
        line = np.linspace(-2.5, 2.5, size)
        for y in line:
            points = np.stack([line, np.full(size, y)], axis=1)
            records.add(kind="surface", y=y, x=line, f=toy_f(points))
        write_bias(records)
        for objective, pull in PULLS.items():
            write_paths(records, objective, pull, steps)


def write_bias(records):
    lam = np.ones(2)
    for K in range(1, T + 1):
        error = np.linalg.norm(toy_h(lam, K) - toy_h(lam, T))
        bound = (1 - GAMMA / 2) ** K / (GAMMA / 2) * 10 * GAMMA
        local = 2.0 ** (T - K + 1) * (1 - GAMMA / 2) ** K * 10 * GAMMA
        records.add(kind="bias", K=K, bias=error, bound=bound, local_bound=local)


def write_paths(records, objective, pull, steps):
    best = trajectory(T, pull, 4000)[-1]
    value = toy_f(best, pull)
    records.add(kind="optimum", objective=objective, lam_1=best[0], lam_2=best[1], value=value)
    for K in KS:
        for step, lam in enumerate(trajectory(K, pull, steps)):
            d = toy_h(lam, T, pull)
            records.add(
                kind="iterate", objective=objective, K=K, step=step, lam_1=lam[0], lam_2=lam[1],
                value=toy_f(lam, pull), gradient_1=d[0], gradient_2=d[1],
                gradient_norm=np.linalg.norm(d), distance=np.linalg.norm(lam - best),
            )  # fmt: skip
        for step, lam in enumerate(trajectory(1, pull, steps)):
            d = toy_h(lam, T, pull)
            ratio = d @ toy_h(lam, K, pull) / (d @ d)
            records.add(kind="descent", objective=objective, K=K, step=step, ratio=ratio)


RULES = ("Reverse(K=1)", "Reverse(K=5)", "Reverse(K=25)", "Reverse(K=100)", "Krylov(2, 4)")


def write_cleaning(path, seed=0, steps=1000, stop=None, rules=RULES, every=50, cost=True, **config):
    settings = {
        "experiment": "hypercleaning", "preset": "paper", "data": "mnist", "train": 5000, "T": T,
        "gamma": 1.0, "rules": list(rules), "steps": steps, "seed": seed,
    }  # fmt: skip
    noise = np.random.default_rng(seed)
    with Records(path, settings | config) as records:
        for index, rule in enumerate(rules):
            for step in range(0, (stop or steps) + 1, every):
                row = evaluation(index, step, noise)
                records.add(kind="evaluation", rule=rule, seed=seed, step=step, **row)
        for index, rule in enumerate(rules if cost else ()):
            seconds = 0.4 + 0.1 * index + 0.01 * noise.random()
            records.add(
                kind="cost", rule=rule, seed=seed, seconds=seconds,
                forward_seconds=0.35, bytes=10**6 * 3 ** (index + 1), forward_bytes=2 * 10**6,
            )  # fmt: skip


def evaluation(index, step, noise):
    done, jitter = 1 - np.exp(-step / 120), noise.normal() / 1000
    found, false = int(2200 * done + 20 * noise.random()), int(300 * done)
    f1 = 2 * found / (found + false + 2250)
    return {
        "test_accuracy": 0.80 + (0.075 + 0.002 * index) * done + jitter,
        "validation_accuracy": 0.82 + (0.075 + 0.002 * index) * done + jitter,
        "validation_loss": 0.75 - (0.34 + 0.01 * index) * done + jitter,
        "f1_4": f1, "f1_3": f1 + 0.001, "f1_1": f1 + 0.002,
        "found": found, "false": false, "corrupted": 2250 + 10 * int(noise.random()),
        "gradient_norm": (0.02 / (1 + index) + 0.1 * np.exp(-step / 100)) * (1 + 30 * jitter),
    }  # fmt: skip

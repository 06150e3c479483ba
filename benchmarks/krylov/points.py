"""Where the Krylov benchmarks measure: values of lam that a real run goes through.

    python benchmarks/krylov/points.py --data DIR

makes them all, once, and keeps them in results/krylov/cache.
"""

import data
import jax
import jax.numpy as jnp
import numpy as np
import optax
import problems

import bilevax as bx

VISITS = (0, 10, 30, 60, 100)
META = 100
"""Meta-iterations behind the Omniglot points called trained."""


def hypercleaning_path(folder: str) -> dict[int, np.ndarray]:
    """lam at some hyper-iterations of Adam(0.1), driven by full reverse mode."""
    kept = data.cache("mnist_path.npz")
    if not kept.exists():
        problem, S = problems.hypercleaning(), data.noisy_mnist(folder)
        hg = bx.hypergradient(problem.f, problem.xi, bx.Reverse(), T=problem.T)
        path, lam, adam = {}, problem.lam, optax.adam(0.1)
        state = adam.init(lam)
        for i in range(max(VISITS) + 1):
            if i in VISITS:
                path[str(i)] = np.asarray(lam)
            update, state = adam.update(hg(lam, S).h, state)
            lam = optax.apply_updates(lam, update)
        np.savez(kept, **path)
    return {int(k): v for k, v in np.load(kept).items()}


def trained(folder: str, regime: str, batch: int = 4) -> dict:
    """lam after META steps of Adam(1e-3), with K = 10 and `batch` tasks in each step."""
    kept, problem = data.cache(f"omniglot_{regime}.npz"), problems.few_shot_network()
    lam = problems.few_shot_start(regime)
    leaves, form = jax.tree.flatten(lam)
    if not kept.exists():
        images, adam = data.omniglot(folder), optax.adam(1e-3)
        hg = bx.hypergradient(problem.f, problem.xi, bx.Reverse(K=10), T=problem.T)
        state = adam.init(lam)
        for i in range(META):
            tasks = [data.few_shot(images, 1000 + batch * i + j) for j in range(batch)]
            out = [hg(lam, S) for S in tasks]
            mean = jax.tree.map(lambda *h: sum(h) / batch, *(o.h for o in out))
            update, state = adam.update(mean, state)
            lam = optax.apply_updates(lam, update)
            if i % 20 == 0 or i == META - 1:
                print(regime, i, f"{sum(float(o.value) for o in out) / batch:.3f}", flush=True)
        np.savez(kept, *map(np.asarray, jax.tree.leaves(lam)))
    with np.load(kept) as arrays:
        return jax.tree.unflatten(
            form, [jnp.asarray(arrays[f"arr_{i}"]) for i in range(len(leaves))]
        )


def mnist_points(folder: str) -> dict:
    S = data.noisy_mnist(folder)
    path = hypercleaning_path(folder)
    return {f"it. {i}": (jnp.asarray(lam), S) for i, lam in path.items()}


def omniglot_points(folder: str, tasks: int = 6) -> dict:
    """Name -> (lam, S): three regimes at the start, two of them also after training."""
    images, out = data.omniglot(folder), {}
    sets = {f"{r} start": (problems.few_shot_start(r), tasks // 3) for r in problems.REGIMES}
    sets |= {f"{r} trained": (trained(folder, r), tasks) for r in ("regular", "weak")}
    for name, (lam, n) in sets.items():
        out |= {f"{name} {i}": (lam, data.few_shot(images, i)) for i in range(n)}
    return out


def multilayer_points(problem, seeds: int = 4) -> dict:
    """Other data each time; from the second on, example weights that have spread."""
    out = {}
    for seed in range(seeds):
        spread = (seed > 0) * jax.random.normal(jax.random.key(seed), problem.lam["weight"].shape)
        out[f"seed {seed}"] = (problem.lam | {"weight": spread}, data.digits(seed=seed))
    return out


if __name__ == "__main__":
    folder = data.arguments(__doc__).parse_args().data
    omniglot_points(folder)
    mnist_points(folder)

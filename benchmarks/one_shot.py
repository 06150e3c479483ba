"""One-shot learning: seconds in a hyper-iteration, by rule, against the same in PyTorch.

    pip install torch==2.13.0            # not a dependency; without it that part is left out
    python benchmarks/one_shot.py        # paper size; --small to see that it works

- Rules are compared with the forward pass, all with the paper's four tasks in a hyper-iteration,
  one after the other; two of them also with the four tasks side by side (vmap).
- "deviations" is another way to write the same inner loop. Descent from c keeps W3 = c3 + P'V,
  where the rows of P are the support patches that conv3 sees, 180 of 576 numbers: V is a state
  of 180 rows, a step multiplies it with the 180 x 180 matrix P P', and its gradient with nothing.
  w_T and the full hypergradient are the same; a truncated one is not, since c and P reach w_T
  past the state.
- In PyTorch the same algorithm: representation of the support set once, T - K steps without a
  graph, K with one. Hypergradients are compared before anything is timed.

All programs take turns in one process; the least of the times counts. Images are invented, of
Omniglot's size: times do not depend on what they show.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import bilevax as bx
from bilevax._models import one_shot as network
from bilevax._models.convolution import block, normalise
from bilevax._models.episodes import Sampler
from bilevax.paper.data import glyphs

OUT = Path(__file__).parent.parent / "results" / "one-shot" / "speed.json"
RULES = ("Reverse(K=1)", "Reverse(K=10)", "Reverse()", "Krylov(2, 4)")
XI = network.dynamics()


def flat(mu):
    """The centres without conv3's kernel, which V moves."""
    conv3 = {k: a for k, a in mu["c"]["conv3"].items() if k != "kernel"}
    return mu["c"] | {"conv3": conv3}


def prepare(lam, S):
    mu = network.prepare(lam, S)
    P = mu.pop("P").reshape(-1, lam["c"]["conv3"]["kernel"].shape[0])
    return mu | {"P": P, "Y": P @ mu["c"]["conv3"]["kernel"], "G": P @ P.T}


def step(s, mu, S, t):
    def g(Y, w):
        Y = Y.reshape(4, len(S.y), -1, Y.shape[1])
        side = round(Y.shape[2] ** 0.5)
        x = normalise(w["conv3"], jnp.max(Y, 0).reshape(len(S.y), side, side, -1))
        x = block(w["conv4"], x).reshape(len(S.y), -1)
        logits = x @ w["linear"]["kernel"] + w["linear"]["shift"][None]
        far = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), w, flat(mu))
        pull = sum(mu["rho"][name] * sum(far[name].values()) for name in w)
        return jnp.mean(network.cross_entropy(logits, S.y)) + pull

    Y_bar, w_bar = jax.grad(g, (0, 1))(mu["Y"] + mu["G"] @ s["V"], s["w"])
    gamma, rho = mu["gamma"], mu["rho"]["conv3"]
    V = (1 - 2 * gamma * rho) * s["V"] - gamma * Y_bar
    return {"V": V, "w": jax.tree.map(lambda a, b: a - gamma * b, s["w"], w_bar)}


DEVIATIONS = bx.Prepared(
    prepare,
    bx.Dynamics(lambda mu, S: {"V": jnp.zeros_like(mu["Y"]), "w": flat(mu)}, step),
)


def f_of_deviations(s, lam, S):
    P = network.patches(network.represent(lam, S.x)).reshape(-1, len(lam["c"]["conv3"]["kernel"]))
    kernel = lam["c"]["conv3"]["kernel"] + P.T @ s["V"]
    return network.f(s["w"] | {"conv3": s["w"]["conv3"] | {"kernel": kernel}}, lam, S)


def mean(h):
    return jax.tree.map(lambda a: jnp.mean(a, 0), h)


def sequential(f, xi, rule, T):
    hg = bx.hypergradient(f, xi, rule, T=T)
    return lambda lam, tasks: mean(lax.map(lambda S: hg(lam, S).h, tasks))


def together(f, xi, rule, T):
    hg = bx.hypergradient(f, xi, rule, T=T)
    return lambda lam, tasks: mean(jax.vmap(hg, (None, 0))(lam, tasks).h)


def programs(lam, tasks, T):
    out = {}
    forward = lambda S, lam: network.f(bx.solve(XI, lam, S, T=T), lam, S)
    out["forward"] = lambda lam, tasks: jnp.mean(lax.map(lambda S: forward(S, lam), tasks))
    for text in RULES:
        out[text] = sequential(network.f, XI, bx.extend.parse_rule(text), T)
    for text in ("Reverse(K=10)", "Reverse()"):
        out[f"{text}, side by side"] = together(network.f, XI, bx.extend.parse_rule(text), T)
    out["Reverse(), deviations"] = sequential(f_of_deviations, DEVIATIONS, bx.Reverse(), T)
    return {name: jax.jit(p).lower(lam, tasks).compile() for name, p in out.items()}


def pytorch(lam, tasks, T):
    """(K, or None for all) -> the mean hypergradient, as numpy arrays in the form of lam."""
    import torch
    from torch.nn import functional as nn

    def to_torch(path, a):
        a = np.asarray(a)
        if a.ndim == 2 and "linear" not in str(path):  # (9 c, F) -> (F, c, 3, 3)
            a = a.reshape(3, 3, -1, a.shape[1]).transpose(3, 2, 0, 1)
        return torch.tensor(a.copy(), requires_grad=True)

    def back(path, a, like):
        a = np.zeros(like.shape) if a is None else a.numpy()
        return a.transpose(2, 3, 1, 0).reshape(like.shape) if a.ndim == 4 else a

    hyper = jax.tree_util.tree_map_with_path(to_torch, lam)
    leaves, form = jax.tree.flatten(hyper)
    integer = lambda a: np.issubdtype(a.dtype, np.integer)
    tensor = lambda a: torch.tensor(np.asarray(a, np.int64 if integer(a) else a.dtype))
    data = [[tensor(a[i]) for a in tasks] for i in range(len(tasks.y))]

    def layer(p, x):
        x = nn.max_pool2d(nn.conv2d(x, p["kernel"], padding=1), 2)
        return torch.relu(nn.batch_norm(x, None, None, p["scale"], p["shift"], True, eps=1e-3))

    def represent(x):
        return layer(hyper["base"]["conv2"], layer(hyper["base"]["conv1"], x[:, None]))

    def loss(w, z, y):
        x = layer(w["conv4"], layer(w["conv3"], z)).flatten(1)
        return nn.cross_entropy(x @ w["linear"]["kernel"] + w["linear"]["shift"], y)

    def descend(w, z, y, c, rho, gamma, graph):
        values, shape = jax.tree.flatten(w)
        if not graph:
            values = [a.detach().requires_grad_() for a in values]
        w = jax.tree.unflatten(shape, values)
        far = {n: sum(((w[n][k] - c[n][k]) ** 2).sum() for k in w[n]) for n in w}
        g = loss(w, z, y) + sum(rho[n] * far[n] for n in w)
        steps = torch.autograd.grad(g, values, create_graph=graph)
        return jax.tree.unflatten(
            shape, [a - gamma * b for a, b in zip(values, steps, strict=True)]
        )

    def one(task, K):
        x, y, x_val, y_val = task
        z = represent(x)
        c, rho = hyper["c"], {n: a.exp() for n, a in hyper["rho"].items()}
        gamma, w = hyper["gamma"].exp(), c
        fixed = jax.tree.map(lambda a: a.detach(), (z, c, rho, gamma))
        for t in range(T):
            live = K is None or t >= T - K
            if live and t and t == T - (K or T):
                w = jax.tree.map(lambda a: a.detach().requires_grad_(), w)
            z_t, c_t, rho_t, gamma_t = (z, c, rho, gamma) if live else fixed
            w = descend(w, z_t, y, c_t, rho_t, gamma_t, live)
        return loss(w, represent(x_val), y_val)

    def run(K):
        total = [torch.zeros_like(a) for a in leaves]
        for task in data:
            found = torch.autograd.grad(one(task, K), leaves, allow_unused=True)
            for a, b in zip(total, found, strict=True):
                if b is not None:
                    a += b / len(data)
        return total

    def as_numpy(K):
        return jax.tree_util.tree_map_with_path(back, jax.tree.unflatten(form, run(K)), lam)

    return run, as_numpy


def distance(a, b):
    a, b = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(t)]) for t in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def problem(filters):
    images = glyphs.load(characters=10)
    draw = Sampler(images)
    tasks = jax.vmap(draw)(jax.random.split(jax.random.key(0), 4))
    return network.first_lam(jax.random.key(1), 5, filters, 0.0025, 0.4), tasks


def agree(filters, T):
    """Largest relative distance between hypergradients of the two, in float64."""
    with jax.enable_x64(True):
        lam, tasks = problem(filters)
        try:
            _, theirs = pytorch(lam, tasks, T)
        except ModuleNotFoundError:
            return None
        rules = {1: bx.Reverse(K=1), 2: bx.Reverse(K=2), None: bx.Reverse()}
        ours = {K: jax.jit(sequential(network.f, XI, r, T))(lam, tasks) for K, r in rules.items()}
        exact = jax.jit(sequential(f_of_deviations, DEVIATIONS, bx.Reverse(), T))(lam, tasks)
        found = {f"PyTorch, K = {K}": distance(theirs(K), h) for K, h in ours.items()}
        return found | {"deviations": distance(exact, ours[None])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="few filters, few steps, no file")
    small = parser.parse_args().small
    filters, T, rounds = (4, 10, 2) if small else (64, 50, 5)
    found = agree(4, 4)
    print(json.dumps({"distances": found}, indent=1), flush=True)
    if found and max(found.values()) > 1e-8:
        raise SystemExit("The hypergradients differ; nothing is timed.")
    lam, tasks = problem(filters)
    calls = {n: (lambda p=p: p(lam, tasks)) for n, p in programs(lam, tasks, T).items()}
    if found:
        run, _ = pytorch(lam, tasks, T)
        for K in (1, 10, None):
            calls[f"PyTorch, Reverse({f'K={K}' if K else ''})"] = lambda K=K: run(K)
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            jax.block_until_ready(call())
            least[name] = min(least[name], time.perf_counter() - begin)
    out = {
        "filters": filters,
        "T": T,
        "tasks": 4,
        "seconds": least,
        "x forward": {name: t / least["forward"] for name, t in least.items()},
        "PyTorch / ours": {
            name: least[f"PyTorch, {name}"] / least[name]
            for name in RULES
            if f"PyTorch, {name}" in least
        },
        "distances": found,
    }
    print(json.dumps(out, indent=1))
    if not small:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        OUT.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

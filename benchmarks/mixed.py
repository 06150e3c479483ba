"""A step through a transformer: bilevax by reverse and by mixed mode, and plain JAX by hand.

Layers are scanned, with `jax.checkpoint` around each; Adam inside, the last two of three steps are
differentiated. Bytes are what XLA allocates for temporaries. Seconds are CPU seconds of one
thread, the least of several calls, in turns, in one process.

    python benchmarks/mixed.py [LAYERS ...]   # writes results/benchmarks/mixed.json, prints it
"""

import json
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from jax import lax

import bilevax as bx

LAYERS, WIDTH, HEADS, LENGTH, ROWS, SYMBOLS = (3, 6, 12, 24), 128, 4, 128, 8, 64
T, K, REPEATS = 3, 2, 2
OPT = optax.adam(1e-3, eps_root=1e-8)
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "mixed.json"


def init(layers, width=WIDTH, key=None):
    keys = iter(jax.random.split(jax.random.key(0) if key is None else key, 6))
    draw = lambda *shape: jax.random.normal(next(keys), shape) * shape[-2] ** -0.5
    blocks = {
        "qkv": draw(layers, width, 3 * width), "out": draw(layers, width, width),
        "up": draw(layers, width, 4 * width), "down": draw(layers, 4 * width, width),
    }  # fmt: skip
    return {"blocks": blocks, "embed": draw(SYMBOLS, width), "read": draw(width, SYMBOLS)}


def norm(x):
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)


def block(x, p):
    n, length, width = x.shape
    q, k, v = jnp.moveaxis((norm(x) @ p["qkv"]).reshape(n, length, 3, HEADS, -1), 2, 0)
    scores = jnp.einsum("nihd,njhd->nhij", q, k) * (width // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    seen = jnp.einsum("nhij,njhd->nihd", jax.nn.softmax(scores), v).reshape(n, length, width)
    x = x + seen @ p["out"]
    return x + jax.nn.gelu(norm(x) @ p["up"]) @ p["down"]


def losses(w, tokens):
    """Of each row, in predicting its next symbols."""
    layer = jax.checkpoint(lambda x, p: (block(x, p), None))
    x, _ = lax.scan(layer, w["embed"][tokens[:, :-1]], w["blocks"])
    logits = norm(x) @ w["read"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean(-1)


def g(w, lam, S):
    return jnp.mean(jax.nn.sigmoid(lam) * losses(w, S["train"]))


def f(w, lam, S):
    return jnp.mean(losses(w, S["valid"]))


def ours(w, symmetric):
    xi = bx.Descent(g, bx.constant(w), OPT, symmetric=symmetric)
    hg = bx.hypergradient(f, xi, bx.Reverse(K=K), T=T)
    return lambda lam, S: hg(lam, S).h


def plain(w, pull):
    """Truncated reverse mode with one step linearised at a time, as a careful user writes it."""

    def step(s, lam, S):
        updates, opt = OPT.update(jax.grad(g)(s[0], lam, S), s[1], s[0])
        return optax.apply_updates(s[0], updates), opt

    def run(lam, S):
        s = lax.scan(lambda s, _: (step(s, lam, S), None), (w, OPT.init(w)), None, T - K)[0]
        s, kept = lax.scan(lambda s, _: (step(s, lam, S), s), s, None, K)
        back = lambda carry, s: (pull(step, s, lam, S, *carry), None)
        w_bar, h = jax.grad(f, (0, 1))(s[0], lam, S)
        m = s[1][0]
        zeros = jax.tree.map(jnp.zeros_like, (m.mu, m.nu))
        return lax.scan(back, ((w_bar, *zeros), h), kept, reverse=True)[0][1]

    return run


def split(s):
    """The floating part of Adam's state, and how to put it back."""
    w, (m, *rest) = s
    return (w, m.mu, m.nu), lambda x: (x[0], (m._replace(mu=x[1], nu=x[2]), *rest))


def reverse(step, s, lam, S, alpha, h):
    x, put = split(s)
    alpha, more = jax.vjp(lambda x, lam: split(step(put(x), lam, S))[0], x, lam)[1](alpha)
    return alpha, h + more


def mixed(step, s, lam, S, alpha, h):
    del step
    x, put = split(s)

    def update(x, gradient):
        w, opt = put(x)
        updates, opt = OPT.update(gradient, opt, w)
        return split((optax.apply_updates(w, updates), opt))[0]

    x_bar, v = jax.vjp(update, x, jax.grad(g)(x[0], lam, S))[1](alpha)
    joint = lambda w: jax.grad(g, (0, 1))(w, lam, S)
    w_bar, more = jax.jvp(joint, (x[0],), (v,))[1]
    return (jax.tree.map(jnp.add, x_bar[0], w_bar), *x_bar[1:]), h + more


WAYS = {
    "bilevax": lambda w: ours(w, symmetric=False),
    "bilevax, symmetric=True": lambda w: ours(w, symmetric=True),
    "plain JAX, reverse over reverse": lambda w: plain(w, reverse),
    "plain JAX, mixed by hand": lambda w: plain(w, mixed),
}


def compiled(build, w, lam, S):
    start = time.process_time()
    program = jax.jit(build(w)).lower(lam, S).compile()
    seconds = time.process_time() - start
    return program, {"MB": program.memory_analysis().temp_size_in_bytes / 1e6, "compile": seconds}


def timed(program, lam, S):
    start = time.process_time()
    h = jax.block_until_ready(program(lam, S))
    return h, time.process_time() - start


def measured(layers):
    keys = jax.random.split(jax.random.key(1), 2)
    tokens = [jax.random.randint(k, (ROWS, LENGTH + 1), 0, SYMBOLS) for k in keys]
    S, lam, w = dict(zip(("train", "valid"), tokens, strict=True)), jnp.zeros(ROWS), init(layers)
    found = {way: compiled(build, w, lam, S) for way, build in WAYS.items()}
    seconds = {way: [] for way in WAYS}
    answers = {}
    for _ in range(REPEATS):
        for way, (program, _) in found.items():
            answers[way], spent = timed(program, lam, S)
            seconds[way].append(spent)
    want = answers["plain JAX, reverse over reverse"]
    error = lambda h: float(jnp.linalg.norm(h - want) / jnp.linalg.norm(want))
    for way, (_, row) in found.items():
        least = {"cpu_seconds": min(seconds[way]), "error": error(answers[way])}
        yield {"layers": layers, "way": way} | row | least


def table(rows):
    """For the page: megabytes and seconds, by layers."""
    layers = sorted({row["layers"] for row in rows})
    lines = [
        "| | " + " | ".join(f"{n} layers" for n in layers) + " |",
        "|---|" + "--:|" * len(layers),
    ]
    cell = lambda row: f"{row['MB']:.0f} MB, {row['cpu_seconds']:.2f} s"
    for way in WAYS:
        cells = [cell(r) for n in layers for r in rows if (r["layers"], r["way"]) == (n, way)]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(numbers):
    """Each number of layers that is given replaces its rows in the record."""
    for layers in numbers:
        found = list(measured(layers))
        print(*found, sep="\n", flush=True)
        old = json.loads(OUT.read_text())["rows"] if OUT.exists() else []
        rows = [row for row in old if row["layers"] != layers] + found
        rows.sort(key=lambda row: row["layers"])
        OUT.write_text(json.dumps({"jax": jax.__version__, "rows": rows}, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # read later
    main([int(n) for n in sys.argv[1:]] or LAYERS)

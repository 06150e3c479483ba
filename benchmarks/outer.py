"""What the outer loop costs: `bx.minimize` against bare loops, and over batch and devices.

    python benchmarks/outer.py              # everything, about five minutes on two cores
    python benchmarks/outer.py --measure 4  # (used by the above) one record with four devices

Overheads are ratios within one process, the minimum of several; compile time is apart. Devices
are forced on one host: they share its cores, so their times show overhead and not speed. Bytes
and operations of a device are those of the compiled program, and exact.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
OUT = ROOT / "results" / "outer"
BATCHES, DEVICES, BATCH = (1, 2, 4, 8, 16, 32), (1, 2, 4, 8), 16


def bare_loop(f, xi, rule, optimizer, T):
    """A jitted hyper-iteration, as people write it."""
    import jax
    import optax

    import bilevax as bx

    hg = bx.hypergradient(f, xi, rule, T=T)

    @jax.jit
    def step(lam, state, S):
        out = hg(lam, S)
        updates, state = optimizer.update(out.h, state, lam)
        return optax.apply_updates(lam, updates), state, out.value

    return step


def toy() -> dict:
    """Hyper-iterations a second on the paper's toy problem, against one scan over all of them."""
    import jax
    import optax

    import bilevax as bx
    from bilevax import problems

    p, n, optimizer = problems.toy(), 20_000, optax.sgd(1e-3)
    rule = bx.Reverse(K=1)
    step = bare_loop(p.f, p.xi, rule, optimizer, 100)

    @jax.jit
    def scanned(lam):
        body = lambda c, _: ((out := step(*c, p.S))[:2], out[2])
        return jax.lax.scan(body, (lam, optimizer.init(lam)), None, length=n)

    ours = lambda: bx.minimize(p.f, p.xi, rule, p.lam, T=100, steps=n, optimizer=optimizer, S=p.S)
    a, b = best(ours), best(lambda: jax.block_until_ready(scanned(p.lam)))
    return {"name": "toy", "per_second": n / a, "against_scan": a / b}


def cleaning_problem():
    """f, xi, lam, S in the shape of the paper's hypercleaning, on random data."""
    import jax
    import jax.numpy as jnp
    import optax

    import bilevax as bx

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


def hypercleaning() -> dict:
    """Seconds a hyper-iteration on the shape of the paper's hypercleaning."""
    import optax

    import bilevax as bx

    f, xi, lam, S = cleaning_problem()
    optimizer, n, T = optax.adam(0.1), 6, 100
    step = bare_loop(f, xi, bx.Reverse(K=5), optimizer, T)

    def by_hand():
        here, state = lam, optimizer.init(lam)
        for _ in range(n):
            here, state, value = step(here, state, S)
            float(value)

    ours = lambda: bx.minimize(f, xi, bx.Reverse(K=5), lam, T=T, steps=n, optimizer=optimizer, S=S)
    ratios = []
    best(by_hand, 1), best(ours, 1)  # compile
    for _ in range(5):
        ratios.append((best(ours, 1, False), best(by_hand, 1, False)))
    a, b = min(r[0] for r in ratios), min(r[1] for r in ratios)
    return {"name": "hypercleaning", "seconds": a / n, "against_bare_loop": a / b}


def best(run, times: int = 3, warm: bool = True) -> float:
    if warm:
        run()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def scale(devices: int, batch: int, at_once: int | None) -> dict:
    """One hyper-iteration of an MLP with 50 inner steps: seconds; bytes and flops of a device."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax

    import bilevax as bx
    from bilevax._outer import run

    caught = []
    hyper_iterations = run.hyper_iterations

    def draw(key):
        x = jax.random.normal(key, (2, 128, 64))
        return x, jnp.sin(jnp.sum(x[..., :3], axis=-1))

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w["a"]) @ w["b"] - y) ** 2)

    g = lambda w, lam, S: (
        loss(w, S[0][0], S[1][0]) + sum(jnp.sum(jnp.exp(lam[k]) * w[k] ** 2) for k in w)
    )
    f = lambda w, lam, S: loss(w, S[0][1], S[1][1])
    w = {"a": 0.1 * jax.random.normal(jax.random.key(1), (64, 256)), "b": jnp.zeros(256)}
    xi = bx.Descent(g, bx.constant(w), optax.sgd(0.05))
    mesh = jax.make_mesh((devices,), ("device",)) if devices > 1 else None
    times = []

    def spy(*args):
        if not caught:
            caught.append(eqx.filter_jit(hyper_iterations.__wrapped__).lower(*args).compile())
        return hyper_iterations(*args)

    run.hyper_iterations = spy
    bx.minimize(
        f,
        xi,
        bx.Reverse(K=10),
        jax.tree.map(lambda a: jnp.full_like(a, -9.0), w),
        T=50,
        steps=int(max(12, 240 // batch)),
        optimizer=optax.adam(0.01),
        contexts=draw,
        key=jax.random.key(2),
        batch=batch,
        at_once=at_once,
        mesh=mesh,
        callback=lambda p: times.append((p.step, time.perf_counter())),
    )
    paces = [(t - s) / (b - a) for (a, s), (b, t) in itertools.pairwise(times)]
    compiled = caught[0].compiled
    return {
        "devices": devices,
        "batch": batch,
        "at_once": at_once,
        "seconds": min(paces),
        "bytes": compiled.memory_analysis().temp_size_in_bytes,
        "flops": compiled.cost_analysis().get("flops"),
    }


def measure(devices: int) -> None:
    """Records of this process, which has so many devices, as lines of JSON."""
    batches = BATCHES if devices == 1 else (BATCH,)
    for batch in batches:
        for at_once in (None, 1) if devices == 1 and batch > 1 else (None,):
            print(json.dumps(scale(devices, batch, at_once)), flush=True)


def figure(records: list[dict]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import matplotlib.ticker

    one = [r for r in records if r["devices"] == 1]
    together = [r for r in one if r["at_once"] is None]
    apart = [r for r in one if r["at_once"] == 1 or r["batch"] == 1]
    spread = [r for r in records if r["batch"] == BATCH and r["at_once"] is None]
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
    for rows, label, style in ((together, "together (vmap)", "o-"), (apart, "one by one", "s--")):
        x = [r["batch"] for r in rows]
        axes[0].loglog(x, [1e3 * r["seconds"] for r in rows], style, label=label)
        axes[1].loglog(x, [r["bytes"] / 1e6 for r in rows], style, label=label)
    axes[0].set(
        title="one device: time", xlabel="contexts in a batch", ylabel="ms / hyper-iteration"
    )
    axes[1].set(title="one device: memory", xlabel="contexts in a batch", ylabel="MB (exact)")
    x = [r["devices"] for r in spread]
    for name, style, label in (
        ("bytes", "o-", "bytes of a device (exact)"),
        ("seconds", "s--", "time, all devices on 2 cores"),
    ):
        axes[2].loglog(x, [r[name] / spread[0][name] for r in spread], style, label=label)
    axes[2].loglog(x, [1 / d for d in x], ":", color="grey", label="1 / devices")
    axes[2].set(title=f"batch of {BATCH} over devices", xlabel="devices", ylabel="relative to one")
    for axis, ticks in zip(axes, (BATCHES, BATCHES, DEVICES), strict=True):
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
        axis.minorticks_off()
        axis.legend(fontsize=8)
    figure.savefig(ROOT / "docs" / "figures" / "scaling.png", dpi=150)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    overheads = [toy(), hypercleaning()]
    for record in overheads:
        print(record, flush=True)
    (OUT / "overhead.json").write_text(json.dumps(overheads, indent=1) + "\n")
    records = []
    for devices in DEVICES:
        flag = f"--xla_force_host_platform_device_count={devices}"
        command = [sys.executable, __file__, "--measure", str(devices)]
        done = subprocess.run(
            command,
            env=os.environ | {"XLA_FLAGS": flag},
            text=True,
            stdout=subprocess.PIPE,
            check=True,
        )
        records += [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        print(*records[-2:], sep="\n", flush=True)
    (OUT / "scaling.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    figure(records)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(int(sys.argv[2]))
    else:
        main()

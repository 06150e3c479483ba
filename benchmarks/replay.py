"""`replay` on runs of growing length: python benchmarks/replay.py [T ...] [compare] [work].

An MLP of a million parameters, AdamW, batches of eight rows. Each length is a process of its own:
its largest memory, and the seconds of all cores for a step. One more process compares `replay`
with the forward pass and with one compiled program, `Reverse(segment=...)`, for eight rows and for
64, and one asks XLA what a step costs. Writes results/benchmarks/replay.json.
A length that was interrupted goes on from its tape; lengths that are not named keep their rows.
"""

import json
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import time

RECORD = pathlib.Path(__file__).parents[1] / "results/benchmarks/replay.json"
SEGMENT, HOST = 100, 1e8
WIDTH, IN, OUT, ROWS = 960, 64, 10, 8
BATCH_SIZES = [8, 64]
NAMES = {
    "forward": "the forward pass",
    "one program": "one program, `Reverse(segment=32)`",
    "replay": "`replay(segment=32)`",
    "there": "a step forward",
    "again": "the same step again, with its state kept",
    "back": "a step back",
}
LENGTHS = [1000, 10_000, 100_000]


class Batches:
    """Rows of a fixed pool, picked by t, in host memory."""

    def __init__(self):
        import numpy as np

        draw = np.random.default_rng(0)
        self.x = draw.normal(size=(4096, IN)).astype("float32")
        self.y = draw.integers(OUT, size=4096).astype("int32")

    def __getitem__(self, t):
        rows = (t * ROWS) % 4096
        return self.x[rows : rows + ROWS], self.y[rows : rows + ROWS]


def problem():
    """(f, xi, lam, S): weight decay and a learning rate for each tenth of 1,000 steps."""
    import jax
    import jax.numpy as jnp
    import optax

    import bilevax as bx

    sizes = [IN, WIDTH, WIDTH, OUT]
    keys = jax.random.split(jax.random.key(0), 3)
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
    w = [jax.random.normal(k, (a, b)) * jnp.sqrt(1.0 / a) for k, a, b in pairs]

    def loss(w, batch):
        x, y = batch
        for a in w[:-1]:
            x = jnp.tanh(x @ a)
        return optax.softmax_cross_entropy_with_integer_labels(x @ w[-1], y).mean()

    def opt(lam):
        rate = lambda count: jnp.exp(lam["rate"][jnp.minimum(count // 100, 9)])
        decay = jnp.exp(lam["decay"])
        return optax.adamw(rate, eps_root=1e-8, weight_decay=decay)

    xi = bx.Descent(lambda w, lam, batch: loss(w, batch), bx.constant(w), opt)
    lam = {"rate": jnp.full(10, -9.0), "decay": jnp.asarray(-4.0)}
    x, y = Batches().x[-64:], Batches().y[-64:]
    return lambda w, lam, S: loss(w, S), xi, lam, (jnp.asarray(x), jnp.asarray(y))


def length(T):
    """One run of T steps with a tape on disk: CPU seconds for a step, and the largest memory."""
    import jax

    import bilevax as bx

    f, xi, lam, S = problem()
    folder = pathlib.Path(tempfile.gettempdir()) / f"bilevax-replay-{T}"
    run = lambda T, store: bx.replay(f, xi, T=T, batches=Batches(), segment=SEGMENT, store=store)(
        lam, S
    )
    run(SEGMENT, bx.Store(host=HOST))  # compiles
    resumed = folder.exists() and any(folder.glob("bilevax-*"))
    began = time.process_time()
    jax.block_until_ready(run(T, bx.Store(folder, host=HOST)))
    seconds = (time.process_time() - began) / T
    return {
        "T": T,
        "cpu_seconds_per_step": None if resumed else seconds,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def compare(T=1000, c=32, times=2):
    """CPU seconds for T steps: forward, one compiled program, replay; the least of several."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import bilevax as bx

    f, xi, lam, S = problem()
    source = Batches()
    stacked = jax.tree.map(lambda *a: jnp.asarray(np.stack(a)), *(source[t] for t in range(T)))
    sample = lambda S, t: jax.tree.map(lambda a: a[t], S["batches"])
    there = bx.Descent(xi.g, xi.init, xi.opt, sample)
    of_S = lambda w, lam, S: f(w, lam, S["S"])
    whole = {"batches": stacked, "S": S}
    one = bx.hypergradient(of_S, there, bx.Reverse(segment=c), T=T)
    memory = bx.replay(f, xi, T=T, batches=source, segment=c)
    ways = {
        "forward": lambda: bx.solve(there, lam, whole, T=T),
        "one program": lambda: one(lam, whole),
        "replay": lambda: memory(lam, S),
    }
    least = dict.fromkeys(ways, float("inf"))
    for i in range(times + 1):
        for name, way in ways.items():
            began = time.process_time()
            jax.block_until_ready(way())
            if i:  # the first call compiles
                least[name] = min(least[name], time.process_time() - began)
    return {"T": T, "segment": c, "cpu_seconds": least}


def work():
    """What XLA says of one step: megabytes that it reads and writes, and millions of flops.

    There, there into the room for a segment's states, and back.
    """
    import jax
    import jax.numpy as jnp

    from bilevax import _tree as tree
    from bilevax._loop import Back
    from bilevax._replay import programs
    from bilevax._replay.fed import Fed, Seen

    _, xi, lam, S = problem()
    xi, one, place = Fed(xi), jnp.asarray(1, jnp.int32), programs.Places()
    X = Seen(S, 0 * one, jax.tree.map(lambda a: jnp.stack([a] * 2), Batches()[0]))
    s = xi.start(lam, X)
    at, room = Back(tree.inexact(s), lam, one), programs.make_room(s, 2, place)
    steps = {
        "there": (lambda s: programs.ahead(xi, lam, X, s, 1, place), s),
        "again": (lambda s, room: programs.again(xi, lam, X, s, 2, place, room), s, room),
        "back": (lambda room, at: programs.behind(xi, lam, X, room, at, 1, place), room, at),
    }
    given = {"again": 1}
    for name, (step, *args) in steps.items():
        program = jax.jit(step, donate_argnums=given.get(name, ())).lower(*args).compile()
        cost = program.cost_analysis()
        yield name, {"MB": cost["bytes accessed"] / 1e6, "Mflop": cost["flops"] / 1e6}


def cost_table(record):
    """For the page: CPU seconds, and forward passes; below, what XLA says of a step."""
    compared = {row["rows"]: row["cpu_seconds"] for row in record["compare"]}
    lines = ["| | " + " | ".join(f"{rows} rows" for rows in compared) + " |"]
    lines.append("|---|" + "--:|" * len(compared))
    for way in ("forward", "one program", "replay"):
        cells = [f"{c[way]:.1f} s ({c[way] / c['forward']:.1f})" for c in compared.values()]
        lines.append(f"| {NAMES[way]} | " + " | ".join(cells) + " |")
    for part in ("there", "again", "back"):
        cells = [f"{r[part]['MB']:.0f} MB, {r[part]['Mflop']:.0f} Mflop" for r in record["work"]]
        lines.append(f"| {NAMES[part]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def length_table(record):
    """For the page: CPU milliseconds for a step, and the process's largest memory."""
    lines = ["| T | CPU ms for a step | memory |", "|--:|--:|--:|"]
    for r in record["lengths"]:
        ms = 1e3 * r["cpu_seconds_per_step"]
        lines.append(f"| {r['T']:,} | {ms:.1f} | {r['peak_bytes'] / 1e6:.0f} MB |")
    return "\n".join(lines)


def one(name, rows=ROWS):
    """A row of the record, by a process of its own."""
    global ROWS
    ROWS = int(rows)
    if name == "work":
        return {"rows": ROWS} | dict(work())
    return {"rows": ROWS} | compare() if name == "compare" else length(int(name))


def child(*args):
    command = [sys.executable, __file__, "--one", *map(str, args)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])


def measure(record, name):
    """Put into the record what was asked for, in place of what was there."""
    if name in ("compare", "work"):
        for rows in BATCH_SIZES:
            others = [r for r in record.get(name, []) if r["rows"] != rows]
            record[name] = sorted([*others, child(name, rows)], key=lambda r: r["rows"])
    else:
        others = [r for r in record.get("lengths", []) if r["T"] != int(name)]
        record["lengths"] = sorted([*others, child(name)], key=lambda r: r["T"])
    record["setting"] = {"parameters": IN * WIDTH + WIDTH**2 + WIDTH * OUT, "rows": ROWS}
    record["setting"] |= {"segment": SEGMENT, "host": HOST}
    record["machine"] = f"{platform.machine()}, shared"
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def main(names):
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in names:
        measure(record, name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(*sys.argv[2:])))
    else:
        main(sys.argv[1:] or ["work", "compare", *LENGTHS])

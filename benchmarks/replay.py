"""`replay` on runs of growing length: python benchmarks/replay.py [T ...] [compare] [work].

An MLP of a million parameters, AdamW, batches of eight rows. Each length is a process of its own:
its largest memory, and the CPU seconds of one thread for a step. `compare` sets `replay` beside the
forward pass and one compiled program, `Reverse(segment=...)`. `work` asks XLA what a step costs,
and times it, for several sizes. Writes results/benchmarks/replay.json. A length that was
interrupted goes on from its tape; what is not named keeps its rows.
"""

import json
import os
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
SIZES = [(8, 256), (8, 960), (8, 1920), (64, 960), (512, 960)]
"""Rows and width of `work`."""
NAMES = {
    "forward": "the forward pass",
    "one program": "one program, `Reverse(segment=32)`",
    "replay": "`replay(segment=32)`",
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


def parts(n):
    """n steps there, there into a room for their states, and back; and what they are given."""
    import jax
    import jax.numpy as jnp

    from bilevax import _tree as tree
    from bilevax._loop import Back
    from bilevax._replay import programs
    from bilevax._replay.fed import Fed, Seen

    _, xi, lam, S = problem()
    xi, one, place, source = Fed(xi), jnp.asarray(1, jnp.int32), programs.Shardings(), Batches()
    X = Seen(S, 0 * one, jax.tree.map(lambda *a: jnp.stack(a), *(source[t] for t in range(n))))
    s = xi.start(lam, X)
    given = s, Back(tree.inexact(s), lam, n * one), programs.make_room(s, n, place)
    return given, {
        "there": lambda s, at, room: programs.ahead(xi, lam, X, s, n, place),
        "again": lambda s, at, room: programs.again(xi, lam, X, s, n, place, room),
        "back": lambda s, at, room: programs.behind(xi, lam, X, room, at, n, place),
    }


def work(n=16):
    """What XLA says of a step: megabytes that it reads and writes, millions of flops; CPU ms."""
    import jax

    (s, at, whole), several = parts(n)
    for name, part in several.items():
        gives = name == "again"
        given, one_step = parts(2 if gives else 1)  # of a loop XLA counts one round
        program = jax.jit(one_step[name], donate_argnums=2 if gives else ()).lower(*given).compile()
        cost, least = program.cost_analysis(), float("inf")
        for i in range(5):
            began = time.process_time()
            out = jax.block_until_ready(part(s, at, whole))
            whole = out if gives else whole
            least = min(least, time.process_time() - began) if i else least  # the first compiles
        found = {"MB": cost["bytes accessed"] / 1e6, "Mflop": cost["flops"] / 1e6}
        yield name, found | {"ms": 1e3 * least / n}


def cost_table(record):
    """For the page: CPU seconds, and forward passes."""
    compared = {row["rows"]: row["cpu_seconds"] for row in record["compare"]}
    lines = ["| | " + " | ".join(f"{rows} rows" for rows in compared) + " |"]
    lines.append("|---|" + "--:|" * len(compared))
    for way in ("forward", "one program", "replay"):
        cells = [f"{c[way]:.1f} s ({c[way] / c['forward']:.1f})" for c in compared.values()]
        lines.append(f"| {NAMES[way]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def passes(row, what):
    """Forward passes that a step takes: there, there again, and back."""
    return sum(row[part][what] for part in ("there", "again", "back")) / row["there"][what]


def work_table(record):
    """For the page: forward passes by three counts, for each size."""
    lines = ["| parameters | rows | flops | memory traffic | CPU time |", "|--:|--:|--:|--:|--:|"]
    for r in record["work"]:
        cells = " | ".join(f"{passes(r, what):.1f}" for what in ("Mflop", "MB", "ms"))
        lines.append(f"| {r['parameters']:,} | {r['rows']} | {cells} |")
    return "\n".join(lines)


def length_table(record):
    """For the page: CPU milliseconds for a step, and the process's largest memory."""
    lines = ["| T | CPU ms for a step | memory |", "|--:|--:|--:|"]
    for r in record["lengths"]:
        ms = 1e3 * r["cpu_seconds_per_step"]
        lines.append(f"| {r['T']:,} | {ms:.1f} | {r['peak_bytes'] / 1e6:.0f} MB |")
    return "\n".join(lines)


def parameters():
    return IN * WIDTH + WIDTH**2 + WIDTH * OUT


def one(name, rows=ROWS, width=WIDTH):
    """A row of the record, by a process of its own."""
    global ROWS, WIDTH
    ROWS, WIDTH = int(rows), int(width)
    if name == "work":
        return {"rows": ROWS, "width": WIDTH, "parameters": parameters()} | dict(work())
    return {"rows": ROWS} | compare() if name == "compare" else length(int(name))


def child(*args):
    command = [sys.executable, __file__, "--one", *map(str, args)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])


def measure(record, name):
    """Put into the record what was asked for, in place of what was there."""
    if name == "work":
        record[name] = [child(name, *size) for size in SIZES]
    elif name == "compare":
        record[name] = [child(name, rows) for rows in BATCH_SIZES]
    else:
        others = [r for r in record.get("lengths", []) if r["T"] != int(name)]
        record["lengths"] = sorted([*others, child(name)], key=lambda r: r["T"])
    record["setting"] = {"parameters": parameters(), "rows": ROWS}
    record["setting"] |= {"segment": SEGMENT, "host": HOST}
    record["machine"] = f"{platform.machine()}, shared"
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def main(names):
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for name in names:
        measure(record, name)


if __name__ == "__main__":
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(*sys.argv[2:])))
    else:
        main(sys.argv[1:] or ["work", "compare", *LENGTHS])

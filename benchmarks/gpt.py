"""The GPT of examples/gpt: what 1,000 steps of training cost, and a metagradient through them.

    python benchmarks/gpt.py   # writes results/benchmarks/gpt.json

Each is a process of its own, and is run twice: the first time compiles. Seconds of the second, of
the clock and of all cores; the largest memory of the process.
"""

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results" / "benchmarks" / "gpt.json"
RATE = 2e-3


def measured(way):
    import jax
    from examples.gpt.problem import Setting, problem
    from examples.gpt.run import peak

    p = problem(Setting())
    run, hg = p.train(), p.metagradient()
    call = {"forward": run, "metagradient": lambda lam: hg(lam, p.valid)}[way]
    short = p._replace(setting=p.setting._replace(T=2 * p.setting.segment))
    warm = {"forward": call, "metagradient": lambda lam: short.metagradient()(lam, p.valid)}[way]
    first = time.perf_counter()
    jax.block_until_ready(warm(p.start(RATE)))
    began, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(call(p.start(RATE)))
    ended = time.perf_counter(), time.process_time()
    found = {"way": way, "seconds": ended[0] - began, "cpu_seconds": ended[1] - cpu}
    return found | {"first_seconds": began - first, "peak_bytes": peak()}


def main():
    rows = []
    for way in ("forward", "metagradient"):
        command = [sys.executable, "-m", "benchmarks.gpt", way]
        out = subprocess.check_output(command, text=True, cwd=ROOT)
        rows.append(json.loads(out.splitlines()[-1]))
        print(rows[-1], flush=True)
    OUT.write_text(json.dumps({"machine": platform.machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main() if len(sys.argv) == 1 else print(json.dumps(measured(sys.argv[1])))

"""What `import bilevax` takes, against its dependencies: processor time, the least of several.

python benchmarks/import_time.py [--rounds 5]
"""

import argparse
import subprocess
import sys

CODE = (
    "from time import process_time as now; a = now(); import jax, equinox, optax, lineax;"
    "b = now(); import bilevax; print((now() - b) / (b - a))"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    run = [sys.executable, "-c", CODE]
    rounds = range(parser.parse_args().rounds)
    shares = [float(subprocess.run(run, capture_output=True, check=True).stdout) for _ in rounds]
    print(f"import bilevax / its dependencies {min(shares):5.2f}   (goal: at most 0.15)")


if __name__ == "__main__":
    main()

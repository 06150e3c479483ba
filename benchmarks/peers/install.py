"""Installs the peers, one by one: python -m benchmarks.peers.install, in an environment of theirs.

A peer that cannot be installed does not keep the others from it. Lines of requirements.txt that
end in `# alone` are installed without their dependencies, which would replace what JAX needs.
"""

import subprocess
import sys
from pathlib import Path

LIST = Path(__file__).parent / "requirements.txt"


def main() -> None:
    for line in LIST.read_text().splitlines():
        wanted, _, remark = line.partition("#")
        if not wanted.strip():
            continue
        alone = ["--no-deps"] if remark.strip() == "alone" else []
        command = [sys.executable, "-m", "pip", "install", "--quiet", *alone, wanted.strip()]
        if subprocess.run(command).returncode:
            print(f"{wanted.strip()} could not be installed; it is shown as such.", flush=True)


if __name__ == "__main__":
    main()

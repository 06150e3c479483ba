"""A call survives kill -9 on either way, to the same bits: python test_kill.py KILLS for more."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import pytest

PROGRAM = pathlib.Path(__file__).parents[1] / "programs" / "replayed.py"
pytestmark = pytest.mark.slow


def start(folder, name):
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}  # one compilation for all
    cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command = [sys.executable, str(PROGRAM), str(folder / name)]
    return subprocess.Popen(command, env=os.environ | cache, **pipes)


def end(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def numbers(directory, kind):
    return [int(p.name.split("-")[2].split(".")[0]) for p in directory.glob(f"bilevax-{kind}-*")]


def place(directory):
    """How far a call has come: (on the way back?, boundaries passed)."""
    back, there = numbers(directory, "back"), numbers(directory, "there")
    return (1, -min(back)) if back else (0, max(there, default=0))


def live(folder, back, wait):
    """Start, wait until it has come further, to the way back if asked, and kill it in a while."""
    directory = folder / "tape"
    before, process = place(directory), start(folder, "tape")
    while process.poll() is None and not (
        place(directory) > before and place(directory)[0] >= back
    ):
        time.sleep(0.002)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert place(directory) > before, "something was lost"
    return place(directory)


def kill(folder, kills, rng):
    """Half of the kills on the way there, half on the way back."""
    (folder / "tape").mkdir()
    places = [live(folder, i >= kills // 2, rng.uniform(0, 0.03)) for i in range(kills)]
    assert sum(back for back, _ in places) == kills - kills // 2
    assert end(start(folder, "tape")) == end(start(folder, "undisturbed"))
    assert not list((folder / "tape").glob("bilevax-*")), "the tape is removed"
    return places


def test_killed_at_random_moments(tmp_path):
    kill(tmp_path, 4, random.Random(0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(kill(pathlib.Path(folder), int(sys.argv[1]), random.Random(1)))

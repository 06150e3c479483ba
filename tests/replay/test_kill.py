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
    """How far a call has come: boundaries there, and those on the way back below zero."""
    back = numbers(directory, "back")
    return -min(back) if back else max(numbers(directory, "there"), default=0) - 1000


def live(folder, wait):
    """Start, wait until it has come further, and so long more, and kill it."""
    directory = folder / "tape"
    before, process = place(directory), start(folder, "tape")
    while process.poll() is None and place(directory) == before:
        time.sleep(0.002)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL, before, place(directory)


def kill(folder, kills, rng):
    """Half of the kills on the way there, half on the way back; new calls as they end."""
    want, counts = end(start(folder, "undisturbed")), {True: 0, False: 0}
    (folder / "tape").mkdir()
    while sum(counts.values()) < kills:
        killed, before, after = live(folder, rng.uniform(0, 0.12))
        assert not killed or after >= before or after == -1000, "something was lost"
        if not killed:
            continue
        back = after > -900
        counts[back] += 1
        if back and counts[False] < kills // 2 or counts[not back] < counts[back] - 1:
            assert end(start(folder, "tape")) == want  # and a new call begins
    assert end(start(folder, "tape")) == want
    assert not list((folder / "tape").glob("bilevax-*")), "the tape is removed"
    return counts


def test_killed_at_random_moments(tmp_path):
    kill(tmp_path, 4, random.Random(0))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(kill(pathlib.Path(folder), int(sys.argv[1]), random.Random(1)))

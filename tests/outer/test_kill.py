"""A run survives kill -9 and signals, to the same bits."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest
from running import files

PROGRAM = pathlib.Path(__file__).parents[1] / "programs" / "killed.py"
EVERY = 20  # hyper-iterations between two checkpoints of the program
KILLS = 20
pytestmark = pytest.mark.slow


class Lives:
    """Processes one after the other that go on with one run, and note how far they come."""

    def __init__(self, folder, *options):
        self.directory, self._log, self._options = folder / "run", folder / "log", options
        cache = {"JAX_COMPILATION_CACHE_DIR": str(folder / "cache")}  # one compilation for all
        cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        self._environment = os.environ | cache

    def start(self, steps, directory=None):
        command = [sys.executable, PROGRAM, directory or self.directory, steps, self._log]
        command.extend(self._options)
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return subprocess.Popen([*map(str, command)], env=self._environment, **pipes)

    def noted(self):
        return [int(x) for x in self._log.read_text().split()] if self._log.exists() else []

    def live(self, number, seconds):
        """Start, wait until it takes hyper-iterations, and so long more, and send a signal."""
        before = len(self.noted())
        process = self.start(100_000)
        while process.poll() is None and len(self.noted()) == before:
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        return process.returncode, err, self.noted()[before:]


def end(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("kills, options", [(KILLS, ()), (5, ("correct",))])
def test_killed_and_stopped_at_random_moments(kills, options, tmp_path):
    rng, lives = random.Random(0), Lives(tmp_path, *options)
    last = 0
    for _ in range(kills):
        code, _, steps = lives.live(signal.SIGKILL, rng.uniform(0, 0.6))
        assert code == -signal.SIGKILL
        assert steps[0] > last - EVERY, "more than one interval was lost"
        last = steps[-1]
    for number, expected in ((signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143)):
        code, err, steps = lives.live(number, 0.3)
        assert code == expected and "stopping after this hyper-iteration" in err
        assert f"bilevax-{steps[-1]}.npz" in files(lives.directory)  # nothing was lost
        saved = f"Hyper-iteration {steps[-1]} is saved in {lives.directory}"
        assert saved in err or number == signal.SIGTERM  # SystemExit has no traceback
    whole = lives.start(steps[-1] + 30, tmp_path / "undisturbed")
    assert end(lives.start(steps[-1] + 30)) == end(whole)

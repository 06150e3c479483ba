"""A model divided among four devices, of one process and of two: the same numbers to rounding."""

import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = pathlib.Path(__file__).parents[1] / "programs" / "sharded.py"
pytestmark = pytest.mark.slow


def start(*args):
    command = [sys.executable, str(PROGRAM), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("numbers")]
    return np.array(line.split()[1:], float)


def test_four_devices_and_two_processes(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    want = end(start(1, tmp_path / "one"))
    np.testing.assert_allclose(end(start(4, tmp_path / "four")), want, rtol=1e-10)
    for got in map(end, [start(2, tmp_path / "two", port, i) for i in range(2)]):
        np.testing.assert_allclose(got, want, rtol=1e-10)

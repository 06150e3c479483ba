"""One device, eight devices, two processes: the same lam to rounding."""

import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
from running import files

PROGRAM = pathlib.Path(__file__).parents[1] / "programs" / "devices.py"


def start(*args):
    command = [sys.executable, str(PROGRAM), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    lines = [line.split()[1:] for line in out.splitlines() if line.startswith("lam")]
    return [np.array(line, float) for line in lines]


@pytest.fixture(scope="module")
def alone():
    return end(start(1))


@pytest.mark.slow
def test_eight_devices(alone):
    for got, want in zip(end(start(8)), alone, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.slow
def test_two_processes_with_two_devices_each(alone, tmp_path):
    """On loopback; with a checkpoint that one process writes and both restore."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = [start(2, port, i, tmp_path) for i in range(2)]
    for lams in map(end, processes):
        for got, want in zip(lams, alone, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11)
    assert files(tmp_path) == ["bilevax-10.npz", "bilevax-15.npz", "bilevax-8.npz"]

"""One device, eight devices, two processes: the same lam to rounding."""

import numpy as np
import pytest
from processes import end, free_port, start
from running import files


@pytest.fixture(scope="module")
def alone():
    return end(start("devices.py", 1), "lam")


@pytest.mark.slow
def test_eight_devices(alone):
    for got, want in zip(end(start("devices.py", 8), "lam"), alone, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-11)


@pytest.mark.slow
def test_two_processes_with_two_devices_each(alone, tmp_path):
    """On loopback; with a checkpoint that one process writes and both restore."""
    port = free_port()
    processes = [start("devices.py", 2, port, i, tmp_path) for i in range(2)]
    for process in processes:
        for got, want in zip(end(process, "lam"), alone, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-11)
    assert files(tmp_path) == ["bilevax-10.npz", "bilevax-15.npz", "bilevax-8.npz"]

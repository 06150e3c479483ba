"""A model divided among four devices, of one process and of two: the same numbers to rounding."""

import numpy as np
import pytest
from processes import end, free_port, start

pytestmark = pytest.mark.slow


def test_four_devices_and_two_processes(tmp_path):
    def numbers(process):
        (row,) = end(process, "numbers")
        return row

    want = numbers(start("sharded.py", 1, tmp_path / "one"))
    four = start("sharded.py", 4, tmp_path / "four")
    np.testing.assert_allclose(numbers(four), want, rtol=1e-10)
    port = free_port()
    two = [start("sharded.py", 2, tmp_path / "two", port, i) for i in range(2)]
    for got in map(numbers, two):
        np.testing.assert_allclose(got, want, rtol=1e-10)

"""Programs of tests/programs, each in a process of its own, that print rows of numbers."""

import pathlib
import socket
import subprocess
import sys

import numpy as np

PROGRAMS = pathlib.Path(__file__).parent / "programs"


def start(program, *args):
    command = [sys.executable, str(PROGRAMS / program), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process, word):
    """The numbers of each line that begins with a word."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    lines = [line.split()[1:] for line in out.splitlines() if line.startswith(word)]
    return [np.array(line, float) for line in lines]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

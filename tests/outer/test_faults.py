"""Whatever ends a run, its result so far is there and saved, and the message is the real cause."""

import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import warnings

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optax
import pytest
from running import ADAM, RULE, P, equal, files, run, same, saved_run

import bilevax as bx
from bilevax import _files
from bilevax._outer.lock import locked


def contexts(bad=None):
    """P's context again and again; the one with the number `bad` carries a flag."""
    for i in itertools.count():
        yield P.S | {"fails": np.array(i == bad)}


def fail(x, S):
    return eqx.error_if(x, S["fails"], "this is the cause")


def failing_update():
    """An optimizer that fails in its fourth update."""
    update = lambda h, n, lam=None: (eqx.error_if(h, n == 3, "this is the cause"), n + 1)
    return optax.chain(ADAM, optax.GradientTransformation(lambda lam: jnp.zeros((), int), update))


AT = {
    "f": dict(f=lambda w, lam, S: P.f(fail(w, S), lam, S)),
    "g": dict(
        xi=bx.Descent(lambda w, lam, S: P.xi.g(fail(w, S), lam, S), P.xi.init, optax.sgd(0.01))
    ),
    "init": dict(xi=bx.Descent(P.xi.g, lambda lam, S: fail(P.xi.init(lam, S), S), optax.sgd(0.01))),
    "optimizer": dict(optimizer=failing_update()),
}


@pytest.mark.parametrize("where", AT)
def test_an_error_anywhere_in_the_device_loop(where, tmp_path):
    """At the first hyper-iteration, at the second, and in the middle of a call of many."""
    for bad in (3,) if where == "optimizer" else (0, 1, 45):
        given = AT[where] | {"S": None, "every": None}
        folder = tmp_path / str(bad)
        with pytest.raises(eqx.EquinoxRuntimeError, match="^this is the cause") as caught:
            saved_run(folder, 60, contexts=contexts(bad), **given)
        result = caught.value.result
        assert result.step == bad == len(result.history["value"])
        assert f"Hyper-iteration {bad} is saved in {folder}" in caught.value.__notes__[-1]
        assert files(folder) == [f"bilevax-{bad}.npz"]
        if bad:
            whole = saved_run(None, bad, contexts=contexts(), **given)
            assert same(result, whole)


def test_an_error_that_passes_is_raised_and_the_run_goes_on(tmp_path):
    """The same call again, with contexts that are in order."""
    given = AT["f"] | {"S": None}
    with pytest.raises(eqx.EquinoxRuntimeError):
        saved_run(tmp_path, 60, contexts=contexts(45), **given)
    got = saved_run(tmp_path, 60, contexts=contexts(), **given)
    assert same(got, saved_run(None, 60, contexts=contexts(), **given))


def test_a_solver_that_fails(tmp_path):
    """Only there, where lam has come too far for its number of steps."""
    rule = bx.Implicit(lx.CG(rtol=1e-9, atol=1e-9, max_steps=5))
    with pytest.raises(eqx.EquinoxRuntimeError, match="linear solver of .* did not") as caught:
        saved_run(tmp_path, 60, rule=rule, every=None)
    assert files(tmp_path) == [f"bilevax-{caught.value.result.step}.npz"]
    swept = saved_run(None, 60, rule=rule, throw=False)
    assert same(swept, caught.value.result) and "linear solver" in str(swept.error)


def test_a_warning_that_is_an_error(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", bx.ToleranceWarning)
        with pytest.raises(bx.ToleranceWarning, match="did not reach its tolerance") as caught:
            saved_run(tmp_path, 60, rule=bx.AdaptiveReverse(rtol=1e-9, max_K=3), every=None)
    assert files(tmp_path) == [f"bilevax-{caught.value.result.step}.npz"]


def at_nth_call(n, error, fun):
    """fun, which raises at its n-th call."""
    count = itertools.count()

    def failing(*args, **kwargs):
        if next(count) == n:
            raise error
        return fun(*args, **kwargs)

    return failing


SAVING = {
    "serialise": (np, "savez"),
    "open": (_files, "open"),
    "write": (os, "fsync"),
    "rename": (os, "replace"),
    "remove old": (pathlib.Path, "unlink"),
}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("point", SAVING)
def test_an_error_at_any_point_of_saving(point, error, tmp_path, monkeypatch):
    """A full disk is said, and the run goes on; a signal ends it, with the last good checkpoint."""
    owner, name = SAVING[point]
    fun = getattr(owner, name, open)
    with monkeypatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(owner, name, at_nth_call(1, error, fun), raising=False)
        if isinstance(error, OSError):
            stack.enter_context(pytest.warns(bx.CheckpointWarning, match="No space left"))
        else:
            stack.enter_context(pytest.raises(KeyboardInterrupt))
        saved_run(tmp_path, 16, keep=1)
    assert not list(tmp_path.glob(".*.new")) and list(tmp_path.glob("bilevax-*.npz"))
    assert same(saved_run(tmp_path, 20), saved_run(None, 20))


def test_a_full_disk_that_is_to_end_the_run(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left")

    monkeypatch.setattr(np, "savez", full)
    with warnings.catch_warnings():
        warnings.simplefilter("error", bx.CheckpointWarning)
        with pytest.raises(bx.CheckpointWarning, match="No space left") as caught:
            saved_run(tmp_path, 16)
    assert caught.value.result.step == 4


@pytest.fixture
def small_disk(tmp_path):
    if subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], stderr=subprocess.DEVNULL
    ):
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path
    subprocess.check_call(["umount", tmp_path])


def test_a_disk_that_is_full_for_a_moment(small_disk):
    ballast, counted = small_disk / "ballast", []

    def evaluate(lam):
        counted.append(len(list(small_disk.glob("bilevax-*"))))
        if len(counted) == 2:
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while file.write(bytes(512)):
                    pass
        if len(counted) == 5:
            ballast.unlink()
        return 1.0

    with pytest.warns(bx.CheckpointWarning, match="could not be saved in .*No space left"):
        got = saved_run(small_disk, 32, evaluate=evaluate, evaluate_every=4, keep=9)
    assert counted == [0, 1, 1, 1, 1, 2, 3, 4]
    assert len(files(small_disk)) == 5 and same(got, saved_run(small_disk, 32))


def test_what_is_not_ours_is_not_touched(tmp_path):
    ours = ["bilevax-12.npz", "bilevax-16.npz", "damaged-bilevax-16.npz"]
    foreign = ["2023/a", "2024/a", "12.npz", "bilevax-8.npz.bak", "bilevax-old.npz", "8/state/a"]
    foreign += ["bilevax-007.npz", "bilevax-9.npz/a"]
    for name in foreign:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    saved_run(tmp_path, 16, keep=1)
    (tmp_path / "bilevax-16.npz").write_bytes(b"damaged")
    shutil.copy(tmp_path / "bilevax-16.npz", tmp_path / "bilevax-12.npz")
    with pytest.warns(bx.CheckpointWarning), pytest.raises(ValueError, match="no checkpoint"):
        saved_run(tmp_path, 16, keep=1)
    saved_run(tmp_path, 16, keep=1)
    assert all((tmp_path / name).read_text() == name for name in foreign)
    tops = {name.split("/")[0] for name in foreign}
    assert {*files(tmp_path)} - tops == {ours[1], *(f"damaged-{name}" for name in ours[:2])}


HOLDER = """
import fcntl, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX)
os.write(file.fileno(), b"process 7 on elsewhere")
print("locked", flush=True)
time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLDER, tmp_path / ".bilevax.lock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"locked\n"
            with pytest.raises(RuntimeError, match="is in use by process 7 on elsewhere: wait"):
                saved_run(tmp_path, 8)
            assert files(tmp_path) == []
        finally:
            other.kill()
    assert saved_run(tmp_path, 8).step == 8


def test_of_many_threads_one_gets_in(tmp_path):
    inside, refused, start = [], [], threading.Barrier(8)

    def enter():
        start.wait()
        try:
            with locked(tmp_path):
                inside.append(1)
                end.wait(60)
        except RuntimeError as error:
            refused.append(str(error))

    end = threading.Event()
    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(refused) < 7 and any(thread.is_alive() for thread in threads):
        time.sleep(0.01)
    end.set()
    for thread in threads:
        thread.join()
    assert len(inside) == 1
    assert all("is in use by this process" in text for text in refused) and len(refused) == 7


def test_a_second_run_of_this_process_is_refused(tmp_path):
    """And the first keeps its lock."""
    said = []

    def evaluate(lam):
        with pytest.raises(RuntimeError, match="is in use by this process"):
            saved_run(tmp_path, 8)
        attempt = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a+'), fcntl.LOCK_EX | 4)"
        command = [sys.executable, "-c", attempt, tmp_path / ".bilevax.lock"]
        said.append(subprocess.run(command, stderr=subprocess.PIPE).stderr)
        return 1.0

    saved_run(tmp_path, 8, evaluate=evaluate, evaluate_every=8)
    assert b"BlockingIOError" in said[0]
    assert saved_run(tmp_path, 8).step == 8


def test_an_evaluation_of_nan_is_never_the_best():
    scores = iter([np.nan, 3.0, np.nan, 2.0, 2.5])
    got = run(S=P.S, steps=5, evaluate=lambda lam: next(scores), patience=3)
    assert got.reason == "steps" and (got.best.value, got.best.step) == (2.0, 4)
    assert run(S=P.S, steps=2, evaluate=lambda lam: np.nan).best is None


def test_evaluations_whose_names_change_line_up(tmp_path):
    scores = [{"a": 1}, {"b": 2, "a": 3}, {"b": 0}, {"a": 0.5, "c": 6}]
    first, second = iter(scores[:2]), iter(scores[2:])
    given = dict(every=1, evaluate_every=1)
    saved_run(tmp_path, 2, evaluate=lambda lam: next(first), **given)
    got = saved_run(tmp_path, 4, evaluate=lambda lam: next(second), **given)
    nan = np.nan
    table = {"step": [1, 2, 3, 4], "a": [1, 3, nan, 0.5], "b": [nan, 2, 0, nan]}
    assert equal(
        got.evaluations,
        {n: np.array(x, float) for n, x in table.items()} | {"c": np.array([nan, nan, nan, 6])},
    )
    assert (got.best.value, got.best.step) == (0.5, 4)  # by the name that came first


def test_an_evaluation_that_failed_is_made_up_for(tmp_path):
    calls = []

    def evaluate(lam):
        calls.append(1)
        if len(calls) == 2:
            raise OSError("no connection")
        return 1.0

    with pytest.raises(OSError, match="no connection"):
        saved_run(tmp_path, 8, evaluate=evaluate, evaluate_every=2)
    got = saved_run(tmp_path, 8, evaluate=evaluate, evaluate_every=2)
    assert got.evaluations["step"].tolist() == [2, 4, 6, 8]


def invisible():
    xi = bx.Descent(lambda w, lam, S: jnp.sum((w - lam[0]) ** 2), lambda lam, S: lam[1], ADAM)
    lam = [jnp.ones(2), jnp.zeros(2)]
    return run(RULE, f=lambda w, lam, S: jnp.sum(w), xi=xi, lam=lam)


WARNINGS = {
    bx.InvisibleLeafWarning: lambda path: invisible(),
    bx.ToleranceWarning: lambda path: run(bx.AdaptiveReverse(rtol=1e-9, max_K=3), S=P.S),
    bx.CheckpointWarning: lambda path: saved_run(path, 4),
}


@pytest.mark.parametrize("category", WARNINGS)
def test_warnings_point_at_the_line_of_the_call(category, tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", at_nth_call(0, OSError("full"), np.savez))
    with pytest.warns(category) as said:
        WARNINGS[category](tmp_path)
    here = [pathlib.Path(__file__).parent / "running.py", pathlib.Path(__file__)]
    assert all(pathlib.Path(w.filename) in here for w in said)


MAPS = pathlib.Path("/proc/self/maps")


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="needs /proc, to count memory maps")
def test_compiled_programs_go():
    """New functions and optimizers in every call: no memory map stays."""

    def call():
        f = lambda w, lam, S: P.f(w, lam, S)
        xi = bx.Descent(lambda *x: P.xi.g(*x), P.xi.init, optax.sgd(0.01))
        run(f=f, xi=xi, optimizer=optax.adam(0.05), S=P.S, steps=2)
        return MAPS.read_bytes().count(b"\n")

    counts = [call() for _ in range(20)]
    assert counts[-1] <= counts[1] + 5, counts

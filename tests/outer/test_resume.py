"""A run survives kill -9, signals, and damaged checkpoints, to the same bits."""

import gc
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax import problems
from bilevax._outer.checkpoints import Checkpoints

PROGRAM = pathlib.Path(__file__).parents[1] / "programs" / "clean.py"
EVERY = 20  # hyper-iterations between two checkpoints of the program
P = problems.ridge()
ADAM = optax.adam(0.05)

# Orbax abandons its other reads when one fails, and they complain of it when collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()


def start(directory, log, steps):
    command = [sys.executable, str(PROGRAM), str(directory), str(steps), str(log)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def wait_for(log, process, seen):
    """Until the program has noted something new."""
    while process.poll() is None and (not log.exists() or log.stat().st_size <= seen):
        time.sleep(0.01)


def noted(log):
    return [int(x) for x in log.read_text().split()] if log.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_killed_at_random_moments(tmp_path, seed):
    """Ten times kill -9, each at another moment of the run (and so 20 in all)."""
    rng, log, directory = random.Random(seed), tmp_path / "log", tmp_path / "run"
    resumed = []
    for life in range(10):
        before = noted(log)
        process = start(directory, log, 5000)
        wait_for(log, process, log.stat().st_size if log.exists() else 0)
        time.sleep(rng.uniform(0, 0.6))
        process.kill()
        process.communicate()
        if life:
            first = noted(log)[len(before)]
            resumed.append((first, before[-1]))
    assert max(noted(log)) < 4000  # it was killed on its way, not behind its end
    for first, last in resumed:
        assert first > last - EVERY - 1, "more than one interval was lost"
    steps = max(noted(log)) + 30
    got = end(start(directory, log, steps))
    assert got == end(start(tmp_path / "undisturbed", tmp_path / "other", steps))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_leave(tmp_path, number):
    log, directory = tmp_path / "log", tmp_path / "run"
    process = start(directory, log, 100_000)
    wait_for(log, process, 0)
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: -signal.SIGINT, signal.SIGTERM: 143}[number], err
    newest = max(int(p.name) for p in directory.iterdir())
    assert newest == noted(log)[-1]  # nothing was lost
    assert "stopping after this hyper-iteration" in err
    if number == signal.SIGINT:
        assert f"Hyper-iteration {newest} is saved in {directory}" in err
    steps = newest + 25
    got = end(start(directory, log, steps))
    assert got == end(start(tmp_path / "undisturbed", tmp_path / "other", steps))


def run(directory, steps, **more):
    given = {"S": P.S, "optimizer": ADAM, "T": 20, "checkpoint_every": 4} | more
    rule, lam = given.pop("rule", bx.Reverse(K=5)), given.pop("lam", P.lam)
    return bx.minimize(P.f, P.xi, rule, lam, steps=steps, checkpoint_dir=directory, **given)


def same(a, b):
    return np.array_equal(a.lam, b.lam) and all(
        np.array_equal(a.history[name], b.history[name]) for name in a.history
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(a directory with checkpoints of hyper-iterations 8 and 12, the run of 16)."""
    directory = tmp_path_factory.mktemp("run") / "checkpoints"
    run(directory, 12, keep=2)
    assert sorted(p.name for p in directory.iterdir()) == ["12", "8"]
    return directory, run(None, 16)


def damages(path):
    flipped = bytearray(path.read_bytes())
    if flipped:
        flipped[len(flipped) // 2] ^= 0xFF
        yield "flip", lambda p: p.write_bytes(bytes(flipped))
        yield "truncate", lambda p: os.truncate(p, len(flipped) // 2)
    yield "delete", lambda p: p.unlink()


def test_damaged_newest_checkpoint(saved, tmp_path):
    """Every file of it, damaged in every way: the run ends alike, and something is said."""
    directory, whole = saved
    names = [p.relative_to(directory) for p in (directory / "12").rglob("*") if p.is_file()]
    noticed = set()
    for i, name in enumerate(names):
        for how, damage in damages(directory / name):
            copy = tmp_path / f"{i}-{how}"
            shutil.copytree(directory, copy)
            damage(copy / name)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", bx.CheckpointWarning)
                assert same(run(copy, 16, keep=2), whole), (name, how)
            if said:
                assert "hyper-iteration 12 in" in str(said[0].message)
                assert (copy / "damaged-12").exists()  # put aside, not thrown away
                noticed.add((name.parts[1], how))
    everyhow = {"flip", "truncate", "delete"}  # whatever is read is verified
    assert noticed >= {(part, how) for part in ("state", "about") for how in everyhow}


def test_all_damaged_is_not_begun_anew(saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved[0], copy)
    for step in ("8", "12"):
        shutil.rmtree(copy / step / "state")
    with (
        pytest.warns(bx.CheckpointWarning),
        pytest.raises(ValueError, match="no checkpoint in .* can be read, and a run is not begun"),
    ):
        run(copy, 16)


OTHERS = {
    "T is 21, was 20": dict(T=21),
    r"rule is Reverse\(K=4\), was Reverse\(K=5\)": dict(rule=bx.Reverse(K=4)),
    "lam0 has other values": dict(lam=P.lam + 1),
    r"lam is float64\[7\], was float64\[6\]": dict(lam=jnp.zeros(7)),
    "S has other values": dict(S=jax.tree.map(lambda a: a, P.S) | {"val": P.S["train"]}),
    "optimizer makes another first update": dict(optimizer=optax.adam(0.06)),
    "warm_start is True, was False": dict(warm_start=True),
    "contexts is a sampler, was one, S": dict(
        S=None, contexts=lambda key: P.S, key=jax.random.key(0)
    ),
}


@pytest.mark.parametrize("text", OTHERS)
def test_another_run_is_refused(saved, text):
    if "float64" in text:
        f, g = lambda w, lam, S: jnp.sum(w**2), lambda w, lam, S: jnp.sum((w - lam) ** 2)
        xi = bx.Descent(g, bx.constant(jnp.zeros(7)), optax.sgd(0.1))
        other = lambda: bx.minimize(
            f,
            xi,
            bx.Reverse(K=5),
            jnp.zeros(7),
            T=20,
            steps=16,
            S=P.S,
            optimizer=ADAM,
            checkpoint_dir=saved[0],
        )
    else:
        other = lambda: run(saved[0], 16, **OTHERS[text])
    with pytest.raises(bx.SettingsError, match=text):
        other()


def test_a_finished_run_is_not_run_again(saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved[0], copy)
    first, again = run(copy, 16), run(copy, 16, callback=lambda progress: 1 / 0)
    assert same(first, again) and again.step == 16


def test_everything_is_resumed(tmp_path):
    """Optimizer state, warm start, evaluations, the best lam, patience, empty leaves."""
    lam = {"a": P.lam, "none": jnp.zeros((0, 3))}
    f, g = (lambda w, lam, S, f=f: f(w, lam["a"], S) for f in (P.f, P.xi.g))
    xi = bx.Descent(g, P.xi.init, optax.sgd(0.01))
    draw = lambda key: P.S | {"train": (P.S["train"][0], jax.random.normal(key, (30,)))}

    def go(steps, directory):
        with pytest.warns(bx.InvisibleLeafWarning):
            return bx.minimize(
                f,
                xi,
                bx.Reverse(K=5),
                lam,
                T=20,
                steps=steps,
                batch=2,
                warm_start=True,
                optimizer=bx.first_update(optax.adam(bx.decaying(1.0)), 0.6),
                contexts=draw,
                key=jax.random.key(5),
                evaluate=lambda lam: lam["a"][0] ** 2,
                evaluate_every=3,
                patience=50,
                checkpoint_dir=directory,
                checkpoint_every=5,
            )

    whole = go(23, None)
    go(11, tmp_path)
    got = go(23, tmp_path)
    assert np.array_equal(got.lam["a"], whole.lam["a"])
    assert got.lam["none"].shape == (0, 3)
    assert np.array_equal(got.history["value"], whole.history["value"])
    keep = whole.evaluations["step"] % 3 == 0
    for name in ("step", "value"):
        at = got.evaluations["step"] % 3 == 0  # the first run also evaluated at its end, 11
        assert np.array_equal(got.evaluations[name][at], whole.evaluations[name][keep])
    assert got.best.step in {whole.best.step, 11}


def contexts():
    for i in range(1000):
        noise = np.random.default_rng(i).normal(size=30)
        yield P.S | {"train": (np.asarray(P.S["train"][0]), noise)}


class Stateful:
    """As Grain's iterators: knows where it stands; counts what was read to get there."""

    def __init__(self):
        self.i, self.read = 0, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.read += 1
        self.i += 1
        noise = np.random.default_rng(self.i).normal(size=30)
        return P.S | {"train": (np.asarray(P.S["train"][0]), noise)}

    def get_state(self):
        return str(self.i).encode()

    def set_state(self, state):
        self.i = int(state)


@pytest.mark.parametrize("make", [contexts, Stateful])
def test_iterators_are_resumed(tmp_path, make):
    given = dict(S=None, batch=2, checkpoint_every=3)
    whole = run(None, 100, contexts=make(), **given)
    run(tmp_path, 80, contexts=make(), **given)
    second = make()
    got = run(tmp_path, 100, contexts=second, **given)
    assert same(got, whole)
    if make is Stateful:  # at most a group of hyper-iterations is read again, not all 80
        assert second.read < 2 * (64 + 64 + 20)


def test_the_last_good_lam_is_saved(tmp_path):
    f = lambda w, lam, S: P.f(w, lam, S) / jnp.where(jnp.sum(lam) < -12.2, 0.0, 1.0)
    go = lambda: bx.minimize(
        f,
        P.xi,
        bx.Reverse(K=5),
        P.lam,
        T=20,
        steps=200,
        S=P.S,
        optimizer=ADAM,
        checkpoint_dir=tmp_path,
    )
    with pytest.raises(bx.DivergenceError, match=f"is saved in {tmp_path}") as first:
        go()
    with pytest.raises(bx.DivergenceError) as second:  # it goes on from there, and stops there
        go()
    assert same(first.value.result, second.value.result)


@pytest.mark.slow
def test_memory_is_flat_over_ten_thousand_hyper_iterations():
    """Resident memory, after the first thousand, by less than 8 MB."""
    sizes = []

    def callback(progress):
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
        sizes.append((progress.step, pages * os.sysconf("SC_PAGE_SIZE")))

    if not pathlib.Path("/proc/self/statm").exists():
        pytest.skip("needs /proc, to ask for the memory of this process")
    run(None, 11_000, callback=callback, evaluate=lambda lam: lam[0], evaluate_every=50)
    settled = next(size for step, size in sizes if step >= 1000)
    assert sizes[-1][1] - settled < 8e6


def test_a_full_disk_does_not_end_a_run(tmp_path, monkeypatch):
    def full(*args):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", full)
        with pytest.warns(bx.CheckpointWarning, match="could not be saved in .*No space left"):
            got = run(tmp_path, 16)
    assert same(got, run(tmp_path, 16))  # from the start again: nothing was saved


def test_an_iterator_that_has_moved_is_refused(tmp_path):
    """In a notebook the same generator, already read from, is given again."""
    items = contexts()
    run(tmp_path, 10, contexts=items, S=None)
    with pytest.raises(bx.SettingsError, match="contexts begins with another item"):
        run(tmp_path, 20, contexts=items, S=None)


def test_another_inner_problem_is_refused(saved):
    xi = bx.Descent(P.xi.g, P.xi.init, optax.sgd(0.011))
    with pytest.raises(bx.SettingsError, match="compute something else in the first inner step"):
        bx.minimize(
            P.f,
            xi,
            bx.Reverse(K=5),
            P.lam,
            T=20,
            steps=16,
            S=P.S,
            optimizer=ADAM,
            checkpoint_dir=saved[0],
        )


def test_an_error_of_the_user_loses_nothing(tmp_path):
    def evaluate(lam):
        raise OSError("no connection")

    with pytest.raises(OSError, match=f"Hyper-iteration 6 is saved in {tmp_path}"):
        run(tmp_path, 16, evaluate=evaluate, evaluate_every=6)
    assert same(run(tmp_path, 16), run(None, 16))

"""A run goes on where it stopped, to the same bits; another run does not."""

import os
import pathlib
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from running import P, files, run, same, saved_run

import bilevax as bx
from bilevax._outer.checkpoints import Folder
from bilevax._outer.devices import like, on_host


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """(a directory with checkpoints of hyper-iterations 8 and 12, the run of 16)."""
    directory = tmp_path_factory.mktemp("run") / "checkpoints"
    saved_run(directory, 12, keep=2)
    assert files(directory) == ["bilevax-12.npz", "bilevax-8.npz"]
    return directory, saved_run(None, 16)


def test_damaged_newest_checkpoint(saved, tmp_path):
    """Cut, or with a byte changed, anywhere: the run ends alike, and the damage is said."""
    directory, whole = saved
    data = (directory / "bilevax-12.npz").read_bytes()
    places = np.linspace(0, len(data) - 1, 40, dtype=int).tolist()
    cuts = [data[:n] for n in places[::8]]
    changed = [data[:n] + bytes([data[n] ^ 0xFF]) + data[n + 1 :] for n in places]
    noticed = 0
    for i, damaged in enumerate([*cuts, *changed]):
        path = tmp_path / str(i) / "bilevax-12.npz"
        shutil.copytree(directory, path.parent)
        path.write_bytes(damaged)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", bx.CheckpointWarning)
            found = Folder(path.parent, keep=3).load()
        step = found.about["tau"]
        if said:  # put aside, not thrown away
            assert "bilevax-12.npz is damaged" in str(said[0].message)
            assert files(path.parent) == ["bilevax-8.npz", "damaged-bilevax-12.npz"]
        assert step == (8 if said else 12)
        noticed += bool(said)
    assert noticed > 0.8 * len(places)  # the rest is in parts of a zip file that nobody reads
    with pytest.warns(bx.CheckpointWarning, match="damaged"):
        shutil.copytree(directory, tmp_path / "one")
        (tmp_path / "one" / "bilevax-12.npz").write_bytes(data[:-5])
        assert same(saved_run(tmp_path / "one", 16), whole)


def test_all_damaged_is_not_begun_again(saved, tmp_path):
    for path in saved[0].glob("*.npz"):
        (tmp_path / path.name).write_bytes(path.read_bytes()[:-99])
    with (
        pytest.warns(bx.CheckpointWarning),
        pytest.raises(ValueError, match="no checkpoint in .* can be read, and bilevax does not"),
    ):
        saved_run(tmp_path, 16)


def test_checkpoints_of_an_earlier_version_are_not_ignored(tmp_path):
    (tmp_path / "12" / "about").mkdir(parents=True)
    with pytest.raises(ValueError, match="holds checkpoints of an earlier version of bilevax"):
        saved_run(tmp_path, 16)


OTHERS = {
    "T is 21, was 20": dict(T=21),
    r"rule is Reverse\(K=4\), was Reverse\(K=5\)": dict(rule=bx.Reverse(K=4)),
    "lam begins with other values": dict(lam=P.lam + 1),
    r"lam is float64\[1\], was float64\[6\]": dict(lam=P.lam[:1]),
    "S has other values": dict(S=P.S | {"val": P.S["train"]}),
    "optimizer computes something else": dict(optimizer=optax.adam(0.06)),
    "f, xi or contexts computes something else": dict(
        xi=bx.Descent(P.xi.g, P.xi.init, optax.sgd(0.011))
    ),
    "f, xi or contexts comp": dict(f=lambda *x: 2 * P.f(*x)),
    "warm_start is True, was False": dict(warm_start=True),
    "contexts is a sampler, was one, S": dict(
        S=None, contexts=lambda key: P.S, key=jax.random.key(0)
    ),
}


@pytest.mark.parametrize("text", OTHERS)
def test_another_run_is_refused(saved, text):
    with pytest.raises(bx.CheckpointMismatchError, match=text):
        saved_run(saved[0], 16, **OTHERS[text])


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    saved_run("~/run", 4)
    assert files(tmp_path) == ["run"] and files(tmp_path / "run") == ["bilevax-4.npz"]


def test_a_finished_run_is_not_run_again(saved, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(saved[0], copy)
    first, again = saved_run(copy, 16), saved_run(copy, 16, callback=lambda progress: 1 / 0)
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
                optimizer=bx.scale_first_update(optax.adam(bx.inverse_sqrt_schedule(1.0)), 0.6),
                contexts=draw,
                key=jax.random.key(5),
                evaluate=lambda lam: lam["a"][0] ** 2,
                evaluate_every=3,
                patience=50,
                checkpoint=directory and bx.Checkpoint(directory, every=5),
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

    def __init__(self, scale=1.0):
        self.i, self.read, self.scale = 0, 0, scale

    def __iter__(self):
        return self

    def __next__(self):
        self.read += 1
        self.i += 1
        noise = self.scale * np.random.default_rng(self.i).normal(size=30)
        return P.S | {"train": (np.asarray(P.S["train"][0]), noise)}

    def get_state(self):
        return str(self.i).encode()

    def set_state(self, state):
        self.i = int(state)


@pytest.mark.parametrize("make", [contexts, Stateful])
def test_iterators_are_resumed(tmp_path, make):
    given = dict(S=None, batch=2, every=3)
    whole = saved_run(None, 100, contexts=make(), **given)
    saved_run(tmp_path, 80, contexts=make(), **given)
    second = make()
    got = saved_run(tmp_path, 100, contexts=second, **given)
    assert same(got, whole)
    if make is Stateful:  # at most a group of hyper-iterations is read again, not all 80
        assert second.read < 2 * (64 + 64 + 20)


def test_an_iterator_of_other_data_that_knows_where_it_stands_is_refused(tmp_path):
    """It can be brought back to where the run began, wherever it stands, and gives the same."""
    given, items = dict(S=None, every=3), Stateful()
    saved_run(tmp_path, 6, contexts=items, **given)
    assert saved_run(tmp_path, 7, contexts=items, **given).step == 7
    with pytest.raises(bx.CheckpointMismatchError, match="contexts begins with another item"):
        saved_run(tmp_path, 9, contexts=Stateful(1.001), **given)
    with pytest.raises(bx.CheckpointMismatchError, match="contexts is an iterator, was an iter.*k"):
        saved_run(tmp_path, 9, contexts=contexts(), **given)


def test_the_last_good_lam_is_saved(tmp_path):
    f = lambda w, lam, S: P.f(w, lam, S) / jnp.where(jnp.sum(lam) < -12.2, 0.0, 1.0)
    go = lambda: run(f=f, S=P.S, steps=200, checkpoint=tmp_path)
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
    saved_run(None, 11_000, callback=callback, evaluate=lambda lam: lam[0], evaluate_every=50)
    settled = next(size for step, size in sizes if step >= 1000)
    assert sizes[-1][1] - settled < 8e6


def test_a_full_disk_does_not_end_a_run(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", full)
        with pytest.warns(bx.CheckpointWarning, match="could not be saved in .*No space left"):
            got = saved_run(tmp_path, 16)
    assert same(got, saved_run(tmp_path, 16))  # from the start again: nothing was saved


def test_an_iterator_that_has_moved_is_refused(tmp_path):
    """In a notebook the same generator, already read from, is given again."""
    items = contexts()
    saved_run(tmp_path, 10, contexts=items, S=None)
    with pytest.raises(bx.CheckpointMismatchError, match="contexts begins with another item"):
        saved_run(tmp_path, 20, contexts=items, S=None)


def test_an_error_of_the_user_loses_nothing(tmp_path):
    def evaluate(lam):
        raise OSError("no connection")

    with pytest.raises(OSError, match=f"Hyper-iteration 6 is saved in {tmp_path}"):
        saved_run(tmp_path, 16, evaluate=evaluate, evaluate_every=6)
    assert same(saved_run(tmp_path, 16), saved_run(None, 16))


def test_arrays_of_every_kind_come_back(tmp_path):
    arrays = {
        "bfloat16": jnp.arange(3, dtype=jnp.bfloat16),
        "key": jax.random.split(jax.random.key(1), 2),
        "empty": jnp.zeros((0, 3)),
        "scalar": jnp.asarray(True),
        "a/b": jnp.arange(4, dtype=jnp.int8),
    }
    Folder(tmp_path, keep=1).save(1, arrays, {"a": "note"})
    found = Folder(tmp_path, keep=1).load()
    assert found.about == {"a": "note"}
    for name, a in arrays.items():
        back = like(a, found.arrays[name])
        assert back.dtype == a.dtype and np.array_equal(on_host(back), on_host(a))


def test_a_checkpoint_that_unpacks_to_more_than_its_size_is_not_read(tmp_path):
    Folder(tmp_path, keep=1).save(1, {"a": jnp.zeros(3)}, {"tau": 1})
    np.savez_compressed(tmp_path / "bilevax-2.npz", a=np.zeros(10**6))
    with pytest.warns(bx.CheckpointWarning, match="would unpack to 8,000,128"):
        assert Folder(tmp_path, keep=1).load().about == {"tau": 1}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_sixteen_bits_are_saved_as_they_are(tmp_path, dtype):
    """numpy knows no bfloat16: its files say two bytes, and the note says which."""
    g = lambda w, lam, S: jnp.sum((w - lam.astype(w.dtype)) ** 2)
    xi = bx.Descent(g, bx.constant(jnp.zeros(3)), optax.sgd(0.1))
    run = lambda steps, folder: bx.minimize(
        lambda w, lam, S: jnp.sum((w - 1.0) ** 2), xi, bx.Reverse(), jnp.zeros(3, dtype),
        T=3, steps=steps, optimizer=optax.adam(0.1), checkpoint=folder,
    )  # fmt: skip
    run(2, tmp_path)
    resumed, straight = run(4, tmp_path), run(4, None)
    assert resumed.lam.dtype == dtype
    assert np.array_equal(resumed.lam, straight.lam)
    assert np.array_equal(resumed.history["h_norm"], straight.history["h_norm"])

"""Bad sources, bad luck, bad disks: one sentence each, and nothing is lost or overwritten."""

import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from replaying import BATCHES, LAM, T, f, replayed, same_bits

import bilevax as bx
from bilevax._replay.host import size
from bilevax._replay.tape import Tape


class Changed:
    """BATCHES with another item t, from its n-th reading on."""

    def __init__(self, t, item, n=0):
        self.t, self.item, self.n, self.count = t, item, n, 0

    def __getitem__(self, t):
        self.count += t == self.t
        return self.item if t == self.t and self.count > self.n else BATCHES[t]


def nan():
    x, y = BATCHES[9]
    return np.where(np.arange(3) == 1, np.nan, x), y


class Short:
    """Without a length."""

    def __getitem__(self, t):
        return BATCHES[:-1][t]


class Ending:
    """As an iterator would end."""

    def __getitem__(self, t):
        if t == 3:
            raise StopIteration
        return BATCHES[t]


class OneBuffer:
    """Fills the same arrays for every t."""

    def __init__(self):
        self.item = jax.tree.map(np.empty_like, BATCHES[0])

    def __getitem__(self, t):
        jax.tree.map(np.copyto, self.item, BATCHES[t])
        return self.item


@jax.tree_util.register_pytree_node_class
class Pair:
    """A container that does not know when it is equal to another."""

    def __init__(self, *parts):
        self.parts = parts

    def __iter__(self):
        return iter(self.parts)

    def tree_flatten(self):
        return self.parts, None

    @classmethod
    def tree_unflatten(cls, _, parts):
        return cls(*parts)


@pytest.mark.parametrize("batches", [OneBuffer(), [Pair(*b) for b in BATCHES]], ids=["one", "own"])
def test_unusual_sources(batches):
    assert same_bits(replayed(batches=batches, store=bx.Store(host=np.inf)), replayed())


def test_a_key_that_a_source_misses_is_its_own_affair():
    class Wrong:
        def __getitem__(self, t):
            return {"x": 1.0}["label"]

    with pytest.raises(KeyError, match="label"):
        replayed(batches=Wrong())


def test_inside_a_transformation_it_is_refused():
    with pytest.raises(TypeError, match="cannot be called inside jax.jit, jax.grad or jax.vmap"):
        jax.jit(lambda scale: replayed(lam={**LAM, "direct": scale}))(1.0)


BAD = {
    r"batches has 16 items, but the T = 17": dict(batches=BATCHES[:-1]),
    r"batches has no item 16 \(IndexError": dict(batches=Short()),
    r"as batches\[t\], got a value of type dict": dict(batches={0: 1}),
    r"batches\[0\] must be an array of numbers, got dtype object": dict(batches=[object()] * T),
    r"batches\[9\] has the form \('float64\[2, 3\]', .* but batches\[0\] has": dict(
        batches=Changed(9, (np.ones((2, 3)), np.ones(2)))
    ),
    r"batches gave something else when steps 7 to 11 were read again": dict(
        batches=Changed(9, BATCHES[0], n=1)
    ),
    r"batches\[9\]\[0\] is not finite. The .*: w is not finite after step t = 9 of T": dict(
        batches=Changed(9, nan())
    ),
    r"segment = 18 is more than T = 17 steps": dict(segment=18),
    r"segment = 6 is more than K = 5 steps": dict(segment=6, K=5),
    r"each level shorter segments than the one before, got \(5, 6\)": dict(segment=(5, 6)),
    r"segment must have a level": dict(segment=()),
    r"batches has no item 3 \(StopIteration": dict(batches=Ending()),
    r"\[0\] must be an array of numbers, got dtype \[\('a'": dict(
        batches=[(np.zeros(4, [("a", int)]),)] * T
    ),
    r"K = 18 steps back are asked for": dict(K=18),
    r"host must be positive": dict(store=lambda: bx.Store(host=0)),
    r"store must be a store, as in bx.Store": dict(store="tape"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", BAD)
def test_bad_input(sentence):
    given = BAD[sentence]
    if callable(given.get("store")):
        with pytest.raises(ValueError, match=sentence):
            given["store"]()
        return
    with pytest.raises((ValueError, TypeError, FloatingPointError), match=sentence):
        replayed(**given)


def test_a_loop_that_diverges_by_itself_names_the_step():
    step = lambda s, lam, S, t: jnp.where(t == 13, jnp.inf, s) + lam["direct"]
    xi = bx.Dynamics(lambda lam, S: jnp.zeros(3), step)
    with pytest.raises(FloatingPointError, match="^The inner loop .* after step t = 13 of T = 17"):
        replayed(xi, lam={"direct": jnp.ones(3)}, f=lambda w, lam, S: jnp.sum(w))


def files(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir() if not p.name.startswith(".")}


class Stop(Exception):
    pass


class Stopping:
    """BATCHES until so many items have been read."""

    def __init__(self, n):
        self.n = n

    def __getitem__(self, t):
        self.n -= 1
        if self.n < 0:
            raise Stop
        return BATCHES[t]


def stopped(directory, n):
    """A tape of a call that was stopped: 2 + 17 items are read there, and 17 on the way back."""
    with pytest.raises(Stop):
        replayed(batches=Stopping(n), store=bx.Store(directory))
    return files(directory)


@pytest.fixture(scope="module")
def want():
    return replayed()


def test_a_tape_of_another_call_is_refused(tmp_path, want):
    tape = stopped(tmp_path, 12)
    assert set(tape) == {"bilevax-there-1.0.npz", "bilevax-there-2.0.npz"}
    others = {
        "lam begins with other values": dict(lam=LAM | {"penalty": jnp.asarray(0.0)}),
        "batches begins with other ones": dict(batches=BATCHES[::-1]),
        "T is 16, was 17": dict(T=16),
        r"segment is \[6\], was \[5\]": dict(segment=6),
        "f, xi or .* computes something else": dict(f=lambda w, lam, S: 2.0 * f(w, lam, S)),
    }
    for sentence, given in others.items():
        with pytest.raises(bx.CheckpointMismatchError, match=f"tape of another call:.*{sentence}"):
            replayed(**given, store=bx.Store(tmp_path))
        assert files(tmp_path) == tape
    assert same_bits(replayed(store=bx.Store(tmp_path)), want)
    assert files(tmp_path) == {}


def test_a_damaged_piece_is_named_and_computed_again(tmp_path, want):
    tape = stopped(tmp_path, 2 + 17 + 12)
    names = ("there-1", "there-2", "there-3", "there-4", "back-2", "back-3")
    assert set(tape) == {f"bilevax-{name}.0.npz" for name in names}
    for name in ("there-4", "back-2", "there-1"):
        path = tmp_path / f"bilevax-{name}.0.npz"
        if not path.exists():
            stopped(tmp_path, 2 + 17 + 12)
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
        with pytest.raises(ValueError, match=f"{name}.0.npz, a piece of a tape, is damaged"):
            replayed(store=bx.Store(tmp_path))
        path.unlink()
        assert same_bits(replayed(store=bx.Store(tmp_path)), want)


def test_a_tape_that_is_to_stay_answers_again(tmp_path, want):
    store = bx.Store(tmp_path, keep=True)
    replayed(store=store)
    assert same_bits(replayed(batches=Stopping(2), store=store), want)


def test_a_tilde_is_the_home_folder_and_numbers_of_numpy_are_numbers(tmp_path, monkeypatch, want):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    given = dict(T=np.int64(T), segment=(np.int64(4),), store=bx.Store("~/tape", keep=True))
    assert same_bits(replayed(**given), want)
    assert [p.name for p in tmp_path.iterdir()] == ["tape"]


def test_a_directory_in_use(tmp_path):
    class Source:
        def __getitem__(self, t):
            with pytest.raises(RuntimeError, match="is in use by this process"):
                replayed(store=bx.Store(tmp_path))
            raise Stop

    with pytest.raises(Stop):
        replayed(batches=Source(), store=bx.Store(tmp_path))


@pytest.fixture
def disk(tmp_path):
    """A function that mounts a disk of its own, with the given options."""
    folder, mounted = tmp_path / "disk", []
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder]
        if subprocess.call(command, stderr=subprocess.DEVNULL):
            pytest.skip("needs the right to mount a small file system")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.check_call(["umount", folder])


def test_a_disk_that_may_not_be_written_to(disk):
    with pytest.raises(OSError, match="cannot be written in .*disk.*Read-only file system"):
        replayed(store=bx.Store(disk("ro")))


def test_a_full_disk(disk, want):
    folder = disk("size=16k")  # two states
    with pytest.raises(
        OSError, match="cannot be written in .*No space left on device.*goes on from"
    ):
        replayed(segment=3, store=bx.Store(folder))
    tape = files(folder)
    assert tape and not list(folder.glob(".*.new"))
    subprocess.check_call(["mount", "-o", "remount,size=1m", folder])
    assert same_bits(replayed(segment=3, store=bx.Store(folder)), replayed(segment=3))


@pytest.mark.parametrize("states", [2, 4])
def test_memory_of_the_host_is_what_was_asked_for(states, tmp_path, monkeypatch, want):
    """States that do not fit are read from the disk; what was read goes."""
    held, put = [], Tape.put

    def noted(tape, *args):
        put(tape, *args)
        held.append(sum(size(found.arrays) for found in tape._memory.values()))

    monkeypatch.setattr(Tape, "put", noted)
    each = 8 * 9 + 2 * 4  # w and two moments; two counts
    assert same_bits(replayed(store=bx.Store(tmp_path, host=each * states)), want)
    assert max(held) == each * min(states, 3)


def test_the_last_steps_of_a_call_that_was_stopped(tmp_path):
    """Before them only the newest state is on the tape, and one more after a stop."""
    store = bx.Store(tmp_path)
    with pytest.warns(bx.InvisibleLeafWarning):
        want = replayed(K=4, segment=2)
    for n in (1 + 9, 1 + 8 + 2):
        with pytest.raises(Stop):
            replayed(K=4, segment=2, batches=Stopping(n), store=store)
        there = [p for p in files(tmp_path) if "there" in p]
        assert len(there) <= 4
    assert same_bits(replayed(K=4, segment=2, store=store), want)


def test_both_ways_are_shown(capsys):
    replayed(progress=True)
    shown = capsys.readouterr().err
    assert "there 17/17" in shown and "back" in shown

"""`replay` is `hypergradient` by Reverse, wherever both can run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from oracle import assert_close
from replaying import (
    BATCHES,
    LAM,
    OPTIMIZERS,
    XI,
    S,
    T,
    f,
    g,
    init,
    rate,
    replayed,
    same_bits,
    whole,
)

import bilevax as bx
from bilevax._replay import call
from bilevax._replay.route import Leg, route, segments, tree


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer(name):
    xi = bx.Descent(g, init, OPTIMIZERS[name])
    assert_close(replayed(xi), whole(xi))


@pytest.mark.filterwarnings("ignore::bilevax.InvisibleLeafWarning")
@pytest.mark.parametrize("K", [5, 12])
def test_the_last_steps_only(K):
    assert_close(replayed(K=K), whole(K=K))


@pytest.mark.parametrize("segment", [T, (12, 5, 2)])
def test_any_segment(segment):
    assert_close(replayed(segment=segment), want())


@pytest.mark.parametrize("states", [5, 6, 9, 17])
def test_less_host_memory_than_boundaries(states):
    """More levels: the same bits, since a segment is run by the same program."""
    each = 8 * 9 + 2 * 4  # w and two moments; two counts
    store = bx.Store(host=each * states)
    if states == 5:
        with pytest.raises(ValueError, match="for 5 states of 80 bytes is too little for 17"):
            replayed(segment=1, store=store)
        return
    assert same_bits(replayed(segment=1, store=store), replayed(segment=1))


def want(memory=[]):  # noqa: B006
    memory[:] = memory or [whole()]
    return memory[0]


class Halving(bx.extend.AbstractDynamics):
    def start(self, lam, S):
        return {"w": init(lam, S), "key": jax.random.key(0)}

    def advance(self, s, lam, S, t):
        noise = jax.random.normal(jax.random.fold_in(s["key"], t), (3,))
        new = s["w"] - jnp.exp(lam["rate"][t]) * jax.grad(g)(s["w"], lam, S) + lam["direct"] * noise
        return {"w": new, "key": jax.random.fold_in(s["key"], t)}

    def read(self, s):
        return s["w"]


def with_state(model, lam, batch):
    w, (mean, count) = model
    mean = 0.9 * mean + 0.1 * jnp.mean(batch[0] @ w)
    return g(w, lam, batch) + mean**2, (mean, count + 1)


def of_state(model, lam, S):
    return f(model.w, lam, S) + model.state[0]


KINDS = {
    "a model with a state": (
        bx.Descent(
            with_state,
            lambda lam, S: bx.Stateful(init(lam, S), (jnp.zeros(()), jnp.zeros((), int))),
            lambda lam: optax.adamw(rate(lam), eps_root=1e-8),
        ),
        of_state,
    ),
    "an algorithm of one's own, with a key": (Halving(), f),
    "prepared": (
        bx.Prepared(lambda lam, S: lam | {"start": jnp.tanh(lam["start"] * S["scale"])}, XI),
        f,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_algorithm(kind, tmp_path):
    xi, f = KINDS[kind]
    got = replayed(xi, f, store=bx.Store(tmp_path, host=1))  # each state goes through a file
    assert_close((got.value, got.h), whole(xi, f)[:2])


def test_f_may_return_more_than_its_value():
    both = lambda w, lam, S: (f(w, lam, S), {"largest": jnp.max(w)})
    assert_close(replayed(f=both, has_aux=True), whole(f=both, has_aux=True))


class Items:
    """A data set without a length, which draws batch t from t, as a PyTorch one would."""

    def __init__(self):
        self.read = []

    def __getitem__(self, t):
        self.read.append(t)
        x, y = BATCHES[t]
        return x.copy(), y


def test_any_source_with_random_access(tmp_path):
    x, y = map(np.stack, zip(*BATCHES, strict=True))
    mapped = np.memmap(tmp_path / "file", float, "w+", shape=(T, 4, 4))
    mapped[:] = np.concatenate([x, y[..., None]], axis=-1)
    split = lambda w, lam, b: g(w, lam, (b[:, :3], b[:, 3]))
    got = replayed(bx.Descent(split, init, OPTIMIZERS["adamw"]), batches=mapped)
    assert_close(got, want())
    source = Items()
    assert_close(replayed(batches=source), want())
    again = [t for j in (12, 7, 2, 0) for t in range(j, min(j + 5, T) if j else 2)]
    assert source.read == [0, *range(T), *again]


def test_a_second_call_compiles_nothing(monkeypatch):
    hg = bx.replay(f, XI, T=T, batches=BATCHES, segment=5)
    first, compiled = hg(LAM, S), []
    import jax._src.compiler as compiler

    monkeypatch.setattr(compiler, "compile_or_get_cached", lambda *a, **k: compiled.append(1))
    assert same_bits(hg(LAM, S), first) and not compiled


def test_all_segments_have_their_states_in_the_same_room(monkeypatch):
    """New memory for each would cost more than the steps that fill it."""
    rooms, again = [], call.again

    def noted(*args):
        room = again(*args)
        rooms.append([a.unsafe_buffer_pointer() for a in jax.tree.leaves(room)])
        assert all(a.is_deleted() for a in jax.tree.leaves(args[-1]))
        return room

    monkeypatch.setattr(call, "again", noted)
    replayed()
    assert len(rooms) == 4 and all(room == rooms[0] for room in rooms)


def test_each_boundary_is_passed_as_often_as_there_are_levels():
    for n, room in itertools.product([1, 2, 5, 16, 40], [2, 3, 5, 7, 40]):
        try:
            plan = tree(0, n, min(room, n), 1)
        except ValueError:
            continue
        held, most, there = {0}, 1, 0
        for leg in route({0}, n, plan):
            if leg.back:
                assert leg.j in held or leg.j == here  # noqa: F821
                held.discard(leg.j)
            else:
                there, here = there + 1, leg.j + 1
                held |= {here} if leg.keep else set()
            most = max(most, len(held))
        assert most <= max(room, 1) and there <= len(plan.strides) * n
        assert leg == Leg(0, back=True)


def test_the_steps_that_fill_no_segment_come_first():
    assert segments(3, 7, 3) == [(3, 1), (4, 3), (7, 3)]

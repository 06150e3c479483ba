"""The outer loop does what a hand-written one does, and says what happened."""

import itertools
import struct

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from running import ADAM, RULE, P, equal, run

import bilevax as bx

KEY = jax.random.key(7)


def draw(S, key):
    """P's context with noise on its targets."""
    x, y = S["train"]
    return S | {"train": (x, y + jax.random.normal(key, y.shape))}


SAMPLER = jax.tree_util.Partial(draw, P.S)


def update(optimizer, h, state, lam):
    with jax.numpy_dtype_promotion("standard"):
        updates, state = optimizer.update(h, state, lam)
        return optax.apply_updates(lam, updates), state


def by_hand(contexts, *, rule=RULE, steps=12, optimizer=ADAM, T=20):
    """The loop that people write: (lam, values, lengths of h)."""
    hg = jax.jit(jax.vmap(bx.hypergradient(P.f, P.xi, rule, T=T), (None, 0)))
    lam, state, values, lengths = P.lam, optimizer.init(P.lam), [], []
    for tau in range(steps):
        out = hg(lam, jax.tree.map(lambda *a: jnp.stack(a), *contexts(tau)))
        h = jnp.mean(out.h, axis=0)
        lam, state = update(optimizer, h, state, lam)
        values.append(jnp.mean(out.value))
        lengths.append(jnp.linalg.norm(h))
    return lam, np.array(values), np.array(lengths)


def keys(tau, batch):
    return jax.random.split(jax.random.fold_in(KEY, tau), batch)


def test_deterministic_as_by_hand():
    got = run(S=P.S)
    lam, values, lengths = by_hand(lambda tau: [P.S])
    np.testing.assert_allclose(got.lam, lam, rtol=1e-12)
    np.testing.assert_allclose(got.history["value"], values, rtol=1e-12)
    np.testing.assert_allclose(got.history["h_norm"], lengths, rtol=1e-12)
    assert (got.step, got.reason) == (12, "steps")


@pytest.mark.parametrize("batch", [1, 2])
def test_a_hyper_iteration_is_traced_once(batch):
    """As a hypergradient is; tracing a network takes seconds each time."""
    calls, contexts = [], itertools.repeat(jnp.ones(()))

    def f(w, lam, S):
        calls[-1] += 1
        return S * jnp.sum(w**2)

    def count(run):
        calls.append(0)
        g = lambda w, lam, S: S * jnp.sum((w - lam) ** 2)
        run(bx.Descent(g, bx.constant(jnp.zeros(2)), optax.sgd(0.1)))
        return calls[-1]

    once = count(lambda xi: bx.hypergradient(f, xi, RULE, T=20)(jnp.ones(2), jnp.ones(())))
    settings = {"T": 20, "steps": 2, "optimizer": ADAM, "contexts": contexts, "batch": batch}
    assert count(lambda xi: bx.minimize(f, xi, RULE, jnp.ones(2), **settings)) == once > 0


@pytest.mark.parametrize("at_once", [None, 2, 1])
def test_sampled_contexts_together_or_in_slices(at_once):
    got = run(contexts=SAMPLER, key=KEY, batch=np.int64(4), at_once=at_once)
    lam, values, _ = by_hand(lambda tau: [draw(P.S, k) for k in keys(tau, 4)])
    np.testing.assert_allclose(got.lam, lam, rtol=1e-10)
    np.testing.assert_allclose(got.history["value"], values, rtol=1e-10)


class Loader:
    """Can be iterated again, like a DataLoader; items are numpy."""

    def __iter__(self):
        for i in range(10):
            yield {
                "train": tuple(np.asarray(a) + 0.01 * i for a in P.S["train"]),
                "val": tuple(np.asarray(a) for a in P.S["val"]),
                "key": P.S["key"],
            }


@pytest.mark.parametrize("batch", [1, 3])
def test_contexts_from_an_iterator(batch):
    got = run(contexts=Loader(), batch=batch)
    items = list(itertools.islice(itertools.cycle(Loader()), 12 * batch))
    lam, _, _ = by_hand(lambda tau: items[tau * batch : (tau + 1) * batch])
    np.testing.assert_allclose(got.lam, lam, rtol=1e-10)


def test_iterator_that_ends_says_so():
    with pytest.raises(ValueError, match="contexts ended after 10 items, before the run did"):
        run(contexts=iter(Loader()))


def test_iterator_that_fails_fails_here():
    def broken():
        yield from Loader()
        raise OSError("disk on fire")

    with pytest.raises(OSError, match="disk on fire"):
        run(contexts=broken())


def test_iterator_that_changes_its_shapes_says_so():
    def ragged():
        for i in range(30, 20, -1):
            x, y = P.S["train"]
            yield P.S | {"train": (x[:i], y[:i])}

    with pytest.raises(
        ValueError, match=r"at item 1: S\['train'\]\[0\] was float64\[30, 6\] and is"
    ):
        run(contexts=ragged())


RULES = [bx.Reverse(), bx.Reverse(K=3), bx.Forward(), bx.Reverse(segment=4), bx.Krylov(1, 6)]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_warm_start_goes_on_from_the_last_w(rule):
    got = run(rule, S=P.S, warm_start=True, steps=4)
    lam, state, w = P.lam, ADAM.init(P.lam), P.xi.read(P.xi.start(P.lam, P.S))
    for value in got.history["value"]:
        xi = bx.Descent(P.xi.g, bx.constant(w), P.xi.opt, P.xi.sample)
        out = bx.hypergradient(P.f, xi, rule, T=20)(lam, P.S)
        lam, state = update(ADAM, out.h, state, lam)
        w = out.w
        np.testing.assert_allclose(value, out.value, rtol=1e-12)
    np.testing.assert_allclose(got.lam, lam, rtol=1e-10)


def test_warm_start_has_no_initialisation_to_learn():
    xi = bx.Descent(lambda w, lam, S: jnp.sum(w**2), lambda lam, S: lam, optax.sgd(0.1))
    f = lambda w, lam, S: jnp.sum(w)
    with pytest.raises(ValueError, match="warm_start=True begins every inner loop at the last w_T"):
        run(bx.Reverse(), f=f, xi=xi, warm_start=True)


def test_warm_start_of_an_unknown_state_is_refused():
    xi = bx.Dynamics(lambda lam, S: (lam, lam), lambda s, lam, S, t: s, lambda s: s[0])
    with pytest.raises(TypeError, match="at a given w, which Dynamics cannot"):
        run(bx.Reverse(), f=lambda w, lam, S: jnp.sum(w), xi=xi, warm_start=True)


def test_line_searches_and_schedules():
    searched = run(bx.Reverse(), S=P.S, optimizer=optax.lbfgs())
    plain = run(bx.Reverse(), S=P.S)
    assert searched.history["value"][-1] < plain.history["value"][-1]
    decayed = run(S=P.S, steps=3, optimizer=optax.sgd(bx.inverse_sqrt_schedule(0.1)))
    lam = by_hand(lambda tau: [P.S], steps=3, optimizer=optax.sgd(bx.inverse_sqrt_schedule(0.1)))[0]
    np.testing.assert_allclose(decayed.lam, lam, rtol=1e-12)


def test_scale_first_update_has_the_norm_it_was_given():
    for rule in (bx.Reverse(K=1), bx.Reverse()):
        got = run(rule, S=P.S, steps=1, optimizer=bx.scale_first_update(optax.adam(1.0), 0.6))
        np.testing.assert_allclose(jnp.linalg.norm(got.lam - P.lam), 0.6, rtol=1e-12)
    optimizer = bx.scale_first_update(optax.sgd(1.0), 2.0)
    state = optimizer.init(jnp.zeros(2))
    for h, length in ((0.0, 0.0), (3.0, 2.0), (6.0, 4.0)):  # it waits for the first that is not 0
        updates, state = optimizer.update(jnp.array([0.0, h]), state)
        np.testing.assert_allclose(jnp.linalg.norm(updates), length)


def test_evaluation_patience_and_best():
    scores = iter([3.0, 1.0, 2.0, 2.5, 9.0])
    seen = []

    def evaluate(lam):
        seen.append(lam)
        return {"loss": next(scores), "other": 5}

    got = run(S=P.S, steps=50, evaluate=evaluate, evaluate_every=4, patience=2)
    assert (got.step, got.reason) == (16, "patience")
    np.testing.assert_array_equal(got.evaluations["step"], [4, 8, 12, 16])
    np.testing.assert_array_equal(got.evaluations["loss"], [3, 1, 2, 2.5])
    assert (got.best.value, got.best.step) == (1.0, 8)
    assert equal(got.best.lam, seen[1]) and equal(got.best.lam, run(S=P.S, steps=8).lam)


def test_patience_on_the_value_itself():
    got = run(contexts=SAMPLER, key=KEY, steps=5000, patience=3)
    values = got.history["value"]
    assert got.reason == "patience" and got.step == np.argmin(values) + 1 + 3


def test_callback_is_given_all_records_and_may_stop():
    seen = []

    def callback(progress):
        seen.append(progress)
        return progress.step >= 20

    evaluate = lambda lam: {"a": lam[0], "b": 1.0}
    got = run(S=P.S, steps=10_000, callback=callback, evaluate=evaluate, evaluate_every=5)
    assert got.reason == "callback" and got.step == seen[-1].step < 10_000
    for name in ("history", "evaluations"):
        parts = [getattr(progress, name) for progress in seen]
        whole = {n: np.concatenate([part[n] for part in parts if n in part]) for n in parts[-1]}
        assert equal(whole, getattr(got, name))


def test_reports_of_the_rule_are_in_the_history():
    with pytest.warns(bx.ToleranceWarning) as said:
        got = run(bx.AdaptiveReverse(rtol=1e-9, max_K=3), contexts=SAMPLER, key=KEY, batch=2)
    assert len(said) == 1  # not once in every hyper-iteration
    assert got.history["depth"].shape == (12,) and (got.history["depth"] == 3).all()


def test_how_the_run_is_cut_into_calls_changes_nothing():
    whole = run(S=P.S, steps=60)
    cut = run(S=P.S, steps=60, evaluate=lambda lam: 0.0, evaluate_every=7)
    assert equal(whole.lam, cut.lam) and equal(whole.history, cut.history)


def test_what_the_user_gave_is_left_alone():
    lam = jnp.array(P.lam)
    run(lam=lam, S=P.S)
    assert equal(lam, P.lam)  # not donated


def test_a_value_that_is_not_finite_stops_the_run():
    f = lambda w, lam, S: P.f(w, lam, S) / jnp.where(jnp.sum(lam) < -12.2, 0.0, 1.0)
    with pytest.raises(bx.DivergenceError, match=r"hyper-iteration \d+ failed: .*f\(w_T") as caught:
        run(f=f, S=P.S, steps=200)
    result = caught.value.result
    assert 0 < result.step == len(result.history["value"]) and jnp.isfinite(result.lam).all()
    plain = run(S=P.S, steps=result.step)
    np.testing.assert_allclose(result.lam, plain.lam, rtol=1e-12)


def test_an_update_that_is_not_finite_stops_the_run():
    with pytest.raises(bx.DivergenceError, match="outer update made lam not finite") as caught:
        run(S=P.S, optimizer=optax.chain(optax.sgd(1e308), optax.scale(1e308)))
    assert jnp.isfinite(caught.value.result.lam).all()


def test_an_inner_loop_that_diverges_stops_the_run():
    xi = bx.Descent(P.xi.g, P.xi.init, optax.sgd(1e6))
    with pytest.raises(
        bx.DivergenceError, match="hyper-iteration 1 failed: the inner loop diverged"
    ):
        run(xi=xi, S=P.S, T=100)


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=lambda x: x.__name__)
def test_minimize_inside_a_transformation_is_refused(transform):
    with pytest.raises(TypeError, match="minimize runs on the host, and was called inside jax.jit"):
        transform(lambda lam: run(lam=lam, S=P.S).lam)(P.lam[None])


MISTAKES = {
    "S and contexts were both given": dict(S=P.S, contexts=SAMPLER, key=KEY),
    "key is missing: give key": dict(contexts=SAMPLER),
    "key must be a key": dict(contexts=SAMPLER, key=jnp.zeros(2)),
    "key was given, but contexts is not a function": dict(S=P.S, key=KEY),
    "contexts is a generator function: call it": dict(contexts=Loader.__iter__),
    "optimizer must be an optax optimizer": dict(S=P.S, optimizer=0.1),
    "mesh must be a jax.sharding.Mesh": dict(S=P.S, mesh=jax.devices()),
    r"S\['val'\]\[1\] is not finite. f": dict(
        S=P.S | {"val": (P.S["val"][0], jnp.full_like(P.S["val"][1], jnp.nan))}
    ),
    "contexts must be a function key -> S or an iterator": dict(contexts=3),
    "batch = 4 asks for several contexts, but there is only S": dict(S=P.S, batch=4),
    "at_once = 3 must divide the 4 contexts": dict(contexts=SAMPLER, key=KEY, batch=4, at_once=3),
    "steps must be at least 1, got 0": dict(S=P.S, steps=0),
    "patience must be a Python int": dict(S=P.S, patience=2.5),
    "directory of a checkpoint must be a path": dict(S=P.S, checkpoint=True),
    "number or a dict of numbers": dict(S=P.S, evaluate=lambda lam: "good"),
    "evaluate.lam. returned a step": dict(S=P.S, evaluate=lambda lam: {"step": 1.0}),
    "evaluate.lam. returned an empty dict": dict(S=P.S, evaluate=lambda lam: {}),
    "lam is the Python float": dict(S=P.S, lam=3.0),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_named(text):
    with pytest.raises((TypeError, ValueError, bx.DivergenceError), match=text):
        run(**MISTAKES[text])


def events(path):
    """(step, name, number) of every record in an event file: length, crc, event, crc, ..."""
    from tensorboardX.proto import event_pb2

    data, at = path.read_bytes(), 0
    while at < len(data):
        (n,) = struct.unpack_from("<Q", data, at)
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + n])
        yield from ((event.step, x.tag, x.simple_value) for x in event.summary.value)
        at += 16 + n


def test_event_files(tmp_path):
    pytest.importorskip("tensorboardX")
    got = run(S=P.S, log_dir=tmp_path)
    (path,) = tmp_path.iterdir()
    seen = {(step, name): x for step, name, x in events(path)}
    for name in ("value", "h_norm"):
        written = [seen[step, name] for step in range(1, 13)]
        np.testing.assert_allclose(written, got.history[name], rtol=1e-6)


def test_progress_bar(capfd):
    run(S=P.S, progress=True)
    text = capfd.readouterr().err
    assert "12/12" in text and "|h|" in text and "/it" in text
    run(S=P.S)
    assert capfd.readouterr().err == ""  # not on a terminal


def test_old_keys_are_keys():
    old = run(contexts=SAMPLER, key=jax.random.PRNGKey(7))
    assert equal(old.lam, run(contexts=SAMPLER, key=KEY).lam)


def test_an_iterator_compiles_one_program_for_any_length():
    traced = []

    def f(w, lam, S):
        traced.append(1)
        return P.f(w, lam, S)

    def count(steps):
        del traced[:]
        run(f=f, contexts=Loader(), steps=steps)
        return len(traced)

    first = count(5)  # to look at it, and to compile it
    assert count(90) == count(40) < first


def test_any_error_carries_the_run():
    """Of evaluate, of a callback, of an iterator, of a second loop."""

    def evaluate(lam):
        raise OSError("no connection")

    with pytest.raises(OSError, match="no connection") as caught:
        run(S=P.S, evaluate=evaluate, evaluate_every=5)
    assert caught.value.result.step == 5
    assert equal(caught.value.result.lam, run(S=P.S, steps=5).lam)


def test_an_error_may_be_returned_instead():
    """For sweeps: what the numbers did is returned, mistakes of the caller are raised."""
    sweep = lambda size: run(S=P.S, optimizer=optax.sgd(size), throw=False)
    fine, wild = sweep(0.1), sweep(1e300)
    assert (fine.reason, fine.error) == ("steps", None)
    assert wild.reason == "error" and isinstance(wild.error, bx.DivergenceError)
    assert jnp.isfinite(wild.lam).all() and wild.step == len(wild.history["value"]) < 12
    assert wild.error.__traceback__ is None  # which would keep the arrays of its frames
    with pytest.raises(ZeroDivisionError):
        run(S=P.S, evaluate=lambda lam: 1 / 0, throw=False)


def test_old_names_of_arguments(tmp_path):
    given = dict(T=20, steps=12, optimizer=ADAM, S=P.S)
    with pytest.warns(
        DeprecationWarning, match="lam0 of minimize is deprecated.*write lam"
    ) as said:
        got = bx.minimize(P.f, P.xi, RULE, lam0=P.lam, **given)
    assert equal(got.lam, run(S=P.S).lam) and said[0].filename == __file__
    old = dict(checkpoint_dir=tmp_path, checkpoint_every=2, checkpoint_seconds=60.0, keep=1)
    with pytest.warns(DeprecationWarning, match=r"write checkpoint=bx.Checkpoint\("):
        run(S=P.S, **old)
    assert [p.name for p in tmp_path.glob("*.npz")] == ["bilevax-12.npz"]
    with pytest.warns(DeprecationWarning):
        run(S=P.S, checkpoint_dir=None)

"""A module as a function: what it holds, its modes, its state, and the way back."""

import pytest

pytest.importorskip("torch", reason="needs bilevax[torch]")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from nets import Transformer
from torch import nn

import bilevax as bx
from bilevax.torch import arrays, functional, implement, in_jax

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def normed(dropout=0.0):
    torch.manual_seed(0)
    layers = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(dropout), nn.Linear(4, 2)
    return nn.Sequential(*layers).double()


def test_parameters_frozen_ones_and_buffers_are_told_apart():
    module = normed()
    module[0].requires_grad_(False)
    net = functional(module)
    assert set(net.params) == {"1.weight", "1.bias", "4.weight", "4.bias"}
    assert set(net.frozen) == {"0.weight", "0.bias"}
    assert set(net.buffers) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert np.allclose(net(net.params, X), module(X).detach(), rtol=1e-12)


def test_the_module_does_not_change_until_it_is_loaded():
    module = normed()
    before = {k: t.clone() for k, t in module.state_dict().items()}
    net = functional(module)
    w, state = net.apply(net.params, net.buffers, X)[1], net.buffers
    doubled = {k: 2 * a for k, a in net.params.items()}
    net(doubled, X)
    assert all(torch.equal(before[k], t) for k, t in module.state_dict().items())
    assert module.training
    loaded = net.load(bx.Stateful(doubled, state | w))
    assert loaded is module and torch.equal(module[0].weight, 2 * before["0.weight"])
    assert int(module[1].num_batches_tracked) == 1
    assert np.allclose(net.params["0.weight"], before["0.weight"])  # a copy, not the same memory


def test_running_statistics_move_as_in_torch():
    module = normed()
    net = functional(module)
    state = net.buffers
    for scale in (1.0, 2.0, -0.5):
        out, state = net.apply(net.params, state, scale * X)
        want = module(scale * X)
    assert np.allclose(out, want.detach(), rtol=1e-12)
    for name, b in module.named_buffers():
        assert np.allclose(state[name], b, rtol=1e-12), name
    at_test = net.eval()(net.params, X, state=state)
    assert np.allclose(at_test, module.eval()(X).detach(), rtol=1e-12)
    assert "running statistics" in repr(net.eval()) and "of its batch" in repr(net.train())


def test_a_layer_keeps_the_mode_that_it_was_in():
    module = normed().train()
    module[1].eval()  # frozen statistics, as in fine-tuning
    net = functional(module)
    out, state = net.apply(net.params, net.buffers, X)
    assert np.allclose(out, module(X).detach(), rtol=1e-12)
    assert np.array_equal(state["1.running_mean"], net.buffers["1.running_mean"])


def test_dropout_draws_from_the_key_alone():
    net = functional(normed(dropout=0.5))
    run = jax.jit(lambda key: net(net.params, X, key=key))
    one, same, other = run(jax.random.key(0)), run(jax.random.key(0)), run(jax.random.key(1))
    assert np.array_equal(one, same) and not np.allclose(one, other)
    dropped = in_jax(lambda x: nn.functional.dropout(x, 0.3, False))
    assert np.array_equal(dropped(jnp.ones(3)), np.ones(3))
    with pytest.raises(ValueError, match=r"got no key: call net\(w, x, key=key\)"):
        net(net.params, X)
    many = functional(nn.Sequential(nn.Linear(1, 20_000), nn.Dropout(0.3)))
    zeros = many(many.params, jnp.ones((1, 1), jnp.float32), key=jax.random.key(2)) == 0
    assert abs(float(zeros.mean()) - 0.3) < 0.02


def test_dropout_in_every_rule_sees_the_same_masks():
    net = functional(normed(dropout=0.5))
    S = {"x": arrays(X), "key": jax.random.key(3)}
    sample = lambda S, t: S | {"key": jax.random.fold_in(S["key"], t)}
    g = lambda w, lam, S: jnp.sum(jnp.exp(lam) * jnp.mean(net(w, S["x"], key=S["key"]) ** 2, 0))
    f = lambda w, lam, S: jnp.sum(net.eval()(w, S["x"]))
    xi = bx.Descent(g, bx.constant(net.params), optax.sgd(0.1), sample)
    rules = bx.Reverse(), bx.Reverse(segment=2), bx.Forward()
    h = [bx.hypergradient(f, xi, rule, T=4)(jnp.zeros(2), S).h for rule in rules]
    assert np.allclose(h[0], h[1], rtol=1e-12) and np.allclose(h[0], h[2], rtol=1e-10)


def test_through_runs_any_function_of_the_module():
    net = functional(normed().eval())
    y = torch.arange(6) % 2
    loss = net.through(lambda m, x, y: nn.functional.cross_entropy(m(x), y))
    want = nn.functional.cross_entropy(net.module(X), y)
    assert np.allclose(loss(net.params, X, y), want.detach(), rtol=1e-12)


def test_groups_have_rates_of_their_own():
    module = normed()
    net = functional(module)
    rest = [*module[0].parameters(), *module[4].parameters()]
    labels = net.labels({"norm": module[1].parameters(), "rest": rest})
    opt = optax.multi_transform({"norm": optax.sgd(0.0), "rest": optax.sgd(0.1)}, labels)
    g = lambda w, lam, S: jnp.exp(lam) * jnp.mean(net(w, S) ** 2)
    xi = bx.Descent(g, bx.constant(net.params), opt)
    w = bx.solve(xi, jnp.asarray(0.0), arrays(X), T=3)
    moved = {k for k in w if not np.allclose(w[k], net.params[k])}
    assert moved and moved <= {"0.weight", "4.weight", "4.bias", "0.bias"}
    with pytest.raises(ValueError, match=r"'0.weight' is in no group: name it in exactly one"):
        net.labels({"norm": module[1].parameters()})


def test_tied_weights_are_one_parameter():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, i):
            return self.out(self.embed(i))

    module = Tied()
    net, i = functional(module), torch.tensor([1, 4])
    assert list(net.params) == ["embed.weight"]
    grad = jax.grad(lambda w: jnp.sum(net(w, i) ** 2))(net.params)["embed.weight"]
    (module(i) ** 2).sum().backward()
    assert np.allclose(grad, module.embed.weight.grad, rtol=1e-5)


def test_a_tensor_beside_the_buffers_is_a_constant_and_new_tensors_are_arrays():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.mask = nn.Linear(3, 3).double(), torch.tensor([1.0, 0.0, 2.0])

        def forward(self, x):
            return self.layer(x) * self.mask + torch.arange(3) + torch.zeros(3, device="cpu")

    net = functional(Masked())
    run = jax.jit(lambda x: net(net.params, x))
    assert np.allclose(run(arrays(X)), net.module(X).detach(), rtol=1e-12)


def test_tensors_share_memory_where_they_can():
    t = torch.ones(1000)
    assert arrays(t).unsafe_buffer_pointer() == t.data_ptr()
    assert arrays({"a": torch.tensor([True]), "n": 3}) == {"a": jnp.asarray([True]), "n": 3}
    with jax.enable_x64(False):
        assert arrays(torch.arange(3)).dtype == jnp.int32
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X[:, 0]), batch_size=2)
    x, y = arrays(next(iter(loader)))
    assert x.shape == (2, 3) and y.shape == (2,)


def test_the_fast_path_of_attention_is_left_as_it_was():
    assert torch.backends.mha.get_fastpath_enabled()
    net = functional(Transformer().eval())
    net(net.params, torch.zeros(2, 6, dtype=torch.long))
    assert torch.backends.mha.get_fastpath_enabled()


def test_an_operator_that_is_missing_is_named_with_the_way_out():
    airy = in_jax(torch.special.airy_ai)
    with pytest.raises(
        NotImplementedError, match=r"aten.special_airy_ai: .*bilevax.torch.implement"
    ):
        airy(jnp.ones(2))
    implement(torch.ops.aten.special_airy_ai, lambda x: 2 * x)
    assert np.array_equal(airy(jnp.ones(2)), [2, 2])


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"takes a torch.nn.Module, got the class Linear itself"):
        functional(nn.Linear)
    with pytest.raises(ValueError, match="nothing to train"):
        functional(nn.Linear(2, 2).requires_grad_(False))
    net = functional(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="w lacks 'bias'"):
        net({"weight": net.params["weight"]}, jnp.ones((1, 2)))
    with pytest.raises(ValueError, match=r"'bias' has shape \(3,\), the module's \(2,\)"):
        net.load(net.params | {"bias": jnp.ones(3)})
    with pytest.raises(TypeError, match="net.load takes the parameters, .* train once more"):
        net.load(jnp.ones(3))


def test_tensors_in_S_become_arrays_everywhere():
    net = functional(nn.Linear(3, 1).double())
    loss = lambda w, S: jnp.mean((net(w, S["x"])[:, 0] - S["y"]) ** 2)
    g = lambda w, lam, S: jnp.exp(lam) * loss(w, S)
    f = lambda w, lam, S: loss(w, S)
    xi, lam = bx.Descent(g, bx.constant(net.params), optax.sgd(0.1)), jnp.asarray(0.0)
    tensors = {"x": X, "y": X[:, 0]}
    hg = bx.hypergradient(f, xi, bx.Reverse(), T=2)
    assert np.allclose(hg(lam, tensors).h, hg(lam, arrays(tensors)).h, rtol=1e-12)
    bx.solve(xi, lam, tensors, T=2)
    bx.diagnose(f, xi, lam, tensors, T=2, lanczos=0)
    run = lambda **kw: bx.minimize(
        f, xi, bx.Reverse(), lam, T=2, steps=2, optimizer=optax.sgd(0.1), **kw
    )
    loader = torch.utils.data.DataLoader([{"x": X, "y": X[:, 0]}] * 3, batch_size=None)
    assert np.allclose(run(S=tensors).lam, run(contexts=loader).lam, rtol=1e-12)
    with pytest.raises(TypeError, match=r"S\['x'\] is a torch.Tensor that cannot become an array"):
        hg(lam, tensors | {"x": X.clone().requires_grad_()})


def test_every_public_name_has_an_example_and_a_place():
    import pathlib

    import bilevax.torch

    page = (pathlib.Path(__file__).parents[2] / "docs" / "api" / "torch.md").read_text("utf-8")
    public = {n for n in vars(bilevax.torch) if not n.startswith("_") and n[0].isalpha()}
    assert public == {"Functional", "arrays", "functional", "implement", "in_jax"}
    for name in public:
        assert f"::: bilevax.torch.{name}\n" in page
        assert ">>> " in getattr(bilevax.torch, name).__doc__

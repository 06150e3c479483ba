"""What a user of PyTorch gets wrong at first ends in a sentence, not in wrong numbers."""

import warnings

import pytest

pytest.importorskip("torch", reason="needs bilevax[torch]")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
import torch.nn.functional as F
from torch import nn

import bilevax as bx
from bilevax.torch import arrays, functional, in_jax


def test_a_load_that_leaves_running_statistics_behind_warns():
    net = functional(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    with pytest.warns(UserWarning, match=r"'1.running_mean' and all other.*net.load\(w, net.bu"):
        net.load(net.params)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.load(bx.Stateful(net.params, net.buffers))
        net.load(net.params, net.buffers)
        net.eval().load(net.params)
        plain = functional(nn.BatchNorm1d(2, track_running_stats=False))
        plain.load(plain.params)


def test_integers_that_JAX_would_wrap_are_refused():
    large = torch.tensor([-3, 2**31, 2**40 + 7])
    with jax.enable_x64(False):
        with pytest.raises(ValueError, match=r"int64 numbers from -3 to 1099511627783.*x64"):
            arrays(large)
        assert arrays(torch.tensor([2**31 - 1, -(2**31)])).dtype == jnp.int32
        assert arrays(torch.zeros(0, dtype=torch.int64)).size == 0
    assert np.array_equal(arrays(large), large)


@pytest.mark.parametrize("label", [-1, 3, 7])
def test_a_label_or_token_that_is_none_gives_nan_and_no_number(label):
    loss = lambda z: in_jax(F.cross_entropy)(z, jnp.asarray([0, label, 2]))
    value, slope = jax.value_and_grad(loss)(jnp.zeros((3, 3)))
    assert np.isnan(value) and np.isnan(slope[1]).any()
    rows = in_jax(F.embedding)(jnp.asarray([0, label]), jnp.ones((3, 2)))
    assert np.isfinite(rows[0]).all() and np.isnan(rows[1]).all()
    ignored = in_jax(F.cross_entropy)(jnp.zeros((3, 3)), jnp.asarray([0, -100, 2]))
    assert np.isclose(ignored, np.log(3))


LOST = {
    "each row": lambda x: [row.sub_(1.0) for row in x],
    "view": lambda x: x.view(-1).mul_(2.0),
    "an item of a view": lambda x: x.view(-1).__setitem__(3, 0.0),
    "an item of a transpose": lambda x: x.t()[0].add_(1.0),
    "data of a view": lambda x: setattr(x.view(-1), "data", torch.zeros(16)),
    "reshape": lambda x: x.reshape(x.shape).neg_(),
    "flatten": lambda x: x.flatten().neg_(),
    "rows": lambda x: x[1:].reshape(-1).neg_(),
    "flatten a part": lambda x: x[1:].flatten().neg_(),
    "view_as": lambda x: x.view_as(x).neg_(),
    "squeeze": lambda x: x.squeeze().neg_(),
    "unsqueeze": lambda x: x.unsqueeze(0).mul_(2.0),
    "chunk": lambda x: x.chunk(2)[1].zero_(),
    "unbind": lambda x: x.unbind()[1].zero_(),
    "expand_as": lambda x: x.expand_as(x.clone()).mul_(2.0),
    "unfold": lambda x: x.unfold(0, 2, 2).mul_(2.0),
    "a view of a view": lambda x: x.view(2, 8).view(16).exp_(),
    "relu": lambda x: F.relu(x.view(-1), inplace=True),
    "out": lambda x: torch.add(x, 1.0, out=x.view(4, 4)),
    "no_grad": lambda x: torch.no_grad()(lambda: x.view(-1).mul_(2.0))(),
}
LINE = r"writes in place into a tensor or into its view .*test_mistakes.py, line \d+"


@pytest.mark.parametrize("write", LOST.values(), ids=LOST)
def test_what_is_written_into_a_view_that_is_a_copy_is_not_lost_in_silence(write):
    def reads(x):
        x = x.clone()
        write(x)
        return x * 1.0

    def returns(x):
        write(x)
        return x

    with pytest.raises(NotImplementedError, match=LINE):
        in_jax(reads)(jnp.ones((4, 4)))
    with pytest.raises(NotImplementedError, match="writes in place into a tensor or into its view"):
        in_jax(returns)(jnp.ones((4, 4)))


def test_a_view_does_not_see_what_is_written_into_its_base():
    def reads(x):
        flat = x.view(-1)
        x.mul_(2.0)
        return flat + 1.0

    with pytest.raises(NotImplementedError, match=LINE):
        in_jax(reads)(jnp.ones((4, 4)))


def test_a_buffer_is_not_lost_either():
    net = functional(nn.BatchNorm1d(2).eval()).through(lambda m, x: m.running_var.view(-1).add_(1))
    with pytest.raises(NotImplementedError, match="writes in place into a tensor or into its view"):
        net(net.params, jnp.ones((4, 2)))


KEPT = {
    "the view is read": lambda x: F.relu(x.view(-1), inplace=True),
    "a copy of a transpose": lambda x: x.t().contiguous().mul_(2.0) * x,
    "reshaped after a transpose": lambda x: x.t().reshape(-1).mul_(2.0) * x.sum(),
    "a copy of a column": lambda x: x[:, 0].contiguous().mul_(2.0) * x,
    "a copy in another order": lambda x: (
        x.view(1, 2, 2, 4).contiguous(memory_format=torch.channels_last).mul_(2.0) * x.sum()
    ),
    "reshaped columns": lambda x: x[:, 1:].reshape(-1).mul_(2.0) * x.sum(),
    "a clone": lambda x: x.view(-1).clone().mul_(2.0) * x.sum(),
    "another dtype": lambda x: x.float().mul_(2.0) * x,
    "pieces": lambda x: [a := x.chunk(2), a[0].mul_(2.0)] and a[0] * a[1],
    "parts": lambda x: [x[1].mul_(2.0), x.diagonal().neg_()] and x * x,
    "flatten": lambda x: x[None].flatten(1) * 2,
}


@pytest.mark.parametrize("function", KEPT.values(), ids=KEPT)
def test_what_is_not_lost_is_not_refused(function):
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert np.allclose(in_jax(function)(arrays(x.clone())), function(x.clone()), rtol=1e-6)


ASKS = {
    "numpy of detach": lambda x: x + torch.as_tensor(x.detach().numpy()),
    "numpy of a part": lambda x: x + torch.as_tensor(x[0].numpy()),
    "tolist of a part": lambda x: x + torch.tensor(x[0].tolist()),
    "a mask": lambda x: x[x.sum(1) > 0],
    "item": lambda x: x * x.sum().item(),
}


@pytest.mark.parametrize("function", ASKS.values(), ids=ASKS)
def test_who_asks_for_a_value_is_told_where(function):
    with pytest.raises(TypeError, match=r"asks for the value .*test_mistakes.py, line \d+"):
        jax.jit(in_jax(function))(jnp.ones((2, 2)))


def test_groups_that_are_none():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    net, read = functional(module), module.parameters()
    assert set(net.labels({"all": read}).values()) == {"all"}
    with pytest.raises(ValueError, match="the group 'all' has no parameters: an iterator"):
        net.labels({"all": read})
    groups = torch.optim.SGD(module.parameters(), 0.1).param_groups
    with pytest.raises(TypeError, match=r"groups must be a dict, got .* list: .*opt.param_groups"):
        net.labels(groups)
    named = {str(i): group["params"] for i, group in enumerate(groups)}
    assert set(net.labels(named).values()) == {"0"}
    for group in (module[0].weight, module[0], module, groups[0], module.named_parameters()):
        with pytest.raises(TypeError, match=r"'b' must be parameters, got a value .*; |\[p\] for"):
            net.labels({"b": group})


def test_a_state_that_is_forgotten_and_keywords_of_a_loss():
    net, x, y = functional(nn.Linear(3, 2)), jnp.ones((2, 3)), jnp.asarray([0, 1])
    with pytest.raises(TypeError, match=r"state must be a dict of arrays, got .* net.apply\(w, st"):
        net.apply(net.params, x)
    with pytest.raises(TypeError, match="w must be a dict of arrays, got a value of type"):
        net(x, net.params)
    each = in_jax(F.cross_entropy)(x, y, reduction="none", weight=jnp.asarray([1.0, 1.0, 2.0]))
    assert np.allclose(each, np.log(3))


def test_data_that_are_not_read():
    data = torch.utils.data.TensorDataset(torch.ones(4, 3))
    for given in (data, torch.utils.data.Subset(data, [0]), torch.utils.data.DataLoader(data)):
        with pytest.raises(TypeError, match="arrays takes tensors, got .*: read its batches"):
            arrays({"train": given})
        with pytest.raises(TypeError, match="S must be an array .*read the batches of a loader"):
            bx.solve(XI, jnp.zeros(2), given, T=1)


XI = bx.Descent(lambda w, lam, S: jnp.sum(lam * w), bx.constant(jnp.ones(2)), optax.sgd(0.1))


def test_tensors_where_arrays_must_be():
    with pytest.raises(TypeError, match=r"lam must be .* Tensor: give .*arrays\(lam\)\."):
        bx.solve(XI, torch.zeros(2), None, T=1)
    xi = bx.Descent(lambda w, lam, S: lam * w["bias"].sum(), bx.constant(MODULE.state_dict()), SGD)
    with pytest.raises(TypeError, match=r"w\['weight'\] must be .* Tensor: .* or net.params of"):
        bx.solve(xi, jnp.asarray(0.0), None, T=1)


MODULE, SGD = nn.Linear(2, 2), optax.sgd(0.1)

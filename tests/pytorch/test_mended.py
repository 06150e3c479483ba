"""What torchax leaves out, or computes otherwise, is as in torch."""

import copy

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

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EYE = torch.eye(4, dtype=torch.float64)

NORMS = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "BatchNorm1d, momentum None": (lambda: nn.BatchNorm1d(4, momentum=None), (6, 4)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4, momentum=0.7), (3, 4, 3, 4)),
    "BatchNorm2d, momentum None": (lambda: nn.BatchNorm2d(4, momentum=None), (3, 4, 3, 4)),
    "InstanceNorm2d": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        (3, 4, 3, 4),
    ),
}


@pytest.mark.parametrize("make, shape", NORMS.values(), ids=NORMS)
def test_statistics_after_training_are_torchs_in_eval_mode(make, shape):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), make()).double().train()
    xs = torch.randn(4, *shape, dtype=torch.float64)
    theirs = copy.deepcopy(module)
    net = functional(module)

    def g(model, lam, S):
        out, state = net.apply(*model, S)
        return jnp.exp(lam) * jnp.mean(out**2), state

    start = bx.Stateful(net.params, net.buffers)
    xi = bx.Descent(g, bx.constant(start), optax.sgd(0.3, momentum=0.9), lambda S, t: S[t])
    net.load(bx.solve(xi, jnp.asarray(0.0), arrays(xs), T=4))
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.3, momentum=0.9)
    for x in xs:
        optimizer.zero_grad()
        (theirs(x) ** 2).mean().backward()
        optimizer.step()
    for name, buffer in theirs.named_buffers():
        assert np.allclose(dict(module.named_buffers())[name], buffer, rtol=1e-12), name
    want = theirs.eval()(xs[0]).detach()
    assert np.allclose(module.eval()(xs[0]).detach(), want, rtol=1e-10, atol=1e-12)
    assert part_momentum(module) == part_momentum(theirs)


def part_momentum(module):
    return module[1].momentum


def without_graph(x):
    with torch.no_grad():
        target = torch.softmax(x, 1)
    return target * x


def view_without_graph(x):
    with torch.no_grad():
        first = x[1:]
    return first * x[:-1]


def written_without_graph(x):
    y = x.clone()
    with torch.no_grad():
        y.mul_(3.0)
    return y * x


def filled(x):
    y = x.clone()
    y.diagonal().fill_(1.0)
    y.select(0, 1).mul_(2.0)
    y.narrow(0, 2, 2).neg_()
    y[:1].masked_fill_(y[:1] > 0, 0.5)
    y[3].zero_()
    return y


def data_given(x):
    y = 2 * x
    y.data = y.data.clamp(-1.0, 1.0)
    return y * y


def detached_and_written(x):
    y = x.clone()
    part = y.detach()
    part[0] = 3.0
    y.mul_(2.0)
    return y * part


def items_written_without_graph(x):
    y = 2 * x
    with torch.no_grad():
        y[1] = x[2] * 3
    return y * y


def items_written_into_parts(x):
    y = x.clone()
    y[:3][x[:3] > 0] = 0.5
    y[1:][torch.tensor([0, 2])] = x[:2]
    return y * x


SAME = {
    "data given": data_given,
    "detached and written": detached_and_written,
    "items written in no_grad": items_written_without_graph,
    "items written into parts": items_written_into_parts,
    "torch.tensor": lambda x: torch.tensor(np.arange(4) / 3) * x,
    "transposed convolution in groups": lambda x: F.conv_transpose2d(
        x.reshape(1, 4, 2, 2), X.reshape(4, 2, 1, 2), stride=2, groups=2
    ),
    "mean over windows, ceil_mode": lambda x: F.avg_pool2d(x[None], 3, 2, 1, ceil_mode=True),
    "mean over windows": lambda x: F.avg_pool2d(x[None], 2),
    "no_grad": without_graph,
    "a view in no_grad": view_without_graph,
    "written in no_grad": written_without_graph,
    "data": lambda x: x.data**2 * x,
    "detached view": lambda x: x[0].detach() * x,
    "detach_": lambda x: (2 * x).detach_() * x,
    "straight through": lambda x: x + (torch.sign(x) - x).detach(),
    "written into parts": filled,
    "rows of a part": lambda x: x[1:][torch.tensor([2, 0])] * x[:2],
    "fill_diagonal_": lambda x: x.clone().fill_diagonal_(2.0) * x,
    "type_as": lambda x: x.float().type_as(x) * x.type_as(x),
    "solve": lambda x: torch.linalg.solve(x @ x.T + EYE, x),
    "solve, a vector": lambda x: torch.linalg.solve(x @ x.T + EYE, x[0]),
    "solve, from the right": lambda x: torch.linalg.solve(x @ x.T + EYE, x, left=False),
    "jacrev": lambda x: torch.func.jacrev(lambda a: (a**3).sum(0))(x),
    "cdist": lambda x: torch.cdist(x, x.flip(0) + 0.1),
    "cdist, p = 1": lambda x: torch.cdist(x, x.flip(0) + 0.1, p=1.0),
    "lgamma": lambda x: torch.lgamma(x.abs() + 0.1),
    "logit": lambda x: torch.logit(torch.sigmoid(x), 1e-3),
    "spectral norm": lambda x: SPECTRAL(x),
}
torch.manual_seed(0)
SPECTRAL = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).double().eval()


@pytest.mark.parametrize("function", SAME.values(), ids=SAME)
def test_numbers_and_derivatives_are_torchs(function):
    """torch's derivative does not pass `no_grad`, `data` and `detach`; so ours must not."""
    x = X.clone().requires_grad_()
    want = function(x)
    weights = torch.linspace(0.3, 1.7, want.numel(), dtype=torch.float64).reshape(want.shape)
    (slope,) = torch.autograd.grad((want * weights).sum(), x)
    run = in_jax(function)
    value = lambda a: (jnp.sum(run(a) * arrays(weights)), run(a))
    grad, out = jax.jit(jax.grad(value, has_aux=True))(arrays(X))
    assert out.dtype == jnp.float64 and np.allclose(out, want.detach(), rtol=1e-12, atol=1e-14)
    assert np.allclose(grad, slope, rtol=1e-10, atol=1e-12)


def test_no_grad_around_a_call_says_nothing_about_JAX():
    net = functional(nn.Linear(2, 1).double())
    with torch.no_grad():
        grad = jax.grad(lambda w: jnp.sum(net(w, jnp.ones((3, 2)))))(net.params)
    assert float(grad["bias"][0]) == 3.0


def test_a_function_with_a_backward_of_its_own_is_refused():
    class Sign(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.sign(x)

        @staticmethod
        def backward(ctx, g):
            return g

    sign = Sign.apply  # as people bind it, once and for all
    with pytest.raises(
        NotImplementedError,
        match=r"a torch.autograd.Function \(.*test_mended.py, line \d+\), whose .*detach",
    ):
        in_jax(lambda x: sign(x))(jnp.ones(3))
    assert torch.equal(Sign.apply(torch.ones(2)), torch.ones(2))  # elsewhere it works as before


def test_a_module_that_asks_for_values_is_told_where():
    class Clipped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    net = functional(Clipped())
    with pytest.raises(
        TypeError, match=r"asks for the value of a tensor \(.*test_mended.py, line \d+"
    ):
        jax.jit(lambda x: net(net.params, x))(jnp.ones((1, 2)))


def clamps(module, x):
    with torch.no_grad():
        module.weight.clamp_(-0.1, 0.1)
    return module(x)


def gives_data(module, x):
    module.weight.data = module.weight.data * 0.9
    return module(x)


@pytest.mark.parametrize("does", [clamps, gives_data])
def test_a_module_that_writes_into_its_parameters_is_refused(does):
    net = functional(nn.Linear(2, 2)).through(does)
    with pytest.raises(NotImplementedError, match="writes into its parameter 'weight' while"):
        net(net.params, jnp.ones((1, 2)))


REFUSED = {
    "embedding_renorm_": lambda x: F.embedding(torch.tensor([0, 1]), x, max_norm=0.1),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, -1, 0]])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_operator_with_wrong_numbers_is_refused(name):
    with pytest.raises(NotImplementedError, match=f"cannot run the operator aten.{name}"):
        in_jax(REFUSED[name])(jnp.ones((1, 3)))


def test_one_row_is_refused_as_in_torch():
    net = functional(nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        net(net.params, jnp.ones((1, 2)))

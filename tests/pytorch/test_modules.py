"""Hypergradients through modules of PyTorch are those of torch's own autograd."""

import pytest

pytest.importorskip("torch", reason="needs bilevax[torch]")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from nets import NETS, Task

import bilevax as bx
from bilevax.torch import arrays, functional

T = 6
RULES = [(bx.Reverse(K=5), 5), (bx.Reverse(segment=2), T)]
HEAVY = {"resnet"}
CASES = [pytest.param(name, marks=pytest.mark.slow if name in HEAVY else []) for name in NETS]


def hypergradients(task, rules, T=T):
    net, lam = functional(task.module), arrays(list(task.lam))
    S = arrays({"train": (task.x[0], task.y[0]), "val": (task.x[1], task.y[1])})
    losses = lambda w, data: optax.softmax_cross_entropy_with_integer_labels(
        net(w, data[0]), data[1]
    )
    g = lambda w, lam, S: jnp.mean(jax.nn.sigmoid(lam[0]) * losses(w, S["train"]))
    f = lambda w, lam, S: jnp.mean(losses(w, S["val"]))
    opt = lambda lam: optax.sgd(jnp.exp(lam[1]), momentum=0.5)
    xi = bx.Descent(g, bx.constant(net.params), opt)
    return [bx.hypergradient(f, xi, rule, T=T)(lam, S) for rule in rules]


def assert_equal(out, want, rtol):
    h, value = want
    flat = lambda a: np.concatenate([np.ravel(x) for x in a])
    error = np.linalg.norm(flat(out.h) - flat(h)) / np.linalg.norm(flat(h))
    assert error <= rtol and abs(float(out.value) - value) <= rtol * abs(value), error


@pytest.mark.parametrize("name", CASES)
def test_float64(name):
    task = Task(name, torch.float64)
    outs = hypergradients(task, [rule for rule, _ in RULES])
    for out, (_, K) in zip(outs, RULES, strict=True):
        assert_equal(out, task.autograd(T, K), 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "batch norm", "lstm", "resnet"])
def test_float32(name):
    task = Task(name, torch.float32)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        outs = hypergradients(task, [rule for rule, _ in RULES])
    for out, (_, K) in zip(outs, RULES, strict=True):
        assert_equal(out, task.autograd(T, K), 1e-5)

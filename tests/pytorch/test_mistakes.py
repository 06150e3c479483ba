"""What a user of PyTorch gets wrong at first ends in a sentence, not in wrong numbers."""

import warnings

import pytest

pytest.importorskip("torch", reason="needs bilevax[torch]")

import jax
import jax.numpy as jnp
import numpy as np
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
        with pytest.raises(ValueError, match=r"int64 holds the numbers -3 to 1099511627783.*x64"):
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

"""Tensors as arrays, and functions of the ones as functions of the others."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.utils.data
from jaxtyping import PyTree

from . import _errors as errors
from . import _views as views
from ._array import Tensor, array
from ._environment import ENVIRONMENT, running


def arrays(tree: PyTree) -> PyTree:
    """The same pytree, with JAX arrays in place of tensors.

    Memory is shared where dlpack allows (dense tensors of a dtype that JAX has at its current
    precision): do not write into such a tensor afterwards. Others are copied, and 64 bits become 32
    unless `jax_enable_x64` is set; integers that do not fit are refused. What is not a tensor stays
    as it is.

    !!! example

        >>> import torch
        >>> from bilevax.torch import arrays
        >>> arrays({"x": torch.ones(2), "y": torch.tensor([3, 4])})
        {'x': Array([1., 1.], dtype=float32), 'y': Array([3, 4], dtype=int32)}
    """
    return jax.tree.map(_leaf, tree)


def _leaf(a: Any) -> Any:
    if isinstance(a, (torch.utils.data.DataLoader, torch.utils.data.Dataset)):
        errors.not_read(a)
    return array(a) if isinstance(a, torch.Tensor) else a


def enter(tree: PyTree) -> PyTree:
    """Arrays, and tensors that are not torchax's, as torchax's tensors."""
    wrap = lambda a: Tensor(a, ENVIRONMENT) if eqx.is_array(a) else a
    return jax.tree.map(lambda a: wrap(jnp.asarray(a) if _is_number(a) else a), arrays(tree))


def leave(tree: PyTree) -> PyTree:
    """What comes out, as arrays."""
    views.check(tree)
    return arrays(tree)


def _is_number(a: Any) -> bool:
    return isinstance(a, (np.ndarray, np.generic))


class _InJax(eqx.Module):
    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> PyTree:
        with running(None):
            return leave(self.function(*enter(args), **enter(kwargs)))


def in_jax(function: Callable[..., Any]) -> Callable[..., PyTree]:
    """A function of tensors, such as a loss of `torch.nn.functional`, as a function of arrays.

    !!! example

        >>> import torch, jax.numpy as jnp
        >>> from bilevax.torch import in_jax
        >>> loss = in_jax(torch.nn.functional.cross_entropy)
        >>> loss(jnp.zeros((4, 2)), jnp.asarray([0, 1, 1, 0]))
        Array(0.6931472, dtype=float32)
    """
    return _InJax(function)

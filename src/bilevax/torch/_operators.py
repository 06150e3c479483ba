"""Operators that torchax 0.0.13 computes otherwise than torch, as functions of arrays."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array


def _solve(a: Array, b: Array, *, left: bool = True) -> Array:
    """torchax takes a square b for a batch of vectors."""
    if b.ndim == 1 or b.shape == a.shape[:-1]:
        return jnp.linalg.solve(a, b[..., None])[..., 0]
    if left:
        return jnp.linalg.solve(a, b)
    return jnp.linalg.solve(a.mT, b.mT).mT


def _solve_ex(a: Array, b: Array, *, left: bool = True, check_errors: bool = False) -> Any:
    return _solve(a, b, left=left), jnp.zeros(a.shape[:-2], jnp.int32)


def _cdist(x: Array, y: Array, p: float = 2.0, compute_mode: Any = None) -> Array:
    """Also in float64, and with a derivative of 0 where two points are the same."""
    size = jnp.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 0:
        return jnp.sum(size != 0, -1).astype(x.dtype)
    if p == float("inf"):
        return jnp.max(size, -1)
    total = jnp.sum(jnp.where(size > 0, size, 1) ** p * (size > 0), -1)
    return jnp.where(total > 0, jnp.where(total > 0, total, 1) ** (1 / p), 0)


def _logit(x: Array, eps: float | None = None) -> Array:
    return jax.scipy.special.logit(x if eps is None else jnp.clip(x, eps, 1 - eps))


def _convolution(theirs: Callable[..., Array]) -> Callable[..., Array]:
    """torchax mixes the channels of groups if it is transposed: its reshape expects this order."""

    def convolution(x, w, bias, stride, padding, dilation, transposed, *rest):
        if transposed:
            groups = rest[-1]
            w = w.reshape(groups, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
        return theirs(x, w, bias, stride, padding, dilation, transposed, *rest)

    return convolution


def _avg_pool(theirs: Callable[..., Array]) -> Callable[..., Array]:
    """torchax miscounts the numbers of a window that ends behind the padding, as of ceil_mode."""

    def avg_pool(x, size, stride=None, padding=0, ceil_mode=False, count_pad=True, divisor=None):
        if not count_pad or divisor is not None:
            return theirs(x, size, stride, padding, ceil_mode, count_pad, divisor)
        out = theirs(x, size, stride, padding, ceil_mode, True, 1)
        n = len(size)
        pads = np.broadcast_to(padding, n)
        for axis, width, step, pad in zip(range(-n, 0), size, stride or size, pads, strict=True):
            first = np.arange(out.shape[axis]) * step - pad
            count = np.minimum(first + width, x.shape[axis] + pad) - first
            out = out / count.reshape(-1, *(1,) * (-axis - 1))
        return out

    return avg_pool


def _tensor(theirs: Callable[..., Array]) -> Callable[..., Array]:
    """Of an array: its numbers in its own dtype, without its derivative."""

    def made(data, *, dtype=None, **rest):
        kinds = [a.dtype for a in jax.tree.leaves(data) if hasattr(a, "dtype")]
        if dtype is None and kinds:
            return jax.lax.stop_gradient(jnp.array(data, jnp.result_type(*kinds)))
        return jax.lax.stop_gradient(theirs(data, dtype=dtype, **rest))

    return made


def _nan_outside(n: int, index: Array, take: Callable[[Array], Array], axes: int = 0) -> Array:
    """NaN where an index is none, also in the derivative; torch raises, and JAX cannot."""
    out = take(jnp.clip(index, 0, n - 1))
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        return out
    inside = ((index >= 0) & (index < n)).reshape(index.shape + (1,) * axes)
    return out * jnp.where(inside, 1, jnp.nan).astype(out.dtype)


def _gather(theirs: Callable[..., Array]) -> Callable[..., Array]:
    """torchax takes the nearest number, so that a loss of a label that is no class looks right."""

    def gather(x, axis, index, **rest):
        n = x.shape[axis] if x.ndim else 1
        return _nan_outside(n, index, lambda i: theirs(x, axis, i))

    return gather


def _embedding(theirs: Callable[..., Array]) -> Callable[..., Array]:
    """torchax counts negative indices from the end."""

    def embedding(table, index, *rest, **named):
        return _nan_outside(len(table), index, lambda i: theirs(table, i, *rest, **named), 1)

    return embedding


IN_JAX = {
    torch.ops.aten.detach: jax.lax.stop_gradient,
    torch.linalg.solve: _solve,
    torch.linalg.solve_ex: _solve_ex,
    # in torchax some of their numbers are of float32
    torch.cdist: _cdist,
    torch.ops.aten.lgamma: jax.scipy.special.gammaln,
    torch.ops.aten.digamma: jax.scipy.special.digamma,
    torch.ops.aten.logit: _logit,
}
"""Operators as functions of arrays."""

AROUND = {
    torch.tensor: _tensor,
    torch.ops.aten.gather: _gather,
    torch.ops.aten.embedding: _embedding,
    torch.ops.aten.convolution: _convolution,
    torch.ops.aten.avg_pool1d: _avg_pool,
    torch.ops.aten.avg_pool2d: _avg_pool,
    torch.ops.aten.avg_pool3d: _avg_pool,
}
"""What to make of torchax's operators."""

WRONG = (
    torch.ops.aten.embedding_renorm_,
    torch.ops.aten.multilabel_margin_loss_forward.default,
)
"""What we take away: the first changes nothing, and the numbers of the second are wrong."""

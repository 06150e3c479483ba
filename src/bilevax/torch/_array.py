"""One tensor as an array, and one array as a tensor."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array

from .._errors.integers import require_fit
from ._torchax import tensor

Tensor, View = tensor.Tensor, tensor.View


def array(t: Any) -> Array:
    """Without a copy where dlpack allows."""
    if isinstance(t, (Tensor, View)):
        return t.jax()
    t = t.detach()
    dtype = jnp.dtype(str(t.dtype).removeprefix("torch."))
    if t.dtype == torch.bool or dtype != jax.dtypes.canonicalize_dtype(dtype):
        values = t.cpu().numpy()
        require_fit(values, "a tensor")
        return jnp.asarray(values)
    return jnp.from_dlpack(t.contiguous())


def copied(t: Any) -> Array:
    """In memory of its own: what the module does later does not reach it."""
    return jnp.array(array(t), copy=True)


def tensor_of(a: Array, like: Any) -> Any:
    """An array as a tensor of the dtype and device of another."""
    values = np.array(a.astype(jnp.float32) if a.dtype == jnp.bfloat16 else a)
    return torch.from_numpy(values).to(like.device, like.dtype)

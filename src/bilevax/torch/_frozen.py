"""Tensors through which no derivative passes: `torch.no_grad`, `detach`, `data`."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._array import View
from ._torchax import view


class Frozen(View):
    """The same numbers without a derivative. What is written changes them, as in torch: in value,
    not in their own derivative."""

    @staticmethod
    def __new__(cls, of: Any) -> "Frozen":
        return View.__new__(cls, of, view.NarrowInfo(...), of._env)

    def __init__(self, of: Any):
        super().__init__(of, view.NarrowInfo(...), of._env)

    def source_jax(self) -> Array:
        return jax.lax.stop_gradient(super().source_jax())

    def replace_source_jax(self, new_value: Array) -> None:
        old, new = super().source_jax(), jax.lax.stop_gradient(new_value)
        if jnp.issubdtype(old.dtype, jnp.inexact):
            new = new + jnp.where(jnp.isfinite(old), old - jax.lax.stop_gradient(old), 0)
        super().replace_source_jax(new.astype(old.dtype))

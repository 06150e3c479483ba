"""Where a module's operators run on JAX arrays, and what bilevax asks of it beyond torchax."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import torch
from jaxtyping import Array

from . import _errors as errors
from . import _mended as mended
from . import _views as views
from ._array import Tensor, View, array
from ._frozen import Frozen
from ._torchax import tensor


class Environment(tensor.Environment):
    """torchax's, where everything is on JAX's device, and nothing is random without a key.

    A tensor that the module keeps outside parameters and buffers, such as a mask, is a constant.
    """

    def get_and_rotate_prng_key(self, generator: Any = None) -> Array:
        if self.param.prng is None:  # one of torchax's own would be the same in every step
            errors.no_key()
        return super().get_and_rotate_prng_key(None)

    def dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        views.check((args, kwargs))
        out = self._dispatch(func, types, args, kwargs)
        views.follow(func, args, kwargs, out)
        return out

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Where torch keeps no graph, JAX must pass no derivative."""
        if torch.is_grad_enabled():
            return super().dispatch(func, types, args, kwargs)
        freeze = lambda x: Frozen(x) if isinstance(x, (Tensor, View)) else x
        args, kwargs = torch.utils._pytree.tree_map(freeze, (args, kwargs or {}))
        return super().dispatch(func, types, args, kwargs)

    def t2j_iso(self, torchtensors: Any) -> Any:
        plain = lambda x: x.item() if x.ndim == 0 else array(x)
        convert = lambda x: x.jax() if isinstance(x, (Tensor, View)) else plain(x)
        return torch.utils._pytree.tree_map_only(torch.Tensor, convert, torchtensors)

    def _should_use_torchax_tensor(self, device: Any) -> bool:
        return True

    def _is_same_device(self, the_tensor: Any, new_device: Any) -> bool:
        return isinstance(the_tensor, (Tensor, View))


with jax.ensure_compile_time_eval():
    ENVIRONMENT = Environment()
mended.mend(ENVIRONMENT)


def implement(operator: Any, function: Callable[..., Any]) -> None:
    """Give an operator of torch that torchax cannot run as a function of JAX arrays.

    **Arguments:**

    - `operator`: the operator that the error names, as in `torch.ops.aten.special_airy_ai`.
    - `function`: the same in JAX; it gets the operator's arguments, with arrays for tensors.

    !!! example

        >>> import torch, jax.numpy as jnp
        >>> from bilevax.torch import implement, in_jax
        >>> j0 = torch.special.spherical_bessel_j0
        >>> implement(torch.ops.aten.special_spherical_bessel_j0, lambda x: jnp.sinc(x / jnp.pi))
        >>> round(float(in_jax(j0)(jnp.asarray(2.0))), 4)
        0.4546
    """
    if not callable(function):
        raise TypeError(f"function must be a function of arrays, got {type(function).__name__}.")
    register = tensor.ops_registry.Operator
    ENVIRONMENT._ops[operator] = register(operator, function, True, True, False, False)


_unwrap = torch._functorch.utils.unwrap_dead_wrappers


def _refusing(args: Any) -> Any:
    """`Function.apply` calls this first: JAX does not see the derivative that it would give."""
    if any(isinstance(a, (Tensor, View)) for a in args):
        errors.own_derivative()
    return _unwrap(args)


@contextmanager
def running(key: Array | None) -> Iterator[Environment]:
    """Inside, operators on torchax's tensors run on JAX arrays, as torch would run them.

    Numbers are promoted as torch promotes them, and random ones are drawn from the key.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it calls operators that torchax has not
    try:
        with (
            torch.enable_grad(),  # around a call it says nothing about JAX's derivatives
            mock.patch.object(torch._functorch.utils, "unwrap_dead_wrappers", _refusing),
            ENVIRONMENT.override_property(prng=key),
            jax.numpy_dtype_promotion("standard"),
            jax.numpy_rank_promotion("allow"),
            errors.named(),
            warnings.catch_warnings(),
            ENVIRONMENT,
        ):
            # torch counts in 64 bits, of which JAX keeps 32 unless it is told otherwise
            warnings.filterwarnings("ignore", "Explicitly requested dtype")
            yield ENVIRONMENT
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)

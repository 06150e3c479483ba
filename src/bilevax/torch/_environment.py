"""Where a module's operators run on JAX arrays, and what bilevax asks of it beyond torchax."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jaxtyping import Array

from . import _errors as errors
from ._array import Tensor, View, array
from ._torchax import tensor


class Environment(tensor.Environment):
    """torchax's, where everything is on JAX's device, and nothing is random without a key.

    A tensor that the module keeps outside parameters and buffers, such as a mask, is a constant.
    """

    def get_and_rotate_prng_key(self, generator: Any = None) -> Array:
        if self.param.prng is None:  # one of torchax's own would be the same in every step
            errors.no_key()
        return super().get_and_rotate_prng_key(None)

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


@contextmanager
def running(key: Array | None) -> Iterator[Environment]:
    """Inside, operators on torchax's tensors run on JAX arrays, as torch would run them.

    Numbers are promoted as torch promotes them, and random ones are drawn from the key.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # it calls operators that torchax has not
    try:
        with (
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


def _batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float | None = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`torch.nn.functional.batch_norm`, which also moves the running statistics.

    torchax's does not. The variance that is kept is unbiased, as torch keeps it.
    """
    x = input.jax()
    axes = (0, *range(2, x.ndim))
    wide = lambda a: a.jax().reshape((1, -1) + (1,) * (x.ndim - 2))
    if training:
        mean, var = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
        n = x.size // x.shape[1]
        _move(running_mean, mean, momentum)
        _move(running_var, var * (n / max(n - 1, 1)), momentum)
    else:
        mean, var = wide(running_mean), wide(running_var)
    out = (x - mean) * jax.lax.rsqrt(var + eps)
    out = out if weight is None else out * wide(weight)
    return Tensor(out if bias is None else out + wide(bias), ENVIRONMENT)


def _move(statistic: Any, new: Array, momentum: Any) -> None:
    if statistic is None:
        return
    old = statistic.jax()
    momentum = momentum.jax() if isinstance(momentum, (Tensor, View)) else momentum
    new = new.reshape(old.shape).astype(old.dtype)
    statistic._elem = ((1 - momentum) * old + momentum * new).astype(old.dtype)


ENVIRONMENT.override_op_definition(torch.nn.functional.batch_norm, _batch_norm)

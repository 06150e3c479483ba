"""What torchax 0.0.13 leaves out, or computes otherwise than torch: tensors, and what writes into
them. Operators on arrays are in `_operators`."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array

from . import _views as views
from ._array import Tensor, View, array
from ._frozen import Frozen
from ._operators import AROUND, IN_JAX, WRONG
from ._torchax import op_base, tensor, view


class EvenShare:
    """In place of a momentum of None: each batch so far has the same share of the statistics."""

    def __init__(self, part: Any):
        self.part = part

    def __call__(self) -> Array:
        return 1 / self.part.num_batches_tracked.jax()


def _batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`torch.nn.functional.batch_norm`; torchax's does not move the running statistics."""
    if training:
        torch.nn.functional._verify_batch_size(input.shape)
    running = (running_mean, running_var)
    axes = (0, *range(2, input.ndim))
    return _normalised(input, axes, running, training, momentum, eps, weight, bias)


def _instance_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """`torch.nn.functional.instance_norm`, likewise."""
    if use_input_stats:
        torch.nn.functional._verify_spatial_size(input.shape)
    running = (running_mean, running_var)
    axes = tuple(range(2, input.ndim))
    return _normalised(input, axes, running, use_input_stats, momentum, eps, weight, bias)


def _normalised(
    input: Any,
    axes: tuple[int, ...],
    running: tuple[Any, Any],
    training: bool,
    momentum: Any,
    eps: float,
    weight: Any,
    bias: Any,
) -> Any:
    """By the statistics over these axes, which move the running ones, or by the running ones."""
    x = input.jax()
    wide = lambda a: a.jax().reshape((1, -1) + (1,) * (x.ndim - 2))
    if training:
        mean, var = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
        n = math.prod(x.shape[a] for a in axes)
        _move(running[0], mean, momentum)
        _move(running[1], var * (n / (n - 1)), momentum)  # torch keeps the unbiased one
    else:
        mean, var = map(wide, running)
    out = (x - mean) * jax.lax.rsqrt(var + eps)
    out = out if weight is None else out * wide(weight)
    out = out if bias is None else out + wide(bias)
    return Tensor(out.astype(x.dtype), input._env)


def _move(statistic: Any, new: Array, momentum: Any) -> None:
    if statistic is None:
        return
    share = momentum() if isinstance(momentum, EvenShare) else momentum
    old = statistic.jax()
    moved = (1 - share) * old + share * jnp.mean(new, 0).reshape(old.shape)
    _put(statistic, moved.astype(old.dtype))


def _put(t: Any, a: Array) -> None:
    views.written(t)
    if isinstance(t, View):
        t.update(a)
    else:
        t._elem = a


def _detach_(t: Any) -> Any:
    _put(t, jax.lax.stop_gradient(t.jax()))
    return t


def _set_data(t: Any, other: Any) -> None:
    """The numbers of another tensor; the derivative of t stays its own."""
    new = array(other)
    if new.shape == t.shape and new.dtype == t.jax().dtype:
        views.written(t)
        Frozen(t).update(new)
    else:
        _put(t, jax.lax.stop_gradient(new))


_set_in_whole = Tensor.__setitem__


def _set_item(t: Any, key: Any, value: Any) -> None:
    """t[key] = value, also for a part of t, and where torch keeps no graph."""
    views.check((t, key, value))
    whole = Tensor(t.jax(), t._env)
    _set_in_whole(whole, key, value)
    _put(t if torch.is_grad_enabled() else Frozen(t), whole.jax())


def _fill_diagonal_(t: Any, value: Any, wrap: bool = False) -> Any:
    _put(t, jnp.fill_diagonal(t.jax(), value, wrap=wrap, inplace=False))
    return t


IN_PLACE = {
    torch.nn.functional.batch_norm: _batch_norm,
    torch.nn.functional.instance_norm: _instance_norm,
    torch.Tensor.fill_diagonal_: _fill_diagonal_,
}
"""Those that change their tensors."""

PARTS = (torch.ops.aten.diagonal, torch.ops.aten.select.int, torch.ops.aten.slice.Tensor)
"""Those whose result is a part of a tensor, into which may be written; torchax's are copies."""


class _Part(view.ViewInfo):
    def __init__(self, take: Callable[[Array], Array]):
        super().__init__()
        self.take = take

    def transform_tensor(self, jax_array: Array) -> Array:
        return self.take(jax_array)

    def update_tensor(self, new_value: Array, jax_array: Array) -> Array:
        places = self.take(jnp.arange(jax_array.size).reshape(jax_array.shape))
        return jnp.ravel(jax_array).at[places].set(new_value).reshape(jax_array.shape)

    def calculate_output_shape(self, source: Array) -> Any:
        return jax.eval_shape(self.take, source).shape


def _part_of(take: Callable[..., Array]) -> Callable[..., Any]:
    return lambda t, *args: View(t, _Part(lambda a: take(a, *args)), t._env)


def _missing_in_place(known: Any) -> Iterator[tuple[Any, Any]]:
    """The operators as `fill_` that torchax would have write into copies of views, or has not."""
    aten = torch.ops.aten
    for name in {full.partition(".")[0] for full in torch._C._dispatch_get_all_op_names()}:
        packet = name.removeprefix("aten::")
        plain = (
            getattr(aten, packet[:-1], None)
            if re.fullmatch(r"aten::(?!set|resize|sparse)[a-z]\w*[^_]_", name)
            else None
        )
        if plain is None or getattr(aten, packet) in known:
            continue
        returns = getattr(plain, plain.overloads()[0])._schema.returns
        if not (returns and returns[0].alias_info):
            yield getattr(aten, packet), op_base.InplaceOp(plain)


def mend(environment: Any) -> None:
    """Give the environment these operators, and torchax's tensors what torch's do."""
    register = tensor.ops_registry.Operator
    for operator, function in IN_JAX.items():
        environment._ops[operator] = register(operator, function, True, True, False, False)
    for operator, around in AROUND.items():
        function = around(environment._get_op_or_decomp(operator).func)
        environment._ops[operator] = register(operator, function, True, True, False, False)
    for operator, function in IN_PLACE.items():
        environment.override_op_definition(operator, function, is_view_op=True)
    for operator, function in _missing_in_place(environment._ops):
        environment.override_op_definition(operator, function, is_view_op=True)
    for operator in WRONG:
        environment._ops.pop(operator, None)
        environment._decomps.pop(operator, None)
    for operator in PARTS:
        take = environment._get_op_or_decomp(operator).func
        environment.override_op_definition(operator, _part_of(take), is_view_op=True)
    View._elem = property(View.jax)  # torchax reads it where a part is indexed by tensors
    for kind in (Tensor, View):
        kind.type_as = lambda self, other: self.to(other.dtype)  # in torchax it changes self
        kind.data = property(Frozen, _set_data)
        kind.detach = lambda self: Frozen(self)  # of the same memory, as in torch
        kind.__setitem__ = _set_item
        kind.detach_ = _detach_
        kind.numpy = lambda self, **_: np.array(self.jax())  # a part of a tensor has none
        kind.tolist = lambda self: np.array(self.jax()).tolist()
        kind.flatten = torch.Tensor.flatten  # torchax's own is not seen by the environment
        kind.contiguous = views.contiguous

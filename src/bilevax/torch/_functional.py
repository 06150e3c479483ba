"""A `torch.nn.Module` as a function of its parameters."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import torch
from jaxtyping import Array, PyTree

from .._dynamics import Stateful
from . import _errors as errors
from . import _views as views
from ._array import copied, tensor_of
from ._convert import enter, leave
from ._environment import running
from ._mended import EvenShare

_BatchNorm = torch.nn.modules.batchnorm._BatchNorm
_Norm = torch.nn.modules.batchnorm._NormBase


class _Whole(torch.nn.Module):
    """The module with what is to be done with it, and its buffers afterwards."""

    def __init__(self, module: Any, does: Callable[..., Any]):
        super().__init__()
        self.module, self.does = module, does

    def forward(self, *inputs: Any) -> tuple[Any, dict[str, Any]]:
        out = self.does(self.module, *inputs)
        return out, dict(self.module.named_buffers())


def _call(module: Any, *inputs: Any) -> Any:
    return module(*inputs)


class Functional(eqx.Module):
    """A module of PyTorch as a function of its parameters; made by `functional`.

    `net(w, x)` is the forward pass, in train or eval mode as the module was when it was given, or
    as `net.train()` and `net.eval()` say. In train mode dropout draws from the `key` that is given,
    and BatchNorm normalises by the statistics of its batch; in eval mode it takes the running ones,
    of `state`. `net.apply` also returns what the pass has changed, for `bx.Stateful`.

    !!! example

        >>> import torch, jax.numpy as jnp
        >>> from bilevax.torch import functional
        >>> net = functional(torch.nn.BatchNorm1d(2))
        >>> out, state = net.apply(net.params, net.buffers, jnp.ones((4, 2)))
        >>> state["running_mean"]  # a tenth of the way from 0 to the batch's
        Array([0.1, 0.1], dtype=float32)
    """

    module: Any = eqx.field(static=True)
    params: dict[str, Array]
    """The parameters with `requires_grad=True`: w."""
    frozen: dict[str, Array]
    """The others, which stay as they are."""
    buffers: dict[str, Array]
    """Running statistics, counters, masks: the first state."""
    modes: tuple[bool, ...] = eqx.field(static=True)
    does: Callable[..., Any] = eqx.field(static=True, default=_call)

    def __call__(
        self,
        w: Mapping[str, Array],
        *inputs: PyTree,
        state: Mapping[str, Array] | None = None,
        key: Array | None = None,
    ) -> PyTree:
        """The forward pass; what it changes in the state is dropped."""
        return self.apply(w, self.buffers if state is None else state, *inputs, key=key)[0]

    def apply(
        self,
        w: Mapping[str, Array],
        state: Mapping[str, Array],
        *inputs: PyTree,
        key: Array | None = None,
    ) -> tuple[PyTree, dict[str, Array]]:
        """The forward pass, and the state after it."""
        errors.wrong_names("w", w, self.params)
        errors.wrong_names("state", state, self.buffers)
        whole = _Whole(self.module, self.does)
        fixed = {f"module.{name}": a for name, a in {**self.frozen, **w}.items()}
        with running(key), _modes(self.module, self.modes):
            args, fixed = enter(inputs), enter(fixed)
            before = {name: t.jax() for name, t in fixed.items()}
            tensors = fixed | enter({f"module.{name}": a for name, a in state.items()})
            out, after = torch.func.functional_call(whole, tensors, args)
            errors.require_unwritten(n for n, t in fixed.items() if t.jax() is not before[n])
            views.check(fixed)
            return leave((out, after))

    def through(self, does: Callable[..., Any]) -> "Functional":
        """The same, where `does(module, *inputs)` takes the place of `module(*inputs)`.

        For losses that are written in torch, forward passes with keywords, and other methods:
        `net.through(lambda m, x, y: F.cross_entropy(m(x), y))`.
        """
        return dataclasses.replace(self, does=does)

    def train(self) -> "Functional":
        """In train mode: dropout on, BatchNorm by its batch, running statistics move."""
        return dataclasses.replace(self, modes=(True,) * len(self.modes))

    def eval(self) -> "Functional":
        """In eval mode: dropout off, BatchNorm by the running statistics."""
        return dataclasses.replace(self, modes=(False,) * len(self.modes))

    def labels(self, groups: Mapping[str, Iterable[Any]]) -> dict[str, str]:
        """The group of each parameter, for `optax.multi_transform`.

        `groups` names parameters of the module, as parameter groups of torch do:
        `net.labels({"body": module.body.parameters(), "head": module.head.parameters()})`.
        """
        errors.require_groups(groups)
        members = {
            label: {id(p) for p in errors.parameters_of(label, group)}
            for label, group in groups.items()
        }
        known = dict(self.module.named_parameters())
        out = {}
        for name in self.params:
            found = [label for label, ids in members.items() if id(known[name]) in ids]
            if len(found) != 1:
                errors.not_grouped(name, found)
            out[name] = found[0]
        return out

    def load(self, w: Mapping[str, Array] | Stateful, state: Mapping[str, Array] | None = None):
        """Put parameters (and a state) back into the module, in place; returns the module.

        Without a state, running statistics that training moves are left behind, with a warning.
        """
        if isinstance(w, Stateful):
            w, state = w
        errors.require_parameters(w)
        if state is None:
            errors.warn_of_statistics(self._moving())
        errors.wrong_names("w", w, self.params)
        errors.wrong_names("state", state or self.buffers, self.buffers)
        own = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        values: dict[str, Array] = {**w, **(state or {})}  # pyright: ignore[reportGeneralTypeIssues]
        for name, a in values.items():
            errors.wrong_shape(name, a, own[name])
        with torch.no_grad():
            for name, a in values.items():
                own[name].copy_(tensor_of(a, own[name]))
        return self.module

    def _moving(self) -> list[str]:
        """One name for each layer whose running statistics training in this mode moves."""
        parts = zip(self.module.named_modules(), self.modes, strict=True)
        norms = [(n, part) for (n, part), train in parts if train and isinstance(part, _Norm)]
        names = [f"{name}.running_mean".lstrip(".") for name, _ in norms]
        return [name for name in names if name in self.buffers]

    def __repr__(self) -> str:
        size = lambda arrays: sum(a.size for a in arrays.values())
        says = "each layer in the mode that it was in"
        if all(self.modes):
            says = "train mode: dropout on, BatchNorm by the statistics of its batch"
        if not any(self.modes):
            says = "eval mode: dropout off, BatchNorm by its running statistics"
        counts = f"{size(self.params)} parameters, {size(self.frozen)} frozen"
        return f"<{type(self.module).__name__}: {counts}, {size(self.buffers)} in buffers; {says}>"


@contextmanager
def _modes(module: Any, modes: tuple[bool, ...]) -> Iterator[None]:
    parts = list(module.modules())
    before = [part.training for part in parts]
    even = [part for part in parts if isinstance(part, _BatchNorm) and part.momentum is None]
    try:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
        for part in even:
            part.momentum = EvenShare(part)
        yield
    finally:
        for part, mode in zip(parts, before, strict=True):
            part.training = mode
        for part in even:
            part.momentum = None


def functional(module: Any) -> Functional:
    """A `torch.nn.Module`, pretrained or not, as a function of its parameters.

    Its numbers are copied: the module itself does not change until `net.load`.

    **Arguments:**

    - `module`: the module. Parameters with `requires_grad=False` stay fixed. The mode that it is
        in, train or eval, is kept.

    **Returns:**

    A `Functional`: `net.params` is w, a dict of JAX arrays, and `net(w, x)` the forward pass.

    !!! example

        >>> import torch, jax.numpy as jnp
        >>> from bilevax.torch import functional
        >>> net = functional(torch.nn.Linear(3, 2))
        >>> w = net.params
        >>> net(w, jnp.ones((5, 3))).shape
        (5, 2)
    """
    if not isinstance(module, torch.nn.Module):
        errors.not_a_module(module)
    named = dict(module.named_parameters())
    params = {name: p for name, p in named.items() if p.requires_grad}
    if not params:
        errors.no_params(module)
    for name, p in params.items():
        if not p.dtype.is_floating_point:
            errors.not_floating(name, p.dtype)
    take = lambda tensors: {name: copied(t) for name, t in tensors.items()}
    with jax.ensure_compile_time_eval():
        return Functional(
            module,
            take(params),
            take({name: p for name, p in named.items() if not p.requires_grad}),
            take(dict(module.named_buffers())),
            tuple(part.training for part in module.modules()),
        )

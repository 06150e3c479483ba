"""What is said about modules, tensors and operators."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import jax
import torch

from .._errors.check import kind_of
from .._errors.warn import warn
from ._torchax import tensor


def not_read(data: Any) -> NoReturn:
    raise TypeError(
        f"arrays takes tensors, got {kind_of(data)}: read its batches, as in "
        "arrays(torch.utils.data.default_collate(list(data)))."
    )


def not_a_module(value: Any) -> NoReturn:
    raise TypeError(
        f"functional takes a torch.nn.Module, got {kind_of(value)}: build the module first, as in "
        "functional(Net()); a function of tensors is in_jax(function)."
    )


def no_params(module: Any) -> NoReturn:
    raise ValueError(
        f"{type(module).__name__} has no parameter with requires_grad=True, so there is nothing to "
        "train: unfreeze some of them before functional(module)."
    )


def not_floating(name: str, dtype: Any) -> NoReturn:
    raise TypeError(
        f"the parameter {name!r} has dtype {dtype}, which has no gradient: freeze it with "
        "requires_grad_(False), or make it a buffer."
    )


def no_key() -> NoReturn:
    raise ValueError(
        "the module draws random numbers (dropout, noise) and got no key: call net(w, x, key=key) "
        "with a key from S, as S['key'] that `sample` makes by jax.random.fold_in(S['key'], t); or "
        "switch dropout off with net.eval()."
    )


def require_parameters(w: Any) -> None:
    if not isinstance(w, Mapping):
        raise TypeError(
            f"net.load takes the parameters, as bx.solve(xi, lam, S, T=T) returns them, or a "
            f"bx.Stateful, got {kind_of(w)}: after minimize, train once more with result.lam, and "
            "load that."
        )


def wrong_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{what} must be a dict of arrays, got {kind_of(given)}: call net(w, x), or "
            "net.apply(w, state, x), where w is net.params and state net.buffers at first."
        )
    given, known = set(given), set(known)
    strange, missing = sorted(given - known), sorted(known - given)
    if strange or missing:
        which = f"has {strange[0]!r} too much" if strange else f"lacks {missing[0]!r}"
        raise ValueError(
            f"{what} {which}: it must have the names of the module's own, as net.params and "
            "net.buffers do."
        )


def wrong_shape(name: str, given: Any, known: Any) -> None:
    if tuple(given.shape) != tuple(known.shape):
        raise ValueError(
            f"{name!r} has shape {tuple(given.shape)}, the module's {tuple(known.shape)}: give what"
            " the same module was trained to."
        )


def warn_of_statistics(names: list[str]) -> None:
    if names:
        warn(
            f"net.load got parameters without a state, so {names[0]!r} and all other running "
            "statistics keep their values from before training, and eval mode will be wrong: train "
            "a bx.Stateful(net.params, net.buffers) and load that (docs/torch.md, BatchNorm), or "
            "say net.load(w, net.buffers) if you mean the old ones.",
            UserWarning,
        )


def require_groups(groups: Any) -> None:
    if not isinstance(groups, Mapping):
        raise TypeError(
            f"groups must be a dict, got {kind_of(groups)}: name each group, as in "
            "{'head': module.head.parameters()}; for opt.param_groups, "
            "{str(i): group['params'] for i, group in enumerate(opt.param_groups)}."
        )


def parameters_of(label: str, group: Any) -> list[Any]:
    """The parameters that a group names."""
    one = isinstance(group, torch.Tensor) or not isinstance(group, Iterable)
    found = [] if one else list(group)
    if one or not all(isinstance(p, torch.Tensor) for p in found):
        raise TypeError(
            f"the group {label!r} must be parameters, got {kind_of(group)}: give "
            "module.parameters() of a module, and [p] for a single parameter p."
        )
    if not found:
        raise ValueError(
            f"the group {label!r} has no parameters: an iterator that was read before is empty, so "
            "call module.parameters() once more, or keep list(module.parameters())."
        )
    return found


def not_grouped(name: str, groups: list[str]) -> NoReturn:
    where = "no group" if not groups else f"the groups {' and '.join(map(repr, groups))}"
    raise ValueError(f"the parameter {name!r} is in {where}: name it in exactly one.")


def require_unwritten(names: Iterable[str]) -> None:
    for name in names:
        raise NotImplementedError(
            f"the module writes into its parameter {name.removeprefix('module.')!r} while it runs, "
            "which JAX would forget: use a copy, as in w = self.weight.clamp(-1, 1), or make it a "
            "buffer."
        )


def lost_write(name: str) -> NoReturn:
    raise NotImplementedError(
        f"the module writes in place into a tensor or into its view by {name}, and then reads the "
        f"other{_where(traceback.extract_stack())}, which here is a copy and does not change: write"
        " into the tensor itself, as in x[:, 0] += 1 for x.t()[0] += 1, or into view.clone() if "
        "only one of them shall change."
    )


def own_derivative() -> NoReturn:
    raise NotImplementedError(
        f"the module uses a torch.autograd.Function{_where(traceback.extract_stack())}, whose "
        "backward JAX does not call: write it without, for example a straight-through "
        "estimator as x + (q - x).detach(), and torch.utils.checkpoint with use_reentrant=False."
    )


def _where(frames: Iterable[traceback.FrameSummary]) -> str:
    """The last line of the user's own."""
    own = [f for f in frames if not f.filename.startswith((*_THEIRS, "<"))]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def depends_on_values(error: Exception) -> NoReturn:
    where = _where(traceback.extract_tb(error.__traceback__))
    raise TypeError(
        f"the module or its loss asks for the value of a tensor{where}, as `if x.sum() > 0`, "
        "`.item()`, `.numpy()`, `x[mask]` and shapes that depend on the data do, but JAX traces it "
        "once for all values: use torch.where, or compute that number before."
    ) from error


_THEIRS = tuple(
    os.path.dirname(str(sys.modules[name].__file__))
    for name in ("bilevax", "contextlib", "equinox", "jax", "optax", "torch", "torchax")
)


_ASKS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
)


@contextmanager
def named() -> Iterator[None]:
    """torchax's own errors, with the operator and what to do about it."""
    try:
        yield
    except _ASKS as error:
        depends_on_values(error)
    except tensor.OperatorNotFound as error:
        found = re.search(r"name (\S+)", str(error))
        name = found.group(1).replace("::", ".") if found else str(error)
        raise NotImplementedError(
            f"torchax cannot run the operator {name}: write that part of the module with other "
            f"operators, or give it in JAX, as in bilevax.torch.implement(torch.ops.{name}, "
            "function_of_arrays)."
        ) from error

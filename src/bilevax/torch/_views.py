"""Views that are copies here, as `x.view(-1)`: who writes into one and reads the other is told.

In torch both are the same memory. Here a view keeps a link to its base, and each tensor counts
what is written into it.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from collections.abc import Iterator
from typing import Any

import torch

from . import _errors as errors
from ._array import Tensor, View

NEW = {"to", "contiguous"}
"""Their schema says that the result may be a view; where it is not the same tensor, it is none."""

SCATTERED = {"t", "transpose", "permute", "expand", "unfold", "as_strided"}
"""What is reshaped after these is a copy in torch, too."""


def _own(t: Any) -> Any:
    """The tensor that holds the numbers: parts of it, as `x[0]`, are no copies."""
    while isinstance(t, View):
        t = t.parent
    return t


def _bases(t: Any) -> Iterator[tuple[Any, int, str]]:
    """What t is a view of, and so on; what had been written into it by then; by which operator."""
    while link := getattr(_own(t), "_link", None):
        yield link
        t = link[0]


def _count(t: Any) -> int:
    return getattr(t, "_count", 0)


def check(args: Any) -> None:
    """Before these are read."""
    for t in torch.utils._pytree.tree_leaves(args):
        if isinstance(t, (Tensor, View)):
            if name := getattr(_own(t), "_lost", None):
                errors.lost_write(name)
            for base, count, name in _bases(t):
                if _count(base) != count:
                    errors.lost_write(name)


def written(t: Any) -> None:
    """Into t: its bases do not know."""
    _own(t)._count = _count(_own(t)) + 1
    for base, _, name in _bases(t):
        base._lost = name


def follow(operator: Any, args: Any, kwargs: Any, out: Any) -> None:
    """Link what an operator of torch gives, and count what it writes."""
    if not isinstance(operator, torch._ops.OpOverload):
        return
    name = operator._schema.name.removeprefix("aten::")
    for place, parameter in enumerate(operator._schema.arguments):
        t = args[place] if place < len(args) else (kwargs or {}).get(parameter.name)
        if parameter.alias_info and isinstance(t, (Tensor, View)):
            if parameter.alias_info.is_write:
                written(t)
            elif name not in NEW and not (name == "view" and _is_scattered(t)):
                _link(out, _own(t), name)


def _is_scattered(t: Any) -> bool:
    return any(name in SCATTERED for _, _, name in _bases(t))


def _link(out: Any, base: Any, name: str) -> None:
    for view in torch.utils._pytree.tree_leaves(out):
        if isinstance(view, Tensor) and view is not base:
            view._link = base, _count(base), name


def contiguous(t: Any, memory_format: Any = None) -> Any:
    """The same tensor, or a copy where torch makes one."""
    return Tensor(t.jax(), t._env) if _is_scattered(t) else t

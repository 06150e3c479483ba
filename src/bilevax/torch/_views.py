"""Views that are copies here, as `x.view(-1)`: who writes into one and reads the other is told.

In torch both are the same memory. Here a view keeps a link to its base, and each tensor counts
what is written into it.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from . import _errors as errors
from ._array import Tensor, View
from ._torchax import view as parts

NEW = {"to", "contiguous"}
"""Their schema says that the result may be a view; where it is not the same tensor, it is none."""

SCATTERED = {"t", "transpose", "permute", "expand", "unfold", "as_strided"}
"""What is reshaped after these is a copy in torch, too."""


def _own(t: Any) -> Any:
    """The tensor that holds the numbers: parts of it, as `x[0]`, are no copies."""
    while isinstance(t, View):
        t = t.parent
    return t


class _Link(NamedTuple):
    """Of a view to its base."""

    base: Any
    writes: int
    """How often had been written into the base by then."""
    name: str
    """Of the operator."""
    scattered: bool


def _links(t: Any) -> Iterator[_Link]:
    """To what t is a view of, and so on."""
    while link := getattr(_own(t), "_link", None):
        yield link
        t = link.base


def _count(t: Any) -> int:
    return getattr(t, "_count", 0)


def check(args: Any) -> None:
    """Before these are read."""
    for t in torch.utils._pytree.tree_leaves(args):
        if isinstance(t, (Tensor, View)):
            if name := getattr(_own(t), "_lost", None):
                errors.lost_write(name)
            for link in _links(t):
                if _count(link.base) != link.writes:
                    errors.lost_write(link.name)


def written(t: Any) -> None:
    """Into t: its bases do not know."""
    _own(t)._count = _count(_own(t)) + 1
    for link in _links(t):
        link.base._lost = link.name


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
                _link(out, t, name)


def _link(out: Any, t: Any, name: str) -> None:
    base, scattered = _own(t), name in SCATTERED or _is_scattered(t)
    for view in torch.utils._pytree.tree_leaves(out):
        if isinstance(view, Tensor) and view is not base:
            view._link = _Link(base, _count(base), name, scattered)


def _is_scattered(t: Any) -> bool:
    """Whether the numbers of t are not side by side in torch's memory."""
    link = getattr(_own(t), "_link", None)
    return (link is not None and link.scattered) or _is_scattered_part(t)


def _is_scattered_part(t: Any) -> bool:
    if not isinstance(t, View):
        return False
    places = np.empty(_own(t).shape)  # numpy slices without a copy
    for info in t.get_transformation_chain():
        if not isinstance(info, parts.NarrowInfo):
            return False
        places = places[info.slices]
    return not places.flags.c_contiguous


def contiguous(t: Any, memory_format: Any = torch.contiguous_format) -> Any:
    """The same tensor, or a copy where torch makes one."""
    same = memory_format is torch.contiguous_format and not _is_scattered(t)
    return t if same else Tensor(t.jax(), t._env)

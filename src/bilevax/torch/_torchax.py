"""torchax, imported; the one place that helps it to be.

torchax 0.0.13 looks up operators with named dimensions while it is imported, which torch 2.13 no
longer has (google/torchax#101). While such versions meet, a lookup of one that is gone gives a
token that no call can ever match. Other versions are imported as they are.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

try:
    import torch
except ImportError as error:
    raise ImportError(
        "bilevax.torch needs PyTorch and torchax: pip install 'bilevax[torch]'."
    ) from (error)

NEEDS_HELP = (0, 0, 13)
"""The last version of torchax that looks such operators up."""


def needs_help(torchax: str) -> bool:
    """Whether this version of torchax meets a torch without named dimensions."""
    numbers = tuple(int(x) for x in torchax.split(".")[:3])
    return numbers <= NEEDS_HELP and "dim_Dimname" not in torch.ops.aten.prod.overloads()


@contextmanager
def forgiven() -> Iterator[None]:
    """Inside, an operator with named dimensions that is gone is found, as a token."""
    packet = torch._ops.OpOverloadPacket
    find = packet.__getattr__

    def forgiving(self, name):
        try:
            return find(self, name)
        except AttributeError:
            if "imname" in name or "names" in name:
                return object()
            raise

    packet.__getattr__ = forgiving
    try:
        yield
    finally:
        packet.__getattr__ = find


@contextmanager
def _as_it_was() -> Iterator[None]:
    """torchax turns the fast path of attention off for the whole process: here it stays."""
    fast = torch.backends.mha.get_fastpath_enabled()
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _load():
    from torchax import decompositions, tensor, view
    from torchax.ops import jaten, op_base

    del decompositions, jaten  # they register operators
    return tensor, view, op_base


try:
    with _as_it_was():
        if needs_help(version("torchax")):
            with forgiven():
                tensor, view, op_base = _load()
        else:
            tensor, view, op_base = _load()
except ImportError as error:
    raise ImportError("bilevax.torch needs torchax: pip install 'bilevax[torch]'.") from error

"""On a mesh: where the leaves of s, alpha and mu lie, from the first step to the last."""

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from .. import _tree as tree
from .._types import Hyper
from .fed import Fed, Seen
from .programs import Shardings, find_forms


def shardings(mesh: Mesh | None, xi: Fed, lam: Hyper, X: Seen) -> Shardings:
    """Where one step leaves them: what an optimizer remembers lies with its parameters."""
    if mesh is None:
        return Shardings()
    mu, s = find_forms(xi, lam, X)
    return Shardings(_of(mesh, s), _of(mesh, tree.inexact(s)), _of(mesh, mu))


def _of(mesh: Mesh, x: PyTree) -> tuple[Any, ...]:
    named = lambda a: isinstance(a.sharding, NamedSharding)
    spec = lambda a: a.sharding.spec if named(a) else P()
    return tuple(NamedSharding(mesh, spec(a)) for a in jax.tree.leaves(x))

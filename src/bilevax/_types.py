"""Aliases for the kinds of values that travel through bilevax."""

from collections.abc import Callable
from typing import Any, TypeAlias

from jaxtyping import Array, Float, Int, PyTree

Params: TypeAlias = PyTree[Float[Array, "..."]]
"""w: what the inner loop trains. Any pytree of floating arrays."""

Hyper: TypeAlias = PyTree[Float[Array, "..."]]
"""lam: what the outer level tunes. Any pytree of floating arrays."""

Context: TypeAlias = PyTree[Any]
"""S: data, keys, anything the objectives need. Never differentiated."""

State: TypeAlias = PyTree[Array]
"""s: w together with whatever the inner algorithm remembers (momentum, counts, keys)."""

Time: TypeAlias = int | Int[Array, ""]
"""t: how many steps have been taken; step t takes s_t to s_{t+1} (Eq. 4)."""

Scalar: TypeAlias = Float[Array, ""]

Objective: TypeAlias = Callable[[Params, Hyper, Context], Scalar]
"""f or g: (w, lam, S) -> scalar."""

Report: TypeAlias = dict[str, Array]
"""What a rule has to say about its own answer (solver steps, depth, error estimates)."""

Pull: TypeAlias = Callable[[Params], tuple[Hyper, Report]]
"""alpha -> (sum of the kept terms B_t A_{t+1} ... A_T alpha, report)."""

AuditedPull: TypeAlias = Callable[[Params], tuple[Hyper, Report, Hyper]]
"""As `Pull`, and the sum of all terms."""

WarmPull: TypeAlias = Callable[[Params], tuple[Hyper, tuple[Report, PyTree]]]
"""As `Pull`, and what the rule found that the next call may begin with."""

Policy: TypeAlias = Callable[..., Any]
"""What `jax.checkpoint` keeps: one of `jax.checkpoint_policies`."""

Product: TypeAlias = Callable[[PyTree], tuple[PyTree, Hyper]]
"""alpha -> (A alpha, B alpha): the vjp of a step."""

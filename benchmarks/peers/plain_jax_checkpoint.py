"""The same with jax.checkpoint: around a step (T states are kept), or around a segment."""

import jax

from . import in_jax
from .plain_jax import unrolled
from .problems import Problem
from .wants import Checkpointed, Full, NotOfferedError, Program, Truncated, Want

PACKAGE = "jax"


def build(problem: Problem, want: Want) -> Program:
    if not isinstance(want, (Full, Truncated, Checkpointed)):
        raise NotOfferedError("written without a solver")
    loss = unrolled(in_jax.model(problem), problem, want, jax.checkpoint)
    return in_jax.program(problem, jax.grad(loss))

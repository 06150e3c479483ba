"""Floating-point operations of a function, counted in its jaxpr and never run.

XLA's own count takes the body of a loop once; here a scan counts as often as it runs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import PyTree


def _names(text: str) -> frozenset[str]:
    """Of primitives."""
    return frozenset(text.split())


FUNCTION = 10
"""What exp, log, tanh, ... count for one number: about what their polynomials take."""

FUNCTIONS = _names(
    "exp exp2 expm1 log log1p tanh logistic sin cos tan asin acos atan atan2 sinh cosh asinh "
    "acosh atanh pow erf erfc erf_inv lgamma digamma cbrt"
)
MOVES = _names(
    "broadcast_in_dim reshape transpose squeeze slice dynamic_slice dynamic_update_slice gather "
    "concatenate stack split pad rev iota copy copy_p convert_element_type select_n scatter "
    "stop_gradient real imag bitcast_convert_type device_put optimization_barrier sort "
    "reduce_precision pvary"
)
"""They move numbers and compute none."""

CUBIC = _names("cholesky lu triangular_solve eigh eig svd qr")
"""Dense algebra: n^3, to a small factor."""

OPAQUE = _names("linear_solve custom_call pure_callback ffi_call")
"""The jaxpr does not show what these compute: they count as nothing, and as a lower limit."""


class Count(NamedTuple):
    """A number of operations, and whether it is only a lower limit."""

    flops: int
    at_least: bool


def count_flops(fun: Callable, shapes: PyTree) -> Count:
    """Operations of fun(shapes), without those whose results are not used.

    A product of matrices counts twice its multiplications, a reduction its inputs, arithmetic
    its outputs, a function `FUNCTION` for each, integers and moves nothing. A `cond` counts as
    its most expensive branch, a loop of unknown length once.
    """
    closed = jax.make_jaxpr(fun)(shapes)
    jaxpr, _ = dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    return _total(jaxpr)


def _total(jaxpr: Jaxpr | ClosedJaxpr) -> Count:
    return _sum([_equation(eqn) for eqn in jaxpr.eqns])


def _sum(counts: Sequence[Count]) -> Count:
    return Count(sum(c.flops for c in counts), any(c.at_least for c in counts))


def _equation(eqn: JaxprEqn) -> Count:
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        once = _total(params["jaxpr"])
        return Count(params["length"] * once.flops, once.at_least)
    if name == "while":
        return _sum([_total(params["cond_jaxpr"]), _total(params["body_jaxpr"]), Count(0, True)])
    if name == "cond":
        branches = [_total(branch) for branch in params["branches"]]
        return Count(max(branches).flops, any(b.at_least for b in branches))
    inside = [p for p in params.values() if isinstance(p, (Jaxpr, ClosedJaxpr))]
    if inside and not _folds(name):
        return _sum([_total(jaxpr) for jaxpr in inside])
    return Count(_primitive(eqn), name in OPAQUE)


def _folds(name: str) -> bool:
    """Reductions and scatters have the jaxpr of one addition among their parameters."""
    return name.startswith(("reduce", "scatter", "cum", "arg"))


def _primitive(eqn: JaxprEqn) -> int:
    name, out = eqn.primitive.name, _numbers(eqn.outvars)
    if name in MOVES or name in OPAQUE:
        return 0
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * out * math.prod(_shape(eqn.invars[0])[i] for i in contracted)
    if name == "conv_general_dilated":
        return _convolution(eqn, out)
    if name in CUBIC:
        *batch, _, n = _shape(eqn.invars[0])
        return math.prod(batch) * n**3
    if name.startswith("scatter"):
        return _numbers(eqn.invars[2:])
    if _folds(name):
        return _numbers(eqn.invars)
    return (FUNCTION if name in FUNCTIONS else 1) * out


def _convolution(eqn: JaxprEqn, out: int) -> int:
    """Each output reads the kernel once; zeros of a dilated input are not multiplied."""
    kernel, spec = _shape(eqn.invars[1]), eqn.params["dimension_numbers"].rhs_spec
    reads = math.prod(kernel) // max(kernel[spec[0]], 1)
    return 2 * out * reads // math.prod(eqn.params["lhs_dilation"])


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _numbers(variables: Sequence[Any]) -> int:
    """How many floating-point numbers these hold."""
    sizes = (v.aval for v in variables if hasattr(v.aval, "shape"))
    return sum(a.size for a in sizes if jnp.issubdtype(a.dtype, jnp.inexact))

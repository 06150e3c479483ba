"""What a diagnosis is made of, in one compiled program."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from .. import _tree as tree
from .._compile import weak_jit
from .._dynamics import AbstractDynamics
from .._types import Context, Hyper, Objective, State
from ._spectrum import spectra
from ._sweep import Sweep, sweep


class Measured(NamedTuple):
    """What one program computes; the first axis of an array runs over the depths."""

    leaf_bias: Float[Array, "n leaves"]
    """|h_{T-K} - d_lam f|,"""
    leaf_dots: Float[Array, "n leaves"]
    """<h_{T-K}, d_lam f>,"""
    leaf_norms: Float[Array, "n leaves"]
    """|h_{T-K}|,"""
    leaf_sizes: Float[Array, " leaves"]
    """and |d_lam f|, in each leaf of lam."""
    third: Float[Array, " n"]
    """<grad_lam f, d_lam f + h_{T-K} - grad_lam f>, of the third assumption of Theorem 3.4."""
    direct: Float[Array, ""]
    """|grad_lam f|."""
    slope: Float[Array, ""]
    """|grad_w f|."""
    alphas: Float[Array, " T+1"]
    parts: Float[Array, " T"]
    start: Float[Array, ""]
    stationarity: Float[Array, ""] | None
    """The residual of the optimum's equation at s_T, relative to that at s_0."""
    theory: dict[str, Array | None] | None
    finite: Bool[Array, ""]


@weak_jit
def measure(
    f: Objective, xi: AbstractDynamics, lam: Hyper, S: Context, depths: Int[Array, " n"],
    T: int, lanczos: int, optimum: bool,
) -> Measured:  # fmt: skip
    out = sweep(f, xi, lam, S, T, depths)
    h = optax.tree.add(out.direct, out.whole)
    (bias, dots, norms), third = _compare(out, h)
    start, _, end = out.iterates
    missing = lambda at: residual(xi, lam, S, at.s, at.t)
    return Measured(
        bias, dots, norms, _of_leaves(tree.norm, h), third,
        direct=tree.norm(out.direct),
        slope=tree.norm(out.slope),
        alphas=out.gathered.alphas,
        parts=out.gathered.parts,
        start=tree.norm(out.begun),
        stationarity=missing(end) / tree.positive(missing(start)) if optimum else None,
        theory=spectra(xi, lam, S, out.iterates, lanczos) if lanczos else None,
        finite=tree.all_finite((tree.inexact(end.s), h)),
    )  # fmt: skip


def _compare(out: Sweep, h: Hyper) -> tuple[tuple[Array, Array, Array], Array]:
    """Of every truncation: bias, dot and norm in each leaf of lam, and the third assumption."""

    def compare(part: Hyper):
        h_K = optax.tree.add(out.direct, part)
        bias = _of_leaves(tree.norm, optax.tree.sub(h_K, h))
        third = tree.dot(out.direct, optax.tree.add(h, part))
        return (bias, _of_leaves(tree.dot, h_K, h), _of_leaves(tree.norm, h_K)), third

    return jax.lax.map(compare, out.gathered.sums)


def _of_leaves(fun: Callable, *trees: Hyper) -> Float[Array, " leaves"]:
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    dtype = tree.widest(trees[0])
    return jnp.asarray([fun(*leaves).astype(dtype) for leaves in columns], dtype)


def residual(xi: AbstractDynamics, lam: Hyper, S: Context, s: State, t: int) -> Float[Array, ""]:
    """|residual| of the equation that the limit satisfies: |grad g|, or |s - Xi(s)|."""
    equation = xi.equilibrium(s, lam, S, t)
    return tree.norm(equation.residual(equation.x, lam))

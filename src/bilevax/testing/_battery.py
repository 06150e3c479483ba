"""The battery: bilevax's own rules pass it, and so should yours."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from .. import _tree as tree
from .. import problems
from .._dynamics import Descent, Dynamics, constant
from .._hypergradient import hypergradient
from .._loop import unroll
from .._rules.base import AbstractRule
from .._solve import solve
from ..problems import Problem


def check_rule(
    rule: AbstractRule,
    *,
    exact: bool = False,
    linear: bool = True,
    symmetric: bool = False,
    T: int = 6,
) -> None:
    """Check that a rule keeps the promises that every rule of bilevax keeps.

    - It runs the inner loop unchanged (Eq. 4).
    - Its cotangent has the structure, shapes and dtypes of lam, is zero for alpha = 0, and scales
        with alpha.
    - It is right where every method is right: one step that reaches the optimum.
    - It gives the same under `jax.jit`, `jax.vmap` and `jax.grad` of `solve`.
    - It takes states with integers and keys in them.

    **Arguments:**

    - `rule`: the rule to check.
    - `exact`: whether it claims to be the exact hypergradient; it is then compared
        with plain differentiation of the unrolled loop.
    - `linear`: whether its pullback is a linear function of alpha.
    - `symmetric`: whether it serves `Descent` only, as solvers for symmetric systems
        do; `Dynamics` are then left out.
    - `T`: the number of inner steps.

    **Raises:**

    An `AssertionError` that says what was expected and what came out. Run it in float64
    (`jax.config.update("jax_enable_x64", True)`): in float32 tolerances are loose.

    !!! example

        >>> import bilevax as bx
        >>> from bilevax.testing import check_rule
        >>> check_rule(bx.Reverse(), exact=True)
    """
    _check_one_step(rule)
    dtype = jnp.result_type(float)
    for i, problem in enumerate(_zoo(T, dtype)):
        if symmetric and not isinstance(problem.xi, Descent):
            continue
        h = _check_transforms(rule, problem, _last(i, T, dtype), linear)
        if exact:
            label = f"{rule!r} on {problem.name}: exact hypergradient"
            _same(h, _hypergradient(i, T, dtype), label)


def unrolled(problem: Problem) -> Callable[[PyTree], Array]:
    """lam -> f(w_T(lam), lam) as a plain Python loop, which `jax.grad` differentiates.

    The oracle of the exact rules: it shares no loop and no derivative with them.

    **Arguments:**

    - `problem`: a `Problem`, whose T steps become T copies of a step: keep T small.

    **Returns:**

    The function lam -> f.

    !!! example

        >>> import bilevax as bx, jax, jax.numpy as jnp
        >>> from bilevax import problems
        >>> from bilevax.testing import unrolled
        >>> p = problems.toy(T=5)
        >>> h = bx.hypergradient(p.f, p.xi, bx.Reverse(), T=p.T)(p.lam, p.S).h
        >>> bool(jnp.allclose(h, jax.grad(unrolled(p))(p.lam), rtol=1e-4))
        True
    """

    def value(lam):
        s = problem.xi.start(lam, problem.S)
        for t in range(problem.T):
            s = problem.xi.advance(s, lam, problem.S, t)
        return problem.f(problem.xi.read(s), lam, problem.S)

    return value


@functools.cache
def _zoo(T: int, dtype: DTypeLike) -> list[Problem]:
    """The problems, in the precision of the day; what is right for them is computed once."""
    del dtype
    adam = lambda lam: optax.adam(jnp.exp(lam["penalty"]), eps_root=1e-8)
    return [
        problems.quadratic(T=T),
        problems.hyper_representation(T=T).with_inner(adam),
        problems.reweighting(T=T).with_inner(optax.sgd(0.2, momentum=0.5), problems.minibatch(20)),
        _heavy_ball(T),
    ]


@functools.cache
def _last(i: int, T: int, dtype: DTypeLike) -> PyTree:
    """w_T of a problem of the zoo."""
    p = _zoo(T, dtype)[i]
    s = p.xi.start(p.lam, p.S)
    return jax.jit(lambda s: p.xi.read(unroll(p.xi, p.lam, p.S, s, 0, p.T)))(s)


@functools.cache
def _hypergradient(i: int, T: int, dtype: DTypeLike) -> PyTree:
    """By plain differentiation of the unrolled loop."""
    p = _zoo(T, dtype)[i]
    return jax.jit(jax.grad(unrolled(p)))(p.lam)


def _heavy_ball(T: int) -> Problem:
    """User dynamics whose state holds a count and a random key next to two vectors."""

    def init(lam, S):
        w = jnp.zeros(3)
        return {"w": w, "v": w, "count": jnp.zeros((), jnp.int32), "key": jax.random.key(0)}

    def step(s, lam, S, t):
        noise = 0.1 * jax.random.uniform(jax.random.fold_in(s["key"], t), (3,))
        v = 0.5 * s["v"] - 0.3 * (s["w"] - lam["c"] * (1 + noise) + lam["d"] * s["w"] ** 3)
        return s | {"w": s["w"] + v, "v": v, "count": s["count"] + 1}

    xi = Dynamics(init, step, lambda s: s["w"])
    lam = {"c": jnp.asarray([0.3, -0.4, 0.5]), "d": jnp.asarray(0.1)}
    return Problem("heavy_ball", lambda w, lam, S: jnp.sum(jnp.sin(w)), xi, lam, None, T)


def _check_one_step(rule: AbstractRule) -> None:
    """g = |w - lam|^2 / 2 with step 1 reaches w = lam at once: A = 0, B = I, h = alpha."""
    lam = {"a": jnp.asarray([0.5, -1.0]), "b": jnp.asarray(2.0)}
    square = lambda x: tree.dot(x, x) / 2
    g = lambda w, lam, S: square(optax.tree.sub(w, lam))
    f = lambda w, lam, S: square(w)
    xi = Descent(g, constant(optax.tree.zeros_like(lam)), optax.sgd(1.0))
    out = hypergradient(f, xi, rule, T=6)(lam)
    _same(out.w, lam, f"{rule!r}: w_T of an inner loop that converges in one step")
    _same(out.h, lam, f"{rule!r}: hypergradient of an inner loop that converges in one step")


def _check_transforms(rule: AbstractRule, p: Problem, want: PyTree, linear: bool) -> PyTree:
    """The hypergradient, the same by `jax.vmap` of `hypergradient` and by `jax.vjp` of `solve`,
    whose pullback is what a pullback must be.
    """
    label = f"{rule!r} on {p.name}: "

    @jax.jit
    def both(lam, alpha):
        w, pull = jax.vjp(lambda lam: solve(p.xi, lam, p.S, T=p.T, rule=rule), lam)
        return w, pull(alpha)[0]

    def by_solve(lam):
        w, _ = both(lam, want)
        alpha, direct = jax.grad(p.f, (0, 1))(w, lam, p.S)
        return optax.tree.add(direct, both(lam, alpha)[1])

    lam, other = (tree.scale(c, p.lam) for c in (1.0, 0.9))  # of one type: `both` compiles once
    _check_pullback(lambda alpha: both(lam, alpha), lam, want, label, linear)
    stack = lambda x, y: jax.tree.map(lambda a, b: jnp.stack([a, b]), x, y)
    hg = hypergradient(p.f, p.xi, rule, T=p.T)
    batch = jax.jit(jax.vmap(hg, (0, None)))(stack(lam, other), p.S)
    what = label + "jax.vmap of hypergradient, against jax.grad of solve"
    _same(batch.h, stack(by_solve(lam), by_solve(other)), what)
    return jax.tree.map(lambda a: a[0], batch.h)


def _check_pullback(
    both: Callable[[PyTree], tuple[PyTree, PyTree]],
    lam: PyTree,
    want: PyTree,
    label: str,
    linear: bool,
) -> None:
    rng = np.random.default_rng(0)
    random = lambda a: jnp.asarray(rng.normal(size=a.shape), a.dtype)
    alpha, beta = jax.tree.map(random, want), jax.tree.map(random, want)
    w, once = both(alpha)
    pull = lambda alpha: both(alpha)[1]
    _same(w, want, label + "w_T")
    _same_form(once, lam, label + "the cotangent of lam")
    _same(pull(optax.tree.zeros_like(w)), optax.tree.zeros_like(lam), label + "pull(0)")
    _same(pull(tree.scale(3.0, alpha)), tree.scale(3.0, once), label + "pull(3 alpha)")
    if linear:
        total = optax.tree.add(once, pull(beta))
        _same(pull(optax.tree.add(alpha, beta)), total, label + "pull(alpha + beta)")


def _same_form(got: PyTree, want: PyTree, what: str) -> None:
    a, b = jax.tree.structure(got), jax.tree.structure(want)
    assert a == b, f"{what} should have structure {b}, has {a}"
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        form = lambda z: f"{z.dtype}{list(z.shape)}"
        assert form(x) == form(y), f"{what} should be {form(y)}, is {form(x)}"


def _same(got: PyTree, want: PyTree, what: str) -> None:
    """Equal to about two thirds of the digits, measured over the whole pytree."""
    rtol = float(jnp.finfo(tree.widest(want)).eps) ** (2 / 3)
    flat = lambda x: np.concatenate([np.ravel(a) for a in jax.tree.leaves(x)])
    error = np.linalg.norm(flat(got) - flat(want))
    scale = max(float(np.linalg.norm(flat(want))), 1e-3)
    assert error <= rtol * scale, (
        f"{what}: relative error {error / scale:.1e}, expected at most {rtol:.1e}"
    )

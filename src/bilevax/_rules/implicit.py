"""Differentiation at the end of the loop alone: the implicit function theorem."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optax
from jax import lax
from jaxtyping import Array, Bool, PyTree

from .. import _tree as tree
from .._dynamics import AbstractDynamics
from .._errors import check, outcome
from .._errors.say import say_if_missed
from .._loop import read_vjp, solved
from .._types import Context, Hyper, Params, Pull, WarmPull
from .base import AbstractRule, Channel, cold

REMEDY = (
    "Give damping, raise the solver's max_steps, add regularisation to g, train longer inside, or "
    "use Reverse(K=...), which needs no inverse."
)


class Implicit(AbstractRule):
    """Implicit differentiation at w_T (Eq. 11), as if w_T were the optimum.

    For `Descent` it solves a linear system with the Hessian of g on the whole S. For `Dynamics`
    the matrix is I - A, from the fixed-point equation of the step. That is not symmetric: give
    `lineax.GMRES`. It holds one state in memory. It trusts w_T to be stationary, and cannot see
    the initialisation or the optimizer's settings.

    **Arguments:**

    - `solver`: a lineax solver. Default: conjugate gradients to a tolerance of 1e-6.
        Exactly n iterations are `lineax.CG(rtol=0, atol=0, max_steps=n)`, as in iMAML.
    - `damping`: solve with H + damping I in place of H. It makes an indefinite or nearly singular
        system solvable, and h smaller in the directions that g hardly curves in.
    - `throw`: whether a solver that fails ends the run. With False one task of many may fail: a
        warning says so, and the answer is what the solver had reached (zero if that is not
        finite). The `report` then also holds `error`, the residual of the linear system relative
        to its right-hand side.

    The estimate's `report` holds `steps`, the iterations used (0 for direct solvers), and
    `residual`, the norm of grad_w g (or of x - Xi(x)) at w_T. Where the residual is zero the rule
    is right. Where it is not, the residual does not say how wrong the rule is.

    !!! example

        >>> import bilevax as bx, lineax as lx
        >>> rule = bx.Implicit(lx.GMRES(rtol=1e-8, atol=1e-8))

    ??? cite "Reference"

        Eq. 11 of Shaban et al., AISTATS 2019; Pedregosa, ICML 2016; with few iterations and
        damping, Rajeswaran et al., NeurIPS 2019 (iMAML).
    """

    solver: lx.AbstractLinearSolver = lx.CG(rtol=1e-6, atol=1e-6)
    damping: float = eqx.field(default=0.0, static=True, converter=check.plain(float))
    throw: bool = eqx.field(default=True, static=True)

    def __check_init__(self):
        remedy = "a lineax solver, as in Implicit(lineax.CG(rtol=1e-6, atol=1e-6))"
        check.instance(self.solver, lx.AbstractLinearSolver, "solver", remedy)
        if self.damping != 0:
            check.positive(self.damping, "damping", "0 leaves the Hessian as it is")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        return cold(self, xi, lam, S, T)

    def first_memory(self, xi: AbstractDynamics, lam: Hyper, S: Context) -> PyTree:
        x = xi.equilibrium(xi.start(lam, S), lam, S, jnp.zeros((), jnp.int32)).x
        return optax.tree.cast(optax.tree.zeros_like(x), tree.widest(x))

    def warm_vjp(
        self, memory: PyTree, xi: AbstractDynamics, lam: Hyper, S: Context, T: int
    ) -> tuple[Params, WarmPull]:
        """The memory is the solution of the last call: an iterative solver begins with it."""
        s = solved(xi, lam, S, T)
        equation = xi.equilibrium(s, lam, S, jnp.asarray(T - 1, jnp.int32))
        x, _, read, tags, _ = equation
        if not tags and isinstance(self.solver, (lx.CG, lx.Cholesky)):
            outcome.needs_symmetry(self.solver)
        pull_read = jax.vjp(lambda x: tree.inexact(read(x)), x)[1]

        def pull(alpha: Params):
            # lineax takes a direction for singular when its curvature is below 100 eps M, an
            # absolute number that flat but regular problems are below: solve with large * A.
            at_end, pull_residual = equation.vjp(lam)
            wide = lambda u: optax.tree.cast(u, tree.widest(x))  # lineax wants one dtype
            large = 1 / float(jnp.finfo(tree.widest(x)).eps)
            back = lambda u: pull_residual(optax.tree.cast_like(u, x))
            damped = lambda u: optax.tree.add(wide(back(u)[0]), tree.scale(self.damping, u))
            transpose = lambda u: tree.scale(large, damped(u))
            operator = lx.FunctionLinearOperator(transpose, jax.eval_shape(lambda: wide(x)), tags)
            alpha = wide(pull_read(alpha)[0])
            if isinstance(self.solver, lx.Cholesky):  # reads half of the matrix
                skew = _skew(operator, alpha)[None]
                alpha = outcome.finite(alpha, skew, [outcome.not_symmetric(self)])
            u, report = self._solve(operator, alpha, memory, tree.all_finite(x))
            h = tree.scale(-large, back(u)[1])
            return h, (report | {"residual": tree.norm(at_end)}, u)

        return read(x), pull

    def _solve(self, operator: lx.FunctionLinearOperator, alpha: PyTree, u: PyTree, sound: Array):
        """operator u = alpha, from a first u; alpha of unit length, so that atol has a meaning."""
        length = tree.norm(alpha)
        with jax.numpy_dtype_promotion("standard"):
            unit, first = (tree.scale(1 / tree.positive(length), a) for a in (alpha, u))
            out = lx.linear_solve(operator, unit, self.solver, options={"y0": first}, throw=False)
        u = tree.scale(length, out.value)
        failed = (out.result != lx.RESULTS.successful) | ~tree.all_finite(u)
        failed = failed & sound  # a loop that diverged is reported as that
        report = {"steps": jnp.asarray(out.stats.get("num_steps", 0))}
        if self.throw:
            return outcome.finite(u, failed[None], [outcome.solver_failed(self)]), report
        u = optax.tree.where(tree.all_finite(u), u, optax.tree.zeros_like(u))
        missing = tree.norm(optax.tree.sub(operator.mv(u), alpha)) / tree.positive(length)
        say_if_missed(self, REMEDY, missing, failed)
        return u, report | {"error": missing}

    def sees(self) -> Channel:
        return Channel.OPTIMUM


def _skew(operator: lx.FunctionLinearOperator, x: PyTree) -> Bool[Array, ""]:
    """Whether <A u, v> and <A v, u> differ for random u and v."""
    u, v = (tree.normal(jax.random.key(seed), x) for seed in (0, 1))
    Au, Av = operator.mv(u), operator.mv(v)
    scale = tree.norm(Au) * tree.norm(v) + tree.norm(Av) * tree.norm(u)
    return jnp.abs(tree.dot(Au, v) - tree.dot(Av, u)) > 1e-3 * scale


class Neumann(AbstractRule):
    """The K-term series B (I + A + ... + A^{K-1}) alpha at w_T (Prop. 3.6).

    It is the order-K Taylor approximation of the inverse in Eq. 11, and the limit of
    `Reverse(K)` as w_T converges. A and B are those of one more step, on the whole S. It works for
    any inner algorithm, with whatever that remembers, and holds one state in memory.

    In `minimize(..., warm_start=True)` the series goes on where the last hyper-iteration left it.
    With T = K = 1 and `optax.sgd` inside this is SOBA, with T = K = 10 AmIGO.

    **Arguments:**

    - `K`: the number of terms.

    !!! example

        >>> import bilevax as bx
        >>> bx.Neumann(K=10)
        Neumann(K=10)

    ??? cite "Reference"

        Prop. 3.6 of Shaban et al., AISTATS 2019; Lorraine et al., AISTATS 2020. With a warm start:
        Arbel and Mairal, ICLR 2022 (AmIGO); Dagréou et al., NeurIPS 2022 (SOBA).
    """

    K: int = eqx.field(static=True, converter=check.plain(int))

    def __check_init__(self):
        check.integer(self.K, "K", "give the number of terms")

    def vjp(self, xi: AbstractDynamics, lam: Hyper, S: Context, T: int) -> tuple[Params, Pull]:
        return cold(self, xi, lam, S, T)

    def first_memory(self, xi: AbstractDynamics, lam: Hyper, S: Context) -> PyTree:
        return optax.tree.zeros_like(tree.inexact(xi.start(lam, S)))

    def warm_vjp(
        self, memory: PyTree, xi: AbstractDynamics, lam: Hyper, S: Context, T: int
    ) -> tuple[Params, WarmPull]:
        """The memory is A u, for the u of the last call: the series goes on from there."""
        s = solved(xi, lam, S, T)
        w, pull_read = read_vjp(xi, s)

        def pull(alpha: Params):
            step = xi.settle_vjp(s, lam, S, jnp.asarray(T - 1, jnp.int32))
            alpha = pull_read(alpha)
            again = lambda _, u: optax.tree.add(step(u)[0], alpha)  # u <- A u + alpha
            u = lax.fori_loop(0, self.K - 1, again, optax.tree.add(memory, alpha))
            Au, h = step(u)  # B (I + A + ... + A^{K-1}) alpha, if the memory is zero
            return h, ({}, Au)

        return w, pull

    def sees(self) -> Channel:
        return Channel.OPTIMUM

"""The shape that all problems of the zoo share."""

from collections.abc import Callable

import equinox as eqx
import jax
import optax

from .._dynamics import AbstractDynamics, Descent, all_of
from .._types import Context, Hyper, Objective, Time


class Problem(eqx.Module):
    """A bilevel problem with what is known about its answer.

    `hypergradient(problem.f, problem.xi, rule, T=problem.T)(problem.lam, problem.S)`
    runs it.

    !!! example

        >>> import bilevax as bx, optax
        >>> from bilevax import problems
        >>> p = problems.ridge().with_inner(optax.sgd(0.3, momentum=0.5), T=50)
        >>> bx.hypergradient(p.f, p.xi, bx.Reverse(K=5), T=p.T)(p.lam, p.S).h.shape
        (6,)
    """

    name: str = eqx.field(static=True)
    f: Objective
    xi: AbstractDynamics
    lam: Hyper
    S: Context
    T: int = eqx.field(static=True)
    finite: Callable[[Hyper, Context], Hyper] | None = None
    """The hypergradient after exactly T steps, in closed form, where there is one."""
    limit: Callable[[Hyper, Context], Hyper] | None = None
    """The hypergradient at the inner optimum, T to infinity, in closed form."""

    def with_inner(
        self,
        opt: optax.GradientTransformation | Callable,
        sample: Callable[[Context, Time], Context] = all_of,
        T: int | None = None,
    ) -> "Problem":
        """The same objectives and start, trained in another way; no known answer."""
        assert isinstance(self.xi, Descent), f"{self.name} has dynamics of its own"
        xi = Descent(self.xi.g, self.xi.init, opt, sample)
        return Problem(self.name, self.f, xi, self.lam, self.S, T or self.T)


def minibatch(size: int) -> Callable[[Context, Time], Context]:
    """A `sample` that draws `size` rows of S["train"] in each step.

    The draw depends on S["key"] and t alone, so every replay of a step sees it again.

    **Arguments:**

    - `size`: rows in a batch, drawn with replacement.

    **Returns:**

    A function (S, t) -> S_t that replaces S["train"] by a batch of it.

    !!! example

        >>> from bilevax import problems
        >>> p = problems.ridge(n=30)
        >>> x, y = problems.minibatch(8)(p.S, 0)["train"]
        >>> x.shape, y.shape
        ((8, 6), (8,))
    """

    def sample(S: Context, t: Time) -> Context:
        rows = jax.tree.leaves(S["train"])[0].shape[0]
        index = jax.random.randint(jax.random.fold_in(S["key"], t), (size,), 0, rows)
        return S | {"train": jax.tree.map(lambda a: a[index], S["train"])}

    return sample

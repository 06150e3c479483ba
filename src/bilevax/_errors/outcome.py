"""What is said about numbers: not finite, not seen, not accurate enough."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax.tree_util import tree_leaves_with_path
from jaxtyping import Array, Bool, PyTree

from . import check
from .warn import warn


def finite(x: PyTree, bad: Bool[Array, " n"], texts: Sequence[str]) -> PyTree:
    """Stop with the text of the first condition that holds; inside a transformation too."""
    if isinstance(bad, jax.core.Tracer):
        smooth, rest = eqx.partition(x, eqx.is_inexact_array)  # a key cannot be held back
        smooth = eqx.branched_error_if(smooth, jnp.any(bad), jnp.argmax(bad), texts)
        return eqx.combine(smooth, rest)
    for failed, text in zip(bad.tolist(), texts, strict=True):
        if failed:
            raise FloatingPointError(text)
    return x


def blamed(**given: PyTree) -> str:
    """Words for what was not finite before anything was computed, or none."""
    found = [(root, *leaf) for root in given for leaf in tree_leaves_with_path(given[root])]
    bad = lambda a: eqx.is_inexact_array(a) and not jnp.isfinite(a).all()
    names = [check.name_of(root, path) for root, path, a in found if bad(a)]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not finite: " * bool(names)


def diverged(T: int) -> str:
    return f"the inner loop diverged: w_T is not finite after T = {T} steps. {CAUSE_OF_DIVERGENCE}"


CAUSE_OF_DIVERGENCE = (
    "The likely cause is an inner step size that is too large (gradient descent needs a learning "
    "rate below 2 / the largest curvature of g): lower it, or clip the gradient; else "
    "look for nan in S, lam or init."
)


BAD_VALUE = (
    "f(w_T, lam, S) is not finite although w_T is: look for a logarithm of zero, an "
    "overflow, or nan in the data that f reads."
)

BAD_H = (
    "the hypergradient is not finite although w_T and f are. Likely causes: Adam or "
    "RMSprop met a zero gradient, where the derivative of its square root is infinite "
    "(give it eps_root, as in optax.adam(1e-3, eps_root=1e-8); if it is there, raise it to "
    "1e-4 or more, or start away from where g is stationary); a norm or square root at zero "
    "in f, g or init; or back-propagation through so many expanding steps that it overflows "
    "(truncate with Reverse(K=...); with Neumann, lower the inner step size)."
)


@contextmanager
def given(S: PyTree) -> Iterator[None]:
    """A note for errors of functions that read an S which nobody gave."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        if S is None and "NoneType" in str(error):
            how = "as in hg(lam, S) or minimize(..., S=S)"
            error.add_note(f"bilevax: no S was given: give f and g theirs, {how}.")
        raise


def invisible(rule: Any, leaves: Sequence[str], where: str, used: bool) -> str:
    """Why some leaves of lam are not (wholly) differentiated, and what to do."""
    leaf = leaves[0] if len(leaves) == 1 else f"each of {', '.join(leaves)}"
    if where == "nowhere":
        return (
            f"{leaf} is not connected: neither f nor the inner loop depends on it in a "
            "differentiable way, so its hypergradient is zero. Use it, or take it out "
            "of lam."
        )
    if where == "w":
        return (
            f"{leaf} acts through w_T, and f does not depend on its w in a differentiable way, so "
            "the hypergradient is zero. Let f read w, without rounding, argmax or stop_gradient."
        )
    rest = "only its direct part, grad_lam f, remains" if used else "its hypergradient is wrong"
    return (
        f"{leaf} enters the inner loop only through {where}, which {rule!r} cannot see:"
        f" {rest}. Use Reverse(), Reverse(segment=...) or Forward(), which "
        f"see {where}{_ALSO.get(where, '')}."
    )


_ALSO = {"the optimizer": ", or Reverse(K=...), which sees that of the last K steps"}


def seen_in_part(rule: Any, leaves: Sequence[str]) -> str:
    leaf = leaves[0] if len(leaves) == 1 else f"each of {', '.join(leaves)}"
    return (
        f"{leaf} acts differently from step to step: the step's number picks or switches it, as "
        f"in lam[t]. {rule!r} does not follow each step, so the parts of {leaf} that act in the "
        "others get no gradient, or a wrong one. Use Reverse(), Reverse(segment=...) or Forward()."
    )


def not_zero(rule: Any, zero: Bool[Array, ""] | bool) -> None:
    """A number is looked at where there is one; inside a transformation there is none."""
    if not isinstance(zero, jax.core.Tracer) and bool(zero):
        text = (
            f"the hypergradient by {rule!r} is exactly zero although f depends on w_T: in the steps"
            " that the rule follows lam does not act (a learning rate of zero, steps that are "
            "skipped). Use Reverse(), Reverse(segment=...) or Forward()."
        )
        warn(text, InvisibleLeafWarning)


def all_invisible(texts: Sequence[str]) -> str:
    return "the whole hypergradient would be zero. " + " ".join(texts)


class InvisibleLeafWarning(UserWarning):
    """A leaf of lam gets no gradient, or only a part, from the chosen rule.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax, warnings
        >>> g = lambda w, lam, S: (w - lam["goal"]) ** 2
        >>> xi = bx.Descent(g, lambda lam, S: lam["start"], optax.sgd(0.1))
        >>> lam = {"goal": jnp.asarray(1.0), "start": jnp.asarray(0.0)}  # K = 1 sees no start
        >>> with warnings.catch_warnings(record=True) as said:
        ...     warnings.simplefilter("always")
        ...     out = bx.hypergradient(lambda w, lam, S: w, xi, bx.Reverse(K=1), T=2)(lam)
        >>> said[0].category is bx.InvisibleLeafWarning
        True
    """


class ToleranceWarning(UserWarning):
    """A rule could not reach the accuracy that it was asked for.

    !!! example

        >>> import bilevax as bx, warnings
        >>> from bilevax import problems
        >>> p = problems.quadratic(T=40)
        >>> with warnings.catch_warnings(record=True) as said:
        ...     warnings.simplefilter("always")
        ...     hg = bx.hypergradient(p.f, p.xi, bx.AdaptiveReverse(1e-6, max_K=5), T=p.T)
        ...     h = hg(p.lam, p.S).h.block_until_ready()
        >>> said[0].category is bx.ToleranceWarning
        True
    """


def missed_tolerance(rule: Any, error: float, remedy: str) -> None:
    estimate = f"the estimated relative error is {error:.2g}"
    text = f"did not reach its tolerance: {estimate}. " if math.isfinite(error) else "failed: "
    warn(f"{rule!r} {text}{remedy}", ToleranceWarning)


def solver_failed(rule: Any) -> str:
    return (
        f"the linear solver of {rule!r} did not converge: the Jacobian at w_T is "
        "singular, indefinite (as it often is for a neural network) or ill-conditioned. Add "
        "regularisation to g, raise the solver's tolerance or max_steps, use lineax.GMRES, or "
        "use Reverse(K=...), which needs no inverse."
    )


def not_symmetric(rule: Any) -> str:
    return (
        f"{rule!r} needs a symmetric Jacobian, but that of the gradient of g is not: a surrogate "
        "gradient, a stop_gradient or a custom_vjp in g makes it so. Use lineax.LU(), or GMRES."
    )


def needs_symmetry(solver: Any) -> NoReturn:
    raise ValueError(
        f"Implicit(solver={type(solver).__name__}(...)) needs a symmetric positive "
        "definite system, which only Descent has (the Hessian of g), and only for a model without "
        "running statistics or the like; for Dynamics the system is I - A, with no structure: use "
        "Implicit(lineax.GMRES(rtol=1e-6, atol=1e-6))."
    )

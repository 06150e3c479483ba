"""What the outer loop says about bad input and bad luck."""

import inspect
import os
from typing import Any, NoReturn

import jax
import jax.core
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from . import check as base
from . import outcome
from .warn import warn

CAUSES = (
    "",  # the inner loop's sentence names T
    outcome.BAD_VALUE,
    outcome.BAD_H,
    "the outer update made lam not finite although h is: lower the outer step size.",
)


class DivergenceError(FloatingPointError):
    """A run met a value that is not finite. `result` holds the last good lam and the history.

    !!! example

        >>> import bilevax as bx, jax.numpy as jnp, optax
        >>> g = lambda w, lam, S: (w - lam) ** 2
        >>> f = lambda w, lam, S: jnp.log(lam - 1.0)  # not defined at 0
        >>> xi = bx.Descent(g, bx.constant(jnp.zeros(())), optax.sgd(0.1))
        >>> try:
        ...     bx.minimize(f, xi, bx.Reverse(), jnp.zeros(()), T=2, steps=3,
        ...                 optimizer=optax.sgd(0.1))
        ... except bx.DivergenceError as error:
        ...     print(error.result.step, error.result.lam)
        0 0.0
    """

    result: Any = None


NUMERICAL = (FloatingPointError, RuntimeError)
"""Errors of the numbers and not of the program: `DivergenceError`, and those of solvers."""


def diverged(tau: int, cause: int, T: int, suspects: str) -> NoReturn:
    text = CAUSES[cause] or outcome.diverged(T)
    if suspects:
        text = suspects + text
    elif tau and cause < 3:
        text = (
            f"everything was finite for {tau} hyper-iterations, so look first at the "
            f"outer step size (lam may have gone too far), or at nan in a new context. Here {text}"
        )
    raise DivergenceError(f"hyper-iteration {tau + 1} failed: {text}")


def stopped(error: BaseException, where: str, result: Any) -> None:
    """Give an error the run that it ended."""
    error.result = result  # pyright: ignore
    steps = f"{result.step} hyper-iteration{'' if result.step == 1 else 's'}"
    error.add_note(f"bilevax: the run so far ({steps}) is this error's .result. {where}".rstrip())


def warm_start_hides(error: ValueError) -> NoReturn:
    raise ValueError(
        "warm_start=True begins every inner loop at the last w_T, so that init is not "
        f"differentiated: if lam enters there, leave warm_start out. {error}"
    ) from error


def on_host(lam: Any, S: Any) -> None:
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((lam, S))):
        raise TypeError(
            "minimize runs on the host, and was called inside jax.jit, jax.vmap or jax.grad: call "
            "it outside; inside, write the loop with bx.hypergradient."
        )


def one_source(S: Any, contexts: Any) -> None:
    if S is not None and contexts is not None:
        raise ValueError(
            "S and contexts were both given: S is the one context of a deterministic problem, "
            "contexts are new ones in each hyper-iteration; give one of them."
        )


def kind(contexts: Any) -> str:
    """ "stream", "sampler" or "fixed"."""
    if contexts is None:
        return "fixed"
    if inspect.isgeneratorfunction(contexts):
        raise TypeError("contexts is a generator function: call it, as in contexts=read().")
    if hasattr(contexts, "__iter__") and not isinstance(contexts, (str, dict, tuple, jax.Array)):
        return "stream"
    if callable(contexts):
        return "sampler"
    raise TypeError(
        "contexts must be a function key -> S or an iterator of contexts, got "
        f"{base.kind_of(contexts)}: for one fixed context write S=..."
    )


def key_for(source: str, key: Any) -> Any:
    if source == "sampler" and key is None:
        raise ValueError("contexts is a sampler, but key is missing: give key=jax.random.key(0).")
    if key is None:
        return None
    if source != "sampler":
        raise ValueError("key was given, but contexts is not a function key -> S: leave it out.")
    if getattr(key, "dtype", None) == jnp.uint32:  # an old-style jax.random.PRNGKey
        return jax.random.wrap_key_data(key)
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must be a key, as in jax.random.key(0), got {key!r}.")
    return key


def optimizer(value: Any) -> None:
    how = "an optax optimizer, as in optax.adam(0.1)"
    base.instance(value, optax.GradientTransformation, "optimizer", how)


def mesh(value: Any) -> None:
    if value is not None:
        how = 'a jax.sharding.Mesh, as in jax.make_mesh((jax.device_count(),), ("device",))'
        base.instance(value, Mesh, "mesh", how)


def batches(source: str, batch: Any, at_once: Any, devices: int) -> tuple[int, int]:
    """The contexts of a hyper-iteration, and how many a device takes together."""
    batch = base.integer(batch, "batch", "give the contexts of a hyper-iteration")
    if source == "fixed" and batch > 1:
        raise ValueError(
            f"batch = {batch} asks for several contexts, but there is only S: give contexts, "
            "or batch=1."
        )
    if batch > 1 and batch % devices:
        raise ValueError(
            f"batch = {batch} cannot be divided among the {devices} devices of mesh: give a "
            f"multiple of {devices}."
        )
    part = max(batch // devices, 1)
    if at_once is None:
        return batch, part
    at_once = base.integer(at_once, "at_once", "give the contexts that go through vmap together")
    if at_once < part and part % at_once:
        raise ValueError(
            f"at_once = {at_once} must divide the {part} contexts of a device: give 1, {part}, "
            "or a divisor of it."
        )
    return batch, at_once


def contexts_ended(taken: int) -> NoReturn:
    raise ValueError(
        f"contexts ended after {taken} items, before the run did: give an iterator that goes on "
        "(a loader that can be iterated again is), or fewer steps."
    )


def other_form(item: int, first: Any, now: Any) -> NoReturn:
    if jax.tree.structure(first) != jax.tree.structure(now):
        raise ValueError(
            f"contexts changed their structure at item {item}: the first was "
            f"{jax.tree.structure(first)}, this is {jax.tree.structure(now)}; give all the same."
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(first), jax.tree.leaves(now), strict=True)
    path, then, here = next((path, a, b) for (path, a), b in pairs if a != b)
    raise ValueError(
        f"contexts changed their shapes at item {item}: {base.name_of('S', path)} was {then} and "
        f"is {here}; one compiled program serves the whole run: pad them, or drop the last "
        "incomplete batch of a loader."
    )


def scores(value: Any) -> dict[str, float]:
    """What `evaluate` returned, as numbers under names."""
    value = value if isinstance(value, dict) else {"value": value}
    try:
        scores = {str(name): float(x) for name, x in value.items()}
    except (TypeError, ValueError) as error:
        raise TypeError(
            "evaluate(lam) must return a number or a dict of numbers, got "
            f"{ {name: getattr(x, 'shape', type(x).__name__) for name, x in value.items()} }."
        ) from error
    if not scores:
        raise ValueError("evaluate(lam) returned an empty dict: return a number at least.")
    if "step" in scores:
        raise ValueError("evaluate(lam) returned a step, which is the name of the hyper-iteration.")
    return scores


def stopping() -> None:
    """Inside a signal handler, where print is not safe."""
    os.write(2, b"\nbilevax: stopping after this hyper-iteration; signal again to stop at once\n")


def needs_tensorboard(error: ImportError) -> NoReturn:
    raise ImportError(
        "log_dir asks for TensorBoard's event files, which tensorboardX writes: "
        "in a clone of bilevax, pip install '.[tensorboard]'."
    ) from error


def intervals(steps: int, **optional: int | None) -> None:
    """Numbers of hyper-iterations."""
    for name, value in {"steps": steps, **optional}.items():
        if value is not None or name == "steps":
            base.integer(value, name, "give a number of hyper-iterations")


def renamed_argument(old: str, new: str) -> None:
    text = f"{old} of minimize is deprecated and will go in the next version: write {new}."
    warn(text, DeprecationWarning)

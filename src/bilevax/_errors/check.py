"""What is said about arguments: numbers, functions, arrays, and what functions return."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .. import _tree as tree
from .integers import fit, require_fit

V = TypeVar("V")


def name_of(root: str, path: Any) -> str:
    """`lam['w'][0]`: how a user would write the leaf at this path."""
    return root + jax.tree_util.keystr(path)


def integer(value: Any, name: str, remedy: str, least: int = 1) -> int:
    """A static whole number of at least `least`: T, K, segment, chunk."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} must be a Python int, got {value!r}: {remedy}.")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}: {remedy}.")
    return number


def plain(kind: Any) -> Callable[[V], V]:
    """Makes numbers of numpy's and JAX's Python's: a static setting of this kind is no array."""

    def convert(value: kind) -> kind:  # pyright: ignore[reportInvalidTypeForm]
        return jax.tree.map(_number, value)

    return convert


def _number(value: Any) -> Any:
    known = isinstance(value, (np.generic, np.ndarray, jax.Array)) and value.ndim == 0
    return value.item() if known and not isinstance(value, jax.core.Tracer) else value


def positive(value: Any, name: str, remedy: str) -> None:
    """A static positive number: a tolerance."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a Python float, got {value!r}: {remedy}.")
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value!r}: {remedy}.")


def horizon(T: Any) -> int:
    number = integer(T, "T", "give the number of inner steps, as in T=100")
    if number >= 2**31:
        raise ValueError(f"T must be less than 2**31, got {number}: JAX counts steps in 32 bits.")
    return number


def function(value: Any, name: str, form: str, remedy: str = "") -> None:
    if not callable(value):
        tail = f"; {remedy}" if remedy else ""
        raise TypeError(f"{name} must be a function {form}, got {kind_of(value)}{tail}.")
    arguments = form[1 : form.find(")")].split(", ") if form.startswith("(") else None
    if arguments and not _takes(value, arguments):
        got = ", ".join(inspect.signature(value).parameters)
        raise TypeError(f"{name} must be a function {form}, got {name}({got}): let it take these.")


def _takes(value: Any, arguments: list[str]) -> bool:
    try:
        inspect.signature(value).bind(*arguments)
    except ValueError:  # some builtins do not tell
        return True
    except TypeError:
        return False
    return True


def instance(value: Any, kind: type, name: str, remedy: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {remedy}, got {kind_of(value)}.")


def floating(value: PyTree, name: str) -> PyTree:
    """Check that every leaf is a real floating array; return them as JAX arrays."""
    if value is None and name == "lam":
        raise TypeError("lam is None: give the hyperparameters, a pytree of floating arrays.")
    if all(map(_is_settled, jax.tree_util.tree_leaves(value))):  # names take longer
        return value
    for path, leaf in jax.tree_util.tree_leaves_with_path(value):
        _floating_leaf(leaf, name_of(name, path), name)
    return tree.strong(value)


def _is_settled(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and _is_floating(leaf.dtype) and not leaf.weak_type


_is_floating = functools.cache(lambda dtype: jnp.issubdtype(dtype, jnp.floating))


def _floating_leaf(leaf: Any, where: str, name: str) -> None:
    if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
        raise TypeError(
            f"{where} is the Python {type(leaf).__name__} {leaf!r}: wrap it as "
            f"jnp.asarray({float(leaf)!r}), so that another value does not compile again."
        )
    if not isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        remedy = (
            f"keep only arrays in {name} (for a module, split it with equinox.partition(model, "
            "equinox.is_inexact_array) and combine it again inside f and g)"
        )
        if hasattr(type(leaf), "__dlpack__"):  # as PyTorch's tensors have
            own = ", or net.params of net = bilevax.torch.functional(module)" * (name == "w")
            remedy = f"give bilevax.torch.arrays({name}){own}"
        raise TypeError(f"{where} must be a floating array, got {kind_of(leaf)}: {remedy}.")
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise TypeError(
            f"{where} must be a floating array, got dtype {leaf.dtype}: cast it with "
            f".astype(float), or move it into S if it is not to be differentiated."
        )


def context(S: PyTree) -> PyTree:
    """S, where tensors of another library, as PyTorch's, have become arrays."""
    if all(map(_is_array, jax.tree_util.tree_leaves(S))):  # names take longer
        return S
    own = lambda path, a: a if _is_array(a) else _own(a, name_of("S", path))
    return jax.tree_util.tree_map_with_path(own, S)


def _is_array(a: Any) -> bool:
    if isinstance(a, jax.Array):
        return True
    known = eqx.is_array_like(a) or isinstance(a, jax.ShapeDtypeStruct)
    return known and getattr(getattr(a, "dtype", None), "kind", "f") not in "OSUMm" and fit(a)


def _own(tensor: Any, where: str) -> Array:
    require_fit(tensor, where)
    if not hasattr(type(tensor), "__dlpack__") or isinstance(tensor, (np.ndarray, np.generic)):
        got = f"an array of {tensor.dtype}" if hasattr(tensor, "dtype") else kind_of(tensor)
        raise TypeError(
            f"{where} must be an array of numbers, got {got}: turn text into integers, read the "
            "batches of a loader, and let f and g find anything else in Python's variables."
        )
    try:
        numbers = np.asarray(tensor)
    except (RuntimeError, TypeError) as error:
        raise TypeError(
            f"{where} is a {type(tensor).__module__}.{type(tensor).__name__} that cannot "
            f"become an array ({error}) Give it detached, on the CPU."
        ) from error
    require_fit(numbers, where)
    return jnp.asarray(numbers)


def scalar(value: Any, name: str) -> Array:
    """The value of an objective: one real floating number."""
    shape = getattr(value, "shape", () if isinstance(value, (int, float)) else None)
    if shape != () or isinstance(value, (bool, np.bool_)):
        got = f"shape {shape}" if shape else kind_of(value)
        remedy = "reduce it with jnp.mean or jnp.sum, and return nothing else"
        if name == "g" and isinstance(value, tuple):
            remedy += ", unless init returns bx.Stateful(w, state)"
        raise TypeError(f"{name}(w, lam, S) must return a scalar, got {got}: {remedy}.")
    value = jnp.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"{name}(w, lam, S) must return a floating scalar, got dtype {value.dtype}:"
            " a count or an accuracy has no gradient, return a loss."
        )
    return value


def pair(value: Any) -> tuple[Any, Any]:
    """What an objective with `has_aux` returns."""
    promise = "has_aux=True says that f returns a pair (scalar, anything else)"
    return _two(value, promise, "return both, or leave has_aux out")


def loss_and_state(value: Any) -> tuple[Any, Any]:
    """What g of a model with a state returns."""
    promise = "g of a bx.Stateful must return a pair (loss, new state)"
    return _two(value, promise, "return the state too, as it came if nothing changes it")


def _two(value: Any, promise: str, remedy: str) -> tuple[Any, Any]:
    if not (isinstance(value, tuple) and len(value) == 2):
        raise TypeError(f"{promise}, got {kind_of(value)}: {remedy}.")
    return value


def same_state(before: PyTree, after: PyTree) -> None:
    """A step must give back a state of the same structure, shapes and dtypes."""
    old, new = jax.tree.structure(before), jax.tree.structure(after)
    if old != new:
        raise ValueError(
            f"step changed the structure of the state from {old} to {new}: return the "
            "same containers, with the same keys, that init returned."
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, a), b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(
                f"step changed {name_of('state', path)} from {a.dtype}{list(a.shape)} "
                f"to {b.dtype}{list(b.shape)}: keep shape and dtype fixed along the "
                "loop (cast or reshape in init or in step)."
            )


def arrays(state: PyTree) -> PyTree:
    """A state may hold numbers, which become arrays, but nothing that is not one."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        if not eqx.is_array_like(leaf):
            raise TypeError(
                f"{name_of('state', path)} must be an array, got {kind_of(leaf)}: a state"
                " holds arrays only; keep functions and names in the dynamics itself."
            )
    return tree.strong(state)


def unperturbed(fixed: tuple, names: tuple[str, ...]) -> None:
    """`solve` has a derivative in lam alone."""
    for name, value in zip(names, fixed, strict=True):
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            if leaf.perturbed:
                raise ValueError(
                    f"solve is differentiable in lam only, but {name_of(name, path)} is"
                    " being differentiated: move it into lam, or wrap it in "
                    "jax.lax.stop_gradient."
                )


def kind_of(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__} itself (write {value.__name__}(...))"
    if isinstance(value, (str, int, float, bool)):
        return f"the {type(value).__name__} {value!r}"
    return f"a value of type {type(value).__name__}"

"""What makes a run the run that it is: enough to refuse to go on with another one.

Data are compared by their bits, functions by the programs that JAX traces of them, with every
constant inside. Neither memory addresses nor the order of sets enter.
"""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from jax.extend import core
from jaxtyping import PyTree

from .. import _tree as tree
from .._types import Context, Hyper
from .batch import OuterProblem
from .checkpoints import named, raw
from .contexts import Reader
from .devices import on_host
from .hyper_iteration import OuterState, hyper_iteration


def fingerprint(
    problem: OuterProblem, state: OuterState, S: Context, reader: Reader | None
) -> dict[str, Any]:
    """The settings of a run and its first state, as JSON; not which device does what."""
    problem = dataclasses.replace(problem, at_once=1, mesh=None, state_places=None)
    forms = named("lam", state.lam) | named("opt", state.opt)
    stacked = lambda a: jax.ShapeDtypeStruct((problem.batch, *a.shape), a.dtype)
    contexts = jax.tree.map(stacked, S) if reader else None
    return {
        "T": problem.T,
        "rule": _text(problem.rule),
        "batch": problem.batch,
        "warm_start": problem.warm_start,
        "audits": _text(problem.audits),
        "contexts": _source(problem, reader),
        "float64": bool(jax.config.read("jax_enable_x64")),
        "forms": {name: f"{a.dtype}{list(a.shape)}" for name, a in forms.items()},
        "key": digest(problem.key),
        "lam": digest(state.lam),
        "S": digest(problem.S),
        "first context": digest(S) if reader else None,
        "optimizer": digest(state.opt, trace(_update, problem, state.opt, state.lam)),
        "program": digest(problem, trace(hyper_iteration, problem, state, contexts)),
        "versions": {"jax": jax.__version__, "optax": optax.__version__},
    }


def _source(problem: OuterProblem, reader: Reader | None) -> str:
    if reader is None:
        return "a sampler" if problem.draw else "one, S"
    return "an iterator" + ("" if reader.start is None else " that knows where it stands")


def digest(*values: PyTree) -> str:
    """Of the bits of arrays and programs, and of the text of everything else."""
    sum_ = hashlib.blake2b(digest_size=8)
    for value in values:
        leaves, treedef = jax.tree.flatten(value)
        sum_.update(_text(treedef).encode())
        for leaf in leaves:
            for part in _parts(leaf):
                sum_.update(part)  # pyright: ignore[reportArgumentType]
    return sum_.hexdigest()


def _update(problem: OuterProblem, opt: PyTree, lam: Hyper) -> PyTree:
    value = lambda lam: tree.dot(lam, lam)  # some function, for optimizers that search
    extra = {"value": value(lam), "grad": lam, "value_fn": value}
    with jax.numpy_dtype_promotion("standard"):
        return optax.with_extra_args_support(problem.optimizer).update(lam, opt, lam, **extra)


def trace(fun: Callable[..., PyTree], *args: PyTree) -> core.ClosedJaxpr:
    """The program of fun; arrays in args are its inputs, and everything else is inside."""
    arrays, rest = eqx.partition(args, lambda x: hasattr(x, "shape"))
    forms = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), arrays)
    run = lambda arrays: eqx.filter(fun(*eqx.combine(arrays, rest)), eqx.is_array)
    return jax.make_jaxpr(run)(forms)


def _parts(x: Any) -> Iterator[bytes | np.ndarray]:
    """x as bytes: programs by their steps, arrays by their bits."""
    if isinstance(x, core.ClosedJaxpr):
        yield from _parts([x.consts, x.jaxpr])
    elif isinstance(x, core.Jaxpr):
        yield from _program(x)
    elif isinstance(x, (tuple, list)):
        yield f"{len(x)}".encode()
        for item in x:
            yield from _parts(item)
    elif isinstance(x, dict):
        yield from _parts(sorted(x.items(), key=lambda item: str(item[0])))
    elif isinstance(x, (set, frozenset)):
        yield from _parts(sorted(map(_text, x)))
    elif isinstance(x, (jax.Array, np.ndarray, np.generic)):
        yield f"{x.dtype} {x.shape} ".encode()
        if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
            yield raw(on_host(x))  # of what several processes share, only the form
    else:
        yield _text(x).encode()


def _program(jaxpr: core.Jaxpr) -> Iterator[bytes | np.ndarray]:
    """Every equation, with its variables numbered as they come."""
    numbers: dict[Any, int] = {}

    def name(v: Any) -> Any:
        if isinstance(v, core.Literal):
            return v.val, str(v.aval)
        return numbers.setdefault(v, len(numbers)), str(v.aval)

    yield from _parts([name(v) for v in (*jaxpr.constvars, *jaxpr.invars)])
    for step in jaxpr.eqns:
        yield step.primitive.name.encode()
        yield from _parts([[name(v) for v in step.invars], step.params])
        yield from _parts([name(v) for v in step.outvars])
    yield from _parts([name(v) for v in jaxpr.outvars])


def _text(x: Any) -> str:
    """repr(x) without addresses, and with sets in one order: theirs may follow addresses."""
    in_order = lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}"
    return re.sub(r"\{([^{}]*)\}", in_order, re.sub(r" at 0x[0-9a-f]+", "", repr(x)))

"""PyTorch without a library, as a careful user writes it: autograd through the loop.

Truncation makes no graph for the first T - K steps; checkpointing keeps a state in each segment,
and goes back through one segment at a time.
"""

import torch

from . import in_torch
from .in_torch import Tensors
from .problems import Adam, Problem
from .wants import Checkpointed, Full, NotOfferedError, Program, Truncated, Want

PACKAGE = "torch"


def step(m: in_torch.Model, inner, w: Tensors, state: Tensors, mu: Tensors, S, t: int, graph: bool):
    """One inner step; the moments of Adam are in `state`, as m/name and v/name."""
    if not graph:
        w = in_torch.leaves(w)
    grads = torch.autograd.grad(m.g(w, mu, S), list(w.values()), create_graph=graph)
    with torch.set_grad_enabled(graph):
        if not isinstance(inner, Adam):
            rate = m.rate(mu)
            return {k: a - rate * b for (k, a), b in zip(w.items(), grads, strict=True)}, state
        (b1, b2), new, moments = inner.betas, {}, {}
        for (k, a), grad in zip(w.items(), grads, strict=True):
            first = b1 * state[f"m/{k}"] + (1 - b1) * grad
            second = b2 * state[f"v/{k}"] + (1 - b2) * grad * grad
            moments |= {f"m/{k}": first, f"v/{k}": second}
            size = (second / (1 - b2 ** (t + 1))).sqrt() + inner.eps
            new[k] = a - inner.rate / (1 - b1 ** (t + 1)) * first / size
        return new, moments


def moments(inner, w: Tensors) -> Tensors:
    if not isinstance(inner, Adam):
        return {}
    return {f"{which}/{k}": torch.zeros_like(a) for which in "mv" for k, a in w.items()}


def unroll(m, inner, w, state, mu, S, times: range, graph: bool):
    for t in times:
        w, state = step(m, inner, w, state, mu, S, t, graph)
    return w, state


def truncated(m: in_torch.Model, problem: Problem, K: int):
    T, inner = problem.T, problem.inner

    def one(S):
        mu = m.prepare(S)
        w = m.start(mu)
        state = moments(inner, w)
        if T > K:
            w, state = unroll(
                m, inner, w, state, in_torch.detached(mu), S, range(T - K), graph=False
            )
            w, state = in_torch.leaves(w), in_torch.detached(state)
        w, _ = unroll(m, inner, w, state, mu, S, range(max(T - K, 0), T), graph=True)
        return in_torch.gradients(m, m.f(w, S))

    return one


def checkpointed(m: in_torch.Model, problem: Problem, segment: int):
    T, inner = problem.T, problem.inner
    starts = range(0, T, segment)

    def one(S):
        mu = m.prepare(S)
        w = m.start(mu)
        state, inside, kept = moments(inner, w), in_torch.detached(mu), []
        for t in starts:
            kept.append((in_torch.detached(w), in_torch.detached(state)))
            times = range(t, min(t + segment, T))
            w, state = unroll(m, inner, w, state, inside, S, times, graph=False)
        value_at, seen = in_torch.leaves(w), in_torch.leaves(mu)
        value = m.f(value_at, S)
        bars = torch.autograd.grad(value, list(value_at.values()), retain_graph=True)
        direct = in_torch.gradients(m, value) if value.requires_grad else None
        bars, total = [*bars, *map(torch.zeros_like, state.values())], None
        for t, (w, state) in reversed(list(zip(starts, kept, strict=True))):
            w, state = in_torch.leaves(w), in_torch.leaves(state)
            times = range(t, min(t + segment, T))
            ends = unroll(m, inner, w, state, seen, S, times, graph=True)
            outputs = [a for end in ends for a in end.values()]
            inputs = [*w.values(), *state.values(), *seen.values()]
            found = torch.autograd.grad(outputs, inputs, bars, allow_unused=True)
            found = [torch.zeros_like(a) if b is None else b for a, b in zip(inputs, found)]  # noqa: B905
            bars, through = found[: len(w) + len(state)], found[len(w) + len(state) :]
            total = through if total is None else [a + b for a, b in zip(total, through)]  # noqa: B905
        return _out(m, mu, m.start(mu), total, bars, direct)

    return one


def _out(m: in_torch.Model, mu: Tensors, w: Tensors, through, bars, direct):
    """From mu and w_0 back to lam."""
    ends, bars = [*mu.values(), *w.values()], [*through, *bars[: len(w)]]
    live = [(a, b) for a, b in zip(ends, bars, strict=True) if a.requires_grad]
    lam = list(m.lam.values())
    found = torch.autograd.grad([a for a, _ in live], lam, [b for _, b in live], allow_unused=True)
    found = [torch.zeros_like(a) if b is None else b for a, b in zip(lam, found, strict=True)]
    return [a + b for a, b in zip(found, direct, strict=True)]


def build(problem: Problem, want: Want) -> Program:
    m = in_torch.model(problem)
    match want:
        case Full():
            return in_torch.program(m, truncated(m, problem, problem.T))
        case Truncated(K):
            return in_torch.program(m, truncated(m, problem, K))
        case Checkpointed(segment):
            return in_torch.program(m, checkpointed(m, problem, segment))
    raise NotOfferedError("written without a solver")

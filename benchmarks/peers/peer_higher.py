"""higher 0.2.1: a model and an optimizer, patched to keep their graph.

It has no truncation of its own: the first T - K steps are made by the patched optimizer without a
graph (`track_higher_grads=False`), the last K by one that keeps it and takes over its state.
"""

import higher
import torch

from . import in_torch
from .problems import Adam, Problem
from .wants import Full, NotOfferedError, Program, Truncated, Want

PACKAGE = "higher"


class Weights(torch.nn.Module):
    """The inner variable as a module, which the library wants."""

    def __init__(self, w: in_torch.Tensors):
        super().__init__()
        self.names = list(w)
        self.all = torch.nn.ParameterList([torch.nn.Parameter(a.detach()) for a in w.values()])


def optimizer(problem: Problem, model: Weights) -> torch.optim.Optimizer:
    if isinstance(problem.inner, Adam):
        inner = problem.inner
        return torch.optim.Adam(model.parameters(), inner.rate, inner.betas, inner.eps)
    return torch.optim.SGD(model.parameters(), problem.inner.rate or 1.0)


def descend(m, problem, w, mu, S, steps: int, graph: bool, state=None):
    """`steps` steps from w; the optimizer's state in and out."""
    model = Weights(w)
    learned = {"lr": [m.rate(mu)]} if problem.inner.rate is None else None
    with higher.innerloop_ctx(
        model, optimizer(problem, model), track_higher_grads=graph, copy_initial_weights=False
    ) as (patched, opt):
        patched.update_params(list(w.values()))
        if state is not None:
            opt.state = state
        for _ in range(steps):
            now = dict(zip(model.names, patched.parameters(), strict=True))
            opt.step(m.g(now, mu, S), override=learned)
        return dict(zip(model.names, patched.parameters(), strict=True)), opt.state


def cut(state):
    """The optimizer's state, without its graph."""
    free = lambda a: a.detach() if torch.is_tensor(a) else a
    return [{i: {k: free(a) for k, a in s.items()} for i, s in group.items()} for group in state]


def build(problem: Problem, want: Want) -> Program:
    if not isinstance(want, (Full, Truncated)):
        raise NotOfferedError("unrolls only")
    m = in_torch.model(problem)
    K = min(want.K, problem.T) if isinstance(want, Truncated) else problem.T

    def one(S):
        mu = m.prepare(S)
        w, state = m.start(mu), None
        if problem.T > K:
            blind = in_torch.detached(mu)
            w, state = descend(m, problem, in_torch.leaves(w), blind, S, problem.T - K, graph=False)
            w, state = in_torch.leaves(w), cut(state)
        w, _ = descend(m, problem, w, mu, S, K, graph=True, state=state)
        return in_torch.gradients(m, m.f(w, S))

    return in_torch.program(m, one)

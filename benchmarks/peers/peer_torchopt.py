"""TorchOpt 0.7.3: its functional optimizers, and its implicit differentiation.

Truncation is by hand, by `torchopt.stop_gradient` on the weights and on the optimizer's state.
"""

import torch
import torchopt

from . import in_torch
from .problems import Adam, Problem
from .wants import Full, Implicit, NotOfferedError, Program, Truncated, Want

PACKAGE = "torchopt"


def optimizer(m: in_torch.Model, problem: Problem, mu):
    inner = problem.inner
    if isinstance(inner, Adam):
        return torchopt.adam(inner.rate, inner.betas, inner.eps, moment_requires_grad=True)
    return torchopt.sgd(m.rate(mu))


def descend(m, opt, w, state, mu, S, steps: int, graph: bool):
    names = list(w)
    w = tuple(w.values())
    for _ in range(steps):
        if not graph:
            w = tuple(a.detach().requires_grad_() for a in w)
        loss = m.g(dict(zip(names, w, strict=True)), mu, S)
        grads = torch.autograd.grad(loss, w, create_graph=graph)
        with torch.set_grad_enabled(graph):
            updates, state = opt.update(grads, state, params=w, inplace=False)
            w = torchopt.apply_updates(w, updates, inplace=False)
    return dict(zip(names, w, strict=True)), state


def unrolled(m: in_torch.Model, problem: Problem, K: int):
    def one(S):
        mu = m.prepare(S)
        w = m.start(mu)
        blind, opt = in_torch.detached(mu), optimizer(m, problem, mu)
        state = opt.init(tuple(w.values()))
        if problem.T > K:
            first = optimizer(m, problem, blind)
            w, state = descend(m, first, w, state, blind, S, problem.T - K, graph=False)
            w = in_torch.leaves(w)
            torchopt.stop_gradient(state)
        w, _ = descend(m, opt, w, state, mu, S, K, graph=True)
        return in_torch.gradients(m, m.f(w, S))

    return one


def implicit(m: in_torch.Model, problem: Problem, rtol: float, steps: int):
    names = list(problem.w)

    def one(S):
        def slope(w, lam):
            inside = lambda *w: m.g(
                dict(zip(names, w, strict=True)), dict(zip(m.lam, lam, strict=True)), S
            )
            return torch.func.grad(inside, argnums=tuple(range(len(names))))(*w)

        solve = torchopt.linear_solve.solve_cg(rtol=rtol, atol=rtol, maxiter=steps)

        @torchopt.diff.implicit.custom_root(slope, argnums=1, solve=solve)
        def inner(w, lam):
            mu = dict(zip(m.lam, (a.detach() for a in lam), strict=True))
            opt = optimizer(m, problem, mu)
            first = dict(zip(names, w, strict=True))
            with torch.enable_grad():
                state = opt.init(w)
                end, _ = descend(m, opt, first, state, mu, S, problem.T, graph=False)
            return tuple(end.values())

        w = inner(tuple(m.start(m.lam).values()), tuple(m.lam.values()))
        return in_torch.gradients(m, m.f(dict(zip(names, w, strict=True)), S))

    return one


def build(problem: Problem, want: Want) -> Program:
    m = in_torch.model(problem)
    match want:
        case Full():
            return in_torch.program(m, unrolled(m, problem, problem.T))
        case Truncated(K):
            return in_torch.program(m, unrolled(m, problem, min(K, problem.T)))
        case Implicit(rtol, steps) if problem.w:
            return in_torch.program(m, implicit(m, problem, rtol, steps))
    raise NotOfferedError("unrolls, or solves at the end")

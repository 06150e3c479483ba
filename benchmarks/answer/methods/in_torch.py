"""In PyTorch, for the 20 penalties: TorchOpt and higher through 100 steps; hypertorch's CG and
fixed point after ten warm ones, written out, since it is not on the package index.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import torch
from torch.nn.functional import softplus

from ..follow import Program, judge_of

T, WARM, SOLVE = 100, 10, 10
Hyper = Callable[["Losses", torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(losses, lam, w) -> (h, w)."""


class Losses:
    """g and f of `problems.logistic`."""

    def __init__(self, problem):
        arrays = {k: a for k, a in problem.S.items() if a is not None}
        self.S = {k: torch.from_numpy(np.array(a)) for k, a in arrays.items()}
        self.share = problem.w.size // problem.lam.size
        self.gamma = float(problem.gamma)

    def g(self, w, lam):
        each = torch.sigmoid(lam).repeat_interleave(self.share)
        return self._loss(w, self.S["x"], self.S["y"]) + (each * w**2).sum() / 2

    def f(self, w):
        return self._loss(w, self.S["x_val"], self.S["y_val"])

    def _loss(self, w, x, y):
        return softplus(-y * (x @ w)).mean()


def torchopt(p: Losses, lam, w):
    import torchopt

    opt = torchopt.sgd(p.gamma)
    end = (torch.zeros_like(w).requires_grad_(),)
    state = opt.init(end)
    for _ in range(T):
        grads = torch.autograd.grad(p.g(end[0], lam), end, create_graph=True)
        updates, state = opt.update(grads, state, params=end, inplace=False)
        end = torchopt.apply_updates(end, updates, inplace=False)
    return torch.autograd.grad(p.f(end[0]), lam)[0], w


def higher(p: Losses, lam, w):
    import higher

    model = torch.nn.ParameterList([torch.zeros_like(w)])
    opt = torch.optim.SGD(model.parameters(), p.gamma)
    with higher.innerloop_ctx(model, opt, copy_initial_weights=False) as (patched, inner):
        for _ in range(T):
            inner.step(p.g(next(iter(patched.parameters())), lam))
        (end,) = patched.parameters()
        return torch.autograd.grad(p.f(end), lam)[0], w


def _implicit(solve) -> Hyper:
    def hyper(p: Losses, lam, w):
        for _ in range(WARM):
            w = w.detach().requires_grad_()
            w = w - p.gamma * torch.autograd.grad(p.g(w, lam), w)[0]
        w = w.detach().requires_grad_()
        (slope,) = torch.autograd.grad(p.g(w, lam), w, create_graph=True)
        (alpha,) = torch.autograd.grad(p.f(w), w)
        product = lambda v: torch.autograd.grad(slope, w, v, retain_graph=True)[0]
        return -torch.autograd.grad(slope, lam, solve(p, product, alpha))[0], w.detach()

    return hyper


def _conjugate(p, product, alpha):
    v, r = torch.zeros_like(alpha), alpha
    d, size = r, r @ r
    for _ in range(SOLVE):
        Hd = product(d)
        step = size / (d @ Hd)
        v, r = v + step * d, r - step * Hd
        d, size = r + (r @ r) / size * d, r @ r
    return v


def _fixed_point(p, product, alpha):
    v = torch.zeros_like(alpha)
    for _ in range(SOLVE):
        v = v - p.gamma * (product(v) - alpha)
    return v


IN_TORCH: dict[str, Hyper] = {
    "TorchOpt: full": torchopt,
    "higher: full": higher,
    "hypertorch: CG, warm": _implicit(_conjugate),
    "hypertorch: fixed point, warm": _implicit(_fixed_point),
}


class State(NamedTuple):
    """As in `method`, with the two means of Adam."""

    lam: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor
    w: torch.Tensor
    t: int


def program(problem, hyper: Hyper) -> Program:
    p, judge = Losses(problem), judge_of(problem)
    tensor = lambda a: torch.from_numpy(np.array(a))
    zeros = torch.zeros(problem.lam.size)
    begin = State(tensor(problem.lam), zeros, zeros, tensor(problem.w), 0)

    def step(state: State, rate: float) -> State:
        lam, mean, square, w, t = state
        h, w = hyper(p, lam.requires_grad_(), w)
        mean, square = 0.9 * mean + 0.1 * h, 0.999 * square + 0.001 * h**2
        size = (square / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8
        lam = lam.detach() - rate * mean / (1 - 0.9 ** (t + 1)) / size
        return State(lam, mean, square, w, t + 1)

    def chunk(state: State, rate: float, n: int) -> State:
        for _ in range(n):
            state = step(state, rate)
        return state

    step(begin, 0.0)  # what is set up at first use
    return Program(begin, chunk, lambda lam: judge(jnp.asarray(lam.detach().numpy())), 0.0)

"""The losses of the problems in PyTorch, and how a function of a task becomes a `Program`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as nn

from .problems import Problem
from .wants import Program

Tensors = dict[str, torch.Tensor]


class Model(NamedTuple):
    """g and f; `prepare` is computed once before the inner loop, which sees only mu."""

    lam: Tensors
    tasks: list[Tensors]
    prepare: Callable[[Tensors], Tensors]
    start: Callable[[Tensors], Tensors]
    rate: Callable[[Tensors], Any]
    g: Callable[[Tensors, Tensors, Tensors], torch.Tensor]
    f: Callable[[Tensors, Tensors], torch.Tensor]


def _cleaning_g(w, lam, S):
    losses = nn.cross_entropy(nn.linear(S["x"], w["W"]), S["y"], reduction="none")
    return (torch.sigmoid(lam["weights"]) * losses).mean() + 0.001 * (w["W"] ** 2).sum()


def _cleaning_f(w, S):
    return nn.cross_entropy(nn.linear(S["x_val"], w["W"]), S["y_val"])


def _classify(w, x):
    return nn.linear(torch.tanh(nn.linear(x, w["inner"], w["bias"])), w["outer"])


def _network_g(w, lam, S):
    losses = nn.cross_entropy(_classify(w, S["x"]), S["y"], reduction="none")
    inner, outer = lam["penalty"].exp()
    penalty = inner * (w["inner"] ** 2).sum() + outer * (w["outer"] ** 2).sum()
    return (torch.sigmoid(lam["weights"]) * losses).mean() + penalty


def _network_f(w, S):
    return nn.cross_entropy(_classify(w, S["x_val"]), S["y_val"])


def _toy_g(w, lam, S):
    away = w["w"] - lam["centre"]
    return away @ S["G"] @ away / 2


def _toy_f(w, S):
    return (w["w"] ** 2).sum() + 10 * (torch.sin(w["w"]) ** 2).sum()


LOSSES = {
    "hypercleaning": (_cleaning_g, _cleaning_f),
    "MLP, Adam": (_network_g, _network_f),
    "toy": (_toy_g, _toy_f),
}


def _layer(p: Tensors, name: str, x: torch.Tensor) -> torch.Tensor:
    x = nn.max_pool2d(nn.conv2d(x, p[f"{name}/kernel"], padding=1), 2)
    scale, shift = p[f"{name}/scale"], p[f"{name}/shift"]
    return torch.relu(nn.batch_norm(x, None, None, scale, shift, True, eps=1e-3))


def _represent(lam: Tensors, x: torch.Tensor) -> torch.Tensor:
    return _layer(lam, "base/conv2", _layer(lam, "base/conv1", x[:, None]))


def _few_shot_loss(w: Tensors, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = _layer(w, "c/conv4", _layer(w, "c/conv3", z)).flatten(1)
    return nn.cross_entropy(x @ w["c/linear/kernel"] + w["c/linear/shift"], y)


def _few_shot_prepare(lam: Tensors, S: Tensors) -> Tensors:
    centre = {k: a for k, a in lam.items() if k.startswith("c/")}
    rho = {k: a.exp() for k, a in lam.items() if k.startswith("rho/")}
    return centre | rho | {"z": _represent(lam, S["x"]), "gamma": lam["gamma"].exp()}


def _few_shot_g(w, mu, S):
    rho = lambda name: mu[f"rho/{name.split('/')[1]}"]
    pull = sum(rho(k) * ((a - mu[k]) ** 2).sum() for k, a in w.items())
    return _few_shot_loss(w, mu["z"], S["y"]) + pull


def _is_convolution(name: str) -> bool:
    return name.endswith("kernel") and "conv" in name


def _tensor(name: str, a: np.ndarray) -> torch.Tensor:
    a = np.asarray(a)
    if _is_convolution(name):  # (9 c, F) -> (F, c, 3, 3)
        a = a.reshape(3, 3, -1, a.shape[1]).transpose(3, 2, 0, 1)
    return torch.tensor(a.copy())


def _array(name: str, a: torch.Tensor) -> np.ndarray:
    a = a.detach().numpy()
    return a.transpose(2, 3, 1, 0).reshape(-1, a.shape[0]) if _is_convolution(name) else a


def model(problem: Problem) -> Model:
    lam = {k: _tensor(k, a).requires_grad_() for k, a in problem.lam.items()}
    tasks = [{k: torch.tensor(a) for k, a in task.items()} for task in problem.tasks]
    if problem.name == "Omniglot":
        centre = lambda mu: {k: a for k, a in mu.items() if k.startswith("c/")}
        loss = lambda w, S: _few_shot_loss(w, _represent(lam, S["x_val"]), S["y_val"])
        prepare = lambda S: _few_shot_prepare(lam, S)
        return Model(lam, tasks, prepare, centre, lambda mu: mu["gamma"], _few_shot_g, loss)
    g, f = LOSSES[problem.name]
    w_0 = {k: torch.tensor(a) for k, a in problem.w.items()}
    start = lambda mu: {k: a.clone().requires_grad_() for k, a in w_0.items()}
    return Model(lam, tasks, lambda S: lam, start, lambda mu: problem.inner.rate, g, f)


def detached(tensors: Tensors) -> Tensors:
    return {k: a.detach() for k, a in tensors.items()}


def leaves(tensors: Tensors) -> Tensors:
    return {k: a.detach().requires_grad_() for k, a in tensors.items()}


def gradients(m: Model, value: torch.Tensor) -> list[torch.Tensor]:
    """d value / d lam, with zeros for what does not matter."""
    found = torch.autograd.grad(value, list(m.lam.values()), allow_unused=True)
    return [torch.zeros_like(a) if b is None else b for a, b in _pairs(m, found)]


def _pairs(m: Model, found):
    return zip(m.lam.values(), found, strict=True)


def program(m: Model, one: Callable[[Tensors], list[torch.Tensor]]) -> Program:
    """`one` is task -> h, in the order of lam; the result is the mean over tasks."""

    def run():
        total = one(m.tasks[0])
        for task in m.tasks[1:]:
            total = [a + b for a, b in zip(total, one(task), strict=True)]
        return [a / len(m.tasks) for a in total]

    read = lambda h: {k: _array(k, a) for k, a in zip(m.lam, h, strict=True)}
    return Program(run, read)

"""BOAT 1.1.1 (boat-torch): `RAD` unrolls, `RGT` with `RAD` truncates, `CG` solves at the end.

`truncate_iter` counts the first steps, T - K of them. With `return_grad` an iteration leaves the
hypergradient in `.grad`, to which it adds, so it is cleared before.
"""

import tempfile
from pathlib import Path

import boat_torch
import torch

from . import in_torch
from .peer_higher import Weights, optimizer
from .problems import Problem
from .wants import Full, Implicit, NotOfferedError, Program, Truncated, Want

PACKAGE = "boat-torch"
_LOSSES: dict[str, in_torch.Model] = {}


def lower(feed, upper, weights, params=None):
    """BOAT finds its losses by the names of their functions."""
    return _LOSSES["g"].g(_now(weights, params), dict(upper.named_leaves), feed)


def upper(feed, upper, weights, params=None):
    return _LOSSES["g"].f(_now(weights, params), feed)


def _now(weights, params):
    params = list(weights.parameters()) if params is None else params
    return dict(zip(weights.names, params, strict=True))


class Hyper(torch.nn.Module):
    def __init__(self, lam: in_torch.Tensors):
        super().__init__()
        self.all = torch.nn.ParameterList([torch.nn.Parameter(a.detach()) for a in lam.values()])
        self.named_leaves = list(zip(lam, self.all, strict=True))


def operations(want: Want, T: int) -> tuple[list[str], int]:
    match want:
        case Full():
            return ["RAD"], 0
        case Truncated(K):
            return ["RGT", "RAD"], T - K
        case Implicit():
            return ["CG"], 0
    raise NotOfferedError("unrolls, truncates, or solves at the end")


def build(problem: Problem, want: Want) -> Program:
    if not problem.w:
        raise NotOfferedError("the inner step size and start cannot be hyperparameters")
    m = in_torch.model(problem)
    weights, hyper = Weights(m.start(m.lam)), Hyper(m.lam)
    na_op, first = operations(want, problem.T)
    solve = want if isinstance(want, Implicit) else Implicit()
    log = Path(tempfile.mkdtemp()) / "losses.json"
    config = {
        "fo_op": None, "gm_op": ["NGD"], "na_op": na_op, "lower_iters": problem.T,
        "lower_level_model": weights, "upper_level_model": hyper,
        "lower_level_var": list(weights.parameters()), "upper_level_var": list(hyper.parameters()),
        "lower_level_opt": optimizer(problem, weights), "device": "cpu", "return_grad": True,
        "upper_level_opt": torch.optim.SGD(hyper.parameters(), 0.0), "accumulate_grad": False,
        "copy_last_param": False, "loss_log_path": str(log), "RGT": {"truncate_iter": first},
        "GDA": {"alpha_init": 0.0, "alpha_decay": 0.5},
        "CG": {"tolerance": solve.rtol, "k": solve.steps},
    }  # fmt: skip
    here = {"lower_level_loss": {"function": f"{__name__}.lower"}}
    solver = boat_torch.Problem(
        config, here | {"upper_level_loss": {"function": f"{__name__}.upper"}}
    )
    solver.build_ll_solver().build_ul_solver()

    def one(S):
        _LOSSES["g"] = m
        for p in hyper.parameters():
            p.grad = None
        found, _ = solver.run_iter(S, S, 0)
        solver.loss_history.clear()
        return [torch.zeros_like(p) if a is None else a for p, a in zip(hyper.parameters(), found)]  # noqa: B905

    return in_torch.program(m, one)

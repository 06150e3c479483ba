"""The same `nn.Module` through bilevax, plain autograd, higher and TorchOpt, in one run.

A weight for each of eight rows, through all of T = 5 steps of SGD with momentum. The answers are
compared first. Run in an environment with all of them: pip install -e '.[torch]', and the peers.

    python benchmarks/module.py            # writes results/benchmarks/module.json, prints a table
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

import bilevax as bx
from bilevax.torch import arrays, functional

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "pytorch"))
from nets import ResNet18, Transformer  # noqa: E402

T, RATE, MOMENTUM, REPEATS = 5, 1e-3, 0.5, 3
OUT = ROOT / "results" / "benchmarks" / "module.json"
NETS = {
    "ResNet-18, 8 images of 32 x 32": (lambda: ResNet18(), lambda: torch.randn(8, 3, 32, 32)),
    "transformer, 2 layers of 64": (
        lambda: Transformer(width=64),
        lambda: torch.randint(11, (8, 6)),
    ),
}


class Task:
    """The module, its data, and the inner and outer loss in torch."""

    def __init__(self, make, draw):
        torch.manual_seed(0)
        self.module, self.x, self.z = make().train(), draw(), draw()
        self.y, self.lam = torch.arange(8) % 3, torch.zeros(8)

    def inner(self, out, lam):
        losses = nn.functional.cross_entropy(out, self.y, reduction="none")
        return (torch.sigmoid(lam) * losses).mean()

    def outer(self, out):
        return nn.functional.cross_entropy(out, self.y)


def ours(task, rule):
    net = functional(task.module)
    S = arrays({"train": task.x, "val": task.z, "y": task.y})
    losses = lambda w, x, y: optax.softmax_cross_entropy_with_integer_labels(net(w, x), y)
    g = lambda w, lam, S: jnp.mean(jax.nn.sigmoid(lam) * losses(w, S["train"], S["y"]))
    f = lambda w, lam, S: jnp.mean(losses(w, S["val"], S["y"]))
    xi = bx.Descent(g, bx.constant(net.params), optax.sgd(RATE, momentum=MOMENTUM))
    hg, lam = bx.hypergradient(f, xi, rule, T=T), arrays(task.lam)
    return lambda: np.asarray(hg(lam, S).h)


def autograd(task):
    def run():
        lam = task.lam.clone().requires_grad_()
        w = {k: p.detach().clone().requires_grad_() for k, p in task.module.named_parameters()}
        v = {k: torch.zeros_like(p) for k, p in w.items()}
        for _ in range(T):
            loss = task.inner(functional_call(task.module, w, (task.x,)), lam)
            grads = torch.autograd.grad(loss, list(w.values()), create_graph=True)
            v = {k: MOMENTUM * v[k] + g for k, g in zip(w, grads, strict=True)}
            w = {k: w[k] - RATE * v[k] for k in w}
        value = task.outer(functional_call(task.module, w, (task.z,)))
        return torch.autograd.grad(value, lam)[0].numpy()

    return run


def by_higher(task):
    import higher

    def run():
        lam = task.lam.clone().requires_grad_()
        opt = torch.optim.SGD(task.module.parameters(), RATE, MOMENTUM)
        with higher.innerloop_ctx(task.module, opt) as (fast, diffopt):
            for _ in range(T):
                diffopt.step(task.inner(fast(task.x), lam))
            return torch.autograd.grad(task.outer(fast(task.z)), lam)[0].numpy()

    return run


def by_torchopt(task):
    import torchopt

    opt = torchopt.MetaSGD(task.module, RATE, momentum=MOMENTUM)
    first = [torchopt.extract_state_dict(a, by="copy") for a in (task.module, opt)]

    def run():
        for a, state in zip((task.module, opt), first, strict=True):
            torchopt.recover_state_dict(a, state)
        lam = task.lam.clone().requires_grad_()
        for _ in range(T):
            opt.step(task.inner(task.module(task.x), lam))
        return torch.autograd.grad(task.outer(task.module(task.z)), lam)[0].numpy()

    return run


WAYS = {
    "plain autograd": autograd,
    "bilevax, Reverse()": lambda task: ours(task, bx.Reverse()),
    "bilevax, Reverse(segment=2)": lambda task: ours(task, bx.Reverse(segment=2)),
    "higher": by_higher,
    "TorchOpt": by_torchopt,
}


def measured(run):
    """The answer, the first call, and the least of further ones: seconds, and CPU seconds."""
    start = time.perf_counter()
    answer = run()
    first, later = time.perf_counter() - start, []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        later.append((time.perf_counter() - wall, time.process_time() - cpu))
    return answer, {"first": first, "wall": min(later)[0], "cpu": min(c for _, c in later)}


def rounding(make, draw):
    """How far plain autograd in float32 is from plain autograd in float64."""
    task = Task(make, draw)
    answer = autograd(task)()
    task.module, task.lam = task.module.double(), task.lam.double()
    task.x, task.z = (a.double() if a.is_floating_point() else a for a in (task.x, task.z))
    want = autograd(task)()
    return float(np.linalg.norm(answer - want) / np.linalg.norm(want))


def main():
    rows, want = [], {}
    for name, (make, draw) in NETS.items():
        for way, build in WAYS.items():
            with sdpa_kernel(SDPBackend.MATH):  # torch's others have no second derivative
                try:
                    answer, row = measured(build(Task(make, draw)))
                except Exception as error:
                    rows.append(
                        {"net": name, "way": way, "fails": f"{type(error).__name__}: {error}"}
                    )
                    print(rows[-1], flush=True)
                    continue
            want.setdefault(name, answer)
            error = np.linalg.norm(answer - want[name]) / np.linalg.norm(want[name])
            rows.append({"net": name, "way": way, "error": float(error)} | row)
            print(rows[-1], flush=True)
    with sdpa_kernel(SDPBackend.MATH):
        own = {name: rounding(*net) for name, net in NETS.items()}
    versions = {"torch": torch.__version__, "jax": jax.__version__}
    OUT.write_text(json.dumps(versions | {"rounding": own, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

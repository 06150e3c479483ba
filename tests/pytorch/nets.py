"""Modules of the tests, and hypergradients of their training by torch's own autograd."""

import itertools

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(a, b, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(b)
        self.conv2 = nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(b)
        self.short = nn.Sequential()
        if stride > 1 or a != b:
            self.short = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.short(x))


class ResNet18(nn.Module):
    """As published: a stem, four stages of two blocks; `width` 64 is the original's."""

    def __init__(self, width=64, classes=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn, self.pool = nn.BatchNorm2d(width), nn.MaxPool2d(3, 2, 1)
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        pairs = list(itertools.pairwise(widths))
        stages = [[Block(a, b, 1 + (i > 0)), Block(b, b, 1)] for i, (a, b) in enumerate(pairs)]
        self.stages = nn.Sequential(*(block for stage in stages for block in stage))
        self.head = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.stages(self.pool(torch.relu(self.bn(self.stem(x)))))
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """Two layers on sequences of tokens, with learned positions."""

    def __init__(self, tokens=11, width=8, classes=3, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.place = nn.Parameter(0.1 * torch.randn(6, width))
        layer = nn.TransformerEncoderLayer(width, 2, 16, dropout, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.layers(self.embed(x) + self.place).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, 2, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def image(n):
    return torch.randn(n, 3, 32, 32)


def small(n):
    return torch.randn(n, 3, 6, 6)


NETS = {
    "mlp": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(108, 6), nn.Tanh(), nn.Linear(6, 3)),
        small,
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
        ),
        small,
    ),
    "layer norm": (
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(108, 6), nn.LayerNorm(6), nn.SiLU(), nn.Linear(6, 3)
        ),
        small,
    ),
    "group norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)
        ),
        small,
    ),
    "batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Flatten(), nn.Linear(64, 3)
        ),
        small,
    ),
    "lstm": (Recurrent, lambda n: torch.randn(n, 5, 4)),
    "transformer": (Transformer, lambda n: torch.randint(11, (n, 6))),
    "resnet": (lambda: ResNet18(width=4), image),
}


class Task:
    """A module, 8 rows with weights in lam and a rate, and 8 rows to be judged by."""

    def __init__(self, name, dtype):
        torch.manual_seed(0)
        make, draw = NETS[name]
        self.module = make().to(dtype).train()
        cast = lambda x: x.to(dtype) if x.is_floating_point() else x
        self.x = [cast(draw(8)) for _ in range(2)]
        self.y = [torch.arange(8) % 3 for _ in range(2)]
        # ReLU, pooling and BatchNorm over few rows amplify rounding in large steps
        rate = -9.0 if name == "resnet" else -3.0
        self.lam = 0.3 * torch.randn(8, dtype=dtype), torch.tensor(rate, dtype=dtype)

    def autograd(self, T, K):
        """h by autograd through the last K of T steps of SGD with momentum; the start too."""
        lam, rate = (a.clone().requires_grad_() for a in self.lam)
        w = {k: p.detach().clone().requires_grad_() for k, p in self.module.named_parameters()}
        v = {k: torch.zeros_like(p) for k, p in w.items()}
        for t in range(T):
            if t == T - K:
                w = {k: p.detach().requires_grad_() for k, p in w.items()}
                v = {k: p.detach() for k, p in v.items()}
            out = self._call(w, self.x[0])
            losses = nn.functional.cross_entropy(out, self.y[0], reduction="none")
            loss = (torch.sigmoid(lam) * losses).mean()
            grads = torch.autograd.grad(loss, list(w.values()), create_graph=t >= T - K)
            v = {k: 0.5 * v[k] + g for k, g in zip(w, grads, strict=True)}
            w = {k: w[k] - rate.exp() * v[k] for k in w}
        value = nn.functional.cross_entropy(self._call(w, self.x[1]), self.y[1])
        h = torch.autograd.grad(value, [lam, rate])
        return [a.numpy() for a in h], float(value.detach())

    def _call(self, w, x):
        buffers = {k: b.clone() for k, b in self.module.named_buffers()}
        with sdpa_kernel(SDPBackend.MATH):  # torch's faster kernels have no second derivative
            return functional_call(self.module, (w, buffers), (x,))

"""The picture of docs/diagnosis.md: bias of h_{T-K} and its bounds, on two problems.

python examples/diagnose.py [FILE]
"""

import sys

import jax
import matplotlib

import bilevax as bx
from bilevax import problems

matplotlib.use("agg")
import matplotlib.pyplot as plt

jax.config.update("jax_enable_x64", True)
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for axis, p, T in zip(axes, (problems.toy(), problems.ridge()), (100, 60), strict=True):
    d = bx.diagnose(p.f, p.xi, p.lam, p.S, T=T)
    print(f"{p.name}, T = {T}\n{d}\n")
    d.plot(axis)
    axis.set(title=f"{p.name}, T = {T}", ylim=(d.bias[d.bias > 0].min() / 10, 1e3 * d.h_norm))
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "diagnosis.png", dpi=150)

"""One bilevel problem, every rule: what each costs and what its gradient is worth.

The problem is data hypercleaning in small: 400 training examples, half of them with
random labels, one weight for each to be tuned on 400 clean ones. The inner loop trains
a linear classifier for 100 steps of gradient descent.

    python examples/compare_rules.py
"""

import time

import jax
import jax.numpy as jnp
import lineax as lx

import bilevax as bx
from bilevax import problems

RULES = [
    bx.Reverse(),
    bx.Reverse(segment=10),
    bx.Forward(chunk=50),
    bx.Reverse(K=1),
    bx.Reverse(K=5),
    bx.Reverse(K=25),
    bx.Reverse(K=25, segment=5),
    bx.Implicit(),
    bx.Implicit(lx.CG(rtol=0, atol=0, max_steps=5)),
    bx.Neumann(K=25),
    bx.AdaptiveReverse(rtol=0.05, max_K=100),
    bx.Krylov(pieces=1, rank=10),
    bx.AdaptiveKrylov(rtol=0.1),
]


def measure(hg, lam, S, repeats=5):
    """The estimate, the fastest of a few runs in milliseconds, and bytes in addition to S."""
    program = jax.jit(hg).lower(lam, S).compile()
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        out = jax.block_until_ready(program(lam, S))
        best = min(best, time.perf_counter() - begin)
    return out, best * 1e3, program.memory_analysis().temp_size_in_bytes


def main():
    p = problems.reweighting(n=400, D=30, C=10, T=100)
    lam = 0.5 * jnp.sin(jnp.arange(400.0))
    print(__doc__.split("\n\n")[1].replace("\n", " "), end="\n\n")
    head = f"{'rule':<54}{'value':>9}{'|h|':>10}{'error':>10}{'cosine':>9}{'ms':>8}{'bytes':>12}"
    print(head, "-" * len(head), sep="\n")
    exact = None
    for rule in RULES:
        hg = bx.hypergradient(p.f, p.xi, rule, T=p.T)
        out, ms, size = measure(hg, lam, p.S)
        exact = out.h if exact is None else exact
        norm = jnp.linalg.norm
        error = norm(out.h - exact) / norm(exact)
        cosine = out.h @ exact / (norm(out.h) * norm(exact))
        print(
            f"{rule!r:<54}{out.value:>9.4f}{norm(out.h):>10.2e}{error:>10.1e}"
            f"{cosine:>9.4f}{ms:>8.1f}{size:>12,}"
        )
    print("\nerror and cosine are against Reverse(), the exact hypergradient.")


if __name__ == "__main__":
    main()

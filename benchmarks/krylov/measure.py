"""How wrong each rule is, against full reverse mode, and how many products it takes.

A product is one vjp of an inner step, or one Hessian-vector product. The error is that of
the whole hypergradient, grad_lam f included, in float32. One line for each rule and point
goes to results/krylov/records.jsonl; what is already there is not measured again.

    python benchmarks/krylov/measure.py --data DIR [--rules PATTERN] [mnist] [omniglot] [mlp]

A rule has to be compiled for each problem, which takes up to half a minute for Omniglot.
"""

import json
import re
import time
import warnings

import data
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import points
import problems
from jax.flatten_util import ravel_pytree

import bilevax as bx

RECORDS = data.RESULTS / "records.jsonl"
KRYLOV = (
    (1, 4),
    (1, 6),
    (1, 10),
    (1, 16),
    (1, 20),
    (2, 4),
    (2, 6),
    (2, 8),
    (2, 10),
    (4, 4),
    (4, 5),
)


def krylov(*shapes, **more) -> dict:
    name = lambda p, r: f"Krylov {p}x{r}" + "".join(f" {k}{v}" for k, v in more.items())
    return {name(p, r): bx.Krylov(p, r, **more) for p, r in shapes}


def truncations(depths) -> dict:
    rules = {f"Reverse {K}": bx.Reverse(K=K) for K in depths}
    rules |= {f"Neumann {K}": bx.Neumann(K) for K in depths}
    for n in depths:
        rules[f"CG {n}"] = bx.Implicit(lx.CG(rtol=0, atol=0, max_steps=n))
    return rules


def adaptive(T: int) -> dict:
    rules = {f"AdaptiveKrylov {tol}": bx.AdaptiveKrylov(tol) for tol in (0.3, 0.1, 0.05)}
    return rules | {"Adaptive 0.1": bx.AdaptiveReverse(rtol=0.1, max_K=T)}


def rules_for(problem) -> dict:
    """Every rule that is measured; those of the first steps for the violent start alone."""
    rules = krylov(*KRYLOV) | krylov((1, 10), K=10) | adaptive(problem.T)
    if problem.name == "omniglot":
        rules |= krylov((2, 4), (1, 8), (2, 6), head=4)
        rules |= krylov((2, 3), head=6) | krylov((1, 4), head=8)
    return rules | truncations([K for K in (1, 2, 5, 10, 20, 40, 50, 75) if K <= problem.T])


def products(rule, report) -> int:
    match rule:
        case bx.Implicit():
            return int(report["steps"]) + 1  # and one with the mixed derivatives
        case bx.AdaptiveReverse():
            return int(report["depth"])
        case bx.Krylov() | bx.AdaptiveKrylov():
            return int(report["products"])
    return rule.K


def score(h, exact) -> dict:
    """Relative error and cosine of the whole, and of the learning rate where there is one."""
    flat = lambda h: np.asarray(ravel_pytree(h)[0], np.float64)
    a, b = flat(h), flat(exact)
    size = np.linalg.norm(b)
    out = {"error": np.linalg.norm(a - b) / size}
    out["cosine"] = a @ b / (np.linalg.norm(a) * size) if a.any() else 0.0
    for key in ("gamma", "rate"):
        if isinstance(h, dict) and key in h:
            out["rate_error"] = abs(h[key] - exact[key]) / abs(exact[key])
    return {k: float(f"{v:.5g}") for k, v in out.items()}


def measure(problem, rule, lam, S, exact) -> dict:
    try:
        out = bx.hypergradient(problem.f, problem.xi, rule, T=problem.T)(lam, S)
    except Exception as error:  # a solver that fails is a result too
        singular = "did not converge" in str(error)
        return {"failed": "the solver did not converge" if singular else type(error).__name__}
    row = {"products": products(rule, out.report)} | score(out.h, exact.h)
    if isinstance(rule, bx.AdaptiveKrylov):
        direct = jax.grad(problem.f, 1)(exact.w, lam, S)
        pull = lambda h: jax.tree.map(jnp.subtract, h, direct)
        row["pull_error"] = score(pull(out.h), pull(exact.h))["error"]
        row |= {"estimate": float(f"{out.report['error']:.5g}")}
        row |= {k: int(out.report[k]) for k in ("pieces", "head")}
    return row


def run(problem, where: dict, done: set, pattern: str) -> None:
    reference = bx.hypergradient(problem.f, problem.xi, bx.Reverse(), T=problem.T)
    exact = None
    for name, rule in rules_for(problem).items():
        begin = time.perf_counter()
        wanted = where if re.fullmatch(pattern, name) else ()
        left = [p for p in wanted if (problem.name, p, name) not in done]
        if left and exact is None:
            exact = {p: reference(*where[p]) for p in where}
        for point in left:
            row = {"problem": problem.name, "point": point, "rule": name}
            row |= measure(problem, rule, *where[point], exact[point])
            with RECORDS.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if left:
            print(f"{problem.name} {name}: {time.perf_counter() - begin:.0f} s", flush=True)


def main():
    parser = data.arguments(__doc__)
    parser.add_argument("what", nargs="*", default=["mlp", "mnist", "omniglot"])
    parser.add_argument("--rules", default=".*", help="a regular expression of their names")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # tolerances missed, leaves not seen: it is the subject
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    done = {(r["problem"], r["point"], r["rule"]) for r in map(json.loads, lines)}
    if "mlp" in args.what:
        for optimizer in problems.OPTIMIZERS:
            problem = problems.multilayer(optimizer)
            run(problem, points.multilayer_points(problem), done, args.rules)
    if "mnist" in args.what:
        run(problems.hypercleaning(), points.mnist_points(args.data), done, args.rules)
    if "omniglot" in args.what:
        run(problems.few_shot_network(), points.omniglot_points(args.data), done, args.rules)


if __name__ == "__main__":
    main()

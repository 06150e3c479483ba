"""Which labels are wrong: HyperCleaner against cleanlab and against the trusted rows alone.

    python benchmarks/cleaning.py            # MNIST and Fashion-MNIST, half an hour on two cores
    python benchmarks/cleaning.py --quick    # scikit-learn's digits, a minute
    python benchmarks/cleaning.py --table    # the table of what has been measured

Labels are replaced with probability `noise`, by random ones or, in some cases, by the next class;
HyperCleaner has its defaults.
cleanlab (pip install cleanlab) is given the trusted rows too, in two ways: probabilities by
cross-validation on noisy and trusted rows together, and by a model of the trusted rows alone;
of these, with each of its filters, the one that is best *in hindsight* is reported. Every model
is linear. A case that is in results/cleaning/records.jsonl is not measured again.

Data are found by bilevax.paper.data; --data DIR is looked in first.
"""

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path

import numpy as np

from bilevax._files import atomic_write

OUT = Path(__file__).parent.parent / "results" / "cleaning"
NOISES, PAIRS, SIZES, N = (0.5, 0.1, 0.3, 0.7), (0.2, 0.4), (500, 5000), 5000
FILTERS = (
    "prune_by_noise_rate",
    "prune_by_class",
    "both",
    "confident_learning",
    "predicted_neq_given",
    "low_self_confidence",
)
KEYS = ("data", "n", "trusted", "noise", "seed", "kind")


def images(folder: str | None, name: str) -> tuple[np.ndarray, ...]:
    """Train and test images, flat, in [0, 1], with their labels."""
    from bilevax.paper.data import fashion_mnist, mnist

    split = {"mnist": mnist, "fashion-mnist": fashion_mnist}[name].load(folder)
    flat = lambda a: a.reshape(-1, 784) / 255
    train, test = (split.x_train, split.y_train), (split.x_test, split.y_test)
    return *(flat(train[0]), train[1].astype(int)), *(flat(test[0]), test[1].astype(int))


def digits() -> tuple[np.ndarray, ...]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order] / 16, y[order]
    return x[:1300], y[:1300], x[1300:], y[1300:]


def split(data: tuple, n: int, trusted: int, noise: float, seed: int, kind: str) -> dict:
    """Noisy rows, trusted rows and test rows, and which labels are wrong.

    The labels that are hit are drawn anew ("uniform"), or become the next class ("next"): then
    it is always the same two classes that are confused.
    """
    x, y, x_test, y_test = data
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(x))[: n + trusted]
    a, b = rows[:n], rows[n:]
    hit = rng.random(n) < noise
    other = rng.integers(10, size=n) if kind == "uniform" else (y[a] + 1) % 10
    given = np.where(hit, other, y[a])
    names = ("x", "y", "wrong", "x_trusted", "y_trusted", "x_test", "y_test")
    values = (x[a], given, given != y[a], x[b], y[b], x_test, y_test)
    return dict(zip(names, values, strict=True))


def cleaner(d: dict) -> dict:
    from sklearn.metrics import f1_score

    from bilevax.apps import HyperCleaner

    began = time.perf_counter()
    found = HyperCleaner().fit(d["x"], d["y"], d["x_trusted"], d["y_trusted"])
    return {
        "seconds": time.perf_counter() - began,
        "f1": f1_score(d["wrong"], found.suspect_),
        "f1_lam": f1_score(d["wrong"], found.lam_ < -1),
        "accuracy": found.score(d["x_test"], d["y_test"]),
        "rule": repr(found.rule_),
    }


def without(d: dict) -> dict:
    """What the hypergradient adds: HyperCleaner with its weights left out.

    The first classifier learns from the trusted rows alone, or from all rows alike; the two
    rounds with its own beliefs follow as ever.
    """
    from types import SimpleNamespace

    from sklearn.metrics import f1_score

    from bilevax.apps import HyperCleaner

    out = {}
    for name, start in (("from_trusted", -14.0), ("from_all", 0.0)):

        class Fixed(HyperCleaner):
            def _minimize(self, p, start=start):
                return SimpleNamespace(lam=np.full(p.lam.shape, start, np.float32), history={})

        found = Fixed().fit(d["x"], d["y"], d["x_trusted"], d["y_trusted"])
        out[f"{name}_f1"] = f1_score(d["wrong"], found.suspect_)
        out[f"{name}_accuracy"] = found.score(d["x_test"], d["y_test"])
    return out


def logistic(x: np.ndarray, y: np.ndarray):
    """Logistic regression, its penalty chosen on a fifth of the rows held out."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit

    once = StratifiedShuffleSplit(1, test_size=0.2, random_state=0)
    search = GridSearchCV(LogisticRegression(max_iter=60), {"C": [0.003, 0.03, 0.3]}, cv=once)
    return search.fit(x, y)


def others(d: dict) -> dict:
    """The trusted rows alone, all rows, and cleanlab."""
    both = np.concatenate([d["x"], d["x_trusted"]]), np.concatenate([d["y"], d["y_trusted"]])
    trusted, every = logistic(d["x_trusted"], d["y_trusted"]), logistic(*both)
    score = lambda model: model.score(d["x_test"], d["y_test"])
    out = {"trusted_accuracy": score(trusted), "all_accuracy": score(every)}
    try:
        import cleanlab  # noqa: F401
    except ImportError:
        print("cleanlab is not installed: pip install cleanlab")
        return out
    return out | confident(d, both, trusted, every, score)


def confident(d: dict, both: tuple, trusted, every, score) -> dict:
    from cleanlab.filter import find_label_issues
    from sklearn.metrics import f1_score
    from sklearn.model_selection import cross_val_predict

    n = len(d["y"])
    held_out = cross_val_predict(every.best_estimator_, *both, cv=3, method="predict_proba")[:n]
    sources = {"cross-validated": held_out, "trusted": trusted.predict_proba(d["x"])}
    flags = {
        f"{source}, {name}": find_label_issues(d["y"], p, filter_by=name, n_jobs=1)
        for (source, p), name in itertools.product(sources.items(), FILTERS)
    }
    f1 = {name: f1_score(d["wrong"], flag) for name, flag in flags.items()}
    best = max(f1, key=f1.__getitem__)
    keep = np.concatenate([~flags[best], np.ones(len(d["y_trusted"]), bool)])
    again = logistic(both[0][keep], both[1][keep])
    return {
        "cleanlab_f1": f1[best],
        "cleanlab_default_f1": f1["cross-validated, prune_by_noise_rate"],
        "cleanlab_accuracy": score(again),
        "cleanlab_best": best,
        "cleanlab_all": f1,
    }


def measured(path: Path) -> list[dict]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [{"kind": "uniform"} | json.loads(line) for line in lines]


PARTS = {"f1": cleaner, "from_trusted_f1": without, "trusted_accuracy": others}
"""What measures a case, under one name of its results."""


def run(cases: list[tuple], load, path: Path) -> None:
    """Measure what is missing; each part of a case is on disk when it is done."""
    rows = {tuple(row[k] for k in KEYS): row for row in measured(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    for case in cases:
        row = rows.setdefault(case, dict(zip(KEYS, case, strict=True)))
        todo = [part for name, part in PARTS.items() if name not in row]
        d = split(load(case[0]), *case[1:]) if todo else {}
        for part in todo:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # 60 iterations of logistic regression are meant
                row |= part(d)
            with atomic_write(path) as file:
                file.writelines(f"{json.dumps(r, default=float)}\n".encode() for r in rows.values())
        print({k: v for k, v in row.items() if k != "cleanlab_all"}, flush=True)


F1 = {
    "HyperCleaner": "f1",
    "no weights, from trusted": "from_trusted_f1",
    "no weights, from all": "from_all_f1",
    "λ < -1": "f1_lam",
    "cleanlab": "cleanlab_default_f1",
    "cleanlab, in hindsight": "cleanlab_f1",
}
ACCURACY = {
    "HyperCleaner": "accuracy",
    "no weights, from trusted": "from_trusted_accuracy",
    "no weights, from all": "from_all_accuracy",
    "cleanlab, in hindsight": "cleanlab_accuracy",
    "trusted alone": "trusted_accuracy",
    "all rows": "all_accuracy",
}


def table(rows: list[dict], title: str, columns: dict[str, str]) -> str:
    """In the order of the question: data, trusted rows, noise."""
    head = f"| {title} | trusted | noise | {' | '.join(columns)} |\n|"
    lines = [head + "---|" * (3 + len(columns))]
    order = lambda r: (r["data"] != "mnist", r["kind"] != "uniform", r["trusted"], r["noise"])
    for row in sorted(rows, key=order):
        kind = "" if row["kind"] == "uniform" else ", next class"
        cells = [row["data"], str(row["trusted"]), f"{row['noise']:.0%}{kind}"]
        cells += [f"{row[k]:.3f}" if k in row else "-" for k in columns.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a folder that is looked in first")
    parser.add_argument("--only", choices=("mnist", "fashion-mnist"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    path = OUT / ("quick.jsonl" if args.quick else "records.jsonl")
    names = (args.only,) if args.only else ("mnist", "fashion-mnist")
    if args.quick:
        cases = [("digits", 1000, 200, noise, 0, "uniform") for noise in NOISES]
        run(cases, lambda _: digits(), path)
    elif not args.table:
        cases = [(name, N, m, z, 0, "uniform") for m in SIZES for name in names for z in NOISES]
        cases += [(name, N, 500, z, 0, "next") for name in names for z in PAIRS]
        run(cases, lambda name: images(args.data, name), path)
    for title, columns in (("F1", F1), ("accuracy", ACCURACY)):
        print(table(measured(path), title, columns), end="\n\n")


if __name__ == "__main__":
    main()

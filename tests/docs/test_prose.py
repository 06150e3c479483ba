"""Numbers within sentences: each is that of the records, to the digits that it is printed with."""

import re
from decimal import Decimal
from math import ceil

import pytest
from quoted import along, noisy, numbers, page, read, rounds
from recorded import (
    above_the_paper,
    beyond,
    bias,
    budget,
    by_hand,
    calm,
    cost,
    depth,
    diagnosis,
    divided,
    draws,
    ends,
    first_rule,
    forecasts,
    gained,
    honest,
    interaction,
    learning,
    limits,
    momentum,
    one_shot,
    ratio,
    run_time,
    scaling,
    speed,
    swinging,
    weak,
)

KRYLOV, WHICH, REPRODUCTION = "docs/krylov.md", "docs/which_rule.md", "docs/reproduction.md"
PROSE = {  # page, text with {} for its numbers: what they are
    (KRYLOV, r"within {} % at all five points, twenty \(`K=10`\) within {} %"): lambda: [
        ceil(100 * along(rule, "error")[1]) for rule in ("Krylov(1, 10)", "Krylov(1, 10, K=10)")
    ],
    (KRYLOV, r"oscillate: ten products have {} to {} and twenty {} to {}\."): calm,
    (KRYLOV, r"0, 3, 5\): ten products have {}, {}, {} and twenty {}, {}, {}\."): swinging,
    (KRYLOV, r"median of {} for `Krylov\(2, 10\)`, between {} and {}, and {} for"): momentum,
    (KRYLOV, "weakly regularised case from {} % to {} %"): lambda: [
        100 * x for x in weak("Krylov(2, 4)", "Krylov(2, 4, head=4)")
    ],
    (WHICH, "exact. {} of the time of .*? in {} MB instead of {}, and {} of it"): budget,
    (WHICH, "exact. {} to {} × the forward pass on the paper's hypercleaning"): lambda: [
        cost("Reverse(K=100)"), run_time("Reverse()", "time_ratio"),
    ],
    (WHICH, "K = 5 takes {} to {} × the forward"): lambda: [
        speed()[0], run_time("Reverse(K=5)", "median_ratio"),
    ],
    (WHICH, "true error in {} % of 400 fresh"): honest,
    ("docs/promises.md", "true error in {} % of 400 fresh"): honest,
    (WHICH, "into account. {} × the forward pass; the run ends within {} % .*?K=5.*? {} % above"):
        lambda: [
            run_time("Krylov(1, 10)", "median_ratio"), run_time("Krylov(1, 10)", "excess_percent"),
            run_time("Reverse(K=5)", "excess_percent"),
        ],
    (WHICH, r"`Krylov\(2, 10\)` ranges from {} to {} over eight seeds"): lambda: momentum()[1:3],
    (WHICH, "the error is {} with four of them exact, {} without, {} with K = 5"): lambda: weak(
        "Krylov(2, 4, head=4)", "Krylov(2, 4)", "Reverse(K=5)"
    ),
    (WHICH, "`Implicit` is off by {} to {} on"): lambda: along("Implicit, CG 10", "error"),
    (WHICH, r"\|λ − λ\*\| is {}, {}, {} and {} for K"): limits,
    (WHICH, r"ends at {}, {}, {} and {} for K = 1, 5, 25 and 100, from {}"): lambda: interaction(
        "cifar100"
    ),
    (REPRODUCTION, r"is {}, {}, {} and {} for K = 1, 5, 10 and 25"): limits,
    (REPRODUCTION, r"stays above {} with K = 1"): lambda: [ratio("f")],
    (REPRODUCTION, r"becomes negative \({} with K = 1\)"): lambda: [ratio("f~")],
    (REPRODUCTION, r"gradient stays at about {}, with K = 100 it is {} and"): bias,
    (REPRODUCTION, r"the loss is {}, and {} if the inner loop runs for 1000"): lambda: [
        read("hypercleaning/settings.json")["loss"][k] for k in ("known", "known, T = 1000")
    ],
    (REPRODUCTION, r"reaches {} within {} hyper-iterations, with a validation accuracy of {} %"):
        divided,
    (REPRODUCTION, r"hyper-iterations \({}, and {} at the end; the paper"): first_rule,
    (REPRODUCTION, r"takes {}, `Krylov\(2, 4\)` {} times the .*? takes {} ms a step, {} times two "
        r".*? of a step take {} ms at the speed of large products \({} GFLOP/s\)"): speed,
    (REPRODUCTION, r"loss ends at {}, {}, {} and {} for K = 1, 5, 25 and 100 on CIFAR-10 "
        r"\({} before\)"): lambda: interaction("cifar10"),
    (REPRODUCTION, r"and at {}, {}, {} and {} on CIFAR-100 \({} before\)"): lambda: interaction(
        "cifar100"
    ),
    (REPRODUCTION, "every K is {} to {} points above the paper"): above_the_paper,
    (REPRODUCTION, r"is above 96 % after {} hyper-iterations, truncation after {} to {} and"):
        learning,
    ("docs/few_shot.md", r"reaches 96 % after {} hyper-iterations, truncation after {} to {}\."):
        learning,
    ("docs/few_shot.md", r"recognises {} % in tasks of five random new"): lambda: [
        100 * one_shot("Reverse(K=10)")[-1]["test_accuracy"]
    ],
    ("docs/forecast.md", r"{} of {} ratios are within {} % of .*? half of them within {} %"):
        forecasts,
    ("docs/devices.md", r"16: {} MB on one device, {}, {} and {} MB on .*? is {}, {} and {} of"):
        scaling,
    (KRYLOV, r"three draws of hypercleaning .*? is {} to {} \(below\)"): lambda: ends(
        draws("Krylov 1x10", True)
    ),
    (KRYLOV, r"\({} and {} at two points, with estimates of {} and {}\).*?: {} and {}\)"): beyond,
    (REPRODUCTION, "K = 10 is {} with and .*? K = 49 still {} and {}, though the cosine is {} and"):
        lambda: [*depth((0, 10), (0, 49), (1, 49)), one_shot("Reverse(K=10)")[-1]["cosine"]],
    (REPRODUCTION, "With ρ = 0.1 the error is {} at K = 25 and {} at 50"): lambda: depth(
        (2, 25), (2, 50)
    ),
    (REPRODUCTION, r"improves the accuracy by {} to {} points"): gained,
    (REPRODUCTION, "K = 10 takes {} of the time of full back"): lambda: [
        read("one-shot/speed.json")["seconds"]["Reverse(K=10)"]
        / read("one-shot/speed.json")["seconds"]["Reverse()"]
    ],
    ("docs/cleaning.md", "F1 of {} to {} and cleanlab's default {} to {}, HyperCleaner {} to {}"):
        lambda: noisy("next", 0.4, "from_all_f1") + noisy("next", 0.4, "cleanlab_default_f1")
        + noisy("next", 0.4, "f1"),
    ("docs/forecast.md", "hypercleaning all are within {} %"): lambda: [
        100 * max(abs(r["counted"] / r["measured"] - 1)
                  for r in read("forecast.json")["hypercleaning"].values())
    ],
    ("docs/benchmarks.md", "takes at most {} times as long as the one by hand"): by_hand,
    ("docs/diagnosis.md", r"takes {} times the CPU time .*? take {} times"): diagnosis,
}  # fmt: skip


@pytest.mark.parametrize("name, text", PROSE, ids=lambda x: x[:40])
def test_prose(name, text):
    pattern = text.replace("{}", r"([-−]?[\d.,]*\d(?:e-\d+)?)")
    (found,) = re.findall(pattern, " ".join(page(name).split()))
    found = (found,) if isinstance(found, str) else found
    for printed, value in zip(found, PROSE[name, text](), strict=True):
        (number,) = numbers(printed)
        assert rounds(number, Decimal(repr(float(value)))), (printed, value)

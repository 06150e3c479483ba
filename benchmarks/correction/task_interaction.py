"""Task interaction by a corrected Krylov, where Krylov alone loses runs.

    python benchmarks/correction/task_interaction.py [trials]

The paper's settings on CIFAR-10 and CIFAR-100, as in results/task-interaction, whose runs of full
reverse mode end after 575 and 300 hyper-iterations; the first trials only. Records go to
results/correction/task-interaction. Started again, it goes on.
"""

import sys

from run import OUT

from bilevax.paper.experiments.task_interaction.program import Config, run


def main(trials: int) -> None:
    config = Config(trials=trials, rules=("Krylov(2, 4) corrected",), steps=(575, 300))
    out = OUT / "task-interaction"
    run(config, out, resume=out.exists())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)

"""python -m examples.gpt [FOLDER]: all of it; if it was killed, the same command goes on."""

import sys

from .problem import Setting, problem
from .run import main

main(problem(Setting()), sys.argv[1] if len(sys.argv) > 1 else "runs/gpt")

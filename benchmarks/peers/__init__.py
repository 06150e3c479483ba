"""bilevax against every alternative: the same problems, the same numbers out, in one run.

python -m benchmarks.peers --help

`problems` states the problems in numpy, `in_jax` and `in_torch` their losses; one file for each
library holds its code. `agree`, `measure` and `growth` run in processes of their own, which
`child` starts and `harness` looks after; `figures` and `page` draw from what they left on disk.
"""

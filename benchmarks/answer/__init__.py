"""Seconds to a good answer: whose lam is good first?

python -m benchmarks.answer --help

`problems` has a file for each problem, `methods` one for each method; `follow` runs a method on a
problem and looks at its lam now and then, `search` finds step sizes, `measure` takes the time;
`figure` and `page` draw from what they left on disk.
"""

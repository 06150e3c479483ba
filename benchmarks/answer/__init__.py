"""Seconds to a good answer: whose lam is good first?

python -m benchmarks.answer --help

`problems` has a file for each problem, `methods` one for each method; `follow` runs a method on a
problem and looks at its lam now and then, `race` does so with all methods and step sizes; `figure`
and `page` draw from what it left on disk.
"""

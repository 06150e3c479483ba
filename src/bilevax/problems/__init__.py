"""A small zoo of bilevel problems, shared by tests, benchmarks and documentation."""

from ._learning import hyper_representation as hyper_representation
from ._learning import logistic as logistic
from ._learning import reweighting as reweighting
from ._learning import ridge as ridge
from ._problem import Problem as Problem
from ._problem import minibatch as minibatch
from ._quadratic import counterexample as counterexample
from ._quadratic import quadratic as quadratic
from ._quadratic import toy as toy

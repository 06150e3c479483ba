"""PyTorch modules as functions of JAX arrays: `pip install 'bilevax[torch]'`.

A module's operators run on JAX arrays by torchax, so that a training loop with it is compiled and
differentiated like any other: `net = functional(module)`, `net.params` is w, `net(w, x)` the
forward pass, and `net.load(w)` puts the result back into the module.
"""

from ._convert import arrays as arrays
from ._convert import in_jax as in_jax
from ._environment import implement as implement
from ._functional import Functional as Functional
from ._functional import functional as functional

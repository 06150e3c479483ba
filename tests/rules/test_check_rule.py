"""Our own rules pass the public battery, and wrong rules do not."""

import jax
import jax.numpy as jnp
import lineax as lx
import optax
import pytest

import bilevax as bx
from bilevax import _tree as tree
from bilevax.testing import check_rule

OWN = [
    (bx.Reverse(), {"exact": True}),
    (bx.Reverse(K=5, segment=2), {}),
    (bx.Forward(), {"exact": True}),
    (bx.Neumann(K=3), {}),
    (bx.Implicit(lx.CG(rtol=1e-13, atol=1e-13)), {"symmetric": True}),
]
VARIANTS = [
    (bx.Reverse(segment=4), {"exact": True}),
    (bx.Reverse(policy=jax.checkpoint_policies.everything_saveable), {"exact": True}),
    (bx.Reverse(K=5, policy=jax.checkpoint_policies.dots_saveable), {}),
    (bx.Forward(chunk=3), {"exact": True}),
    (bx.Implicit(lx.LU()), {}),
]


@pytest.mark.parametrize("rule, claims", OWN, ids=lambda x: repr(x))
def test_own_rules_pass(rule, claims):
    check_rule(rule, **claims)


@pytest.mark.slow
@pytest.mark.parametrize("rule, claims", VARIANTS, ids=lambda x: repr(x))
def test_variants_pass(rule, claims):
    check_rule(rule, **claims)


class Broken(bx.extend.AbstractRule):
    """Full reverse mode, spoilt in one way."""

    spoil: str

    def vjp(self, xi, lam, S, T):
        w, pull = bx.Reverse().vjp(xi, lam, S, T)
        if self.spoil == "one step short":
            w, pull = bx.Reverse().vjp(xi, lam, S, T - 1)
        if self.spoil == "doubled":
            return w, lambda alpha: (tree.scale(2.0, pull(alpha)[0]), {})
        if self.spoil == "constant":
            return w, lambda alpha: (optax.tree.add(pull(alpha)[0], tree.scale(1e-3, lam)), {})
        if self.spoil == "norm":
            size = lambda alpha: tree.norm(alpha) / tree.norm(w)
            return w, lambda alpha: (tree.scale(size(alpha), pull(w)[0]), {})
        if self.spoil == "shape":
            return w, lambda alpha: (tree.norm(pull(alpha)[0]) * jnp.ones(3), {})
        return w, pull

    def sees(self):
        return bx.extend.Channel.START | bx.extend.Channel.STEP


@pytest.mark.parametrize(
    "spoil, text",
    [
        ("one step short", "w_T"),
        ("doubled", "one step"),
        ("constant", "one step"),
        ("norm", r"alpha \+ beta"),
        ("shape", "structure"),
    ],
)
def test_wrong_rules_are_caught(spoil, text):
    with pytest.raises((AssertionError, ValueError), match=text):
        check_rule(Broken(spoil))


def test_a_false_claim_of_exactness_is_caught():
    with pytest.raises(AssertionError, match="exact hypergradient"):
        check_rule(bx.Reverse(K=2), exact=True)

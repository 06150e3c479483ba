"""Task interaction: descent on V is descent on W, and trials do not meet."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import bilevax as bx
from bilevax.experiments import _interaction as task
from bilevax.experiments._trials import Each, Trials, total

D, m, V = 20, 12, 4
rng = np.random.default_rng(0)
x, y = rng.random((2 * m, D)), rng.integers(V, size=2 * m)
S, X = task.trial(x, y, np.arange(m), np.arange(m, 2 * m))
LAM = task.first_lam(V, 0.05, 0.1)
LAM["B"] = LAM["B"] + jnp.asarray(rng.normal(size=(V, V)))


def g(W, lam, S):
    """As section 4.2.2 writes it, on the features."""
    C, rho = task.interaction(lam)
    loss = optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(X) @ W.T, S.y)
    distance = jnp.sum((W[:, None] - W[None]) ** 2, -1)
    return jnp.mean(loss) + jnp.sum(C * distance) + rho * jnp.sum(W**2)


def f(W, lam, S):
    logits = jnp.asarray(x[m:]) @ W.T
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, S.y_val))


@pytest.mark.parametrize("rule", [bx.Reverse(), bx.Reverse(K=3)], ids=repr)
def test_as_in_feature_space(rule):
    plain = bx.Descent(g, bx.constant(jnp.zeros((V, D))), optax.sgd(0.1))
    wanted = bx.hypergradient(f, plain, rule, T=15)(LAM, S)
    found = bx.hypergradient(task.f, task.dynamics(0.1, V), rule, T=15)(LAM, S)
    np.testing.assert_allclose(found.w.T @ X, wanted.w, atol=1e-13)
    np.testing.assert_allclose(found.value, wanted.value, rtol=1e-12)
    for name in LAM:
        np.testing.assert_allclose(found.h[name], wanted.h[name], atol=1e-13)


@pytest.mark.parametrize("rule", [bx.Reverse(K=3), bx.Krylov(2, 3), bx.Neumann(3)], ids=repr)
def test_each_trial_is_alone(rule):
    stack = lambda *trees: jax.tree.map(lambda *a: jnp.stack(a), *trees)
    contexts = [S, S._replace(y=S.y_val)]
    lams = [LAM, jax.tree.map(lambda a: 1.1 * a, LAM)]
    together = bx.hypergradient(total(task.f), Trials(task.dynamics(0.1, V)), Each(rule), T=15)(
        stack(*lams), stack(*contexts)
    )
    alone = bx.hypergradient(task.f, task.dynamics(0.1, V), rule, T=15)
    for i in range(2):
        np.testing.assert_allclose(
            together.h["B"][i], alone(lams[i], contexts[i]).h["B"], atol=1e-14
        )

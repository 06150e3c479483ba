"""A small GPT, in Equinox: its layers are scanned, its queries and keys normalised."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax


def norm(x):
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)


class Block(eqx.Module):
    qkv: jax.Array
    out: jax.Array
    up: jax.Array
    down: jax.Array
    heads: int = eqx.field(static=True)

    def __init__(self, width, heads, key):
        keys = jax.random.split(key, 4)
        draw = lambda key, m, n: jax.random.normal(key, (m, n)) * m**-0.5
        self.qkv, self.out = draw(keys[0], width, 3 * width), draw(keys[1], width, width)
        self.up, self.down = draw(keys[2], width, 4 * width), draw(keys[3], 4 * width, width)
        self.heads = heads

    def __call__(self, x):
        rows, length, width = x.shape
        parts = (norm(x) @ self.qkv).reshape(rows, length, 3, self.heads, -1)
        q, k, v = norm(parts[:, :, 0]), norm(parts[:, :, 1]), parts[:, :, 2]
        scores = jnp.einsum("nihd,njhd->nhij", q, k) * q.shape[-1] ** -0.5
        causal = jnp.tril(jnp.ones((1, 1, length, length), bool))
        seen = jax.nn.softmax(jnp.where(causal, scores, -1e9))
        x = x + jnp.einsum("nhij,njhd->nihd", seen, v).reshape(rows, length, width) @ self.out
        return x + jax.nn.gelu(norm(x) @ self.up) @ self.down


class GPT(eqx.Module):
    embed: jax.Array
    place: jax.Array
    blocks: Block
    """Of all layers, stacked."""
    read: jax.Array

    def __init__(self, symbols, length, layers, width, heads, key):
        k1, k2, k3, k4 = jax.random.split(key, 4)
        self.embed = jax.random.normal(k1, (symbols, width))
        self.place = 0.1 * jax.random.normal(k2, (length, width))
        make = lambda key: Block(width, heads, key)
        self.blocks = eqx.filter_vmap(make)(jax.random.split(k3, layers))
        self.read = jax.random.normal(k4, (width, symbols)) * width**-0.5

    def __call__(self, tokens):
        """Logits of the symbol after each."""
        x = self.embed[tokens] + self.place[None, : tokens.shape[1]]
        x, _ = lax.scan(lambda x, block: (block(x), None), x, self.blocks)
        return norm(x) @ self.read


def losses(w, tokens):
    """Of each row: the mean loss of its symbols but the first, in nats."""
    logits, right = w(tokens[:, :-1]), tokens[:, 1:]
    return optax.softmax_cross_entropy_with_integer_labels(logits, right).mean(-1)

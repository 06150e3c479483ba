"""Few-shot tasks drawn from a set of characters, on the device."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8


class Task(NamedTuple):
    """One context S: a classifier is trained on `x` and judged on `x_val`."""

    x: Float[Array, "ways*shots h w"]
    y: Int[Array, " ways*shots"]
    x_val: Float[Array, "ways*queries h w"]
    y_val: Int[Array, " ways*queries"]


class Sampler(eqx.Module):
    """key -> `Task`, from characters held on the device.

    **Arguments:**

    - `images`: uint8, `(characters, drawings, side, side)`, ink 255 on 0.
    - `ways`: characters in a task.
    - `shots`, `queries`: drawings of each to learn from, and to be judged by.

    !!! example

        >>> import jax
        >>> from bilevax.apps import TaskSampler
        >>> from bilevax.paper.data import glyphs
        >>> tasks = TaskSampler(glyphs.load(characters=6, drawings=4), ways=3, shots=1, queries=2)
        >>> task = tasks(jax.random.key(0))
        >>> task.x.shape, task.x_val.shape
        ((3, 28, 28), (6, 28, 28))
    """

    images: UInt8[Array, "characters drawings h w"] = eqx.field(converter=jnp.asarray)
    ways: int = eqx.field(default=5, static=True)
    shots: int = eqx.field(default=1, static=True)
    queries: int = eqx.field(default=15, static=True)

    def __call__(self, key: Array) -> Task:
        return draw(self.images, key, self.ways, self.shots, self.queries)


def draw(images: Array, key: Array, ways: int, shots: int, queries: int) -> Task:
    """`ways` characters, and of each `shots` drawings to learn from and `queries` others.

    Ink of 255 becomes 1.
    """
    which, order = jax.random.split(key)
    characters = jax.random.choice(which, images.shape[0], (ways,), replace=False)
    shuffle = lambda key: jax.random.permutation(key, images.shape[1])[: shots + queries]
    drawings = jax.vmap(shuffle)(jax.random.split(order, ways))
    x = images[characters[:, None], drawings].astype(jnp.result_type(float)) / 255
    flat = lambda part: part.reshape(-1, *part.shape[2:])
    label = lambda n: jnp.repeat(jnp.arange(ways), n)
    return Task(flat(x[:, :shots]), label(shots), flat(x[:, shots:]), label(queries))

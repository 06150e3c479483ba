"""The block of the one-shot network: 3 x 3 convolution, 2 x 2 max-pool, batch norm, ReLU.

On a CPU a convolution is a matrix product with patches, many times faster here than XLA's own;
on an accelerator it is `lax.conv_general_dilated`. `convolve_and_pool` is where that is chosen.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

EPSILON = 1e-3

Images = Float[Array, "n h w c"]
Patches = Float[Array, "4 n h/2 w/2 9*c"]
Kernel = Float[Array, "9*c F"]
Layer = dict[str, Array]


def first_layer(key: Array, channels: int, filters: int) -> Layer:
    """He's initialisation; scale and shift of the batch norm."""
    deviation = (2 / (9 * channels)) ** 0.5
    return {
        "kernel": deviation * jax.random.normal(key, (9 * channels, filters)),
        "scale": jnp.ones(filters),
        "shift": jnp.zeros(filters),
    }


def block(layer: Layer, x: Images) -> Images:
    return normalise(layer, convolve_and_pool(x, layer["kernel"]))


def convolve_and_pool(x: Images, kernel: Kernel) -> Images:
    """A convolution with zeros around x, and the largest of each 2 x 2 of its outputs."""
    if jax.default_backend() == "cpu":
        return pool(patches(x), kernel)
    return pool_by_window(convolve(x, kernel))


def normalise(layer: Layer, x: Images) -> Images:
    """Batch norm by the statistics of this very batch, then ReLU."""
    axes = (0, 1, 2)
    mean, variance = (m(x, axes, keepdims=True) for m in (jnp.mean, jnp.var))
    x = (x - mean) * lax.rsqrt(variance + EPSILON)
    scale, shift = (jnp.expand_dims(layer[name], axes) for name in ("scale", "shift"))
    return jax.nn.relu(x * scale + shift)


def patches(x: Images) -> Patches:
    """The 3 x 3 surroundings of each pixel that pooling looks at.

    The four pixels of a pool lie along the first axis, so that the maximum over them runs
    over contiguous memory, and an odd last row or column, which pooling drops, is not there.
    """
    h, w = x.shape[1] // 2, x.shape[2] // 2
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    at = lambda i, j: x[:, i : i + 2 * h : 2, j : j + 2 * w : 2]
    around = lambda a, b: [at(a + i, b + j) for i in range(3) for j in range(3)]
    return jnp.stack([jnp.concatenate(around(a, b), -1) for a in (0, 1) for b in (0, 1)])


def pool(P: Patches, kernel: Kernel) -> Images:
    return jnp.max(P @ kernel, axis=0)


def convolve(x: Images, kernel: Kernel) -> Images:
    shaped = kernel.reshape(3, 3, x.shape[-1], -1)
    return lax.conv_general_dilated(
        x, shaped, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def pool_by_window(x: Images) -> Images:
    low = jnp.asarray(-jnp.inf, x.dtype)
    return lax.reduce_window(x, low, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

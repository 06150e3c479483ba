"""Integers that do not fit: JAX keeps 32 bits of them, unless jax_enable_x64 is set."""

from typing import Any

import jax
import numpy as np


def fit(a: Any) -> bool:
    """Whether JAX keeps the numbers of a NumPy array; those of a device are kept already."""
    if not isinstance(a, (np.ndarray, np.generic)) or a.dtype.kind not in "iu" or not a.size:
        return True
    dtype = jax.dtypes.canonicalize_dtype(a.dtype)
    known = np.iinfo(dtype)
    return dtype == a.dtype or (known.min <= a.min() and a.max() <= known.max)


def require_fit(a: Any, where: str) -> None:
    if not fit(a):
        dtype = jax.dtypes.canonicalize_dtype(a.dtype)
        raise ValueError(
            f"{where} has {a.dtype} numbers from {a.min()} to {a.max()}, of which JAX would keep "
            f"the last bits in {dtype}: set jax.config.update('jax_enable_x64', True), or subtract "
            "an offset or hash them before."
        )

"""Check random keys, or make them from whole numbers."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dcdjax.util import checks


def as_key(key: Any) -> tuple[Any, Array]:
    """Return what to record for a key or a whole number, and the key."""
    made = checked_key(key)
    if made is not key:
        return int(key), made
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    return np.asarray(data).tolist(), key


def checked_key(key: Any) -> Array:
    """Return a key, made from a whole number if it is not one already."""
    if isinstance(key, jax.Array) and key.ndim + jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    number = checks.whole("key", key, 0)
    if number >= 1 << 32:  # JAX silently keeps only the last 32 bits
        raise ValueError(f"key must be below 2^32, got {number}")
    return jax.random.key(number)

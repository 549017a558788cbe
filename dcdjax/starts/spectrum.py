"""S as it is laid out enters; a vector for each word, of the spectrum of S, and clusters of them leave.

    S ~ U diag(values) U',    vectors = U |values|^(1/2)

U are the eigenvectors of the largest |values|. For PPMI, these are the vectors of Levy and Goldberg (2014).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from dcdjax.devices import sharding
from dcdjax.devices.layout import Layout
from dcdjax.devices.sweeps import product

# Products with S after the first. With 0, 1, 2, 3 of them, 20 steps from `initialize.spectral` reached an
# objective of 102.75, 101.54, 101.37 and 101.35 million (experiments/starts).
_NUM_POWERS = 2
# Dimensions beyond those that are asked for, whose errors are the largest.
_MORE = 16
_EXACTLY = lax.Precision.HIGHEST


def vectors(key: PRNGKeyArray, layout: Layout, *, num_dimensions: int) -> Float[Array, "words dimensions"]:
    """The leading vectors of S, by randomized subspace iteration: 4 products with S.

    Args:
      key: of the random subspace that is begun with.
      layout: of S.
      num_dimensions: how many, at most as many as there are words.

    Returns:
      A row for each word, on the host where W is split. The first columns are those that fewer dimensions
      would give, nearly.

    References:
      Halko, Martinsson, Tropp: Finding structure with randomness, 2011.
    """
    if layout.row_split is None:
        return _vectors(key, layout, num_dimensions=num_dimensions)
    if not isinstance(key, Tracer):
        key = jax.device_put(key, sharding.host_device())
    start = layout.to_devices(_start(key, layout.num_words, num_dimensions, layout.scale.dtype))
    found = _leading(start, layout, num_dimensions=num_dimensions)
    return layout.from_devices(found)


@partial(jax.jit, static_argnames="num_dimensions")
def _vectors(key: PRNGKeyArray, layout: Layout, *, num_dimensions: int) -> Float[Array, "words dimensions"]:
    start = _start(key, layout.num_words, num_dimensions, layout.scale.dtype)
    return _leading(start, layout, num_dimensions=num_dimensions)


def _start(key: PRNGKeyArray, num_words: int, num_dimensions: int, dtype: DTypeLike) -> Array:
    return jax.random.normal(key, (num_words, min(num_words, num_dimensions + _MORE)), dtype)


@partial(jax.jit, static_argnames="num_dimensions")
def _leading(
    start: Float[Array, "words columns"], layout: Layout, *, num_dimensions: int
) -> Float[Array, "words dimensions"]:
    basis = lax.fori_loop(0, _NUM_POWERS + 1, lambda _, Q: _orthonormal(product(Q, layout)), start)
    S_in_basis = jnp.matmul(basis.T, product(basis, layout), precision=_EXACTLY)
    values, U = jnp.linalg.eigh((S_in_basis + S_in_basis.T) / 2)
    leading = jnp.argsort(-jnp.abs(values))[:num_dimensions]
    weights = U[:, leading] * jnp.sqrt(jnp.abs(values[leading]))[None]
    return jnp.matmul(basis, weights, precision=_EXACTLY)


def _orthonormal(Y: Float[Array, "words columns"]) -> Float[Array, "words columns"]:
    """Columns of the same span: by the small matrix Y'Y, six times as fast as a QR decomposition here."""
    Y = Y / jnp.maximum(jnp.max(jnp.abs(Y)), jnp.finfo(Y.dtype).tiny)
    values, V = jnp.linalg.eigh(jnp.matmul(Y.T, Y, precision=_EXACTLY))
    # What is left of directions that S does not have is noise, and stays small.
    least = jnp.finfo(Y.dtype).eps * values[-1]
    return jnp.matmul(Y, V / jnp.sqrt(jnp.maximum(values, least))[None], precision=_EXACTLY)

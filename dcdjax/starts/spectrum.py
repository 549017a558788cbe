"""Compute a vector for each word from the spectrum of S.

    S ~ U diag(values) U',    vectors = U |values|^(1/2)

U are the eigenvectors of the largest |values|. For PPMI, these are the vectors of Levy and Goldberg (2014).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from dcdjax.devices import sharding
from dcdjax.devices.layout import Layout
from dcdjax.devices.sweeps import product

# Products with S after the first. With 0, 1, 2, 3 of them, 20 steps from `initialize.spectral` reached an
# objective of 102.75, 101.54, 101.37 and 101.35 million (experiments/starts).
_NUM_POWERS = 2
# Compute this many more dimensions than are needed, because the last ones have the largest errors.
_NUM_EXTRA = 16
_PRECISION = lax.Precision.HIGHEST


def vectors(key: PRNGKeyArray, layout: Layout, *, num_dimensions: int) -> Float[Array, "words dimensions"]:
    """Compute the leading vectors of S by randomized subspace iteration, with 4 products with S.

    Args:
      key: draws the random subspace to begin with.
      layout: layout of S.
      num_dimensions: number of dimensions, at most the number of words.

    Returns:
      A row for each word; on the host if W is split. The first columns are nearly the same as with fewer
      dimensions.

    References:
      Halko, Martinsson, Tropp: Finding structure with randomness, 2011.
    """
    if layout.row_split is not None and not isinstance(key, Tracer):
        key = jax.device_put(key, sharding.host_device())
    shape = (layout.num_words, min(layout.num_words, num_dimensions + _NUM_EXTRA))
    start = layout.to_devices(jax.random.normal(key, shape, layout.scale.dtype))
    return layout.from_devices(_leading(start, layout, num_dimensions=num_dimensions))


@partial(jax.jit, static_argnames="num_dimensions")
def _leading(
    start: Float[Array, "words columns"], layout: Layout, *, num_dimensions: int
) -> Float[Array, "words dimensions"]:
    basis = lax.fori_loop(0, _NUM_POWERS + 1, lambda _, Q: _orthonormal(product(Q, layout)), start)
    S_in_basis = jnp.matmul(basis.T, product(basis, layout), precision=_PRECISION)
    values, U = jnp.linalg.eigh((S_in_basis + S_in_basis.T) / 2)
    leading = jnp.argsort(-jnp.abs(values))[:num_dimensions]
    weights = U[:, leading] * jnp.sqrt(jnp.abs(values[leading]))[None]
    return jnp.matmul(basis, weights, precision=_PRECISION)


def _orthonormal(Y: Float[Array, "words columns"]) -> Float[Array, "words columns"]:
    """Return orthonormal columns of the same span. This is six times as fast as a QR decomposition here."""
    Y = Y / jnp.maximum(jnp.max(jnp.abs(Y)), jnp.finfo(Y.dtype).tiny)
    values, V = jnp.linalg.eigh(jnp.matmul(Y.T, Y, precision=_PRECISION))
    # Directions that S does not have hold only noise. The floor keeps them small.
    least = jnp.finfo(Y.dtype).eps * values[-1]
    return jnp.matmul(Y, V / jnp.sqrt(jnp.maximum(values, least))[None], precision=_PRECISION)

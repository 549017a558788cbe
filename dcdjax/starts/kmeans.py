"""Cluster vectors by spherical k-means."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

# GPUs and TPUs round factors for speed by default. That is too coarse here.
_PRECISION = lax.Precision.HIGHEST


@partial(jax.jit, static_argnames=("num_clusters", "num_rounds"))
def cosines_to_centers(
    key: PRNGKeyArray, vectors: Float[Array, "words dimensions"], *, num_clusters: int, num_rounds: int = 8
) -> Float[Array, "words clusters"]:
    """Run spherical k-means, and return the cosine of each word's vector with the center of each cluster.

    A cluster that becomes empty gets a new center: a word that is far from the center of its own cluster.

    Args:
      key: random key. It chooses the words that are the first centers.
      vectors: a row for each word. A vector of zeros has a cosine of zero with everything.
      num_clusters: number of clusters, at most the number of words.
      num_rounds: number of updates of the centers. More rounds find better clusters and take more time.

    Returns:
      The cosines.
    """
    X = _unit(vectors)
    words = jax.random.choice(key, X.shape[0], (num_clusters,), replace=False)

    def move(_: Array, centers: Array) -> Array:
        cosines = _cosines(X, centers)
        nearest = jnp.argmax(cosines, axis=1)
        sums = jax.ops.segment_sum(X, nearest, num_segments=num_clusters)
        empty = jax.ops.segment_sum(jnp.ones_like(nearest), nearest, num_segments=num_clusters) == 0
        misfits = jnp.argsort(jnp.max(cosines, axis=1))[:num_clusters]
        replacements = X[misfits[jnp.maximum(jnp.cumsum(empty) - 1, 0)]]
        return _unit(jnp.where(empty[:, None], replacements, sums))

    return _cosines(X, lax.fori_loop(0, num_rounds, move, X[words]))


def _unit(rows: Float[Array, "rows dimensions"]) -> Float[Array, "rows dimensions"]:
    # Scale the largest entry to 1 first: squares of small numbers underflow. Only a row of zeros stays below.
    largest = jnp.max(jnp.abs(rows), axis=1, keepdims=True)
    rows = rows / jnp.maximum(largest, jnp.finfo(rows.dtype).tiny)
    return rows / jnp.maximum(jnp.linalg.norm(rows, axis=1, keepdims=True), 1)


def _cosines(X: Array, centers: Array) -> Array:
    return jnp.matmul(X, centers.T, precision=_PRECISION)

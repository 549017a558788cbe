"""Make a strictly positive W with rows on the simplex, at random or from the clusters of S."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from dcdjax.devices import sharding
from dcdjax.devices.layout import Layout
from dcdjax.devices.preparation import prepare
from dcdjax.method.decomposition import Weights, on_simplex
from dcdjax.starts import kmeans, spectrum
from dcdjax.starts.keys import checked_key

# How much a word prefers near clusters, and the least weight of a topic relative to that of the nearest
# cluster. We compared 5, 10 and 20, and the indicator of k-means plus 0.2: 10 had the lowest objective at the
# start, and none was better 10 steps later (experiments/starts).
_SHARPNESS = 10.0
_LEAST = 1e-3
# Each entry is multiplied by a number from this range. With a range of width 0.01 a solver sometimes took
# equal topics for converged ones; with 0.1 it never did.
_NOISE = (0.8, 1.2)


def uniform(
    key: Any,
    num_words: int,
    num_topics: int,
    *,
    restarts: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "*restarts words topics"]:
    """Draw rows of uniform numbers, and normalize them. They lie near the center of the simplex.

    Args:
      key: from `jax.random.key`, or a whole number to make one from.
      num_words: N.
      num_topics: r.
      restarts: how many independent starts. Start m is the same as a single start with the m-th key of
        `jax.random.split(key, restarts)`.
      dtype: dtype of the result.

    Returns:
      W, (N, r), or (restarts, N, r) if `restarts` is a number.
    """

    def draw(k: Array, shape: tuple[int, int], at: DTypeLike) -> Array:
        # Not zero: a row of one topic is divided by it.
        return jax.random.uniform(k, shape, at, minval=float(jnp.finfo(at).tiny))

    return _start(draw, key, num_words, num_topics, restarts, dtype)


def dirichlet(
    key: Any,
    num_words: int,
    num_topics: int,
    *,
    concentration: float = 1.0,
    restarts: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "*restarts words topics"]:
    """Draw rows from a symmetric Dirichlet distribution.

    Args:
      key: from `jax.random.key`, or a whole number to make one from.
      num_words: N.
      num_topics: r.
      concentration: 1 is flat over the simplex. A smaller value prefers few topics in each row, a larger
        value prefers all topics.
      restarts: how many independent starts, as in `uniform`.
      dtype: dtype of the result.

    Returns:
      W, (N, r), or (restarts, N, r) if `restarts` is a number.
    """
    if not 0 < concentration < float("inf"):
        raise ValueError(f"concentration must be positive and finite, got {concentration}")

    def draw(k: Array, shape: tuple[int, int], at: DTypeLike) -> Array:
        # Use logarithms, because a Gamma variable of small concentration underflows. The largest entry of a
        # row becomes 1, so the sum of the row does not underflow.
        log_gamma = jax.random.loggamma(k, concentration, shape, at)
        log_gamma = jnp.maximum(log_gamma, float(jnp.finfo(at).min) / 2)
        return jnp.exp(log_gamma - jnp.max(log_gamma, axis=1, keepdims=True))

    return _start(draw, key, num_words, num_topics, restarts, dtype)


def spectral(
    key: Any, S: Any, num_topics: int, *, restarts: int | None = None, dtype: DTypeLike = jnp.float32
) -> Float[Array, "*restarts words topics"]:
    """Cluster the spectral vectors of the words, and make each cluster a topic.

    The objective begins far below that of a random start, and this takes less time than ten steps.

    Args:
      key: from `jax.random.key`, or a whole number to make one from. Different keys find different clusters.
      S: a scipy sparse matrix, a pair (S_idx, S_val), a `Similarity`, or a prepared `Layout`; not traced.
      num_topics: r, at most the number of words.
      restarts: how many starts, each with clusters of its own among the same vectors.
      dtype: dtype of the result, float32 or float64. If S is a layout, the result has its dtype.

    Returns:
      W, (N, r), or (restarts, N, r) if `restarts` is a number.

    Examples:
      >>> import jax, numpy as np, scipy.sparse
      >>> from dcdjax import initialize
      >>> S = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((3, 3))))
      >>> W = initialize.spectral(jax.random.key(0), S, 2)
      >>> np.unique(W.argmax(axis=1)[:3]).size
      1
    """
    _check_sizes(num_topics=num_topics, restarts=restarts)
    if jnp.dtype(dtype) not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, got {jnp.dtype(dtype).name}")
    layout = S if isinstance(S, Layout) else prepare(S, dtype=dtype)
    if num_topics > layout.num_words:
        raise ValueError(
            f"num_topics must be at most the number of words, {layout.num_words}, got {num_topics}"
        )
    key = checked_key(key)
    if not isinstance(key, Tracer):
        key = layout.put_whole(key)
    vectors_key, clusters_key = jax.random.split(key)
    with sharding.override_mesh(layout.mesh):
        vectors = spectrum.vectors(vectors_key, layout, num_dimensions=num_dimensions(num_topics))
    if restarts is None:
        return clustered(clusters_key, vectors, num_topics)
    keys = jax.random.split(clusters_key, restarts)
    return lax.map(lambda k: clustered(k, vectors, num_topics), keys)


@partial(jax.jit, static_argnames="num_topics")
def clustered(key: PRNGKeyArray, vectors: Float[Array, "words dimensions"], num_topics: int) -> Weights:
    """Make a start from known vectors, such as those of `spectrum.vectors`. See `spectral`."""
    clusters_key, noise_key = jax.random.split(key)
    cosines = kmeans.cosines_to_centers(clusters_key, vectors, num_clusters=num_topics)
    return soft(noise_key, cosines)


def soft(key: PRNGKeyArray, cosines: Weights, sharpness: float = _SHARPNESS) -> Weights:
    """Make a start that prefers near clusters. Noise separates equal clusters; no solver step can do that."""
    nearest = jnp.max(cosines, axis=1, keepdims=True)
    noise = jax.random.uniform(key, cosines.shape, cosines.dtype, *_NOISE)
    return on_simplex((jnp.exp(sharpness * (cosines - nearest)) + _LEAST) * noise)


def num_dimensions(num_topics: int) -> int:
    """Return the dimensions of the vectors in which to look for this many clusters.

    Few topics have as many dimensions as topics. Many topics have fewer, which takes less time: for 200
    topics, 100, 150 and 200 dimensions give objectives that differ by 0.07 % after 20 steps
    (experiments/starts).
    """
    return min(num_topics, 50 + num_topics // 2)


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def _start(
    draw: Callable[[Array, tuple[int, int], DTypeLike], Array],
    key: Any,
    num_words: int,
    num_topics: int,
    restarts: int | None,
    dtype: DTypeLike,
) -> Array:
    _check_sizes(num_words=num_words, num_topics=num_topics, restarts=restarts)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype must be floating point, got {jnp.dtype(dtype).name}")
    # Draw half precisions in float32: their own uniform numbers are often exactly zero.
    wide = dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32

    key = checked_key(key)

    def one(k: Array) -> Array:
        return on_simplex(on_simplex(draw(k, (num_words, num_topics), wide)).astype(dtype))

    return one(key) if restarts is None else jax.vmap(one)(jax.random.split(key, restarts))

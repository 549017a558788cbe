"""A key, or a key and S, enters; a strictly positive W with rows on the simplex leaves."""

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
from dcdjax.method.decomposition import on_simplex
from dcdjax.starts import kmeans, spectrum

# How much a word prefers near clusters, and how much of the nearest one each topic has at least. Of 5, 10 and
# 20, and of k-means' own indicator plus 0.2, 10 began lowest, and none was better 10 steps later
# (experiments/starts).
_SHARPNESS = 10.0
_LEAST = 1e-3
# Times each entry. With a width of 0.01 a solver at times took equals for converged; with 0.1, never.
_NOISE = (0.8, 1.2)


def uniform(
    key: PRNGKeyArray,
    num_words: int,
    num_topics: int,
    *,
    restarts: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "*restarts words topics"]:
    """Rows of uniform numbers, normalized: near the center of the simplex, no topic preferred.

    Args:
      key: from `jax.random.key`.
      num_words: N.
      num_topics: r.
      restarts: how many independent starts; start m is what the m-th of `jax.random.split(key, restarts)`
        alone would give.
      dtype: of the result.

    Returns:
      W, (N, r), or (restarts, N, r) where restarts were asked for.
    """

    def draw(k: Array, shape: tuple[int, int], at: DTypeLike) -> Array:
        # Not zero, which a row of one topic could not be divided by.
        return jax.random.uniform(k, shape, at, minval=float(jnp.finfo(at).tiny))

    return _start(draw, key, num_words, num_topics, restarts, dtype)


def dirichlet(
    key: PRNGKeyArray,
    num_words: int,
    num_topics: int,
    *,
    concentration: float = 1.0,
    restarts: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "*restarts words topics"]:
    """Rows drawn from a symmetric Dirichlet distribution.

    Args:
      key: from `jax.random.key`.
      num_words: N.
      num_topics: r.
      concentration: 1 is flat over the simplex; below 1, rows lean to few topics; above, to all.
      restarts: how many independent starts, as in `uniform`.
      dtype: of the result.

    Returns:
      W, (N, r), or (restarts, N, r) where restarts were asked for.
    """
    if not 0 < concentration < float("inf"):
        raise ValueError(f"concentration must be positive and finite, got {concentration}")

    def draw(k: Array, shape: tuple[int, int], at: DTypeLike) -> Array:
        # From the logarithms, because a Gamma variable of small concentration underflows; the largest
        # of a row becomes 1, so that its sum cannot.
        log_gamma = jax.random.loggamma(k, concentration, shape, at)
        log_gamma = jnp.maximum(log_gamma, float(jnp.finfo(at).min) / 2)
        return jnp.exp(log_gamma - jnp.max(log_gamma, axis=1, keepdims=True))

    return _start(draw, key, num_words, num_topics, restarts, dtype)


def spectral(
    key: PRNGKeyArray,
    S: Any,
    num_topics: int,
    *,
    restarts: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> Float[Array, "*restarts words topics"]:
    """Soft clusters of the words' spectral vectors: far below a random start, and cheaper than ten steps.

    Args:
      key: from `jax.random.key`. Different keys find different clusters.
      S: a scipy sparse matrix, a pair (S_idx, S_val), a `Similarity`, or a prepared `Layout`; not traced.
      num_topics: r, at most the number of words.
      restarts: how many starts, each with clusters of its own among the same vectors.
      dtype: float32 or float64, of the result; that of a layout if S is one.

    Returns:
      W, (N, r), or (restarts, N, r) where restarts were asked for.

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
    if not isinstance(key, Tracer):
        key = layout.put_whole(key)
    of_vectors, of_clusters = jax.random.split(key)
    with sharding.override_mesh(layout.mesh):
        vectors = spectrum.vectors(of_vectors, layout, num_dimensions=num_dimensions(num_topics))
    if restarts is None:
        return clustered(of_clusters, vectors, num_topics)
    keys = jax.random.split(of_clusters, restarts)
    return lax.map(lambda k: clustered(k, vectors, num_topics), keys)


@partial(jax.jit, static_argnames="num_topics")
def clustered(
    key: PRNGKeyArray, vectors: Float[Array, "words dimensions"], num_topics: int
) -> Float[Array, "words topics"]:
    """`spectral`, for vectors that are known, such as those of `spectrum.vectors`."""
    of_clusters, of_noise = jax.random.split(key)
    cosines = kmeans.cosines_to_centers(of_clusters, vectors, num_clusters=num_topics)
    return soft(of_noise, cosines)


def soft(
    key: PRNGKeyArray, cosines: Float[Array, "words topics"], sharpness: float = _SHARPNESS
) -> Float[Array, "words topics"]:
    """A start that prefers near clusters. Equal ones become different topics: steps never part equals."""
    nearest = jnp.max(cosines, axis=1, keepdims=True)
    noise = jax.random.uniform(key, cosines.shape, cosines.dtype, *_NOISE)
    return on_simplex((jnp.exp(sharpness * (cosines - nearest)) + _LEAST) * noise)


def num_dimensions(num_topics: int) -> int:
    """Of the vectors that so many clusters are to be found in.

    As many as topics; of many topics fewer, which cost less: with 100, 150 or 200 dimensions for 200 topics,
    20 steps later the objective is the same but for 0.07 % (experiments/starts).
    """
    return min(num_topics, 50 + num_topics // 2)


def _check_sizes(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def _start(
    draw: Callable[[Array, tuple[int, int], DTypeLike], Array],
    key: PRNGKeyArray,
    num_words: int,
    num_topics: int,
    restarts: int | None,
    dtype: DTypeLike,
) -> Array:
    _check_sizes(num_words=num_words, num_topics=num_topics, restarts=restarts)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype must be floating point, got {jnp.dtype(dtype).name}")
    # Half precisions are drawn in float32: their own uniform numbers are often exactly zero.
    wide = dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32

    def one(k: Array) -> Array:
        return on_simplex(on_simplex(draw(k, (num_words, num_topics), wide)).astype(dtype))

    return one(key) if restarts is None else jax.vmap(one)(jax.random.split(key, restarts))

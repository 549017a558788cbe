"""A key enters; a strictly positive W with rows on the simplex leaves."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from dcdjax.decomposition import on_simplex


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


def _start(
    draw: Callable[[Array, tuple[int, int], DTypeLike], Array],
    key: PRNGKeyArray,
    num_words: int,
    num_topics: int,
    restarts: int | None,
    dtype: DTypeLike,
) -> Array:
    for name, size in (("num_words", num_words), ("num_topics", num_topics), ("restarts", restarts)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"dtype must be floating point, got {jnp.dtype(dtype).name}")
    # Half precisions are drawn in float32: their own uniform numbers are often exactly zero.
    wide = dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32

    def one(k: Array) -> Array:
        return on_simplex(on_simplex(draw(k, (num_words, num_topics), wide)).astype(dtype))

    return one(key) if restarts is None else jax.vmap(one)(jax.random.split(key, restarts))

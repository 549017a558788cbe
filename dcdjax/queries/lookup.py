"""Find neighbors, similarities and topics on the device, by Shat.

    Shat_ij = sum_k W_ik W_jk / s_k = P(word j | word i)

Shat is never stored as a matrix. A query divides a row of W by the topic sizes s; the product with W' is one
row of Shat.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# `largest` cuts a row of scores into parts of this length. 32 was the fastest of 8, 16, 32 and 64 for 20,000
# words, for single queries and for batches.
_PART = 32

# Fills up a query that has fewer words than the others in its batch.
NO_WORD = -1

Factor = Float[Array, "words topics"]  # W, rows on the simplex
Sizes = Float[Array, " topics"]  # s, the column sums of W, from `topic_sizes`
Mask = Bool[Array, " words"] | None  # True for the words to choose from; None means all words
Pair = Int[Array, " pairs"]  # one word of each pair


class Ranked(NamedTuple):
    """The largest values of each query in falling order, and their indices."""

    values: Float[Array, "queries k"]
    indices: Int[Array, "queries k"]


@jax.jit
def topic_sizes(W: Factor) -> Sizes:
    """Return s_k = sum_v W_vk, at least the smallest normal number, so that an empty topic divides safely."""
    return jnp.maximum(jnp.sum(W, axis=0), jnp.finfo(W.dtype).tiny)


@partial(jax.jit, static_argnames="k")
def nearest_to_words(
    W: Factor, s: Sizes, words: Int[Array, "queries words_per_query"], among: Mask, *, k: int
) -> Ranked:
    """Find the k words j with the largest Shat_ij, averaged over the words i of each query.

    The words of the query can be among the results.

    Args:
      W: rows on the simplex.
      s: the column sums of W, from `topic_sizes`.
      words: the word indices of each query, filled up with NO_WORD.
      among: the words to choose from.
      k: the number of results for each query.

    Returns:
      P(word j | query) and j. Words outside `among` have the value -inf.
    """
    # NO_WORD is -1 and reads the last row of W; its weight here is zero.
    share = (words != NO_WORD).astype(W.dtype)
    share = share / jnp.sum(share, axis=1, keepdims=True)
    rows = jnp.sum(W[words] * share[:, :, None], axis=1)
    return nearest_to_rows(W, s, rows, among, k=k)


@partial(jax.jit, static_argnames="k")
def nearest_to_rows(
    W: Factor, s: Sizes, rows: Float[Array, "queries topics"], among: Mask, *, k: int
) -> Ranked:
    """Find the nearest words as `nearest_to_words` does, for any rows P(topic | query)."""
    # With the default precision a GPU rounds the factors to ten bits.
    scores = jnp.matmul(rows / s[None, :], W.T, precision=lax.Precision.HIGHEST)
    if among is not None:
        scores = jnp.where(among[None, :], scores, -jnp.inf)
    return largest(scores, k)


def largest(scores: Float[Array, "queries words"], k: int) -> Ranked:
    """Return the k largest values of each row, as `lax.top_k` does, in less than half the time for small k.

    The k largest values lie in the k parts of the row that have the largest maxima. XLA vectorizes the pass
    that finds these maxima, so the slow search only sees few values.
    """
    num_queries, num_words = scores.shape
    num_parts = num_words // _PART
    if k * 4 > num_parts:  # too few parts would be left out
        return Ranked(*lax.top_k(scores, k))
    whole, rest = scores[:, : num_parts * _PART], scores[:, num_parts * _PART :]
    parts = whole.reshape(num_queries, num_parts, _PART)
    _, chosen = lax.top_k(jnp.max(parts, axis=2), k)
    # Back in word order: of equal values, the first word comes first.
    chosen = jnp.sort(chosen, axis=1)
    candidates = jnp.take_along_axis(parts, chosen[:, :, None], axis=1).reshape(num_queries, k * _PART)
    indices = chosen[:, :, None] * _PART + jnp.arange(_PART, dtype=chosen.dtype)[None, None, :]
    indices = indices.reshape(num_queries, k * _PART)
    rest_indices = jnp.arange(num_parts * _PART, num_words, dtype=indices.dtype)
    candidates = jnp.concatenate([candidates, rest], axis=1)
    indices = jnp.concatenate([indices, jnp.broadcast_to(rest_indices, rest.shape)], axis=1)
    values, found = lax.top_k(candidates, k)
    return Ranked(values=values, indices=jnp.take_along_axis(indices, found, axis=1))


@jax.jit
def contributions(W: Factor, s: Sizes, first: Pair, second: Pair) -> Float[Array, "pairs topics"]:
    """Return W_ik W_jk / s_k for each pair: what each topic adds to Shat_ij."""
    return W[first] * (W[second] / s[None, :])


@jax.jit
def pair_similarity(W: Factor, s: Sizes, first: Pair, second: Pair) -> Float[Array, " pairs"]:
    """Return Shat_ij for each pair."""
    return jnp.sum(contributions(W, s, first, second), axis=1)


@partial(jax.jit, static_argnames="k")
def top_contributions(
    W: Factor,
    s: Sizes,
    first: Pair,
    second: Pair,
    member: Float[Array, "topics fewer"] | None = None,
    *,
    k: int,
) -> Ranked:
    """Find the k topics that add most to Shat_ij for each pair, and what each adds.

    Args:
      W: rows on the simplex.
      s: the column sums of W, from `topic_sizes`.
      first: a word of each pair.
      second: the other word of each pair.
      member: 1 where a column of W belongs to a topic; None if each column is a topic.
      k: the number of topics.
    """
    terms = contributions(W, s, first, second)
    if member is not None:
        terms = jnp.matmul(terms, member, precision=lax.Precision.HIGHEST)
    return largest(terms, k)


@partial(jax.jit, static_argnames="k")
def topics_of_words(W: Factor, *, k: int) -> Ranked:
    """Find the k topics with the largest P(topic | word) for each word."""
    return largest(W, k)


@partial(jax.jit, static_argnames="k")
def words_of_topics(W: Factor, s: Sizes, emphasis: Float[Array, " words"], *, k: int) -> Ranked:
    """Find the k words with the largest emphasis_i W_ik for each topic.

    Args:
      W: rows on the simplex.
      s: the column sums of W, from `topic_sizes`.
      emphasis: as in `levels.emphasis`.
      k: the number of words.

    Returns:
      P(word | topic) = W_ik / s_k and the indices of the words.
    """
    found = largest((W * emphasis[:, None]).T, k)
    topics = jnp.arange(W.shape[1], dtype=found.indices.dtype)
    return Ranked(values=W[found.indices, topics[:, None]] / s[:, None], indices=found.indices)


@jax.jit
def topic_similarity(W: Factor) -> Float[Array, "topics topics"]:
    """Return the cosine of every two columns of W: 1 for the same words, 0 for topics that share no word."""
    lengths = jnp.sqrt(jnp.maximum(jnp.sum(W * W, axis=0), jnp.finfo(W.dtype).tiny))
    columns = W / lengths[None, :]
    return jnp.matmul(columns.T, columns, precision=lax.Precision.HIGHEST)

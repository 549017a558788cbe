"""A learned W and the numbers of words enter; neighbors, similarities and topics leave, by Shat.

Shat_ij = sum_k W_ik W_jk / s_k = P(word j | word i) is never made as a matrix: a query is a row of W over
the topics' sizes s, and its product with W' is that row of Shat.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dcdjax.decomposition import on_simplex

# A row of scores is cut into so many equal parts of this length, of which only those with the largest maxima
# are searched. Of 8, 16, 32 and 64 the fastest for 20,000 words, alone and in batches.
_PART = 32

# Numbers of no word, where queries have different numbers of words.
NO_WORD = -1


class Ranked(NamedTuple):
    """The largest of many values, falling, and where they stand."""

    values: Float[Array, "queries k"]
    indices: Int[Array, "queries k"]


@jax.jit
def topic_sizes(W: Float[Array, "words topics"]) -> Float[Array, " topics"]:
    """s_k = sum_v W_vk, no less than the smallest normal number: what nobody holds divides nothing."""
    return jnp.maximum(jnp.sum(W, axis=0), jnp.finfo(W.dtype).tiny)


@partial(jax.jit, static_argnames="k")
def nearest_to_words(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    numbers: Int[Array, "queries together"],
    among: Bool[Array, " words"] | None,
    *,
    k: int,
) -> Ranked:
    """The k words j with the largest mean over a query's words i of Shat_ij, those words included.

    Args:
      W: rows on the simplex.
      s: their sums over words.
      numbers: of the words of each query, filled up with NO_WORD.
      among: the words to choose from; None for all.
      k: how many.

    Returns:
      P(word j | word i) and j. What is not among the words to choose from has -inf.
    """
    # Zero for no word, whose number means the last one here.
    share = (numbers != NO_WORD).astype(W.dtype)
    share = share / jnp.sum(share, axis=1, keepdims=True)
    rows = jnp.sum(W[numbers] * share[:, :, None], axis=1)
    return nearest_to_rows(W, s, rows, among, k=k)


@partial(jax.jit, static_argnames="k")
def nearest_to_rows(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    rows: Float[Array, "queries topics"],
    among: Bool[Array, " words"] | None,
    *,
    k: int,
) -> Ranked:
    """As `nearest_to_words`, for rows over topics that need not be those of words."""
    # Shat to the last digits everywhere: a GPU would else round its factors to ten bits.
    scores = jnp.matmul(rows / s[None, :], W.T, precision=lax.Precision.HIGHEST)
    if among is not None:
        scores = jnp.where(among[None, :], scores, -jnp.inf)
    return largest(scores, k)


def largest(scores: Float[Array, "queries words"], k: int) -> Ranked:
    """The k largest of each row, as `lax.top_k` gives them, in less than half its time for small k.

    The k largest numbers stand in the k parts of the row with the largest maxima: a pass that XLA
    vectorizes finds the maxima, and the slow search has few numbers left.
    """
    num_queries, num_words = scores.shape
    num_parts = num_words // _PART
    # Otherwise there is little to be left out.
    if k * 4 > num_parts:
        return Ranked(*lax.top_k(scores, k))
    whole, rest = scores[:, : num_parts * _PART], scores[:, num_parts * _PART :]
    parts = whole.reshape(num_queries, num_parts, _PART)
    _, chosen = lax.top_k(jnp.max(parts, axis=2), k)
    # In order of the words again: of equal numbers the first comes first.
    chosen = jnp.sort(chosen, axis=1)
    candidates = jnp.take_along_axis(parts, chosen[:, :, None], axis=1).reshape(num_queries, k * _PART)
    places = chosen[:, :, None] * _PART + jnp.arange(_PART, dtype=chosen.dtype)[None, None, :]
    places = places.reshape(num_queries, k * _PART)
    in_rest = jnp.arange(num_parts * _PART, num_words, dtype=places.dtype)
    candidates = jnp.concatenate([candidates, rest], axis=1)
    places = jnp.concatenate([places, jnp.broadcast_to(in_rest, rest.shape)], axis=1)
    values, found = lax.top_k(candidates, k)
    return Ranked(values=values, indices=jnp.take_along_axis(places, found, axis=1))


@jax.jit
def contributions(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    first: Int[Array, " pairs"],
    second: Int[Array, " pairs"],
) -> Float[Array, "pairs topics"]:
    """W_ik W_jk / s_k of each pair: what each topic gives to Shat_ij."""
    return W[first] * (W[second] / s[None, :])


@jax.jit
def pair_similarity(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    first: Int[Array, " pairs"],
    second: Int[Array, " pairs"],
) -> Float[Array, " pairs"]:
    """Shat_ij of each pair."""
    return jnp.sum(contributions(W, s, first, second), axis=1)


@partial(jax.jit, static_argnames="k")
def paths(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    first: Int[Array, " pairs"],
    second: Int[Array, " pairs"],
    *,
    k: int,
) -> Ranked:
    """The k topics that give most to Shat_ij of each pair, and what each gives."""
    return largest(contributions(W, s, first, second), k)


@partial(jax.jit, static_argnames="k")
def topics_of_words(W: Float[Array, "words topics"], *, k: int) -> Ranked:
    """The k topics of each word with the largest P(topic | word)."""
    return largest(W, k)


@jax.jit
def topic_likeness(W: Float[Array, "words topics"]) -> Float[Array, "topics topics"]:
    """The cosine of every two columns of W: 1 for topics of the same words, 0 for those that share none."""
    lengths = jnp.sqrt(jnp.maximum(jnp.sum(W * W, axis=0), jnp.finfo(W.dtype).tiny))
    columns = W / lengths[None, :]
    return jnp.matmul(columns.T, columns, precision=lax.Precision.HIGHEST)


@partial(jax.jit, static_argnames="k")
def words_of_topics(W: Float[Array, "words topics"], s: Float[Array, " topics"], *, k: int) -> Ranked:
    """The k words of each topic with the largest P(word | topic) = W_ik / s_k."""
    return largest((W / s[None, :]).T, k)


@partial(jax.jit, static_argnames="max_steps")
def fold_in(
    word_given_topic: Float[Array, "known topics"],
    weights: Float[Array, " known"],
    *,
    tol: Float[Array, ""] | float = 1e-5,
    max_steps: int = 1000,
) -> Float[Array, " topics"]:
    """The row w of a new word from its similarities to known words, by the exact step for this row alone.

    With the topics fixed, the gradient of -sum_j S_j log Shat_j, Shat_j = sum_k w_k W_jk / s_k, has no plus
    part, and the root of the exact step is the sum that it divides by: w_k <- A_k / sum_l A_l, with
    A_k = w_k sum_j (S_j / Shat_j) W_jk / s_k. That is convex on the simplex, so any start leads to the same
    row, and never rises. The scale of the similarities does not matter.

    Args:
      word_given_topic: W_jk / s_k of known words j.
      weights: S_j >= 0 of these words, not all zero.
      tol: stop when no entry of w changes by more than this.
      max_steps: stop after this many steps.

    Returns:
      The row.
    """
    weights = weights / jnp.sum(weights)
    tiny = jnp.finfo(weights.dtype).tiny

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, change, step = carry
        return (step < max_steps) & (change > tol)

    def one_step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        w, _, step = carry
        Shat = jnp.matmul(word_given_topic, w, precision=lax.Precision.HIGHEST)
        Z = weights / jnp.maximum(Shat, tiny)
        A = w * jnp.matmul(Z, word_given_topic, precision=lax.Precision.HIGHEST)
        new = on_simplex(A[None, :])[0]
        return new, jnp.max(jnp.abs(new - w)), step + 1

    start = jnp.full_like(word_given_topic[0], 1 / word_given_topic.shape[1])
    change = jnp.full_like(start[0], jnp.inf)
    w, _, _ = lax.while_loop(unfinished, one_step, (start, change, jnp.int32(0)))
    return w

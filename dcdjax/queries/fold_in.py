"""Compute the row of W for a new word while all topics stay fixed."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from dcdjax.method.decomposition import on_simplex
from dcdjax.queries.results import next_power_of_two
from dcdjax.similarity.weighting import weight_new_row

# What a record of the weighting has besides its name.
_NUMBERS = ("context_exponent", "shift", "log_sum", "frequency_exponent")


def checked_weights(
    words: Sequence[str], counts: np.ndarray, margins: np.ndarray | None, weighting: Mapping[str, Any]
) -> np.ndarray:
    """Check how often a new word occurs near known words, and turn these counts into weights.

    Args:
      words: the known words.
      counts: how often the new word occurs near each of them.
      margins: the row sums of the counts that S was made from. None leaves the counts as they are.
      weighting: the options that S was weighted with.

    Raises:
      ValueError: if a count is negative or not finite (with the first such word), or if all weights are 0.
    """
    for word, count in zip(words, counts, strict=True):
        if not 0 <= count < np.inf:
            raise ValueError(f"counts: {word!r} has {count}, which is negative or not finite")
    if not counts.any():
        raise ValueError("counts must have a positive number for at least one known word")
    weights = counts if margins is None else weight_new_row(counts, margins, **weighting)
    if not weights.any():
        raise ValueError("counts: no known word occurs near the new word more often than by chance")
    return weights


def check_weighting(weighting: Any) -> None:
    """Refuse a record of the weighting that `checked_weights` could not use."""
    if not isinstance(weighting, Mapping) or not isinstance(weighting.get("weighting"), str):
        raise ValueError(f"record: the weighting must be a mapping that names it, got {weighting!r}")
    needed = ("context_exponent", "shift", "log_sum") if weighting["weighting"] == "ppmi" else ()
    for name in dict.fromkeys((*needed, *weighting)):
        value = weighting.get(name)
        is_number = isinstance(value, int | float) and math.isfinite(value)
        if name != "weighting" and not (name in _NUMBERS and is_number):
            raise ValueError(f"record: the weighting has {name} = {value!r}")


def fold_in(
    W: Float[Array, "words topics"],
    s: Float[Array, " topics"],
    starts: Sequence[int],
    known: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Compute P(topic | new word) with `fold_in_row`; in a consensus, for each start separately.

    Args:
      W: the columns of all starts side by side.
      s: the column sums of W, from `lookup.topic_sizes`.
      starts: the number of topics of each start.
      known: indices of known words.
      weights: S_j >= 0, the similarity of the new word to each known word; not all zero.

    Returns:
      One row with an entry for each topic. The row sums to one.
    """
    # Padding with weight zero changes nothing and keeps the number of compiled shapes small.
    padding = (0, next_power_of_two(known.size) - known.size)
    known = np.pad(known, padding).astype(np.int32)
    # The scale of the weights does not matter. Dividing in float64 keeps them in the range of float32.
    weights = np.pad(weights / weights.max(), padding).astype(W.dtype)
    # A consensus of M starts divides W and s by M, which cancels here.
    word_given_topic = W[known] / s[None, :]
    blocks = jnp.split(word_given_topic, np.cumsum(starts)[:-1], axis=1)
    rows = [np.asarray(fold_in_row(block, weights)) for block in blocks]
    return np.concatenate(rows) / np.asarray(len(rows), W.dtype)


@partial(jax.jit, static_argnames="max_steps")
def fold_in_row(
    word_given_topic: Float[Array, "known topics"],
    weights: Float[Array, " known"],
    *,
    tol: Float[Array, ""] | float = 1e-5,
    max_steps: int = 1000,
) -> Float[Array, " topics"]:
    """Compute the row w of a new word from its similarities to known words.

    The exact step is applied to this row alone. With fixed topics, the gradient of -sum_j S_j log Shat_j,
    Shat_j = sum_k w_k W_jk / s_k, has no plus part, so the root of the exact step is a sum:

        w_k <- A_k / sum_l A_l,    A_k = w_k sum_j (S_j / Shat_j) W_jk / s_k

    The objective is convex on the simplex and never rises, so every start leads to the same row. The scale of
    the similarities does not matter.

    Args:
      word_given_topic: W_jk / s_k for the known words j.
      weights: S_j >= 0 for these words, not all zero.
      tol: stop when no entry of w changes by more than this.
      max_steps: stop after this many steps.

    Returns:
      The row w.
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

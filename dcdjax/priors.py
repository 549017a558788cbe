"""What is known of W before S is seen enters; what that adds to the objective, and to the exact step, leaves.

*Dirichlet, of the rows*: -(alpha - 1) u sum_ik log W_ik, where u = 1 / r is what a topic has of a word on
average, for an S with a mean row sum of one. Alpha above 1 draws words toward all topics, below 1 toward few.
It enters the majorizer that the exact step minimizes: above 1 as more of A_ik; below 1 the term is concave in
W_ik, lies below its tangent, and so enters as more of the pole, plus_k + (1 - alpha) u / W_ik. Either way the
objective, with it, never rises.

*Relevance, of the topics*: rho N sum_k log(1 + s_k / b). A word costs a small topic more than a large one, so
that topics which others can replace die out. Concave in s_k, it enters by its tangent, as rho N / (s_k + b)
more of plus_k.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from dcdjax import decomposition
from dcdjax.decomposition import Sums

# Words, b: a topic with less of them than so is as good as gone. Of 0.1 to 3, which were tried, 3 pruned
# little.
_FEW_WORDS = 0.3


class Prior(NamedTuple):
    """What is known before; None where nothing is."""

    concentration: Float[Array, " steps"] | None  # alpha of each step, the last one's from then on
    relevance: Float[Array, ""] | None  # rho


def given(concentration: ArrayLike | Sequence[float], relevance: ArrayLike, dtype: np.dtype) -> Prior | None:
    """What was asked for, validated; None where that is nothing."""
    for name, value, most in (("concentration", concentration, 1), ("relevance", relevance, 0)):
        if np.ndim(value) > most or np.size(value) == 0:
            kind = "a number or some, one for each step" if most else "one number"
            raise ValueError(f"{name} must be {kind}, got shape {np.shape(value)}")
        least = "positive" if name == "concentration" else "nonnegative"
        if not isinstance(value, Tracer):
            numbers = np.atleast_1d(np.asarray(value, np.float64))
            numbers = np.where(np.abs(numbers) > jnp.finfo(dtype).max, np.inf, numbers)
            wrong = ~(np.isfinite(numbers) & ((numbers > 0) if most else (numbers >= 0)))
            if wrong.any():
                raise ValueError(f"{name} must be {least} and finite, got {numbers[wrong][0]}")
    flat = not isinstance(concentration, Tracer) and bool(np.all(np.asarray(concentration) == 1))
    free = not isinstance(relevance, Tracer) and bool(np.asarray(relevance) == 0)
    if flat and free:
        return None
    # By way of the host, so that they are bound to no device.
    alpha, rho = (x if isinstance(x, Tracer) else np.asarray(x) for x in (concentration, relevance))
    return Prior(
        concentration=None if flat else jnp.atleast_1d(jnp.asarray(alpha, dtype)),
        relevance=None if free else jnp.asarray(rho, dtype),
    )


def num_annealed(prior: Prior | None) -> int:
    """Of so many steps each has its own concentration, the last one's that of all the rest."""
    return 0 if prior is None or prior.concentration is None else prior.concentration.shape[0]


def pseudocount(prior: Prior, step: Int[Array, ""], num_topics: int) -> Float[Array, ""] | None:
    """(alpha - 1) / r, as if each word had been seen so much with each topic; None for no such prior."""
    if prior.concentration is None:
        return None
    last = prior.concentration.shape[0] - 1
    return (prior.concentration[jnp.minimum(step, last)] - 1) / num_topics


def penalty(
    prior: Prior,
    step: Int[Array, ""],
    W: Float[Array, "words topics"],
    held: Bool[Array, " words"] | None = None,
    num_words: int | None = None,
) -> Float[Array, ""]:
    """What is added to the objective of an S with a mean row sum of one.

    Args:
      prior: what is known.
      step: whose concentration holds.
      W: positive, rows on the simplex.
      held: which rows are words, where not all are.
      num_words: how many, if not all.
    """
    total = jnp.zeros((), W.dtype)
    extra = pseudocount(prior, step, W.shape[1])
    if extra is not None:
        logs = jnp.log(W if held is None else jnp.where(held[:, None], W, 1))
        total -= extra * jnp.sum(logs)
    if prior.relevance is not None:
        s = jnp.sum(W, axis=0)
        total += prior.relevance * (num_words or W.shape[0]) * jnp.sum(jnp.log1p(s / _FEW_WORDS))
    return total


def weighed(prior: Prior, sums: Sums, num_words: int) -> Sums:
    """Plus with what relevance adds to it."""
    if prior.relevance is None:
        return sums
    return sums._replace(plus=sums.plus + prior.relevance * num_words / (sums.s + _FEW_WORDS))


def exact_step(
    sums: Sums,
    extra: Float[Array, ""],
    W: Float[Array, "words topics"],
    ZW: Float[Array, "words topics"],
) -> Float[Array, "words topics"]:
    """`decomposition.exact_step` with a pseudocount: the minimum of the majorizer with the prior's.

    W_ik <- (A_ik + max(extra, 0)) / (plus_k + max(-extra, 0) / W_ik + lam_i), rows on the simplex.
    """
    A = W * (2 * ZW / sums.s) + jnp.maximum(extra, 0)
    poles = sums.plus + jnp.maximum(-extra, 0) / W
    poles -= jnp.min(poles, axis=1, keepdims=True)
    return decomposition.on_simplex(A / (poles + decomposition.row_root(A, poles)))

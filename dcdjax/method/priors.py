"""Add priors on the rows of W and on the topics to the objective and to the exact step.

*Concentration, a Dirichlet prior on each row*: adds -(alpha - 1) u sum_ik log W_ik to the objective. Here u =
1 / r, a topic's mean share of a word, and S has a mean row sum of one. Alpha above 1 draws words toward all
topics, below 1 toward few. The exact step minimizes a majorizer, and the prior changes it as follows. If
alpha is above 1, A_ik grows by (alpha - 1) u. If alpha is below 1, the term is concave in W_ik and lies below
its tangent, and plus_k grows by (1 - alpha) u / W_ik. In both cases the objective, with the prior, never
rises.

*Relevance, a prior on topics*: adds rho N sum_k log(1 + s_k / b) to the objective. A word costs more in a
small topic than in a large one, so topics that others can replace die out. The term is concave in s_k, and
its tangent adds rho N / (s_k + b) to plus_k.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from dcdjax.method import decomposition
from dcdjax.method.decomposition import Sums, Weights

# b, in words: a topic with fewer words has nearly died out. Among values from 0.1 to 3, only 3 pruned little.
_FEW_WORDS = 0.3


class Prior(NamedTuple):
    """Hold the parameters of the priors; None if a prior is not used."""

    concentration: Float[Array, " steps"] | None = None  # alpha of each step; later steps use the last one
    relevance: Float[Array, ""] | None = None  # rho


NO_PRIOR = Prior()


def checked(concentration: ArrayLike | Sequence[float], relevance: ArrayLike, dtype: np.dtype) -> Prior:
    """Check the parameters of the priors, and leave out those that change nothing."""
    for name, value, most in (("concentration", concentration, 1), ("relevance", relevance, 0)):
        if np.ndim(value) > most or np.size(value) == 0:
            kind = "one number, or one for each step" if most else "one number"
            raise ValueError(f"{name} must be {kind}, got shape {np.shape(value)}")
        if not isinstance(value, Tracer):
            numbers = np.atleast_1d(np.asarray(value, np.float64))
            numbers = np.where(np.abs(numbers) > jnp.finfo(dtype).max, np.inf, numbers)
            wrong = ~(np.isfinite(numbers) & ((numbers > 0) if most else (numbers >= 0)))
            if wrong.any():
                least = "positive" if most else "nonnegative"
                raise ValueError(f"{name} must be {least} and finite, got {numbers[wrong][0]}")
    is_flat = not isinstance(concentration, Tracer) and bool(np.all(np.asarray(concentration) == 1))
    is_free = not isinstance(relevance, Tracer) and bool(np.asarray(relevance) == 0)
    # Made on the host, so that they are bound to no device.
    alpha, rho = (x if isinstance(x, Tracer) else np.asarray(x) for x in (concentration, relevance))
    return Prior(
        concentration=None if is_flat else jnp.atleast_1d(jnp.asarray(alpha, dtype)),
        relevance=None if is_free else jnp.asarray(rho, dtype),
    )


def num_annealed(prior: Prior) -> int:
    """Return how many steps have a concentration of their own. Later steps use the last one."""
    return 0 if prior.concentration is None else prior.concentration.shape[0]


def pseudocount(prior: Prior, step: Int[Array, ""], num_topics: int) -> Float[Array, ""] | None:
    """Return (alpha - 1) / r, a count added to each pair of word and topic; None without concentration."""
    if prior.concentration is None:
        return None
    last = prior.concentration.shape[0] - 1
    return (prior.concentration[jnp.minimum(step, last)] - 1) / num_topics


def penalty(prior: Prior, step: Int[Array, ""], W: Weights, num_words: int | None = None) -> Float[Array, ""]:
    """Return what the priors add to the objective, for an S with a mean row sum of one.

    Args:
      prior: the parameters.
      step: the number of the step, which selects the concentration.
      W: positive, rows on the simplex. Rows of zeros are padding and add nothing.
      num_words: how many rows are words. The default is all.
    """
    total = jnp.zeros((), W.dtype)
    extra = pseudocount(prior, step, W.shape[1])
    if extra is not None:
        total -= extra * jnp.sum(jnp.log(jnp.where(W == 0, 1, W)))
    if prior.relevance is not None:
        s = jnp.sum(W, axis=0)
        total += prior.relevance * (num_words or W.shape[0]) * jnp.sum(jnp.log1p(s / _FEW_WORDS))
    return total


def add_relevance(prior: Prior, sums: Sums, num_words: int) -> Sums:
    """Add to plus_k what the relevance prior adds, rho N / (s_k + b)."""
    if prior.relevance is None:
        return sums
    return sums._replace(plus=sums.plus + prior.relevance * num_words / (sums.s + _FEW_WORDS))


def exact_step(sums: Sums, extra: Float[Array, ""] | None, W: Weights, ZW: Weights) -> Weights:
    """Take the exact step with a pseudocount: minimize the majorizer of objective and prior on the simplex.

    If the pseudocount `extra` is None, this is the exact step of `decomposition`.

    W_ik <- (A_ik + max(extra, 0)) / (plus_k + max(-extra, 0) / W_ik + lam_i)
    """
    if extra is None:
        return decomposition.exact_step(sums, W, ZW)
    A = W * (2 * ZW / sums.s) + jnp.maximum(extra, 0)
    return decomposition.minimize_on_simplex(A, sums.plus + jnp.maximum(-extra, 0) / W)

"""W, S and how much of each word is to be smoothed enter; W leaves, with some of the topics of neighbors.

A random walk that takes a step over S with the chance of a word's share, and stays otherwise:

    W_i <- (1 - share_i) W_i + share_i sum_j S_ij W_j / sum_j S_ij

Rows stay on the simplex, so that Shat stays doubly stochastic. What is known of a rare word is mostly noise,
to which the solver fits W closely; what its neighbors have in common is not.
"""

import jax
import numpy as np
from jaxtyping import Array, Float

from dcdjax.decomposition import on_simplex
from dcdjax.layout import Layout
from dcdjax.sweeps import product


def shares(word_counts: np.ndarray, smoothing: float) -> np.ndarray:
    """The part a / (n + a), half of a word that occurs n = a times.

    Example:
      >>> shares(np.array([5, 20, 1980]), 20.0)
      array([0.8 , 0.5 , 0.01])
    """
    return smoothing / (np.asarray(word_counts, np.float64) + smoothing)


@jax.jit
def smoothed(
    W: Float[Array, "words topics"], layout: Layout, share: Float[Array, " words"]
) -> Float[Array, "words topics"]:
    """W after the step, rows on the simplex.

    Args:
      W: positive.
      layout: of S, without empty rows.
      share: from 0, a row as it is, to 1, that of the neighbors alone.

    Returns:
      The mean, of which one product with S is most of the work.
    """
    deal = layout.deal
    W = on_simplex(W if deal is None else deal.filled(W))
    # The rows of W sum to one, those of S W to what those of S do.
    of_neighbors = product(W, layout)
    of_neighbors = on_simplex(of_neighbors if deal is None else deal.filled(of_neighbors))
    return on_simplex((1 - share)[:, None] * W + share[:, None] * of_neighbors)

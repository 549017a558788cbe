"""Mix the topics of rare words with those of their neighbors in S.

The mixture is one step of a random walk that moves over S with probability share_i and stays otherwise:

    W_i <- (1 - share_i) W_i + share_i sum_j S_ij W_j / sum_j S_ij

Rows stay on the simplex, so that Shat stays doubly stochastic. What S says of a rare word is mostly noise,
and the solver fits W closely to it. The topics that its neighbors have in common are more reliable.
"""

import jax
import numpy as np
from jaxtyping import Array, Float

from dcdjax.devices.layout import Layout
from dcdjax.devices.sweeps import product
from dcdjax.method.decomposition import on_simplex


def shares(word_counts: np.ndarray, smoothing: float) -> np.ndarray:
    """Return the shares a / (n + a). A word that occurs n = a times has a share of one half.

    Example:
      >>> shares(np.array([5, 20, 1980]), 20.0)
      array([0.8 , 0.5 , 0.01])
    """
    return smoothing / (np.asarray(word_counts, np.float64) + smoothing)


@jax.jit
def smoothed(
    W: Float[Array, "words topics"], layout: Layout, share: Float[Array, " words"]
) -> Float[Array, "words topics"]:
    """Return W after the mixture, rows on the simplex.

    Args:
      W: positive.
      layout: S without empty rows.
      share: for each word, from 0 (the row stays as it is) to 1 (the mean of the neighbors alone).

    Returns:
      The new W. One product with S is most of the work.
    """
    split = layout.row_split
    W = on_simplex(W if split is None else split.fill_padding(W))
    # The rows of W sum to one, those of S W to what those of S do.
    of_neighbors = product(W, layout)
    of_neighbors = on_simplex(of_neighbors if split is None else split.fill_padding(of_neighbors))
    return on_simplex((1 - share)[:, None] * W + share[:, None] * of_neighbors)

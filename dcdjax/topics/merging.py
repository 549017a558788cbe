"""Merge similar topics of W, so that each topic is shown once.

    W'_ik = sum over columns l in group k of W_il

Rows stay on the simplex, because P(group | word) is the sum of P(column | word). The starts of a consensus
find nearly the same topics; the groups are the topics that they agree on.
"""

from collections.abc import Sequence

import numpy as np
import scipy.cluster.hierarchy
import scipy.sparse
import scipy.spatial.distance
from jaxtyping import Float

from dcdjax.queries import results

# The memory of distances grows with the square of the columns. These take 1.6 GB.
MOST_COLUMNS = 10_000


def group_columns(
    W: Float[np.ndarray, "words columns"],
    emphasis: Float[np.ndarray, " words"],
    numbers: Sequence[int],
) -> list[np.ndarray]:
    """Group similar columns of W by Ward's hierarchical clustering, cut at each number of groups.

    The columns are compared by the square roots of emphasis_i W_ik, scaled to length one. The cosine of two
    such vectors is the Bhattacharyya coefficient of two distributions over words. All cuts are of one tree.
    So the groups of a larger number are parts of those of a smaller one.

    Args:
      W: nonnegative.
      emphasis: a larger weight makes a word count more.
      numbers: the numbers of groups, each at most the number of columns.

    Returns:
      For each number, the group of each column, counted from 0.

    Example:
      >>> W = np.array([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.1, 0.1, 0.8]])
      >>> group_columns(W, np.ones(3), [2, 3])
      [array([0, 0, 1]), array([0, 1, 2])]

    References:
      Ward, Hierarchical grouping to optimize an objective function, JASA 58(301), 1963.
    """
    num_columns = W.shape[1]
    if num_columns > MOST_COLUMNS:
        raise ValueError(f"num_topics: {num_columns} columns of W are too many to merge, of {MOST_COLUMNS}")
    if num_columns == 1:
        return [np.zeros(1, np.int64) for _ in numbers]
    roots = np.sqrt(W * emphasis[:, None].astype(W.dtype))
    roots /= np.maximum(np.linalg.norm(roots, axis=0), np.finfo(W.dtype).tiny)
    cosines = (roots.T @ roots).astype(np.float64)
    distances = np.sqrt(np.clip(1 - (cosines + cosines.T) / 2, 0, None))
    np.fill_diagonal(distances, 0)
    condensed = scipy.spatial.distance.squareform(distances, checks=False)
    tree = scipy.cluster.hierarchy.linkage(condensed, "ward")
    return [_cut(tree, number) for number in numbers]


def _cut(tree: np.ndarray, number: int) -> np.ndarray:
    """Cut the tree so that `number` groups remain. Return the group of each column."""
    num_columns = len(tree) + 1
    num_merges = num_columns - number
    # A merge has a number after those of the columns. It is connected with its two parts.
    merges = np.arange(num_columns, num_columns + num_merges)
    ends = tree[:num_merges, :2].astype(np.int64)
    edges = scipy.sparse.coo_array(
        (np.ones(2 * num_merges), (np.repeat(merges, 2), ends.ravel())),
        shape=(num_columns + num_merges, num_columns + num_merges),
    )
    _, labels = scipy.sparse.csgraph.connected_components(edges, directed=False)
    return np.unique(labels[:num_columns], return_inverse=True)[1]


def merged(W: Float[np.ndarray, "words columns"], groups: np.ndarray) -> Float[np.ndarray, "words topics"]:
    """Return P(group | word): the sums of the columns of each group.

    Example:
      >>> merged(np.array([[0.5, 0.25, 0.25]]), np.array([1, 0, 1]))
      array([[0.25, 0.75]])
    """
    member = results.membership(groups, W.dtype)
    return W if member is None else W @ member

"""Build the exact, symmetric graph of nearest neighbors of points. Ties are broken by index."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
import scipy.spatial

from dcdjax.util import checks

# In higher dimensions a k-d tree visits nearly all points, and is slower than a matrix product.
MAX_TREE_DIMENSION = 16
# Candidates beyond the k nearest and the point itself. More are seldom needed for rounding or ties.
_SPARE = 7
# Entries of the largest temporary array: 64 MiB of float64.
BLOCK_ENTRIES = 1 << 23
# Relative rounding error of one operation.
_ROUNDING = float(np.finfo(np.float64).eps)
# Weights are at least e^-50 = 2e-22 of the largest, so that no edge becomes zero in float32.
_LARGEST_EXPONENT = 50.0

# (rows, num_candidates) -> candidates of each row, and a lower bound of all other squared distances
_Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def neighbor_graph(
    points: Any, num_neighbors: int, *, metric: str = "euclidean", weights: str = "binary"
) -> scipy.sparse.csr_array:
    """Build the graph of `similarity.from_points`, which explains the arguments.

    Example:
      >>> neighbor_graph([[0.0], [1.0], [3.0]], 1, weights="gaussian").toarray().round(3)
      array([[0.   , 0.368, 0.   ],
             [0.368, 0.   , 0.135],
             [0.   , 0.135, 0.   ]])
    """
    checks.choice("weights", weights, ("binary", "gaussian"))
    neighbors, squares = nearest(points, num_neighbors, metric=metric)
    num_points, k = neighbors.shape
    chooser, chosen = np.repeat(np.arange(num_points), k), neighbors.ravel()
    places, first = np.unique(
        np.concatenate([chooser * num_points + chosen, chosen * num_points + chooser]), return_index=True
    )
    rows, columns = np.divmod(places, num_points)
    values = np.ones(places.size)
    if weights == "gaussian":
        # (x - y)^2 = (y - x)^2 to the last bit, so the distance of either direction will do.
        squares, scales = squares.ravel()[first % chosen.size], np.sqrt(squares[:, -1])
        spread = scales[rows] * scales[columns]
        # If a point has more than k copies, its scale is zero. In the limit copies have weight 1, others 0.
        exponents = np.where(squares > 0, np.inf, 0.0)
        with np.errstate(over="ignore"):
            np.divide(squares, spread, where=spread > 0, out=exponents)
        values = np.exp(-np.minimum(exponents, _LARGEST_EXPONENT))
    return scipy.sparse.csr_array((values, (rows, columns)), shape=(num_points, num_points))


def nearest(points: Any, num_neighbors: int, *, metric: str = "euclidean") -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest neighbors of each point, nearest first, equally near ones by index.

    Candidates come from a k-d tree, or from blocks of a matrix product if the dimension is high. Their
    distances are then computed again from differences, so that neither cancellation nor the machine's BLAS
    changes them. Where rounding could have hidden a nearer point, more candidates are taken.

    Args:
      points: (N, d) finite numbers.
      num_neighbors: k, the neighbors of each point, without itself; at least 1, less than N.
      metric: "euclidean", or "cosine": the Euclidean distance after scaling points to length one.

    Returns:
      Indices (N, k), and squared distances (N, k) up to a common power of two.

    Raises:
      ValueError: the message names the argument and the first offending row.
    """
    points = _checked_points(points, metric)
    num_points = len(points)
    k = checks.whole("num_neighbors", num_neighbors, 1)
    if k >= num_points:
        raise ValueError(f"num_neighbors must be below {num_points}, the number of points, got {k}")

    by_tree = points.shape[1] <= MAX_TREE_DIMENSION
    search = _tree_search(points) if by_tree else _product_search(points)
    neighbors, squares = np.empty((num_points, k), np.int64), np.empty((num_points, k))
    rows, num_candidates = np.arange(num_points), min(k + 1 + _SPARE, num_points)
    while rows.size:
        largest_row = max(num_candidates * points.shape[1], 0 if by_tree else num_points)
        unsure = []
        for block in np.array_split(rows, -(-rows.size * largest_row // BLOCK_ENTRIES)):
            candidates, bound = search(block, num_candidates)
            neighbors[block], squares[block] = _k_nearest(points, block, candidates, k)
            # Only strictly nearer points are certain: one at the same distance may have a lower index.
            unsure.append(block[squares[block, -1] >= bound])
        rows = np.concatenate(unsure) if num_candidates < num_points else rows[:0]
        num_candidates = min(2 * num_candidates, num_points)
    return neighbors, squares


def _checked_points(points: Any, metric: str) -> np.ndarray:
    checks.choice("metric", metric, ("euclidean", "cosine"))
    points = np.asarray(points)
    if points.ndim != 2 or not points.shape[1]:
        raise ValueError(f"points must be of shape (points, dimensions), got {points.shape}")
    try:
        points = points.astype(np.float64, casting="same_kind")
    except TypeError:
        raise ValueError(f"points must be real numbers, got {points.dtype}") from None
    bad = ~np.isfinite(points).all(axis=1)
    if bad.any():
        raise ValueError(f"points[{bad.argmax()}] is not finite ({int(bad.sum())} in total)")
    if metric == "euclidean":
        # Scaling by a power of two is exact, and then no square overflows.
        return np.ldexp(points, -np.frexp(np.abs(points).max(initial=0.0))[1])
    largest = np.abs(points).max(axis=1, keepdims=True)
    if not largest.all():
        raise ValueError(
            f"points[{largest.argmin()}] is zero and has no direction, which metric 'cosine' needs"
        )
    points = np.ldexp(points, -np.frexp(largest)[1])
    return points / np.sqrt((points * points).sum(axis=1, keepdims=True))


def _k_nearest(
    points: np.ndarray, rows: np.ndarray, candidates: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    # Sorted by index, so that the stable sort below breaks ties by index.
    candidates = np.sort(candidates, axis=1)
    differences = points[candidates] - points[rows, None]
    differences *= differences
    squares = differences.sum(axis=2)
    squares[candidates == rows[:, None]] = np.inf
    order = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(candidates, order, axis=1), np.take_along_axis(squares, order, axis=1)


def _tree_search(points: np.ndarray) -> _Search:
    tree = scipy.spatial.cKDTree(points)
    slack = 8 * (points.shape[1] + 10) * _ROUNDING

    def search(rows: np.ndarray, num_candidates: int) -> tuple[np.ndarray, np.ndarray]:
        distances, candidates = tree.query(points[rows], num_candidates, workers=-1)
        distances, candidates = np.asarray(distances), np.asarray(candidates)
        return candidates, distances[:, -1] ** 2 * (1 - slack)

    return search


def _product_search(points: np.ndarray) -> _Search:
    # Centering keeps the distances and reduces the cancellation.
    centered = points - points.mean(axis=0)
    norms = (centered * centered).sum(axis=1)
    # The error of |x|^2 - 2 x'y + |y|^2 is less than 8 (d + 10) roundings of |x|^2 + |y|^2, including those
    # of centering and of the sum of squared differences. Subtracting so much gives a lower bound.
    lowered = norms * (1 - 8 * (points.shape[1] + 10) * _ROUNDING)

    def search(rows: np.ndarray, num_candidates: int) -> tuple[np.ndarray, np.ndarray]:
        bounds = centered[rows] @ centered.T
        bounds *= -2
        bounds += lowered
        candidates = np.argpartition(bounds, num_candidates - 1, axis=1)[:, :num_candidates]
        farthest = np.take_along_axis(bounds, candidates, axis=1).max(axis=1)
        return candidates, farthest + lowered[rows]

    return search

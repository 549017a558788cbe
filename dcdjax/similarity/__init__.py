"""Turn counts, points or a matrix into S, the sparse similarity matrix."""

from dcdjax.similarity.similarity import Similarity, from_counts, from_matrix, from_points, load, mapped, read

__all__ = ["Similarity", "from_counts", "from_matrix", "from_points", "load", "mapped", "read"]

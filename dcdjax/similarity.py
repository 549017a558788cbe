"""A matrix, counts, points or a file enters; S leaves, validated: symmetric, nonnegative, no word alone."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from dcdjax import matrix_files, matrix_market, neighbor_graph, validation
from dcdjax.weighting import weighted, with_self, without_diagonal, word_name


@dataclass(frozen=True, eq=False)
class Similarity:
    """The S of the method, and what was done to make it so.

    Attributes:
      matrix: float64 CSR with sorted indices, symmetric, without stored zeros.
      kept: the rows of the original that remain, ascending; all of them unless isolated words were dropped.
      words: those of the rows that remain, if known.
      num_symmetrized: how many entries of the original differed from their mirror image.
      num_dropped: how many isolated words were dropped.
    """

    matrix: scipy.sparse.csr_array
    kept: np.ndarray
    words: tuple[str, ...] | None = None
    num_symmetrized: int = 0
    num_dropped: int = 0

    @property
    def num_words(self) -> int:
        """N."""
        return self.matrix.shape[0]

    def rows(self, first: int, step: int) -> scipy.sparse.csr_array:
        """Rows first, first + step, ...: of a matrix in a file, only these are read."""
        return self.matrix[first::step]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file, whole or not at all, for `load`; `scipy.sparse.load_npz` reads it too."""
        settings = {
            "kind": "similarity",
            "num_symmetrized": self.num_symmetrized,
            "num_dropped": self.num_dropped,
        }
        matrix_files.save_matrix(path, self.matrix, self.words, settings, kept=self.kept)


def from_matrix(
    S: Any,
    *,
    num_words: int | None = None,
    words: Sequence[str] | None = None,
    symmetrize: bool = False,
    drop_isolated: bool = False,
) -> Similarity:
    """Validates a similarity matrix; refuses it with its first offending entry, or mends it as asked.

    Args:
      S: a scipy sparse matrix, a square array, or a pair (S_idx, S_val) of integers (nnz, 2) and numbers
        (nnz,).
      num_words: N, where the pair does not say it by its largest index.
      words: one for each row, all different, if they are to go with the matrix.
      symmetrize: replace S by (S + S') / 2 instead of refusing it, and warn how many entries changed. A
        stored triangle would keep its diagonal whole and halve the rest: mirror it yourself.
      drop_isolated: drop words without any neighbor instead of refusing them, and warn how many. Words
        may not be numbered as before then: see `Similarity.kept`.

    Returns:
      The matrix with the record of what was changed.

    Raises:
      ValueError: naming the argument and the first offending entry.

    Example:
      >>> S = from_matrix(np.array([[0, 2], [2, 1]]), words=["tea", "cup"])
      >>> S.matrix.toarray(), S.words
      (array([[0., 2.],
             [2., 1.]]), ('tea', 'cup'))
    """
    matrix = validation.canonical("S", S, num_words)
    matrix, num_symmetrized = validation.symmetric("S", matrix, symmetrize)
    return _connected(matrix, words, drop_isolated, num_symmetrized)


def from_counts(
    counts: Any,
    *,
    weighting: str = "ppmi",
    context_exponent: float = 0.75,
    shift: float = 0.0,
    frequency_exponent: float = 0.0,
    keep_diagonal: bool = True,
    self_similarity: float = 0.0,
    drop_isolated: bool = False,
    words: Sequence[str] | None = None,
) -> Similarity:
    """Weights co-occurrence counts.

    Args:
      counts: symmetric and nonnegative: the record that counting returns, with its words, or whatever
        `from_matrix` takes. A record may be memory-mapped. It was made symmetric; that is probed, not proved.
      weighting: "ppmi", "degree" or "sinkhorn", as the functions in `dcdjax.weighting` explain; or "counts",
        as they are. None depends on the scale of the counts but "counts".
      context_exponent: of PPMI only; 1 is the plain one.
      shift: of PPMI only; log k for k negative samples.
      frequency_exponent: of PPMI only; above 0, frequent words weigh more.
      keep_diagonal: False drops it before weighting: how often a word meets itself is then in no margin.
      self_similarity: adds this share of each word's counts to the diagonal, before weighting. "sinkhorn"
        needs some (0.01) where rare words have only a frequent one for a neighbor, as in most texts.
      drop_isolated: drop words left without neighbors, and warn how many, instead of refusing them. PPMI
        leaves such whose every pair is no more frequent than chance.
      words: one for each row; a record brings its own.

    Returns:
      S. It is symmetric to the last bit if the counts are.

    Raises:
      ValueError: naming the argument and the first offending entry or word.

    Example:
      >>> S = from_counts(np.array([[9, 4, 1], [4, 0, 0], [1, 0, 4]]), words=["a", "tea", "cup"])
      >>> S.matrix.toarray().round(2)
      array([[0.17, 0.46, 0.  ],
             [0.46, 0.  , 0.  ],
             [0.  , 0.  , 1.17]])
    """
    if isinstance(counts, Similarity):
        raise ValueError("counts is a Similarity: it has been weighted already")
    if not 0 <= self_similarity < float("inf"):
        raise ValueError(f"self_similarity must be finite and not negative, got {self_similarity}")
    if hasattr(counts, "matrix") and hasattr(counts, "words"):
        if words is not None:
            raise ValueError("words: these counts bring their own")
        words = counts.words
        matrix = validation.canonical("counts", counts.matrix)
        validation.probe_symmetry("counts", matrix)
    else:
        matrix, _ = validation.symmetric("counts", validation.canonical("counts", counts))
    words = validation.checked_words(words, matrix.shape[0])
    if not keep_diagonal:
        matrix = without_diagonal(matrix)
    if self_similarity:
        matrix = with_self(matrix, self_similarity)
    ppmi = {"context_exponent": context_exponent, "shift": shift, "frequency_exponent": frequency_exponent}
    matrix = weighted(matrix, weighting, **ppmi, words=words)
    return _connected(matrix, words, drop_isolated)


def from_points(
    points: Any,
    num_neighbors: int,
    *,
    metric: str = "euclidean",
    weights: str = "binary",
    words: Sequence[str] | None = None,
) -> Similarity:
    """The graph of nearest neighbors: two points are similar if either is among the other's nearest.

    Args:
      points: (N, d) finite numbers.
      num_neighbors: k, of each point, itself not counted; at least 1, less than N. Of equally distant
        points those of lower index are nearer.
      metric: "euclidean", or "cosine": the Euclidean distance after scaling points to length one.
      weights: "binary": 1; "gaussian": exp(-distance^2 / (sigma_i sigma_j)), sigma_i the distance of the k-th
        neighbor of i, but no less than e^-50, so that float32 still knows the edge.
      words: one for each point.

    Returns:
      S, exactly symmetric, with a zero diagonal.

    Raises:
      ValueError: naming the argument and the first offending row.

    Example:
      >>> from_points(np.array([[0.0], [1.0], [3.0]]), 1).matrix.toarray()
      array([[0., 1., 0.],
             [1., 0., 1.],
             [0., 1., 0.]])
    """
    graph = neighbor_graph.neighbor_graph(points, num_neighbors, metric=metric, weights=weights)
    return _connected(graph, words, drop_isolated=False)


def read(
    path: str | os.PathLike[str], *, symmetrize: bool = False, drop_isolated: bool = False
) -> Similarity:
    """Reads a matrix that somebody saved, and validates it as `from_matrix` does.

    Args:
      path: of a .npz file by `scipy.sparse.save_npz` or `Similarity.save`, or of a Matrix Market file, which
        may be compressed by gzip. Its content is looked at, not its name.
      symmetrize: as for `from_matrix`.
      drop_isolated: as for `from_matrix`.

    Returns:
      S, with its words if the file has them.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: naming the file and what is wrong with it.
    """
    if matrix_files.is_archive(path):
        stored = matrix_files.load_matrix(path)
        kind = stored.settings.get("kind")
        if kind == "similarity":
            return _from_stored(path, stored)
        if kind is not None:
            raise ValueError(
                f"{os.fspath(path)}: it holds {kind}, not a similarity: see similarity.from_counts"
            )
        S, words = stored.matrix, stored.words
    else:
        S, words = matrix_market.read_matrix(path), None
    with matrix_files.naming(path):
        matrix, num_symmetrized = validation.symmetric("S", validation.canonical("S", S), symmetrize)
        return _connected(matrix, words, drop_isolated, num_symmetrized)


def load(path: str | os.PathLike[str], *, mapped: bool = False) -> Similarity:
    """Reads what `Similarity.save` wrote; a damaged file is a ValueError that names it, never another S.

    Args:
      path: of the file.
      mapped: leave the matrix in the file, for a process that is to hold some of its rows only. That the file
        is whole is checked; that S is symmetric was, when it was saved.
    """
    stored = matrix_files.load_matrix(path, kind="similarity", mapped=mapped)
    return _from_stored(path, stored, trusted=mapped)


def mapped(path: str | os.PathLike[str]) -> Similarity:
    """`load(path, mapped=True)` of what `Similarity.save` wrote, `read(path)` of anything else."""
    try:
        return load(path, mapped=True)
    except ValueError:
        return read(path)


def _from_stored(
    path: str | os.PathLike[str], stored: matrix_files.StoredMatrix, *, trusted: bool = False
) -> Similarity:
    with matrix_files.naming(path):
        matrix = stored.matrix
        if not trusted:
            matrix, _ = validation.symmetric("S", validation.canonical("S", stored.matrix))
        words = validation.checked_words(stored.words, matrix.shape[0])
        kept, settings = stored.arrays["kept"], stored.settings
        if kept.dtype.kind != "i" or kept.shape != matrix.shape[:1] or (np.diff(kept, prepend=-1) <= 0).any():
            raise ValueError("array 'kept' does not number the rows")
        if (np.diff(matrix.indptr) == 0).any():
            raise ValueError("it has words without neighbors")
        return Similarity(
            matrix=matrix,
            kept=kept,
            words=words,
            num_symmetrized=int(settings["num_symmetrized"]),
            num_dropped=int(settings["num_dropped"]),
        )


def _connected(
    matrix: scipy.sparse.csr_array,
    words: Sequence[str] | None,
    drop_isolated: bool,
    num_symmetrized: int = 0,
) -> Similarity:
    """The last step of all: no word alone. What is symmetric by construction comes here without a check."""
    words = validation.checked_words(words, matrix.shape[0])
    alone = np.diff(matrix.indptr) == 0
    num_alone, kept = int(alone.sum()), np.flatnonzero(~alone)
    if num_alone and not drop_isolated:
        raise ValueError(
            f"S: {word_name(int(alone.argmax()), words)} has no nonzero ({num_alone} such in all): "
            "nothing can be learned of it; drop_isolated=True drops them"
        )
    if num_alone:
        if not kept.size:
            raise ValueError("S has no nonzero: no word would remain")
        # S being symmetric, no row mentions a word whose own is empty: dropping it leaves nobody else alone.
        number = (np.cumsum(~alone) - 1).astype(matrix.indices.dtype)
        matrix = scipy.sparse.csr_array(
            (matrix.data, number[matrix.indices], np.append(matrix.indptr[:-1][~alone], matrix.indptr[-1:])),
            shape=(kept.size, kept.size),
        )
        words = None if words is None else tuple(words[row] for row in kept)
        warnings.warn(f"dropped {num_alone} words without neighbors, {kept.size} remain", stacklevel=3)
    return Similarity(
        matrix=matrix, kept=kept, words=words, num_symmetrized=num_symmetrized, num_dropped=num_alone
    )

"""Make a valid similarity matrix S from a matrix, counts, points or a file.

S is symmetric and nonnegative, and every word has a neighbor.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from dcdjax.similarity import matrix_market, neighbor_graph, origin
from dcdjax.similarity.origin import Origin
from dcdjax.similarity.weighting import add_self_similarity, apply_weighting, describe_word, drop_diagonal
from dcdjax.util import checks, matrix_checks, matrix_files, store
from dcdjax.util.warn import warn


@dataclass(frozen=True, eq=False, repr=False)
class Similarity:
    """Hold the similarity matrix S, and what was changed to make it valid.

    Attributes:
      matrix: float64 CSR with sorted indices, symmetric, without stored zeros.
      kept: ascending rows of the input that remain. All rows remain unless isolated words were dropped.
      words: words of the remaining rows, if known.
      num_symmetrized: number of entries of the input that differed from their mirror image.
      num_dropped: number of isolated words that were dropped.
      origin: what is known of the counts that S was made from; None if S was not made by `from_counts` from
        the result of `count`.
    """

    matrix: scipy.sparse.csr_array
    kept: np.ndarray
    words: tuple[str, ...] | None = None
    num_symmetrized: int = 0
    num_dropped: int = 0
    origin: Origin | None = None

    @property
    def num_words(self) -> int:
        """Return N, the number of words."""
        return self.matrix.shape[0]

    def __repr__(self) -> str:
        dropped = f", {self.num_dropped} dropped" if self.num_dropped else ""
        return f"Similarity({self.num_words} words, {self.matrix.nnz} pairs{dropped})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the similarity matrix S and its words to one safetensors file. `load` reads it back.

        A crash leaves the old file or the new one, never a part of a file.
        """
        settings: dict[str, Any] = {"num_symmetrized": self.num_symmetrized, "num_dropped": self.num_dropped}
        arrays = {"kept": self.kept}
        if self.origin is not None:
            settings["origin"] = self.origin.to_settings()
            arrays |= self.origin.to_arrays()
        matrix_files.save_matrix(path, self.matrix, self.words, settings, kind="similarity", **arrays)


@checks.suggest_names
def from_matrix(
    S: Any,
    *,
    num_words: int | None = None,
    words: Sequence[str] | None = None,
    symmetrize: bool = False,
    drop_isolated: bool = False,
) -> Similarity:
    """Validate a similarity matrix, and repair it if asked.

    Args:
      S: a scipy sparse matrix, a square array, or a pair (S_idx, S_val) of integers (nnz, 2) and numbers
        (nnz,).
      num_words: N. Default for a pair: the largest index plus one.
      words: a different word for each row; optional.
      symmetrize: replace an asymmetric S by (S + S') / 2, and warn how many entries changed. The default is
        an error. Do not use it on a stored triangle: it would halve all entries but the diagonal.
      drop_isolated: drop words without neighbors, and warn how many. The default is an error. The rows of the
        remaining words may change: see `Similarity.kept`.

    Returns:
      The matrix, with a record of the changes.

    Raises:
      ValueError: the message names the argument and the first offending entry.

    Example:
      >>> S = from_matrix(np.array([[0, 2], [2, 1]]), words=["tea", "cup"])
      >>> S.matrix.toarray(), S.words
      (array([[0., 2.],
             [2., 1.]]), ('tea', 'cup'))
    """
    matrix = matrix_checks.canonical("S", S, num_words)
    matrix, num_symmetrized = matrix_checks.symmetric("S", matrix, symmetrize)
    return _connected(matrix, words, drop_isolated, num_symmetrized)


@checks.suggest_names
def from_counts(
    counts: Any,
    *,
    weighting: str = "ppmi",
    context_exponent: float = 0.75,
    shift: float = 0.0,
    frequency_exponent: float = 0.15,
    keep_diagonal: bool = True,
    self_similarity: float = 0.0,
    drop_isolated: bool = False,
    words: Sequence[str] | None = None,
) -> Similarity:
    """Weight co-occurrence counts.

    Args:
      counts: symmetric and nonnegative counts: the `Counts` of `cooccurrence.count`, which may be
        memory-mapped, or a matrix as in `from_matrix`. The symmetry of `Counts` is checked by one product
        with a vector only.
      weighting: "ppmi", "degree" or "sinkhorn", which the functions in `dcdjax.weighting` explain, or
        "counts" for the counts as they are. Only "counts" depends on the scale of the counts.
      context_exponent: PPMI only, usually 0.75; 1 is plain PPMI. Smaller values lower pairs of rare words.
      shift: PPMI only, subtracted from each value; log k corresponds to k negative samples. Larger values
        keep fewer pairs.
      frequency_exponent: PPMI only; 0 is plain PPMI. Larger values raise pairs of frequent words.
      keep_diagonal: False drops the diagonal before weighting, also from the margins.
      self_similarity: share of each word's counts that is added to the diagonal before weighting. "sinkhorn"
        needs some (0.01) if rare words have only a frequent word as a neighbor, as in most texts.
      drop_isolated: drop words without neighbors, and warn how many. The default is an error. With PPMI,
        words whose pairs are all no more frequent than chance have no neighbors.
      words: a different word for each row. `Counts` have their own.

    Returns:
      S. It is symmetric to the last bit if the counts are.

    Raises:
      ValueError: the message names the argument and the first offending entry or word.

    Example:
      >>> S = from_counts(np.array([[9, 4, 1], [4, 0, 0], [1, 0, 4]]), words=["a", "tea", "cup"])
      >>> S.matrix.toarray().round(2)
      array([[0.21, 0.46, 0.  ],
             [0.46, 0.  , 0.  ],
             [0.  , 0.  , 1.03]])
    """
    if isinstance(counts, Similarity):
        raise ValueError("counts is a Similarity, which is already weighted")
    if not 0 <= self_similarity < float("inf"):
        raise ValueError(f"self_similarity must be finite and not negative, got {self_similarity}")
    if hasattr(counts, "matrix") and hasattr(counts, "words"):
        if words is not None:
            raise ValueError("words: these counts have their own")
        words = counts.words
        matrix = matrix_checks.canonical("counts", counts.matrix)
        matrix_checks.probe_symmetry("counts", matrix)
    else:
        matrix, _ = matrix_checks.symmetric("counts", matrix_checks.canonical("counts", counts))
    words = checks.checked_words(words, matrix.shape[0])
    if not keep_diagonal:
        matrix = drop_diagonal(matrix)
    if self_similarity:
        matrix = add_self_similarity(matrix, self_similarity)
    margins = matrix.sum(axis=1)
    ppmi = {"context_exponent": context_exponent, "shift": shift, "frequency_exponent": frequency_exponent}
    matrix = apply_weighting(matrix, weighting, **ppmi, words=words)
    S = _connected(matrix, words, drop_isolated)
    if not hasattr(counts, "vocabulary"):
        return S
    log_sum = float(np.logaddexp.reduce(context_exponent * np.log(margins[margins > 0])))
    source = Origin(
        word_counts=counts.vocabulary.counts[S.kept],
        margins=margins[S.kept],
        num_tokens=int(counts.vocabulary.num_tokens),
        num_different=counts.vocabulary.num_different,
        passages=None if counts.passages is None else counts.passages[:, S.kept],
        counting=counts.settings,
        weighting={"weighting": weighting, **ppmi, "log_sum": log_sum},
        phrases=tuple(tuple(phrase) for phrase in counts.phrases),
    )
    return replace(S, origin=source)


@checks.suggest_names
def from_points(
    points: Any,
    num_neighbors: int,
    *,
    metric: str = "euclidean",
    weights: str = "binary",
    words: Sequence[str] | None = None,
) -> Similarity:
    """Build the graph of nearest neighbors. Two points are similar if one is among the other's k nearest.

    Args:
      points: (N, d) finite numbers.
      num_neighbors: k, the neighbors of each point, without itself; at least 1, less than N, usually 10.
        Larger values connect more points. Among equally distant points, the one of lower index is nearer.
      metric: "euclidean", or "cosine": the Euclidean distance after scaling points to length one.
      weights: "binary" is 1; "gaussian" is exp(-distance^2 / (sigma_i sigma_j)), where sigma_i is the
        distance of the k-th neighbor of i. It is at least e^-50, so that no edge becomes zero in float32.
      words: a different word for each point; optional.

    Returns:
      S, exactly symmetric, with a zero diagonal.

    Raises:
      ValueError: the message names the argument and the first offending row.

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
    """Read a matrix from a file of any known format, and validate it as `from_matrix` does.

    Args:
      path: a file written by `Similarity.save` or `scipy.sparse.save_npz`, or a Matrix Market file, which may
        be compressed by gzip. The content tells the format; the name of the file does not matter.
      symmetrize: as in `from_matrix`.
      drop_isolated: as in `from_matrix`.

    Returns:
      S, with its words if the file has them.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged or holds no similarity matrix. The message names the file.
    """
    kind = store.kind_of(path)
    if kind == "similarity":
        return load(path)
    with store.name_in_errors(path):
        if kind is not None:
            raise ValueError(f"it holds {kind}, not a similarity: see similarity.from_counts")
        S = matrix_files.read_npz(path) if matrix_files.is_npz(path) else matrix_market.read_matrix(path)
        return from_matrix(S, symmetrize=symmetrize, drop_isolated=drop_isolated)


def load(path: str | os.PathLike[str], *, mapped: bool = False) -> Similarity:
    """Read what `Similarity.save` wrote.

    Args:
      path: path of the file.
      mapped: leave the matrix in the file and map it from there, for a process that needs only some of its
        rows. The file is read several times to check it, but no copy is made. The symmetry of S is checked by
        one product with a vector only.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged or holds something else. The message names the file.
    """
    stored = matrix_files.load_matrix(path, kind="similarity", mapped=mapped)
    with store.name_in_errors(path):
        matrix = stored.matrix
        if mapped:
            matrix_checks.check_mapped("S", matrix)
        else:
            matrix, _ = matrix_checks.symmetric("S", matrix_checks.canonical("S", matrix))
        words = checks.checked_words(stored.words, matrix.shape[0])
        kept, settings = stored.arrays["kept"], stored.settings
        if kept.dtype.kind != "i" or kept.shape != matrix.shape[:1] or (np.diff(kept, prepend=-1) <= 0).any():
            raise ValueError("array 'kept' does not number the rows")
        if (np.diff(matrix.indptr) == 0).any():
            raise ValueError("it has words without neighbors")
        changes = {name: int(settings[name]) for name in ("num_symmetrized", "num_dropped")}
        source = origin.from_saved(stored.arrays, settings.get("origin", {}), matrix.shape[0])
        return Similarity(matrix, kept, words, **changes, origin=source)


def mapped(path: str | os.PathLike[str]) -> Similarity:
    """Map S from a file that `Similarity.save` wrote. Read any other file as `read` does."""
    return load(path, mapped=True) if store.kind_of(path) == "similarity" else read(path)


def _connected(
    matrix: scipy.sparse.csr_array, words: Sequence[str] | None, drop_isolated: bool, num_symmetrized: int = 0
) -> Similarity:
    """Refuse or drop words without neighbors. The matrix must be symmetric."""
    words = checks.checked_words(words, matrix.shape[0])
    isolated = np.diff(matrix.indptr) == 0
    num_isolated, kept = int(isolated.sum()), np.flatnonzero(~isolated)
    if num_isolated and not drop_isolated:
        raise ValueError(
            f"S: {describe_word(int(isolated.argmax()), words)} has no nonzero ({num_isolated} in total): "
            "a word without neighbors cannot be learned; drop_isolated=True drops such words"
        )
    if num_isolated:
        if not kept.size:
            raise ValueError("S has no nonzero: no word would remain")
        # S is symmetric, so an isolated word is in no other row, and dropping it isolates no other word.
        number = (np.cumsum(~isolated) - 1).astype(matrix.indices.dtype)
        indptr = np.append(matrix.indptr[:-1][~isolated], matrix.indptr[-1:])
        parts = (matrix.data, number[matrix.indices], indptr)
        matrix = scipy.sparse.csr_array(parts, shape=(kept.size, kept.size))
        words = None if words is None else tuple(words[row] for row in kept)
        warn(f"dropped {num_isolated} words without neighbors, {kept.size} remain", UserWarning)
    return Similarity(matrix, kept, words, num_symmetrized=num_symmetrized, num_dropped=num_isolated)

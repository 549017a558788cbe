"""Symmetric counts enter; the same pairs leave weighted: by PPMI, by degree, or doubly stochastic."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse

WEIGHTINGS = ("ppmi", "counts", "degree", "sinkhorn")

# Entries worked on at once: their temporaries fit the cache, and the whole is never copied.
_BLOCK = 1 << 17

# How far a row sum may stay from one. Float64 sums of 10^5 entries are good to about 1e-13.
_SINKHORN_TOLERANCE = 1e-10
# Real word counts take 50 to 200 rounds where they can be scaled (WikiText-2, 5,000 and 20,000 words).
_SINKHORN_ROUNDS = 2000
# Every so many rounds the error should have become less by at least this factor: at this rate it takes more
# than 20 such stretches to the tolerance, and where there is no solution the error stays for ever.
_SINKHORN_STRETCH, _SINKHORN_PROGRESS = 100, 0.3


def word_name(row: int, words: Sequence[str] | None) -> str:
    """How an error message calls the word of a row."""
    return f"word {row}" if words is None else f"word {row} ({words[row]!r})"


def map_entries(
    matrix: scipy.sparse.csr_array,
    function: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray],
) -> scipy.sparse.csr_array:
    """A new matrix of function(values, rows, columns); what is not positive leaves it.

    Block by block, so that the entries may be memory-mapped. A function that treats rows and columns alike
    keeps a symmetric matrix symmetric to the last bit: from equal inputs in contiguous blocks NumPy computes
    equal outputs.

    Args:
      matrix: with sorted indices.
      function: three arrays of a block of entries to its new values.

    Returns:
      A float64 matrix with sorted indices that shares no memory with the old one.
    """
    num_rows, indptr = matrix.shape[0], matrix.indptr
    # np.empty claims memory only as it is written to.
    data, indices = np.empty(matrix.nnz), np.empty(matrix.nnz, matrix.indices.dtype)
    lengths = np.zeros(num_rows + 1, np.int64)
    end = 0
    bounds = np.searchsorted(indptr, np.arange(_BLOCK, matrix.nnz, _BLOCK))
    for first, last in zip([0, *bounds], [*bounds, num_rows], strict=True):
        block = slice(int(indptr[first]), int(indptr[last]))
        rows = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        columns = np.asarray(matrix.indices[block])
        values = function(np.asarray(matrix.data[block], np.float64), rows, columns)
        keep = values > 0
        start, end = end, end + int(np.count_nonzero(keep))
        np.compress(keep, values, out=data[start:end])
        np.compress(keep, columns, out=indices[start:end])
        lengths[first + 1 : last + 1] = np.bincount(rows[keep] - first, minlength=last - first)
    data.resize(end, refcheck=False)
    indices.resize(end, refcheck=False)
    starts = np.cumsum(lengths).astype(indices.dtype)
    result = scipy.sparse.csr_array((data, indices, starts), shape=matrix.shape)
    result.has_canonical_format = True
    return result


def without_diagonal(matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """The matrix without its diagonal."""
    return map_entries(matrix, lambda values, rows, columns: np.where(rows == columns, 0.0, values))


def with_self(matrix: scipy.sparse.csr_array, share: float) -> scipy.sparse.csr_array:
    """The matrix with this share of each row's sum added to its diagonal."""
    diagonal = scipy.sparse.diags_array(share * _margins(matrix), format="csr")
    result = scipy.sparse.csr_array(matrix + diagonal)
    result.sort_indices()
    return result


def check(weighting: str, *, context_exponent: float, shift: float, frequency_exponent: float = 0.0) -> None:
    """Refuses what `weighted` could not do, naming the argument."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting must be one of {list(WEIGHTINGS)}, got {weighting!r}")
    if not (np.isfinite(context_exponent) and context_exponent >= 0):
        raise ValueError(f"context_exponent must be finite and not negative, got {context_exponent}")
    for name, value in (("shift", shift), ("frequency_exponent", frequency_exponent)):
        if not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


def weighted(
    counts: scipy.sparse.csr_array,
    weighting: str,
    *,
    context_exponent: float = 0.75,
    shift: float = 0.0,
    frequency_exponent: float = 0.0,
    words: Sequence[str] | None = None,
) -> scipy.sparse.csr_array:
    """The counts by the weighting of that name: see `similarity.from_counts` for the arguments."""
    options = {
        "context_exponent": context_exponent,
        "shift": shift,
        "frequency_exponent": frequency_exponent,
    }
    check(weighting, **options)
    weightings = {
        "ppmi": lambda: ppmi(counts, **options),
        "counts": lambda: map_entries(counts, lambda values, _rows, _columns: values),
        "degree": lambda: degree(counts),
        "sinkhorn": lambda: sinkhorn(counts, words=words),
    }
    return weightings[weighting]()


def ppmi(
    counts: scipy.sparse.csr_array,
    *,
    context_exponent: float = 0.75,
    shift: float = 0.0,
    frequency_exponent: float = 0.0,
) -> scipy.sparse.csr_array:
    """Positive pointwise mutual information, with smoothed contexts, symmetric.

    With margins c_i = sum_j C_ij, the chance of a pair is C_ij / sum C, of a word c_i / sum c, and of a
    context c_j^alpha / sum c^alpha, which an alpha below 1 makes larger for rare ones, so that chance
    meetings of rare words weigh less. Then pmi_ij = log C_ij - log c_i - alpha log c_j + log sum c^alpha,
    symmetric at alpha = 1 only. Word and context are the same things here, hence the mean of both:

        S_ij = max(0, log C_ij - (1 + alpha) / 2 (log c_i + log c_j) + log sum c^alpha - shift)

    It does not change when the counts are scaled. A frequency exponent gamma multiplies it by
    (c_i c_j / mean(c)^2)^gamma: what is known of frequent words is surer, and then weighs more.

    Args:
      counts: symmetric, nonnegative, with sorted indices.
      context_exponent: alpha; 1 is plain PPMI.
      shift: what is taken off before clipping; log k stands for k negative samples of word2vec.
      frequency_exponent: gamma.

    Returns:
      The positive S_ij.

    Example:
      >>> import numpy as np, scipy.sparse
      >>> counts = scipy.sparse.csr_array(np.array([[0.0, 3.0, 1.0], [3.0, 0.0, 0.0], [1.0, 0.0, 4.0]]))
      >>> ppmi(counts, context_exponent=1.0).toarray().round(3)
      array([[0.   , 1.099, 0.   ],
             [1.099, 0.   , 0.   ],
             [0.   , 0.   , 0.652]])

    References:
      Levy, Goldberg, Dagan, Improving distributional similarity with lessons learned from word embeddings,
      TACL 3, 2015.
    """
    margins = _margins(counts)
    log_margins = np.log(margins, where=margins > 0, out=np.zeros_like(margins))
    offset = np.logaddexp.reduce(context_exponent * log_margins[margins > 0]) - shift
    mean = margins[margins > 0].mean() if (margins > 0).any() else 1.0
    emphasis = np.where(margins > 0, margins / mean, 1.0) ** frequency_exponent
    log_margins *= (1 + context_exponent) / 2

    def information(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):  # a stored zero becomes -inf and leaves
            values = np.log(values)
        values -= log_margins[rows] + log_margins[columns]
        values += offset
        if frequency_exponent:
            values *= emphasis[rows] * emphasis[columns]
        return values

    return map_entries(counts, information)


def weighted_row(
    counts: np.ndarray,
    margins: np.ndarray,
    weighting: str,
    *,
    context_exponent: float,
    shift: float,
    log_sum: float,
    frequency_exponent: float = 0.0,
) -> np.ndarray:
    """What `weighted` would make of the row of a new word, given how often it stands near known words.

    Args:
      counts: with some known words; the sum of all of them is taken as the new word's margin.
      margins: those of the same known words, which the new word leaves as they are.
      weighting: "ppmi", "counts" or "degree".
      context_exponent: as it was.
      shift: as it was.
      log_sum: log of the sum over all words of margin^context_exponent.
      frequency_exponent: as it was.

    Returns:
      A similarity for each; zero where PPMI is negative.

    Raises:
      ValueError: for a weighting that needs all counts at once.
    """
    if weighting == "counts":
        return counts
    margin = counts.sum()
    if weighting == "degree":
        return counts / np.sqrt(margin * margins)
    if weighting == "ppmi":
        exponent = (1 + context_exponent) / 2
        with np.errstate(divide="ignore"):
            information = np.log(counts) - exponent * (np.log(margin) + np.log(margins)) + log_sum - shift
        # But for a factor that all entries of the row have in common.
        return np.maximum(information, 0.0) * margins**frequency_exponent
    raise ValueError(f"weighting {weighting!r} has no row without all others: give similarities, not counts")


def degree(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """C_ij / sqrt(d_i d_j) with the row sums d: the symmetrically normalized adjacency of graphs.

    Args:
      counts: symmetric, nonnegative, with sorted indices.

    Returns:
      The weighted matrix, whose largest eigenvalue is 1.

    Example:
      >>> import numpy as np, scipy.sparse
      >>> degree(scipy.sparse.csr_array(np.array([[0.0, 4.0], [4.0, 12.0]]))).toarray()
      array([[0.  , 0.5 ],
             [0.5 , 0.75]])
    """
    roots = np.sqrt(_margins(counts))
    return map_entries(counts, lambda values, rows, columns: values / (roots[rows] * roots[columns]))


def sinkhorn(counts: scipy.sparse.csr_array, *, words: Sequence[str] | None = None) -> scipy.sparse.csr_array:
    """D C D, doubly stochastic: rows and columns sum to one.

    By d <- sqrt(d / (C d)), the geometric mean of both half-steps of Sinkhorn and Knopp, which keeps the
    result symmetric. Near the solution an error in log d along an eigenvector of the result, of eigenvalue e
    in (-1, 1], shrinks by the factor (1 - e) / 2 a round.

    Args:
      counts: symmetric, nonnegative, with sorted indices. Empty rows stay empty.
      words: for the error message.

    Returns:
      The scaled matrix.

    Raises:
      ValueError: where the rows do not come to sum to one: C has no total support (some nonzero lies on no
        permutation of nonzeros), or nearly so. It says which row is how far. A matrix with a positive
        diagonal always has it.

    Example:
      >>> import numpy as np, scipy.sparse
      >>> sinkhorn(scipy.sparse.csr_array(np.array([[1.0, 1.0], [1.0, 4.0]]))).toarray().round(3)
      array([[0.667, 0.333],
             [0.333, 0.667]])
    """
    scaling = _balanced(counts, words)
    return map_entries(counts, lambda values, rows, columns: values * (scaling[rows] * scaling[columns]))


def _balanced(counts: scipy.sparse.csr_array, words: Sequence[str] | None) -> np.ndarray:
    margins = _margins(counts)
    present = margins > 0
    scaling = np.divide(1, np.sqrt(margins), where=present, out=np.zeros_like(margins))
    sums, before, rounds = np.zeros_like(margins), np.inf, 0
    for rounds in range(_SINKHORN_ROUNDS):
        reached = counts @ scaling
        sums = scaling * reached
        error = np.abs(sums - 1)[present].max(initial=0)
        if error <= _SINKHORN_TOLERANCE:
            return scaling
        if rounds % _SINKHORN_STRETCH == 0:
            if error > _SINKHORN_PROGRESS * before:
                break
            before = error
        with np.errstate(all="ignore"):
            closer = np.sqrt(np.divide(scaling, reached, where=present, out=np.zeros_like(margins)))
        if not np.isfinite(closer).all():
            break  # without a solution some scalings grow without end
        scaling = closer
    worst = int(np.where(present, np.abs(sums - 1), 0).argmax())
    raise ValueError(
        f"weighting 'sinkhorn': after {rounds} rounds the row of {word_name(worst, words)} still sums to "
        f"{sums[worst]:.6g} instead of 1: these counts cannot be scaled to be doubly stochastic, or only "
        "very slowly, most often for rare words whose only neighbor is a frequent one. self_similarity=0.01 "
        "makes any counts scalable; or drop rare words, or take weighting 'degree'"
    )


def _margins(counts: scipy.sparse.csr_array) -> np.ndarray:
    with np.errstate(over="ignore"):
        margins = counts @ np.ones(counts.shape[1])
    if not np.isfinite(margins).all():
        row = int(np.flatnonzero(~np.isfinite(margins))[0])
        raise ValueError(
            f"counts: row {row} sums to more than float64 can hold: divide the counts by their largest"
        )
    return margins

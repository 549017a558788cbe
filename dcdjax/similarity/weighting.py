"""Weight co-occurrence counts: by PPMI, by degree, or to a doubly stochastic matrix."""

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse

from dcdjax.util import checks

WEIGHTINGS = ("ppmi", "counts", "degree", "sinkhorn")

# Entries computed at a time. Their temporary arrays fit the cache, and the matrix is never copied.
BLOCK_ENTRIES = 1 << 17

# Largest distance of a row sum from one. Float64 sums of 10^5 entries are exact to about 1e-13.
_SINKHORN_TOLERANCE = 1e-10
# Word counts that can be scaled take 50 to 200 iterations (WikiText-2, 5,000 and 20,000 words).
_SINKHORN_ITERATIONS = 2000
# Stop if the error has not fallen to this share within so many iterations. At a slower rate the tolerance is
# out of reach; without a solution the error never falls.
SINKHORN_CHECK_EVERY, _SINKHORN_MIN_DECREASE = 100, 0.3


def describe_word(row: int, words: Sequence[str] | None) -> str:
    """Return the name of a row's word for error messages."""
    return f"word {row}" if words is None else f"word {row} ({words[row]!r})"


def map_entries(
    matrix: scipy.sparse.csr_array, function: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
) -> scipy.sparse.csr_array:
    """Replace each entry by function(values, rows, columns), and keep the positive results.

    The function is called on blocks of entries, so that the matrix may be memory-mapped. If it treats rows
    and columns alike, a symmetric matrix stays symmetric to the last bit, because NumPy computes equal
    outputs from equal inputs in contiguous blocks.

    Args:
      matrix: matrix with sorted indices.
      function: maps three arrays of a block of entries to the new values.

    Returns:
      A float64 matrix with sorted indices that shares no memory with the old one.
    """
    num_rows, indptr = matrix.shape[0], matrix.indptr
    # np.empty takes memory only as it is written.
    data, indices = np.empty(matrix.nnz), np.empty(matrix.nnz, matrix.indices.dtype)
    lengths = np.zeros(num_rows + 1, np.int64)
    end = 0
    bounds = np.searchsorted(indptr, np.arange(BLOCK_ENTRIES, matrix.nnz, BLOCK_ENTRIES))
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


def drop_diagonal(matrix: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return the matrix without its diagonal."""
    return map_entries(matrix, lambda values, rows, columns: np.where(rows == columns, 0.0, values))


def add_self_similarity(matrix: scipy.sparse.csr_array, share: float) -> scipy.sparse.csr_array:
    """Add this share of each row's sum to the diagonal."""
    diagonal = scipy.sparse.diags_array(share * _margins(matrix), format="csr")
    result = scipy.sparse.csr_array(matrix + diagonal)
    result.sort_indices()
    return result


def check_options(
    weighting: str, *, context_exponent: float = 0.75, shift: float = 0.0, frequency_exponent: float = 0.0
) -> None:
    """Raise ValueError for options that `apply_weighting` cannot use."""
    checks.choice("weighting", weighting, list(WEIGHTINGS))
    if not (np.isfinite(context_exponent) and context_exponent >= 0):
        raise ValueError(f"context_exponent must be finite and not negative, got {context_exponent}")
    for name, value in (("shift", shift), ("frequency_exponent", frequency_exponent)):
        if not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}")


def apply_weighting(
    counts: scipy.sparse.csr_array,
    weighting: str,
    *,
    words: Sequence[str] | None = None,
    **ppmi_options: float,
) -> scipy.sparse.csr_array:
    """Weight counts by the named weighting. See `similarity.from_counts` for the arguments."""
    check_options(weighting, **ppmi_options)
    if weighting == "ppmi":
        return ppmi(counts, **ppmi_options)
    if weighting == "degree":
        return degree(counts)
    if weighting == "sinkhorn":
        return sinkhorn(counts, words=words)
    return map_entries(counts, lambda values, _rows, _columns: values)


def ppmi(
    counts: scipy.sparse.csr_array,
    *,
    context_exponent: float = 0.75,
    shift: float = 0.0,
    frequency_exponent: float = 0.0,
) -> scipy.sparse.csr_array:
    """Compute symmetric positive pointwise mutual information with smoothed contexts.

    With margins c_i = sum_j C_ij, the probability of a pair is C_ij / sum C, of a word c_i / sum c, and of a
    context c_j^alpha / sum c^alpha. An alpha below 1 makes rare contexts more probable, so that chance pairs
    of rare words weigh less. Then pmi_ij = log C_ij - log c_i - alpha log c_j + log sum c^alpha, which is
    symmetric at alpha = 1 only. Words and contexts are the same here, so we take the mean of both directions:

        S_ij = max(0, log C_ij - (1 + alpha) / 2 (log c_i + log c_j) + log sum c^alpha - shift)

    S does not change when the counts are scaled. A frequency exponent gamma multiplies S_ij by
    (c_i c_j / mean(c)^2)^gamma, which gives frequent words, whose counts are more reliable, a larger weight.

    Args:
      counts: symmetric, nonnegative matrix with sorted indices.
      context_exponent: alpha, usually 0.75; 1 is plain PPMI. Smaller values lower pairs of rare words.
      shift: subtracted before negative values are set to zero, usually 0; log k corresponds to k negative
        samples of word2vec. Larger values keep fewer pairs.
      frequency_exponent: gamma, usually 0. Larger values raise pairs of frequent words.

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
        with np.errstate(divide="ignore"):  # a stored zero becomes -inf and is dropped
            values = np.log(values)
        values -= log_margins[rows] + log_margins[columns]
        values += offset
        if frequency_exponent:
            values *= emphasis[rows] * emphasis[columns]
        return values

    return map_entries(counts, information)


def weight_new_row(
    counts: np.ndarray,
    margins: np.ndarray,
    weighting: str,
    *,
    context_exponent: float = 1.0,
    shift: float = 0.0,
    log_sum: float = 0.0,
    frequency_exponent: float = 0.0,
) -> np.ndarray:
    """Weight the row of a new word by the weighting of a fitted model.

    Args:
      counts: how often the new word stands near some known words. Their sum is the new word's margin.
      margins: margins of these known words. The new word does not change them.
      weighting: "ppmi", "counts" or "degree".
      context_exponent: exponent of the model, for "ppmi", like the next three.
      shift: shift of the model.
      log_sum: log of the sum over all words of margin^context_exponent.
      frequency_exponent: exponent of the model.

    Returns:
      A similarity for each known word; zero where PPMI is negative.

    Raises:
      ValueError: if the weighting needs the counts of all words.
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
        # Up to a factor that all entries of the row share.
        return np.maximum(information, 0.0) * margins**frequency_exponent
    raise ValueError(f"weighting {weighting!r} needs the counts of all words: pass similarities, not counts")


def degree(counts: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Compute C_ij / sqrt(d_i d_j) with row sums d, the symmetrically normalized adjacency of a graph.

    Args:
      counts: symmetric, nonnegative matrix with sorted indices.

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
    """Scale counts to the doubly stochastic matrix D C D, whose rows and columns sum to one.

    Each iteration sets d <- sqrt(d / (C d)), the geometric mean of both half-steps of Sinkhorn and Knopp,
    which keeps the result symmetric. Near the solution, the error in log d along an eigenvector of the result
    with eigenvalue e in (-1, 1] shrinks by the factor (1 - e) / 2 in each iteration.

    Args:
      counts: symmetric, nonnegative matrix with sorted indices. Empty rows stay empty.
      words: words for the error message.

    Returns:
      The scaled matrix.

    Raises:
      ValueError: if the row sums do not converge to one, because C has no total support (some nonzero lies
        on no permutation of nonzeros), or nearly none. A matrix with a positive diagonal has total support.

    Example:
      >>> import numpy as np, scipy.sparse
      >>> sinkhorn(scipy.sparse.csr_array(np.array([[1.0, 1.0], [1.0, 4.0]]))).toarray().round(3)
      array([[0.667, 0.333],
             [0.333, 0.667]])
    """
    scaling = _sinkhorn_scaling(counts, words)
    return map_entries(counts, lambda values, rows, columns: values * (scaling[rows] * scaling[columns]))


def _sinkhorn_scaling(counts: scipy.sparse.csr_array, words: Sequence[str] | None) -> np.ndarray:
    margins = _margins(counts)
    present = margins > 0
    scaling = np.divide(1, np.sqrt(margins), where=present, out=np.zeros_like(margins))
    sums, last_error, iteration = np.zeros_like(margins), np.inf, 0
    for iteration in range(_SINKHORN_ITERATIONS):
        product = counts @ scaling
        sums = scaling * product
        error = np.abs(sums - 1)[present].max(initial=0)
        if error <= _SINKHORN_TOLERANCE:
            return scaling
        if iteration % SINKHORN_CHECK_EVERY == 0:
            if error > _SINKHORN_MIN_DECREASE * last_error:
                break
            last_error = error
        with np.errstate(all="ignore"):
            updated = np.sqrt(np.divide(scaling, product, where=present, out=np.zeros_like(margins)))
        if not np.isfinite(updated).all():
            break  # without a solution some scalings grow without limit
        scaling = updated
    worst = int(np.where(present, np.abs(sums - 1), 0).argmax())
    raise ValueError(
        f"weighting 'sinkhorn': after {iteration} iterations the row of {describe_word(worst, words)} still "
        f"sums to {sums[worst]:.6g} instead of 1: these counts cannot be scaled to a doubly stochastic "
        "matrix, or only very slowly, usually because of rare words whose only neighbor is a frequent word. "
        "Pass self_similarity=0.01 to make any counts scalable, drop rare words, or use weighting 'degree'"
    )


def _margins(counts: scipy.sparse.csr_array) -> np.ndarray:
    with np.errstate(over="ignore"):
        margins = counts @ np.ones(counts.shape[1])
    if not np.isfinite(margins).all():
        row = int(np.flatnonzero(~np.isfinite(margins))[0])
        raise ValueError(
            f"counts: the sum of row {row} overflows float64: divide the counts by the largest one"
        )
    return margins

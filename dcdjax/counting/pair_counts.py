"""Count word pairs within a window.

The counts are a product of sparse matrices, C = X Y. X says at which places each word stands. Y says which
words stand in the window around each place. SciPy multiplies a row of X by Y in one pass over a dense row
that stays in the cache. This is about as fast as a loop in C over a dense matrix of counts, and the result is
sparse. Rows are independent, so threads work on blocks of rows while SciPy releases the interpreter's lock.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import scipy.sparse

from dcdjax.counting.spill import SpillArray, SpillDatabase
from dcdjax.counting.vocabulary import BREAK
from dcdjax.util.parallel import in_order, num_workers
from dcdjax.util.progress import Progress

DistanceWeighting = Literal["flat", "linear", "harmonic"]

# Bytes for each token of a chunk while its words are sorted: number and position, both as rows and as
# columns, and two bytes of values.
BYTES_PER_TOKEN = 24
# Bytes for each cell of a window: the word and its weight in Y, and at most one entry of the product, twice
# while the product is sorted.
_BYTES_PER_CELL = 12 + 2 * 16
# Bytes for each word of the vocabulary in the product, and while the product is sorted.
_BYTES_PER_WORD = 32
# Bytes for each entry that DuckDB sums and sorts: 16 for the entry, the rest for hash table and sorting.
BYTES_PER_SUM = 96
LARGEST_INT32 = 2**31 - 1
_PIECE = 1 << 22
# A block of rows has at least this many places, if memory allows.
LEAST_PLACES = 1 << 18
# Sums of integers are exact in float64 up to 2^53. Harmonic weights are multiplied by the least common
# multiple of the distances if a pair can still be counted 2^26 times.
_LARGEST_SCALE = 2**27


@dataclass(frozen=True)
class Weights:
    """Hold the weight of a pair by its distance.

    Attributes:
      by_distance: weights at distances 1, 2, ..., times `scale`. They are integers where possible.
      scale: divisor for the summed weights.
    """

    by_distance: np.ndarray
    scale: float


def weights(weighting: DistanceWeighting, window: int, longest: int | None = None) -> Weights:
    """Return the weights of a pair at distances 1 to `window`.

    Args:
      weighting: "flat" is 1; "linear" is (window - distance + 1) / window, the probability that word2vec's
        window of random size reaches so far; "harmonic" is 1 / distance, as in GloVe.
      window: largest distance.
      longest: length of the longest document. Larger distances do not occur and are left out.

    Example:
      >>> counted = weights("harmonic", 4)
      >>> counted.by_distance / counted.scale
      array([1.        , 0.5       , 0.33333333, 0.25      ])
    """
    reach = window if longest is None else max(1, min(window, longest - 1))
    distance = np.arange(1, reach + 1)
    if weighting == "flat":
        return Weights(np.ones(reach), 1.0)
    if weighting == "linear":
        return Weights((window + 1.0) - distance, float(window))
    scale = math.lcm(*range(1, min(reach, 64) + 1))
    scale = float(scale) if scale <= _LARGEST_SCALE else 1.0
    return Weights(scale / distance, scale)


def pad_documents(pieces: Iterable[np.ndarray], num_words: int, window: int, *, memory: int) -> np.ndarray:
    """Join the corpus to one array, padded so that no window reaches into another document.

    Args:
      pieces: word numbers, negative for tokens outside of the vocabulary, with BREAK between documents.
      num_words: size of the vocabulary. It is also the number that pads.
      window: length of the padding at either end and between documents.
      memory: a larger array, in bytes, goes to a temporary file.
    """
    line = SpillArray(np.int32, memory)
    padding = np.full(window, num_words, np.int32)
    line.append(padding)
    for piece in pieces:
        is_break = piece == BREAK
        if is_break.any():
            # Documents without a word leave several breaks in a row; one is enough.
            is_break[1:] &= ~is_break[:-1]
            piece = np.repeat(piece, np.where(is_break, window, np.where(piece == BREAK, 0, 1)))
        line.append(np.where(piece < 0, np.int32(num_words), piece))
    line.append(padding)
    return line.array()


def count_pairs(
    line: np.ndarray, num_words: int, weights: Weights, *, memory: int, progress: Progress | None = None
) -> scipy.sparse.csr_array:
    """Sum the weights of all ordered pairs of positions whose distance is within the window.

    Args:
      line: result of `pad_documents`.
      num_words: size of the vocabulary.
      weights: weights of pairs by distance.
      memory: bytes to work with. DuckDB sums the partial counts of a corpus that needs more. A result that
        takes more than a sixth of `memory` is mapped from temporary files.
      progress: called as `progress("counting", tokens done, tokens, "tokens")`.

    Returns:
      A symmetric matrix with sorted indices, float64.
    """
    window = len(weights.by_distance)
    num_places = line.size - 2 * window
    per_chunk = max(1, memory // 4 // BYTES_PER_TOKEN)
    chunks = [
        line[start : min(start + per_chunk, num_places) + 2 * window]
        for start in range(0, num_places, per_chunk)
    ]
    num_tokens = sum(int(np.count_nonzero(chunk[window:-window] < num_words)) for chunk in chunks)
    parts = _counted(chunks, num_words, weights, memory // 4, progress, num_tokens)
    if len(chunks) <= 1:
        return _assembled(parts, num_words, weights.scale, memory // 6)
    with closing(SpillDatabase()) as database:
        lengths = np.zeros(num_words, np.int64)
        for part in parts:
            lengths[part.rows] += part.lengths
            rows = np.repeat(part.rows, part.lengths)
            database.add("pairs", pa.table({"row": rows, "col": part.columns, "value": part.values}))
        return _assembled(_summed(database, lengths, memory // 4), num_words, weights.scale, memory // 6)


@dataclass(frozen=True)
class _Part:
    """Hold some rows of a matrix: ascending row numbers, entries per row, and the entries."""

    rows: np.ndarray
    lengths: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def _counted(
    chunks: list[np.ndarray],
    num_words: int,
    weights: Weights,
    memory: int,
    progress: Progress | None,
    num_tokens: int,
) -> Iterator[_Part]:
    """Count each chunk separately, a block of words at a time."""
    window = len(weights.by_distance)
    cells = 2 * window + 1
    # The product of a block also costs a pass over the vocabulary: a larger one gets larger blocks.
    workers = max(1, min(num_workers(), memory // 2 // (_BYTES_PER_WORD * num_words)))
    at_once = max(LEAST_PLACES, num_words // 4)
    at_once = max(1, min(at_once, memory // (workers + 1) // (cells * _BYTES_PER_CELL)))
    weight = np.concatenate([weights.by_distance[::-1], [1.0], weights.by_distance])
    blocks = _Blocks(num_words=num_words, window=window, at_once=at_once, tiled=np.tile(weight, at_once))
    done = 0
    for chunk in chunks:
        places, starts = _places(chunk[window:-window], num_words)
        rows = partial(blocks.rows, chunk, places, starts)
        for (first, last), part in in_order(rows, _word_ranges(starts, at_once), workers):
            done += int(starts[last] - starts[first])
            if progress is not None:
                progress("counting", done, num_tokens, "tokens")
            yield part


def _places(chunk: np.ndarray, num_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Return X by its rows: the places of word i, ascending, are places[starts[i] : starts[i + 1]]."""
    size = chunk.size
    at = scipy.sparse.csr_array(
        (np.ones(size, np.int8), chunk, np.arange(size + 1, dtype=np.int32)), shape=(size, num_words + 1)
    ).tocsc()
    return at.indices, at.indptr[: num_words + 1]


def _word_ranges(starts: np.ndarray, at_once: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive words with at most `at_once` places together, but at least one word."""
    first, num_words = 0, starts.size - 1
    while first < num_words:
        last = int(np.searchsorted(starts, starts[first] + at_once, side="right")) - 1
        last = min(max(last, first + 1), num_words)
        yield first, last
        first = last


@dataclass(frozen=True)
class _Blocks:
    """Count blocks of rows. `tiled` holds the values of Y: the weights of one window after another."""

    num_words: int
    window: int
    at_once: int
    tiled: np.ndarray

    def rows(
        self, chunk: np.ndarray, places: np.ndarray, starts: np.ndarray, words: tuple[int, int]
    ) -> _Part:
        """Return the rows of X Y of some words. Only a single word can have more than `at_once` places."""
        first, last = words
        begin, end = int(starts[first]), int(starts[last])
        total: Any = None
        for low in range(begin, max(end, begin + 1), self.at_once):
            high = min(low + self.at_once, end)
            product = self._product(
                chunk, places[low:high], np.clip(starts[first : last + 1], low, high) - low
            )
            total = product if total is None else total + product
        rows = np.arange(first, last, dtype=np.int32)
        return _Part(rows, np.diff(total.indptr), total.indices, total.data)

    def _product(
        self, chunk: np.ndarray, places: np.ndarray, row_starts: np.ndarray
    ) -> scipy.sparse.csr_array:
        size, cells, num_rows = places.size, 2 * self.window + 1, row_starts.size - 1
        # Windows are overlapping items of opaque memory, so that NumPy copies each at once, not cell by cell.
        window = np.dtype((np.void, cells * chunk.itemsize))
        windows = np.ndarray((chunk.size - cells + 1,), window, buffer=chunk, strides=(chunk.itemsize,))
        around = windows[places].view(chunk.dtype).reshape(size, cells)
        around[:, self.window] = self.num_words  # a place is no neighbor of itself
        X = scipy.sparse.csr_array(
            (np.ones(size), np.arange(size, dtype=np.int32), row_starts), shape=(num_rows, size)
        )
        ends = np.arange(0, cells * size + 1, cells, dtype=np.int32 if cells * size < 2**31 else np.int64)
        Y = scipy.sparse.csr_array(
            (self.tiled[: cells * size], around.ravel(), ends), shape=(size, self.num_words + 1)
        )
        # Converting from rows to columns and back sorts in linear time. Padding is the last column.
        product: Any = X @ Y
        by_columns = product.tocsc()
        end = by_columns.indptr[self.num_words]
        return scipy.sparse.csc_array(
            (by_columns.data[:end], by_columns.indices[:end], by_columns.indptr[:-1]),
            shape=(num_rows, self.num_words),
        ).tocsr()


def _summed(database: SpillDatabase, lengths: np.ndarray, memory: int) -> Iterator[_Part]:
    """Sum partial counts, as many words at a time as the database can sum in memory."""
    query = (
        "SELECT row, col, sum(value) AS value FROM {{pairs}} WHERE row >= {} AND row < {} "
        "GROUP BY row, col ORDER BY row, col"
    )
    for words in _word_ranges(np.append(0, np.cumsum(lengths)), memory // BYTES_PER_SUM):
        for batch in database.query(query.format(*words), memory=memory):
            rows, row_lengths = np.unique(batch["row"].to_numpy(), return_counts=True)
            yield _Part(rows, row_lengths, batch["col"].to_numpy(), batch["value"].to_numpy())


def _assembled(parts: Iterable[_Part], num_words: int, scale: float, memory: int) -> scipy.sparse.csr_array:
    """Join parts that come in the order of rows and columns to one matrix."""
    values, columns = SpillArray(np.float64, memory * 2 // 3), SpillArray(np.int32, memory // 3)
    lengths = np.zeros(num_words + 1, np.int64)
    for part in parts:
        lengths[part.rows + 1] += part.lengths
        columns.append(part.columns)
        values.append(part.values if scale == 1 else part.values / scale)
    indptr = np.cumsum(lengths)
    indices = columns.array()
    if indptr[-1] > LARGEST_INT32:
        # SciPy needs both index arrays in one dtype, and would copy the longer one in memory.
        wider = SpillArray(np.int64, memory // 3)
        for start in range(0, indices.size, _PIECE):
            wider.append(indices[start : start + _PIECE])
        indices = wider.array()
    matrix = scipy.sparse.csr_array(
        (values.array(), indices, indptr.astype(indices.dtype)), shape=(num_words, num_words)
    )
    matrix.has_canonical_format = True
    return matrix

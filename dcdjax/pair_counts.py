"""A corpus as numbers of words enters; how often which words stand near each other leaves, as a matrix.

The counts are a product of sparse matrices, C = X Y: X says at which places each word stands, Y which words
stand in the window around each place. SciPy multiplies a row of X with all of Y in one pass over a dense row
that stays in the cache, which makes this about as fast as a loop in C over a dense matrix of counts, and the
result is sparse. Rows are independent: threads take blocks of them, SciPy leaves the interpreter's lock.
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

from dcdjax.overflow import Engine, Spool
from dcdjax.parallel import Progress, in_order, num_workers
from dcdjax.vocabulary import BREAK

DistanceWeighting = Literal["flat", "linear", "harmonic"]

# Bytes for each token of a chunk while its words are brought into order: number, position, both as
# rows and as columns, and two bytes of values.
_BYTES_PER_TOKEN = 24
# Bytes for each cell of a window: the word and its weight in Y; and, if no two cells hold the same word,
# an entry of the product, and that once more as it is sorted.
_BYTES_PER_CELL = 12 + 2 * 16
# Bytes for each word, whether it occurs in the block or not, in the product and while it is sorted.
_BYTES_PER_WORD = 32
# Bytes for each entry that DuckDB adds up and sorts: 16 of its own, in a hash table and in sorted runs.
_BYTES_PER_SUM = 96
_LARGEST_INT32 = 2**31 - 1
_PIECE = 1 << 22
# Places of a block of rows, at least, if memory allows.
_LEAST_PLACES = 1 << 18
# Sums of integers are exact in float64 up to 2^53. Harmonic weights are multiplied by the least common
# multiple of the distances, if that leaves room for 2^26 full counts of a pair.
_LARGEST_SCALE = 2**27


@dataclass(frozen=True)
class Weights:
    """What a pair counts, by its distance.

    Attributes:
      by_distance: at distance 1, 2, ..., times the scale: integers, where possible.
      scale: what the sums are to be divided by.
    """

    by_distance: np.ndarray
    scale: float


def weights(weighting: DistanceWeighting, window: int, longest: int | None = None) -> Weights:
    """The weights of a pair at distances 1 to `window`.

    Args:
      weighting: "flat": 1; "linear": (window - distance + 1) / window, the chance that word2vec's window, of
        random size, reaches so far; "harmonic": 1 / distance, as GloVe counts.
      window: the largest distance.
      longest: the length of the longest document: larger distances do not occur, and are left out.

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


def lined_up(pieces: Iterable[np.ndarray], num_words: int, window: int, *, memory: int) -> np.ndarray:
    """The corpus as one array, with blanks (`num_words`) so that no window reaches into another document.

    Args:
      pieces: numbers of words, with negative numbers for what is none, and BREAK between documents.
      num_words: how many words there are.
      window: how many blanks stand at either end, and for each break.
      memory: bytes from which on the array is in a file.
    """
    spool = Spool(np.int32, memory)
    blanks = np.full(window, num_words, np.int32)
    spool.append(blanks)
    for piece in pieces:
        is_break = piece == BREAK
        if is_break.any():
            # Documents without a word in them leave breaks behind breaks; one is enough.
            is_break[1:] &= ~is_break[:-1]
            piece = np.repeat(piece, np.where(is_break, window, np.where(piece == BREAK, 0, 1)))
        spool.append(np.where(piece < 0, np.int32(num_words), piece))
    spool.append(blanks)
    return spool.array()


def count_pairs(
    line: np.ndarray,
    num_words: int,
    weights: Weights,
    *,
    memory: int,
    progress: Progress | None = None,
) -> scipy.sparse.csr_array:
    """Sums the weights of all ordered pairs of positions whose distance is within the window.

    Args:
      line: what `lined_up` gives.
      num_words: how many words there are.
      weights: of pairs, by distance.
      memory: bytes to work with. Partial counts of a corpus that takes more are summed by DuckDB; a result
        that takes more than a sixth of it is mapped from temporary files.
      progress: called as `progress("counting", tokens done, tokens, "tokens")`.

    Returns:
      A symmetric matrix with sorted indices, float64.
    """
    window = len(weights.by_distance)
    num_places = line.size - 2 * window
    per_chunk = max(1, memory // 4 // _BYTES_PER_TOKEN)
    chunks = [
        line[start : min(start + per_chunk, num_places) + 2 * window]
        for start in range(0, num_places, per_chunk)
    ]
    num_tokens = sum(int(np.count_nonzero(chunk[window:-window] < num_words)) for chunk in chunks)
    parts = _counted(chunks, num_words, weights, memory // 4, progress, num_tokens)
    if len(chunks) <= 1:
        return _assembled(parts, num_words, weights.scale, memory // 6)
    with closing(Engine()) as engine:
        lengths = np.zeros(num_words, np.int64)
        for part in parts:
            lengths[part.rows] += part.lengths
            rows = np.repeat(part.rows, part.lengths)
            engine.add("pairs", pa.table({"row": rows, "col": part.columns, "value": part.values}))
        return _assembled(_summed(engine, lengths, memory // 4), num_words, weights.scale, memory // 6)


@dataclass(frozen=True)
class _Part:
    """Some rows of a matrix: their numbers, ascending, how many entries each has, and the entries."""

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
    """Counts each chunk by itself, a block of words at a time."""
    window = len(weights.by_distance)
    cells = 2 * window + 1
    # The product of a block costs a pass over all words besides, so the more words there are, the more places
    # a block has.
    workers = max(1, min(num_workers(), memory // 2 // (_BYTES_PER_WORD * num_words)))
    at_once = max(_LEAST_PLACES, num_words // 4)
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
    """The places of all words, those of word i from starts[i] to starts[i + 1], ascending: X by its rows."""
    size = chunk.size
    at = scipy.sparse.csr_array(
        (np.ones(size, np.int8), chunk, np.arange(size + 1, dtype=np.int32)), shape=(size, num_words + 1)
    ).tocsc()
    return at.indices, at.indptr[: num_words + 1]


def _word_ranges(starts: np.ndarray, at_once: int) -> Iterator[tuple[int, int]]:
    """Consecutive words with together at most so many places, but at least one word."""
    first, num_words = 0, starts.size - 1
    while first < num_words:
        last = int(np.searchsorted(starts, starts[first] + at_once, side="right")) - 1
        last = min(max(last, first + 1), num_words)
        yield first, last
        first = last


@dataclass(frozen=True)
class _Blocks:
    """What all blocks of rows share; `tiled` are the values of Y: the weights of one window after another."""

    num_words: int
    window: int
    at_once: int
    tiled: np.ndarray

    def rows(
        self, chunk: np.ndarray, places: np.ndarray, starts: np.ndarray, words: tuple[int, int]
    ) -> _Part:
        """The rows of X Y of some words. Only a single word can have more places than are taken at once."""
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
        # Windows as opaque pieces of memory that overlap: NumPy copies each at once, not cell by cell.
        window = np.dtype((np.void, cells * chunk.itemsize))
        windows = np.ndarray((chunk.size - cells + 1,), window, buffer=chunk, strides=(chunk.itemsize,))
        around = windows[places].view(chunk.dtype).reshape(size, cells)
        around[:, self.window] = self.num_words  # the place itself is no neighbor
        X = scipy.sparse.csr_array(
            (np.ones(size), np.arange(size, dtype=np.int32), row_starts), shape=(num_rows, size)
        )
        ends = np.arange(0, cells * size + 1, cells, dtype=np.int32 if cells * size < 2**31 else np.int64)
        Y = scipy.sparse.csr_array(
            (self.tiled[: cells * size], around.ravel(), ends), shape=(size, self.num_words + 1)
        )
        # Changing from rows to columns and back sorts in linear time, and blanks are the last column.
        product: Any = X @ Y
        by_columns = product.tocsc()
        end = by_columns.indptr[self.num_words]
        return scipy.sparse.csc_array(
            (by_columns.data[:end], by_columns.indices[:end], by_columns.indptr[:-1]),
            shape=(num_rows, self.num_words),
        ).tocsr()


def _summed(engine: Engine, lengths: np.ndarray, memory: int) -> Iterator[_Part]:
    """Adds up partial counts, for so many words at a time as the engine can do in memory."""
    query = (
        "SELECT row, col, sum(value) AS value FROM {{pairs}} WHERE row >= {} AND row < {} "
        "GROUP BY row, col ORDER BY row, col"
    )
    for words in _word_ranges(np.append(0, np.cumsum(lengths)), memory // _BYTES_PER_SUM):
        for batch in engine.query(query.format(*words), memory=memory):
            rows, row_lengths = np.unique(batch["row"].to_numpy(), return_counts=True)
            yield _Part(rows, row_lengths, batch["col"].to_numpy(), batch["value"].to_numpy())


def _assembled(parts: Iterable[_Part], num_words: int, scale: float, memory: int) -> scipy.sparse.csr_array:
    """One matrix of all parts, which come in the order of rows and columns."""
    values, columns = Spool(np.float64, memory * 2 // 3), Spool(np.int32, memory // 3)
    lengths = np.zeros(num_words + 1, np.int64)
    for part in parts:
        lengths[part.rows + 1] += part.lengths
        columns.append(part.columns)
        values.append(part.values if scale == 1 else part.values / scale)
    indptr = np.cumsum(lengths)
    indices = columns.array()
    if indptr[-1] > _LARGEST_INT32:
        # SciPy wants both arrays of one dtype, and would make the longer one anew, in memory.
        wider = Spool(np.int64, memory // 3)
        for start in range(0, indices.size, _PIECE):
            wider.append(indices[start : start + _PIECE])
        indices = wider.array()
    matrix = scipy.sparse.csr_array(
        (values.array(), indices, indptr.astype(indices.dtype)), shape=(num_words, num_words)
    )
    matrix.has_canonical_format = True
    return matrix

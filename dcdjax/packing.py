"""S as a sparse matrix enters; dense tiles, where it is dense enough, and row segments of the rest leave.

Both are laid out for one pass that needs S_ij, W_i and W_j at a time. A tile takes two blocks of W as they
are, for matrix products. A segment gathers the rows of W that its few columns name.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Float32, Float64, Int32

from dcdjax.parallel import in_order

# Columns of a segment. Shorter ones are padded less (7 % at 16 on WikiText-2, 15 % at 32), but every segment
# reads and writes its own row of W besides those that it gathers.
WIDTH = 16

# Segments are taken window by window, so that the rows of W that they gather come from a core's own cache:
# 1,024 rows of 200 topics in float32 are 0.8 MB. A pass in C is then up to twice as fast as one that gathers
# from the cache that cores share, one in XLA by a fifth; 512 and 2,048 were about as good.
WINDOW = 1024

# Segments that a thread fills at a time, so that what it needs for it stays in a cache.
_AT_A_TIME = 4096


@dataclass(frozen=True)
class Tiles:
    """Blocks of S as dense matrices, each for itself and for its mirror image below the diagonal.

    Attributes:
      rows: the first row of each.
      columns: the first column of each. The last tiles begin earlier than a multiple of their size, so as to
        end with S; what they have in common with those before is zero in them.
      values: S, halved in tiles on the diagonal, which are their own mirror images.
    """

    rows: Int32[np.ndarray, " tiles"]
    columns: Int32[np.ndarray, " tiles"]
    values: Float32[np.ndarray, "tiles size size"] | Float64[np.ndarray, "tiles size size"]


@dataclass(frozen=True)
class Segments:
    """Rows of S cut into pieces of `WIDTH` nonzeros.

    Attributes:
      parts: where each part begins, and the last one ends. No row is in two parts.
      rows: the row of each segment.
      columns: of its nonzeros; after the last one that column is repeated.
      values: of S, zero there.
    """

    parts: Int32[np.ndarray, " parts_and_end"]
    rows: Int32[np.ndarray, " segments"]
    columns: Int32[np.ndarray, "segments width"]
    values: Float32[np.ndarray, "segments width"] | Float64[np.ndarray, "segments width"]


def pack(
    matrix: scipy.sparse.csr_array,
    *,
    divisor: float,
    dtype: np.dtype,
    tile_size: int,
    cells_per_nonzero: float,
    num_parts: int,
) -> tuple[Tiles, Segments]:
    """Cuts S into tiles and segments.

    Args:
      matrix: symmetric, float64, indices sorted. Words sorted by frequency make for dense tiles.
      divisor: of the values.
      dtype: of the values that leave.
      tile_size: rows and columns of a tile.
      cells_per_nonzero: how many cells of a tile, each used for itself and its mirror image, take as long as
        one nonzero in a segment.
      num_parts: of the segments, all of about the same work.

    Returns:
      Every nonzero of S is in one of them; tiles sorted by row and column.
    """
    num_words = matrix.shape[0]
    size = min(tile_size, num_words)
    num_blocks = -(-num_words // size)
    firsts = np.minimum(np.arange(num_blocks, dtype=np.int32) * size, num_words - size)
    bounds = np.append(np.arange(num_blocks) * size, num_words)

    def of(block: int) -> slice:
        return slice(matrix.indptr[bounds[block]], matrix.indptr[bounds[block + 1]])

    def count(block: int) -> np.ndarray:
        return np.bincount(matrix.indices[of(block)] // size, minlength=num_blocks)

    counts = np.stack([found for _, found in in_order(count, range(num_blocks))])
    # As much memory as S itself takes, a value and an index of each nonzero, is enough for tiles.
    most = matrix.nnz * (dtype.itemsize + 4) // (size * size * dtype.itemsize)
    dense = _worthwhile(counts, size, cells_per_nonzero, most)

    tile_rows, tile_columns = np.nonzero(np.triu(dense))
    values = np.zeros((tile_rows.size, size, size), dtype)
    flat = values.reshape(-1)
    number = np.full((num_blocks, num_blocks), -1)
    number[tile_rows, tile_columns] = np.arange(tile_rows.size)

    def cut(block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Fills the tiles of a block of rows; returns what is left: columns, values, how many in a row."""
        begins = matrix.indptr[bounds[block] : bounds[block + 1] + 1] - matrix.indptr[bounds[block]]
        columns = matrix.indices[of(block)].astype(np.int32, copy=False)
        S = (matrix.data[of(block)] / divisor).astype(dtype)
        if not dense[block].any():
            return columns, S, np.diff(begins)
        column_blocks = columns // size
        tiled = np.flatnonzero((number[block] >= 0)[column_blocks])
        rows = np.arange(begins.size - 1) + (bounds[block] - firsts[block])
        where = np.repeat(rows * size, np.diff(np.searchsorted(tiled, begins)))
        where += (number[block] * (size * size) - firsts)[column_blocks[tiled]]
        where += columns[tiled]
        flat[where] = S[tiled]
        left = np.flatnonzero(~dense[block][column_blocks])
        return columns[left], S[left], np.diff(np.searchsorted(left, begins))

    rest = [found for _, found in in_order(cut, range(num_blocks))]
    values[tile_rows == tile_columns] /= 2
    tiles = Tiles(rows=firsts[tile_rows], columns=firsts[tile_columns], values=values)
    columns, S, lengths = (np.concatenate(parts) for parts in zip(*rest, strict=True))
    del rest
    return tiles, _segments(lengths, columns, S, num_parts)


def _worthwhile(counts: np.ndarray, size: int, cells_per_nonzero: float, most: int) -> np.ndarray:
    """Which blocks of S are to be tiles, the best ones if those are too many."""
    # On the diagonal a tile and its mirror image are the same nonzeros.
    nonzeros = counts * np.where(np.eye(len(counts), dtype=bool), 1, 2)
    gain = nonzeros * cells_per_nonzero - size * size
    upper = np.flatnonzero(np.triu(gain > 0))
    order = upper[np.argsort(-gain.reshape(-1)[upper], kind="stable")]
    dense = np.zeros(counts.shape, bool)
    dense.reshape(-1)[order[:most]] = True
    return dense | dense.T


def _segments(lengths: np.ndarray, columns: np.ndarray, S: np.ndarray, num_parts: int) -> Segments:
    """Rows of so many nonzeros each become segments, in the order in which they are to be taken."""
    num_segments = -(-lengths // WIDTH)
    firsts = np.cumsum(num_segments) - num_segments
    total = int(num_segments.sum())
    # Parts end with rows.
    ends = np.searchsorted(firsts + num_segments, np.linspace(0, total, num_parts + 1)[1:-1])
    part_of_row = np.searchsorted(ends, np.arange(lengths.size)).astype(np.int32)
    rows = np.repeat(np.arange(lengths.size, dtype=np.int32), num_segments)
    parts = np.searchsorted(part_of_row[rows], np.arange(num_parts + 1)).astype(np.int32)

    ends_of_rows = np.cumsum(lengths)
    last = np.repeat(ends_of_rows - 1, num_segments)
    begin = np.repeat(ends_of_rows - lengths - firsts * WIDTH, num_segments) + np.arange(total) * WIDTH
    num_windows = -(-lengths.size // WINDOW)
    key = part_of_row[rows] * num_windows + columns[np.minimum(begin + WIDTH // 2, last)] // WINDOW
    # Numbers below 2^16 are sorted in linear time.
    order = np.argsort(key.astype(np.uint16) if num_parts * num_windows < 1 << 16 else key, kind="stable")

    packed_columns, values = np.empty((total, WIDTH), np.int32), np.empty((total, WIDTH), S.dtype)
    begin, last = begin[order][:, None], last[order][:, None]

    def fill(first: int) -> None:
        some = slice(first, first + _AT_A_TIME)
        where = begin[some] + np.arange(WIDTH)[None]
        missing = where > last[some]
        np.minimum(where, last[some], out=where)
        np.take(columns, where, out=packed_columns[some], mode="clip")
        np.take(S, where, out=values[some], mode="clip")
        values[some][missing] = 0

    for _ in in_order(fill, range(0, total, _AT_A_TIME)):
        pass
    return Segments(parts=parts, rows=rows[order], columns=packed_columns, values=values)


def share_tiles(tiles: Tiles, num_shares: int) -> list[Tiles]:
    """The same number for each; the last shares may get empty ones besides."""
    each = -(-tiles.rows.size // num_shares)
    shares = []
    for n in range(num_shares):
        own = slice(n * each, (n + 1) * each)
        missing = each - tiles.rows[own].size
        shares.append(
            Tiles(
                rows=_padded(tiles.rows[own], missing),
                columns=_padded(tiles.columns[own], missing),
                values=_padded(tiles.values[own], missing),
            )
        )
    return shares


def share_segments(segments: Segments, num_shares: int) -> list[Segments]:
    """The same number of parts for each, and of segments too: some get empty ones outside of all parts."""
    parts_each = (segments.parts.size - 1) // num_shares
    bounds = segments.parts[::parts_each].tolist()
    most = max(end - begin for begin, end in itertools.pairwise(bounds))
    shares = []
    for n in range(num_shares):
        own = slice(bounds[n], bounds[n + 1])
        missing = most - (own.stop - own.start)
        parts = segments.parts[n * parts_each : (n + 1) * parts_each + 1] - own.start
        shares.append(
            Segments(
                parts=parts.astype(np.int32),
                rows=_padded(segments.rows[own], missing),
                columns=_padded(segments.columns[own], missing),
                values=_padded(segments.values[own], missing),
            )
        )
    return shares


def _padded(array: np.ndarray, missing: int) -> np.ndarray:
    # A copy only where something is missing: the arrays are as large as S.
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1)) if missing else array

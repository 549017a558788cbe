"""S as a sparse matrix enters; dense tiles, where it is dense enough, and padded row segments of the rest leave.

Both are laid out for one pass that needs S_ij, W_i and W_j at a time. A tile takes two blocks of W as they
are, for matrix products. A segment gathers the rows of W that its few columns name.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Float32, Float64, Int32

# Columns of a segment. Shorter ones are padded less (7 % at 16 on WikiText-2, 15 % at 32), but every segment
# reads and writes its own row of W besides those that it gathers.
WIDTH = 16

# Segments are taken window by window, so that the rows of W that they gather come from a core's own cache:
# 1,024 rows of 200 topics in float32 are 0.8 MB. Both the gathers of XLA and those of C are then twice as fast
# as from the cache that cores share; 512 and 2,048 were about as good.
WINDOW = 1024


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
    divisors: tuple[float, float],
    dtype: np.dtype,
    tile_size: int,
    cells_per_nonzero: float,
    num_parts: int,
) -> tuple[Tiles, Segments]:
    """Cuts S into tiles and segments.

    Args:
      matrix: symmetric, float64, indices sorted. Words sorted by frequency make for dense tiles.
      divisors: of the values, one after the other.
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
    blocks = [
        slice(matrix.indptr[b * size], matrix.indptr[min((b + 1) * size, num_words)]) for b in range(num_blocks)
    ]
    counts = np.stack([np.bincount(matrix.indices[part] // size, minlength=num_blocks) for part in blocks])
    # As much memory as S itself takes, a value and an index of each nonzero, is enough for tiles.
    most = matrix.nnz * (dtype.itemsize + 4) // (size * size * dtype.itemsize)
    dense = _worthwhile(counts, size, cells_per_nonzero, most)

    tile_rows, tile_columns = np.nonzero(np.triu(dense))
    values = np.zeros((tile_rows.size, size, size), dtype)
    flat = values.reshape(-1)
    number = np.full((num_blocks, num_blocks), -1)
    number[tile_rows, tile_columns] = np.arange(tile_rows.size)

    rest_columns, rest_values, lengths = [], [], []
    for b, part in enumerate(blocks):
        begins = matrix.indptr[b * size : min((b + 1) * size, num_words) + 1] - part.start
        columns = matrix.indices[part]
        S = (matrix.data[part] / divisors[0] / divisors[1]).astype(dtype)
        column_blocks = columns // size
        if dense[b].any():
            tiled = (number[b] >= 0)[column_blocks]
            offsets = number[b] * size * size - firsts
            row_offsets = np.repeat((b * size - firsts[b] + np.arange(begins.size - 1)) * size, np.diff(begins))
            where = offsets[column_blocks[tiled]] + row_offsets[tiled] + columns[tiled]
            flat[where] = S[tiled]
            left = ~dense[b][column_blocks]
            columns, S = columns[left], S[left]
            begins = np.concatenate([[0], np.cumsum(left)])[begins]
        rest_columns.append(columns)
        rest_values.append(S)
        lengths.append(np.diff(begins))
    values[tile_rows == tile_columns] /= 2
    tiles = Tiles(rows=firsts[tile_rows], columns=firsts[tile_columns], values=values)
    columns, S = np.concatenate(rest_columns), np.concatenate(rest_values)
    del rest_columns, rest_values
    return tiles, _segments(np.concatenate(lengths), columns, S, num_parts)


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

    index = np.int32 if columns.size < 1 << 31 else np.int64
    begin, last = begin[order].astype(index)[:, None], last[order].astype(index)[:, None]
    where = begin + np.arange(WIDTH, dtype=index)[None]
    missing = where > last
    np.minimum(where, last, out=where)
    values = S[where]
    values[missing] = 0
    return Segments(parts=parts, rows=rows[order], columns=columns[where], values=values)


def share_tiles(tiles: Tiles, num_shares: int) -> list[Tiles]:
    """The same number for each; the last shares may get empty ones besides."""
    each = -(-tiles.rows.size // num_shares)
    shares = []
    for n in range(num_shares):
        own = slice(n * each, (n + 1) * each)
        missing = each - tiles.rows[own].size
        shares.append(
            Tiles(
                rows=np.pad(tiles.rows[own], (0, missing)),
                columns=np.pad(tiles.columns[own], (0, missing)),
                values=_padded(tiles.values[own], missing),
            )
        )
    return shares


def share_segments(segments: Segments, num_shares: int) -> list[Segments]:
    """The same number of parts for each, and of segments too: some get empty ones besides."""
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
                # Empty ones are of the last row, and outside of all parts.
                rows=np.pad(segments.rows[own], (0, missing), mode="edge" if own.stop > own.start else "constant"),
                columns=_padded(segments.columns[own], missing),
                values=_padded(segments.values[own], missing),
            )
        )
    return shares


def _padded(array: np.ndarray, missing: int) -> np.ndarray:
    # A copy only where something is missing: the arrays are as large as S.
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1)) if missing else array

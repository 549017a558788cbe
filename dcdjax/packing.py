"""S as a sparse matrix enters; dense tiles, where it is dense enough, and row segments of the rest leave.

Both are laid out for one pass that needs S_ij, W_i and W_j at a time. A tile takes two blocks of W as they
are, for matrix products. A segment gathers the rows of W that its few columns name.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from jaxtyping import Float32, Float64, Int32

from dcdjax import tiling
from dcdjax.parallel import in_order

# Columns of a segment, at most. Shorter ones are padded less (7 % at 16 on WikiText-2, 15 % at 32), but every
# segment reads and writes its own row of W besides those that it gathers. Where rows have few nonzeros, as in
# a graph of nearest neighbors, segments are shorter: no longer than half of what a row has in the mean.
WIDTHS = (16, 8, 4)

# Segments are taken window by window, so that the rows of W that they gather come from a core's own cache:
# 1,024 rows of 200 topics in float32 are 0.8 MB. A pass in C is then up to twice as fast as one that gathers
# from the cache that cores share, one in XLA by a fifth; 512 and 2,048 were about as good.
WINDOW = 1024

# Tiles may take as much memory as S itself, a value and an index of each nonzero, and this many bytes anyway:
# a small S should not do without them.
_BYTES_ANYWAY = 1 << 24

# What begins at a multiple of this many bytes JAX takes over on the CPU without a copy.
_ALIGNMENT = 64


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
    """Rows of S cut into pieces of a few nonzeros; or several such, all of the same shape.

    Attributes:
      parts: where each part begins, and the last one ends. No row is in two parts.
      rows: the row of each segment.
      columns: of its nonzeros; after the last one that column is repeated.
      values: of S, zero there.
    """

    parts: Int32[np.ndarray, "*rounds parts_and_end"]
    rows: Int32[np.ndarray, "*rounds segments"]
    columns: Int32[np.ndarray, "*rounds segments width"]
    values: Float32[np.ndarray, "*rounds segments width"] | Float64[np.ndarray, "*rounds segments width"]


def pack(
    matrix: scipy.sparse.csr_array,
    *,
    divisor: float,
    dtype: np.dtype,
    tile_size: int,
    cells_per_nonzero: float,
    num_parts: int,
    width: int | None = None,
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
      width: of a segment; if not given, what suits S.

    Returns:
      Every nonzero of S is in one of them; tiles sorted by row and column.
    """
    size = min(tile_size, matrix.shape[0])
    most_bytes = max(matrix.nnz * (dtype.itemsize + 4), _BYTES_ANYWAY)
    strips = tiling.cut(matrix, size)
    chosen = tiling.choose(
        matrix,
        strips,
        size=size,
        cells_per_nonzero=cells_per_nonzero,
        most=most_bytes // (size * size * dtype.itemsize),
    )
    tiles = Tiles(
        rows=chosen.firsts[chosen.rows],
        columns=chosen.firsts[chosen.columns],
        values=aligned((chosen.rows.size, size, size), dtype),
    )
    tiles.values.fill(0)
    segments, places = _planned(chosen, strips, dtype, num_parts, width)

    def fill(strip_and_places: tuple[tiling.Strip, np.ndarray]) -> None:
        strip, places = strip_and_places
        S = (matrix.data[strip.entries] / divisor).astype(dtype)
        _fill_tiles(tiles, chosen, strip, S)
        _fill_segments(segments, chosen, strip, S, places)

    for _ in in_order(fill, zip(strips, places, strict=True)):
        pass
    return tiles, segments


def _fill_tiles(tiles: Tiles, chosen: tiling.Tiling, strip: tiling.Strip, S: np.ndarray) -> None:
    found, cells = chosen.tiled(strip)
    on_diagonal = chosen.matrix.indices[strip.entries][found] // chosen.size == strip.block
    tiles.values.reshape(-1)[cells] = np.where(on_diagonal, S[found] / 2, S[found])


def width_for(mean_length: float) -> int:
    """Of segments for rows with so many nonzeros in the mean."""
    return next((width for width in WIDTHS if 2 * width <= mean_length), WIDTHS[-1])


def _planned(
    chosen: tiling.Tiling, strips: list[tiling.Strip], dtype: np.dtype, num_parts: int, width: int | None
) -> tuple[Segments, list[np.ndarray]]:
    """Segments with their rows, but nothing in them yet, and which of them are those of each strip."""
    num_words = chosen.matrix.shape[0]
    num_nonzeros = chosen.matrix.nnz - chosen.num_nonzeros
    width = width or width_for(num_nonzeros / num_words)

    def measure(strip: tiling.Strip) -> tuple[np.ndarray, np.ndarray]:
        """How many segments each row has, and the window of each segment."""
        left, lengths = chosen.rest(strip)
        num_segments, begin, last = _cut(lengths, width)
        columns = chosen.matrix.indices[strip.entries][left]
        return num_segments, (columns[np.minimum(begin + width // 2, last)] // WINDOW).astype(np.int32)

    measured = [found for _, found in in_order(measure, strips)]
    num_segments, windows = (np.concatenate(of_all) for of_all in zip(*measured, strict=True))
    rows, parts, order = _in_turn(num_segments, windows, num_parts)
    place = np.empty_like(order)
    place[order] = np.arange(order.size, dtype=order.dtype)
    segments = Segments(
        parts=parts,
        rows=rows[order],
        columns=aligned((order.size, width), np.dtype(np.int32)),
        values=aligned((order.size, width), dtype),
    )
    return segments, np.split(place, np.cumsum([windows.size for _, windows in measured])[:-1])


def _fill_segments(
    segments: Segments, chosen: tiling.Tiling, strip: tiling.Strip, S: np.ndarray, places: np.ndarray
) -> None:
    left, lengths = chosen.rest(strip)
    columns = chosen.matrix.indices[strip.entries].astype(np.int32, copy=False)[left]
    width = segments.columns.shape[1]
    _, begin, last = _cut(lengths, width)
    where = begin[:, None] + np.arange(width)[None]
    short = np.flatnonzero(where[:, -1] > last)
    missing = where[short] > last[short, None]
    where[short] = np.minimum(where[short], last[short, None])
    segments.columns[places] = np.take(columns, where, mode="clip")  # clip: nothing else to be checked
    values = np.take(S[left], where, mode="clip")
    values[short] = np.where(missing, 0, values[short])
    segments.values[places] = values


def _cut(lengths: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of rows with so many nonzeros: how many segments they have; where each begins; where its row ends."""
    num_segments = -(-lengths // width)
    ends, firsts = np.cumsum(lengths), np.cumsum(num_segments) - num_segments
    begin = np.repeat(ends - lengths - firsts * width, num_segments)
    begin += np.arange(begin.size) * width
    return num_segments.astype(np.int32), begin, np.repeat(ends - 1, num_segments)


def _in_turn(
    num_segments: np.ndarray, windows: np.ndarray, num_parts: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row of each segment, where parts begin, and the order in which segments are to be taken."""
    ends = np.cumsum(num_segments, dtype=np.int64)
    # Parts end with rows.
    cuts = np.searchsorted(ends, np.linspace(0, windows.size, num_parts + 1)[1:-1])
    part_of_row = np.searchsorted(cuts, np.arange(num_segments.size)).astype(np.int32)
    rows = np.repeat(np.arange(num_segments.size, dtype=np.int32), num_segments)
    part = part_of_row[rows]
    parts = np.searchsorted(part, np.arange(num_parts + 1)).astype(np.int32)
    num_windows = -(-num_segments.size // WINDOW)
    key = part * num_windows + windows
    # Numbers below 2^16 are sorted in linear time.
    order = np.argsort(key.astype(np.uint16) if num_parts * num_windows < 1 << 16 else key, kind="stable")
    return rows, parts, order.astype(np.int32) if order.size < 1 << 31 else order


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An empty array that JAX takes over without a copy."""
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + num_bytes].view(dtype).reshape(shape)


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
        parts = segments.parts[n * parts_each : (n + 1) * parts_each + 1] - own.start
        share = Segments(
            parts=parts.astype(np.int32),
            rows=segments.rows[own],
            columns=segments.columns[own],
            values=segments.values[own],
        )
        shares.append(padded(share, most))
    return shares


def padded(segments: Segments, num_segments: int) -> Segments:
    """With empty segments, outside of all parts, up to so many."""
    missing = num_segments - segments.rows.size
    return Segments(
        parts=segments.parts,
        rows=_padded(segments.rows, missing),
        columns=_padded(segments.columns, missing),
        values=_padded(segments.values, missing),
    )


def _padded(array: np.ndarray, missing: int) -> np.ndarray:
    # A copy only where something is missing: the arrays are as large as S. JAX takes it over without another.
    if not missing:
        return array
    padded = aligned((array.shape[0] + missing, *array.shape[1:]), array.dtype)
    padded[: array.shape[0]] = array
    padded[array.shape[0] :] = 0
    return padded

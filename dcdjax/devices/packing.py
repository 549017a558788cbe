"""Cut S into dense tiles where it is dense enough, and into row segments elsewhere.

A pass over S needs S_ij, W_i and W_j together. A tile multiplies two contiguous blocks of rows of W as
matrices. A segment gathers the rows of W that its few columns name.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int32

from dcdjax.devices import tiling
from dcdjax.util.parallel import in_order

# Columns of a segment. Shorter segments need less padding (on WikiText-2 7 % at 16 columns, 15 % at 32), but
# each segment also reads and writes its own row of W. A segment is no longer than half of the mean number of
# nonzeros of a row, so segments are shorter in a graph of nearest neighbors.
WIDTHS = (16, 8, 4)

# Segments are sorted by windows of this many columns, so that the gathered rows of W stay in a core's own
# cache: 1,024 rows of 200 topics in float32 take 0.8 MB. This makes a pass in C up to twice as fast as one
# that gathers from the shared cache, and a pass in XLA a fifth faster. 512 and 2,048 columns were about as
# good.
WINDOW = 1024

# Tiles may take as much memory as S itself (a value and an index for each nonzero), but always this many
# bytes, so that a small S has tiles too.
MIN_TILE_BYTES = 1 << 24

# On the CPU, JAX takes an array over without a copy if it begins at a multiple of this many bytes.
_ALIGNMENT = 64

_Array = Array | np.ndarray


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Tiles:
    """Hold dense blocks of S. Each block serves for itself and for its mirror image below the diagonal.

    The arrays are NumPy's after packing, and JAX's with a leading axis of devices in a `Layout`.

    Attributes:
      rows: the first row of each tile.
      columns: the first column of each tile. The last tiles begin earlier than a multiple of their size so
        that they end with S. The cells that they share with the tiles before are zero in them.
      values: S, halved in tiles on the diagonal, which are their own mirror images.
    """

    rows: Int32[_Array, "*devices tiles"]
    columns: Int32[_Array, "*devices tiles"]
    values: Float[_Array, "*devices tiles size size"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Segments:
    """Hold rows of S cut into segments of a few nonzeros.

    The arrays are NumPy's after packing. In a `Layout` they are JAX's with a leading axis of devices, and a
    second axis of rounds if W is split. Batches of nonzeros are numbered by an axis too.

    Attributes:
      parts: where each part begins, and where the last one ends. No row is in two parts.
      rows: the row of each segment.
      columns: the columns of its nonzeros; padding repeats the last column.
      values: the values of S; padding is zero.
    """

    parts: Int32[_Array, "*batch parts_and_end"]
    rows: Int32[_Array, "*batch segments"]
    columns: Int32[_Array, "*batch segments width"]
    values: Float[_Array, "*batch segments width"]


def pack(
    matrix: scipy.sparse.csr_array,
    *,
    divisor: float,
    dtype: np.dtype,
    tile_size: int = WINDOW,
    cells_per_nonzero: float = 0.0,
    num_parts: int,
    width: int | None = None,
) -> tuple[Tiles, Segments]:
    """Cut S into tiles and segments.

    Args:
      matrix: symmetric, float64, with sorted indices. Words sorted by frequency give dense tiles.
      divisor: divides the values.
      dtype: dtype of the packed values.
      tile_size: rows and columns of a tile.
      cells_per_nonzero: how many cells of a tile take as long as one nonzero of a segment. A cell also serves
        its mirror image. A larger value makes more tiles. The default, 0, makes none.
      num_parts: number of parts of the segments; all have about the same work.
      width: nonzeros of a segment. The default depends on the mean number of nonzeros of a row.

    Returns:
      Tiles, sorted by row and column, and segments. Each nonzero of S is in one of them.
    """
    size = min(tile_size, matrix.shape[0])
    max_bytes = max(matrix.nnz * (dtype.itemsize + 4), MIN_TILE_BYTES)
    strips = tiling.cut_strips(matrix, size)
    chosen = tiling.choose_tiles(
        matrix,
        strips,
        size=size,
        cells_per_nonzero=cells_per_nonzero,
        max_tiles=max_bytes // (size * size * dtype.itemsize),
    )
    tile_values = aligned_empty((chosen.rows.size, size, size), dtype)
    tile_values.fill(0)
    tiles = Tiles(
        rows=chosen.first_rows[chosen.rows], columns=chosen.first_rows[chosen.columns], values=tile_values
    )
    segments, places = _plan_segments(chosen, strips, dtype, num_parts, width)

    def fill(strip_and_places: tuple[tiling.Strip, np.ndarray]) -> None:
        strip, places = strip_and_places
        S = (matrix.data[strip.entries] / divisor).astype(dtype)
        found, cells = chosen.inside_tiles(strip)
        on_diagonal = matrix.indices[strip.entries][found] // size == strip.block
        tile_values.reshape(-1)[cells] = np.where(on_diagonal, S[found] / 2, S[found])
        _fill_segments(segments, chosen, strip, S, places)

    for _ in in_order(fill, zip(strips, places, strict=True)):
        pass
    return tiles, segments


def width_for(mean_length: float) -> int:
    """Return the width of segments for rows with this mean number of nonzeros."""
    return next((width for width in WIDTHS if 2 * width <= mean_length), WIDTHS[-1])


def _plan_segments(
    chosen: tiling.Tiling, strips: list[tiling.Strip], dtype: np.dtype, num_parts: int, width: int | None
) -> tuple[Segments, list[np.ndarray]]:
    """Return segments without columns and values, and the numbers of the segments of each strip."""
    width = width or width_for((chosen.matrix.nnz - chosen.num_nonzeros) / chosen.matrix.shape[0])

    def measure(strip: tiling.Strip) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of segments of each row, and the window of each segment."""
        left, lengths = chosen.outside_tiles(strip)
        num_segments, begin, last = _cut(lengths, width)
        columns = chosen.matrix.indices[strip.entries][left]
        return num_segments, (columns[np.minimum(begin + width // 2, last)] // WINDOW).astype(np.int32)

    measured = [found for _, found in in_order(measure, strips)]
    num_segments, windows = (np.concatenate(column) for column in zip(*measured, strict=True))
    rows, parts, order = _order_segments(num_segments, windows, num_parts)
    place = np.empty_like(order)
    place[order] = np.arange(order.size, dtype=order.dtype)
    segments = Segments(
        parts=parts,
        rows=rows[order],
        columns=aligned_empty((order.size, width), np.dtype(np.int32)),
        values=aligned_empty((order.size, width), dtype),
    )
    return segments, np.split(place, np.cumsum([windows.size for _, windows in measured])[:-1])


def _fill_segments(
    segments: Segments, chosen: tiling.Tiling, strip: tiling.Strip, S: np.ndarray, places: np.ndarray
) -> None:
    """Write the nonzeros of a strip that are outside of tiles into segments, at these places."""
    left, lengths = chosen.outside_tiles(strip)
    columns = chosen.matrix.indices[strip.entries].astype(np.int32, copy=False)[left]
    width = segments.columns.shape[1]
    _, begin, last = _cut(lengths, width)
    where = begin[:, None] + np.arange(width)[None]
    short = np.flatnonzero(where[:, -1] > last)
    missing = where[short] > last[short, None]
    where[short] = np.minimum(where[short], last[short, None])
    segments.columns[places] = np.take(columns, where, mode="clip")  # clip skips the check of bounds
    values = np.take(S[left], where, mode="clip")
    values[short] = np.where(missing, 0, values[short])
    segments.values[places] = values


def _cut(lengths: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of segments of each row, where each segment begins, and where its row ends."""
    num_segments = -(-lengths // width)
    ends, firsts = np.cumsum(lengths), np.cumsum(num_segments) - num_segments
    begin = np.repeat(ends - lengths - firsts * width, num_segments)
    begin += np.arange(begin.size) * width
    return num_segments.astype(np.int32), begin, np.repeat(ends - 1, num_segments)


def _order_segments(
    num_segments: np.ndarray, windows: np.ndarray, num_parts: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row of each segment, where parts begin, and the order of the segments."""
    ends = np.cumsum(num_segments, dtype=np.int64)
    # A part ends where a row ends.
    cuts = np.searchsorted(ends, np.linspace(0, windows.size, num_parts + 1)[1:-1])
    part_of_row = np.searchsorted(cuts, np.arange(num_segments.size)).astype(np.int32)
    rows = np.repeat(np.arange(num_segments.size, dtype=np.int32), num_segments)
    part = part_of_row[rows]
    parts = np.searchsorted(part, np.arange(num_parts + 1)).astype(np.int32)
    num_windows = -(-num_segments.size // WINDOW)
    key = part * num_windows + windows
    # NumPy sorts 16-bit numbers in linear time.
    order = np.argsort(key.astype(np.uint16) if num_parts * num_windows < 1 << 16 else key, kind="stable")
    return rows, parts, order.astype(np.int32) if order.size < 1 << 31 else order


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array that JAX takes over without a copy."""
    num_bytes = math.prod(shape) * dtype.itemsize
    memory = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    begin = -memory.ctypes.data % _ALIGNMENT
    return memory[begin : begin + num_bytes].view(dtype).reshape(shape)


def share_tiles(tiles: Tiles, num_shares: int) -> list[Tiles]:
    """Split tiles into shares of equal size. The last shares may get empty tiles as padding."""
    each = -(-tiles.rows.size // num_shares)

    def share(n: int) -> Tiles:
        return jax.tree.map(lambda array: _pad(array[n * each : (n + 1) * each], each), tiles)

    return [share(n) for n in range(num_shares)]


def share_segments(segments: Segments, num_shares: int) -> list[Segments]:
    """Split segments into shares with equally many parts and segments.

    Shares with fewer segments get empty ones as padding, outside of all parts.
    """
    parts_each = (segments.parts.size - 1) // num_shares
    bounds = segments.parts[::parts_each].tolist()
    most = max(end - begin for begin, end in itertools.pairwise(bounds))

    def share(n: int) -> Segments:
        own = slice(bounds[n], bounds[n + 1])
        parts = segments.parts[n * parts_each : (n + 1) * parts_each + 1] - own.start
        arrays = (segments.rows, segments.columns, segments.values)
        return Segments(parts.astype(np.int32), *(_pad(array[own], most) for array in arrays))

    return [share(n) for n in range(num_shares)]


def stack_segments(several: Sequence[Segments], num_segments: int) -> Segments:
    """Stack segments along a new axis, each padded to `num_segments` by empty ones outside of all parts."""
    return Segments(
        parts=np.stack([segments.parts for segments in several]),
        rows=_pad_and_stack([segments.rows for segments in several], num_segments),
        columns=_pad_and_stack([segments.columns for segments in several], num_segments),
        values=_pad_and_stack([segments.values for segments in several], num_segments),
    )


def _pad_and_stack(arrays: Sequence[Any], length: int) -> np.ndarray:
    """Stack arrays along a new axis, each padded with zeros to a length."""
    stacked = aligned_empty((len(arrays), length, *arrays[0].shape[1:]), arrays[0].dtype)
    for place, array in zip(stacked, arrays, strict=True):
        place[: len(array)] = array
        place[len(array) :] = 0
    return stacked


def check_indices(piece: Tiles | Segments, num_rows: int) -> None:
    """Refuse a piece that names rows which a W of so many rows does not have. The loops over S trust it.

    Raises:
      ValueError: naming the array and its smallest and largest entry.
    """
    size = piece.values.shape[-1] if isinstance(piece, Tiles) else 1
    bounds = {"rows": num_rows - size, "columns": num_rows - size}
    if isinstance(piece, Segments):
        bounds["parts"] = piece.rows.shape[-1]
        if (np.diff(piece.parts, axis=-1) < 0).any():
            raise ValueError("S is laid out wrongly: its parts fall")
    for name, most in bounds.items():
        array = getattr(piece, name)
        if array.size and not 0 <= array.min() <= array.max() <= most:
            raise ValueError(
                f"S is laid out wrongly: its {name} are {array.min()} to {array.max()}, beyond 0 to {most}"
            )


def _pad(array: Any, length: int) -> np.ndarray:
    # The arrays are as large as S, so a copy is made only if something is missing.
    return array if len(array) == length else _pad_and_stack([array], length)[0]

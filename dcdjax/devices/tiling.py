"""Find the square blocks of S that are dense enough to be tiles.

S is read in strips of a few rows, so that all cores can work and none of them needs much memory.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from dcdjax.util.parallel import in_order

# Approximate number of nonzeros of a strip.
STRIP_NONZEROS = 1 << 17


@dataclass(frozen=True)
class Strip:
    """Hold the bounds of a few rows of S, all in the same block of rows.

    Attributes:
      block: the number of the block.
      rows: the rows.
      entries: the entries of these rows in the sparse matrix.
    """

    block: int
    rows: slice
    entries: slice


@dataclass(frozen=True)
class Tiling:
    """State which square blocks of S become tiles.

    Attributes:
      matrix: S.
      size: rows and columns of a block. The last blocks may be smaller.
      rows: the block of rows of each tile, ascending.
      columns: the block of columns of each tile. Tiles lie on the diagonal or above it, and each also serves
        its mirror image.
      num_nonzeros: the nonzeros of S that are in tiles or their mirror images.
    """

    matrix: scipy.sparse.csr_array
    size: int
    rows: np.ndarray
    columns: np.ndarray
    num_nonzeros: int

    @property
    def num_blocks(self) -> int:
        """Return the number of blocks of rows, which is also that of columns."""
        return -(-self.matrix.shape[0] // self.size)

    @property
    def first_rows(self) -> np.ndarray:
        """Return the first row of a tile in each block. The last tile begins earlier to have full size."""
        first_rows = np.arange(self.num_blocks, dtype=np.int32) * self.size
        return np.minimum(first_rows, self.matrix.shape[0] - self.size)

    def outside_tiles(self, strip: Strip) -> tuple[Any, np.ndarray]:
        """Return the nonzeros of a strip outside of tiles and mirror images, and their number in each row."""
        dense = np.zeros(self.num_blocks, bool)
        dense[self.columns[self.rows == strip.block]] = True
        dense[self.rows[self.columns == strip.block]] = True
        begins = self._row_begins(strip)
        if not dense.any():
            return slice(None), np.diff(begins)
        left = np.flatnonzero(~dense[self.matrix.indices[strip.entries] // self.size])
        return left, np.diff(np.searchsorted(left, begins))

    def inside_tiles(self, strip: Strip) -> tuple[np.ndarray, np.ndarray]:
        """Return the nonzeros of a strip that are in tiles, and their cells, numbered through all tiles."""
        own = np.flatnonzero(self.rows == strip.block)
        if not own.size:
            return own, own
        number = np.full(self.num_blocks, -1)
        number[self.columns[own]] = own
        columns = self.matrix.indices[strip.entries]
        found = np.flatnonzero((number >= 0)[columns // self.size])
        rows = np.arange(strip.rows.start, strip.rows.stop) - self.first_rows[strip.block]
        cells = np.repeat(rows * self.size, np.diff(np.searchsorted(found, self._row_begins(strip))))
        cells += (number * self.size**2 - self.first_rows)[columns[found] // self.size]
        cells += columns[found]
        return found, cells

    def _row_begins(self, strip: Strip) -> np.ndarray:
        """Return where each row of a strip begins among its entries, and where the last one ends."""
        return self.matrix.indptr[strip.rows.start : strip.rows.stop + 1] - strip.entries.start


def cut_strips(matrix: scipy.sparse.csr_array, size: int) -> list[Strip]:
    """Cut all rows of S into strips with about equally many nonzeros. No strip reaches into two blocks."""
    num_words, indptr = matrix.shape[0], matrix.indptr
    blocks = np.append(np.arange(0, num_words, size), num_words)
    bounds = np.union1d(blocks, np.searchsorted(indptr, np.arange(0, matrix.nnz, STRIP_NONZEROS))).tolist()
    return [
        Strip(block=a // size, rows=slice(a, b), entries=slice(int(indptr[a]), int(indptr[b])))
        for a, b in itertools.pairwise(bounds)
    ]


def choose_tiles(
    matrix: scipy.sparse.csr_array,
    strips: list[Strip],
    *,
    size: int,
    cells_per_nonzero: float,
    max_tiles: int,
) -> Tiling:
    """Choose the blocks of S that are faster as tiles.

    Args:
      matrix: S, symmetric.
      strips: all strips of S, from `cut_strips`.
      size: rows and columns of a block.
      cells_per_nonzero: how many cells of a tile take as long as one nonzero elsewhere. A cell also serves
        its mirror image.
      max_tiles: the largest number of tiles. If more blocks qualify, the densest ones are chosen.
    """
    num_blocks = -(-matrix.shape[0] // size)

    def dense_blocks(strips: list[Strip]) -> tuple[np.ndarray, np.ndarray]:
        """Return the blocks of a block of rows that are faster as tiles, and their nonzeros."""
        block = strips[0].block
        counts = np.zeros(num_blocks, np.int64)
        for strip in strips:
            counts += np.bincount(matrix.indices[strip.entries] // size, minlength=num_blocks)
        counts[block + 1 :] *= 2  # the mirror image; a block on the diagonal is its own
        found = block + np.flatnonzero(counts[block:] * cells_per_nonzero > size * size)
        return found, counts[found]

    strips_of_blocks = [list(strips) for _, strips in itertools.groupby(strips, lambda strip: strip.block)]
    found = [blocks for _, blocks in in_order(dense_blocks, strips_of_blocks)]
    rows = np.repeat(np.arange(num_blocks), [columns.size for columns, _ in found])
    columns, counts = (np.concatenate(column) for column in zip(*found, strict=True))
    best = np.sort(np.argsort(-counts, kind="stable")[:max_tiles])
    return Tiling(
        matrix=matrix, size=size, rows=rows[best], columns=columns[best], num_nonzeros=int(counts[best].sum())
    )

"""S as a sparse matrix enters; which square blocks of it are dense enough to be tiles leaves.

S is looked at in strips, a few rows at a time, so that all cores can and none of them needs much memory.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from dcdjax.parallel import in_order

# Nonzeros of a strip, about.
_AT_A_TIME = 1 << 17


@dataclass(frozen=True)
class Strip:
    """Some rows of a block of rows.

    Attributes:
      block: of which rows.
      rows: from, to.
      entries: of the sparse matrix, from, to.
    """

    block: int
    rows: slice
    entries: slice


@dataclass(frozen=True)
class Tiling:
    """S in square blocks, some of which are to be tiles.

    Attributes:
      matrix: S.
      size: of a block. The last ones may be smaller.
      rows: the block of rows of each tile, ascending.
      columns: its block of columns, on the diagonal or to the right of it: a tile is also its mirror image.
      num_nonzeros: of S in tiles, mirror images included.
    """

    matrix: scipy.sparse.csr_array
    size: int
    rows: np.ndarray
    columns: np.ndarray
    num_nonzeros: int

    @property
    def num_blocks(self) -> int:
        """Of rows, as of columns."""
        return -(-self.matrix.shape[0] // self.size)

    @property
    def firsts(self) -> np.ndarray:
        """The first row of a tile in each block: a tile is of full size, so the last one begins earlier."""
        firsts = np.arange(self.num_blocks, dtype=np.int32) * self.size
        return np.minimum(firsts, self.matrix.shape[0] - self.size)

    def rest(self, strip: Strip) -> tuple[Any, np.ndarray]:
        """Which nonzeros of a strip are in no tile nor its image, and how many of those each row has."""
        dense = np.zeros(self.num_blocks, bool)
        dense[self.columns[self.rows == strip.block]] = True
        dense[self.rows[self.columns == strip.block]] = True
        begins = self._begins(strip)
        if not dense.any():
            return slice(None), np.diff(begins)
        left = np.flatnonzero(~dense[self.matrix.indices[strip.entries] // self.size])
        return left, np.diff(np.searchsorted(left, begins))

    def tiled(self, strip: Strip) -> tuple[np.ndarray, np.ndarray]:
        """Which nonzeros of a strip are in its own tiles, and the cell of each, counted through all tiles."""
        own = np.flatnonzero(self.rows == strip.block)
        if not own.size:
            return own, own
        number = np.full(self.num_blocks, -1)
        number[self.columns[own]] = own
        columns = self.matrix.indices[strip.entries]
        found = np.flatnonzero((number >= 0)[columns // self.size])
        rows = np.arange(strip.rows.start, strip.rows.stop) - self.firsts[strip.block]
        cells = np.repeat(rows * self.size, np.diff(np.searchsorted(found, self._begins(strip))))
        cells += (number * self.size**2 - self.firsts)[columns[found] // self.size]
        cells += columns[found]
        return found, cells

    def _begins(self, strip: Strip) -> np.ndarray:
        """Where each row of a strip begins, and the last one ends, in its entries."""
        return self.matrix.indptr[strip.rows.start : strip.rows.stop + 1] - strip.entries.start


def cut(matrix: scipy.sparse.csr_array, size: int) -> list[Strip]:
    """All rows of S, none of them in two blocks, in strips of about as many nonzeros."""
    num_words, indptr = matrix.shape[0], matrix.indptr
    blocks = np.append(np.arange(0, num_words, size), num_words)
    bounds = np.union1d(blocks, np.searchsorted(indptr, np.arange(0, matrix.nnz, _AT_A_TIME))).tolist()
    return [
        Strip(block=a // size, rows=slice(a, b), entries=slice(int(indptr[a]), int(indptr[b])))
        for a, b in itertools.pairwise(bounds)
    ]


def choose(
    matrix: scipy.sparse.csr_array,
    strips: list[Strip],
    *,
    size: int,
    cells_per_nonzero: float,
    most: int,
) -> Tiling:
    """Finds the blocks that are worth it.

    Args:
      matrix: S, symmetric.
      strips: all of it, from `cut`.
      size: of a block.
      cells_per_nonzero: how many cells of a tile, each used for itself and its mirror image, take as long as
        one nonzero elsewhere.
      most: that there may be; the best ones then.

    Returns:
      The tiles.
    """
    num_blocks = -(-matrix.shape[0] // size)

    def promising(strips: list[Strip]) -> tuple[np.ndarray, np.ndarray]:
        """Which blocks of a block of rows, from the diagonal on, gain by it, and their nonzeros."""
        block = strips[0].block
        counts = np.zeros(num_blocks, np.int64)
        for strip in strips:
            counts += np.bincount(matrix.indices[strip.entries] // size, minlength=num_blocks)
        counts[block + 1 :] *= 2  # with the mirror image, which is itself on the diagonal
        found = block + np.flatnonzero(counts[block:] * cells_per_nonzero > size * size)
        return found, counts[found]

    of_blocks = [list(strips) for _, strips in itertools.groupby(strips, lambda strip: strip.block)]
    found = [blocks for _, blocks in in_order(promising, of_blocks)]
    rows = np.repeat(np.arange(num_blocks), [columns.size for columns, _ in found])
    columns, counts = (np.concatenate(of_all) for of_all in zip(*found, strict=True))
    best = np.sort(np.argsort(-counts, kind="stable")[:most])
    return Tiling(
        matrix=matrix,
        size=size,
        rows=rows[best],
        columns=columns[best],
        num_nonzeros=int(counts[best].sum()),
    )

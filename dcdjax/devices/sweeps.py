"""Pass over S once: compute what `decomposition.sweep` does, but fast, from a positive W and a layout of S.

    Shat_ij = sum_k W_ik W_jk / s_k,    Z_ij = S_ij / Shat_ij,    ZW,    sum_ij S_ij log Shat_ij

With Z = S the pass is the product S W, which the spectrum of S needs. Other divergences than the paper's have
another Z. Each kind of piece (tiles, segments, nonzeros) has its own loop, and the results of all pieces and
devices are summed.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from dcdjax.devices import native, sharding
from dcdjax.devices.layout import Layout, Nonzeros
from dcdjax.devices.packing import Segments, Tiles
from dcdjax.method import decomposition
from dcdjax.method.decomposition import Entries, Sweep, Weights, likelihood

# GPUs and TPUs round factors for speed by default. That is too coarse here: Z is large where Shat is small.
_PRECISION = lax.Precision.HIGHEST


def sweep(W: Weights, layout: Layout, entries: Entries = likelihood) -> Sweep:
    """Compute ZW and sum S log Shat in one pass over S. W is replicated or split as the layout says.

    Args:
      W: positive.
      layout: S on its devices.
      entries: computes Z and the terms of the sum from S and Shat. Any function but the default runs in XLA,
        and needs a layout without tiles, because tiles hold halves of S on the diagonal.
    """
    if entries is not likelihood and any(isinstance(piece, Tiles) for piece in layout.pieces):
        raise ValueError("S has tiles, which only the likelihood can use")
    return _one_pass(W, layout, entries)


def product(X: Float[Array, "words columns"], layout: Layout) -> Float[Array, "words columns"]:
    """Compute S X, for S divided by its scale."""
    return _one_pass(X, layout, _plain).ZW


def _plain(S: Array, _: Array) -> tuple[Array, Array]:
    """Return Z = S and no terms. XLA leaves out Shat, because nothing uses it."""
    return S, jnp.zeros_like(S)


def zeros(W: Weights) -> Sweep:
    """Return the result of a pass over nothing."""
    return Sweep(ZW=jnp.zeros_like(W), log_likelihood=jnp.zeros((), W.dtype))


def _one_pass(W: Weights, layout: Layout, entries: Entries) -> Sweep:
    # The loops gather rows of W without a check of their own.
    num_rows = layout.num_words if layout.row_split is None else layout.row_split.num_rows
    if W.shape[0] != num_rows:
        raise ValueError(f"W must have {num_rows} rows as S has them, got {W.shape[0]}")
    if layout.row_split is not None:
        return _ring_sweep(W, layout, entries)

    def local(W: Array, pieces: tuple[Tiles | Segments, ...]) -> Sweep:
        W_over_s, sums = W / jnp.sum(W, axis=0, keepdims=True), zeros(W)
        # Segments first: the native kernel makes a new ZW, to which the tiles are then added.
        for piece in sorted(pieces, key=lambda piece: isinstance(piece, Tiles)):
            if isinstance(piece, Tiles):
                sums = _add_tiles(sums, W, W_over_s, piece, entries)
            else:
                sums = _sweep_segments(sums, W, W_over_s, piece, layout, entries)
        return sums

    whole = [piece for piece in layout.pieces if isinstance(piece, Nonzeros)]
    split = tuple(piece for piece in layout.pieces if not isinstance(piece, Nonzeros))
    results = [decomposition.sweep(W, piece.S_idx, piece.S_val, entries) for piece in whole]
    if split:
        results.append(sharding.sum_over_devices(local, layout.mesh, W, split))
    return jax.tree.map(lambda *parts: functools.reduce(operator.add, parts), *results)


def _ring_sweep(W: Float[Array, "rows topics"], layout: Layout, entries: Entries) -> Sweep:
    """Pass over S for a W that is split. Each device has the rows of S of its own words."""
    assert layout.mesh is not None
    (segments,) = layout.pieces

    def one_round(sums: Any, W_over_s: Array, block: Array, piece: Segments) -> tuple[Array, Array]:
        found = _sweep_segments(Sweep(*sums), block, W_over_s, piece, layout, entries)
        if _is_native(layout, entries):  # the kernel does not add to what is there
            return sums[0] + found.ZW, sums[1] + found.log_likelihood
        return found.ZW, found.log_likelihood

    W_over_s = W / jnp.sum(W, axis=0, keepdims=True)
    return Sweep(*sharding.ring_reduce(one_round, layout.mesh, W_over_s, W, segments))


def _is_native(layout: Layout, entries: Entries) -> bool:
    return layout.num_threads > 0 and entries in (likelihood, _plain)


def _sweep_segments(
    sums: Sweep, W: Array, W_over_s: Array, piece: Any, layout: Layout, entries: Entries
) -> Sweep:
    if not _is_native(layout, entries):
        return add_segments(sums, W, W_over_s, piece, layout.kind.block_bytes, entries)
    arrays = (piece.parts, piece.rows, piece.columns, piece.values)
    factor = W_over_s if entries is likelihood else None
    return Sweep(*native.segments_pass(W, factor, *arrays, num_threads=layout.num_threads))


def _add_tiles(sums: Sweep, W: Array, W_over_s: Array, tiles: Any, entries: Entries) -> Sweep:
    """Add the tiles one at a time. A tile holds S_ij as a matrix for words i of one block, j of another."""
    size = tiles.values.shape[1]

    def add(ZW: Array, first: Array, more: Array) -> Array:
        more = lax.dynamic_slice_in_dim(ZW, first, size) + more
        return lax.dynamic_update_slice_in_dim(ZW, more, first, axis=0)

    def one(ZW: Array, tile: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        i, j, S = tile
        W_i, W_j = (lax.dynamic_slice_in_dim(W, first, size) for first in (i, j))
        W_i_over_s = lax.dynamic_slice_in_dim(W_over_s, i, size)
        Shat = jnp.matmul(W_i_over_s, W_j.T, precision=_PRECISION)
        Z, terms = (jnp.where(S > 0, each, 0) for each in entries(S, Shat))
        # The transpose is stored: a product that reads Z across its rows takes twice as long.
        Z_mirrored = lax.optimization_barrier(Z.T)
        ZW = add(ZW, i, jnp.matmul(Z, W_j, precision=_PRECISION))
        ZW = add(ZW, j, jnp.matmul(Z_mirrored, W_i, precision=_PRECISION))
        # Doubled, because the mirror image has the same S and Shat.
        return ZW, 2 * jnp.sum(terms)

    ZW, log_likelihoods = lax.scan(one, sums.ZW, (tiles.rows, tiles.columns, tiles.values))
    return Sweep(ZW=ZW, log_likelihood=sums.log_likelihood + jnp.sum(log_likelihoods))


def add_segments(
    sums: Sweep, W: Array, W_over_s: Array, segments: Any, block_bytes: int, entries: Entries
) -> Sweep:
    """Add a block of segments at a time. Their rows of W are gathered once for both products."""
    num_segments, width = segments.columns.shape
    block = min(num_segments, max(1, block_bytes // (width * W.shape[1] * W.dtype.itemsize)))

    def one(ZW: Array, first: Array) -> tuple[Array, Array]:
        # The last block begins earlier to be full. What it shares with the block before is set to zero.
        begin = jnp.minimum(first, num_segments - block)
        i, j, S = (
            lax.dynamic_slice_in_dim(array, begin, block)
            for array in (segments.rows, segments.columns, segments.values)
        )
        repeated = begin + jnp.arange(block, dtype=begin.dtype) < first
        S = jnp.where(repeated[:, None], 0, S)
        W_j = W.at[j].get(mode="promise_in_bounds")
        W_i_over_s = W_over_s.at[i].get(mode="promise_in_bounds")
        Shat = jnp.einsum("nk,njk->nj", W_i_over_s, W_j, precision=_PRECISION)
        Z, terms = entries(S, Shat)
        ZW = ZW.at[i].add(jnp.einsum("nj,njk->nk", Z, W_j, precision=_PRECISION), mode="promise_in_bounds")
        return ZW, jnp.sum(terms)

    firsts = jnp.arange(0, num_segments, block, dtype=jnp.int32)
    ZW, log_likelihoods = lax.scan(one, sums.ZW, firsts)
    return Sweep(ZW=ZW, log_likelihood=sums.log_likelihood + jnp.sum(log_likelihoods))

"""A positive W and a layout of S enter; what one pass over S yields leaves: `decomposition.sweep`, but fast.

    Shat_ij = sum_k W_ik W_jk / s_k,    Z_ij = S_ij / Shat_ij,    ZW,    sum_ij S_ij log Shat_ij

Each kind of piece has its way over its nonzeros; the pieces of all devices add up.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from dcdjax import decomposition, native, sharding
from dcdjax.decomposition import Sweep
from dcdjax.layout import Layout, Nonzeros, Segments, Tiles

# Factors are not to be rounded, as a GPU and a TPU would for speed: Z may be large where Shat is small.
_EXACTLY = lax.Precision.HIGHEST


def sweep(W: Float[Array, "words topics"], layout: Layout) -> Sweep:
    """One pass over S: (ZW, sum S log Shat), the same on all devices."""
    whole = [piece for piece in layout.pieces if isinstance(piece, Nonzeros)]
    split = tuple(piece for piece in layout.pieces if not isinstance(piece, Nonzeros))
    sums = [decomposition.sweep(W, piece.S_idx, piece.S_val) for piece in whole]

    def own(W: Array, pieces: tuple[Tiles | Segments, ...]) -> Sweep:
        W_over_s = W / jnp.sum(W, axis=0, keepdims=True)
        so_far = Sweep(ZW=jnp.zeros_like(W), log_likelihood=jnp.zeros((), W.dtype))
        # Segments first: the native kernel begins with a ZW of its own, to which tiles are then added.
        for piece in sorted(pieces, key=lambda piece: isinstance(piece, Tiles)):
            if isinstance(piece, Tiles):
                so_far = _add_tiles(so_far, W, W_over_s, piece)
            elif layout.num_threads:
                ZW, log_likelihood = native.segments_pass(
                    W, W_over_s, piece.parts, piece.rows, piece.columns, piece.values,
                    num_threads=layout.num_threads,
                )  # fmt: skip
                so_far = Sweep(ZW=ZW, log_likelihood=log_likelihood)
            else:
                so_far = _add_segments(so_far, W, W_over_s, piece, layout.kind.block_bytes)
        return so_far

    if split:
        sums.append(sharding.summed(own, layout.mesh, W, split))
    total = sums[0]
    for more in sums[1:]:
        total = Sweep(ZW=total.ZW + more.ZW, log_likelihood=total.log_likelihood + more.log_likelihood)
    return total


def _add_tiles(so_far: Sweep, W: Array, W_over_s: Array, tiles: Any) -> Sweep:
    """A tile at a time: S_ij as a matrix, for words i of one block and words j of another."""
    size = tiles.values.shape[1]

    def add(ZW: Array, first: Array, more: Array) -> Array:
        more = lax.dynamic_slice_in_dim(ZW, first, size) + more
        return lax.dynamic_update_slice_in_dim(ZW, more, first, axis=0)

    def one(ZW: Array, tile: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        i, j, S = tile
        W_i, W_i_over_s = (lax.dynamic_slice_in_dim(array, i, size) for array in (W, W_over_s))
        W_j = lax.dynamic_slice_in_dim(W, j, size)
        Shat = jnp.matmul(W_i_over_s, W_j.T, precision=_EXACTLY)
        Z = jnp.where(S > 0, S / Shat, 0)
        # Laid out anew for the mirror image: a product that reads Z across its rows takes twice as long.
        Z_mirrored = lax.optimization_barrier(Z.T)
        ZW = add(ZW, i, jnp.matmul(Z, W_j, precision=_EXACTLY))
        ZW = add(ZW, j, jnp.matmul(Z_mirrored, W_i, precision=_EXACTLY))
        # Twice: the mirror image has the same S and the same Shat.
        return ZW, 2 * jnp.sum(jnp.where(S > 0, S * jnp.log(Shat), 0))

    ZW, log_likelihoods = lax.scan(one, so_far.ZW, (tiles.rows, tiles.columns, tiles.values))
    return Sweep(ZW=ZW, log_likelihood=so_far.log_likelihood + jnp.sum(log_likelihoods))


def _add_segments(so_far: Sweep, W: Array, W_over_s: Array, segments: Any, block_bytes: int) -> Sweep:
    """A block of segments at a time, whose rows of W are gathered once for both products."""
    num_segments, width = segments.columns.shape
    block = min(num_segments, max(1, block_bytes // (width * W.shape[1] * W.dtype.itemsize)))

    def one(ZW: Array, first: Array) -> tuple[Array, Array]:
        # The last block begins earlier to be full, and leaves out what it has in common with the one before.
        begin = jnp.minimum(first, num_segments - block)
        i, j, S = (
            lax.dynamic_slice_in_dim(array, begin, block)
            for array in (segments.rows, segments.columns, segments.values)
        )
        again = begin + jnp.arange(block, dtype=begin.dtype) < first
        S = jnp.where(again[:, None], 0, S)
        W_j = W.at[j].get(mode="promise_in_bounds")
        W_i_over_s = W_over_s.at[i].get(mode="promise_in_bounds")
        Shat = jnp.einsum("nk,njk->nj", W_i_over_s, W_j, precision=_EXACTLY)
        Z = S / Shat
        ZW = ZW.at[i].add(jnp.einsum("nj,njk->nk", Z, W_j, precision=_EXACTLY), mode="promise_in_bounds")
        return ZW, jnp.sum(S * jnp.log(Shat))

    firsts = jnp.arange(0, num_segments, block, dtype=jnp.int32)
    ZW, log_likelihoods = lax.scan(one, so_far.ZW, firsts)
    return Sweep(ZW=ZW, log_likelihood=so_far.log_likelihood + jnp.sum(log_likelihoods))

"""A positive W and a layout of S enter; what one pass over S yields leaves: `decomposition.sweep`, but fast.

    Shat_ij = sum_k W_ik W_jk / s_k,    Z_ij = S_ij / Shat_ij,    ZW,    sum_ij S_ij log Shat_ij

With S itself for Z it is a product, for those who want the spectrum of S; another divergence than the paper's
has another Z. Each kind of piece has its way over its nonzeros; the pieces of all devices add up.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from dcdjax import decomposition, native, sharding
from dcdjax.decomposition import Sweep
from dcdjax.layout import Layout, Nonzeros, Segments, Tiles

# Factors are not to be rounded, as a GPU and a TPU would for speed: Z may be large where Shat is small.
_EXACTLY = lax.Precision.HIGHEST


# S and Shat of some entries -> Z, and what each adds to the number that a sweep sums up.
Entries = Callable[[Array, Array], tuple[Array, Array]]


def _likelihood(S: Array, Shat: Array) -> tuple[Array, Array]:
    return S / Shat, S * jnp.log(Shat)


def sweep(W: Float[Array, "words topics"], layout: Layout, entries: Entries = _likelihood) -> Sweep:
    """One pass over S: (ZW, sum S log Shat), the same on all devices.

    Other `entries` than those of the likelihood make something else of it, by XLA and where there are no
    tiles: these hold halves of S on the diagonal.
    """
    if entries is not _likelihood and any(isinstance(piece, Tiles) for piece in layout.pieces):
        raise ValueError("S has tiles, of which only the likelihood can be summed")
    return _swept(W, layout, entries)


def product(X: Float[Array, "words columns"], layout: Layout) -> Float[Array, "words columns"]:
    """S X, of the scaled S, the same on all devices."""
    return _swept(X, layout, None).ZW


def _swept(W: Float[Array, "words topics"], layout: Layout, entries: Entries | None) -> Sweep:
    """A pass; that of a product has S itself for Z, and no likelihood."""
    if layout.deal is not None:
        return _around(W, layout, entries)

    def own(W: Array, pieces: tuple[Tiles | Segments, ...]) -> Sweep:
        W_over_s = _over_s(W, entries)
        so_far = Sweep(ZW=jnp.zeros_like(W), log_likelihood=jnp.zeros((), W.dtype))
        # Segments first: the native kernel begins with a ZW of its own, to which tiles are then added.
        for piece in sorted(pieces, key=lambda piece: isinstance(piece, Tiles)):
            if isinstance(piece, Tiles):
                so_far = _add_tiles(so_far, W, W_over_s, piece)
            else:
                so_far = _of_segments(so_far, W, W_over_s, piece, layout, entries)
        return so_far

    whole = [piece for piece in layout.pieces if isinstance(piece, Nonzeros)]
    split = tuple(piece for piece in layout.pieces if not isinstance(piece, Nonzeros))
    sums = [_of_nonzeros(W, piece, layout, entries) for piece in whole]
    if split:
        sums.append(sharding.summed(own, layout.mesh, W, split))
    total = sums[0]
    for more in sums[1:]:
        total = Sweep(ZW=total.ZW + more.ZW, log_likelihood=total.log_likelihood + more.log_likelihood)
    return total


def _over_s(W: Array, entries: Entries | None) -> Array | None:
    return None if entries is None else W / jnp.sum(W, axis=0, keepdims=True)


def _around(W: Float[Array, "rows topics"], layout: Layout, entries: Entries | None) -> Sweep:
    """A pass of a W that is split: each device has the nonzeros of its own words with those of all."""
    assert layout.mesh is not None
    (segments,) = layout.pieces

    def met(so_far: Any, W_over_s: Array | None, theirs: Array, piece: Segments) -> tuple[Array, Array]:
        found = _of_segments(Sweep(*so_far), theirs, W_over_s, piece, layout, entries)
        if _is_native(layout, entries):  # the kernel begins anew each time
            return so_far[0] + found.ZW, so_far[1] + found.log_likelihood
        return found.ZW, found.log_likelihood

    W_over_s = _over_s(W, entries)
    ZW, log_likelihood = sharding.around(met, layout.mesh, W_over_s, W, segments)
    return Sweep(ZW=ZW, log_likelihood=log_likelihood)


def _is_native(layout: Layout, entries: Entries | None) -> bool:
    return layout.num_threads > 0 and entries in (_likelihood, None)


def _of_segments(
    so_far: Sweep, W: Array, W_over_s: Array | None, piece: Any, layout: Layout, entries: Entries | None
) -> Sweep:
    if not _is_native(layout, entries):
        return _add_segments(so_far, W, W_over_s, piece, layout.kind.block_bytes, entries)
    ZW, log_likelihood = native.segments_pass(
        W, W_over_s, piece.parts, piece.rows, piece.columns, piece.values, num_threads=layout.num_threads
    )
    return Sweep(ZW=ZW, log_likelihood=log_likelihood)  # with which a pass begins


def _of_nonzeros(W: Array, piece: Nonzeros, layout: Layout, entries: Entries | None) -> Sweep:
    if entries is _likelihood:
        return decomposition.sweep(W, piece.S_idx, piece.S_val)
    alone = Segments(
        parts=jnp.zeros(1, jnp.int32),
        rows=piece.S_idx[:, 0],
        columns=piece.S_idx[:, 1:],
        values=piece.S_val[:, None],
    )
    nothing = Sweep(ZW=jnp.zeros_like(W), log_likelihood=jnp.zeros((), W.dtype))
    return _add_segments(nothing, W, _over_s(W, entries), alone, layout.kind.block_bytes, entries)


def _add_tiles(so_far: Sweep, W: Array, W_over_s: Array | None, tiles: Any) -> Sweep:
    """A tile at a time: S_ij as a matrix, for words i of one block and words j of another."""
    size = tiles.values.shape[1]

    def add(ZW: Array, first: Array, more: Array) -> Array:
        more = lax.dynamic_slice_in_dim(ZW, first, size) + more
        return lax.dynamic_update_slice_in_dim(ZW, more, first, axis=0)

    def one(ZW: Array, tile: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        i, j, S = tile
        W_i, W_j = (lax.dynamic_slice_in_dim(W, first, size) for first in (i, j))
        if W_over_s is None:
            Z, terms = S, jnp.zeros((), W.dtype)
        else:
            W_i_over_s = lax.dynamic_slice_in_dim(W_over_s, i, size)
            Shat = jnp.matmul(W_i_over_s, W_j.T, precision=_EXACTLY)
            Z, terms = (jnp.where(S > 0, each, 0) for each in _likelihood(S, Shat))
        # Laid out anew for the mirror image: a product that reads Z across its rows takes twice as long.
        Z_mirrored = lax.optimization_barrier(Z.T)
        ZW = add(ZW, i, jnp.matmul(Z, W_j, precision=_EXACTLY))
        ZW = add(ZW, j, jnp.matmul(Z_mirrored, W_i, precision=_EXACTLY))
        # Twice: the mirror image has the same S and the same Shat.
        return ZW, 2 * jnp.sum(terms)

    ZW, log_likelihoods = lax.scan(one, so_far.ZW, (tiles.rows, tiles.columns, tiles.values))
    return Sweep(ZW=ZW, log_likelihood=so_far.log_likelihood + jnp.sum(log_likelihoods))


def _add_segments(
    so_far: Sweep, W: Array, W_over_s: Array | None, segments: Any, block_bytes: int, entries: Entries | None
) -> Sweep:
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
        if W_over_s is None or entries is None:
            Z, terms = S, jnp.zeros((), W.dtype)
        else:
            W_i_over_s = W_over_s.at[i].get(mode="promise_in_bounds")
            Shat = jnp.einsum("nk,njk->nj", W_i_over_s, W_j, precision=_EXACTLY)
            Z, terms = entries(S, Shat)
        ZW = ZW.at[i].add(jnp.einsum("nj,njk->nk", Z, W_j, precision=_EXACTLY), mode="promise_in_bounds")
        return ZW, jnp.sum(terms)

    firsts = jnp.arange(0, num_segments, block, dtype=jnp.int32)
    ZW, log_likelihoods = lax.scan(one, so_far.ZW, firsts)
    return Sweep(ZW=ZW, log_likelihood=so_far.log_likelihood + jnp.sum(log_likelihoods))

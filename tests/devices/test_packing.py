"""Tiles and segments hold every nonzero of S once, and tiles only where S is dense."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from problems import random_S

from dcdjax.devices import packing


def pack(S, **options):
    usual = {"divisor": 1.0, "dtype": np.dtype(np.float64), "tile_size": 4, "cells_per_nonzero": 2.0}
    return packing.pack(scipy.sparse.csr_array(S), **{**usual, "num_parts": 1, **options})


def unpack(tiles, segments, num_words):
    S = np.zeros((num_words, num_words))
    size = tiles.values.shape[1]
    for i, j, tile in zip(tiles.rows, tiles.columns, tiles.values, strict=True):
        S[i : i + size, j : j + size] += tile
        S[j : j + size, i : i + size] += tile.T
    np.add.at(S, (np.broadcast_to(segments.rows[:, None], segments.columns.shape), segments.columns),
              segments.values)  # fmt: skip
    return S


sizes = st.integers(1, 40)


@given(
    num_words=sizes,
    density=st.sampled_from([0.05, 0.3, 1.0]),
    tile_size=st.integers(1, 50),
    cells=st.sampled_from([0.0, 0.6, 2.0, 30.0]),
    num_parts=st.integers(1, 5),
    num_shares=st.integers(1, 3),
)
def test_every_nonzero_once(num_words, density, tile_size, cells, num_parts, num_shares):
    S = random_S(np.random.default_rng(num_words), num_words, density)
    options = {"tile_size": tile_size, "cells_per_nonzero": cells, "num_parts": num_parts * num_shares}
    tiles, segments = pack(S, **options)
    np.testing.assert_allclose(unpack(tiles, segments, num_words), S, rtol=1e-15)
    if cells == 0:
        assert not tiles.rows.size
    assert (tiles.rows + tiles.values.shape[1] <= num_words).all()

    # No row in two parts, and the parts are all of it.
    assert (segments.parts[0], segments.parts[-1]) == (0, segments.rows.size)
    rows = [set(segments.rows[a:b]) for a, b in zip(segments.parts, segments.parts[1:], strict=False)]
    assert sum(map(len, rows)) == len(set().union(*rows))

    tile_shares = packing.share_tiles(tiles, num_shares)
    segment_shares = packing.share_segments(segments, num_shares)
    total = sum(unpack(*shares, num_words) for shares in zip(tile_shares, segment_shares, strict=True))
    np.testing.assert_allclose(total, S, rtol=1e-15)
    assert len({share.values.shape for share in tile_shares}) == 1
    assert len({(share.values.shape, share.parts.shape) for share in segment_shares}) == 1
    for share in segment_shares:
        # What is outside of all parts is empty: the native kernel does not see it.
        assert not share.values[share.parts[-1] :].any()
        assert share.parts[0] == 0


@pytest.mark.parametrize("num_segments", [3, 33, 3333, 333333])
def test_padded_shares_begin_where_jax_takes_them_over(num_segments):
    segments = packing.Segments(
        parts=np.array([0, num_segments // 3, num_segments], np.int32),
        rows=np.arange(num_segments, dtype=np.int32),
        columns=np.zeros((num_segments, 16), np.int32),
        values=np.ones((num_segments, 16), np.float32),
    )
    short, _ = packing.share_segments(segments, 2)
    assert short.values.sum() == num_segments // 3 * 16
    for array in (short.rows, short.columns, short.values):
        assert isinstance(array, np.ndarray)
        assert array.ctypes.data % 64 == 0


def test_tiles_are_where_S_is_dense():
    S = np.zeros((12, 12))
    S[:4, :4] = S[:4, 4:8] = S[4:8, :4] = 1.0
    S[8:, 8:] = np.eye(4)
    S[4:8, 4:8] = np.eye(4)
    tiles, segments = pack(S)
    assert list(zip(tiles.rows.tolist(), tiles.columns.tolist(), strict=True)) == [(0, 0), (0, 4)]
    assert sorted(set(segments.rows.tolist())) == list(range(4, 12))
    # A tile off the diagonal serves for two, so it pays at half the density of one on it.
    for density, expected in ((0.2, []), (0.3, [(0, 4)]), (0.6, [(0, 0), (0, 4)])):
        many = round(16 * density)
        block = (np.arange(16).reshape(4, 4) < many).astype(float)
        S[:4, :4], S[:4, 4:8], S[4:8, :4] = (
            np.maximum(block, block.T) if many > 9 else block * block.T,
            block,
            block.T,
        )
        tiles, _ = pack(S)
        assert list(zip(tiles.rows.tolist(), tiles.columns.tolist(), strict=True)) == expected


def test_tiles_take_no_more_memory_than_S(monkeypatch):
    monkeypatch.setattr(packing, "MIN_TILE_BYTES", 0)
    S = scipy.sparse.csr_array(np.kron(np.eye(20), np.ones((4, 4))) + np.eye(80, k=40) + np.eye(80, k=-40))
    tiles, segments = pack(S, cells_per_nonzero=1e6)
    assert 0 < tiles.values.nbytes <= S.nnz * 12
    np.testing.assert_array_equal(unpack(tiles, segments, 80), S.toarray())
    # The best ones first: those on the diagonal are full, of the others some did not fit.
    assert (tiles.rows == tiles.columns).sum() == 20
    assert tiles.rows.size < 40


def test_values_are_divided():
    S = random_S(np.random.default_rng(0), 20)
    tiles, segments = pack(S, divisor=10.0, dtype=np.dtype(np.float32))
    assert tiles.values.dtype == segments.values.dtype == np.float32
    np.testing.assert_allclose(unpack(tiles, segments, 20), S / 10, rtol=1e-6)


def test_segments_follow_windows(monkeypatch):
    monkeypatch.setattr(packing, "WINDOW", 32)
    S = random_S(np.random.default_rng(0), 400, density=0.2)
    _, segments = pack(S, cells_per_nonzero=0.0, num_parts=3)
    for a, b in zip(segments.parts, segments.parts[1:], strict=False):
        window = segments.columns[a:b, segments.columns.shape[1] // 2] // 32
        assert (np.diff(window) >= 0).all()
        same = np.diff(window) == 0
        assert (np.diff(segments.rows[a:b])[same] >= 0).all()
    lengths = np.diff(segments.parts)
    assert lengths.max() - lengths.min() < lengths.mean() / 5


def test_many_words_with_few_neighbors(monkeypatch):
    """A graph of nearest neighbors: neither blocks nor padding may take more than it does."""
    monkeypatch.setenv("DCDJAX_CORES", "2")  # each needs some memory
    N = 60_000
    rng = np.random.default_rng(0)
    S = scipy.sparse.coo_array(
        (np.ones(3 * N), (np.tile(np.arange(N), 3), rng.integers(0, N, 3 * N))), (N, N)
    )
    S = (S + S.T).tocsr()
    tracemalloc.start()
    tiles, segments = pack(S, tile_size=64)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert segments.columns.shape[1] == 4
    assert most < 2 * (S.data.nbytes + S.indices.nbytes + S.indptr.nbytes)
    rows = np.repeat(segments.rows, 4)
    got = scipy.sparse.coo_array((segments.values.reshape(-1), (rows, segments.columns.reshape(-1))), (N, N))
    assert not tiles.rows.size
    assert abs(got - S).max() == 0


def test_a_small_S_has_tiles_too():
    tiles, _ = pack(random_S(np.random.default_rng(0), 257, 0.6), tile_size=256, cells_per_nonzero=5.0)
    assert tiles.rows.size > 0


def test_wide_indices():
    S: Any = scipy.sparse.csr_array(random_S(np.random.default_rng(0), 20))
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    tiles, segments = pack(S)
    assert tiles.rows.dtype == segments.columns.dtype == np.int32
    np.testing.assert_array_equal(unpack(tiles, segments, 20), S.toarray())


@pytest.mark.parametrize("num_words", [1, 5])
def test_all_in_tiles_or_all_in_segments(num_words):
    S = np.ones((num_words, num_words))
    tiles, segments = pack(S, cells_per_nonzero=1e3, tile_size=256)
    assert tiles.values.shape == (1, num_words, num_words)
    assert segments.rows.size == 0
    np.testing.assert_array_equal(unpack(tiles, segments, num_words), S)


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 30), ("rows", -1), ("columns", 30), ("columns", -1), ("parts", 10**6), ("parts", -1)],
)
def test_indices_outside_of_W_are_refused(name, value):
    tiles, segments = pack(random_S(np.random.default_rng(7), 30, 0.3))
    assert tiles.rows.size
    assert segments.rows.size
    for piece in (tiles, segments):
        packing.check_indices(piece, 30)
        with pytest.raises(ValueError, match="S is laid out wrongly: its "):
            packing.check_indices(piece, 29)
        if hasattr(piece, name):
            getattr(piece, name)[..., -1] = value
            with pytest.raises(ValueError, match=f"S is laid out wrongly: its {name}"):
                packing.check_indices(piece, 30)

"""However S is laid out, a pass over it gives what the plain pass and the oracle give."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse
from problems import TOLERANCES, assert_same_sweep, mixed_S, pair, random_S, random_W, slow

from dcdjax import prepare
from dcdjax.devices import layout, native, sweeps
from dcdjax.devices.layout import DeviceKind, Layout, Nonzeros
from dcdjax.devices.packing import Segments, Tiles
from dcdjax.method import decomposition


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("num_words", "num_topics"), [(1, 1), slow(7, 3), slow(61, 5), slow(64, 16), (100, 21)]
)
def test_a_pass_is_the_plain_pass(kernel, dtype, num_words, num_topics):
    rng = np.random.default_rng(num_words)
    S = mixed_S(rng, num_words)
    W = random_W(rng, num_words, num_topics).astype(dtype)
    laid_out = prepare(scipy.sparse.csr_array(S), dtype=dtype)
    assert laid_out.num_threads == 0 if kernel == "xla" else laid_out.num_threads >= 1
    if num_words > 50:
        assert {type(piece) for piece in laid_out.pieces} == {Tiles, Segments}
    got = jax.jit(sweeps.sweep)(jnp.asarray(W), laid_out)
    S_idx, S_val = pair(S / (S.sum() / num_words), dtype)
    assert_same_sweep(got, decomposition.sweep(jnp.asarray(W), S_idx, S_val), dtype)
    # And straight from the paper.
    scaled, exact = S / (S.sum() / num_words), W.astype(np.float64)
    Shat = oracle.shat(exact)
    np.testing.assert_allclose(got.ZW, np.divide(scaled, Shat) @ exact, rtol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("num_words", "num_columns"), [(1, 1), slow(7, 3), slow(61, 5), (100, 21)])
def test_a_product_is_the_product(kernel, dtype, num_words, num_columns):
    rng = np.random.default_rng(num_words)
    S = mixed_S(rng, num_words)
    X = rng.normal(size=(num_words, num_columns)).astype(dtype)
    laid_out = prepare(scipy.sparse.csr_array(S), dtype=dtype)
    got = jax.jit(sweeps.product)(jnp.asarray(X), laid_out)
    assert got.dtype == dtype
    scaled = S / (S.sum() / num_words)
    # Terms of both signs: relative to what is added up.
    bound = TOLERANCES[dtype] * (scaled @ np.abs(X)).max()
    np.testing.assert_allclose(got, scaled @ X, rtol=TOLERANCES[dtype], atol=bound)
    S_idx, S_val = pair(scaled, dtype)
    plain = Layout(pieces=(Nonzeros(S_idx=S_idx, S_val=S_val),), scale=laid_out.scale, num_words=num_words)
    np.testing.assert_allclose(sweeps.product(jnp.asarray(X), plain), scaled @ X, atol=bound)


@pytest.mark.parametrize(("tile_size", "cells"), [(3, 1.0), (8, 0.0), (8, 5.0), (30, 1e3)])
def test_where_S_is_cut_makes_no_difference(tile_size, cells):
    rng = np.random.default_rng(tile_size)
    S, W = mixed_S(rng, 30), jnp.asarray(random_W(rng, 30, 4))
    expected = decomposition.sweep(W, *pair(S / (S.sum() / 30)))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("xla", "native"):
            kind = DeviceKind(tile_size=tile_size, cells_per_nonzero=cells, block_bytes=500)
            patch.setitem(layout.DEVICE_KINDS, name, kind)
        for off in (False, True):
            if off:
                patch.setattr(native, "available", lambda: False)
            assert_same_sweep(
                sweeps.sweep(W, prepare(scipy.sparse.csr_array(S), dtype=np.float64)), expected, np.float64
            )


def test_pieces_of_several_kinds_add_up():
    rng = np.random.default_rng(0)
    S, W = mixed_S(rng, 40), jnp.asarray(random_W(rng, 40, 4))
    laid_out = prepare(scipy.sparse.csr_array(S), dtype=np.float64)
    S_idx, S_val = pair(S / (S.sum() / 40))
    both = dataclasses.replace(laid_out, pieces=(*laid_out.pieces, Nonzeros(S_idx=S_idx, S_val=S_val)))
    once, twice = sweeps.sweep(W, laid_out), sweeps.sweep(W, both)
    np.testing.assert_allclose(twice.ZW, 2 * once.ZW, rtol=1e-12)
    np.testing.assert_allclose(twice.log_likelihood, 2 * once.log_likelihood, rtol=1e-12)


def test_cells_that_are_zero_in_S_do_not_count(kernel):
    """Where Shat underflows there may well be no S."""
    S = np.ones((20, 20))
    S[0, 1] = S[1, 0] = 0
    W = np.full((20, 2), 0.5, np.float32)
    W[0], W[1] = (1, 1e-45), (1e-45, 1)
    W = jnp.asarray(W)
    laid_out = prepare(scipy.sparse.csr_array(S))
    assert any(isinstance(piece, Tiles) for piece in laid_out.pieces)
    got = jax.jit(sweeps.sweep)(W, laid_out)
    assert jnp.isfinite(got.ZW).all()
    assert jnp.isfinite(got.log_likelihood)


@pytest.mark.parametrize("where", [0, 35])
def test_what_is_not_finite_is_seen(kernel, where):
    S = mixed_S(np.random.default_rng(1), 40)
    W = random_W(np.random.default_rng(2), 40, 3).astype(np.float32)
    W[where, 1] = np.nan
    got = sweeps.sweep(jnp.asarray(W), prepare(scipy.sparse.csr_array(S)))
    assert jnp.isnan(got.log_likelihood)
    assert jnp.isnan(got.ZW).any()


def test_an_accelerators_layout_is_the_same_S():
    """Its shapes differ; they are tested on the CPU."""
    rng = np.random.default_rng(3)
    S, W = mixed_S(rng, 1500), jnp.asarray(random_W(rng, 1500, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "available", lambda: False)
        patch.setitem(layout.DEVICE_KINDS, "xla", layout.DEVICE_KINDS["accelerator"])
        laid_out = prepare(scipy.sparse.csr_array(S), dtype=np.float64)
    assert {type(piece) for piece in laid_out.pieces} == {Tiles, Segments}
    assert_same_sweep(
        sweeps.sweep(W, laid_out), decomposition.sweep(W, *pair(S / (S.sum() / 1500))), np.float64
    )


def test_a_layout_crosses_jit_as_an_argument():
    S = scipy.sparse.csr_array(mixed_S(np.random.default_rng(4), 30))
    W = jnp.asarray(random_W(np.random.default_rng(5), 30, 3))
    traces = []

    @jax.jit
    def scaled(W, laid_out: Layout):
        traces.append(1)
        return sweeps.sweep(W, laid_out).ZW

    first = scaled(W, prepare(S, dtype=np.float64))
    np.testing.assert_allclose(scaled(W, prepare(2 * S, dtype=np.float64)), first, rtol=1e-12)
    assert len(traces) == 1


SHARDED = """
import jax, sys
jax.config.update("jax_num_cpu_devices", 3)
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, {tests!r})
import jax.numpy as jnp, numpy as np, scipy.sparse, chex
from problems import assert_same_sweep, dense, mixed_S, pair, random_W
import dcdjax
from dcdjax import prepare, solve, solve_restarts
from dcdjax.devices import layout, sharding, sweeps
from dcdjax.method import decomposition
from dcdjax.starts import initialize
assert len(jax.devices()) == 3
for name in ("xla", "native"):
    layout.DEVICE_KINDS[name] = layout.DeviceKind(tile_size=16, cells_per_nonzero=2.0, block_bytes=2000)
rng = np.random.default_rng(0)
for num_words, num_topics, dtype in ((2, 2, np.float64), (61, 5, np.float64), (100, 7, np.float32)):
    S = mixed_S(rng, num_words)
    sparse = scipy.sparse.csr_array(S)
    W = jnp.asarray(random_W(rng, num_words, num_topics).astype(dtype))
    all_three, one = (prepare(sparse, dtype=dtype, devices=jax.devices()[a:b]) for a, b in ((0, 3), (1, 2)))
    assert set(all_three.devices) == set(jax.devices()) and one.devices == jax.devices()[1:2]
    assert prepare(sparse, dtype=dtype).devices == jax.devices()[: 1 if {native} else 3]
    for piece in all_three.pieces:
        assert len({{shard.data.shape for shard in piece.values.addressable_shards}}) == 1
        assert {{shard.device for shard in piece.values.addressable_shards}} == set(jax.devices())
    np.testing.assert_allclose(dense(all_three), dense(one), rtol=1e-15)
    got = jax.jit(sweeps.sweep)(sharding.replicate(W, all_three.devices), all_three)
    assert_same_sweep(got, decomposition.sweep(W, *pair(S / (S.sum() / num_words), dtype)), dtype)
    assert (all_three.num_threads > 0) == {native}
    products = [sweeps.product(sharding.replicate(W, laid.devices), laid) for laid in (all_three, one)]
    np.testing.assert_allclose(*map(np.asarray, products), rtol=1e-12 if dtype == np.float64 else 1e-5)
    for step, eta in (("exact", 1.9), ("relaxed", 1.0)) if dtype == np.float64 else ():
        options = dict(step=step, over_relaxation=eta, tol=0.0, max_steps=12)
        shared, alone = solve(W, all_three, **options), solve(W, one, **options)
        assert shared.W.devices() == alone.W.devices() == W.devices(), "the result is where W was"
        chex.assert_trees_all_close(shared, alone, rtol=1e-9, atol=1e-12)
batch = initialize.uniform(jax.random.key(0), 100, 7, restarts=3)
options = dict(max_steps=10, tol=0.0)
together = solve_restarts(batch, all_three, **options)
np.testing.assert_allclose(solve_restarts(batch, sparse, **options).W, together.W, rtol=1e-3, atol=1e-5)
inside = jax.jit(lambda W: solve(W, all_three, **options).W)
for n in range(3):
    np.testing.assert_allclose(together.W[n], solve(batch[n], one, **options).W, rtol=1e-3, atol=1e-5)
    with_mesh = inside(sharding.replicate(batch[n], all_three.devices))
    np.testing.assert_allclose(together.W[n], with_mesh, rtol=1e-3, atol=1e-5)
# S that is not prepared, inside a transformation; numbers and arrays that are bound to a device.
within = jax.jit(lambda W: solve(W, sparse, **options).W)
for where in (None, *jax.devices()):
    np.testing.assert_allclose(within(jax.device_put(batch[0], where)), together.W[0], rtol=1e-3, atol=1e-5)
# W is known, but something else is traced; W is traced, and S is prepared while it is.
elsewhere = prepare(sparse, devices=jax.devices()[1:2])
for S_form in (sparse, all_three, elsewhere) if {native} else (all_three,):
    for traced in (
        jax.jit(lambda tol: solve(batch[0], S_form, max_steps=10, tol=tol).W)(0.0),
        jax.vmap(lambda tol: solve(batch[0], S_form, max_steps=10, tol=tol).W)(jnp.zeros(2))[1],
        jax.jit(lambda: solve(batch[0], S_form, **options).W)(),
    ):
        np.testing.assert_allclose(traced, together.W[0], rtol=1e-3, atol=1e-5)
np.testing.assert_allclose(
    jax.jit(lambda W: solve(W, prepare(sparse), **options).W)(batch[0]), together.W[0], rtol=1e-3, atol=1e-5)
with jax.default_device(jax.devices()[1]):
    assert prepare(sparse, devices=jax.devices()[:1]).devices == jax.devices()[:1]
bound = jax.device_put(np.float32(0), jax.devices()[2])
from jax.sharding import Mesh, NamedSharding, PartitionSpec
backwards = NamedSharding(Mesh(jax.devices()[::-1], ("x",)), PartitionSpec())
for where in (batch[0], jax.device_put(batch[0], backwards)):
    np.testing.assert_allclose(
        solve(where, all_three, max_steps=10, tol=bound).W, together.W[0], rtol=1e-3, atol=1e-5)
# Fewer starts than devices: all of them work on each; with the native kernel, so do all cores anyway.
options = dict(num_topics=4, key=5, max_steps=40, tol=0.0, progress=False)
import warnings; warnings.simplefilter("ignore")
many = dcdjax.fit(S, restarts=2, **options)
few = dcdjax.fit(S, restarts=2, devices=jax.devices()[:1], **options)
np.testing.assert_allclose(many.W, few.W, rtol=1e-2, atol=1e-4)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["0", "1"])
def test_several_devices_give_what_one_gives(kernel, cached):
    if kernel == "1" and not native.available():
        pytest.skip(f"no native kernel: {native.reason()}")
    code = SHARDED.format(tests=os.path.dirname(os.path.dirname(__file__)), native=kernel == "1")
    environment = {**cached, "DCDJAX_NATIVE": kernel}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr


BY_ROWS = """
import jax
jax.config.update("jax_num_cpu_devices", 4)
import jax.numpy as jnp, numpy as np
from dcdjax.devices import sharding
mesh = sharding.make_mesh(jax.devices())
def rows(shared, a, b):
    return a * shared + jnp.sum(b, axis=1, keepdims=True)
for num_rows in (1, 3, 4, 5, 6, 7, 8, 9, 13, 16, 100):
    a, b = np.random.default_rng(num_rows).random((2, num_rows, 3), dtype=np.float32)
    got = jax.jit(lambda a, b: sharding.map_replicated_rows(rows, mesh, jnp.float32(2), a, b))(a, b)
    np.testing.assert_allclose(got, rows(2, a, b), rtol=1e-6)
assert sharding.make_mesh(jax.devices()[:1]) is None
"""


@pytest.mark.slow
def test_rows_are_shared_whatever_their_number(cached):
    done = subprocess.run(
        [sys.executable, "-c", BY_ROWS], capture_output=True, text=True, timeout=120, env=cached
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("num_rows", [1, 29, 31])
def test_a_W_of_other_words_is_refused(num_rows):
    layout = prepare(scipy.sparse.csr_array(random_S(np.random.default_rng(5), 30)))
    for function in (sweeps.sweep, sweeps.product):
        with pytest.raises(ValueError, match=f"W must have 30 rows as S has them, got {num_rows}"):
            function(jnp.ones((num_rows, 4), jnp.float32), layout)

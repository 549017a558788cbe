"""W split by rows over devices: the same result as on one, and never the whole W on any."""

import jax.numpy as jnp
import numpy as np
import pytest
from eight_devices import run
from hypothesis import given
from hypothesis import strategies as st
from problems import random_S

from dcdjax import similarity
from dcdjax.devices import packing, row_split
from dcdjax.devices.row_split import RowSplit


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2))
def test_dealt_words_come_back(num_words, num_devices, axis):
    split = RowSplit(num_words, num_devices)
    shape = [2, 3, 2]
    shape[axis] = num_words
    array = np.arange(1, np.prod(shape) + 1).reshape(shape)
    ordered = split.to_device_order(array, axis)
    np.testing.assert_array_equal(split.to_word_order(ordered, axis), array)
    real = np.zeros(split.num_rows, bool)
    for word in range(num_words):
        row = word % num_devices * split.rows_per_device + word // num_devices
        np.testing.assert_array_equal(np.take(ordered, row, axis), np.take(array, word, axis))
        real[row] = True
    np.testing.assert_array_equal(np.moveaxis(ordered, axis, 0)[~real], 0)


def test_order_and_padding_in_jax():
    split, array = RowSplit(7, 3), np.arange(1.0, 15.0).reshape(7, 2)
    ordered = split.to_device_order(jnp.asarray(array))
    np.testing.assert_array_equal(ordered, split.to_device_order(array))
    np.testing.assert_array_equal(split.to_word_order(ordered), array)
    np.testing.assert_array_equal(split.real_rows(), split.to_device_order(array)[:, 0] > 0)
    np.testing.assert_array_equal(split.fill_padding(ordered + 1, 0)[:, 0] > 0, split.real_rows())
    for device in range(3):
        own = (ordered + 1)[3 * device : 3 * device + 3]
        expected = split.fill_padding(ordered + 1, 0)[3 * device : 3 * device + 3]
        np.testing.assert_array_equal(split.fill_local_padding(own, jnp.int32(device), 0), expected)


@pytest.mark.parametrize(("num_words", "num_devices"), [(20, 1), (20, 3), (21, 7), (8, 8)])
def test_rounds_hold_each_nonzero_once(num_words, num_devices):
    S = random_S(np.random.default_rng(0), num_words)
    matrix = similarity.from_matrix(S).matrix
    split, found = RowSplit(num_words, num_devices), np.zeros_like(S)
    for device in range(num_devices):
        cut = row_split.cut_rounds(
            matrix[device::num_devices], split, device,
            divisor=2.0, dtype=np.dtype(np.float64), width=4, num_parts=3,
        )  # fmt: skip
        most = max(part.rows.size for part in cut) + 1
        stacked = packing.stack_segments(cut, most)
        assert stacked.values.shape == (num_devices, most, 4)
        for n, part in enumerate(cut):
            other = (device + n) % num_devices
            i = np.broadcast_to(part.rows[:, None], part.columns.shape) * num_devices + device
            np.add.at(found, (i, part.columns * num_devices + other), part.values)
            assert isinstance(part, packing.Segments)
    np.testing.assert_allclose(found, S / 2)


@pytest.mark.slow
@pytest.mark.parametrize("native", ["0", "1"])
def test_the_same_as_on_one_device(native):
    run(
        """
from dcdjax.devices import native
over_relaxed, relaxed = {"over_relaxation": 1.9}, {"step": "relaxed"}
cases = [
    (37, jnp.float64, over_relaxed, (1, 2, 3, 8), (False, True)),
    (37, jnp.float32, over_relaxed, (3,), (False, True)),
]
if native.available():
    cases += [(37, jnp.float64, relaxed, (3,), (True,)), (8, jnp.float64, {}, (8,), (True,))]
for num_words, dtype, kind, numbers, ways in cases:
    S = random_S(np.random.default_rng(0), num_words)
    W = initialize.uniform(jax.random.key(0), num_words, 5, dtype=dtype)
    options = {"tol": 0.0, "max_steps": 12, **kind}
    one = dcdjax.solve(W, S, devices=devices[:1], **options)
    for num_devices in numbers:
        for split in ways:
            many = dcdjax.solve(W, S, devices=devices[:num_devices], split=split, **options)
            said = str((num_words, dtype, options, num_devices, split))
            np.testing.assert_allclose(many.W, one.W, atol=close[dtype], err_msg=said)
            np.testing.assert_allclose(many.objective, one.objective, rtol=close[dtype], err_msg=said)
            for name in ("change", "residual", "objective"):
                np.testing.assert_allclose(
                    getattr(many.history, name), getattr(one.history, name),
                    rtol=10 * close[dtype], atol=close[dtype], err_msg=said,
                )
            assert (many.num_steps, many.status) == (one.num_steps, one.status), said
            assert isinstance(many.W, jax.Array)
""",
        DCDJAX_NATIVE=native,
    )


def test_no_device_holds_all_of_W():
    run("""
S = random_S(np.random.default_rng(0), 999)
parts = dcdjax.prepare(S, devices=devices[:4], split=True)
W = np.random.default_rng(0).dirichlet(np.ones(7), 999).astype(np.float32)
placed = parts.to_devices(W)
state = full_batch.begin(placed, parts, max_steps=5, step="exact", over_relaxation=1.9)
after = full_batch.advance(state, parts, until=3, tol=0.0, step="exact", over_relaxation=1.9)
for name in ("W", "ZW"):
    shapes = [shard.data.shape for shard in getattr(after, name).addressable_shards]
    assert shapes == [(250, 7)] * 4, shapes
lowered = full_batch.advance.lower(state, parts, until=3, tol=0.0, step="exact", over_relaxation=1.9)
text = lowered.compile().as_text()
assert "[250,7]" in text
assert "[1000,7]" not in text and "[999,7]" not in text
assert "collective-permute" in text and "all-gather" not in text
found = dcdjax.prepare(S, devices=devices[:4])
state = full_batch.begin(found.to_devices(W), found, max_steps=5, step="exact", over_relaxation=1.9)
lowered = full_batch.advance.lower(state, found, until=3, tol=0.0, step="exact", over_relaxation=1.9)
assert "[999,7]" in lowered.compile().as_text()
""")


@pytest.mark.slow
def test_devices_have_equal_work():
    run("""
rng = np.random.default_rng(0)
frequency = 1 / np.arange(1, 801) ** 0.9
S = np.triu(rng.random((800, 800)) < 40 * np.sqrt(np.outer(frequency, frequency)) * 0.05) + np.eye(800)
S = S + S.T
for num_devices in (2, 3, 8):
    parts = dcdjax.prepare(S, devices=devices[:num_devices], split=True)
    (segments,) = parts.pieces
    shards = segments.values.addressable_shards
    nonzeros = np.asarray([(np.asarray(shard.data) > 0).sum() for shard in shards])
    assert nonzeros.sum() == (S > 0).sum()
    assert nonzeros.max() < 1.1 * nonzeros.mean(), nonzeros
    assert len({shard.data.nbytes for shard in shards}) == 1
""")


@pytest.mark.slow
def test_meshes_restarts_and_jit():
    run("""
S = random_S(np.random.default_rng(1), 37)
options = {"tol": 0.0, "max_steps": 10}
starts = initialize.uniform(jax.random.key(1), 37, 4, restarts=3, dtype=jnp.float64)
one = dcdjax.solve_restarts(starts, S, devices=devices[:1], **options)
square = Mesh(np.array(devices[:4]).reshape(2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
for split in (False, True):
    many = dcdjax.solve_restarts(starts, S, devices=square, split=split, **options)
    np.testing.assert_allclose(many.W, one.W, atol=1e-10)
    parts = dcdjax.prepare(S, devices=square, split=split, dtype=jnp.float64)
    assert parts.mesh.size == 4
    traced = jax.jit(lambda W: dcdjax.solve(W, parts, **options))(starts[0])
    np.testing.assert_allclose(traced.W, one.W[0], atol=1e-10)
    from_host = dcdjax.solve(np.asarray(starts[0]), parts, **options)
    np.testing.assert_allclose(from_host.W, one.W[0], atol=1e-10)
    with jax.set_mesh(square) if hasattr(jax, "set_mesh") else jax.sharding.use_mesh(square):
        inside = dcdjax.solve(starts[0], parts, **options)
    np.testing.assert_allclose(inside.W, one.W[0], atol=1e-10)
for given in (np.asarray(starts[0]), np.asarray(starts[0]).tolist()):
    for some in (1, 2):
        found = dcdjax.solve(given, S, devices=devices[:some], split=True, **options)
        np.testing.assert_allclose(found.W, one.W[0], atol=1e-10)
for name, value in (("devices", devices[:2]), ("split", True)):
    try:
        dcdjax.solve(starts[0], parts, **{name: value})
    except ValueError as error:
        assert f"{name}: S is a layout" in str(error), error
    else:
        raise AssertionError(name)
try:
    dcdjax.prepare(np.ones((3, 3)), devices=devices[:4], split=True)
except ValueError as error:
    assert "S has 3 words, fewer than there are devices, 4" in str(error)
else:
    raise AssertionError
""")


@pytest.mark.slow
def test_products_spectra_and_smoothing():
    run("""
S = random_S(np.random.default_rng(2), 37)
one = dcdjax.prepare(S, devices=devices[:1], dtype=jnp.float64)
many = dcdjax.prepare(S, devices=devices[:3], split=True, dtype=jnp.float64)
X = np.random.default_rng(0).normal(size=(37, 5))
product = np.asarray(many.from_devices(sweeps.product(many.to_devices(X), many))) * float(many.scale)
np.testing.assert_allclose(product, S @ X, atol=1e-12)
key = jax.random.key(3)
np.testing.assert_allclose(
    np.abs(spectrum.vectors(key, many, num_dimensions=4)),
    np.abs(spectrum.vectors(key, one, num_dimensions=4)), atol=1e-8)
W = initialize.uniform(key, 37, 4, dtype=jnp.float64)
share = np.linspace(0, 1, 37)
smooth = smoothing.smoothed(W, one, jnp.asarray(share))
with jax.debug_nans(True):
    alone = many.from_devices(smoothing.smoothed(many.to_devices(W), many, many.to_devices(share)))
np.testing.assert_allclose(alone, smooth, atol=1e-12)
starts = [initialize.spectral(key, parts, 4, restarts=2) for parts in (one, many)]
np.testing.assert_allclose(*starts, atol=1e-6)
""")


@pytest.mark.slow
def test_fit_splits_what_is_asked_for():
    run("""
import warnings; warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
numbers = [(20 * (line % 3) + 20 * rng.random(30) ** 2).astype(int) for line in range(200)]
text = [" ".join(f"w{n}" for n in line) for line in numbers]
for start in ("random", "spectral"):
    options = dict(num_topics=4, key=0, restarts=2, start=start, dtype=jnp.float64, tol=1e-4)
    options |= dict(max_steps=40, progress=False)
    one = dcdjax.fit(text, devices=devices[:1], **options)
    many = dcdjax.fit(text, devices=devices[:3], split=True, **options)
    np.testing.assert_allclose(many.W, one.W, atol=1e-8)
    np.testing.assert_allclose(many.record["objective"], one.record["objective"])
    assert many.record["num_devices"] == 3 and one.record["num_devices"] == 1
    assert many.record["num_steps"] == one.record["num_steps"]
""")


@pytest.mark.slow
def test_a_split_run_goes_on_wherever(tmp_path):
    run(f"""
import warnings; warnings.simplefilter("ignore")
S = random_S(np.random.default_rng(0), 37)
options = dict(num_topics=4, key=0, restarts=2, start="random", dtype=jnp.float64, tol=0.0, max_steps=60)
whole = dcdjax.fit(S, devices=devices[:3], split=True, progress=False, **options)
def until(most):
    def tell(stage, done, *_):
        if stage == "solving" and done >= most:
            raise KeyboardInterrupt
    return tell
folder = {str(tmp_path)!r}
scheduler.MAX_GROWTH = 1  # a step at a time
for number, (some, split) in enumerate(((3, True), (2, False), (8, True), (1, None))):
    cut = dcdjax.fit(S, devices=devices[:some], split=split, checkpoint=folder, checkpoint_every=0.0,
                     progress=until(10 + 20 * number), **options)
    assert cut.record["interrupted"]
last = dcdjax.fit(S, devices=devices[:3], split=True, checkpoint=folder, progress=False, **options)
assert last.record["resumed_at"] >= 70
np.testing.assert_allclose(last.W, whole.W, atol=1e-10)
assert last.record["num_steps"] == [60, 60]
# On the same devices, to the bit.
folder += "-same"
cut = dcdjax.fit(S, devices=devices[:3], split=True, checkpoint=folder, progress=until(25), **options)
assert cut.record["interrupted"]
last = dcdjax.fit(S, devices=devices[:3], split=True, checkpoint=folder, progress=False, **options)
np.testing.assert_array_equal(last.W, whole.W)
""")

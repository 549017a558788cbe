"""The C function against NumPy in float64, under JAX's transformations, and whatever a build can meet."""

import functools
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jax import lax
from problems import ROOT_KINDS, root_problem

from dcdjax.devices import native
from dcdjax.method import decomposition, row_root
from dcdjax.method.decomposition import Sums

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}


@pytest.fixture(scope="module", autouse=True)
def built(cached):
    if not (os.environ.get("CC") or any(map(shutil.which, ("cc", "gcc", "clang")))):
        pytest.skip("no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DCDJAX_CACHE", cached["DCDJAX_CACHE"])
        patch.delenv("DCDJAX_NATIVE", raising=False)
        assert native.available(), native.reason()


def problem(seed=0, *, N=40, r=20, width=16, lengths=(16,) * 30, num_parts=3, dtype: Any = np.float32) -> Any:
    """W, W_over_s, parts, rows, columns, values; `lengths` are the nonzeros of the segments."""
    rng = np.random.default_rng(seed)
    W = rng.random((N, r)) + 0.01
    W /= W.sum(1, keepdims=True)
    n = len(lengths)
    # Part p has the rows that are p modulo the number of parts, some of them several times.
    part_of_segment = np.sort(rng.integers(0, num_parts, n))
    rows = rng.integers(0, max(1, N // num_parts), n) * num_parts + part_of_segment
    rows = np.where(rows < N, rows, part_of_segment)
    columns = rng.integers(0, N, (n, width))
    values = np.where(np.arange(width) < np.reshape(lengths, (n, 1)), rng.random((n, width)) + 0.1, 0)
    parts = np.searchsorted(part_of_segment, np.arange(num_parts + 1))
    W = W.astype(dtype)
    W_over_s = (W / W.sum(0)).astype(dtype)
    return W, W_over_s, *(x.astype(np.int32) for x in (parts, rows, columns)), values.astype(dtype)


def oracle(W, W_over_s, parts, rows, columns, values):
    """Equation by equation in float64, a segment at a time."""
    W, W_over_s, values = (x.astype(np.float64) for x in (W, W_over_s, values))
    ZW, log_likelihood = np.zeros_like(W), 0.0
    for row, column, value in zip(rows, columns, values, strict=True):
        Shat = W[column] @ W_over_s[row]
        ZW[row] += (value / Shat) @ W[column]
        log_likelihood += value @ np.log(Shat)
    return ZW, log_likelihood


def run(arguments, num_threads=2):
    return native.segments_pass(*map(jnp.asarray, arguments), num_threads=num_threads)


def assert_close(found, expected, dtype):
    tolerance = TOLERANCE[np.dtype(dtype).name]
    assert found[0].dtype == found[1].dtype == dtype
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance, atol=0)
    np.testing.assert_allclose(found[1], expected[1], rtol=tolerance, atol=tolerance)


# --- What it computes -------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    seed=st.integers(0, 99),
    r=st.sampled_from([1, 3, 4, 7, 8, 9, 15, 16, 20, 31, 33, 50, 64, 77]),
    width=st.sampled_from([1, 4, 16, 20, 32, 40]),
    fill=st.lists(st.floats(0, 1), max_size=12),
    num_parts=st.integers(1, 5),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@example(seed=0, r=1, width=1, fill=[1.0], num_parts=5, dtype=np.float32)  # four empty parts
@example(seed=0, r=50, width=32, fill=[0.0, 1.0, 0.53], num_parts=1, dtype=np.float32)  # one is all padding
@example(seed=0, r=7, width=16, fill=[], num_parts=1, dtype=np.float64)  # no segments
def test_oracle(seed, r, width, fill, num_parts, dtype):
    lengths = [round(f * width) for f in fill]
    arguments = problem(seed, N=17, r=r, width=width, lengths=lengths, num_parts=num_parts, dtype=dtype)
    assert_close(run(arguments), oracle(*arguments), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zeros_in_the_middle_contribute_nothing(dtype):
    arguments = problem(dtype=dtype)
    arguments[-1][:, ::3] = 0
    found = run(arguments)
    assert_close(found, oracle(*arguments), dtype)
    arguments[-3:][1][:, ::3] = 0  # whatever the column of a padded place
    again = run(arguments)
    np.testing.assert_array_equal(found[0], again[0])
    assert found[1] == again[1]


def test_rows_outside_all_parts_are_zero():
    W, W_over_s, parts, rows, columns, values = problem()
    ZW, _ = run((W, W_over_s, parts[:2], rows, columns, values))
    outside = np.setdiff1d(np.arange(len(W)), rows[: parts[1]])
    assert len(outside) > 0
    assert not np.any(np.asarray(ZW)[outside])
    assert np.all(np.asarray(ZW)[rows[: parts[1]]] > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threads_do_not_change_a_bit(dtype):
    # More than a slice of ZW, so that the clearing too is shared.
    arguments = problem(N=6000, r=77, lengths=[16] * 3000, num_parts=23, dtype=dtype)
    one, four, many = (run(arguments, num_threads) for num_threads in (1, 4, 1000))
    assert np.any(one[0])
    for other in (four, many):
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1] == other[1]


def logarithm(x):
    """log x as the float32 kernel has it: r = 1, a segment of one nonzero of value 1 per number."""
    x = np.asarray(x, np.float32)
    n = len(x)
    indices = np.arange(n, dtype=np.int32)
    call = jax.jit(partial(native.segments_pass, num_threads=1))
    one = np.ones((1, 1), np.float32)
    bounds, zero = np.array([0, 1], np.int32), np.zeros(1, np.int32)
    return np.array([call(x[i : i + 1, None], one, bounds, zero, zero[:, None], one)[1] for i in indices])


def test_logarithm_of_all_magnitudes():
    rng = np.random.default_rng(0)
    tiny, largest = np.finfo(np.float32).tiny, np.finfo(np.float32).max
    x = np.exp2(rng.uniform(-126, 127.9, 500)).astype(np.float32)
    near_one = (1 + rng.uniform(-0.5, 1, 500)).astype(np.float32)
    x = np.concatenate([x, near_one, np.array([tiny, largest, 1, 0.5, 2**0.5, 0.5**0.5], np.float32)])
    exact = np.log(x.astype(np.float64))
    np.testing.assert_allclose(logarithm(x), exact, rtol=2e-7, atol=1e-7)


def test_logarithm_of_what_has_none():
    found = logarithm([0, np.inf, np.nan, -1, -np.inf])
    np.testing.assert_array_equal(found, [-np.inf, np.inf, np.nan, np.nan, np.nan])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("r", [3, 50, 64])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_are_seen(dtype, r, bad):
    for k in (0, r // 2, r - 1):
        arguments = problem(r=r, dtype=dtype)
        column = arguments[4][5, 2]
        arguments[0][column, k] = bad
        ZW, log_likelihood = run(arguments)
        assert not np.all(np.isfinite(ZW[arguments[3][5]]))
        assert not np.isfinite(log_likelihood)
        untouched = ~np.isin(np.arange(len(ZW)), arguments[3][(arguments[4] == column).any(1)])
        assert np.all(np.isfinite(ZW[untouched]))


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the switch is one of x86")
@pytest.mark.parametrize("num_threads", [1, 4])
def test_subnormal_numbers_are_zero_in_every_thread(num_threads):
    W, _, _, _, columns, values = problem(N=64, lengths=[16] * 64)
    rows, parts = np.arange(64, dtype=np.int32), np.arange(65, dtype=np.int32)
    small = np.full_like(W, 2e-20)
    # Shat is 8e-39. Were it not zero, Z would be at most 1.4e+38 and ZW finite.
    ZW, log_likelihood = run((small, small, parts, rows, columns, values), num_threads)
    assert np.all(np.isinf(ZW))
    assert log_likelihood == -np.inf


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_extreme_scales(scale):
    arguments = list(problem(r=50))
    arguments[0] = arguments[0] * np.float32(scale)
    arguments[1] = arguments[1] * np.float32(scale)
    assert_close(run(arguments), oracle(*arguments), np.float32)


# --- Under JAX --------------------------------------------------------------------------------------


def test_jit_and_loops():
    arguments = tuple(map(jnp.asarray, problem(dtype=np.float64)))
    W, rest = arguments[0], arguments[2:]
    one_pass = partial(native.segments_pass, num_threads=2)

    def step(W):
        ZW, log_likelihood = one_pass(W, W / jnp.sum(W, axis=0, keepdims=True), *rest)
        return W * (ZW + 1) / jnp.sum(W * (ZW + 1), axis=1, keepdims=True), log_likelihood

    expected, log_likelihoods = W, []
    for _ in range(3):
        expected, log_likelihood = step(expected)
        log_likelihoods.append(log_likelihood)
    assert len(set(map(float, log_likelihoods))) == 3

    def body(carry):
        i, W, _ = carry
        return i + 1, *lax.cond(i < 3, step, lambda W: (W, jnp.zeros(())), W)

    start = (jnp.int32(0), W, jnp.zeros(()))
    _, looped, last = jax.jit(lambda: lax.while_loop(lambda carry: carry[0] < 3, body, start))()
    np.testing.assert_allclose(looped, expected, rtol=1e-12)
    np.testing.assert_allclose(last, log_likelihoods[-1], rtol=1e-12)
    scanned, history = jax.jit(lambda: lax.scan(lambda W, _: step(W), W, length=3))()
    np.testing.assert_allclose(scanned, expected, rtol=1e-12)
    np.testing.assert_allclose(history, log_likelihoods, rtol=1e-12)


def test_vmap_is_a_loop():
    several = [problem(seed) for seed in range(3)]
    _, _, *rest = map(jnp.asarray, several[0])
    W, W_over_s = (jnp.stack([p[i] for p in several]) for i in (0, 1))
    call = jax.vmap(lambda W, W_over_s: native.segments_pass(W, W_over_s, *rest, num_threads=2))
    ZW, log_likelihood = call(W, W_over_s)
    for i in range(3):
        alone = native.segments_pass(W[i], W_over_s[i], *rest, num_threads=2)
        np.testing.assert_array_equal(ZW[i], alone[0])
        assert log_likelihood[i] == alone[1]


SHARDED = """
import sys
sys.path[:0] = [{tests!r}, {tests!r} + "/.."]
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
jax.config.update("jax_enable_x64", True)
from dcdjax.devices import native
from test_native import oracle, problem

several = [problem(seed, dtype=np.float64) for seed in range(4)]
W, W_over_s = several[0][:2]
# Each device has its own segments and parts; W is everybody's.
parts, rows, columns, values = (np.stack([p[i] for p in several]) for i in range(2, 6))

def local(W, W_over_s, parts, rows, columns, values):
    ZW, ll = native.segments_pass(W, W_over_s, parts[0], rows[0], columns[0], values[0], num_threads=2)
    return jax.lax.psum(ZW, "device"), jax.lax.psum(ll, "device")

mesh = Mesh(np.array(jax.devices()), ("device",))
assert mesh.size == 4
spread = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P(), P(), *[P("device")] * 4), out_specs=P(),
                               check_vma=False))
expected = [oracle(W, W_over_s, *p[2:]) for p in several]
for _ in range(20):
    ZW, ll = spread(W, W_over_s, parts, rows, columns, values)
    np.testing.assert_allclose(ZW, sum(e[0] for e in expected), rtol=1e-12)
    np.testing.assert_allclose(ll, sum(e[1] for e in expected), rtol=1e-12)
"""


@pytest.mark.slow
def test_shard_map(cached):
    flags = {**cached, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = python(SHARDED.format(tests=os.path.dirname(__file__)), flags)
    assert done.returncode == 0, done.stderr


def test_arguments_of_the_wrong_kind_are_errors(unchecked_annotations):
    W, W_over_s, parts, rows, columns, values = problem()
    wide = np.zeros((len(rows), 17), np.int32)
    wrong = {
        "W_over_s": (W, W_over_s[1:], parts, rows, columns, values),
        "parts must be int32": (W, W_over_s, parts.astype(np.int64), rows, columns, values),
        "parts must not fall": (W, W_over_s, parts[[0, 2, 1]], rows, columns, values),
        "parts must lie": (W, W_over_s, parts + 1, rows, columns, values),
        "number of parts": (W, W_over_s, parts[:0], rows, columns, values),
        "rows must": (W, W_over_s, parts, rows[:, None], columns, values),
        "columns must": (W, W_over_s, parts, rows[1:], columns, values),
        "values must have columns": (W, W_over_s, parts, rows, wide, values),
        "and W's dtype": (W, W_over_s, parts, rows, columns, values.astype(np.float64)),
    }
    for message, arguments in wrong.items():
        # The one or the other, as JAX waits for the result or not.
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=message):
            jax.block_until_ready(run(arguments))
    with pytest.raises(ValueError, match="W must be float32 or float64, got float16"):
        run((W.astype(np.float16), W_over_s, parts, rows, columns, values))
    with pytest.raises(ValueError, match="num_threads must be at least 1, got 0"):
        run((W, W_over_s, parts, rows, columns, values), num_threads=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index", [40, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("array", [3, 4])
def test_rows_and_columns_outside_of_W_are_errors(dtype, index, array):
    for place in (0, -1):
        arguments = problem(dtype=dtype)
        arguments[array].reshape(-1)[place] = index
        with pytest.raises(
            (ValueError, jax.errors.JaxRuntimeError), match="rows and columns must be those of W"
        ):
            jax.block_until_ready(run(arguments))
    run(problem(dtype=dtype))


# --- The exact step ---------------------------------------------------------------------------------


def step_problem(seed, N, r, concentration=0.3):
    rng = np.random.default_rng(seed)
    W = np.maximum(rng.dirichlet(np.full(r, concentration), N), 1e-12).astype(np.float32)
    ZW = (W * rng.random((N, r)) * 4 + 1e-3 * rng.random((N, r))).astype(np.float32)
    return jnp.asarray(W), jnp.asarray(ZW)


def native_step(sums, W, ZW, eta=1.0, num_threads=2):
    return native.exact_step(sums, W, ZW, jnp.float32(eta), num_threads=num_threads)


def wide(array):
    return jnp.asarray(np.asarray(array, np.float64))


@pytest.mark.parametrize("eta", [1.0, 1.5, 1.9])
@pytest.mark.parametrize(("N", "r"), [(1, 1), (3, 2), (5, 8), (64, 7), (129, 33), (300, 200)])
def test_step_is_that_of_the_decomposition(N, r, eta):
    W, ZW = step_problem(N, N, r)
    sums = decomposition.column_sums(W, ZW)
    got = jax.jit(partial(native_step, eta=eta))(sums, W, ZW)
    assert got.dtype == jnp.float32
    expected = decomposition.exact_step(Sums(wide(sums.s), wide(sums.plus)), wide(W), wide(ZW))
    if eta != 1:
        expected = decomposition.over_relax(wide(W), jnp.maximum(expected, 2.0**-46), eta)
    np.testing.assert_allclose(got, np.maximum(expected, 2.0**-46), rtol=2e-5)
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("kind", ROOT_KINDS)
def test_rows_built_to_be_hard(kind):
    A, poles = root_problem(kind, np.random.default_rng(0), num_rows=500)
    A, poles = np.maximum(A.astype(np.float32), 1e-37), np.reshape(poles, (1, -1)).astype(np.float32)
    A, poles = jnp.asarray(A), jnp.asarray(poles)
    got = native_step(Sums(jnp.full_like(poles, 2), poles), jnp.ones_like(A), A)
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-5)
    x = row_root.row_root(wide(A), wide(poles))
    expected = decomposition.on_simplex(wide(A) / (wide(poles) + x))
    # What balances at a pole is no better known than the sum of its row.
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-7)


def test_no_entry_falls_below_the_floor():
    W, ZW = step_problem(1, 50, 20, concentration=0.01)
    got = native_step(decomposition.column_sums(W, ZW), W, jnp.where(W > 1e-3, ZW, 0), eta=1.9)
    assert float(got.min()) == decomposition.smallest_weight(jnp.float32)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_spoils_its_row_only(bad):
    W, ZW = step_problem(2, 70, 11)
    sums = decomposition.column_sums(W, ZW)
    for eta in (1.0, 1.9):
        got = native_step(sums, W, ZW.at[3, 5].set(bad), eta)
        assert jnp.isnan(got[3]).any()
        np.testing.assert_array_equal(np.delete(got, 3, 0), np.delete(native_step(sums, W, ZW, eta), 3, 0))


def test_threads_do_not_change_a_step():
    W, ZW = step_problem(3, 1000, 30)
    sums = decomposition.column_sums(W, ZW)
    one, many = (native_step(sums, W, ZW, 1.9, num_threads) for num_threads in (1, 7))
    np.testing.assert_array_equal(one, many)


def test_vmap_of_a_step_is_a_loop():
    problems = [step_problem(seed, 20, 6) for seed in range(3)]
    W, ZW = (jnp.stack(part) for part in zip(*problems, strict=True))
    sums = jax.vmap(decomposition.column_sums)(W, ZW)
    got = jax.jit(jax.vmap(partial(native_step, eta=1.9)))(sums, W, ZW)
    for n in range(3):
        np.testing.assert_array_equal(got[n], native_step(Sums(sums.s[n], sums.plus[n]), W[n], ZW[n], 1.9))


def test_a_step_of_the_wrong_kind(unchecked_annotations):
    W, ZW = step_problem(4, 5, 3)
    sums = decomposition.column_sums(W, ZW)
    with pytest.raises(ValueError, match="W must be float32, got float64"):
        native_step(sums, wide(W), wide(ZW))
    for wrong in ((sums, W, ZW[:4]), (sums, W[:, :2], ZW), (Sums(sums.s[0], sums.plus), W, ZW)):
        with pytest.raises((ValueError, RuntimeError), match="expected float32 and shapes that fit W's"):
            jax.block_until_ready(native.exact_step(*wrong, jnp.float32(1), num_threads=1))
    with pytest.raises((ValueError, RuntimeError), match="num_threads must be an integer of at least 1"):
        jax.block_until_ready(native_step(sums, W, ZW, num_threads=0))


# --- The build --------------------------------------------------------------------------------------

SAY = "from dcdjax.devices import native; print(native.available(), native.reason())"
# Not only loaded but called: 1 word, 1 topic, 1 nonzero.
CALL = """
import jax, numpy as np
from dcdjax.devices import native
one, zero = np.ones((1, 1), np.float32), np.zeros((1, 1), np.int32)
ZW, _ = jax.jit(lambda: native.segments_pass(one, one, np.array([0, 1], np.int32), zero[0], zero, 2 * one,
                                             num_threads=1))()
assert ZW == 2
print(native.available(), native.reason())
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and the folder of libraries in it; they are built hastily."""
    monkeypatch.setattr(native, "FLAGS", tuple(flag.replace("-O3", "-O0") for flag in native.FLAGS))
    monkeypatch.setenv("DCDJAX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "native"


def python(code, environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)


def said(code, environment):
    done = python(code, environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def loaded(*compiler):
    library, version = native.load_library(list(compiler), Path(os.environ["DCDJAX_CACHE"], "native"))
    assert all(library[target] for target in native.TARGETS.values())
    return version


def test_switched_off(cached):
    assert said(SAY, {**cached, "DCDJAX_NATIVE": "0"}).startswith("False It is switched off by")


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    found, why = native.try_to_load.__wrapped__()
    assert not found
    assert why.startswith("No C compiler is found")


def test_broken_compiler(cached):
    out = said(SAY, {**cached, "CC": "/bin/false"})
    assert out == "False It cannot be built: /bin/false: exit code 1 without a word\n"


def test_compilers_that_do_not_compile(cache, tmp_path, monkeypatch):
    complains = script(tmp_path / "complains", 'printf "this compiler is\\nnot\\nwell\\nat all" >&2; exit 3')
    slow = script(tmp_path / "slow", "exec sleep 60")
    monkeypatch.setattr(native, "BUILD_SECONDS", 0.2)
    for compiler, message in {
        "true": "true: no library, and no complaint",
        "/nonexistent/cc": "No such file",
        complains: "this compiler is / not / well",
        slow: "not done after 0.2 seconds in all",
        f"{complains} 'unfinished": "ValueError: No closing quotation",
    }.items():
        monkeypatch.setenv("CC", compiler)
        found, why = native.try_to_load.__wrapped__()
        assert not found
        assert why.startswith("It cannot be built: ")
        assert message in why
        assert "at all" not in why
    assert not cache.exists()


def test_the_next_compiler_has_its_turn(cache, tmp_path, monkeypatch):
    broken = script(tmp_path / "cc", "exit 1")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    first, second, *_ = native.find_compilers()
    assert first == [broken]
    assert second != first


def test_a_library_that_cannot_be_loaded(cache, tmp_path, monkeypatch):
    write = 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo rubbish > "$2"; shift; done'
    rubbish = script(tmp_path / "cc", write)
    monkeypatch.setenv("CC", rubbish)
    found, why = native.try_to_load.__wrapped__()
    assert not found
    assert "cc: what it built cannot be loaded" in why
    assert not list(cache.rglob("*.so"))


def test_after_a_library_that_cannot_be_loaded_the_next_compiler_has_its_turn(cached, tmp_path):
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    script(tmp_path / "cc", 'while [ $# -gt 0 ]; do [ "$1" = -o ] && echo rubbish > "$2"; shift; done')
    environment = {**cached, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("CC", None)
    assert said(SAY, environment).startswith("True It is in use, built by gcc")


def test_a_compiler_that_does_not_know_the_processor(cache, tmp_path):
    refuses = 'for a; do case "$a" in -march=*) echo what >&2; exit 1;; esac; done'
    assert loaded(script(tmp_path / "old-cc", f'{refuses}\nexec cc "$@"')) == loaded("cc")
    assert len(list(cache.iterdir())) == 2  # by another program, though of the same version


@pytest.mark.slow
def test_two_processes_at_once(cache):
    command = [sys.executable, "-c", CALL]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        assert out.startswith("True")
    files = list(cache.iterdir())
    assert files
    assert all(path.suffix == ".so" for path in files)  # nothing unfinished is left


def test_damaged_libraries_are_not_loaded(cache, tmp_path):
    finds = script(tmp_path / "finds", 'exec cc "$@"')
    loaded(finds)
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    # From now on it says what version it is, but cannot build: what loads is what lies there.
    script(tmp_path / "finds", '[ "$1" = --version ] && exec cc --version\necho cannot >&2; exit 1')
    assert loaded(finds)
    # Cut off, loading it would end in a bus error.
    for damaged in (whole[: len(whole) // 2], whole[:-1], b"not a library", b""):
        path.unlink()  # it is in use here, and must not change
        path.write_bytes(damaged)
        path.chmod(0o600)
        with pytest.raises(native.BuildError, match="cannot"):
            loaded(finds)
    path.write_bytes(whole)
    assert loaded(finds)


def test_what_another_can_have_written_is_not_loaded(cache, tmp_path, monkeypatch):
    old_mask = os.umask(0)
    try:
        loaded("cc")
    finally:
        os.umask(old_mask)
    (path,) = cache.iterdir()
    for one, mode in ((path, 0o600), (cache, 0o700), (cache.parent, 0o700)):
        assert one.stat().st_mode & 0o777 == mode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_build", None)  # what is there is found
        loaded("cc")
        path.chmod(0o620)
        with pytest.raises(TypeError):
            loaded("cc")
    folders = []

    def remember(_, folder, deadline):
        folders.append(folder)
        raise native.BuildError

    monkeypatch.setattr(native, "load_library", remember)
    monkeypatch.setenv("CC", "cc")
    for folder in (cache, cache.parent):
        folder.chmod(0o770)
        with pytest.warns(UserWarning, match=f"because other users can write to {folder}; .* DCDJAX_CACHE"):
            native.try_to_load.__wrapped__()
        folder.chmod(0o700)
    native.try_to_load.__wrapped__()
    assert folders == [None, None, cache]


def test_without_a_folder_nothing_is_kept(cache):
    library, _ = native.load_library(["cc"], None)
    assert library[native.TARGETS["float32"]]
    assert not cache.exists()


def test_other_options_of_the_compiler_make_another_library(cache):
    loaded("cc")
    loaded("cc", "-fno-inline")  # not -ffast-math: loading it would change how this process computes
    loaded("cc")
    assert len({path.name[:16] for path in cache.iterdir()}) == 2


def test_a_compiler_that_hangs_is_ended_with_its_children(cache, tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    hangs = script(tmp_path / "hangs", f'sleep 60 & echo $! > "{pid}"; wait')
    monkeypatch.setattr(native, "BUILD_SECONDS", 1.0)
    monkeypatch.setattr(native, "find_compilers", lambda: iter([[hangs], [hangs], [hangs]]))
    began = time.monotonic()
    found, why = native.try_to_load.__wrapped__()
    assert time.monotonic() - began < 5
    assert not found
    assert why.count("not done after 1 seconds in all") == 3
    deadline = time.monotonic() + 10
    while is_running(int(pid.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(int(pid.read_text()))


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")  # an orphan that nobody waits for is a zombie
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def test_another_processor_has_another_library(cache, monkeypatch):
    loaded("cc")
    monkeypatch.setattr(native, "processor", lambda: b"another")
    loaded("cc")
    assert len({path.name[:16] for path in cache.iterdir()}) == 2


def test_a_cache_that_cannot_be_written(cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("where a folder should be")
    monkeypatch.setenv("DCDJAX_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert loaded("cc")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]  # the temporary folder is gone


def test_decided_once_by_all_threads(monkeypatch):
    calls = []
    decided = native.try_to_load.__wrapped__
    monkeypatch.setattr(native, "find_compilers", lambda: calls.append(0) or time.sleep(0.05) or iter(()))
    monkeypatch.setattr(native, "try_to_load", functools.cache(decided))
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(lambda _: native.available(), range(8)))
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="no native kernel: No C compiler"):
        run(problem())

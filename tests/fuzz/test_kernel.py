"""The kernel in C against NumPy in float64, with compilers' checks of memory and of undefined behavior.

The environment variable DCDJAX_FUZZ_EXAMPLES asks for more examples than in CI.
"""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NUM_EXAMPLES = int(os.environ.get("DCDJAX_FUZZ_EXAMPLES", 20))
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

CHILD = """
import sys

sys.path[:0] = [{tests!r}, {tests!r} + "/devices"]
import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from dcdjax.devices import native
from dcdjax.method import decomposition
from test_native import assert_close, native_step, oracle, problem, run, step_problem

native.BUILD_SECONDS = 300
assert native.available(), native.reason()
rng = np.random.default_rng(0)
for seed in range({num_examples}):
    sizes = ([1, 2, 17, 40], [1, 3, 4, 7, 8, 9, 16, 33, 50], [1, 4, 16, 20])
    N, r, width = (int(rng.choice(some)) for some in sizes)
    dtype = np.float32 if seed % 2 else np.float64
    lengths, num_parts = rng.integers(0, width + 1, rng.integers(0, 9)), int(rng.integers(1, min(N, 4) + 1))
    arguments = problem(seed, N=N, r=r, width=width, lengths=lengths, num_parts=num_parts, dtype=dtype)
    assert_close(run(arguments), oracle(*arguments), dtype)
    wrong = arguments[int(rng.choice([3, 4]))]
    if wrong.size:
        wrong.reshape(-1)[rng.integers(wrong.size)] = rng.choice([N, -1, 2**31 - 1, -(2**31)])
        first, last = arguments[2][[0, -1]]
        named = np.concatenate([arguments[3][first:last], arguments[4][first:last].reshape(-1)])
        try:
            jax.block_until_ready(run(arguments))
        except (ValueError, RuntimeError) as error:
            assert "rows and columns must be those of W" in str(error)
        else:
            assert ((0 <= named) & (named < N)).all()
    if dtype == np.float32:
        W, ZW = step_problem(seed, N, r)
        W_next = native_step(decomposition.column_sums(W, ZW), W, ZW, 1.0 + 0.9 * (seed % 3 == 0))
        np.testing.assert_allclose(np.asarray(W_next).sum(1), 1, rtol=1e-5)
print("done")
"""


@functools.cache
def library(name):
    """The path of a run-time library of gcc's, or None."""
    if not shutil.which("gcc"):
        return None
    done = subprocess.run(["gcc", f"-print-file-name={name}.so"], capture_output=True, text=True)
    path = done.stdout.strip()
    return path if os.path.isabs(path) and os.path.exists(path) else None


@pytest.mark.slow
def test_under_sanitizers(tmp_path):
    libraries = [library("libasan"), library("libubsan")]
    if None in libraries:
        pytest.skip("no gcc with sanitizers")
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tests.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "CC": f"env -u LD_PRELOAD gcc {' '.join(SANITIZERS)}",
        "DCDJAX_CACHE": str(tmp_path),
        "LD_PRELOAD": " ".join(filter(None, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own are many
    }
    environment.pop("DCDJAX_NATIVE", None)
    code = CHILD.format(tests=str(tests), num_examples=NUM_EXAMPLES)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100 * (1 + NUM_EXAMPLES),
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout == "done\n"

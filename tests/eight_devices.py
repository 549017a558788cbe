"""Code run in a process of its own that has eight devices."""

import os
import subprocess
import sys

BEGIN = f"""
import jax
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})
import jax.numpy as jnp, numpy as np, dcdjax
from jax.sharding import AxisType, Mesh
from dcdjax.devices import layout, sweeps
from dcdjax.fitting import smoothing
from dcdjax.fitting import scheduler
from dcdjax import similarity
from dcdjax.solvers import full_batch
from dcdjax.starts import initialize, spectrum
from problems import random_S
devices = jax.devices()
close = {{jnp.float64: 1e-10, jnp.float32: 1e-5}}
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code],
        capture_output=True, text=True, timeout=400, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

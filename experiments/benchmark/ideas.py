"""Measure variants of the pass over S. Each variant changes one constant or one line.

    python experiments/benchmark/ideas.py

takes some minutes and writes ideas.json: seconds of a pass over S, r = 200 and 50, over those of the C pass
measured in turns with it. See README.md beside this file for what follows from it.
"""

import importlib
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import run
import scipy.sparse

HERE = Path(__file__).parent
KERNELS = {"native": {"devices": 1, "native": True}, "xla": {"devices": 0, "native": False}}
# What is changed, for which kernels: a constant of a module to one of some values.
CONSTANTS = {
    "columns of a segment": ("packing.WIDTHS", [(8, 4), (16, 8, 4), (32, 16, 8, 4)], ("native", "xla")),
    "rows of a window": ("packing.WINDOW", [256, 512, 1024, 2048, 4096, 1 << 30], ("native", "xla")),
    "cells per nonzero": ("kind.cells_per_nonzero", [0.0, 1.0, 1.5, 2.2, 3.0, 5.0, 8.0], ("native", "xla")),
    "rows of a tile": ("kind.tile_size", [128, 256, 512], ("xla",)),
    "bytes of a block": ("kind.block_bytes", [1 << 16, 1 << 18, 1 << 20, 1 << 22], ("xla",)),
}


def half_rows(sweeps: Any, jax: Any) -> None:
    """Let XLA gather rows of W in bfloat16 and sum them in float32."""
    jnp, whole = jax.numpy, sweeps.add_segments

    class Halved:
        """Behave as W, but give rows in half precision when they are gathered."""

        def __init__(self, W: Any) -> None:
            self.W, self.shape, self.dtype = W, W.shape, W.dtype
            self.half = W.astype(jnp.bfloat16)
            self.at = self

        def __getitem__(self, index: Any) -> Any:
            self.index = index
            return self

        def get(self, mode: str) -> Any:
            return self.half.at[self.index].get(mode=mode).astype(self.dtype)

    sweeps.add_segments = lambda so_far, W, *rest: whole(so_far, Halved(W), *rest)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    jax = importlib.import_module("jax")
    jax.config.update("jax_num_cpu_devices", job["devices"] or os.cpu_count() or 1)
    import numpy as np

    import dcdjax
    from dcdjax import similarity
    from dcdjax.devices import layout, packing, sharding, sweeps
    from dcdjax.starts import initialize

    matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(job["matrix"]))
    S = similarity.from_matrix(matrix)
    if job["what"] == "bfloat16":
        half_rows(sweeps, jax)
    else:
        module, name = job["constant"].split(".")
        if module == "packing":
            setattr(packing, name, job["value"])
        else:
            for kind in ("native", "xla"):
                layout.DEVICE_KINDS[kind] = replace(layout.DEVICE_KINDS[kind], **{name: job["value"]})
    laid_out = dcdjax.prepare(S, devices=jax.devices())
    W = initialize.uniform(jax.random.key(0), matrix.shape[0], job["num_topics"])
    W = sharding.replicate(W, laid_out.devices)
    sweep, limit = jax.jit(sweeps.sweep), run.yardstick()
    assert np.isfinite(float(sweep(W, laid_out).log_likelihood))
    ours, C = [], []
    until = time.perf_counter() + job["seconds"]
    while len(ours) < 4 or time.perf_counter() < until:
        C.append(limit.time_pass(matrix, job["num_topics"], 1))
        began = time.perf_counter()
        jax.block_until_ready(sweep(W, laid_out))
        ours.append(time.perf_counter() - began)
    return {"pass": min(ours), "C": min(C), "ratio": min(ours) / min(C)}


def ask(job: dict[str, Any]) -> dict[str, Any]:
    return run.rounded(run.ask(job, Path(__file__)))


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--job":
        print(json.dumps(measure(json.loads(sys.argv[2]))))
        return
    table = []
    with tempfile.TemporaryDirectory() as folder:
        path = run.counted("WikiText-2", folder)
        for num_topics in (200, 50):
            common = {"matrix": path, "num_topics": num_topics, "seconds": 1.5}
            for what, (constant, values, kernels) in CONSTANTS.items():
                for kernel in kernels:
                    for value in values:
                        job = {
                            **common,
                            **KERNELS[kernel],
                            "what": what,
                            "constant": constant,
                            "value": value,
                        }
                        table.append({"idea": what, "value": value, "kernel": kernel,
                                      "num_topics": num_topics, **ask(job)})  # fmt: skip
                        print(table[-1], flush=True)
            job = {**common, **KERNELS["xla"], "what": "bfloat16"}
            table.append({"idea": "bfloat16 gathers", "kernel": "xla", "num_topics": num_topics, **ask(job)})
            print(table[-1], flush=True)
    record = {"command": "python experiments/benchmark/ideas.py", **run.machine(), "ideas": table}
    (HERE / "ideas.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()

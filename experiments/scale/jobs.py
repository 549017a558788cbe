"""Run one job in its own process and return its seconds and bytes. run.py calls this.

How many devices and cores there are is settled when JAX begins, hence the processes.
"""

import importlib
import json
import os
import re
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import zipf
from cuts import cuts

KIND = {"step": "exact", "over_relaxation": 1.0}
GIGABYTE = 1e9


class Memory:
    """Watch the memory of the process, and end the process if it takes more than allowed.

    A limit on addresses says nothing of JAX, which reserves far more of them than it uses.
    """

    def __init__(self, most_GB: float) -> None:
        self.most_bytes = most_GB * GIGABYTE
        self.stages: list[dict[str, Any]] = []
        self.peak, self.began = self.now(), time.perf_counter()
        threading.Thread(target=self.watch, daemon=True).start()

    @staticmethod
    def now(name: str = "VmRSS") -> int:
        """Return the bytes in memory; for VmHWM, the largest number so far."""
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return 1024 * int(found[1])

    def watch(self) -> None:
        """Read the memory again and again, in a thread."""
        while True:
            now = self.now()
            self.peak = max(self.peak, now)
            if now > self.most_bytes:
                print(f"{now / GIGABYTE:.1f} GB in memory: more than allowed", file=sys.stderr, flush=True)
                os._exit(1)
            time.sleep(0.01)

    def stage(self, name: str) -> None:
        """End a stage: record its seconds, its peak and what is still in memory."""
        ended, now = time.perf_counter(), self.now()
        self.stages.append(
            {
                "stage": name,
                "seconds": ended - self.began,
                "peak_GB": max(self.peak, now) / GIGABYTE,
                "after_GB": now / GIGABYTE,
            }
        )
        self.peak, self.began = now, time.perf_counter()


def make(job: dict[str, Any]) -> dict[str, Any]:
    """Make S and save it for other jobs."""
    matrix = zipf.make(job["words"], job["nonzeros"], seed=job["seed"]).matrix
    scipy.sparse.save_npz(job["matrix"], matrix, compressed=False)
    return {"words": job["words"], "nonzeros": int(matrix.nnz)}


def begun(job: dict[str, Any]) -> Any:
    """Start JAX on the given cores with the given number of devices."""
    os.sched_setaffinity(0, job["cores"])
    jax = importlib.import_module("jax")
    jax.config.update("jax_num_cpu_devices", job["devices"])
    return jax


def by_device(tree: Any) -> list[int]:
    """Return the bytes of all arrays on each device."""
    import jax

    found: dict[int, int] = {}
    for array in jax.tree.leaves(tree):
        for shard in array.addressable_shards:
            found[shard.device.id] = found.get(shard.device.id, 0) + shard.data.nbytes
    return [found[number] for number in sorted(found)]


def collectives(text: str) -> dict[str, float]:
    """Return the megabytes that the collectives of a compiled step return, each place counted once."""
    found: dict[str, float] = {}
    kinds = "all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all"
    for shapes, kind in re.findall(rf"= (.*?) ({kinds})(?:-start)?\(", text):
        sizes = [
            (int(bits) // 8) * int(np.prod([int(n) for n in shape.split(",") if n], dtype=np.int64))
            for bits, shape in re.findall(r"[fsu](\d+)\[([\d,]*)\]", shapes)
        ]
        found[kind] = found.get(kind, 0.0) + sum(sizes) / 1e6
    return found


def step(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the seconds of a step on some devices, and the bytes on each of them."""
    jax = begun(job)
    from dcdjax import prepare, similarity
    from dcdjax.devices import sweeps
    from dcdjax.solvers import full_batch
    from dcdjax.starts import initialize

    memory = Memory(job["most_GB"])
    S = similarity.from_matrix(scipy.sparse.csr_array(scipy.sparse.load_npz(job["matrix"])))
    N, r, nonzeros = S.matrix.shape[0], job["topics"], S.matrix.nnz
    memory.stage("S")
    options: dict[str, Any] = {"split": True} if job["split"] else {}
    laid_out = jax.block_until_ready(prepare(S, devices=jax.devices(), **options))
    memory.stage("layout")
    del S
    W = laid_out.to_devices(initialize.uniform(jax.random.key(job["seed"]), N, r))
    begin = jax.jit(partial(full_batch.begin, max_steps=1000, **KIND))
    advance = jax.jit(partial(full_batch.advance, tol=0.0, **KIND))
    state = jax.block_until_ready(begin(W, laid_out))
    del W
    compiled = advance.lower(state, laid_out, until=1).compile()
    state = jax.block_until_ready(advance(state, laid_out, until=2))
    sweep = jax.jit(sweeps.sweep)
    jax.block_until_ready(sweep(state.W, laid_out))
    objective, seconds, passes = [float(state.objective)], [], []
    until = time.perf_counter() + job["seconds"]
    while len(seconds) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        jax.block_until_ready(sweep(state.W, laid_out))
        passes.append(time.perf_counter() - began)
        began = time.perf_counter()
        state = jax.block_until_ready(advance(state, laid_out, until=int(state.num_steps) + 2))
        seconds.append((time.perf_counter() - began) / 2)
        objective.append(float(state.objective))
    memory.stage("steps")
    assert np.isfinite(objective).all()
    assert objective[-1] < objective[0]
    return {
        "words": N,
        "nonzeros": int(nonzeros),
        "step": min(seconds),
        "step_median": float(np.median(seconds)),
        "pass": min(passes),
        "rounds": len(seconds),
        "S_MB_each": [size / 1e6 for size in by_device(laid_out.pieces)],
        "state_MB_each": [size / 1e6 for size in by_device(state)],
        "temporary_MB_each": compiled.memory_analysis().temp_size_in_bytes / 1e6,
        "W_MB": N * r * 4 / 1e6,
        "collectives_MB": collectives(compiled.as_text()),
        "threads_each": laid_out.num_threads,
        "stages": memory.stages,
        "peak_GB": memory.now("VmHWM") / GIGABYTE,
    }


def big(job: dict[str, Any]) -> dict[str, Any]:
    """Make a large S and take some steps on it, stage by stage."""
    jax = begun(job)
    from dcdjax import prepare, similarity
    from dcdjax.devices import native
    from dcdjax.solvers import full_batch
    from dcdjax.starts import initialize

    native.available()
    memory = Memory(job["most_GB"])
    memory.stage("imports")
    planted = zipf.make(job["words"], job["nonzeros"], seed=job["seed"])
    matrix, groups = planted.matrix, planted.groups
    del planted
    memory.stage("draw S")
    S = similarity.from_matrix(matrix)
    del matrix
    memory.stage("validate S")
    laid_out = jax.block_until_ready(prepare(S))
    memory.stage("lay out S")
    W = jax.block_until_ready(initialize.spectral(jax.random.key(job["seed"]), laid_out, job["topics"]))
    memory.stage("spectral start")
    begin = jax.jit(partial(full_batch.begin, max_steps=job["steps"], **KIND))
    advance = jax.jit(partial(full_batch.advance, tol=0.0, **KIND))
    state = jax.block_until_ready(begin(W, laid_out))
    del W
    memory.stage("first pass, compiled")
    seconds = []
    for number in range(job["steps"]):
        began = time.perf_counter()
        state = jax.block_until_ready(advance(state, laid_out, until=number + 1))
        seconds.append(time.perf_counter() - began)
    memory.stage("steps, compiled")
    history = (np.asarray(state.history.objective, np.float64) * float(laid_out.scale)).tolist()
    pieces = {type(piece).__name__: sum(by_device(piece)) / 1e6 for piece in laid_out.pieces}
    return {
        "words": S.matrix.shape[0],
        "nonzeros": int(S.matrix.nnz),
        "topics": job["topics"],
        "devices": job["devices"],
        "cores": len(job["cores"]),
        "step": min(seconds[1:]),
        "step_median": float(np.median(seconds[1:])),
        "steps": seconds,
        "objective": history,
        "found_groups": agreement(np.asarray(state.W.argmax(axis=1)), groups),
        "pieces_MB": pieces,
        "bytes_per_nonzero": laid_out.nbytes / S.matrix.nnz,
        "S_GB": sum(part.nbytes for part in (S.matrix.data, S.matrix.indices, S.matrix.indptr)) / GIGABYTE,
        "stages": memory.stages,
        "peak_GB": memory.now("VmHWM") / GIGABYTE,
        "allowed_GB": job["most_GB"],
    }


def agreement(topics: np.ndarray, groups: np.ndarray) -> float:
    """Return the normalized mutual information of two groupings of words: 1 if they are equal."""
    both = np.histogram2d(topics, groups, bins=(topics.max() + 1, groups.max() + 1))[0] / topics.size

    def entropy(shares: np.ndarray) -> float:
        shares = shares[shares > 0]
        return float(-(shares * np.log(shares)).sum())

    alone = entropy(both.sum(axis=0)) + entropy(both.sum(axis=1))
    return 2 * (alone - entropy(both)) / alone


def bandwidth(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the bytes a second that one core and all cores copy from memory to memory."""
    from dcdjax.util.parallel import in_order

    source = np.ones(job["megabytes"] * 125_000)
    target = np.empty_like(source)
    found = {}
    for many in sorted({1, os.cpu_count() or 1}):
        parts = list(zip(np.array_split(target, many), np.array_split(source, many), strict=True))
        best = np.inf
        for _ in range(8):
            began = time.perf_counter()
            list(in_order(lambda pair: np.copyto(*pair), parts, max_workers=many))
            best = min(best, time.perf_counter() - began)
        found[str(many)] = 2 * source.nbytes / best / GIGABYTE
    return {"copy_GB_per_second": found}


def main() -> None:
    job = json.loads(sys.argv[1])
    work = {"make": make, "step": step, "big": big, "cuts": cuts, "bandwidth": bandwidth}[job["what"]]
    print(json.dumps(work(job)))


if __name__ == "__main__":
    main()

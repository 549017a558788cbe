"""Measure the peak of memory of fits, and compare it with the estimate that `fit` makes before it starts.

python experiments/memory/run.py [--quick]

Each fit runs in a process of its own. Linux only: the peak comes from /proc.
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
SEED = 0
# Options of `fit`; beside them N, the draws of a row, the number of devices, and the native kernel.
SETUPS = [
    {"num_topics": 500},
    {"num_topics": 1000},
    {"num_topics": 2000},
    {"num_topics": 2000, "start": "spectral"},
    {"num_topics": 500, "restarts": 3},
    {"num_topics": 500, "restarts": 8},
    {"num_topics": 500, "restarts": 3, "combine": "best"},
    {"num_topics": 1000, "restarts": 2, "combine": "reduced"},
    {"num_topics": 1000, "restarts": 4, "combine": "best", "devices": 2},
    {"num_topics": 1000, "devices": 2, "split": True},
    {"num_topics": 1000, "devices": 2, "native": False},
    {"num_topics": 1000, "native": False},
    {"num_topics": 100, "per_row": 600},
    {"num_topics": 100, "per_row": 600, "native": False},
    {"num_topics": 200, "num_words": 50_000, "per_row": 500},
    {"num_topics": 1000, "dtype": "float64"},
]


def status(name):
    """Return a number of bytes from /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def measure(setup):
    """Fit once, and return the growth of memory beside the estimate."""
    import jax

    jax.config.update("jax_num_cpu_devices", setup.pop("devices", 1))
    import numpy as np
    import scipy.sparse

    import dcdjax
    from dcdjax.fitting import memory

    num_words, per_row = setup.pop("num_words", 20_000), setup.pop("per_row", 100)
    rng = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, num_words + 1) ** 0.8  # frequent words have more neighbors
    size = num_words * per_row // 2
    pairs = rng.choice(num_words, size, p=weights / weights.sum()), rng.integers(0, num_words, size)
    half = scipy.sparse.csr_array(scipy.sparse.coo_array((np.ones(size), pairs), (num_words, num_words)))
    S = dcdjax.similarity.from_matrix(half + half.T + scipy.sparse.eye_array(num_words))
    del half, pairs
    needed = []
    memory.compare = lambda *seen: needed.append(seen[1])
    options = {"start": "random", "max_steps": 3, "progress": False}
    dcdjax.fit(S.matrix[:50, :50] + scipy.sparse.eye_array(50), num_topics=2, **options)  # loads JAX
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    dcdjax.fit(S, **{**options, **setup})
    return {"peak_MB": round((status("VmHWM") - before) / 1e6), "estimate_MB": round(needed[-1] / 1e6),
            "num_nonzeros": S.matrix.nnz}  # fmt: skip


def main():
    if len(sys.argv) > 2:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(json.loads(sys.argv[2]))))
        return
    quick = "--quick" in sys.argv
    results = []
    print("| fit | peak, MB | estimate, MB | ratio |\n|---|---|---|---|")
    for setup in SETUPS[:1] if quick else SETUPS:
        given = dict(setup)
        environment = {**os.environ, "DCDJAX_NATIVE": str(int(given.pop("native", True)))}
        environment["JAX_ENABLE_X64"] = str(int(setup.get("dtype") == "float64"))
        command = [sys.executable, __file__, "--measure", json.dumps(given)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603, our own words
        found = json.loads(done.stdout)
        results.append({"fit": setup, **found})
        shown = ", ".join(f"{name} {value}" for name, value in setup.items())
        ratio = found["peak_MB"] / found["estimate_MB"]
        print(f"| {shown} | {found['peak_MB']} | {found['estimate_MB']} | {ratio:.2f} |", flush=True)
    if not quick:
        (HERE / "results.json").write_text(json.dumps({"seed": SEED, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

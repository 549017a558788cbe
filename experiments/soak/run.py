"""Kill `dcdjax fit --checkpoint` again and again, and compare the model with that of an uninterrupted run.

python experiments/soak/run.py [--kills 100] [--quick]
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse

import dcdjax

HERE = Path(__file__).parent
SEED = 0
# Long enough that many kills hit it: about 20 seconds on two cores.
NUM_WORDS, PER_ROW, OPTIONS = (
    4000,
    60,
    ("--topics", "60", "--restarts", "3", "--max-steps", "600", "--tol", "0"),
)


def make_matrix(path):
    """Save a random S."""
    rng = np.random.default_rng(SEED)
    half = scipy.sparse.random_array((NUM_WORDS, NUM_WORDS), density=PER_ROW / 2 / NUM_WORDS, rng=rng)
    S = half + half.T + scipy.sparse.eye_array(NUM_WORDS)
    dcdjax.similarity.from_matrix(scipy.sparse.csr_array(S)).save(path)


def start(matrix, model, checkpoint):
    """Start the command."""
    command = [sys.executable, "-m", "dcdjax", "fit", "--matrix", str(matrix), "-o", str(model), "--quiet",
               "--checkpoint", str(checkpoint), "--checkpoint-every", "0.2", *OPTIONS]  # fmt: skip
    # One device: only there the result is the same to the bit.
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "1"}
    return subprocess.Popen(  # noqa: S603, our own words
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    """Wait for the end, which must be good."""
    _, errors = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL, -signal.SIGTERM, 130):
        raise SystemExit(f"exit code {process.returncode}: {errors}")
    return process.returncode


def kill_until_done(folder, matrix, number, kills_left, chance):
    """Fit with kills at random moments; return the model and how often it was killed, by signal."""
    kills = {"SIGKILL": 0, "SIGTERM": 0}
    while True:
        model, checkpoint = folder / f"model-{number}", folder / f"checkpoint-{number}"
        process = start(matrix, model, checkpoint)
        wanted = sum(kills.values()) < kills_left
        try:
            process.wait(chance.uniform(0.5, 10.0) if wanted else None)
        except subprocess.TimeoutExpired:
            kind = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            process.send_signal(kind)
            kills[kind.name] += 1
        if finish(process) == 0:
            return dcdjax.Embedding.load(model), kills
        if model.exists():  # SIGTERM saves what was learned so far
            (model / "model.safetensors").unlink()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    most = 2 if chosen.quick else chosen.kills
    chance, total, began = random.Random(SEED), {"SIGKILL": 0, "SIGTERM": 0}, time.monotonic()  # noqa: S311
    num_runs = 0
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        make_matrix(folder / "S.safetensors")
        finish(start(folder / "S.safetensors", folder / "whole", folder / "checkpoint"))
        whole = dcdjax.Embedding.load(folder / "whole")
        while sum(total.values()) < most:
            left = most - sum(total.values())
            embedding, kills = kill_until_done(folder, folder / "S.safetensors", num_runs, left, chance)
            same = np.asarray(embedding.W).tobytes() == np.asarray(whole.W).tobytes()
            same = same and embedding.record["num_steps"] == whole.record["num_steps"]
            total = {kind: total[kind] + kills[kind] for kind in total}
            num_runs += 1
            print(f"run {num_runs}: {kills}, {'the same bits' if same else 'OTHER BITS'}", flush=True)
            if not same:
                raise SystemExit(1)
        parts = list(folder.rglob("*.part"))
    result = {"seed": SEED, "runs": num_runs, "kills": total, "same_bits": True, "parts_left": len(parts),
              "num_steps": whole.record["num_steps"], "seconds": round(time.monotonic() - began)}  # fmt: skip
    print(json.dumps(result))
    if not chosen.quick:
        (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

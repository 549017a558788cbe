"""Measure how long a query takes. See README.md beside this file."""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dcdjax import Embedding

NUM_WORDS, NUM_TOPICS, CONSENSUS, K, BATCH = 20_000, 200, 1400, 10, 1000


def timed(function: Callable[[], object], repeats: int) -> float:
    """Return the median of several calls: threads of the last measurement disturb the first few."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def process_seconds(*arguments: str) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "dcdjax", *arguments]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603, our own words
    return time.perf_counter() - began


def summary(seconds: list[float]) -> dict[str, float]:
    return {"best": round(min(seconds), 6), "median": round(float(np.median(seconds)), 6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="fewer rounds; writes nothing")
    chosen = parser.parse_args()
    rounds = 5 if chosen.quick else chosen.rounds

    rng = np.random.default_rng(0)
    W = rng.dirichlet(np.full(NUM_TOPICS, 0.1), NUM_WORDS).astype(np.float32)
    words = [f"word{n}" for n in range(NUM_WORDS)]
    embedding = Embedding(words=tuple(words), W=jnp.asarray(W))
    # What `fit` makes of a text: two starts of 200 and two of 500 topics.
    wide = rng.dirichlet(np.full(CONSENSUS, 0.02), NUM_WORDS).astype(np.float32)
    consensus = Embedding(words=tuple(words), W=jnp.asarray(wide))
    vectors = importlib.import_module("gensim.models").KeyedVectors(NUM_TOPICS)
    vectors.add_vectors(words, W)
    asked = [words[n] for n in rng.permutation(NUM_WORDS)[:BATCH]]

    questions: dict[str, tuple[Callable[[], object], int]] = {
        "gensim most_similar, one word": (lambda: vectors.most_similar(asked[0], topn=K), 300),
        "neighbors, one word": (lambda: embedding.neighbors(asked[0], K), 300),
        "neighbors, 1,000 words in a batch": (lambda: embedding.neighbors(asked, K), 5),
        "topics(10)": (lambda: embedding.topics(10), 1),
        "explain(a, b)": (lambda: embedding.explain(asked[0], asked[1]), 20),
        "similarity of 1,000 pairs": (lambda: embedding.similarity(asked, asked[::-1]), 5),
    }
    first = {name: timed(question, 1) for name, (question, _) in questions.items()}
    measured: dict[str, list[float]] = {name: [] for name in questions}
    for _ in range(rounds):  # in turns, so that a busy machine is so for all
        for name, (question, repeats) in questions.items():
            measured[name].append(timed(question, repeats))

    # By itself: it would drive all else out of the cache.
    wider: dict[str, tuple[Callable[[], object], int]] = {
        "a consensus of 1,400 topics, one word": (lambda: consensus.neighbors(asked[0], K), 50),
        "a consensus of 1,400 topics, 1,000 words": (lambda: consensus.neighbors(asked, K), 2),
    }
    for name, (question, repeats) in wider.items():
        first[name] = timed(question, 1)
        measured[name] = [timed(question, repeats) for _ in range(rounds)]

    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        saving = [timed(lambda: embedding.save(model), 1) for _ in range(3)]
        loading = [timed(lambda: Embedding.load(model), 1) for _ in range(rounds)]
        shell_help = [process_seconds("--help") for _ in range(5)]
        shell_neighbors = [process_seconds("neighbors", model, asked[0]) for _ in range(3)]

    single, batch = "neighbors, one word", "neighbors, 1,000 words in a batch"
    peer = "gensim most_similar, one word"
    best = {name: min(seconds) for name, seconds in measured.items()}
    ratio = [ours / theirs for ours, theirs in zip(measured[single], measured[peer], strict=True)]
    gain = [one / many * BATCH for one, many in zip(measured[single], measured[batch], strict=True)]
    results = {
        "command": "python experiments/queries/run.py",
        "seed": 0,
        "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
        "versions": {name: version(name) for name in ("jax", "numpy", "gensim")},
        "backend": jax.default_backend(),
        "rounds": rounds,
        "seconds": {name: summary(seconds) for name, seconds in measured.items()},
        "first_call_seconds": {name: round(seconds, 3) for name, seconds in first.items()},
        "one_word_over_gensim": {"of_bests": round(best[single] / best[peer], 3), **summary(ratio)},
        "batch_gain_per_word": {
            "of_bests": round(best[single] / best[batch] * BATCH, 2),
            "median": round(float(np.median(gain)), 2),
        },
        "save_seconds": summary(saving),
        "load_seconds": summary(loading),
        "shell_help_seconds": summary(shell_help),
        "shell_neighbors_seconds": summary(shell_neighbors),
    }
    print(json.dumps(results, indent=2))
    if not chosen.quick:
        (Path(__file__).parent / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()

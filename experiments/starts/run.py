"""Measure what a spectral start gains, what it costs, and which part of it matters. See README.md."""

import argparse
import itertools
import json
import os
import platform
import sys
import time
import warnings
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import dcdjax
from dcdjax import evaluation, similarity
from dcdjax.devices import layout
from dcdjax.solvers import full_batch
from dcdjax.starts import initialize, kmeans, spectrum

HERE = Path(__file__).parent
DATA = Path(os.environ.get("DCDJAX_DATA") or HERE.parents[2] / "shared" / "data")
# The words of the corpora stand between blanks.
AS_IT_IS: Any = {"tokens": "blanks", "min_count": 1}
TEXTS = {"WikiText-2": "wikitext-2/train.txt.gz", "Wikipedia, 100 MB": "wikipedia/enwiki-2015-100m.txt.gz"}
NUM_TOPICS = 200
AFTER = (0, 5, 10, 20, 40)
PAIRS = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
# One thing at a time is changed from what `initialize` does.
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    **{f"{n} powers": {"powers": n} for n in (0, 1, 3)},
    **{f"{n} dimensions": {"dimensions": n} for n in (50, 100, 200)},
    **{f"{n} rounds": {"rounds": n} for n in (0, 2, 4, 16)},
    **{f"sharpness {n}": {"sharpness": n} for n in (5.0, 20.0)},
    "indicator + 0.2": {"indicator": 0.2},
}

_run = jax.jit(partial(full_batch.run, step="exact", over_relaxation=1.9, max_steps=max(AFTER)))


def curve(W: jax.Array, laid_out: layout.Layout) -> list[float]:
    """Return the objective after some numbers of steps, in millions."""
    objective = _run(W, laid_out, jnp.float32(0)).history.objective
    return [round(float(objective[t]) / 1e6, 3) for t in AFTER]


def best_of(function: Any, times: int = 4) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        jax.block_until_ready(function())
        seconds.append(time.perf_counter() - began)
    return round(min(seconds), 3)


def varied(key: jax.Array, laid_out: layout.Layout, changed: dict[str, Any]) -> jax.Array:
    """Return a spectral start with one part changed."""
    of_vectors, of_clusters, of_noise = jax.random.split(key, 3)
    dimensions = changed.get("dimensions", initialize.num_dimensions(NUM_TOPICS))
    with mock.patch.object(spectrum, "_NUM_POWERS", changed.get("powers", spectrum._NUM_POWERS)):
        jax.clear_caches()
        vectors = spectrum.vectors(of_vectors, laid_out, num_dimensions=dimensions)
    rounds = {"num_rounds": changed["rounds"]} if "rounds" in changed else {}
    cosines = kmeans.cosines_to_centers(of_clusters, vectors, num_clusters=NUM_TOPICS, **rounds)
    if "indicator" in changed:
        return initialize.on_simplex(
            jax.nn.one_hot(cosines.argmax(axis=1), NUM_TOPICS) + changed["indicator"]
        )
    return initialize.soft(of_noise, cosines, changed.get("sharpness", initialize._SHARPNESS))


def measured(name: str, S: Any, keys: list[int]) -> list[dict[str, Any]]:
    laid_out = dcdjax.prepare(S)
    N, table = laid_out.num_words, []
    first, *_ = keys

    def add(start: str, W: Any, key: int, **more: Any) -> None:
        table.append({"corpus": name, "start": start, "key": key, "objective": curve(W, laid_out), **more})
        print(table[-1], flush=True)

    step = best_of(lambda: _run(initialize.uniform(jax.random.key(first), N, NUM_TOPICS), laid_out,
                                jnp.float32(0)).W, 2) / max(AFTER)  # fmt: skip
    for n in keys:
        key = jax.random.key(n)
        for start, make in {
            "uniform": lambda key=key: initialize.uniform(key, N, NUM_TOPICS),
            "spectral": lambda key=key: initialize.spectral(key, laid_out, NUM_TOPICS),
        }.items():
            add(start, make(), n, seconds=best_of(make), ten_steps=round(10 * step, 3))
    return table


def judged(name: str, counts: Any) -> list[dict[str, Any]]:
    table = []
    for start, restarts in itertools.product(("random", "spectral"), (1, 4)):
        began = time.perf_counter()
        options = {"start": start, "restarts": restarts, "progress": False}
        options |= {"smoothing": 0.0, "frequency_exponent": 0.0, "over_relaxation": 1.9, "tol": 1e-2}
        embedding = dcdjax.fit(counts, num_topics=NUM_TOPICS, shift=1.0, key=0, **options)
        found = {
            "corpus": name,
            "start": start,
            "restarts": restarts,
            "seconds": round(time.perf_counter() - began, 1),
            "num_steps": embedding.record["num_steps"],
            **{
                pairs: round(evaluation.word_pairs(embedding, DATA / "evaluation" / file).spearman, 3)
                for pairs, file in PAIRS.items()
            },
        }
        print(found, flush=True)
        table.append(found)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="WikiText-2 and one key; writes nothing")
    chosen = parser.parse_args()
    if not (DATA / "wikitext-2").is_dir():
        raise SystemExit("no corpora: DCDJAX_DATA does not name their folder")
    warnings.simplefilter("ignore")  # what has not converged
    curves, variants, scores = [], [], []
    for name, file in list(TEXTS.items())[: 1 if chosen.quick else None]:
        flat = dcdjax.count(DATA / file, window=8, max_words=20_000, **AS_IT_IS)
        S = similarity.from_counts(flat, weighting="ppmi")
        curves += measured(name, S, [0] if chosen.quick else [0, 1, 2])
        if name == "WikiText-2" and not chosen.quick:
            laid_out = dcdjax.prepare(S)
            for variant, changed in VARIANTS.items():
                objective = np.mean(
                    [curve(varied(jax.random.key(n), laid_out, changed), laid_out) for n in (0, 1)], axis=0
                )
                variants.append({"variant": variant, "objective": objective.round(3).tolist()})
                print(variants[-1], flush=True)
        counts = dcdjax.count(
            DATA / file, window=8, max_words=20_000, distance_weighting="linear", **AS_IT_IS
        )
        scores += judged(name, counts)
    if chosen.quick:
        return
    packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy")
    results = {
        "command": " ".join(["python experiments/starts/run.py", *sys.argv[1:]]),
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
        "packages": {package: version(package) for package in packages},
        "num_topics": NUM_TOPICS,
        "steps": AFTER,
        "starts": curves,
        "variants": variants,
        "scores": scores,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

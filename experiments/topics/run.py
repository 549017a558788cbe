"""Count how often the planted number of topics is found, and the topics left of a text. See README.md."""

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import dcdjax
from dcdjax import similarity
from dcdjax.solvers import full_batch, pruning, result
from dcdjax.starts import initialize

HERE = Path(__file__).parent
DATA = Path(os.environ.get("DCDJAX_DATA") or HERE.parents[2] / "shared" / "data")
# The words of the corpora stand between blanks.
AS_IT_IS: Any = {"tokens": "blanks", "min_count": 1}
INSIDE = 4.0  # counts of a pair in a group, on average
GROUPS = {"4 of 30": (30,) * 4, "8 of 10 to 20": (10, 12, 14, 14, 16, 16, 18, 20)}
RATIOS = (10, 5, 3, 2)
FACTORS = (0.5, 1.0, 2.0)
MULTIPLES = (2, 3, 5)
ANNEALED = {"none": 1.0, "2 to 1": np.geomspace(2, 1, 30), "10 to 1": np.geomspace(10, 1, 30)}


def planted(seed: int, sizes: tuple[int, ...], ratio: float) -> np.ndarray:
    group = np.repeat(np.arange(len(sizes)), sizes)
    rate = np.where(group[:, None] == group, INSIDE, INSIDE / ratio)
    counts = np.triu(np.random.default_rng(seed).poisson(rate))
    return counts + np.triu(counts, 1).T


def left(case: tuple[str, float, int, int]) -> list[int]:
    """Return the topics left of one problem for each relevance. All of them share compiled programs."""
    name, ratio, multiple, seed = case
    S = planted(seed, GROUPS[name], ratio)
    W = initialize.uniform(jax.random.key(seed), len(S), multiple * len(GROUPS[name]))
    factors = FACTORS if multiple == 3 else (1.0,)
    return [int(pruning.prune(W, S, relevance=factor).W.shape[1]) for factor in factors]


def one_group(seed: int) -> list[int]:
    S = planted(seed, (40,), 1.0)
    W = initialize.uniform(jax.random.key(seed), len(S), 3)
    return [int(pruning.prune(W, S, relevance=factor).W.shape[1]) for factor in FACTORS]


def annealed(case: tuple[str, float, int]) -> dict[str, list[float]]:
    """Return the objectives of eight random starts with the right number of topics, for each way to begin."""
    name, ratio, seed = case
    S = planted(seed, GROUPS[name], ratio)
    batch = initialize.uniform(jax.random.key(seed), len(S), len(GROUPS[name]), restarts=8)
    options: dict[str, Any] = {"tol": 1e-5, "max_steps": 800, "over_relaxation": 1.9}
    return {
        way: np.asarray(
            full_batch.solve_restarts(batch, S, concentration=alphas, **options).objective
        ).tolist()
        for way, alphas in ANNEALED.items()
    }


def of_text(max_words: int, num_topics: int, max_steps: int) -> list[dict[str, Any]]:
    counts = dcdjax.count(DATA / "wikitext-2/train.txt.gz", window=8, max_words=max_words, **AS_IT_IS)
    table = []
    for weighting, factors in {"counts": (0.001, 0.01, 0.1), "ppmi": (0.1, 1.0)}.items():
        S = similarity.from_counts(counts, weighting=weighting)
        W = initialize.uniform(jax.random.key(0), len(S.matrix.indptr) - 1, num_topics)
        begun = full_batch.solve(W, S, tol=0.0, max_steps=20, over_relaxation=1.9).W
        noise = float(pruning.noise(begun, S.matrix)) * float(S.matrix.sum()) / len(W)
        for factor in factors:
            began = time.perf_counter()
            found = pruning.prune(W, S, relevance=factor, max_steps=max_steps)
            sizes = np.sort(np.asarray(found.W.sum(axis=0)))[::-1]
            table.append(
                {
                    "weighting": weighting,
                    "relevance": factor,
                    "noise": round(noise, 2),
                    "topics": int(found.W.shape[1]),
                    "words_of_largest": round(float(sizes[0])),
                    "words_of_smallest": round(float(sizes[-1]), 1),
                    "status": result.Status(int(found.status)).name,
                    "seconds": round(time.perf_counter() - began, 1),
                }
            )
            print(table[-1], flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seeds, no text; writes nothing")
    chosen = parser.parse_args()
    if not chosen.quick and not (DATA / "wikitext-2").is_dir():
        raise SystemExit("no corpora: DCDJAX_DATA does not name their folder")
    seeds = range(2 if chosen.quick else 10)
    settings = [(name, ratio, 3) for name in GROUPS for ratio in RATIOS]
    settings += [("4 of 30", ratio, multiple) for ratio in (10, 3) for multiple in MULTIPLES if multiple != 3]
    found = []
    # Most of the time goes to compiling, for each S anew: that is done on one core.
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        cases = [(*setting, seed) for setting, seed in itertools.product(settings, seeds)]
        numbers = pool.map(left, cases, chunksize=1)
        for n, (name, ratio, multiple) in enumerate(settings):
            per_seed = numbers[n * len(seeds) : (n + 1) * len(seeds)]
            for factor, topics in zip(
                FACTORS if multiple == 3 else (1.0,), zip(*per_seed, strict=True), strict=True
            ):
                row = {"groups": name, "ratio": ratio, "multiple": multiple, "relevance": factor}
                found.append(
                    {**row, "right": sum(t == len(GROUPS[name]) for t in topics), "topics": list(topics)}
                )
                print(found[-1], flush=True)
        alone = [list(topics) for topics in zip(*pool.map(one_group, seeds), strict=True)]
        print("one group", alone, flush=True)
        starts = []
        for name, ratio in itertools.product(GROUPS, (10, 3)):
            per_way = pool.map(annealed, [(name, ratio, seed) for seed in list(seeds)[:4]])
            plain = np.array([of_seed["none"] for of_seed in per_way])
            for way in list(ANNEALED)[1:]:
                gained = 1 - np.array([of_seed[way] for of_seed in per_way]) / plain
                row = {"groups": name, "ratio": ratio, "annealed": way, "starts": gained.size}
                row |= {"lower": int((gained > 1e-5).sum()), "higher": int((gained < -1e-5).sum())}
                starts.append({**row, "mean_percent_lower": round(100 * float(gained.mean()), 3)})
                print(starts[-1], flush=True)
    if chosen.quick:
        return
    text = of_text(max_words=5000, num_topics=100, max_steps=300)
    packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy")
    results = {
        "command": " ".join(["python experiments/topics/run.py", *sys.argv[1:]]),
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
        "packages": {package: version(package) for package in packages},
        "planted": found,
        "one_group": dict(zip(map(str, FACTORS), alone, strict=True)),
        "annealed": starts,
        "text": text,
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

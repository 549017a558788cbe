"""Compare the neighbors with those of other methods. See README.md beside this file."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "neighbors")]

import dictionaries
import methods
from methods import CORPORA, DATA, METHODS
from nearest import neighbors, num_agreeing
from published import PUBLISHED  # pyright: ignore[reportMissingImports]

from dcdjax.evaluation import scores
from dcdjax.topics import coherence

RESULTS = HERE / "results.json"
DICTIONARIES = os.environ.get("DCDJAX_DICTIONARIES")
JUDGMENTS = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
NUM_RESAMPLES = 1000
DEPTH = 10  # of a topic's words, for coherence


def pairs_of(table: scores.Vectors, judged: list[Any], lowercase: bool) -> dict[str, Any]:
    """Return Spearman's correlation with a 95 % interval from resampled pairs."""
    result = scores.word_pairs(table, judged, lowercase=lowercase)
    spelled = [(*(word.lower() if lowercase else word for word in pair[:2]), pair[2]) for pair in judged]
    number = {word: n for n, word in enumerate(table.words)}
    known = [pair for pair in spelled if number.keys() >= set(pair[:2])]
    words = tuple({word for pair in known for word in pair[:2]})
    few = scores.Vectors(words, table.vectors[[number[word] for word in words]], table.scores)
    chosen = np.random.default_rng(0).integers(len(known), size=(NUM_RESAMPLES, len(known)))
    resampled = [scores.word_pairs(few, [known[n] for n in row]).spearman for row in chosen]
    low, high = np.percentile(resampled, [2.5, 97.5])
    return {
        "spearman": round(result.spearman, 4),
        "interval": [round(float(low), 3), round(float(high), 3)],
        "pairs": result.num_pairs,
    }


def agreement(table: scores.Vectors, published: dict[str, list[str]]) -> dict[str, Any]:
    """Count the paper's neighbors among the first 7 and 20."""
    found = {word: neighbors(table, word, 20) for word in published if word in table.words}
    counts = {f"first {k}": num_agreeing(found, published, k) for k in (7, 20)}
    return {**counts, "published": sum(map(len, published.values()))}


def judged(name: str, corpus: str) -> dict[str, Any]:
    """Score one method on one corpus in its own process, so that nothing is compiled or cached before."""
    warnings.simplefilter("ignore")  # what has not converged
    began = time.perf_counter()
    learned = METHODS[name](corpus)
    seconds = time.perf_counter() - began
    table = scores.as_vectors(learned.vectors)
    lowercase = corpus != "WikiText-2"
    measured: dict[str, Any] = {"method": name, "corpus": corpus, "seconds": round(seconds, 1)}
    for judgment, file in JUDGMENTS.items():
        pairs = scores.read_pairs(DATA / "evaluation" / file)
        measured[judgment] = pairs_of(table, pairs, lowercase)
    measured["mean Spearman"] = round(
        float(np.mean([measured[judgment]["spearman"] for judgment in JUDGMENTS])), 4
    )
    if DICTIONARIES:
        for kind, pairs in dictionary_pairs().items():
            measured[kind] = round(scores.word_pairs(table, pairs).spearman, 4)
    questions = DATA / "evaluation" / "questions-words.txt"
    asked = {
        method: scores.analogies(table, questions, lowercase=lowercase, method=method)
        for method in ("add", "multiply")
    }
    measured["analogies"] = {
        **{method: round(result.accuracy, 4) for method, result in asked.items()},
        "questions": asked["add"].num_questions,
    }
    measured["agreement"] = agreement(table, PUBLISHED[1 if corpus == "WikiText-2" else 2])
    if learned.topics is not None:
        counts = methods.counted(corpus)
        number = {word: n for n, word in enumerate(counts.words)}
        rows = np.array([number[word] for word in table.words])
        top = rows[np.argsort(-learned.topics, axis=1, kind="stable")[:, :DEPTH]]
        assert counts.passages is not None
        of_topics = coherence.npmi(counts.passages, top)[:, -1]
        measured["coherence"] = {
            "mean": round(float(of_topics.mean()), 4),
            "median": round(float(np.median(of_topics)), 4),
            "distinct words": round(len(np.unique(top)) / top.size, 3),
        }
    return {**measured, **(learned.details or {})}


def dictionary_pairs() -> dict[str, list[dictionaries.Pair]]:
    """Return the pairs to choose by: words of both large corpora, and none of a test set."""
    assert DICTIONARIES
    tests = [scores.read_pairs(DATA / "evaluation" / file) for file in JUDGMENTS.values()]
    excluded = {word.lower() for pairs in tests for *words, _ in pairs for word in words}
    words, others = (methods.counted(corpus).words for corpus in list(CORPORA)[:2])
    # The first are articles, prepositions, signs.
    usable = set(others)
    return dictionaries.pairs(Path(DICTIONARIES), [word for word in words[150:] if word in usable], excluded)


def ask(name: str, corpus: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", name, corpus]
    answer = subprocess.run(  # noqa: S603
        command, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(answer.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "CORPUS"), help="measures one; writes nothing")
    parser.add_argument("--methods", help="only those whose name has this in it; the others stay as they are")
    parser.add_argument("--corpora", help="only those whose name has this in it")
    chosen = parser.parse_args()
    if not CORPORA["WikiText-2"].exists():
        raise SystemExit("no corpora: DCDJAX_DATA does not name their folder")
    if chosen.one:
        print(json.dumps(judged(*chosen.one)))
        return
    earlier = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    results = {(one["method"], one["corpus"]): one for one in earlier}
    for corpus in CORPORA:
        for name in METHODS:
            wanted = (chosen.methods or "") in name and (chosen.corpora or "") in corpus
            if not wanted:
                continue
            results[name, corpus] = ask(name, corpus)
            print(results[name, corpus], flush=True)
            in_order = [results[m, c] for c in CORPORA for m in METHODS if (m, c) in results]
            packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "gensim")
            written = {
                "command": "python experiments/quality/run.py",
                "seed": methods.SEED,
                "machine": {"cores": os.cpu_count(), "system": platform.platform()},
                "packages": {package: version(package) for package in packages},
                "shared": {
                    "dimension": methods.DIMENSION, "window": methods.WINDOW, "words": methods.MAX_WORDS,
                    "resamples": NUM_RESAMPLES, "depth of coherence": DEPTH,
                },
                "results": in_order,
            }  # fmt: skip
            RESULTS.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()

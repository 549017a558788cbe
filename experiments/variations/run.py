"""Measure what other divergences and priors do to held-out counts and neighbors. See README.md."""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

import dcdjax
from dcdjax import evaluation
from dcdjax.method import divergences
from dcdjax.similarity import weighting
from dcdjax.solvers import gradient, minibatches
from dcdjax.starts import initialize

HERE = Path(__file__).parent
DATA = Path(os.environ.get("DCDJAX_DATA") or HERE.parents[2] / "shared" / "data")
JUDGMENTS = {"WordSim-353": "wordsim353.tsv", "SimLex-999": "simlex999.txt"}
ORDERS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
NUM_EPOCHS, NUM_STEPS = 10, 15
# Of one number: that of all steps. Of two: from the first to the second over the first ten steps.
CONCENTRATIONS = (0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 5.0, (5.0, 1.0))


def problems(max_words):
    """Return, for each weighting, S of the training text, and (indices, values) of the held-out text."""
    given = {"window": 8, "distance_weighting": "harmonic", "drop": ["<unk>"]}
    given |= {"tokens": "blanks", "min_count": 1}  # they are words already
    seen = dcdjax.count(DATA / "wikitext-2" / "train.txt.gz", max_words=max_words, **given)
    unseen = dcdjax.count(DATA / "wikitext-2" / "valid.txt.gz", max_words=None, **given)
    number = {word: n for n, word in enumerate(unseen.words)}
    for name, weigh in (("counts", lambda counts: counts), ("ppmi", weighting.ppmi)):
        S = dcdjax.similarity.from_counts(seen, weighting=name, drop_isolated=True)
        words = list(S.words or ())
        known = np.array([n for n, word in enumerate(words) if word in number], np.int32)
        rows = [number[words[n]] for n in known]
        entries = scipy.sparse.coo_array(weigh(unseen.matrix[rows][:, rows]))
        places = known[np.stack([entries.row, entries.col], axis=1)]
        yield name, S, (jnp.asarray(places), jnp.asarray(entries.data.astype(np.float32)))


def judged(S, W, held_out):
    """Return the scores on held-out text, the entropy of topics, and the agreement with human judgments."""
    W_host = np.asarray(W, np.float64)
    embedding = dcdjax.Embedding(S.words, W)
    scores = {
        name: evaluation.word_pairs(embedding, evaluation.read_pairs(DATA / "evaluation" / file)).spearman
        for name, file in JUDGMENTS.items()
    }
    C_idx, C_val = held_out
    return {
        "held out": float(dcdjax.objective(W, C_idx, C_val)) / float(np.sum(C_val)),
        "topics of a word": float(np.exp(-(W_host * np.log(W_host)).sum(1).mean())),
        **scores,
    }


def of_divergences(S, start, held_out):
    batches = minibatches.draw(jax.random.key(1), S, 16)
    kinds = {
        "solve (KL)": None,
        **{f"alpha {order}": divergences.alpha(order) for order in ORDERS},
        "squared": divergences.squared,
    }
    for name, divergence in kinds.items():
        began = time.perf_counter()
        if divergence is None:
            found = dcdjax.solve(start, S, tol=0.0, max_steps=NUM_STEPS, over_relaxation=1.9)
        else:
            found = gradient.solve(
                start, batches, key=2, divergence=divergence, tol=0.0, max_epochs=NUM_EPOCHS
            )
        W = jax.block_until_ready(found.W)
        yield name, {"seconds": time.perf_counter() - began, **judged(S, W, held_out)}


def of_priors(S, start, held_out):
    layout = dcdjax.prepare(S)
    for concentration in CONCENTRATIONS:
        annealed = isinstance(concentration, tuple)
        given = np.linspace(*concentration, 10) if annealed else concentration
        W = dcdjax.solve(
            start, layout, tol=0.0, max_steps=NUM_STEPS, over_relaxation=1.9, concentration=given
        ).W
        plain = float(dcdjax.solve(W, layout, max_steps=0).objective)
        name = f"{concentration[0]} to {concentration[1]}" if annealed else f"{concentration}"
        yield name, {"objective": plain, **judged(S, W, held_out)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few words and topics; writes nothing")
    quick = parser.parse_args().quick
    results = {}
    for name, S, held_out in problems(1000 if quick else 20_000):
        start = initialize.spectral(jax.random.key(0), S, 20 if quick else 100)
        results[name] = {"words": S.num_words, "nonzeros": S.matrix.nnz, "topics": start.shape[1]}
        for kind, rows in (("divergences", of_divergences), ("priors", of_priors)):
            results[name][kind] = {}
            for row, found in rows(S, start, held_out):
                results[name][kind][row] = found
                print(name, kind, row, {key: f"{value:.4g}" for key, value in found.items()}, flush=True)
        chosen = {
            row: found["held out"] for row, found in results[name]["divergences"].items() if "alpha" in row
        }
        results[name]["chosen"] = min(chosen, key=lambda row: chosen[row])
        print(name, "chosen by what was held out:", results[name]["chosen"], flush=True)
    if not quick:
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

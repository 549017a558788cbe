"""Find the settings with the best neighbors by pairs from dictionaries, none of a test set. See README.md."""

import argparse
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

import jax
import jax.numpy as jnp
import methods
import numpy as np
from methods import CORPORA
from run import DICTIONARIES, HERE, dictionary_pairs  # pyright: ignore[reportAttributeAccessIssue]

import dcdjax
from dcdjax import evaluation, similarity
from dcdjax.devices import layout, sweeps
from dcdjax.fitting import smoothing
from dcdjax.method import decomposition
from dcdjax.starts import initialize, spectrum

# One thing at a time is changed from the base: what `fit` does, but for two starts of 200 topics.
BASE: dict[str, Any] = {"num_topics": 200, "restarts": 2, "key": 0, "progress": False}
LINEAR = {"distance_weighting": "linear"}
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    **{f"key {n}": {"key": n} for n in (1, 2)},
    **{f"smoothing {a:g}": {"smoothing": a} for a in (0.0, 5.0, 50.0, 200.0)},
    **{f"frequency exponent {g:g}": {"frequency_exponent": g} for g in (0.0, 0.3)},
    **{f"shift {s:g}": {"shift": s} for s in (-1.0, 1.0)},
    **{f"context exponent {a:g}": {"context_exponent": a} for a in (0.5, 1.0)},
    **{f"weighting {w}": {"weighting": w} for w in ("counts", "degree")},
    **{f"window {w}": {"counting": {"distance_weighting": w}} for w in ("flat", "harmonic")},
    **{f"window of {w}": {"counting": {**LINEAR, "window": w}} for w in (4, 16)},
    "subsample 1e-4": {"counting": {**LINEAR, "subsample": 1e-4}},
    **{f"{r} topics": {"num_topics": r} for r in (50, 100, 500)},
    **{f"{r} topics": {"num_topics": r, "restarts": 1} for r in ((100, 500), (200, 500))},
    **{f"{n} starts": {"restarts": n} for n in (1, 4, 8)},
    "(200, 500) topics, 2 starts each": {"num_topics": (200, 500)},
    "random starts": {"start": "random"},
    "relaxed step": {"step": "relaxed"},
    "over-relaxation 1.9, tol 0.01": {"over_relaxation": 1.9, "tol": 0.01},
    **{f"{n} steps": {"tol": 0.0, "max_steps": n} for n in (5, 40)},
    **{f"Dirichlet prior {a:g}": {"prior": a} for a in (0.1, 0.3)},
}
# The larger corpus takes longer, and is asked only what the smaller one leaves open.
FEW = ("base", "key 1", "smoothing 0", "smoothing 50", "frequency exponent 0", "frequency exponent 0.3",
       "shift 1", "500 topics", "(200, 500) topics, 2 starts each",
       "over-relaxation 1.9, tol 0.01")  # fmt: skip


@partial(jax.jit, static_argnames="num_steps")
def with_prior(W: Any, laid_out: layout.Layout, prior: float, *, num_steps: int = 20) -> Any:
    """Take exact steps of the objective minus a sum log W_ik, with a in units of the mean of A_ik."""

    def step(_: Any, W: Any) -> Any:
        ZW = sweeps.sweep(W, laid_out).ZW
        sums = decomposition.column_sums(W, ZW)
        pseudo = prior * jnp.mean(2 * W * ZW / sums.s)
        return decomposition.exact_step(sums, W, ZW + pseudo * sums.s / (2 * W))

    return jax.lax.fori_loop(0, num_steps, step, W)


def fitted_with_prior(counts: Any, prior: float) -> dcdjax.Embedding:
    S = similarity.from_counts(counts, frequency_exponent=0.15, drop_isolated=True)
    laid_out = dcdjax.prepare(S)
    of_vectors, of_starts = jax.random.split(jax.random.key(0))
    vectors = spectrum.vectors(of_vectors, laid_out, num_dimensions=initialize.num_dimensions(200))
    share = smoothing.shares(counts.vocabulary.counts[S.kept], 20.0).astype(np.float32)
    starts = [
        smoothing.smoothed(
            with_prior(initialize.clustered(key, vectors, 200), laid_out, prior), laid_out, jnp.asarray(share)
        )
        for key in jax.random.split(of_starts, 2)
    ]
    assert S.words is not None
    return dcdjax.Embedding(S.words, jnp.concatenate(starts, axis=1) / 2, starts=(200, 200))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    if not DICTIONARIES:
        raise SystemExit("no dictionaries: DCDJAX_DICTIONARIES does not name their folder")
    warnings.simplefilter("ignore")  # what has not converged
    pairs, table, cache = dictionary_pairs(), [], {}
    for corpus, names in zip(list(CORPORA)[:2], (tuple(VARIANTS), FEW), strict=True):
        cache.clear()
        for name in names:
            changed = dict(VARIANTS[name])
            counting = changed.pop("counting", LINEAR)
            how = json.dumps(counting)
            if how not in cache:
                cache[how] = dcdjax.count(
                    CORPORA[corpus],
                    **methods.AS_IT_IS,
                    **{"window": methods.WINDOW, "max_words": methods.MAX_WORDS, **counting},
                )
            began = time.perf_counter()
            if "prior" in changed:
                embedding = fitted_with_prior(cache[how], changed["prior"])
            else:
                embedding = dcdjax.fit(cache[how], **{**BASE, **changed})
            seconds = time.perf_counter() - began
            scores = {kind: evaluation.word_pairs(embedding, one).spearman for kind, one in pairs.items()}
            table.append({
                "corpus": corpus, "variant": name, "seconds": round(seconds, 1),
                "mean": round(float(np.mean(list(scores.values()))), 4),
                **{kind: round(score, 4) for kind, score in scores.items()},
            })  # fmt: skip
            print(table[-1], flush=True)
    packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy")
    results = {
        "command": "python experiments/quality/sweep.py",
        "machine": {"cores": os.cpu_count(), "system": platform.platform()},
        "packages": {package: version(package) for package in packages},
        "base": BASE,
        "results": table,
    }
    Path(HERE / "sweep.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())

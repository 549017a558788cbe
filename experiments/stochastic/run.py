"""Compare all solvers on the same S from the same start, to see whether minibatches win. See README.md."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dcdjax
from dcdjax.method import divergences
from dcdjax.method.priors import NO_PRIOR
from dcdjax.solvers import gradient, incremental, minibatches, stochastic
from dcdjax.starts import initialize

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "scale"))
import zipf  # pyright: ignore[reportMissingImports], of the folder beside this one

DATA = Path(os.environ.get("DCDJAX_DATA") or HERE.parents[2] / "shared" / "data")
# The words of the corpora stand between blanks.
AS_IT_IS: dict = {"tokens": "blanks", "min_count": 1}
NUM_TOPICS = 200
# Colors of Okabe and Ito, which the color-blind tell apart.
METHODS = {
    "solve, over-relaxed": ("#000000", "-"),
    "incremental, average, 16": ("#0072B2", "-"),
    "incremental, average, 32": ("#56B4E9", "-"),
    "gradient, Adam, 16": ("#D55E00", "-."),
    "gradient, Adam, 64": ("#E69F00", "-."),
}


def wikipedia(quick):
    path = DATA / "wikipedia" / "enwiki-2015-100m.txt.gz"
    options = {
        "max_words": 2000 if quick else 20_000,
        "window": 8,
        "documents": "file",
        "distance_weighting": "flat",
        **AS_IT_IS,
    }
    counts = dcdjax.count(path, **options)
    return dcdjax.similarity.from_counts(counts, weighting="ppmi", frequency_exponent=0.0, drop_isolated=True)


def synthetic(quick):
    size = (5000, 1_000_000) if quick else (200_000, 100_000_000)
    return dcdjax.similarity.from_matrix(zipf.make(*size, seed=0).matrix)


def timed(function, *arguments):
    began = time.perf_counter()
    result = jax.block_until_ready(function(*arguments))
    return result, time.perf_counter() - began


def full_batch(W, S, num_steps, repeats):
    layout, preparing = timed(dcdjax.prepare, S)

    def run():
        return dcdjax.solve(W, layout, tol=0.0, max_steps=num_steps, over_relaxation=1.9)

    first, _ = timed(run)
    # The history has the objective of each W, which a step computes anyway; a last pass is for the next step.
    each = min(timed(run)[1] for _ in range(repeats)) / (num_steps + 1)
    objectives = np.asarray(first.history.objective, float)
    curve = [(step, (step + 1) * each, objectives[step]) for step in range(1, num_steps + 1)]
    return {"preparing": preparing, "epoch": each, "curve": curve}


def by_minibatches(method_of, W, S, num_batches, num_epochs, repeats):
    """Time each epoch. Computing the objective after an epoch is not in the seconds.

    `method_of` makes a `stochastic.Method` of minibatches.
    """
    batches, preparing = timed(lambda: minibatches.draw(jax.random.key(1), S, num_batches))

    @jax.jit
    def begin(W, batches):
        return stochastic.begin(method_of(batches), W, jax.random.key(2), max_epochs=num_epochs)

    @jax.jit
    def advance(state, batches, until):
        return stochastic.advance(method_of(batches), state, until=until, tol=0.0)

    @jax.jit
    def objective(state, batches):
        method = method_of(batches)
        return method.unit * stochastic.objective(method, method.weights(state.carried), jnp.int32(0))

    timed(advance, begin(W, batches), batches, jnp.int32(1))  # compiled
    seconds, objectives = [], []
    for _ in range(repeats):
        state, beginning = timed(begin, W, batches)
        taken, objectives = [beginning], []
        for epoch in range(1, num_epochs + 1):
            state, passed = timed(advance, state, batches, jnp.int32(epoch))
            taken.append(passed)
            objectives.append(float(objective(state, batches)))
        seconds.append(taken)
    best = np.cumsum(np.min(seconds, axis=0))[1:]
    curve = [(epoch + 1, best[epoch], objectives[epoch]) for epoch in range(num_epochs)]
    return {"preparing": preparing, "epoch": float(np.diff(best).min()), "curve": curve}


def runs(name, S, W, quick):
    """Yield the name of each method and a function that runs it."""
    repeats = 1 if quick or name == "synthetic" else 3
    num_epochs = 2 if quick else 8 if name == "wikipedia" else 5

    def by_steps(num_batches):
        def method_of(batches):
            return incremental.method(batches, 1.9)

        return lambda: by_minibatches(method_of, W, S, num_batches, num_epochs, repeats)

    def by_gradients(num_batches):
        optimizer = gradient.default_optimizer(num_batches)
        problem = gradient.Problem(divergences.kl, divergences.over_zeros(divergences.kl))

        def method_of(batches):
            return gradient.method(batches, NO_PRIOR, optimizer, problem)

        return lambda: by_minibatches(method_of, W, S, num_batches, num_epochs, repeats)

    yield "solve, over-relaxed", lambda: full_batch(W, S, 4 if quick else 40, repeats)
    yield "incremental, average, 16", by_steps(16)
    yield "incremental, average, 32", by_steps(32)
    yield "gradient, Adam, 16", by_gradients(16)
    if name == "wikipedia":
        yield "gradient, Adam, 64", by_gradients(64)


def reached(curve, level):
    """Return the epochs and seconds until an objective is reached, interpolated."""
    for before, after in zip([curve[0], *curve], curve, strict=False):
        if after[2] <= level:
            part = 1.0 if before is after else (before[2] - level) / (before[2] - after[2])
            return [float(before[i] + part * (after[i] - before[i])) for i in (0, 1)]
    return None


def draw(results):
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    figure, panels = plt.subplots(
        len(results),
        2,
        figsize=(10, 3.6 * len(results)),
        dpi=100,
        sharey="row",
        layout="constrained",
        squeeze=False,
    )
    for (name, found), row in zip(results.items(), panels, strict=True):
        lowest = min(point[2] for method in found["methods"].values() for point in method["curve"])
        for axes, place, label in zip(row, (0, 1), ("times over S", "seconds"), strict=True):
            for method, (color, style) in METHODS.items():
                if method in found["methods"]:
                    curve = np.array(found["methods"][method]["curve"])
                    axes.plot(
                        curve[:, place], 100 * (curve[:, 2] / lowest - 1), style, color=color, label=method
                    )
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
            axes.set_xlabel(label)
            axes.set_title(
                f"{name.title()}: {found['nonzeros'] / 1e6:.0f} M nonzeros, {found['words']:,} words",
                fontsize=10,
            )
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("objective, % above the lowest")
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "stochastic.png")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="small problems, nothing is written")
    parser.add_argument("--only", choices=("wikipedia", "synthetic"))
    chosen = parser.parse_args()
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() and not chosen.quick else {}
    for name, make in (("wikipedia", wikipedia), ("synthetic", synthetic)):
        if chosen.only not in (None, name):
            continue
        load = os.getloadavg()[0]
        S = make(chosen.quick)
        W = initialize.uniform(jax.random.key(0), S.num_words, 20 if chosen.quick else NUM_TOPICS)
        methods = {}
        for method, run in runs(name, S, W, chosen.quick):
            methods[method] = run()
            print(
                name, method, f"{methods[method]['epoch']:.3f} s", *methods[method]["curve"][:3], flush=True
            )
        full = methods["solve, over-relaxed"]["curve"]
        for found in methods.values():
            found["until the objective of so many steps"] = {
                step: reached(found["curve"], full[step - 1][2])
                for step in (10, 13, 16, 20, 30)
                if step <= len(full)
            }
        results[name] = {
            "words": S.num_words,
            "nonzeros": S.matrix.nnz,
            "topics": W.shape[1],
            "load before": load,
            "methods": methods,
        }
        del S
        if not chosen.quick:
            path.write_text(json.dumps(results, indent=1, default=float) + "\n")
    if not chosen.quick:
        draw(results)


if __name__ == "__main__":
    main()

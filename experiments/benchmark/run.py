"""Measure a step against handwritten C and against other libraries. See README.md beside this file."""

import argparse
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

HERE = Path(__file__).parent
DATA = Path(os.environ.get("DCDJAX_DATA") or HERE.parents[2] / "shared" / "data")
# The words of the corpora stand between blanks.
AS_IT_IS: Any = {"tokens": "blanks", "min_count": 1}
TEXTS = {"WikiText-2": "wikitext-2/train.txt.gz", "Wikipedia, 100 MB": "wikipedia/enwiki-2015-100m.txt.gz"}
# How each way over S is asked for: the pieces it is cut into, the devices, the native kernel.
WAYS = {
    "naive": {"pieces": "naive", "devices": 1, "native": False},
    "chunked": {"pieces": "nonzeros", "devices": 1, "native": False},
    "segments": {"pieces": "segments", "devices": 1, "native": False},
    "tiles": {"pieces": "tiles", "devices": 1, "native": False},
    "tiles, all devices": {"pieces": "tiles", "devices": 0, "native": False},
    "native, all devices": {"pieces": "tiles", "devices": 0, "native": True},
    "native (default)": {"pieces": "tiles", "devices": 1, "native": True},
}
DEFAULT = "native (default)"
NAIVE_NONZEROS = 500_000  # of which it makes arrays of nonzeros x topics; the time is scaled


# --- In a process of its own: how many devices there are is settled when JAX begins ---------------------


def yardstick() -> Any:
    """Return the C pass, compiled by `limit.py` in the folder beside the data."""
    sys.path.insert(0, str(DATA.parent / "limit"))
    return importlib.import_module("limit")


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Measure the seconds of a step and of the C pass, in turns."""
    num_devices = job["devices"] or os.cpu_count() or 1
    jax = importlib.import_module("jax")
    jax.config.update("jax_num_cpu_devices", num_devices)
    import jax.numpy as jnp

    from dcdjax import prepare, similarity
    from dcdjax.devices import layout, native, sharding
    from dcdjax.method import decomposition
    from dcdjax.solvers import full_batch
    from dcdjax.starts import initialize

    matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(job["matrix"]))
    S = similarity.from_matrix(matrix)
    if job["pieces"] == "segments":
        for name, kind in layout.DEVICE_KINDS.items():
            layout.DEVICE_KINDS[name] = layout.DeviceKind(kind.tile_size, 0.0, kind.block_bytes)
    native.available()  # built once on a machine, loaded once in a process
    watch, began = Peak(), time.perf_counter()
    laid_out = jax.block_until_ready(prepare(S, devices=jax.devices()))
    seconds_prepare, peak_prepare = [time.perf_counter() - began], watch.end()
    for _ in range(3):
        del laid_out
        began = time.perf_counter()
        laid_out = jax.block_until_ready(prepare(S, devices=jax.devices()))
        seconds_prepare.append(time.perf_counter() - began)
    if job["pieces"] in ("naive", "nonzeros"):
        entries = matrix.tocoo()
        many = NAIVE_NONZEROS if job["pieces"] == "naive" else matrix.nnz
        chosen = np.sort(np.random.default_rng(0).permutation(matrix.nnz)[:many])
        S_idx = np.stack([entries.row, entries.col], axis=1)[chosen].astype(np.int32)
        S_val = (entries.data[chosen] / float(laid_out.scale)).astype(np.float32)
        pieces = (layout.Nonzeros(S_idx=jnp.asarray(S_idx), S_val=jnp.asarray(S_val)),)
        laid_out = layout.Layout(pieces=pieces, scale=laid_out.scale, num_words=matrix.shape[0])
        if job["pieces"] == "naive":
            decomposition.CHUNK_BYTES = 1 << 60

    kind = {"step": "exact", "over_relaxation": job["over_relaxation"]}
    W = sharding.replicate(
        initialize.uniform(jax.random.key(0), matrix.shape[0], job["num_topics"]), laid_out.devices
    )
    begin = jax.jit(partial(full_batch.begin, max_steps=1000, **kind))
    advance = jax.jit(partial(full_batch.advance, tol=0.0, **kind))
    watch = Peak()
    began = time.perf_counter()
    state = jax.block_until_ready(begin(W, laid_out))
    state = jax.block_until_ready(advance(state, laid_out, until=1))
    first = time.perf_counter() - began
    state = jax.block_until_ready(advance(state, laid_out, until=3))
    peak = watch.end()  # before C takes some, too
    limit, C, ours = yardstick(), [], []
    until = time.perf_counter() + job["seconds"]
    chunk = 1
    while len(ours) < 3 or time.perf_counter() < until:
        C.append(limit.time_pass(matrix, job["num_topics"], 2))
        began = time.perf_counter()
        state = jax.block_until_ready(advance(state, laid_out, until=int(state.num_steps) + chunk))
        ours.append((time.perf_counter() - began) / chunk)
        # Some steps at a time, as the solver takes them, but not so many that C is hardly measured.
        chunk = max(1, min(8, int(0.5 / ours[-1])))
    assert np.isfinite(float(state.objective))
    factor = matrix.nnz / NAIVE_NONZEROS if job["pieces"] == "naive" else 1.0
    N, r = matrix.shape[0], job["num_topics"]
    return {
        "step": min(ours) * factor,
        "step_median": float(np.median(ours)) * factor,
        "C": min(C),
        "C_median": float(np.median(C)),
        "ratio": min(ours) * factor / min(C),
        "first_step": first,
        "prepare": min(seconds_prepare),
        "prepare_first": seconds_prepare[0],
        "prepare_peak_MB": peak_prepare / 1e6,
        "layout_MB": laid_out.nbytes / 1e6,
        "S_MB": (matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes) / 1e6,
        "peak_MB": peak / 1e6,
        "allowed_MB": (8 * N * r * 4 + (256 << 20)) / 1e6,
        "nonzeros": int(matrix.nnz),
        "rounds": len(ours),
    }


class Peak:
    """Measure the most memory that the process takes from now on, beyond what it has now."""

    def __init__(self) -> None:
        self.before = self.most = self.now()
        self.going = True
        self.thread = threading.Thread(target=self.look)
        self.thread.start()

    @staticmethod
    def now() -> int:
        """Return the bytes in memory."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def look(self) -> None:
        """Read the memory again and again, in a thread."""
        while self.going:
            self.most = max(self.most, self.now())
            time.sleep(0.002)

    def end(self) -> int:
        """Return the most bytes beyond those at the beginning."""
        self.going = False
        self.thread.join()
        return self.most - self.before


def nmf(job: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of one iteration of scikit-learn's NMF on the same S."""
    NMF = importlib.import_module("sklearn.decomposition").NMF
    matrix = scipy.sparse.csr_matrix(scipy.sparse.load_npz(job["matrix"]).astype(np.float32))
    import warnings

    warnings.simplefilter("ignore")
    seconds = []
    for steps in (1, 3):
        began = time.perf_counter()
        NMF(job["num_topics"], init="random", solver="mu", beta_loss="kullback-leibler", max_iter=steps,
            tol=0.0, random_state=0).fit_transform(matrix)  # fmt: skip
        seconds.append(time.perf_counter() - began)
    C = yardstick().time_pass(matrix, job["num_topics"], 5)
    return {"step": (seconds[1] - seconds[0]) / 2, "C": C, "ratio": (seconds[1] - seconds[0]) / 2 / C}


def whole(job: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds from text to embedding."""
    path = str(DATA / TEXTS["WikiText-2"])
    if job["package"] == "gensim":
        gensim = importlib.import_module("gensim.models")
        gzip = importlib.import_module("gzip")
        began = time.perf_counter()
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [line.split() for line in file]
        gensim.Word2Vec(lines, vector_size=200, window=8, min_count=1, max_final_vocab=20_000, sg=0,
                        negative=25, epochs=15, workers=os.cpu_count() or 1, seed=0)  # fmt: skip
        return {"seconds": time.perf_counter() - began}
    jax = importlib.import_module("jax")
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    import warnings

    import dcdjax

    warnings.simplefilter("ignore")
    began = time.perf_counter()
    embedding = dcdjax.fit(
        path,
        num_topics=200,
        window=8,
        max_words=20_000,
        key=0,
        restarts=job["restarts"],
        progress=False,
        **AS_IT_IS,
    )
    return {"seconds": time.perf_counter() - began, "steps": embedding.record["num_steps"]}


# --- The whole ------------------------------------------------------------------------------------------


def ask(job: dict[str, Any], script: Path = Path(__file__)) -> dict[str, Any]:
    """Run a job in its own process."""
    environment = {**os.environ, "DCDJAX_NATIVE": str(int(job.get("native", True)))}
    command = [sys.executable, str(script.resolve()), "--job", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)  # noqa: S603, our own words
    if done.returncode:
        raise SystemExit(f"{job}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def rounded(result: dict[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in result.items()
    }


def counted(name: str, folder: str) -> str:
    """Make S from a text and save it for the processes."""
    from dcdjax import count, similarity

    S = similarity.from_counts(
        count(DATA / TEXTS[name], window=8, max_words=20_000, **AS_IT_IS), weighting="ppmi"
    ).matrix
    path = str(Path(folder) / f"{len(name)}.npz")
    scipy.sparse.save_npz(path, S, compressed=False)
    return path


def steps(paths: dict[str, str], quick: bool) -> list[dict[str, Any]]:
    table = []

    def add(corpus: str, way: str, num_topics: int, over_relaxation: float, **more: Any) -> None:
        seconds = more.get("seconds", 3.0 if quick else 8.0)
        job = {**WAYS[way], "what": "step", "matrix": paths[corpus], "num_topics": num_topics,
               "over_relaxation": over_relaxation, "seconds": seconds}  # fmt: skip
        entry = {"corpus": corpus, "way": way, "num_topics": num_topics, "over_relaxation": over_relaxation}
        table.append({**entry, **rounded(ask(job))})
        print(line(table[-1]), flush=True)

    ways = ["tiles, all devices", DEFAULT] if quick else list(WAYS)
    for way in ways:
        add("WikiText-2", way, 200, 1.0)
    if quick:
        add("WikiText-2", DEFAULT, 50, 1.0)
    else:
        add("WikiText-2", DEFAULT, 200, 1.9)
        for way in ("tiles, all devices", "native, all devices", DEFAULT):
            add("WikiText-2", way, 50, 1.0)
            add("Wikipedia, 100 MB", way, 200, 1.0, seconds=15.0)
        peer = {"what": "nmf", "matrix": paths["WikiText-2"], "num_topics": 200}
        entry = {"corpus": "WikiText-2", "way": "scikit-learn NMF", "num_topics": 200, "over_relaxation": 1.0}
        table.append({**entry, **rounded(ask(peer))})
        print(line(table[-1]), flush=True)
    return table


def line(entry: dict[str, Any]) -> str:
    said = (
        f"{entry['corpus']:18} r = {entry['num_topics']:<4} eta = {entry['over_relaxation']:<4} "
        f"{entry['way']:20} {entry['step']:8.4f} s a step   C {entry['C']:.4f} s   ratio {entry['ratio']:.2f}"
    )
    if "prepare" in entry:
        said += (
            f"   prepared in {entry['prepare']:.2f} s (first {entry['prepare_first']:.2f}), with"
            f" {entry['prepare_peak_MB']:.0f} MB, of {entry['layout_MB']:.0f} (S {entry['S_MB']:.0f});"
            f" first step {entry['first_step']:.1f} s; peak {entry['peak_MB']:.0f}"
            f" of {entry['allowed_MB']:.0f} MB"
        )
    return said


def growth(path: str, folder: str) -> dict[str, list[dict[str, Any]]]:
    """Return the seconds of a step for 1 to 10 times the nonzeros, and for 1 to 10 times the topics."""
    matrix = scipy.sparse.csr_array(scipy.sparse.load_npz(path))
    found: dict[str, list[dict[str, Any]]] = {"nonzeros": [], "topics": []}
    common = {**WAYS[DEFAULT], "what": "step", "over_relaxation": 1.0, "seconds": 3.0}
    # Fewer nonzeros of the same words: pairs are left out at random, on both sides of the diagonal.
    entries = scipy.sparse.triu(matrix, k=1).tocoo()
    order = np.random.default_rng(0).permutation(entries.nnz)
    for share in (1.0, 0.46, 0.22, 0.1):
        some = order[: int(share * entries.nnz)]
        half = scipy.sparse.coo_array(
            (entries.data[some], (entries.row[some], entries.col[some])), matrix.shape
        )
        thinner = (half + half.T + scipy.sparse.eye_array(matrix.shape[0]) * 1e-3).tocsr()
        smaller = str(Path(folder) / f"thin-{share}.npz")
        scipy.sparse.save_npz(smaller, thinner, compressed=False)
        result = rounded(ask({**common, "matrix": smaller, "num_topics": 200}))
        found["nonzeros"].append(result)
        print(f"{result['nonzeros']:>10} nonzeros: {result['step']:.4f} s a step", flush=True)
    for num_topics in (50, 100, 200, 500):
        result = rounded(ask({**common, "matrix": path, "num_topics": num_topics}))
        found["topics"].append({"num_topics": num_topics, **result})
        print(f"{num_topics:>10} topics: {result['step']:.4f} s a step", flush=True)
    return found


def plot(results: dict[str, Any], target: Path) -> None:
    plt = importlib.import_module("matplotlib.pyplot")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), width_ratios=[1.5, 1, 1])
    chosen = [one for one in results["steps"] if one["corpus"] == "WikiText-2" and one["num_topics"] == 200]
    chosen = [one for one in chosen if one["over_relaxation"] == 1.0]
    chosen.sort(key=lambda one: -one["ratio"])
    names = [one["way"] for one in chosen]
    bars = left.barh(names, [one["ratio"] for one in chosen], color="#4878a8")
    left.bar_label(bars, [f"{one['ratio']:.{1 if one['ratio'] < 10 else 0}f}" for one in chosen], padding=3)
    left.axvline(1.0, color="black", linewidth=1)
    left.set_xscale("log")
    left.set_xlim(0.5, 3 * max(one["ratio"] for one in chosen))
    left.set_xlabel("seconds of a step over those of the C pass (log scale)")
    left.set_title("WikiText-2, 200 topics")
    for axis, name, key, unit in (
        (middle, "nonzeros, in millions", "nonzeros", 1e6),
        (right, "topics", "num_topics", 1),
    ):
        points = results["growth"][name.split(",")[0]]
        x, y = (np.array([one[part] for one in points]) for part in (key, "step"))
        slope, start = np.polyfit(x, y, 1)
        line = np.array([0, x.max()])
        axis.plot(
            line / unit, start + slope * line, "-", color="#4878a8", linewidth=1, label="a straight line"
        )
        axis.plot(x / unit, y, "o", color="#4878a8", label="a step")
        axis.plot(x / unit, [one["C"] for one in points], "s", color="#e08030", label="the C pass")
        axis.set_xlabel(f"number of {name}")
        axis.set_ylabel("seconds")
        axis.set_xlim(0)
        axis.set_ylim(0)
        axis.legend()
        axis.set_title(f"growth with {name.split(',')[0]}")
    figure.tight_layout()
    figure.savefig(target, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less than a minute; writes nothing")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.job:
        job = json.loads(chosen.job)
        work = {"step": measure, "nmf": nmf, "whole": whole}[job["what"]]
        print(json.dumps(work(job)))
        return
    if not (DATA / "wikitext-2").is_dir():
        raise SystemExit("no corpora: DCDJAX_DATA does not name their folder")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        names = ["WikiText-2"] if chosen.quick else list(TEXTS)
        paths = {name: counted(name, folder) for name in names}
        table = steps(paths, chosen.quick)
        if chosen.quick:
            return
        grown = growth(paths["WikiText-2"], folder)
    wholes = {}
    for name, job in {
        "dcdjax, one start": {"package": "dcdjax", "restarts": 1},
        "dcdjax, two starts": {"package": "dcdjax", "restarts": 2},
        "gensim word2vec": {"package": "gensim"},
    }.items():
        wholes[name] = rounded(ask({"what": "whole", **job}))
        print(f"text to embedding, {name}: {wholes[name]}", flush=True)
    results = {
        "command": "python experiments/benchmark/run.py",
        **machine(),
        "steps": table,
        "growth": grown,
        "whole": wholes,
        "seconds": round(time.perf_counter() - began),
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    plot(results, HERE / "benchmark.png")
    print(f"{results['seconds']} s in all")


def machine() -> dict[str, Any]:
    packages = ("dcdjax", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "gensim")
    return {
        "machine": {"processor": processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }


def processor() -> str:
    path = Path("/proc/cpuinfo")
    names = [line for line in path.read_text().splitlines() if "model name" in line] if path.exists() else []
    return names[0].split(":")[1].strip() if names else platform.processor()


if __name__ == "__main__":
    main()

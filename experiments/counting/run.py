"""Measure counting, and libraries that could do it, against handwritten C in the same run.

python experiments/counting/run.py [--repeats 5] [--quick]
"""

import argparse
import gzip
import importlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse

from dcdjax.counting import cooccurrence, pair_counts, vocabulary
from dcdjax.text import tokens as corpus

HERE = Path(__file__).parent
SHARED = HERE.parent.parent.parent / "shared"
DATA = Path(os.environ.get("DCDJAX_DATA") or SHARED / "data")
WORDS, WINDOW = 20_000, 8


def best(function, repeats):
    """Return the least seconds of several runs, and the last result."""
    seconds, result = float("inf"), None
    for _ in range(repeats):
        result = None  # so that its memory can be used again
        began = time.perf_counter()
        result = function()
        seconds = min(seconds, time.perf_counter() - began)
    return seconds, result


def yardstick():
    specification = importlib.util.spec_from_file_location("limit", SHARED / "limit" / "limit.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def splitters(path):
    """Return functions from a file to the number of each token among the distinct words."""
    text = path.read_bytes()

    def blocks(size=8 << 20):
        start = 0
        while start < len(text):
            end = text.rfind(b" ", start, start + size) + 1 if start + size < len(text) else len(text)
            yield text[start:end].decode()
            start = end

    def python():
        number = {}
        return [number.setdefault(word, len(number)) for block in blocks() for word in block.split()]

    def arrow():
        split = pc.ascii_split_whitespace  # pyright: ignore[reportAttributeAccessIssue]
        return [split(pa.array([block])).flatten().dictionary_encode() for block in blocks()]

    def ours():
        return vocabulary.Tokens(corpus.read(path), memory=1 << 30)

    yield "Python: str.split and a dict", python
    yield "Arrow: ascii_split_whitespace, dictionary_encode", arrow
    if importlib.util.find_spec("polars"):
        polars: Any = importlib.import_module("polars")

        def by_polars():
            return [polars.Series([b]).str.split(" ").explode().cast(polars.Categorical) for b in blocks()]

        yield "Polars: str.split, explode, Categorical", by_polars
    yield "NumPy finds the blanks, Arrow encodes (dcdjax, with counts and global numbers)", ours


def counters(line):
    """Return functions from word numbers to sums by pair."""
    ids = line[WINDOW:-WINDOW]

    def ours():
        by_distance = pair_counts.weights("flat", WINDOW)
        return pair_counts.count_pairs(line, WORDS, by_distance, memory=2 << 30)

    def by_coo():
        total = scipy.sparse.csr_array((WORDS + 1, WORDS + 1))
        for distance in range(1, WINDOW + 1):
            ones = np.ones(ids.size - distance, np.float32)
            pairs = scipy.sparse.coo_array((ones, (ids[:-distance], ids[distance:])), shape=total.shape)
            total = total + pairs.tocsr()
        return total + total.T

    def by_duckdb():
        import duckdb

        with duckdb.connect() as connection:
            for distance in range(1, WINDOW + 1):
                table = pa.table({"a": ids[:-distance], "b": ids[distance:]})
                connection.register(f"pairs{distance}", table)
            union = " UNION ALL ".join(f"SELECT a, b FROM pairs{d}" for d in range(1, WINDOW + 1))  # noqa: S608
            query = f"SELECT a, b, count(*) FROM ({union}) GROUP BY a, b"  # noqa: S608, our own names
            return connection.execute(query).fetchnumpy()

    yield "SciPy: product of sparse matrices, both halves, sorted (dcdjax)", ours
    yield "SciPy: a COO matrix for each distance, added up", by_coo
    yield "DuckDB: GROUP BY, one half, unsorted", by_duckdb
    if importlib.util.find_spec("numba"):
        numba: Any = importlib.import_module("numba")

        @numba.njit
        def dense(ids, window, num_words):
            counts = np.zeros((num_words + 1, num_words + 1), np.float32)
            for t in range(ids.size):
                for d in range(1, min(window, ids.size - 1 - t) + 1):
                    counts[min(ids[t], ids[t + d]), max(ids[t], ids[t + d])] += 1
            return counts

        began = time.perf_counter()
        dense(ids[:1000], WINDOW, WORDS)
        print(f"(Numba needs {time.perf_counter() - began:.1f} s more to compile, once)", flush=True)
        yield "Numba: a loop over a dense matrix, one half", lambda: dense(ids, WINDOW, WORDS)


def peak_megabytes(path):
    """Return the peak memory of a process that only counts, with Python and its libraries."""
    code = (
        "import re, sys; from dcdjax import count\n"
        f"count(sys.argv[1], max_words={WORDS}, window={WINDOW}, distance_weighting='flat')\n"
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)  # noqa: S603
    return int(done.stdout) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only dcdjax and the yardstick")
    arguments = parser.parse_args()
    zipped = DATA / "wikipedia" / "enwiki-2015-100m.txt.gz"
    if not zipped.exists() or not (SHARED / "limit").exists():
        sys.exit("needs the 100 MB Wikipedia corpus (DCDJAX_DATA) and the yardsticks beside this repository")
    limit = yardstick()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_bytes(gzip.decompress(zipped.read_bytes()))
        rounds, num_tokens, num_nonzeros = [], 0, 0
        for _ in range(arguments.repeats):
            # One after the other, so that a change of the machine's speed meets both.
            c_seconds, _ = limit.time_count(str(path), WORDS, WINDOW)
            count = partial(
                cooccurrence.count, path, max_words=WORDS, window=WINDOW, distance_weighting="flat"
            )
            plain, _ = best(partial(count, tokens="blanks", min_count=1), 1)
            seconds, counts = best(count, 1)
            assert counts is not None
            num_tokens, num_nonzeros = counts.vocabulary.num_tokens, int(counts.matrix.nnz)
            del counts
            rounds.append((seconds, plain, c_seconds))
            ratios = f"{seconds / c_seconds:.2f} and {plain / c_seconds:.2f}"
            print(
                f"words {seconds:.2f} s, blanks {plain:.2f} s, C {c_seconds:.2f} s, ratios {ratios}",
                flush=True,
            )
        ours, plain, theirs = (min(times) for times in zip(*rounds, strict=True))
        results = {
            "seconds": round(ours, 3),
            "seconds_blanks": round(plain, 3),
            "seconds_c": round(theirs, 3),
            "ratio_of_bests": round(ours / theirs, 3),
            "ratio_of_bests_blanks": round(plain / theirs, 3),
            "ratios": [round(a / c, 3) for a, _, c in rounds],
            "peak_megabytes": round(peak_megabytes(path)),
            "tokens": num_tokens,
            "nonzeros": num_nonzeros,
        }
        print(json.dumps(results, indent=1), flush=True)
        if arguments.quick:
            return
        for kind, candidates in ("splitting", splitters(path)), ("counting", None):
            if candidates is None:
                tokens = vocabulary.Tokens(corpus.read(path), memory=1 << 30)
                words = tokens.vocabulary(max_words=WORDS)
                line = pair_counts.pad_documents(tokens.encoded(words), WORDS, WINDOW, memory=1 << 30)
                candidates = counters(line)
            for name, function in candidates:
                seconds, _ = best(function, min(arguments.repeats, 3))
                results.setdefault(kind, {})[name] = round(seconds, 3)
                print(f"{kind}: {seconds:6.2f} s  {name}", flush=True)
    results["machine"] = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    for package in ("numpy", "scipy", "pyarrow", "duckdb", "polars", "numba"):
        try:
            results["machine"][package] = version(package)
        except PackageNotFoundError:
            continue
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

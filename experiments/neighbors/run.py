"""Make the paper's tables of neighbors again: the paper's, ours and word2vec's. See README.md."""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "quality"))

from methods import CORPORA, METHODS, SEED  # pyright: ignore[reportMissingImports]
from nearest import neighbors, num_agreeing  # pyright: ignore[reportMissingImports]
from published import PUBLISHED, PUBLISHED_WORD2VEC

from dcdjax.evaluation import scores

TABLES = {"WikiText-2": 1, "text8, first 6.9 MB": 2, "Wikipedia 100 MB": 2}
SHOWN = ("dcdjax", "dcdjax, the paper's setting", "word2vec CBOW", "PPMI-SVD, power 0.5")
RESULTS, PAGE = HERE / "results.json", HERE / "tables.md"


def page(results: list[dict[str, Any]]) -> str:
    """Return all tables in Markdown."""
    lines = ["# Seven nearest neighbors", "", "Made by `python experiments/neighbors/run.py`.", ""]
    for corpus, number in TABLES.items():
        own = {one["method"]: one["neighbors"] for one in results if one["corpus"] == corpus}
        if not own:
            continue
        lines += [f"## {corpus}, beside the paper's Table {number}", ""]
        printed = {"the paper": PUBLISHED[number], "the paper's word2vec": PUBLISHED_WORD2VEC[number]}
        for word in PUBLISHED[number]:
            lines += [f"**{word}**", "", "| | |", "|---|---|"]
            rows = {**printed, **own}
            lines += [f"| {method} | {', '.join(near.get(word, [])[:7])} |" for method, near in rows.items()]
            lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", help="only those whose name has this in it; the others stay as they are")
    parser.add_argument("--corpora", help="only those whose name has this in it")
    chosen = parser.parse_args()
    if not CORPORA["WikiText-2"].exists():
        raise SystemExit("no corpora: DCDJAX_DATA does not name their folder")
    warnings.simplefilter("ignore")  # what has not converged
    earlier = json.loads(RESULTS.read_text())["results"] if RESULTS.exists() else []
    results = {(one["method"], one["corpus"]): one for one in earlier}
    for corpus, number in TABLES.items():
        for method in SHOWN:
            if (chosen.methods or "") not in method or (chosen.corpora or "") not in corpus:
                continue
            table = scores.as_vectors(METHODS[method](corpus).vectors)
            published = PUBLISHED[number]
            found = {word: neighbors(table, word, 20) for word in published if word in table.words}
            results[method, corpus] = {
                "method": method, "corpus": corpus,
                "agreement": {f"first {k}": num_agreeing(found, published, k) for k in (7, 20)},
                "neighbors": found,
            }  # fmt: skip
            print(method, corpus, results[method, corpus]["agreement"], flush=True)
            in_order = [results[m, c] for c in TABLES for m in SHOWN if (m, c) in results]
            command = "python experiments/neighbors/run.py"
            RESULTS.write_text(
                json.dumps({"command": command, "seed": SEED, "results": in_order}, indent=1) + "\n"
            )
            PAGE.write_text(page(in_order))


if __name__ == "__main__":
    main()

"""Draw quality.png and print the tables of README.md, from results.json."""

import importlib
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHOWN = {
    "dcdjax": "dcdjax",
    "dcdjax, one start of 200 topics": "dcdjax, one start",
    "dcdjax, the paper's setting": "dcdjax, the paper's",
    "word2vec CBOW": "word2vec CBOW",
    "word2vec skip-gram, 5 epochs": "word2vec skip-gram",
    "PPMI-SVD, power 0.5": "PPMI-SVD",
    "NMF (KL)": "scikit-learn NMF",
}


def rows(results: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table for each corpus."""
    lines = []
    for corpus in dict.fromkeys(one["corpus"] for one in results):
        lines += [
            f"**{corpus}**",
            "",
            "| | seconds | WordSim | SimLex | mean | dictionaries | analogies | in 7 | in 20 | NPMI |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for one in results:
            if one["corpus"] != corpus:
                continue
            pairs = [
                f"{one[name]['spearman']:.3f} ({one[name]['interval'][0]:.2f}-{one[name]['interval'][1]:.2f})"
                for name in ("WordSim-353", "SimLex-999")
            ]
            own = sum(one[name] for name in ("synonyms", "taxonomy", "definitions")) / 3
            analogies = max(one["analogies"]["add"], one["analogies"]["multiply"])
            agreeing = one["agreement"]
            coherence = f"{one['coherence']['mean']:.2f}" if "coherence" in one else ""
            lines.append(
                f"| {one['method']} | {one['seconds']:.0f} | {pairs[0]} | {pairs[1]} | "
                f"{one['mean Spearman']:.3f} | {own:.3f} | {analogies:.3f} | {agreeing['first 7']} | "
                f"{agreeing['first 20']} | {coherence} |"
            )
        lines.append("")
    return lines


def draw(results: list[dict[str, Any]]) -> None:
    corpora = list(dict.fromkeys(one["corpus"] for one in results))
    plt = importlib.import_module("matplotlib.pyplot")
    figure, axes = plt.subplots(1, len(corpora), figsize=(4 * len(corpora), 3.2), sharey=True)
    for axis, corpus in zip(axes, corpora, strict=True):
        found = {one["method"]: one for one in results if one["corpus"] == corpus}
        names = [method for method in SHOWN if method in found][::-1]
        for method in names:
            y = list(SHOWN)[::-1].index(method)
            color = "#c03030" if method.startswith("dcdjax") else "#4060a0"
            for judgment, filled in (("WordSim-353", True), ("SimLex-999", False)):
                low, high = found[method][judgment]["interval"]
                value = found[method][judgment]["spearman"]
                axis.plot([low, high], [y, y], color=color, linewidth=1, alpha=0.5)
                axis.plot(value, y, "o", color=color, markerfacecolor=color if filled else "white")
            axis.text(0.99, y, f"{found[method]['seconds']:.0f} s", ha="right", va="center", fontsize=7,
                      transform=axis.get_yaxis_transform())  # fmt: skip
        axis.set_title(corpus, fontsize=10)
        axis.set_xlim(0, 0.95)
        axis.set_xlabel("Spearman: WordSim-353 (full), SimLex-999 (empty)", fontsize=7)
    axes[0].set_yticks(range(len(SHOWN)), list(SHOWN.values())[::-1], fontsize=8)
    figure.tight_layout()
    figure.savefig(HERE / "quality.png", dpi=130)


if __name__ == "__main__":
    learned = json.loads((HERE / "results.json").read_text())["results"]
    draw(learned)
    print("\n".join(rows(learned)))

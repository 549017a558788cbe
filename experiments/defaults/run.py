"""Show what a newcomer gets with the defaults: topics and neighbors of eight texts, before and after."""

import argparse
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from texts import gather

import dcdjax
from dcdjax.queries import results

HERE = Path(__file__).parent
# What was the default: pieces between blanks as they are, each line a document, each column of W a topic, the
# heaviest first, and its words by P(word | topic).
BEFORE: dict[str, Any] = {"tokens": "blanks", "lowercase": False, "min_count": 1, "documents": "line"}
NUM_TOPICS, NUM_WORDS, NUM_ASKED, NUM_NEIGHBORS = 10, 8, 10, 6


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one text, by name; writes nothing")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, path in gather(Path(folder)).items():
            if chosen.only in (None, name):
                found[name] = measured(path)
                print(f"{name}: {found[name]['after']['seconds']:.1f} s", flush=True)
    tables = "\n\n".join(table(name, one) for name, one in found.items())
    if chosen.only:
        print(tables)
        return
    (HERE / "tables.md").write_text(f"# Topics and neighbors by the defaults\n\n{tables}\n")
    (HERE / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def measured(path: Path) -> dict[str, Any]:
    """Return topics and neighbors of a text with the options of before and with the defaults."""
    after = dcdjax.fit(path, progress=False)
    before = dcdjax.fit(path, progress=False, **BEFORE)
    asked = [word for word in middle_words(after) if word in before]
    return {
        "tokens": after.record["corpus"]["num_tokens"],
        "documents": after.record["settings"]["counting"]["documents"],
        "before": {"topics": heaviest_columns(before), "neighbors": neighbors(before, asked)},
        "after": {
            "topics": [
                " ".join(one.word for one in topic.words) for topic in after.topics(NUM_WORDS)[:NUM_TOPICS]
            ],
            "junk": sum(topic.junk for topic in after.topics(1)),
            "neighbors": neighbors(after, asked),
            "seconds": after.record["seconds"],
        },
    }


def middle_words(embedding: dcdjax.Embedding) -> list[str]:
    """Return ten words between the most frequent ones, which stand in all texts, and the rare ones."""
    words = [word for word in embedding.words if len(word) > 3]
    places = np.geomspace(len(words) / 20, len(words) / 2, NUM_ASKED).astype(int)
    return [words[place] for place in places]


def heaviest_columns(embedding: dcdjax.Embedding) -> list[str]:
    """Return the words of the heaviest columns of W, as topics were shown before."""
    s = np.asarray(embedding.W).sum(axis=0)
    _, top = results.top_words(embedding.W, s, np.ones(len(embedding)), NUM_WORDS)
    return [" ".join(embedding.words[n] for n in top[k]) for k in np.argsort(-s, kind="stable")[:NUM_TOPICS]]


def neighbors(embedding: dcdjax.Embedding, asked: list[str]) -> dict[str, str]:
    """Return the neighbors of some words."""
    found = embedding.neighbors(asked, NUM_NEIGHBORS)
    return {word: " ".join(one.word for one in near) for word, near in zip(asked, found, strict=True)}


def table(name: str, one: dict[str, Any]) -> str:
    """Return the topics and neighbors of a text as Markdown."""
    lines = [f"## {name[0].upper()}{name[1:]}", ""]
    lines += [f"{one['tokens']:,} tokens; documents: {one['documents']}.", ""]
    lines += ["| before | after |", "|---|---|"]
    pairs = zip(one["before"]["topics"], one["after"]["topics"], strict=True)
    lines += [f"| {quoted(before)} | {quoted(after)} |" for before, after in pairs]
    lines += ["", "| word | before | after |", "|---|---|---|"]
    lines += [
        f"| {quoted(word)} | {quoted(one['before']['neighbors'][word])} | {quoted(near)} |"
        for word, near in one["after"]["neighbors"].items()
    ]
    return "\n".join(lines)


def quoted(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "`" + text.replace("`", "'").replace("|", "¦") + "`" if text else ""


if __name__ == "__main__":
    main()

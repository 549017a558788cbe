"""From text to counts once more, word by word in plain Python, independent of the package."""

from collections import Counter
from fractions import Fraction

import numpy as np


def split(texts, documents="line", tokens_of=str.split):
    """Documents of tokens; a text is what a file or an item holds."""
    if documents == "line":
        return [tokens_of(line) for text in texts for line in text.split("\n")]
    if documents == "paragraph":
        return [tokens for text in texts for tokens in paragraphs(text, tokens_of)]
    files = [[token for line in text.split("\n") for token in tokens_of(line)] for text in texts]
    return files if documents == "file" else [[token for file in files for token in file]]


def paragraphs(text, tokens_of):
    """Lines without anything but ASCII blanks are between paragraphs."""
    found = [[]]
    for line in text.split("\n"):
        if line.strip("\t\n\v\f\r "):
            found[-1] += tokens_of(line)
        else:
            found.append([])
    return found


def most_frequent(documents, max_words=None, min_count=1, drop=()):
    counts = Counter(token for tokens in documents for token in tokens)
    ranked = sorted(
        (-count, word) for word, count in counts.items() if count >= min_count and word not in drop
    )
    return [word for _, word in ranked][:max_words], [-count for count, _ in ranked][:max_words]


def weight(kind, distance, window):
    return {
        "flat": Fraction(1),
        "linear": Fraction(window - distance + 1, window),
        "harmonic": Fraction(1, distance),
    }[kind]


def pair_counts(documents, words, window, kind="flat", outside="keep"):
    number = {word: n for n, word in enumerate(words)}
    sums = Counter()
    for tokens in documents:
        if outside == "drop":
            tokens = [token for token in tokens if token in number]
        for here, first in enumerate(tokens):
            for there in range(max(0, here - window), min(len(tokens), here + window + 1)):
                if here != there and first in number and tokens[there] in number:
                    pair = number[first], number[tokens[there]]
                    sums[pair] += weight(kind, abs(here - there), window)
    dense = np.zeros((len(words), len(words)))
    for pair, total in sums.items():
        dense[pair] = float(total)
    return dense

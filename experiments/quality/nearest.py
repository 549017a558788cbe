"""Find the nearest words of a word by the scores of a table of vectors."""

import numpy as np

from dcdjax.evaluation.scores import Vectors


def neighbors(table: Vectors, word: str, k: int) -> list[str]:
    vectors = table.vectors
    if table.scores == "cosine":
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    row = table.words.index(word)
    scores = vectors @ vectors[row]
    scores[row] = -np.inf
    return [table.words[n] for n in np.argsort(-scores, kind="stable")[:k]]


def num_agreeing(found: dict[str, list[str]], published: dict[str, list[str]], k: int) -> int:
    """Count the published neighbors among the first k found."""
    return sum(len(set(near) & set(found.get(word, [])[:k])) for word, near in published.items())

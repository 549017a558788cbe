"""Score word vectors of any model against human judgments."""

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Literal

import numpy as np
import scipy.cluster.hierarchy
import scipy.stats

from dcdjax.evaluation import judgments
from dcdjax.evaluation.judgments import read_analogies, read_categories, read_pairs
from dcdjax.evaluation.word_tables import Vectors, as_vectors

_MAX_BYTES = 2**26  # of scores at a time: small beside the vectors, large enough to keep BLAS busy
_COSINE_FLOOR = 1e-3  # the epsilon of Levy and Goldberg (2014), for cosines shifted to 0 to 1


@dataclass(frozen=True)
class PairResult:
    """How the scores of pairs of words rank beside those that people gave.

    Attributes:
      spearman: rank correlation, ties at their mean rank; nan for less than two pairs or constant scores.
      num_pairs: pairs of known words: these are compared.
      num_missing: pairs left out, as a word is unknown.
      missing: the unknown words, each once, sorted.
    """

    spearman: float
    num_pairs: int
    num_missing: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class AnalogyResult:
    """How many analogies were completed as expected.

    Attributes:
      accuracy: the part of the questions asked whose answer is the expected word; nan if none was asked.
      num_questions: questions asked: all four words are known.
      num_missing: questions left out, as a word is unknown.
      sections: (correct, asked) of each section.
    """

    accuracy: float
    num_questions: int
    num_missing: int
    sections: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class CategorizationResult:
    """How well clusters of words are categories.

    Attributes:
      purity: the part of the known words that are in their cluster's most frequent category; nan if there
        are none.
      num_words: known words: these are clustered.
      num_missing: words left out as unknown.
      num_categories: those of the known words; as many as there are clusters.
      clusters: the words of each, in the order of `categories`.
    """

    purity: float
    num_words: int
    num_missing: int
    num_categories: int
    clusters: tuple[tuple[str, ...], ...]


def word_pairs(
    model: Any, pairs: str | os.PathLike[str] | Iterable[Sequence[Any]], *, lowercase: bool = False
) -> PairResult:
    """Compares the scores of pairs of words with those that people gave, by Spearman's rank correlation.

    Args:
      model: whatever `as_vectors` takes.
      pairs: (word, word, score), or the path of such, see `read_pairs`.
      lowercase: look words up in lower case.

    Returns:
      The correlation, and what it was computed from.

    Raises:
      TypeError, ValueError: naming the pair or the file's line, and what is wrong with it.

    Example:
      >>> model = {"tea": [4, 1], "cup": [3, 1], "law": [0, 1], "tax": [1, 9]}
      >>> word_pairs(model, [("tea", "cup", 8.5), ("tea", "law", 0.5), ("law", "tax", 7), ("ink", "pen", 9)])
      PairResult(spearman=1.0, num_pairs=3, num_missing=1, missing=('ink', 'pen'))
    """
    table = as_vectors(model)
    pairs = read_pairs(pairs) if isinstance(pairs, str | os.PathLike) else pairs
    number = {word: n for n, word in enumerate(table.words)}
    rows, human, missing, num_missing = [], [], set(), 0
    for n, pair in enumerate(pairs):
        *words, score = judgments.checked_pair(f"pairs[{n}]", pair)
        words = [word.lower() if lowercase else word for word in words]
        unknown = {word for word in words if word not in number}
        missing |= unknown
        num_missing += bool(unknown)
        if not unknown:
            rows.append([number[word] for word in words])
            human.append(score)
    spearman = math.nan
    if len(set(human)) > 1:
        first, second = (_comparable(table, n, np.float64) for n in np.transpose(rows))
        scores = (first * second).sum(axis=1)
        if np.ptp(scores) > 0:
            with np.errstate(invalid="ignore"):  # the p-value, not asked for, may be 0 / 0 for two pairs
                spearman = float(scipy.stats.spearmanr(scores, human).statistic)
    return PairResult(spearman, len(rows), num_missing, tuple(sorted(missing)))


def analogies(
    model: Any,
    questions: str | os.PathLike[str] | Mapping[str, Iterable[Sequence[str]]],
    *,
    lowercase: bool = False,
    method: Literal["add", "multiply"] = "add",
    max_words: int | None = None,
) -> AnalogyResult:
    """Asks which word is to c as b is to a: the one of the highest score, but none of these three.

    Args:
      model: whatever `as_vectors` takes.
      questions: lists of (a, b, c, expected) by section, or the path of such, see `read_analogies`.
      lowercase: look words up in lower case.
      method: "add": score(x, b) - score(x, a) + score(x, c); "multiply": score(x, b) score(x, c) /
        (score(x, a) + epsilon), cosines being shifted to (1 + cosine) / 2, negative dot products cut to 0.
      max_words: only the first so many words are known, all by default.

    Returns:
      The accuracy, and what it was computed from. Of words with equal scores the first is the answer.

    Raises:
      TypeError, ValueError: naming the argument, the question or the file's line, and what is wrong with it.

    Example:
      >>> model = {"man": [1, 0, 1], "woman": [0, 1, 1], "king": [1, 0, 9], "queen": [0, 1, 9]}
      >>> analogies(model, {"royal": [("man", "king", "woman", "queen")]})
      AnalogyResult(accuracy=1.0, num_questions=1, num_missing=0, sections={'royal': (1, 1)})
    """
    if method not in ("add", "multiply"):
        raise ValueError(f"method must be 'add' or 'multiply', got {method!r}")
    if max_words is not None and max_words < 1:
        raise ValueError(f"max_words must be at least 1, got {max_words}")
    table = as_vectors(model)
    questions = read_analogies(questions) if isinstance(questions, str | os.PathLike) else questions
    number = {word: n for n, word in enumerate(table.words[:max_words])}
    asked, owners, num_missing = [], [], 0
    for section, members in questions.items():
        for n, question in enumerate(members):
            words = judgments.checked_words(f"questions[{section!r}][{n}]", question, 4, "four words")
            rows = [number.get(word.lower() if lowercase else word, -1) for word in words]
            num_missing += -1 in rows
            if -1 not in rows:
                asked.append(rows)
                owners.append(section)
    rows = np.array(asked, np.int64).reshape(-1, 4)
    correct = _answers(table, len(number), rows[:, :3], method) == rows[:, 3]
    num_asked, num_correct = Counter(owners), Counter(compress(owners, correct))
    accuracy = float(correct.mean()) if asked else math.nan
    sections = {section: (num_correct[section], num_asked[section]) for section in questions}
    return AnalogyResult(accuracy, len(asked), num_missing, sections)


def categorization(
    model: Any, categories: str | os.PathLike[str] | Mapping[str, str], *, lowercase: bool = False
) -> CategorizationResult:
    """Clusters words by Ward's linkage of unit vectors, into as many clusters as categories, and compares.

    Args:
      model: whatever `as_vectors` takes.
      categories: of each word, or the path of such, see `read_categories`.
      lowercase: look words up in lower case.

    Returns:
      The purity, and what it was computed from. There is no chance in it.

    Raises:
      TypeError, ValueError: naming the word or the file's line, and what is wrong with it.

    Example:
      >>> model = {"tea": [4, 1], "cup": [3, 1], "law": [0, 1], "tax": [1, 9]}
      >>> categorization(model, {"tea": "drink", "law": "state", "tax": "state", "ink": "pen"}).clusters
      (('tea',), ('law', 'tax'))
    """
    table = as_vectors(model)
    categories = read_categories(categories) if isinstance(categories, str | os.PathLike) else categories
    number = {word: n for n, word in enumerate(table.words)}
    items = [(word.lower() if lowercase else word, category) for word, category in categories.items()]
    known = [(word, category) for word, category in items if word in number]
    num_categories = len({category for _, category in known})
    clusters = {n: [n] for n in range(len(known))}
    if len(known) > 1:
        points = _unit(table.vectors[[number[word] for word, _ in known]].astype(np.float64))
        # The merges come in order: so many of them leave this number of clusters, ties or not.
        merges = scipy.cluster.hierarchy.linkage(points, "ward")[: len(known) - num_categories, :2]
        for n, (one, other) in enumerate(merges.astype(int).tolist()):
            clusters[len(known) + n] = sorted(clusters.pop(one) + clusters.pop(other))
    members = sorted(clusters.values())
    largest = [Counter(known[n][1] for n in cluster).most_common(1)[0][1] for cluster in members]
    return CategorizationResult(
        purity=sum(largest) / len(known) if known else math.nan,
        num_words=len(known),
        num_missing=len(items) - len(known),
        num_categories=num_categories,
        clusters=tuple(tuple(known[n][0] for n in cluster) for cluster in members),
    )


def _answers(table: Vectors, num_words: int, asked: np.ndarray, method: str) -> np.ndarray:
    """The number of the best word for each row (a, b, c), -1 where there is no fourth word."""
    vectors = _comparable(table, slice(num_words))
    answers = np.full(len(asked), -1)
    # Neighboring questions share words, whose scores are computed once; at worst they share none.
    size = max(1, _MAX_BYTES // (3 * vectors.itemsize * max(1, num_words)))
    for start in range(0, len(asked), size):
        batch = asked[start : start + size]
        distinct, places = np.unique(batch, return_inverse=True)
        scores = vectors[distinct] @ vectors.T
        floors = np.full(len(distinct), _COSINE_FLOOR, scores.dtype)
        if method == "multiply" and table.scores == "cosine":
            scores += 1
            scores /= 2
        elif method == "multiply":
            np.maximum(scores, 0, out=scores)
            # Most of Shat is near 0, and a word divided by that would win. Its rows have mean 1/N: chance.
            # With that added, all scores below chance divide about alike. A row's mean suits any scale.
            floors = scores.mean(axis=1)
            floors[floors == 0] = 1
        for n, (a, b, c) in enumerate(places.reshape(batch.shape)):
            if method == "add":
                total = scores[b] - scores[a] + scores[c]
            else:
                total = scores[b] / (scores[a] + floors[a]) * scores[c]
            total[batch[n]] = -np.inf
            best = total.argmax()
            if total[best] > -np.inf:
                answers[start + n] = best
        del scores  # or the next ones would be made beside them
    return answers


def _comparable(table: Vectors, rows: Any, dtype: Any = None) -> np.ndarray:
    """Those rows, such that their dot product is the score; in their own dtype unless another is given."""
    vectors = table.vectors[rows].astype(dtype or table.vectors.dtype, copy=False)
    return _unit(vectors) if table.scores == "cosine" else vectors


def _unit(vectors: np.ndarray) -> np.ndarray:
    """At length one, or 0."""
    # By the largest entry first: squares may be too large or small for float32. Lengths are at least 1 then.
    largest = np.abs(vectors).max(axis=1, initial=0, keepdims=True)
    vectors = vectors / np.where(largest > 0, largest, 1)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)

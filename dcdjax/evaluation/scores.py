"""Score word vectors of any model against human judgments."""

import math
import os
import reprlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import compress
from typing import Any, Literal, cast

import numpy as np
import scipy.cluster.hierarchy
import scipy.stats

from dcdjax.evaluation import judgments
from dcdjax.evaluation.judgments import read_analogies, read_categories, read_pairs
from dcdjax.evaluation.word_tables import Vectors, as_vectors
from dcdjax.util import checks

MAX_BYTES = 2**26  # bytes of scores at a time: few compared with the vectors, enough to keep BLAS busy
_MOST_SHOWN = 3  # words, sections or clusters in the repr of a result
_COSINE_FLOOR = 1e-3  # the epsilon of Levy and Goldberg (2014), for cosines shifted to 0 to 1


class _ShortRepr:
    """Show the fields of a result, numbers with four digits and only the start of long lists."""

    def __repr__(self) -> str:
        shown = (f"{one.name}={_in_short(getattr(self, one.name))}" for one in fields(cast(Any, self)))
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(frozen=True, repr=False)
class PairResult(_ShortRepr):
    """Hold how well the scores of word pairs agree with human scores.

    Attributes:
      spearman: rank correlation; ties have their mean rank. It is nan for fewer than two pairs and for
        constant scores.
      num_pairs: number of pairs whose words are both known. Only these are compared.
      num_missing: number of pairs left out because a word is unknown.
      missing: the unknown words, each once, sorted.
    """

    spearman: float
    num_pairs: int
    num_missing: int
    missing: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class AnalogyResult(_ShortRepr):
    """Hold how many analogies were completed as expected.

    Attributes:
      accuracy: share of the questions with the expected answer; nan if no question could be asked.
      num_questions: number of questions asked. All four words are known.
      num_missing: number of questions left out because a word is unknown.
      sections: numbers of correct answers and of questions, for each section.
    """

    accuracy: float
    num_questions: int
    num_missing: int
    sections: dict[str, tuple[int, int]]


@dataclass(frozen=True, repr=False)
class CategorizationResult(_ShortRepr):
    """Hold how well clusters of words agree with categories.

    Attributes:
      purity: share of the known words that belong to the most frequent category of their cluster; nan if
        there are none.
      num_words: number of known words. Only these are clustered.
      num_missing: number of unknown words, which are left out.
      num_categories: number of categories of the known words, which is also the number of clusters.
      clusters: the words of each cluster, in the order of `categories`.
    """

    purity: float
    num_words: int
    num_missing: int
    num_categories: int
    clusters: tuple[tuple[str, ...], ...]


def word_pairs(
    model: Any, pairs: str | os.PathLike[str] | Iterable[Sequence[Any]], *, lowercase: bool = False
) -> PairResult:
    """Compare the scores of word pairs with human scores, by Spearman's rank correlation.

    Args:
      model: word vectors in any form that `as_vectors` takes.
      pairs: tuples (word, word, score), or the path of a file for `read_pairs`.
      lowercase: look words up in lower case.

    Returns:
      The correlation, the numbers of pairs used and left out, and the unknown words.

    Raises:
      TypeError, ValueError: if a pair is wrong. The message names the pair or the line of the file.

    Example:
      >>> model = {"tea": [4, 1], "cup": [3, 1], "law": [0, 1], "tax": [1, 9]}
      >>> word_pairs(model, [("tea", "cup", 8.5), ("tea", "law", 0.5), ("law", "tax", 7), ("ink", "pen", 9)])
      PairResult(spearman=1.0, num_pairs=3, num_missing=1, missing=('ink', 'pen'))
    """
    table = as_vectors(model)
    pairs = read_pairs(pairs) if isinstance(pairs, str | os.PathLike) else pairs
    number = {word: n for n, word in enumerate(table.words)}
    rows, human, missing = [], [], []
    for n, pair in enumerate(pairs):
        *words, score = judgments.checked_pair(f"pairs[{n}]", pair)
        words = [word.lower() if lowercase else word for word in words]
        if unknown := set(words) - number.keys():
            missing.append(unknown)
        else:
            rows.append([number[word] for word in words])
            human.append(score)
    spearman = math.nan
    if len(set(human)) > 1:
        first, second = (_comparable(table, n, np.float64) for n in np.transpose(rows))
        scores = (first * second).sum(axis=1)
        if np.ptp(scores) > 0:
            with np.errstate(invalid="ignore"):  # the p-value, which is not used, may be 0 / 0 for two pairs
                spearman = float(scipy.stats.spearmanr(scores, human).statistic)
    return PairResult(spearman, len(rows), len(missing), tuple(sorted(set().union(*missing))))


def analogies(
    model: Any,
    questions: str | os.PathLike[str] | Mapping[str, Iterable[Sequence[str]]],
    *,
    lowercase: bool = False,
    method: Literal["add", "multiply"] = "add",
    max_words: int | None = None,
) -> AnalogyResult:
    """Complete analogies: find the word that is to c as b is to a, and compare it with the expected word.

    The answer is the word with the highest score, without a, b and c.

    Args:
      model: word vectors in any form that `as_vectors` takes.
      questions: for each section a list of (a, b, c, expected); or the path of a file for `read_analogies`.
      lowercase: look words up in lower case.
      method: how the three scores of a word x are combined. "add" is score(x, b) - score(x, a) + score(x, c).
        "multiply" is score(x, b) score(x, c) / (score(x, a) + epsilon); there a cosine becomes
        (1 + cosine) / 2, and a negative dot product becomes 0.
      max_words: use only the first words of the model, this many. Default: all.

    Returns:
      The accuracy, and the numbers of questions. If several words have the highest score, the first one is
      the answer.

    Raises:
      TypeError, ValueError: if an argument or a question is wrong. The message names the argument, the
        question or the line of the file.

    Example:
      >>> model = {"man": [1, 0, 1], "woman": [0, 1, 1], "king": [1, 0, 9], "queen": [0, 1, 9]}
      >>> analogies(model, {"royal": [("man", "king", "woman", "queen")]})
      AnalogyResult(accuracy=1.0, num_questions=1, num_missing=0, sections={'royal': (1, 1)})
    """
    checks.choice("method", method, ("add", "multiply"))
    max_words = None if max_words is None else checks.whole("max_words", max_words, 1)
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
    """Cluster words into as many clusters as there are categories, and compare the two.

    The clusters are those of Ward's linkage of unit vectors. They do not depend on random numbers.

    Args:
      model: word vectors in any form that `as_vectors` takes.
      categories: the category of each word, or the path of a file for `read_categories`.
      lowercase: look words up in lower case.

    Returns:
      The purity, the clusters, and the numbers of words used and left out.

    Raises:
      TypeError, ValueError: if a word or a line of the file is wrong. The message names it.

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
        points = unit_rows(table.vectors[[number[word] for word, _ in known]].astype(np.float64))
        # The merges are in order. The first ones leave exactly the wanted number of clusters, even with ties.
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
    """Return the index of the best word for each row (a, b, c), or -1 if there is no fourth word."""
    vectors = _comparable(table, slice(num_words))
    answers = np.full(len(asked), -1)
    # Neighboring questions often share words, and the scores of a word are computed once for each batch.
    size = max(1, MAX_BYTES // (3 * vectors.itemsize * max(1, num_words)))
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
            # Most entries of Shat are near 0, and dividing by them would make any word win. So add the mean
            # of the row to the divisor: for Shat it is 1/N, the probability by chance.
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
        del scores  # free the memory before the next batch
    return answers


def _comparable(table: Vectors, rows: Any, dtype: Any = None) -> np.ndarray:
    """Return rows whose dot products are the scores, in their own dtype unless another is asked for."""
    vectors = table.vectors[rows].astype(dtype or table.vectors.dtype, copy=False)
    return unit_rows(vectors) if table.scores == "cosine" else vectors


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Scale each row to length one. Rows of zeros stay as they are."""
    # Divide by the largest entry first: squares may be too large or too small for float32. After that, all
    # lengths are at least 1.
    largest = np.abs(vectors).max(axis=1, initial=0, keepdims=True)
    vectors = vectors / np.where(largest > 0, largest, 1)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1)


def _in_short(value: Any) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.4g}"))
    short = reprlib.Repr()
    short.maxtuple = short.maxdict = _MOST_SHOWN
    return short.repr(value)

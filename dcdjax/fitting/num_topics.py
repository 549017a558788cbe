"""Recommend a number of topics by held-out words, and by the agreement of two halves of the corpus."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.optimize
import scipy.sparse
from jaxtyping import Float

from dcdjax import similarity
from dcdjax.devices.preparation import prepare
from dcdjax.fitting import presets
from dcdjax.similarity import Similarity, weighting
from dcdjax.solvers.full_batch import solve
from dcdjax.starts import initialize, keys, spectrum
from dcdjax.topics.levels import emphasis
from dcdjax.util import checks
from dcdjax.util.progress import Progress

# The numbers that are tried. Nobody can keep more than a few hundred topics apart.
CANDIDATES = (10, 15, 20, 30, 50, 75, 100, 150, 200)
# A topic needs a few words of its own.
_WORDS_PER_TOPIC = 10
# More words or passages change the recommendation little, and take longer.
_MOST_WORDS, _MOST_PASSAGES = 10_000, 10_000
# With fewer passages, each half would hold hardly any pair of words twice.
LEAST_PASSAGES = 40
# Stop if the score of so many numbers, one after the other, is below the best one.
_PATIENCE = 3
# The part of P(word | document) that comes from the frequencies of words alone: no word is impossible.
_BACKGROUND = 0.1
# Held-out words that are predicted at a time, so that their topics take little memory.
_ENTRIES_AT_ONCE = 1 << 14
# As in the presets for text.
_TOL, _MAX_STEPS = 3e-2, 200


class Candidate(NamedTuple):
    """Hold a number of topics and its scores."""

    num_topics: int
    likelihood: float  # mean log P(word | rest of its passage) of held-out passages
    gain: float  # of the likelihood over the frequencies of words, as a share of the largest gain
    stability: float  # how much the topics of two halves of the corpus are alike, from 0 to 1
    score: float  # gain * stability


@dataclass(frozen=True)
class NumTopics:
    """Hold the recommended number of topics, and the curve behind it.

    Attributes:
      num_topics: the number with the best score.
      curve: all numbers that were tried.
    """

    num_topics: int
    curve: tuple[Candidate, ...]

    def __repr__(self) -> str:
        widths = ("d", ".3f", ".2f", ".2f", ".2f")
        rows = [" ".join(map(lambda value, width: f"{value:>10{width}}", one, widths)) for one in self.curve]
        heading = " ".join(f"{name:>10}" for name in Candidate._fields)
        return "\n".join([f"{self.num_topics} topics are recommended", heading, *rows])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


def choose_num_topics(
    counts: Any,
    *,
    candidates: Sequence[int] = CANDIDATES,
    key: Any = 0,
    progress: Progress | None = None,
) -> NumTopics:
    """Recommend a number of topics for a corpus.

    The passages of the corpus are dealt to two halves. For each number, topics are learned from each half
    alone. More topics predict the words of the other half better. Fewer topics are more alike in both halves.
    The score multiplies the two: the gain in likelihood, as a share of the largest gain, and the stability.

    Text has no true number of topics, and the score is often flat around its best value. Take the number as a
    first guess, and look at the topics of a few numbers.

    Args:
      counts: the result of `count`, or S that was made from it.
      candidates: the numbers to try, ascending. Numbers above a tenth of the words are left out. The search
        stops after three numbers in a row whose score is not above the best one so far.
      key: a key from `jax.random.key`, or a whole number to make one from.
      progress: is told how many numbers were tried.

    Returns:
      The number with the best score, and the curve.

    Raises:
      ValueError: if the corpus has too few passages or words.

    Example:
      >>> from dcdjax import count
      >>> texts = ["tea cup pot", "cup tea leaf", "ship sea sail", "sail sea wind"] * 20
      >>> choose_num_topics(count(texts), candidates=[2, 4]).num_topics
      2
    """
    origin = getattr(counts, "origin", counts)
    passages = getattr(origin, "passages", None)
    if passages is None:
        raise ValueError("num_topics='auto' needs the passages of a corpus: give a corpus or its counts")
    numbers = sorted({checks.whole("candidates", number, 1) for number in candidates})
    if not numbers:
        raise ValueError("candidates must be some numbers, got none")
    key = keys.as_key(key)[1]
    of_halves, *of_learners = jax.random.split(key, 3)
    halves, frequencies = _halves(
        passages, np.random.default_rng(np.asarray(jax.random.bits(of_halves, (4,))))
    )
    num_words = min(half.S.num_words for half in halves)
    numbers = [number for number in numbers if number <= num_words // _WORDS_PER_TOPIC] or numbers[:1]
    if numbers[0] > num_words:
        raise ValueError(f"num_topics: {numbers[0]} topics, but only {num_words} words can be compared")
    learners = [
        _Learner(half, k, max(numbers), frequencies.size) for half, k in zip(halves, of_learners, strict=True)
    ]
    share = frequencies / frequencies.sum()
    baseline = float((share * np.log(share)).sum())
    measured: list[tuple[int, float, float]] = []
    curve: list[Candidate] = []
    for done, number in enumerate(numbers):
        if progress is not None:
            progress("choosing the number of topics", done, len(numbers), "numbers")
        factors = [learner.learn(number) for learner in learners]
        likelihood = np.mean(
            [
                _likelihood(W, other.observed, other.asked, frequencies)
                for W, other in zip(factors, reversed(halves), strict=True)
            ]
        )
        stability = _stability(factors[0], factors[1], emphasis(frequencies, len(share)))
        measured.append((number, float(likelihood), stability))
        curve = _scored(measured, baseline)
        best = max(range(len(curve)), key=lambda n: curve[n].score)
        if len(curve) - best > _PATIENCE:
            break
    if progress is not None:
        progress("choosing the number of topics", len(numbers), len(numbers), "numbers")
    return NumTopics(max(curve, key=lambda one: one.score).num_topics, tuple(curve))


class _Half(NamedTuple):
    """Hold one half of the passages: S of its words, and the words of each passage.

    About half of the words of each passage are held out at random (`asked`); the others are `observed`.
    """

    S: Similarity
    words: np.ndarray  # the indices of S's words among the words that both halves have
    observed: scipy.sparse.csr_array
    asked: scipy.sparse.coo_array


def _halves(passages: scipy.sparse.csr_array, random: np.random.Generator) -> tuple[list[_Half], np.ndarray]:
    """Deal the passages to two halves, and return how many passages have each word too."""
    if passages.shape[0] < LEAST_PASSAGES:
        raise ValueError(
            f"num_topics='auto' needs at least {LEAST_PASSAGES} passages, the corpus has "
            f"{passages.shape[0]}: give a number"
        )
    chosen = random.permutation(passages.shape[0])[:_MOST_PASSAGES]
    parts = [passages[np.sort(chosen[first::2])].astype(np.float64) for first in (0, 1)]
    occurrences = [np.asarray(part.sum(axis=0)).ravel() for part in parts]
    # Words of both halves, at least twice in each: others say nothing of what the halves share.
    common = np.flatnonzero(np.minimum(*occurrences) >= 2)
    common = common[np.argsort(-(occurrences[0] + occurrences[1])[common], kind="stable")][:_MOST_WORDS]
    frequencies = (occurrences[0] + occurrences[1])[common]
    halves = []
    for part in parts:
        part = scipy.sparse.csr_array(part[:, common])
        together = scipy.sparse.csr_array(part.T @ part)
        together.setdiag(0)
        together.eliminate_zeros()
        if not together.nnz:
            raise ValueError("num_topics='auto': too few words stand in the same passages: give a number")
        weighted = weighting.ppmi(together, **presets.ppmi())
        kept = np.flatnonzero(np.diff(weighted.indptr))
        S = similarity.from_matrix(weighted[kept][:, kept])
        entries = part.tocoo()
        held_out = random.random(entries.nnz) < 0.5
        observed, asked = (
            scipy.sparse.coo_array(
                (entries.data[chosen], (entries.row[chosen], entries.col[chosen])), shape=part.shape
            )
            for chosen in (~held_out, held_out)
        )
        halves.append(_Half(S, kept, scipy.sparse.csr_array(observed), asked))
    return halves, frequencies


class _Learner:
    """Learn topics from one half of the corpus, for several numbers of topics."""

    def __init__(self, half: _Half, key: jax.Array, most_topics: int, num_words: int) -> None:
        self._words, self._num_words = half.words, num_words
        of_vectors, self._key = jax.random.split(key)
        self._layout = prepare(half.S, devices=jax.local_devices()[:1])
        num_dimensions = initialize.num_dimensions(most_topics)
        self._vectors = spectrum.vectors(of_vectors, self._layout, num_dimensions=num_dimensions)

    def learn(self, num_topics: int) -> Float[np.ndarray, "words topics"]:
        """Return P(topic | word); zero for words that this half does not tell about."""
        vectors = self._vectors[:, : initialize.num_dimensions(num_topics)]
        start = initialize.clustered(self._key, vectors, num_topics)
        solution = solve(start, self._layout, tol=_TOL, max_steps=_MAX_STEPS)
        W = np.zeros((self._num_words, num_topics))
        W[self._words] = np.asarray(solution.W)
        return W


def _likelihood(
    W: Float[np.ndarray, "words topics"],
    observed: scipy.sparse.csr_array,
    asked: scipy.sparse.coo_array,
    frequencies: np.ndarray,
) -> float:
    """Return the mean log probability of held-out words, given the observed words of the same passage."""
    num_topics = W.shape[1]
    # Rare words tell more about the topics of a passage.
    idf = np.log(observed.shape[0] / np.minimum(frequencies, observed.shape[0])) + 1
    topics = observed @ (idf[:, None] * W)
    sums = topics.sum(axis=1, keepdims=True)
    topics = np.where(sums > 0, topics / np.where(sums > 0, sums, 1), 1 / num_topics)
    of_topic = frequencies[:, None] * W
    of_topic /= np.maximum(of_topic.sum(axis=0), np.finfo(float).tiny)
    alone, total = frequencies / frequencies.sum(), 0.0
    for start in range(0, asked.nnz, _ENTRIES_AT_ONCE):
        rows, columns = (index[start : start + _ENTRIES_AT_ONCE] for index in (asked.row, asked.col))
        predicted = np.einsum("ij,ij->i", topics[rows], of_topic[columns])
        total += float(np.log((1 - _BACKGROUND) * predicted + _BACKGROUND * alone[columns]).sum())
    return total / max(asked.nnz, 1)


def _stability(
    first: Float[np.ndarray, "words topics"], second: Float[np.ndarray, "words topics"], weights: np.ndarray
) -> float:
    """Return the mean cosine of the topics of one half with those of the other, each matched with one."""
    roots = [np.sqrt(W * weights[:, None]) for W in (first, second)]
    first, second = (root / np.maximum(np.linalg.norm(root, axis=0), 1e-30) for root in roots)
    cosines = first.T @ second
    return float(cosines[scipy.optimize.linear_sum_assignment(-cosines)].mean())


def _scored(measured: list[tuple[int, float, float]], baseline: float) -> list[Candidate]:
    most = max(likelihood for _, likelihood, _ in measured) - baseline
    curve = []
    for number, likelihood, stability in measured:
        gain = max(0.0, (likelihood - baseline) / most) if most > 0 else 0.0
        curve.append(Candidate(number, likelihood, gain, stability, gain * stability))
    return curve

"""A corpus enters; how often which words stand near each other leaves, with the words."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from numbers import Real
from typing import Any, get_args

import numpy as np
import scipy.sparse

from dcdjax import matrix_files, validation
from dcdjax.corpus import read
from dcdjax.pair_counts import DistanceWeighting, Weights, count_pairs, lined_up, weights
from dcdjax.parallel import Progress
from dcdjax.source import Documents
from dcdjax.vocabulary import Outside, Tokens, Vocabulary

# Blocks of text in all states of being split, and the buffers of a database engine, do not fit in less.
_LEAST_MEMORY = 512 << 20


@dataclass(frozen=True, eq=False)
class Counts:
    """How often which words stand near each other.

    Attributes:
      matrix: symmetric, float64, CSR with sorted indices: C_ij is the sum, over all places of word i and all
        other places of word j within the window, of the weight of their distance.
      vocabulary: the words, and how often each occurs.
      settings: how it was counted.
    """

    matrix: scipy.sparse.csr_array
    vocabulary: Vocabulary
    settings: dict[str, Any]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the rows and columns."""
        return self.vocabulary.words

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one .npz file, whole or not at all. `scipy.sparse.load_npz` reads its matrix too."""
        settings = {"kind": "counts", "num_tokens": self.vocabulary.num_tokens, "counting": self.settings}
        matrix_files.save_matrix(path, self.matrix, self.words, settings, word_counts=self.vocabulary.counts)


def load(path: str | os.PathLike[str]) -> Counts:
    """Reads what `Counts.save` wrote.

    Raises:
      FileNotFoundError, ValueError: naming the file, and what is wrong with it.
    """
    stored = matrix_files.load_matrix(path, kind="counts")
    with matrix_files.naming(path):
        matrix = validation.canonical("counts", stored.matrix)
        validation.probe_symmetry("counts", matrix)
        if stored.words is None:
            raise ValueError("it has no words")
        validation.checked_words(stored.words, matrix.shape[0])
        if "word_counts" not in stored.arrays or "num_tokens" not in stored.settings:
            raise ValueError("it does not say how often each word occurs")
        word_counts = stored.arrays["word_counts"]
        if word_counts.dtype != np.int64:
            raise ValueError("it has counts of words that are no integers")
        if word_counts.shape != (len(stored.words),):
            raise ValueError(f"it has {word_counts.size} counts for {len(stored.words)} words")
        vocabulary = Vocabulary(stored.words, word_counts, int(stored.settings["num_tokens"]))
        settings = dict(stored.settings.get("counting", {}))
    return Counts(matrix=matrix, vocabulary=vocabulary, settings=settings)


def count(
    source: Any,
    *,
    window: int = 8,
    distance_weighting: DistanceWeighting = "flat",
    max_words: int | None = 20_000,
    min_count: int = 1,
    drop: Collection[str] = (),
    outside: Outside = "keep",
    subsample: float | None = None,
    seed: int = 0,
    documents: Documents = "line",
    lowercase: bool = False,
    pattern: str | re.Pattern[str] | None = None,
    tokenizer: Any = None,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> Counts:
    """Counts which words stand near each other, exactly, in one reading of the corpus.

    Args:
      source: a path, a folder, an open file, "-", or an iterable of paths, strings or token lists: see
        `corpus.read` for this and the options that split it.
      window: the largest distance at which two words are near each other. Windows end with the document.
      distance_weighting: what a pair counts: "flat" 1, "linear" (window - distance + 1) / window, as
        word2vec's window of random size on average, "harmonic" 1 / distance, as GloVe's.
      max_words: how many words at most, the most frequent ones; None: all.
      min_count: leave out words that occur less often.
      drop: words to leave out, such as `["<unk>"]`.
      outside: tokens that are left out "keep" their place, so that distances are as in the text, or "drop"
        out before windows are made, as word2vec does it.
      subsample: word2vec's threshold t (such as 1e-3 to 1e-5): each token of a word of relative frequency f,
        among the words kept, remains with probability min(1, sqrt(t / f) + t / f); the others are dropped
        before windows are made.
      seed: of the subsampling.
      documents: what a document is: a "line", a "file" or the "corpus".
      lowercase: turn words into lower case.
      pattern: a regular expression whose matches are the words.
      tokenizer: a callable from a line to tokens, or an object such as Hugging Face's.
      memory: bytes to work with, at least 512 MiB, besides what Python, its libraries and the words of the
        vocabulary take (about 300 bytes each). What does not fit goes to temporary files; counts that take
        more than a sixth of it are mapped from one.
      progress: shows tokens read and counted, for example `progress.Bars()`.

    Returns:
      The counts of all ordered pairs of places: a pair of different words counts in C_ij and in C_ji, a
      pair of the same word twice in C_ii.

    Raises:
      ValueError: naming an argument out of range, or what cannot be read (`text_blocks.CorpusError`).

    Example:
      >>> counts = count([["to", "be", "or", "not", "to", "be"]], window=1)
      >>> counts.words, counts.matrix.toarray()[0]
      (('be', 'to', 'not', 'or'), array([0., 2., 0., 1.]))
    """
    words = _checked_words(max_words, min_count, drop)
    window = validation.whole("window", window, 1)
    seed = validation.whole("seed", seed, 0)
    memory = validation.whole("memory", memory, _LEAST_MEMORY)
    _check_choice("distance_weighting", distance_weighting, get_args(DistanceWeighting))
    _check_choice("outside", outside, get_args(Outside))
    if subsample is not None and not (isinstance(subsample, Real) and 0 < subsample < float("inf")):
        raise ValueError(f"subsample must be a positive number, got {subsample!r}")
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be callable, such as progress.Bars(), got {progress!r}")
    compiled = pattern if isinstance(pattern, re.Pattern) else None
    settings = {
        "window": window,
        "distance_weighting": distance_weighting,
        **words,
        "drop": sorted(words["drop"]),
        "outside": outside,
        "subsample": None if subsample is None else float(subsample),
        "seed": None if subsample is None else seed,
        "documents": documents,
        "lowercase": bool(lowercase),
        "pattern": compiled.pattern if compiled else pattern,
        "pattern_flags": compiled.flags if compiled else None,
        "tokenizer": None
        if tokenizer is None
        else getattr(tokenizer, "__qualname__", type(tokenizer).__name__),
    }

    blocks = read(
        source,
        documents=documents,
        lowercase=bool(lowercase),
        pattern=pattern,
        tokenizer=tokenizer,
        memory=memory // 2,
        progress=progress,
    )

    def encoded() -> tuple[Vocabulary, Weights, np.ndarray]:
        """A function of its own, so that nothing of the reading takes memory while pairs are counted."""
        with closing(blocks), closing(Tokens(blocks, memory=memory // 3)) as tokens:
            vocabulary = tokens.vocabulary(**words)
            pieces = tokens.encoded(vocabulary, outside=outside)
            if subsample is not None:
                pieces = _subsampled(pieces, vocabulary, float(subsample), np.random.default_rng(seed))
            by_distance = weights(distance_weighting, window, tokens.longest)
            reach, num_words = len(by_distance.by_distance), len(vocabulary.words)
            return vocabulary, by_distance, lined_up(pieces, num_words, reach, memory=memory // 12)

    vocabulary, by_distance, line = encoded()
    matrix = count_pairs(line, len(vocabulary.words), by_distance, memory=memory, progress=progress)
    return Counts(matrix=matrix, vocabulary=vocabulary, settings=settings)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def _checked_words(max_words: Any, min_count: Any, drop: Any) -> dict[str, Any]:
    """What `Tokens.vocabulary` takes, checked before anything is read."""
    if isinstance(drop, str) or not isinstance(drop, Iterable):
        raise ValueError(f"drop must be a collection of words, got {drop!r}")
    dropped = frozenset(drop)
    for word in dropped:
        if not isinstance(word, str):
            raise ValueError(f"drop must be a collection of words, got one with {word!r} in it")
    return {
        "max_words": None if max_words is None else validation.whole("max_words", max_words, 1),
        "min_count": validation.whole("min_count", min_count, 1),
        "drop": dropped,
    }


def _subsampled(
    pieces: Iterable[np.ndarray], vocabulary: Vocabulary, threshold: float, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    frequency = vocabulary.counts / vocabulary.counts.sum()
    chance = np.sqrt(threshold / frequency) + threshold / frequency
    for piece in pieces:
        # One draw for each place that holds a word, in their order: pieces of other sizes change nothing.
        is_word = piece >= 0
        remains = np.ones(piece.size, bool)
        remains[is_word] = rng.random(int(is_word.sum())) < chance[piece[is_word]]
        yield piece[remains]

"""Count in a corpus how often words stand near each other."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, NamedTuple, TypedDict, get_args

import numpy as np
import scipy.sparse

from dcdjax.counting import phrases as text_phrases
from dcdjax.counting import stop_words
from dcdjax.counting.pair_counts import DistanceWeighting, Weights, count_pairs, pad_documents, weights
from dcdjax.counting.passages import PassageSampler
from dcdjax.counting.phrases import Phrase
from dcdjax.counting.stop_words import StopWords
from dcdjax.counting.vocabulary import Outside, Tokens, Vocabulary, usual_min_count
from dcdjax.text.blocks import CorpusError
from dcdjax.text.sources import Documents
from dcdjax.text.tokens import Reading, TokenKind, read
from dcdjax.text.words import normalized
from dcdjax.util import checks, matrix_checks, matrix_files, store
from dcdjax.util.progress import Progress

# The blocks of text that are split at the same time and DuckDB's buffers need this much.
_LEAST_MEMORY = 512 << 20


Drop = str | os.PathLike[str] | StopWords | Collection[str | os.PathLike[str] | StopWords]


@dataclass(frozen=True, eq=False, repr=False)
class Counts:
    """Hold co-occurrence counts with their words.

    Attributes:
      matrix: symmetric, float64, CSR with sorted indices. C_ij sums the weight of the distance over all
        places of word i and all other places of word j within the window.
      vocabulary: the words, and how often each occurs.
      settings: the options of `count`.
      passages: a row for each passage of the corpus, or for a sample of them, with a 1 for each word that
        stands in it. A passage is a document, or 200 tokens of a longer one. The coherence of topics is
        computed from it; None if it is not known.
      phrases: the phrases that were joined to one word, such as "new york", the best first.
    """

    matrix: scipy.sparse.csr_array
    vocabulary: Vocabulary
    settings: dict[str, Any]
    passages: scipy.sparse.csr_array | None = None
    phrases: tuple[Phrase, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the rows and columns."""
        return self.vocabulary.words

    def __repr__(self) -> str:
        window = f", window {self.settings['window']}" if "window" in self.settings else ""
        return (
            f"Counts({len(self.words)} words, {self.matrix.nnz} pairs, "
            f"{self.vocabulary.num_tokens} tokens{window})"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts and their words to one safetensors file. `load` reads it back.

        A crash leaves the old file or the new one, never a part of a file.
        """
        settings = {
            "num_tokens": self.vocabulary.num_tokens,
            "counting": self.settings,
            "num_different": self.vocabulary.num_different,
            "phrases": [list(phrase) for phrase in self.phrases],
        }
        arrays = {"word_counts": self.vocabulary.counts, **matrix_files.passages_to_arrays(self.passages)}
        matrix_files.save_matrix(path, self.matrix, self.words, settings, kind="counts", **arrays)


def load(path: str | os.PathLike[str]) -> Counts:
    """Read what `Counts.save` wrote.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if the file is damaged or holds something else. The message names the file.
    """
    stored = matrix_files.load_matrix(path, kind="counts")
    with store.name_in_errors(path):
        matrix = matrix_checks.canonical("counts", stored.matrix)
        matrix_checks.probe_symmetry("counts", matrix)
        if stored.words is None:
            raise ValueError("it has no words")
        checks.checked_words(stored.words, matrix.shape[0])
        if "word_counts" not in stored.arrays or "num_tokens" not in stored.settings:
            raise ValueError("it does not say how often each word occurs")
        word_counts = stored.arrays["word_counts"]
        if word_counts.dtype != np.int64:
            raise ValueError(f"it has word counts of {word_counts.dtype}, not int64")
        if word_counts.shape != (len(stored.words),):
            raise ValueError(f"it has {word_counts.size} counts for {len(stored.words)} words")
        numbers = int(stored.settings["num_tokens"]), stored.settings.get("num_different")
        vocabulary = Vocabulary(stored.words, word_counts, *numbers)
        settings = dict(stored.settings.get("counting", {}))
        passages = matrix_files.passages_from_arrays(stored.arrays, matrix.shape[0])
        phrases = tuple(Phrase(*phrase) for phrase in stored.settings.get("phrases", ()))
    return Counts(matrix, vocabulary, settings, passages, phrases)


class CountingOptions(TypedDict, total=False):
    """The options of `count`, for functions that pass them on. `count` explains them."""

    window: int
    distance_weighting: DistanceWeighting
    max_words: int | None
    min_count: int | None
    drop: Drop
    phrases: bool | Collection[str]
    outside: Outside
    subsample: float | None
    seed: int
    text: str | Sequence[str] | None
    documents: Documents
    tokens: TokenKind | None
    lowercase: bool | None
    pattern: str | re.Pattern[str] | None
    tokenizer: Any
    memory: int


@checks.suggest_names
def count(
    source: Any,
    *,
    window: int = 8,
    distance_weighting: DistanceWeighting = "harmonic",
    max_words: int | None = 20_000,
    min_count: int | None = None,
    drop: Drop = (),
    phrases: bool | Collection[str] = False,
    outside: Outside = "keep",
    subsample: float | None = None,
    seed: int = 0,
    text: str | Sequence[str] | None = None,
    documents: Documents = "auto",
    tokens: TokenKind | None = None,
    lowercase: bool | None = None,
    pattern: str | re.Pattern[str] | None = None,
    tokenizer: Any = None,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> Counts:
    """Count word pairs within a window, exactly, in one pass over the corpus.

    Args:
      source: a path, a folder, an open file, "-", a table, or an iterable of paths, strings or token lists.
        See `tokens.read` for these, and for the options that split text.
      window: largest distance at which two words count as a pair; 5 to 10 is usual. Larger windows find more
        pairs of words on one topic, and give more nonzeros. Windows end with the document.
      distance_weighting: weight of a pair. "harmonic" is 1 / distance, as in GloVe; "linear" is
        (window - distance + 1) / window, the mean over word2vec's windows of random size; "flat" is 1.
      max_words: size of the vocabulary, which keeps the most frequent words. None keeps all words.
      min_count: leave out words that occur less often. Default: 1 for lists of tokens; for text one for each
        20,000 tokens, at least 1 and at most 5.
      drop: words to leave out, such as `["<unk>"]`. A collection may also have a `pathlib.Path`, a file with
        one word a line, and lists of `stop_words.load`. A string is the name of one such list: "english" or
        another language, or a file such as "mine.txt".
      phrases: True finds phrases of two or three words, such as "new york", and counts each as one word. Or
        the phrases to join. Words to drop are not in phrases that are found.
      outside: tokens outside of the vocabulary "keep" their place, so that distances are as in the text, or
        "drop" out before windows are made, as in word2vec.
      subsample: word2vec's threshold t, usually 1e-3 to 1e-5. A token of a word with relative frequency f
        among the kept words remains with probability min(1, sqrt(t / f) + t / f). The others drop out before
        windows are made. A smaller threshold drops more tokens of frequent words.
      seed: seed of the subsampling.
      text: column of a table that holds the text, or several columns. Default: the only column, or "text".
      documents: a document is a "line", a "paragraph" (up to an empty line), a "file" or the "corpus"; in a
        table, a row is a line. "auto" is a line, or a paragraph if lines are hard-wrapped, with a warning.
      tokens: "words" finds the words of any language that writes blanks between words, without punctuation,
        numbers and single letters. "blanks" takes what stands between blanks as it is. Default: "words".
      lowercase: convert words to lower case. Default: only for text with `tokens="words"`.
      pattern: regular expression whose matches are the words.
      tokenizer: callable from a line to tokens, or an object such as Hugging Face's tokenizers.
      memory: bytes to work with, at least 512 MiB. Python, its libraries and the words of the vocabulary
        (about 300 bytes each) come on top. What does not fit goes to temporary files. Counts that take more
        than a sixth of `memory` are mapped from a temporary file.
      progress: called with tokens read and counted; `progress.Bars()` shows them.

    Returns:
      The counts of all ordered pairs of places. A pair of different words counts in C_ij and in C_ji, a pair
      of the same word twice in C_ii.

    Raises:
      ValueError: if an argument is out of range, or if the corpus cannot be read (`blocks.CorpusError`).

    Example:
      >>> counts = count([["to", "be", "or", "not", "to", "be"]], window=1)
      >>> counts.words, counts.matrix.toarray()[0]
      (('be', 'to', 'not', 'or'), array([0., 2., 0., 1.]))
    """
    limits = {
        "max_words": None if max_words is None else checks.whole("max_words", max_words, 1),
        "min_count": None if min_count is None else checks.whole("min_count", min_count, 1),
    }
    window = checks.whole("window", window, 1)
    seed = checks.whole("seed", seed, 0)
    memory = checks.whole("memory", memory, _LEAST_MEMORY)
    checks.choice("distance_weighting", distance_weighting, get_args(DistanceWeighting))
    checks.choice("outside", outside, get_args(Outside))
    if subsample is not None and not (isinstance(subsample, Real) and 0 < subsample < float("inf")):
        raise ValueError(f"subsample must be a positive number, got {subsample!r}")
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be callable, such as progress.Bars(), got {progress!r}")
    dropped, single, lists = stop_words.resolve(drop)
    phrases = text_phrases.checked(phrases)
    reading = read(
        source,
        text=text,
        documents=documents,
        tokens=tokens,
        lowercase=lowercase,
        pattern=pattern,
        tokenizer=tokenizer,
        memory=memory // 2,
        progress=progress,
    )
    with closing(reading):
        # As the words of the text are: in lower case, with the usual apostrophes and composed letters.
        is_found = reading.tokens == "words" and reading.is_text
        as_in_text = partial(_as_in_text, lowercase=reading.lowercase, normalize=is_found)
        dropped, single = as_in_text(dropped), as_in_text(single)
        phrases = phrases if isinstance(phrases, bool) else as_in_text(phrases)
        compiled = pattern if isinstance(pattern, re.Pattern) else None
        settings = {
            "window": window,
            "distance_weighting": distance_weighting,
            **limits,
            "drop": sorted(single),
            "drop_lists": lists,
            "phrases": phrases if isinstance(phrases, bool) else sorted(phrases),
            "outside": outside,
            "subsample": None if subsample is None else float(subsample),
            "seed": None if subsample is None else seed,
            "text": text if text is None or isinstance(text, str) else list(text),
            "documents": reading.documents,
            "tokens": reading.tokens if tokenizer is None else tokens,
            "lowercase": reading.lowercase,
            "pattern": compiled.pattern if compiled else pattern,
            "pattern_flags": compiled.flags if compiled else None,
            "tokenizer": None
            if tokenizer is None
            else getattr(tokenizer, "__qualname__", type(tokenizer).__name__),
        }
        encoded = _encode(reading, limits | {"drop": dropped}, settings, memory=memory)
    num_words = len(encoded.vocabulary.words)
    matrix = count_pairs(encoded.line, num_words, encoded.by_distance, memory=memory, progress=progress)
    return Counts(matrix, encoded.vocabulary, settings, encoded.passages, encoded.phrases)


def _as_in_text(words: Iterable[str], *, lowercase: bool, normalize: bool) -> frozenset[str]:
    """Convert words to drop, and phrases, as the tokens of the text are converted."""
    words = map(normalized, words) if normalize else words
    return frozenset(word.lower() if lowercase else word for word in words)


class _Encoded(NamedTuple):
    """The corpus as word numbers, and what was found on the way."""

    vocabulary: Vocabulary
    phrases: tuple[Phrase, ...]
    passages: scipy.sparse.csr_array
    by_distance: Weights
    line: np.ndarray  # from `pad_documents`


def _encode(reading: Reading, words: dict[str, Any], settings: dict[str, Any], *, memory: int) -> _Encoded:
    """Choose the vocabulary and encode the corpus. All other memory for reading is free at the end.

    The default of `min_count` depends on the corpus. The one that is used is added to `settings`.
    """
    outside, joined = settings["outside"], ()
    with closing(Tokens(reading, memory=memory // 3)) as tokens:
        if not tokens.num_tokens and reading.tokens == "words" and reading.is_text:
            raise CorpusError(
                "the corpus has no token that is a word: numbers, punctuation and single letters are left "
                'out; tokens="blanks" takes all that stands between blanks'
            )
        if words["min_count"] is None:
            words = {**words, "min_count": usual_min_count(tokens.num_tokens) if reading.is_text else 1}
            settings["min_count"] = words["min_count"]
        if settings["phrases"]:
            result = text_phrases.joined_tokens(
                tokens, settings["phrases"], **words, outside=outside, memory=memory // 4
            )
            joined, pieces = result.phrases, result.encoded()
            vocabulary = replace(result.vocabulary, num_different=tokens.num_different())
        else:
            vocabulary = tokens.vocabulary(**words)
            pieces = tokens.encoded(vocabulary, outside=outside)
        sampler = PassageSampler(tokens.num_tokens)
        pieces = sampler.watch(pieces)
        if settings["subsample"] is not None:
            rng = np.random.default_rng(settings["seed"])
            pieces = _subsampled(pieces, vocabulary, settings["subsample"], rng)
        by_distance = weights(settings["distance_weighting"], settings["window"], tokens.longest)
        reach, num_words = len(by_distance.by_distance), len(vocabulary.words)
        line = pad_documents(pieces, num_words, reach, memory=memory // 12)
        return _Encoded(vocabulary, joined, sampler.matrix(num_words), by_distance, line)


def _subsampled(
    pieces: Iterable[np.ndarray], vocabulary: Vocabulary, threshold: float, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    frequency = vocabulary.counts / vocabulary.counts.sum()
    chance = np.sqrt(threshold / frequency) + threshold / frequency
    for piece in pieces:
        # One draw for each word in order, so that the result does not depend on the size of the pieces.
        is_word = piece >= 0
        remains = np.ones(piece.size, bool)
        remains[is_word] = rng.random(int(is_word.sum())) < chance[piece[is_word]]
        yield piece[remains]

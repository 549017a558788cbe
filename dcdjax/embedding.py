"""Words with what was learned of them enter; answers to questions about them leave, or files of the whole."""

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dcdjax import (
    answers,
    coherence,
    initialize,
    model_files,
    queries,
    reduction,
    validation,
    vector_files,
)
from dcdjax.answers import Topic, TopicShare, WordProbability
from dcdjax.lexicon import Lexicon
from dcdjax.weighting import weighted_row

ExportFormat = Literal["word2vec", "word2vec-binary", "numpy", "projector"]

# Rows of W further from the simplex than this were not put on it: float32 sums of 10^4 topics are nearer.
_SIMPLEX_TOLERANCE = 1e-3
# Of so many first words of each topic the coherence is kept; 10 are usual.
_COHERENCE_DEPTH = 20
# By how many of its words a topic is named.
_NAMED_BY = 5
# Arrays that may be missing.
_OPTIONAL = ("word_counts", "margins", "coherence")


@dataclass(frozen=True, eq=False, repr=False)
class Embedding:
    """Words with their vectors, W_ik = P(topic k | word i). Made by `fit`, by `load`, or of any W.

    Attributes:
      words: one for each row of W.
      W: nonnegative, rows on the simplex.
      starts: how many of the topics are of each start, where several make up a consensus.
      word_counts: how often each word occurs in the corpus.
      margins: the sums of the rows of the counts that it was learned from.
      coherence: (topics, depth), of each topic's first words: see `coherence.npmi`.
      history: what happened at each step, a row for each start.
      record: where all this comes from: corpus, settings, versions, seed, status.
    """

    words: tuple[str, ...]
    W: Float[Array, "words topics"]
    starts: tuple[int, ...] = ()
    word_counts: np.ndarray | None = None
    margins: np.ndarray | None = None
    coherence: np.ndarray | None = None
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        W = np.asarray(self.W)
        if W.ndim != 2 or min(W.shape) < 1 or W.dtype not in (np.float32, np.float64):
            raise ValueError(f"W must be (words, topics) of float32 or float64, got {W.dtype} {W.shape}")
        words = validation.checked_words(self.words, W.shape[0])
        if words is None:
            raise ValueError("words: an embedding needs them")
        sums = W.sum(axis=1, dtype=np.float64)
        bad = ~(np.abs(sums - 1) <= _SIMPLEX_TOLERANCE) | (W.min(axis=1) < 0)
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(
                f"W: the row of word {row} ({words[row]!r}) is not on the simplex: it sums to "
                f"{sums[row]:.6g}, its least entry is {W[row].min():.6g} "
                "(consensus(solution) puts rows on the simplex)"
            )
        starts = tuple(map(operator.index, self.starts)) or (W.shape[1],)
        if sum(starts) != W.shape[1] or min(starts) < 1:
            raise ValueError(f"starts must add up to the {W.shape[1]} topics of W, got {starts}")
        for name, length in zip(_OPTIONAL, (*W.shape[:1] * 2, W.shape[1]), strict=True):
            value = getattr(self, name)
            if value is not None and np.shape(value)[:1] != (length,):
                raise ValueError(f"{name} must have {length} entries, got shape {np.shape(value)}")
        if self.coherence is not None and np.ndim(self.coherence) != 2:
            raise ValueError(f"coherence must be (topics, depth), got shape {np.shape(self.coherence)}")
        for name, value in (("words", words), ("starts", starts), ("W", jnp.asarray(self.W))):
            object.__setattr__(self, name, value)

    # --- What it holds ------------------------------------------------------------------------------

    @property
    def num_topics(self) -> int:
        """How many columns W has."""
        return self.W.shape[1]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._lexicon.index

    def __getitem__(self, words: str | Sequence[str]) -> np.ndarray:
        """P(topic | word): the row of a word, or the rows of several."""
        if isinstance(words, str):
            return np.asarray(self.W[self._lexicon.number(words)])
        return np.asarray(self.W[self._numbers(words)])

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __repr__(self) -> str:
        corpus = self.record.get("corpus")
        corpus = corpus.get("name") if isinstance(corpus, Mapping) else corpus
        return f"Embedding({len(self)} words, {self.num_topics} topics{f', of {corpus}' if corpus else ''})"

    @property
    def key_to_index(self) -> dict[str, int]:
        """The row of each word, by gensim's name."""
        return self._lexicon.index

    @property
    def index_to_key(self) -> list[str]:
        """The words, by gensim's name."""
        return list(self.words)

    # --- Questions ----------------------------------------------------------------------------------

    def neighbors(
        self, words: Any, k: int = 10, *, among: Sequence[str] | None = None, together: bool = False
    ) -> Any:
        """The words j with the largest Shat_ij = P(word j | word i), without the words i asked about.

        Args:
          words: a word, or several; or a row of W such as `fold_in` gives, or several.
          k: how many at most.
          among: choose from these words only.
          together: take several words as one question: the mean of their distributions.

        Returns:
          Pairs (word, probability), the largest first; for several questions a list of such lists.

        Raises:
          KeyError: for an unknown word, with words of similar spelling.
        """
        k = validation.whole("k", k, 1)
        mask = None
        if among is not None:
            mask = np.zeros(len(self), bool)
            mask[self._lexicon.numbers(among, "among")] = True
        if isinstance(words, str):
            return self._nearest(np.array([[self._lexicon.number(words)]], np.int32), k, among=mask)[0]
        if _are_rows(words):
            rows = self._rows(words, together)
            found = self._nearest(np.empty((len(rows), 0), np.int32), k, among=mask, rows=rows)
            return found if words.ndim == 2 and not together else found[0]
        numbers = self._numbers(words)
        if not together:
            return self._nearest(numbers[:, None], k, among=mask)
        if not numbers.size:
            raise ValueError("words: there is none to ask about")
        return self._nearest(numbers[None, :], k, among=mask)[0]

    def most_similar(
        self, positive: str | Sequence[str], negative: str | Sequence[str] = (), topn: int = 10
    ) -> list[WordProbability]:
        """`neighbors` by gensim's name: of the mean of distributions, those of `negative` taken away."""
        plus, minus = (
            self._numbers([part] if isinstance(part, str) else part) for part in (positive, negative)
        )
        if not plus.size:
            raise ValueError("positive: there is no word to ask about")
        asked, rows = np.concatenate([plus, minus]), None
        if minus.size:
            rows = np.asarray(self.W[plus].sum(axis=0) - self.W[minus].sum(axis=0))[None] / asked.size
        return self._nearest(asked[None, :], validation.whole("topn", topn, 1), rows=rows)[0]

    def similarity(self, a: Any, b: Any) -> Any:
        """Shat_ij = P(word j | word i) = P(word i | word j), of two words, or of the pairs of two lists.

        Either may also be a row such as `fold_in` gives, or several. That of a word with itself is not 1: a
        word need not follow itself, and may well be less similar to itself than to another.
        """
        if _are_rows(a) or _are_rows(b):
            found = (self._row(a) * self._row(b) / np.asarray(self._s)).sum(axis=-1)
            return float(found) if found.ndim == 0 else found
        first, second = (self._numbers([part] if isinstance(part, str) else part) for part in (a, b))
        if 1 not in (first.size, second.size) and first.size != second.size:
            raise ValueError(f"b: {second.size} words for the {first.size} of a")
        found = answers.pair_similarity(self.W, self._s, *np.broadcast_arrays(first, second))
        return float(found[0]) if isinstance(a, str) and isinstance(b, str) else found

    def topics(self, k: int = 10) -> list[Topic]:
        """Every topic: its weight, its k words with the largest P(word | topic), and their coherence.

        The coherence is of no more words than were looked at when it was computed: 20, by `fit`.
        """
        k = min(validation.whole("k", k, 1), len(self))
        weights = np.asarray(self._s, np.float64) / len(self)
        coherence = [None] * self.num_topics
        if self.coherence is not None:
            found = self.coherence[:, min(k, self.coherence.shape[1]) - 1]
            coherence = [None if np.isnan(value) else float(value) for value in found]
        return [
            Topic(
                number=topic,
                weight=float(weights[topic]),
                coherence=coherence[topic],
                words=tuple(
                    WordProbability(self.words[number], float(probability))
                    for number, probability in zip(numbers, probabilities, strict=True)
                ),
            )
            for topic, (probabilities, numbers) in enumerate(
                zip(*answers.first_words(self.W, self._s, k), strict=True)
            )
        ]

    def topics_of(self, word: Any, k: int = 5) -> list[TopicShare]:
        """The k topics with the largest P(topic | word), of a word or a row such as `fold_in` gives."""
        return answers.shares(self._single_row(word), validation.whole("k", k, 1), self._topic_names)

    def explain(self, a: Any, b: Any, k: int | None = None) -> list[TopicShare]:
        """The topics that make two words similar: W_ik W_jk / s_k, the largest first, all or k of them.

        Each is the chance to come from one word to the other by way of that topic; over all topics they sum
        to `similarity(a, b)`.
        """
        if _are_rows(a) or _are_rows(b):
            terms = self._single_row(a) * self._single_row(b) / np.asarray(self._s)
        else:
            pair = self._numbers([a]), self._numbers([b])
            terms = np.asarray(queries.contributions(self.W, self._s, *pair))[0]
        return answers.shares(
            terms, self.num_topics if k is None else validation.whole("k", k, 1), self._topic_names
        )

    def fold_in(
        self,
        counts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        weighted: bool = False,
        skip_unknown: bool = False,
    ) -> np.ndarray:
        """The row of W for a new word, while the topics stay as they are; `neighbors` takes it as a question.

        Args:
          counts: how often the new word stands near which known words; or several such, for several words.
          weighted: these are entries of S already. Otherwise they are weighted as the counts were that the
            embedding was learned from, where it was learned from counts.
          skip_unknown: leave out unknown words instead of refusing them.

        Returns:
          P(topic | new word), or a row for each new word.

        Raises:
          KeyError: for an unknown word, with words of similar spelling.
          ValueError: for counts that are negative or not finite, or say nothing.
        """
        if isinstance(counts, Mapping):
            return self._folded_in(counts, weighted, skip_unknown)
        rows = [self._folded_in(one, weighted, skip_unknown) for one in counts]
        return np.stack(rows) if rows else np.zeros((0, self.num_topics), self.W.dtype)

    def reduce(self, num_topics: int, *, key: Any, counts: Any = None) -> "Embedding":
        """The same words with fewer topics: those that resemble each other become one, their sum.

        Of a consensus, whose starts find much the same topics, that leaves what they agree on, at a fraction
        of the memory and of the time of a question.

        Args:
          num_topics: how many are to be left.
          key: of the groups, from `jax.random.key`, or a whole number to make one of.
          counts: what it was learned from, if the coherence of the new topics is to be known.

        Returns:
          Another embedding, whose record has "reduced_from", the number of topics that there were.
        """
        num_topics = validation.whole("num_topics", num_topics, 1)
        if num_topics > self.num_topics:
            raise ValueError(f"num_topics must be at most {self.num_topics}, got {num_topics}")
        of_topics = None
        W = reduction.merged(initialize.as_key(key)[1], self.W, num_topics=num_topics)
        if counts is not None:
            number = {word: n for n, word in enumerate(counts.words)}
            unknown = next((word for word in self.words if word not in number), None)
            if unknown is not None:
                raise ValueError(f"counts: they do not have the word {unknown!r}")
            of_topics = coherence_of(W, counts.matrix, np.array([number[word] for word in self.words]))
        return Embedding(
            words=self.words,
            W=W,
            word_counts=self.word_counts,
            margins=self.margins,
            coherence=of_topics,
            history=self.history,
            record={**self.record, "reduced_from": self.num_topics},
        )

    # --- Files --------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes a folder of safetensors and JSON, whole or not at all; a model there stays until then."""
        tensors = {"W": np.asarray(self.W)}
        tensors |= {
            name: np.asarray(getattr(self, name)) for name in _OPTIONAL if getattr(self, name) is not None
        }
        tensors |= {f"history.{name}": np.asarray(values) for name, values in self.history.items()}
        content = {"kind": "embedding", "words": list(self.words), "starts": list(self.starts)}
        model_files.save(folder, tensors, {**content, "record": dict(self.record)})

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> "Embedding":
        """Reads what `save` wrote.

        Raises:
          FileNotFoundError, ValueError: naming the folder or file, and what is wrong with it.
        """
        tensors, content = model_files.load(folder)
        try:
            if content.get("kind") != "embedding":
                raise ValueError(f"it holds {content.get('kind')!r}, not an embedding")
            history = {name: tensors[name] for name in tensors if name.startswith("history.")}
            return Embedding(
                words=tuple(content["words"]),
                W=jnp.asarray(tensors["W"]),
                starts=tuple(content["starts"]),
                history={name.removeprefix("history."): values for name, values in history.items()},
                record=content["record"],
                **{name: tensors.get(name) for name in _OPTIONAL},
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(folder)}: {error}") from error

    def export(
        self,
        path: str | os.PathLike[str],
        format: ExportFormat = "word2vec",  # noqa: A002, what everybody calls it
        *,
        scaled: bool = False,
    ) -> None:
        """Writes the words with their vectors for other tools.

        Args:
          path: of the file; of a folder, for "projector".
          format: "word2vec" or "word2vec-binary", which gensim's `KeyedVectors.load_word2vec_format` reads;
            "numpy", an .npz of `words` and `vectors`; "projector", the TSV files of TensorFlow's.
          scaled: W_ik / sqrt(s_k) instead of W_ik: the dot product of two such vectors is Shat_ij.
        """
        if format not in get_args(ExportFormat):
            raise ValueError(f"format must be one of {get_args(ExportFormat)}, got {format!r}")
        vectors = np.asarray(self.W / jnp.sqrt(self._s)[None, :] if scaled else self.W)
        if format == "numpy":
            vector_files.write_numpy(path, self.words, vectors)
        elif format == "projector":
            columns = None if self.word_counts is None else {"count": self.word_counts.tolist()}
            vector_files.write_projector(path, self.words, vectors, columns=columns)
        else:
            vector_files.write_word2vec(path, self.words, vectors, binary=format == "word2vec-binary")

    # --- How it is done -----------------------------------------------------------------------------

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon(self.words)

    @cached_property
    def _s(self) -> Float[Array, " topics"]:
        return queries.topic_sizes(self.W)

    @cached_property
    def _objects(self) -> np.ndarray:
        return np.array(self.words, object)

    @cached_property
    def _topic_names(self) -> list[tuple[str, ...]]:
        _, numbers = answers.first_words(self.W, self._s, min(_NAMED_BY, len(self)))
        return [tuple(self.words[number] for number in row) for row in numbers.tolist()]

    def _numbers(self, words: Any) -> np.ndarray:
        return np.array(self._lexicon.numbers(words), np.int32)

    def _nearest(
        self,
        asked: np.ndarray,
        k: int,
        *,
        among: np.ndarray | None = None,
        rows: np.ndarray | None = None,
    ) -> list[list[WordProbability]]:
        return answers.nearest(self._objects, self.W, self._s, asked, k, among=among, rows=rows)

    def _rows(self, words: Any, together: bool) -> np.ndarray:
        rows = np.atleast_2d(self._row(words))
        if together and not len(rows):
            raise ValueError("words: there is none to ask about")
        return rows.mean(axis=0, keepdims=True) if together else rows

    def _row(self, words: Any) -> np.ndarray:
        """A word, words, a row or rows, as a row or rows."""
        if not _are_rows(words):
            return self[words]
        rows = np.asarray(words, self.W.dtype)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.num_topics or not np.isfinite(rows).all():
            raise ValueError(
                f"words: rows must be finite and of {self.num_topics} topics, got shape {rows.shape}"
            )
        return rows

    def _single_row(self, word: Any) -> np.ndarray:
        row = self._row(word)
        if row.ndim != 1:
            raise ValueError(f"word must be one word or one row, got {len(row)}")
        return row

    def _folded_in(self, counts: Mapping[str, Any], weighted: bool, skip_unknown: bool) -> np.ndarray:
        if not isinstance(counts, Mapping):
            raise ValueError(f"counts must map words to numbers, got {counts!r}")
        known = [word for word in counts if word in self or not skip_unknown]
        numbers, values = self._numbers(known), np.array([counts[word] for word in known], np.float64)
        for word, value in zip(known, values, strict=True):
            if not 0 <= value < np.inf:
                raise ValueError(f"counts: {word!r} has {value}, which is negative or not finite")
        if not values.any():
            raise ValueError("counts: none of a known word is positive")
        if not weighted and self.margins is not None and "weighting" in self.record:
            margins = np.asarray(self.margins, np.float64)[numbers]
            values = weighted_row(values, margins, **self.record["weighting"])
        if not values.any():
            raise ValueError("counts: no known word is nearer than by chance, so they say nothing")
        return answers.folded_in(self.W, self._s, self.starts, numbers, values)


def coherence_of(W: Float[Array, "words topics"], counts: Any, rows: np.ndarray) -> np.ndarray:
    """The coherence of every topic's first words, whose rows of the counts these are."""
    _, top = answers.first_words(W, queries.topic_sizes(W), min(_COHERENCE_DEPTH, len(rows)))
    return coherence.npmi(counts, rows[top])


def _are_rows(words: Any) -> bool:
    return isinstance(words, np.ndarray | Array) and words.dtype.kind == "f"

"""Look up what was learned about words: neighbors, topics, similarities and new words."""

import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dcdjax.embedding import export, storage, validation
from dcdjax.embedding.export import ExportFormat
from dcdjax.embedding.gensim_names import GensimNames
from dcdjax.queries import display, fold_in, lookup, results
from dcdjax.queries.display import ResultList
from dcdjax.queries.results import Topic, TopicShare, WordProbability
from dcdjax.queries.word_index import WordIndex
from dcdjax.topics import levels as topic_levels
from dcdjax.topics import topic_view
from dcdjax.topics.levels import Level
from dcdjax.topics.topic_view import TopicView
from dcdjax.util import checks

# A row whose sum differs from one by more than this was never normalized. float32 sums of 10^4 topics are
# closer to one.
_SIMPLEX_TOLERANCE = 1e-3
# The arrays that can be missing, with an entry for each word.
_OPTIONAL = ("word_counts", "margins")


@dataclass(frozen=True, eq=False, repr=False)
class Embedding(GensimNames):
    """Hold words and their vectors W_ik = P(topic k | word i).

    `fit` and `Embedding.load` return embeddings. You can also make one from your own words and W.

    Attributes:
      words: one word for each row of W.
      W: nonnegative, rows on the simplex.
      starts: the number of columns of each start in a consensus. By default one start has all columns.
      levels: the topics that are shown: which columns of W make up each topic, and in a second level each
        subtopic. By default each column is a topic.
      word_counts: how often each word occurs in the corpus.
      margins: the row sums of the counts that the embedding was learned from.
      history: what was measured at each step, one row for each start.
      record: where the embedding comes from: corpus, settings, versions, seed, status.
    """

    words: tuple[str, ...]
    W: Float[Array, "words topics"]
    starts: tuple[int, ...] = ()
    levels: tuple[Level, ...] = ()
    word_counts: np.ndarray | None = None
    margins: np.ndarray | None = None
    history: Mapping[str, np.ndarray] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        W = np.asarray(self.W)
        if W.ndim != 2 or min(W.shape) < 1 or W.dtype not in (np.float32, np.float64):
            raise ValueError(f"W must be (words, topics) of float32 or float64, got {W.dtype} {W.shape}")
        words = checks.checked_words(self.words, W.shape[0])
        if words is None:
            raise ValueError("words must be given, one for each row of W, got None")
        sums = W.sum(axis=1, dtype=np.float64)
        bad = ~(np.abs(sums - 1) <= _SIMPLEX_TOLERANCE) | (W.min(axis=1) < 0)
        if bad.any():
            row = int(bad.argmax())
            raise ValueError(
                f"W: the row of word {row} ({words[row]!r}) is not on the simplex: its sum is "
                f"{sums[row]:.6g}, its smallest entry is {W[row].min():.6g} "
                "(consensus(solution) puts rows on the simplex)"
            )
        starts = tuple(map(operator.index, self.starts)) or (W.shape[1],)
        if sum(starts) != W.shape[1] or min(starts) < 1:
            raise ValueError(f"starts must add up to the {W.shape[1]} columns of W, got {starts}")
        levels = tuple(self.levels) or (Level(np.arange(W.shape[1])),)
        topic_levels.check_levels(levels, W.shape[1])
        optional = {name: getattr(self, name) for name in _OPTIONAL}
        validation.check_parts(W.shape[0], **optional, record=self.record)
        checked = {"words": words, "starts": starts, "levels": levels, "W": jnp.asarray(self.W)}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    # --- Content ------------------------------------------------------------------------------------

    @property
    def num_topics(self) -> int:
        """Return the number of topics that are shown. In a consensus, W has more columns."""
        return self.levels[0].num_topics

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and word in self._word_index.by_word

    def __getitem__(self, words: str | Sequence[str]) -> np.ndarray:
        """Return P(topic | word): the row of a word, or the rows of several words."""
        if isinstance(words, str):
            return np.asarray(self.W[self._word_index.index_of(words)])
        return np.asarray(self.W[self._indices(words)])

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __repr__(self) -> str:
        return display.embedding_text(len(self), self.num_topics, self.W.shape[1], self.record)

    def _repr_html_(self) -> str:
        return display.embedding_table(self.words, self.num_topics, self.starts, self.record)

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        """Return the words that are phrases, such as "new york": `phrases.join` joins them in new texts."""
        return tuple(word for word in self.words if " " in word.strip())

    # --- Queries ------------------------------------------------------------------------------------

    @checks.suggest_names
    def neighbors(
        self, words: Any, k: int = 10, *, among: Sequence[str] | None = None, together: bool = False
    ) -> Any:
        """Find the words j with the largest Shat_ij = P(word j | word i), without the query words i.

        Args:
          words: a word or a list of words. A row P(topic | query), such as `fold_in` returns, or an array of
            such rows works too.
          k: the largest number of neighbors.
          among: choose neighbors from these words only.
          together: treat all words as one query: average their distributions.

        Returns:
          Pairs (word, probability), the most probable first. For several queries, a list of such lists.

        Raises:
          KeyError: for an unknown word; the message suggests words of similar spelling.
        """
        k = checks.whole("k", k, 1)
        mask = None
        if among is not None:
            mask = np.zeros(len(self), bool)
            mask[self._word_index.indices_of(among, "among")] = True
        if _are_rows(words):
            rows = np.atleast_2d(self._rows(words))
            queries = np.empty((len(rows), 0), np.int32)
        else:
            rows, queries = None, self._indices(words)[:, None]
        if together and not len(queries):
            raise ValueError("words: together=True needs at least one word")
        if together:
            rows = None if rows is None else rows.mean(axis=0, keepdims=True)
            queries = queries.reshape(1, -1)
        found = self._nearest(queries, k, mask, rows)
        is_single = words.ndim == 1 if rows is not None else isinstance(words, str)
        if together or is_single:
            return found[0]
        answers = ResultList(found)
        answers.labels = None if rows is not None else tuple(words)
        return answers

    def similarity(self, a: Any, b: Any) -> Any:
        """Return Shat_ij = P(word j | word i) = P(word i | word j) for two words, or for pairs of two lists.

        Rows such as `fold_in` returns work too. The similarity of a word with itself is not 1, and can be
        smaller than its similarity to another word.
        """
        if _are_rows(a) or _are_rows(b):
            found = (self._rows(a) * self._rows(b) / np.asarray(self._s)).sum(axis=-1)
            return float(found) if found.ndim == 0 else found
        first, second = self._indices(a), self._indices(b)
        if 1 not in (first.size, second.size) and first.size != second.size:
            raise ValueError(f"b must have as many words as a, got {second.size} for {first.size}")
        found = results.pair_similarity(self.W, self._s, *np.broadcast_arrays(first, second))
        return float(found[0]) if isinstance(a, str) and isinstance(b, str) else found

    # --- Topics -------------------------------------------------------------------------------------

    def topics(self, k: int = 10, *, subtopics: bool = False) -> ResultList[Topic]:
        """Return every topic: its weight, its first k words, and their coherence.

        The most useful topics come first: their words stand together, and they explain much of the text.
        Topics without coherence come last. `Topic.junk` marks those whose words hardly ever stand in one
        passage. The words of a topic are sorted by P(topic | word) times the log of the word's frequency.

        Args:
          k: the number of words. The coherence covers up to 20 of them.
          subtopics: return the finer topics of a consensus instead. `Topic.subtopics` says which of them
            belong to a topic.

        Returns:
          The topics by number. The number of a topic never changes, also when the model is saved and loaded.
        """
        return self._view(subtopics).topics(min(checks.whole("k", k, 1), len(self)))

    def topics_of(self, word: Any, k: int = 5, *, subtopics: bool = False) -> ResultList[TopicShare]:
        """Return the k topics with the largest P(topic | word), for a word or a row from `fold_in`."""
        return self._view(subtopics).largest(self._single_row(word), checks.whole("k", k, 1))

    def topic_probabilities(self, *, subtopics: bool = False) -> Float[Array, "words topics"]:
        """Return P(topic | word) of all words: the columns of W, summed by topic."""
        return self._view(subtopics).W

    def explain(
        self, a: Any, b: Any, k: int | None = None, *, subtopics: bool = False
    ) -> ResultList[TopicShare]:
        """Return the topics that make two words similar, by W_ik W_jk / s_k, the largest first.

        Each term is the probability to get from one word to the other through that topic. The terms of all
        topics sum to `similarity(a, b)`. A topic of several columns has the sum of their terms.

        Args:
          a: a word, or a row such as `fold_in` returns.
          b: the same.
          k: the number of topics; by default all.
          subtopics: explain by the finer topics of a consensus.
        """
        if _are_rows(a) or _are_rows(b):
            terms = self._single_row(a) * self._single_row(b) / np.asarray(self._s)
        else:
            pair = self._indices([a]), self._indices([b])
            terms = np.asarray(lookup.contributions(self.W, self._s, *pair))[0]
        return self._view(subtopics).largest(terms, None if k is None else checks.whole("k", k, 1))

    # --- New words and fewer topics -----------------------------------------------------------------

    def fold_in(
        self,
        counts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        weighted: bool = False,
        skip_unknown: bool = False,
    ) -> np.ndarray:
        """Compute the row of W for a new word while the topics stay fixed. `neighbors` accepts this row.

        Args:
          counts: how often the new word occurs near known words; or a list of such mappings, for several new
            words.
          weighted: True if these numbers are entries of S already. Otherwise they are weighted in the way of
            the counts that the embedding was learned from, if it was learned from counts.
          skip_unknown: ignore unknown words instead of raising an error.

        Returns:
          P(topic | new word), or one row for each new word.

        Raises:
          KeyError: for an unknown word; the message suggests words of similar spelling.
          ValueError: for counts that are negative, not finite, or all zero.
        """
        if isinstance(counts, Mapping):
            return self._fold_in_word(counts, weighted, skip_unknown)
        rows = [self._fold_in_word(one, weighted, skip_unknown) for one in counts]
        return np.stack(rows) if rows else np.zeros((0, self.W.shape[1]), self.W.dtype)

    def _fold_in_word(self, counts: Mapping[str, Any], weighted: bool, skip_unknown: bool) -> np.ndarray:
        if not isinstance(counts, Mapping):
            raise ValueError(f"counts must map words to numbers, got {counts!r}")
        known = [word for word in counts if word in self or not skip_unknown]
        indices, values = self._indices(known), np.array([counts[word] for word in known], np.float64)
        margins = None
        if not weighted and self.margins is not None and "weighting" in self.record:
            margins = np.asarray(self.margins, np.float64)[indices]
        values = fold_in.checked_weights(known, values, margins, self.record.get("weighting", {}))
        return fold_in.fold_in(self.W, self._s, self.starts, indices, values)

    def reduce(self, num_topics: int | None = None, *, counts: Any = None) -> "Embedding":
        """Return an embedding of the same words with fewer columns: each is the sum of similar columns.

        The starts of a consensus find nearly the same topics. Their sums are what the starts agree on, and
        need a fraction of the memory and of the time for a query.

        Args:
          num_topics: the number of topics to keep; by default the topics that are shown.
          counts: the counts that the embedding was learned from. They are needed for the coherence of topics
            other than those that are shown.

        Returns:
          A new embedding. Its record has the old number of columns as "reduced_from".
        """
        num_columns = self.W.shape[1]
        num_topics = self.num_topics if num_topics is None else checks.whole("num_topics", num_topics, 1)
        if num_topics > num_columns:
            raise ValueError(f"num_topics must be at most {num_columns}, got {num_topics}")
        passages = None if counts is None else topic_levels.passages_of(counts, self.words)
        W, level = topic_levels.reduced(
            np.asarray(self.W), self.levels, num_topics, self.word_counts, passages
        )
        record = {**self.record, "reduced_from": num_columns}
        return replace(self, W=jnp.asarray(W), starts=(), levels=(level,), record=record)

    # --- Files --------------------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save as a folder with one safetensors file; an old model there is replaced at the end."""
        arrays = {name: getattr(self, name) for name in ("W", *_OPTIONAL)}
        tensors = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
        tensors |= topic_levels.to_tensors(self.levels)
        tensors |= {f"history.{name}": np.asarray(values) for name, values in self.history.items()}
        content = {"kind": "embedding", "words": list(self.words), "starts": list(self.starts)}
        storage.save(folder, tensors, {**content, "record": dict(self.record)})

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> "Embedding":
        """Load an embedding that `save` wrote.

        Raises:
          FileNotFoundError, ValueError: with the folder or file, and what is wrong with it.
        """
        tensors, content = storage.load(folder)
        try:
            validation.check_content(tensors, content)
            history = {name: tensors[name] for name in tensors if name.startswith("history.")}
            return Embedding(
                words=tuple(content["words"]),
                W=jnp.asarray(tensors["W"]),
                starts=tuple(content["starts"]),
                levels=topic_levels.from_tensors(tensors),
                history={name.removeprefix("history."): values for name, values in history.items()},
                record=content["record"],
                **{name: tensors.get(name) for name in _OPTIONAL},
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(folder)}: {error}") from error

    def export(
        self,
        path: str | os.PathLike[str],
        format: ExportFormat = "word2vec",  # noqa: A002, the usual name
        *,
        scaled: bool = False,
        topics: bool = False,
    ) -> None:
        """Write the words and vectors for other tools.

        Args:
          path: the file to write; a folder for "projector".
          format: "word2vec" or "word2vec-binary" for gensim's `KeyedVectors.load_word2vec_format` (the phrase
            "new york" becomes "new_york"), "numpy" for an .npz file with `words` and `vectors`, "projector"
            for the TSV files of the TensorFlow embedding projector.
          scaled: write W_ik / sqrt(s_k) instead of W_ik. The dot product of two such vectors is Shat_ij.
          topics: write P(topic | word) of the topics that are shown, instead of all columns of W.
        """
        W = self.topic_probabilities() if topics else self.W
        vectors = np.asarray(W / jnp.sqrt(lookup.topic_sizes(W))[None, :] if scaled else W)
        export.write(path, format, self.words, vectors, word_counts=self.word_counts)

    # --- Helpers ------------------------------------------------------------------------------------

    @cached_property
    def _word_index(self) -> WordIndex:
        return WordIndex(self.words)

    @cached_property
    def _s(self) -> Float[Array, " topics"]:
        return lookup.topic_sizes(self.W)

    @cached_property
    def _views(self) -> tuple[TopicView, ...]:
        return topic_view.make_views(self.words, self.W, self.levels, self.word_counts)

    def _view(self, subtopics: bool) -> TopicView:
        if subtopics and len(self.levels) < 2:
            raise ValueError(f"subtopics: the {self.num_topics} topics of this model have none")
        return self._views[1 if subtopics else 0]

    def _indices(self, words: Any) -> np.ndarray:
        """Return the indices of a word or of a list of words."""
        return np.array(self._word_index.indices_of([words] if isinstance(words, str) else words), np.int32)

    def _nearest(
        self, queries: np.ndarray, k: int, among: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> list[ResultList[WordProbability]]:
        found = results.nearest_indices(self.W, self._s, queries, k, among=among, rows=rows)
        return results.neighbors_as_words(self._views[0].words, found)

    def _rows(self, words: Any) -> np.ndarray:
        """Return the row of a word, the rows of several words, or the given row or rows after a check."""
        if not _are_rows(words):
            return self[words]
        rows = np.asarray(words, self.W.dtype)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.W.shape[1] or not np.isfinite(rows).all():
            raise ValueError(
                f"words: rows must be finite and have {self.W.shape[1]} columns, got shape {rows.shape}"
            )
        return rows

    def _single_row(self, word: Any) -> np.ndarray:
        row = self._rows(word)
        if row.ndim != 1:
            raise ValueError(f"word must be one word or one row, got {len(row)}")
        return row


def _are_rows(words: Any) -> bool:
    return isinstance(words, np.ndarray | Array) and words.dtype.kind == "f"

"""Answer to the names that gensim, scikit-learn and BERTopic use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from dcdjax.embedding.display import ResultList
from dcdjax.embedding.results import WordProbability
from dcdjax.util import checks

# Attributes of other libraries, and what to use here.
ELSEWHERE = {
    "wv": "the embedding itself answers: embedding.most_similar(word), embedding[word]",
    **dict.fromkeys(
        ("components_", "get_topics", "topic_word_"),
        "embedding.W, (words, topics), holds P(topic | word); embedding.topics(k) lists P(word | topic)",
    ),
    **dict.fromkeys(
        ("get_topic", "show_topic", "print_topic", "get_topic_terms"), "use embedding.topics(k)[number]"
    ),
    **dict.fromkeys(
        ("show_topics", "print_topics", "top_topics", "get_topic_info", "get_topic_freq", "topics_"),
        "use embedding.topics(k), which has the weight, coherence and words of each topic",
    ),
    **dict.fromkeys(("get_term_topics", "find_topics"), "use embedding.topics_of(word)"),
    **dict.fromkeys(("n_components", "n_topics", "nr_topics"), "use embedding.num_topics"),
    **dict.fromkeys(
        ("vocab", "vocabulary", "vocabulary_", "index2word", "get_feature_names_out", "id2word"),
        "use embedding.words",
    ),
    **dict.fromkeys(("syn0", "embedding_"), "use embedding.W"),
    **dict.fromkeys(("fit", "fit_transform", "train"), "dcdjax.fit(corpus) makes an embedding"),
    "get_vecattr": "use embedding.word_counts",
    "distance": "use embedding.similarity(a, b), a probability",
    "similar_by_key": "use embedding.similar_by_word(word)",
    **dict.fromkeys(
        ("save_word2vec_format", "save_facebook_model"), "use embedding.export(path, format), see its formats"
    ),
    **dict.fromkeys(("n_iter_", "reconstruction_err_", "loss_curve_"), "use embedding.history"),
    **dict.fromkeys(
        ("visualize_topics", "visualize_barchart", "visualize_hierarchy", "prepare"),
        "dcdjax.report.page(embedding) makes a page to explore it",
    ),
    "reduce_topics": "use embedding.reduce(num_topics)",
}


class GensimNames:
    """Give an embedding the names of gensim's `KeyedVectors`, and hints at what other libraries call so.

    Similarities are Shat, a probability, where gensim's are cosines. An unknown word is an error everywhere.
    """

    if TYPE_CHECKING:  # what an embedding has
        words: tuple[str, ...]
        W: Any
        num_topics: Any

        _word_index: Any
        _s: Any

        def _indices(self, words: Any) -> np.ndarray: ...
        def _nearest(
            self, queries: np.ndarray, k: int, among: Any = None, rows: Any = None
        ) -> list[ResultList[WordProbability]]: ...
        def neighbors(self, words: Any, k: int = 10) -> Any: ...  # noqa: D102
        def __getitem__(self, words: str | Sequence[str]) -> np.ndarray: ...
    else:
        # Type checkers do not see this, so that they find names that do not exist.
        def __getattr__(self, name: str) -> NoReturn:
            known = [one for one in dir(type(self)) if not one.startswith("_")]
            hint = f": {ELSEWHERE[name]}" if name in ELSEWHERE else checks.did_you_mean(name, known)
            raise AttributeError(f"an Embedding has no attribute {name!r}{hint}")

    @property
    def key_to_index(self) -> dict[str, int]:
        """Return the row index of each word."""
        return self._word_index.by_word

    @property
    def index_to_key(self) -> list[str]:
        """Return the words as a list."""
        return list(self.words)

    @property
    def vectors(self) -> np.ndarray:
        """Return W as a NumPy array, which is read-only."""
        return np.asarray(self.W)

    @property
    def vector_size(self) -> int:
        """Return the number of columns of W."""
        return self.W.shape[1]

    def get_vector(self, word: str, norm: bool = False) -> np.ndarray:
        """Return P(topic | word), the row of a word, or the row scaled to length one."""
        row = self[word]
        return row / np.linalg.norm(row) if norm else row

    def most_similar(
        self, positive: str | Sequence[str], negative: str | Sequence[str] = (), topn: int = 10
    ) -> ResultList[WordProbability]:
        """Find neighbors of the mean distribution of the words in `positive` minus those in `negative`."""
        plus, minus = self._indices(positive), self._indices(negative)
        if not plus.size:
            raise ValueError("positive must have at least one word")
        query, rows = np.concatenate([plus, minus]), None
        if minus.size:
            rows = np.asarray(self.W[plus].sum(axis=0) - self.W[minus].sum(axis=0))[None] / query.size
        return self._nearest(query[None, :], checks.whole("topn", topn, 1), rows=rows)[0]

    def similar_by_word(self, word: str, topn: int = 10) -> ResultList[WordProbability]:
        """Find the neighbors of one word."""
        return self.most_similar([word], topn=topn)

    def similar_by_vector(self, vector: np.ndarray, topn: int = 10) -> ResultList[WordProbability]:
        """Find the neighbors of a row P(topic | query), such as `fold_in` returns."""
        if np.ndim(vector) != 1:
            raise ValueError(f"vector must be one row, got shape {np.shape(vector)}")
        return self.neighbors(np.asarray(vector, float), checks.whole("topn", topn, 1))

    def n_similarity(self, ws1: Sequence[str], ws2: Sequence[str]) -> float:
        """Return the mean Shat_ij of all words i in the first list and j in the second."""
        first, second = (
            self._word_index.indices_of(words, name) for words, name in ((ws1, "ws1"), (ws2, "ws2"))
        )
        if not first or not second:
            raise ValueError("ws1 and ws2 must have at least one word each")
        means = [self.vectors[rows].mean(axis=0) for rows in (first, second)]
        return float((means[0] * means[1] / np.asarray(self._s)).sum())

    def doesnt_match(self, words: Sequence[str]) -> str:
        """Return the word that fits the others least: that with the smallest mean Shat to the others.

        Args:
          words: at least three. Of two words that fit equally badly, the first is returned.

        Example:
          >>> import jax.numpy as jnp
          >>> from dcdjax import Embedding
          >>> W = jnp.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
          >>> Embedding(words=("tea", "cup", "ship"), W=W).doesnt_match(["tea", "ship", "cup"])
          'ship'
        """
        rows = self._word_index.indices_of(words)
        if len(rows) < 3:
            raise ValueError(f"words must be at least three words, got {len(rows)}")
        W = self.vectors[rows]
        fit = (W / np.asarray(self._s)) @ W.T
        np.fill_diagonal(fit, 0)
        return words[int(fit.sum(axis=1).argmin())]

"""Learn word vectors from a corpus by dcdjax and by other methods, each with its usual settings."""

import gzip
import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import dcdjax
from dcdjax.evaluation.scores import Vectors
from dcdjax.similarity import weighting

DATA = Path(os.environ.get("DCDJAX_DATA") or Path(__file__).parents[3] / "shared" / "data")
# The words of the corpora stand between blanks.
AS_IT_IS: Any = {"tokens": "blanks", "min_count": 1}
CORPORA = {
    "WikiText-2": DATA / "wikitext-2" / "train.txt.gz",
    "Wikipedia 100 MB": DATA / "wikipedia" / "enwiki-2015-100m.txt.gz",
    "text8, first 6.9 MB": DATA / "text8" / "text8-first-6.9mb.txt.gz",
}
# What every method has in common.
DIMENSION, WINDOW, MAX_WORDS, SEED = 200, 8, 20_000, 0
# As long as gensim's own reader makes a sentence of a text without lines.
_SENTENCE = 10_000


class Learned(NamedTuple):
    """Hold the vectors of a method, its topics if it has any, and notes."""

    vectors: Any
    topics: np.ndarray | None = None  # (topics, words), nonnegative
    details: dict[str, Any] | None = None


def counted(corpus: str, **options: Any) -> dcdjax.cooccurrence.Counts:
    return dcdjax.count(CORPORA[corpus], window=WINDOW, max_words=MAX_WORDS, **AS_IT_IS, **options)


# --- dcdjax -----------------------------------------------------------------------------------------


def dcd(corpus: str, reduce_to: int | None = None, **options: Any) -> Learned:
    embedding = dcdjax.fit(
        CORPORA[corpus], max_words=MAX_WORDS, window=WINDOW, key=SEED, progress=False, **AS_IT_IS, **options
    )
    record = embedding.record
    details = {name: record[name] for name in ("objective", "num_steps", "status")}
    if reduce_to is not None:
        embedding = embedding.reduce(reduce_to, key=SEED)
    W = np.asarray(embedding.W)
    return Learned(embedding, (W / W.sum(axis=0)).T, {**details, "topics": W.shape[1]})


# --- Peers ------------------------------------------------------------------------------------------


def word2vec(corpus: str, **options: Any) -> Learned:
    """Run gensim's word2vec on two threads. Words outside of the vocabulary drop out before windows."""
    gensim = importlib.import_module("gensim.models")
    words = counted(corpus).vocabulary
    sentences = list(_sentences(CORPORA[corpus]))
    shared = {"vector_size": DIMENSION, "window": WINDOW, "seed": SEED}
    model = gensim.Word2Vec(min_count=1, workers=2, **shared, **options)
    model.build_vocab_from_freq(dict(zip(words.words, words.counts.tolist(), strict=True)))
    model.train(sentences, total_examples=len(sentences), total_words=words.num_tokens, epochs=model.epochs)
    return Learned(model.wv)


def ppmi_svd(
    corpus: str, *, power: float, contexts: bool = False, distance_weighting: str = "linear"
) -> Learned:
    """Return U values^power of PPMI with a dynamic window, context exponent 0.75 and no shift.

    Of a symmetric S, that of dcdjax but for the weight of frequent words; or with the exponent on contexts
    alone, as Levy, Goldberg and Dagan (2015) have it.
    """
    extmath = importlib.import_module("sklearn.utils.extmath")
    counts = counted(corpus, distance_weighting=distance_weighting)
    if contexts:
        margins = counts.matrix.sum(axis=1)
        logs = np.log(np.maximum(margins, 1e-300))
        total = np.logaddexp.reduce(0.75 * logs)
        S = weighting.map_entries(
            counts.matrix, lambda values, i, j: np.log(values) - logs[i] - 0.75 * logs[j] + total
        )
    else:
        S = weighting.ppmi(counts.matrix)
    # With fewer iterations it is faster and worse.
    U, values, _ = extmath.randomized_svd(S.astype(np.float32), DIMENSION, n_iter=7, random_state=SEED)
    return Learned(Vectors(counts.words, U * values**power, "cosine"))


def nmf(corpus: str, *, max_iter: int) -> Learned:
    """Run scikit-learn's NMF on plain PPMI: the S of dcdjax without the weight of frequent words."""
    decomposition = importlib.import_module("sklearn.decomposition")
    S = dcdjax.similarity.from_counts(counted(corpus, distance_weighting="linear"), drop_isolated=True)
    model = decomposition.NMF(
        DIMENSION, solver="mu", beta_loss="kullback-leibler", init="nndsvda", max_iter=max_iter,
        random_state=SEED,
    )  # fmt: skip
    W = model.fit_transform(scipy.sparse.csr_matrix(S.matrix.astype(np.float32)))
    details = {"iterations": int(model.n_iter_), "divergence": float(model.reconstruction_err_**2 / 2)}
    return Learned(Vectors(S.words or (), W, "cosine"), model.components_, details)


def _sentences(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            tokens = line.split()
            yield from (tokens[n : n + _SENTENCE] for n in range(0, len(tokens), _SENTENCE))


# The paper's word2vec is the demo script of the original: CBOW, rate 0.05, 25 negatives, 15 epochs.
_CBOW = {"sg": 0, "negative": 25, "epochs": 15, "sample": 1e-4, "alpha": 0.05}
_SKIP_GRAM = {"sg": 1, "negative": 5, "epochs": 5, "sample": 1e-4, "alpha": 0.025}

METHODS: dict[str, Callable[[str], Learned]] = {
    "dcdjax": dcd,
    "dcdjax, not smoothed": partial(dcd, smoothing=0.0),
    "dcdjax, reduced to 200 topics": partial(dcd, reduce_to=DIMENSION),
    "dcdjax, four starts of 200 topics": partial(dcd, num_topics=DIMENSION),
    "dcdjax, one start of 200 topics": partial(dcd, num_topics=DIMENSION, restarts=1),
    "dcdjax, the paper's setting": partial(dcd, preset="paper"),
    "word2vec CBOW": partial(word2vec, **_CBOW),
    "word2vec skip-gram, 5 epochs": partial(word2vec, **_SKIP_GRAM),
    **{f"PPMI-SVD, power {p:g}": partial(ppmi_svd, power=p) for p in (0.0, 0.5, 1.0)},
    "PPMI-SVD, power 0.5, contexts": partial(ppmi_svd, power=0.5, contexts=True),
    "PPMI-SVD, power 0.5, harmonic": partial(ppmi_svd, power=0.5, distance_weighting="harmonic"),
    "NMF (KL)": partial(nmf, max_iter=30),
}

"""Make S from a corpus, from counts or from a matrix, and record where it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse

from dcdjax import similarity
from dcdjax.fitting import presets, provenance
from dcdjax.fitting.options import Options
from dcdjax.similarity import Similarity
from dcdjax.text import cooccurrence
from dcdjax.text.blocks import CorpusError
from dcdjax.text.cooccurrence import Counts
from dcdjax.util.progress import Progress


@dataclass(frozen=True, eq=False)
class Inputs:
    """S and its origin.

    Attributes:
      S: the similarity matrix to solve for.
      words: the words of its rows.
      counts: the counts that S was made from, or None.
      record: corpus, settings and hash, as JSON values.
    """

    S: Similarity
    words: tuple[str, ...]
    counts: Counts | None
    record: dict[str, Any]


def is_matrix(source: Any) -> bool:
    """Return whether the source is S itself, not something to be counted."""
    if isinstance(source, Similarity) or scipy.sparse.issparse(source):
        return True
    if isinstance(source, np.ndarray | jax.Array):
        return source.ndim == 2 and source.dtype.kind in "biuf"
    is_pair = isinstance(source, tuple | list) and len(source) == 2
    return is_pair and all(
        isinstance(part, np.ndarray | jax.Array) and part.dtype.kind in "iuf" for part in source
    )


def read_matrix(source: Any, words: Sequence[str] | None, options: Options) -> Inputs:
    """Take S as it is; refuse options of counting and weighting, which would have no effect."""
    _refuse({**options.counting, **options.given_weights}, "S itself")
    if isinstance(source, Similarity) and words is not None:
        raise ValueError("words: a Similarity has its own words")
    S = source if isinstance(source, Similarity) else similarity.from_matrix(source, words=words)
    names = S.words or tuple(map(str, S.kept.tolist()))
    record = {"corpus": {"name": None, "sha256": None}, "settings": {}}
    return Inputs(S, names, None, {**record, "S": provenance.of_matrix(S.matrix, names)})


def read_corpus(source: Any, options: Options, tell: Progress) -> Inputs:
    """Count a corpus, unless the source is counts, and weight the counts."""
    if isinstance(source, Counts):
        _refuse(options.counting, "counts")
        counts, corpus = source, {"name": None, "sha256": None}
    else:
        corpus = provenance.of_corpus(source)
        counting = {**presets.counting(options.preset), **options.counting}
        counts = cooccurrence.count(source, **counting, progress=tell)
    _check_size(counts)
    num_pairs, weights = counts.matrix.nnz, options.weights
    tell("weighting", 0, num_pairs, "pairs")
    S = similarity.from_counts(counts, **weights, drop_isolated=True)
    tell("weighting", num_pairs, num_pairs, "pairs")
    assert S.words is not None
    record = {
        "corpus": {
            **corpus,
            "num_tokens": int(counts.vocabulary.num_tokens),
            "num_different": counts.vocabulary.num_different,
        },
        "S": provenance.of_matrix(S.matrix, S.words),
        "settings": {"counting": counts.settings},
        "weighting": {**weights, "log_sum": _log_sum(counts, weights["context_exponent"])},
    }
    return Inputs(S, S.words, counts, record)


def _check_size(counts: Counts) -> None:
    """Refuse counts without two words that stand near each other, and say what is missing."""
    words, vocabulary = counts.words, counts.vocabulary
    if len(words) > 1 and counts.matrix.nnz:
        return
    known = f"{len(words)} words" if len(words) > 1 else "one word, " + "".join(map(repr, words))
    left_out = (vocabulary.num_different or 0) - len(words)
    reason = f" (min_count={counts.settings.get('min_count')}, max_words and drop leave out {left_out} more)"
    raise CorpusError(
        "the text is too small: it needs different words that stand near each other, but has "
        f"{known}{reason if left_out > 0 else ''}"
    )


def _refuse(options: Mapping[str, Any], source: str) -> None:
    if options:
        raise ValueError(f"{min(options)} is an option of making S from a corpus, but the source is {source}")


def _log_sum(counts: Counts, context_exponent: float) -> float:
    margins = counts.matrix.sum(axis=1)
    return float(np.logaddexp.reduce(context_exponent * np.log(margins[margins > 0])))

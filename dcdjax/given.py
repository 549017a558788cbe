"""A corpus, counts or a matrix enters; S leaves by the shortest way, with a record of where it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse

from dcdjax import cooccurrence, presets, provenance, similarity, weighting
from dcdjax.cooccurrence import Counts
from dcdjax.parallel import Progress
from dcdjax.similarity import Similarity


@dataclass(frozen=True, eq=False)
class Given:
    """S, and what is known of where it comes from.

    Attributes:
      S: as it is solved for.
      words: of its rows.
      counts: that it was made of, if it was.
      record: corpus, settings and hash, as JSON has it.
    """

    S: Similarity
    words: tuple[str, ...]
    counts: Counts | None
    record: dict[str, Any]


def is_matrix(source: Any) -> bool:
    """Whether this is S itself, rather than something to be counted."""
    if isinstance(source, Similarity) or scipy.sparse.issparse(source):
        return True
    if isinstance(source, np.ndarray | jax.Array):
        return source.ndim == 2 and source.dtype.kind in "biuf"
    pair = isinstance(source, tuple | list) and len(source) == 2
    return pair and all(
        isinstance(part, np.ndarray | jax.Array) and part.dtype.kind in "iuf" for part in source
    )


def from_matrix(source: Any, words: Sequence[str] | None, options: Mapping[str, Any]) -> Given:
    """S as it is given.

    Args:
      source: of which `is_matrix` holds.
      words: of its rows, unless it brings them.
      options: of counting and weighting, which are refused: they would have no effect.
    """
    _refuse(options, "S itself")
    if isinstance(source, Similarity) and words is not None:
        raise ValueError("words: a Similarity brings its own")
    S = source if isinstance(source, Similarity) else similarity.from_matrix(source, words=words)
    names = S.words or tuple(map(str, S.kept.tolist()))
    record = {"corpus": {"name": None, "sha256": None}, "settings": {}}
    return Given(S, names, None, {**record, "S": provenance.of_matrix(S.matrix, names)})


def from_corpus(
    source: Any,
    counting: Mapping[str, Any],
    usual: Mapping[str, Any],
    weights: Mapping[str, Any],
    tell: Progress,
) -> Given:
    """S from counts, which are counted if the source is not that already.

    Args:
      source: a corpus or counts.
      counting: options of `count` that were asked for, for a corpus only.
      usual: those that hold unless others were.
      weights: options of `similarity.from_counts`, checked by `checked_weights`.
      tell: how far it has come.
    """
    if isinstance(source, Counts):
        _refuse(counting, "counts")
        counts, corpus = source, {"name": None, "sha256": None}
    else:
        corpus = provenance.of_corpus(source)
        counts = cooccurrence.count(source, **{**usual, **counting}, progress=tell)
    num_pairs = counts.matrix.nnz
    tell("weighting", 0, num_pairs, "pairs")
    S = similarity.from_counts(counts, **weights, drop_isolated=True)
    tell("weighting", num_pairs, num_pairs, "pairs")
    assert S.words is not None
    record = {
        "corpus": {**corpus, "num_tokens": int(counts.vocabulary.num_tokens)},
        "S": provenance.of_matrix(S.matrix, S.words),
        "settings": {"counting": counts.settings},
        "weighting": {**weights, "log_sum": _log_sum(counts, weights["context_exponent"])},
    }
    return Given(S, S.words, counts, record)


def checked_weights(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of weighting, of which only PPMI has any; refused before anything is read."""
    if options and name != "ppmi":
        raise ValueError(f"{min(options)} is an option of the weighting 'ppmi', not of {name!r}")
    weights = {**presets.ppmi(), **options}
    weighting.check(name, **weights)
    return {"weighting": name, **{option: float(value) for option, value in weights.items()}}


def _refuse(options: Mapping[str, Any], given: str) -> None:
    if options:
        raise ValueError(f"{min(options)} is an option of making S from a corpus, but the source is {given}")


def _log_sum(counts: Counts, context_exponent: float) -> float:
    margins = counts.matrix.sum(axis=1)
    return float(np.logaddexp.reduce(context_exponent * np.log(margins[margins > 0])))

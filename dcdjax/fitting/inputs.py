"""Make S from a corpus, from counts or from a matrix, and record where it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import scipy.sparse

from dcdjax import similarity
from dcdjax.counting import cooccurrence
from dcdjax.counting.cooccurrence import Counts
from dcdjax.fitting import presets, provenance
from dcdjax.fitting.options import Options
from dcdjax.similarity import Similarity
from dcdjax.text.blocks import CorpusError
from dcdjax.util.progress import Progress
from dcdjax.util.warn import warn


class PresetWarning(UserWarning):
    """Warn that counts were made with other options than those of the preset."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Hold S, its words, and the record of where it comes from.

    Attributes:
      S: the similarity matrix to solve for.
      words: the words of its rows.
      record: corpus, settings and hash, as JSON values.
    """

    S: Similarity
    words: tuple[str, ...]
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


def read(source: Any, words: Sequence[str] | None, options: Options, tell: Progress) -> Inputs:
    """Make S from the source: count a corpus, weight counts, and take S as it is.

    Each way from the same corpus, with the same options, leads to the same S.

    Raises:
      ValueError: if an option belongs to a step that is already done, such as `window` if the source is
        counts, or `words` if it is a `Similarity`.
    """
    corpus = {"name": None, "sha256": None}
    if is_matrix(source):
        _refuse({**options.counting, **options.given_weights}, "S itself")
        if isinstance(source, Similarity) and words is not None:
            raise ValueError("words: a Similarity has its own words")
        S = source if isinstance(source, Similarity) else similarity.from_matrix(source, words=words)
    else:
        if isinstance(source, Counts):
            _refuse(options.counting, "counts")
            counts = source
        else:
            corpus = provenance.of_corpus(source, tell)
            counting = {**presets.counting(options.preset), **options.counting}
            counts = cooccurrence.count(source, **counting, progress=tell)
        _check_size(counts)
        num_pairs = counts.matrix.nnz
        tell("weighting", 0, num_pairs, "pairs")
        S = similarity.from_counts(counts, **options.weights, drop_isolated=True)
    names = S.words or tuple(map(str, S.kept.tolist()))
    record: dict[str, Any] = {"corpus": corpus, "S": provenance.of_matrix(S.matrix, names), "settings": {}}
    if S.origin is not None:
        if is_matrix(source) or isinstance(source, Counts):
            _warn_of_other_counting(options.preset, S.origin.counting)
        record["corpus"] = {
            **corpus,
            "num_tokens": S.origin.num_tokens,
            "num_different": S.origin.num_different,
        }
        record["settings"] = {"counting": dict(S.origin.counting)}
        record["weighting"] = dict(S.origin.weighting)
        if S.origin.phrases:
            listed = [list(phrase) for phrase in S.origin.phrases]
            record["phrases"] = {"num_phrases": len(listed), "phrase_count_score": listed}
    tell("weighting", S.matrix.nnz, S.matrix.nnz, "pairs")
    return Inputs(S, names, record)


def _warn_of_other_counting(preset: str, counting: Mapping[str, Any]) -> None:
    """Warn if a preset was asked for whose counting differs from that of the counts at hand."""
    if preset == "default":
        return
    # What a token is can be seen in text only, not in lists of tokens.
    expected = {name: value for name, value in presets.counting(preset).items() if name != "tokens"}
    if any(counting.get(name) != value for name, value in expected.items()):
        shown = ", ".join(f"{name}={counting.get(name)!r}" for name in expected)
        wanted = ", ".join(f"{name}={value!r}" for name, value in expected.items())
        warn(f"preset={preset!r} counts with {wanted}, but these counts have {shown}", PresetWarning)


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

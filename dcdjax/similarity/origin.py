"""Keep with S what is known of the counts that it was made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from dcdjax.util import matrix_files


@dataclass(frozen=True, eq=False)
class Origin:
    """Hold what a fit needs to know of the counts behind S, for the words of S only.

    Attributes:
      word_counts: how often each word occurs in the corpus.
      margins: for each word, the sum of its row of counts.
      num_tokens: the number of tokens of the corpus.
      num_different: the number of different words of the corpus, if known.
      passages: which words stand in the same passages, see `Counts.passages`; None if it is not known.
      counting: the options of `count`.
      weighting: the name of the weighting, the options of PPMI, and "log_sum", the log of
        sum_j margin_j^alpha.
      phrases: the phrases that were joined, with count and score, see `Counts.phrases`.
    """

    word_counts: np.ndarray
    margins: np.ndarray
    num_tokens: int
    num_different: int | None = None
    passages: scipy.sparse.csr_array | None = None
    counting: Mapping[str, Any] = field(default_factory=dict)
    weighting: Mapping[str, Any] = field(default_factory=dict)
    phrases: tuple[tuple[str, int, float], ...] = ()

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays to save beside S."""
        passages = matrix_files.passages_to_arrays(self.passages)
        return {"word_counts": self.word_counts, "margins": self.margins, **passages}

    def to_settings(self) -> dict[str, Any]:
        """Return what is no array, as values that JSON can hold."""
        own = {name: dict(getattr(self, name)) for name in ("counting", "weighting")}
        phrases = [list(phrase) for phrase in self.phrases]
        return {**own, "num_tokens": self.num_tokens, "num_different": self.num_different, "phrases": phrases}


def from_saved(
    arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any], num_words: int
) -> Origin | None:
    """Return the origin that was saved beside S, or None if there was none.

    Raises:
      ValueError: if a part of it is missing or does not fit.
    """
    if "word_counts" not in arrays:
        return None
    word_counts, margins = arrays["word_counts"], arrays.get("margins")
    if margins is None or margins.shape != (num_words,) or margins.dtype != np.float64:
        raise ValueError(f"array 'margins' must have {num_words} entries of float64")
    if word_counts.shape != (num_words,) or word_counts.dtype != np.int64:
        raise ValueError(f"array 'word_counts' must have {num_words} entries of int64")
    if not (np.isfinite(margins).all() and (margins > 0).all() and (word_counts > 0).all()):
        raise ValueError("arrays 'margins' and 'word_counts' must be positive")
    return Origin(
        word_counts=word_counts,
        margins=margins,
        num_tokens=int(settings["num_tokens"]),
        num_different=settings.get("num_different"),
        passages=matrix_files.passages_from_arrays(arrays, num_words),
        counting=dict(settings["counting"]),
        weighting=dict(settings["weighting"]),
        phrases=tuple(
            (str(phrase), int(count), float(score)) for phrase, count, score in settings["phrases"]
        ),
    )

"""Turn any model of words into a table of vectors, and say how vectors are compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from dcdjax.util import checks


@dataclass(frozen=True, eq=False, repr=False)
class Vectors:
    """Hold a vector for each word, and how two vectors are compared.

    Attributes:
      words: the words, all different.
      vectors: one row for each word, finite, float32 or float64.
      scores: "cosine" or "dot". The cosine with a row of zeros is 0.
    """

    words: tuple[str, ...]
    vectors: np.ndarray
    scores: Literal["cosine", "dot"]

    def __post_init__(self) -> None:
        checks.choice("scores", self.scores, ("cosine", "dot"))
        vectors = _real_matrix("vectors", self.vectors)
        words = checks.checked_words(self.words, len(vectors))
        finite = np.isfinite(vectors).all(axis=1)
        if words and not finite.all():
            n = int(finite.argmin())
            raise ValueError(
                f"vectors: row {n} ({words[n]!r}) is not finite ({int((~finite).sum())} in total)"
            )
        object.__setattr__(self, "words", words)
        object.__setattr__(self, "vectors", vectors)

    def __repr__(self) -> str:
        num_words, size = self.vectors.shape
        return f"Vectors({num_words} words, {size} dimensions, compared by {self.scores})"


def as_vectors(model: Any) -> Vectors:
    """Return the word vectors of a model as a table.

    Args:
      model: a `Vectors`; an embedding with `words` and `W`, compared by Shat; gensim's `KeyedVectors` or
        anything with `index_to_key` and `vectors`; a pair (words, matrix); or a mapping of words to vectors.
        The last three are compared by cosine.

    Returns:
      The table. It shares the memory of the model if possible.

    Raises:
      TypeError: if the model has another form.
      ValueError: with the first word or row that is wrong.

    Example:
      >>> as_vectors({"tea": [1, 0], "cup": [3, 4]})
      Vectors(2 words, 2 dimensions, compared by cosine)
    """
    if isinstance(model, Vectors):
        return model
    scores: Literal["cosine", "dot"] = "cosine"
    if hasattr(model, "words") and hasattr(model, "W"):
        words, vectors, scores = model.words, _square_root(_real_matrix("W", model.W)), "dot"
    elif hasattr(model, "index_to_key") and hasattr(model, "vectors"):
        words, vectors = model.index_to_key, model.vectors
    elif isinstance(model, Mapping):
        shapes = {word: np.shape(vector) for word, vector in model.items()}
        first = next(iter(shapes), None)
        for word, shape in shapes.items():
            if len(shape) != 1 or shape != shapes[first]:
                raise ValueError(f"model: {word!r} has shape {shape}, the first, {first!r}, {shapes[first]}")
        words, vectors = model.keys(), list(model.values())
    elif isinstance(model, tuple | list) and len(model) == 2:
        words, vectors = model
    else:
        raise TypeError(
            "model must be a Vectors, an embedding (words, W), gensim's KeyedVectors, a pair (words, matrix) "
            f"or a mapping of words to vectors, got {type(model).__name__}"
        )
    # A string stays a string, which is refused. As a tuple it would pass for a list of letters.
    words = cast(Any, words if isinstance(words, str) else tuple(words))
    return Vectors(words, _real_matrix("vectors", vectors), scores)


def _square_root(W: np.ndarray) -> np.ndarray:
    """Return W_ik / sqrt(s_k), whose rows have Shat as dot products. An empty topic adds nothing."""
    if W.min(initial=0) < 0:
        i, k = np.argwhere(W < 0)[0]
        raise ValueError(f"W[{i}, {k}] = {W[i, k]} is negative")
    s = W.sum(axis=0, dtype=np.float64)
    s[(s == 0) | ~np.isfinite(s)] = 1  # values that are not finite are refused later, with their row
    return W * (1 / np.sqrt(s)).astype(W.dtype)


def _real_matrix(name: str, values: Any) -> np.ndarray:
    """Convert to float32 if that is exact, otherwise to float64."""
    try:
        array = np.asarray(values)
        dtype = np.result_type(array.dtype, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix of real numbers: {error}") from None
    if dtype.kind != "f" or array.ndim != 2:
        raise ValueError(f"{name} must be a matrix of real numbers, got {array.dtype} of shape {array.shape}")
    return array.astype(np.float32 if dtype == np.float32 else np.float64, copy=False)

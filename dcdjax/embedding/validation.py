"""Check the parts of an embedding, and what a model on disk says they are."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dcdjax.queries import fold_in


def check_parts(
    num_words: int, *, word_counts: np.ndarray | None, margins: np.ndarray | None, record: Any
) -> None:
    """Refuse arrays that do not fit the words, and a record of which a query could make no use.

    Raises:
      ValueError: naming the part.
    """
    for name, value in (("word_counts", word_counts), ("margins", margins)):
        if value is None:
            continue
        array = np.asarray(value)
        if array.shape != (num_words,):
            raise ValueError(f"{name} must have {num_words} entries, got shape {array.shape}")
        if array.dtype.kind not in "iuf":
            raise ValueError(f"{name} must be real numbers, got {array.dtype}")
        if not (np.isfinite(array).all() and array.min() >= 0):
            raise ValueError(f"{name} must be finite and not negative")
        if name == "margins" and not array.all():  # a word without counts has no row of W
            raise ValueError(f"margins must be positive, that of word {int(array.argmin())} is 0")
    if not isinstance(record, Mapping):
        raise ValueError(f"record must be a mapping, got {type(record).__name__}")
    if margins is not None and "weighting" in record:
        fold_in.check_weighting(record["weighting"])


def check_content(tensors: Mapping[str, np.ndarray], content: Mapping[str, Any]) -> None:
    """Refuse a model on disk that is no embedding, or lacks a part of it.

    Raises:
      ValueError: naming the part.
    """
    if content.get("kind") != "embedding":
        raise ValueError(f"the kind of the model is {content.get('kind')!r}, not 'embedding'")
    for name in ("words", "starts", "record", "W"):
        if name not in (tensors if name == "W" else content):
            raise ValueError(f"it has no {name}")
    for name, kind in (("words", str), ("starts", int)):
        if not isinstance(content[name], list) or {*map(type, content[name])} - {kind}:
            raise ValueError(f"its {name} must be a list of {kind.__name__}")

"""Measure how well word vectors agree with human judgments."""

from dcdjax.evaluation.judgments import read_analogies, read_categories, read_pairs
from dcdjax.evaluation.scores import (
    AnalogyResult,
    CategorizationResult,
    PairResult,
    analogies,
    categorization,
    word_pairs,
)
from dcdjax.evaluation.word_tables import Vectors, as_vectors

__all__ = [
    "AnalogyResult",
    "CategorizationResult",
    "PairResult",
    "Vectors",
    "analogies",
    "as_vectors",
    "categorization",
    "read_analogies",
    "read_categories",
    "read_pairs",
    "word_pairs",
]

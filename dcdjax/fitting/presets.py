"""Hold every default of `fit`: one table for each preset.

The "default" preset was chosen by word pairs from dictionaries (experiments/quality). The "paper" preset has
the settings of the paper.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

from dcdjax.util import checks

Preset = Literal["default", "paper"]

# The numbers of topics of a consensus, and the number of starts in all.
_NUM_TOPICS, _NUM_STARTS = (200, 500), 4
# The fewest words per topic, on average, if the user does not give a number of topics.
_WORDS_PER_TOPIC = 10

_SETTINGS = {
    "default": {
        "num_topics": None,
        "weighting": "ppmi",
        "start": "spectral",
        "restarts": None,
        "step": "exact",
        # About a dozen steps. A closer fit also fits the noise of the text, and neighbors get worse.
        "over_relaxation": 1.0,
        "tol": 3e-2,
        "max_steps": 200,
        "smoothing": 20.0,
    },
    "paper": {
        "num_topics": 200,
        "weighting": "counts",
        "start": "random",
        "restarts": 1,
        "step": "relaxed",
        "over_relaxation": 1.0,
        "tol": 1e-3,
        "max_steps": 500,
        "smoothing": 0.0,
    },
}
# These replace the defaults if the source is S. The groups of a graph need more steps, with over-relaxation.
_MATRIX_SETTINGS = {"restarts": 1, "over_relaxation": 1.9, "tol": 1e-3, "max_steps": 500, "smoothing": 0.0}
_COUNTING = {
    "default": MappingProxyType({"window": 8, "distance_weighting": "harmonic"}),
    "paper": MappingProxyType(
        {"window": 8, "distance_weighting": "flat", "tokens": "blanks", "lowercase": False, "min_count": 1}
    ),
}
_PPMI = MappingProxyType({"context_exponent": 0.75, "shift": 0.0, "frequency_exponent": 0.15})


def settings(preset: str, chosen: Mapping[str, Any], *, source_is_matrix: bool) -> dict[str, Any]:
    """Return the settings of a preset, replaced by those of `chosen` that are not None."""
    checks.choice("preset", preset, get_args(Preset))
    matrix = _MATRIX_SETTINGS if source_is_matrix and preset == "default" else {}
    given = {name: value for name, value in chosen.items() if value is not None}
    return {**_SETTINGS[preset], **matrix, **given}


def counting(preset: str) -> Mapping[str, Any]:
    """Return the options of `count` that a preset uses."""
    return _COUNTING[preset]


def ppmi() -> Mapping[str, float]:
    """Return the default options of PPMI."""
    return _PPMI


def num_topics(num_words: int, several: bool = True) -> tuple[int, ...]:
    """Return the default numbers of topics for a vocabulary, or only the first of them.

    Example:
      >>> num_topics(20_000), num_topics(3000), num_topics(12), num_topics(20_000, several=False)
      ((200, 500), (200, 300), (2,), (200,))
    """
    most = max(min(2, num_words), num_words // _WORDS_PER_TOPIC)
    return tuple(sorted({min(number, most) for number in _NUM_TOPICS}))[: None if several else 1]


def restarts(num_resolutions: int) -> int:
    """Return the number of restarts for each number of topics, so that there are four starts in all."""
    return max(1, _NUM_STARTS // num_resolutions)

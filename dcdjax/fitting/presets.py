"""Hold every default of `fit`: one table for each preset.

The "default" preset was chosen by word pairs from dictionaries (experiments/quality). The "topics" preset was
chosen by labeled documents and by the coherence of topics (experiments/defaults). The "paper" preset has the
settings of the paper.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

from dcdjax.util import checks

Preset = Literal["default", "topics", "paper"]

# The numbers of topics of the starts, and how many topics and subtopics their consensus is shown as.
_NUM_TOPICS = {"default": (200, 500), "topics": (50,)}
_SHOWN_TOPICS = (50, 200)
# The number of starts in all, if there are several.
_NUM_STARTS = 4
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
# Topics of documents: few of them, from one start, so that each column of W is a topic.
_SETTINGS["topics"] = {**_SETTINGS["default"], "restarts": 1}
# These replace the defaults if S was not made from counts. The groups of a graph need more steps, with
# over-relaxation.
_MATRIX_SETTINGS = {"restarts": 1, "over_relaxation": 1.9, "tol": 1e-3, "max_steps": 500, "smoothing": 0.0}
_COUNTING = {
    "default": MappingProxyType({"window": 8, "distance_weighting": "harmonic"}),
    # As many words as a paragraph or a short article has: words of one text belong together.
    "topics": MappingProxyType({"window": 100, "distance_weighting": "flat"}),
    "paper": MappingProxyType(
        {"window": 8, "distance_weighting": "flat", "tokens": "blanks", "lowercase": False, "min_count": 1}
    ),
}
_PPMI = MappingProxyType({"context_exponent": 0.75, "shift": 0.0, "frequency_exponent": 0.15})


def settings(preset: str, chosen: Mapping[str, Any], *, counts_are_known: bool) -> dict[str, Any]:
    """Return the settings of a preset, replaced by those of `chosen` that are not None."""
    checks.choice("preset", preset, get_args(Preset))
    matrix = _MATRIX_SETTINGS if preset != "paper" and not counts_are_known else {}
    given = {name: value for name, value in chosen.items() if value is not None}
    return {**_SETTINGS[preset], **matrix, **given}


def counting(preset: str) -> Mapping[str, Any]:
    """Return the options of `count` that a preset uses."""
    return _COUNTING[preset]


def ppmi() -> Mapping[str, float]:
    """Return the default options of PPMI."""
    return _PPMI


def num_topics(num_words: int, preset: str = "default", several: bool = True) -> tuple[int, ...]:
    """Return the default numbers of topics for a vocabulary, or only the first of them.

    Example:
      >>> num_topics(20_000), num_topics(3000), num_topics(12), num_topics(20_000, several=False)
      ((200, 500), (200, 300), (2,), (200,))
      >>> num_topics(20_000, "topics")
      (50,)
    """
    most = max(min(2, num_words), num_words // _WORDS_PER_TOPIC)
    numbers = _NUM_TOPICS.get(preset, _NUM_TOPICS["default"])
    return tuple(sorted({min(number, most) for number in numbers}))[: None if several else 1]


def shown_topics(starts: Sequence[int], chosen: bool) -> tuple[int, int]:
    """Return how many topics, and how many subtopics, of a consensus are shown.

    Args:
      starts: the number of topics of each start.
      chosen: whether the user chose these numbers. If so, the result is the smallest and the largest of them.
        If not, it is at most 50 topics and 200 subtopics, so that they can be read.

    Example:
      >>> shown_topics([200, 200, 500, 500], chosen=False), shown_topics([20, 20, 40, 40], chosen=False)
      ((50, 200), (20, 40))
      >>> shown_topics([100, 500], chosen=True), shown_topics([30, 30], chosen=True)
      ((100, 500), (30, 30))
    """
    fewest, most = min(starts), max(starts)
    return (fewest, most) if chosen else (min(fewest, _SHOWN_TOPICS[0]), min(most, _SHOWN_TOPICS[1]))


def restarts(num_resolutions: int) -> int:
    """Return the number of restarts for each number of topics, so that there are four starts in all."""
    return max(1, _NUM_STARTS // num_resolutions)

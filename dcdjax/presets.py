"""A preset and what is asked for beside it enter; all settings of `fit` leave, each as asked or as usual.

The default was chosen by pairs of words from dictionaries, see experiments/quality; "paper" is the paper's.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

Preset = Literal["default", "paper"]

# Coarse and fine topics, and how many starts there are in all.
_RESOLUTIONS, _NUM_STARTS = (200, 500), 4
# A topic has so many words at least, on the average, where nobody says how many topics there are to be.
_WORDS_PER_TOPIC = 10

_DEFAULT = {
    "num_topics": None,
    "weighting": "ppmi",
    "start": "spectral",
    "restarts": None,
    "step": "exact",
    # About a dozen steps: a text is noise too, and what is fitted to it more closely has worse neighbors.
    "over_relaxation": 1.0,
    "tol": 3e-2,
    "max_steps": 200,
    # Of a word that occurs so often, half.
    "smoothing": 20.0,
}
_PAPER = {
    "num_topics": 200,
    "weighting": "counts",
    "start": "random",
    "restarts": 1,
    "step": "relaxed",
    "over_relaxation": 1.0,
    "tol": 1e-3,
    "max_steps": 500,
    "smoothing": 0.0,
}
_SETTINGS = {"default": _DEFAULT, "paper": _PAPER}
# Of S that is given. Between the groups of a graph there are plateaus to be crossed.
_OF_MATRIX = {"restarts": 1, "over_relaxation": 1.9, "tol": 1e-3, "max_steps": 500, "smoothing": 0.0}
_COUNTING = {
    "default": MappingProxyType({"window": 8, "distance_weighting": "harmonic"}),
    "paper": MappingProxyType({"window": 8, "distance_weighting": "flat"}),
}
_PPMI = MappingProxyType({"context_exponent": 0.75, "shift": 0.0, "frequency_exponent": 0.15})


def settings(preset: str, asked: Mapping[str, Any], *, of_matrix: bool) -> dict[str, Any]:
    """What was asked for, not being None, over what the preset has."""
    if preset not in get_args(Preset):
        raise ValueError(f"preset must be one of {get_args(Preset)}, got {preset!r}")
    usual = {**_SETTINGS[preset], **(_OF_MATRIX if of_matrix and preset == "default" else {})}
    return usual | {name: value for name, value in asked.items() if value is not None}


def counting(preset: str) -> Mapping[str, Any]:
    """How a corpus is counted, unless otherwise asked for."""
    return _COUNTING[preset]


def ppmi() -> Mapping[str, float]:
    """The options of PPMI, unless otherwise asked for."""
    return _PPMI


def resolutions(num_words: int, several: bool = True) -> tuple[int, ...]:
    """Numbers of topics that suit so many words, or one number.

    Example:
      >>> resolutions(20_000), resolutions(3000), resolutions(12), resolutions(20_000, several=False)
      ((200, 500), (200, 300), (2,), (200,))
    """
    most = max(min(2, num_words), num_words // _WORDS_PER_TOPIC)
    return tuple(sorted({min(number, most) for number in _RESOLUTIONS}))[: None if several else 1]


def restarts(num_resolutions: int) -> int:
    """Of each number of topics, such that there are four starts in all."""
    return max(1, _NUM_STARTS // num_resolutions)

"""Check the options of `fit` before it reads anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from dcdjax.fitting import presets
from dcdjax.similarity import weighting
from dcdjax.solvers import arguments
from dcdjax.util import checks

Combine = Literal["consensus", "best", "reduced"]
Start = Literal["spectral", "random"]


@dataclass(frozen=True)
class Options:
    """The checked options of one fit, with the defaults of its preset filled in.

    Attributes:
      preset: the name of the preset.
      num_topics: numbers of topics, "auto" if the passages of the corpus decide, or None if the number of
        words does.
      start: the kind of start.
      restarts: restarts for each number of topics, or None for the default.
      combine: how several starts become one embedding.
      smoothing: the pseudocount of smoothing.
      solver: step, max_steps, over_relaxation and tol.
      counting: options of `count` that the user gave.
      weights: all options of `similarity.from_counts`.
      given_weights: those of them that the user gave.
    """

    preset: presets.Preset
    num_topics: tuple[int, ...] | Literal["auto"] | None
    start: Start
    restarts: int | None
    combine: Combine
    smoothing: float
    solver: dict[str, Any]
    counting: dict[str, Any]
    weights: dict[str, Any]
    given_weights: dict[str, Any]


def check_options(
    preset: presets.Preset,
    chosen: Mapping[str, Any],
    ppmi: Mapping[str, Any],
    counting: Mapping[str, Any],
    *,
    combine: Combine,
    counts_are_known: bool,
) -> Options:
    """Check all options and fill in the defaults of the preset.

    Args:
      preset: the name of the preset.
      chosen: the settings that a preset has; None where the user gave nothing.
      ppmi: the options of PPMI; None where the user gave nothing.
      counting: the options of `count` that the user gave.
      combine: how several starts become one embedding.
      counts_are_known: whether S is made from counts, or was.

    Raises:
      ValueError, TypeError: naming the option.
    """
    settings = presets.settings(preset, chosen, counts_are_known=counts_are_known)
    num_topics, restarts = settings["num_topics"], settings["restarts"]
    max_steps = checks.whole("max_steps", settings["max_steps"], 1)
    restarts = None if restarts is None else checks.whole("restarts", restarts, 1)
    is_auto = isinstance(num_topics, str) and num_topics == "auto"
    if is_auto and not counts_are_known:
        raise ValueError("num_topics='auto' needs the passages of a corpus, but S was not made from counts")
    numbers: Any = num_topics if num_topics is None or is_auto else _check_num_topics(num_topics)
    checks.choice("combine", combine, get_args(Combine))
    if combine != "consensus" and isinstance(numbers, tuple) and len(numbers) > 1:
        raise ValueError(f"combine={combine!r} needs one number of topics, got {numbers}")
    checks.choice("start", settings["start"], get_args(Start))
    tol, smoothing = settings["tol"], settings["smoothing"]
    if not np.isfinite(tol):
        raise ValueError(f"tol must be finite, got {tol}")
    if not 0 <= smoothing < np.inf:
        raise ValueError(f"smoothing must be finite and not negative, got {smoothing}")
    if smoothing and not counts_are_known:
        raise ValueError("smoothing needs the word counts of a corpus, but S was not made from counts")
    solver = arguments.checked_options(settings["step"], tol, max_steps, settings["over_relaxation"])
    given_ppmi = {name: value for name, value in ppmi.items() if value is not None}
    given_weighting = {} if chosen["weighting"] is None else {"weighting": chosen["weighting"]}
    return Options(
        preset=preset,
        num_topics=numbers,
        start=settings["start"],
        restarts=restarts,
        combine=combine,
        smoothing=float(smoothing),
        solver={**solver, "tol": float(tol)},
        counting=_check_counting(counting),
        weights=_check_weights(settings["weighting"], given_ppmi),
        given_weights={**given_weighting, **given_ppmi},
    )


def check_dtype(dtype: Any) -> Any:
    """Return float32 or float64 as JAX is configured; refuse other dtypes."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, got {jnp.dtype(dtype).name}")
    return dtype


def _check_counting(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("subsample") is None and "seed" in options:
        raise TypeError("seed belongs to subsample, which is not given; the seed of the starts is key")
    return dict(options)


def _check_num_topics(num_topics: Any) -> tuple[int, ...]:
    if isinstance(num_topics, str):
        raise ValueError(f"num_topics must be whole numbers or 'auto', got {num_topics!r}")
    is_sequence = isinstance(num_topics, Sequence | np.ndarray)
    if not is_sequence or not np.ndim(num_topics):
        return (checks.whole("num_topics", num_topics, 1),)
    if not len(num_topics):
        raise ValueError("num_topics must be one or more numbers, got none")
    return tuple(checks.whole("num_topics", number, 1) for number in num_topics)


def _check_weights(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of weighting; only PPMI has any."""
    if given and name != "ppmi":
        raise ValueError(f"{min(given)} is an option of the weighting 'ppmi', not of {name!r}")
    options = {**presets.ppmi(), **given}
    weighting.check_options(name, **options)
    return {"weighting": name, **{option: float(value) for option, value in options.items()}}

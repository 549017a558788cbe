"""A corpus, counts or S enters; an Embedding leaves: the whole way in one call."""

import datetime
import difflib
import inspect
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from dcdjax import (
    cooccurrence,
    initialize,
    keeper,
    presets,
    processes,
    provenance,
    reduction,
    runs,
    sharding,
    smoothing,
    solver,
    spectrum,
    validation,
)
from dcdjax.checkpoint import Folder
from dcdjax.decomposition import on_simplex
from dcdjax.embedding import Embedding, coherence_of
from dcdjax.given import Given, checked_weights, from_corpus, from_matrix, is_matrix
from dcdjax.layout import Layout, for_starts
from dcdjax.parallel import Progress
from dcdjax.presets import Preset
from dcdjax.progress import as_progress
from dcdjax.solver import MESSAGES, Solution, SolverError, Status

Combine = Literal["consensus", "best", "reduced"]
Start = Literal["spectral", "random"]


class NotConvergedWarning(UserWarning):
    """The solver was stopped before W had converged; the embedding is what was learned until then."""


def fit(
    source: Any,
    *,
    num_topics: int | Sequence[int] | None = None,
    window: int | None = None,
    key: Any,
    preset: Preset = "default",
    words: Sequence[str] | None = None,
    weighting: str | None = None,
    context_exponent: float | None = None,
    shift: float | None = None,
    frequency_exponent: float | None = None,
    start: Start | None = None,
    restarts: int | None = None,
    combine: Combine = "consensus",
    smoothing: float | None = None,
    step: solver.Step | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    over_relaxation: float | None = None,
    dtype: DTypeLike = jnp.float32,
    devices: Sequence[Any] | Mesh | None = None,
    split: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    progress: Progress | bool = True,
    **counting: Any,
) -> Embedding:
    """Learns an embedding from a text, from counts or from a similarity matrix.

    Ctrl-C while it solves ends it early and keeps what was learned, with a warning. A second one gives it up.

    Args:
      source: a corpus, as `count` takes it; or what `count` returns; or S, as `similarity.from_matrix` takes
        or returns it.
      num_topics: r, of each start; or several numbers, for a consensus of starts of each: coarse and fine
        topics of the same words. If not given, (200, 500) for a consensus of a text, 200 otherwise; of few
        words fewer, a tenth of them.
      window: of a corpus: the largest distance at which two words are near each other; 8 if not given.
      key: from `jax.random.key`, or a whole number to make one of.
      preset: what holds for everything not given: "default", as told here; or "paper", the paper's setting to
        the letter: counts as they are, flat windows, its own step, one random start of 200 topics, nothing
        smoothed, tol 1e-3, at most 500 steps.
      words: of S, one for each row, where it does not bring them; otherwise they are called "0", "1", ...
      weighting: how counts become S, "ppmi" if not given: see `similarity.from_counts`.
      context_exponent: of PPMI, 0.75 if not given.
      shift: of PPMI, 0 if not given.
      frequency_exponent: of PPMI, 0.15 if not given.
      start: "spectral", from clusters of the words' spectral vectors; or "random": see `initialize`.
      restarts: how many starts, each from a key of its own, of each number of topics; if not given, such that
        there are four in all, for S one. Several devices solve several at once.
      combine: what several starts make: "consensus", whose Shat is the mean of theirs, with the topics of all
        of them; the "best", with the lowest objective; or the consensus "reduced" to as many topics as one of
        them has, see `Embedding.reduce`. A consensus is better for neighbors; its memory and the time of a
        question grow with the number of topics of all starts.
      smoothing: after solving, a word that occurs n times in the corpus takes the part a / (n + a) of its
        topics from its neighbors in S, see `dcdjax.smoothing`; a is 20 if not given, for S always 0.
      step: as in `solve`.
      tol: as in `solve`; if not given, 1e-3 for S, 0.03 for text: about a dozen steps, after which
        its neighbors become worse.
      max_steps: as in `solve`; if not given, 500 for S, 200 for text.
      over_relaxation: as in `solve`; if not given, 1.9 for S, 1 for text.
      dtype: float32, or float64 where JAX is configured for it.
      devices: to solve on, or a mesh of them; all if not given, of all processes: see `processes.join`. From
        the same start each number of them gives the same, to rounding. Where W is split, clusters of a
        spectral start in float32 may fall out differently on another number, as they do by another key.
      split: W by rows, and S with them, over all devices, for what does not fit on one of them; always so
        where devices are of several processes. See `layout.prepare`.
      checkpoint: a folder to save in while it solves. The same call with it goes on from there, on whatever
        devices; a call that would learn something else is refused. It may be deleted once all is done. Of
        several processes only the first one needs to see it.
      checkpoint_every: seconds between saves; 0 saves as often as it can. Each start that finishes is saved
        too, and all of them when interrupted.
      progress: True shows bars where somebody looks; False shows none; or what is to be told instead.
      **counting: further options of `count` for a corpus, such as max_words, lowercase, drop.

    Returns:
      The embedding. Topics are sorted by weight, those of each start by themselves.

    Raises:
      ValueError, TypeError: naming the argument, or what cannot be read.
      SolverError: if a value was not finite in all starts.
      CheckpointError: a ValueError, if the checkpoint is of another run, naming what differs, or in use.
      OSError: if the checkpoint cannot be written to, before anything is read.

    Example:
      >>> embedding = fit(["tea cup tea", "cup tea", "sail ship", "ship sail sea"], num_topics=2, key=0)
      >>> embedding.neighbors("tea", 1)[0].word
      'cup'
    """
    began = time.perf_counter()
    matrix_given = is_matrix(source)
    asked = {
        "num_topics": num_topics, "weighting": weighting, "start": start, "restarts": restarts, "step": step,
        "tol": tol, "max_steps": max_steps, "over_relaxation": over_relaxation, "smoothing": smoothing,
    }  # fmt: skip
    chosen = presets.settings(preset, asked, of_matrix=matrix_given)
    _check_chosen(chosen, combine, matrix_given)
    options = {
        **solver.checked_options(
            chosen["step"], chosen["tol"], chosen["max_steps"], chosen["over_relaxation"]
        ),
        "tol": float(chosen["tol"]),
    }
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, got {jnp.dtype(dtype).name}")
    devices = sharding.checked(devices)
    seed, key = initialize.as_key(key)
    counting = _checked_counting(counting if window is None else {"window": window, **counting})
    ppmi = {"context_exponent": context_exponent, "shift": shift, "frequency_exponent": frequency_exponent}
    ppmi = {name: value for name, value in ppmi.items() if value is not None}
    weights = checked_weights(chosen["weighting"], ppmi)
    if not checkpoint_every >= 0:
        raise ValueError(f"checkpoint_every must not be negative, got {checkpoint_every}")
    if words is not None and not matrix_given:
        raise ValueError("words: these are counted in the corpus; give some to leave out as drop")

    with ExitStack() as stack:
        tell = as_progress(progress, stack)
        stack.enter_context(processes.watched())
        folder = None
        if checkpoint is not None:
            folder = processes.by_first(lambda: stack.enter_context(Folder(checkpoint)))
        if matrix_given:
            named = {} if weighting is None else {"weighting": weighting}
            given = from_matrix(source, words, {**counting, **named, **ppmi})
        else:
            given = from_corpus(source, counting, presets.counting(preset), weights, tell)
        several = combine == "consensus" and not matrix_given
        resolutions = _resolutions(chosen["num_topics"], len(given.words), several)
        of_each = chosen["restarts"] or presets.restarts(len(resolutions))
        num_starts = of_each * len(resolutions)
        settings = {
            **given.record["settings"], "preset": preset,
            "num_topics": resolutions[0] if len(resolutions) == 1 else list(resolutions),
            "start": chosen["start"], "restarts": of_each, "combine": combine,
            "smoothing": float(chosen["smoothing"]), **options, "dtype": jnp.dtype(dtype).name,
        }  # fmt: skip
        run = _run(given, settings, key)
        on = [device.id for device in devices]
        processes.agree({**run, "checkpoint": checkpoint is not None, "devices": on, "split": split})
        about = {"num_devices": len(devices), "versions": provenance.versions()}
        kept = None if checkpoint is None else keeper.opened(folder, checkpoint_every, run, about)
        tell("starting", 0, num_starts, "starts")
        layouts = for_starts(given.S, num_starts, dtype=dtype, devices=devices, split=split)
        stack.enter_context(sharding.instead_of_others(layouts[0].mesh))
        starts = _starts(chosen["start"], key, layouts[0], resolutions, of_each, kept)
        tell("starting", num_starts, num_starts, "starts")
        finished = runs.solve_all(
            starts, layouts, **options, only_best=combine == "best", keeper=kept, progress=tell
        )
        used = _usable(finished, num_starts, options["tol"], combine)
        with layouts[0].room():
            blocks = _blocks(given, used, layouts[0], chosen["smoothing"])
    objectives = [float(solution.objective) for solution in finished]
    record = {
        **given.record,
        "settings": settings,
        "seed": seed,
        "status": [Status(int(solution.status)).name.lower() for solution in finished],
        "objective": [value if np.isfinite(value) else None for value in objectives],
        "num_steps": [int(solution.num_steps) for solution in finished],
        "used": [number for number, solution in enumerate(finished) if any(solution is one for one in used)],
        "interrupted": len(finished) < num_starts
        or any(solution.status == Status.INTERRUPTED for solution in finished),
        "seconds": round(time.perf_counter() - began, 3),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": jax.local_devices()[0].device_kind,
        "num_devices": sum(len(layout.devices) for layout in layouts),
        "num_processes": processes.number(),
        "kernel": "native" if layouts[0].num_threads else "xla",
        "versions": provenance.versions(),
    }
    if kept is not None and kept.resumed_at is not None:
        record["resumed_at"] = kept.resumed_at  # steps
    with layouts[0].room():
        return _embedding(given, blocks, combine, key, finished, record)


# --- What was asked for -----------------------------------------------------------------------------


def _checked_counting(options: dict[str, Any]) -> dict[str, Any]:
    known = set(inspect.signature(cooccurrence.count).parameters) - {"source", "progress"}
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known | set(inspect.signature(fit).parameters), 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise TypeError(f"fit has no option {name!r}, nor has count{hint}")
    if options.get("subsample") is None and "seed" in options:
        raise TypeError("seed is of subsample, which is not given: the seed of the starts is key")
    return options


def _check_chosen(chosen: dict[str, Any], combine: Any, matrix_given: bool) -> None:
    """Refuses, and makes whole numbers of what is to be whole, before anything is read."""
    chosen["max_steps"] = validation.whole("max_steps", chosen["max_steps"], 1)
    if chosen["restarts"] is not None:
        chosen["restarts"] = validation.whole("restarts", chosen["restarts"], 1)
    if chosen["num_topics"] is not None:
        chosen["num_topics"] = _numbers_of_topics(chosen["num_topics"])
    if combine not in get_args(Combine):
        raise ValueError(f"combine must be one of {get_args(Combine)}, got {combine!r}")
    if combine != "consensus" and len(chosen["num_topics"] or ()) > 1:
        raise ValueError(f"combine={combine!r} needs one number of topics, got {chosen['num_topics']}")
    if chosen["start"] not in get_args(Start):
        raise ValueError(f"start must be one of {get_args(Start)}, got {chosen['start']!r}")
    if not np.isfinite(chosen["tol"]):
        raise ValueError(f"tol must be finite, got {chosen['tol']}")
    if not 0 <= chosen["smoothing"] < np.inf:
        raise ValueError(f"smoothing must be finite and not negative, got {chosen['smoothing']}")
    if chosen["smoothing"] and matrix_given:
        raise ValueError("smoothing is by how often words occur in a corpus, but the source is S itself")


def _resolutions(numbers: tuple[int, ...] | None, num_words: int, several: bool) -> tuple[int, ...]:
    numbers = presets.resolutions(num_words, several) if numbers is None else numbers
    if max(numbers) > num_words:
        asked = numbers[0] if len(numbers) == 1 else numbers
        raise ValueError(f"num_topics={asked}, but there are only {num_words} words")
    return numbers


def _numbers_of_topics(num_topics: Any) -> tuple[int, ...]:
    if (
        not isinstance(num_topics, Sequence | np.ndarray)
        or isinstance(num_topics, str)
        or not np.ndim(num_topics)
    ):
        return (validation.whole("num_topics", num_topics, 1),)
    if not len(num_topics):
        raise ValueError("num_topics must be a number or several, got none")
    return tuple(validation.whole("num_topics", number, 1) for number in num_topics)


def _run(given: Given, settings: dict[str, Any], key: jax.Array) -> dict[str, Any]:
    """All that a result depends on, by which a checkpoint knows its own."""
    corpus, weighting = given.record["corpus"], given.record.get("weighting", {})
    flags = ("jax_enable_x64", "jax_threefry_partitionable")  # on which random numbers depend
    return {
        "S": given.record["S"],
        "corpus": {name: value for name, value in corpus.items() if name != "name"},
        **{name: value for name, value in weighting.items() if name != "log_sum"},  # which S says too
        **{name: value for name, value in settings.items() if name != "preset"},
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "key_kind": str(jax.random.key_impl(key)),
        **{name: getattr(jax.config, name) for name in flags},
    }


def _starts(
    start: Start,
    key: jax.Array,
    layout: Layout,
    resolutions: tuple[int, ...],
    restarts: int,
    kept: keeper.Keeper | keeper.Follower | None,
) -> list[Callable[[], jax.Array]]:
    """Each is made when a device is free for it."""
    of_each = [num_topics for num_topics in resolutions for _ in range(restarts)]
    if start == "random":
        keys = jax.random.split(layout.beside_starts(key), len(of_each))
        make = partial(initialize.uniform, dtype=layout.scale.dtype)
        return [partial(make, k, layout.num_words, r) for k, r in zip(keys, of_each, strict=True)]
    of_vectors, of_starts = jax.random.split(layout.beside_starts(key))
    most = initialize.num_dimensions(max(resolutions))
    if kept is not None and kept.vectors is not None:
        vectors = layout.beside_starts(kept.vectors)
    else:
        with runs.interruption_held():
            vectors = jax.block_until_ready(spectrum.vectors(of_vectors, layout, num_dimensions=most))
        if kept is not None:
            kept.save_vectors(np.asarray(vectors))
    # Those of fewer dimensions are the first of these.
    return [
        partial(initialize.clustered, k, vectors[:, : initialize.num_dimensions(r)], r)
        for k, r in zip(jax.random.split(of_starts, len(of_each)), of_each, strict=True)
    ]


# --- From solutions to the embedding ----------------------------------------------------------------


def _usable(finished: list[Solution], num_starts: int, tol: float, combine: Combine) -> list[Solution]:
    """The solutions that the embedding is made of; says what did not go as it should."""
    statuses = [Status(int(solution.status)) for solution in finished]

    def of(*wanted: Status) -> list[Solution]:
        return [one for one, status in zip(finished, statuses, strict=True) if status in wanted]

    def share(number: int) -> str:
        return f"{number} of {num_starts} starts: " if num_starts > 1 else ""

    failed, stopped = of(Status.NONFINITE), of(Status.INTERRUPTED)
    whole, short = of(Status.CONVERGED, Status.MAX_STEPS), of(Status.MAX_STEPS)
    if not whole and not stopped:
        raise SolverError(f"all {num_starts} starts: {MESSAGES[Status.NONFINITE]}")
    if failed:
        _warn(f"{share(len(failed))}{MESSAGES[Status.NONFINITE]}; left out")
    if stopped and not whole:
        _warn(f"{share(len(stopped))}{MESSAGES[Status.INTERRUPTED]}")
    elif stopped or len(finished) < num_starts:
        kept = "best of those so far" if combine == "best" else f"{len(whole)} that had finished"
        _warn(f"interrupted after {len(whole)} of {num_starts} starts; the embedding is of the {kept}")
    if short:
        changes = [solution.history.change[: int(solution.num_steps) + 1] for solution in short]
        # The last step may have been refused, with a change of zero.
        change = max(float(steps[steps > 0][-1]) for steps in changes)
        _warn(
            f"{share(len(short))}not converged after {int(short[0].num_steps)} steps: the relative change "
            f"of W is {change:.2g}, tol is {tol:g}; raise max_steps, or tol to be content with less"
        )
    if combine == "best":
        candidates = [one for one in whole + stopped if len(one.W)]
        return [min(candidates, key=lambda solution: float(solution.objective))]
    # One that has hardly begun would blur what the others learned.
    return whole or stopped


def _warn(message: str) -> None:
    warnings.warn(message, NotConvergedWarning, stacklevel=4)


def _blocks(given: Given, used: list[Solution], layout: Layout, smooth: float) -> list[np.ndarray]:
    """W of each start on the simplex, smoothed, the heaviest topics first."""
    share = None
    if smooth and given.counts is not None:
        word_counts = given.counts.vocabulary.counts[given.S.kept]
        share = smoothing.shares(word_counts, smooth).astype(layout.scale.dtype)
        share = layout.placed(share)
    blocks = []
    for solution in used:
        if share is None:
            W = np.asarray(on_simplex(jnp.asarray(solution.W)))
        else:
            with runs.interruption_held():
                W = smoothing.smoothed(layout.placed(solution.W), layout, share)
                W = np.asarray(layout.collected(W))
        blocks.append(W[:, np.argsort(-W.sum(axis=0, dtype=np.float64), kind="stable")])
    return blocks


def _embedding(
    given: Given,
    blocks: list[np.ndarray],
    combine: Combine,
    key: jax.Array,
    finished: list[Solution],
    record: dict[str, Any],
) -> Embedding:
    sizes = [block.shape[1] for block in blocks]
    W = np.concatenate(blocks, axis=1)
    W /= np.asarray(len(blocks), W.dtype)
    if combine == "reduced" and len(blocks) > 1:
        sizes = sizes[:1]
        # The first two of these were of the starts.
        of_groups = jax.random.split(key, 3)[2]
        record["reduced_from"] = W.shape[1]
        W = reduction.merged(of_groups, jnp.asarray(W), num_topics=sizes[0])
    W = jnp.asarray(W)
    counts, kept = given.counts, given.S.kept
    margins = word_counts = topic_coherence = None
    if counts is not None:
        margins, word_counts = counts.matrix.sum(axis=1)[kept], counts.vocabulary.counts[kept]
        topic_coherence = coherence_of(W, counts.matrix, kept)
    return Embedding(
        words=given.words,
        W=W,
        starts=tuple(sizes),
        word_counts=word_counts,
        margins=margins,
        coherence=topic_coherence,
        history=_history([solution.history for solution in finished]),
        record=record,
    )


def _history(histories: list[solver.History]) -> dict[str, np.ndarray]:
    """A row for each start, as long as the longest of them; NaN beyond the end of the others."""
    length = max(int(np.isfinite(history.objective).sum()) for history in histories)
    return {
        name: np.stack([np.asarray(getattr(history, name))[:length] for history in histories])
        for name in solver.History._fields
    }

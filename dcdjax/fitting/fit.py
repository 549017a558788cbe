"""Learn an embedding from a corpus, counts or S in one call."""

import datetime
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import DTypeLike

from dcdjax.checkpoints.checkpoint import Checkpoint, Expected, open_checkpoint
from dcdjax.checkpoints.checkpoint_files import CheckpointFolder
from dcdjax.counting import cooccurrence
from dcdjax.counting.cooccurrence import CountingOptions
from dcdjax.devices import processes, sharding
from dcdjax.devices.layout import Layout
from dcdjax.devices.preparation import groups_for_starts, prepare_for_starts
from dcdjax.embedding.embedding import Embedding
from dcdjax.fitting import combination, memory, presets, provenance, scheduler
from dcdjax.fitting import inputs as inputs_of_fit
from dcdjax.fitting.combination import NotConvergedWarning
from dcdjax.fitting.inputs import Inputs
from dcdjax.fitting.num_topics import NumTopics, choose_num_topics
from dcdjax.fitting.options import Combine, Options, Start, check_dtype, check_options
from dcdjax.fitting.presets import Preset
from dcdjax.solvers.arguments import Step
from dcdjax.solvers.result import Solution, Status
from dcdjax.starts import initialize, keys, spectrum
from dcdjax.topics import merging
from dcdjax.util import checks
from dcdjax.util.interrupts import hold_signals
from dcdjax.util.progress import Progress, as_progress

__all__ = ["NotConvergedWarning", "fit"]


@checks.suggest_names
@checks.show_options_of(
    cooccurrence.count, leave_out=("source", "progress"), defaults=presets.counting("default")
)
def fit(
    source: Any,
    *,
    num_topics: int | Sequence[int] | Literal["auto"] | None = None,
    key: Any = 0,
    random_state: int | None = None,
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
    step: Step | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    over_relaxation: float | None = None,
    dtype: DTypeLike = jnp.float32,
    devices: Sequence[Any] | Mesh | None = None,
    split: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    progress: Progress | bool = True,
    **counting: Unpack[CountingOptions],
) -> Embedding:
    """Learn an embedding from a text, from counts or from a similarity matrix.

    Ctrl-C during solving stops early and keeps what was learned, with a warning. A second Ctrl-C gives up.

    Args:
      source: a corpus as `count` takes it, the result of `count`, or S as `similarity.from_matrix` takes or
        returns it.
      num_topics: number of topics r of each start. Pass several numbers for a consensus of coarse and fine
        topics. Default: (200, 500) for a consensus of a text, otherwise 200. A small vocabulary gets fewer:
        at most a tenth of its words. "auto" recommends a number, see `choose_num_topics`, and records the
        curve behind it. A consensus is shown as at most 50 topics and 200 subtopics; with several numbers, as
        the smallest and the largest of them.
      key: a key from `jax.random.key`, or a whole number to make one from. The same key gives the same
        result. Default: 0.
      random_state: scikit-learn's name for a whole number as key.
      preset: sets every option that is not given. "default" is for neighbors of words, and uses the defaults
        named here. "topics" is for topics of documents: 50 topics from one start, flat windows of 100 words.
        "paper" is for comparison with the paper: what stands between blanks as words, plain counts, flat
        windows, the paper's step, one random start of 200 topics, no smoothing, tol 1e-3, at most 500 steps.
      words: words of the rows of S, if S has none. Default: "0", "1", ...
      weighting: how counts become S, see `similarity.from_counts`. Default: "ppmi".
      context_exponent: option of PPMI. Default: 0.75.
      shift: option of PPMI. Default: 0.
      frequency_exponent: option of PPMI. Default: 0.15.
      start: "spectral" starts from clusters of spectral word vectors; "random" from random numbers. See
        `initialize`. Default: "spectral".
      restarts: number of starts for each number of topics, each with its own key. Default: four starts in all
        for a text, one for S. Several devices solve several starts at once.
      combine: how several starts become one embedding. "consensus" keeps the topics of all starts; its Shat
        is the mean of theirs, which gives better neighbors but needs more memory and time per query. "best"
        keeps the start with the lowest objective. "reduced" merges the consensus to as many columns as one
        start has, see `Embedding.reduce`.
      smoothing: pseudocount a. After solving, a word that occurs n times takes the share a / (n + a) of its
        topics from its neighbors in S. Larger values smooth more. Default: 20 for a text, 0 for S.
      step: as in `solve`.
      tol: as in `solve`. Default: 0.03 for a text (about a dozen steps; with more, neighbors get worse), 1e-3
        for S.
      max_steps: as in `solve`. Default: 200 for a text, 500 for S.
      over_relaxation: as in `solve`. Default: 1 for a text, 1.9 for S.
      dtype: float32, or float64 if JAX is configured for it.
      devices: devices or a mesh to solve on. Default: all devices of all processes, see `processes.join`.
        From the same start, every number of devices gives the same result up to rounding. If W is split, the
        clusters of a spectral start in float32 may differ with the number of devices.
      split: split the rows of W and S over all devices, for a W that does not fit on one device. Always so if
        the devices belong to several processes. See `prepare`.
      checkpoint: folder to save to while solving. The same call with this folder continues from there, on any
        devices. A call with other settings is refused. Delete the folder when the fit is done. With several
        processes, only the first one needs access to it.
      checkpoint_every: seconds between saves. 0 saves as often as possible. Each start is also saved when it
        finishes, and all starts when the fit is interrupted.
      progress: True shows bars on a terminal, False shows none; or a function to call instead.
      **counting: the options of `count`, which explains them, such as window, tokens, documents, max_words,
        min_count and drop. Only for a corpus. The preset decides on window (default: 8) and
        distance_weighting (default: "harmonic"), "paper" also on tokens, lowercase and min_count. All others
        have the defaults of `count`.

    Returns:
      The embedding. `Embedding.topics` shows similar topics of several starts as one topic. The same corpus
      leads to the same embedding, whether it is passed as a corpus, as counts or as S.

    Raises:
      ValueError, TypeError: naming the argument, or what cannot be read.
      SolverError: if a value was not finite in all starts.
      CheckpointError: a ValueError, if the checkpoint belongs to another run (it names what differs) or is
        in use.
      OSError: if the checkpoint folder cannot be written to. This is checked before anything is read.
      MemoryError: if the memory of the machine, or of a limit, is certainly too small, or if it runs out. If
        it is only likely too small, a `memory.MemoryWarning` says so.

    Example:
      >>> embedding = fit(["tea cup tea", "cup tea", "sail ship", "ship sail sea"], num_topics=2, key=0)
      >>> embedding.neighbors("tea", 1)[0].word
      'cup'
    """
    began = time.perf_counter()
    source_is_matrix = inputs_of_fit.is_matrix(source)
    options = check_options(
        preset,
        {
            "num_topics": num_topics, "weighting": weighting, "start": start, "restarts": restarts,
            "step": step, "tol": tol, "max_steps": max_steps, "over_relaxation": over_relaxation,
            "smoothing": smoothing,
        },
        {"context_exponent": context_exponent, "shift": shift, "frequency_exponent": frequency_exponent},
        counting,
        combine=combine,
        counts_are_known=not source_is_matrix or getattr(source, "origin", None) is not None,
    )  # fmt: skip
    if options.num_topics == "auto" and processes.count() > 1:
        raise ValueError("num_topics='auto' works in one process only: call choose_num_topics before")
    dtype = check_dtype(dtype)
    devices = sharding.checked_devices(devices)
    seed, key = keys.as_key(key if random_state is None else random_state)
    if not checkpoint_every >= 0:
        raise ValueError(f"checkpoint_every must not be negative, got {checkpoint_every}")
    if checkpoint is not None and not os.fspath(checkpoint):
        raise ValueError("checkpoint must name a folder, got '' (pass '.' for the current folder)")
    if words is not None and not source_is_matrix:
        raise ValueError("words: these are counted in the corpus; to leave words out, use drop")

    with ExitStack() as stack:
        tell = as_progress(progress, stack)
        stack.enter_context(processes.report_lost_process())
        stack.enter_context(memory.explain_exhaustion())
        folder = None
        if checkpoint is not None:
            folder = processes.run_on_first(lambda: stack.enter_context(CheckpointFolder(checkpoint)))
        inputs = inputs_of_fit.read(source, words, options, tell)
        chosen = _choose_num_topics(inputs, options, key, tell)
        topics_of_starts, settings = _plan(inputs, options, chosen, dtype)
        run = _identity(inputs, settings, key)
        where = {"devices": [device.id for device in devices], "split": split}
        processes.check_agreement({**run, "checkpoint": checkpoint is not None, **where})
        saved = None
        if checkpoint is not None:
            environment = {"num_devices": len(devices), "versions": provenance.versions()}
            expected = Expected(
                num_words=len(inputs.words),
                num_topics=topics_of_starts,
                num_dimensions=initialize.num_dimensions(max(topics_of_starts)),
                max_steps=options.solver["max_steps"],
                dtype=np.dtype(dtype),
            )
            saved = open_checkpoint(folder, checkpoint_every, run, environment, expected)
        num_starts = len(topics_of_starts)
        groups, is_split = groups_for_starts(num_starts, devices=devices, split=split)
        memory.check(
            len(inputs.words), inputs.S.matrix.nnz, topics_of_starts, groups,
            itemsize=jnp.dtype(dtype).itemsize, start=options.start, combine=combine, split=is_split,
        )  # fmt: skip
        tell("starting", 0, 2, "parts")
        layouts = prepare_for_starts(inputs.S, num_starts, dtype=dtype, devices=devices, split=split)
        stack.enter_context(sharding.override_mesh(layouts[0].mesh))
        tell("starting", 1, 2, "parts")
        starts = _starts(options.start, key, layouts[0], topics_of_starts, saved)
        tell("starting", 2, 2, "parts")
        finished = scheduler.solve_all(
            starts, layouts, **options.solver, only_best=combine == "best", saver=saved, progress=tell
        )
        used = combination.select(finished, num_starts, options.solver["tol"], combine)
        outcome = _outcome(finished, used, num_starts, saved)
        if outcome["interrupted"]:
            tell = _silent  # it may interrupt again, and what was learned would be lost
        with layouts[0].host_if_split():
            factors = combination.factors(inputs, used, layouts[0], options.smoothing, tell)
            seconds = round(time.perf_counter() - began, 3)
            record = {**inputs.record, "settings": settings, "seed": seed, **outcome, "seconds": seconds}
            record |= _environment(layouts)
            if chosen is not None:
                record["num_topics_curve"] = [one._asdict() for one in chosen.curve]
            shown = presets.shown_topics(topics_of_starts, options.num_topics is not None)
            embedding = combination.make_embedding(inputs, factors, combine, shown, finished, record)
        tell("finishing", len(used) + 1, len(used) + 1, "parts")
    return embedding


def _silent(*_: Any) -> None:
    """Take progress and show nothing."""


def _choose_num_topics(inputs: Inputs, options: Options, key: jax.Array, tell: Progress) -> NumTopics | None:
    """Choose the number of topics by the passages of the corpus, if this was asked for."""
    if options.num_topics != "auto":
        return None
    return choose_num_topics(inputs.S, key=key, progress=tell)


def _plan(
    inputs: Inputs, options: Options, chosen: NumTopics | None, dtype: Any
) -> tuple[list[int], dict[str, Any]]:
    """Return the number of topics of each start, and the settings to record."""
    num_words = len(inputs.words)
    numbers = (chosen.num_topics,) if chosen is not None else options.num_topics
    if numbers is None or numbers == "auto":
        several = options.combine == "consensus" and inputs.S.origin is not None
        numbers = presets.num_topics(num_words, options.preset, several)
    shown = numbers[0] if len(numbers) == 1 else list(numbers)
    if max(numbers) > num_words:
        raise ValueError(f"num_topics={shown}, but there are only {num_words} words")
    restarts = options.restarts or presets.restarts(len(numbers))
    num_columns = restarts * sum(numbers)
    if options.combine == "reduced" and restarts > 1 and num_columns > merging.MOST_COLUMNS:
        raise ValueError(
            f"combine='reduced' groups {num_columns} columns, at most {merging.MOST_COLUMNS} are possible: "
            "choose fewer restarts or topics"
        )
    settings = {
        **inputs.record["settings"],
        "preset": options.preset,
        "num_topics": shown,
        "start": options.start,
        "restarts": restarts,
        "combine": options.combine,
        "smoothing": options.smoothing,
        **options.solver,
        "dtype": jnp.dtype(dtype).name,
    }
    return [number for number in numbers for _ in range(restarts)], settings


def _identity(inputs: Inputs, settings: dict[str, Any], key: jax.Array) -> dict[str, Any]:
    """Return everything that the result depends on. A checkpoint of another identity is refused."""
    corpus, weighting = inputs.record["corpus"], inputs.record.get("weighting", {})
    flags = ("jax_enable_x64", "jax_threefry_partitionable")  # random numbers depend on these
    return {
        "S": inputs.record["S"],
        "corpus": {name: value for name, value in corpus.items() if name != "name"},
        **{name: value for name, value in weighting.items() if name != "log_sum"},  # part of S
        **{name: value for name, value in settings.items() if name != "preset"},
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "key_kind": str(jax.random.key_impl(key)),
        **{name: getattr(jax.config, name) for name in flags},
    }


def _starts(
    start: Start, key: jax.Array, layout: Layout, topics_of_starts: list[int], saved: Checkpoint | None
) -> list[Callable[[], jax.Array]]:
    """Return a function for each start that makes its W when a device is free."""
    num_starts = len(topics_of_starts)
    if start == "random":
        random_keys = jax.random.split(layout.put_whole(key), num_starts)
        make = partial(initialize.uniform, dtype=layout.scale.dtype)
        return [
            partial(make, k, layout.num_words, r) for k, r in zip(random_keys, topics_of_starts, strict=True)
        ]
    vectors_key, starts_key = jax.random.split(layout.put_whole(key))
    if saved is not None and saved.vectors is not None:
        vectors = layout.put_whole(saved.vectors)
    else:
        num_dimensions = initialize.num_dimensions(max(topics_of_starts))
        with hold_signals():
            vectors = spectrum.vectors(vectors_key, layout, num_dimensions=num_dimensions)
            vectors = jax.block_until_ready(vectors)
        if saved is not None:
            saved.save_vectors(np.asarray(vectors))
    # A start with fewer topics uses the first dimensions.
    return [
        partial(initialize.clustered, k, vectors[:, : initialize.num_dimensions(r)], r)
        for k, r in zip(jax.random.split(starts_key, num_starts), topics_of_starts, strict=True)
    ]


def _outcome(
    finished: list[Solution], used: list[Solution], num_starts: int, saved: Checkpoint | None
) -> dict[str, Any]:
    """Return the part of the record that says how the solver ended."""
    statuses = [Status(int(solution.status)) for solution in finished]
    objectives = [float(solution.objective) for solution in finished]
    return {
        "status": [status.name.lower() for status in statuses],
        "objective": [value if np.isfinite(value) else None for value in objectives],
        "num_steps": [int(solution.num_steps) for solution in finished],
        "used": [number for number, solution in enumerate(finished) if any(solution is one for one in used)],
        "interrupted": len(finished) < num_starts or Status.INTERRUPTED in statuses,
        **({} if saved is None or saved.resumed_at is None else {"resumed_at": saved.resumed_at}),  # steps
    }


def _environment(layouts: list[Layout]) -> dict[str, Any]:
    """Return the part of the record that says when and on what the fit ran."""
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": jax.local_devices()[0].device_kind,
        "num_devices": sum(len(layout.devices) for layout in layouts),
        "num_processes": processes.count(),
        "kernel": "native" if layouts[0].num_threads else "xla",
        "versions": provenance.versions(),
    }

"""A corpus, counts or S enters; an Embedding leaves: the whole way in one call."""

import datetime
import difflib
import inspect
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from dcdjax import (
    coherence,
    cooccurrence,
    initialize,
    provenance,
    runs,
    sharding,
    solver,
    spectrum,
    validation,
)
from dcdjax.answers import first_words
from dcdjax.decomposition import on_simplex
from dcdjax.embedding import Embedding
from dcdjax.given import Given, checked_weights, from_corpus, from_matrix, is_matrix
from dcdjax.layout import Layout, for_starts
from dcdjax.parallel import Progress
from dcdjax.progress import Bars
from dcdjax.queries import topic_sizes
from dcdjax.solver import MESSAGES, Solution, SolverError, Status

Combine = Literal["consensus", "best"]
Start = Literal["spectral", "random"]

# tol and max_steps. A text is coarse itself; between the groups of a graph there are plateaus to be crossed.
_FOR_TEXT, _FOR_S = (1e-2, 200), (1e-3, 500)
# Of so many first words of each topic the coherence is kept; 10 are usual.
_COHERENCE_DEPTH = 20


class NotConvergedWarning(UserWarning):
    """The solver was stopped before W had converged; the embedding is what was learned until then."""


def fit(
    source: Any,
    *,
    num_topics: int | Sequence[int] = 100,
    window: int | None = None,
    key: Any,
    words: Sequence[str] | None = None,
    weighting: str | None = None,
    context_exponent: float | None = None,
    shift: float | None = None,
    start: Start = "spectral",
    restarts: int = 1,
    combine: Combine = "consensus",
    step: solver.Step = "exact",
    tol: float | None = None,
    max_steps: int | None = None,
    over_relaxation: float = 1.9,
    dtype: DTypeLike = jnp.float32,
    devices: Sequence[Any] | None = None,
    progress: Progress | bool = True,
    **counting: Any,
) -> Embedding:
    """Learns an embedding from a text, from counts or from a similarity matrix.

    Ctrl-C while it solves ends it early and keeps what was learned, with a warning. A second one gives it up.

    Args:
      source: a corpus, as `count` takes it; or what `count` returns; or S, as `similarity.from_matrix` takes
        or returns it.
      num_topics: r, of each start; or several numbers, such as (100, 500), for a consensus of starts of each:
        coarse and fine topics of the same words.
      window: of a corpus: the largest distance at which two words are near each other; 8 if not given.
      key: from `jax.random.key`, or a whole number to make one of.
      words: of S, one for each row, where it does not bring them; otherwise they are called "0", "1", ...
      weighting: how counts become S, "ppmi" if not given: see `similarity.from_counts`.
      context_exponent: of PPMI, 0.75 if not given.
      shift: of PPMI, 0 if not given.
      start: "spectral", from clusters of the words' spectral vectors; or "random": see `initialize`.
      restarts: how many starts, each from a key of its own, of each number of topics. Several devices solve
        several at once.
      combine: what several starts make: "consensus", whose Shat is the mean of theirs, with the topics of all
        of them; or the "best", with the lowest objective. A consensus is better for neighbors; its memory and
        the time of a question grow with the number of starts.
      step: as in `solve`.
      tol: as in `solve`; if not given, 1e-3 for S, 1e-2 for text, whose neighbors hardly change below it.
      max_steps: as in `solve`; if not given, 500 for S, 200 for text.
      over_relaxation: as in `solve`.
      dtype: float32, or float64 where JAX is configured for it.
      devices: to solve on, all local ones if not given.
      progress: True shows bars where somebody looks; False shows none; or what is to be told instead.
      **counting: further options of `count` for a corpus, such as max_words, lowercase, drop.

    Returns:
      The embedding. Topics are sorted by weight, those of each start by themselves.

    Raises:
      ValueError, TypeError: naming the argument, or what cannot be read.
      SolverError: if a value was not finite in all starts.

    Example:
      >>> embedding = fit(["tea cup tea", "cup tea", "sail ship", "ship sail sea"], num_topics=2, key=0)
      >>> embedding.neighbors("tea", 1)[0].word
      'cup'
    """
    began = time.perf_counter()
    matrix_given = is_matrix(source)
    usual_tol, usual_steps = _FOR_S if matrix_given else _FOR_TEXT
    tol = usual_tol if tol is None else tol
    resolutions = _resolutions(num_topics)
    restarts = validation.whole("restarts", restarts, 1)
    num_starts = restarts * len(resolutions)
    max_steps = validation.whole("max_steps", usual_steps if max_steps is None else max_steps, 1)
    if combine not in get_args(Combine):
        raise ValueError(f"combine must be one of {get_args(Combine)}, got {combine!r}")
    if combine == "best" and len(resolutions) > 1:
        raise ValueError(f"combine='best' needs one number of topics to compare, got {resolutions}")
    if start not in get_args(Start):
        raise ValueError(f"start must be one of {get_args(Start)}, got {start!r}")
    if not np.isfinite(tol):
        raise ValueError(f"tol must be finite, got {tol}")
    options = {**solver.checked_options(step, tol, max_steps, over_relaxation), "tol": float(tol)}
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype not in (jnp.float32, jnp.float64):
        raise ValueError(f"dtype must be float32 or float64, got {jnp.dtype(dtype).name}")
    devices = sharding.checked(devices)
    seed, key = _key(key)
    counting = _checked_counting(counting if window is None else {"window": window, **counting})
    ppmi = {"context_exponent": context_exponent, "shift": shift}
    ppmi = {name: value for name, value in ppmi.items() if value is not None}
    weights = checked_weights(weighting, ppmi)
    if words is not None and not matrix_given:
        raise ValueError("words: these are counted in the corpus; give some to leave out as drop")

    with ExitStack() as stack:
        tell = _progress(progress, stack)
        if matrix_given:
            named = {} if weighting is None else {"weighting": weighting}
            given = from_matrix(source, words, {**counting, **named, **ppmi})
        else:
            given = from_corpus(source, counting, weights, tell)
        num_words = len(given.words)
        if max(resolutions) > num_words:
            raise ValueError(f"num_topics={num_topics}, but there are only {num_words} words")
        tell("starting", 0, num_starts, "starts")
        layouts = for_starts(given.S, num_starts, dtype=dtype, devices=devices)
        starts = _starts(start, key, layouts[0], resolutions, restarts)
        tell("starting", num_starts, num_starts, "starts")
        finished = runs.solve_all(starts, layouts, **options, only_best=combine == "best", progress=tell)
    used = _usable(finished, num_starts, tol, combine)
    objectives = [float(solution.objective) for solution in finished]
    of_starts = {"start": start, "restarts": restarts, "combine": combine}
    topics = resolutions[0] if len(resolutions) == 1 else list(resolutions)
    solving = {"num_topics": topics, **of_starts, **options}
    record = {
        **given.record,
        "settings": {**given.record["settings"], **solving, "dtype": jnp.dtype(dtype).name},
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
        "kernel": "native" if layouts[0].num_threads else "xla",
        "versions": provenance.versions(),
    }
    return _embedding(given, used, finished, record)


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


def _resolutions(num_topics: Any) -> tuple[int, ...]:
    if (
        not isinstance(num_topics, Sequence | np.ndarray)
        or isinstance(num_topics, str)
        or not np.ndim(num_topics)
    ):
        return (validation.whole("num_topics", num_topics, 1),)
    if not len(num_topics):
        raise ValueError("num_topics must be a number or several, got none")
    return tuple(validation.whole("num_topics", number, 1) for number in num_topics)


def _starts(
    start: Start, key: jax.Array, layout: Layout, resolutions: tuple[int, ...], restarts: int
) -> list[Callable[[], jax.Array]]:
    """Each is made when a device is free for it."""
    of_each = [num_topics for num_topics in resolutions for _ in range(restarts)]
    if start == "random":
        keys = jax.random.split(key, len(of_each))
        make = partial(initialize.uniform, dtype=layout.scale.dtype)
        return [partial(make, k, layout.num_words, r) for k, r in zip(keys, of_each, strict=True)]
    of_vectors, of_starts = jax.random.split(sharding.everywhere(key, layout.devices))
    most = initialize.num_dimensions(max(resolutions))
    with runs.interruption_held():
        vectors = jax.block_until_ready(spectrum.vectors(of_vectors, layout, num_dimensions=most))
    # Those of fewer dimensions are the first of these.
    return [
        partial(initialize.clustered, k, vectors[:, : initialize.num_dimensions(r)], r)
        for k, r in zip(jax.random.split(of_starts, len(of_each)), of_each, strict=True)
    ]


def _key(key: Any) -> tuple[Any, jax.Array]:
    """What is to be recorded of a key, and the key."""
    if isinstance(key, jax.Array) and key.ndim + jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        return np.asarray(data).tolist(), key
    number = validation.whole("key", key, 0)
    if number >= 1 << 32:  # of which JAX would silently forget all but the last 32 bits
        raise ValueError(f"key must be below 2^32, got {number}")
    return number, jax.random.key(number)


def _progress(progress: Progress | bool, stack: ExitStack) -> Progress:
    if progress is True:
        return stack.enter_context(Bars())
    if progress is False or progress is None:
        return lambda *_, **__: None
    if not callable(progress):
        raise ValueError(
            f"progress must be True, False or callable, such as progress.Bars(), got {progress!r}"
        )
    return progress


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
        return [min(whole + stopped, key=lambda solution: float(solution.objective))]
    # One that has hardly begun would blur what the others learned.
    return whole or stopped


def _warn(message: str) -> None:
    warnings.warn(message, NotConvergedWarning, stacklevel=4)


def _embedding(
    given: Given, used: list[Solution], finished: list[Solution], record: dict[str, Any]
) -> Embedding:
    sizes = [solution.W.shape[1] for solution in used]
    W = np.empty((len(given.words), sum(sizes)), used[0].W.dtype)
    for solution, end in zip(used, np.cumsum(sizes).tolist(), strict=True):
        block = np.asarray(on_simplex(jnp.asarray(solution.W)))
        order = np.argsort(-block.sum(axis=0, dtype=np.float64), kind="stable")
        np.divide(block[:, order], len(used), out=W[:, end - len(order) : end])
    W = jnp.asarray(W)
    counts, kept = given.counts, given.S.kept
    margins = word_counts = topic_coherence = None
    if counts is not None:
        margins, word_counts = counts.matrix.sum(axis=1)[kept], counts.vocabulary.counts[kept]
        _, top = first_words(W, topic_sizes(W), min(_COHERENCE_DEPTH, len(kept)))
        topic_coherence = coherence.npmi(counts.matrix, kept[top])
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

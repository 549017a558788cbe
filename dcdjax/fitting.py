"""A corpus, counts or S enters; an Embedding leaves: the whole way in one call."""

import datetime
import inspect
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jax.typing import DTypeLike

from dcdjax import coherence, cooccurrence, initialize, provenance, runs, similarity, solver, validation
from dcdjax.answers import first_words
from dcdjax.cooccurrence import Counts
from dcdjax.decomposition import on_simplex
from dcdjax.embedding import Embedding
from dcdjax.layout import prepare
from dcdjax.parallel import Progress
from dcdjax.progress import Bars
from dcdjax.queries import topic_sizes
from dcdjax.similarity import Similarity
from dcdjax.solver import MESSAGES, SolverError, Status

Combine = Literal["consensus", "best"]

# Of so many first words of each topic the coherence is kept; 10 are usual.
_COHERENCE_DEPTH = 20


class NotConvergedWarning(UserWarning):
    """The solver was stopped before W had converged; the embedding is what was learned until then."""


class _Learned(NamedTuple):
    """S, and what is known of where it comes from."""

    S: Similarity
    words: tuple[str, ...]
    counts: Counts | None
    record: dict[str, Any]


def fit(
    source: Any,
    *,
    num_topics: int = 100,
    window: int | None = None,
    key: Any,
    words: Sequence[str] | None = None,
    weighting: str = "ppmi",
    context_exponent: float = 0.75,
    shift: float = 0.0,
    restarts: int = 1,
    combine: Combine = "consensus",
    step: solver.Step = "exact",
    tol: float = 1e-2,
    max_steps: int = 200,
    over_relaxation: float = 1.9,
    dtype: DTypeLike = jnp.float32,
    devices: Sequence[Any] | None = None,
    progress: Progress | bool = True,
    **counting: Any,
) -> Embedding:
    """Learns an embedding from a text, from counts or from a similarity matrix.

    Ctrl-C while it solves ends it early and keeps what was learned, with a warning.

    Args:
      source: a corpus, as `count` takes it; or what `count` returns; or S, as `solve` takes it.
      num_topics: r, of each start.
      window: of a corpus: the largest distance at which two words are near each other; 8 if not given.
      key: from `jax.random.key`, or a whole number to make one of.
      words: of S, one for each row, where it does not bring them; otherwise they are called "0", "1", ...
      weighting: how counts become S: see `similarity.from_counts`, as for the next two.
      context_exponent: of PPMI.
      shift: of PPMI.
      restarts: how many starts, each from a key of its own. Several devices solve several at once.
      combine: what several starts make: "consensus", whose Shat is the mean of theirs, with the topics of all
        of them; or the "best", with the lowest objective. A consensus is better for neighbors; its memory and
        the time of a question grow with the number of starts.
      step: as in `solve`.
      tol: as in `solve`; coarser than there, because neighbors hardly change below it.
      max_steps: as in `solve`.
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
    unknown = sorted(set(counting) - set(inspect.signature(cooccurrence.count).parameters))
    if unknown:
        raise TypeError(f"fit has no option {unknown[0]!r}, nor has count")
    num_topics = validation.whole("num_topics", num_topics, 1)
    restarts = validation.whole("restarts", restarts, 1)
    max_steps = validation.whole("max_steps", max_steps, 1)
    if combine not in get_args(Combine):
        raise ValueError(f"combine must be one of {get_args(Combine)}, got {combine!r}")
    options = {**solver.checked_options(step, tol, max_steps, over_relaxation), "tol": float(tol)}
    seed, key = _key(key)
    with ExitStack() as stack:
        tell = _progress(progress, stack)
        weights = {"weighting": weighting, "context_exponent": context_exponent, "shift": shift}
        learned = _similarity(source, words, window, weights, counting, tell)
        num_words = len(learned.words)
        if num_topics > num_words:
            raise ValueError(f"num_topics={num_topics}, but there are only {num_words} words")
        layout = prepare(learned.S, dtype=dtype)
        starts = []
        for number, start_key in enumerate(jax.random.split(key, restarts)):
            tell("starting", number, restarts, "starts")
            starts.append(initialize.uniform(start_key, num_words, num_topics, dtype=dtype))
        tell("starting", restarts, restarts, "starts")
        finished = runs.solve_all(
            starts, layout, **options, devices=devices or jax.local_devices(), progress=tell
        )
    used = _usable(finished, restarts, tol, combine)
    objectives = [float(run.solution.objective) for run in finished]
    solving = {"num_topics": num_topics, "restarts": restarts, "combine": combine, **options}
    record = {
        **learned.record,
        "settings": {**learned.record["settings"], **solving, "dtype": jnp.dtype(dtype).name},
        "seed": seed,
        "status": [Status(int(run.solution.status)).name.lower() for run in finished],
        "objective": [value if np.isfinite(value) else None for value in objectives],
        "num_steps": [int(run.solution.num_steps) for run in finished],
        "used": [number for number, run in enumerate(finished) if any(run is one for one in used)],
        "interrupted": len(finished) < restarts
        or any(run.solution.status == Status.INTERRUPTED for run in finished),
        "seconds": round(time.perf_counter() - began, 3),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": jax.local_devices()[0].device_kind,
        "versions": provenance.versions(),
    }
    return _embedding(learned, used, finished, record)


# --- From what is given to S ------------------------------------------------------------------------


def _similarity(
    source: Any,
    words: Sequence[str] | None,
    window: int | None,
    weights: dict[str, Any],
    counting: dict[str, Any],
    tell: Progress,
) -> _Learned:
    """S by the shortest way from what is given; options that would have no effect are refused."""
    if _is_matrix(source):
        _refuse(counting | ({} if window is None else {"window": window}), "a matrix")
        S = source if isinstance(source, Similarity) else similarity.from_matrix(source, words=words)
        if isinstance(source, Similarity) and words is not None:
            raise ValueError("words: a Similarity brings its own")
        names = S.words or tuple(map(str, S.kept.tolist()))
        record = {"corpus": {"name": None, "sha256": None}, "settings": {}}
        return _Learned(S, names, None, {**record, "S": provenance.of_matrix(S.matrix, names)})
    if words is not None:
        raise ValueError("words: these are counted in the corpus; give some to leave out as drop")
    if isinstance(source, Counts):
        _refuse(counting | ({} if window is None else {"window": window}), "counts")
        counts, corpus = source, {"name": None, "sha256": None}
    else:
        corpus = provenance.of_corpus(source)
        counts = cooccurrence.count(source, window=8 if window is None else window, progress=tell, **counting)
    tell("weighting", 0, counts.matrix.nnz, "pairs")
    S = similarity.from_counts(counts, **weights, drop_isolated=True)
    tell("weighting", counts.matrix.nnz, counts.matrix.nnz, "pairs")
    assert S.words is not None
    record = {
        "corpus": {**corpus, "num_tokens": int(counts.vocabulary.num_tokens)},
        "S": provenance.of_matrix(S.matrix, S.words),
        "settings": {"counting": counts.settings},
        "weighting": {**weights, "log_sum": _log_sum(counts, weights["context_exponent"])},
    }
    return _Learned(S, S.words, counts, record)


def _is_matrix(source: Any) -> bool:
    if isinstance(source, Similarity) or scipy.sparse.issparse(source):
        return True
    if isinstance(source, np.ndarray | jax.Array):
        return source.ndim == 2 and source.dtype.kind in "biuf"
    pair = isinstance(source, tuple | list) and len(source) == 2
    return pair and all(
        isinstance(part, np.ndarray | jax.Array) and part.dtype.kind in "iuf" for part in source
    )


def _refuse(options: dict[str, Any], given: str) -> None:
    if options:
        raise ValueError(f"{min(options)} is an option of counting a corpus, but the source is {given}")


def _log_sum(counts: Counts, context_exponent: float) -> float:
    margins = counts.matrix.sum(axis=1)
    return float(np.logaddexp.reduce(context_exponent * np.log(margins[margins > 0])))


def _key(key: Any) -> tuple[Any, jax.Array]:
    """What is to be recorded of a key, and the key."""
    if isinstance(key, jax.Array):
        data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
        return np.asarray(data).tolist(), key
    number = validation.whole("key", key, 0)
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


def _usable(finished: list[runs.Run], restarts: int, tol: float, combine: Combine) -> list[runs.Run]:
    """The runs that the embedding is made of; says what did not go as it should."""
    statuses = [Status(int(run.solution.status)) for run in finished]
    used = [run for run, status in zip(finished, statuses, strict=True) if status != Status.NONFINITE]
    if not used:
        raise SolverError(f"all {restarts} starts: {MESSAGES[Status.NONFINITE]}")

    def of(status: Status) -> str:
        return f"{statuses.count(status)} of {restarts} starts: " if restarts > 1 else ""

    if Status.NONFINITE in statuses:
        _warn(f"{of(Status.NONFINITE)}{MESSAGES[Status.NONFINITE]}; left out")
    if Status.INTERRUPTED in statuses:
        _warn(f"{of(Status.INTERRUPTED)}{MESSAGES[Status.INTERRUPTED]}")
    elif len(finished) < restarts:
        _warn(f"interrupted; the embedding is of {len(finished)} of {restarts} starts")
    if Status.MAX_STEPS in statuses:
        last = [
            run.solution for run, status in zip(finished, statuses, strict=True) if status == Status.MAX_STEPS
        ]
        change = max(float(solution.history.change[solution.num_steps]) for solution in last)
        _warn(
            f"{of(Status.MAX_STEPS)}not converged after {int(last[0].num_steps)} steps: the relative "
            f"change of W is {change:.2g}, tol is {tol:g}; raise max_steps, or tol to be content with less"
        )
    if combine == "best":
        used = [min(used, key=lambda run: float(run.solution.objective))]
    return used


def _warn(message: str) -> None:
    warnings.warn(message, NotConvergedWarning, stacklevel=4)


def _embedding(
    learned: _Learned, used: list[runs.Run], finished: list[runs.Run], record: dict[str, Any]
) -> Embedding:
    blocks, plus = [], []
    for run in used:
        W = np.asarray(on_simplex(jnp.asarray(run.solution.W)))
        order = np.argsort(-W.sum(axis=0, dtype=np.float64), kind="stable")
        blocks.append(W[:, order])
        plus.append(run.plus[order])
    W = jnp.asarray(np.concatenate(blocks, axis=1) / np.asarray(len(blocks), blocks[0].dtype))
    counts, kept = learned.counts, learned.S.kept
    margins = word_counts = topic_coherence = None
    if counts is not None:
        margins, word_counts = counts.matrix.sum(axis=1)[kept], counts.vocabulary.counts[kept]
        _, top = first_words(W, topic_sizes(W), min(_COHERENCE_DEPTH, len(kept)))
        topic_coherence = coherence.npmi(counts.matrix, kept[top])
    return Embedding(
        words=learned.words,
        W=W,
        starts=tuple(block.shape[1] for block in blocks),
        word_counts=word_counts,
        margins=margins,
        plus=np.concatenate(plus),
        coherence=topic_coherence,
        history=_history([run.solution.history for run in finished]),
        record=record,
    )


def _history(histories: list[solver.History]) -> dict[str, np.ndarray]:
    """A row for each start, as long as the longest of them; NaN beyond the end of the others."""
    length = max(int(np.isfinite(history.objective).sum()) for history in histories)
    return {
        name: np.stack([np.asarray(getattr(history, name))[:length] for history in histories])
        for name in solver.History._fields
    }

"""Combine the solutions of several starts into one embedding."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from dcdjax.devices.layout import Layout
from dcdjax.embedding.embedding import Embedding
from dcdjax.fitting import smoothing
from dcdjax.fitting.inputs import Inputs
from dcdjax.fitting.options import Combine
from dcdjax.method.decomposition import on_simplex
from dcdjax.solvers.result import MESSAGES, History, Solution, SolverError, Status
from dcdjax.topics import merging
from dcdjax.topics.levels import Level, make_levels
from dcdjax.util.interrupts import hold_signals
from dcdjax.util.progress import Progress
from dcdjax.util.warn import warn


class NotConvergedWarning(UserWarning):
    """Warn that the solver stopped before W converged. The embedding holds what was learned until then."""


def select(finished: list[Solution], num_starts: int, tol: float, combine: Combine) -> list[Solution]:
    """Return the solutions that the embedding is made of; warn about starts that did not converge.

    Raises:
      SolverError: if a value was not finite in every start.
    """
    statuses = [Status(int(solution.status)) for solution in finished]

    def having(*wanted: Status) -> list[Solution]:
        return [one for one, status in zip(finished, statuses, strict=True) if status in wanted]

    def share(number: int) -> str:
        return f"{number} of {num_starts} starts: " if num_starts > 1 else ""

    failed, stopped = having(Status.NONFINITE), having(Status.INTERRUPTED)
    complete, unconverged = having(Status.CONVERGED, Status.MAX_STEPS), having(Status.MAX_STEPS)
    if not complete and not stopped:
        raise SolverError(f"all {num_starts} starts: {MESSAGES[Status.NONFINITE]}")
    if failed:
        _warn(f"{share(len(failed))}{MESSAGES[Status.NONFINITE]}; left out")
    if stopped and not complete:
        _warn(f"{share(len(stopped))}{MESSAGES[Status.INTERRUPTED]}")
    elif stopped or len(finished) < num_starts:
        kept = "the best of those so far" if combine == "best" else f"the {len(complete)} that had finished"
        _warn(f"interrupted after {len(complete)} of {num_starts} starts; the embedding is of {kept}")
    if unconverged:
        changes = [solution.history.change[: int(solution.num_steps) + 1] for solution in unconverged]
        # A refused last step has a change of zero.
        change = max(float(steps[steps > 0][-1]) for steps in changes)
        _warn(
            f"{share(len(unconverged))}not converged after {int(unconverged[0].num_steps)} steps: "
            f"the relative change of W is {change:.2g}, tol is {tol:g}; raise max_steps or tol"
        )
    if combine == "best":
        candidates = [one for one in complete + stopped if len(one.W)]
        return [min(candidates, key=lambda solution: float(solution.objective))]
    # A start that has hardly begun would blur what the others learned.
    return complete or stopped


def _warn(message: str) -> None:
    warn(message, NotConvergedWarning)


def factors(
    inputs: Inputs, solutions: list[Solution], layout: Layout, pseudocount: float, tell: Progress
) -> list[np.ndarray]:
    """Return W of each solution: rows on the simplex, smoothed, topics sorted by weight.

    This is all of "finishing" but its last part, `make_embedding`.
    """
    share = None
    if pseudocount and inputs.S.origin is not None:
        share = smoothing.shares(inputs.S.origin.word_counts, pseudocount).astype(layout.scale.dtype)
        share = layout.to_devices(share)
    found = []
    for number, solution in enumerate(solutions):
        tell("finishing", number, len(solutions) + 1, "parts")
        if share is None:
            W = np.asarray(on_simplex(jnp.asarray(solution.W)))
        else:
            with hold_signals():
                W = smoothing.smoothed(layout.to_devices(solution.W), layout, share)
                W = np.asarray(layout.from_devices(W))
        found.append(W[:, np.argsort(-W.sum(axis=0, dtype=np.float64), kind="stable")])
    tell("finishing", len(solutions), len(solutions) + 1, "parts")
    return found


def make_embedding(
    inputs: Inputs,
    factors: list[np.ndarray],
    combine: Combine,
    shown: tuple[int, int],
    finished: list[Solution],
    record: dict[str, Any],
) -> Embedding:
    """Make the embedding whose Shat is the mean of the Shat of all factors.

    Args:
      inputs: S and where it comes from.
      factors: W of each start.
      combine: "reduced" merges the columns of several factors to as many as the smallest factor has.
      shown: as how many topics and subtopics a consensus is shown.
      finished: the solutions, whose histories are kept.
      record: where the embedding comes from.
    """
    W = np.concatenate(factors, axis=1)
    W /= np.asarray(len(factors), W.dtype)
    starts = [factor.shape[1] for factor in factors]
    origin = inputs.S.origin
    word_counts, passages = (None, None) if origin is None else (origin.word_counts, origin.passages)
    finest = min(starts) if combine == "reduced" else shown[1]
    numbers = [W.shape[1]]
    if len(factors) > 1 and W.shape[1] <= merging.MOST_COLUMNS:
        # Some of the starts may be missing, after an interruption.
        numbers = sorted({min(number, W.shape[1]) for number in (shown[0], finest)})
    levels = make_levels(W, numbers, word_counts, passages)
    if len(factors) > 1 and combine == "reduced":
        record = {**record, "reduced_from": W.shape[1]}
        W, starts = merging.merged(W, levels[-1].groups), numbers[-1:]
        columns = np.unique(levels[-1].groups, return_index=True)[1]  # one of each group
        levels = tuple(Level(level.groups[columns], level.coherence) for level in levels)
    elif len(factors) == 1:  # the columns in the order of the topics
        W = W[:, np.argsort(levels[0].groups)]
        levels = (Level(np.arange(W.shape[1]), levels[0].coherence),)
    return Embedding(
        words=inputs.words,
        W=jnp.asarray(W),
        starts=tuple(starts),
        levels=levels,
        word_counts=word_counts,
        margins=None if origin is None else origin.margins,
        history=_stack([solution.history for solution in finished]),
        record=record,
    )


def _stack(histories: list[History]) -> dict[str, np.ndarray]:
    """Return a row for each start, as long as the longest history; NaN after the end of shorter ones."""
    length = max(int(np.isfinite(history.objective).sum()) for history in histories)
    return {
        name: np.stack([np.asarray(getattr(history, name))[:length] for history in histories])
        for name in History._fields
    }

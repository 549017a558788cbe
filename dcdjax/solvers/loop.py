"""Run any solver step by step: begin, advance, finish.

Every solver keeps its own arrays in a state, a NamedTuple that also has the three fields `status`,
`num_steps` and `history`. A solver's step returns the new state and a `Report`; the loop writes the report
into the three fields. A state is a value: a run may be advanced in any number of pieces, and gives the same
result to the bit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from dcdjax.solvers.result import History, Solution, Status


class Report(NamedTuple):
    """Describe W after a step: an entry of the history, and a Status that says whether to go on."""

    objective: Float[Array, ""]
    change: Float[Array, ""]
    residual: Float[Array, ""]
    status: Int[Array, ""]


# The state of a solver, with the three fields.
State = TypeVar("State", bound=Any)


def is_running(state: Any) -> Bool[Array, ""]:
    """Return whether a state is still running. Under `vmap`, the loop also steps restarts that are not."""
    return state.status == Status.RUNNING.value


def begin(kind: Callable[..., State], report: Report, max_steps: int, **arrays: Any) -> State:
    """Return the state before the first step.

    Args:
      kind: the solver's class of states.
      report: describes the start; NaN where nothing is known yet.
      max_steps: length of the history, without the start.
      **arrays: the solver's own fields.
    """
    empty = jnp.full(max_steps + 1, jnp.nan, report.objective.dtype)
    history = History(*(empty.at[0].set(entry) for entry in report[:3]))
    return kind(**arrays, status=report.status.astype(jnp.int32), num_steps=jnp.int32(0), history=history)


def advance(
    state: State, step: Callable[[State], tuple[State, Report]], *, until: Int[Array, ""] | int
) -> State:
    """Take steps until the state has `until` of them, W has converged or a value is not finite."""

    def running(state: State) -> Bool[Array, ""]:
        return is_running(state) & (state.num_steps < until)

    def one_step(state: State) -> State:
        stepped, report = step(state)
        t = state.num_steps + 1
        entries = zip(state.history, report[:3], strict=True)
        history = History(*(past.at[t].set(entry) for past, entry in entries))
        return stepped._replace(status=report.status.astype(jnp.int32), num_steps=t, history=history)

    return lax.while_loop(running, one_step, state)


def finish(
    state: Any, W: Float[Array, "words topics"], objective: Float[Array, ""], unit: Float[Array, ""]
) -> Solution:
    """Return the solution that a state has reached.

    Args:
      state: of the last step.
      W: of the state.
      objective: of W, for S scaled to a mean row sum of one.
      unit: the factor by which this objective and those of the history are multiplied.
    """
    status = jnp.where(is_running(state), Status.MAX_STEPS.value, state.status)
    # A stochastic solver computes the objective of its last W only now, so it may not be finite.
    status = jnp.where(jnp.isfinite(objective), status, Status.NONFINITE.value)
    return Solution(
        W=W,
        objective=unit * objective,
        status=status.astype(jnp.int32),
        num_steps=state.num_steps,
        history=state.history._replace(objective=unit * state.history.objective),
    )

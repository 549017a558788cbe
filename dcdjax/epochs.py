"""S in minibatches, and what is done after each of these, enter; epochs over them, up to a Solution, leave.

One loop for all stochastic solvers: an epoch is a `lax.scan` over the minibatches in an order drawn by a key.
As in `solver`, a state is a value: `begin`, `advance` as often as one likes, `finish`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray

from dcdjax import initialize, minibatches, sharding, solver, validation
from dcdjax.minibatches import Minibatches
from dcdjax.solver import History, Solution, Status


class State(NamedTuple):
    """A run under way. Objectives are those of the scaled S."""

    carried: Any  # of the solver, W or what W is made of among it
    key: PRNGKeyArray
    status: Int[Array, ""]
    num_epochs: Int[Array, ""]
    history: History


class Way(NamedTuple):
    """What a solver does.

    Attributes:
      visit: (carried, number of a minibatch, number of the epoch) -> (carried, what it adds to the
        objective).
      W: of what is carried.
      besides: (carried, number of the epoch) -> what the objective has besides the minibatches.
      afresh: what is carried into an epoch, of what came out of the one before.
      least: epochs before which nothing converges, as what is minimized still changes.
    """

    visit: Callable[[Any, Array, Array], tuple[Any, Array]]
    W: Callable[[Any], Array]
    besides: Callable[[Any, Array], Array]
    afresh: Callable[[Any], Any] = lambda carried: carried
    least: int = 0


def arguments(
    W: ArrayLike,
    S: Any,
    key: Any,
    *,
    num_batches: int,
    tol: ArrayLike,
    max_epochs: int,
    devices: Sequence[Any] | Mesh | None,
) -> tuple[Array, Minibatches, PRNGKeyArray, int]:
    """What was asked for, validated: W, S in minibatches, the key for their order, max_epochs."""
    start = solver.checked_start(W, "W", batched=False)
    max_epochs = validation.whole("max_epochs", max_epochs, 0)
    solver.checked_options("exact", tol, max_epochs, 1.0)
    with jax.ensure_compile_time_eval():  # a number makes a key inside of a `jit`, too
        key = initialize.checked_key(key)
    if isinstance(S, Minibatches):
        _, of_order = jax.random.split(key)
        if devices is not None:
            raise ValueError("devices: S is minibatches, drawn for their own")
        batches = S
    elif isinstance(key, Tracer):
        raise ValueError("key is traced, by which S cannot be dealt: give minibatches in place of S")
    else:
        with jax.ensure_compile_time_eval():
            of_deal, of_order = jax.random.split(key)
        batches = minibatches.draw(
            of_deal, S, num_batches, num_words=start.shape[0], dtype=start.dtype, devices=devices
        )
    if batches.num_words != start.shape[0]:
        raise ValueError(f"W has {start.shape[0]} words, but S has {batches.num_words}")
    if batches.scale.dtype != start.dtype:
        raise ValueError(f"W is {start.dtype}, but S was drawn for {batches.scale.dtype}")
    if not any(isinstance(given, Tracer) for given in (start, of_order, batches.scale)):
        start, of_order = sharding.everywhere((start, of_order), batches.devices)
    return start, batches, of_order, max_epochs


def at_home(W: Any, batches: Minibatches, run: Callable[[], Solution]) -> Solution:
    """Runs where S lies, and brings the result to where W was."""
    with sharding.instead_of_others(batches.mesh):
        solution = run()
    if isinstance(W, Tracer) or isinstance(batches.scale, Tracer):
        return solution
    return solver.brought_home(solution, W, batches.devices)


def begin(carried: Any, way: Way, key: PRNGKeyArray, max_epochs: int) -> State:
    """The state before the first epoch."""
    nothing = jnp.full(max_epochs + 1, jnp.nan, way.W(carried).dtype)
    return State(
        carried=carried,
        key=key,
        status=jnp.int32(Status.RUNNING.value),
        num_epochs=jnp.int32(0),
        history=History(objective=nothing, change=nothing, residual=nothing),
    )


def advance(
    state: State, way: Way, num_batches: int, *, until: Int[Array, ""] | int, tol: Float[Array, ""] | float
) -> State:
    """Epochs until the state has `until` of them, W has converged or a value is not finite."""

    def running(state: State) -> Bool[Array, ""]:
        return (state.status == Status.RUNNING.value) & (state.num_epochs < until)

    def epoch(state: State) -> State:
        of_next, of_order = jax.random.split(state.key)
        order = jax.random.permutation(of_order, num_batches).astype(jnp.int32)
        carried, losses = lax.scan(
            lambda carried, number: way.visit(carried, number, state.num_epochs),
            way.afresh(state.carried),
            order,
        )
        W_before, W = way.W(state.carried), way.W(carried)
        estimated = jnp.sum(losses) + way.besides(state.carried, state.num_epochs)
        change = jnp.linalg.norm(W - W_before) / jnp.linalg.norm(W_before)
        finite = jnp.isfinite(estimated) & jnp.isfinite(change)
        converged = (change <= tol) & (state.num_epochs + 1 >= way.least)
        status = jnp.where(converged, Status.CONVERGED.value, Status.RUNNING.value)
        status = jnp.where(finite, status, Status.NONFINITE.value)
        t = state.num_epochs + 1
        return State(
            carried=jax.tree.map(lambda new, old: jnp.where(finite, new, old), carried, state.carried),
            key=of_next,
            status=status.astype(jnp.int32),
            num_epochs=t,
            history=History(
                objective=state.history.objective.at[t].set(estimated),
                change=state.history.change.at[t].set(change),
                residual=state.history.residual.at[t].set(jnp.max(jnp.abs(jnp.sum(W, axis=1) - 1))),
            ),
        )

    return lax.while_loop(running, epoch, state)


def finish(
    state: State, way: Way, objective: Callable[[Array, Array], Array], unit: Float[Array, ""]
) -> Solution:
    """The solution that a state has reached.

    Args:
      state: where it is.
      way: that it went.
      objective: (W, number of the epoch) -> that of the scaled S, for which this is passed over once more.
      unit: of the objective.
    """
    W = way.W(state.carried)
    reached = objective(W, jnp.maximum(state.num_epochs - 1, 0))
    stopped = jnp.where(state.status == Status.RUNNING.value, Status.MAX_STEPS.value, state.status)
    # An epoch is judged by what it visited: only now is it seen what its end was like.
    stopped = jnp.where(jnp.isfinite(reached), stopped, Status.NONFINITE.value)
    return Solution(
        W=W,
        objective=unit * reached,
        status=stopped.astype(jnp.int32),
        num_steps=state.num_epochs,
        history=state.history._replace(objective=unit * state.history.objective),
    )

"""Run a solver over minibatches of S, in epochs.

One loop serves all stochastic solvers. A solver is a `Method`: it says what is done after each minibatch. An
epoch is a `lax.scan` over the minibatches, in an order that a key draws. The steps of `loop` are epochs here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from dcdjax.devices import sharding
from dcdjax.method.decomposition import Sweep, Weights
from dcdjax.solvers import arguments, loop, minibatches
from dcdjax.solvers.loop import Report
from dcdjax.solvers.minibatches import Minibatches
from dcdjax.solvers.result import History, Solution, Status
from dcdjax.starts import keys
from dcdjax.util import checks


class State(NamedTuple):
    """Hold a run between two epochs. Its steps are epochs; objectives are those of the scaled S."""

    carried: Any  # what the method carries from one minibatch to the next
    key: PRNGKeyArray
    status: Int[Array, ""]
    num_steps: Int[Array, ""]
    history: History


class Method(NamedTuple):
    """Define a stochastic solver.

    Attributes:
      init: W -> what is carried from one minibatch to the next.
      visit: (carried, number of a minibatch, number of the epoch) -> (carried, the minibatch's part of the
        objective).
      weights: carried -> W.
      sweep: (W, number of a minibatch) -> a pass over it.
      remainder: (W, number of the epoch) -> the part of the objective that is no sum over minibatches.
      unit: the factor from the objectives of the scaled S to those of the solution.
      num_batches: how many minibatches there are.
      min_epochs: epochs before W may converge, because the objective itself still changes.
    """

    init: Callable[[Array], Any]
    visit: Callable[[Any, Array, Array], tuple[Any, Array]]
    weights: Callable[[Any], Array]
    sweep: Callable[[Array, Array], Sweep]
    remainder: Callable[[Array, Array], Array]
    unit: Float[Array, ""]
    num_batches: int
    min_epochs: int = 0


def checked_arguments(
    W: ArrayLike,
    S: Any,
    key: Any,
    *,
    num_batches: int,
    tol: ArrayLike,
    max_epochs: int,
    devices: sharding.Devices,
) -> tuple[Array, Minibatches, PRNGKeyArray, int]:
    """Check the arguments of a stochastic solver, and return W, S in minibatches, a key and max_epochs.

    W and the key are on the devices of S. The key draws the order of the minibatches.
    """
    start = arguments.checked_start(W, "W", batched=False)
    max_epochs = checks.whole("max_epochs", max_epochs, 0)
    arguments.checked_options("exact", tol, max_epochs, 1.0)
    with jax.ensure_compile_time_eval():  # so that a number makes a key inside a `jit` too
        key = keys.checked_key(key)
    if isinstance(S, Minibatches):
        _, order_key = jax.random.split(key)
        if devices is not None:
            raise ValueError("devices: S is minibatches, which already have their own")
        batches = S
    elif isinstance(key, Tracer):
        raise ValueError("key is traced by JAX, so it cannot draw minibatches: pass minibatches instead of S")
    else:
        with jax.ensure_compile_time_eval():
            draw_key, order_key = jax.random.split(key)
        batches = minibatches.draw(
            draw_key, S, num_batches, num_words=start.shape[0], dtype=start.dtype, devices=devices
        )
    arguments.check_match("W", start, batches.stacked, made="drawn")
    if not any(isinstance(array, Tracer) for array in (start, order_key, batches.stacked.scale)):
        start, order_key = sharding.replicate((start, order_key), batches.stacked.devices)
    return start, batches, order_key, max_epochs


@partial(jax.jit, static_argnames=("make_method", "settings", "max_epochs"))
def run(
    arrays: tuple[Any, ...],
    W: Weights,
    key: PRNGKeyArray,
    tol: Float[Array, ""],
    *,
    make_method: Callable[..., Method],
    settings: tuple[Any, ...],
    max_epochs: int,
) -> Solution:
    """Begin, advance and finish with the method make_method(*arrays, *settings)."""
    method = make_method(*arrays, *settings)
    state = begin(method, W, key, max_epochs=max_epochs)
    return finish(method, advance(method, state, until=max_epochs, tol=tol))


def begin(method: Method, W: Weights, key: PRNGKeyArray, *, max_epochs: int) -> State:
    """Return the state before the first epoch. The history has no entry for the start."""
    unknown = jnp.full((), jnp.nan, W.dtype)
    report = Report(unknown, unknown, unknown, status=jnp.int32(Status.RUNNING.value))
    return loop.begin(State, report, max_epochs, carried=method.init(W), key=key)


def advance(
    method: Method, state: State, *, until: Int[Array, ""] | int, tol: Float[Array, ""] | float
) -> State:
    """Run epochs until the state has `until` of them, W has converged or a value is not finite."""

    def epoch(state: State) -> tuple[State, Report]:
        next_key, order_key = jax.random.split(state.key)
        order = jax.random.permutation(order_key, method.num_batches).astype(jnp.int32)
        carried, losses = lax.scan(
            lambda carried, number: method.visit(carried, number, state.num_steps), state.carried, order
        )
        W_before, W = method.weights(state.carried), method.weights(carried)
        # An estimate that needs no further pass: each minibatch was measured with the W that visited it.
        estimate = jnp.sum(losses) + method.remainder(W_before, state.num_steps)
        change = jnp.linalg.norm(W - W_before) / jnp.linalg.norm(W_before)
        finite = jnp.isfinite(estimate) & jnp.isfinite(change)
        converged = (change <= tol) & (state.num_steps + 1 >= method.min_epochs)
        status = jnp.where(converged, Status.CONVERGED.value, Status.RUNNING.value)
        report = Report(
            objective=estimate,
            change=change,
            residual=jnp.max(jnp.abs(jnp.sum(W, axis=1) - 1)),
            status=jnp.where(finite, status, Status.NONFINITE.value),
        )
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), carried, state.carried)
        return state._replace(carried=kept, key=next_key), report

    return loop.advance(state, epoch, until=until)


def finish(method: Method, state: State) -> Solution:
    """Return the solution that a state has reached. This takes one pass over all minibatches."""
    W = method.weights(state.carried)
    last_epoch = jnp.maximum(state.num_steps - 1, 0)
    return loop.finish(state, W, objective(method, W, last_epoch), method.unit)


def objective(method: Method, W: Weights, epoch: Int[Array, ""]) -> Float[Array, ""]:
    """Return the objective of the scaled S, in one pass over all minibatches."""

    def add(total: Array, number: Array) -> tuple[Array, None]:
        return total - method.sweep(W, number).log_likelihood, None

    numbers = jnp.arange(method.num_batches, dtype=jnp.int32)
    return lax.scan(add, method.remainder(W, epoch), numbers)[0]

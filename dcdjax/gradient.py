"""A start W and an S enter; a Solution leaves, by stochastic gradients: any optax optimizer, any divergence.

W = softmax(theta) has its rows on the simplex by construction. For d(S, Shat), with Z = -d' on the nonzeros
(for the paper's divergence S / Shat, as ever), the gradient by W_ik of what a minibatch of S adds to the sum
is

    plus_k - 2 (ZW)_ik / s_k,    plus_k = (W'ZW)_kk / s_k^2,

times the number of minibatches: on average over these that of all of S, whatever W is. s is always that of
the current W. `dcdjax.solve` is faster to the end; see experiments/stochastic for when this is faster to
begin with.
"""

import functools
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from dcdjax import decomposition, divergences, epochs, priors, sweeps
from dcdjax.divergences import Divergence, OverZeros
from dcdjax.minibatches import Minibatches
from dcdjax.priors import Prior
from dcdjax.solver import Solution

# WikiText-2, 100 topics, a random start, 16 minibatches: the objective after ten epochs is 108.6 million
# with a first rate of 0.1, 106.4 with 0.3, 106.1 with 1.0. The careful one of the last two was taken.
# Moments are short: a word sees each of its pairs once an epoch.
_RATE, _RATE_KEPT_EACH_EPOCH, _MOMENTS = 0.3, 0.8, (0.8, 0.95)


class Problem(NamedTuple):
    """What is minimized; static where JAX compiles."""

    divergence: Divergence
    zeros: OverZeros


def solve(
    W: ArrayLike,
    S: Any,
    *,
    key: Any,
    optimizer: optax.GradientTransformation | None = None,
    divergence: Divergence = divergences.kl,
    num_batches: int = 16,
    tol: ArrayLike = 1e-3,
    max_epochs: int = 20,
    concentration: ArrayLike | Sequence[float] = 1.0,
    relevance: ArrayLike = 0.0,
    devices: Sequence[Any] | Mesh | None = None,
) -> Solution:
    """Minimizes a divergence of Shat from S by stochastic gradients, from a start.

    Args:
      W: a positive start, (N, r), float32 or float64; see `initialize`.
      S: as in `dcdjax.solve`, or what `minibatches.draw` made of it. Its mean row sum is taken to be one, as
        that of Shat is: divergences other than those of the alpha family depend on the scale of S.
      key: from `jax.random.key`, or a whole number to make one of: by it S is dealt to minibatches, and these
        are drawn, each once an epoch in another order.
      optimizer: any of optax, whose schedules count minibatches. If not given, Adam with a rate of 0.3 that
        falls by a fifth each epoch.
      divergence: `divergences.kl`, `divergences.squared`, `divergences.alpha(a)`, or any function of S and
        Shat like these; see `divergences` for what it must be.
      num_batches: how many minibatches S is dealt to, unless it is such. One is the gradient itself.
      tol: stop when the relative change of W over an epoch is no more than this.
      max_epochs: stop after so many times over S.
      concentration: of the prior of each row, as in `dcdjax.solve`; of several numbers, one for each epoch.
      relevance: of topics, as in `dcdjax.solve`.
      devices: that share the work, as in `prepare`, unless S is minibatches.

    Returns:
      The solution, steps being epochs. Its objective is that of W; for the paper's divergence it is
      -sum S log Shat, as in `dcdjax.solve`, otherwise sum d(S / m, Shat) over all cells, m being the mean row
      sum; with priors, their terms are in it. In its history each minibatch is taken where it was visited: an
      estimate that costs nothing, and is late by half an epoch. Of the start there is none.

    Raises:
      ValueError: naming the argument.

    Examples:
      >>> import jax, numpy as np, scipy.sparse
      >>> from dcdjax import gradient, initialize
      >>> S = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((3, 3))))
      >>> start = initialize.uniform(jax.random.key(0), 6, 2)
      >>> solution = gradient.solve(start, S, key=0, num_batches=2)
      >>> np.unique(solution.W.argmax(axis=1)[:3]).size
      1
    """
    if not (optimizer is None or (hasattr(optimizer, "init") and hasattr(optimizer, "update"))):
        raise ValueError(f"optimizer must be one of optax, got {optimizer!r}")
    problem = Problem(divergence=divergence, zeros=divergences.over_zeros(divergence))
    start, batches, key, max_epochs = epochs.arguments(
        W, S, key, num_batches=num_batches, tol=tol, max_epochs=max_epochs, devices=devices
    )
    prior = priors.given(concentration, relevance, start.dtype)
    if optimizer is None:
        optimizer = usual_optimizer(batches.num_batches)
    return epochs.at_home(
        W,
        batches,
        lambda: _solve(
            start, batches, key, jnp.asarray(tol, start.dtype), prior,
            optimizer=optimizer, problem=problem, max_epochs=max_epochs,
        ),
    )  # fmt: skip


@partial(jax.jit, static_argnames=("optimizer", "problem", "max_epochs"))
def _solve(
    W: Array,
    batches: Minibatches,
    key: PRNGKeyArray,
    tol: Array,
    prior: Prior | None,
    *,
    optimizer: optax.GradientTransformation,
    problem: Problem,
    max_epochs: int,
) -> Solution:
    going = way(batches, prior, optimizer, problem)
    state = epochs.begin(begun(W, optimizer), going, key, max_epochs)
    state = epochs.advance(state, going, batches.num_batches, until=max_epochs, tol=tol)
    return finish(state, batches, prior, optimizer, problem)


@functools.cache  # compiled for once
def usual_optimizer(num_batches: int) -> optax.GradientTransformation:
    """Adam, its rate falling by a fifth each epoch."""
    first, second = _MOMENTS
    rate = optax.exponential_decay(_RATE, transition_steps=num_batches, decay_rate=_RATE_KEPT_EACH_EPOCH)
    return optax.adam(rate, b1=first, b2=second)


# --- The gradient -----------------------------------------------------------------------------------


def weights(theta: Float[Array, "words topics"]) -> Float[Array, "words topics"]:
    """W = softmax(theta), no entry below the floor."""
    return jnp.maximum(jax.nn.softmax(theta, axis=1), decomposition.smallest_weight(theta.dtype))


def estimate(
    theta: Float[Array, "words topics"],
    batches: Minibatches,
    number: Int[Array, ""],
    prior: Prior | None,
    epoch: Int[Array, ""],
    problem: Problem,
) -> tuple[Float[Array, "words topics"], Float[Array, ""]]:
    """The gradient by theta that one minibatch gives, and what it adds to the objective.

    Over all minibatches, the mean of the one is the gradient of the objective, the sum of the other is the
    objective but for what does not depend on S.
    """
    W = weights(theta)
    ZW, gained = _swept(W, batches, number, problem)
    s, plus = decomposition.column_sums(W, ZW)
    by_W = batches.num_batches * (plus - 2 * ZW / s)
    if problem.zeros.square:
        by_W += problem.zeros.square * jax.grad(divergences.squares)(W)
    if prior is not None:
        by_W += jax.grad(lambda W: priors.penalty(prior, epoch, W))(W)
    return W * (by_W - jnp.sum(W * by_W, axis=1, keepdims=True)), -gained


def _swept(
    W: Float[Array, "words topics"], batches: Minibatches, number: Int[Array, ""], problem: Problem
) -> decomposition.Sweep:
    layout = batches.layout(number)
    if problem.divergence is divergences.kl:
        return sweeps.sweep(W, layout)
    return sweeps.sweep(W, layout, divergences.entries(*problem))


def _besides(
    W: Float[Array, "words topics"], prior: Prior | None, epoch: Int[Array, ""], problem: Problem
) -> Float[Array, ""]:
    """What the objective has besides the sum over nonzeros."""
    rest = jnp.zeros((), W.dtype)
    if problem.divergence is not divergences.kl:
        rest += divergences.cells(problem.zeros, W)
    return rest if prior is None else rest + priors.penalty(prior, epoch, W)


def objective(
    W: Float[Array, "words topics"],
    batches: Minibatches,
    prior: Prior | None,
    epoch: Int[Array, ""],
    problem: Problem,
) -> Float[Array, ""]:
    """That of the scaled S, in one pass over all minibatches."""

    def one(so_far: Array, number: Array) -> tuple[Array, None]:
        return so_far - _swept(W, batches, number, problem).log_likelihood, None

    nothing = _besides(W, prior, epoch, problem)
    total, _ = lax.scan(one, nothing, jnp.arange(batches.num_batches, dtype=jnp.int32))
    return total


# --- The loop ---------------------------------------------------------------------------------------


def begun(W: Float[Array, "words topics"], optimizer: optax.GradientTransformation) -> tuple[Array, Any]:
    """What is carried from one minibatch to the next: theta, and what the optimizer remembers."""
    theta = jnp.log(decomposition.on_simplex(W))
    return theta, optimizer.init(theta)


def way(
    batches: Minibatches, prior: Prior | None, optimizer: optax.GradientTransformation, problem: Problem
) -> epochs.Way:
    """A step of the optimizer after each minibatch."""

    def visit(carried: Any, number: Array, epoch: Array) -> tuple[Any, Array]:
        theta, memory = carried
        by_theta, loss = estimate(theta, batches, number, prior, epoch, problem)
        # Where a user, as our tests do, lets nothing be promoted silently, optax does so all the same.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            # Some look at the objective too: if none does, it is not computed.
            value = batches.num_batches * loss + _besides(weights(theta), prior, epoch, problem)
            moves, memory = optax.with_extra_args_support(optimizer).update(
                by_theta, memory, theta, value=value
            )
            moved = optax.apply_updates(theta, moves)
        return (moved, memory), loss

    return epochs.Way(
        visit=visit,
        W=lambda carried: weights(carried[0]),
        besides=lambda carried, epoch: _besides(weights(carried[0]), prior, epoch, problem),
        least=priors.num_annealed(prior),
    )


def finish(
    state: epochs.State,
    batches: Minibatches,
    prior: Prior | None,
    optimizer: optax.GradientTransformation,
    problem: Problem,
) -> Solution:
    """See `epochs.finish`."""
    unit = batches.scale if problem.divergence is divergences.kl else jnp.ones_like(batches.scale)
    return epochs.finish(
        state,
        way(batches, prior, optimizer, problem),
        lambda W, epoch: objective(W, batches, prior, epoch, problem),
        unit,
    )

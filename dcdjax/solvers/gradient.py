"""Minimize any divergence by stochastic gradients, with any optimizer of optax.

W = softmax(theta), so its rows are on the simplex. For a divergence d(S, Shat), let Z = -d' on the nonzeros
of S (Z = S / Shat for the paper's divergence). A minibatch of S contributes to the gradient by W_ik

    plus_k - 2 (ZW)_ik / s_k,    plus_k = (W'ZW)_kk / s_k^2.

Times the number of minibatches, its mean over all minibatches is the gradient for all of S. s is always that
of the current W. `dcdjax.solve` reaches a low objective sooner; experiments/stochastic says when stochastic
gradients are ahead in the first epochs.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int

from dcdjax.devices import sharding, sweeps
from dcdjax.method import decomposition, divergences, priors
from dcdjax.method.decomposition import Sweep, Weights
from dcdjax.method.divergences import Divergence, OverZeros
from dcdjax.method.priors import Prior
from dcdjax.solvers import arguments, stochastic
from dcdjax.solvers.minibatches import Minibatches
from dcdjax.solvers.result import Solution

# WikiText-2, 100 topics, a random start, 16 minibatches: the objective after ten epochs is 108.6 million
# with a first rate of 0.1, 106.4 with 0.3, 106.1 with 1.0. We took the smaller of the last two.
# Adam's averages are short, because each pair of words is visited only once in an epoch.
_RATE, _RATE_KEPT_EACH_EPOCH, _MOMENTS = 0.3, 0.8, (0.8, 0.95)


class Problem(NamedTuple):
    """Say what is minimized. Static in a `jit`."""

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
    devices: sharding.Devices = None,
) -> Solution:
    """Minimize a divergence of Shat from S by stochastic gradients.

    Args:
      W: positive start, (N, r), float32 or float64; see `initialize`.
      S: as in `dcdjax.solve`, or minibatches from `minibatches.draw`. S is scaled to a mean row sum of one,
        like Shat: divergences outside of the alpha family depend on the scale of S.
      key: key from `jax.random.key`, or a whole number to make one. It assigns the pairs of S to minibatches,
        and draws the order of the minibatches in each epoch.
      optimizer: any optimizer of optax. Its schedules count minibatches. The default is Adam with a rate of
        0.3 that falls by a fifth each epoch.
      divergence: `divergences.kl`, `divergences.squared`, `divergences.alpha(a)`, or a function of S and Shat
        that meets the conditions in `divergences`.
      num_batches: number of minibatches, unless S is minibatches. 1 gives the exact gradient; more give more
        steps in an epoch, each with more noise.
      tol: stop when the relative change of W over an epoch is at most this.
      max_epochs: stop after this many passes over S.
      concentration: as in `dcdjax.solve`. A sequence has one entry for each epoch.
      relevance: as in `dcdjax.solve`.
      devices: devices that share the work, as in `prepare`. Minibatches have their own.

    Returns:
      The solution. Its steps are epochs. For the paper's divergence, its objective is -sum S log Shat, as in
      `dcdjax.solve`. For another divergence it is sum d(S / m, Shat) over all cells, where m is the mean row
      sum of S. Both include the terms of the priors. The history only estimates the
      objective: it measures each minibatch with the W that visited it, so it lags by half an epoch. The
      history has no entry for the start.

    Raises:
      ValueError: names the argument.

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
    start, batches, key, max_epochs = stochastic.checked_arguments(
        W, S, key, num_batches=num_batches, tol=tol, max_epochs=max_epochs, devices=devices
    )
    prior = priors.checked(concentration, relevance, start.dtype)
    if optimizer is None:
        optimizer = default_optimizer(batches.num_batches)
    with sharding.override_mesh(batches.stacked.mesh):
        solution = stochastic.run(
            (batches, prior), start, key, jnp.asarray(tol, start.dtype),
            make_method=method, settings=(optimizer, problem), max_epochs=max_epochs,
        )  # fmt: skip
    return arguments.move_to_start(solution, W, batches.stacked)


@functools.cache  # one object for each number, so that JAX compiles once
def default_optimizer(num_batches: int) -> optax.GradientTransformation:
    """Return Adam with a rate that falls by a fifth each epoch."""
    rate = optax.exponential_decay(_RATE, transition_steps=num_batches, decay_rate=_RATE_KEPT_EACH_EPOCH)
    return optax.adam(rate, *_MOMENTS)


def method(
    batches: Minibatches, prior: Prior, optimizer: optax.GradientTransformation, problem: Problem
) -> stochastic.Method:
    """Return a method that takes a step of the optimizer after each minibatch.

    Its state is theta, from which W is computed, and the state of the optimizer.
    """
    update, scale = optax.with_extra_args_support(optimizer).update, batches.stacked.scale

    def init(W: Array) -> tuple[Array, Any]:
        theta = jnp.log(decomposition.on_simplex(W))
        return theta, optimizer.init(theta)

    def remainder(W: Array, epoch: Array) -> Array:
        penalty = priors.penalty(prior, epoch, W)
        is_kl = problem.divergence is divergences.kl
        return penalty if is_kl else penalty + divergences.from_zeros(problem.zeros, W)

    def visit(carried: tuple[Array, Any], number: Array, epoch: Array) -> tuple[Any, Array]:
        theta, memory = carried
        by_theta, loss = estimate(theta, batches, number, prior, epoch, problem)
        # optax promotes dtypes and ranks, which a user's settings of JAX may forbid.
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            # Some optimizers use the objective. If this one does not, XLA leaves it out.
            value = batches.num_batches * loss + remainder(weights(theta), epoch)
            updates, memory = update(by_theta, memory, theta, value=value)
            theta = optax.apply_updates(theta, updates)
        return (theta, memory), loss

    return stochastic.Method(
        init=init,
        visit=visit,
        weights=lambda carried: weights(carried[0]),
        sweep=lambda W, number: _sweep(W, batches, number, problem),
        remainder=remainder,
        unit=scale if problem.divergence is divergences.kl else jnp.ones_like(scale),
        num_batches=batches.num_batches,
        min_epochs=priors.num_annealed(prior),
    )


def weights(theta: Weights) -> Weights:
    """Return W = softmax(theta), with no entry below the floor."""
    return jnp.maximum(jax.nn.softmax(theta, axis=1), decomposition.smallest_weight(theta.dtype))


def estimate(
    theta: Weights,
    batches: Minibatches,
    number: Int[Array, ""],
    prior: Prior,
    epoch: Int[Array, ""],
    problem: Problem,
) -> tuple[Weights, Float[Array, ""]]:
    """Estimate the gradient by theta from one minibatch.

    Returns:
      The gradient, whose mean over all minibatches is the gradient of the objective; and the minibatch's part
      of the objective. The sum of these parts is the objective without its `Method.remainder`.
    """
    W = weights(theta)
    ZW, log_likelihood = _sweep(W, batches, number, problem)
    s, plus = decomposition.column_sums(W, ZW)
    by_W = batches.num_batches * (plus - 2 * ZW / s)
    if problem.zeros.square:
        by_W += problem.zeros.square * jax.grad(divergences.sum_of_squares)(W)
    by_W += jax.grad(lambda W: priors.penalty(prior, epoch, W))(W)
    return W * (by_W - jnp.sum(W * by_W, axis=1, keepdims=True)), -log_likelihood


def _sweep(W: Weights, batches: Minibatches, number: Int[Array, ""], problem: Problem) -> Sweep:
    """Pass over one minibatch."""
    layout = batches.layout(number)
    if problem.divergence is divergences.kl:
        return sweeps.sweep(W, layout)
    return sweeps.sweep(W, layout, divergences.entries(*problem))

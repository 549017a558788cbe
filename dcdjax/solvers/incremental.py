"""Minimize the objective by an exact step after each minibatch of S.

The majorizer of the exact step needs only one sum over S,

    T_ik = sum_j S_ij q_ijk,            q_ijk = W_ik W_jk / (s_k Shat_ij),

where q_ijk is the share of topic k in a pair of words. A pass over a minibatch gives its part of T under the
current W. T is estimated by a running average of these parts, and all rows take the exact step:

    T    <- (1 - g) T + g M part        for M minibatches
    W_ik <- 2 T_ik / (plus_k + lam_i),  plus_k = sum_i T_ik / s_k

The weight g of a new part begins at 0.9 and falls as the inverse of the number of epochs: parts of an early W
are soon forgotten, and later the noise is averaged away (Cappe and Moulines, 2009). The row sums of T are
those of S, which are known, so T is scaled to them.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from dcdjax.devices import native, sharding, sweeps
from dcdjax.method import decomposition
from dcdjax.method.decomposition import Sweep, Weights
from dcdjax.solvers import arguments, stochastic
from dcdjax.solvers.minibatches import Minibatches
from dcdjax.solvers.result import Solution

# g of the first minibatch. It is below 1, so that a word that is not in the minibatch keeps its topics.
_FIRST_WEIGHT = 0.9


def solve(
    W: ArrayLike,
    S: Any,
    *,
    key: Any,
    num_batches: int = 16,
    over_relaxation: float = 1.9,
    tol: ArrayLike = 1e-3,
    max_epochs: int = 5,
    devices: sharding.Devices = None,
) -> Solution:
    """Minimize the objective of `dcdjax.solve` by exact steps after each minibatch.

    From a random start on a large S this is far ahead of `dcdjax.solve` in the first epochs. Then continue
    with `dcdjax.solve(incremental.solve(W, S, key=0).W, S)`. See experiments/stochastic.

    Args:
      W: positive start, (N, r), float32 or float64; see `initialize`.
      S: as in `dcdjax.solve`, or minibatches from `minibatches.draw`.
      key: key from `jax.random.key`, or a whole number to make one. It assigns the pairs of S to minibatches,
        and draws the order of the minibatches in each epoch.
      num_batches: number of minibatches, unless S is minibatches. More of them take more steps in an epoch,
        which costs more time, and each step knows less of S.
      over_relaxation: as in `dcdjax.solve`, but no step is refused.
      tol: stop when the relative change of W over an epoch is at most this.
      max_epochs: stop after this many passes over S.
      devices: devices that share the work, as in `prepare`. Minibatches have their own.

    Returns:
      The solution. Its steps are epochs. Its objective is that of W. The history only estimates the
      objective: it measures each minibatch with the W that visited it, so it lags by half an epoch. The
      history has no entry for the start.

    Raises:
      ValueError: names the argument.

    Examples:
      >>> import jax, numpy as np, scipy.sparse
      >>> from dcdjax import incremental, initialize
      >>> S = scipy.sparse.csr_array(np.kron(np.eye(2), np.ones((30, 30))))
      >>> start = initialize.uniform(jax.random.key(0), 60, 2)
      >>> solution = incremental.solve(start, S, key=0, num_batches=4)
      >>> np.unique(solution.W.argmax(axis=1)[:30]).size
      1
    """
    arguments.checked_options("exact", tol, 0, over_relaxation)
    start, batches, key, max_epochs = stochastic.checked_arguments(
        W, S, key, num_batches=num_batches, tol=tol, max_epochs=max_epochs, devices=devices
    )
    with sharding.override_mesh(batches.stacked.mesh):
        solution = stochastic.run(
            (batches,), start, key, jnp.asarray(tol, start.dtype),
            make_method=method, settings=(float(over_relaxation),), max_epochs=max_epochs,
        )  # fmt: skip
    return arguments.move_to_start(solution, W, batches.stacked)


def method(batches: Minibatches, over_relaxation: float) -> stochastic.Method:
    """Take an exact step after each minibatch. Carried are W, T and the number of minibatches visited."""

    def init(W: Array) -> tuple[Array, Array, Array]:
        W = decomposition.on_simplex(W)
        return (
            W,
            W * batches.degrees[:, None],
            jnp.int32(0),
        )  # as if each pair had the topics of its first word

    def sweep(W: Array, number: Array) -> Sweep:
        return sweeps.sweep(W, batches.layout(number))

    def visit(carried: tuple[Array, Array, Array], number: Array, _: Array) -> tuple[Any, Array]:
        W, T, num_visited = carried
        ZW, log_likelihood = sweep(W, number)
        part = W * (ZW / jnp.sum(W, axis=0, keepdims=True))
        g = _FIRST_WEIGHT / (1 + num_visited.astype(W.dtype) / batches.num_batches)
        T = (1 - g) * T + (g * batches.num_batches) * part
        # Keep the row sums: a rare word that is not in this minibatch then keeps its part of T.
        T = T * (batches.degrees / jnp.sum(T, axis=1))[:, None]
        return (_exact_step(W, T, batches, over_relaxation), T, num_visited + 1), -log_likelihood

    return stochastic.Method(
        init=init,
        visit=visit,
        weights=lambda carried: carried[0],
        sweep=sweep,
        remainder=lambda W, _: jnp.zeros((), W.dtype),
        unit=batches.stacked.scale,
        num_batches=batches.num_batches,
    )


def _exact_step(W: Weights, T: Weights, batches: Minibatches, over_relaxation: float) -> Weights:
    """Take the exact step by T: that of the ZW for which W * ZW / s is T."""
    s = jnp.sum(W, axis=0, keepdims=True)
    sums = decomposition.Sums(s=s, plus=jnp.sum(T, axis=0, keepdims=True) / s)
    ZW = T * (s / W)
    if (num_threads := batches.stacked.num_threads) and W.dtype == jnp.float32:
        exponent = jnp.asarray(over_relaxation, W.dtype)
        return native.exact_step(sums, W, ZW, exponent, num_threads=num_threads)

    def step_rows(sums: decomposition.Sums, W: Array, ZW: Array) -> Array:
        stepped = decomposition.exact_step(sums, W, ZW)
        return stepped if over_relaxation == 1 else decomposition.over_relax(W, stepped, over_relaxation)

    return sharding.map_replicated_rows(step_rows, batches.stacked.mesh, sums, W, ZW)

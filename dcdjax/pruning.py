"""A start W with too many topics and an S enter; a Solution with as many as S needs leaves.

The penalty of `priors` on topics, rho N sum_k log(1 + s_k / b), has to outweigh what a topic more gains by
fitting noise. Of counts that is about c nats for each word, c between 1 and 2, whatever their rate (the edge
of a random matrix's spectrum gives 2). So rho is `relevance` times the noise of S, sum (S - Shat)^2 / sum S,
which is 1 for counts as Poisson has them. Of an S that is no count of anything, such as PPMI, one has to try.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, ArrayLike, Float

from dcdjax import decomposition, divergences, solver
from dcdjax.layout import prepare
from dcdjax.similarity import Similarity, from_matrix
from dcdjax.solver import Solution

# Steps without the penalty, after which the noise is known well enough; and some, in the end, without it.
_STEPS_BEFORE, _STEPS_AFTER = 20, 30
# Words: a topic of fewer has died. Those that live have many, the dead have none to speak of.
_LEAST_WORDS = 0.5


def prune(
    W: ArrayLike,
    S: Any,
    *,
    relevance: float = 1.0,
    tol: float = 1e-5,
    max_steps: int = 5000,
    over_relaxation: float = 1.9,
) -> Solution:
    """Solves with a penalty on topics, under which those that S does not need die, and leaves these out.

    Shapes stay as they are while it solves; in the end, W has the columns that are left. What the penalty
    bent is mended by some steps without it.

    Args:
      W: a positive start, (N, r), with more topics than there should be, such as three times as many. The
        experiments are with random ones.
      S: as in `solve`, but no layout. Counts, for which the usual relevance is meant.
      relevance: how much a topic has to explain, over the noise of S. Too little leaves topics that fit
        noise, too much merges groups; of weak groups both may be so. Of small counts without any group
        it takes 2 to leave one topic. See experiments/topics. Where S has no noise at all, nothing dies;
        where pairs were counted ten thousand times, noise is overestimated, and less will do.
      tol: as in `solve`.
      max_steps: as in `solve`, with the penalty. Topics die slowly: hundreds of steps are usual, of large
        counts thousands. Cut off before it has converged, it leaves too many.
      over_relaxation: as in `solve`.

    Returns:
      The solution. Status, number of steps and history are of the steps with the penalty, whose objective
      contains it; `objective` is that of the W that is left, without it.

    Examples:
      >>> import jax, numpy as np
      >>> from dcdjax import initialize, pruning
      >>> rate = np.kron(np.eye(3), np.full((20, 20), 4.0)) + 0.2
      >>> counts = np.triu(np.random.default_rng(0).poisson(rate))
      >>> start = initialize.uniform(jax.random.key(0), 60, 9)
      >>> pruning.prune(start, counts + counts.T).W.shape[1]
      3
    """
    if not 0 < relevance < float("inf"):
        raise ValueError(f"relevance must be positive and finite, got {relevance}")
    start = solver.checked_start(W, "W", batched=False)
    similarity = S if isinstance(S, Similarity) else from_matrix(S, num_words=start.shape[0])
    layout = prepare(similarity, num_words=start.shape[0], dtype=start.dtype)
    usual: dict[str, Any] = {"tol": 0.0, "over_relaxation": over_relaxation}
    begun = solver.solve(start, layout, max_steps=_STEPS_BEFORE, **usual).W
    rho = relevance * float(noise(begun, similarity.matrix))
    solution = solver.solve(
        begun, layout, tol=tol, max_steps=max_steps, over_relaxation=over_relaxation, relevance=rho
    )
    left = alive(solution.W)
    ended = solver.solve(
        decomposition.on_simplex(solution.W[:, left]), layout, max_steps=_STEPS_AFTER, **usual
    )
    return solution._replace(W=ended.W, objective=ended.objective)


def alive(W: Float[Array, "words topics"]) -> np.ndarray:
    """Which topics have at least half a word; the largest in any case, where there are few words."""
    words = np.asarray(jnp.sum(W, axis=0))
    return np.flatnonzero(words >= min(_LEAST_WORDS, words.max()))


def noise(W: Float[Array, "words topics"], S: scipy.sparse.csr_array) -> Float[Array, ""]:
    """The sum of (S - Shat)^2 over that of S, S being over its mean row sum, m: 1 / m for Poisson counts."""
    entries = S.tocoo()
    S_idx = jnp.asarray(np.stack([entries.row, entries.col], axis=1).astype(np.int32))
    mean = float(S.sum()) / S.shape[0]
    S_val = jnp.asarray((entries.data / mean).astype(W.dtype))
    total = jax.jit(divergences.total, static_argnums=0)(divergences.squared, W, S_idx, S_val) / W.shape[0]
    # Of an S without noise it may be below zero by a rounding error.
    return jnp.maximum(total, jnp.finfo(W.dtype).eps * jnp.sum(S_val**2) / W.shape[0])

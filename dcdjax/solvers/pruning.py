"""Find how many topics S needs: start with too many, and remove those that only fit noise.

The penalty of `priors` on topics, rho N sum_k log(1 + s_k / b), has to outweigh what one more topic gains by
fitting noise. For counts the gain is about c nats for each word, with c between 1 and 2, whatever the rate of
the counts (the edge of a random matrix's spectrum gives 2). So rho is `relevance` times the noise of S,
sum (S - Shat)^2 / sum S, which is 1 for Poisson counts. If S is not made of counts, such as PPMI, try several
values of `relevance`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, ArrayLike, Float

from dcdjax.devices.preparation import checked_similarity, prepare
from dcdjax.method import decomposition, divergences
from dcdjax.method.decomposition import Weights
from dcdjax.solvers import arguments, full_batch
from dcdjax.solvers.result import Solution

# Steps without the penalty: first some to estimate the noise, and some at the end to repair W.
_STEPS_BEFORE, _STEPS_AFTER = 20, 30
# A topic with fewer words than this has died. Living topics have many words, dead ones nearly none.
_MIN_WORDS = 0.5


def prune(
    W: ArrayLike,
    S: Any,
    *,
    relevance: float = 1.0,
    tol: float = 1e-5,
    max_steps: int = 5000,
    over_relaxation: float = 1.9,
) -> Solution:
    """Solve with a penalty that empties the topics that S does not need, and drop these topics.

    Shapes stay constant while it solves. At the end W has only the columns of living topics, and a few steps
    without the penalty repair the bias that the penalty caused.

    Args:
      W: positive start, (N, r), with too many topics, such as three times as many as expected. The
        experiments use random starts.
      S: as in `solve`, but not a layout. The default relevance is for counts.
      relevance: how much a topic must explain, in units of the noise of S; 1 is usual. A smaller value leaves
        topics that fit noise. A larger value merges groups. If groups are weak, no value may avoid both.
        Small counts without any groups need 2 to leave one topic. If S has no noise, no topic is dropped. If
        pairs were counted ten thousand times, the noise is overestimated, and less than 1 is enough. See
        experiments/topics.
      tol: as in `solve`.
      max_steps: as in `solve`, for the steps with the penalty. Topics die slowly: hundreds of steps are
        usual, and thousands for large counts. Too few steps leave too many topics.
      over_relaxation: as in `solve`.

    Returns:
      The solution. Its status, number of steps and history are those of the steps with the penalty, and the
      history's objective includes the penalty. `objective` is that of the returned W, without the penalty.

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
    start = arguments.checked_start(W, "W", batched=False)
    similarity = checked_similarity(S, start.shape[0])
    layout = prepare(similarity, num_words=start.shape[0], dtype=start.dtype)

    def solve(W: Array, **options: Any) -> Solution:
        return full_batch.solve(W, layout, over_relaxation=over_relaxation, **options)

    before = solve(start, tol=0.0, max_steps=_STEPS_BEFORE)
    rho = relevance * float(noise(before.W, similarity.matrix))
    penalized = solve(before.W, tol=tol, max_steps=max_steps, relevance=rho)
    living = decomposition.on_simplex(penalized.W[:, alive(penalized.W)])
    repaired = solve(living, tol=0.0, max_steps=_STEPS_AFTER)
    return penalized._replace(W=repaired.W, objective=repaired.objective)


def alive(W: Weights) -> np.ndarray:
    """Return the topics that have at least half a word; with very few words, at least the largest topic."""
    words = np.asarray(jnp.sum(W, axis=0))
    return np.flatnonzero(words >= min(_MIN_WORDS, words.max()))


def noise(W: Weights, S: scipy.sparse.csr_array) -> Float[Array, ""]:
    """Return sum (S - Shat)^2 / sum S for S over its mean row sum m. For Poisson counts it is 1 / m."""
    entries = S.tocoo()
    S_idx = jnp.asarray(np.stack([entries.row, entries.col], axis=1).astype(np.int32))
    mean = float(S.sum()) / S.shape[0]
    S_val = jnp.asarray((entries.data / mean).astype(W.dtype))
    total = jax.jit(divergences.total, static_argnums=0)(divergences.squared, W, S_idx, S_val) / W.shape[0]
    # If S has no noise, rounding errors may make it negative.
    return jnp.maximum(total, jnp.finfo(W.dtype).eps * jnp.sum(S_val**2) / W.shape[0])

"""Define the whole method: approximate S by Shat(W), and improve W step by step. Read this file first.

There are N words and r topics. S is a symmetric, nonnegative, sparse N x N matrix, stored as pairs: nonzero n
is S_val[n], in row S_idx[n, 0] and column S_idx[n, 1]. Both triangles are stored.

    W_ik     = P(topic k | word i) > 0       what is learned; each row sums to one ("on the simplex")
    s_k      = sum_v W_vk                    how many words topic k holds
    Shat_ij  = sum_k W_ik W_jk / s_k         P(word j | word i); its rows and columns sum to one
    Z_ij     = S_ij / Shat_ij                on the nonzeros of S only

The steps minimize the objective -sum_ij S_ij log Shat_ij. Its gradient by W_ik is plus_k - minus_ik, with

    minus_ik = 2 (ZW)_ik / s_k
    plus_k   = (W'ZW)_kk / s_k^2

A step has three parts, and the file follows them:

    ZW, log_likelihood = sweep(W, S_idx, S_val)     one pass over the nonzeros of S
    sums = column_sums(W, ZW)                       s and plus, which all words share
    W = relaxed_step(sums, W, ZW)                   the paper's step, or the exact step

Only `sweep` reads S. Everything else takes O(N r) operations.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from dcdjax.method.row_root import row_root

# The rows of W that a chunk gathers should stay in a core's cache. Among sizes from 0.4 to 6.5 MB, 2 MB was
# one of the fastest for r = 50 and r = 200; 26 MB took twice the time.
CHUNK_BYTES = 2**21


Weights = Float[Array, "words topics"]
Indices = Int[Array, "nonzeros 2"]
Values = Float[Array, " nonzeros"]
# Maps (S, Shat) of some nonzeros to (Z, the terms that a sweep adds up).
Entries = Callable[[Array, Array], tuple[Array, Array]]


class Sweep(NamedTuple):
    """Hold the result of one pass over the nonzeros of S."""

    ZW: Weights
    log_likelihood: Float[Array, ""]  # sum_ij S_ij log Shat_ij


class Sums(NamedTuple):
    """Hold the sums over all words that a step needs. Given these, the rows of W are independent."""

    s: Float[Array, "1 topics"]  # s_k = sum_i W_ik
    plus: Float[Array, "1 topics"]  # plus_k = sum_i W_ik (ZW)_ik / s_k^2


def smallest_weight(dtype: DTypeLike) -> float:
    """Return the smallest value that entries of W may take.

    An entry that is zero stays zero forever, and XLA flushes subnormal numbers to zero. The floor is eps^2,
    the square of the rounding error: it does not change the sum of a row, and its own square does not
    underflow. In float16 eps^2 is too small, so the floor is the smallest normal number.
    """
    information = jnp.finfo(dtype)
    return max(float(information.eps) ** 2, float(information.tiny))


def likelihood(S: Array, Shat: Array) -> tuple[Array, Array]:
    """Return Z = S / Shat and the terms S log Shat, for the paper's divergence."""
    return S / Shat, S * jnp.log(Shat)


def sweep(W: Weights, S_idx: Indices, S_val: Values, entries: Entries = likelihood) -> Sweep:
    """Pass over the nonzeros of S once, and compute ZW and sum_ij S_ij log Shat_ij.

    The pass works in chunks of nonzeros, because all gathered rows of W at once would take nnz x r numbers.

    Args:
      W: positive, (N, r).
      S_idx: rows and columns of the nonzeros, in any order.
      S_val: values of the nonzeros. A zero contributes nothing.
      entries: maps S and Shat to Z and the terms to add up. Other divergences than the paper's have their
        own.

    Returns:
      ZW and the log-likelihood, in the dtype of W.
    """
    num_words, num_topics = W.shape
    num_nonzeros = S_val.shape[0]
    chunk = min(num_nonzeros, max(1, CHUNK_BYTES // (num_topics * W.dtype.itemsize)))
    W_over_s = W / jnp.sum(W, axis=0, keepdims=True)
    S_val = S_val.astype(W.dtype)

    def one_chunk(ZW: Array, first: Array) -> tuple[Array, Array]:
        # The last chunk starts earlier so as to be full, and sets to zero what the chunk before has already
        # counted. This is cheaper than a padded copy of S.
        start = jnp.minimum(first, num_nonzeros - chunk)
        i, j = lax.dynamic_slice_in_dim(S_idx, start, chunk).T
        S = lax.dynamic_slice_in_dim(S_val, start, chunk)
        S = jnp.where(start + jnp.arange(chunk, dtype=start.dtype) >= first, S, 0)

        W_j = W[j]
        Shat = jnp.sum(W_over_s[i] * W_j, axis=1)
        Z, terms = entries(S, Shat)
        ZW += jax.ops.segment_sum(Z[:, None] * W_j, i, num_segments=num_words)
        return ZW, jnp.sum(terms)

    chunks = jnp.arange(0, num_nonzeros, chunk, dtype=jnp.int32)
    # `checkpoint`: a gradient's backward pass gathers the rows again, and does not keep them all.
    ZW, log_likelihoods = lax.scan(jax.checkpoint(one_chunk), jnp.zeros_like(W), chunks)
    return Sweep(ZW=ZW, log_likelihood=jnp.sum(log_likelihoods))


def column_sums(W: Weights, ZW: Weights) -> Sums:
    """Return s_k = sum_i W_ik and plus_k = sum_i W_ik (ZW)_ik / s_k^2."""
    s = jnp.sum(W, axis=0, keepdims=True)
    # Divide each factor by s first: for a topic that no word holds, the product and s^2 would underflow.
    plus = jnp.sum((W / s) * (ZW / s), axis=0, keepdims=True)
    return Sums(s=s, plus=plus)


# --- The paper's step -------------------------------------------------------------------------------


def relaxed_step(sums: Sums, W: Weights, ZW: Weights) -> Weights:
    """Take the paper's step. The rows drift to the simplex over many steps.

    W_ik <- W_ik (minus_ik a_i + 1) / (plus_k a_i + b_i)
    """
    plus, minus = sums.plus, 2 * ZW / sums.s
    a, b = _row_sums(W, plus, minus)
    W = W * (minus * a + 1) / (plus * a + b)
    return jnp.maximum(W, smallest_weight(W.dtype))


def _row_sums(
    W: Weights, plus: Float[Array, "1 topics"], minus: Weights
) -> tuple[Float[Array, "words 1"], Float[Array, "words 1"]]:
    """Return a_i = sum_l W_il / plus_l and b_i = sum_l W_il minus_il / plus_l."""
    a = jnp.sum(W / plus, axis=1, keepdims=True)
    b = jnp.sum(W * minus / plus, axis=1, keepdims=True)
    return a, b


# --- The exact step ---------------------------------------------------------------------------------


def exact_step(sums: Sums, W: Weights, ZW: Weights) -> Weights:
    """Minimize the paper's majorizer exactly on the simplex.

        W_ik <- A_ik / (plus_k + lam_i),   A_ik = W_ik minus_ik

    The multiplier lam_i is the only root of sum_k A_ik / (plus_k + lam_i) = 1 for which all denominators are
    positive. The rows stay on the simplex, and the objective itself never rises. (The paper's step guarantees
    this for the Lagrangian only.)
    """
    return minimize_on_simplex(W * (2 * ZW / sums.s), sums.plus)


def minimize_on_simplex(A: Weights, plus: Float[Array, "#words topics"]) -> Weights:
    """Return A_ik / (plus_k + lam_i), with the lam_i that puts row i on the simplex."""
    # Solve for x_i = lam_i + min_k plus_k > 0: the sum plus_k + lam_i may lose all its digits.
    poles = plus - jnp.min(plus, axis=1, keepdims=True)
    return on_simplex(A / (poles + row_root(A, poles)))


# --- After a step -----------------------------------------------------------------------------------


def on_simplex(W: Float[Array, "*batch words topics"]) -> Float[Array, "*batch words topics"]:
    """Scale the rows to sum to one, and raise entries to the floor."""
    return jnp.maximum(W / jnp.sum(W, axis=-1, keepdims=True), smallest_weight(W.dtype))


def over_relax(W: Weights, W_step: Weights, eta: float) -> Weights:
    """Go further in the direction of a step: W (W_step / W)^eta, with rows on the simplex.

    Values of eta between 1 and 2 need fewer steps. Nothing proves that the objective falls, so `solve` looks
    at it in the next sweep, and refuses the step if it rose.
    """
    # exp and log take a third of the time of a power.
    return on_simplex(W * jnp.exp(eta * jnp.log(W_step / W)))


def normalize(S_val: Values, num_words: int) -> tuple[Values, Float[Array, ""]]:
    """Divide S by its mean row sum, and return both.

    No step depends on the scale of S, but float32 does: counts of 1e+20 or 1e-20 would leave its range when
    they are multiplied by W or divided by Shat. Once normalized, S has the same sum as Shat.
    """
    largest = jnp.maximum(jnp.max(S_val), jnp.finfo(S_val.dtype).tiny)
    S_val = S_val / largest
    mean = jnp.sum(S_val) / num_words
    # Without the barrier, XLA would join this division with that by Shat, and the divisor would underflow.
    return lax.optimization_barrier(S_val / mean), largest * mean


# --- The public functions ---------------------------------------------------------------------------


@jax.jit
def update(W: Weights, S_idx: Indices, S_val: Values) -> Weights:
    """Take one step of the paper's algorithm, the rule of its Theorem 1.

        W_ik <- W_ik (minus_ik a_i + 1) / (plus_k a_i + b_i)

    Args:
      W: positive, (N, r).
      S_idx: rows and columns of the nonzeros, int32 (nnz, 2), both triangles.
      S_val: values of the nonzeros, (nnz,).

    Returns:
      The next W, of the same shape and dtype.

    Examples:
      >>> import jax.numpy as jnp
      >>> from dcdjax import update
      >>> S_idx = jnp.array([[0, 1], [1, 0], [2, 2]])
      >>> W = update(jnp.array([[0.6, 0.4], [0.7, 0.3], [0.2, 0.8]]), S_idx, jnp.ones(3))
      >>> bool((W[:2, 0] > 0.7).all() and W[2, 1] > 0.8)
      True
    """
    check_shapes(W, S_idx, S_val)
    W = jnp.maximum(W, smallest_weight(W.dtype))
    S_val, _ = normalize(S_val.astype(W.dtype), W.shape[0])
    ZW = sweep(W, S_idx, S_val).ZW
    return relaxed_step(column_sums(W, ZW), W, ZW)


@jax.jit
def multipliers(W: Weights, S_idx: Indices, S_val: Values) -> Float[Array, " words"]:
    """Return the Lagrangian multipliers of the current W, lam_i = (b_i - 1) / a_i.

    Args:
      W: positive, (N, r).
      S_idx: as in `update`.
      S_val: as in `update`.

    Returns:
      lam, (N,), for `lagrangian`.
    """
    check_shapes(W, S_idx, S_val)
    S_val, scale = normalize(S_val.astype(W.dtype), W.shape[0])
    ZW = sweep(W, S_idx, S_val).ZW
    s, plus = column_sums(W, ZW)
    a, b = _row_sums(W, plus, 2 * ZW / s)
    return scale * jnp.squeeze((b - 1) / a, axis=1)


@jax.jit
def objective(W: Weights, S_idx: Indices, S_val: Values) -> Float[Array, ""]:
    """Return -sum_ij S_ij log Shat_ij, which the steps minimize.

    For rows on the simplex it differs from `divergence` by a constant only.

    Args:
      W: positive, (N, r).
      S_idx: as in `update`.
      S_val: as in `update`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from dcdjax import objective
      >>> S_idx = jnp.array([[0, 1], [1, 0]])
      >>> W = jnp.full((2, 1), 1.0)  # one topic: Shat is 1 / 2 for each pair
      >>> round(float(objective(W, S_idx, jnp.ones(2))), 4)  # 2 log 2
      1.3863
    """
    check_shapes(W, S_idx, S_val)
    return -sweep(W, S_idx, S_val).log_likelihood


@jax.jit
def lagrangian(W: Weights, lam: Float[Array, " words"], S_idx: Indices, S_val: Values) -> Float[Array, ""]:
    """Return L(W, lam) = -sum_ij S_ij log Shat_ij + sum_i lam_i (sum_k W_ik - 1).

    Theorem 1: `update` never raises L if lam = `multipliers` of the W before the step, and *the same lam* is
    used before and after. The theorem does not hold if lam is renewed after the step. Nor does it hold with
    the full divergence as the first sum: the paper's gradient leaves out sum Shat = sum W, which is constant
    only on the simplex.

    Args:
      W: positive, (N, r).
      lam: a multiplier for each word, (N,).
      S_idx: as in `update`.
      S_val: as in `update`.
    """
    if lam.shape != W.shape[:1]:
        raise ValueError(f"lam must be ({W.shape[0]},), a number for each word, got shape {lam.shape}")
    return objective(W, S_idx, S_val) + jnp.sum(lam.astype(W.dtype) * (jnp.sum(W, axis=1) - 1))


@jax.jit
def divergence(W: Weights, S_idx: Indices, S_val: Values) -> Float[Array, ""]:
    """Return the paper's D(S || Shat) = sum_ij (S_ij log(S_ij / Shat_ij) - S_ij + Shat_ij).

    The sum is over all N x N cells, including the zeros of S.

    Args:
      W: positive, (N, r).
      S_idx: as in `update`.
      S_val: as in `update`.
    """
    check_shapes(W, S_idx, S_val)
    S_val = S_val.astype(W.dtype)
    S_log_S = jnp.sum(jax.scipy.special.xlogy(S_val, S_val))
    # The last sum is that of Shat.
    return S_log_S + objective(W, S_idx, S_val) - jnp.sum(S_val) + jnp.sum(W)


def check_shapes(W: Array, S_idx: Array, S_val: Array) -> None:
    """Raise ValueError if a shape or dtype is wrong. Values are checked by `similarity.from_matrix`."""
    if W.ndim != 2 or min(W.shape) < 1:
        raise ValueError(f"W must be (words, topics) with at least one of each, got shape {W.shape}")
    if not jnp.issubdtype(W.dtype, jnp.floating):
        raise ValueError(f"W must be floating point, got {W.dtype}")
    if S_idx.ndim != 2 or S_idx.shape[1] != 2 or not jnp.issubdtype(S_idx.dtype, jnp.integer):
        raise ValueError(f"S_idx must be integers (nonzeros, 2), got {S_idx.dtype} {S_idx.shape}")
    if S_val.shape != S_idx.shape[:1]:
        raise ValueError(f"S_val must be ({S_idx.shape[0]},) to match S_idx, got shape {S_val.shape}")
    if S_val.shape[0] == 0:
        raise ValueError("S_val is empty: S has no nonzero")

"""A positive W and the nonzeros of S enter; a better W, and the numbers that prove it better, leave.

The method of the paper in one file. N words, r topics; S is symmetric, nonnegative, sparse:
nonzero n of S stands in row S_idx[n, 0], column S_idx[n, 1] and is S_val[n], both triangles stored.

    W_ik    = P(topic k | word i) > 0             rows on the simplex
    s_k     = sum_v W_vk                          how many words a topic holds
    Shat_ij = sum_k W_ik W_jk / s_k               = P(word j | word i), doubly stochastic
    Z_ij    = S_ij / Shat_ij                      on the nonzeros of S only
    minus_ik = 2 (ZW)_ik / s_k                    the two nonnegative parts of the gradient
    plus_k   = (W'ZW)_kk / s_k^2                  of the objective: plus - minus

`sweep` is the only function here that passes over the nonzeros. Everything else is built from its
result in O(N r), so that a solver passes over S once a step.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

# The gathered rows of W of one chunk should stay in a core's cache: of the sizes from 0.4 to 6.5 MB
# tried, 2 MB was among the fastest for r = 50 and r = 200, and 26 MB took twice its time.
_CHUNK_BYTES = 2**21

# The row root needs up to 5 iterations on rows as they occur and 7 on the worst that were constructed
# (experiments/row_root); the loop ends as soon as the last row is there.
_MAX_ROOT_ITERATIONS = 16


class Sweep(NamedTuple):
    """What one pass over the nonzeros yields."""

    ZW: Float[Array, "words topics"]
    log_likelihood: Float[Array, ""]  # sum_ij S_ij log Shat_ij


class Sums(NamedTuple):
    """What a step needs to know of all words; with it, each row of W takes its step for itself."""

    s: Float[Array, "1 topics"]
    plus: Float[Array, "1 topics"]


def smallest_weight(dtype: DTypeLike) -> float:
    """The floor under the entries of W.

    A zero never leaves zero, and XLA flushes subnormal numbers to it. The square of the rounding
    error is too small to be seen in a row's sum, and its own square is still far from underflow.
    (In float16 it is not: there the smallest normal number has to do.)
    """
    information = jnp.finfo(dtype)
    return max(float(information.eps) ** 2, float(information.tiny))


def sweep(
    W: Float[Array, "words topics"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Sweep:
    """One pass over the nonzeros of S, in chunks: (ZW, sum S log Shat).

    Args:
      W: positive, (N, r).
      S_idx: rows and columns of the nonzeros, in any order.
      S_val: their values; a zero contributes nothing.

    Returns:
      The product ZW and the log-likelihood, in the dtype of W.
    """
    num_words, num_topics = W.shape
    num_nonzeros = S_val.shape[0]
    chunk = min(num_nonzeros, max(1, _CHUNK_BYTES // (num_topics * W.dtype.itemsize)))
    W_over_s = W / jnp.sum(W, axis=0, keepdims=True)
    S_val = S_val.astype(W.dtype)

    def one_chunk(ZW: Array, first: Array) -> tuple[Array, Array]:
        # The last chunk starts earlier to be full, and leaves out what it has in common with the
        # one before: cheaper than a padded copy of S.
        start = jnp.minimum(first, num_nonzeros - chunk)
        i, j = lax.dynamic_slice_in_dim(S_idx, start, chunk).T
        S = lax.dynamic_slice_in_dim(S_val, start, chunk)
        S = jnp.where(start + jnp.arange(chunk, dtype=start.dtype) >= first, S, 0)

        W_j = W[j]
        Shat = jnp.sum(W_over_s[i] * W_j, axis=1)
        Z = S / Shat
        ZW += jax.ops.segment_sum(Z[:, None] * W_j, i, num_segments=num_words)
        return ZW, jnp.sum(S * jnp.log(Shat))

    chunks = jnp.arange(0, num_nonzeros, chunk, dtype=jnp.int32)
    # Recomputed in a gradient's backward pass, which would else keep all gathered rows.
    ZW, log_likelihoods = lax.scan(jax.checkpoint(one_chunk), jnp.zeros_like(W), chunks)
    return Sweep(ZW=ZW, log_likelihood=jnp.sum(log_likelihoods))


def column_sums(W: Float[Array, "words topics"], ZW: Float[Array, "words topics"]) -> Sums:
    """s, and the part of the gradient that is the same for all words: plus = diag(W'ZW) / s^2."""
    s = jnp.sum(W, axis=0, keepdims=True)
    # Each factor by s before they meet: of a topic that nobody holds the product, and s^2, would underflow.
    plus = jnp.sum((W / s) * (ZW / s), axis=0, keepdims=True)
    return Sums(s=s, plus=plus)


# --- The paper's step -------------------------------------------------------------------------------


def relaxed_step(
    sums: Sums, W: Float[Array, "words topics"], ZW: Float[Array, "words topics"]
) -> Float[Array, "words topics"]:
    """The paper's ultimate rule: W <- W (minus a + 1) / (plus a + b), rows drifting to the simplex."""
    plus, minus = sums.plus, 2 * ZW / sums.s
    a, b = _row_sums(W, plus, minus)
    W = W * (minus * a + 1) / (plus * a + b)
    return jnp.maximum(W, smallest_weight(W.dtype))


def _row_sums(
    W: Float[Array, "words topics"],
    plus: Float[Array, "1 topics"],
    minus: Float[Array, "words topics"],
) -> tuple[Float[Array, "words 1"], Float[Array, "words 1"]]:
    """a_i = sum_l W_il / plus_l and b_i = sum_l W_il minus_il / plus_l."""
    a = jnp.sum(W / plus, axis=1, keepdims=True)
    b = jnp.sum(W * minus / plus, axis=1, keepdims=True)
    return a, b


# --- The exact step ---------------------------------------------------------------------------------


def exact_step(
    sums: Sums, W: Float[Array, "words topics"], ZW: Float[Array, "words topics"]
) -> Float[Array, "words topics"]:
    """The minimum of the paper's majorizer on the simplex itself.

    W_ik <- A_ik / (plus_k + lam_i), A = W * minus, where lam_i is the one root of
    sum_k A_ik / (plus_k + lam_i) = 1 with all denominators positive. The rows stay on the simplex,
    and the objective itself, not only the Lagrangian, never rises.
    """
    A = W * (2 * ZW / sums.s)
    # lam_i + min_k plus_k > 0 is the unknown, because lam_i itself may cancel plus_k to its last digit.
    poles = sums.plus - jnp.min(sums.plus, axis=1, keepdims=True)
    return on_simplex(A / (poles + row_root(A, poles)))


def row_root(
    A: Float[Array, "words topics"], poles: Float[Array, "#words topics"]
) -> Float[Array, "words 1"]:
    """The x_i > 0 with sum_k A_ik / (poles_k + x_i) = 1, for every row at once.

    Starts below the root, at max_k (A_ik - poles_k), and climbs to it without passing it.

    Args:
      A: positive.
      poles: nonnegative, the smallest of a row zero; the same for all rows, or for each its own.

    Returns:
      The roots. Convergence is quadratic, so the loop ends when every row's sum was within the
      *square root* of the rounding error of one before its last improvement.
    """
    close = math.sqrt(jnp.finfo(A.dtype).eps)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, error, iteration = carry
        return (iteration < _MAX_ROOT_ITERATIONS) & jnp.any(error > close)

    def climb(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, _, iteration = carry
        row_sum, closer = _climb(A, poles, x)
        return jnp.maximum(x, closer), jnp.abs(row_sum - 1), iteration + 1

    start = jnp.max(A - poles, axis=1, keepdims=True)
    start = jnp.maximum(start, jnp.finfo(A.dtype).tiny)
    x, _, _ = lax.while_loop(unfinished, climb, (start, jnp.full_like(start, jnp.inf), jnp.int32(0)))
    return x


def _climb(
    A: Float[Array, "words topics"], poles: Float[Array, "#words topics"], x: Float[Array, "words 1"]
) -> tuple[Float[Array, "words 1"], Float[Array, "words 1"]]:
    """The row sums at x, and a point between x and the root.

    For any group G of topics, psi(x) = sum_G A_k / (poles_k + x) has a concave reciprocal, so the
    tangent at x bounds it: psi(y) >= beta / (u + y - x), with u = -psi / psi' and beta = psi u.
    Newton's method takes all topics as one group, and only doubles x while a topic of weight near zero
    holds the smallest pole. Two groups, the poles up to x and those beyond, make each iteration a
    quadratic equation, and do not crawl there.
    """
    tiny = jnp.finfo(A.dtype).tiny
    terms = A / (poles + x)
    # Times x: XLA makes A / (poles + x)^2 of a second division, and that square underflows.
    slopes = terms * (x / (poles + x))
    near = poles <= x
    # All four sums in one reduction: XLA makes one loop of it, five times as fast as four on the CPU.
    psi_near, slope_near, psi_far, slope_far = (
        jnp.expand_dims(total, axis=1)
        for total in lax.reduce(
            tuple(jnp.where(group, part, 0) for group in (near, ~near) for part in (terms, slopes)),
            (jnp.zeros((), A.dtype),) * 4,
            lambda left, right: tuple(a + b for a, b in zip(left, right, strict=True)),
            dimensions=(1,),
        )
    )
    u_near = x * (psi_near / jnp.maximum(slope_near, tiny))
    u_far = x * (psi_far / jnp.maximum(slope_far, tiny))
    beta_near, beta_far = psi_near * u_near, psi_far * u_far

    # beta_near / v + beta_far / (v + gap) = 1, for v = u_near + y - x: the positive root of
    # v^2 - p v - beta_near gap = 0, in the form that does not cancel.
    gap = jnp.maximum(u_far - u_near, 0)
    p = beta_near + beta_far - gap
    root = jnp.hypot(p, 2 * jnp.sqrt(beta_near) * jnp.sqrt(gap))
    v = jnp.where(p >= 0, (p + root) / 2, beta_near * (2 * gap / jnp.maximum(root - p, tiny)))
    return psi_near + psi_far, x + (v - u_near)


# --- Around a step ----------------------------------------------------------------------------------


def on_simplex(W: Float[Array, "*batch words topics"]) -> Float[Array, "*batch words topics"]:
    """Rows scaled to sum to one, no entry below the floor."""
    return jnp.maximum(W / jnp.sum(W, axis=-1, keepdims=True), smallest_weight(W.dtype))


def over_relax(
    W: Float[Array, "words topics"], W_step: Float[Array, "words topics"], eta: float
) -> Float[Array, "words topics"]:
    """Further along the way of a step: W (W_step / W)^eta, rows on the simplex.

    Faster for 1 < eta < 2, but nothing proves that the objective falls: `solve` sees it in the next
    sweep, and goes back where it rose.
    """
    # Not as a power: that takes three times as long.
    return on_simplex(W * jnp.exp(eta * jnp.log(W_step / W)))


def normalize(
    S_val: Float[Array, " nonzeros"], num_words: int
) -> tuple[Float[Array, " nonzeros"], Float[Array, ""]]:
    """S over its mean row sum, and that mean.

    No step depends on the scale of S, but float32 does: counts of 1e+20 or 1e-20 would leave its range
    when multiplied by W or divided by Shat. So normalized, S has the sum of Shat.
    """
    largest = jnp.maximum(jnp.max(S_val), jnp.finfo(S_val.dtype).tiny)
    S_val = S_val / largest
    mean = jnp.sum(S_val) / num_words
    # XLA would make one division of this one and that by Shat, and its divisor would underflow.
    return lax.optimization_barrier(S_val / mean), largest * mean


# --- The public functions ---------------------------------------------------------------------------


@jax.jit
def update(
    W: Float[Array, "words topics"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Float[Array, "words topics"]:
    """One step of the paper's algorithm.

    W_ik <- W_ik (minus_ik a_i + 1) / (plus_k a_i + b_i), the rule that Theorem 1 is about.

    Args:
      W: positive, (N, r).
      S_idx: int32 (nnz, 2), both triangles.
      S_val: (nnz,).

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
def multipliers(
    W: Float[Array, "words topics"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Float[Array, " words"]:
    """The Lagrangian multipliers of the current W, lam_i = (b_i - 1) / a_i."""
    check_shapes(W, S_idx, S_val)
    S_val, scale = normalize(S_val.astype(W.dtype), W.shape[0])
    ZW = sweep(W, S_idx, S_val).ZW
    s, plus = column_sums(W, ZW)
    a, b = _row_sums(W, plus, 2 * ZW / s)
    return scale * jnp.squeeze((b - 1) / a, axis=1)


@jax.jit
def objective(
    W: Float[Array, "words topics"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Float[Array, ""]:
    """-sum_ij S_ij log Shat_ij, what the steps minimize: D(S || Shat) but for constants on the simplex."""
    check_shapes(W, S_idx, S_val)
    return -sweep(W, S_idx, S_val).log_likelihood


@jax.jit
def lagrangian(
    W: Float[Array, "words topics"],
    lam: Float[Array, " words"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Float[Array, ""]:
    """L(W, lam) = -sum_ij S_ij log Shat_ij + sum_i lam_i (sum_k W_ik - 1).

    Theorem 1: `update` never raises it, for the lam = `multipliers` of the W before the step, *the same
    lam on both sides*. It does not hold with lam renewed after the step, nor with the full divergence
    in place of the first sum: the paper's gradient leaves out sum Shat = sum W, which is constant only
    on the simplex.
    """
    if lam.shape != W.shape[:1]:
        raise ValueError(f"lam must be ({W.shape[0]},), a number for each word, got shape {lam.shape}")
    return objective(W, S_idx, S_val) + jnp.sum(lam.astype(W.dtype) * (jnp.sum(W, axis=1) - 1))


@jax.jit
def divergence(
    W: Float[Array, "words topics"],
    S_idx: Int[Array, "nonzeros 2"],
    S_val: Float[Array, " nonzeros"],
) -> Float[Array, ""]:
    """The paper's D(S || Shat) = sum_ij (S_ij log(S_ij / Shat_ij) - S_ij + Shat_ij), zeros of S included."""
    check_shapes(W, S_idx, S_val)
    S_val = S_val.astype(W.dtype)
    S_log_S = jnp.sum(jax.scipy.special.xlogy(S_val, S_val))
    sum_Shat = jnp.sum(W)
    return S_log_S + objective(W, S_idx, S_val) - jnp.sum(S_val) + sum_Shat


def check_shapes(W: Array, S_idx: Array, S_val: Array) -> None:
    """Refuses what has the wrong shape or kind, naming it. Values are `similarity.from_matrix`'s to check."""
    if W.ndim != 2 or min(W.shape) < 1:
        raise ValueError(f"W must be (words, topics) with at least one of each, got shape {W.shape}")
    if not jnp.issubdtype(W.dtype, jnp.floating):
        raise ValueError(f"W must be floating point, got {W.dtype}")
    if S_idx.ndim != 2 or S_idx.shape[1] != 2 or not jnp.issubdtype(S_idx.dtype, jnp.integer):
        raise ValueError(f"S_idx must be integers (nonzeros, 2), got {S_idx.dtype} {S_idx.shape}")
    if S_val.shape != S_idx.shape[:1]:
        raise ValueError(f"S_val must be ({S_idx.shape[0]},) as S_idx has it, got shape {S_val.shape}")
    if S_val.shape[0] == 0:
        raise ValueError("S_val is empty: S has no nonzero")

"""The paper in float64 NumPy, dense and slow, equation by equation. Imports nothing of the package."""

import numpy as np


def shat(W):
    return W @ np.diag(1 / W.sum(0)) @ W.T


def ratio(W, S):
    return np.where(S > 0, S / np.where(S > 0, shat(W), 1.0), 0.0)


def gradient_parts(W, S):
    """(plus, minus), both (N, r), as the paper writes them."""
    Z, s = ratio(W, S), W.sum(0)
    plus = np.tile(np.diag(W.T @ Z @ W) / s**2, (len(W), 1))
    return plus, 2 * (Z @ W) / s


def a_and_b(W, S):
    plus, minus = gradient_parts(W, S)
    return (W / plus).sum(1), (W * minus / plus).sum(1)


def multipliers(W, S):
    a, b = a_and_b(W, S)
    return (b - 1) / a


def update(W, S):
    plus, minus = gradient_parts(W, S)
    a, b = (column[:, None] for column in a_and_b(W, S))
    return W * (minus * a + 1) / (plus * a + b)


def objective(W, S):
    on = S > 0
    return -(S[on] * np.log(shat(W)[on])).sum()


def divergence(W, S):
    """Term by term over all N x N cells, with 0 log 0 = 0."""
    Shat = shat(W)
    on = S > 0
    terms = Shat - S
    terms[on] += S[on] * np.log(S[on] / Shat[on])
    return terms.sum()


def lagrangian(W, lam, S):
    return objective(W, S) + (lam * (W.sum(1) - 1)).sum()


def full_lagrangian(W, lam, S):
    """With the paper's D(S || Shat) in full: not the one that Theorem 1 is true of."""
    return divergence(W, S) + (lam * (W.sum(1) - 1)).sum()


def row_root(A, poles):
    """The x > 0 with sum_k A_k / (poles_k + x) = 1, by bisection of log x, row by row."""
    low, high = np.log(np.maximum(A.min(1), 1e-290)) - 1.0, np.log(A.sum(1)) + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        too_low = (A / (poles + np.exp(middle)[:, None])).sum(1) > 1
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    return np.exp(low)


def exact_step(W, S):
    plus, minus = gradient_parts(W, S)
    A = W * minus
    lam = row_root(A, plus - plus.min()) - plus.min()
    return A / (plus + lam[:, None])


# --- Other divergences ------------------------------------------------------------------------------


def softmax(theta):
    W = np.exp(theta - theta.max(1, keepdims=True))
    return W / W.sum(1, keepdims=True)


def kl(S, Shat):
    return alpha(1)(S, Shat)


def alpha(a):
    """The family as it is written, with its limit at 1."""

    def terms(S, Shat):
        if a == 1:
            return np.where(S > 0, S * np.log(np.where(S > 0, S, 1) / Shat), 0) - S + Shat
        return (S**a * Shat ** (1 - a) - a * S + (a - 1) * Shat) / (a * (a - 1))

    return terms


def squared(S, Shat):
    return (S - Shat) ** 2


def total(terms, W, S):
    """Over all N x N cells."""
    return terms(S, shat(W)).sum()


def penalty(W, concentration, relevance):
    """That of the priors, for an S with a mean row sum of one."""
    rows = -(concentration - 1) / W.shape[1] * np.log(W).sum()
    return rows + relevance * len(W) * np.log(1 + W.sum(0) / 0.3).sum()


def finite_differences(f, x, step=1e-5):
    """The gradient of f, a number, at x."""
    gradient = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[at] = step
        gradient[at] = (f(x + nudge) - f(x - nudge)) / (2 * step)
    return gradient

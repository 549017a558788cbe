"""A divergence of one's own is one small function; all are compared over all N x N cells with the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse
from jax import lax
from jax.scipy.special import xlogy
from problems import full_pair, pair, random_S, random_W

from dcdjax import divergence
from dcdjax.method import divergences, priors
from dcdjax.method.divergences import OverZeros, alpha, kl, over_zeros, squared, total
from dcdjax.solvers import gradient, minibatches

NUM_WORDS, NUM_TOPICS, NUM_BATCHES = 12, 3, 4


def chi_squared(S, Shat):
    """A user's own: Pearson's chi^2, Shat over the zeros."""
    return (S - Shat) ** 2 / Shat


def damped(S, Shat):
    """A user's own, square over the zeros."""
    return (S - Shat) ** 2 / (S + 2)


def mixed(S, Shat):
    """A user's own, linear and square over the zeros."""
    return kl(S, Shat) + 0.3 * squared(S, Shat)


def jensen_shannon(S, Shat):
    """A user's own: Shat log 2 over the zeros."""
    return xlogy(S, 2 * S / (S + Shat)) + xlogy(Shat, 2 * Shat / (S + Shat))


def jensen_shannon_oracle(S, Shat):
    middle = (S + Shat) / 2
    return oracle.kl(S, middle) + oracle.kl(Shat, middle)


# The divergence, the same in NumPy, and d(0, t) = b t + c t^2.
CASES = {
    "kl": (kl, oracle.kl, (1, 0)),
    "hellinger": (alpha(0.5), lambda S, Shat: 2 * (np.sqrt(S) - np.sqrt(Shat)) ** 2, (2, 0)),
    "alpha 1.7": (alpha(1.7), oracle.alpha(1.7), (1 / 1.7, 0)),
    "squared": (squared, oracle.squared, (0, 1)),
    "chi squared": (chi_squared, lambda S, Shat: 2 * oracle.alpha(2)(S, Shat), (1, 0)),
    "damped": (damped, lambda S, Shat: (S - Shat) ** 2 / (S + 2), (0, 0.5)),
    "mixed": (mixed, lambda S, Shat: oracle.kl(S, Shat) + 0.3 * oracle.squared(S, Shat), (1, 0.3)),
    "jensen-shannon": (jensen_shannon, jensen_shannon_oracle, (np.log(2), 0)),
}
each_case = pytest.mark.parametrize("name", CASES)


def problem(seed=0):
    rng = np.random.default_rng(seed)
    S = random_S(rng, NUM_WORDS)
    return random_W(rng, NUM_WORDS, NUM_TOPICS), S / S.sum() * NUM_WORDS


def mean_gradient(divergence, theta, S):
    """What the minibatches of S give on average."""
    batches = minibatches.draw(
        jax.random.key(0), scipy.sparse.csr_array(S), NUM_BATCHES, dtype=np.asarray(theta).dtype
    )
    of = gradient.Problem(divergence=divergence, zeros=over_zeros(divergence))

    @jax.jit
    def all_of_them(theta, batches):
        numbers = jnp.arange(NUM_BATCHES, dtype=jnp.int32)
        return lax.map(
            lambda n: gradient.estimate(theta, batches, n, priors.NO_PRIOR, jnp.int32(0), of)[0], numbers
        ).mean(0)

    return all_of_them(jnp.asarray(theta), batches)


@pytest.fixture(params=[False, True])
def x64(request):
    """Without float64, as users have it, and with it."""
    jax.config.update("jax_enable_x64", request.param)
    yield request.param
    jax.config.update("jax_enable_x64", True)


# --- Values and gradients ---------------------------------------------------------------------------


@each_case
def test_the_total_is_over_all_cells(name):
    d, terms, _ = CASES[name]
    W, S = problem()
    assert (S == 0).sum() > NUM_WORDS  # zeros count
    got = total(d, jnp.asarray(W), *pair(S))
    np.testing.assert_allclose(got, oracle.total(terms, W, S), rtol=1e-10)
    stored = total(d, jnp.asarray(W), *full_pair(S))  # zeros that are stored are zeros
    np.testing.assert_allclose(stored, got, rtol=1e-10)


@pytest.mark.slow
def test_the_total_off_the_simplex_and_in_float32():
    W, S = problem()
    for d, terms, _ in CASES.values():
        for factor in (0.1, 3.0):
            got = total(d, jnp.asarray(factor * W, np.float32), *pair(S))  # S_val follows W
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, oracle.total(terms, factor * W, S), rtol=1e-5)


@each_case
def test_gradients_are_those_of_the_dense_formula(name):
    d, terms, _ = CASES[name]
    W, S = problem()
    theta = np.log(W) + 0.7  # the same W
    got = mean_gradient(d, theta, S)

    def dense(theta):
        W = jax.nn.softmax(theta, axis=1)
        Shat = (W / W.sum(axis=0, keepdims=True)) @ W.T
        return jnp.sum(d(jnp.asarray(S), Shat))

    if name != "jensen-shannon":  # whose derivative at S = 0 autodiff does not see; the package never asks
        np.testing.assert_allclose(got, jax.grad(dense)(jnp.asarray(theta)), rtol=1e-8, atol=1e-10)
    expected = oracle.finite_differences(lambda theta: oracle.total(terms, oracle.softmax(theta), S), theta)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-7)


@each_case
def test_zero_where_S_is_Shat(name):
    d, _, _ = CASES[name]
    W, other = problem()[0], problem(1)[0]
    S = oracle.shat(W)
    assert abs(float(total(d, jnp.asarray(W), *pair(S)))) < 1e-12
    assert float(total(d, jnp.asarray(other), *pair(S))) > 1e-2
    if name in ("hellinger", "squared", "mixed"):  # a kernel to compile for each
        np.testing.assert_allclose(mean_gradient(d, np.log(W), S), 0, atol=1e-12)


def test_the_total_is_differentiable_by_W():
    W, S = problem()
    got = jax.grad(lambda W: total(mixed, W, *pair(S)))(jnp.asarray(W))
    expected = oracle.finite_differences(lambda W: oracle.total(CASES["mixed"][1], W, S), W, step=1e-6)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_squares_by_the_gram_matrix():
    W, _ = problem()
    np.testing.assert_allclose(
        divergences.sum_of_squares(jnp.asarray(W)), (oracle.shat(W) ** 2).sum(), rtol=1e-12
    )
    dying = np.hstack([W, np.full((NUM_WORDS, 1), 1e-30)]).astype(np.float32)  # 1e-30 squared is zero
    got = divergences.sum_of_squares(jnp.asarray(dying))
    np.testing.assert_allclose(got, (oracle.shat(dying.astype(np.float64)) ** 2).sum(), rtol=1e-5)


# --- The alpha family -------------------------------------------------------------------------------


def test_the_total_of_kl_is_the_divergence():
    W, S = problem()
    expected = divergence(jnp.asarray(W), *pair(S))
    np.testing.assert_allclose(total(kl, jnp.asarray(W), *pair(S)), expected, rtol=1e-12)
    assert alpha(1.0) is kl


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "off", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-7, pytest.param(1e-12, marks=pytest.mark.slow)]
)
def test_near_one_it_is_near_kl(off, dtype):
    rng = np.random.default_rng(0)
    S, Shat = (jnp.asarray(np.exp(3 * rng.normal(size=200)).astype(dtype)) for _ in range(2))
    for order in (1 - off, 1 + off):
        got, expected = alpha(order)(S, Shat), kl(S, Shat)
        assert got.dtype == dtype
        # kl itself is rounded where its terms cancel.
        rounding = 8 * np.finfo(dtype).eps * np.abs(np.asarray(S) * np.log(S) + Shat).max()
        np.testing.assert_allclose(got, expected, rtol=30 * off, atol=rounding)
        slopes = [jax.vmap(jax.grad(d, argnums=1))(S, Shat) for d in (alpha(order), kl)]
        tolerance = 30 * off + 30 * np.finfo(dtype).eps
        np.testing.assert_allclose(*slopes, rtol=tolerance, atol=tolerance * float(np.max(S / Shat)))


def test_plain_numbers():
    assert float(alpha(0.5)(4.0, 1.0)) == 2
    assert float(alpha(2.0)(4.0, 1.0)) == 4.5
    assert float(alpha(0.5)(0.0, 1.5)) == 3
    assert float(squared(4.0, 1.0)) == 9
    np.testing.assert_allclose(kl(4.0, 1.0), 4 * np.log(4) - 3)


def test_one_function_for_each_order():
    """Whatever kind of number the order is, and it takes on the dtype of S."""
    assert alpha(0.5) is alpha(np.float64(0.5))
    one = jnp.ones(2, np.float32)
    assert alpha(np.float64(0.37))(one, one).dtype == np.float32


@pytest.mark.parametrize("order", [0.0, -0.5, float("nan"), float("inf")])
def test_orders_with_infinite_terms_are_refused(order):
    with pytest.raises(ValueError, match=f"alpha must be positive and finite, got {order}"):
        alpha(order)


# --- What is known of the zeros ---------------------------------------------------------------------


@each_case
def test_terms_over_zeros(name, x64):
    d, _, expected = CASES[name]
    got = over_zeros(d)
    np.testing.assert_allclose(got, expected, rtol=1e-10 if x64 else 1e-5)


@pytest.mark.parametrize("order", [0.1, 0.9, 1.1, 3.0])
def test_rounding_is_not_taken_for_another_function(x64, order):
    def as_written(S, Shat):
        return (S**order * Shat ** (1 - order) - order * S + (order - 1) * Shat) / (order * (order - 1))

    for d in (alpha(order), as_written):
        np.testing.assert_allclose(over_zeros(d), (1 / order, 0), rtol=1e-5, atol=1e-7)
    for small in (1e-7, 1e-3):
        got = over_zeros(lambda S, Shat, small=small: small * kl(S, Shat) + 0.7 * squared(S, Shat))
        np.testing.assert_allclose(got, (small, 0.7), rtol=1e-5)
        got = over_zeros(lambda S, Shat, small=small: 0.7 * kl(S, Shat) + small * squared(S, Shat))
        np.testing.assert_allclose(got, (0.7, small), rtol=1e-5, atol=1e-7)


REFUSED = {
    "reverse kl": (lambda S, Shat: kl(Shat, S), "is inf at t = .*zeros of S have no sum$"),
    "itakura-saito": (lambda S, Shat: S / Shat - jnp.log(S / Shat) - 1, r"d\(0, t\) is inf"),
    "0 log 0": (lambda S, Shat: S * jnp.log(S / Shat) - S + Shat, r"d\(0, t\) is nan at t = .*xlogy"),
    "power": (lambda S, Shat: jnp.abs(S - Shat) ** 1.5, r"must be b t \+ c t\^2"),
    "cube": (lambda S, Shat: jnp.abs(S - Shat) ** 3, r"must be b t \+ c t\^2"),
    "bounded": (lambda S, Shat: 1 - jnp.exp(-jnp.abs(S - Shat)), r"must be b t \+ c t\^2"),
    "constant": (lambda S, Shat: jnp.where(Shat == S, 0, 1 + Shat), r"must be b t \+ c t\^2"),
    "huber": (
        lambda S, Shat: jnp.where(jnp.abs(S - Shat) < 1, (S - Shat) ** 2, 2 * jnp.abs(S - Shat) - 1),
        r"must be b t \+ c t\^2",
    ),
    "log-likelihood": (lambda S, Shat: Shat - xlogy(S, Shat), r"d\(x, x\) must be zero, but is 1.4"),
    "a sum": (lambda S, Shat: jnp.sum((S - Shat) ** 2), r"must be elementwise, but of .* makes \(\)"),
    "a name": ("kl", "divergence must be a function of S and Shat, got 'kl'"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("unchecked_annotations")
def test_what_cannot_be_summed_over_zeros_is_refused(name, x64):
    d, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        over_zeros(d)
    W, S = problem()
    with pytest.raises(ValueError, match=message):
        total(d, jnp.asarray(W), *pair(S))
    with pytest.raises(ValueError, match=message):
        gradient.solve(W, scipy.sparse.csr_array(S), key=0, divergence=d)


def test_terms_are_known_while_something_is_traced():
    W, S = problem()
    S_idx, S_val = pair(S)
    got = jax.jit(lambda W, val: total(mixed, W, S_idx, val))(jnp.asarray(W), S_val)
    np.testing.assert_allclose(got, oracle.total(CASES["mixed"][1], W, S), rtol=1e-10)
    assert over_zeros(squared) == OverZeros(linear=0, square=1)

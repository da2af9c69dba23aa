"""The posterior of the weights, against dense formulas and brute force."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from known_equations import make_equation
from numpy.testing import assert_allclose
from sklearn.linear_model import BayesianRidge, Ridge

from keql.equation import averaged
from keql.equation._basis import WeightPosterior, regression_posterior
from keql.kernels import Polynomial, Restriction

RNG = np.random.RandomState(0)
FEATURES = RNG.normal(size=(40, 5)) * [1.0, 3.0, 0.2, 1.0, 0.5]
FEATURES[:, 3] += 2 * FEATURES[:, 0]  # correlated
TRUE = np.array([1.0, 0.0, -2.0, 0.5, 0.0])
NOISE = 0.1
TARGET = FEATURES @ TRUE + NOISE * RNG.normal(size=40)
WEIGHTS = Ridge(alpha=NOISE**2, fit_intercept=False).fit(FEATURES, TARGET).coef_
POSTERIOR = regression_posterior(FEATURES, TARGET, NOISE, WEIGHTS)
PRECISION = np.eye(5) + FEATURES.T @ FEATURES / NOISE**2


def loss(weights):
    """The objective of the regression."""
    residual = FEATURES @ weights - TARGET
    return 0.5 * (weights @ weights + residual @ residual / NOISE**2)


def best(columns):
    """The minimiser of the objective with all but some weights zero."""
    fit = Ridge(alpha=NOISE**2, fit_intercept=False)
    weights = np.zeros(5)
    weights[list(columns)] = fit.fit(FEATURES[:, list(columns)], TARGET).coef_
    return weights


def test_regression_posterior():
    L = POSTERIOR.factor
    assert_allclose(L @ L.T, PRECISION, rtol=1e-10)
    assert_allclose(np.triu(L, 1), 0, atol=1e-12)
    assert POSTERIOR.loss == pytest.approx(loss(WEIGHTS), rel=1e-12)
    # The same as scikit-learn's, with the precisions held fixed.
    fit = BayesianRidge(
        alpha_init=NOISE**-2,
        lambda_init=1.0,
        max_iter=1,
        fit_intercept=False,
        alpha_1=1e12,
        alpha_2=1e12 * NOISE**2,
        lambda_1=1e12,
        lambda_2=1e12,
    ).fit(FEATURES, TARGET)
    assert_allclose(
        POSTERIOR.std(FEATURES) ** 2,
        np.einsum("ni,ij,nj->n", FEATURES, fit.sigma_, FEATURES),
        rtol=1e-6,
    )


def test_exact_data():
    weights = np.linalg.lstsq(FEATURES, FEATURES @ TRUE, rcond=None)[0]
    exact = regression_posterior(FEATURES, FEATURES @ TRUE, 0.0, weights)
    assert np.all(np.isfinite(exact.factor)) and np.all(exact.std(np.eye(5)) < 1e-6)
    assert set(exact.eliminate()[2].kept) == {0, 2, 3}


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_transform(rows):
    A = np.random.RandomState(1).normal(size=(rows, 5))
    changed = POSTERIOR.transform(A)
    covariance = A @ np.linalg.inv(PRECISION) @ A.T
    assert_allclose(changed.weights, A @ WEIGHTS, rtol=1e-12)
    assert_allclose(changed.factor, np.tril(changed.factor), atol=1e-14)
    assert_allclose(
        changed.factor @ changed.factor.T @ covariance, np.eye(rows), atol=1e-6
    )
    assert_allclose(POSTERIOR.std(A), np.sqrt(np.diag(covariance)), rtol=1e-9)


def test_transform_refuses_dependent_terms():
    A = np.vstack([np.eye(5), np.ones(5)])
    with pytest.raises(ValueError, match="not independent"):
        POSTERIOR.transform(A)
    with pytest.raises(ValueError, match="not independent"):
        POSTERIOR.transform(np.ones((2, 5)) * [[1.0], [2.0]])


@pytest.mark.parametrize("kept", [(0,), (1, 3), (0, 2, 3), (0, 1, 2, 3, 4)])
def test_restrict(kept):
    part = POSTERIOR.restrict(kept)
    expected = best(kept)
    assert_allclose(part.weights, expected[list(kept)], rtol=1e-9)
    assert part.loss == pytest.approx(loss(expected), rel=1e-9)
    block = PRECISION[np.ix_(kept, kept)]
    assert_allclose(part.factor @ part.factor.T, block, rtol=1e-9)


def test_elimination_takes_the_cheapest_term_each_time():
    steps = POSTERIOR.eliminate()
    assert [len(step.kept) for step in steps] == [5, 4, 3, 2, 1]
    assert set(steps[2].kept) == {0, 2, 3}
    for before, after in pairwise(steps):
        candidates = combinations(before.kept, len(before.kept) - 1)
        cheapest = min(candidates, key=lambda kept: loss(best(kept)))
        assert set(after.kept) == set(cheapest)
    for step in steps:
        expected = best(step.kept)
        assert step.loss == pytest.approx(loss(expected), rel=1e-8)
        assert_allclose(step.weights, expected[list(step.kept)], rtol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_elimination_of_correlated_terms(seed):
    rng = np.random.RandomState(seed)
    A = rng.normal(size=(30, 5)) @ rng.normal(size=(5, 5))
    b = rng.normal(size=30)
    precision = A.T @ A + 0.1 * np.eye(5)
    weights = np.linalg.solve(precision, A.T @ b)
    posterior = WeightPosterior(weights, np.linalg.cholesky(precision), 0.0)
    for before, after in pairwise(posterior.eliminate()):
        rises = {}
        for kept in combinations(before.kept, len(before.kept) - 1):
            block = precision[np.ix_(kept, kept)]
            gain = A[:, kept].T @ b
            rises[kept] = 0.5 * (b @ A @ weights - gain @ np.linalg.solve(block, gain))
        assert after.kept == min(rises, key=rises.get)
        assert after.loss == pytest.approx(rises[after.kept], rel=1e-6)


def test_a_part_of_weights_that_nothing_tells_apart_has_their_covariance():
    """Those of one of several equations, of which data tell the sum of two only."""
    n, far = 4, 1e7
    factor = np.eye(n)
    factor[0, 0], factor[1] = far, [far, 1e-6, 0, 0]  # w_0 + w_1 is known, to 1e-7
    posterior = WeightPosterior(np.arange(1.0, n + 1), factor, 0.0)
    own = posterior.part(0, 2)
    assert_allclose(own.weights, [1.0, 2.0])
    assert_allclose(own.std(np.eye(2)), [1e6, 1e6], rtol=0.02)


def test_elimination_does_not_depend_on_units():
    units = np.diag(10.0 ** np.array([-8, 5, 0, -3, 6]))
    scaled = POSTERIOR.transform(units).eliminate()
    for step, other in zip(POSTERIOR.eliminate(), scaled, strict=True):
        assert step.kept == other.kept
        assert step.loss == pytest.approx(other.loss, rel=1e-8)


@pytest.mark.parametrize("n_kept", [1, 2, 3])
def test_no_exchange_is_left_that_lowers_the_loss(n_kept):
    for start in combinations(range(5), n_kept):
        kept = POSTERIOR.swap_terms(list(start))
        assert len(kept) == n_kept
        lowest = loss(best(kept))
        assert lowest <= loss(best(start)) * (1 + 1e-9)
        for out in kept:
            for other in set(range(5)) - set(kept):
                assert lowest <= loss(best([*set(kept) - {out}, other])) * (1 + 1e-9)


def test_a_term_comes_back_for_its_stand_ins():
    """Two columns that sum up to a third, nearly: one by one, the third goes first."""
    rng = np.random.RandomState(0)
    A = rng.normal(size=(60, 3))
    A[:, 2] = A[:, 0] + A[:, 1] + 0.1 * A[:, 2]
    b = A[:, 2] + 0.2 * rng.normal(size=60)
    precision = A.T @ A / 0.2**2
    weights = np.linalg.solve(precision, A.T @ b / 0.2**2)
    posterior = WeightPosterior(weights, np.linalg.cholesky(precision), 0.0)
    assert posterior.swap_terms([0]) == [2]
    cheapest = posterior.without_cheapest([0, 1, 2])[0]
    assert cheapest == pytest.approx(posterior.eliminate()[1].loss)


def test_zero_data():
    posterior = regression_posterior(FEATURES, np.zeros(40), 0.0, np.zeros(5))
    assert isinstance(posterior, WeightPosterior)
    assert np.all(np.isfinite(posterior.factor))


def test_averaging_over_others_adds_what_they_differ_by():
    others, shares = WEIGHTS + np.eye(5)[:2] * [[3.0], [0.1]], np.array([0.3, 0.5])
    found = POSTERIOR.averaged_over(others, shares)
    covariance = np.linalg.inv(PRECISION)
    covariance[0, 0] += 0.3 * 3.0**2
    covariance[1, 1] += 0.5 * 0.1**2
    assert_allclose(found.factor @ found.factor.T, np.linalg.inv(covariance), rtol=1e-8)
    assert_allclose(np.triu(found.factor, 1), 0, atol=1e-12)
    assert found.weights is POSTERIOR.weights and found.loss == POSTERIOR.loss
    same = POSTERIOR.averaged_over(others, np.zeros(2))
    assert_allclose(same.std(np.eye(5)), POSTERIOR.std(np.eye(5)))


@pytest.mark.parametrize("unit", [1.0, 1e6, 1e-6])
def test_averaging_over_coefficients_whose_units_differ(unit):
    """Of u in a unit, and its speed in the square of it, with the same weights."""
    kernel = Polynomial(3, [1 / unit, unit**-2], 0.0, active_dims=(1, 2))
    kernel = Restriction(kernel, [(0, 0, 0), (0, 1, 0), (0, 2, 1)])
    weights, others = np.array([1.0, 0.5, -2.0]), np.array([[1.0, 0.7, -1.5]])
    equation, other = (
        make_equation(("u", "u_t"), "u_tt", kernel, own, variables=("t",))
        for own in (weights, others[0])
    )
    equation.posterior = WeightPosterior(weights, np.eye(3), 0.0)
    values = {f"u_tt: {name}": value for name, value in other.terms().items()}
    found = averaged(equation, [values], [0.3], "u_tt: ").posterior
    expected = equation.posterior.averaged_over(others, [0.3])
    assert_allclose(found.factor, expected.factor, rtol=1e-12)

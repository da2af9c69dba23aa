"""Likelihoods of a few hyperparameters, minimised with their information."""

import numpy as np
import pytest

from keql._numerics.scoring import minimise_by_scoring


def likelihood_of_variances(theta):
    """Minus that of noise of two sizes, 50 values of squares 4 and 0.25, by logarithms.

    With its gradient, and the information that is expected.
    """
    ratios = np.array([4.0, 0.25]) / np.exp(2 * theta)
    value = 25 * np.sum(ratios + 2 * theta)
    return value, 50 * (1 - ratios), 100 * np.eye(2)


@pytest.mark.parametrize("start", [[0.0, 0.0], [3.0, -4.0], [-2.0, 2.0]])
def test_scoring_finds_the_likeliest_levels(start):
    bounds = np.array([[-5.0, 5.0]] * 2)
    found, value = minimise_by_scoring(
        likelihood_of_variances, np.array(start), bounds, precision=1e-12
    )
    assert np.allclose(found, np.log([2.0, 0.5]), atol=1e-5)
    assert np.isclose(value, likelihood_of_variances(found)[0])


def test_scoring_stays_within_bounds_and_moves_the_others():
    bounds = np.array([[-5.0, 0.3], [-5.0, 5.0]])
    start, calls = np.array([0.0, 2.0]), []

    def objective(theta):
        calls.append(theta)
        return likelihood_of_variances(theta)

    found, _ = minimise_by_scoring(objective, start, bounds, precision=1e-12)
    assert np.allclose(found, [0.3, np.log(0.5)], atol=1e-5)
    assert all(np.all((t >= bounds[:, 0]) & (t <= bounds[:, 1])) for t in calls)
    assert np.max(np.abs(np.diff(calls, axis=0))) <= 4.0 and len(calls) < 20


def test_scoring_with_hyperparameters_that_have_no_effect():
    """Those stay where they are, and the others are found."""

    def objective(theta):
        value, gradient, information = likelihood_of_variances(theta[:2])
        return value, np.r_[gradient, 0.0], np.pad(information, ((0, 1), (0, 1)))

    bounds = np.array([[-5.0, 5.0]] * 3)
    found, _ = minimise_by_scoring(objective, np.zeros(3), bounds, precision=1e-12)
    assert np.allclose(found, [*np.log([2.0, 0.5]), 0.0], atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_scoring_finds_the_minimum_within_bounds_of_a_quadratic(seed):
    """No gradient stays that could be followed, whatever bounds a full step crosses."""
    rng = np.random.RandomState(seed)
    A, centre = rng.randn(4, 4) * np.exp(rng.randn(4)), 3 * rng.randn(4)
    bounds = np.sort(2 * rng.randn(4, 2), axis=1)
    start, information = rng.uniform(*bounds.T), A @ A.T

    def objective(theta):
        gradient = information @ (theta - centre)
        return 0.5 * (theta - centre) @ gradient, gradient, information

    found, value = minimise_by_scoring(objective, start, bounds, precision=1e-12)
    gradient = objective(found)[1] / np.sqrt(max(1, value) * np.diag(information))
    at_lower, at_upper = np.isclose(found, bounds.T, atol=1e-12)
    assert np.all(gradient[at_lower] >= 0) and np.all(gradient[at_upper] <= 0)
    assert np.allclose(gradient[~at_lower & ~at_upper], 0.0, atol=1e-4)


@pytest.mark.parametrize("factor", [0.1, 0.55, 1.0, 3.0])
def test_scoring_finds_curvature_that_the_information_does_not_have(factor):
    """In one direction, which no multiple of the whole information has."""
    rng, calls = np.random.RandomState(0), []
    A = rng.randn(3, 3)
    curvature = A @ A.T + np.eye(3)
    directions = np.linalg.eigh(curvature)[1]
    told = curvature + (factor - 1) * np.outer(*2 * [curvature @ directions[:, 2]]) / (
        directions[:, 2] @ curvature @ directions[:, 2]
    )
    centre = np.array([1.0, -2.0, 0.5])

    def objective(theta):
        calls.append(theta)
        gradient = curvature @ (theta - centre)
        return 0.5 * (theta - centre) @ gradient, gradient, told

    bounds = np.array([[-5.0, 5.0]] * 3)
    found, _ = minimise_by_scoring(objective, np.zeros(3), bounds, 4.0, 1e-12)
    assert np.allclose(found, centre, atol=1e-5)
    assert len(calls) < 40  # without secants up to 70


@pytest.mark.parametrize("rate", [5.0, 10.0, 20.0])
def test_scoring_meets_a_wall(rate):
    """The value rises exponentially beyond the minimum, as of kernels too smooth."""
    calls = []

    def objective(theta):
        calls.append(theta)
        wall = np.exp(rate * (theta[0] - 1.0))
        value, gradient, information = likelihood_of_variances(theta[1:])
        gradient = np.r_[rate * wall - 30.0, gradient]
        return (
            value + wall - 30 * theta[0],
            gradient,
            np.pad(information, (1, 0)) + (10.0 * np.eye(3)),
        )

    bounds = np.array([[-5.0, 5.0]] * 3)
    found, _ = minimise_by_scoring(objective, np.zeros(3), bounds, precision=1e-12)
    least = 1.0 + np.log(30.0 / rate) / rate
    assert np.allclose(found, [least, *np.log([2.0, 0.5])], atol=1e-4)
    assert len(calls) < 60

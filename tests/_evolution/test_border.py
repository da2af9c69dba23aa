"""The regression on the border, against conditioning of Gaussian vectors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats

from keql._evolution.boundary_values import BorderRegression, border_kernels
from keql._observations.data import FunctionData
from keql.kernels import Constant, Matern

P, C = 2, 30
BORDER = np.column_stack([np.linspace(0, 1, C), np.linspace(3, 1, C) ** 2])
KERNEL = Constant(2.0) * Matern([0.4, 2.0], nu=1.5)


def observed(counts=(12, 9), noise=0.01, seed=0):
    """Maps and observations of functions whose weights and border values are drawn."""
    rng = np.random.RandomState(seed)
    root = np.linalg.cholesky(KERNEL(BORDER) + 1e-12 * np.eye(C))
    weights = rng.normal(size=P)
    maps, functions = [], []
    for n in counts:
        A = rng.normal(size=(n, 1 + P + C)) / C**0.5
        values = A @ np.r_[1, weights, root @ rng.normal(size=C)]
        precisions = rng.uniform(0.5, 2, n)
        values += noise * rng.normal(size=n) / precisions**0.5
        maps.append(A)
        functions.append(FunctionData(rng.uniform(size=(n, 2)), values, precisions))
    return maps, functions


def joint(maps, functions, kernel, noise, scale=1.0):
    """Mean and covariance of the observations, and their covariance with unknowns."""
    K, m = kernel(BORDER), len(maps)
    prior = scale**2 * np.eye(P + m * C)
    for i in range(m):
        prior[P + i * C : P + (i + 1) * C, P + i * C : P + (i + 1) * C] = K
    A = np.zeros((sum(map(len, maps)), P + m * C))
    row = 0
    for i, each in enumerate(maps):
        rows = slice(row, row + len(each))
        A[rows, :P], A[rows, P + i * C : P + (i + 1) * C] = np.split(
            each[:, 1:], [P], 1
        )
        row += len(each)
    mean = np.concatenate([each[:, 0] for each in maps])
    variances = noise**2 / np.concatenate([r.weights for r in functions])
    return mean, A @ prior @ A.T + np.diag(variances), A @ prior, prior


def test_the_likelihood_is_that_of_a_gaussian_vector():
    maps, functions = observed()
    y = np.concatenate([r.values for r in functions])
    problem = BorderRegression(BORDER, maps, functions, KERNEL, 0.1)
    found, expected = [], []
    for theta, *levels in (([0.3, -1.0, 0.2], 0.02, 3.0), ([1.0, 0.0, 1.0], 0.2, 0.5)):
        kernel = KERNEL.clone_with_theta(np.array(theta))
        mean, covariance, *_ = joint(maps, functions, kernel, *levels)
        found.append(problem.log_likelihood(kernel, *levels)[0])
        expected.append(stats.multivariate_normal(mean, covariance).logpdf(y))
    assert_allclose(np.diff(found), np.diff(expected))


def test_the_gradient_is_that_of_the_likelihood():
    maps, functions = observed()
    problem = BorderRegression(BORDER, maps, functions, KERNEL, 0.1)

    def value(theta, part):
        kernel = KERNEL.clone_with_theta(theta[:-2])
        return problem.log_likelihood(kernel, *np.exp(theta[-2:]))[part]

    theta = np.array([0.3, -1.0, 0.2, -2.0, 0.7])
    found = optimize.approx_fprime(theta, value, 1e-6, 0)
    assert_allclose(value(theta, 1), found, rtol=1e-4)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_solution_is_the_conditional_distribution(scale):
    maps, functions = observed()
    y = np.concatenate([r.values for r in functions])
    problem = BorderRegression(BORDER, maps, functions, KERNEL, 0.05, scale)
    solution = problem.solve()
    mean, G, cross, prior = joint(maps, functions, KERNEL, 0.05, scale)
    expected = cross.T @ np.linalg.solve(G, y - mean)
    covariance = prior - cross.T @ np.linalg.solve(G, cross)
    for i, (found, spread) in enumerate(
        zip(solution.unknowns, problem.covariances(), strict=True)
    ):
        place = np.r_[:P, P + i * C : P + (i + 1) * C]
        assert_allclose(found, np.r_[1, expected[place]], atol=1e-10)
        assert_allclose(spread, covariance[np.ix_(place, place)], atol=1e-10)
    assert_allclose(solution.weights.weights, expected[:P])
    assert_allclose(solution.weights.std(np.eye(P)) ** 2, np.diag(covariance)[:P])


def test_the_loss_is_least_at_the_solution():
    maps, functions = observed()
    problem = BorderRegression(BORDER, maps, functions, KERNEL, 0.05, 4.0)
    solution = problem.solve()

    def loss(factor):
        """Where weights and border values are a multiple of the best."""
        unknowns = [np.r_[1, factor * each[1:]] for each in solution.unknowns]
        missed = [
            data.values - A @ z
            for data, A, z in zip(functions, maps, unknowns, strict=True)
        ]
        border = [each[1 + P :] for each in unknowns]
        weights = factor * solution.weights.weights
        return problem.loss(weights, border, np.concatenate(missed))

    assert loss(1.0) == pytest.approx(solution.weights.loss)
    assert min(loss(0.99), loss(1.01)) > loss(1.0)
    density = problem.log_likelihood(problem.kernel, problem.noise, problem.scale)[0]
    assert loss(1.0) + problem.log_volume() == pytest.approx(-density)
    noisier = problem.with_noise_above(0.1)
    assert noisier.noise == 0.1 and problem.noise == 0.05
    assert problem.with_noise_above(0.01).noise == 0.05


def test_predictions_are_those_from_all_other_observations():
    maps, functions = observed()
    y = np.concatenate([r.values for r in functions])
    solution = BorderRegression(BORDER, maps, functions, KERNEL, 0.05).solve()
    mean, G, *_ = joint(maps, functions, KERNEL, 0.05)
    expected = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        weights = np.linalg.solve(G[np.ix_(others, others)], G[others, i])
        expected.append(y[i] - mean[i] - weights @ (y - mean)[others])
    assert_allclose(np.concatenate(solution.leave_one_out()), expected, rtol=1e-9)
    assert [len(each) for each in solution.errors] == [12, 9]


def test_prior_and_noise_are_those_of_most_likelihood():
    maps, functions = observed((150,), noise=0.03)
    start = BorderRegression(BORDER, maps, functions, KERNEL, 0.5)
    best, loss = start.with_best_prior(True, True)
    assert abs(np.log(best.noise / 0.03)) < 0.3
    gradient = best.log_likelihood(best.kernel, best.noise, best.scale)[1]
    assert np.all(np.abs(gradient) < 0.05)
    held, worse = start.with_best_prior(False, True)
    assert held.noise == 0.5 and held.scale != 1 and worse > loss
    held, worse = start.with_best_prior(True, False)
    assert held.noise != 0.5 and held.scale == 1 and worse > loss
    assert start.kernel == KERNEL and start.noise == 0.5


def test_the_unit_of_the_values_does_not_matter():
    maps, functions = observed((40,))
    large = [FunctionData(r.points, 1e6 * r.values, r.weights) for r in functions]
    scaled = [each.copy() for each in maps]
    scaled[0][:, : 1 + P] *= 1e6  # weights have no unit
    found = []
    for unit, A, data in ((1.0, maps, functions), (1e6, scaled, large)):
        kernel = border_kernels(BORDER, data[0].values)[0]
        problem = BorderRegression(BORDER, A, data, kernel, 0.1 * unit)
        best, loss = problem.with_best_prior(True, True)
        found.append([best.noise / unit, loss, *best.kernel.theta[1:]])
    assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_kernels_to_start_from_are_in_the_units_of_the_data(size):
    values = size * np.array([1.0, -2.0, 4.0])
    for kernel in border_kernels(1e3 * BORDER, values):
        K = kernel(1e3 * BORDER)
        assert_allclose(np.diag(K), size**2 * (1 + 7))
        assert 0 < K[0, -1] - size**2 < 0.1 * size**2

"""The regression on the boundary, against conditioning of Gaussian vectors."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats

from keql._evolution.boundary.condensed import condensed
from keql._evolution.boundary.prior import (
    BoundaryPrior,
    Covariances,
    PointsOfStates,
    PointsWithSlopes,
    StateKernels,
    boundary_kernels,
    points_at,
)
from keql._evolution.boundary.regression import BoundaryValueRegression, boundary_loss
from keql._observations.data import FunctionData, Sample
from keql.kernels import RBF, Constant, Matern

P, C = 2, 30
BOUNDARY = np.column_stack([np.linspace(0, 1, C), np.linspace(3, 1, C) ** 2])
KERNEL = Constant(2.0) * Matern([0.4, 2.0], nu=1.5)


def observed(counts=(12, 9), noise=0.01, seed=0):
    """Maps and observations of functions; weights and boundary values are drawn."""
    rng = np.random.RandomState(seed)
    root = np.linalg.cholesky(KERNEL(BOUNDARY) + 1e-12 * np.eye(C))
    weights = rng.normal(size=P)
    maps, functions = [], []
    for n in counts:
        A = rng.normal(size=(n, 1 + P + C)) / C**0.5
        values = A @ np.r_[1, weights, root @ rng.normal(size=C)]
        precisions = rng.uniform(0.5, 2, n)
        values += noise * rng.normal(size=n) / precisions**0.5
        maps.append(A)
        functions.append(Sample(rng.uniform(size=(n, 2)), values, precisions))
    return maps, functions


def joint(maps, functions, kernel, noise, scale=1.0):
    """Mean and covariance of the observations, and their covariance with unknowns."""
    K, m = kernel(BOUNDARY), len(maps)
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


def regression(maps, functions, kernel=KERNEL, noise=0.1, scale=1.0, is_free=True):
    prior = BoundaryPrior(kernel, noise, scale, free_noise=is_free)
    return BoundaryValueRegression(BOUNDARY, maps, functions, prior)


def test_the_likelihood_is_that_of_a_gaussian_vector():
    maps, functions = observed()
    y = np.concatenate([r.values for r in functions])
    problem = regression(maps, functions)
    found, expected = [], []
    for theta, *levels in (([0.3, -1.0, 0.2], 0.02, 3.0), ([1.0, 0.0, 1.0], 0.2, 0.5)):
        kernel = KERNEL.clone_with_theta(np.array(theta))
        mean, covariance, *_ = joint(maps, functions, kernel, *levels)
        found.append(problem.log_likelihood(BoundaryPrior(kernel, *levels))[0])
        expected.append(stats.multivariate_normal(mean, covariance).logpdf(y))
    assert_allclose(np.diff(found), np.diff(expected))


def test_the_gradient_is_that_of_the_likelihood():
    maps, functions = observed()
    problem = regression(maps, functions)

    def value(theta, part):
        return problem.log_likelihood(problem.prior.with_theta(theta))[part]

    theta = np.array([0.3, -1.0, 0.2, -2.0, 0.7])
    assert_allclose(problem.prior.with_theta(theta).theta, theta)
    found = optimize.approx_fprime(theta, value, 1e-6, 0)
    assert_allclose(value(theta, 1), found, rtol=1e-4)


def test_boundary_values_without_any_effect_do_not_count():
    """Against all of them, those without effect having one that is next to nothing."""
    maps, functions = observed()
    for each in maps:
        each[:, 1 + P + 5 : 1 + P + 25] = 0.0
    some = regression(maps, functions)
    maps = [each.copy() for each in maps]
    for each in maps:
        each[:, 1 + P + 5 : 1 + P + 25] = 1e-200
    everything = regression(maps, functions)
    assert len(some._seen) == C - 20 and len(everything._seen) == C
    for theta in ([0.3, -1.0, 0.2, -2.0, 0.7], [1.0, 0.0, 1.0, -1.0, 0.0]):
        prior = some.prior.with_theta(np.array(theta))
        found, expected = (each.log_likelihood(prior) for each in (some, everything))
        for own, other in zip(found, expected, strict=True):
            assert_allclose(own, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(
    "boundary, kernel",
    [
        (BOUNDARY, KERNEL),
        (
            PointsWithSlopes(BOUNDARY, slice(10, 20), 0),
            Constant(2.0) * Matern([0.4, 2.0], nu=2.5),
        ),
        (
            PointsOfStates(BOUNDARY, np.repeat([0, 1], C // 2)),
            StateKernels([KERNEL, Constant(0.5) * RBF([0.3, 1.0])]),
        ),
    ],
)
def test_some_points_of_the_boundary_covary_as_among_all(boundary, kernel):
    places = np.r_[2:8, 10:20, 25, 29]
    prior = BoundaryPrior(kernel, 0.1)
    expected = prior.covariance(boundary)[np.ix_(places, places)]
    assert_allclose(prior.covariance(points_at(boundary, places)), expected)


@pytest.mark.parametrize(
    "kernel",
    [
        Constant(0.3, "fixed") + Constant(2.0) * RBF([0.4, 2.0]),
        Constant(2.0) * Matern(0.7, nu=2.5),
        Constant(2.0, "fixed") * Matern([0.4, 2.0], nu=1.5, period=[np.inf, 5.0]),
        Constant(2.0, "fixed") * RBF([0.4, 2.0], "fixed"),
    ],
)
def test_covariances_and_their_slopes_are_those_of_the_kernel(kernel):
    kernel = kernel.clone_with_theta(kernel.theta + 0.2)
    expected, layers = kernel(BOUNDARY, eval_gradient=True)
    found, slopes = Covariances(BOUNDARY, kernel).at(kernel.theta)
    assert_allclose(found, expected, atol=1e-14)
    assert len(slopes) == layers.shape[-1]
    for slope, layer in zip(slopes, np.moveaxis(layers, -1, 0), strict=True):
        assert_allclose(slope, layer, atol=1e-13)


@pytest.mark.parametrize(
    "boundary",
    [
        BOUNDARY,
        PointsWithSlopes(BOUNDARY, slice(5, 12), 0),
        PointsOfStates(BOUNDARY, np.repeat([0, 1], C // 2)),
    ],
)
def test_a_given_kernel_without_free_parameters_has_the_likelihood_of_a_free_one(
    boundary,
):
    """A sum is none of those that are differentiated by hand, but covaries as well."""
    free = Constant(2.0) * Matern([0.4, 2.0], nu=2.5)
    half = Constant(1.0, "fixed") * Matern([0.4, 2.0], "fixed", nu=2.5)
    kernels = [free, half + half]
    if isinstance(boundary, PointsOfStates):
        kernels = [StateKernels([free, each]) for each in kernels]
    priors = [BoundaryPrior(each, 0.1) for each in kernels]
    maps, functions = observed()
    found = []
    for prior in priors:
        model = BoundaryValueRegression(boundary, maps, functions, prior)
        value, gradient, _ = model.log_likelihood(prior)
        found.append((value, gradient[-2:]))
        assert len(gradient) == prior.kernel.n_dims + 2
    assert_allclose(found[0][0], found[1][0], rtol=1e-10)
    assert_allclose(found[0][1], found[1][1], rtol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_the_solution_is_the_conditional_distribution(scale):
    maps, functions = observed()
    y = np.concatenate([r.values for r in functions])
    problem = regression(maps, functions, noise=0.05, scale=scale, is_free=False)
    mean, G, cross, prior = joint(maps, functions, KERNEL, 0.05, scale)
    expected = cross.T @ np.linalg.solve(G, y - mean)
    covariance = prior - cross.T @ np.linalg.solve(G, cross)
    for i, (found, spread) in enumerate(
        zip(problem.unknowns, problem.covariances(), strict=True)
    ):
        place = np.r_[:P, P + i * C : P + (i + 1) * C]
        assert_allclose(found, np.r_[1, expected[place]], atol=1e-10)
        assert_allclose(spread, covariance[np.ix_(place, place)], atol=1e-10)
    posterior = problem.posterior_weights()
    assert_allclose(problem.weights, expected[:P])
    assert_allclose(posterior.weights, expected[:P])
    assert_allclose(posterior.std(np.eye(P)) ** 2, np.diag(covariance)[:P])


def test_what_is_uncertain_is_averaged_over_noise_levels():
    # Nearly all that observations say of the noise is in those of the weights.
    maps, functions = observed((40,), noise=0.3)
    maps[0][:, 1 + P :] *= 0.01
    problem, _ = regression(maps, functions, noise=0.2).with_best_prior()
    y, levels = functions[0].values, np.geomspace(0.1, 1.0, 200)
    kernel, scale = problem.prior.kernel, problem.prior.scale
    logs, covariances = [], []
    for level in levels:
        mean, G, cross, prior = joint(maps, functions, kernel, level, scale)
        logs.append(stats.multivariate_normal(mean, G).logpdf(y))
        covariances.append(prior - cross.T @ np.linalg.solve(G, cross))
    density = np.exp(np.array(logs) - max(logs))
    expected = np.average(covariances, axis=0, weights=density)
    [found] = problem.covariances()
    std = np.sqrt(np.diag(expected)[:P])
    assert_allclose(np.sqrt(np.diag(found)[:P]), std, rtol=0.01)
    assert_allclose(problem.posterior_weights().std(np.eye(P)), std, rtol=0.01)


def test_the_loss_is_least_at_the_solution():
    maps, functions = observed()
    problem = regression(maps, functions, noise=0.05, scale=4.0)

    def loss(factor):
        """Where weights and boundary values are a multiple of the best."""
        unknowns = [np.r_[1, factor * each[1:]] for each in problem.unknowns]
        residuals = [
            data.values - A @ z
            for data, A, z in zip(functions, maps, unknowns, strict=True)
        ]
        return boundary_loss(
            problem.prior,
            BOUNDARY,
            factor * problem.weights,
            [each[1 + P :] for each in unknowns],
            np.concatenate(residuals),
            0.05**2 / np.concatenate([data.weights for data in functions]),
        )

    assert loss(1.0) == pytest.approx(problem.posterior_weights().loss)
    assert min(loss(0.99), loss(1.01)) > loss(1.0)
    density = problem.log_likelihood(problem.prior)[0]
    assert loss(1.0) + problem.log_volume() == pytest.approx(-density)


def test_predictions_are_those_from_all_other_observations():
    maps, functions = observed()
    y = np.concatenate([r.values for r in functions])
    errors = regression(maps, functions, noise=0.05).leave_one_out()
    mean, G, *_ = joint(maps, functions, KERNEL, 0.05)
    expected = []
    for i in range(len(y)):
        others = np.arange(len(y)) != i
        weights = np.linalg.solve(G[np.ix_(others, others)], G[others, i])
        expected.append(y[i] - mean[i] - weights @ (y - mean)[others])
    assert_allclose(np.concatenate(errors), expected, rtol=1e-9)
    assert [len(each) for each in errors] == [12, 9]


def test_prior_and_noise_are_those_of_most_likelihood():
    maps, functions = observed((150,), noise=0.03)
    start = regression(maps, functions, noise=0.5)
    best, loss = start.with_best_prior()
    assert abs(np.log(best.prior.noise / 0.03)) < 0.3
    gradient = best.log_likelihood(best.prior)[1]
    assert np.all(np.abs(gradient) < 0.05)
    free = start.with_prior(replace(start.prior, free_noise=False))
    held, worse = free.with_best_prior()
    assert held.prior.noise == 0.5 and held.prior.scale != 1 and worse > loss
    free = start.with_prior(replace(start.prior, free_scale=False))
    held, worse = free.with_best_prior()
    assert held.prior.noise != 0.5 and held.prior.scale == 1 and worse > loss
    assert start.prior.kernel == KERNEL and start.prior.noise == 0.5


def test_a_prior_too_smooth_is_found_from_anywhere():
    """Beyond some lengths it does not allow the values: the likelihood has a wall."""
    maps, functions = observed((150,), noise=1e-4)
    losses = []
    for lengths in ([0.02, 0.1], [0.05, 0.3], [0.2, 1.0]):
        start = regression(maps, functions, Constant(2.0) * RBF(lengths), 1e-4)
        losses.append(start.with_best_prior()[1])
    assert np.ptp(losses) < 0.1


def test_the_unit_of_the_values_does_not_matter():
    maps, functions = observed((40,))
    large = [Sample(r.points, 1e6 * r.values, r.weights) for r in functions]
    scaled = [each.copy() for each in maps]
    scaled[0][:, : 1 + P] *= 1e6  # weights have no unit
    found = []
    for unit, A, data in ((1.0, maps, functions), (1e6, scaled, large)):
        kernel = boundary_kernels(BOUNDARY, data[0].values)[0]
        best, loss = regression(A, data, kernel, 0.1 * unit).with_best_prior()
        found.append([best.prior.noise / unit, loss, *best.prior.kernel.theta[1:]])
    assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_kernels_to_start_from_are_in_the_units_of_the_data(size):
    values = size * np.array([1.0, -2.0, 4.0])
    for kernel in boundary_kernels(1e3 * BOUNDARY, values):
        K = kernel(1e3 * BOUNDARY)
        assert_allclose(np.diag(K), size**2 * (1 + 7))
        assert 0 < K[0, -1] - size**2 < 0.1 * size**2


def test_the_average_information_is_that_of_the_covariance():
    """y' P dG P dG' P y / 2 for all pairs of hyperparameters, by differences of G."""
    maps, functions = observed()
    problem = regression(maps, functions)
    theta = np.array([0.3, -1.0, 0.2, -2.0, 0.7])
    y = np.concatenate([r.values for r in functions])

    def covariance(theta):
        kernel = KERNEL.clone_with_theta(theta[:3])
        return joint(maps, functions, kernel, *np.exp(theta[3:]))[:2]

    mean, G = covariance(theta)
    changes = 1e-5 * np.eye(len(theta))
    slopes = [
        (covariance(theta + d)[1] - covariance(theta - d)[1]) / 2e-5 for d in changes
    ]
    along = np.array([dG @ np.linalg.solve(G, y - mean) for dG in slopes])
    expected = 0.5 * along @ np.linalg.solve(G, along.T)
    found = problem.log_likelihood(problem.prior.with_theta(theta))[2]
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.max(expected))


def test_many_observations_are_condensed_without_a_loss():
    """Two noise levels and weights: each quantity is that of all observations."""
    maps, functions = observed((150, 9, 90))
    functions = [
        FunctionData(r.points, r.values, r.weights, np.arange(len(r.values)) % 2, [])
        for r in functions
    ]
    prior = BoundaryPrior(KERNEL, np.array([0.1, 0.03]), 0.7, free_noise=True)
    given, rows = (BOUNDARY, maps, functions, prior), []
    for own, data in zip(maps, functions, strict=True):
        matrix = np.column_stack([data.values - own[:, 0], own[:, 1:]])
        rows.append(condensed(matrix, prior.levels(data), data.weights, 2, np.inf))
    few, every = BoundaryValueRegression(*given), BoundaryValueRegression(*given, rows)
    assert [own.is_rotated for own in few.rows] == [True, False, False]
    assert not any(own.is_rotated for own in every.rows)
    theta = prior.theta + 0.3
    few, every = (own.with_prior(prior.with_theta(theta)) for own in (few, every))
    quantities = (
        lambda own: own._log_likelihood(theta),
        lambda own: own.leave_one_out(),
        lambda own: own.covariances(),
        lambda own: [own.left_out_log_densities(), own.weights],
        lambda own: [own.loss, own.misfit, own.n_free, own.log_volume()],
        lambda own: [own.with_best_prior()[1]],
    )
    for of in quantities:
        for found, expected in zip(of(few), of(every), strict=True):
            assert_allclose(found, expected, rtol=1e-6, atol=1e-9)

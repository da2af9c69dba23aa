"""Kernel ridge regression and its likelihood, against scikit-learn's."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Sum, WhiteKernel
from sklearn.kernel_ridge import KernelRidge

from keql._numerics.linalg import size_or_one
from keql._numerics.optimisation import _polish
from keql._observations.data import FunctionData, Sample, noise_range
from keql._regression.likelihood import (
    _spectra,
    _spectral_likelihood,
    fit_given_kernel,
    fit_state,
    log_marginal_likelihood,
    maximise_likelihood,
)
from keql._regression.state_prior import (
    StatePrior,
    StatePriorSettings,
    _search,
    fit_state_prior,
)
from keql.kernels import RBF, Constant, Matern, Polynomial, RationalQuadratic
from keql.operators import gram, parse_operator

NOISE = 0.05


def op(name):
    """Operator in two coordinates."""
    return parse_operator(name, ("t", "x"))


def smooth(points):
    """A function that all tests can learn."""
    return np.sin(6 * points[:, 0]) * np.cos(9 * points[:, 1] ** 2)


def sample(n, noise=NOISE, seed=0, weights=None):
    """Noisy values of a smooth function at random points of the unit square."""
    rng = np.random.RandomState(seed)
    points = rng.uniform(size=(n, 2))
    values = smooth(points) + noise * rng.normal(size=n)
    return Sample(points, values, np.ones(n) if weights is None else weights)


def fit_to(kernel, noise, sample, operator):
    """The state that fits values of one operator."""
    of_operator = np.zeros(len(sample.values), dtype=int), [operator]
    data = FunctionData(sample.points, sample.values, sample.weights, *of_operator)
    return fit_state(kernel, np.array([noise]), data)


def process(kernel, alpha, optimizer=None):
    """scikit-learn's regression with the same prior."""
    return GaussianProcessRegressor(kernel, alpha=alpha, optimizer=optimizer)


DATA = sample(40)
WEIGHTED = sample(25, seed=3, weights=np.linspace(0.2, 5, 25))
QUERIES = np.random.RandomState(9).uniform(-0.2, 1.2, size=(30, 2))
KERNELS = [
    Constant(1.3) * RBF([0.3, 0.2]),
    Matern(0.4, nu=2.5) + Constant(0.7),
    Constant(2.0) * RationalQuadratic(0.4, alpha=1.5),
]


# --- state --------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_state_is_kernel_ridge(kernel):
    state = fit_to(kernel, NOISE, DATA, op("u"))
    other = KernelRidge(alpha=NOISE**2, kernel="precomputed")
    other.fit(kernel(DATA.points), DATA.values)
    expected = other.predict(kernel(QUERIES, DATA.points))
    assert_allclose(state.evaluate(QUERIES, op("u")), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("data", [DATA, WEIGHTED], ids=["equal", "weighted"])
def test_state_is_a_gaussian_process(kernel, data):
    state = fit_to(kernel, NOISE, data, op("u"))
    other = process(kernel, NOISE**2 / data.weights).fit(data.points, data.values)
    mean, std = other.predict(QUERIES, return_std=True)
    assert_allclose(state.evaluate(QUERIES, op("u")), mean, rtol=0, atol=1e-10)
    variance = state.variance(QUERIES, op("u"))
    assert_allclose(variance, std**2, rtol=1e-9, atol=1e-11)


def test_weight_is_a_repetition():
    weights = np.ones(40)
    weights[:3] = 3
    once = fit_to(KERNELS[0], NOISE, Sample(DATA.points, DATA.values, weights), op("u"))
    rows = np.r_[np.arange(40), [0, 1, 2], [0, 1, 2]]
    repeated = Sample(DATA.points[rows], DATA.values[rows], np.ones(46))
    expected = fit_to(KERNELS[0], NOISE, repeated, op("u"))
    for name in ["u", "u_x"]:
        values, others = (s.evaluate(QUERIES, op(name)) for s in (once, expected))
        assert_allclose(values, others, rtol=0, atol=1e-9)
        values, others = (s.variance(QUERIES, op(name)) for s in (once, expected))
        assert_allclose(values, others, rtol=1e-8)


def test_state_without_noise_interpolates():
    data = sample(12, noise=0.0)
    state = fit_to(Matern(0.4, nu=2.5), 0.0, data, op("u"))
    values = state.evaluate(data.points, op("u"))
    assert_allclose(values, data.values, rtol=0, atol=1e-11)


def test_posterior_of_a_derivative():
    kernel = KERNELS[0]
    state = fit_to(kernel, NOISE, DATA, op("u"))
    functionals = [(DATA.points, op("u")), (QUERIES, op("u_tx"))]
    joint = gram(kernel, functionals)
    joint[:40, :40] += NOISE**2 * np.eye(40)
    cross = joint[40:, :40]
    solved = np.linalg.solve(joint[:40, :40], np.column_stack([DATA.values, cross.T]))
    mean, variance = cross @ solved[:, 0], joint[40:, 40:] - cross @ solved[:, 1:]
    scale = joint[-1, -1]
    values = state.evaluate(QUERIES, op("u_tx"))
    assert_allclose(values, mean, rtol=0, atol=1e-9 * np.abs(mean).max())
    values = state.variance(QUERIES, op("u_tx"))
    assert_allclose(values, np.diag(variance), rtol=0, atol=1e-10 * scale)


def test_state_of_values_of_two_operators():
    # each has a noise level of its own, and the weights count for both
    kernel, noise = KERNELS[0], np.array([NOISE, 0.3])
    index = np.repeat([0, 1], [25, 15])
    operators = [op("u"), op("u_x")]
    weights = np.linspace(0.5, 2, 40)
    data = FunctionData(DATA.points, DATA.values, weights, index, operators)
    state = fit_state(kernel, noise, data)
    functionals = [(DATA.points[index == j], operators[j]) for j in (0, 1)]
    joint = gram(kernel, [*functionals, (QUERIES, op("u_t"))])
    covariance = joint[:40, :40] + np.diag(noise[index] ** 2 / weights)
    cross = joint[40:, :40]
    mean = cross @ np.linalg.solve(covariance, DATA.values)
    variance = joint[40:, 40:] - cross @ np.linalg.solve(covariance, cross.T)
    asked = QUERIES, op("u_t")
    assert_allclose(state.evaluate(*asked), mean, rtol=1e-8)
    assert_allclose(state.variance(*asked), np.diag(variance), rtol=1e-7)


# --- likelihood ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_likelihood_of_a_gaussian_process(kernel):
    value, gradient = log_marginal_likelihood(kernel, NOISE, [DATA], True)
    other = process(kernel, NOISE**2).fit(DATA.points, DATA.values)
    expected = other.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    assert_allclose(value, expected[0], rtol=1e-11)
    assert_allclose(gradient[:-1], expected[1], rtol=1e-8)
    assert log_marginal_likelihood(kernel, NOISE, [DATA]) == value
    # The noise as a hyperparameter: of log(noise^2), hence the factor.
    with_noise = Sum(kernel, WhiteKernel(NOISE**2))
    other = process(with_noise, 0.0).fit(DATA.points, DATA.values)
    expected = other.log_marginal_likelihood(with_noise.theta, eval_gradient=True)
    assert_allclose(value, expected[0], rtol=1e-11)
    assert_allclose(gradient[-1], 2 * expected[1][-1], rtol=1e-8)


def test_likelihood_with_weights_is_a_normal_density():
    kernel = KERNELS[1]
    covariance = kernel(WEIGHTED.points) + np.diag(NOISE**2 / WEIGHTED.weights)
    expected = multivariate_normal(cov=covariance).logpdf(WEIGHTED.values)
    value, gradient = log_marginal_likelihood(kernel, NOISE, [WEIGHTED], True)
    assert_allclose(value, expected, rtol=1e-11)
    step = 1e-5
    for i in range(kernel.n_dims + 1):
        shift = step * np.eye(kernel.n_dims + 1)[i]
        up, down = (
            log_marginal_likelihood(
                kernel.clone_with_theta(kernel.theta + sign * shift[:-1]),
                NOISE * np.exp(sign * shift[-1]),
                [WEIGHTED],
            )
            for sign in (1, -1)
        )
        assert_allclose(gradient[i], (up - down) / (2 * step), rtol=1e-6)


def test_likelihood_of_several_functions_is_the_sum():
    kernel = KERNELS[0]
    parts = [
        log_marginal_likelihood(kernel, NOISE, [d], True) for d in (DATA, WEIGHTED)
    ]
    value, gradient = log_marginal_likelihood(kernel, NOISE, [DATA, WEIGHTED], True)
    assert_allclose(value, parts[0][0] + parts[1][0], rtol=1e-13)
    assert_allclose(gradient, parts[0][1] + parts[1][1], rtol=1e-10)


@pytest.mark.parametrize("theta", [-3.0, 0.0, 4.0])
def test_likelihood_of_a_variance_by_eigenvalues(theta):
    data = [DATA, WEIGHTED]
    kernel = (Constant(1.0, (1e-9, 1e9)) * Polynomial(2)).bind(("t", "x"))
    kernel = kernel.scaled_to(DATA.points).clone_with_theta(np.array([theta]))
    spectra = _spectra(kernel, data)
    expected = log_marginal_likelihood(kernel, NOISE, data, True)
    value, gradient = _spectral_likelihood(kernel.theta, NOISE, spectra)
    assert_allclose(value, expected[0], rtol=1e-9)
    assert_allclose(gradient, expected[1], rtol=1e-7)
    # These are not proportional to their own derivatives.
    assert _spectra(KERNELS[0], data) is None
    assert _spectra(Constant(1.0, "fixed") * RBF(0.3), data) is None


@pytest.mark.parametrize("unit", [Polynomial(1), Polynomial(3), RBF(0.3, "fixed")])
@pytest.mark.parametrize("is_free", [True, False])
def test_eigenvalues_of_few_features(unit, is_free):
    """Of features fewer than data, as many, and of kernels that have none.

    Also where nothing but the noise is free.
    """
    data = [DATA, WEIGHTED]
    variance = Constant(3.0, (1e-9, 1e9) if is_free else "fixed")
    kernel = (variance * unit).bind(("t", "x")).scaled_to(DATA.points)
    spectra = _spectra(kernel, data)
    value, gradient = _spectral_likelihood(kernel.theta, NOISE, spectra)
    expected = log_marginal_likelihood(kernel, NOISE, data, True)
    assert_allclose(value, expected[0], rtol=1e-9)
    assert gradient.shape == expected[1].shape
    assert_allclose(gradient, expected[1], rtol=1e-7)


# --- its maximum ----------------------------------------------------------------------

START = Constant(1.0, (1e-3, 1e3)) * RBF([0.3, 0.3], (1e-2, 1e2))


def test_optimum_is_that_of_a_gaussian_process():
    kernel, noise = maximise_likelihood(START, NOISE, [DATA])
    assert noise == NOISE
    other = process(START, NOISE**2, "fmin_l_bfgs_b").fit(DATA.points, DATA.values)
    assert_allclose(kernel.theta, other.kernel_.theta, atol=1e-3)
    value, gradient = log_marginal_likelihood(kernel, noise, [DATA], True)
    assert_allclose(value, other.log_marginal_likelihood_value_, atol=1e-6)
    # An optimum by itself, to more digits than the value tells.
    assert np.abs(gradient[:-1]).max() < 1e-5
    assert value > log_marginal_likelihood(START, noise, [DATA]) + 1
    # What was given is left alone.
    assert_array_equal(START.theta, np.log([1.0, 0.3, 0.3]))


def test_optimum_with_unknown_noise():
    noises = []
    for true in (0.03, 0.2):
        data = [sample(100, true, seed) for seed in (1, 2)]
        kernel, noise = maximise_likelihood(START, None, data)
        _, gradient = log_marginal_likelihood(kernel, noise, data, True)
        assert np.abs(gradient).max() < 2e-2
        noises.append(noise)
    assert_allclose(noises, [0.03, 0.2], rtol=0.15)
    white = Sum(START, WhiteKernel(0.01, (1e-6, 1)))
    single = sample(60, 0.1)
    _, noise = maximise_likelihood(START, None, [single])
    other = process(white, 0.0, "fmin_l_bfgs_b").fit(single.points, single.values)
    assert_allclose(noise**2, np.exp(other.kernel_.theta[-1]), rtol=1e-3)


def test_optimum_over_all_functions():
    both, alone = [DATA, WEIGHTED], [[DATA], [WEIGHTED]]
    kernel, _ = maximise_likelihood(START, NOISE, both)
    best = log_marginal_likelihood(kernel, NOISE, both)
    gradients = []
    for data in alone:
        own, _ = maximise_likelihood(START, NOISE, data)
        assert best > log_marginal_likelihood(own, NOISE, both) + 1e-3
        gradients.append(log_marginal_likelihood(kernel, NOISE, data, True)[1][:-1])
    assert_allclose(gradients[0], -gradients[1], atol=1e-2)


def test_noise_stays_within_its_range():
    rng = np.random.RandomState(0)
    points = rng.uniform(size=(30, 2))
    for size in (1e-6, 1.0, 1e6):
        # Without any structure: noise as large as the data explains it.
        values = size * rng.normal(size=30)
        data = Sample(points, values, np.ones(30))
        variance = Constant(size**2, (1e-6 * size**2, size**2))
        _, noise = maximise_likelihood(variance * RBF(0.3, (0.2, 0.4)), None, [data])
        rms = size_or_one(values)
        assert noise_range(rms)[0] <= noise <= noise_range(rms)[1] * (1 + 1e-12)
        assert noise > 0.5 * rms


class RecordingOptimizer:
    """Stays at the start; knows where that was."""

    def __init__(self):
        self.starts, self.values = [], []

    def __call__(self, objective, start, bounds):
        value, gradient = objective(start)
        assert gradient.shape == start.shape
        assert objective(start, eval_gradient=False) == value
        assert np.all((bounds[:, 0] <= start) & (start <= bounds[:, 1]))
        self.starts.append(start)
        self.values.append(value)
        return start, value


UNITS = [(1e6, 3600.0), (1e-6, 1 / 3600), (1e-6, 1e6)]


@pytest.mark.parametrize(("unit", "time"), UNITS)
@pytest.mark.parametrize("noise", [NOISE, None])
def test_units_do_not_matter(unit, time, noise):
    scales = np.array([time, 1.0])
    converted = Sample(DATA.points * scales, DATA.values * unit, DATA.weights)
    variance = (1e-3 * unit**2, 1e3 * unit**2)
    lengths = np.outer(scales, [1e-2, 1e2])
    start = Constant(unit**2, variance) * RBF(0.3 * scales, lengths)
    kernel, expected = maximise_likelihood(START, noise, [DATA])
    other, level = maximise_likelihood(
        start, None if noise is None else noise * unit, [converted]
    )
    shift = np.log(np.r_[unit**2, scales])
    assert_allclose(other.theta - shift, kernel.theta, rtol=0, atol=1e-6)
    assert_allclose(level / unit, expected, rtol=1e-6)
    # An optimiser sees the same values, so that it stops at the same place.
    optimizers = RecordingOptimizer(), RecordingOptimizer()
    maximise_likelihood(START, noise, [DATA], optimizer=optimizers[0])
    maximise_likelihood(
        start, noise and noise * unit, [converted], optimizer=optimizers[1]
    )
    assert_allclose(optimizers[0].values, optimizers[1].values, rtol=1e-9)


@pytest.mark.parametrize("length", [0.1, 1.0, 10.0, 1e4])
def test_far_start_does_not_end_on_the_plateau(length):
    # From 1.0 or more, L-BFGS-B by itself ends at 1e-5: nothing is explained there.
    data = [sample(60, noise=0.0)]
    kernel, _ = maximise_likelihood(RBF([length, length], (1e-5, 1e5)), 1e-4, data)
    lengths = np.geomspace(0.05, 2, 12)
    grid = [
        log_marginal_likelihood(RBF([first, second]), 1e-4, data)
        for first in lengths
        for second in lengths
    ]
    assert log_marginal_likelihood(kernel, 1e-4, data) >= max(grid)


@pytest.mark.parametrize("sign", [1, -1])
def test_polish_moves_to_a_minimum_only(sign):
    # The gradient vanishes at 0, which is a minimum or, for the other sign, a maximum.
    def objective(theta, eval_gradient=True):
        value = sign * float(theta @ theta)
        return (value, 2 * sign * theta) if eval_gradient else value

    start, bounds = np.array([0.04]), np.array([[-1.0, 1.0]])
    theta, value = _polish(objective, start, objective(start)[0], bounds)
    assert_allclose(theta, 0 if sign == 1 else start, atol=1e-12)
    assert value == objective(theta)[0]
    # Bounds hold, even where the root is just beyond.
    theta, _ = _polish(objective, start, objective(start)[0], np.array([[0.02, 1.0]]))
    assert theta >= 0.02


def test_start_outside_its_bounds_comes_back():
    expected, _ = maximise_likelihood(START, NOISE, [DATA])
    for length in (1e-6, 1e6):
        start = Constant(1.0, (1e-3, 1e3)) * RBF([length] * 2, (1e-2, 1e2))
        kernel, _ = maximise_likelihood(start, NOISE, [DATA])
        assert np.all(kernel.theta >= kernel.bounds[:, 0])
        assert np.all(kernel.theta <= kernel.bounds[:, 1])
        if length > 1:  # short ones explain nothing and have no slope
            assert_allclose(kernel.theta, expected.theta, atol=1e-3)


def test_bounds_hold():
    kernel = Constant(1.0, "fixed") * RBF([0.3, 0.3], (0.5, 2.0))
    kernel, _ = maximise_likelihood(kernel, NOISE, [DATA])
    assert_allclose(kernel.theta, np.log([0.5, 0.5]), rtol=1e-12)
    assert kernel.k1.constant_value == 1.0


def test_fixed_hyperparameters_are_kept():
    fixed = Constant(1.0, "fixed") * RBF([0.3, 0.2], "fixed")
    kernel, noise = maximise_likelihood(fixed, NOISE, [DATA])
    assert kernel is not fixed
    assert kernel == fixed
    assert noise == NOISE
    # The noise alone.
    kernel, noise = maximise_likelihood(fixed, None, [DATA])
    assert kernel == fixed
    levels = noise * np.exp([-0.01, 0.0, 0.01])
    values = [log_marginal_likelihood(fixed, level, [DATA]) for level in levels]
    assert np.argmax(values) == 1
    # One hyperparameter beside a fixed one.
    kernel, _ = maximise_likelihood(
        Constant(1.0, (1e-3, 1e3)) * RBF([0.3, 0.2], "fixed"), NOISE, [DATA]
    )
    assert_array_equal(kernel.k2.length_scale, [0.3, 0.2])
    _, gradient = log_marginal_likelihood(kernel, NOISE, [DATA], True)
    assert abs(gradient[0]) < 1e-3


def test_no_optimizer_keeps_the_kernel():
    kernel, noise = maximise_likelihood(START, NOISE, [DATA], optimizer=None)
    assert kernel is not START
    assert kernel == START
    assert noise == NOISE
    _, noise = maximise_likelihood(START, None, [DATA], optimizer=None)
    assert_allclose(noise, noise_range(np.sqrt(np.mean(DATA.values**2)))[0])


def test_own_optimizer_and_restarts():
    optimizer = RecordingOptimizer()
    rng = np.random.RandomState(0)
    kernel, noise = maximise_likelihood(
        START, None, [DATA], optimizer=optimizer, n_restarts=5, rng=rng
    )
    assert len(optimizer.starts) == 6
    assert_array_equal(optimizer.starts[0][:-1], START.theta)
    assert len(np.unique(optimizer.starts, axis=0)) == 6
    # The best start wins, as the likelihood says by itself.
    best = np.argmin(optimizer.values)
    chosen = np.r_[kernel.theta, np.log(noise)]
    assert_allclose(chosen, optimizer.starts[best], rtol=1e-14)
    likelihoods = [
        log_marginal_likelihood(
            START.clone_with_theta(start[:-1]), np.exp(start[-1]), [DATA]
        )
        for start in optimizer.starts
    ]
    assert np.argmax(likelihoods) == best
    assert_allclose(
        -np.diff(optimizer.values), np.diff(likelihoods), rtol=1e-9, atol=1e-9
    )


def test_restarts_leave_a_poor_optimum():
    # At a length scale far below the distance of the points nothing has a slope.
    start = RBF([1e-4, 1e-4], (1e-4, 1e2))
    values = []
    for n_restarts in (0, 8):
        kernel, _ = maximise_likelihood(
            start, NOISE, [DATA], n_restarts=n_restarts, rng=np.random.RandomState(0)
        )
        values.append(log_marginal_likelihood(kernel, NOISE, [DATA]))
    near, _ = maximise_likelihood(RBF([0.3, 0.3]), NOISE, [DATA])
    best = log_marginal_likelihood(near, NOISE, [DATA])
    assert values[0] < best - 5
    assert_allclose(values[1], best, atol=1e-5)


def test_restarts_need_finite_bounds():
    start = RBF(0.3, (1e-3, np.inf))
    with pytest.raises(ValueError, match="n_restarts > 0.*finite"):
        maximise_likelihood(
            start, NOISE, [DATA], n_restarts=1, rng=np.random.RandomState(0)
        )


# --- default prior ------------------------------------------------------------------


def diffusing(points):
    """Waves that decay the faster the shorter they are."""
    t, x = points.T
    waves = np.arange(1, 9)
    amplitudes = np.exp(-0.02 * np.outer(t, (np.pi * waves) ** 2)) / waves
    return np.sum(amplitudes * np.sin(np.pi * np.outer(x, waves)), axis=1)


def scatter(function, n, seed=0):
    """Exact values of a function at random points of the unit square."""
    points = np.random.RandomState(seed).uniform(size=(n, 2))
    return Sample(points, function(points), np.ones(n))


def error_of(kernel, noise, data, function):
    """Relative error of the state on new points of the unit square."""
    points = np.random.RandomState(5).uniform(size=(500, 2))
    truth = function(points)
    values = fit_to(kernel, noise, data, op("u")).evaluate(points, op("u"))
    return np.linalg.norm(values - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize("level", [None, 0.02])
def test_density_of_the_default_prior(level):
    first = sample(20, seed=1)
    same_points = Sample(first.points, first.values[::-1], first.weights)
    data = [first, WEIGHTED, same_points]
    prior = StatePrior(data, 0.6, level)
    known = np.isfinite(prior.spread)
    assert np.all(known) == (level is not None)

    def density(theta):
        """The likelihood of the kernel itself, times the priors."""
        kernel, noise = prior.unpack(theta)
        deviation = (theta - prior.median)[known] / prior.spread[known]
        likelihood = log_marginal_likelihood(kernel, noise, data)
        preference = (
            0 if level is not None else prior.settings.noise_power * np.log(noise)
        )
        return likelihood + preference - 0.5 * deviation @ deviation

    theta = prior.median + 0.1 * np.arange(len(prior.median)) - 0.4
    other = prior.median + 0.2 * np.cos(np.arange(len(prior.median)))
    assert_allclose(
        prior(theta, False) - prior(other, False),
        density(other) - density(theta),
        rtol=1e-6,
    )
    value, gradient = prior(theta)
    assert value == prior(theta, eval_gradient=False)
    for i, unit in enumerate(1e-5 * np.eye(len(theta))):
        slope = (prior(theta + unit, False) - prior(theta - unit, False)) / 2e-5
        assert_allclose(gradient[i], slope, rtol=1e-6, atol=1e-6)


def test_default_prior_is_an_optimum():
    data = [sample(100)]
    prior = StatePrior(data, size_or_one(data[0].values), None)
    kernel, noise = fit_state_prior(data)
    assert kernel.n_dims == 0
    best = log_marginal_likelihood(kernel, noise, data)
    # The priors are weak: a single length scale everywhere is not much likelier.
    start = Constant(1.0, (1e-3, 1e3)) * RBF([0.3, 0.3], (1e-2, 1e2))
    other = log_marginal_likelihood(*maximise_likelihood(start, None, data), data)
    assert best > other - 5
    # What is given stays.
    kernel, noise = fit_state_prior(data, 0.2)
    assert noise == 0.2
    kernel, noise = fit_state_prior(data, optimizer=None)
    expected = min(prior.starts(), key=lambda theta: prior(theta)[0])
    assert (kernel, noise) == prior.unpack(expected)


@pytest.mark.parametrize("level", [1e-3, 0.05, 0.2])
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_default_prior_estimates_the_noise(level, size):
    # Above all, a rough function must not pass for noise, nor noise for one.
    data = sample(150, level)
    data = Sample(data.points, size * data.values, data.weights)
    assert_allclose(fit_state_prior([data])[1], size * level, rtol=0.3)


def test_default_prior_of_many_rows():
    # The search begins with a part of them, and ends with all.
    few = StatePrior([sample(50), sample(300)], 0.6, None)
    thin = few.thinned(100)
    assert [len(data.values) for data in thin.data] == [50, 100]
    assert few.thinned(300) is few
    rows = {tuple(row) for row in few.data[1].points}
    assert {tuple(row) for row in thin.data[1].points} < rows
    data = [sample(300)]
    best = log_marginal_likelihood(*fit_state_prior(data), data)
    prior = StatePrior(data, size_or_one(data[0].values), None)
    settings = StatePriorSettings()
    given = prior.starts()[0], settings, prior.bounds
    theta, _ = _search(prior.thinned(settings.coarse_rows), *given)
    assert best > log_marginal_likelihood(*prior.unpack(theta), data) + 0.5


@pytest.mark.parametrize("n", [60, 200])
def test_default_prior_of_a_diffusing_state(n):
    data = scatter(diffusing, n)
    error = error_of(*fit_state_prior([data]), data, diffusing)
    start = Constant(1.0, (1e-4, 1e4)) * RBF([0.2, 0.2], (1e-2, 1e2))
    one_scale = maximise_likelihood(start, None, [data])
    assert error < 0.5 * error_of(*one_scale, data, diffusing)


def test_default_prior_of_a_smooth_state():
    # Nothing is gained where one length scale will do, and little is lost.
    def wave(points):
        return np.sin(2 * np.pi * (points[:, 1] - 1.5 * points[:, 0]))

    data = scatter(wave, 80)
    error = error_of(*fit_state_prior([data]), data, wave)
    start = Constant(1.0, (1e-4, 1e4)) * RBF([0.2, 0.2], (1e-2, 1e2))
    one_scale = maximise_likelihood(start, None, [data])
    assert error < 2 * error_of(*one_scale, data, wave)


def test_default_prior_has_an_offset():
    data = sample(80, noise=0.01)
    shifted = Sample(data.points, 5 + data.values, data.weights)
    for observations, offset in [(data, 0), (shifted, 5)]:
        kernel, noise = fit_state_prior([observations])
        error = error_of(kernel, noise, observations, lambda p, c=offset: c + smooth(p))
        assert error < (0.05 if offset else 0.15)
    # Far from all data the prediction returns to about the mean.
    state = fit_to(kernel, noise, shifted, op("u"))
    assert_allclose(state.evaluate(np.array([[1e3, 1e3]]), op("u")), 5, atol=0.5)


@pytest.mark.parametrize(("unit", "time"), UNITS)
@pytest.mark.parametrize("level", [None, NOISE])
def test_default_prior_has_no_units(unit, time, level):
    data = sample(30, 0.01)
    data = Sample(data.points + 3, 1 + data.values, data.weights)
    scales = np.array([time, 1.0])
    converted = Sample(data.points * scales, data.values * unit, data.weights)
    kernel, noise = fit_state_prior([data], level)
    other, changed = fit_state_prior([converted], level and level * unit)
    assert_allclose(changed, noise * unit, rtol=1e-12)
    points = data.points[:5]
    assert_allclose(other(points * scales), kernel(points) * unit**2, rtol=1e-9)


def test_default_prior_finds_the_length_scale():
    x = np.linspace(0, 1, 100)[:, None]
    for frequency in (2, 30, 90):
        values = np.sin(frequency * x[:, 0])
        data = Sample(x, values, np.ones(100))
        operator = parse_operator("u", ("x",))
        state = fit_to(*fit_state_prior([data]), data, operator)
        between = 0.5 * (x[1:] + x[:-1])
        error = state.evaluate(between, operator) - np.sin(frequency * between[:, 0])
        assert np.abs(error).max() < 1e-2


def test_default_prior_respects_the_sampling():
    # Values at three times that differ without a trend: the likelihood prefers not to
    # connect them; what is between should still be interpolated.
    x = np.linspace(0, 1, 20)
    levels = [(0.0, 1.0), (10.0, 1.6), (20.0, 0.8)]
    points = np.concatenate([np.column_stack([np.full(20, t), x]) for t, _ in levels])
    values = np.concatenate([size * np.sin(4 * x) for _, size in levels])
    halves = np.array_split(np.arange(60), 2)  # values of two functions count together
    data = [Sample(points[i], values[i], np.ones(30)) for i in halves]
    prior = StatePrior(data, 1.0, None)
    for name in ("smooth length", "rough length"):
        lower, upper = np.exp(prior.bounds[prior.parts[name]]).T
        assert_allclose(lower, [0.25, 0.5 / 19], rtol=1e-12)
        assert_allclose(upper, 100, rtol=1e-12)
    kernel, _ = fit_state_prior(data)
    lengths = kernel.k1.k2.k2.length_scale, kernel.k2.k2.length_scale
    assert np.min(lengths, axis=0)[0] >= 0.25 * 20 * (1 - 1e-12)
    # Scattered points set no bound but the one of the extent.
    prior = StatePrior([sample(200)], 1.0, None)
    assert_allclose(np.exp(prior.bounds[prior.parts["rough length"], 0]), 0.01)


@pytest.mark.parametrize("seed", [3, 4])
def test_fast_records_do_not_pass_for_noise(seed):
    """A length may be as short as the mean spacing, if that is below its range."""
    rng, n = np.random.default_rng(seed), 150
    x, waves = np.linspace(0, 1, n)[:, None], rng.standard_normal(400) / 0.0063
    phases = rng.uniform(0, 2 * np.pi, 400)
    values = np.cos(x * waves + phases) @ np.full(400, (2 / 400) ** 0.5)
    data = [Sample(x, values + 0.02 * rng.standard_normal(n), np.ones(n))]
    prior = StatePrior(data, 1.0, None)
    shortest = np.exp(prior.bounds[prior.parts["rough length"], 0])
    assert_allclose(shortest, 1 / n, rtol=1e-12)
    kernel, noise = fit_state_prior(data)
    assert kernel.k2.k2.length_scale < 0.01
    assert noise < 0.05


def test_default_prior_of_degenerate_data():
    points = np.column_stack([np.linspace(0, 1, 5), np.full(5, 2.0)])
    for values in (np.zeros(5), np.full(5, 3.0)):
        data = [Sample(points, values, np.ones(5))]
        kernel, noise = fit_state_prior(data)
        state = fit_to(kernel, noise, data[0], op("u"))
        assert_allclose(state.evaluate(points, op("u")), values, atol=1e-3)


def test_default_prior_with_an_own_optimizer_and_restarts():
    optimizer, rng = RecordingOptimizer(), np.random.RandomState(0)
    kernel, _ = fit_state_prior([DATA], optimizer=optimizer, n_restarts=3, rng=rng)
    assert len(optimizer.starts) == 8 + 3
    prior = StatePrior([DATA], size_or_one(DATA.values), None)
    assert kernel == prior.unpack(optimizer.starts[np.argmin(optimizer.values)])[0]
    values = []
    for n_restarts in (0, 2):
        kernel, noise = fit_state_prior([DATA], n_restarts=n_restarts, rng=rng)
        values.append(log_marginal_likelihood(kernel, noise, [DATA]))
    assert values[1] > values[0] - 1


def test_polynomial_prior_recovers_a_polynomial():
    values = 1 + 2 * DATA.points[:, 0] * DATA.points[:, 1]
    data = Sample(DATA.points, values, DATA.weights)
    kernel = Constant(1.0, (1e-3, 1e3)) * Polynomial(2, scale=1.0, center=0.0)
    kernel, noise = maximise_likelihood(kernel, 1e-6, [data])
    state = fit_to(kernel, noise, data, op("u"))
    assert_allclose(state.evaluate(QUERIES, op("u_tx")), 2.0, atol=1e-4)


@pytest.mark.parametrize("factor", [1e-300, 1e-6, 1.0, 1e6, 1e300])
def test_root_mean_square(factor):
    values = np.array([3.0, -4.0, 0.0, 0.0])
    assert_allclose(size_or_one(values * factor), 2.5 * factor, rtol=1e-14)
    assert size_or_one(0 * values) == 1.0
    assert size_or_one([]) == 1.0


def test_a_noise_level_that_a_kernel_misses_does_not_shorten_its_lengths():
    """A kink is rougher than an RBF kernel supposes: the level given is too low."""
    x = np.linspace(0, 1, 60)[:, None]
    data = [Sample(x, np.abs(x[:, 0] - 0.47), np.ones(60))]
    start, low = RBF(0.3, (1e-3, 10.0)), 1e-7
    shortest, _ = maximise_likelihood(start, low, data)
    kernel, noise = fit_given_kernel(start, low, data, optimizer="fmin_l_bfgs_b")
    assert noise == low
    assert kernel.length_scale > 2 * shortest.length_scale
    free, level = maximise_likelihood(start, None, data)
    assert level > 1e3 * low and kernel == free
    # A level that is large enough is believed.
    smooth = [Sample(x, np.sin(3 * x[:, 0]), np.ones(60))]
    kernel, noise = fit_given_kernel(start, 1e-3, smooth, optimizer="fmin_l_bfgs_b")
    assert (kernel, noise) == maximise_likelihood(start, 1e-3, smooth)

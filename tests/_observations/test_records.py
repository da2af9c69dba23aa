"""Long records in time as few values: what these say is what all samples say."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor

from keql import OneStepKEqL, TwoStepKEqL
from keql._observations.condensed import condense
from keql._observations.data import FunctionData, Observations
from keql._observations.windows import CondensingLimits
from keql.kernels import RBF
from keql.operators import identity_of


def record(t, values, weights=None, index=None, n_operators=1):
    """Observations of one function in time."""
    weights = np.ones(len(t)) if weights is None else weights
    index = np.zeros(len(t), dtype=int) if index is None else index
    operators = [identity_of(name, 1) for name in "uvw"[:n_operators]]
    data = FunctionData(t[:, None], values, weights, index, operators)
    return Observations((None,), [data], tuple("uvw"[:n_operators]))


def condensed(t, values, *more):
    """The FunctionData that a record is condensed to."""
    return condense(record(t, values, *more)).functions[0]


def noisy(n=10_000, seed=0):
    """Times, a smooth function of these, and noise."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 5, n))
    return t, np.sin(3 * t), 0.1 * rng.standard_normal(n), rng


def test_values_say_of_polynomials_what_all_samples_say():
    t, u, noise, rng = noisy()
    weights = rng.uniform(0.1, 3, len(t))
    few = condensed(t, u + noise, weights)
    assert len(few.values) < 1000
    for degree in (1, 7):
        sums, right = [], []
        for x, y, w in ((t, u + noise, weights), (few.points[:, 0], *few_of(few))):
            columns = np.polynomial.legendre.legvander(x / 2.5 - 1, degree)
            sums.append(columns.T @ (w[:, None] * columns))
            right.append(columns.T @ (w * y))
        np.testing.assert_allclose(sums[0], sums[1], atol=1e-9 * len(t))
        np.testing.assert_allclose(right[0], right[1], atol=1e-9 * len(t))


def few_of(data):
    """Values and weights."""
    return data.values, data.weights


def test_errors_are_as_large_as_weights_say_and_independent():
    t, u, noise, _ = noisy(50_000)
    few = condensed(t, u + noise)
    errors = (few.values - np.sin(3 * few.points[:, 0])) * np.sqrt(few.weights) / 0.1
    assert 0.9 < np.mean(errors**2) < 1.1
    assert abs(np.mean(errors[1:] * errors[:-1])) < 0.1
    assert abs(few.weights.sum() - len(t)) < 1e-6 * len(t)


def test_ends_of_a_record_are_kept():
    t, u, noise, _ = noisy()
    few = condensed(t, u + noise).points[:, 0]
    assert few.min() == t.min() and few.max() == t.max()


def test_exact_records_are_thinned():
    t = np.linspace(0, 5, 10_000)
    few = condensed(t, np.sin(3 * t))
    assert len(few.values) == 1000
    assert np.isin(few.points[:, 0], t).all()
    np.testing.assert_array_equal(few.values, np.sin(3 * few.points[:, 0]))


def test_there_are_as_many_values_as_a_state_needs():
    rng = np.random.default_rng(0)
    t = np.linspace(0, 5, 20_000)
    sizes = []
    for rate in (10, 600):
        few = condensed(t, np.sin(rate * t) + 0.1 * rng.standard_normal(len(t)))
        errors = few.values - np.sin(rate * few.points[:, 0])
        assert np.mean(errors**2 * few.weights) < 1.2 * 0.1**2
        sizes.append(len(few.values))
    assert sizes[0] < 1000 < sizes[1] < 4000


def test_noise_that_is_correlated_is_not_averaged():
    rng = np.random.default_rng(0)
    steps = np.concatenate([np.zeros(20), rng.standard_normal(20_000)])
    drift = np.convolve(steps, np.ones(20) / 20, mode="valid")
    t = np.linspace(0, 5, len(drift))
    few = condensed(t, np.sin(t) + drift)
    assert np.isin(few.points[:, 0], t).all()


def test_states_that_are_seen_together_have_values_at_the_same_times():
    t, u, noise, _ = noisy(4000)
    both = np.r_[u + noise, u - 2 * noise]
    index = np.repeat([0, 1], len(t))
    few = condensed(np.r_[t, t], both, None, index, 2)
    first, second = (few.points[few.index == j] for j in (0, 1))
    np.testing.assert_array_equal(first, second)


def test_values_at_one_time_are_averaged_first():
    t, u, noise, _ = noisy(2000)
    once = condensed(t, u + noise)
    twice = condensed(np.r_[t, t], np.r_[u + noise + 0.1, u + noise - 0.1])
    np.testing.assert_allclose(twice.values, once.values, rtol=0, atol=1e-12)
    np.testing.assert_allclose(twice.weights, 2 * once.weights)


@pytest.mark.parametrize("n", [2, 1499])
def test_short_records_are_left_alone(n):
    given = record(np.linspace(0, 5, n), np.linspace(0, 5, n) ** 2)
    assert condense(given) is given


def test_limits_are_respected():
    t, u, noise, _ = noisy(3000)
    limits = CondensingLimits(sizes=(400, 800))
    few = condense(record(t, u + noise), limits).functions[0]
    assert len(few.values) < 400


def test_a_state_is_that_of_all_samples():
    t, u, noise, rng = noisy(3000)
    weights = rng.uniform(0.5, 2, len(t))
    model = TwoStepKEqL(
        state_kernel=RBF(0.5, "fixed"), observation_noise=0.1, variables="t"
    )
    model.fit(t[:, None], u + noise, sample_weight=weights)
    assert str(model.fit_report_).startswith(
        "TwoStepKEqL, 3000 observations condensed to"
    )
    oracle = GaussianProcessRegressor(RBF(0.5, "fixed"), alpha=0.1**2 / weights)
    oracle.fit(t[:, None], u + noise)
    asked = np.linspace(0.1, 4.9, 50)[:, None]
    mean, std = oracle.predict(asked, return_std=True)
    values, stds = model.predict(asked, return_std=True)
    np.testing.assert_allclose(values, mean, rtol=0, atol=1e-4 * std.max())
    np.testing.assert_allclose(stds, std, rtol=1e-3)


@pytest.mark.slow
def test_errors_fall_with_the_number_of_samples():
    errors = []
    for n in (1000, 100_000):
        t = np.linspace(0, 20, n)
        u = np.exp(-0.15 * t) * np.cos(1.4 * t)
        y = u + 0.01 * np.random.default_rng(0).standard_normal(n)
        model = OneStepKEqL(("u", "u_t"), "u_tt", variables="t", n_terms="auto")
        model.fit(t[:, None], y)
        terms = model.equation_.terms()
        assert set(terms) == {"u", "u_t"}
        assert abs(model.observation_noise_ - 0.01) < 1e-3
        errors.append(np.sqrt(np.mean((model.predict(t[:, None]) - u) ** 2)))
    assert errors[1] < 0.2 * errors[0]

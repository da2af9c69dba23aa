"""States that repeat themselves, or travel."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import multivariate_normal

from keql import OneStepKEqL, TwoStepKEqL
from keql._observations.data import Sample
from keql._regression.periodic import (
    PeriodSearch,
    likelihoods,
    periodic_prior,
    travelling_wave,
)
from keql.kernels import Periodic

TIMES = 4.0 * np.arange(25)
PAIR = {"operators": ("x", "y"), "known_part": ("x_t", "y_t"), "states": ("x", "y")}


def observations_of(times, y):
    model = TwoStepKEqL(**PAIR, variables=("t",), collocation_points=20)
    return model._learn_in_two_steps(times[:, None], y, None).observations


def cycles(times):
    """Prey and predators of a period of 10.8, of which 4.0 is no fraction."""

    def hunt(_, y):
        return [1.1 * y[0] - 0.4 * y[0] * y[1], -0.4 * y[1] + 0.1 * y[0] * y[1]]

    how = {"rtol": 1e-10, "atol": 1e-10, "t_eval": times}
    return solve_ivp(hunt, times[[0, -1]], [10.0, 5.0], **how).y.T


def test_likelihoods_are_those_of_the_periodic_kernel():
    rng = np.random.RandomState(0)
    t, y = np.sort(rng.uniform(0, 9, 12)), rng.standard_normal(12)
    sample = Sample(t[:, None], y, np.ones(12))
    settings = PeriodSearch(lengths=(0.7, 1.5), ratios=(0.1, 0.3), n_harmonics=20)
    for value, length, ratio, size in likelihoods([sample], 0.4, settings):
        K = Periodic(length, 2.5)(t[:, None]) + ratio**2 * np.eye(12)
        levels = [
            multivariate_normal(cov=s**2 * K).logpdf(y - y.mean())
            for s in size * np.array([0.9, 1.0, 1.1])
        ]
        assert value == pytest.approx(levels[1], abs=1e-8)
        assert levels[1] > max(levels[0], levels[2])


def test_the_period_of_all_states():
    """From 2.7 values in each period, with noise of 2 %."""
    y = cycles(TIMES)
    y = y + 0.02 * y.std(axis=0) * np.random.RandomState(0).standard_normal(y.shape)
    kernel, noise = periodic_prior(observations_of(TIMES, y), ("t",))
    for state in PAIR["states"]:
        assert kernel.of_state(state).k1.k2.periodicity == pytest.approx(10.8, rel=0.01)
    assert np.all(noise < 0.15 * y.std(axis=0))


def test_none_where_a_state_is_hidden_or_values_are_few():
    y = cycles(TIMES)
    assert periodic_prior(observations_of(TIMES[:4], y[:4]), ("t",)) == (None, None)
    y[:, 1] = np.nan
    assert periodic_prior(observations_of(TIMES, y), ("t",)) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_equations_from_less_than_three_values_a_period(noise):
    """What smooth functions leave is taken for noise, but not what repeats itself."""
    y = cycles(TIMES)
    y = y + noise * y.std(axis=0) * np.random.RandomState(1).standard_normal(y.shape)
    model = OneStepKEqL(**PAIR, variables=("t",), n_terms="auto").fit(TIMES[:, None], y)
    terms, rel = model.equation_.terms(), 0.05 if noise else 1e-6
    assert terms["x_t"] == pytest.approx({"x": 1.1, "x y": -0.4}, rel=rel)
    assert terms["y_t"] == pytest.approx({"y": -0.4, "x y": 0.1}, rel=rel)


def values_of(u, n=120):
    """Values of one function of time and space at scattered points, t first."""
    points = np.random.default_rng(3).uniform((0, -5), (1, 5), (n, 2))
    return Sample(points, u(*points.T), np.ones(n))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_wave_travels(axis):
    """From a speed that is 15 % off; the coordinates may be exchanged."""

    def u(t, x):
        return 1 + 2 / np.cosh(x - 4 * t) ** 2

    data = values_of(u)
    points = data.points[:, :: 1 - 2 * axis]
    wave = travelling_wave(Sample(points, data.values, data.weights), axis, 3.4)
    assert wave.speed == pytest.approx(4.0, rel=1e-3)
    assert np.allclose(wave(points), data.values, atol=1e-3)
    t = np.linspace(0, 1, 9)
    along = np.column_stack([t, 4 * t - 1.0])[:, :: 1 - 2 * axis]
    assert np.ptp(wave(along)) < 0.02  # it keeps its shape
    assert np.allclose(wave(along), u(0.0, -1.0), atol=0.05)


@pytest.mark.parametrize(
    "u",
    [
        lambda t, x: np.exp(-0.5 * t) / np.cosh(x - 4 * t) ** 2,
        lambda t, x: 1 / np.cosh(x - 4 * t) ** 2 + 1 / np.cosh(x + 3 - t) ** 2,
        lambda t, x: 1 / np.cosh(x - 0.05 * t) ** 2,  # it does not move
        lambda t, x: np.ones_like(t),
    ],
)
def test_no_wave_is_found_where_there_is_none(u):
    assert travelling_wave(values_of(u), 0, 3.8) is None


def test_noise_is_no_wave():
    data = values_of(lambda t, x: 1 / np.cosh(x - 4 * t) ** 2)
    noise = 0.02 * np.random.default_rng(4).standard_normal(120)
    noisy = Sample(data.points, data.values + noise, data.weights)
    assert travelling_wave(data, 0, 3.8) is not None
    assert travelling_wave(noisy, 0, 3.8) is None


def grid(t, x):
    """Points (n, 2) of all pairs of times and places."""
    return np.stack(np.meshgrid(t, x, indexing="ij"), axis=-1).reshape(-1, 2)


@pytest.mark.parametrize(
    "points, speed",
    [
        (grid(np.linspace(0, 4, 25), np.arange(6.0)), 0.2),
        (grid(np.linspace(0, 4, 25), np.arange(6.0)), -0.15),
        (grid(np.arange(3.0), np.linspace(0, 2, 30)), 2.4),
    ],
)
def test_records_and_snapshots_are_no_waves(points, speed):
    """A slow profile, or a fast one, has a part of its own for each of them."""
    t, x = points.T
    u = np.exp(-0.1 * t) * np.sin(x) + 0.5 * np.exp(-0.4 * t) * np.cos(2 * x + 1)
    assert travelling_wave(Sample(points, u, np.ones(len(u))), 0, speed) is None


@pytest.mark.parametrize(
    "points",
    [
        grid(np.linspace(0, 3, 40), np.arange(6.0)),
        grid(np.linspace(0, 3, 6), np.linspace(0, 5, 40)),
    ],
)
def test_a_wave_passes_sensors_and_is_seen_in_snapshots(points):
    u = 1 / np.cosh(points[:, 1] - 2 * points[:, 0]) ** 2
    wave = travelling_wave(Sample(points, u, np.ones(len(u))), 0, 1.8)
    assert wave.speed == pytest.approx(2.0, rel=1e-3)

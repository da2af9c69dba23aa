"""States that repeat themselves."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import multivariate_normal

from keql import OneStepKEqL, TwoStepKEqL
from keql._observations.data import Sample
from keql._regression.periodic import PeriodSearch, likelihoods, periodic_prior
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

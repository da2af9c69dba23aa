"""Forecasts of learned equations, and what is said of those in doubt."""

import numpy as np
import pytest
from known_equations import cole_hopf, points_of_cole_hopf
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from keql import (
    ExtrapolationWarning,
    IdentifiabilityWarning,
    OneStepKEqL,
    SimulationError,
    TwoStepKEqL,
)
from keql.kernels import Polynomial, Restriction

PAIR = {"operators": ("x", "y"), "known_part": ("x_t", "y_t"), "states": ("x", "y")}
PAIR["variables"] = ("t",)


def integrate(velocity, initial, times):
    """Values (n, D) of the solution of y' = velocity(t, y)."""
    how = {"rtol": 1e-12, "atol": 1e-12, "method": "DOP853", "t_eval": times}
    return solve_ivp(velocity, (times[0], times[-1]), initial, **how).y.T


def hunt(_, y):
    """Prey and predators of Lotka and Volterra."""
    return [1.1 * y[0] - 0.4 * y[0] * y[1], -0.4 * y[1] + 0.1 * y[0] * y[1]]


def column(times):
    return np.reshape(times, (-1, 1))


TIMES = np.linspace(0, 24, 25)
CYCLES = integrate(hunt, (10.0, 5.0), TIMES)


@pytest.mark.parametrize("estimator", [OneStepKEqL, TwoStepKEqL])
def test_a_forecast_is_integrated_from_the_last_time(estimator):
    """Of exact trajectories, and of the smooth states of two steps from the end on."""
    times = np.linspace(0, 24, 73)
    cycles = integrate(hunt, (10.0, 5.0), times)
    model = estimator(**PAIR).fit(column(times), cycles)
    later = times[-1] + np.array([0.5, 1.0, 2.0])
    exact = integrate(hunt, cycles[-1], np.r_[times[-1], later])[1:]
    found, std = model.forecast(column(later), return_std=True)
    assert found.shape == std.shape == (3, 2) and np.all(std >= 0)
    if estimator is OneStepKEqL:
        assert_allclose(found, exact, rtol=1e-6)
    else:
        initial = model.predict(column(times[-1:]))[0]
        expected = model.equation_.simulate(np.r_[times[-1], later], initial)[1:]
        assert_allclose(found, expected, rtol=1e-6)


def test_a_forecast_in_space_needs_exact_states():
    X = np.random.RandomState(0).uniform(size=(20, 2))
    model = TwoStepKEqL("u", "u_t", variables=("t", "x"))
    model.fit(X, np.sin(X[:, 1]) * np.exp(-X[:, 0]))
    with pytest.raises(ValueError, match="depend on t, x and do not: solve"):
        model.forecast(X)


@pytest.fixture(scope="module")
def two_flows():
    """A fit of two solutions of u_t = u u_x + 0.1 u_xx, seen until t = 1."""
    X, y = [], []
    for label, amplitude in ((0, 0.5), (1, 0.3)):
        points = points_of_cole_hopf(20, seed=label)
        X.append(np.column_stack([np.full(len(points), label), points]))
        y.append(cole_hopf(*points.T, amplitude=amplitude))
    kernel = Restriction(Polynomial(2), [(0, 0, 1, 1, 0), (0, 0, 0, 0, 1)])
    model = OneStepKEqL(
        ("u", "u_x", "u_xx"),
        "u_t",
        variables=("t", "x"),
        function_column=0,
        equation_kernel=kernel,
    )
    return model.fit(np.concatenate(X), np.concatenate(y))


@pytest.mark.slow
def test_a_state_in_space_goes_on(two_flows):
    """Each function from its own state, whatever else is asked for at once."""
    points = np.random.RandomState(0).uniform([1, 0], [1.5, 1], size=(30, 2))
    asked = [np.column_stack([np.full(30, m), points]) for m in (0, 1)]
    asked[1][:, 1] -= 0.2
    found, std = two_flows.forecast(np.concatenate(asked), return_std=True)
    exact = np.concatenate(
        [
            cole_hopf(*own[:, 1:].T, amplitude=amplitude)
            for own, amplitude in zip(asked, (0.5, 0.3), strict=True)
        ]
    )
    assert_allclose(found, exact, atol=2e-3)
    assert np.mean(np.abs(found - exact) < 2 * std) > 0.8 and np.all(std < 0.05)
    alone, own = two_flows.forecast(asked[1], return_std=True)
    assert_allclose(alone, found[30:], atol=1e-6)
    assert_allclose(own, std[30:], rtol=1e-3)
    with pytest.raises(ValueError, match="cannot be integrated to: forecasts begin"):
        two_flows.forecast([[0, 1.2, 3.0]])


def test_a_forecast_ends_where_the_solution_does():
    """u_t = u^2 with u(0) = 1 at t = 1; predictions fall back to another state."""
    t = np.linspace(0, 0.9, 20)
    given = {"equation_kernel": Polynomial(2), "n_terms": "auto"}
    model = OneStepKEqL(("u",), "u_t", variables=("t",), **given)
    model.fit(column(t), 1 / (1 - t))
    assert model.forecast([[0.95]])[0] == pytest.approx(20.0, rel=1e-4)
    for late in ([[1.5]], [[0.95], [1.5]]):
        with pytest.raises(SimulationError, match="cannot be integrated to t = 1.5"):
            model.forecast(late)
        with pytest.raises(SimulationError, match="cannot be integrated to t = 1.5"):
            model.forecast(late, return_std=True)
    with pytest.warns(ExtrapolationWarning):
        assert np.all(np.isfinite(model.predict([[1.5]])))


def test_a_forecast_needs_the_forcing():
    """Of which values are given up to t = 3 only."""
    t, grid = np.linspace(0, 2, 25), np.linspace(0, 3, 61)
    exact = integrate(lambda t, y: np.cos(t) - y, [1.0], np.r_[t, 2.5])[:, 0]
    given = {"forcing": np.cos(grid), "collocation_points": column(grid)}
    model = OneStepKEqL(("u",), "u_t", variables=("t",), n_terms="auto", **given)
    model.fit(column(t), exact[:-1])
    assert model.forecast([[2.5]])[0] == pytest.approx(exact[-1], rel=1e-6)
    with pytest.raises(SimulationError, match="a forcing that was given as values"):
        model.forecast([[3.5]])


@pytest.mark.slow
def test_terms_that_the_data_do_not_tell_from_others():
    """The warning, the report and the equation say so."""
    t = np.linspace(0, 3, 12)
    y = np.exp(-t) + 0.1 * np.random.RandomState(0).standard_normal(12)
    given = {"equation_kernel": Polynomial(2), "n_terms": "auto"}
    model = OneStepKEqL(("u",), "u_t", variables=("t",), **given)
    with pytest.warns(IdentifiabilityWarning, match="do not tell the terms from"):
        model.fit(column(t), y)
    assert "do not tell the terms" in str(model.fit_report_)
    assert repr(model.equation_).endswith("(in doubt, see fit_report_)>")
    model.fit(column(t), np.exp(-t))
    assert repr(model.equation_) == "<LearnedEquation u_t = -1.00 u>"


@pytest.mark.parametrize(
    "kernel", [Polynomial(2), pytest.param(None, marks=pytest.mark.slow)]
)
def test_noise_is_explained_by_no_equation(kernel):
    y = np.random.RandomState(0).standard_normal(30)
    given = {"equation_kernel": kernel, "n_terms": "auto"}
    model = OneStepKEqL(("u",), "u_t", variables=("t",), **given)
    with pytest.warns(IdentifiabilityWarning, match="explains little"):
        model.fit(column(np.arange(30.0)), y)

"""Equations that depend on time or are of degree 4, and what misses exact data."""

from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import IdentifiabilityWarning, OneStepKEqL
from keql._observations.data import FunctionData, Observations
from keql.datasets import make_lotka_volterra
from keql.kernels import Polynomial
from keql.model_selection._criteria import (
    correlation_of_neighbours,
    correlation_of_residuals,
)


def fitted(rate, initial, t_end, n, **settings):
    t = np.linspace(0, t_end, n)
    how = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12, "t_eval": t}
    y = solve_ivp(rate, (0, t_end), [initial], **how).y[0]
    model = OneStepKEqL(("u",), "u_t", variables=("t",), n_terms="auto", **settings)
    return model.fit(t[:, None], y)


def test_a_coefficient_that_is_the_time():
    """u_t = -2 t u + u^2, with u as the only operator."""
    model = fitted(lambda t, u: -2 * t * u + u**2, 0.5, 3.0, 30)
    assert model.equation_.terms() == pytest.approx({"t u": -2, "u^2": 1}, rel=1e-6)


def test_products_of_four_operators():
    model = fitted(lambda t, u: u - u**4, 0.1, 4.0, 25)
    assert model.equation_.terms() == pytest.approx({"u": 1, "u^4": -1}, rel=1e-6)


def test_a_right_quadratic_equation_stays():
    model = fitted(lambda t, u: u - u**2, 0.1, 6.0, 25)
    assert model.equation_.terms() == pytest.approx({"u": 1, "u^2": -1}, rel=1e-6)


# Without a kernel its term is found among elementary functions.
RATIONAL = (lambda t, u: u / (1 + u**2) - 0.4 * u, 0.1, 12.0, 30)


def test_exact_data_that_no_polynomial_meets():
    """The report says what the warning says."""
    with pytest.warns(IdentifiabilityWarning, match="missed by") as caught:
        model = fitted(*RATIONAL, equation_kernel=Polynomial(3))
    assert "in doubt" in repr(model.equation_)
    assert len(model.equation_.terms()) < 6
    missed = [each for each in model.fit_report_.concerns if "missed by" in each]
    assert missed and missed[0] in str(caught[0].message)


@pytest.mark.parametrize("offset, amplitude", [(2, 1e-3), (300, 1.0), (100, 1.0)])
def test_values_that_vary_little(offset, amplitude):
    """Their powers are alike, and none but the offset can be told."""
    t = np.linspace(0, 10, 30)
    noise = 1e-2 * np.random.default_rng(0).standard_normal(30)
    y = offset + amplitude * (np.exp(-0.5 * t) + noise)
    model = OneStepKEqL(("u",), "u_t", variables=("t",), n_terms="auto")
    with pytest.warns(IdentifiabilityWarning, match="do not tell the terms"):
        model.fit(t[:, None], y)
    assert np.abs(model.predict(t[:, None]) - y).max() < 0.05 * amplitude


@pytest.mark.slow
def test_an_equation_that_explains_a_part_only():
    """Exponential decay at a rate of 1 + sin(2 t) / 2, without t."""
    t = np.linspace(0, 3, 20)
    y = np.exp(-t - (1 - np.cos(2 * t)) / 4)
    settings = {"variables": ("t",), "n_terms": None, "max_iter": 20}
    model = OneStepKEqL(("u",), "u_t", **settings)
    with pytest.warns(IdentifiabilityWarning, match="unexplained|missed by"):
        model.fit(t[:, None], y)


@pytest.mark.slow
def test_noise_that_two_steps_take_for_a_motion():
    """Predator and prey with noise of 5 %: the right equations miss them at random."""
    data = make_lotka_volterra(40, t_end=20, noise=0.05, random_state=0)
    model = OneStepKEqL(**data.problem, n_terms="auto").fit(data.X, data.y)
    assert not any("missed" in text for text in model.fit_report_.concerns)
    equations = model.equation_.values()
    assert [set(e.terms()) for e in equations] == [
        {"prey", "prey predator"},
        {"predator", "prey predator"},
    ]


@pytest.mark.parametrize("phase, random", [(0.0, False), (None, True)])
def test_residuals_that_follow_one_another(phase, random):
    """Those of a missing term are alike, and those of noise are not."""
    n, times = 60, np.linspace(0, 6, 60)
    noise = np.random.default_rng(1).standard_normal(n)
    residuals = noise if phase is None else np.sin(3 * times + phase)
    index = np.repeat([0, 1], n // 2)
    data = FunctionData(times[:, None], residuals, np.ones(n), index, [])
    observations = Observations((None,), [data], ("u",))
    assert (correlation_of_neighbours(residuals, observations) < 2) == random


def diffusing_shock(t, x, amplitude):
    """u_t = u u_x + 0.1 u_xx from a single mode, by the transform of Cole and Hopf."""
    e = amplitude * np.exp(-0.1 * np.pi**2 * t)
    return -0.2 * np.pi * e * np.sin(np.pi * x) / (1 + e * np.cos(np.pi * x))


@pytest.mark.slow
@pytest.mark.parametrize("amplitudes, n_inside", [((0.5,), 20), ((0.5, -0.3), 15)])
def test_the_simplest_of_the_equations_that_states_obey(amplitudes, n_inside):
    """They obey u_t = -0.1 pi^2 u - 0.5 u u_x - 2.5 u^3, which is of degree 3, too."""
    t, x = (axis.ravel() for axis in np.meshgrid(*2 * [np.linspace(0, 1, 9)]))
    on_side = (t == 0) | (x == 0) | (x == 1)
    inside = np.random.RandomState(0).uniform(size=(n_inside, 2))
    points = np.concatenate([np.column_stack([t, x])[on_side], inside])
    X = np.concatenate([np.insert(points, 2, m, 1) for m in range(len(amplitudes))])
    y = np.concatenate([diffusing_shock(*points.T, a) for a in amplitudes])
    describe = {"variables": ("t", "x"), "function_column": 2}
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", **describe).fit(X, y)
    assert model.equation_.terms() == pytest.approx({"u u_x": 1, "u_xx": 0.1}, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cahn_hilliard", "kuramoto_sivashinsky"])
def test_equations_of_fourth_order_that_are_seen_with_noise(name, monkeypatch):
    """Two cubic terms and not seven quadratic ones; and states of the first times."""
    benchmarks = Path(__file__).parent.parent / "benchmarks"
    monkeypatch.syspath_prepend(str(benchmarks))
    problem = import_module("evolution_problems").EQUATIONS[name](200)
    problem = problem.with_noise(0.02, 0)
    model = OneStepKEqL(**problem.settings).fit(problem.X, problem.y)
    assert problem.has_right_terms(model.equation_)
    assert problem.equation_error(model.equation_) < 0.03
    assert problem.state_error(model.predict(problem.X_test)) < 0.01


def test_residuals_count_in_units_of_their_noise():
    """A few values of little weight say no more of neighbours than any others."""
    rng, n = np.random.default_rng(0), 2000
    weights = np.where(np.arange(n) < 20, 1e-4, 1.0)
    found = []
    for _ in range(40):
        residuals = rng.standard_normal(n) / np.sqrt(weights)
        index = np.zeros(n, dtype=int)
        data = FunctionData(np.arange(n)[:, None], residuals, weights, index, [])
        evaluation = SimpleNamespace(residuals=residuals)
        fit = SimpleNamespace(
            observations=Observations((None,), [data], ("u",)),
            model=SimpleNamespace(evaluation=evaluation),
        )
        found.append(correlation_of_residuals(fit))
    assert 0.7 < np.std(found) < 1.3

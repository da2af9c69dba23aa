"""Exact fields whose equations depend on inputs: signals, coefficients, numbers."""

import numpy as np
import pandas as pd
import pytest
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import (
    effects_on_rates,
    integrate,
    linear_response,
    linear_solution,
)
from keql._evolution.known import known_at

WAVES = np.array([(1, 0.8, 0.3), (2, 0.5, 1.1), (3, -0.3, 2.0)])  # number, size, phase


def diffusing(points, rate, growth=0.0, phase=0.0):
    """Solutions of u_t = rate u_xx at points (n, 2), times exp(growth)."""
    t, x = points.T
    parts = [
        a * np.exp(-rate * k**2 * t) * np.cos(k * x + b + phase * k)
        for k, a, b in WAVES
    ]
    return np.exp(growth) * np.sum(parts, axis=0)


def scattered(n, seed, until=1.5):
    """Points (n, 2) in time and space."""
    return np.random.default_rng(seed).uniform((0, 1), (until, 5), (n, 2))


class TestAKnownCoefficient:
    """u_t = x u_xx + 0.5 u, with x a coordinate, or an input that has its values."""

    grid = EvolutionGrid(np.zeros(2), np.array([0.3, 1.0]), 0, 4, 12)
    weights = -np.array([1.0, 0.5])

    @pytest.fixture
    def equations(self):
        plain, own = monomial(1, 3) + monomial(2), monomial(2, 4) + monomial(3)
        given = ("u", "u_xx"), "u_t"
        return (
            make_equation(*given, plain, self.weights),
            make_equation(*given, own, self.weights, inputs=("c",)),
        )

    @pytest.fixture
    def known(self):
        return known_at(self.grid, [None, lambda points: points[:, 1]])

    @pytest.fixture
    def state(self):
        return diffusing(self.grid.points.reshape(-1, 2), 0.3)

    def test_responses_are_equal(self, equations, known, state):
        plain, own = equations
        expected = linear_response(self.grid, plain, state)
        assert_allclose(linear_response(self.grid, own, state, known), expected)

    def test_solutions_are_equal(self, equations, known, state):
        plain, own = equations
        boundary = self.grid.boundary_of(state.reshape(4, 4, 12, 1))[:, 0]
        unknowns = np.r_[1.0, self.weights, boundary]
        expected = linear_solution(self.grid, plain, state, unknowns)
        found = linear_solution(self.grid, own, state, unknowns, known)
        assert_allclose(found, expected)
        integrated = integrate(self.grid, own, boundary, None, known)
        assert_allclose(integrated, expected, atol=1e-8)

    def test_effects_on_rates_are_equal(self, equations, known, state):
        (plain, own), state = equations, state.ravel()
        expected = effects_on_rates(self.grid, (plain,), state)
        assert_allclose(effects_on_rates(self.grid, (own,), state, known), expected)


class TestNumbersOfFunctions:
    """Heat in three materials: u_t = nu u_xx, with nu of each as an input."""

    rates = {"lead": 0.2, "iron": 0.1, "clay": 0.05}

    def table(self, noise=0.0, n=40):
        rng, parts = np.random.default_rng(3), []
        for i, (name, rate) in enumerate(self.rates.items()):
            X = scattered(n, i)
            y = diffusing(X, rate, phase=i)
            y += noise * np.std(y) * rng.standard_normal(n)
            columns = {"what": name, "t": X[:, 0], "x": X[:, 1], "u": y, "nu": rate}
            parts.append(pd.DataFrame(columns))
        return pd.concat(parts)

    def fit(self, table, inputs, *columns):
        model = OneStepKEqL(
            ("u", "u_x", "u_xx"),
            "u_t",
            variables=("t", "x"),
            function_column="what",
            inputs=inputs,
        )
        return model.fit(table[["what", "t", "x", *columns]], table["u"])

    def test_their_law_is_found(self):
        model = self.fit(self.table(), {"nu": self.rates})
        assert model.equation_.terms() == {"nu u_xx": pytest.approx(1.0, rel=1e-5)}
        assert "obey the equation exactly" in str(model.fit_report_)
        later = scattered(30, 7, 2.5)  # and a forecast
        for i, (name, rate) in enumerate(self.rates.items()):
            X = pd.DataFrame({"what": name, "t": later[:, 0], "x": later[:, 1]})
            inside = later[:, 0] < 1.4
            found, std = model.forecast(X, return_std=True)
            error = np.abs(found - diffusing(later, rate, phase=i))
            assert np.max(error[inside]) < 1e-3
            assert np.mean(error < 3 * std + 1e-6) > 0.9

    def test_a_column_says_the_same(self):
        table = self.table()
        expected = self.fit(table, {"nu": self.rates}).equation_.terms()
        found = self.fit(table, {"nu": "nu"}, "nu").equation_.terms()
        assert found == pytest.approx(expected, rel=1e-9)

    def test_noise_adds_no_terms(self):
        model = self.fit(self.table(0.02), {"nu": self.rates})
        assert model.equation_.terms() == {"nu u_xx": pytest.approx(1.0, rel=0.05)}


def test_a_signal_is_an_input():
    """u_t = 0.1 u_xx + 0.8 c u, c(t) = cos(3 t); it is forecast with the signal."""

    def growth(points):
        return 0.8 / 3 * np.sin(3 * points[:, 0])

    X = scattered(80, 0)
    model = OneStepKEqL(
        ("u", "u_x", "u_xx"),
        "u_t",
        variables=("t", "x"),
        inputs={"c": lambda points: np.cos(3 * points[:, 0])},
    ).fit(X, diffusing(X, 0.1, growth(X)))
    found = model.equation_.terms()
    assert found == {
        "c u": pytest.approx(0.8, rel=1e-4),
        "u_xx": pytest.approx(0.1, rel=1e-4),
    }
    inside = scattered(30, 1)
    error = np.abs(model.predict(inside) - diffusing(inside, 0.1, growth(inside)))
    assert np.median(error) < 1e-4
    soon = np.column_stack([np.linspace(1.5, 1.8, 8), np.full(8, 3.0)])
    error = np.abs(model.forecast(soon) - diffusing(soon, 0.1, growth(soon)))
    assert np.max(error) < 0.05


def fished(rate, phase, n=64):
    """u_t = u_xx/10 + u - u v, v_t = v_xx/20 + u v - rate v on a circle, at points."""
    x, numbers = 2 * np.pi * np.arange(n) / n, np.arange(n // 2 + 1)
    start = [1 + 0.4 * np.cos(x + phase) + 0.2 * np.sin(2 * x), 1 + 0.3 * np.sin(x)]

    def slope(t, state):
        u, v = fields = state.reshape(2, n)
        bends = np.fft.irfft(-(numbers**2) * np.fft.rfft(fields), n)
        return np.ravel([bends[0] / 10 + u - u * v, bends[1] / 20 + u * v - rate * v])

    how = {"rtol": 1e-9, "atol": 1e-10, "dense_output": True}
    state = solve_ivp(slope, (0, 3), np.ravel(start), **how).sol

    def at(points):
        modes = np.fft.rfft(state(points[:, 0]).T.reshape(-1, 2, n)) / n
        modes[..., 1:] *= 2
        waves = np.exp(1j * np.outer(points[:, 1], numbers))
        return np.real(np.einsum("psk,pk->ps", modes, waves))

    return at


@pytest.mark.slow
def test_a_system_of_fields_has_inputs():
    rates, X, y = {0: 0.3, 1: 0.6}, [], []
    for m, rate in rates.items():
        points = scattered(90, m, 3.0)
        X.append(np.column_stack([np.full(90, m), points]))
        y.append(fished(rate, m)(points))
    model = OneStepKEqL(
        ("u", "v", "u_xx", "v_xx"),
        ("u_t", "v_t"),
        states=("u", "v"),
        variables=("t", "x"),
        function_column=0,
        inputs={"f": rates},
    ).fit(np.concatenate(X), np.concatenate(y))
    terms = {name: own.terms() for name, own in model.equation_.items()}
    assert terms["u_t"] == pytest.approx({"u v": -1.0, "u": 1.0, "u_xx": 0.1}, rel=1e-3)
    expected = {"u v": 1.0, "f v": -1.0, "v_xx": 0.05}
    assert terms["v_t"] == pytest.approx(expected, rel=1e-3)

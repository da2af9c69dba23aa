"""Exact fields of which slopes in space were observed, beside values."""

import numpy as np
import pandas as pd
import pytest

from keql import OneStepKEqL

WAVES = np.array([(1, 0.8, 0.3), (2, 0.5, 1.1), (3, -0.3, 2.0)])  # number, size, phase


def diffusing(points, order=0, rate=0.1):
    """A solution of u_t = rate u_xx, or a derivative of it in x, at points (n, 2)."""
    t, x = points.T
    parts = [
        a * k**order * np.exp(-rate * k**2 * t) * np.cos(k * x + b + order * np.pi / 2)
        for k, a, b in WAVES
    ]
    return np.sum(parts, axis=0)


def rod(noise=0.0, size=1.0, shuffled=False):
    """40 temperatures of a rod, and 15 fluxes at either end; X, y."""
    rng, t = np.random.default_rng(0), np.linspace(0, 1.5, 15)
    inside = rng.uniform((0, 1), (1.5, 5), (40, 2))
    ends = [np.column_stack([t, np.full(15, x)]) for x in (1.0, 5.0)]
    points = np.concatenate([inside, *ends])
    X = pd.DataFrame(points, columns=["t", "x"])
    X["what"] = ["u"] * 40 + ["u_x"] * 30
    y = np.where(X["what"] == "u", diffusing(points), diffusing(points, 1))
    y = size * (y + noise * rng.standard_normal(len(y)))
    order = rng.permutation(len(y)) if shuffled else np.arange(len(y))
    return X.iloc[order], y[order]


def fitted(X, y, **settings):
    given = ("u", "u_x", "u_xx"), "u_t"
    names = {"variables": ("t", "x"), "operator_column": "what"}
    return OneStepKEqL(*given, **names, **settings).fit(X, y)


@pytest.mark.parametrize(
    ("size", "shuffled"), [(1.0, False), (1e-6, True), (1e6, True)]
)
def test_fluxes_tell_of_states_that_obey_the_equation(size, shuffled):
    model = fitted(*rod(size=size, shuffled=shuffled))
    assert model.equation_.terms() == {"u_xx": pytest.approx(0.1, rel=1e-4)}
    assert "obey the equation exactly" in str(model.fit_report_)
    points = np.random.default_rng(1).uniform((0.1, 1.1), (1.4, 4.9), (50, 2))
    asked = pd.DataFrame(points, columns=["t", "x"])
    for order, what in enumerate(("u", "u_x")):
        found = model.predict(asked.assign(what=what))
        error = np.abs(found - size * diffusing(points, order))
        assert np.max(error) < 1e-4 * size


def test_values_and_fluxes_have_noise_of_their_own():
    X, y = rod()
    rng, is_flux = np.random.default_rng(2), X["what"] == "u_x"
    y = y + np.where(is_flux, 0.01, 0.002) * rng.standard_normal(len(y))
    model = fitted(X, y)
    assert model.equation_.terms() == {"u_xx": pytest.approx(0.1, rel=0.03)}
    expected = {"u": pytest.approx(0.002, rel=0.5), "u_x": pytest.approx(0.01, rel=0.5)}
    assert model.observation_noise_ == expected
    held = fitted(X, y, observation_noise={"u": 0.002})
    assert held.observation_noise_["u"] == pytest.approx(0.002)


def test_highest_derivatives_in_time_are_no_data_of_exact_states():
    X, y = rod()
    X["what"] = X["what"].replace("u_x", "u_t")
    rates = 0.1 * diffusing(X[["t", "x"]].to_numpy(), 2)
    model = fitted(X, np.where(X["what"] == "u_t", rates, y), n_terms=1)
    assert "values of u_t were observed" in str(model.fit_report_)

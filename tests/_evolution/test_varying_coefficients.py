"""Exact states of equations whose coefficients vary with the coordinates."""

import numpy as np
import pytest
import sklearn
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.interpolate import BarycentricInterpolator

from keql import OneStepKEqL
from keql._evolution import integration
from keql._evolution.forecast import EvolvedState
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import (
    linear_response,
    linear_responses,
    linear_solution,
)
from keql.equation import InducingBasis
from keql.kernels import RBF, Polynomial


def stationary(points):
    """u = t + x - log(1 + x), a solution of u_t = ((1 + x) u_x)_x."""
    t, x = points.T
    return t + x - np.log(1 + x)


def test_the_response_is_exact_where_coefficients_vary():
    law = monomial(1, 3) + monomial(3) + monomial(2)  # x u_xx, u_xx, u_x
    equation = make_equation(("u_x", "u_xx"), "u_t", law, -np.ones(3))
    grid = EvolutionGrid(np.zeros(2), np.array([0.5, 2.0]), 0, 6, 24)
    exact = stationary(grid.points.reshape(-1, 2)).reshape(6, 4, 24)
    boundary = grid.boundary_of(exact[..., None])[:, 0]
    unknowns = np.r_[1.0, equation.weights, boundary]
    state = np.zeros(exact.size)
    found = linear_response(grid, equation, state) @ unknowns
    assert_allclose(found, exact, atol=1e-9)
    alone = linear_solution(grid, equation, state, unknowns)
    assert_allclose(alone.reshape(exact.shape), exact, atol=1e-9)


@pytest.mark.parametrize("working_memory", [1e-3, 1024])
@pytest.mark.parametrize("degree", [1, 2])
def test_functions_are_linearised_together_as_alone(
    degree, working_memory, monkeypatch
):
    """Along all of them a linear equation is the same: its steps are solved once."""
    rng, law = np.random.RandomState(0), monomial(2, 2) + monomial(3)  # u u_x, u_xx
    varying = Polynomial(degree, active_dims=(2, 3))
    varying = RBF(0.4, active_dims=(0, 1)) * varying
    S = rng.uniform(size=(12, 4))
    equation = make_equation(("u_x", "u_xx"), "u_t", law, -np.ones(3))
    equation.basis = InducingBasis(varying.scaled_to(S), S)
    equation.weights = 0.1 * rng.normal(size=12)
    grid = EvolutionGrid(np.zeros(2), np.array([0.1, 1.0]), 0, 3, 9)
    states = [0.1 * rng.normal(size=3 * 4 * 9) for _ in range(3)]
    forcings = [rng.normal(size=(1, 3 * 3 * 9)) for _ in range(3)]
    alone = [
        linear_response(grid, equation, *given)
        for given in zip(states, forcings, strict=True)
    ]
    solve, solved = integration._solve_linear_step, []

    def counted(*given):
        solved.append(given)
        return solve(*given)

    monkeypatch.setattr(integration, "_solve_linear_step", counted)
    with sklearn.config_context(working_memory=working_memory):
        found = [*linear_responses(grid, equation, states, forcings)]
    assert_allclose(found, alone, rtol=1e-9, atol=1e-11)
    at_once = degree == 1 and working_memory > 1
    assert len(solved) == (1 if at_once else 3) * grid.n_steps


def test_a_linear_equation_grows_along_all_functions_or_none():
    grid = EvolutionGrid(np.zeros(2), np.array([2.0, 1.0]), 0, 12, 24)
    states, forcings = 3 * [np.zeros(12 * 4 * 24)], 3 * [0.0]
    for sign in (-1.0, 1.0):  # forwards and backwards in time
        law = make_equation(("u_x", "u_xx"), "u_t", monomial(3), [sign])
        found = [*linear_responses(grid, law, states, forcings)]
        assert [own is None for own in found] == 3 * [sign > 0]


def diffusions(n_functions, n, seed=0):
    """Observations of u_t = (a u_x)_x with a = 0.1 (1 + 2 x), and their values at test.

    Chebyshev points in space, integrated to nine digits, the ends held.
    """
    rng = np.random.RandomState(seed)
    x = (1 - np.cos(np.linspace(0, np.pi, 29))) / 2
    D = BarycentricInterpolator(x, np.eye(29), rng=0).derivative(x, 1)
    A = D @ (0.1 * (1 + 2 * x)[:, None] * D)
    A[[0, -1]] = 0.0
    rows, values = [], []
    for m in range(n_functions):
        waves = np.sin(np.pi * np.outer([1, 2, 3], x))
        start = rng.normal(size=3) @ waves + rng.normal() * x + rng.normal()
        how = {"method": "Radau", "rtol": 1e-9, "atol": 1e-11, "jac": A}
        solution = solve_ivp(
            lambda _, u: A @ u, (0, 1), start, dense_output=True, **how
        )
        points = np.concatenate(
            [rng.uniform(size=(n, 2)), rng.uniform(0.05, 0.95, size=(n, 2))]
        )
        rows.append(np.column_stack([np.full(2 * n, m), points]))
        for t, place in points:
            u = BarycentricInterpolator(x, solution.sol(t), rng=0)
            values.append(float(u(place)))
    is_test = np.tile(np.repeat([False, True], n), n_functions)
    X, y = np.concatenate(rows), np.array(values)
    return X[~is_test], y[~is_test], X[is_test], y[is_test]


@pytest.mark.slow
def test_terms_of_a_diffusion_that_varies_in_space():
    names = ("x", "u", "u_x", "u_xx")
    X, y, X_test, y_test = diffusions(2, 60)
    model = OneStepKEqL(
        names[1:],
        "u_t",
        variables=("t", "x"),
        function_column=0,
        equation_kernel=Polynomial(2, active_dims=names),
        n_terms="auto",
    ).fit(X, y)
    assert isinstance(model.states_[0], EvolvedState)
    error = np.linalg.norm(model.predict(X_test) - y_test) / np.linalg.norm(y_test)
    assert error < 1e-3
    truth = {"u_xx": 0.1, "x u_xx": 0.2, "u_x": 0.2}
    assert model.equation_.terms() == pytest.approx(truth, rel=0.01)


def speed(x):
    return 0.6 + 0.3 * np.sin(2 * np.pi * x)


def advections(n_functions, n, seed=0):
    """Observations of u_t = -speed(x) u_x on a ring, and their values at test points.

    Values are those at time 0 where the characteristics come from.
    """
    rng, k = np.random.RandomState(seed), 2 * np.pi * np.arange(1, 4)
    rows, values = [], []
    for m in range(n_functions):
        sizes = rng.normal(size=(2, 3)) / np.arange(1, 4)
        points = rng.uniform([0.05, 0.0], [0.95, 1.0], size=(2 * n, 2))
        points[:n, 0] = rng.uniform(size=n)
        t, x = points.T
        how = {"method": "DOP853", "rtol": 1e-10, "atol": 1e-12}
        path = solve_ivp(lambda _, z, t=t: -speed(z) * t, (0, 1), x, **how)
        phases = np.outer(path.y[:, -1], k)
        values.append(np.cos(phases) @ sizes[0] + np.sin(phases) @ sizes[1] + m / 4)
        rows.append(np.column_stack([np.full(2 * n, m), points]))
    is_test = np.tile(np.repeat([False, True], n), n_functions)
    X, y = np.concatenate(rows), np.concatenate(values)
    return X[~is_test], y[~is_test], X[is_test], y[is_test]


@pytest.mark.slow
@pytest.mark.parametrize("noise, most", [(0.0, 1e-3), (0.02, 0.02)])
def test_advection_that_varies_in_space(noise, most):
    X, y, X_test, y_test = advections(8, 60)
    y = y + noise * np.std(y) * np.random.RandomState(1).normal(size=len(y))
    settings = {"variables": ("t", "x"), "function_column": 0, "periods": {"x": 1.0}}
    model = OneStepKEqL(("u", "u_x"), "u_t", **settings).fit(X, y)
    assert isinstance(model.states_[0], EvolvedState)
    error = np.linalg.norm(model.predict(X_test) - y_test) / np.linalg.norm(y_test)
    assert error < most
    features = np.column_stack(
        [X_test[:, 1:], y_test, model.predict_derivative(X_test, "u_x")]
    )
    expected = speed(X_test[:, 2]) * features[:, 3]
    found = model.equation_.unknown_part(features)
    assert np.linalg.norm(found - expected) < 10 * most * np.linalg.norm(expected)


def test_few_inducing_points_span_what_many_do():
    rng = np.random.RandomState(0)
    S = rng.uniform(size=(200, 3))
    kernel = RBF(0.5, active_dims=(0,), period=1.0) * Polynomial(1, active_dims=(1, 2))
    basis = InducingBasis(kernel.scaled_to(S), S)
    weights = rng.normal(size=200)
    few, own = basis.thinned(weights)
    assert len(own) < 60
    places = rng.uniform(size=(30, 3))
    expected = basis.values(places, weights)
    assert_allclose(few.values(places, own), expected, atol=1e-4)

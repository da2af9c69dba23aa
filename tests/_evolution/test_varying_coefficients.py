"""Exact states of equations whose coefficients vary with the coordinates."""

import numpy as np
import pytest
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp
from scipy.interpolate import BarycentricInterpolator

from keql import OneStepKEqL
from keql._evolution.forecast import EvolvedState
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import linear_response, linear_solution
from keql.kernels import Polynomial


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
    truth = {"u_xx": -0.1, "x u_xx": -0.2, "u_x": -0.2}
    assert model.equation_.terms() == pytest.approx(truth, rel=0.01)

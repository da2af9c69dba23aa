"""Equations of second order in time, against waves in closed form."""

import numpy as np
import pytest
from exact_states import fit_exactly, grow
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose

from keql import OneStepKEqL, TwoStepKEqL
from keql._evolution.boundary.prior import BoundaryPrior, PointsWithSlopes
from keql._evolution.form import why_not_integrated
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import integrate, linear_response
from keql.kernels import RBF, Constant, Matern, Polynomial, Restriction
from keql.operators import parse_operator

DAMPING = 0.4
UPPER = np.array([4.0, 3.0])
# Exponents of t, x, u, u_x, u_xx, u_t in the terms on offer: these, and u u_x.
OFFERED = [(0, 0, *row) for row in np.eye(4, dtype=int).tolist()]
OFFERED.append((0, 0, 1, 1, 0, 0))


def waves(t, x, order=0):
    """A solution of u_tt = u_xx - u - 0.4 u_t, or its derivative of an order in t."""
    total = 0.0
    for k, size in ((1, 1.0), (2, 0.5), (3, 0.3)):
        rate = -DAMPING / 2 + 1j * np.sqrt(k**2 + 1 - DAMPING**2 / 4)
        in_time = np.real(rate**order * np.exp(rate * t + 1j * k))
        total = total + size * in_time * np.sin(k * x + 1)
    return total


def damped(axis=0):
    """Their equation, time being either coordinate."""
    space, time = "xt" if axis == 0 else "tx"
    operators = ("u", f"u_{space * 2}", f"u_{time}")
    kernel = monomial(2) + monomial(3) + monomial(4)
    return make_equation(operators, f"u_{time * 2}", kernel, [1.0, -1.0, DAMPING])


def make_grid(n_steps=20, axis=0):
    upper = UPPER if axis == 0 else UPPER[::-1]
    return EvolutionGrid(np.zeros(2), upper, axis, n_steps, n_along=30, order=2)


def of(function, points, axis=0, **options):
    return function(points[..., axis], points[..., 1 - axis], **options)


def boundary_values(grid):
    values, slopes = of(waves, grid.boundary, grid.axis), grid.rows_of_slopes
    values[slopes] = of(waves, grid.boundary[slopes], grid.axis, order=1)
    return values


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("at", ["the solution", "another state"])
def test_waves_are_integrated_from_their_boundary_values(axis, at):
    grid, equation = make_grid(axis=axis), damped(axis)
    expected = of(waves, grid.points, axis)
    state = expected if at == "the solution" else np.cos(grid.points[..., 0])
    response = linear_response(grid, equation, state.ravel())
    found = response @ np.r_[1, equation.weights, boundary_values(grid)]
    assert_allclose(found, expected, atol=2e-4)


def test_steps_are_of_high_order():
    """Errors of half the steps are at least 12 times as small: of order 4 or so."""
    errors, equation = [], damped()
    for n_steps in (6, 12, 24):
        grid = make_grid(n_steps)
        response = linear_response(grid, equation, np.zeros(grid.points[..., 0].size))
        found = response @ np.r_[1, equation.weights, boundary_values(grid)]
        errors.append(np.abs(found - of(waves, grid.points))[:, -1].max())
    assert errors[0] > 12 * errors[1] > 12**2 * errors[2]


def test_newton_steps_find_what_the_response_is():
    grid, equation = make_grid(10), damped()
    boundary = boundary_values(grid)
    guess = np.zeros(grid.points[..., 0].size)
    response = linear_response(grid, equation, guess)
    found = integrate(grid, equation, boundary, guess)
    expected = response @ np.r_[1, equation.weights, boundary]
    assert_allclose(found, expected.ravel(), atol=1e-10)


def test_a_nonlinear_solution_is_at_rest():
    """u_tt = u_xx - u^3: linearised there, it is the solution again."""
    kernel = monomial(2, 2, 2) + monomial(3)
    equation = make_equation(("u", "u_xx"), "u_tt", kernel, [1.0, -1.0])
    grid = make_grid()
    boundary = boundary_values(grid)
    state = integrate(grid, equation, boundary, np.zeros(grid.points[..., 0].size))
    response = linear_response(grid, equation, state)
    found = response @ np.r_[1, equation.weights, boundary]
    assert_allclose(found.ravel(), state, atol=1e-5)
    assert np.abs(found - of(waves, grid.points)).max() > 0.1


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name, order", [("u", 0), ("u_t", 1), ("u_tt", 2)])
def test_derivatives_between_the_points(axis, name, order):
    grid = make_grid(40, axis)
    points = np.random.RandomState(0).uniform(0, grid.upper, size=(200, 2))
    operator = parse_operator(name, ("t", "x")[:: 1 - 2 * axis])
    values = of(waves, grid.points, axis)[..., None]
    found = grid.apply(values, points, operator)[:, 0]
    expected = of(waves, points, axis, order=order)
    assert_allclose(found, expected, atol=(2e-5, 5e-4, 3e-2)[order])


def test_slopes_of_states_are_boundary_values():
    grid = make_grid(40)
    found = grid.boundary_of(of(waves, grid.points)[..., None])[:, 0]
    assert_allclose(found, boundary_values(grid), atol=2e-3)


def test_what_grows_is_given_up():
    """u_tt = -u_xx has no solution for most initial values."""
    equation = make_equation(("u_xx",), "u_tt", monomial(2), [1.0])
    grid = make_grid()
    assert linear_response(grid, equation, np.zeros(grid.points[..., 0].size)) is None


@pytest.mark.parametrize("kernel", [Matern([0.7, 0.9], nu=2.5), RBF([1.1, 0.8])])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_prior_of_slopes_is_that_of_differences(kernel, axis):
    kernel, h = Constant(0.3, "fixed") + Constant(2.0) * kernel, 1e-4
    points = np.random.RandomState(0).uniform(size=(9, 2))
    boundary = PointsWithSlopes(points, slice(3, 6), axis)
    prior = BoundaryPrior(kernel, 0.1)
    # Slopes are differences of the values at two points that lie around each.
    around = [points[3:6] + sign * h * np.eye(2)[axis] for sign in (1, -1)]
    A = np.zeros((9, 12))
    A[[0, 1, 2, 6, 7, 8], [0, 1, 2, 3, 4, 5]] = 1.0
    A[[3, 4, 5], [6, 7, 8]], A[[3, 4, 5], [9, 10, 11]] = 0.5 / h, -0.5 / h
    places = np.concatenate([points[[0, 1, 2, 6, 7, 8]], *around])
    expected = kernel(places)
    [(found, slopes)] = prior.covariances(boundary).at(kernel.theta)
    assert_allclose(found, A @ expected @ A.T, atol=2e-3)
    assert_allclose(prior.covariance(boundary), found)
    for slope, change in zip(slopes, 1e-5 * np.eye(kernel.n_dims), strict=True):
        ends = [
            kernel.clone_with_theta(kernel.theta + s * change)(places) for s in (1, -1)
        ]
        expected = A @ np.subtract(*ends) @ A.T / 2e-5
        assert_allclose(slope, expected, atol=1e-2)


def test_the_unit_of_time_does_not_matter_for_growth():
    """Seconds or years: what a slope does in all of the time is of its own size."""
    kernel = monomial(2)
    grid = EvolutionGrid(np.zeros(2), np.array([1e6, 1.0]), 0, 10, 12, order=2)
    equation = make_equation(("u_xx",), "u_tt", kernel, [-1e-12])
    state = np.zeros(grid.points[..., 0].size)
    assert linear_response(grid, equation, state) is not None


def two_steps(X, y, **changes):
    settings = {
        "operators": ("u", "u_x", "u_xx", "u_t"),
        "known_part": "u_tt",
        "variables": ("t", "x"),
        "equation_kernel": Restriction(Polynomial(2), OFFERED),
    }
    return TwoStepKEqL(**(settings | changes))._learn_in_two_steps(X, y, None)


@pytest.fixture(scope="module")
def observed():
    X = np.random.RandomState(0).uniform(0, [3.0, 5.0], size=(80, 2))
    return X, waves(*X.T)


@pytest.mark.slow
def test_the_equation_of_waves_is_found(observed):
    new = fit_exactly(two_steps(*observed)).learned
    expected = {"u": -1.0, "u_x": 0.0, "u_xx": 1.0, "u_t": -DAMPING, "u u_x": 0.0}
    assert new.equation.terms() == pytest.approx(expected, abs=1e-3)
    inside = np.random.RandomState(1).uniform([0.3, 0.5], [2.7, 4.5], size=(100, 2))
    for name, order, tol in (("u", 0, 1e-3), ("u_t", 1, 5e-3), ("u_tt", 2, 3e-2)):
        found = new.states[0].evaluate(inside, parse_operator(name, ("t", "x")))
        assert_allclose(found, waves(*inside.T, order=order), atol=tol)
    u = parse_operator("u", ("t", "x"))
    assert np.all(new.states[0].variance(inside, u) < 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_defaults_find_the_terms_of_waves(noise):
    """To rounding errors of the boundary, or to a few standard errors."""
    rng = np.random.RandomState(0)
    X = rng.uniform(0, [4.0, 6.0], size=(120, 2))
    y = waves(*X.T) + noise * rng.normal(size=120)
    model = OneStepKEqL(
        ("u", "u_x", "u_xx", "u_t"), "u_tt", variables=("t", "x"), n_terms="auto"
    ).fit(X, y)
    expected = {"u": -1.0, "u_xx": 1.0, "u_t": -DAMPING}
    terms, std = model.equation_.terms(return_std=True)
    assert set(terms) == set(expected)
    for name, value in expected.items():
        assert abs(terms[name] - value) < max(1e-3, 4 * std[name] if noise else 0.0)


@pytest.mark.slow
def test_waves_grow_from_waves(observed):
    exact = grow(two_steps(*observed), "auto")
    terms = exact.learned.equation.terms()
    expected = {"u": -1.0, "u_xx": 1.0, "u_t": -DAMPING}
    assert terms == pytest.approx(expected, rel=1e-2)


def test_elliptic_equations_are_not_integrated(observed):
    """Their form is that of waves, but the sign says that they are none."""
    X = np.random.RandomState(0).uniform(size=(40, 2))
    harmonic = sum(np.exp(k * X[:, 0]) * np.sin(k * X[:, 1]) for k in (1, 2))
    changes = {"operators": ("u", "u_xx"), "equation_kernel": None}
    reason = "grow without bounds"
    assert reason in why_not_integrated(two_steps(X, harmonic, **changes))
    signed = changes | {"known_part": {"u_tt": -2.0}}
    assert reason in why_not_integrated(two_steps(X, harmonic, **signed))
    assert why_not_integrated(two_steps(*observed)) == ""
    negative = {"known_part": {"u_tt": -2.0}}
    assert why_not_integrated(two_steps(*observed, **negative)) == ""

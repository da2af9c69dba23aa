"""Several states of second order in time, against coupled waves in closed form."""

import numpy as np
import pytest
from known_equations import make_system
from numpy.testing import assert_allclose

from keql import OneStepKEqL
from keql._evolution.boundary.prior import (
    PointsOfStates,
    PointsWithSlopes,
    StateKernels,
    points_at,
)
from keql._evolution.forecast import EvolvedState, integrate_fields
from keql._evolution.form import why_not_integrated
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import linear_response, linear_solution
from keql.kernels import RBF, Constant, Matern

TX, NAMES, DAMPING = ("t", "x"), ("u", "v"), 0.4
OPERATORS = ("u", "u_t", "u_xx", "v", "v_t", "v_xx")
WAVES = {
    "u_tt": ({"u_tt": 1.0}, {"u_xx": -1.0, "u_t": DAMPING, "v": 2.0}),
    "v_tt": ({"v_tt": 1.0}, {"v_xx": -1.0, "v_t": DAMPING, "u": 2.0}),
}


def waves(t, x, state=0, order=0):
    """u_tt = u_xx - 0.4 u_t - 2 v, and v_tt likewise; or derivatives of an order in t.

    The sum and the difference of u and v are damped waves of their own.
    """
    total = 0.0
    for sign, pull in ((1, 2.0), (-1, -2.0)):
        for k, size in ((2, 1.0), (3, 0.4)):
            rate = -DAMPING / 2 + 1j * np.sqrt(k**2 + pull - DAMPING**2 / 4)
            in_time = np.real(rate**order * np.exp(rate * t + 1j * k * sign))
            total = total + sign**state * size * in_time * np.sin(k * x + 1)
    return 0.5 * total


def make_grid(n_steps=20):
    given = np.array([3.0, 2.0]), 0, n_steps, 24, 1, 2
    return EvolutionGrid(np.zeros(2), *given, states=NAMES)


def on_grid(grid):
    t, x = np.moveaxis(grid.points, -1, 0)
    return np.concatenate([waves(t, x, state) for state in (0, 1)], axis=2)


def boundary_values(grid):
    """Values at the start, slopes there, and values at both ends."""
    points, states = grid.boundary, grid.states_of_boundary
    order = np.zeros(len(points), int)
    order[grid.rows_of_slopes] = 1
    found = np.empty(len(points))
    for state in (0, 1):
        for k in (0, 1):
            rows = (states == state) & (order == k)
            found[rows] = waves(*points[rows].T, state, k)
    return found


@pytest.mark.parametrize("reverse", [False, True])
def test_the_response_gives_the_closed_form(reverse):
    """Whichever equation is the first, and whatever the state it is linearised at."""
    named = WAVES if not reverse else dict(reversed(WAVES.items()))
    grid, laws = make_grid(), tuple(make_system(named, OPERATORS, NAMES, TX).values())
    weights = np.concatenate([law.weights for law in laws])
    unknowns = np.r_[1.0, weights, boundary_values(grid)]
    state = np.random.RandomState(0).normal(size=on_grid(grid).size)
    found = linear_response(grid, laws, state) @ unknowns
    assert_allclose(found, on_grid(grid), atol=2e-4)
    alone = linear_solution(grid, laws, state, unknowns)
    assert_allclose(alone.reshape(found.shape), found, atol=1e-9)


def test_the_prior_of_each_state_is_that_of_its_own_values_and_slopes():
    grid = make_grid(4)
    points = grid.boundary, grid.states_of_boundary
    boundary = PointsOfStates(*points, grid.rows_of_slopes, 0)
    kernels = [Constant(2.0) * Matern([0.4, 2.0], nu=2.5), Constant(0.5) * RBF([1, 3])]
    K = boundary.covariance(StateKernels(kernels))
    other = PointsOfStates(boundary.points[:50], boundary.states[:50])
    cross = boundary.covariance_with(StateKernels(kernels), other)
    assert np.all(K[boundary.states[:, None] != boundary.states] == 0)
    n = grid.n_points
    for k, kernel in enumerate(kernels):
        rows = np.flatnonzero(boundary.states == k)
        own = PointsWithSlopes(boundary.points[rows], slice(n, 2 * n), 0)
        assert_allclose(K[np.ix_(rows, rows)], own.covariance(kernel))
        columns = np.flatnonzero(other.states == k)
        expected = own.covariance_with(kernel, other.points[columns])
        assert_allclose(cross[np.ix_(rows, columns)], expected)
    places = np.delete(np.arange(len(boundary)), [3, len(boundary) - 2])
    some = points_at(boundary, places).covariance(StateKernels(kernels))
    assert_allclose(some, K[np.ix_(places, places)])


def test_nonlinear_equations_go_on_from_the_slopes_they_start_with():
    """u_tt = -u_t^2 and v_tt = -u_t v_t, alike everywhere: u = log(1 + t), v = 2 u."""
    named = {
        "u_tt": ({"u_tt": 1.0}, {"u_xx": -0.1, "u_t^2": 1.0}),
        "v_tt": ({"v_tt": 1.0}, {"v_xx": -0.1, "u_t v_t": 1.0}),
    }
    laws = tuple(make_system(named, OPERATORS, NAMES, TX).values())
    grid = make_grid(12)
    size = 1.0 + grid.states_of_boundary
    boundary = size * np.log1p(grid.boundary[:, 0])
    slopes = grid.rows_of_slopes
    boundary[slopes] = size[slopes]
    forcing = np.zeros((2, grid.n_steps * 3 * grid.n_points))
    found = integrate_fields(grid, laws, boundary, forcing, np.ones(grid.size))
    expected = np.log1p(grid.points[..., 0])
    assert_allclose(found, np.concatenate([expected, 2 * expected], axis=2), atol=1e-4)


def learn(**changes):
    X = np.random.RandomState(0).uniform(0, [3.0, 2.0], size=(60, 2))
    y = np.column_stack([waves(*X.T, state) for state in (0, 1)])
    given = {"operators": OPERATORS, "known_part": ("u_tt", "v_tt"), "states": NAMES}
    model = OneStepKEqL(**given | {"variables": TX} | changes)
    return model._learn_in_two_steps(X, y, None)


def test_equations_of_boundary_values_are_not_integrated():
    """u_tt + u_xx = 0 has no time, though its first coordinate is called t."""
    assert why_not_integrated(learn()) == ""
    X = np.random.RandomState(0).uniform(size=(60, 2))
    y = np.column_stack([np.exp(2 * X[:, 0]) * np.cos(2 * X[:, 1] + k) for k in (0, 1)])
    given = ("u_xx", "v", "v_xx"), ("u_tt", "v_tt")
    model = OneStepKEqL(*given, variables=TX, states=NAMES)
    why_not = why_not_integrated(model._learn_in_two_steps(X, y, None))
    assert "short waves would grow" in why_not


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_terms_of_coupled_waves_with_defaults(noise):
    rng = np.random.RandomState(0)
    X = rng.uniform(0, [3.0, 2.0], size=(120, 2))
    y = np.column_stack([waves(*X.T, state) for state in (0, 1)])
    y += noise * np.std(y, axis=0) * rng.normal(size=y.shape)
    given = {"operators": OPERATORS, "known_part": ("u_tt", "v_tt"), "states": NAMES}
    model = OneStepKEqL(**given, variables=TX).fit(X, y)
    for name, (_, parts) in WAVES.items():
        truth = {term: -value for term, value in parts.items()}
        assert model.equation_[name].terms() == pytest.approx(
            truth, rel=8 * noise + 2e-3
        )
    points = rng.uniform(0.1, [2.9, 1.9], size=(200, 2))
    truth = np.column_stack([waves(*points.T, state) for state in (0, 1)])
    found, std = model.predict(points, return_std=True)
    errors = np.linalg.norm(found - truth, axis=0) / np.linalg.norm(truth, axis=0)
    assert np.all(errors < (1e-3 if noise == 0 else 0.02))
    if noise:
        assert isinstance(model.states_[0], EvolvedState)
        assert np.mean(np.abs(found - truth) < 2 * std) > 0.85
        later = np.column_stack([rng.uniform(3, 4, 100), rng.uniform(0.3, 1.7, 100)])
        truth = np.column_stack([waves(*later.T, state) for state in (0, 1)])
        found, std = model.forecast(later, return_std=True)
        assert np.mean(np.abs(found - truth) < 2 * std) > 0.8

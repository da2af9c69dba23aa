"""The grid of evolution equations, against polynomials that it must have exactly."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from keql._evolution.grid import EvolutionGrid
from keql.operators import parse_operator

N_STEPS, N_POINTS = 40, 80  # the default
LOWER, UPPER = np.array([-1.0, 2.0]), np.array([2.0, 2.5])
# Derivatives of t^3 (x - 2)^4 + t (x - 2): by operator, functions of t and s = x - 2.
DERIVATIVES = {
    "u": lambda t, s: t**3 * s**4 + t * s,
    "u_t": lambda t, s: 3 * t**2 * s**4 + s,
    "u_x": lambda t, s: 4 * t**3 * s**3 + t,
    "u_xx": lambda t, s: 12 * t**3 * s**2,
    "u_tx": lambda t, s: 12 * t**2 * s**3 + 1,
    "u_tttt": lambda t, s: 0 * t,
}


def case(axis):
    """The grid, names of the variables, and t and s of points."""
    order = slice(None) if axis == 0 else slice(None, None, -1)
    grid = EvolutionGrid(LOWER[order], UPPER[order], axis)
    return grid, "tx"[order], lambda p: (p[..., axis], p[..., 1 - axis] - 2)


def sample(grid):
    rng = np.random.RandomState(0)
    inner = grid.lower + (grid.upper - grid.lower) * rng.uniform(size=(60, 2))
    return np.concatenate([inner, [grid.lower, grid.upper]])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_of_cubics_in_time_are_exact(axis, name):
    grid, variables, parts = case(axis)
    operator = parse_operator(name, tuple(variables))
    values = DERIVATIVES["u"](*parts(grid.points))
    points = sample(grid)
    found = grid.apply(np.stack([values, 2 * values], axis=-1), points, operator)
    expected = DERIVATIVES[name](*parts(points))
    assert_allclose(found[:, 0], expected, rtol=0, atol=1e-6)
    assert_allclose(found[:, 1], 2 * found[:, 0], atol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
def test_matrices_of_operators_are_those_at_the_radau_points(axis):
    grid, variables, parts = case(axis)
    names = ["u", "u_t", "u_x", "u_xx", "u_xx + 3 u_t"]
    operators = [parse_operator(name, tuple(variables)) for name in names]
    values = DERIVATIVES["u"](*parts(grid.points))
    for step in (0, 7, N_STEPS - 1):
        still, moving = grid.matrices(operators)
        found = (still + moving / grid.steps[step]) @ values[step].ravel()
        t, s = parts(grid.points[step, 1:].reshape(-1, 2))
        expected = [DERIVATIVES[name](t, s) for name in names[:-1]]
        expected.append(expected[3] + 3 * expected[1])
        assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_boundary_is_the_begin_and_both_sides(axis):
    grid, _, parts = case(axis)
    t, s = parts(grid.boundary)
    assert len(t) == N_POINTS + 6 * N_STEPS
    assert len(np.unique(grid.boundary, axis=0)) == len(t)
    assert np.all(t[:N_POINTS] == -1)
    assert_allclose(np.sort(s[:N_POINTS])[[0, -1]], [0, 0.5])
    assert np.all(t[N_POINTS:] > -1)
    assert_allclose(s[N_POINTS:].reshape(-1, 2), np.tile([0, 0.5], (3 * N_STEPS, 1)))
    assert t.max() == 2.0
    at_all = parts(grid.points)
    values = (at_all[0] + 3 * at_all[1])[..., None]
    assert_allclose(grid.boundary_of(values)[:, 0], t + 3 * s)


def test_a_step_begins_where_the_one_before_ends():
    grid, *_ = case(0)
    assert_allclose(grid.points[1:, 0], grid.points[:-1, -1], atol=1e-15)


def test_the_box_holds_its_corners_and_nothing_outside():
    grid, *_ = case(0)
    points = np.array([[-1.0, 2.0], [2.0, 2.5], [0.0, 2.6], [-1.1, 2.2]])
    assert grid.contains(points).tolist() == [True, True, False, False]

"""Equations that are integrated, against solutions in closed form."""

import numpy as np
import pytest
from known_equations import DIFFUSION, cole_hopf, make_equation, monomial
from numpy.testing import assert_allclose

from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import (
    integrate,
    linear_response,
    linear_solution,
    open_ends,
)

GRID = EvolutionGrid(np.array([0.0, 1.0]), np.array([2.0, 3.0]), 0)
OPERATORS = "u", "u_x", "u_xx"
LAW = monomial(2, 3) + monomial(4)


def wave(p):
    """A solution of u_t + 0.3 u = 0.1 u_xx."""
    return np.exp(-(0.3 + 0.1 * 9) * p[..., 0]) * np.sin(3 * p[..., 1] + 1)


@pytest.mark.parametrize("at", ["the solution", "another state"])
def test_linear_equations_are_integrated_from_wherever_they_are_linearised(at):
    kernel = monomial(2) + monomial(4)
    equation = make_equation(("u", "u_x", "u_xx"), "u_t", kernel, [0.3, -0.1])
    state = wave(GRID.points) if at == "the solution" else np.cos(GRID.points[..., 0])
    response = linear_response(GRID, equation, state.ravel())
    found = response @ np.r_[1, equation.weights, wave(GRID.boundary)]
    assert_allclose(found, wave(GRID.points), rtol=0, atol=1e-7)


@pytest.mark.parametrize("order", [3, 4])
def test_higher_orders_leave_open_up_to_two_values_at_either_end(order):
    """Waves of u_t = -u_xxx and of u_t = -0.1 u_xxxx, from what they are there."""

    def solution(p):
        t, x = p[..., 0], p[..., 1]
        if order == 3:
            return np.cos(x + t) + 0.5 * np.sin(2 * x + 8 * t)
        return np.exp(-0.1 * t) * np.cos(x) + 0.5 * np.exp(-1.6 * t) * np.sin(2 * x)

    name, factor = "u_" + "x" * order, 1.0 if order == 3 else 0.1
    equation = make_equation(("u", name), "u_t", monomial(3), [factor])
    corners = np.array([0.0, 0.0]), np.array([0.5, 2.0])
    grid = EvolutionGrid(*corners, 0, n_steps=40, n_along=30, n_ends=2)
    response = linear_response(grid, equation, np.zeros(grid.points[..., 0].size))
    found = response @ np.r_[1, equation.weights, solution(grid.boundary)]
    assert_allclose(found, solution(grid.points), rtol=0, atol=1e-4)


@pytest.mark.parametrize("solve", ["linearised", "Newton"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("speed", [0.7, -0.7])
def test_values_come_in_at_one_end_only(speed, axis, solve):
    """Where u_t = -c u_x - 0.5 u goes out, what is said of the other end is ignored.

    The equation has no second derivative, which its features offer.
    """

    def solution(p):
        t, x = p[..., axis], p[..., 1 - axis]
        return np.exp(-0.5 * t) * np.sin(3 * (x - speed * t))

    operators = ("u", "u_x", "u_xx") if axis == 0 else ("u", "u_t", "u_tt")
    kernel = monomial(2) + monomial(3) + monomial(4)
    known_part = "u_t" if axis == 0 else "u_x"
    equation = make_equation(operators, known_part, kernel, [0.5, speed, 0.0])
    grid = EvolutionGrid(np.zeros(2), np.ones(2), axis, n_steps=20, n_along=20)
    boundary, (t, x) = solution(grid.boundary), grid.boundary.T[[axis, 1 - axis]]
    boundary[(x == (1.0 if speed > 0 else 0.0)) & (t > 0)] = 7.0
    state = np.zeros(grid.points[..., 0].size)
    if solve == "Newton":
        found = integrate(grid, equation, boundary, state)
    else:
        response = linear_response(grid, equation, state)
        found = (response @ np.r_[1, equation.weights, boundary]).ravel()
        unknowns = np.r_[1, equation.weights, boundary]
        alone = linear_solution(grid, equation, state, unknowns)
        assert_allclose(alone, found, atol=1e-9)
    assert_allclose(found, solution(grid.points).ravel(), atol=1e-5)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_odd_orders_leave_open_one_value_more_where_waves_come_in(sign):
    """u_t = -u_xxx one value at the left end and two at the right one."""
    equation = make_equation(("u", "u_xxx"), "u_t", monomial(3), [sign])
    grid = EvolutionGrid(np.zeros(2), np.ones(2), 0, 5, 12, n_ends=2)
    slopes = np.full((3, 5, 3, 12), 0.0)
    slopes[1], slopes[2] = sign, 1.0  # u, u_xxx, u_t
    found = open_ends(grid, equation.operators, slopes)
    one, two = [True, False], [True, True]
    left, right = (one, two[::-1]) if sign > 0 else (two, one[::-1])
    assert np.all(found == np.tile([*left, *right], 3))


def test_without_derivatives_in_space_nothing_is_open_at_the_ends():
    """u_t = -u^2, whose slopes in other operators are rounding errors."""
    kernel = monomial(2, 2) + monomial(4)
    equation = make_equation(OPERATORS, "u_t", kernel, [1.0, 1e-17])
    state = 1.0 / (1.0 + GRID.points[..., 0])
    response = linear_response(GRID, equation, state.ravel())
    boundary = np.where(GRID.boundary[:, 0] > 0, 7.0, 1.0)
    found = response @ np.r_[1, equation.weights, boundary]
    assert_allclose(found, state, atol=1e-7)


def test_the_response_is_the_derivative_of_solutions():
    """Of the solution in the weights and border values, against differences."""
    equation = make_equation(("u", "u_x", "u_xx"), "u_t", LAW, [-1.0, -DIFFUSION])
    grid = EvolutionGrid(np.zeros(2), np.ones(2), 0)
    rng = np.random.RandomState(0)
    border = cole_hopf(*grid.boundary.T)

    def solve(weights, border):
        equation.weights, state = weights, cole_hopf(*np.moveaxis(grid.points, -1, 0))
        for _ in range(4):
            response = linear_response(grid, equation, state.ravel())
            state = response @ np.r_[1, weights, border]
        return response, state

    weights, change = np.array([-1.0, -DIFFUSION]), np.array([0.3, -0.02])
    response, _ = solve(weights, border)
    bump = np.sin(5 * grid.boundary @ rng.normal(size=2))
    h = 1e-4
    ends = [solve(weights + s * change, border + s * bump)[1] for s in (-h, h)]
    expected = (ends[1] - ends[0]) / (2 * h)
    assert_allclose(response @ np.r_[0, change, bump], expected, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("sizes", [{}, {"n_steps": 20, "n_along": 30}])
def test_an_equation_is_solved_from_its_boundary_values(axis, sizes):
    operators = ("u", "u_x", "u_xx") if axis == 0 else ("u", "u_t", "u_tt")
    known_part = "u_t" if axis == 0 else "u_x"
    equation = make_equation(operators, known_part, LAW, [-1.0, -DIFFUSION])
    grid = EvolutionGrid(np.zeros(2), np.ones(2), axis, **sizes)
    order = [axis, 1 - axis]
    border = cole_hopf(*grid.boundary.T[order])
    guess = np.zeros(grid.points.shape[:-1])
    found = integrate(grid, equation, border, guess.ravel())
    expected = cole_hopf(*np.moveaxis(grid.points, -1, 0)[order])
    assert_allclose(found, expected.ravel(), atol=1e-6)
    assert not guess.any()


def test_the_response_is_at_rest_at_a_solution():
    equation = make_equation(OPERATORS, "u_t", LAW, [-1.0, -DIFFUSION])
    grid = EvolutionGrid(np.zeros(2), np.ones(2), 0)
    border = cole_hopf(*grid.boundary.T) + 0.3 * grid.boundary[:, 0]
    guess = np.zeros(grid.points.shape[:-1]).ravel()
    state = integrate(grid, equation, border, guess)
    response = linear_response(grid, equation, state)
    found = response @ np.r_[1, equation.weights, border]
    assert_allclose(found.ravel(), state, atol=1e-5)


def test_what_grows_beyond_bounds_is_not_found():
    """u_t = 300 u^2 from 1: after 1 / 300 there is no solution."""
    kernel = monomial(2, 2) + monomial(4)
    equation = make_equation(OPERATORS, "u_t", kernel, [-300.0, -1e-3])
    grid = EvolutionGrid(np.zeros(2), np.ones(2), 0)
    border = np.ones(len(grid.boundary))
    guess = np.ones(grid.points.shape[:-1]).ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        assert integrate(grid, equation, border, guess) is None


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_no_digits_are_lost_in_other_units(unit):
    """Rows of the equation beside those of the values at both ends in space."""
    corners = np.array([0.0, 1.0]) * unit, np.array([2.0, 3.0]) * unit
    grid, kernel = EvolutionGrid(*corners, 0), monomial(2) + monomial(4)
    weights = [0.3 / unit, -0.1 * unit]
    equation = make_equation(("u", "u_x", "u_xx"), "u_t", kernel, weights)
    true, boundary = wave(grid.points / unit), wave(grid.boundary / unit)
    known = np.r_[1, equation.weights, boundary]
    response = linear_response(grid, equation, np.zeros(true.size))
    assert_allclose(response @ known, true, rtol=0, atol=1e-7)
    found = linear_solution(grid, equation, np.zeros(true.size), known)
    assert_allclose(found.reshape(true.shape), true, rtol=0, atol=1e-7)
    found = integrate(grid, equation, boundary, None)
    assert_allclose(found.reshape(true.shape), true, rtol=0, atol=1e-7)

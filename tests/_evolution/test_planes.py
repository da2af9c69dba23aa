"""Evolution equations with two coordinates of space.

Oracles are polynomials, which a grid represents exactly, and closed forms: waves of the
heat equation decay, cos(a x) cos(b y) as exp(-(a^2 + b^2) t), and u_t = -c . grad u
carries its states along.
"""

import numpy as np
import pytest
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose

from keql import OneStepKEqL
from keql._evolution.grid import EvolutionGrid, GridSizes
from keql._evolution.integration import (
    integrate,
    linear_response,
    linear_solution,
    open_ends,
)
from keql.operators import parse_operator

LOWER, UPPER = np.array([0.5, 1.0, -1.0]), np.array([1.0, 3.0, 0.5])
VARIABLES = "t", "x", "y"


def box(axis):
    """Corners, and the names of the coordinates, with time at a position."""
    order = np.insert([1, 2], axis, 0)
    return LOWER[order], UPPER[order], tuple(VARIABLES[i] for i in order)


def by_name(points, names):
    """The coordinates t, x and y of points."""
    return [points[..., names.index(name)] for name in VARIABLES]


def wave(points, names, frequencies=(1.0, 2.0), decay=0.3):
    """A solution of u_t = 0.3 (u_xx + u_yy)."""
    t, x, y = by_name(points, names)
    a, b = frequencies
    rate = decay * (a**2 + b**2)
    return np.exp(-rate * t) * np.cos(a * x + 0.4) * np.cos(b * y)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["u", "u_x", "u_xy", "u_yyy", "u_t", "u_tx"])
def test_polynomials_are_differentiated_and_interpolated_exactly(axis, name):
    lower, upper, names = box(axis)
    grid = EvolutionGrid(lower, upper, axis, 3, 5)
    assert grid.points.shape == (3, 4, 25, 3) and grid.n_points == 25
    t, x, y = by_name(grid.points, names)
    values = (1 + t + t**2) * (x**3 - x) * (y**4 + 2 * y)
    t, x, y = by_name(np.random.RandomState(0).uniform(lower, upper, (20, 3)), names)
    in_time = {0: 1 + t + t**2, 1: 1 + 2 * t}
    in_x = {0: x**3 - x, 1: 3 * x**2 - 1}
    in_y = {0: y**4 + 2 * y, 1: 4 * y**3 + 2, 3: 24 * y}
    orders = [name.removeprefix("u").count(each) for each in VARIABLES]
    expected = in_time[orders[0]] * in_x[orders[1]] * in_y[orders[2]]
    points = np.stack([[t, x, y][VARIABLES.index(each)] for each in names], axis=1)
    found = grid.apply(values[..., None], points, parse_operator(name, names))
    assert_allclose(found[:, 0], expected, rtol=1e-9, atol=1e-9)


def test_the_boundary_is_the_initial_time_and_all_faces():
    grid = EvolutionGrid(*box(0)[:2], 0, 3, 5)
    assert len(grid.ends) == 16 and len(grid.boundary) == 25 + 9 * 16
    initial, faces = grid.boundary[:25], grid.boundary[25:]
    assert np.all(initial[:, 0] == LOWER[0])
    at_ends = np.isclose(faces[:, 1:], LOWER[1:]) | np.isclose(faces[:, 1:], UPPER[1:])
    assert np.all(np.any(at_ends, axis=1))
    ring = EvolutionGrid(*box(0)[:2], 0, 3, 5, period=[np.inf, 2.0])
    assert ring.n_points == 25 and ring.upper[2] == 1.0
    assert np.all(np.isin(ring.places[ring.ends, 0], [0, 4])) and len(ring.ends) == 10
    one = EvolutionGrid(*box(0)[:2], 0, 3, 5, n_ends=[[1, 0]])
    assert np.array_equal(one.ends, ring.ends)


def test_points_are_in_the_box_or_after_it():
    grid = EvolutionGrid(*box(0)[:2], 0, 3, 5)
    points = np.array([[0.7, 2, 0], [0.7, 2, 0.6], [2, 2, 0], [2, 0, 0], [0.7, 0, 0]])
    assert grid.contains(points).tolist() == [True, False, False, False, False]
    assert grid.is_after(points).tolist() == [False, False, True, False, False]


def test_values_are_open_where_something_comes_in():
    grid = EvolutionGrid(*box(0)[:2], 0, 2, 5)
    operators = [parse_operator(name, VARIABLES) for name in ("u_x", "u_y", "u_t")]
    slopes = np.ones((3, 2, 3, 25)) * np.array([1.0, -2.0, 1.0])[:, None, None, None]
    is_open = open_ends(grid, operators, slopes)[0, : len(grid.ends)]
    first_x, last_y = grid.places[grid.ends].T == np.array([[0], [4]])
    assert np.array_equal(is_open, first_x | last_y)  # u_t = -u_x + 2 u_y
    slopes[0] = 0.0
    is_open = open_ends(grid, operators, slopes)[0, : len(grid.ends)]
    assert np.array_equal(is_open, last_y)


def equation_of(operators, weights, names, known_part="u_t"):
    """A linear equation: minus the right-hand side of known part = ... is P."""
    kernel = sum((monomial(3 + i) for i in range(1, len(weights))), start=monomial(3))
    return make_equation(operators, known_part, kernel, weights, variables=names)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("solve", ["response", "linearised", "Newton"])
def test_waves_decay_as_they_do(axis, solve):
    lower, upper, names = box(axis)
    equation = equation_of(("u_xx", "u_yy"), [-0.3, -0.3], names)
    grid = EvolutionGrid(lower, upper, axis, 5, 11)
    expected, boundary = (wave(p, names) for p in (grid.points, grid.boundary))
    state, unknowns = np.zeros(expected.size), np.r_[1, -0.3, -0.3, boundary]
    if solve == "response":
        found = linear_response(grid, equation, state) @ unknowns
    elif solve == "linearised":
        found = linear_solution(grid, equation, state, unknowns)
    else:
        found = integrate(grid, equation, boundary, None)
    assert_allclose(found.ravel(), expected.ravel(), atol=1e-5)


def test_waves_of_second_order_in_time_swing():
    lower, upper, names = box(0)

    def swinging(p):
        t, x, y = by_name(p, names)
        return np.sin(5**0.5 * t) * np.cos(x) * np.cos(2 * y)

    equation = equation_of(("u_xx", "u_yy"), [-1.0, -1.0], names, "u_tt")
    grid = EvolutionGrid(lower, upper, 0, 6, 11, order=2)
    boundary = swinging(grid.boundary)
    t, x, y = by_name(grid.boundary[grid.rows_of_slopes], names)
    boundary[grid.rows_of_slopes] = (
        5**0.5 * np.cos(5**0.5 * t) * np.cos(x) * np.cos(2 * y)
    )
    response = linear_response(grid, equation, np.zeros(grid.points[..., 0].size))
    found = response @ np.r_[1, -1.0, -1.0, boundary]
    assert_allclose(found, swinging(grid.points), atol=1e-5)


def test_what_flows_around_a_ring_comes_in_at_one_face():
    """u_t = -u_x - 2 u_y on a ring in y; the face where it goes out does not matter."""
    lower, upper, names = box(0)

    def carried(p):
        t, x, y = by_name(p, names)
        return np.sin(2 * (x - t)) * np.cos(np.pi * (y - 2 * t))

    # The ring takes any order, which counts for nothing at the faces in x.
    equation = equation_of(("u_x", "u_y", "u_yyyy"), [1.0, 2.0, 0.0], names)
    grid = EvolutionGrid(lower, upper, 0, 8, 14, period=[np.inf, 2.0])
    boundary = carried(grid.boundary)
    out = (grid.boundary[:, 1] == upper[1]) & (grid.boundary[:, 0] > lower[0])
    boundary[out] = 7.0
    found = integrate(grid, equation, boundary, np.zeros(grid.points[..., 0].size))
    assert_allclose(found, carried(grid.points).ravel(), atol=2e-3)


def test_what_reacts_and_spreads_is_integrated_as_it_is_linearised():
    """Newton steps for u_t = u - u^2 + 0.1 (u_xx + u_yy) end where it is linearised."""
    lower, upper, names = box(0)
    kernel = monomial(3) + monomial(3, 3) + monomial(4) + monomial(5)
    weights = [-1.0, 1.0, -0.1, -0.1]
    operators = "u", "u_xx", "u_yy"
    equation = make_equation(operators, "u_t", kernel, weights, variables=names)
    grid = EvolutionGrid(lower, upper, 0, 4, 9)
    boundary = 0.5 + 0.3 * wave(grid.boundary, names)
    state = integrate(grid, equation, boundary, None, precision=1e-10)
    found = linear_solution(grid, equation, state, np.r_[1, weights, boundary])
    assert_allclose(found, state, atol=1e-8)
    assert_allclose(grid.boundary_of(state.reshape(4, 4, -1, 1))[:, 0], boundary)


def test_grids_of_planes_are_coarser():
    sizes = GridSizes()
    assert sizes.of(2) == (sizes.coarse, sizes.fine)
    assert sizes.of(3) == (sizes.coarse_plane, sizes.fine_plane)
    assert sizes.fine_plane[1] ** 2 < 4 * sizes.fine[1]


@pytest.fixture(scope="module")
def diffused():
    """A default fit to few exact values of three decaying waves."""
    X = np.random.RandomState(0).uniform(LOWER, UPPER, size=(70, 3))
    settings = {"operators": ("u", "u_xx", "u_yy"), "known_part": "u_t"}
    model = OneStepKEqL(**settings, variables=VARIABLES, random_state=0)
    return model.fit(X, waves(X))


def waves(X):
    """Two waves would also be solutions of u_t = a u + b u_xx: there are three."""
    frequencies = (1.0, 2.0), (2.5, 0.7), (0.5, 1.0)
    return sum(wave(X, VARIABLES, each) for each in frequencies)


@pytest.mark.slow
def test_a_default_fit_finds_the_terms_and_states(diffused):
    assert {*diffused.equation_.terms()} == {"u_xx", "u_yy"}
    found = [*diffused.equation_.terms().values()]
    assert_allclose(found, 0.3, rtol=1e-2)
    P = np.random.RandomState(1).uniform(LOWER + 0.1, UPPER - 0.1, size=(300, 3))
    error = diffused.predict(P) - waves(P)
    assert np.sqrt(np.mean(error**2)) < 1e-3 * np.sqrt(np.mean(waves(P) ** 2))


@pytest.mark.slow
def test_the_report_says_where_terms_are_from(diffused):
    report = str(diffused.fit_report_)
    assert "the terms are those of exact states" in report
    assert all(np.isfinite(step.log_evidence) for step in diffused.terms_path_)


@pytest.mark.slow
def test_which_coordinate_is_the_time_does_not_matter(diffused):
    X = np.random.RandomState(0).uniform(LOWER, UPPER, size=(70, 3))
    settings = {"operators": ("u", "u_xx", "u_yy"), "known_part": "u_t"}
    model = OneStepKEqL(**settings, variables=("x", "y", "t"), random_state=0)
    model.fit(X[:, [1, 2, 0]], waves(X))
    assert {*model.equation_.terms()} == {"u_xx", "u_yy"}

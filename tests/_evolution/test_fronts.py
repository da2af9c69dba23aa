"""Grids that follow fronts, against fronts in closed form."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from exact_states import CONTEXT
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax

from keql import TwoStepKEqL
from keql._evolution.forecast import EvolvedState, Forecast
from keql._evolution.fronts import descent
from keql._evolution.fronts.descent import (
    FollowingSettings,
    are_steep,
    can_follow,
    follow_states,
    on_following_grid,
)
from keql._evolution.fronts.grid import MovingGrid
from keql._evolution.fronts.integration import (
    effects_on_observations,
    rates,
    solution,
    solutions,
)
from keql._evolution.fronts.layout import LayoutSettings, follow
from keql._evolution.grid import EvolutionGrid
from keql._evolution.problem import make_evolution_problem
from keql._numerics.optimisation import Result, Stop
from keql._regression.screening import CandidateTerms
from keql._regression.two_step import Hypothesis
from keql.exceptions import SimulationError
from keql.kernels import Polynomial
from keql.model_selection import Fit
from keql.model_selection._exact_fit import or_followed
from keql.operators import parse_operator

KNOWN = "u u_x", "u_xx"
CORNERS = np.zeros(2), np.ones(2)
LAW = monomial(2, 3) + monomial(4)


def fronts(p, viscosity):
    """Two fronts of u_t = u u_x + viscosity u_xx that meet, and go on as one.

    Cole and Hopf: u is a mean of constants a, weighted by exponentials that solve the
    equation of heat.
    """
    t, x = p[..., 0], p[..., 1]
    a, place = np.array([-0.9, 0.3, 0.8]), np.array([0.0, 0.0, -0.42])
    logs = np.multiply.outer(x, a) + np.multiply.outer(t, a**2) / 2
    logs = (logs + np.array([0.4, 0.0, place[2]])) / (2 * viscosity)
    return softmax(logs - logsumexp(logs, axis=-1, keepdims=True), axis=-1) @ a


def burgers(viscosity):
    operators = "u", "u_x", "u_xx"
    return make_equation(operators, "u_t", LAW, [-1.0, -viscosity])


def following(viscosity, sizes):
    """A grid that follows the two fronts."""
    grid = EvolutionGrid(*CORNERS, 0, 30, 80)
    for each in (4 * viscosity, viscosity):
        grid = follow(grid, fronts(grid.points, each)[..., None], sizes=sizes)
    return grid


@pytest.fixture(scope="module")
def grid():
    return following(0.005, (60, 100))


def wobbling(axis=0, n_steps=6, n_points=20, width=7):
    """A grid whose points move to and fro."""
    plain = EvolutionGrid(*CORNERS, axis, n_steps, n_points)
    edges = np.linspace(0, 1, n_steps + 1)
    places = np.linspace(0, 1, n_points)
    moved = np.multiply.outer(np.sin(4 * edges), np.sin(np.pi * places))
    return MovingGrid(plain, edges, places + 0.05 * moved, width)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["u", "u_x", "u_t", "u_xx", "u_tx"])
def test_polynomials_are_known_exactly_between_points_that_move(name, axis):
    """Of degree one in time and two in space: along its path a value is a cubic.

    The velocity between points is that of a polynomial through those nearby.
    """
    grid = wobbling(axis)

    def values(p, names):
        t, x = p[..., axis], p[..., 1 - axis]
        in_time = [1 - 2 * t, -2.0 + 0 * t][names.count("t")]
        in_space = [x**2 - x, 2 * x - 1, 2.0 + 0 * x][names.count("x")]
        return in_time * in_space

    operator = parse_operator(name, ("t", "x")[:: 1 - 2 * axis])
    points = np.random.RandomState(0).uniform(size=(50, 2))
    known = values(grid.points, "").reshape(6, 4, 20, 1)
    found = grid.apply(known, points, operator)[:, 0]
    assert_allclose(found, values(points, name[2:]), atol=1e-5)


def test_linear_equations_are_integrated_on_points_that_move():
    """u_t + 0.3 u = 0.1 u_xx, from boundary values and any state."""

    def wave(p):
        return np.exp(-(0.3 + 0.1 * 9) * p[..., 0]) * np.sin(3 * p[..., 1] + 1)

    equation = make_equation(
        ("u", "u_x", "u_xx"), "u_t", monomial(2) + monomial(4), [0.3, -0.1]
    )
    errors = []
    for n in (10, 20):
        grid = wobbling(0, n, 2 * n)
        unknowns = np.r_[1, equation.weights, wave(grid.boundary)]
        found = solution(grid, equation, np.zeros(grid.points[..., 0].size), unknowns)
        errors.append(np.max(np.abs(found - wave(grid.points).ravel())))
    assert errors[1] < 1e-5
    assert errors[1] < errors[0] / 10


def test_points_are_where_fronts_are(grid):
    steep = np.argmax(np.abs(np.diff(fronts(grid.points, 0.005)[:, 0], axis=1)), axis=1)
    at = grid.paths[np.arange(len(steep)), steep]
    a = np.array([-0.9, 0.3, 0.8])
    weakest = -(a[0] + a[1]) / 2 * grid.edges[:-1] + 0.4 / (a[1] - a[0])
    before = grid.edges[:-1] < 0.3
    assert_allclose(at[before], weakest[before], atol=0.03)
    gaps = np.diff(grid.paths, axis=1)
    assert np.all(gaps > 0)
    assert np.max(gaps) > 10 * np.min(gaps)
    growth = np.abs(np.log(gaps[:, 1:] / gaps[:, :-1]))
    assert np.max(growth) < 3 * LayoutSettings().growth
    assert np.all(grid.paths[:, [0, -1]] == [0, 1])


@pytest.mark.parametrize("viscosity", [0.01, 0.002])
def test_thin_fronts_that_meet_are_integrated(viscosity):
    equation, errors = burgers(viscosity), []
    for sizes in [(60, 100), (90, 150)]:
        grid = following(viscosity, sizes)
        exact = fronts(grid.points, viscosity).ravel()
        unknowns = np.r_[1, equation.weights, fronts(grid.boundary, viscosity)]
        state = exact
        for _ in range(3):
            state = solution(grid, equation, state, unknowns)
        errors.append(grid.mean(np.abs(state - exact)))
    assert errors[1] < 5e-5
    assert errors[1] < errors[0] / 3


def test_effects_found_backwards_are_those_found_forwards():
    grid, equation = following(0.02, (12, 40)), burgers(0.02)
    state = fronts(grid.points, 0.02).ravel()
    points = np.random.RandomState(1).uniform(size=(9, 2))
    observed = grid.interpolation(points, parse_operator("u", ("t", "x")))
    effects = effects_on_observations(grid, equation, state, observed)
    forward = solutions(grid, equation, state, np.eye(effects.shape[1]))
    expected = observed @ forward.reshape(-1, effects.shape[1])
    assert_allclose(effects, expected, atol=1e-12)
    assert np.max(np.abs(effects[:, 3:])) > 0.5


def test_rates_are_what_terms_make_of_the_state(grid):
    equation = burgers(0.005)
    state = fronts(grid.points, 0.005).ravel()
    [found] = rates(grid, equation, state)
    points = grid.points[:, 1:].reshape(-1, 2)
    operators = [parse_operator(name, ("t", "x")) for name in ("u", "u_x", "u_xx")]
    known = state.reshape(grid.n_steps, 4, -1, 1)
    u, u_x, u_xx = (grid.apply(known, points, o)[:, 0] for o in operators)
    expected = -np.column_stack([u * u_x, u_xx])
    assert np.max(np.abs(found - expected) / np.max(np.abs(expected), axis=0)) < 1e-3


def test_a_finer_grid_has_the_same_paths(grid):
    finer = grid.resized(120, 199)
    assert (finer.n_steps, finer.n_points) == (120, 199)
    assert_allclose(finer.paths[::2, ::2], grid.paths, atol=1e-12)
    assert_allclose(finer.edges[::2], grid.edges)
    later = grid.with_edges(np.array([1.0, 1.01, 1.03]))
    moved = np.diff(later.paths, axis=0) / np.diff(later.edges)[:, None]
    assert_allclose(moved, np.tile(grid.velocities[-1], (2, 1)))
    with pytest.raises(SimulationError, match="would meet"):
        grid.with_edges(np.array([1.0, 9.0]))
    assert "100 points in space that follow" in grid.text


@pytest.mark.parametrize(
    "changes", [{"order": 2}, {"period": [1.0]}, {"states": ("u", "v")}]
)
def test_other_states_are_not_followed(changes):
    assert can_follow(EvolutionGrid(*CORNERS, 0, 5, 10))
    assert not can_follow(EvolutionGrid(*CORNERS, 0, 5, 10, **changes))
    assert not can_follow(wobbling())


@pytest.fixture(scope="module")
def problem():
    """Of exact states, from scarce exact values of two thin fronts."""
    rng = np.random.RandomState(0)
    inside, side = rng.uniform(size=(60, 2)), np.linspace(0, 1, 31)
    initial = np.column_stack([np.zeros(31), side])
    ends = [np.column_stack([side[1:], np.full(30, x)]) for x in (0.0, 1.0)]
    X = np.concatenate([initial, *ends, inside])
    model = TwoStepKEqL(
        ("u", "u_x", "u_xx"),
        "u_t",
        inside,
        variables=("t", "x"),
        equation_kernel=Polynomial(2),
    )
    return make_evolution_problem(model._learn_in_two_steps(X, fronts(X, 0.004), None))


def iterate_of(problem, viscosity):
    """The fronts of some viscosity, with their equation."""
    candidates = CandidateTerms(problem.learned.equation)
    powers = candidates.exponents.tolist()
    terms = [powers.index(each) for each in ([0, 0, 1, 1, 0], [0, 0, 0, 0, 1])]
    equation = candidates.with_values(terms, np.array([-1.0, -viscosity]))
    return problem.iterate(equation, [fronts(problem.grid.points, viscosity).ravel()])


@pytest.fixture(scope="module")
def coarse(problem):
    """States of an equation five times as viscous, which a coarse grid resolves."""
    return iterate_of(problem, 0.02)


@pytest.fixture(scope="module")
def found(problem, coarse):
    result = follow_states(problem, coarse, np.inf, FollowingSettings(), (60, 100))
    assert result.converged
    return result.model.problem, result.solution


@pytest.mark.slow
def test_a_viscosity_that_a_coarse_grid_does_not_resolve_is_found(found):
    problem, iterate = found
    assert_allclose(iterate.equation.terms()["u_xx"], 0.004, rtol=0.02)
    assert_allclose(iterate.equation.terms()["u u_x"], 1.0, rtol=1e-3)
    exact = fronts(problem.grid.points, 0.004).ravel()
    assert problem.grid.mean(np.abs(iterate.states[0] - exact)) < 1e-3


def test_states_that_are_not_more_likely_are_given_up(problem, coarse):
    settings = FollowingSettings(patience=2)
    seen = []

    def tell(problem, result):
        seen.append((problem.grid.n_points, result.n_iter))

    assert follow_states(problem, coarse, -1e9, settings, (30, 60), tell) is None
    assert seen == 2 * [(60, 1)]
    stopped = follow_states(
        problem, coarse, np.inf, settings, (30, 60), lambda *_: True
    )
    assert stopped.interrupted


@pytest.mark.parametrize("losses, n", [((5.0, 7.0), 2), ((9.0, 8.0, 7.0, 6.0), 4)])
def test_states_that_become_less_likely_are_given_up_at_once(
    losses, n, problem, coarse, monkeypatch
):
    """Others when the patience ends: they are no more likely than they have to be."""
    tried = []

    def step(problem, iterate, control, max_iter, report):
        model = SimpleNamespace(problem=problem, loss=losses[len(tried)])
        tried.append(model)
        return Result(iterate, 0.0, model)

    monkeypatch.setattr(descent, "minimise", step)
    settings = FollowingSettings(patience=4)
    assert follow_states(problem, coarse, 0.0, settings, (30, 60)) is None
    assert len(tried) == n


def test_only_states_at_the_limit_of_their_grid_are_steep(problem, coarse):
    thin = [fronts(problem.grid.points, 0.002).ravel()]
    assert are_steep(problem, replace(coarse, states=thin), FollowingSettings())
    wide = [fronts(problem.grid.points, 0.05).ravel()]
    assert not are_steep(problem, replace(coarse, states=wide), FollowingSettings())


def test_states_are_equal_on_a_grid_that_follows_them(problem, coarse):
    followed, iterate = on_following_grid(problem, coarse, (40, 120))
    assert_allclose(
        followed.observed[0] @ iterate.states[0],
        problem.observed[0] @ coarse.states[0],
        atol=1e-3,
    )
    assert followed.change(iterate, iterate) == 0.0


@pytest.mark.slow
def test_uncertainty_and_forecasts_follow_fronts(found):
    problem, iterate = found
    model = problem.linearise(problem.evaluate(iterate))
    [state] = model.posterior_states()
    assert isinstance(state, EvolvedState)
    points = np.random.RandomState(2).uniform(size=(200, 2))
    u = parse_operator("u", ("t", "x"))
    errors = state.evaluate(points, u) - fronts(points, 0.004)
    deviations = np.sqrt(state.variance(points, u))
    assert np.mean(np.abs(errors) < 5 * deviations + 1e-3) > 0.95
    until = problem.grid.edges[-1] + 0.03
    later = np.column_stack([np.full(50, until), np.linspace(0.01, 0.99, 50)])
    forecast = Forecast(state, until)
    assert_allclose(forecast.evaluate(later, u), fronts(later, 0.004), atol=1e-2)
    assert np.all(forecast.variance(later, u) < 1e-2)
    again = pickle.loads(pickle.dumps(state))
    assert_allclose(again.evaluate(points, u), state.evaluate(points, u))


def fit_of(problem, iterate):
    """Exact states as if steps had ended at an iterate."""
    model = problem.linearise(problem.evaluate(iterate))
    result = Result(iterate, model.evaluation.loss, model, Stop.CONVERGED)
    hypothesis, kernel = Hypothesis(n_terms="auto"), problem.learned.state_kernel
    return Fit(hypothesis, problem.learned, model.problem, result, kernel)


@pytest.mark.slow
def test_steep_states_that_miss_exact_data_are_followed(problem):
    fit = fit_of(problem, iterate_of(problem, 0.006))
    other = or_followed(fit, problem.learned, CONTEXT)
    assert other.problem.grid.follows
    terms = other.result.solution.equation.terms()
    assert terms["u_xx"] == pytest.approx(0.004, rel=1e-2)
    assert terms["u u_x"] == pytest.approx(1, rel=1e-3)
    assert np.all(np.abs([terms[n] for n in terms if n not in KNOWN]) < 1e-3)
    assert other.error < 0.1 * fit.error
    assert "follow" in other.resolution[0]


@pytest.mark.slow
def test_a_callback_stops_the_search_on_grids_that_follow(problem):
    fit = fit_of(problem, iterate_of(problem, 0.006))
    callback = replace(CONTEXT, report=lambda *_: True)
    stopped = or_followed(fit, problem.learned, callback)
    assert stopped.result.interrupted
    assert stopped.problem is fit.problem


def test_states_that_are_not_steep_are_not_followed(problem, coarse):
    fit = fit_of(problem, coarse)
    assert or_followed(fit, problem.learned, CONTEXT) is fit
    assert or_followed(None, problem.learned, CONTEXT) is None

"""States after the last time, against problems of the whole time and closed forms."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from known_equations import (
    cole_hopf,
    learn_cole_hopf,
    make_equation,
    make_system,
    monomial,
)
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from keql import SimulationError, TwoStepKEqL
from keql._evolution.boundary.prior import BoundaryPrior, StateKernels
from keql._evolution.forecast import Forecast, ForecastLimits
from keql._evolution.problem import make_evolution_problem
from keql.kernels import Constant, Matern
from keql.operators import parse_operator

U = parse_operator("u", ("t", "x"))
SLOPE = parse_operator("u_x", ("t", "x"))


def burgers():
    kernel = monomial(2, 3) + monomial(4)
    return make_equation(("u", "u_x", "u_xx"), "u_t", kernel, [-1.0, -0.1])


def vibration(t, x, order=0):
    """A solution of u_tt = u_xx with waves at both ends."""
    return 0.5 ** (order == 0) * np.cos(2 * t + order * np.pi / 2) * np.sin(2 * x + 1)


def vibrating():
    return make_equation(("u_xx",), "u_tt", monomial(2), [-1.0])


def learn_vibration():
    rng = np.random.RandomState(0)
    X = np.concatenate([rng.uniform(size=(40, 2)), [[0, 0], [0, 1], [1, 0], [1, 1]]])
    model = TwoStepKEqL(("u_xx",), "u_tt", variables=("t", "x"))
    return model._learn_in_two_steps(X, vibration(*X.T), None)


def beat(t, x, state=0):
    """u_tt = u_xx - 2 v, v_tt = v_xx - 2 u: one mode that two waves pass on."""
    fast, slow = np.cos(np.sqrt(6) * t), np.cos(np.sqrt(2) * t)
    return 0.25 * (fast + (-1) ** state * slow) * np.sin(2 * x + 1)


def beating():
    equations = {
        "u_tt": ({"u_tt": 1.0}, {"u_xx": -1.0, "v": 2.0}),
        "v_tt": ({"v_tt": 1.0}, {"v_xx": -1.0, "u": 2.0}),
    }
    named = make_system(equations, ("u", "u_xx", "v", "v_xx"), ("u", "v"), ("t", "x"))
    return tuple(named.values())


def rotation(t, x, state=0):
    """u_t = 0.1 u_xx + v, v_t = 0.1 v_xx - u: decay and rotation of one mode."""
    wave = np.sin(np.pi * x + 0.5) * np.exp(-0.1 * np.pi**2 * t)
    return wave * (np.cos(t) if state == 0 else -np.sin(t))


def rotating():
    equations = {
        "u_t": ({"u_t": 1.0}, {"u_xx": -0.1, "v": -1.0}),
        "v_t": ({"v_t": 1.0}, {"v_xx": -0.1, "u": 1.0}),
    }
    named = make_system(equations, ("u", "u_xx", "v", "v_xx"), ("u", "v"), ("t", "x"))
    return tuple(named.values())


def learn_two(truth, known):
    corners = [[0, 0], [0, 1], [1, 0], [1, 1]]
    X = np.concatenate([np.random.RandomState(0).uniform(size=(50, 2)), corners])
    y = np.column_stack([truth(*X.T, state=k) for k in (0, 1)])
    operators = "u", "u_xx", "v", "v_xx"
    model = TwoStepKEqL(operators, known, variables=("t", "x"), states=("u", "v"))
    return model._learn_in_two_steps(X, y, None)


def solve(learned, equation, truth, n_steps=8, n_points=20, length=0.5, steps=5):
    """The problem with a prior that is held, and its solution near a true state."""
    problem = make_evolution_problem(learned, noise=1e-3).with_grid(n_steps, n_points)
    kernel = Constant(1.0, "fixed") * Matern([2.0, length], "fixed", nu=2.5)
    noise, states = 1e-3, learned.observations.states
    if len(states) > 1:
        kernel, noise = StateKernels(2 * [kernel]), np.full(2, 1e-3)
    free = np.zeros(np.shape(noise), bool)
    prior = BoundaryPrior(kernel, noise, free_noise=free, free_scale=False)
    problem = replace(problem, priors=(prior,))
    t, x = np.moveaxis(problem.grid.points, -1, 0)
    values = [truth(t, x)]
    if len(states) > 1:
        values.append(truth(t, x, state=1))
    iterate = problem.iterate(equation, [np.concatenate(values, axis=2).ravel()])
    for _ in range(steps):
        model = problem.linearise(problem.evaluate(iterate))
        iterate = model.solution
    return problem, model


CASES = {
    "first order": (learn_cole_hopf, burgers, cole_hopf),
    "second order": (lambda _: learn_vibration(), vibrating, vibration),
    "two fields": (lambda _: learn_two(rotation, ("u_t", "v_t")), rotating, rotation),
    "two waves": (lambda _: learn_two(beat, ("u_tt", "v_tt")), beating, beat),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    learn, equation, truth = CASES[request.param]
    problem, model = solve(learn(40), equation(), truth, 6, 16)
    return problem, model, truth


@pytest.fixture(scope="module")
def problem(case):
    return case[0]


@pytest.fixture(scope="module")
def state(case):
    return case[1].posterior_states()[0]


@pytest.fixture(scope="module")
def forecast(state):
    return Forecast(state, 1.5)


def later(n=60, until=1.5, begin=1.0):
    rng = np.random.RandomState(1)
    return np.column_stack([rng.uniform(begin, until, n), rng.uniform(0, 1, n)])


def test_it_is_what_the_problem_of_the_whole_time_says(case, state, forecast):
    """No data are there after t = 1, but values at both ends, in one regression."""
    problem, model, _ = case
    edges = np.concatenate([problem.grid.edges, forecast.later.grid.edges[1:]])
    grid = problem.grid.with_edges(edges)
    data = problem.functions[0]
    parts = [grid.interpolation(data.points, L).toarray() for L in data.operators]
    observed = (csr_array(np.stack(parts)[data.index, np.arange(len(data.index))]),)
    whole = replace(problem, grid=grid, observed=observed)
    values = np.concatenate([state.values, forecast.values])
    iterate = whole.iterate(state.equations, [values.ravel()])
    expected = whole.linearise(whole.evaluate(iterate)).posterior_states()[0]
    points = later()
    for operator in (U, SLOPE):
        found = forecast.evaluate(points, operator)
        assert_allclose(found, expected.evaluate(points, operator), atol=1e-6)
        std = np.sqrt(forecast.variance(points, operator))
        whole_std = np.sqrt(expected.variance(points, operator))
        assert_allclose(std, whole_std, rtol=1e-3, atol=1e-6)
    found = np.concatenate([e.weights for e in expected.equations])
    assert_allclose(found, model.posterior_weights().weights, rtol=1e-6)


def test_it_goes_on_from_the_last_state(state, forecast):
    """Before that it is the state itself."""
    x = np.linspace(0, 1, 11)
    points = np.column_stack([np.full(11, 1.0), x])
    just_after = points + [1e-9, 0]
    assert_allclose(
        forecast.evaluate(just_after, U), state.evaluate(points, U), atol=1e-6
    )
    after, before = forecast.variance(just_after, U), state.variance(points, U)
    assert_allclose(np.sqrt(after), np.sqrt(before), rtol=1e-4, atol=1e-7)
    inside = np.random.RandomState(2).uniform(size=(20, 2))
    assert np.array_equal(forecast.evaluate(inside, U), state.evaluate(inside, U))
    assert np.array_equal(forecast.variance(inside, U), state.variance(inside, U))


def test_errors_are_within_what_is_said_of_them(case, forecast):
    points = later(300)
    std = np.sqrt(forecast.variance(points, U))
    missed = np.abs(forecast.evaluate(points, U) - case[2](*points.T))
    assert np.mean(missed < 2 * std) > 0.9
    assert missed.max() < 0.07


def test_uncertainty_grows_with_what_is_unknown_at_the_ends(forecast):
    points = np.column_stack([np.linspace(1.0, 1.5, 11), np.zeros(11)])
    assert np.all(np.diff(forecast.variance(points, U)) > 0)


def test_times_and_steps_hardly_matter(state, forecast):
    """Neither how far the forecast goes, nor how many steps are linearised at once."""
    points = later(40, until=1.2)
    nearer = Forecast(state, 1.2)
    found, std = forecast.evaluate(points, U), np.sqrt(forecast.variance(points, U))
    assert_allclose(nearer.evaluate(points, U), found, atol=1e-5)
    assert_allclose(np.sqrt(nearer.variance(points, U)), std, rtol=1e-2)
    few = Forecast(state, 1.5, limits=ForecastLimits(window=3))
    assert_allclose(np.sqrt(few.variance(points, U)), std, rtol=1e-5)


def test_a_saved_state_has_the_same_forecast(state, forecast):
    again = Forecast(pickle.loads(pickle.dumps(state)), 1.5)
    points = later(20)
    assert np.array_equal(again.evaluate(points, U), forecast.evaluate(points, U))
    std, saved = (np.sqrt(each.variance(points, U)) for each in (forecast, again))
    assert_allclose(saved, std, rtol=1e-3)


def test_the_state_itself_goes_on(state, forecast):
    points = np.concatenate([later(20), [[1.2, 3.0]]])
    for name in ("evaluate", "variance"):
        found = getattr(state, name)(points, U)
        assert_allclose(found[:-1], getattr(forecast, name)(points[:-1], U), rtol=1e-2)
        assert found[-1] == getattr(state.outside, name)(points[-1:], U)[0]


def test_points_that_no_equation_leads_to_are_refused(forecast):
    for point in ([1.2, 1.5], [1.2, -0.1], [-0.5, 0.5]):
        with pytest.raises(ValueError, match="in space are between 0 and 1"):
            forecast.evaluate(np.array([[1.2, 0.5], point]), U)


def test_the_limit_of_exact_data_is_the_solution():
    """A forecast of five times the window: the rate of decay is known to 1e-6."""
    _, model = solve(learn_cole_hopf(60), burgers(), cole_hopf, 20, 30)
    forecast = Forecast(model.posterior_states()[0], 6.0)
    points = later(100, 6.0, 5.0)
    assert np.abs(forecast.evaluate(points, U) - cole_hopf(*points.T)).max() < 2e-3


@pytest.mark.slow
def test_it_ends_where_the_solution_does():
    """u_t = 0.1 u_xx + 50 u^2 leaves all bounds soon."""
    kernel = monomial(2, 2) + monomial(4)
    equation = make_equation(("u", "u_x", "u_xx"), "u_t", kernel, [-50.0, -0.1])
    _, model = solve(learn_cole_hopf(20), burgers(), cole_hopf, steps=2)
    state = model.posterior_states()[0]
    state.equations, state.values = (equation,), -state.values
    with pytest.raises(SimulationError, match="cannot be integrated to 3") as caught:
        Forecast(state, 3.0)
    assert caught.value.time == 1.0
    # Predictions go on as long as there is a solution, whatever else is asked for.
    points = np.array([[1.5, 0.5], [1.001, 0.5], [3.0, 0.2], [1.002, 0.5]])
    found = state.evaluate(points, U)
    assert_allclose(found[[0, 2]], state.outside.evaluate(points[[0, 2]], U))
    expected = Forecast(state, 1.002).evaluate(points[[1, 3]], U)
    assert_allclose(found[[1, 3]], expected, rtol=1e-5)
    with pytest.raises(SimulationError, match="too far away"):
        Forecast(state, 1e4)


def test_a_forcing_goes_on():
    """u_t = 0.1 u_xx + f with u = t^2 sin(pi x), whose f has no other solution."""

    def heated(t, x):
        return t**2 * np.sin(np.pi * x)

    def forcing(points):
        t, x = points.T
        return (2 * t + 0.1 * np.pi**2 * t**2) * np.sin(np.pi * x)

    rng = np.random.RandomState(0)
    sides = [[t, x] for t in np.linspace(0, 1, 8) for x in (0.0, 1.0)]
    X = np.concatenate([rng.uniform(size=(40, 2)), sides])
    model = TwoStepKEqL(("u", "u_xx"), "u_t", variables=("t", "x"), forcing=forcing)
    learned = model._learn_in_two_steps(X, heated(*X.T), None)
    equation = make_equation(
        ("u", "u_xx"), "u_t", monomial(3), [-0.1], has_forcing=True
    )
    state = solve(learned, equation, heated)[1].posterior_states()[0]
    points = later()
    found = Forecast(state, 1.5).evaluate(points, U)
    assert_allclose(found, heated(*points.T), atol=2e-2)
    state.forcing = (None,)
    without = Forecast(state, 1.5).evaluate(points, U)
    assert np.abs(without - heated(*points.T)).max() > 0.2

"""simulate: closed solutions, budgets, typed failures; where equations extrapolate."""

import pickle
import time
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import ExtrapolationWarning, OneStepKEqL, SimulationError, TwoStepKEqL
from keql._numerics.extrapolation import coverage_ratio
from keql.datasets import make_duffing
from keql.equation._known import GivenEquation
from keql.equation._ode import simulate
from keql.kernels import Polynomial
from keql.metrics import relative_l2_error

TIMES = np.linspace(0, 3, 40)


def given(equation):
    """An equation in the variable t, without a right-hand side."""
    equation = GivenEquation(equation, ("t",))
    equation.has_forcing = False
    return equation


@pytest.fixture(scope="module")
def duffing():
    """The cubic equation of a chaotic trajectory, and its forcing."""
    data = make_duffing(14, t_max=12.0, n_collocation=120)
    model = OneStepKEqL(
        **data.problem,
        state_kernel=data.kernels["state_kernel"],
        equation_kernel=Polynomial(3),
        observation_noise=1e-4,
        equation_noise=1e-3,
    ).fit(data.X, data.y)
    return model.equation_, data.problem["forcing"]


@pytest.mark.parametrize(
    ("equation", "initial", "solution"),
    [
        ("u_t + 2 u", [1.0], [np.exp(-2 * TIMES)]),
        (lambda t, u_t: u_t - t, [0.5], [0.5 + TIMES**2 / 2]),
        ("u_tt + u", [0.0, 1.0], [np.sin(TIMES), np.cos(TIMES)]),
        (lambda u, u_t: 2 * u_t + u**2, [2.0], [2 / (1 + TIMES)]),
        ({"u_ttt": 3.0, "u": -3.0}, [1.0, 1.0, 1.0], [np.exp(TIMES)] * 3),
    ],
)
def test_closed_solutions(equation, initial, solution):
    if isinstance(equation, str):  # its terms as operators of their own
        left, _, right = equation.partition(" + ")
        factor, _, name = right.rpartition(" ")
        equation = {left: 1.0, name: float(factor or 1)}
    states = simulate(given(equation), TIMES, initial)
    assert states.shape == (len(TIMES), len(initial))
    np.testing.assert_allclose(states, np.transpose(solution), atol=1e-7, rtol=1e-7)


def test_multiples_of_the_highest_derivative():
    # u_t + 2 u_t / 2 = 2 u_t = -u: both features have a part in the slope.
    states = simulate(given({"u_t": 1.0, "2 u_t": 0.5, "u": 1.0}), TIMES, {"u": 1.0})
    np.testing.assert_allclose(states[:, 0], np.exp(-TIMES / 2), atol=1e-8)


def test_forcing():
    states = simulate(given("u_t"), TIMES, [0.0], lambda points: np.cos(points[:, 0]))
    np.testing.assert_allclose(states[:, 0], np.sin(TIMES), atol=1e-8)


def test_learned_duffing_equation(duffing):
    equation, forcing = duffing
    times = np.linspace(0, 6, 100)
    truth = solve_ivp(
        lambda t, y: [y[1], 3 * y[0] - 3 * y[0] ** 3 - 0.2 * y[1] + np.cos(2 * t)],
        (0, 6),
        [0.0, 0.5],
        t_eval=times,
        rtol=1e-10,
        atol=1e-10,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        states = equation.simulate(times, [0.0, 0.5], forcing)
    assert relative_l2_error(truth.y.ravel(), states.T.ravel()) < 1e-3
    radau = simulate(given("u_t"), TIMES, [1.0], method="Radau", rtol=1e-6)
    np.testing.assert_allclose(radau, 1.0)


def test_a_simulation_that_extrapolates_warns(duffing):
    equation, forcing = duffing
    with pytest.warns(ExtrapolationWarning, match="first at t = 0,"):
        states = equation.simulate([0.0, 0.1], [3.0, 0.0], forcing)
    features = np.column_stack([[0.0, 0.1], states, [0.0, 0.0]])
    assert np.all(equation.extrapolation(features) > 1.5)


@pytest.mark.slow
def test_a_solution_that_ends_is_a_typed_failure():
    # u' = u^2 is infinite at t = 1.
    start = time.process_time()
    with pytest.raises(SimulationError) as info:
        simulate(given(lambda u, u_t: u_t - u**2), TIMES, [1.0])
    assert info.value.time == pytest.approx(1.0, abs=1e-3)
    assert "t = 1" in str(info.value) or "t = 0.99" in str(info.value)
    assert time.process_time() - start < 10
    again = pickle.loads(pickle.dumps(info.value))
    assert again.time == info.value.time and str(again) == str(info.value)


def test_a_solution_that_is_not_finite():
    # u falls below 0 at t = 1, where the equation has no value.
    equation = given(lambda u, u_t: u_t + 1 + 0 * anp.sqrt(u))
    with pytest.raises(SimulationError, match="not finite after t") as info:
        simulate(equation, TIMES, [1.0])
    assert 0 < info.value.time < 1


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        ({"max_evaluations": 1000}, "in 1000 evaluations"),
        ({"max_seconds": 0.2}, "0.2 seconds"),
    ],
)
def test_budget(budget, spent):
    # Far too stiff for an explicit method.
    start = time.process_time()
    with pytest.raises(SimulationError, match=spent) as info:
        simulate(given({"u_t": 1.0, "u": 1e5}), TIMES, [1.0], **budget)
    assert 0 < info.value.time < 3
    assert time.process_time() - start < 5


def test_no_budget_is_spent_where_thousands_would_be_needed():
    with pytest.raises(SimulationError, match="of 3, in 10000 evaluations"):
        simulate(given({"u_t": 1.0, "u": 1e11}), TIMES, [1.0])


def test_wrong_input(duffing):
    equation, forcing = duffing
    cases = [
        ([1.0, 0.5], [0.0, 0.0], "t_eval must be at least two finite times"),
        ([0.0], [0.0, 0.0], "t_eval must be at least two finite times"),
        ([0.0, np.nan], [0.0, 0.0], "t_eval must be at least two finite times"),
        ([0.0, 1.0], [0.0], "an equation of order 2 needs 2 finite value"),
        ([0.0, 1.0], [0.0, np.inf], "an equation of order 2 needs 2 finite value"),
    ]
    for times, initial, message in cases:
        with pytest.raises(ValueError, match=message):
            equation.simulate(times, initial, forcing)
    with pytest.raises(ValueError, match="forcing is None"):
        equation.simulate([0.0, 1.0], [0.0, 0.0])


def test_equations_that_are_not_explicit_or_ordinary():
    with pytest.raises(ValueError, match="cannot be solved for u_t"):
        simulate(given(lambda u, u_t: u_t**2 - u), TIMES, [1.0])
    with pytest.raises(ValueError, match="cannot be solved for u_tt"):
        simulate(given(lambda u, u_tt: u + 0 * u_tt), TIMES, [1.0, 0.0])
    with pytest.raises(ValueError, match="the equation has none"):
        simulate(given("u"), TIMES, [])
    with pytest.raises(ValueError, match="not 'u_t \\+ u'"):
        simulate(given("u_t + u"), TIMES, [1.0])
    X = np.random.default_rng(0).uniform(size=(40, 2))
    model = TwoStepKEqL("u", "u_t", variables=("t", "x"), equation_kernel=Polynomial(1))
    equation = model.fit(X, np.exp(-X[:, 0]) * np.sin(X[:, 1])).equation_
    with pytest.raises(ValueError, match="the variables t, x: use KernelPDESolver"):
        equation.simulate(TIMES, [0.0])


# --- coverage -----------------------------------------------------------------------


def test_coverage_of_a_box():
    rng = np.random.RandomState(0)
    training = rng.uniform(-1, 1, size=(500, 2)) * [1.0, 1e6]
    np.testing.assert_array_less(coverage_ratio(training, training), 1 + 1e-9)
    S = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, -5e6]])
    np.testing.assert_allclose(coverage_ratio(training, S), [0, 3, 5], atol=0.1)


def test_coverage_finds_unseen_combinations():
    t = np.linspace(-1, 1, 100)[:, None]
    training = np.hstack([t, t + 0.01 * np.sin(40 * t)])
    S = np.array([[0.9, 0.9], [0.9, -0.9]])
    ratio = coverage_ratio(training, S)
    assert ratio[0] < 1 and ratio[1] > 10


def test_coverage_of_a_constant_feature():
    training = np.column_stack([np.linspace(0, 1, 10), np.full(10, 2.0)])
    ratio = coverage_ratio(training, np.array([[0.5, 2.0], [0.5, 5.0]]))
    assert ratio[0] < 1 and ratio[1] > 1
    assert np.all(coverage_ratio(np.zeros((5, 1)), np.array([[0.0], [1.0]])) == [0, 1])

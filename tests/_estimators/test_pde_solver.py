"""KernelPDESolver: known solutions, oracles, limit cases, wrong input, the contract."""

import pickle
import warnings
from functools import partial

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from scipy import linalg
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor

from keql import (
    ExtrapolationWarning,
    IllPosedWarning,
    KernelPDESolver,
    OneStepKEqL,
    TwoStepKEqL,
)
from keql.datasets import make_darcy
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.metrics import relative_l2_error
from keql.operators import gram, parse_operator

PI = np.pi


def square(n_inner, n_side):
    """Inner grid points and boundary points of the unit square."""
    inner = np.linspace(0, 1, n_inner + 2)[1:-1]
    points = np.stack(np.meshgrid(inner, inner), axis=-1).reshape(-1, 2)
    s = np.linspace(0, 1, n_side)
    zero, one = np.zeros(n_side), np.ones(n_side)
    sides = [(s, zero), (s, one), (zero, s), (one, s)]
    return points, np.unique(np.vstack([np.column_stack(c) for c in sides]), axis=0)


def hill(X):
    """A smooth function that vanishes on the sides of the unit square."""
    return np.sin(PI * X[:, 0]) * np.sin(PI * X[:, 1])


TEST = np.random.RandomState(0).uniform(size=(300, 2))
OSCILLATOR = {
    "equation": {"u_tt": 1, "u": 1},
    "forcing": lambda points: points[:, 0],
    "variables": ("t",),
    "collocation_points": np.linspace(0, 3, 40)[:, None],
}


def oscillation(t):
    """The solution of u'' + u = t with u(0) = 0, u(3) = 1."""
    return t - 2 * np.sin(t) / np.sin(3)


ENDS = np.array([[0.0], [3.0]]), np.array([0.0, 1.0])


@pytest.mark.parametrize("state_kernel", [None, RBF(1.0)])
def test_boundary_value_problem(state_kernel):
    solver = KernelPDESolver(**OSCILLATOR, state_kernel=state_kernel).fit(*ENDS)
    t = np.linspace(0, 3, 301)[:, None]
    assert relative_l2_error(oscillation(t[:, 0]), solver.predict(t)) < 1e-7
    assert solver.linear_ and solver.converged_ and solver.n_iter_ == 1
    assert solver.relative_noise_[0] == 1e-13
    slope = solver.predict_derivative(t, "u_t")
    assert relative_l2_error(1 - 2 * np.cos(t[:, 0]) / np.sin(3), slope) < 1e-6


def test_a_term_without_the_state():
    """u'' + u - t = 0, the right-hand side on the left."""
    settings = OSCILLATOR | {"equation": lambda t, u, u_tt: u_tt + u - t}
    solver = KernelPDESolver(**settings | {"forcing": None}).fit(*ENDS)
    t = np.linspace(0, 3, 301)[:, None]
    assert relative_l2_error(oscillation(t[:, 0]), solver.predict(t)) < 1e-7
    assert solver.linear_


def cubic(u, u_xx, u_yy):
    return -(u_xx + u_yy) + u**3


def test_nonlinear_elliptic_equation():
    points, sides = square(12, 13)
    solver = KernelPDESolver(
        cubic,
        points,
        lambda X: 2 * PI**2 * hill(X) + hill(X) ** 3,
        ("x", "y"),
        state_kernel=RBF(0.4),
    ).fit(sides, hill(sides))
    assert relative_l2_error(hill(TEST), solver.predict(TEST)) < 1e-6
    assert not solver.linear_ and solver.converged_ and solver.n_iter_ > 1


def test_a_kernel_too_smooth_for_the_solution():
    """A bend that is sharp for the kernel is not chased with a huge norm."""
    t = np.linspace(0, 1, 300)[:, None]
    solver = KernelPDESolver(
        lambda u_t, u_tt: u_t**2 - 0.1 * u_tt,
        t[1:-1],
        lambda X: np.ones(len(X)),
        ("t",),
        state_kernel=RBF(0.3),
    ).fit([[0.0], [1.0]], [0.0, 0.0])
    assert 1e-10 < solver.relative_noise_[0] < 1e-3
    truth = -0.1 * np.log(np.cosh((t[:, 0] - 0.5) / 0.1) / np.cosh(5))
    assert relative_l2_error(truth, solver.predict(t)) < 5e-3


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_units_of_the_state_do_not_matter(size):
    points, sides = square(8, 9)
    settings = {"collocation_points": points, "variables": ("x", "y")}

    def forcing(X):
        return size * 2 * PI**2 * hill(X)

    solver = KernelPDESolver("-1 u_xx - u_yy", forcing=forcing, **settings)
    u = solver.fit(sides, size * hill(sides)).predict(TEST)
    assert relative_l2_error(size * hill(TEST), u) < 1e-5
    assert solver.linear_


def test_units_of_the_coordinates_do_not_matter():
    points, sides = square(8, 9)
    scale = np.array([1e-6, 1e6])

    def equation(u_xx, u_yy):
        return -(scale[0] ** 2) * u_xx - scale[1] ** 2 * u_yy

    solver = KernelPDESolver(
        equation, points * scale, 2 * PI**2 * hill(points), ("x", "y")
    )
    solver.fit(sides * scale, hill(sides))
    assert relative_l2_error(hill(TEST), solver.predict(TEST * scale)) < 1e-5


def test_equals_direct_symmetric_collocation():
    """A linear equation with constant coefficients, solved by the textbook formula."""
    points, sides = square(7, 8)
    kernel, variables = Matern(0.3, nu=4.5), ("x", "y")
    L = parse_operator("u_xx + 2 u_yy + 3 u", variables)
    u = parse_operator("u", variables)
    f = np.cos(points[:, 0])
    functionals = [(sides, u), (points, L)]
    K = gram(kernel.bind(variables), functionals)
    right = np.concatenate([hill(sides), f])
    expected = gram(kernel.bind(variables), [(TEST, u)], functionals) @ linalg.solve(
        K, right, assume_a="pos"
    )
    solver = KernelPDESolver(
        L, points, f, variables, state_kernel=kernel, observation_noise=0
    )
    solver.set_params(equation_noise=0).fit(sides, hill(sides))
    assert relative_l2_error(expected, solver.predict(TEST)) < 1e-8
    # The same equation as a function of features, with its operators apart.
    solver.set_params(equation=lambda u, u_xx, u_yy: u_xx + 2 * u_yy + 3 * u)
    solver.fit(sides, hill(sides))
    assert solver.linear_
    assert relative_l2_error(expected, solver.predict(TEST)) < 1e-8


@pytest.mark.parametrize("nu", [2.5, 3.5, 4.5])
def test_order_of_convergence(nu):
    """Twice nu + d/2 - 2 for a smooth solution, in one dimension."""

    def state(t):
        return np.exp(t[:, 0]) * np.sin(5 * t[:, 0])

    def forcing(t):
        angle = 5 * t[:, 0]
        return np.exp(t[:, 0]) * (10 * np.cos(angle) - 24 * np.sin(angle))

    sizes, errors = np.array([20, 40, 80]), []
    t = np.linspace(0, 1, 501)[:, None]
    for n in sizes:
        solver = KernelPDESolver(
            "u_tt",
            np.linspace(0, 1, n + 1)[1:-1, None],
            forcing,
            ("t",),
            state_kernel=Matern(1.0, nu=nu),
            observation_noise=0,
            equation_noise=0,
        ).fit([[0.0], [1.0]], state(np.array([[0.0], [1.0]])))
        errors.append(relative_l2_error(state(t), solver.predict(t)))
    order = -np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert order == pytest.approx(2 * (nu - 1.5), abs=0.3)


def test_without_an_equation_it_is_gaussian_process_regression():
    rng = np.random.RandomState(0)
    X, kernel = rng.uniform(size=(30, 2)), Constant(2.0, "fixed") * RBF(0.5, "fixed")
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=30)
    solver = KernelPDESolver(state_kernel=kernel, observation_noise=0.1).fit(X, y)
    expected = GaussianProcessRegressor(kernel, alpha=0.01).fit(X, y)
    mean, std = expected.predict(TEST, return_std=True)
    u, u_std = solver.predict(TEST, return_std=True)
    np.testing.assert_allclose(u, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(u_std, std, rtol=1e-6)


def test_posterior_of_a_linear_problem():
    """Conditioning on noisy data and a noisy equation, written out."""
    points, sides = square(4, 5)
    kernel, variables = Matern(0.5, nu=3.5), ("x", "y")
    L, u = (parse_operator(name, variables) for name in ("u_xx + u_yy", "u"))
    bound, functionals = kernel.bind(variables), [(sides, u), (points, L)]
    noise = np.repeat([1e-2, 1e-1], [len(sides), len(points)]) ** 2
    K = gram(bound, functionals) + np.diag(noise)
    cross = gram(bound, [(TEST, u)], functionals)
    variance = 1 - np.sum(cross * np.linalg.solve(K, cross.T).T, axis=1)
    solver = KernelPDESolver(
        L, points, np.ones(16), variables, state_kernel=kernel, observation_noise=1e-2
    )
    solver.set_params(equation_noise=1e-1).fit(sides, hill(sides))
    mean = cross @ np.linalg.solve(K, np.r_[hill(sides), np.ones(16)])
    u, std = solver.predict(TEST, return_std=True)
    np.testing.assert_allclose(u, mean, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-5)


def test_standard_deviation_of_a_nonlinear_problem_covers_its_error():
    t = np.linspace(0, 1, 8)[:, None]
    solver = KernelPDESolver(
        lambda u, u_t: u_t + u**2,
        t,
        variables=("t",),
        state_kernel=Constant(4.0) * RBF(0.5),
    ).fit([[0.0]], [1.0])
    new = np.linspace(0, 1, 50)[:, None]
    u, std = solver.predict(new, return_std=True)
    error = np.abs(u - 1 / (1 + new[:, 0]))
    assert error.max() < 1e-3
    assert np.all(error < 4 * std + 1e-6) and std.max() < 1e-2


# --- boundary operators -------------------------------------------------------------


def robin_data():
    """u = exp(t) by u(0) + u'(0) = 2 and u'(1) = e."""
    return np.array([[0.0], [1.0]]), np.array([2.0, np.e])


def test_boundary_operators_by_name():
    X, y = robin_data()
    table = pd.DataFrame({"t": X[:, 0], "kind": ["u + u_t", "u_t"]})
    solver = KernelPDESolver(
        "u_tt - u", np.linspace(0, 1, 15)[:, None], operator_column="kind"
    ).fit(table, y)
    new = pd.DataFrame({"t": [0.3, 0.3, 1.0], "kind": ["u", "u_t", "u + u_t"]})
    expected = np.array([np.exp(0.3), np.exp(0.3), 2 * np.e])
    np.testing.assert_allclose(solver.predict(new), expected, rtol=1e-6)
    assert solver.score(table, y) > 1 - 1e-9
    np.testing.assert_allclose(
        solver.predict_derivative(new, "u"), np.exp([0.3, 0.3, 1.0]), rtol=1e-6
    )


def test_boundary_operators_by_position():
    X, y = robin_data()
    X = np.column_stack([X, [0, 1]])
    solver = KernelPDESolver(
        "u_tt - u",
        np.linspace(0, 1, 15)[:, None],
        variables=("t",),
        boundary_operators=["u + u_t", "u_t"],
        operator_column=1,
    ).fit(X, y)
    np.testing.assert_allclose(solver.predict(X), y, rtol=1e-6)
    u = solver.predict_derivative([[0.5, 0]], "u")
    np.testing.assert_allclose(u, np.exp(0.5), rtol=1e-6)


def test_one_boundary_operator_for_all_rows():
    """Neumann data: the solution is determined up to the given mean slope only."""
    solver = KernelPDESolver(
        "u_tt - u",
        np.linspace(0, 1, 15)[:, None],
        variables=("t",),
        boundary_operators="u_t",
    ).fit([[0.0], [1.0]], [1.0, np.e])
    np.testing.assert_allclose(solver.predict([[0.5]]), np.exp(0.5), rtol=1e-6)


# --- several functions --------------------------------------------------------------


def test_functions_are_solved_as_one_by_one():
    points, sides = square(6, 7)
    label = np.repeat(["b", "a"], len(sides))
    table = pd.DataFrame(np.vstack([sides, sides]), columns=["x", "y"])
    table["which"] = label
    y = np.concatenate([hill(sides), sides[:, 0]])
    forcing = {"a": lambda X: X[:, 0], "b": lambda X: 1 + 0 * X[:, 0]}
    for equation in ("laplacian(u)", cubic):
        solver = KernelPDESolver(
            equation,
            points,
            forcing,
            function_column="which",
            state_kernel=RBF(0.5),
            observation_noise=0,
            equation_noise=0,
            n_jobs=2,
        ).fit(table, y)
        assert solver.functions_ == ("a", "b")
        for name, values in (("a", sides[:, 0]), ("b", hill(sides))):
            alone = clone(solver).set_params(
                function_column=None, forcing=forcing[name], n_jobs=None
            )
            alone.fit(table[["x", "y"]][: len(sides)], values)
            new = pd.DataFrame(TEST, columns=["x", "y"])
            together = solver.predict(new.assign(which=name))
            np.testing.assert_allclose(together, alone.predict(new), atol=1e-7)


# --- learned equations --------------------------------------------------------------


@pytest.fixture(scope="module")
def pendulum():
    """u'' = -4 u, learned from a few values, with its estimator."""
    t = np.linspace(0, 6, 12)[:, None]
    model = OneStepKEqL(
        operators=("u",),
        known_part="u_tt",
        variables=("t",),
        collocation_points=np.linspace(0, 6, 60)[:, None],
        state_kernel=RBF(1.0, "fixed"),
        equation_kernel=Polynomial(1),
        observation_noise=1e-5,
        equation_noise=1e-4,
        solver="dual",
    )
    return model.fit(t, np.sin(2 * t.ravel()))


def test_solver_of_an_estimator(pendulum):
    solver = pendulum.pde_solver()
    assert solver.equation is pendulum.equation_
    assert solver.collocation_points is pendulum.collocation_points_[0]
    assert solver.variables == ("t",)
    solver.fit([[0.0], [0.6]], [0.9, 0.9 * np.cos(1.2)])
    t = np.linspace(0, 6, 50)[:, None]
    assert relative_l2_error(0.9 * np.cos(2 * t[:, 0]), solver.predict(t)) < 1e-3
    assert solver.linear_
    assert solver.state_kernel_ is pendulum.state_kernel_
    assert pendulum.pde_solver(n_windows=3).n_windows == 3


def test_solver_reproduces_a_learned_state():
    """A nonlinear learned equation, solved with values of the state it came from."""
    t = np.linspace(0, 3, 25)[:, None]
    model = TwoStepKEqL(
        operators=("u",),
        known_part="u_t",
        variables=("t",),
        collocation_points=np.linspace(0, 3, 60)[:, None],
        state_kernel=RBF(0.7, "fixed"),
        equation_kernel=Polynomial(2),
        observation_noise=1e-8,
    ).fit(t, 1 / (1 + np.exp(-2 * t[:, 0])))
    solver = model.pde_solver().fit(t[:1], model.predict(t[:1]))
    new = np.linspace(0, 3, 80)[:, None]
    assert not solver.linear_
    assert relative_l2_error(model.predict(new), solver.predict(new)) < 1e-4


def test_a_learned_linear_equation_of_several_functions():
    data = make_darcy(4, 8, grid_size=8, random_state=0)
    model = TwoStepKEqL(**data.problem, **data.kernels, random_state=0)
    model.fit(data.X, data.y)
    solver = model.pde_solver(forcing=data.forcing)
    edge = np.any((data.X[:, :2] == 0) | (data.X[:, :2] == 1), axis=1)
    solver.fit(data.X[edge], data.y[edge])
    assert solver.linear_ and solver.function_column == model.function_column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        solved = solver.predict(data.X_test)
    assert relative_l2_error(data.y_test, solved) < 0.2


def test_extrapolation_is_reported(pendulum):
    within = pendulum.pde_solver().fit([[0.0], [0.6]], [0.5, 0.2])
    t = np.linspace(0, 3, 20)[:, None]
    within.predict(t)
    assert np.all(within.extrapolation(t) < 1)
    beyond = pendulum.pde_solver().fit([[0.0], [0.6]], [3.0, 3 * np.cos(1.2)])
    with pytest.warns(ExtrapolationWarning, match="by a factor of up to 3") as record:
        beyond.predict([[0.0], [PI / 4]])
    assert "at 1 of 2 points" in str(record[0].message)
    with pytest.warns(ExtrapolationWarning, match="by a factor of up to 3"):
        beyond.predict_derivative([[0.0], [PI / 4]], "u_t")
    np.testing.assert_allclose(
        beyond.extrapolation([[0.0], [PI / 4]]) > 1, [True, False]
    )


def test_points_outside_of_the_domain():
    solver = KernelPDESolver(**OSCILLATOR).fit(*ENDS)
    for predict in solver.predict, partial(solver.predict_derivative, operator="u_t"):
        message = "1 of 2 points lie outside"
        with pytest.warns(ExtrapolationWarning, match=message) as record:
            predict([[1.0], [3.5]])
        assert record[0].filename == __file__, "the line that the user wrote"


# --- windows ------------------------------------------------------------------------


def test_windows_in_time():
    """Heat conduction over a time in which the solution falls by e^-4."""
    t, x = np.linspace(0, 4, 41), np.linspace(0, PI, 12)
    grid = np.stack(np.meshgrid(t, x, indexing="ij"), axis=-1)
    start, sides = grid[0], grid[1:, [0, -1]].reshape(-1, 2)
    X = np.vstack([start, sides])
    y = np.r_[np.sin(start[:, 1]), np.zeros(len(sides))]
    inner = grid[1:, 1:-1].reshape(-1, 2)
    new = np.column_stack([np.linspace(0, 4, 200), np.full(200, 1.0)])
    expected = np.sin(1.0) * np.exp(-new[:, 0])
    solver = KernelPDESolver(
        "u_t - u_xx", inner, variables=("t", "x"), state_kernel=RBF([1.0, 1.5])
    )
    whole = solver.fit(X, y)
    assert relative_l2_error(expected, whole.predict(new)) < 1e-5
    windowed = clone(solver).set_params(n_windows=4).fit(X, y)
    u, std = windowed.predict(new, return_std=True)
    assert relative_l2_error(expected, u) < 1e-4
    assert np.all(std >= 0) and std.max() < 1e-2
    largest = max(len(state.coefficients) for state in windowed.states_[0].states)
    assert largest < len(whole.states_[0].coefficients) / 3
    # Memory is that of the largest window: factors are not kept.
    assert whole.states_[0].factors is not None
    assert all(state.factors is None for state in windowed.states_[0].states)


def test_windows_hand_over_the_velocity():
    t = np.linspace(0, 12, 121)[:, None]
    X = np.array([[0.0, 0], [0.0, 1]])
    solver = KernelPDESolver(
        "u_tt + u",
        t,
        variables=("t",),
        boundary_operators=["u", "u_t"],
        operator_column=1,
        state_kernel=RBF(1.5),
        n_windows=4,
    ).fit(X, [0.0, 1.0])
    u = solver.predict_derivative(np.column_stack([t, 0 * t]), "u")
    assert relative_l2_error(np.sin(t[:, 0]), u) < 1e-5


def test_windows_need_initial_data():
    solver = KernelPDESolver(**OSCILLATOR, n_windows=2)
    with pytest.raises(ValueError, match="n_windows=2 needs initial data"):
        solver.fit([[1.0], [3.0]], [0.0, 1.0])
    solver = KernelPDESolver(n_windows=2)
    with pytest.raises(ValueError, match="n_windows=2 needs an equation"):
        solver.fit(*ENDS)
    solver = KernelPDESolver("u_t", [[0.1], [0.2], [1.0]], variables=("t",))
    with pytest.raises(ValueError, match="no collocation point lies in window 2"):
        solver.set_params(n_windows=3).fit([[0.0]], [1.0])


# --- noise --------------------------------------------------------------------------


def test_an_equation_that_does_not_hold_is_not_forced_on_the_state():
    """Data of u = sin t, for which u'' = -1.1 u is not quite right."""
    t = np.linspace(0, 6, 13)[:, None]
    solver = KernelPDESolver(
        "u_tt + 1.1 u", np.linspace(0, 6, 60)[:, None], variables=("t",)
    ).fit(t, np.sin(t[:, 0]))
    new = np.linspace(0, 6, 100)[:, None]
    assert solver.relative_noise_[0] > 1e-8
    assert relative_l2_error(np.sin(new[:, 0]), solver.predict(new)) < 0.1


def test_noisy_replicates():
    X = np.repeat(ENDS[0], 200, axis=0)
    y = np.repeat(ENDS[1], 200) + 0.1 * np.random.RandomState(0).normal(size=400)
    solver = KernelPDESolver(**OSCILLATOR, observation_noise=0.1).fit(X, y)
    t = np.linspace(0, 3, 30)[:, None]
    assert relative_l2_error(oscillation(t[:, 0]), solver.predict(t)) < 0.02


# --- wrong input --------------------------------------------------------------------


def refuse(message, X=ENDS[0], y=ENDS[1], error=ValueError, **changes):
    with pytest.raises(error, match=message):
        KernelPDESolver(**OSCILLATOR | changes).fit(X, y)


def test_an_equation_must_match_the_operators():
    refuse(
        "equation has the parameter 'v_tt', which is neither one of the variables t",
        equation=lambda u, v_tt: u + v_tt,
    )
    refuse("names an unknown variable", equation="u_xx")
    refuse("equation depends on no operator", equation=lambda t: t)
    refuse("forcing is given without an equation", equation=None)


def test_a_learned_equation_must_match_the_data(pendulum):
    solver = KernelPDESolver(pendulum.equation_, 20)
    with pytest.raises(ValueError, match="variables=.* must be 2 different name"):
        solver.fit(np.eye(2), [0.0, 1.0])
    solver.set_params(variables=("s",))
    with pytest.raises(ValueError, match="learned in the variables t, the data have s"):
        solver.fit([[0.0], [1.0]], [0.0, 1.0])


def test_columns_in_another_order():
    table = pd.DataFrame({"x": [0.0, 1.0], "t": [0.0, 0.5]})
    solver = KernelPDESolver(variables=("t", "x"), state_kernel=RBF([1.0, 2.0]))
    found = solver.fit(table, [0.0, 1.0]).predict(table - 0.1)
    expected = solver.fit(table[["t", "x"]], [0.0, 1.0]).predict(
        table[["t", "x"]] - 0.1
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)
    with pytest.raises(ValueError, match="X has the columns x, s, .* of which s is no"):
        solver.fit(table.set_axis(["x", "s"], axis=1), [0.0, 1.0])


def test_missing_forcing_of_a_learned_equation():
    t = np.linspace(0, 3, 20)[:, None]
    model = TwoStepKEqL(("u",), "u_t", variables=("t",), forcing=lambda X: X[:, 0])
    equation = model.fit(t, t[:, 0]).equation_
    assert model.pde_solver().forcing is model.forcing
    with pytest.raises(ValueError, match="learned with a right-hand side"):
        KernelPDESolver(equation, t).fit([[0.0]], [0.0])


def test_missing_boundary_data_are_named_and_the_least_norm_is_returned():
    solver = KernelPDESolver(
        "u_tt + u",
        np.linspace(0, 3, 30)[:, None],
        variables=("t",),
        state_kernel=RBF(1.0),
        observation_noise=0,
        equation_noise=0,
    )
    with pytest.warns(
        IllPosedWarning, match="of order 2 in t and has 1 condition.* of least norm"
    ):
        solver.fit([[0.0]], [1.0])
    t = np.linspace(0, 3, 100)[:, None]
    u = solver.predict(t)
    # A solution of the equation: a combination of cos t and sin t ...
    b = solver.predict_derivative([[0.0]], "u_t")[0]
    expected = np.cos(t[:, 0]) + b * np.sin(t[:, 0])
    assert relative_l2_error(expected, u) < 1e-5

    # ... and, of those, the one of least norm.
    def norm(slope):
        K = gram(RBF(1.0).bind(["t"]), [(t, parse_operator("u", ("t",)))])
        K[np.diag_indices_from(K)] += 1e-10
        values = np.cos(t[:, 0]) + slope * np.sin(t[:, 0])
        return values @ linalg.solve(K, values, assume_a="pos")

    assert norm(b) < min(norm(b - 0.05), norm(b + 0.05))


def test_missing_sides_are_noticed():
    """The ends of the initial line lie on the sides, but say nothing of later."""
    t, x = np.linspace(0, 1, 6), np.linspace(0, 1, 6)
    grid = np.stack(np.meshgrid(t, x, indexing="ij"), axis=-1)
    start, sides = grid[0], grid[:, [0, -1]].reshape(-1, 2)
    solver = KernelPDESolver(
        "u_t - u_xx",
        grid[1:, 1:-1].reshape(-1, 2),
        variables=("t", "x"),
        state_kernel=RBF(0.5),
    )
    with pytest.warns(IllPosedWarning, match="order 2 in x and has 0 condition"):
        solver.fit(start, start[:, 1])
    with pytest.warns(IllPosedWarning, match="order 1 in t and has 0 condition"):
        solver.fit(sides, sides[:, 1])
    solver.fit(np.vstack([start, sides]), np.r_[start[:, 1], sides[:, 1]])


def test_initial_data_are_enough_for_first_order():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KernelPDESolver(
            "u_t + u", np.linspace(0, 1, 20)[:, None], variables=("t",)
        ).fit([[0.0]], [1.0])


def test_conflicting_values():
    refuse(
        r"y has conflicting values of u at the point \[0.\] of X, from 0 to 0.5",
        np.array([[0.0], [3.0], [0.0]]),
        np.array([0.0, 1.0, 0.5]),
    )


def test_equal_values_at_one_point_are_one_condition():
    X, y = np.array([[0.0], [3.0], [0.0]]), np.array([1e-17, 1.0, 0.0])
    solver = KernelPDESolver(**OSCILLATOR).fit(X, y)
    assert len(solver.states_[0].functionals[0][0]) == 2


def test_data_outside():
    refuse(
        r"X has 1 point\(s\) outside of the domain of the collocation points",
        np.array([[0.0], [300.0]]),
    )
    refuse("all rows of X agree in a coordinate", [[0.0]], [0.0], collocation_points=10)


def test_operator_columns():
    X = np.column_stack([ENDS[0], [0, 2]])
    refuse("boundary_operators has 2 operators", boundary_operators=["u", "u_t"])
    refuse(
        "X has the entry 2.0 in its operator_column",
        X,
        boundary_operators=["u", "u_t"],
        operator_column=1,
    )
    refuse("operator_column=7 is no column of X", X, operator_column=7)


def test_a_kernel_that_is_too_rough():
    refuse("u_tt", state_kernel=Matern(1.0, nu=1.5))


def test_no_convergence_is_said():
    points, sides = square(5, 6)
    solver = KernelPDESolver(
        lambda u, u_xx, u_yy: u_xx + u_yy - anp.exp(u),
        points,
        variables=("x", "y"),
        state_kernel=RBF(0.5),
        max_iter=1,
    )
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        solver.fit(sides, hill(sides))
    assert not solver.converged_


def test_verbose(capsys):
    KernelPDESolver(**OSCILLATOR, verbose=1).fit(*ENDS)
    assert "1 step(s), relative noise 1e-13, residual" in capsys.readouterr().out


def test_pickle_and_clone(pendulum):
    solver = pendulum.pde_solver().fit([[0.0], [0.6]], [0.5, 0.2])
    again = pickle.loads(pickle.dumps(solver))
    t = np.linspace(0, 1.5, 5)[:, None]
    np.testing.assert_array_equal(solver.predict(t), again.predict(t))
    assert clone(solver).equation.terms() == solver.equation.terms()

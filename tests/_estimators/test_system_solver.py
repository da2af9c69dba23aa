"""KernelPDESolver for several states: closed forms, limits, invariances."""

import pickle
import warnings

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from known_equations import lotka_volterra, make_system
from scipy.linalg import expm
from sklearn.base import clone

from keql import (
    Equation,
    ExtrapolationWarning,
    IdentifiabilityWarning,
    IllPosedWarning,
    KernelPDESolver,
    LearnedSystem,
    OneStepKEqL,
    TwoStepKEqL,
)
from keql.kernels import RBF, Constant, Polynomial, SystemKernel
from keql.metrics import relative_l2_error

T = np.linspace(0, 3, 40)[:, None]
NAN = np.nan
# x' = y and y' = -4 x - 0.3 y, from (1, -1/2).
MATRIX = np.array([[0.0, 1.0], [-4.0, -0.3]])
DAMPED = {
    "equation": ({"x_t": 1, "y": -1}, {"y_t": 1, "x": 4, "y": 0.3}),
    "collocation_points": T,
    "variables": ("t",),
    "states": ("x", "y"),
}
BEGIN = np.array([1.0, -0.5])


def trajectory(times):
    """States (n, 2) of the damped oscillator."""
    return np.array([expm(MATRIX * t) @ BEGIN for t in np.ravel(times)])


def error_of(truth, found):
    """The largest relative error of a state."""
    columns = np.ravel(truth).reshape(len(truth), -1).T
    pairs = zip(columns, np.ravel(found).reshape(len(truth), -1).T, strict=True)
    return max(relative_l2_error(*pair) for pair in pairs)


# --- known solutions ------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [None, RBF(1.0), {"x": RBF(1.0), "y": 4 * RBF(0.9)}])
def test_linear_system_against_the_matrix_exponential(kernel):
    solver = KernelPDESolver(**DAMPED, state_kernel=kernel).fit([[0.0]], [BEGIN])
    new = np.linspace(0, 3, 101)[:, None]
    truth, (found, std) = trajectory(new), solver.predict(new, return_std=True)
    assert found.shape == std.shape == (101, 2)
    assert error_of(truth, found) < 1e-6
    assert np.all(std < 1e-5)
    slope = solver.predict_derivative(new, "y_t")
    assert error_of((truth @ MATRIX.T)[:, 1], slope) < 1e-5
    assert solver.linear_ and solver.n_iter_ == 1
    assert isinstance(solver.state_kernel_, SystemKernel)
    assert solver.state_names_ == ("x", "y") and solver.residual_.shape == (1, 2)
    assert list(solver.equation_) == ["x_t + y", "y_t + x + y"]
    assert solver.score(new, truth) > 1 - 1e-9


def test_equations_that_share_nothing_are_solved_as_alone():
    forcing = np.cos, np.exp
    equations = {"x_tt": 1, "x": 2}, {"y_tt": 1, "y_t": 3}
    noise = {"observation_noise": 1e-3, "equation_noise": 1e-2}
    kernels = {"x": RBF(0.8), "y": Constant(4.0) * RBF(1.1)}
    X, y = np.array([[0.0], [3.0], [1.0]]), np.array([[1, NAN], [2, 1], [NAN, -1.0]])
    common = {"collocation_points": T, "variables": ("t",), **noise}
    together = KernelPDESolver(
        equations,
        forcing=tuple(lambda p, f=f: f(p[:, 0]) for f in forcing),
        states=("x", "y"),
        state_kernel=kernels,
        **common,
    ).fit(X, y)
    found = together.predict(T, return_std=True)
    for s, (name, f) in enumerate(zip("xy", forcing, strict=True)):
        alone = KernelPDESolver(
            {key.replace(name, "u"): value for key, value in equations[s].items()},
            forcing=lambda p, f=f: f(p[:, 0]),
            state_kernel=kernels[name],
            **common,
        )
        rows = np.isfinite(y[:, s])
        expected = alone.fit(X[rows], y[rows, s]).predict(T, return_std=True)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours[:, s], theirs, rtol=1e-8, atol=1e-8)
        assert together.residual_[0, s] == pytest.approx(alone.residual_[0], rel=1e-6)


def grid():
    """Inner points, and the begin and both ends, of (0, 0.5) x (0, 1)."""
    t, x = np.linspace(0, 0.5, 9), np.linspace(0, 1, 10)
    points = np.stack(np.meshgrid(t, x, indexing="ij"), axis=-1)
    sides = np.vstack([points[0], points[1:, [0, -1]].reshape(-1, 2)])
    return points[1:, 1:-1].reshape(-1, 2), sides


def two_species(points):
    """u = e^-t sin 2x and v = cos(x + t)."""
    t, x = points.T
    return np.column_stack([np.exp(-t) * np.sin(2 * x), np.cos(x + t)])


def reaction(u, u_t, u_xx, v):
    return u_t - 0.1 * u_xx - u * v


def other_reaction(u, v, v_t, v_xx):
    return v_t - 0.2 * v_xx + anp.square(u) * v


def sources():
    """The right-hand sides for which these are the two species."""

    def first(points):
        u, v = two_species(points).T
        return -u + 0.4 * u - u * v

    def second(points):
        u, v = two_species(points).T
        return -np.sin(points[:, 0] + points[:, 1]) + 0.2 * v + u**2 * v

    return first, second


def test_reaction_and_diffusion():
    inner, sides = grid()
    solver = KernelPDESolver(
        (reaction, other_reaction),
        inner,
        sources(),
        ("t", "x"),
        states=("u", "v"),
        state_kernel=RBF([0.6, 0.6]),
    ).fit(sides, two_species(sides))
    assert not solver.linear_ and solver.converged_
    new = np.random.RandomState(0).uniform([0, 0], [0.5, 1], size=(200, 2))
    assert error_of(two_species(new), solver.predict(new)) < 1e-4
    named = dict(zip(solver.equation_, sources(), strict=True))
    again = clone(solver).set_params(forcing=named)
    again.fit(sides, two_species(sides))
    np.testing.assert_allclose(again.predict(new), solver.predict(new), rtol=1e-12)


def test_states_in_another_order():
    inner, sides = grid()
    y = two_species(sides)
    y[::3, 0] = NAN
    settings = {"state_kernel": {"u": RBF(0.7), "v": RBF(0.6)}, "forcing": sources()}
    settings |= {"collocation_points": inner, "variables": ("t", "x")}
    equation = reaction, other_reaction
    first = KernelPDESolver(equation, states=("u", "v"), **settings).fit(sides, y)
    other = KernelPDESolver(equation, states=("v", "u"), **settings)
    other.fit(sides, y[:, ::-1])
    expected = first.predict(inner)[:, ::-1]
    np.testing.assert_allclose(other.predict(inner), expected, atol=1e-5)


def test_units_of_one_state_do_not_matter():
    """x in millions: a kernel chosen for each state, noise relative to its variance."""
    equation = {"x_t": 1, "y": -1e6}, {"y_t": 1, "x": 4e-6, "y": 0.3}
    settings = DAMPED | {"equation": equation}
    solver = KernelPDESolver(**settings).fit([[0.0]], [BEGIN * [1e6, 1]])
    found = solver.predict(T) / [1e6, 1]
    assert error_of(trajectory(T), found) < 1e-6


# --- data -----------------------------------------------------------------------------


def test_data_of_one_state_only():
    truth = trajectory([0.0, 1.0])
    y = np.column_stack([truth[:, 0], [NAN, NAN]])
    solver = KernelPDESolver(**DAMPED, state_kernel=RBF(1.0)).fit([[0.0], [1.0]], y)
    assert error_of(trajectory(T), solver.predict(T)) < 1e-5
    # A single column is that of the first state.
    single = KernelPDESolver(**DAMPED, state_kernel=RBF(1.0))
    single.fit([[0.0], [1.0]], y[:, 0])
    np.testing.assert_array_equal(single.predict(T), solver.predict(T))


def test_operators_of_rows_and_of_columns():
    table = pd.DataFrame({"t": [0.0, 0.0], "what": ["y", "x_t + x"]})
    solver = KernelPDESolver(**DAMPED, operator_column="what", state_kernel=RBF(1.0))
    solver.fit(table, [-0.5, 0.5])
    new = pd.DataFrame({"t": [0.5, 0.5], "what": ["x", "y"]})
    assert error_of(trajectory([0.5])[0], solver.predict(new)) < 1e-6
    columns = KernelPDESolver(
        **DAMPED, boundary_operators=["y", "x_t + x"], state_kernel=RBF(1.0)
    ).fit([[0.0]], [[-0.5, 0.5]])
    found = columns.predict([[0.5]])
    assert error_of(trajectory([0.5]), found) < 1e-6


def test_names_of_columns():
    y = pd.DataFrame([BEGIN], columns=["x", "y"])
    solver = KernelPDESolver(**DAMPED | {"states": None}, state_kernel=RBF(1.0))
    assert solver.fit([[0.0]], y).state_names_ == ("x", "y")
    found = solver.predict([[0.5]])
    solver.set_params(states=("x", "y")).fit([[0.0]], y[["y", "x"]])
    np.testing.assert_array_equal(solver.predict([[0.5]]), found)
    with pytest.raises(ValueError, match="y has the columns y, z, .* of which z is no"):
        solver.fit([[0.0]], y.set_axis(["y", "z"], axis=1))


def test_without_an_equation_columns_are_independent():
    y = np.column_stack([np.sin(T), np.cos(T)])
    y[::2, 0] = NAN
    settings = {"state_kernel": RBF(1.0), "observation_noise": 1e-3}
    together = KernelPDESolver(**settings).fit(T, y)
    alone = KernelPDESolver(**settings).fit(T[1::2], y[1::2, 0])
    np.testing.assert_allclose(
        together.predict(T)[:, 0], alone.predict(T), rtol=1e-9, atol=1e-10
    )
    assert together.state_names_ == ("u1", "u2")
    chosen = KernelPDESolver(observation_noise=1e-3).fit(T, y)
    assert error_of(np.cos(T[:, 0]), chosen.predict(T)[:, 1]) < 1e-2


def test_noise_of_each_state_and_equation():
    """A state that is exactly known, and one with noise; an equation in doubt."""
    X, y = np.array([[0.0], [1.0]]), np.array([[1.0, 5.0], [2.0, 5.0]])
    solver = KernelPDESolver(
        {"x_t": 1.0, "y": -1.0},
        T,
        variables=("t",),
        states=("x", "y"),
        state_kernel=RBF(1.0),
        observation_noise={"x": 0.0, "y": 10.0},
        equation_noise=0.0,
    ).fit(X, y)
    assert np.abs(solver.predict(X)[:, 0] - y[:, 0]).max() < 1e-5
    assert np.abs(solver.predict(X)[:, 1] - 5).min() > 1
    doubtful = KernelPDESolver(
        **DAMPED, state_kernel=RBF(1.0), equation_noise={"x_t + y": 1e3}
    ).fit([[0.0]], [BEGIN])
    assert doubtful.residual_[0, 0] > 0.1 > 1e-4 > doubtful.residual_[0, 1]
    assert isinstance(pickle.loads(pickle.dumps(doubtful)).predict(T), np.ndarray)


def test_one_equation_of_two_states():
    """A field without divergence, by a few of its values."""
    rng = np.random.RandomState(0)
    X, points = rng.uniform(size=(30, 2)), rng.uniform(size=(60, 2))

    def field(X):
        x, y = X.T
        return np.column_stack([np.sin(x) * np.cos(y), -np.cos(x) * np.sin(y)])

    settings = {"variables": ("x", "y"), "state_kernel": RBF(0.7)}
    errors = []
    for equation in (None, "u_x + v_y"):
        solver = KernelPDESolver(
            equation, None if equation is None else points, **settings
        )
        solver.set_params(states=("u", "v")).fit(X, field(X))
        error = error_of(field(points), solver.predict(points))
        errors.append(error)
    divergence = solver.predict_derivative(points, "u_x + v_y")
    assert np.abs(divergence).max() < 1e-4 and errors[1] < 0.5 * errors[0]
    assert [o.name for o in solver.equation_.operators] == ["u_x", "v_y"]


def test_an_equation_at_points_of_its_own():
    """Heat conduction with a law at one wall, u_x = -u, where u is not given."""
    inner, sides = grid()
    sides = sides[sides[:, 1] < 1]
    wall = np.column_stack([np.linspace(0, 0.5, 9), np.ones(9)])
    k = 2.02875783811043  # tan k = -k

    def truth(points):
        return np.exp(-(k**2) * points[:, 0]) * np.sin(k * points[:, 1])

    law = {"u_x": 1, "u": 1}
    solver = KernelPDESolver(
        ({"u_t": 1, "u_xx": -1}, law),
        {"u_t + u_xx": inner, "u_x + u": wall},
        variables=("t", "x"),
        state_kernel=RBF([0.3, 0.6]),
    ).fit(sides, truth(sides))
    assert error_of(truth(inner), solver.predict(inner)) < 1e-3
    assert len(solver.collocation_points_[0]) == len(inner) + 9
    with pytest.warns(IllPosedWarning, match="order 2 in x and has 1 condition"):
        KernelPDESolver(
            {"u_t": 1, "u_xx": -1}, inner, variables=("t", "x"), state_kernel=RBF(0.5)
        ).fit(sides, truth(sides))


# --- inputs and functions -------------------------------------------------------------


def test_inputs_of_each_function():
    """x' = y and y' = -c x + f(t), of two functions with different c."""
    table = pd.DataFrame({"t": [0.0, 0.0], "c": [1.0, 4.0], "which": ["a", "b"]})

    def push(x, y_t, c, f):
        return y_t + c * x - f

    solver = KernelPDESolver(
        ({"x_t": 1, "y": -1}, push),
        T,
        variables=("t",),
        function_column="which",
        states=("x", "y"),
        inputs={"c": "c", "f": lambda points: points[:, 0]},
        state_kernel=RBF(1.0),
    ).fit(table, [[0.0, 1.0], [1.0, 0.0]])
    new = pd.DataFrame({"t": T[:, 0], "c": 4.0, "which": "b"})
    # x'' + 4 x = t with x(0) = 1 and x'(0) = 0.
    exact = np.cos(2 * T[:, 0]) - np.sin(2 * T[:, 0]) / 8 + T[:, 0] / 4
    assert error_of(exact, solver.predict(new)[:, 0]) < 1e-5
    np.testing.assert_array_equal(solver.input_values(new)[:3, 0], [4, 4, 4])


# --- learned systems ------------------------------------------------------------------


@pytest.fixture(scope="module")
def prey_and_predator():
    """Lotka-Volterra equations, learned from a solution of them."""
    t = np.linspace(0, 5, 25)[:, None]
    S = np.random.RandomState(0).uniform(-9, 9, size=(99, 5))
    y = lotka_volterra(S=S).simulate(t[:, 0], {"x": 8.0, "y": 2.0})
    model = OneStepKEqL(
        operators=("x", "y"),
        known_part=("x_t", "y_t"),
        states=("x", "y"),
        n_terms="auto",
        variables=("t",),
        collocation_points=np.linspace(0, 5, 80)[:, None],
    )
    return model.fit(t, y)


def test_a_learned_system_is_solved_as_it_is_simulated(prey_and_predator):
    begin = {"x": 6.0, "y": 2.5}
    new = np.linspace(0, 5, 60)
    expected = prey_and_predator.equation_.simulate(new, begin)
    solver = prey_and_predator.pde_solver(n_windows=2)
    assert solver.states == ("x", "y") and isinstance(solver.equation, LearnedSystem)
    solver.fit([[0.0]], [[6.0, 2.5]])
    assert error_of(expected, solver.predict(new[:, None])) < 1e-3
    assert np.all(solver.extrapolation(new[:, None]) < 1)
    far = prey_and_predator.pde_solver(n_windows=2).fit([[0.0]], [[12.0, 2.0]])
    with pytest.warns(ExtrapolationWarning, match="by a factor of up to"):
        far.predict([[0.0], [1.0]])
    assert far.extrapolation([[0.0]])[0] > 1


def test_states_of_a_learned_system_in_another_order(prey_and_predator):
    solvers = [
        prey_and_predator.pde_solver(n_windows=2, states=states)
        for states in (("x", "y"), ("y", "x"))
    ]
    first = solvers[0].fit([[0.0]], [[6.0, 2.5]]).predict([[1.0], [4.0]])
    second = solvers[1].fit([[0.0]], [[2.5, 6.0]]).predict([[1.0], [4.0]])
    np.testing.assert_allclose(first, second[:, ::-1], rtol=1e-4)
    with pytest.raises(ValueError, match="must be those of the equation, x, y"):
        solvers[0].set_params(states=("x", "z")).fit([[0.0]], [[6.0, 2.5]])


def test_a_learned_system_with_inputs_and_forcing():
    equations = {
        "x_t": ({"x_t": 1.0}, {"c y": -1.0}),
        "y_t": ({"y_t": 1.0}, {"x": 1.0}),
    }
    system = make_system(equations, ("x", "y"), ("x", "y"), inputs=("c",))
    solver = KernelPDESolver(
        system, T, inputs={"c": 4.0}, state_kernel=RBF(1.0), variables=("t",)
    )
    solver.fit([[0.0]], [[0.0, 1.0]])
    t = T[:, 0]
    exact = np.column_stack([2 * np.sin(2 * t), np.cos(2 * t)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        assert error_of(exact, solver.predict(T)) < 1e-5
        S = system.features(solver, T)
    np.testing.assert_array_equal(S[:, 1], 4.0)
    solver.set_params(inputs=None)
    with pytest.raises(ValueError, match="inputs has no entry, .* depends on c"):
        solver.fit([[0.0]], [[0.0, 1.0]])
    system["y_t"].has_forcing = True
    solver.set_params(inputs={"c": 4.0})
    with pytest.raises(ValueError, match="forcing is None for 'y_t', but"):
        solver.fit([[0.0]], [[0.0, 1.0]])


def test_the_solver_of_an_estimator_with_inputs():
    t = np.linspace(0, 3, 40)

    def ramp(points):
        return points[:, 0]

    model = TwoStepKEqL(
        equations=[
            ("x", Equation("x_t", ("y",), forcing=ramp, kernel=Polynomial(1))),
            ("y", Equation("y_t", ("x", "y"), kernel=Polynomial(1))),
        ],
        states=("x", "y"),
        inputs={"c": ramp, "d": {None: 2.0}},
        variables=("t",),
        observation_noise=1e-3,
    )
    with pytest.warns(IdentifiabilityWarning, match="1 and d trade off"):
        model.fit(t[:, None], np.column_stack([np.sin(t), np.cos(t)]))
    solver = model.pde_solver()
    assert solver.forcing == {"x": ramp} and solver.inputs == {"c": ramp}
    with pytest.raises(ValueError, match="inputs has c, but the equation depends on c"):
        solver.fit([[0.0]], [[0.0, 1.0]])


# --- windows, and problems that are not posed -----------------------------------------


def test_windows_hand_over_all_states():
    t = np.linspace(0, 9, 121)[:, None]
    solver = KernelPDESolver(
        **DAMPED | {"collocation_points": t}, state_kernel=RBF(1.0), n_windows=3
    ).fit([[0.0]], [BEGIN])
    assert error_of(trajectory(t), solver.predict(t)) < 1e-5
    # A state without a derivative in time follows: z = x + y.
    solver.set_params(
        equation=(*DAMPED["equation"], {"z": 1, "x": -1, "y": -1}),
        states=("x", "y", "z"),
    ).fit([[0.0]], [[*BEGIN, NAN]])
    expected = np.column_stack([trajectory(t), trajectory(t).sum(axis=1)])
    assert error_of(expected, solver.predict(t)) < 1e-5


@pytest.mark.parametrize(
    ("equations", "y", "message"),
    [
        # Two values of x tell of y, but one is too little.
        (DAMPED["equation"], [[1, NAN], [2, NAN]], None),
        (DAMPED["equation"], [[1, NAN], [NAN, NAN]], "1 of 1 for x, 0 of 1 for y"),
        # Without a coupling they do not, and with one to one side only.
        (("x_t", "y_t"), [[1, NAN], [1, NAN]], "order 2 in t and have 1 cond"),
        (("x_t", "y_t - x"), [[NAN, 1], [NAN, 2]], None),
        (("x_t", "y_t - x"), [[1, NAN], [1, NAN]], "2 of 1 for x, 0 of 1 for y"),
        # Of two equations for x_t and y, one is of order zero.
        (("x_t - y", "x - y"), [[1, NAN], [NAN, NAN]], None),
    ],
)
def test_missing_data(equations, y, message):
    X, y = np.array([[0.0], [1.0]]), np.array(y)
    rows = np.any(np.isfinite(y), axis=1)
    solver = KernelPDESolver(
        equations, T[:14], variables=("t",), states=("x", "y"), state_kernel=RBF(1.0)
    )
    with warnings.catch_warnings(record=True, action="always") as caught:
        solver.fit(X[rows], y[rows])
    texts = [str(w.message) for w in caught if w.category is IllPosedWarning]
    assert [message in text for text in texts] == ([] if message is None else [True])


def test_incompressible_flow_needs_no_pressure_at_a_wall():
    """Stokes flow between plates: the pressure is given at one point."""
    x = np.linspace(0, 1, 6)
    points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    inner = points[1:-1, 1:-1].reshape(-1, 2)
    points = points.reshape(-1, 2)
    sides = points[np.any((points == 0) | (points == 1), axis=1)]
    y = np.column_stack([sides[:, 1] * (1 - sides[:, 1]), 0 * sides[:, 0], NAN * sides])
    y = y[:, :3]
    y[0, 2] = 2.0
    solver = KernelPDESolver(
        ("p_x - u_xx - u_yy", "p_y - v_xx - v_yy", "u_x + v_y"),
        inner,
        variables=("x", "y"),
        states=("u", "v", "p"),
        state_kernel=RBF(1.0),
    ).fit(sides, y)
    expected = np.column_stack(
        [inner[:, 1] * (1 - inner[:, 1]), 0 * inner[:, 0], 2 - 2 * inner[:, 0]]
    )
    assert np.abs(solver.predict(inner) - expected).max() < 1e-2


# --- wrong input ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "y", "message"),
    [
        ({"states": ("x",)}, [1.0], "the function 'y': the state is called x"),
        ({"states": ("x", "x")}, [BEGIN], "must be different names"),
        ({"forcing": (None,)}, [BEGIN], "forcing is a tuple of 1, but there are 2"),
        ({"forcing": {"a": None}}, [BEGIN], "forcing has no entry for the function"),
        (
            {"state_kernel": {"x": RBF(1.0)}},
            [BEGIN],
            "state_kernel has no kernel for y",
        ),
        ({"observation_noise": {"z": 1.0}}, [BEGIN], "observation_noise .* 'z'"),
        ({"equation_noise": {"x": 1.0}}, [BEGIN], "equation_noise has .* x_t + y"),
        ({"inputs": {"c": 1.0}, "equation": None}, [BEGIN], "the equation is None"),
        ({"boundary_operators": ["x"]}, [BEGIN], "has 1 operator.*y has 2 columns"),
        ({"n_windows": 2, "equation": None}, [BEGIN], "n_windows=2 needs an equation"),
    ],
)
def test_wrong_input(changes, y, message):
    settings = {"state_kernel": RBF(1.0), **DAMPED, **changes}
    with pytest.raises(ValueError, match=message.replace("+", r"\+")):
        KernelPDESolver(**settings).fit([[0.0]], y)

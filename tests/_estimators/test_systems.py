"""Systems of equations against limits, invariances and direct computations."""

import pickle
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from keql import (
    Equation,
    IdentifiabilityWarning,
    OneStepKEqL,
    ReducedOneStepKEqL,
    TwoStepKEqL,
)
from keql.datasets import make_heat_with_boundary_law
from keql.kernels import RBF, Constant, Polynomial, SystemKernel
from keql.model_selection import FunctionKFold
from keql.operators import gram, gram_diagonal, parse_operator

LEARNERS = (TwoStepKEqL, OneStepKEqL, ReducedOneStepKEqL)
PAIR = {"operators": ("x", "y"), "known_part": ("x_t", "y_t"), "states": ("x", "y")}
PAIR["variables"] = ("t",)


def integrate(velocity, initial, times):
    """Values (n, S) of the solution of y' = velocity(t, y)."""
    how = {"rtol": 1e-12, "atol": 1e-12, "method": "DOP853"}
    span = times[0], times[-1]
    return solve_ivp(velocity, span, initial, t_eval=times, **how).y.T


def column(times):
    return np.asarray(times)[:, None]


def hunt(_, y):
    """Prey and predators of Lotka and Volterra."""
    return [1.1 * y[0] - 0.4 * y[0] * y[1], -0.4 * y[1] + 0.1 * y[0] * y[1]]


TIMES = np.linspace(0, 24, 25)
CYCLES = integrate(hunt, (10.0, 5.0), TIMES)

# A linear system, observed with noise that differs.
MATRIX = np.array([[-0.3, 1.5], [-1.0, -0.1]])
T = column(np.linspace(0, 5, 26))
CLEAN = np.array([expm(MATRIX * t) @ [1.0, 0.5] for t in T[:, 0]])
NOISY = CLEAN + np.random.RandomState(0).normal(size=CLEAN.shape) * [1e-2, 3e-2]
POINTS = column(np.linspace(0, 5, 41))
KERNELS = {"x": RBF(1.0), "y": 2.0 * RBF(0.8)}
NOISE = {
    "observation_noise": {"x": 1e-2, "y": 3e-2},
    "equation_noise": {"x_t": 1e-2, "y_t": 5e-2},
}
FIXED = PAIR | NOISE | {"collocation_points": POINTS, "optimizer": None}
FIXED |= {"state_kernel": KERNELS}
FIXED |= {"equation_kernel": Polynomial(2, scale=1.0, center=0.0)}
# Which two steps find from the clean values, with gaps.
LINEAR = FIXED | {"equation_kernel": Polynomial(1), "observation_noise": 1e-3}


def with_gaps(y):
    """Values of which each state is seen at times of its own."""
    y = y.copy()
    y[::3, 0] = np.nan
    y[1::3, 1] = np.nan
    return y


# --- limits and invariances -----------------------------------------------------------

UNCOUPLED = np.column_stack([np.exp(-0.7 * T[:, 0]), 2 / (1 + 3 * np.exp(-T[:, 0]))])
METHODS = [
    (TwoStepKEqL, {}),
    (OneStepKEqL, {"solver": "dual", "tol": 1e-14}),
    (OneStepKEqL, {"solver": "primal", "tol": 1e-14}),
    (ReducedOneStepKEqL, {"tol": 1e-14}),
]


@pytest.mark.parametrize("method, settings", METHODS)
def test_uncoupled_equations_are_learned_as_if_alone(method, settings):
    kernels = {"x": Polynomial(1, 1.0, 0.5), "y": Polynomial(2, 0.8, 1.0)}
    noise, equation_noise = {"x": 1e-3, "y": 3e-3}, {"x": 1e-2, "y": 2e-2}
    shared = {"variables": ("t",), "collocation_points": POINTS, "optimizer": None}
    shared |= settings
    all_terms = {} if method is TwoStepKEqL else {"n_terms": None}
    own = {}
    for s in "xy":
        how = {"kernel": kernels[s], "n_terms": None, "noise": equation_noise[s]}
        own[s] = Equation(f"{s}_t", (s,), **how)
    given = {"states": ("x", "y"), "state_kernel": KERNELS, "observation_noise": noise}
    together = method(**given, **shared, equations=list(own.items()))
    together = together.fit(T, UNCOUPLED)
    values, std = together.predict(POINTS, return_std=True)
    losses = []
    for i, s in enumerate("xy"):
        given = {"states": (s,), "state_kernel": KERNELS[s], **shared}
        given |= {"observation_noise": noise[s], "equation_noise": equation_noise[s]}
        given |= all_terms
        alone = method((s,), f"{s}_t", **given, equation_kernel=kernels[s])
        alone = alone.fit(T, UNCOUPLED[:, i])
        expected, expected_std = alone.predict(POINTS, return_std=True)
        assert_allclose(values[:, i], expected, rtol=0, atol=1e-8)
        assert_allclose(std[:, i], expected_std, rtol=1e-6)
        for ours, theirs in zip(
            together.equation_[s].terms(True), alone.equation_.terms(True), strict=True
        ):
            assert ours == pytest.approx(theirs, abs=1e-8)
        losses.append(getattr(alone, "loss_curve_", [0.0])[-1])
    loss = getattr(together, "loss_curve_", [0.0])[-1]
    assert loss == pytest.approx(sum(losses), rel=1e-6)


def product(name):
    """A term as a set of factors, whose order depends on that of the states."""
    return frozenset(name.split())


@pytest.mark.parametrize(
    "method, n_terms", [(TwoStepKEqL, None), (OneStepKEqL, "auto")]
)
def test_states_in_another_order_and_in_other_units(method, n_terms):
    sizes = {"x": 1e3, "y": 1e-3}
    settings = {} if n_terms is None else {"n_terms": n_terms}
    times = np.linspace(0, 24, 73)
    cycles = integrate(hunt, (10.0, 5.0), times)
    first = method(**PAIR, **settings).fit(column(times), cycles)
    turned = {"operators": ("y", "x"), "known_part": ("y_t", "x_t")}
    again = method(**PAIR | turned | {"states": ("y", "x")}, **settings)
    again = again.fit(column(times), (cycles * [1e3, 1e-3])[:, ::-1])
    for name, equation in first.equation_.items():
        found, expected = again.equation_[name].terms(), {}
        for term, value in equation.terms().items():
            unit = np.prod(
                [sizes[f[0]] ** int(f[2:] or 1) for f in term.split() if f != "1"]
            )
            expected[product(term)] = value * sizes[name[0]] / unit
        found = {product(term): value for term, value in found.items()}
        assert found == pytest.approx(expected, rel=1e-4)
    same = again.predict(column(times))[:, ::-1] / [1e3, 1e-3]
    assert_allclose(same, first.predict(column(times)), rtol=1e-6)


@pytest.mark.parametrize("method", LEARNERS)
def test_the_order_of_rows_does_not_matter(method):
    order = np.random.RandomState(0).permutation(len(T))
    one = method(**LINEAR).fit(T, with_gaps(CLEAN))
    other = method(**LINEAR).fit(T[order], with_gaps(CLEAN)[order])
    assert_array_equal(one.predict(POINTS), other.predict(POINTS))
    assert str(one.equation_) == str(other.equation_)


def test_primal_equals_dual():
    fits = [
        OneStepKEqL(**FIXED, solver=solver, tol=1e-14).fit(T, with_gaps(NOISY))
        for solver in ("dual", "primal")
    ]
    values, std = zip(*(m.predict(POINTS, return_std=True) for m in fits), strict=True)
    assert_allclose(*values, rtol=0, atol=1e-7)
    assert_allclose(*std, rtol=1e-6)
    for name in ("x_t", "y_t"):
        weights = [m.equation_[name].weights for m in fits]
        assert_allclose(*weights, rtol=0, atol=1e-6)
        errors = [m.equation_[name].terms(True)[1] for m in fits]
        assert errors[0] == pytest.approx(errors[1], rel=1e-5)


@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_known_equations_are_a_linear_regression(solver):
    """Then states are kernel ridge regression with the equations as functionals."""
    known = [
        ("x", Equation({"x_t": 1, "x": 0.3, "y": -1.5}, noise=1e-2)),
        ("y", Equation({"y_t": 1, "x": 1.0, "y": 0.1}, noise=5e-2)),
    ]
    given = {"states": ("x", "y"), "variables": ("t",), "state_kernel": KERNELS}
    given |= {"observation_noise": NOISE["observation_noise"], "optimizer": None}
    given |= {"collocation_points": POINTS, "equations": known, "tol": 1e-12}
    data = with_gaps(NOISY)
    model = OneStepKEqL(**given, solver=solver).fit(T, data)
    operators = ["x", "y", "x_t + 0.3 x - 1.5 y", "y_t + x + 0.1 y"]
    operators = [parse_operator(name, ("t",), ("x", "y")) for name in operators]
    seen = [np.isfinite(data[:, s]) for s in (0, 1)]
    rows = [(T[seen[s]], operators[s]) for s in (0, 1)]
    rows += [(POINTS, operators[2]), (POINTS, operators[3])]
    y = np.concatenate([data[seen[s], s] for s in (0, 1)] + [np.zeros(82)])
    levels = np.repeat([1e-2, 3e-2, 1e-2, 5e-2], [len(x) for x, _ in rows])
    kernel = SystemKernel(KERNELS)
    G = gram(kernel, rows) + np.diag(levels**2)
    values, std = model.predict(POINTS, return_std=True)
    for s in (0, 1):
        K = gram(kernel, [(POINTS, operators[s])], rows)
        assert_allclose(values[:, s], K @ np.linalg.solve(G, y), rtol=0, atol=1e-7)
        explained = np.sum(K * np.linalg.solve(G, K.T).T, axis=1)
        variance = gram_diagonal(kernel, POINTS, operators[s]) - explained
        assert_allclose(std[:, s], np.sqrt(variance), rtol=1e-5)


# --- what was measured ----------------------------------------------------------------


@pytest.mark.parametrize("method", LEARNERS)
def test_gaps_are_rows_in_long_form(method):
    wide = method(**LINEAR).fit(T, with_gaps(CLEAN))
    table = pd.DataFrame(with_gaps(CLEAN), columns=["x", "y"]).assign(t=T[:, 0])
    table = table.melt("t", var_name="what").dropna()
    long = method(**LINEAR, operator_column="what")
    long = long.fit(table[["t", "what"]], table["value"])
    for s, name in enumerate("xy"):
        asked = pd.DataFrame({"t": POINTS[:, 0], "what": name})
        assert_array_equal(long.predict(asked), wide.predict(POINTS)[:, s])
    assert str(wide.equation_) == str(long.equation_)


def test_a_row_in_which_nothing_was_measured():
    y = with_gaps(NOISY)
    y[4] = np.nan
    with pytest.raises(ValueError, match=r"nothing was measured, in 1 of 26 .* row 4"):
        TwoStepKEqL(**FIXED).fit(T, y)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=[pytest.mark.slow] * (m is not TwoStepKEqL))
        for m in LEARNERS
    ],
)
def test_a_state_that_was_never_measured(method):
    """By a column of NaN, or by a further name."""
    settings = PAIR | {"state_kernel": KERNELS, "observation_noise": 1e-3}
    settings |= {"collocation_points": 30}
    empty = CLEAN.copy()
    empty[:, 1] = np.nan
    # How large the other one is, nothing says.
    words = "is uncertain" if method is TwoStepKEqL else "trade off"
    with pytest.warns(IdentifiabilityWarning, match=words):
        fits = [method(**settings).fit(T, y) for y in (empty, CLEAN[:, 0])]
    assert_array_equal(fits[0].predict(T), fits[1].predict(T))
    assert fits[0].predict(T).shape == (26, 2)
    assert_allclose(fits[0].predict(T)[:, 0], CLEAN[:, 0], atol=1e-2)
    assert fits[0].observation_noise_ == 1e-3
    if method is not TwoStepKEqL:  # the other one is what its slope leaves to explain
        assert 0.3 < np.ptp(fits[0].predict(T)[:, 1]) < 3
        terms = fits[0].equation_.terms()
        assert 0.3 < abs(terms["x_t"]["y"]) < 3 and 0.3 < abs(terms["y_t"]["x"]) < 3


def test_a_state_that_was_never_measured_with_given_kernels():
    """Of prey and predators, only these; the search does not start at a saddle."""
    t, y = column(TIMES[:13]), CYCLES[:13].copy()
    y[:, 0] = np.nan
    kernels = {"x": RBF(1.0, "fixed"), "y": Constant(20.0, "fixed") * RBF(1.0, "fixed")}
    settings = {"state_kernel": kernels, "observation_noise": 1e-2, "n_restarts": 0}
    model = OneStepKEqL(**PAIR, **settings, n_terms=None)
    with pytest.warns(IdentifiabilityWarning, match="trade off"):
        model.fit(t, y)
    assert model.converged_ and model.misfit_ < 0.2 and model.n_iter_ < 200
    assert np.ptp(model.predict(t)[:, 0]) > 1
    assert_allclose(model.predict(t)[:, 1], CYCLES[:13, 1], atol=0.03)


MIXTURES = [
    ["x", "y", "x_t"],
    ["x", "y", "x_t", "x + y"],
    ["x_t", "y_t", "x"],
    ["x + y", "x_t"],
    ["2 x", "x", "y"],
]


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
@pytest.mark.parametrize("measured", MIXTURES)
def test_values_of_operators_are_a_gaussian_process(measured):
    """Without an equation, the posterior given functionals of independent processes."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"t": rng.uniform(0, 5, 6 * len(measured))})
    X["what"], y = np.repeat(measured, 6), rng.normal(size=len(X))
    noise = {name: 0.1 * (i + 1) for i, name in enumerate(measured)}
    given = {"variables": ("t",), "states": ("x", "y"), "state_kernel": KERNELS}
    model = TwoStepKEqL(**given, operator_column="what", observation_noise=noise)
    model = model.set_params(optimizer=None).fit(X, y)
    assert model.observation_noise_ == noise

    def parse(name):
        return parse_operator(name, ("t",), ("x", "y"))

    kernel = SystemKernel(KERNELS)
    rows = [(column(X.t[X.what == name]), parse(name)) for name in measured]
    G = gram(kernel, rows) + np.diag(np.repeat([noise[n] ** 2 for n in measured], 6))
    asked = pd.DataFrame({"t": POINTS[:, 0], "what": measured[0]})
    for name in ("x", "y", "x_t", "y_tt", "x - y"):
        K = gram(kernel, [(POINTS, parse(name))], rows)
        values, std = model.predict_derivative(asked, name, return_std=True)
        assert_allclose(values, K @ np.linalg.solve(G, y), rtol=1e-9, atol=1e-10)
        variance = gram_diagonal(kernel, POINTS, parse(name))
        variance -= np.sum(K * np.linalg.solve(G, K.T).T, axis=1)
        assert_allclose(std**2, variance, rtol=1e-8, atol=1e-12)
        by_row = model.predict(asked.assign(what=name))
        assert_array_equal(by_row, values)


# --- known constraints and boundary laws ----------------------------------------------


@pytest.mark.slow
def test_a_known_constraint():
    """Susceptible, infected and removed: S + I + R is constant."""

    def epidemic(_, y):
        return [-0.5 * y[0] * y[1], 0.5 * y[0] * y[1] - 0.2 * y[1], 0.2 * y[1]]

    t = np.linspace(0, 30, 31)
    values = integrate(epidemic, (0.99, 0.01, 0.0), t)
    total = Equation({"S_t": 1, "I_t": 1, "R_t": 1}, operators=None)
    laws = [("S", Equation("S_t", ("S", "I"))), ("I", Equation("I_t", ("S", "I")))]
    removed = ("R", Equation("R_t", ("I",)))
    given = {"states": ("S", "I", "R"), "variables": ("t",)}
    # Four equations of three states are imposed at points, three are integrated.
    cases = [([*laws, removed], ReducedOneStepKEqL), (laws, OneStepKEqL)]
    between = column(np.linspace(0, 30, 301))
    for equations, method in cases:
        model = method(**given, equations=[*equations, ("total", total)])
        model = model.fit(column(t), values)
        sums = model.predict(between).sum(axis=1)
        assert np.ptp(sums) < 1e-8
        slopes = [model.predict_derivative(between, f"{s}_t") for s in "SIR"]
        assert np.max(np.abs(np.sum(slopes, axis=0))) < 1e-8
        assert_allclose(sums, 1.0, atol=1e-7)
        assert model.equation_["total"].terms() == {}
        assert model.equation_["I"].terms()["S I"] == pytest.approx(0.5, rel=1e-2)
    assert np.ptp(sums) < 1e-13 and "obey the equation" in str(model.fit_report_)


def test_named_equations_that_say_nothing_more_leave_as_much_open():
    """Trajectories are exact whether equations are named or not."""
    named = [("x", Equation("x_t", ("x", "y"))), ("y", Equation("y_t", ("x", "y")))]
    given = {"states": ("x", "y"), "variables": ("t",)}
    model = OneStepKEqL(**given, equations=named).fit(column(TIMES), CYCLES)
    assert "states             obey the equation exactly" in str(model.fit_report_)
    expected = {"x": {"x": 1.1, "x y": -0.4}, "y": {"y": -0.4, "x y": 0.1}}
    for name, equation in model.equation_.items():
        rest = dict.fromkeys(equation.terms(), 0.0) | expected[name]
        assert equation.terms() == pytest.approx(rest, abs=1e-7)


@pytest.mark.parametrize(
    "given",
    [
        {"state_kernel": {"x": None}},
        {"equation_noise": {"x_t": None}},
        {"n_terms": {"x_t": "auto"}},
    ],
)
def test_a_dict_that_gives_nothing_leaves_all_open(given):
    free = OneStepKEqL(**PAIR).fit(column(TIMES), CYCLES)
    model = OneStepKEqL(**PAIR, **given)
    model = model.fit(column(TIMES), CYCLES)
    assert model.equation_.terms() == free.equation_.terms()
    assert str(model.fit_report_) == str(free.fit_report_)


@pytest.mark.slow
def test_what_is_not_given_is_chosen_whatever_is_given():
    """The kernel of y is compared if that of x is given, and the noise likewise."""
    kernel = {"x": Constant(40.0, "fixed") * RBF(0.6, "fixed")}
    model = OneStepKEqL(**PAIR, state_kernel=kernel, n_terms=None)
    model.fit(column(TIMES), CYCLES)
    assert "given for x; of the others the best of" in str(model.fit_report_)
    assert str(model.state_kernel_.of_state("x")) == "6.32**2 * RBF(length_scale=0.6)"
    model = OneStepKEqL(**PAIR, equation_noise={"x_t": 0.3})
    model.fit(column(TIMES), CYCLES)
    assert model.equation_noise_["x_t"] == 0.3
    assert model.equation_noise_["y_t"] < 0.01
    assert "given for x_t; of the others" in str(model.fit_report_)


@pytest.mark.parametrize("places", [(300, int("300")), (POINTS, POINTS.copy())])
def test_equations_at_equal_points_share_them(places):
    """As if the points were said once for both of them."""
    given = {"states": ("x", "y"), "variables": ("t",)}
    operators, numbers = ("x", "y"), ("x_t", "y_t")
    named = [
        (name, Equation(name, operators, collocation_points=points))
        for name, points in zip(numbers, places, strict=True)
    ]
    model = TwoStepKEqL(**given, equations=named).fit(T, CLEAN)
    once = TwoStepKEqL(**PAIR, collocation_points=places[0]).fit(T, CLEAN)
    assert_array_equal(model.collocation_points_, once.collocation_points_)
    assert model.equation_.terms() == once.equation_.terms()


@pytest.mark.slow
def test_a_boundary_law():
    """The coefficient of the heat transfer is found from the points at the wall."""
    data = make_heat_with_boundary_law(random_state=0)
    model = OneStepKEqL(**data.problem).fit(data.X, data.y)
    wall = model.equation_["wall"].sparse(n_terms=2).terms()
    assert wall == pytest.approx({"u": 2.0, "1": -0.6}, rel=1e-3)
    assert model.equation_["interior"].terms()["u_xx"] == pytest.approx(0.2, rel=1e-3)
    error = model.predict(data.X_test) - data.y_test
    assert np.linalg.norm(error) < 1e-4 * np.linalg.norm(data.y_test)
    # The size of a slope that vanishes at the wall is that inside.
    assert 1e-12 < model.equation_noise_["insulated"] < 1e-6
    right = np.column_stack([np.linspace(0, 1, 20), np.ones(20)])
    assert np.max(np.abs(model.predict_derivative(right, "u_x"))) < 1e-6
    assert "What looks wrong\n  - nothing" in str(model.fit_report_)


# --- inputs ---------------------------------------------------------------------------


def drive(points):
    return np.sin(1.3 * points[:, 0])


FINE = np.linspace(0, 10, 401)


@pytest.mark.parametrize("given", [drive, (FINE, np.sin(1.3 * FINE))])
def test_a_driven_decay(given):
    """u' = -0.7 u + 1.5 v(t)."""
    times = np.linspace(0, 10, 41)

    def velocity(t, u):
        return -0.7 * u + 1.5 * np.sin(1.3 * t)

    u = integrate(velocity, [2.0], times)[:, 0]
    model = TwoStepKEqL(("u",), "u_t", variables=("t",), inputs={"v": given})
    model = model.fit(column(times), u)
    terms = model.equation_.sparse(n_terms=2).terms()
    assert terms == pytest.approx({"v": 1.5, "u": -0.7}, rel=1e-3)
    assert_array_equal(model.input_values(column(FINE)), column(np.sin(1.3 * FINE)))
    again = model.equation_.simulate(times[4:30], u[4], inputs={"v": drive})
    assert_allclose(again[:, 0], u[4:30], atol=1e-4)


def test_a_dose_that_differs_between_functions():
    doses = {"low": 0.5, "high": 2.0, "mid": 1.0}
    times = np.linspace(0, 6, 16)
    X = pd.DataFrame({"t": np.tile(times, 3), "run": np.repeat([*doses], 16)})
    X["dose"] = X.run.map(doses)
    y = []
    for dose in doses.values():
        rates = np.array([[-0.8 * dose, 0.0], [0.8 * dose, -0.3]])
        y.append(integrate(lambda _, u, A=rates: A @ u, (2.0, 0.5), times))
    settings = PAIR | {"function_column": "run", "collocation_points": 40}
    by_label = TwoStepKEqL(**settings, inputs={"dose": doses})
    by_label = by_label.fit(X[["t", "run"]], np.vstack(y))
    by_column = TwoStepKEqL(**settings, inputs={"dose": "dose"}).fit(X, np.vstack(y))
    assert by_label.equation_.terms() == by_column.equation_.terms()
    assert str(by_column.equation_.sparse(n_terms={"x_t": 1, "y_t": 2})) == (
        "x_t = -0.800 dose x\ny_t = 0.800 dose x - 0.300 y"
    )
    assert_array_equal(by_label.input_values(X[["t", "run"]]), X[["dose"]])


# --- scikit-learn ---------------------------------------------------------------------


def hunters(method=OneStepKEqL, **changes):
    """Lotka and Volterra with given kernels; the prey's equation may lack x y."""
    both, names = ("prey", "predator"), {"states": ("prey", "predator")}
    kernel = 10.0 * Polynomial(2)
    equations = [
        ("prey", Equation("prey_t", both, kernel=Polynomial(1), noise=1e-2)),
        ("predator", Equation("predator_t", both, kernel=kernel, noise=1e-2)),
    ]
    settings = {"variables": ("t",), "observation_noise": 1e-3, "optimizer": None}
    settings |= {"state_kernel": 20.0 * RBF(0.8), "collocation_points": 60}
    return method(**names | settings | changes, equations=equations)


SHORT = np.linspace(0, 12, 25)
HUNTED = integrate(hunt, (10.0, 5.0), SHORT)
FEWER = {"n_restarts": 0, "solver": "primal"}


@pytest.mark.slow
def test_a_search_reaches_into_named_equations():
    model = hunters(**FEWER)
    choices = {"prey__kernel__degree": [1, 2]}
    folds = KFold(4, shuffle=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match="times the noise levels"):
        found = GridSearchCV(model, choices, cv=folds).fit(column(SHORT), HUNTED)
    assert found.best_params_ == {"prey__kernel__degree": 2}
    assert found.best_score_ > 0.98
    terms = found.best_estimator_.equation_["prey"].terms()
    assert terms["prey predator"] == pytest.approx(-0.4, rel=1e-2)
    assert model.get_params()["prey__kernel__degree"] == 1
    two = np.vstack([HUNTED, integrate(hunt, (3.0, 2.0), SHORT)])
    X = pd.DataFrame({"t": np.tile(SHORT, 2), "run": np.repeat(["a", "b"], 25)})
    search = {"cv": FunctionKFold(3, function_column="run")}
    model = model.set_params(function_column="run")
    with pytest.warns(ConvergenceWarning, match="times the noise levels"):
        found = GridSearchCV(model, choices, **search).fit(X, two)
    assert found.best_params_ == {"prey__kernel__degree": 2}


@pytest.mark.parametrize("method", LEARNERS)
def test_shapes_pipelines_and_copies(method):
    model = hunters(method).set_params(prey__kernel=Polynomial(2))
    table = pd.DataFrame(with_gaps(HUNTED), columns=["prey", "predator"])
    assert clone(model).get_params()["prey__kernel__degree"] == 2
    pipeline = make_pipeline(FunctionTransformer(), model)
    told = pytest.warns(IdentifiabilityWarning, match="predator is uncertain by")
    with (
        told if method is TwoStepKEqL else nullcontext()
    ):  # of gaps that it cannot fill
        pipeline.fit(column(SHORT), table)
    fitted, X = pipeline[-1], column(np.linspace(0, 12, 7))
    values, std = fitted.predict(X, return_std=True)
    assert values.shape == std.shape == (7, 2)
    slopes, std = fitted.predict_derivative(X, "predator_t", return_std=True)
    assert slopes.shape == std.shape == (7,)
    assert pipeline.score(column(SHORT), table) > 0.99
    copy = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(copy.predict(X), fitted.predict(X))
    assert_allclose(copy.predict(X, True)[1], fitted.predict(X, True)[1], rtol=1e-6)
    assert str(copy.equation_) == str(fitted.equation_)
    assert repr(clone(fitted)) == repr(model)


def test_columns_of_a_data_frame_name_the_states():
    table = pd.DataFrame(HUNTED, columns=["prey", "predator"])
    settings = {"variables": ("t",), "collocation_points": 60}
    model = TwoStepKEqL(("prey", "predator"), ("prey_t", "predator_t"), **settings)
    model = model.fit(column(SHORT), table)
    assert model.state_names_ == ("prey", "predator")
    assert list(model.equation_) == ["prey_t", "predator_t"]
    # Columns in another order are other states.
    other = clone(model).fit(column(SHORT), table[["predator", "prey"]])
    found = other.equation_.terms()["prey_t"]
    assert found == pytest.approx(model.equation_.terms()["prey_t"])


# --- errors ---------------------------------------------------------------------------

ONE = [("a", Equation("x_t", ("x",)))]


def equation(**parameters):
    return {"operators": None, "known_part": None} | {
        "equations": [("a", Equation(**{"operators": ("x",)} | parameters))]
    }


WRONG = [
    ({"states": ("x",)}, "states=.* one for each of the 2 column"),
    ({"states": ("x", "x")}, "states=.* must be different names"),
    ({"states": ("t", "y"), "operators": ("y",)}, "states=.* has t, .* a coordinate"),
    ({"states": ("x", "z")}, "'y' names the function 'y': the states are called x, z"),
    ({"equations": ONE, "known_part": None}, "operators is given beside equations"),
    ({"equations": ONE, "operators": None}, "known_part is given beside equations"),
    ({"operators": ("x + y",)}, "'x \\+ y' has several states"),
    ({"known_part": ("x_t + y_t", "y_t")}, "'x_t \\+ y_t' has several states"),
    ({"forcing": (None,) * 3}, "forcing is a tuple of 3, but known_part has 2"),
    ({"state_kernel": {"z": RBF()}}, "state_kernel has an entry for 'z'.* x, y"),
    ({"equation_kernel": {"x": RBF()}}, "equation_kernel has an entry for 'x'.* x_t"),
    ({"observation_noise": {"z": 1.0}}, "observation_noise has an entry for 'z'"),
    ({"observation_noise": {"x": -1.0}}, "observation_noise has -1.0 for 'x'"),
    ({"equation_noise": {"x": 1.0}}, "equation_noise has an entry for 'x'"),
    ({"n_terms": {"x": 1}}, "n_terms has an entry for 'x'"),
    ({"n_terms": {"x_t": "all"}}, "n_terms has 'all' for 'x_t'"),
    ({"n_terms": {"x_t": 0}}, "n_terms has 0 for 'x_t'"),
    (equation(known_part="x_t", noise=-1.0), "equations has 'a': The 'noise' param"),
    (equation(known_part="x_t", n_terms=0), "equations has 'a': The 'n_terms' param"),
    (equation(), "equations has 'a' with neither known_part nor forcing"),
    (equation(forcing=np.cos, operators=None), "equations has 'a' with neither"),
    ({"inputs": {"x": 1.0}}, "inputs has the name 'x', which is that of"),
    ({"inputs": {"t": 1.0}}, "inputs has the name 't', which is that of"),
    ({"inputs": {"x_t": 1.0}}, "inputs has the name 'x_t', which is that of"),
    ({"inputs": {"a b": 1.0}}, "inputs has the name 'a b'"),
    ({"inputs": {"c": "dose"}}, r"inputs\['c'\]='dose' is no column of X"),
    ({"inputs": {"c": [1.0, 2.0]}}, r"inputs\['c'\]=.* must be a number, a function"),
    ({"inputs": {"c": ([1, 2], [3])}}, r"inputs\['c'\] has 2 times and 1 values"),
    ({"inputs": {"c": ([2, 1], [3, 4])}}, r"inputs\['c'\] .* in rising order"),
    ({"inputs": {"c": lambda x: np.ones((len(x), 2))}}, r"inputs\['c'\] has values"),
    ({"inputs": {"c": np.nan}}, r"inputs\['c'\] is not finite at"),
    ({"inputs": {"c": {"here": 1.0}}}, r"inputs\['c'\] has no entry for the function"),
]


@pytest.mark.parametrize("changes, message", WRONG)
def test_wrong_parameters(changes, message):
    model = OneStepKEqL(**PAIR | {"max_iter": 1, "n_restarts": 0} | changes)
    with pytest.raises(ValueError, match=message):
        model.fit(T, CLEAN)


def test_samples_in_time_need_a_single_coordinate():
    settings = {"variables": ("t", "x"), "inputs": {"c": ([0.0, 1.0], [1.0, 2.0])}}
    with pytest.raises(ValueError, match=r"inputs\['c'\] is a pair .* 2 coordinates"):
        TwoStepKEqL(("u",), "u_t", **settings).fit(np.hstack([T, T**2]), CLEAN[:, 0])

"""Systems of learned equations: values, reading, simulation against closed forms."""

import pickle

import autograd.numpy as anp
import numpy as np
import pytest
import sympy
from known_equations import lotka_volterra, make_system, monomial
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp

import keql
from keql import ExtrapolationWarning, LearnedSystem, SimulationError
from keql.equation import InducingBasis, regression_posterior
from keql.kernels import RBF

TIMES = np.linspace(0, 2.5, 20)
EXACT = {"rtol": 1e-11}


def oscillators(k=0.0, **changes):
    """x_tt = -x - k (x - y), y_tt = -y - k (y - x)."""
    arguments = {
        "equations": {
            "first": ({"x_tt": 1.0}, {"x": 1 + k, "y": -k}),
            "second": ({"y_tt": 1.0}, {"x": -k, "y": 1 + k}),
        },
        "operators": ("x", "y"),
        "states": ("x", "y"),
    }
    return make_system(**{**arguments, **changes})


def with_constraint(**changes):
    """x_t = -x, y_t = x learned, and x_t + y_t = 0 known."""
    equations = {
        "gone": ({"x_t": 1.0}, {"x": 1.0}),
        "made": ({"y_t": 1.0}, {"x": -1.0}),
        "mass": ({"x_t": 1.0, "y_t": 1.0}, None),
    }
    return make_system(equations, ("x",), ("x", "y"), **changes)


def kinetic(**changes):
    """Known x_t = v, learned v_t = -x."""
    equations = {
        "place": ({"x_t": 1.0, "v": -1.0}, None),
        "speed": ({"v_t": 1.0}, {"x": 1.0}),
    }
    return make_system(equations, ("x", "v"), ("x", "v"), **changes)


def set_kernel(equation, kernel):
    """Give an equation another P, with inducing points and weights drawn at random."""
    points = equation.training_features[:8, : equation.n_unknown_features]
    equation.basis = InducingBasis(kernel, points)
    equation.weights = np.random.RandomState(1).normal(size=8)


# --- values -------------------------------------------------------------------------


def test_a_system_is_a_mapping():
    system = lotka_volterra()
    assert list(system) == ["prey", "predator"] and len(system) == 2
    assert system["prey"].terms() == pytest.approx({"x": 1.0, "x y": -0.5})
    assert system.feature_names == ["t", "x", "y", "x_t", "y_t"]
    assert (system.variables, system.states) == (("t",), ("x", "y"))
    assert system.n_operators == 2 and len(system.operators) == 4
    assert system.inputs == () and not system.has_forcing
    assert keql.LearnedSystem is keql.equation.LearnedSystem


def test_values_and_gradient():
    system, S = with_constraint(), np.random.RandomState(1).normal(size=(7, 4))
    _, x, x_t, y_t = S.T
    expected = [x_t + x, y_t - x, x_t + y_t]
    assert_allclose(system(S).T, expected, rtol=1e-14, atol=1e-14)
    assert_allclose(system.unknown_part(S).T, [x, -x, 0 * x], atol=1e-14)
    system = lotka_volterra()
    S = np.random.RandomState(2).normal(size=(6, 5))
    gradient, step = system.gradient(S), 1e-6
    assert gradient.shape == (6, 2, 5)
    for column, shift in enumerate(step * np.eye(5)):
        quotient = (system(S + shift) - system(S - shift)) / (2 * step)
        assert_allclose(gradient[..., column], quotient, atol=1e-8)


def test_features_of_a_function():
    # x = e^(-t) and y = 1 - e^(-t) solve the three equations.
    def solution(points):
        decay = anp.exp(-points[:, 0])
        return anp.stack([decay, 1 - decay], axis=1)

    system, decay = with_constraint(), np.exp(-TIMES)
    S = system.features(solution, TIMES[:, None])
    assert_allclose(S.T, [TIMES, decay, -decay, decay], rtol=1e-14)
    assert_allclose(
        system.apply(solution, TIMES[:, None]), np.zeros((20, 3)), atol=1e-14
    )
    with pytest.raises(ValueError, match="a column for each of x, y"):
        system.features(lambda points: points[:, 0], TIMES[:, None])


def test_an_estimator_gives_features_and_inputs():
    class Fitted:
        def coordinates(self, X):
            return X[:, :1]

        def input_values(self, X):
            return X[:, 1:]

        def predict_derivative(self, X, operator):
            return len(operator.name) + 0 * X[:, 0]

    equation = driven()["decay"]
    X = np.array([[1.0, 7.0], [2.0, 8.0]])
    assert_array_equal(equation.features(Fitted(), X), [[1, 7, 1, 3], [2, 8, 1, 3]])
    with pytest.raises(ValueError, match="inputs must be None"):
        equation.features(Fitted(), X, inputs={"v": 1.0})


def test_extrapolation_is_that_of_the_features_that_count():
    system = lotka_volterra()
    assert np.all(system.extrapolation(system.training_features) <= 1 + 1e-12)
    inside = np.zeros((3, 5))
    inside[0, 1], inside[1, 2], inside[2, 0] = 1e3, 1e3, 1e3
    ratio = system.extrapolation(inside)
    assert ratio[0] > 10 and ratio[1] > 10 and ratio[2] < 1
    # Training features of all equations count together.
    wide = pickle.loads(pickle.dumps(system))
    wide["prey"].training_features = 1e3 * system.training_features
    assert len(wide.training_features) == 2 * len(system.training_features)
    assert wide.extrapolation(inside)[0] < 1
    assert np.all(with_constraint()["mass"].extrapolation(inside[:, :4]) == 0)


def test_equations_of_a_system_share_their_features():
    first, other = lotka_volterra()["prey"], with_constraint()["gone"]
    with pytest.raises(ValueError, match="'b' with the features t, x, x_t, y_t"):
        LearnedSystem({"a": first, "b": other})
    with pytest.raises(ValueError, match="equations is empty"):
        LearnedSystem({})


def test_pickle():
    system = lotka_volterra()
    again = pickle.loads(pickle.dumps(system))
    assert str(again) == str(system) and list(again) == list(system)
    assert_array_equal(
        again(system.training_features), system(system.training_features)
    )


# --- reading ------------------------------------------------------------------------


def test_text():
    system = lotka_volterra()
    lines = ["x_t = x - 0.500 x y", "y_t = -y + 0.250 x y"]
    assert str(system) == "\n".join(lines)
    assert repr(system) == f"<LearnedSystem {'; '.join(lines)}>"
    assert str(with_constraint()["mass"]) == "x_t + y_t = 0"
    assert "y<sub>t</sub> = -y + 0.250 x y" in system._repr_html_()


def test_latex():
    from matplotlib.mathtext import MathTextParser

    system = lotka_volterra()
    latex = system.to_latex()
    lines = latex.splitlines()
    assert lines[0] == r"\begin{aligned}" and lines[-1] == r"\end{aligned}"
    assert lines[1] == r"x_{t} &= x - 0.500 x \, y \\"
    assert lines[2] == r"y_{t} &= -y + 0.250 x \, y"
    assert system._repr_latex_() == rf"$\displaystyle {latex}$"
    for line in lines[1:-1]:
        line = line.removesuffix(r"\\").replace("&", "")
        MathTextParser("agg").parse(f"${line}$")


def test_functions_of_different_equations_have_different_names():
    system = lotka_volterra()
    for equation in system.values():
        equation.has_forcing = True
        set_kernel(equation, RBF(2.0, active_dims=(1, 2)))
    assert str(system) == "x_t = f1 - P1(x, y)\ny_t = f2 - P2(x, y)"
    assert r"f_2 - P_2(x, y)" in system.to_latex()
    t = sympy.Symbol("t")
    assert sympy.Function("f2")(t) in system.to_sympy()[1].rhs.atoms(sympy.Function)
    # The equation alone has no number.
    assert str(system["prey"]) == "x_t = f - P(x, y)"


def test_coefficient_functions_are_counted_on():
    system = lotka_volterra()
    for equation in system.values():
        set_kernel(equation, RBF(1.0, active_dims=(0,)) * monomial(1))
    assert str(system) == "x_t = c0(t) x\ny_t = c1(t) x"


def test_sympy_has_the_same_values():
    system = lotka_volterra()
    t = sympy.Symbol("t")
    x, y = sympy.Function("x")(t), sympy.Function("y")(t)
    formulas = system.to_sympy()
    assert formulas[0].lhs == sympy.Derivative(x, t)

    def states(points):
        t = points[:, 0]
        return anp.stack([anp.exp(-t), anp.sin(2 * t)], axis=1)

    values = system.apply(states, TIMES[:5, None])
    exact = {x: sympy.exp(-t), y: sympy.sin(2 * t)}
    for formula, column in zip(formulas, values.T, strict=True):
        difference = (formula.lhs - formula.rhs).subs(exact).doit()
        again = sympy.sympify(str(difference))  # what is printed parses
        found = [float(again.subs(t, time)) for time in TIMES[:5]]
        assert_allclose(found, column, atol=1e-12)


def with_posteriors():
    """A system with posteriors, from features with noise, and a known equation."""
    rng = np.random.RandomState(3)
    system = make_system(
        {
            "prey": ({"x_t": 1.0}, {"x": 1.0, "y": 1.0, "x y": 1.0}),
            "predator": ({"y_t": 1.0}, {"x": 1.0, "y": 1.0, "x y": 1.0}),
            "sum": ({"x_t": 1.0, "y_t": 1.0}, None),
        },
        ("x", "y"),
        ("x", "y"),
    )
    _, x, y, *_ = system.training_features.T
    targets = {"prey": -x + 0.5 * x * y, "predator": y}
    for name, target in targets.items():
        equation = system[name]
        target = target + 1e-3 * rng.normal(size=len(target))
        features = equation.basis(equation.training_features[:, :3])
        weights = np.linalg.lstsq(features, target, rcond=None)[0]
        equation.weights = weights
        equation.posterior = regression_posterior(features, target, 1e-3, weights)
    return system


def test_terms_with_errors_and_frame():
    system = with_posteriors()
    terms, std = system.terms(return_std=True)
    assert terms == system.terms() and list(terms) == ["prey", "predator", "sum"]
    assert terms["sum"] == std["sum"] == {}
    assert terms["prey"]["x y"] == pytest.approx(-0.5, abs=4 * std["prey"]["x y"])
    frame = system.to_frame()
    assert frame.index.names == ["equation", "term"] and len(frame) == 6
    assert frame.loc[("prey", "x"), "coefficient"] == terms["prey"]["x"]
    assert frame.loc[("prey", "x"), "standard_error"] == std["prey"]["x"]


def test_sparse_systems():
    system = with_posteriors()
    assert {name: len(steps) for name, steps in system.path().items()} == {
        "prey": 3,
        "predator": 3,
        "sum": 0,
    }
    sparse = system.sparse(max_loss=3.0)
    assert isinstance(sparse, LearnedSystem)
    found = {name: set(terms) for name, terms in sparse.terms().items()}
    assert found == {"prey": {"x", "x y"}, "predator": {"y"}, "sum": set()}
    assert "times the loss" in repr(sparse) or "the same loss" in repr(sparse)
    counts = system.sparse(n_terms={"prey": 1}, max_loss=1e12).terms()
    assert [len(counts[name]) for name in ("prey", "predator")] == [1, 1]
    assert [len(t) for t in system.sparse(n_terms=2).terms().values()] == [2, 2, 0]
    with pytest.raises(ValueError, match="n_terms has 'fox'"):
        system.sparse(n_terms={"fox": 1})


@pytest.mark.parametrize("n_terms", [4, {"prey": 4, "predator": 1}])
def test_more_terms_than_an_equation_has(n_terms):
    """The equation is named, and how many terms it has."""
    message = (
        "equation 'prey': n_terms=4 must be a whole number from 1 to 3, the number"
    )
    with pytest.raises(ValueError, match=message):
        with_posteriors().sparse(n_terms=n_terms)
    system = with_posteriors()
    system["predator"].posterior = None
    with pytest.raises(ValueError, match="equation 'predator': the equation has no po"):
        system.sparse(n_terms=1)


def test_projection():
    projected = with_posteriors().project(1)
    terms = projected.terms()
    assert set(terms["prey"]) == set(terms["predator"]) == {"1", "x", "y"}
    assert terms["predator"]["y"] == pytest.approx(-1.0, abs=1e-2)
    assert projected["prey"].unexplained > 0.1 and terms["sum"] == {}


def test_an_equation_without_unknown_part():
    mass = with_constraint()["mass"]
    assert mass.terms() == {} and mass.terms(return_std=True) == ({}, {})
    assert len(mass.to_frame()) == 0 and mass.path() == []
    assert str(mass.sparse()) == str(mass.project()) == str(mass) == "x_t + y_t = 0"
    assert mass.to_latex() == "x_{t} + y_{t} = 0" and mass.coefficient_terms() == []
    assert mass.to_sympy().rhs == 0 and mass.unexplained == 0 and mass.loss_ratio == 1
    with pytest.raises(ValueError, match="is known: P = 0"):
        mass.coefficient("x", [[0.0]])


# --- simulation ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_lotka_volterra_is_integrated():
    def right(_, state):
        x, y = state
        return [x - 0.5 * x * y, 0.25 * x * y - y]

    exact = {"rtol": 1e-12, "atol": 1e-12, "method": "DOP853"}
    truth = solve_ivp(right, TIMES[[0, -1]], [3.0, 1.0], t_eval=TIMES, **exact).y.T
    system = lotka_volterra()
    states = system.simulate(TIMES, {"y": 1.0, "x": 3.0}, **EXACT)
    assert_allclose(states, truth, rtol=1e-8)
    assert_array_equal(system.simulate(TIMES, [3.0, 1.0], **EXACT), states)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_uncoupled_oscillators_are_two_equations():
    states = oscillators().simulate(TIMES, {"x": (1.0, 0.5), "y": (0.0, -2.0)}, **EXACT)
    one = make_system({"u": ({"u_tt": 1.0}, {"u": 1.0})}, ("u",), ("u",))["u"]
    for columns, initial in ((slice(0, 2), (1.0, 0.5)), (slice(2, 4), (0.0, -2.0))):
        alone = one.simulate(TIMES, initial, **EXACT)
        assert_allclose(states[:, columns], alone, atol=1e-9)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_coupled_oscillators():
    # x + y has the frequency 1, x - y the frequency sqrt(1 + 2 k).
    k, w = 1.5, 2.0
    states = oscillators(k).simulate(TIMES, [1.0, 0.0, 0.0, 0.0], **EXACT)
    slow, fast = np.cos(TIMES), np.cos(w * TIMES)
    velocities = -np.sin(TIMES), -w * np.sin(w * TIMES)
    expected = [
        (slow + fast) / 2,
        (velocities[0] + velocities[1]) / 2,
        (slow - fast) / 2,
        (velocities[0] - velocities[1]) / 2,
    ]
    assert_allclose(states.T, expected, atol=1e-9)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_mass_matrix():
    # 2 x_t + y_t = -3 x and x_t - y_t = 0: x_t = y_t = -x.
    system = make_system(
        {
            "both": ({"x_t": 2.0, "y_t": 1.0}, {"x": 3.0}),
            "same": ({"x_t": 1.0, "y_t": -1.0}, None),
        },
        ("x",),
        ("x", "y"),
    )
    decay = np.exp(-TIMES)
    # y is no feature, and needs an initial value all the same.
    states = system.simulate(TIMES, {"x": 1.0, "y": 3.0}, **EXACT)
    assert_allclose(states.T, [decay, 2 + decay], atol=1e-9)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_orders_may_differ():
    # x_tt = -x - y, y_t = -y with y = e^-t: x = (cos t - sin t - e^-t) / 2.
    system = make_system(
        {
            "x": ({"x_tt": 2.0}, {"x": 2.0, "y": 2.0}),
            "y": ({"y_t": -1.0}, {"y": -1.0}),
        },
        ("x", "y"),
        ("x", "y"),
    )
    states = system.simulate(TIMES, {"x": (0.0, 0.0), "y": 1.0}, **EXACT)
    x = (np.cos(TIMES) - np.sin(TIMES) - np.exp(-TIMES)) / 2
    x_t = (-np.sin(TIMES) - np.cos(TIMES) + np.exp(-TIMES)) / 2
    assert_allclose(states.T, [x, x_t, np.exp(-TIMES)], atol=1e-9)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_known_equations_are_integrated_where_they_are_needed():
    states = kinetic().simulate(TIMES, {"x": 0.0, "v": 1.0}, **EXACT)
    assert_allclose(states.T, [np.sin(TIMES), np.cos(TIMES)], atol=1e-9)
    # A constraint on top of S learned equations is left out.
    states = with_constraint().simulate(TIMES, {"x": 1.0, "y": 0.0}, **EXACT)
    assert_allclose(states.T, [np.exp(-TIMES), 1 - np.exp(-TIMES)], atol=1e-9)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_forcings():
    # x_t = -x + 1 and y_t = cos t.
    system = with_constraint()
    system = LearnedSystem({name: system[name] for name in ("gone", "made")})
    system["gone"].has_forcing = True
    initial = {"x": 0.0, "y": 0.0}

    def one(points):
        return 1 + 0 * points[:, 0]

    rise = 1 - np.exp(-TIMES)
    expected = [rise, TIMES - rise]
    for forcing in ({"gone": one}, (one, None)):
        states = system.simulate(TIMES, initial, forcing, **EXACT)
        assert_allclose(states.T, expected, atol=1e-9)
    for forcing, words in (
        (None, "forcing is None for 'gone'"),
        ({"made": one}, "forcing is None for 'gone'"),
        ({"other": one}, "forcing has 'other'"),
        (one, "a tuple with one entry for each of gone, made"),
    ):
        with pytest.raises(ValueError, match=words):
            system.simulate(TIMES, initial, forcing)


def driven():
    """u_t = -u + v(t) with a known v."""
    equations = {"decay": ({"u_t": 1.0}, {"u": 1.0, "v": -1.0})}
    return make_system(equations, ("u",), ("u",), inputs=("v",))


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_inputs():
    equation = driven()["decay"]
    assert equation.feature_names == ["t", "v", "u", "u_t"]
    assert str(equation) == "u_t = -u + v" or str(equation) == "u_t = v - u"
    inputs = {"v": lambda points: np.cos(points[:, 0])}
    exact = (np.cos(TIMES) + np.sin(TIMES) - np.exp(-TIMES)) / 2
    states = equation.simulate(TIMES, [0.0], inputs=inputs, **EXACT)
    assert_allclose(states[:, 0], exact, atol=1e-10)
    states = driven().simulate(TIMES, {"u": 0.0}, inputs=inputs, **EXACT)
    assert_allclose(states[:, 0], exact, atol=1e-10)
    states = equation.simulate(TIMES, [0.0], inputs={"v": 2.0}, **EXACT)
    assert_allclose(states[:, 0], 2 * (1 - np.exp(-TIMES)), atol=1e-10)
    for given, words in (
        (None, "inputs lacks v"),
        ({"v": 1.0, "w": 2.0}, "inputs has 'w'"),
        ({"v": lambda points: np.ones(7)}, "'v'\\] has values of shape \\(7,\\)"),
    ):
        with pytest.raises(ValueError, match=words):
            equation.simulate(TIMES, [0.0], inputs=given)
    with pytest.raises(ValueError, match="it has no inputs"):
        lotka_volterra().simulate(TIMES, [1.0, 1.0], inputs={"v": 1.0})


def test_inputs_are_features_of_functions():
    equation = driven()["decay"]
    inputs = {"v": lambda points: 2 * points[:, 0] + points[:, 0] ** 2}
    X = TIMES[:, None]
    assert_allclose(equation.apply(lambda X: X[:, 0] ** 2, X, inputs), 0, atol=1e-13)
    # They are factors of the terms if P is a polynomial in them.
    assert_allclose(equation.coefficient("v", X), 1, rtol=1e-12)
    formula, t = equation.to_sympy(), sympy.Symbol("t")
    u, v = sympy.Function("u")(t), sympy.Function("v")(t)
    assert sympy.simplify(formula.rhs - (v - u)) == 0


def test_coefficients_that_depend_on_inputs():
    equations = {"decay": ({"u_t": 1.0}, {"u": 1.0})}
    equation = make_system(equations, ("u",), ("u",), inputs=("mu",))["decay"]
    set_kernel(equation, RBF(1.0, active_dims=(1,)) * monomial(2))
    assert str(equation) == "u_t = c0(mu) u"
    assert equation.to_latex() == r"u_{t} = c_0(\mu) \, u"
    points = np.array([[0.0, 0.3], [5.0, -0.2]])  # t and mu
    S = np.column_stack([points, [2.0, 4.0]])
    expected = -equation.unknown_part(S) / [2.0, 4.0]
    assert_allclose(equation.coefficient("u", points), expected, rtol=1e-8)
    with pytest.raises(ValueError, match="depend on t, mu"):
        equation.coefficient("u", [[0.0]])


def test_a_system_that_extrapolates_warns():
    S = np.random.RandomState(0).uniform(0, 1, size=(50, 5))
    with pytest.warns(ExtrapolationWarning, match="first at t = 0,"):
        lotka_volterra(S=S).simulate(TIMES, [3.0, 1.0])


def test_states_of_different_units():
    # Each state has a tolerance of its own: x is a million times y.
    S = np.random.RandomState(0).uniform(-2, 2, size=(50, 5)) * [4, 1e6, 1, 1e6, 1]
    system = make_system(
        {"x": ({"x_t": 1.0}, {"x": 1.0}), "y": ({"y_t": 1.0}, {"y": 50.0, "x": -5e-5})},
        ("x", "y"),
        ("x", "y"),
        S=S,
    )
    states = system.simulate(TIMES, {"x": 1e6, "y": 0.0}, rtol=1e-8)
    exact = 50 / 49 * (np.exp(-TIMES) - np.exp(-50 * TIMES))
    assert_allclose(states[:, 1], exact, atol=1e-5)


@pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning")
def test_a_solution_that_ends_is_a_typed_failure():
    equations = {"x": ({"x_t": 1.0}, {"x^2": -1.0}), "y": ({"y_t": 1.0}, {"y": 1.0})}
    system = make_system(equations, ("x", "y"), ("x", "y"))
    with pytest.raises(SimulationError, match="x_t = x\\^2; y_t = -y") as info:
        system.simulate(TIMES, [1.0, 1.0], rtol=1e-4)
    assert info.value.time == pytest.approx(1.0, abs=0.1)
    with pytest.raises(SimulationError, match="in 50 evaluations"):
        system.simulate(TIMES, [0.1, 1.0], max_evaluations=50)


def test_systems_that_cannot_be_integrated():
    initial = {"x": 1.0, "y": 1.0}
    one = lotka_volterra()["prey"]
    with pytest.raises(ValueError, match="needs 2 equations .* x, y, not 1"):
        one.simulate(TIMES, initial)
    dependent = make_system(
        {
            "a": ({"x_t": 1.0, "y_t": 2.0}, {"x": 1.0}),
            "b": ({"x_t": 2.0, "y_t": 4.0}, {"x": 1.0}),
        },
        ("x",),
        ("x", "y"),
    )
    with pytest.raises(ValueError, match="a, b cannot be solved for x_t, y_t"):
        dependent.simulate(TIMES, initial)
    product = make_system(
        {
            "a": ({"x_t": 1.0}, {"x_t y_t": 1.0}),
            "b": ({"y_t": 1.0}, {"x_t": 0.5}),
        },
        ("x_t", "y_t"),
        ("x", "y"),
    )
    with pytest.raises(ValueError, match="a, b cannot be solved for x_t, y_t"):
        product.simulate(TIMES, initial)
    static = make_system({"a": ({"x_t": 1.0}, {"y": 1.0})}, ("y",), ("x", "y"))
    with pytest.raises(ValueError, match="a derivative of y: the equations have none"):
        static.simulate(TIMES, initial)
    law = make_system(
        {
            "a": ({"x_t": 1.0}, {"y": 1.0}),
            "b": ({"x": 1.0}, {"y": 1.0}),
            "c": ({"x": 2.0, "y_t": 0.0}, {"y": 1.0}),
        },
        ("y",),
        ("x", "y"),
    )
    with pytest.raises(ValueError, match="not 1: a; b, c cannot be used"):
        law.simulate(TIMES, initial)


def test_wrong_initial_values():
    system = oscillators()
    for initial, words in (
        ([1.0, 2.0], "the equations need 4 finite value\\(s\\), x, x_t, y, y_t"),
        ({"x": (1.0, 0.0)}, "initial has values of x: the states are x, y"),
        ({"x": 1.0, "y": (1.0, 0.0)}, "1 value\\(s\\) of 'x'.* order 2"),
        ({"x": (1.0, np.nan), "y": (1.0, 0.0)}, "4 finite"),
    ):
        with pytest.raises(ValueError, match=words):
            system.simulate(TIMES, initial)

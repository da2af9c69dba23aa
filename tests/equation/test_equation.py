"""The learned equation, built by hand from coefficients that are known."""

import pickle

import autograd.numpy as anp
import numpy as np
import pytest
from known_equations import TX, make_equation, monomial
from numpy.testing import assert_allclose, assert_array_equal

from keql.kernels import RBF, Constant, Polynomial
from keql.operators import KernelExpansion, parse_operator

# Columns t, x, u, u_x, u_xx, u_t.
BURGERS_KERNEL = monomial(2, 3) + monomial(4)
SAMPLE = np.random.RandomState(0).normal(size=(12, 6))


def burgers(**changes):
    """u_t = 0.5 u u_x + 0.01 u_xx."""
    arguments = {
        "operators": ["u", "u_x", "u_xx"],
        "known_part": "u_t",
        "kernel": BURGERS_KERNEL,
        "weights": [-0.5, -0.01],
        "S": SAMPLE,
    }
    return make_equation(**{**arguments, **changes})


def pendulum(u_t, x, u):
    """A nonlinear known part."""
    return u_t * anp.exp(x) + anp.sin(u) ** 2


def rbf_equation(known_part="u_t"):
    """An equation without a finite list of terms, variable in x."""
    kernel = Constant(2.0) * RBF([1.0, 2.0, 1.5], active_dims=(1, 2, 3))
    weights = np.random.RandomState(1).normal(size=12)
    return burgers(kernel=kernel, weights=weights, known_part=known_part)


# --- values -------------------------------------------------------------------------


def test_values():
    equation = burgers()
    assert equation.feature_names == ["t", "x", "u", "u_x", "u_xx", "u_t"]
    _, _, u, u_x, u_xx, u_t = SAMPLE.T
    unknown = -0.5 * u * u_x - 0.01 * u_xx
    assert_allclose(equation.unknown_part(SAMPLE), unknown, rtol=1e-14)
    assert_allclose(equation(SAMPLE), unknown + u_t, rtol=1e-14)
    # The unknown part does not look at what only the known part uses.
    assert_array_equal(
        equation.unknown_part(SAMPLE[:, :5]), equation.unknown_part(SAMPLE)
    )
    assert_allclose(equation([1.0, 1.0, 2.0, 3.0, 100.0, 7.0]), [3.0], rtol=1e-14)
    assert equation.equation_kernel is equation.basis.kernel


def test_values_of_an_equation_without_terms():
    # P is the kernel expansion that interpolates its values at the inducing points.
    equation = rbf_equation()
    kernel, points = equation.equation_kernel, SAMPLE[:, :5]
    values = equation.unknown_part(SAMPLE)
    queries = np.random.RandomState(2).normal(size=(20, 5))
    expected = kernel(queries, points) @ np.linalg.solve(kernel(points), values)
    assert_allclose(equation.unknown_part(queries), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "equation",
    [
        burgers(),
        burgers(known_part={"u_t": 2.0, "u_x": -0.3}),
        burgers(known_part=pendulum),
        burgers(known_part=None, S=SAMPLE[:, :5]),
        rbf_equation(),
        rbf_equation(pendulum),
    ],
    ids=str,
)
def test_gradient(equation):
    S = np.random.RandomState(2).normal(size=(7, len(equation.feature_names)))
    gradient = equation.gradient(S)
    assert gradient.shape == S.shape
    step = 1e-5
    quotients = [
        (equation(S + shift) - equation(S - shift)) / (2 * step)
        for shift in step * np.eye(S.shape[1])
    ]
    tolerance = 1e-7 * np.abs(gradient).max()
    assert_allclose(gradient.T, quotients, rtol=0, atol=tolerance)


def test_gradient_closed_form():
    _, x, u, u_x, _, u_t = SAMPLE.T
    zero, one = 0 * u, 1 + 0 * u
    expected = [zero, zero, -0.5 * u_x, -0.5 * u, -0.01 * one, one]
    assert_allclose(burgers().gradient(SAMPLE).T, expected, atol=1e-15)
    # u is a feature of both parts: their slopes add up.
    gradient = burgers(known_part=pendulum).gradient(SAMPLE)
    slope = -0.5 * u_x + 2 * np.sin(u) * np.cos(u)
    assert_allclose(gradient[:, 2], slope, rtol=1e-12, atol=1e-14)
    assert_allclose(gradient[:, 1], u_t * np.exp(x), rtol=1e-14)


# --- functions ----------------------------------------------------------------------

POINTS = np.random.RandomState(3).uniform(0, 1, size=(15, 2))


def rarefaction(points):
    """Solution x / (1 + t) of u_t + u u_x = nu u_xx."""
    return points[:, 1] / (1 + points[:, 0])


def decay(points):
    """exp(-t) sin(2 x), which solves the heat equation u_t = u_xx / 4."""
    return anp.exp(-points[:, 0]) * anp.sin(2 * points[:, 1])


def test_features_of_a_function():
    t, x = POINTS.T
    u = np.exp(-t) * np.sin(2 * x)
    u_x = 2 * np.exp(-t) * np.cos(2 * x)
    expected = np.column_stack([t, x, u, u_x, -4 * u, -u])
    S = burgers().features(decay, POINTS)
    assert_allclose(S, expected, rtol=1e-13, atol=1e-15)
    values = burgers().apply(decay, POINTS)
    assert_allclose(values, -u - 0.5 * u * u_x + 0.04 * u, rtol=1e-12, atol=1e-15)
    assert_array_equal(burgers().features(decay, POINTS.tolist()), S)


def test_apply_vanishes_on_solutions():
    equation = burgers(weights=[1.0, -0.01])
    assert_allclose(equation.apply(rarefaction, POINTS), 0, atol=1e-14)
    heat = burgers(weights=[0.0, -0.25])
    assert_allclose(heat.apply(decay, POINTS), 0, atol=1e-14)
    # Duffing, with a forcing that makes sin a solution: u'' - 3 u + 3 u^3 + 0.2 u'.
    duffing = make_equation(
        ["u", "u_t"],
        "u_tt",
        monomial(1) + monomial(1) ** 3 + monomial(2),
        [-3.0, 3.0, 0.2],
        variables=("t",),
    )
    t = np.linspace(0, 3, 9)
    forcing = -4 * np.sin(t) + 3 * np.sin(t) ** 3 + 0.2 * np.cos(t)
    values = duffing.apply(lambda points: anp.sin(points[:, 0]), t[:, None])
    assert_allclose(values, forcing, rtol=1e-12, atol=1e-14)


class FittedState:
    """What the equation asks of a fitted estimator; the first column is a label."""

    def __init__(self):
        identity = parse_operator("u", TX)
        self.state = KernelExpansion(RBF(0.4), [(POINTS[:6], identity)], np.arange(6.0))

    def coordinates(self, X):
        return np.asarray(X)[:, 1:]

    def predict_derivative(self, X, operator):
        return self.state.evaluate(self.coordinates(X), operator)


def test_features_of_a_fitted_state():
    w = FittedState()
    X = np.column_stack([np.zeros(15), POINTS])
    S = burgers().features(w, X)
    columns = [
        w.state.evaluate(POINTS, parse_operator(name, TX))
        for name in ["u", "u_x", "u_xx", "u_t"]
    ]
    assert_array_equal(S, np.column_stack([POINTS, *columns]))
    assert_array_equal(burgers().apply(w, X), burgers()(S))

    # The same function, written in autograd.
    def function(points):
        square = anp.sum((points[:, None, :] - POINTS[:6]) ** 2, axis=-1)
        return anp.dot(anp.exp(-square / (2 * 0.4**2)), np.arange(6.0))

    assert_allclose(burgers().features(function, POINTS), S, rtol=1e-9, atol=1e-9)


# --- terms and text -----------------------------------------------------------------


def test_terms_are_exact():
    assert burgers().terms() == {"u u_x": 0.5, "u_xx": 0.01}
    # A centred and scaled kernel: P(u) = sum of weights times features, expanded.
    center, scale = np.array([0.5, -1.0]), np.array([2.0, 0.25])
    kernel = Polynomial(2, scale, center, active_dims=(2, 3))
    weights = np.random.RandomState(4).normal(size=6)
    equation = burgers(kernel=kernel, weights=weights)
    terms = equation.terms()
    assert set(terms) == {"1", "u", "u_x", "u^2", "u u_x", "u_x^2"}
    u, u_x = SAMPLE[:, 2], SAMPLE[:, 3]
    total = (
        terms["1"]
        + terms["u"] * u
        + terms["u_x"] * u_x
        + terms["u^2"] * u**2
        + terms["u u_x"] * u * u_x
        + terms["u_x^2"] * u_x**2
    )
    assert_allclose(total, -equation.unknown_part(SAMPLE), rtol=1e-10, atol=1e-11)
    assert all(type(value) is float for value in terms.values())


def test_terms_with_coordinates():
    equation = burgers(kernel=monomial(1, 1, 1, 3) + monomial(0), weights=[2.0, 3.0])
    assert equation.terms() == pytest.approx({"x^3 u_x": -2.0, "t": -3.0}, rel=1e-14)


def test_terms_come_by_their_size_on_the_data():
    sizes = {"u u_x": 0.5, "u_xx": 0.01}
    for u_xx, order in [(1.0, ["u u_x", "u_xx"]), (1e3, ["u_xx", "u u_x"])]:
        S = np.ones((4, 6)) * [1, 1, 1, 1, u_xx, 1]
        S[::2] *= -1  # sizes, not sums
        equation = burgers(S=S)
        assert list(equation.terms()) == order
        assert equation.terms() == sizes


def test_str_solves_for_the_known_part():
    assert str(burgers()) == "u_t = 0.500 u u_x + 0.0100 u_xx"
    assert repr(burgers()) == "<LearnedEquation u_t = 0.500 u u_x + 0.0100 u_xx>"
    steep = burgers(weights=[1.0, 123.456])
    assert str(steep) == "u_t = -123 u_xx - u u_x"
    tiny = burgers(weights=[-1.0, 1.2345e-7])
    assert str(tiny) == "u_t = u u_x - 1.23e-07 u_xx"


def test_str_of_other_known_parts():
    wave = burgers(known_part={"u_tt": 1, "u_t": -0.5})
    assert str(wave) == "u_tt - 0.500 u_t = 0.500 u u_x + 0.0100 u_xx"
    forced = burgers(has_forcing=True)
    assert str(forced) == "u_t = f + 0.500 u u_x + 0.0100 u_xx"
    nonlinear = burgers(known_part=pendulum)
    assert str(nonlinear) == "pendulum(u_t, x, u) = 0.500 u u_x + 0.0100 u_xx"
    # Without a known part there is nothing to solve for: P = f.
    poisson = burgers(known_part=None, has_forcing=True, S=SAMPLE[:, :5])
    assert str(poisson) == "-0.500 u u_x - 0.0100 u_xx = f"
    free = burgers(known_part=None, S=SAMPLE[:, :5])
    assert str(free) == "-0.500 u u_x - 0.0100 u_xx = 0"


def test_str_with_a_constant_and_compound_operators():
    kernel = Constant(1.0) + monomial(2) + monomial(3)
    equation = make_equation(
        ["laplacian(u)", "u_xx + 2 u"], "u_t", kernel, [1.0, -2.0, 0.5], np.ones((3, 5))
    )
    assert equation.terms() == {"laplacian(u)": 2.0, "1": -1.0, "(u_xx + 2 u)": -0.5}
    assert str(equation) == "u_t = 2.00 laplacian(u) - 1.00 - 0.500 (u_xx + 2 u)"


def test_str_without_terms_names_the_arguments():
    assert str(rbf_equation()) == "u_t = -P(x, u, u_x)"
    free = burgers(
        kernel=RBF(1.0, active_dims=(2, 4)),
        weights=np.ones(12),
        known_part=None,
        S=SAMPLE[:, :5],
        has_forcing=True,
    )
    assert str(free) == "P(u, u_xx) = f"


def test_terms_need_a_polynomial():
    with pytest.raises(ValueError, match="not polynomial") as error:
        rbf_equation().terms()
    for word in ["RBF", "unknown_part", "keql.kernels.Polynomial"]:
        assert word in str(error.value)


# --- wrong input and storage --------------------------------------------------------


@pytest.mark.parametrize("width", [1, 4, 5, 7])
def test_wrong_width(width):
    S = np.ones((3, width))
    message = f"S has {width} column.*6 features: t, x, u, u_x, u_xx, u_t"
    for method in (burgers(), burgers().gradient):
        with pytest.raises(ValueError, match=message):
            method(S)
    if width < 5:
        message = f"S has {width} column.*depends on 5: t, x, u, u_x, u_xx"
        with pytest.raises(ValueError, match=message):
            burgers().unknown_part(S)


def test_wrong_points():
    for X in (POINTS[:, :1], np.ones((4, 3)), [0.1, 0.2, 0.3]):
        with pytest.raises(ValueError, match="X has .* column.*2 variable.*t, x"):
            burgers().apply(decay, X)


@pytest.mark.parametrize(
    "equation", [burgers(), burgers(known_part=pendulum), rbf_equation()], ids=str
)
def test_pickling(equation):
    again = pickle.loads(pickle.dumps(equation))
    assert str(again) == str(equation)
    assert_array_equal(again(SAMPLE), equation(SAMPLE))
    assert_array_equal(again.gradient(SAMPLE), equation.gradient(SAMPLE))
    assert_array_equal(again.apply(decay, POINTS), equation.apply(decay, POINTS))
    assert again.state_kernel == equation.state_kernel

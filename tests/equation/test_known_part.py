"""The known part of the equation: its forms, columns, gradient and errors."""

import warnings
from functools import partial

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import elementwise_grad
from numpy.testing import assert_allclose, assert_array_equal

from keql.equation._known import FunctionKnownPart, LinearKnownPart, make_known_part
from keql.operators import parse_operator

TX = ("t", "x")
NAMES = ["t", "x", "u", "u_tt", "u_x", "u_tx"]
S = np.random.RandomState(0).normal(size=(9, 6))
T, X, U, U_TT, U_X, U_TX = S.T


def located(known_part):
    """The known part, told where its operators stand among the features."""
    part = make_known_part(known_part, TX)
    operators = [parse_operator(name, TX) for name in NAMES[2:]]

    def column_of(operator):
        (index,) = [i for i, o in enumerate(operators) if o.same_as(operator)]
        return 2 + index

    part._locate(NAMES, column_of)
    return part


def rows(**columns):
    """A gradient with the given rows, and zeros elsewhere."""
    gradient = np.zeros(S.T.shape)
    for name, value in columns.items():
        gradient[NAMES.index(name)] = value
    return gradient


def pendulum(u_tt, u, x):
    """A nonlinear known part with a coefficient that varies."""
    return u_tt + x**2 * anp.sin(u)


def damped(u_tt, u_x, strength):
    """One parameter too many, unless it is given."""
    return u_tt + strength * u_x


# Known part, its values, its gradient, and how it is printed.
FORMS = [
    (None, 0 * T, {}, {}),
    ("u_tt", U_TT, {"u_tt": 1}, {"u_tt": 1.0}),
    ("u_xt", U_TX, {"u_tx": 1}, {"u_tx": 1.0}),
    ((0, 1), U_X, {"u_x": 1}, {"u_x": 1.0}),
    (parse_operator("u_x", TX), U_X, {"u_x": 1}, {"u_x": 1.0}),
    (
        {"u_tt": 1, "u_x": -0.3},
        U_TT - 0.3 * U_X,
        {"u_tt": 1, "u_x": -0.3},
        {"u_tt": 1.0, "u_x": -0.3},
    ),
    ({(0, 1): 2, "u": 1e-6}, 2 * U_X + 1e-6 * U, {"u_x": 2, "u": 1e-6}, None),
    ({"u_tx": 2, "u_xt": 3}, 5 * U_TX, {"u_tx": 5}, {"u_tx": 5.0}),
    (
        pendulum,
        U_TT + X**2 * np.sin(U),
        {"u_tt": 1, "u": X**2 * np.cos(U), "x": 2 * X * np.sin(U)},
        {"pendulum(u_tt, u, x)": 1.0},
    ),
    (lambda u_x, u: u_x * u, U_X * U, {"u_x": U, "u": U_X}, {"lambda(u_x, u)": 1.0}),
    (lambda u_xt, u_tx: u_xt * u_tx, U_TX**2, {"u_tx": 2 * U_TX}, None),
    (lambda t, u_tt: u_tt, U_TT, {"u_tt": 1}, None),
    (lambda u: 3.0, 0 * U + 3, {}, None),
]


@pytest.mark.parametrize(("known_part", "value", "gradient", "terms"), FORMS)
def test_forms(known_part, value, gradient, terms):
    part = located(known_part)
    assert_allclose(part(S), value, rtol=1e-14, atol=1e-15)
    assert part(S).shape == (9,)
    assert part.gradient(S).shape == (6, 9)
    assert_allclose(part.gradient(S), rows(**gradient), rtol=1e-14, atol=1e-15)
    if terms is not None:
        assert part.terms == terms


@pytest.mark.parametrize(
    "function", [pendulum, lambda u, u_x, t: anp.exp(-u * t) * anp.abs(u_x) ** 1.5]
)
def test_gradient_of_a_function(function):
    part = located(function)
    names = part.parameters
    arguments = [S[:, NAMES.index(name)] for name in names]
    expected = {
        name: elementwise_grad(function, i)(*arguments) for i, name in enumerate(names)
    }
    assert_allclose(part.gradient(S), rows(**expected), rtol=1e-14)
    for column, step in enumerate(1e-6 * np.eye(6)):
        quotient = (part(S + step) - part(S - step)) / 2e-6
        assert_allclose(part.gradient(S)[column], quotient, rtol=1e-6, atol=1e-8)


def test_gradients_are_new_arrays():
    for part in (located("u_x"), located(pendulum)):
        part.gradient(S)[:] = 7
        assert_array_equal(part.gradient(S)[0], 0)


def test_operators_that_are_used():
    for known_part, kind, names in [
        (None, LinearKnownPart, []),
        ("u_t", LinearKnownPart, ["u_t"]),
        ({"u_t": 1, "laplacian(u)": -1}, LinearKnownPart, ["u_t", "laplacian(u)"]),
        (pendulum, FunctionKnownPart, ["u_tt", "u"]),
    ]:
        part = make_known_part(known_part, TX)
        assert type(part) is kind
        assert [operator.name for operator in part.operators] == names


def test_terms_with_sums_are_in_brackets():
    part = make_known_part({"u_t + u_x": 1, "laplacian(u)": 2, "u - u_x": -3}, TX)
    names = ["t", "x", "u_t + u_x", "laplacian(u)", "u - u_x"]
    part._locate(names, lambda operator: names.index(operator.name))
    assert part.terms == {"u_t + u_x": 1, "laplacian(u)": 2, "(u - u_x)": -3}


def test_functions_with_arguments_already_given():
    for function in [
        partial(damped, strength=0.2),
        lambda u_tt, u_x, c=0.2: u_tt + c * u_x,
        lambda u_tt, u_x: damped(u_tt, u_x, 0.2),
    ]:
        part = located(function)
        assert_allclose(part(S), U_TT + 0.2 * U_X)
        assert_allclose(part.gradient(S), rows(u_tt=1, u_x=0.2))
    assert located(partial(damped, strength=0.2)).terms == {"known_part(u_tt, u_x)": 1}


@pytest.mark.parametrize(
    ("known_part", "words"),
    [
        ("u_y", ["'u_y'", "unknown variable"]),
        ("v_t", ["'v_t'", "the state is called u"]),
        ({"u_t": 1, "u_zz": 2}, ["'u_zz'", "unknown variable"]),
        ((1, 0, 0), ["(1, 0, 0)", "one order"]),
        (damped, ["known_part", "'strength'", "t, x", "nor an operator"]),
        (lambda y: y, ["known_part", "parameter 'y'", "nor an operator"]),
        (lambda *args: args[0], ["known_part", "parameter 'args'"]),
        (3.0, ["known_part=3.0", "'u_t'", "function of named features"]),
        (["u_t", "u_x"], ["known_part=['u_t', 'u_x']", "dict"]),
    ],
)
def test_errors(known_part, words):
    with pytest.raises(ValueError, match="known_part|operator") as error:
        make_known_part(known_part, TX)
    assert [word for word in words if word not in str(error.value)] == []


def test_other_warnings_are_heard():
    def complains(u):
        warnings.warn("a warning of the user's own", UserWarning, stacklevel=1)
        return u

    with pytest.warns(UserWarning, match="the user's own"):
        located(complains).gradient(S)

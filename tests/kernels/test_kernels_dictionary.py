"""The kernel that given functions span."""

import pickle

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from keql import OneStepKEqL, TwoStepKEqL
from keql._numerics.elementary import FAMILIES, Elementary
from keql.kernels import Dictionary, Polynomial, feature_slopes

X = np.random.RandomState(0).normal(size=(8, 3))
NAMES = ["x", "u", "u_x"]


def sine(u):
    return anp.sin(u)


def product(u, u_x, power=2):
    return u**power * u_x


def one():
    return 1.0


FUNCTIONS = {"sin(u)": sine, "u^2 u_x": product, "1": one}
KERNEL = Dictionary(FUNCTIONS, scale=[2.0, 0.5, 3.0]).bind(NAMES)


def test_features():
    _, u, u_x = X.T
    expected = np.column_stack([2 * np.sin(u), 0.5 * u**2 * u_x, 3 + 0 * u])
    assert_allclose(KERNEL.feature_map(X), expected)
    assert_allclose(KERNEL(X), expected @ expected.T)
    assert_allclose(KERNEL.diag(X), np.diag(KERNEL(X)))
    assert_array_equal(KERNEL.depends_on(3), [False, True, True])
    assert KERNEL.n_features(3) == 3 and KERNEL.n_dims == 0


def test_derivatives():
    _, u, u_x = X.T
    zero = 0 * u
    for a, expected in {
        (0, 1, 0): [2 * np.cos(u), u * u_x, zero],
        (0, 2, 0): [-2 * np.sin(u), u_x, zero],
        (0, 1, 1): [zero, u, zero],
        (1, 0, 0): [zero, zero, zero],
        (0, 0, 2): [zero, zero, zero],
    }.items():
        features = KERNEL.feature_map(X, a)
        assert_allclose(features, np.column_stack(expected), atol=1e-14)
        K = KERNEL.derivative(X, X, a, (0, 1, 0))
        assert_allclose(K, features @ KERNEL.feature_map(X, (0, 1, 0)).T)


def elementary_functions():
    """Some of each family, alone and times powers, and their slopes."""
    for family in FAMILIES:
        for powers in ((), (("u_x", 2),), (("u", 1), ("x", 3)), (("u", -1),)):
            function = Elementary(powers, family, "u", 0.7)
            yield from (function, function.in_log_parameter())
    for family in ("power", "exp"):  # x stands for a second derivative
        function = Elementary((), family, "u", 0.7, flux=("u_x", "x"))
        yield from (function, function.in_log_parameter())
    for family in FAMILIES:
        yield Elementary((("u_x", 1),), family, "u", 0.7, origin=-0.4)
    for family in ("sin", "cos", "exp"):
        yield Elementary((("x", 1),), family, "u", 0.7, reference="x")
    yield Elementary.power_above(0.3, "x", 1, (("u", 1),))
    yield from (Elementary(), Elementary((("u_x", 1),)), Elementary((("x", 2),)))


def test_elementary_functions_have_the_derivatives_of_autograd():
    """Those in closed form, of all functions at once; also where a power is zero."""
    functions = {str(i): f for i, f in enumerate(elementary_functions())}
    arguments = dict.fromkeys(functions)
    for name, f in functions.items():
        columns = ", ".join(f.columns)
        arguments[name] = eval(f"lambda {columns}: f({columns})", {"f": f})
    scale = np.linspace(0.5, 2.0, len(functions))
    table = Dictionary(functions, scale).bind(NAMES)
    one_by_one = Dictionary(arguments, scale).bind(NAMES)
    assert table._table(3) is not None and one_by_one._table(3) is None
    S = np.abs(X) + np.array([0.0, 0.1, 0.0])
    S[:2, [0, 2]] = 0.0
    for a in (None, (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 1, 1)):
        expected = one_by_one.feature_map(S, a)
        assert_allclose(table.feature_map(S, a), expected, rtol=1e-12, atol=1e-13)
    assert_array_equal(table.depends_on(3), [True, True, True])
    for weights in (scale, np.where(scale > 1, scale, 0.0)):
        slopes = feature_slopes(one_by_one, S, weights)
        assert_allclose(feature_slopes(table, S, weights), slopes, rtol=1e-11)
    constant = Dictionary({"1": Elementary()}, 1.0).bind(NAMES)
    assert_array_equal(feature_slopes(constant, S, np.ones(1)), 0 * S.T)
    assert_array_equal(feature_slopes(table, S, 0 * scale), 0 * S.T)


def test_other_functions_are_other_features():
    """What was compiled of the ones before is not used for them."""
    kernel = Dictionary({"1": Elementary((("u", 1),))}, 1.0, tuple(NAMES))
    assert_array_equal(kernel.feature_map(X)[:, 0], X[:, 1])
    kernel.set_params(functions={"1": Elementary((("x", 1),))})
    assert_array_equal(kernel.feature_map(X)[:, 0], X[:, 0])
    kernel.functions["1"] = Elementary((("u_x", 1),))
    assert_array_equal(kernel.feature_map(X)[:, 0], X[:, 2])
    assert pickle.loads(pickle.dumps(kernel)) == kernel


def test_same_space_as_a_polynomial():
    names = ["u"]
    u = X[:, 1:2]
    kernel = Dictionary(
        {"1": one, "u": lambda u: u, "u^2": lambda u: u**2},
        scale=[1.0, 2**0.5, 1.0],
    ).bind(names)
    assert_allclose(kernel(u), Polynomial(2, 1.0, 0.0)(u), rtol=1e-12)


def test_scale_from_features():
    kernel = Dictionary(FUNCTIONS).bind(NAMES).scaled_to(X)
    sizes = np.sqrt(np.mean(kernel.feature_map(X) ** 2, axis=0))
    assert_allclose(sizes, 1.0)
    with pytest.raises(ValueError, match="scale='auto'"):
        Dictionary(FUNCTIONS).bind(NAMES)(X)
    with pytest.raises(ValueError, match="must be positive"):
        Dictionary(FUNCTIONS, [1.0, 2.0]).bind(NAMES)(X)


def test_is_a_kernel_of_scikit_learn():
    assert clone(KERNEL) == KERNEL and pickle.loads(pickle.dumps(KERNEL)) == KERNEL
    assert KERNEL != Dictionary(FUNCTIONS).bind(NAMES)
    kept = KERNEL.keep([2, 0])
    assert kept.feature_names == ["1", "sin(u)"]
    assert_array_equal(kept.feature_scales(), [3.0, 2.0])


@pytest.mark.parametrize("estimator", [OneStepKEqL, TwoStepKEqL])
def test_an_equation_made_of_given_functions(estimator):
    t = np.linspace(0, 4, 40)[:, None]
    model = estimator(
        operators=("u",),
        known_part="u_t",
        variables=("t",),
        equation_kernel=Dictionary({"exp(-u)": lambda u: anp.exp(-u)}),
    ).fit(t, np.log(1 + t.ravel()))  # u_t = exp(-u)
    assert model.equation_.terms() == {"exp(-u)": pytest.approx(1.0, rel=1e-2)}
    assert str(model.equation_).endswith(" exp(-u)")


def test_wrong_columns():
    with pytest.raises(ValueError, match="must name the 3 column"):
        Dictionary(FUNCTIONS, 1.0)(X)
    with pytest.raises(ValueError, match="'sin.u.' has the parameter 'u'.*x, v"):
        Dictionary(FUNCTIONS, 1.0).bind(["x", "v"])(X[:, :2])

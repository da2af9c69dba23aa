"""The kernel that given functions span."""

import pickle

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from keql import OneStepKEqL, TwoStepKEqL
from keql.kernels import Dictionary, Polynomial

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

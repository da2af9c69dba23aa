"""Polynomial kernels that keep some monomials only."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor

from keql import OneStepKEqL
from keql.kernels import RBF, Constant, Polynomial, Restriction

X = np.random.RandomState(0).normal(size=(9, 3))
NAMES = ["u", "u_x", "u_xx"]
CUBIC = Constant(2.0) * Polynomial(3, [0.7, 1.9, 0.4], [0.3, -0.2, 5.0])
CHOSEN = ["u u_x", "u_xx", "u^3", "1"]
KERNEL = Restriction(CUBIC, CHOSEN).bind(NAMES)


def norm_of(kernel, coefficients, exponents):
    """Squared RKHS norm of a polynomial, by interpolation at many points."""
    points = np.random.RandomState(1).normal(size=(40, 3)) + [0, 0, 5]
    values = np.prod(points[:, None] ** exponents, axis=2) @ coefficients
    weights = np.linalg.lstsq(kernel.feature_map(points), values, rcond=1e-13)[0]
    assert_allclose(kernel.feature_map(points) @ weights, values, rtol=1e-8)
    return weights @ weights


def test_contains_the_monomials_with_the_norm_of_the_kernel():
    exponents, coefficients = KERNEL.feature_polynomials(3)
    assert_array_equal(exponents, [[1, 1, 0], [0, 0, 1], [3, 0, 0], [0, 0, 0]])
    assert KERNEL.n_features(3) == 4 and np.linalg.matrix_rank(coefficients) == 4
    values = np.prod(X[:, None] ** exponents, axis=2) @ coefficients
    assert_allclose(KERNEL.feature_map(X), values, rtol=1e-8, atol=1e-8)
    assert_allclose(KERNEL(X), values @ values.T, rtol=1e-8)
    assert_allclose(KERNEL.diag(X), np.diag(KERNEL(X)))
    for c in np.random.RandomState(2).normal(size=(5, 4)):
        whole = norm_of(CUBIC, c, exponents)
        assert norm_of(KERNEL, c, exponents) == pytest.approx(whole, rel=1e-6)


def test_everything_kept_is_the_kernel_itself():
    exponents = CUBIC.feature_polynomials(3)[0]
    same = Restriction(CUBIC, exponents)
    assert_allclose(same(X), CUBIC(X), rtol=1e-9)
    pairs = [((1, 0, 0), (0, 2, 0)), ((0, 0, 1), (0, 0, 1))]
    for left, right in zip(
        same.derivatives(X, X, pairs), CUBIC.derivatives(X, X, pairs), strict=True
    ):
        assert_allclose(left, right, rtol=1e-7, atol=1e-7)


def test_looks_at_the_columns_of_its_monomials():
    kernel = Restriction(Polynomial(2, 1.0, 0.5), [(1, 0, 1), (0, 0, 0)])
    assert_array_equal(kernel.depends_on(3), [True, False, True])
    moved = X + np.outer(np.arange(9), [0, 1, 0])
    assert_allclose(kernel(moved), kernel(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "exponents"),
    [
        ("1", (0, 0, 0)),
        ("u", (1, 0, 0)),
        ("u u_xx", (1, 0, 1)),
        ("u_x^2 u", (1, 2, 0)),
        ("u**2*u_x", (2, 1, 0)),
    ],
)
def test_names(text, exponents):
    assert Restriction(CUBIC, [text]).bind(NAMES).monomials == [exponents]


def test_names_of_compound_operators():
    kernel = Restriction(Polynomial(2, 1.0, 0.0), ["(u_xx + 2 u)^2", "laplacian(u)"])
    bound = kernel.bind(["u_xx + 2 u", "laplacian(u)"])
    assert bound.monomials == [(2, 0), (0, 1)]


def test_scaling_reaches_the_kernel_inside():
    kernel = Restriction(Polynomial(2), ["u", "u^2"]).bind(NAMES).scaled_to(X)
    assert_allclose(kernel.kernel.center, X.mean(axis=0))


def test_is_a_kernel_of_scikit_learn():
    assert KERNEL.n_dims == 0 and clone(KERNEL) == KERNEL
    assert pickle.loads(pickle.dumps(KERNEL)) == KERNEL
    assert KERNEL != Restriction(CUBIC, ["u"]).bind(NAMES)
    y = 2.0 - X[:, 0] * X[:, 1]
    fitted = GaussianProcessRegressor(
        Constant(10.0, "fixed") * KERNEL, alpha=1e-10
    ).fit(X, y)
    assert_allclose(fitted.predict(X + 1), 2.0 - (X[:, 0] + 1) * (X[:, 1] + 1))


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_a_fit_has_these_terms_only(size):
    t = np.linspace(0, 6, 12)[:, None]
    model = OneStepKEqL(
        operators=("u", "u_t"),
        known_part="u_tt",
        variables=("t",),
        state_kernel=Constant(size**2, "fixed") * RBF(1.0, "fixed"),
        equation_kernel=Constant(size**2, "fixed") * Restriction(Polynomial(3), ["u"]),
        observation_noise=1e-5 * size,
    ).fit(t, size * np.sin(2 * t.ravel()))
    assert model.equation_.terms() == {"u": pytest.approx(-4.0, rel=1e-3)}


@pytest.mark.parametrize(
    ("kernel", "monomials", "message"),
    [
        (CUBIC, ["u u_y"], "'u u_y' of a monomial does not parse at 'u_y'"),
        (CUBIC, ["u^4"], r"not contain the exponents \(4, 0, 0\)"),
        (CUBIC, [], "name at least one"),
        (CUBIC, [(1, 0)], "one exponent >= 0 for each of the 3"),
        (CUBIC, [(1, 0, -1)], "one exponent >= 0 for each of the 3"),
        (RBF(1.0), ["u"], "no finite list of monomials"),
        (Polynomial(2, 1.0, 0.5, offset=0.0), ["u^2"], "one by one"),
        (Polynomial(2, 1.0, 0.0, offset=0.0), ["u"], "one by one"),
    ],
)
def test_wrong_monomials(kernel, monomials, message):
    with pytest.raises(ValueError, match=message):
        Restriction(kernel, monomials).bind(NAMES)(X)


def test_names_need_an_estimator():
    with pytest.raises(ValueError, match="are names"):
        Restriction(CUBIC, ["u"])(X)

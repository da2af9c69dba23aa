"""Kernels of finite dimension: exact features, exact monomials, scaling."""

from math import comb

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keql.kernels import (
    RBF,
    Constant,
    FunctionKernel,
    Matern,
    Polynomial,
    Restriction,
    feature_slopes,
)

X = np.random.RandomState(0).normal(size=(6, 2))
Y = np.random.RandomState(1).normal(size=(4, 2))

POLYNOMIALS = {
    "degree 2": Polynomial(2, [0.7, 1.9], [0.3, -0.2]),
    "degree 4": Polynomial(4, 0.7, 0.3, 0.4),
    "degree 0": Polynomial(0, 1.0, 0.0),
    "homogeneous": Polynomial(3, [0.7, 1.9], 0.0, 0.0),
    "one column": Polynomial(3, 0.7, 0.3, active_dims=1),
    "reversed columns": Polynomial(2, [0.7, 1.9], [0.3, -0.2], active_dims=(1, 0)),
    "constant": Constant(2.3),
    "sum": 2.0 * Polynomial(1, 0.7, 0.1) + Polynomial(3, 1.9, 0.3, active_dims=0),
    "product": Polynomial(2, 0.7, 0.1, active_dims=0) * Polynomial(1, 1.9, 0.3),
    "power": (Polynomial(1, 0.7, 0.1) + Constant(0.5)) ** 3,
}


def monomials(S, exponents, a=(0, 0)):
    """Derivatives of the monomials of two columns, one coordinate after the other."""
    values = np.ones((len(S), len(exponents)))
    for s, powers, order in zip(S.T, exponents.T, a, strict=True):
        for column, power in enumerate(powers):
            monomial = np.polynomial.Polynomial.basis(int(power)).deriv(order)
            values[:, column] *= monomial(s)
    return values


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_features_of_polynomials(name):
    kernel = POLYNOMIALS[name]
    features = kernel.feature_map(X)
    assert features.shape == (6, kernel.n_features(2))
    assert_allclose(features @ kernel.feature_map(Y).T, kernel(X, Y), rtol=1e-11)
    exponents, coefficients = kernel.feature_polynomials(2)
    assert len(np.unique(exponents, axis=0)) == len(exponents)
    for a in [(0, 0), (1, 0), (0, 2), (1, 1), (3, 1)]:
        features = kernel.feature_map(X, a)
        exact = monomials(X, exponents, a) @ coefficients
        assert_allclose(features, exact, atol=1e-11 * (1 + np.abs(exact).max()))
        assert_allclose(
            features @ kernel.feature_map(Y, (0, 1)).T,
            kernel.derivative(X, Y, a, (0, 1)),
            atol=1e-11 * (1 + np.abs(exact).max() ** 2),
        )


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_slopes_of_combinations_of_features(name):
    """Of polynomials, of sums and products of them, and of some of their monomials."""
    kernel = POLYNOMIALS[name]
    linear = Constant(2.0) * Polynomial(1, 2.0, 0.5, active_dims=1)
    some = Restriction(Polynomial(2, 1.0, 0.0), [(1, 1), (0, 2)])
    for each in (kernel, 3.0 * kernel, kernel * linear, linear + kernel, some):
        weights = np.random.RandomState(0).standard_normal(each.n_features(2))
        slopes = feature_slopes(each, X, weights)
        expected = [each.feature_map(X, a) @ weights for a in ((1, 0), (0, 1))]
        atol = 1e-11 * (1 + np.abs(expected).max())
        assert_allclose(slopes, expected, atol=atol)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_number_of_features(d, degree):
    kernel = Polynomial(degree, 1.0, 0.0)
    assert kernel.n_features(d) == comb(d + degree, degree)
    assert kernel.feature_map(np.ones((1, d))).shape == (1, comb(d + degree, degree))
    homogeneous = Polynomial(degree, 1.0, 0.0, offset=0.0)
    assert homogeneous.n_features(d) == comb(d + degree - 1, degree)


def test_feature_polynomials_are_exact():
    # (z z' + 1)^2 with z = (s - 3) / 2: features z^2, sqrt(2) z, 1
    exponents, coefficients = Polynomial(2, 2.0, 3.0).feature_polynomials(1)
    assert_array_equal(exponents, [[0], [1], [2]])
    expected = np.array(
        [
            [1.0, -1.5 * 2**0.5, 2.25],
            [0.0, 0.5 * 2**0.5, -1.5],
            [0.0, 0.0, 0.25],
        ]
    )
    assert_allclose(coefficients, expected, rtol=1e-15)


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(),
        RBF() + Polynomial(1, 1.0, 0.0),
        Polynomial(1, 1.0, 0.0) * Matern(),
        (RBF() + 1.0) ** 2,
        FunctionKernel(lambda x, y: anp.exp(anp.sum(x * y, axis=-1))),
    ],
)
def test_no_finite_features(kernel):
    assert kernel.n_features(2) is None
    assert kernel.feature_polynomials(2) is None
    assert kernel.feature_map(X) is None


def test_scaled_to():
    S = np.random.RandomState(3).normal(size=(50, 3)) * [1e-6, 1.0, 1e6] + [1e-6, 2, 0]
    kernel = 2.0 * Polynomial(2) + RBF() * Polynomial(1, active_dims=(2, 0)) ** 2
    scaled = kernel.scaled_to(S)
    first, second = scaled.k1.k2, scaled.k2.k2.kernel
    assert_allclose(first.center, S.mean(axis=0), rtol=1e-12)
    assert_allclose(first.scale, S.std(axis=0), rtol=1e-12)
    assert_allclose(second.center, S.mean(axis=0)[[2, 0]], rtol=1e-12)
    assert_allclose(second.scale, S.std(axis=0)[[2, 0]], rtol=1e-12)
    assert kernel.k1.k2.center == kernel.k1.k2.scale == "auto"
    # Units of the columns do not matter once the kernel is scaled.
    again = Polynomial(2).scaled_to(S / [1e-6, 1.0, 1e6])
    assert_allclose(again(S / [1e-6, 1.0, 1e6]), Polynomial(2).scaled_to(S)(S))
    # What is given is kept, and a column that does not vary has a usable scale.
    half = Polynomial(2, scale=3.0).scaled_to(S)
    assert half.scale == 3.0
    assert_allclose(half.center, S.mean(axis=0), rtol=1e-12)
    constant = Polynomial(2).scaled_to(np.column_stack([S, np.full(50, 0.1)]))
    assert np.isfinite(constant(np.ones((1, 4))))

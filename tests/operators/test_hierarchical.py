"""Hierarchical products: equal to those with matrices, in any order of the points."""

import numpy as np
import pytest

from keql.kernels import RBF, Constant, Matern, Periodic
from keql.operators import HierarchicalGram

ORDERS = {1: [(0,), (1,), (2,)], 2: [(0, 0), (1, 0), (0, 2), (2, 0)]}
KERNELS = {
    "matern": Matern(0.3, nu=3.5),
    "rbf": RBF(0.2),
    "short": Matern(0.03, nu=2.5),
    "with offset": Constant(2.0) + 0.5 * Matern(0.4, nu=2.5),
}


def draw(d, n=1500):
    rng = np.random.RandomState(d)
    points = rng.uniform(size=(n, d)) ** 2 - 0.4
    return points, rng.normal(size=(len(ORDERS[d]), n))


def dense(kernel, X, points, orders, strengths):
    """Derivatives of the sum at points X, from matrices."""
    return np.stack(
        [
            sum(
                kernel.derivative(X, points, a, b) @ f
                for b, f in zip(orders, strengths, strict=True)
            )
            for a in orders
        ]
    )


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_products_are_those_with_matrices(name, d):
    kernel, (points, strengths) = KERNELS[name], draw(d)
    orders, rows = ORDERS[d], np.arange(0, 1500, 37)
    gram = HierarchicalGram(kernel, points, orders)
    expected = dense(kernel, points[rows], points, orders, strengths)
    values = gram.multiply(strengths)[:, rows]
    error = np.linalg.norm(values - expected, axis=1)
    assert gram.depth >= 2
    assert np.all(error < 1e-8 * np.linalg.norm(expected, axis=1))
    assert gram.error() < 1e-8
    some = gram.multiply(strengths, rows)
    assert np.allclose(
        some[:, rows], values, rtol=1e-10, atol=1e-10 * abs(values).max()
    )


def test_more_nodes_are_more_exact():
    kernel, (points, strengths) = KERNELS["matern"], draw(2)
    expected = dense(kernel, points[:50], points, ORDERS[2], strengths)
    errors = [
        np.linalg.norm(
            HierarchicalGram(kernel, points, ORDERS[2], n_nodes=n).multiply(strengths)[
                :, :50
            ]
            - expected
        )
        for n in (6, 9, 12)
    ]
    assert errors[1] < 0.03 * errors[0]
    assert errors[2] < 0.03 * errors[1]


def test_length_scales_that_differ():
    """Cells are cubes in units of the length scales."""
    points, strengths = draw(2)
    kernel = Matern([0.3, 3.0], nu=3.5)
    stretched = points * [1.0, 10.0]
    expected = dense(kernel, stretched[:50], stretched, ORDERS[2], strengths)
    values = HierarchicalGram(kernel, stretched, ORDERS[2]).multiply(strengths)
    error = np.linalg.norm(values[:, :50] - expected)
    assert error < 1e-8 * np.linalg.norm(expected)


def test_functionals_one_at_each_point():
    """Rows of a Gram matrix and single covariances agree with the matrix."""
    kernel, (points, weights) = KERNELS["matern"], draw(2, 700)
    orders = ORDERS[2]
    H = np.zeros((700, 700))
    for a, left in zip(orders, weights, strict=True):
        for b, right in zip(orders, weights, strict=True):
            H += left[:, None] * right * kernel.derivative(points, points, a, b)
    gram, x = (
        HierarchicalGram(kernel, points, orders, leaf_size=20),
        np.sin(np.arange(700)),
    )
    product = gram.of_rows(weights).multiply(x)
    assert np.linalg.norm(product - H @ x) < 1e-9 * np.linalg.norm(H @ x)
    rows, columns = np.array([[3, 5], [9, 600]]), np.array([[3, 7], [2, 11]])
    assert np.allclose(gram.covariances(weights, rows, columns), H[rows, columns])
    assert np.allclose(gram.variances(weights), np.diag(H))


def test_the_order_of_points_does_not_matter():
    kernel, (points, strengths) = KERNELS["matern"], draw(2)
    mix = np.random.RandomState(0).permutation(len(points))
    values = HierarchicalGram(kernel, points, ORDERS[2]).multiply(strengths)
    mixed = HierarchicalGram(kernel, points[mix], ORDERS[2]).multiply(strengths[:, mix])
    assert np.allclose(
        mixed, values[:, mix], rtol=1e-10, atol=1e-10 * abs(values).max()
    )


def test_errors_are_known():
    """A kernel with peaks far from zero is no polynomial there."""
    points, _ = draw(2)
    kernel = Periodic(0.2, periodicity=0.5)
    assert HierarchicalGram(kernel, points, ORDERS[2]).error() > 1e-4

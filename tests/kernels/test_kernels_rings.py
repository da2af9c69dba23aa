"""Kernels on rings: circles in the plane, and lines where the period is infinite."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from keql.kernels import RBF, Matern

KERNELS = [RBF(0.7), Matern(0.7, nu=2.5), Matern(0.7, nu=4.8)]
X = np.random.RandomState(0).uniform(-1, 2, size=(7, 2))
Y = np.vstack([X[:2], np.random.RandomState(1).uniform(-1, 2, size=(4, 2))])


def on(kernel, period, **parameters):
    return clone(kernel).set_params(period=period, **parameters)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_ring_is_a_circle_in_the_plane(kernel):
    p = 2.5

    def embedded(points):
        angle = 2 * np.pi * points[:, 1] / p
        circle = p / (2 * np.pi) * np.column_stack([np.cos(angle), np.sin(angle)])
        return np.column_stack([points[:, 0] / 3, circle])

    expected = kernel(embedded(X), embedded(Y))
    ring = on(kernel, (np.inf, p), length_scale=(2.1, 0.7))
    assert_allclose(ring(X, Y), expected, rtol=1e-12)
    assert_allclose(ring(X + [0, p], Y), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("period", [(np.inf, np.inf), (1e5, np.inf)])
def test_a_line_is_a_long_ring(kernel, period):
    a, b = (2, 0), (1, 1)
    for pair in [((0, 0), (0, 0)), (a, (0, 0)), ((1, 0), b)]:
        ring = on(kernel, period).derivative(X, Y, *pair)
        assert_allclose(ring, kernel.derivative(X, Y, *pair), atol=1e-7)
    K, gradient = on(kernel, period)(X, eval_gradient=True)
    expected = kernel(X, eval_gradient=True)
    assert_allclose(K, expected[0], atol=1e-9)
    assert_allclose(gradient, expected[1], atol=1e-8)


@pytest.mark.parametrize("kernel", [RBF((0.7, 0.4)), Matern((0.7, 0.4), nu=4.8)])
def test_derivatives_on_a_ring_are_limits_of_differences(kernel):
    ring, step = on(kernel, (1.9, np.inf)), 1e-5
    for a, b in [
        ((0, 0), (0, 0)),
        ((1, 0), (0, 1)),
        ((3, 0), (2, 1)),
        ((2, 1), (3, 0)),
    ]:
        for i in range(2):
            e = step * np.eye(2)[i]
            after, before = (ring.derivative(X + s * e, Y, a, b) for s in (1, -1))
            higher = ring.derivative(X, Y, tuple(np.add(a, np.eye(2, dtype=int)[i])), b)
            scale = np.max(np.abs(higher))
            quotient = (after - before) / (2 * step)
            assert_allclose(higher / scale, quotient / scale, atol=1e-5)


def test_the_gradient_on_a_ring_is_the_limit_of_differences():
    ring = on(Matern((0.7, 0.4), nu=2.5), (1.9, np.inf))
    _, gradient = ring(X, eval_gradient=True)
    for k, change in enumerate(1e-6 * np.eye(2)):
        after, before = (
            ring.clone_with_theta(ring.theta + s * change)(X) for s in (1, -1)
        )
        assert_allclose(gradient[:, :, k], (after - before) / 2e-6, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_on_a_ring_is_positive_definite(kernel):
    points = np.linspace(0, 1, 40, endpoint=False)[:, None]
    for length in (0.05, 0.3, 3.0):
        K = on(kernel, 1.0, length_scale=length)(points)
        assert np.linalg.eigvalsh(K)[0] > -1e-12


def test_a_period_has_to_be_positive():
    with pytest.raises(ValueError, match="period must be positive"):
        RBF(1.0, period=(1.0, -1.0))(X)

"""Sparse inverse Cholesky factors: exact if full, nearly so if not."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from keql._numerics.sparse_cholesky import (
    InverseFactor,
    coarse_to_fine,
    conjugate_gradients,
    last_column,
    nearest_before,
)


def draw(n, d=2):
    return np.random.RandomState(n).uniform(size=(n, d))


def factor_of(A, points, m):
    order = coarse_to_fine(points)
    nearest, columns = nearest_before(points[order], m), np.zeros((len(A), m + 1))
    for i, row in enumerate(nearest):
        own = order[np.append(row[row >= 0], i)]
        columns[i, m + 1 - len(own) :] = last_column(A[np.ix_(own, own)])
    return InverseFactor(order, nearest, columns)


def covariance(points):
    """That of an exponential kernel, of a process that is rough."""
    return np.exp(-cdist(points, points) / 0.5)


def test_coarse_to_fine_covers_the_domain_at_any_time():
    points = draw(2000)
    order = coarse_to_fine(points)
    assert np.array_equal(np.sort(order), np.arange(2000))
    for n in (20, 80, 320, 1280):
        holes = cdist(points, points[order[:n]]).min(axis=1).max()
        assert holes < 2.0 / np.sqrt(n)


def test_coarse_to_fine_depends_on_the_points_alone():
    points = draw(500)
    mix = np.random.RandomState(1).permutation(500)
    assert np.array_equal(
        points[coarse_to_fine(points)], points[mix][coarse_to_fine(points[mix])]
    )


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((1, 2)),
        np.zeros((5, 1)),
        np.repeat(draw(40), 2, axis=0),
        np.array([[0.0], [1e-30], [1.0]]),
    ],
    ids=["one", "equal", "twice", "close"],
)
def test_coarse_to_fine_of_points_that_coincide(points):
    assert np.array_equal(np.sort(coarse_to_fine(points)), np.arange(len(points)))


def test_nearest_before_are_the_nearest():
    points = draw(700)
    nearest = nearest_before(points, 12)
    away = cdist(points, points)
    short = 0
    for i in range(700):
        found = nearest[i][nearest[i] >= 0]
        assert np.all(found < i)
        short += len(found) < min(i, 12)
        expected = np.sort(away[i, :i])[: len(found)]
        assert np.allclose(np.sort(away[i, found]), expected)
    assert short < 20  # Searched are few more than wanted.


def test_a_full_factor_is_exact():
    points = draw(60)
    A, b = covariance(points), np.sin(np.arange(60.0))
    factor = factor_of(A, points, 60)
    assert np.allclose(factor.solve(b), np.linalg.solve(A, b))
    assert np.isclose(factor.half_log_determinant, 0.5 * np.linalg.slogdet(A)[1])


def test_a_sparse_factor_nears_the_inverse():
    """The divergence falls with the number of neighbours, and is never negative."""
    points = draw(800)
    A = covariance(points)
    exact = 0.5 * np.linalg.slogdet(A)[1]
    excess = [factor_of(A, points, m).half_log_determinant - exact for m in (3, 10, 30)]
    assert excess[0] > 5 * excess[1] > 25 * excess[2] > 0


def test_conjugate_gradients():
    points, b = draw(800), np.sin(np.arange(800.0))
    A = covariance(points)
    factor = factor_of(A, points, 15)

    def is_small(r):
        return np.linalg.norm(r) < 1e-10 * np.linalg.norm(b)

    x, r, n_iter = conjugate_gradients(
        lambda p: A @ p, factor.solve, b, np.zeros(800), is_small, 50
    )
    assert np.allclose(x, np.linalg.solve(A, b), rtol=1e-6, atol=1e-8)
    assert np.allclose(r, b - A @ x, atol=1e-9)
    assert n_iter < 20
    plain = conjugate_gradients(
        lambda p: A @ p, lambda r: r, b, np.zeros(800), is_small, 50
    )
    assert plain[2] == 50
    again = conjugate_gradients(lambda p: A @ p, factor.solve, b, x, is_small, 50)
    assert again[2] <= 1

"""Cholesky factors with jitter, triangular solves, and ridge regression."""

import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge

from keql._numerics.linalg import (
    cholesky,
    cholesky_in_place,
    extrapolated,
    inverse_from_cholesky,
    inverse_lower,
    pivoted_cholesky,
    pivoted_cholesky_of_columns,
    ridge,
    solve_cholesky,
    solve_lower,
    solve_lower_of_each,
    triangle,
)

RNG = np.random.RandomState(0)
FEATURES = RNG.normal(size=(9, 9))
A = FEATURES @ FEATURES.T + np.eye(9)
B = RNG.normal(size=(9, 3))


def test_cholesky_of_a_well_conditioned_matrix():
    before = A.copy()
    L = cholesky(A)
    assert_allclose(L, np.linalg.cholesky(A), rtol=1e-13, atol=1e-13)
    assert_array_equal(np.triu(L, 1), 0)
    assert_array_equal(A, before)
    # Only the lower triangle is read, in either order of storage.
    for lower in (np.tril(A), np.asfortranarray(np.tril(A))):
        assert_array_equal(cholesky(lower), L)


def rank_deficient():
    """A semidefinite matrix of rank 3 and size 8, which LAPACK does not factor."""
    thin = np.random.RandomState(1).normal(size=(8, 3))
    matrix = thin @ thin.T
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(matrix - 1e-14 * np.eye(8))
    return matrix - 1e-14 * np.eye(8)


def test_jitter_is_small_and_relative():
    matrix = rank_deficient()
    mean = np.trace(matrix) / 8
    L = cholesky(matrix)
    assert_allclose(L @ L.T, matrix, atol=1e-12 * mean)
    # Powers of two are exact; powers of ten are not quite.
    for factor, tolerance in [(2.0**-40, 0), (2.0**40, 0), (1e-12, 1e-3), (1e12, 1e-3)]:
        scaled = cholesky(factor * matrix) / factor**0.5
        assert_allclose(scaled, L, rtol=0, atol=tolerance * mean**0.5)


def test_no_more_jitter_than_needed():
    # An eigenvalue of -delta is healed by 10 delta, and not by delta / 10.
    Q = np.linalg.qr(FEATURES)[0]
    for delta in 10.0 ** np.arange(-14, -9):
        spectrum = np.r_[np.linspace(1, 2, 8), -delta]
        matrix = (Q * spectrum) @ Q.T
        L = cholesky((matrix + matrix.T) / 2)
        added = np.mean(np.diag(L @ L.T - matrix)) / np.mean(spectrum)
        assert 0.5 * delta < added < 20 * delta


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_indefinite_matrix(scale):
    indefinite = scale * np.diag([1.0, 1.0, -1e-6])
    with pytest.raises(np.linalg.LinAlgError, match="size 3") as error:
        cholesky(indefinite)
    assert "raise the noise level" in str(error.value)
    assert "length scales" in str(error.value)


@pytest.mark.parametrize("entry", [(0, 0), (4, 1), (8, 8)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_not_finite(entry, value):
    matrix = A.copy()
    matrix[entry] = value
    with pytest.raises(np.linalg.LinAlgError, match="size 9.* not finite.* scales"):
        cholesky(matrix)


def test_solves():
    L = cholesky(A)
    for right in (B, B[:, 0]):
        assert_allclose(solve_lower(L, right), np.linalg.solve(L, right), rtol=1e-10)
        transposed = solve_lower(L, right, transposed=True)
        assert_allclose(transposed, np.linalg.solve(L.T, right), rtol=1e-10)
        assert_allclose(solve_cholesky(L, right), np.linalg.solve(A, right), rtol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_triangle_of_a_larger_matrix(order):
    """A part of an array is in neither order, and solved with as it stands."""
    wide = np.full((14, 14), np.nan, order=order)
    wide[2:11, 3:12] = L = cholesky(A)
    part = wide[2:11, 3:12]
    assert_allclose(solve_lower(part, B), np.linalg.solve(L, B), rtol=1e-10)
    transposed = solve_lower(part, B, transposed=True)
    assert_allclose(transposed, np.linalg.solve(L.T, B), rtol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block", [4, 9])
def test_above_the_diagonal_may_be_anything(block, order):
    given = np.array(A, order=order)
    given[np.triu_indices(9, 1)] = np.nan
    found = cholesky_in_place(given, block, clean=False)
    assert_allclose(np.tril(found), np.linalg.cholesky(A), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("n", [1, 9, 64, 65, 150])
@pytest.mark.parametrize("order", ["C", "F"])
def test_inverse_of_a_triangle(n, order):
    """By halves or not; zeros above the diagonal stay zeros."""
    L = np.tril(np.random.RandomState(n).normal(size=(n, n)) / n + 2 * np.eye(n))
    inverse = inverse_lower(np.asarray(L, order=order))
    assert_allclose(inverse @ L, np.eye(n), atol=1e-14)
    assert not np.any(np.triu(inverse, 1))


def test_inverse():
    L = cholesky(A)
    before = L.copy()
    inverse = inverse_from_cholesky(L)
    assert_allclose(inverse, np.linalg.inv(A), rtol=1e-10, atol=1e-12)
    assert_array_equal(inverse, inverse.T)
    assert_array_equal(L, before)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("block", [1, 4, 9, 20])
def test_blocks_change_nothing(block, order):
    L = np.linalg.cholesky(A)
    given = A.copy(order=order)
    found = cholesky_in_place(given, block)
    assert found is given
    assert_allclose(found, L, rtol=1e-12, atol=1e-13)
    assert_array_equal(np.triu(found, 1), 0)
    inverse = inverse_from_cholesky(L, block)
    assert_allclose(inverse, np.linalg.inv(A), rtol=1e-10, atol=1e-12)
    assert_array_equal(inverse, inverse.T)
    for wrong in (-1.0, np.nan):
        broken = A.copy(order=order)
        broken[5, 5] = wrong
        assert cholesky_in_place(broken, block) is None


def test_long_steps_let_other_threads_run():
    """LAPACK lets none in before it returns, which takes seconds with many rows."""
    n, turns, over = 1500, [], threading.Event()
    matrix = np.full((n, n), 0.5) + 0.5 * np.eye(n)

    def watch():
        while not over.wait(0.001):
            turns.append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    L = cholesky_in_place(matrix, block=150)
    n_turns = len(turns)
    inverse_from_cholesky(L, block=150)
    over.set()
    thread.join()
    assert n_turns > 3 and len(turns) > n_turns + 3


@pytest.mark.parametrize("shape", [(9, 4), (4, 9), (5, 5), (0, 3), (3, 0), (90, 70)])
def test_triangle_of_a_factorisation(shape):
    rows = np.random.RandomState(0).normal(size=shape)
    R = triangle(rows)
    assert R.shape == (min(shape), shape[1])
    assert_array_equal(R, np.triu(R))
    assert_allclose(R.T @ R, rows.T @ rows, rtol=1e-12, atol=1e-13)


def test_a_triangle_with_a_zero_row_is_refused():
    L = np.diag([1.0, 0.0, 2.0])
    with pytest.raises(np.linalg.LinAlgError, match="row 1"):
        solve_lower(L, np.ones(3))


@pytest.mark.parametrize("transposed", [False, True])
def test_right_hand_sides_two_by_two(transposed):
    L = cholesky(A)
    found = solve_lower(L, B, transposed, most=2 * 9**2)
    assert_allclose(found, solve_lower(L, B, transposed), rtol=1e-12)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(7, 4), (7, 4, 3), (7, 1), (0, 2, 3)])
def test_triangular_systems_all_at_once(shape, transposed):
    rng = np.random.RandomState(0)
    factors = np.tril(rng.uniform(1, 2, size=(*shape[:2], shape[1])))
    right = rng.normal(size=shape)
    found = solve_lower_of_each(factors, right, transposed)
    for L, own, x in zip(factors, right, found, strict=True):
        assert_allclose((L.T if transposed else L) @ x, own, rtol=1e-12, atol=1e-12)


# --- ridge regression ---------------------------------------------------------------

SHAPES = [(12, 4), (4, 12), (6, 6), (1, 3), (3, 1)]


def problem(shape):
    """Features and data."""
    rng = np.random.RandomState(sum(shape))
    return rng.normal(size=shape), rng.normal(size=shape[0])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [1e-2, 1.0, 30.0])
def test_ridge(shape, noise):
    features, b = problem(shape)
    w = ridge(features, b, noise)
    n, p = shape
    primal = np.linalg.solve(
        features.T @ features + noise**2 * np.eye(p), features.T @ b
    )
    dual = features.T @ np.linalg.solve(features @ features.T + noise**2 * np.eye(n), b)
    assert_allclose(w, primal, rtol=1e-8, atol=1e-10)
    assert_allclose(w, dual, rtol=1e-8, atol=1e-10)
    other = Ridge(alpha=noise**2, fit_intercept=False).fit(features, b)
    assert_allclose(w, other.coef_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", [0.0, 1e-12])
def test_ridge_without_noise_has_the_least_norm(shape, noise):
    features, b = problem(shape)
    w = ridge(features, b, noise)
    assert_allclose(w, np.linalg.pinv(features) @ b, rtol=1e-9, atol=1e-11)


def test_ridge_without_noise_and_rank():
    features, b = problem((10, 3))
    features = np.column_stack([features, features[:, 0] + features[:, 1]])
    expected = np.linalg.pinv(features, rcond=1e-10) @ b
    assert_allclose(ridge(features, b, 0.0), expected, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_ridge_has_no_units(unit):
    features, b = problem((12, 4))
    expected = ridge(features, b, 0.3)
    assert_allclose(ridge(unit * features, b, unit * 0.3), expected / unit, rtol=1e-12)
    assert_allclose(ridge(features, unit * b, 0.3), unit * expected, rtol=1e-12)


def test_ridge_does_not_square_the_condition_number():
    # Singular values 1 and 1e-9: the normal equations would lose the small one.
    features = np.array([[1.0, 1.0], [1e-9, -1e-9], [0.0, 0.0]]) / 2**0.5
    b = np.array([1.0, 1e-9, 5.0])
    noise = 1e-9
    # In the rotated coordinates (1, 1) and (1, -1) the problem is diagonal.
    along = 1 / (1 + noise**2)
    across = 1e-18 / (1e-18 + noise**2)
    expected = np.array([along + across, along - across]) / 2**0.5
    assert_allclose(ridge(features, b, noise), expected, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 60, 200])
def test_pivoted_cholesky_needs_the_columns_of_the_pivots_only(n):
    t = np.linspace(0, 1, n)
    A = (1 + 99 * (t > 0.5)) * np.exp(-((t[:, None] - t) ** 2) / 0.02)
    A *= (1 + 99 * (t > 0.5))[:, None]
    asked = []

    def column(i):
        asked.append(i)
        return A[:, i].copy()

    rows, pivots = pivoted_cholesky_of_columns(np.diag(A).copy(), column)
    assert asked == list(pivots)
    assert len(pivots) < 50
    scale = np.sqrt(np.diag(A))
    assert np.all(abs(rows @ rows.T - A) < 1e-13 * np.outer(scale, scale))
    assert np.array_equal(rows[pivots], np.tril(rows[pivots]))
    if n > 1:
        assert abs(len(pivots) - len(pivoted_cholesky(A)[1])) <= 1
        most = len(pivots) - 1
        assert pivoted_cholesky_of_columns(np.diag(A), column, most=most) is None
        assert len(pivoted_cholesky_of_columns(np.diag(A), column, most=most + 1)) == 2


def test_pivoted_cholesky_of_columns_refuses_what_is_not_finite():
    with pytest.raises(np.linalg.LinAlgError, match="not finite"):
        pivoted_cholesky_of_columns(np.ones(3), lambda i: np.full(3, np.nan))


def test_steps_of_a_linear_iteration_lead_to_its_fixed_point():
    """With equal factors of all errors they are there; they never go back."""
    limit, errors = np.array([1.0, -2.0]), np.array([0.3, 5.0])
    points = [limit + 0.9**k * errors for k in range(3)]
    assert_allclose(extrapolated(*points), limit, rtol=1e-12)
    assert_allclose(
        extrapolated(*points, longest=2.0), limit + (1 - 0.1 * 2) ** 2 * errors
    )
    points = [limit + (-0.5) ** k * errors for k in range(3)]
    assert_allclose(extrapolated(*points), points[2])

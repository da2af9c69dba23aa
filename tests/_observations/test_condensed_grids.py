"""Fields on grids as few values: what these say is what all values say."""

import numpy as np
import pytest

from keql import OneStepKEqL
from keql._observations.condensed import condense
from keql._observations.data import FunctionData, Observations
from keql._observations.windows import CondensingLimits
from keql.operators import identity_of


def seen_at(points, values, weights=None, index=None):
    """Observations of one function of two or more coordinates."""
    weights = np.ones(len(points)) if weights is None else weights
    index = np.zeros(len(points), dtype=int) if index is None else index
    names = "uvw"[: index.max() + 1]
    operators = [identity_of(name, points.shape[1]) for name in names]
    data = FunctionData(points, values, weights, index, operators)
    return Observations((None,), [data], tuple(names))


def grid(*shape):
    """Points of a grid in the unit cube, the last coordinate running first."""
    axes = np.meshgrid(*[np.linspace(0, 1, n) for n in shape], indexing="ij")
    return np.column_stack([axis.ravel() for axis in axes])


def wave(points):
    return np.sin(points @ np.arange(2, 2 + points.shape[1]))


def condensed(*given):
    return condense(seen_at(*given)).functions[0]


def noise_of(points, size=0.05, seed=0):
    return size * np.random.default_rng(seed).standard_normal(len(points))


@pytest.mark.parametrize("shape", [(60, 80), (30, 400), (20, 25, 30)])
def test_values_say_of_polynomials_what_all_values_say(shape):
    points = grid(*shape)
    values = wave(points) + noise_of(points)
    few = condensed(points, values)
    assert len(few.values) < len(values) / 3
    for degree in (1, 3, 7):
        right = []
        for x, y, w in (
            (points, values, np.ones(len(values))),
            (few.points, few.values, few.weights),
        ):
            legendre = np.polynomial.legendre.legvander(2 * x - 1, degree)
            columns = np.prod(legendre[..., degree // 2 :], axis=1)
            right.append([columns.T @ (w * y), columns.T @ w])
        np.testing.assert_allclose(*right, rtol=0, atol=1e-9 * len(values))


def test_errors_are_as_large_as_weights_say_and_independent():
    points = grid(100, 256)
    few = condensed(points, wave(points) + noise_of(points))
    errors = (few.values - wave(few.points)) * np.sqrt(few.weights) / 0.05
    assert 0.8 < np.mean(errors**2) < 1.2
    assert abs(np.mean(errors[1:] * errors[:-1])) < 0.2
    assert abs(few.weights.sum() - len(points)) < 1e-6 * len(points)


def test_windows_are_as_short_along_each_axis_as_a_field_needs():
    points = grid(100, 256)
    values = np.sin(2 * points[:, 0]) * np.sin(60 * points[:, 1])
    few = condensed(points, values + noise_of(points, 0.01))
    n_times, n_places = (len(np.unique(column)) for column in few.points.T)
    assert n_times <= 18 and n_places > 50
    truth = np.sin(2 * few.points[:, 0]) * np.sin(60 * few.points[:, 1])
    errors = (few.values - truth) * np.sqrt(few.weights) / 0.01
    assert np.mean(errors**2) < 1.3


def test_the_box_and_the_order_of_rows_stay():
    points = grid(40, 50)
    values = wave(points) + noise_of(points)
    few = condensed(points, values)
    np.testing.assert_array_equal(few.points.min(axis=0), [0, 0])
    np.testing.assert_array_equal(few.points.max(axis=0), [1, 1])
    order = np.random.default_rng(1).permutation(len(values))
    again = condensed(points[order], values[order])
    np.testing.assert_allclose(again.values, few.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "kind", ["exact", "some missing", "weights", "scattered", "rough"]
)
def test_others_are_taken_as_they_are(kind):
    points, weights = grid(60, 80), None
    values = wave(points) + noise_of(points)
    if kind == "exact":
        values = wave(points)
    elif kind == "some missing":
        points, values = points[1:], values[1:]
    elif kind == "weights":
        weights = 1 + points[:, 0]
    elif kind == "scattered":
        points = np.random.default_rng(0).uniform(size=points.shape)
    elif kind == "rough":
        fronts = np.sign(np.sin(9 * points[:, 0] + 5 * points[:, 1]))
        values = fronts + noise_of(points, 0.01)
    given = seen_at(points, values, weights)
    few = condense(given)
    limits = CondensingLimits()
    n = limits.sizes[0] if kind == "exact" else limits.of_fields
    [own] = few.functions
    assert len(own.values) == n and not few.is_condensed
    # Rows that were taken are rows that were given.
    table = {(*row, value) for row, value in zip(points, values, strict=True)}
    assert {(*r, v) for r, v in zip(own.points, own.values, strict=True)} <= table


def test_each_operator_is_condensed_by_itself():
    points = grid(50, 60)
    n, few_points = len(points), points[:40]
    values = np.r_[wave(points) + noise_of(points), wave(few_points)]
    index = np.repeat([0, 1], [n, 40])
    own = condensed(np.vstack([points, few_points]), values, None, index)
    assert np.bincount(own.index)[1] == 40 and np.bincount(own.index)[0] < n / 2
    np.testing.assert_array_equal(own.values[own.index == 1], wave(few_points))


def test_weights_of_all_values_are_those_of_repetitions():
    points = grid(50, 60)
    values = wave(points) + noise_of(points)
    once, twice = (condensed(points, values, w * np.ones(3000)) for w in (1.0, 4.0))
    np.testing.assert_allclose(twice.weights, 4 * once.weights)
    np.testing.assert_allclose(twice.values, once.values, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n, n_taken", [(1500, 1500), (9000, 2000)])
def test_of_very_many_scattered_values_some_are_drawn(n, n_taken):
    points = np.random.default_rng(0).uniform(size=(n, 2))
    points, index = np.vstack([points, points[:50]]), np.repeat([0, 1], [n, 50])
    given = seen_at(points, points[:, 0] + index, 1 + points[:, 1], index)
    few = condense(given)
    assert few is given if n == n_taken else few.n_samples == n + 50
    [own] = few.functions
    assert np.bincount(own.index).tolist() == [n_taken, 50]
    np.testing.assert_array_equal(own.values, own.points[:, 0] + own.index)
    np.testing.assert_array_equal(own.weights, 1 + own.points[:, 1])
    again = condense(given).functions[0]
    np.testing.assert_array_equal(again.points, own.points)


def test_an_equation_is_learned_from_all_values_of_a_grid():
    """Two decaying waves seen at 14,000 points with noise of 10 %."""
    t, x = 2 * grid(70, 200).T
    points = np.column_stack([t, np.pi * x])
    truth = np.exp(-0.5 * t) * np.sin(np.pi * x)
    truth = truth + 0.7 * np.exp(-2 * t) * np.cos(2 * np.pi * x)
    noise = 0.1 * truth.std()
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    model.fit(points, truth + noise_of(points, noise))
    assert "14000 observations condensed to" in str(model.fit_report_)
    assert model.equation_.terms() == {"u_xx": pytest.approx(0.5, rel=1e-2)}
    error = np.sqrt(np.mean((model.predict(points) - truth) ** 2))
    assert error < 0.08 * noise  # 0.15 from 2,000 of the values

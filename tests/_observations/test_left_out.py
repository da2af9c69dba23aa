"""Errors of predictions of observations that are left out."""

from dataclasses import replace

import numpy as np

from keql._observations.data import (
    FunctionData,
    Observations,
    PredictionScale,
    left_out_errors,
    on_border,
)
from keql.operators import identity_of


class Model:
    """Stands in for a linear model."""

    def __init__(self, *errors):
        self.errors = errors

    def leave_one_out(self):
        return self.errors


def observed(points, weight=1.0):
    """One function, whose state has the value zero at the points."""
    n, d = points.shape
    of_state = np.zeros(n, dtype=int), [identity_of("u", d)]
    data = FunctionData(points, np.zeros(n), np.full(n, weight), *of_state)
    return Observations((None,), [data])


def test_errors_on_the_border_do_not_count():
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(4.0)), -1).reshape(-1, 2)
    inside = np.all((grid > 0) & (grid < [4, 3]), axis=1)
    errors = np.where(inside, 2.0, 100.0)
    assert inside.sum() == 6
    model = Model(errors)
    np.testing.assert_array_equal(left_out_errors(model, observed(grid)), 2.0)
    # where all are on the border, all count
    rim = grid[~inside]
    model = Model(np.full(len(rim), 3.0))
    np.testing.assert_array_equal(left_out_errors(model, observed(rim)), 3.0)


def test_errors_of_precise_values_count_more():
    points, weights = np.arange(8.0)[:, None], np.r_[np.full(4, 4.0), np.ones(4)]
    given = observed(points, weights)
    left_out = left_out_errors(Model(np.ones(8)), given)
    np.testing.assert_allclose(left_out**2, weights[1:-1] / 2.5)


def test_a_factor_of_all_weights_does_not_count():
    points, values = np.arange(8.0)[:, None], np.arange(8.0)
    for weight in (1.0, 100.0):
        given = observed(points, weight)
        left_out = left_out_errors(Model(np.ones(8)), given)
        np.testing.assert_allclose(left_out, 1.0)
        scale = PredictionScale(given)
        # values of weight 100 have a tenth of the noise of those of weight 1
        np.testing.assert_allclose(scale.noise([1.0]), weight**-0.5)
    data = replace(given.functions[0], values=values)
    spread = PredictionScale(replace(given, functions=[data])).spread
    np.testing.assert_allclose(spread, np.std(values))


def test_errors_of_several_operators_have_no_unit():
    points, size = np.arange(8.0)[:, None], np.array([3.0, 5.0])
    index = np.repeat([0, 1], 4)
    operators = [identity_of("u", 1), identity_of("v", 1)]
    data = FunctionData(points, size[index], np.ones(8), index, operators)
    everything = Observations((None,), [data], ("u", "v"))
    left_out = left_out_errors(Model(size[index]), everything)
    np.testing.assert_allclose(left_out, 1.0)


def test_few_errors_inside_are_not_enough():
    points = np.arange(6.0)[:, None]  # four lie inside
    errors = np.arange(6.0)
    left_out = left_out_errors(Model(errors), observed(points))
    np.testing.assert_array_equal(left_out, errors)


def test_a_coordinate_without_extent_has_no_border():
    points = np.column_stack([np.arange(4.0), np.ones(4)])
    np.testing.assert_array_equal(
        on_border(points, [0] * 4), [True, False, False, True]
    )
    assert not on_border(points, range(4)).any()

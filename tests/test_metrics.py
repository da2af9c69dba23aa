"""The errors, on cases whose value is known in closed form."""

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.dummy import DummyRegressor
from sklearn.model_selection import GridSearchCV

from keql.metrics import (
    equation_error,
    fill_distance,
    filtering_error,
    filtering_scorer,
    make_equation_scorer,
    operator_error,
    relative_l2_error,
)


def double(features):
    return 2.0 * np.asarray(features)[:, -1]


class Offset(RegressorMixin, BaseEstimator):
    """Predicts the first column plus an offset; its equation is `slope` times s."""

    def __init__(self, offset=0.0, function_column=None):
        self.offset = offset
        self.function_column = function_column

    def fit(self, X, y):
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        self.equation_ = SimpleNamespace(
            unknown_part=lambda S: (2.0 + self.offset) * S[:, -1]
        )
        return self

    def predict(self, X):
        return np.asarray(X, dtype=float)[:, 0] + self.offset


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1.0, 1e6])
def test_relative_error_has_no_units(scale):
    true, predicted = np.array([3.0, 4.0]), np.array([3.0, 2.5])
    error = relative_l2_error(scale * true, scale * predicted)
    assert error == pytest.approx(1.5 / 5.0, rel=1e-12)


def test_relative_error_is_not_squared_and_zero_for_the_truth():
    y = np.random.default_rng(0).standard_normal(50)
    assert relative_l2_error(y, y) == 0.0
    assert relative_l2_error(y, np.zeros(50)) == 1.0
    assert relative_l2_error(y, 1.25 * y) == pytest.approx(0.25)


@pytest.mark.parametrize("labels", [[0, 1, 0, 1], ["b", "a", "b", "a"]])
def test_relative_error_is_averaged_over_functions(labels):
    true = np.array([1.0, 100.0, 1.0, 100.0])
    predicted = np.array([2.0, 100.0, 2.0, 150.0])
    expected = (1.0 + 50 / np.hypot(100, 100)) / 2
    error = relative_l2_error(true, predicted, functions=labels)
    assert error == pytest.approx(expected)
    assert relative_l2_error(true, predicted) != pytest.approx(expected)


def test_relative_error_takes_columns_without_broadcasting():
    assert relative_l2_error([[3.0], [4.0]], [3.0, 3.0]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("true", "predicted", "functions", "message"),
    [
        ([0.0, 0.0], [1.0, 1.0], None, "y_true is zero"),
        ([1.0, 0.0], [1.0, 1.0], ["a", "b"], "y_true of function 'b' is zero"),
        ([1.0, 2.0], [1.0, 1.0, 1.0], None, "inconsistent numbers of samples"),
        ([1.0, 2.0], [1.0, 1.0], [0], "inconsistent numbers of samples"),
        ([1.0, np.nan], [1.0, 1.0], None, "y_true contains NaN"),
        ([1.0, 2.0], [1.0, np.inf], None, "y_pred contains infinity"),
    ],
)
def test_relative_error_refuses(true, predicted, functions, message):
    with pytest.raises(ValueError, match=message):
        relative_l2_error(true, predicted, functions=functions)


X = np.array([[1.0, 0.0], [2.0, 0.0], [10.0, 1.0], [20.0, 1.0]])
Y = X[:, 0]
# Both functions are off by 1: sqrt(2) over the norm of each.
AVERAGED = (np.sqrt(2) / np.sqrt(5) + np.sqrt(2) / np.sqrt(500)) / 2


@pytest.mark.parametrize("column", [1, -1, "label"])
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_filtering_error_of_frames(frame, column):
    data = frame({"x": X[:, 0], "label": ["a", "a", "b", "b"]})
    data_numeric = frame({"x": X[:, 0], "label": X[:, 1]})
    model = Offset(1.0, function_column=column)
    assert filtering_error(model, data_numeric, Y) == pytest.approx(AVERAGED)

    class First(Offset):
        def predict(self, X):
            return np.asarray(X["x"], dtype=float) + self.offset

    model = First(1.0, function_column=column)
    assert filtering_error(model, data, Y) == pytest.approx(AVERAGED)


@pytest.mark.parametrize("column", [1, -1])
def test_filtering_error_of_arrays(column):
    model = Offset(1.0, function_column=column)
    assert filtering_error(model, X, Y) == pytest.approx(AVERAGED)
    assert filtering_error(model, X.tolist(), Y) == pytest.approx(AVERAGED)
    assert filtering_scorer(model, X, Y) == pytest.approx(-AVERAGED)


def test_filtering_error_of_one_function():
    assert filtering_error(Offset(1.0), X, Y) == pytest.approx(2 / np.sqrt(505))
    assert filtering_error(Offset(0.0), X, Y) == 0.0


def test_filtering_error_of_a_name_and_an_array():
    frame = pd.DataFrame({"x": X[:, 0], "label": X[:, 1]})
    model = Offset(1.0, function_column="label")
    with pytest.raises(ValueError, match="function_column='label'"):
        filtering_error(model, X, Y)
    error = filtering_error(model.fit(frame, Y), X, Y)
    assert error == pytest.approx(AVERAGED)


def test_scorers_in_a_search():
    scoring = {
        "state": filtering_scorer,
        "equation": make_equation_scorer(np.ones((3, 1)), double),
    }
    grid = {"offset": [1.0, 0.5, 2.0]}
    search = GridSearchCV(Offset(), grid, scoring=scoring, refit="state", cv=2)
    search.fit(X, Y)
    assert search.best_params_ == {"offset": 0.5}
    errors = search.cv_results_["mean_test_equation"]
    assert errors == pytest.approx([-0.5, -0.25, -1.0])
    # A search stands for the estimator it has found.
    search.best_estimator_.function_column = 1
    assert filtering_error(search, X, Y) == pytest.approx(AVERAGED / 2)
    assert scoring["equation"](search, X) == pytest.approx(-0.25)


def test_equation_error():
    equation = SimpleNamespace(unknown_part=lambda S: 3.0 * S[:, -1])
    one, two = np.array([[1.0], [2.0]]), np.array([[0.0, 5.0]])
    assert equation_error(equation, one, double) == pytest.approx(0.5)
    assert equation_error(equation, one, [2.0, 4.0]) == pytest.approx(0.5)
    assert equation_error(equation, [one], [[2.0, 4.0]]) == pytest.approx(0.5)
    # 0.5 for the first function, 2 for the second: their mean, not that of the rows.
    values = [double(one), np.array([5.0])]
    assert equation_error(equation, [one, two], values) == pytest.approx(1.25)
    stacked = np.stack([one, one])
    assert equation_error(equation, stacked, double) == pytest.approx(0.5)


def test_equation_error_refuses():
    equation = SimpleNamespace(unknown_part=double)
    S = np.ones((2, 1))
    with pytest.raises(ValueError, match="unknown_part is zero"):
        equation_error(equation, S, lambda S: 0.0 * S[:, 0])
    with pytest.raises(ValueError, match="3 functions and features are of 2"):
        equation_error(equation, [S, S], [np.ones(2)] * 3)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        equation_error(equation, S, np.ones(3))


def test_equation_scorer_is_picklable():
    scorer = pickle.loads(pickle.dumps(make_equation_scorer(np.ones((3, 1)), double)))
    assert scorer(Offset(1.0).fit(X, Y), X, Y) == pytest.approx(-0.5)


def test_operator_error_fits_a_clone():
    solver = DummyRegressor()
    conditions, values = np.zeros((2, 1)), np.array([1.0, 3.0])
    points, truth = np.zeros((3, 1)), np.array([4.0, 4.0, 4.0])
    assert operator_error(solver, conditions, values, points, truth) == 0.5
    assert not hasattr(solver, "constant_")
    # The second problem has the prediction 4 and so no error.
    error = operator_error(
        solver, [conditions] * 2, [values, [4.0, 4.0]], [points] * 2, [truth] * 2
    )
    assert error == 0.25
    with pytest.raises(ValueError, match="of 2, 1, 2, 2 problems"):
        operator_error(solver, [conditions] * 2, [values], [points] * 2, [truth] * 2)


def test_fill_distance():
    axis = np.linspace(0.0, 1.0, 5)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert fill_distance(grid, grid) == 0.0
    assert fill_distance(corners, grid) == pytest.approx(np.sqrt(0.5))
    # Not symmetric: the domain may be a part of what the points fill.
    assert fill_distance(grid, corners) == 0.0
    with pytest.raises(ValueError, match="points have 2 coordinates and domain has 1"):
        fill_distance(grid, grid[:, :1])

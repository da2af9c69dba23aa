"""Columns of data frames that are found by their names, in any order."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from keql import IdentifiabilityWarning, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql.kernels import RBF, Polynomial
from keql.operators import parse_operator
from keql.plotting._common import rows_for, split_rows

WALK = pd.DataFrame(np.random.RandomState(2).uniform(size=(30, 2)), columns=["t", "x"])


LABELS = [parse_operator(name, ("t", "x"), ("a", "b")) for name in ("a", "b")]


@pytest.mark.parametrize("method", [TwoStepKEqL, OneStepKEqL, ReducedOneStepKEqL])
def test_columns_of_data_frames_are_found_by_their_names(method):
    """In any order, as long as all are called as coordinates and states are."""
    table = pd.DataFrame({"a": np.sin(WALK.t + WALK.x), "b": np.cos(WALK.t + WALK.x)})
    model = method(("a", "b"), ("a_t", "b_x"), states=("a", "b"), variables=("t", "x"))
    model.set_params(collocation_points=20, state_kernel=RBF(1.0), n_inducing=20)
    model.set_params(observation_noise=1e-3, equation_kernel=Polynomial(1))
    first = clone(model).fit(WALK.to_numpy(), table.to_numpy())
    other = model.fit(WALK[["x", "t"]], table[["b", "a"]])
    assert other.variables_ == ("t", "x") and other.state_names_ == ("a", "b")
    points = WALK[["x", "t"]].iloc[:4]
    places = WALK.iloc[:4].to_numpy()
    assert_array_equal(other.predict(points), first.predict(places))
    slopes = [first.predict_derivative(places, "a_t")]
    slopes += [other.predict_derivative(points, "a_t")]
    assert_array_equal(*slopes)
    expected = first.score(WALK.to_numpy(), table.to_numpy())
    assert other.score(WALK[["x", "t"]], table) == expected
    assert other.score(WALK[["x", "t"]], table[["b", "a"]]) == expected
    shown = rows_for(other, places, None)
    assert_array_equal(shown[["t", "x"]], places)
    observed = split_rows(other, points, table[["b", "a"]][:4], None, LABELS)
    assert_array_equal(observed[0], places)
    assert_array_equal(observed[1], table[:4])


def test_a_column_of_a_state_that_is_not_the_first():
    """What has no column was never measured."""
    t = np.linspace(0, 5, 26)[:, None]
    given = {"states": ("x", "y"), "variables": ("t",), "collocation_points": 20}
    model = TwoStepKEqL(("x", "y"), ("x_t", "y_t"), **given)
    with pytest.warns(IdentifiabilityWarning, match="equation y_t leaves"):
        found = model.fit(t, pd.DataFrame({"y": np.cos(t[:, 0])})).predict(t)
    assert_allclose(found[:, 1], np.cos(t[:, 0]), atol=1e-2)


MIXED = [
    (WALK, {"a": "a", "b": "c"}, "y has the columns a, c, .*the states are a, b, of"),
    (
        WALK.rename(columns={"t": "s"}),
        {},
        "X has the columns s, x, but the coordinates",
    ),
]


@pytest.mark.parametrize("X, names, message", MIXED)
def test_columns_of_which_only_some_have_names_that_are_known(X, names, message):
    table = pd.DataFrame({"a": WALK.t, "b": WALK.x}).rename(columns=names)
    model = TwoStepKEqL(("a", "b"), ("a_t", "b_x"), states=("a", "b"))
    with pytest.raises(ValueError, match=message):
        model.set_params(variables=("t", "x")).fit(X, table)

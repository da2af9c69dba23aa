"""Displays of several states and equations."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from numpy.testing import assert_allclose, assert_array_equal

from keql import Equation, TwoStepKEqL
from keql.kernels import RBF, Polynomial
from keql.plotting import (
    CoefficientDisplay,
    EquationParityDisplay,
    ErrorDisplay,
    PhasePortraitDisplay,
    StateDisplay,
)

T = np.linspace(0, 6, 25)[:, None]
Y = np.column_stack([np.cos(T[:, 0]), 10 * np.sin(T[:, 0])])  # x_t = -0.1 y, y_t = 10 x
Y[1::3, 1] = np.nan
GIVEN = {"state_kernel": RBF(2.0, "fixed"), "observation_noise": 1e-4}
CIRCLE = {
    "operators": ("x", "y"),
    "known_part": ("x_t", "y_t"),
    "states": ("x", "y"),
    "variables": ("t",),
    "equation_kernel": Polynomial(1),
}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def circle():
    return TwoStepKEqL(**CIRCLE, **GIVEN).fit(T, Y)


@pytest.fixture(scope="module")
def fields():
    """Two states of two coordinates, each seen at points of its own."""
    points = np.random.RandomState(0).uniform(size=(50, 2))
    y = np.exp(-points[:, :1]) * np.column_stack([np.sin(points[:, 1]), np.ones(50)])
    y[:25, 0] = y[25:, 1] = np.nan
    return TwoStepKEqL(
        operators=("u", "v"),
        known_part=("u_t", "v_t"),
        states=("u", "v"),
        variables=("t", "x"),
        collocation_points=20,
        equation_kernel=Polynomial(1),
        **GIVEN,
    ).fit(points, y), (points, y)


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


# --- states -------------------------------------------------------------------------


def test_all_states_in_one_figure(circle):
    display = StateDisplay.from_estimator(circle, T, Y, grid_resolution=40)
    t = np.linspace(0, 6, 40)[:, None]
    u, std = circle.predict(t, return_std=True)
    drawn = lines(display.ax_)
    assert_allclose(drawn["x"].get_ydata(), u[:, 0])
    assert_allclose(drawn["y"].get_ydata(), u[:, 1])
    marks = [line for line in display.ax_.get_lines() if line.get_marker() == "o"]
    for mark, name, values in zip(marks, "xy", Y.T, strict=True):
        assert_array_equal(mark.get_ydata(), values)
        assert mark.get_markeredgecolor() == drawn[name].get_color()
    assert drawn["x"].get_color() != drawn["y"].get_color()
    assert len(display.ax_.collections) == 2  # bands of two standard deviations
    top = display.ax_.collections[1].get_paths()[0].vertices[:, 1].max()
    assert top == pytest.approx(np.max(u[:, 1] + 2 * std[:, 1]))
    legend = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert legend == ["x", "y", "collocation points"]
    # A legend that is drawn again, with lines of one's own, does not list the bands.
    assert display.ax_.get_legend_handles_labels()[1] == legend
    other = StateDisplay.from_estimator(circle, quantity="std", grid_resolution=40)
    assert_allclose(lines(other.ax_)["y"].get_ydata(), std[:, 1])
    assert other.ax_.get_ylabel() == "standard deviation of x, y"


def test_one_of_several_states(circle):
    display = StateDisplay.from_estimator(circle, T, Y, operator="y")
    assert_allclose(display.values, circle.predict(display.points)[:, 1])
    assert_array_equal(display.y, Y[:, 1])
    assert display.ax_.get_ylabel() == "y"
    slope = StateDisplay.from_estimator(circle, T, Y, operator="y_t")
    assert slope.y is None
    assert_allclose(slope.values, circle.predict_derivative(slope.points, "y_t"))


def test_given_values_of_several_states():
    display = StateDisplay.from_predictions(T, np.cos(T) + [0.0, 1.0], name="u")
    assert set(lines(display.ax_)) == {"u1", "u2"}
    grid = np.random.RandomState(0).uniform(size=(9, 2))
    with pytest.raises(ValueError, match="values has 2 columns.*a map shows one"):
        StateDisplay.from_predictions(grid, grid)


def test_maps_show_where_their_state_was_measured(fields):
    model, (points, y) = fields
    with pytest.raises(ValueError, match="operator=None.*states u, v"):
        StateDisplay.from_estimator(model, points, y)
    display = StateDisplay.from_estimator(
        model, points, y, operator="v", grid_resolution=9
    )
    assert_array_equal(lines(display.ax_)["observations"].get_xydata(), points[:25])
    assert_allclose(display.values, model.predict(display.points)[:, 1])


def test_errors_of_one_of_several_states(fields):
    model, (points, y) = fields
    display = ErrorDisplay.from_estimator(model, points, y, operator="v")
    assert len(display.true) == 25 and display.relative_error_ < 1e-2
    assert_allclose(display.predicted, model.predict(points[:25])[:, 1])
    with pytest.raises(ValueError, match="operator=None.*states u, v"):
        ErrorDisplay.from_estimator(model, points, y)
    with pytest.raises(ValueError, match="y has no values of u_x"):
        ErrorDisplay.from_estimator(model, points, y, operator="u_x")


def test_columns_of_operators_and_inputs():
    """Rows that say which operator they hold, functions whose dose is a column."""
    table = pd.DataFrame(
        {"run": np.repeat(["a", "b"], 25), "t": np.tile(T[:, 0], 2), "what": "q"}
    )
    table["dose"] = np.repeat([1.0, 2.0], 25)
    table.loc[::5, "what"] = "q_t"
    size = table["dose"] * np.exp(-table["t"])
    values = np.where(table["what"] == "q", size, -size)
    model = TwoStepKEqL(
        operators=("q",),
        known_part="q_t",
        states="q",
        variables=("t",),
        function_column="run",
        operator_column="what",
        inputs={"dose": "dose"},
        equation_kernel=Polynomial(1),
        **GIVEN,
    ).fit(table, values)
    display = StateDisplay.from_estimator(model, table, values, function="b")
    assert display.name == "q"
    expected = np.where(table["what"] == "q", size, np.nan)[25:]
    assert_array_equal(display.y, expected)
    assert_allclose(display.values, 2 * np.exp(-display.points[:, 0]), atol=5e-3)
    slope = StateDisplay.from_estimator(
        model, table, values, function="b", operator="q_t"
    )
    assert_array_equal(np.isfinite(slope.y), ~np.isfinite(expected))


# --- equations ----------------------------------------------------------------------


def test_a_panel_for_each_equation(circle):
    display = EquationParityDisplay.from_estimator(circle)
    S = circle.equation_.training_features
    assert [ax.get_xlabel() for ax in display.ax_] == ["given: -x_t", "given: -y_t"]
    known = circle.equation_.feature_names.index("y_t")
    assert_allclose(display.given[1], -S[:, known])
    assert_allclose(display.predicted[1], circle.equation_["y_t"].unknown_part(S))
    assert max(display.relative_error_) < 1e-2
    one = EquationParityDisplay.from_estimator(circle, equation="y_t")
    assert_allclose(one.predicted, display.predicted[1])
    assert one.relative_error_ == display.relative_error_[1]
    fewer = circle.equation_.sparse(n_terms=1)
    other = EquationParityDisplay.from_estimator(circle, equation=fewer)
    assert_allclose(other.predicted[0], fewer["x_t"].unknown_part(S))
    with pytest.raises(ValueError, match="ax has 1 Axes for 2 equations"):
        display.plot(ax=pyplot.figure().gca())
    with pytest.raises(ValueError, match="equation='z_t' is none.*'x_t', 'y_t'"):
        EquationParityDisplay.from_estimator(circle, equation="z_t")


def test_right_hand_sides_of_named_equations():
    """Equations with their own points and forcings, and one that is known."""
    points = np.linspace(0, 6, 11)[:, None]
    model = TwoStepKEqL(
        equations=[
            ("first", Equation("x_t", ("y",), forcing=lambda X: np.sin(X[:, 0]))),
            ("second", Equation("y_t", ("x",), points, np.cos(points[:, 0]))),
            ("circle", Equation({"x_t": 10.0, "y": 1.0})),
        ],
        states=("x", "y"),
        variables=("t",),
        collocation_points=8,
        **GIVEN,
    ).fit(T, Y)
    display = EquationParityDisplay.from_estimator(model)
    assert len(display.ax_) == 2
    for name, given, forcing in zip(
        ("first", "second"),
        display.given,
        (lambda S: np.sin(S[:, 0]), lambda S: np.cos(S[:, 0])),
        strict=True,
    ):
        equation = model.equation_[name]
        S = equation.training_features
        assert_allclose(given, forcing(S) - equation.known_part(S))


def test_coefficients_of_a_named_equation():
    x, t = (axis.ravel() for axis in np.meshgrid(np.arange(5.0), np.arange(4.0)))
    points = np.column_stack([t, x]) / 4
    y = np.exp(-points[:, :1]) * np.column_stack([np.sin(x), np.cos(x)])
    varying = RBF(2.0, active_dims=("x",)) * Polynomial(1)
    model = TwoStepKEqL(
        operators=("u", "v"),
        known_part=("u_t", "v_t"),
        states=("u", "v"),
        variables=("t", "x"),
        equation_kernel=varying,
        collocation_points=10,
        **GIVEN,
    ).fit(points, y)
    display = CoefficientDisplay.from_estimator(
        model, "v", equation="v_t", grid_resolution=5
    )
    expected = model.equation_["v_t"].coefficient("v", display.points)
    assert_allclose(display.values, expected)
    with pytest.raises(ValueError, match="equation=None.*'u_t', 'v_t'"):
        CoefficientDisplay.from_estimator(model, "v")


# --- phase portraits ----------------------------------------------------------------


def test_phase_portrait_of_two_states(circle):
    display = PhasePortraitDisplay.from_estimator(circle, T, Y, grid_resolution=30)
    t = np.linspace(0, 6, 30)[:, None]
    drawn = lines(display.ax_)
    assert_allclose(drawn["learned state"].get_xydata(), circle.predict(t))
    both = Y[np.isfinite(Y[:, 1])]
    assert_array_equal(drawn["at the observations"].get_xydata(), both)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x", "y")
    x, y = np.random.RandomState(0).uniform(-1, 1, size=(2, 5))
    assert_allclose(display.rates(x, y), [-0.1 * y, 10 * x], atol=0.05)
    turned = PhasePortraitDisplay.from_estimator(circle, states=("y", "x"))
    assert_allclose(turned.rates(y, x), [10 * x, -0.1 * y], atol=0.05)
    assert display.acceleration is None
    plain = PhasePortraitDisplay.from_estimator(circle, T, directions=False)
    assert plain.rates is None
    at = lines(plain.ax_)["at the observations"].get_xydata()
    assert_allclose(at, circle.predict(T))


def test_other_planes(circle):
    display = PhasePortraitDisplay.from_estimator(circle, T, Y, states=("x", "x_t"))
    assert display.ax_.get_ylabel() == "x_t" and display.rates is None
    with pytest.raises(ValueError, match="states='x' must be a pair"):
        PhasePortraitDisplay.from_estimator(circle, states="x")
    three = TwoStepKEqL(
        operators=("x", "y", "z"),
        known_part=("x_t", "y_t", "z_t"),
        states=("x", "y", "z"),
        variables=("t",),
        equation_kernel=Polynomial(1),
        **GIVEN,
    ).fit(T, np.column_stack([Y, np.exp(-T / 3)]))
    with pytest.raises(ValueError, match=r"states=None.*x, y, z.*\('x', 'y'\)"):
        PhasePortraitDisplay.from_estimator(three)
    # The derivatives of x and y depend on z, which the plane does not show.
    assert PhasePortraitDisplay.from_estimator(three, states=("x", "y")).rates is None

"""Displays: what is drawn, read back from the axes."""

import inspect

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.collections import QuadMesh, TriMesh
from numpy.testing import assert_allclose, assert_array_equal

from keql import OneStepKEqL, TwoStepKEqL, plotting
from keql.kernels import RBF, Polynomial
from keql.metrics import relative_l2_error
from keql.operators import parse_operator
from keql.plotting import (
    CoefficientDisplay,
    EquationParityDisplay,
    ErrorDisplay,
    LossCurveDisplay,
    PhasePortraitDisplay,
    StateDisplay,
)

T = np.linspace(0, 6, 15)[:, None]
Y = np.sin(2 * T.ravel())
GRID = np.column_stack([a.ravel() for a in np.meshgrid(np.arange(4.0), np.arange(3.0))])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


def oscillator(**changes):
    settings = {
        "operators": ("u", "u_t"),
        "known_part": "u_tt",
        "equation_kernel": Polynomial(1),
        "variables": ("t",),
        "collocation_points": 60,
        "state_kernel": RBF(1.0, "fixed"),
        "observation_noise": 1e-4,
        "equation_noise": 1e-3,
    }
    return OneStepKEqL(**{**settings, **changes})


@pytest.fixture(scope="module")
def model():
    return oscillator().fit(T, Y)


@pytest.fixture(scope="module")
def flow():
    """Two functions of two coordinates, u_t = c(x) u_x + f and c = 1, with labels."""
    rng = np.random.RandomState(0)
    rows = np.column_stack([rng.uniform(size=(60, 2)), np.repeat([3.0, 7.0], 30)])
    t, x, label = rows.T
    y = np.sin(t + x) * label + np.where(label == 3, t**2 / 2, t)
    return TwoStepKEqL(
        operators=("u_x",),
        known_part="u_t",
        variables=("t", "x"),
        function_column=2,
        forcing={3.0: lambda X: X[:, 0], 7.0: np.ones(40)},
        collocation_points=np.random.RandomState(1).uniform(size=(40, 2)),
        equation_kernel=RBF(2.0, active_dims=("x",)) * Polynomial(1),
        state_kernel=RBF(1.0),
        observation_noise=1e-3,
    ).fit(rows, y)


def lines(ax):
    return {line.get_label(): line for line in ax.get_lines()}


# --- every display ------------------------------------------------------------------

MADE = [
    (StateDisplay, (T, Y)),
    (StateDisplay, (GRID, GRID[:, 0])),
    (ErrorDisplay, (T, Y, 1.1 * Y)),
    (ErrorDisplay, (GRID, GRID[:, 0], GRID[:, 1])),
    (LossCurveDisplay, ([10.0, 1.0, 0.1], [1.0, 0.5])),
    (EquationParityDisplay, (Y, 1.1 * Y)),
    (CoefficientDisplay, (T, Y)),
    (CoefficientDisplay, (GRID, GRID[:, 0])),
    (PhasePortraitDisplay, (Y, 2 * Y)),
]


@pytest.mark.parametrize(("display", "data"), MADE)
def test_convention(display, data):
    made = display.from_predictions(*data)
    assert isinstance(made, display) and made.figure_ is made.ax_.figure
    assert made.ax_.get_xlabel() and made.ax_.get_ylabel()
    figure, (first, second) = pyplot.subplots(1, 2)
    assert made.plot(ax=second) is made
    assert made.ax_ is second and made.figure_ is figure and not first.has_data()
    made.figure_.canvas.draw()
    # Everything given to the constructor is kept as it is.
    for name in inspect.signature(display).parameters:
        assert hasattr(made, name)


@pytest.mark.parametrize(
    ("display", "data"), [made for made in MADE if made[0] is not LossCurveDisplay]
)
def test_lengths_must_agree(display, data):
    *first, last = data
    with pytest.raises(ValueError, match=r"value\(s\) for .* point\(s\)"):
        display.from_predictions(*first, last[:-1])


def test_settings_reach_matplotlib():
    display = StateDisplay.from_predictions(T, Y, color="black", label="mine")
    assert lines(display.ax_)["mine"].get_color() == "black"
    display = StateDisplay.from_predictions(GRID, GRID[:, 0], cmap="magma")
    (mesh,) = display.ax_.collections
    assert mesh.get_cmap().name == "magma"


@pytest.mark.parametrize("name", plotting.__all__)
def test_estimators_must_be_fitted(name):
    display = getattr(plotting, name)
    data = {"ErrorDisplay": (T, Y), "CoefficientDisplay": ("u",)}.get(name, ())
    with pytest.raises(ValueError, match="not fitted"):
        display.from_estimator(oscillator(), *data)


def test_one_or_two_coordinates():
    with pytest.raises(ValueError, match="3 coordinates.*slice"):
        StateDisplay.from_predictions(np.ones((4, 3)), np.ones(4))


def test_slices_of_three_coordinates():
    """A map and a line of a state in space, with the observations that lie there."""
    X = np.random.RandomState(0).uniform(size=(40, 3))
    X[:10, 0], y = 0.5, X[:, 0] + X[:, 1] * X[:, 2]
    cube = TwoStepKEqL(variables=("t", "x", "y"), units={"t": "h"}).fit(X, y)
    shown = StateDisplay.from_estimator(cube, X, y, at={"t": 0.5}, grid_resolution=5)
    at = np.column_stack([np.full(25, 0.5), shown.points])
    assert_allclose(shown.values, cube.predict(at), rtol=1e-9)
    assert_array_equal(shown.X, X[:10, 1:])
    assert shown.name == "u at t = 0.5 h" and shown.ax_.get_ylabel() == "y"
    assert [text.get_text() for text in shown.ax_.texts] == ["t = 0.5"]
    shown = StateDisplay.from_estimator(cube, X, y, at={"t": 0.2, "y": 1.0})
    assert shown.ax_.get_xlabel() == "x" and shown.X is None
    assert_allclose(
        shown.values, cube.predict(np.insert(shown.points, [0, 1], [0.2, 1.0], axis=1))
    )
    for at, message in (
        ({"z": 1.0}, "must be a dict of coordinates, t, x, y"),
        ({"t": np.nan}, "finite"),
        (dict.fromkeys("txy", 0.5), "leave one or two out"),
        (None, "3 coordinates.* as in at="),
    ):
        with pytest.raises(ValueError, match=message):
            StateDisplay.from_estimator(cube, X, y, at=at)


# --- states and errors --------------------------------------------------------------


def test_state_of_one_coordinate(model):
    display = StateDisplay.from_estimator(model, T, Y, grid_resolution=50)
    drawn = lines(display.ax_)
    t = np.linspace(0, 6, 50)[:, None]
    u, std = model.predict(t, return_std=True)
    assert_allclose(drawn["state"].get_xydata(), np.column_stack([t, u]))
    assert_allclose(drawn["observations"].get_xydata(), np.column_stack([T, Y]))
    (points,) = model.collocation_points_
    assert_array_equal(drawn["collocation points"].get_xdata(), points[:, 0])
    (band,) = display.ax_.collections
    upper = band.get_paths()[0].vertices[:, 1].max()
    assert upper == pytest.approx(np.max(u + 2 * std))
    assert display.ax_.get_xlabel() == "t" and display.ax_.get_ylabel() == "u"


def test_state_in_any_order_and_derivatives(model):
    order = np.random.RandomState(0).permutation(15)
    display = StateDisplay.from_predictions(T[order], Y[order], std=0.1 + 0 * Y)
    assert_array_equal(lines(display.ax_)["state"].get_ydata(), Y)
    display = StateDisplay.from_estimator(
        model, T, Y, operator="u_t", uncertainty=False, grid_resolution=9
    )
    drawn = lines(display.ax_)
    assert "observations" not in drawn and not display.ax_.collections
    twice = 2 * parse_operator("u_t", ("t",))
    other = StateDisplay.from_estimator(model, T, operator=twice, grid_resolution=9)
    assert other.ax_.get_ylabel() == "2 u_t"
    slope = model.predict_derivative(np.linspace(0, 6, 9)[:, None], "u_t")
    assert_allclose(drawn["state"].get_ydata(), slope)


def test_std_of_a_state(model):
    display = StateDisplay.from_estimator(model, T, Y, quantity="std")
    assert display.ax_.get_ylabel() == "standard deviation of u"
    _, std = model.predict(display.points, return_std=True)
    assert_allclose(lines(display.ax_)["state"].get_ydata(), std)
    with pytest.raises(ValueError, match="quantity='std'"):
        StateDisplay.from_predictions(T, Y).plot(quantity="std")
    with pytest.raises(ValueError, match="quantity='variance'"):
        display.plot(quantity="variance")


def test_map_of_a_grid_in_any_order():
    values = GRID[:, 0] - 10 * GRID[:, 1]
    order = np.random.RandomState(0).permutation(12)
    display = StateDisplay.from_predictions(GRID[order], values[order])
    (mesh,) = display.ax_.collections
    assert isinstance(mesh, QuadMesh)
    expected = np.arange(4.0) - 10 * np.arange(3.0)[:, None]
    assert_array_equal(mesh.get_array().reshape(3, 4), expected)


def test_map_of_scattered_points():
    points = np.random.RandomState(0).uniform(size=(30, 2))
    display = StateDisplay.from_predictions(points, points[:, 0])
    (mesh,) = display.ax_.collections
    assert isinstance(mesh, TriMesh)


def test_colours():
    both = StateDisplay.from_predictions(GRID, GRID[:, 0] - 1).ax_.collections[0]
    assert both.get_clim() == (-2.0, 2.0)
    other = StateDisplay.from_predictions(GRID, 1 - GRID[:, 0]).ax_.collections[0]
    assert other.get_clim() == (-2.0, 2.0)
    one = StateDisplay.from_predictions(GRID, 1 + GRID[:, 0]).ax_.collections[0]
    assert one.get_clim() == (1.0, 4.0)
    for mesh in (both, one):
        # Told apart in grey: lightness has one direction on each side of the middle.
        colours = mesh.get_cmap()(np.linspace(0, 1, 64))[:, :3]
        grey = colours @ [0.299, 0.587, 0.114]
        steps = np.diff(grey[:32] if mesh is both else grey)
        assert np.mean(steps > 0) > 0.95 or np.mean(steps < 0) > 0.95
    assert one.get_cmap().name == "viridis"


def test_state_of_one_of_two_functions(flow):
    X = np.column_stack([np.ones((4, 2)) * [[0.5], [1], [0], [0.2]], [3, 7, 7, 7]])
    display = StateDisplay.from_estimator(flow, X, function=7.0, grid_resolution=8)
    assert len(display.X) == 3 and display.collocation_points.shape == (40, 2)
    rows = np.column_stack([display.points, np.full(64, 7.0)])
    assert_allclose(display.values, flow.predict(rows))
    first = StateDisplay.from_estimator(flow, grid_resolution=8)
    rows = np.column_stack([first.points, np.full(64, 3.0)])
    assert_allclose(first.values, flow.predict(rows))
    with pytest.raises(ValueError, match=r"function=5 .*3.0, 7.0"):
        StateDisplay.from_estimator(flow, function=5)


@pytest.mark.parametrize("column", ["run", 0])
def test_data_frames_with_labels(column):
    names = np.repeat(["a", "b"], 15)
    frame = pd.DataFrame({"run": names, "t": np.tile(T.ravel(), 2)})
    y = np.concatenate([Y, -Y])
    model = TwoStepKEqL(
        operators=("u",), known_part="u_tt", function_column=column
    ).fit(frame, y)
    display = StateDisplay.from_estimator(model, frame, y, function="b")
    assert_array_equal(display.y, -Y)
    [words] = [text.get_text() for text in display.ax_.texts]
    assert words == ("run = b" if column == "run" else "function = b")
    expected = model.predict(
        pd.DataFrame({"run": "b", "t": display.points.ravel()}, index=range(200))
    )
    assert_allclose(display.values, expected)
    error = ErrorDisplay.from_estimator(model, frame, y, function="b")
    assert len(error.true) == 15 and error.relative_error_ < 1e-2


def test_error(model):
    t = np.linspace(0, 6, 40)[:, None]
    true = np.sin(2 * t.ravel())
    display = ErrorDisplay.from_estimator(model, t, true)
    u, std = model.predict(t, return_std=True)
    assert_allclose(display.ax_.get_lines()[0].get_ydata(), u - true)
    assert display.relative_error_ == pytest.approx(relative_l2_error(true, u))
    (band,) = display.ax_.collections
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(2 * std.max())
    # Of a map, zero is in the middle even where all errors have one sign.
    shifted = ErrorDisplay.from_predictions(GRID, GRID[:, 0], GRID[:, 0] + 3)
    assert shifted.ax_.collections[0].get_clim() == (-3.0, 3.0)


def test_a_corner_does_not_make_everything_else_pale():
    axis = np.linspace(-1, 1, 20)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    error = grid[:, 0].copy()
    for corner, limit, extend in ((1.5, 1.5, "neither"), (9.0, 1.0, "both")):
        error[0] = corner
        display = ErrorDisplay.from_predictions(grid, 1 + 0 * error, 1 + error)
        assert display.ax_.collections[0].get_clim() == (-limit, limit)
        assert display.ax_.collections[0].colorbar.extend == extend
    shown = {"vmin": -9, "vmax": 9}
    given = ErrorDisplay.from_predictions(grid, 1 + 0 * error, 1 + error, **shown)
    assert given.ax_.collections[0].colorbar.extend == "neither"
    nothing = ErrorDisplay.from_predictions(grid, error, error)
    assert nothing.ax_.collections[0].get_clim() == (-1.0, 1.0)


def test_nothing_to_show():
    plain = TwoStepKEqL().fit(T, Y)
    with pytest.raises(ValueError, match="X is None"):
        StateDisplay.from_estimator(plain)
    assert StateDisplay.from_estimator(plain, T, Y).collocation_points is None
    for display in (EquationParityDisplay, PhasePortraitDisplay):
        with pytest.raises(ValueError, match="without an equation"):
            display.from_estimator(plain)
    for estimator in (plain, OneStepKEqL().fit(T, Y)):
        with pytest.raises(ValueError, match="no loss curve"):
            LossCurveDisplay.from_estimator(estimator)


# --- fits and equations -------------------------------------------------------------


def test_loss_curve():
    given = {"state_kernel": RBF(1.0), "observation_noise": 1e-3, "n_terms": None}
    model = oscillator(**given).fit(T, Y)
    assert model.n_iter_ > 1
    display = LossCurveDisplay.from_estimator(model)
    loss = lines(display.ax_)["loss"].get_xydata()
    assert_allclose(loss[:, 1], model.loss_curve_)
    assert_array_equal(loss[:, 0], np.arange(len(model.loss_curve_)))
    damping = lines(display.damping_ax_)["damping"].get_xydata()
    assert_allclose(damping[:, 1], model.damping_curve_)
    assert damping[0, 0] == 1 and damping[-1, 0] == loss[-1, 0]
    short = LossCurveDisplay.from_predictions([2.0, 1.0])
    assert short.damping_ax_ is None and short.ax_.get_yscale() == "linear"
    long = LossCurveDisplay.from_predictions([20.0, 1.0])
    assert long.ax_.get_yscale() == "log"
    full = LossCurveDisplay.from_predictions([2.0, 1.0, 0.9], [0.0, 0.0])
    assert full.damping_ax_ is None  # steps that are not damped


def test_parity_without_forcing(model):
    display = EquationParityDisplay.from_estimator(model)
    S = model.equation_.training_features
    assert_allclose(display.given, -S[:, model.equation_.feature_names.index("u_tt")])
    assert_allclose(display.predicted, model.equation_.unknown_part(S))
    assert display.relative_error_ < 1e-2
    assert display.ax_.get_xlabel() == "given: -u_tt"
    fewer = model.equation_.sparse(n_terms=1)
    other = EquationParityDisplay.from_estimator(model, equation=fewer)
    assert_allclose(other.predicted, fewer.unknown_part(S))
    assert_allclose(other.given, display.given)


def test_parity_with_forcing(flow):
    display = EquationParityDisplay.from_estimator(flow)
    (first, second), equation = flow.collocation_points_, flow.equation_
    forcing = np.concatenate([first[:, 0], np.ones(len(second))])
    u_t = equation.training_features[:, equation.feature_names.index("u_t")]
    assert_allclose(display.given, forcing - u_t)
    assert display.ax_.get_xlabel() == "given: f - u_t"


def test_coefficient(flow):
    display = CoefficientDisplay.from_estimator(flow, "u_x", grid_resolution=7)
    values = flow.equation_.coefficient("u_x", display.points)
    assert_allclose(display.values, values)
    bar = display.figure_.axes[1]
    assert bar.get_ylabel() == "coefficient of u_x"
    other = CoefficientDisplay.from_estimator(
        flow, "1", points=GRID / 4, quantity="std", ax=pyplot.figure().gca()
    )
    _, std = flow.equation_.coefficient("1", GRID / 4, return_std=True)
    assert_allclose(other.ax_.collections[0].get_array().ravel(), std)


def test_coefficient_of_one_coordinate():
    display = CoefficientDisplay.from_predictions(
        T, Y, std=0.1 + 0 * Y, variables=["x"], term="u_xx"
    )
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["coefficient of u_xx", "two standard deviations"]


def test_phase_portrait(model):
    display = PhasePortraitDisplay.from_estimator(model, T, grid_resolution=30)
    drawn = lines(display.ax_)
    t = np.linspace(0, 6, 30)[:, None]
    expected = [model.predict(t), model.predict_derivative(t, "u_t")]
    assert_allclose(drawn["learned state"].get_data(), expected)
    assert_allclose(drawn["start"].get_data(), np.array(expected)[:, :1])
    observed = [model.predict(T), model.predict_derivative(T, "u_t")]
    assert_allclose(drawn["at the observations"].get_data(), observed)
    # The learned directions are those of u_tt = -4 u.
    u, u_t = np.random.RandomState(0).uniform(-1, 1, size=(2, 5))
    assert_allclose(display.acceleration(u, u_t), -4 * u, atol=0.05)


@pytest.mark.slow
def test_directions_only_where_the_plane_has_them():
    def directions(**changes):
        model = oscillator(**changes).fit(T, Y)
        return PhasePortraitDisplay.from_estimator(model).acceleration

    assert directions(forcing=lambda X: 0 * X[:, 0]) is None
    assert directions(known_part={"u_tt": 1.0, "u_ttt": 0.1}) is None
    time_dependent = RBF(3.0, active_dims=("t",)) * Polynomial(1)
    assert directions(equation_kernel=time_dependent) is None
    halved = directions(known_part={"u_tt": 0.5})
    assert halved(np.ones(1), np.zeros(1)) == pytest.approx(-4.0, abs=0.05)
    no_directions = PhasePortraitDisplay.from_estimator(
        oscillator().fit(T, Y), directions=False
    )
    assert no_directions.acceleration is None


def test_phase_portrait_with_truth():
    display = PhasePortraitDisplay.from_predictions(Y, Y, true=(Y, 2 * Y))
    assert_array_equal(lines(display.ax_)["truth"].get_ydata(), 2 * Y)


def test_phase_portrait_needs_one_coordinate(flow):
    with pytest.raises(ValueError, match="variables t, x.*one coordinate"):
        PhasePortraitDisplay.from_estimator(flow)


def test_settings_of_matplotlib_are_left_alone(model):
    before = dict(mpl.rcParams)
    StateDisplay.from_estimator(model, T, Y)
    assert dict(mpl.rcParams) == before

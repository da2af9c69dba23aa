"""Tables as people have them: names, text, dates, what is missing, grids."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from grids import Axis, fake
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from keql import Equation, KernelPDESolver, LearnedEquation, TwoStepKEqL
from keql.kernels import Polynomial

T = np.linspace(0, 6, 30)
Y = np.sin(2 * T)
DECAY = np.exp(-T / 3)
SECONDS = (T * 3600).astype("timedelta64[s]")
DATES = np.datetime64("2024-03-01") + SECONDS


def oscillator(**params):
    """A linear equation of second order, for a quick fit."""
    given = {"operators": "u", "known_part": "u_tt", "variables": "t"} | params
    return TwoStepKEqL(equation_kernel=Polynomial(1), **given)


def test_a_string_stands_for_a_tuple_of_one():
    model = oscillator().fit(T[:, None], Y)
    other = oscillator(operators=("u",), variables=("t",)).fit(T[:, None], Y)
    assert model.variables_ == ("t",)
    assert str(model.equation_) == str(other.equation_)
    solver = KernelPDESolver("u_tt", variables="t").fit([[0.0], [1.0]], [0.0, 1.0])
    assert_allclose(solver.predict([[0.5]]), [0.5], atol=1e-6)


def test_columns_of_data_frames_keep_their_names_in_operators():
    X, y = pd.DataFrame({"t_h": T}), pd.Series(Y, name="T_C")
    given = {"operators": "T_C", "known_part": "T_C_t_h_t_h", "variables": None}
    model = oscillator(**given).fit(X, y)
    assert model.state_names_ == ("T_C",) and model.variables_ == ("t_h",)
    assert str(model.equation_).startswith("T_C_t_h_t_h = -4.00 T_C")
    again = oscillator(**given).fit(X, y.to_frame())
    assert str(again.equation_) == str(model.equation_)
    assert model.score(X, y) == again.score(X, y.to_frame()) > 0.999


def test_names_are_of_any_alphabet():
    X, y = pd.DataFrame({"τ": T}), pd.Series(Y, name="θ")
    model = oscillator(operators="θ", known_part="θ_ττ", variables=None).fit(X, y)
    assert str(model.equation_).startswith("θ_ττ = -4.00 θ")
    assert model.equation_.to_latex().startswith(r"\theta_{\tau \tau} = -4.00 \theta")
    assert "θ<sub>ττ</sub>" in model.equation_._repr_html_()
    again = LearnedEquation.from_dict(model.equation_.to_dict())
    assert str(again) == str(model.equation_)
    model = oscillator(operators="θ", known_part=lambda θ_ττ: θ_ττ, states="θ")
    assert model.set_params(variables="τ").fit(X, y).state_names_ == ("θ",)
    with pytest.raises(ValueError, match="different names of letters"):
        model.set_params(states="θ²").fit(X, y)


def test_years_are_told_apart():
    years = pd.DataFrame({"year": np.arange(1900, 1930)})
    model = oscillator(variables=None, known_part="u_yearyear", n_inducing=20)
    rows = model.fit(years, Y).fit_report_.sections()["Data"]
    assert dict((name, value) for name, value, _ in rows)["year"] == "1900 to 1929"
    rows = model.fit(years * 60 + 1.7e9, Y).fit_report_.sections()["Data"]
    assert rows[1][1] == "1700114000 to 1700115740"


@pytest.mark.parametrize(
    "named, name",
    [
        ({"operators": "T_C"}, "T_C"),
        ({"operators": ("T_C", "T_C_t")}, "T_C"),
        ({"operators": ((0,),), "known_part": {"T_C_t": 1, "T_C": 2}}, "T_C"),
        ({"known_part": lambda T_C, T_C_t: T_C_t, "operators": "T_C"}, "T_C"),
        ({"operators": "u"}, "u"),
        ({"operators": None, "known_part": None}, "u"),
    ],
)
def test_a_single_state_is_called_as_its_column_if_operators_are(named, name):
    known = {"known_part": f"{name}_t"}
    model = oscillator(**known | named).fit(T[:, None], pd.Series(DECAY, name="T_C"))
    assert model.state_names_ == (name,)


def test_named_equations_and_solvers_follow_the_rule_too():
    y = pd.Series(DECAY, name="T")
    equations = [("cooling", Equation("T_t", "T"))]
    given = {"operators": None, "known_part": None, "equations": equations}
    model = TwoStepKEqL(variables="t").set_params(**given).fit(T[:, None], y)
    assert model.state_names_ == ("T",)
    solver = KernelPDESolver({"T_t": 1, "T": 1}, 10, variables="t")
    solver.fit(T[:2, None], pd.Series([1.0, np.exp(-T[1])], name="T"))
    assert solver.state_names_ == ("T",)


NOT_NUMBERS = {
    "dates in an array": (DATES[:, None], "X has the column 0, which holds dates: .*"),
    "durations": (SECONDS[:, None], "holds durations: .*Divide by it, for hours by np"),
    "a frame": (
        pd.DataFrame({"t": DATES}),
        "the column 't', which holds dates: .*unit",
    ),
    "time zones": (
        pd.DataFrame({"t": pd.to_datetime(DATES, utc=True)}),
        "'t', which holds dates",
    ),
    "durations in a frame": (pd.DataFrame({"t": SECONDS}), "'t', which holds dura"),
    "a list": ([[datetime(2024, 1, 1 + i)] for i in range(30)], "holds dates"),
    "objects": ([[timedelta(hours=i)] for i in range(30)], "holds durations"),
    "text": (
        pd.DataFrame({"t": T, "rod": ["steel", "brass"] * 15}),
        "'rod', which holds text such as 'steel'. .*name it: function_column='rod'",
    ),
    "NaN": (
        np.where(T > 5, np.nan, T)[:, None],
        "X contains NaN in its column 0, in 5 of 30 rows, such as row 25: .*Leave",
    ),
}


@pytest.mark.parametrize("X, message", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
def test_coordinates_that_are_no_numbers_are_refused(X, message):
    with pytest.raises(ValueError, match=message):
        oscillator(variables=None).fit(X, Y)
    if hasattr(X, "columns"):
        with pytest.raises(ValueError, match=message):
            oscillator(function_column="label").fit(X.assign(label=DATES), Y)


@pytest.mark.parametrize(
    "y, message",
    [
        (DATES, "y holds dates"),
        (["low", *Y[1:].astype(str)], "y holds text such as 'low'. Give numbers"),
        (pd.DataFrame({"u": SECONDS}), "y has the column 'u', which holds durations"),
        (np.where(T > 5, np.nan, Y), r"5 of 30 rows, such as row 25: .*~np.isnan\(y\)"),
    ],
)
def test_values_that_are_no_numbers_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        oscillator().fit(T[:, None], y)


def test_dates_are_refused_wherever_times_are_given():
    model = oscillator().fit(T[:, None], Y)
    with pytest.raises(ValueError, match="X has the column 0, which holds durations"):
        model.predict(SECONDS[:, None])
    with pytest.raises(ValueError, match="collocation_points has the column 0"):
        oscillator(collocation_points=SECONDS[:, None]).fit(T[:, None], Y)
    with pytest.raises(
        ValueError, match=r"inputs\['q'\] has a list of times that hold"
    ):
        oscillator(inputs={"q": (DATES, T)}).fit(T[:, None], Y)


def test_numbers_may_be_written_as_text():
    X = np.array([[f"{t:.17g}"] for t in T])
    model = oscillator().fit(X, Y)
    expected = oscillator().fit(T[:, None], Y).predict(T[:, None])
    assert_array_equal(model.predict(X), expected)


def field(make):
    """A decaying wave on a grid of 7 times and 6 places, one value missing."""
    t, x = np.linspace(0, 1, 7), np.linspace(0, 1, 6)
    values = np.exp(-t)[:, None] * np.sin(3 * x)
    values[2, 3] = np.nan
    return make(values, ("t", "x"), {"t": t, "x": x}, "T", {"units": "K"})


def real(values, dims, coords, name, attrs):
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(values, coords, dims, name, attrs)


QUICK = {"collocation_points": 30, "n_inducing": 20}


@pytest.mark.parametrize("make", [fake, real])
def test_grids_in_and_out(make):
    """As the same values in a table, with what xarray keeps beside them."""
    given = field(make)
    model = TwoStepKEqL(("T", "T_x"), "T_t", equation_kernel=Polynomial(1), **QUICK)
    model.fit(given)
    t, x = (axis.ravel() for axis in np.meshgrid(*axes_of(given), indexing="ij"))
    table, y = pd.DataFrame({"t": t, "x": x}), pd.Series(given.values.ravel(), name="T")
    rows = y.notna()
    other = clone(model).fit(table[rows], y[rows])
    assert str(model.equation_) == str(other.equation_)
    shown, std = model.predict(given, return_std=True)
    assert shown.name == "T" and dict(shown.attrs) == {"units": "K"}
    assert_array_equal(shown.values, other.predict(table).reshape(7, 6))
    assert std.values.shape == (7, 6) and np.all(std.values > 0)
    slope = model.predict_derivative(given, "T_x")
    assert slope.name == "T_x" and dict(slope.attrs) == {}
    expected = other.predict_derivative(table, "T_x")
    assert_array_equal(slope.values.ravel(), expected)
    assert model.score(given) == other.score(table[rows], y[rows])
    with pytest.raises(ValueError, match="y is given beside a grid"):
        model.fit(given, y)


def axes_of(given):
    """The coordinates of a grid, in the order of its dimensions."""
    return [np.asarray(given.coords[name].values) for name in given.dims]


def test_a_grid_needs_coordinates_and_numbers():
    given = field(fake)
    times = DATES[:7]
    del given.coords["x"]
    with pytest.raises(ValueError, match=r"the dimension\(s\) x without coordinates"):
        TwoStepKEqL("T_x", "T_t").fit(given)
    given = field(fake)
    given.coords["t"] = Axis(times)
    with pytest.raises(ValueError, match="the column 't', which holds dates"):
        TwoStepKEqL("T_x", "T_t").fit(given)


def test_several_states_on_a_grid():
    first = field(real)
    given = first.to_dataset().assign(v=2 * first).assign_attrs(source="made up")
    model = TwoStepKEqL(states=("T", "v")).fit(given)
    assert model.state_names_ == ("T", "v")
    shown = model.predict(given[["T"]])
    assert shown.attrs == {"source": "made up"} and shown["T"].attrs == {"units": "K"}
    assert_allclose(shown["v"], 2 * shown["T"], atol=1e-3)
    with pytest.raises(ValueError, match="X is a DataArray, .*give a Dataset"):
        model.predict(first)
    flat = given.assign(mean=first.mean("x"))
    with pytest.raises(ValueError, match=r"variable\(s\) mean without all of the dim"):
        model.fit(flat)
    with pytest.raises(ValueError, match="without variables"):
        model.fit(given.drop_vars(["T", "v"]))


def test_a_dimension_may_label_functions():
    xarray = pytest.importorskip("xarray")
    values = np.stack([Y, 2 * Y])
    coords = {"rod": ["brass", "steel"], "t": T}
    given = xarray.DataArray(values, coords, name="u")
    model = oscillator(function_column="rod").fit(given)
    assert model.functions_ == ("brass", "steel")
    assert_allclose(model.predict(given), values, atol=1e-3)


def test_a_solver_takes_a_grid():
    t = np.array([0.0, 0.5, 1.0])
    given = fake(np.array([1.0, np.nan, np.exp(-1)]), ("t",), {"t": t}, "T", {})
    solver = KernelPDESolver({"T_t": 1, "T": 1}).fit(given)
    assert_allclose(solver.predict(given).values, np.exp(-t), atol=1e-6)


def test_what_people_call_on_other_models():
    """`simulate` and `to_latex` are those of the equation."""
    model = oscillator().fit(T[:, None], Y)
    start = [0.0, 1.5]
    expected = model.equation_.simulate(T, start)
    assert_array_equal(model.simulate(T, start), expected)
    assert model.to_latex() == model.equation_.to_latex()
    states = TwoStepKEqL().fit(T[:, None], Y)
    for ask in (states.to_latex, lambda: states.simulate(T, start), states.pde_solver):
        with pytest.raises(ValueError, match="fitted without operators: it has no"):
            ask()

"""What the fuzzer found, by class of defect: the argument is named, nothing hangs."""

import time
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from keql import (
    LearnedEquation,
    LearnedSystem,
    OneStepKEqL,
    ReducedOneStepKEqL,
    SimulationError,
    TwoStepKEqL,
)
from keql.__main__ import main
from keql.datasets import make_burgers, make_duffing, make_heat_with_boundary_law
from keql.kernels import (
    RBF,
    Constant,
    Dictionary,
    Exponentiation,
    FunctionKernel,
    Matern,
    Polynomial,
    Product,
    Restriction,
    Sum,
    SystemKernel,
    as_kernel,
    parse_monomial,
)
from keql.metrics import equation_error, operator_error, relative_l2_error
from keql.model_selection import FunctionKFold
from keql.operators import (
    KernelExpansion,
    apply_operator,
    gram,
    gram_diagonal,
    parse_operator,
)
from keql.plotting import (
    CoefficientDisplay,
    EquationParityDisplay,
    LossCurveDisplay,
    PhasePortraitDisplay,
    StateDisplay,
)

T = np.linspace(0, 3, 12)[:, None]
Y = np.exp(-T[:, 0])
GIVEN = {
    "operators": ("u",),
    "known_part": "u_t",
    "collocation_points": np.linspace(0, 3, 15)[:, None],
    "variables": ("t",),
    "state_kernel": RBF(1.0, "fixed"),
    "equation_kernel": Polynomial(1),
    "observation_noise": 1e-3,
    "equation_noise": 1e-3,
    "optimizer": None,
}
JOINT = GIVEN | {"solver": "dual", "n_restarts": 0}


class Rough(RBF):
    """A kernel without values."""

    def __call__(self, X, Y=None, eval_gradient=False):
        return np.full((len(X), len(X if Y is None else Y)), np.nan)


@pytest.fixture(scope="module")
def model():
    """A decay."""
    return TwoStepKEqL(**GIVEN).fit(T, Y)


@pytest.fixture(scope="module")
def swing():
    """Two states."""
    names = {"operators": ("u", "v"), "known_part": ("u_t", "v_t")}
    pair = np.column_stack([np.sin(T), np.cos(T)])
    settings = JOINT | names | {"states": ("u", "v"), "n_terms": None}
    return OneStepKEqL(**settings).fit(T, pair)


@pytest.mark.parametrize(
    ("method", "changes", "message"),
    [
        (TwoStepKEqL, {"state_kernel": 1.7e308}, "X and y, with state_kernel=1.7e"),
        (OneStepKEqL, {"state_penalty": 5e-324}, "state_penalty=5e-324.* not finite"),
        (OneStepKEqL, {"equation_kernel": 1.7e308}, "equation_kernel: .* its square"),
        (OneStepKEqL, {"equation_kernel": Polynomial(-1)}, "equation_kernel: degree"),
        (
            TwoStepKEqL,
            {"state_kernel": RBF(1.0, "free")},
            "state_kernel: length_scale_b",
        ),
        (TwoStepKEqL, {"state_kernel": RBF(1.0), "optimizer": RBF(1.0)}, "optimizer: "),
        (TwoStepKEqL, {"state_kernel": RBF(Fraction(1))}, "state_kernel: length_scale"),
        (OneStepKEqL, {"state_kernel": Rough(1.0)}, "state_kernel: .* the value nan"),
    ],
)
def test_matrices_that_cannot_be_factored_say_of_what_they_are(
    method, changes, message
):
    settings = (JOINT if method is OneStepKEqL else GIVEN) | changes
    wrong = ValueError, TypeError
    with pytest.raises(wrong, match=message), np.errstate(over="ignore"):
        method(**settings).fit(T, Y)


def test_a_kernel_that_is_nearly_zero():
    settings = JOINT | {"state_kernel": 5e-324, "n_basis": 8}
    with pytest.raises(ValueError, match="state_kernel=5e-324.*n_basis=8"):
        ReducedOneStepKEqL(**settings).fit(T, Y)


def alters(points):
    points[...] = 0.0
    return np.zeros(len(points))


def test_functions_that_write_to_what_they_are_given(model):
    """They are given copies: nobody's arrays change."""
    times, places = np.linspace(0, 1, 5), GIVEN["collocation_points"].copy()
    forced = TwoStepKEqL(**GIVEN | {"forcing": alters}).fit(T, Y)
    expected = forced.simulate(times, [0.9], forcing=lambda points: 0 * points[:, 0])
    found = forced.simulate(times, [0.9], forcing=alters)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(times, np.linspace(0, 1, 5))
    np.testing.assert_array_equal(places, GIVEN["collocation_points"])


def masked_values(points):
    return np.ma.masked_array(np.zeros(len(points)), np.arange(len(points)) == 0)


def test_observations_at_one_place():
    for kind in TwoStepKEqL, OneStepKEqL:
        with pytest.raises(ValueError, match="X holds 12 .* at 2 places"):
            kind("u", "u_t", variables="t").fit(np.ones_like(T), Y)


@pytest.mark.parametrize("unit", [None, ValueError("s"), np.void(b"s"), 5])
def test_units_that_are_no_texts(unit):
    with pytest.raises((TypeError, ValueError), match="units"):
        TwoStepKEqL(**GIVEN, units={"t": unit}).fit(T, Y)


@pytest.mark.parametrize("zero", [{"u_t": 0.0}, {"u_t": np.timedelta64(1, "s")}])
def test_known_parts_of_nothing(zero):
    with pytest.raises(ValueError, match="known_part"):
        TwoStepKEqL(**GIVEN | {"known_part": zero}).fit(T, Y)


def test_weights_that_are_dates():
    dates = pd.date_range("2020", periods=12, tz="UTC")
    with pytest.raises(ValueError, match="sample_weight holds dates"):
        TwoStepKEqL(**GIVEN).fit(T, Y, sample_weight=dates)
    for y in dates, pd.Series(dates):
        with pytest.raises(ValueError, match="y holds dates"):
            TwoStepKEqL(**GIVEN).fit(T, y)


def test_forcings_with_masks():
    with pytest.raises(ValueError, match="forcing returned a masked array"):
        TwoStepKEqL(**GIVEN | {"forcing": masked_values}).fit(T, Y)


@pytest.mark.slow
def test_times_that_would_take_hours_are_given_up(swing):
    begun = time.process_time()
    with pytest.raises(SimulationError, match="came to t = .* raise max_evaluations"):
        swing.equation_.simulate([0.0, 1e300], {"u": 1.0, "v": 0.5})
    with pytest.raises(
        SimulationError, match="X asks for too far a time|integrated to"
    ):
        swing.forecast([[1e18]])
    assert time.process_time() - begun < 20
    with pytest.raises(ValueError, match="t_eval has times near .* rounded by"):
        swing.equation_.simulate(1e15 + np.linspace(0, 1, 5), {"u": 1.0, "v": 0.5})


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("variables", [], "variables, inputs and n_operators"),
        ("equation_kernel", None, "equation_kernel and inducing_points"),
        ("inducing_points", {"array": [[1.0]]}, "the entry 'inducing_points'"),
    ],
)
def test_entries_of_equations_that_do_not_fit_together(model, entry, value, message):
    with pytest.raises(ValueError, match=message):
        LearnedEquation.from_dict(model.equation_.to_dict() | {entry: value})


def test_a_system_without_equations(swing):
    plain = swing.equation_.to_dict()
    with pytest.raises(ValueError, match="the entry 'equations'"):
        LearnedSystem.from_dict(plain | {"equations": 1.0})
    for wrong in float("nan"), -1, np.timedelta64(1, "s"):
        with pytest.raises(ValueError, match="max_loss must be positive"):
            swing.equation_.sparse(max_loss=wrong, n_terms=1)
    with pytest.raises(ValueError, match="S has 1 column"):
        swing.equation_.extrapolation([[1.0]])


U_X, U_Y = parse_operator("u_x", ("x",)), parse_operator("u_y", ("x", "y"))
PAIR = np.zeros((3, 2))


def a_series(points):
    return pd.Series(np.zeros(len(points)))


U = parse_operator("u", ("x", "y"))
HERE = [(PAIR, U)]
RECORDS = np.zeros(2, dtype=[("a", float), ("b", int)])
BUMP = KernelExpansion(RBF(1.0), HERE, np.ones(3))
KERNELS = [
    (lambda: gram(RBF, HERE), "kernel is the class RBF"),
    (lambda: gram(RBF(1.0), [PAIR]), "rows is "),
    (lambda: gram(RBF(1.0), HERE, []), "columns is "),
    (lambda: gram(RBF(1.0), HERE, [(PAIR[:, :1], U)]), "columns: points has 1 column"),
    (lambda: gram_diagonal(RBF(1.0), PAIR, "u"), "operator: the operator is 'u'"),
    (lambda: BUMP.evaluate(PAIR[:, :1], U), "points has 1 column"),
    (lambda: KernelExpansion(RBF(1.0), HERE, [1.0]).evaluate(PAIR, U), "coefficients"),
    (lambda: SystemKernel(RBF(1.0)), "kernels is RBF"),
    (lambda: SystemKernel({"u": 10**400}), "kernels"),
    (lambda: as_kernel(10**400), "kernel: "),
    (lambda: Constant(1.0)(PAIR, PAIR[:, :0]), "Y has 0 column"),
    (lambda: Polynomial(np.timedelta64(1, "s"))(PAIR), "degree must be"),
    (lambda: Dictionary("abc", 1.0).bind(["x", "y"])(PAIR), "functions is 'abc'"),
    (lambda: Dictionary({"a": 1}, 1.0).bind(["x", "y"])(PAIR), "functions is {'a"),
    (lambda: RBF(1.0, (1.0, 2.0, 3.0)).theta, "length_scale_bounds has the shape"),
    (lambda: RBF(1.0, {1.0}).theta, "length_scale_bounds is {1.0}"),
    (lambda: RBF(1.0, active_dims=0.5).bind(["x"]), "active_dims: "),
    (lambda: Matern(1.0, nu=np.timedelta64(1, "s"))(PAIR), "nu=.* must be positive"),
    (lambda: Sum(RBF(1.0), 0.5)(PAIR), "k2 is 0.5"),
    (lambda: Product(RBF, RBF(1.0))(PAIR), "k1 is the class RBF"),
    (lambda: Exponentiation("abc", 2)(PAIR), "kernel is 'abc'"),
    (lambda: Exponentiation(RBF(1.0), 0.5)(PAIR), "exponent=0.5 must be an integer"),
    (lambda: Exponentiation(RBF(1.0), 10**400)(PAIR), "exponent=1000"),
    (lambda: Constant(np)(PAIR), "constant_value must be positive"),
    (lambda: Constant(1.0)({1.0}), "X is {1.0}"),
    (lambda: RBF(1.0).derivative(PAIR, a="abc", b=(1, 0)), "a is 'abc'"),
    (lambda: RBF(1.0).derivative(PAIR, a=(1, 0), b=(0.5, 0)), r"b=\(0.5, 0\)"),
    (lambda: RBF(1.0).derivative(PAIR, 1.0, a=(1, 0)), "Y has 1 column"),
    (lambda: Restriction(Polynomial(1, 1.0, 0.0), 1)(PAIR), "monomials is 1"),
    (lambda: Restriction(Polynomial(1, 1.0, 0.0), RECORDS)(PAIR), "monomials is array"),
    (lambda: Restriction(10**400, [(1, 0)])(PAIR), "kernel: .*too large"),
    (lambda: FunctionKernel("abc")(PAIR), "function is 'abc'"),
    (lambda: FunctionKernel(lambda x, y: x)(PAIR), "function returned 18 value"),
    (lambda: FunctionKernel(lambda x: x)(PAIR), "function failed"),
    (lambda: parse_monomial("u", {1}), "names is {1}"),
    (lambda: parse_monomial("u", np), "names is <module"),
    (lambda: parse_monomial("", ["u"]), "text '' of a monomial is empty"),
    (lambda: apply_operator("abc", PAIR, U_X), "function is 'abc'"),
    (lambda: apply_operator(a_series, PAIR, U_Y), "function: "),
    (lambda: apply_operator(np.sum, PAIR, 1j), "operator is 1j"),
    (lambda: apply_operator(np.sum, PAIR, U_X), "points has 2 column"),
    (lambda: parse_operator((), ()), "for each of the variables, none"),
]


@pytest.mark.parametrize(("call", "message"), KERNELS)
def test_kernels_and_operators(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def masked(values):
    return np.ma.masked_array(
        values, mask=np.arange(values.size).reshape(values.shape) == 0
    )


def test_measures_of_errors(model):
    S = np.hstack([T, T])
    with pytest.raises(ValueError, match="features is a masked array"):
        equation_error(model.equation_, masked(S), Y)
    with pytest.raises(TypeError, match=r"functions has \[1.0\]"):
        relative_l2_error([1.0], [1.0], functions=np.array([[1.0]]))
    dates = pd.date_range("2020", periods=2, tz="UTC")
    with pytest.raises(ValueError, match="y_pred must be an array of numbers: .*dates"):
        relative_l2_error([1.0, 2.0], dates)
    with pytest.raises(ValueError, match="functions"):
        relative_l2_error([1.0], [1.0], functions=[1, 2])
    with pytest.raises(TypeError, match="solver is None"):
        operator_error(None, T, Y, T, Y)
    with pytest.raises(ValueError, match="X has 0 feature"):
        list(FunctionKFold(2).split(np.zeros((12, 0))))
    with pytest.raises(ValueError, match="always_train"):
        list(FunctionKFold(2, always_train=[[1], [1, 2]]).split(T))


@pytest.mark.slow
def test_data_sets():
    with pytest.raises(ValueError, match="transfer"):
        make_heat_with_boundary_law(transfer=1.7e308)
    with pytest.raises(TypeError, match="noise"):
        make_burgers(5, noise=np.timedelta64(1, "s"))
    shape = np.array([4.0, 5.0])
    assert len(make_burgers(5, collocation_shape=shape).collocation_points) == 12
    for wrong in (4.5, 5), (np.nan, 5), "ab":
        with pytest.raises((ValueError, TypeError), match="collocation_shape"):
            make_burgers(5, collocation_shape=wrong)


DRAWN = [
    (partial(StateDisplay.from_predictions, None, Y), "points is None"),
    (partial(StateDisplay.from_predictions, T + np.inf, Y), "points has the shape"),
    (partial(StateDisplay.from_predictions, T, Y, std=-Y), "std has negative"),
    (partial(PhasePortraitDisplay.from_predictions, Y, None), "u_t is None"),
    (partial(CoefficientDisplay.from_predictions, T[:, :0], Y), "points has the shape"),
    (partial(CoefficientDisplay.from_predictions, T, None), "values is None"),
    (partial(EquationParityDisplay.from_predictions, Y[:0], Y), "given has"),
    (partial(EquationParityDisplay.from_predictions, Y[None, None], Y), "given has"),
    (partial(EquationParityDisplay.from_predictions, Y, Y * np.nan), "predicted has"),
    (partial(EquationParityDisplay.from_predictions, Y, Y, label=1), "label is 1"),
    (partial(LossCurveDisplay.from_predictions, [np.inf]), "loss_curve must be"),
    (partial(LossCurveDisplay.from_predictions, [1.0], "ab"), "damping_curve is 'ab'"),
    (partial(PhasePortraitDisplay.from_predictions, {1.0}, Y), "u is {1.0}"),
    (partial(PhasePortraitDisplay.from_predictions, Y, Y, variable=1), "variable is 1"),
]


@pytest.mark.parametrize(("draw", "message"), DRAWN)
def test_what_is_drawn(draw, message):
    with pytest.raises((ValueError, TypeError), match=message):
        draw()


@pytest.mark.parametrize("place", [np.timedelta64(1, "s"), None, [1.0], "a"])
def test_slices_at_no_number(model, place):
    with pytest.raises((ValueError, TypeError), match=r"(?<!\w)at(?!\w)"):
        StateDisplay.from_estimator(model, at={"t": place})


def test_the_same_state_on_both_axes(swing):
    with pytest.raises(ValueError, match="states=.* the same twice"):
        PhasePortraitDisplay.from_estimator(swing, states=("u", "u"))


def test_paths_of_reports(model, tmp_path):
    report = model.fit_report_
    with pytest.raises(TypeError, match="path is 1.0"):
        report.to_html(1.0)
    with pytest.raises(OSError, match="path=.*No such file"):
        report.to_markdown(tmp_path / "none" / "a.md")


def test_grids_with_infinite_values():
    axes = {"t": [0.0, 1.0], "x": [0.0, 1.0, 2.0]}
    grid = xr.DataArray(np.full((2, 3), np.inf), axes, ("t", "x"), name="u")
    with pytest.raises(ValueError, match="X has infinite values of u"):
        TwoStepKEqL().fit(grid)
    with pytest.raises(ValueError, match="X has complex values of u"):
        TwoStepKEqL().fit(grid * 0 + 1j)
    with pytest.raises(ValueError, match="X is no grid of values but inf"):
        TwoStepKEqL().fit(np.inf)


LINES = ["t,u", *(f"{t:.6g},{np.exp(-t):.6g}" for t in T[:, 0])]


@pytest.mark.parametrize(
    ("lines", "changes", "message"),
    [
        (LINES, {"time": "s"}, "--time s: "),
        (LINES, {"state": "w"}, "--state w: "),
        (LINES, {"function": "rod"}, "--function rod: "),
        (["t,u,u", "0,1,1"], {}, "--state u: "),
        (LINES, {"units": "t=h=s"}, "--units t=h=s must be"),
        ([*LINES, "4,inf"], {}, "'inf' in line 14 of the column 'u'"),
        ([*LINES, "4,1e999"], {}, "that is no finite number"),
        (LINES[:2], {}, "table.csv: X holds 1 observation"),
        (["t,\udcff"], {}, "no table of text in UTF-8"),
    ],
)
def test_the_command(tmp_path, capsys, lines, changes, message):
    path = tmp_path / "table.csv"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    options = {"time": "t", "state": "u"} | changes
    given = [text for name, value in options.items() for text in (f"--{name}", value)]
    assert main([str(path), *given]) == 2
    assert message in capsys.readouterr().err


def test_tables_in_another_order_are_told_from_arrays():
    """A table whose columns are x, t for variables t, x; arrays are as the table."""
    plane = np.random.default_rng(0).uniform(size=(20, 2))
    table = pd.DataFrame(plane, columns=["t", "x"])
    y = np.exp(-plane[:, 0]) * np.sin(plane[:, 1])
    decay = {"variables": ("t", "x"), "observation_noise": 1e-5}
    settings = GIVEN | decay | {"collocation_points": plane[:10]}
    first = TwoStepKEqL(**settings).fit(plane, y)
    other = TwoStepKEqL(**settings).fit(table[["x", "t"]], y)
    np.testing.assert_array_equal(
        other.predict(table[["x", "t"]]), first.predict(plane)
    )
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        other.predict(plane[:, ::-1])


def test_times_of_small_integers_do_not_overflow():
    assert make_duffing(8, t_max=np.uint8(5), n_collocation=20).X.max() <= 5


def test_a_phase_portrait_is_of_a_sequence():
    with pytest.raises(ValueError, match="u has the shape"):
        PhasePortraitDisplay.from_predictions(np.ones((2, 2, 2)), np.ones(8))

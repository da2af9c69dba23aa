"""Elementary functions as values: their derivatives, their names, pickling."""

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from keql._numerics.elementary import (
    EXPONENTS,
    FAMILIES,
    ODD,
    Elementary,
    ElementaryTable,
    at_natural_values,
    origin_of,
    own_factors,
    powers_of_coordinates,
    time_grid,
)

X, SPEED = np.array([0.3, 1.1, 2.4]), np.array([1.0, -2.0, 0.5])


@pytest.mark.parametrize("family", FAMILIES)
def test_slopes_are_those_in_the_logarithm_of_the_parameter(family):
    function, step = Elementary((("v", 2),), family, "u", 1.3), 1e-5

    def at(change):
        return function.with_parameter(1.3 * np.exp(change))(X, SPEED)

    difference = (at(step) - at(-step)) / (2 * step)
    slope = function.in_log_parameter()(X, SPEED)
    np.testing.assert_allclose(slope, difference, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("family", ODD)
def test_odd_functions_change_their_sign_with_the_column(family):
    """With what they are multiplied by; at zero they and their slopes are numbers."""
    [powers] = own_factors(family, "u", [(), (("v", 1),)])
    x = np.array([-2.4, -0.3, 0.0, 0.3, 2.4])
    for f in (Elementary(powers, family, "u", 0.6), Elementary(powers, family, "u")):
        for each in (f, f.in_log_parameter()):
            values = each(x)
            np.testing.assert_allclose(values, -values[::-1], atol=1e-14)
            assert values[2] == 0
    assert own_factors("sin", "u", [(), (("v", 1),)]) == [(), (("v", 1),)]


def test_names():
    names = {
        Elementary(): "1",
        Elementary((("u", 2), ("v", 1))): "u^2 v",
        Elementary((), "sin", "u"): "sin(u)",
        Elementary((("u", 1),), "log", "u", 1 / 3): "u log(0.333 u)",
        Elementary((("u", 1),), "peak", "u", 2.5): "u/(2.5 + u^2)",
        Elementary((), "pole", "u", 2.5): "1/(2.5 + u)",
        Elementary((), "exp", "t", -1.0): "exp(-t)",
        Elementary((("u", 1),), "abs", "u"): "u |u|",
        Elementary((("u", 1),), "abs", "u", 0.5): "u |u|^0.5",
        Elementary((), "tanh", "u", 3.0): "tanh(3 u)",
        Elementary((("u", 4),), "hill4", "u", 16.0): "u^4/(16 + u^4)",
        Elementary((("v", 1),), "arrhenius", "u", 6.0): "v exp(-6/u)",
        Elementary((("v", 1),), "power", "u", -1.5, squares=("v", "w")): (
            "v (u^2 + v^2 + w^2)^-1.5"
        ),
        Elementary((), "power", "u", -1.0, flux=("u_x", "u_xx")): "(u^-1 u_x)_x",
        Elementary((), "exp", "v", 2.0, flux=("v_y", "v_yy")): "(exp(2 v) v_y)_y",
        Elementary((), "sin", "t", 1.7, origin=2010.5): "sin(1.7 (t - 2010.5))",
        Elementary((), "exp", "t", -1.0, origin=-30.0): "exp(-(t + 30))",
        Elementary.power_above(2010.0, "t", 1): "(t - 2010)",
        Elementary.power_above(1.7e9, "t", 2, (("u", 1),)): "u (t - 1700000000)^2",
        Elementary.power_above(0.0, "t", 1, (("u", 1),)): "t u",
    }
    assert {function: function.name for function in names} == names


@pytest.mark.parametrize("family, k", [("power", -1.3), ("power", 2.0), ("exp", 0.7)])
def test_a_diffusion_is_the_slope_of_its_flux(family, k):
    """Of u = 2 + sin(x): differences of f(u) u_x in x, and of both in log k."""
    x, step = np.linspace(0, 3, 7), 1e-5
    function = Elementary((), family, "u", k, flux=("u_x", "u_xx"))
    at = 2 + np.sin(x), np.cos(x), -np.sin(x)

    def flux(x, k):
        u = 2 + np.sin(x)
        return (u**k if family == "power" else np.exp(k * u)) * np.cos(x)

    def slope(k):
        return (flux(x + step, k) - flux(x - step, k)) / (2 * step)

    np.testing.assert_allclose(function(*at), slope(k), rtol=1e-7, atol=1e-7)
    by = np.exp(1e-4)
    rise = (function.with_parameter(k * by)(*at) - function(*at)) / 1e-4
    found = function.in_log_parameter()(*at)
    np.testing.assert_allclose(found, rise, rtol=1e-2, atol=1e-3)
    assert function.columns == ["u", "u_x", "u_xx"]


def test_a_diffusion_in_symbols():
    sympy = pytest.importorskip("sympy")
    function = Elementary((), "power", "u", 3.0, flux=("u_x", "u_xx"))
    x = sympy.Symbol("x")
    table = {"x": x, "u": x**2, "u_x": 2 * x}
    found = function.sympy(sympy, table)
    assert float(found.subs(x, 1.5)) == pytest.approx(14 * 1.5**6)
    latex = function.latex({"u": "u", "u_x": "u_{x}"})
    assert latex == r"(u^{3} \, u_{x})_{x}"


def test_powers_of_one_column_are_one():
    function = Elementary((("u", 1), ("v", 1)), "power", "u", -0.5)
    assert function.with_one_power.name == "v u^0.5"
    assert Elementary((("u", 1),), "power", "u", -1.0).with_one_power is None
    for other in (Elementary((("v", 1),), "power", "u", 0.5), Elementary((("u", 1),))):
        assert other.with_one_power == other
    one = function.with_one_power
    np.testing.assert_allclose(one(X, SPEED), X**0.5 * SPEED, rtol=1e-14)
    np.testing.assert_allclose(function(X, SPEED), one(X, SPEED), rtol=1e-14)


@pytest.mark.parametrize(
    "first, span, origin",
    [
        (0.0, 12.0, 0.0),
        (11.0, 12.0, 0.0),  # less than what was observed after zero
        (-5.0, 12.0, 0.0),
        (2010.0, 12.0, 2010.0),
        (2010.3, 1.2, 2010.3),
        (2010.34, 12.0, 2010.0),
        (-2010.4, 12.0, -2011.0),
        (1700000123.0, 1e4, 1.7e9),
        (2010.3, 0.012, 2010.3),
        (5.0, 0.0, 0.0),
    ],
)
def test_times_far_from_zero_are_counted_from_a_round_number(first, span, origin):
    t = first + np.linspace(0, span, 5)
    assert origin_of(t, 1.0) == pytest.approx(origin, rel=1e-14)


def test_far_times_have_no_powers_of_a_beginning():
    t = np.linspace(0.4, 12, 7)
    with_powers, without = ([*time_grid(t, 3, own)] for own in (True, False))
    assert {*with_powers} - {*without} == {p for p in with_powers if p[0] == "power"}


def test_an_origin_moves_the_argument():
    sympy = pytest.importorskip("sympy")
    function = Elementary((("u", 1),), "cos", "t", 1.7, origin=2010.0)
    here = replace(function, origin=0.0)
    np.testing.assert_allclose(function(X + 2010, SPEED), here(X, SPEED), atol=1e-12)
    line = Elementary.power_above(2010.0, "t", 1)
    assert line.is_product and not (function.is_product or line.is_free)
    assert not Elementary((), "power", "u", -1.0, is_held=True).is_product
    t = sympy.Symbol("t")
    assert line.sympy(sympy, {"t": t}) == t - 2010
    assert line.latex({"t": "t"}) == "(t - 2010)"
    assert function.latex({"t": "t"}) == r"\cos(1.7 \, (t - 2010))"


def test_the_power_of_a_distance():
    """Values, slopes in the columns by differences, formulas; not one power."""
    sympy = pytest.importorskip("sympy")
    f = Elementary((("v", 1),), "power", "u", -1.5, is_held=True, squares=("v",))
    S, step = np.column_stack([X, SPEED]), 1e-6
    table = ElementaryTable([f, Elementary((), "sin", "u", reference="v")], ["u", "v"])
    expected = [SPEED * (X**2 + SPEED**2) ** -1.5, np.sin(X - SPEED)]
    np.testing.assert_allclose(table(S), expected, rtol=1e-14)
    np.testing.assert_allclose(f(X, SPEED), expected[0], rtol=1e-14)
    for column, slope in enumerate(table.derivatives(S, [0, 1])):
        shift = step * np.eye(2)[column]
        difference = (table(S + shift) - table(S - shift)) / (2 * step)
        np.testing.assert_allclose(slope, difference, rtol=1e-7, atol=1e-9)
    u, v = sympy.symbols("u v")
    last = f.sympy(sympy, {"u": u, "v": v})
    assert float(last.subs({u: 3, v: 4})) == pytest.approx(5**-3)
    assert f.latex({"u": "u", "v": "v"}) == "(u^{2} + v^{2})^{-1.5}"
    assert f.with_one_power == f and f.is_natural and f.depends_on == {"u", "v"}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_degree_of_a_function_is_that_of_its_unit(family):
    """A function of c x and c^n k, or of k/c, is c^degree times that of x and k."""
    c, x, k = 2.0, 0.7, 0.5
    function = Elementary((), family, "u", k)
    if family in ("power", "abs"):
        expected, moved = Fraction(1, 2), k
        assert function.with_parameter(0.123).degree is None
    else:
        expected = {"pole": -1, "peak": -2, "hill3": -3, "hill4": -4}.get(family, 0)
        moved = (
            k * c if family == "arrhenius" else k * c**-expected if expected else k / c
        )
    assert function.degree == expected
    ratio = function.with_parameter(moved)(c * x) / function(x)
    assert ratio == pytest.approx(c ** float(expected), rel=1e-14)


def test_they_pickle():
    function = Elementary((("v", 1),), "exp", "u", -0.5)
    copy = pickle.loads(pickle.dumps(function))
    assert copy == function
    np.testing.assert_array_equal(copy(X, SPEED), function(X, SPEED))


def test_natural_exponents_are_ratios_of_small_numbers():
    """Those of Torricelli, of spheres, of gravity, of heat that is radiated, of stars.

    Whole ones up to three are those of products.
    """
    positive = [1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 2, 4, 5]
    negative = [-1 / 4, -1 / 3, -1 / 2, -2 / 3, -1, -3 / 2, -2, -3, -4]
    assert sorted(EXPONENTS) == sorted(positive + negative)
    found = [*at_natural_values(Elementary((("v", 1),), "power", "u", 0.35), X)]
    assert [f.parameter for f in found] == [*EXPONENTS]
    assert all(f.is_natural and not f.is_free and f.powers for f in found)
    assert not any(at_natural_values(Elementary((), "exp", "u"), X))


@pytest.mark.parametrize("unit", [1.0, np.pi / 180, 2 * np.pi])
def test_an_angle_may_be_in_radians_degrees_or_turns(unit):
    """A swing of two radians is one in any of these: its sine has the same values."""
    x = np.linspace(-2, 1.5, 20)
    found = [*at_natural_values(Elementary((), "sin", "u", 0.3), x / unit)]
    [same] = [f for f in found if f.parameter == unit]
    assert same.is_natural
    np.testing.assert_allclose(same(x / unit), np.sin(x), atol=1e-14)
    assert not any(at_natural_values(same, 1e-5 * x))  # sin(u) is u there
    far = np.linspace(0, 80, 60) / unit  # 4.7 values for each turn
    for begins, n_times, is_tried in [(0, 60, True), (0, 40, False), (500, 60, False)]:
        found = [*at_natural_values(same, far + begins / unit, n_times=n_times)]
        assert (same in found) == is_tried
    turning = replace(same, powers=(("v", 1),)), replace(same, powers=(("u", 1),))
    found = [[*at_natural_values(f, x / unit)] for f in turning]
    assert found[0] and not found[1]


def test_a_natural_parameter_is_held_at_its_value():
    sine = Elementary((), "sin", "u", 1.0, is_held=True)
    assert sine.is_natural and sine.name == "sin(u)"
    assert not replace(sine, parameter=1.01).is_natural
    assert not replace(sine, is_held=False).is_natural
    assert not Elementary((("u", 1),)).is_natural


def test_of_which_columns_a_function_is():
    assert Elementary((("u", 1), ("x", 2))).depends_on == {"u", "x"}
    assert Elementary((("u_x", 1),), "sin", "u").depends_on == {"u", "u_x"}
    assert Elementary(()).depends_on == set()
    flux = Elementary((), "exp", "u", flux=("u_x", "u_xx"))
    assert flux.depends_on == {"u", "u_x", "u_xx"}


@pytest.mark.parametrize(
    ("first", "last", "are_distances"),
    [(0.4, 3.4, True), (-1.0, 1.0, False), (0.05, 1.0, False), (10.0, 11.0, False)],
)
def test_a_coordinate_is_a_distance_if_it_begins_near_zero(first, last, are_distances):
    found = powers_of_coordinates(np.linspace(first, last, 5))
    assert found == ((2.0, -1.0, -2.0) if are_distances else (2.0,))

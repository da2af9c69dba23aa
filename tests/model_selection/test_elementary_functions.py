"""Elementary functions among the terms of ordinary differential equations."""

import json
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import j0, jv
from sklearn.exceptions import ConvergenceWarning

from keql import LearnedEquation, OneStepKEqL
from keql._numerics.elementary import Elementary
from keql._regression.functions.search import ElementarySearch
from keql._regression.functions.settings import ElementarySettings
from keql._regression.functions.terms import Term, falls_short
from keql._regression.two_step import Hypothesis
from keql.exceptions import IdentifiabilityWarning
from keql.kernels import RBF, Dictionary
from keql.model_selection._criteria import Criteria, odds_between
from keql.model_selection._terms._functions import or_first_powers

SINE = Elementary((), "sin", "u", 1.0, is_held=True)
U_CUBED = Elementary((("u", 3),))


def trajectory(rate, initial, t_end, n):
    """Times (n, 1) and exact values (n,) of the first of some states."""
    t = np.linspace(0, t_end, n)
    found = solve_ivp(
        rate, (0, t_end), initial, "DOP853", t_eval=t, rtol=1e-12, atol=1e-13
    )
    return t[:, None], found.y[0]


def gompertz(t, u):
    return -0.8 * u * np.log(u / 3)


def pendulum(t, state):
    return [state[1], -np.sin(state[0]) - 0.2 * state[1]]


def first_order():
    """An estimator for u' = P(u)."""
    return OneStepKEqL(("u",), "u_t", variables=("t",))


@pytest.fixture(scope="module")
def pendulum_model():
    """A fit of a damped pendulum to 40 exact values."""
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",), n_terms="auto")
    return model.fit(*trajectory(pendulum, [2.5, 0.0], 20, 40))


@pytest.fixture(scope="module")
def swinging(pendulum_model):
    """Its equation."""
    return pendulum_model.equation_


def test_a_pendulum_has_a_sine(swinging):
    terms = swinging.terms()
    assert set(terms) == {"sin(u)", "u_t"}
    np.testing.assert_allclose([terms["sin(u)"], terms["u_t"]], [-1, -0.2], rtol=1e-6)
    [sine] = [f for f in swinging.equation_kernel.functions.values() if f.family]
    assert abs(sine.parameter - 1) < 1e-6


def test_it_swings_as_the_truth_does(swinging):
    t, u = trajectory(pendulum, [1.0, 0.5], 10, 20)
    np.testing.assert_allclose(
        swinging.simulate(t[:, 0], [1.0, 0.5])[:, 0], u, atol=1e-6
    )


def test_it_is_written_in_all_formats(swinging):
    assert str(swinging) == "u_tt = -1.00 sin(u) - 0.200 u_t"
    assert swinging.to_latex() == r"u_{tt} = -1.00 \sin(u) - 0.200 u_{t}"


def test_sympy_knows_its_functions(swinging):
    sympy = pytest.importorskip("sympy")
    expression = swinging.to_sympy().rhs
    assert expression.atoms(sympy.sin)


def test_it_is_saved(swinging):
    S = np.array([[0.0, 0.3, -0.4], [1.0, 2.0, 0.5]])
    plain = json.loads(json.dumps(swinging.to_dict()))
    for copy in (
        LearnedEquation.from_dict(plain),
        pickle.loads(pickle.dumps(swinging)),
    ):
        np.testing.assert_array_equal(copy.unknown_part(S), swinging.unknown_part(S))
        assert str(copy) == str(swinging)


def test_the_model_is_saved_with_its_states(pendulum_model):
    again, t = pickle.loads(pickle.dumps(pendulum_model)), np.linspace(0, 25, 11)
    for X in (t[:9, None], t[:9, None] * 0.3):
        np.testing.assert_array_equal(again.predict(X), pendulum_model.predict(X))
    later = [each.forecast(t[:, None]) for each in (again, pendulum_model)]
    np.testing.assert_array_equal(*later)


def test_a_model_with_a_free_form_is_saved():
    t = np.linspace(0, 6, 30)[:, None]
    model = first_order().set_params(equation_kernel=RBF(1.0))
    model.fit(t, 1 / (1 + 3 * np.exp(-t[:, 0])))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(t), model.predict(t))


@pytest.mark.parametrize("unit, name", [(1, "sin(u)"), (180 / np.pi, "sin(0.01745 u)")])
def test_a_noisy_pendulum_has_the_sine_of_an_angle(unit, name):
    """In radians and in degrees: no frequency is estimated."""
    t, u = trajectory(lambda t, s: [s[1], -np.sin(s[0])], [2.5, 0.0], 20, 40)
    noise = 0.02 * np.std(u) * np.random.default_rng((0, 77)).standard_normal(40)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",))
    with warnings.catch_warnings(record=True, action="always"):
        model.fit(t, unit * (u + noise))
    [(found, value)] = model.equation_.terms().items()
    assert found == name
    assert value / unit == pytest.approx(-1, abs=0.01)


def test_products_that_are_found_beside_functions_have_no_odds_against_them():
    """They came back with sin(u) for u: both were 3 less probable than polynomials."""
    offered = SimpleNamespace(kinds=np.array([[0, 0], [0, 1], [0, 2]]))
    settings = ElementarySettings(against=Criteria().elementary)
    search = ElementarySearch(None, offered, settings, None)
    model = SimpleNamespace(log_evidence=lambda: 10.0)
    functions = Elementary((("u", 1),)), Elementary((), "exp", "u"), SINE
    for i, function in enumerate(functions):
        found = search._score(model, [Term(0, function, i)])
        against = Criteria().elementary if i else 0.0
        assert found == 10.0 + search.odds([i]) - against


@pytest.mark.parametrize(
    ("functions", "score", "expected"),
    [
        ((SINE, U_CUBED), 2.0, ["u_xx", "u"]),
        ((SINE, U_CUBED), 0.5, ["u_xx", "sin(u)", "u^3"]),  # it is less probable
        ((SINE,), 2.0, ["u_xx", "sin(u)"]),
        ((Elementary((("u", 2),)), U_CUBED), 2.0, ["u_xx", "u^2", "u^3"]),
        (
            (Elementary((("x", 1),), "sin", "u"), SINE),
            2.0,
            ["u_xx", "x sin(u)", "sin(u)"],
        ),
    ],
)
def test_an_operator_in_the_place_of_functions_of_it_alone(functions, score, expected):
    """If it is more probable than two of them and more."""
    offered = [Elementary(((name, 1),)) for name in ("x", "u", "u_xx")]
    offered = [Term(0, f, i) for i, f in enumerate([*offered, Elementary(())])]
    terms = [offered[2], *(Term(0, f, 9) for f in functions)]
    best = SimpleNamespace(
        terms=terms,
        values=np.arange(1.0, len(terms) + 1),
        iterate="there",
        model=SimpleNamespace(problem="fine"),
        score=1.0,
    )

    def solve(problem, terms, values, iterate):
        assert (problem, iterate) == ("fine", "there")
        np.testing.assert_array_equal(values, [1.0, 0.0])
        return SimpleNamespace(**vars(best) | {"terms": terms, "score": score})

    search = SimpleNamespace(
        offered=SimpleNamespace(terms=offered), solve=solve, is_stopped=False
    )
    found = or_first_powers(search, best)
    assert [term.function.name for term in found.terms] == expected


@pytest.mark.slow
def test_a_law_of_prices_has_powers_of_the_price():
    """u_t = 0.1 x^2 u_xx + 0.05 x u_x - 0.05 u, after Black and Scholes.

    With s = log x it is u_t = 0.1 u_ss - 0.05 u_s - 0.05 u, which waves in s obey.
    """
    rng = np.random.default_rng(0)
    points = rng.uniform((0, 1), (2, 4), (120, 2))
    t, s = points[:, 0], np.log(points[:, 1])
    u = np.zeros(len(t))
    for k, size, phase in ((1.3, 1.0, 0.2), (2.4, 0.6, 1.1), (3.6, 0.4, 2.0)):
        decay = np.exp(-(0.1 * k**2 + 0.05) * t)
        u += size * decay * np.cos(k * (s - 0.05 * t) + phase)
    given = {"known_part": "u_t", "variables": ("t", "x")}
    found = OneStepKEqL(("u", "u_x", "u_xx"), **given).fit(points, u).equation_.terms()
    expected = {"u_xx x^2": 0.1, "x u_x": 0.05, "u": -0.05}
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_a_noisy_tank_empties_with_a_square_root(unit):
    """In any unit: exponents have none."""
    t, u = trajectory(lambda t, u: -0.4 * np.sqrt(u), [2.0], 5, 30)
    noise = 0.02 * np.std(u) * np.random.default_rng((0, 77)).standard_normal(30)
    with warnings.catch_warnings(record=True, action="always"):
        equation = first_order().fit(t, unit * (u + noise)).equation_
    [(name, value)] = equation.terms().items()
    assert name == "u^0.5"
    assert value / unit**0.5 == pytest.approx(-0.4, rel=0.01)


@pytest.mark.parametrize("power", [0.6, 0.53])
def test_other_exponents_are_found_in_exact_data(power, recwarn):
    equation = first_order().fit(
        *trajectory(lambda t, u: -0.4 * u**power, [2.0], 5, 30)
    )
    assert str(equation.equation_) == f"u_t = -0.400 u^{power}"
    assert not recwarn.list


@pytest.mark.slow
@pytest.mark.parametrize("k", [1.05, 0.95])
def test_other_frequencies_are_found_in_exact_data_and_told_in_noise(k, recwarn):
    t, u = trajectory(lambda t, s: [s[1], -np.sin(k * s[0])], [2.2, 0.0], 20, 40)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",)).fit(t, u)
    assert str(model.equation_) == f"u_tt = -1.00 sin({k} u)" and not recwarn.list
    noise = 0.02 * np.std(u) * np.random.default_rng(0).standard_normal(40)
    with pytest.warns(IdentifiabilityWarning, match="do not tell the terms from other"):
        model.fit(t, u + noise)


@pytest.mark.parametrize("units", [1.0, 1e3])
def test_a_function_is_found_in_any_units(units):
    t, u = trajectory(gompertz, [0.1], 8, 30)
    equation = first_order().fit(units * t, units * u).equation_
    [function] = equation.equation_kernel.functions.values()
    assert (function.family, function.powers) == ("log", (("u", 1),))
    np.testing.assert_allclose(function.parameter * 3 * units, 1, rtol=1e-6)
    [value] = equation.terms().values()
    np.testing.assert_allclose(value * units, -0.8, rtol=1e-6)


@pytest.mark.slow
def test_a_bessel_function_has_an_equation_with_a_power_of_time():
    t = np.linspace(0, 12, 40)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",)).fit(
        t[:, None], j0(t + 0.5)
    )
    assert str(model.equation_) == "u_tt = -1.00 u - 1.00 u_t/(0.5 + t)"


@pytest.mark.parametrize("noise", [0.0, pytest.param(0.02, marks=pytest.mark.slow)])
def test_a_dose_beside_what_saturates(noise):
    """u_t = d - 1.4 u/(0.7 + u), for four doses d; from zero, where roots end."""
    doses, starts, t = [0.2, 1.0, 0.5, 0.8], [0.0, 0.0, 3.0, 1.0], np.linspace(0, 6, 10)
    how = {"method": "DOP853", "t_eval": t, "rtol": 1e-11, "atol": 1e-13}

    def solution(dose, start):
        def rate(_, u):
            return dose - 1.4 * u / (0.7 + u)

        return solve_ivp(rate, (0, 6), [start], **how).y[0]

    u = [*map(solution, doses, starts)]
    y, runs = np.concatenate(u), np.repeat(np.arange(4.0), 10)
    y = y + noise * np.std(y) * np.random.default_rng(0).standard_normal(len(y))
    given = {"variables": ("t",), "inputs": {"dose": dict(enumerate(doses))}}
    model = OneStepKEqL("u", "u_t", function_column=1, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if noise else "error", IdentifiabilityWarning)
        model.fit(np.column_stack([np.tile(t, 4), runs]), y)
    terms = model.equation_.terms()
    assert len(terms) == 2
    (saturating,) = set(terms) - {"dose"}
    assert terms["dose"] == pytest.approx(1.0, rel=1e-9 + 2 * noise)
    assert saturating.startswith("u/(0.7" if not noise else "u/(")
    assert terms[saturating] == pytest.approx(-1.4, rel=1e-9 + 5 * noise)


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 2])
def test_what_spreads_on_a_disc_has_distances_from_its_centre(order):
    """u_t = (u_xx + u_x/x - m^2 u/x^2)/5, three Bessel functions of the order m."""
    numbers, sizes = np.array([0.8, 1.9, 3.1]), np.array([1.0, 0.8, -0.7])
    points = np.random.default_rng(2).uniform((0, 0.4), (2, 3.4), (110, 2))
    t, x = points[:, :1], points[:, 1:]
    u = (jv(order, numbers * x) * np.exp(-0.2 * t * numbers**2)) @ sizes
    given = {"known_part": "u_t", "variables": ("t", "x")}
    found = OneStepKEqL(("u", "u_x", "u_xx"), **given).fit(points, u).equation_.terms()
    expected = {"u_xx": 0.2, "u_x x^-1": 0.2}
    if order:
        expected["u x^-2"] = -0.2 * order**2
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_trap_has_the_square_of_the_distance_from_its_centre(noise):
    """u_t = (u_xx - x^2 u)/2, three of Hermite's functions."""
    rng = np.random.default_rng(0)
    points = rng.uniform((0, -2), (1.5, 2), (120, 2))
    t, x = points.T
    u = 0.0
    for rate, factor in ((0.5, 1.0), (1.5, 1.2 * x), (2.5, 1.2 * x**2 - 0.6)):
        u = u + factor * np.exp(-rate * t - x**2 / 2)
    u = u + noise * np.std(u) * rng.standard_normal(len(u))
    given = {"known_part": "u_t", "variables": ("t", "x")}
    with warnings.catch_warnings():  # with noise a function may be by chance
        warnings.simplefilter("ignore" if noise else "error", IdentifiabilityWarning)
        model = OneStepKEqL(("u", "u_x", "u_xx"), **given).fit(points, u)
    found, expected = model.equation_.terms(), {"u_xx": 0.5, "u x^2": -0.5}
    assert found == pytest.approx(expected, rel=max(1e-4, 5 * noise))


@pytest.mark.slow
def test_steps_that_were_shortened_once_end_as_steps_of_newton_do(recwarn):
    """The inner parameter is known to 1e-10, where half steps ended at 4e-10."""
    t, u = trajectory(lambda t, u: np.sin(t) * u - 0.3 * u**2, [1.0], 12, 40)
    model = first_order().fit(t, u)
    functions = model.equation_.equation_kernel.functions.values()
    [wave] = [f for f in functions if f.family]
    assert wave.family == "sin" and abs(wave.parameter - 1) < 1e-10
    np.testing.assert_allclose(model.predict(t), u, atol=1e-10)
    assert not [w for w in recwarn if w.category is IdentifiabilityWarning]


@pytest.mark.slow
def test_a_function_is_found_where_two_steps_take_noise_for_a_motion():
    """Two swings of a pendulum with 2 % noise were a cubic, told by nothing.

    With a frequency that had to be estimated there were rivals of the sine.
    """

    def rate(t, state):
        return [state[1], -2 * np.sin(state[0]) - 0.1 * state[1]]

    swings = [trajectory(rate, [u, 0.0], 8, 20) for u in (1.0, 2.6)]
    X = np.vstack([np.c_[t, np.full(20, k)] for k, (t, _) in enumerate(swings)])
    u = np.concatenate([u for _, u in swings])
    noise = 0.02 * np.std(u) * np.random.default_rng(1).standard_normal(40)
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",), function_column=1)
    terms = model.fit(X, u + noise).equation_.terms()
    assert terms == pytest.approx({"sin(u)": -2.0, "u_t": -0.1}, abs=0.02)


@pytest.mark.slow
def test_two_coupled_pendulums_have_two_sines():
    """Those found along the states lead to a sine in the place of two terms."""

    def rate(t, state):
        u, v, *speeds = state
        return [*speeds, -np.sin(u) - 0.3 * (u - v), -np.sin(v) + 0.3 * (u - v)]

    t = np.linspace(0, 20, 80)
    how = {"t_eval": t, "rtol": 1e-12, "atol": 1e-12}
    y = solve_ivp(rate, (0, 20), [1.8, -0.4, 0, 0], "DOP853", **how).y[:2].T
    operators = ("u", "v", "u_t", "v_t")
    model = OneStepKEqL(operators, ("u_tt", "v_tt"), variables=("t",))
    equation = model.set_params(states=("u", "v")).fit(t[:, None], y).equation_
    assert equation["u_tt"].terms() == pytest.approx(
        {"sin(u)": -1.0, "u": -0.3, "v": 0.3}
    )
    assert equation["v_tt"].terms() == pytest.approx(
        {"sin(v)": -1.0, "u": 0.3, "v": -0.3}
    )


@pytest.mark.slow
def test_three_states_have_functions_where_data_are_exact():
    """The cyclically symmetric system of R. Thomas, Int. J. Bifurc. Chaos 9, 1999."""

    def rate(t, state):
        return np.sin(np.roll(state, -1)) - 0.2 * state

    t = np.linspace(0, 20, 80)
    how = {"t_eval": t, "rtol": 1e-12, "atol": 1e-12}
    y = solve_ivp(rate, (0, 20), [1.0, 0.5, -0.5], "DOP853", **how).y.T
    names = ("x", "y", "z")
    model = OneStepKEqL(names, tuple(f"{x}_t" for x in names), variables=("t",))
    equation = model.set_params(states=names).fit(t[:, None], y).equation_
    for name, other in zip(names, ("y", "z", "x"), strict=True):
        expected = {f"sin({other})": 1.0, name: -0.2}
        assert equation[f"{name}_t"].terms() == pytest.approx(expected)


def test_a_logarithm_is_a_line_in_its_parameter_however_far():
    """Gompertz' growth, the parameter of which is eleven times that of the table."""
    t = np.linspace(0, 10, 100)
    u = np.exp(np.log(2.29 * 1.73) * np.exp(0.032 * t)) / 2.29
    equation = first_order().fit(t[:, None], u).equation_
    assert str(equation) == "u_t = 0.0320 u log(2.29 u)"


def test_polynomials_with_noise_stay_polynomials():
    t, u = trajectory(lambda t, u: u - u**2, [0.1], 6, 25)
    rng = np.random.default_rng(0)
    model = first_order().fit(t, u + 0.002 * rng.standard_normal(25))
    assert set(model.equation_.terms()) == {"u", "u^2"}


def of_x_and_y():
    return OneStepKEqL(
        operators=("x", "y"),
        known_part=("x_t", "y_t"),
        states=("x", "y"),
        variables=("t",),
        n_terms="auto",
    )


@pytest.mark.slow
def test_a_system_whose_angle_turns_round():
    def turning(t, state):
        return [state[1], 1.67 - np.sin(state[0]) - 0.64 * state[1]]

    t = np.linspace(0, 10, 80)
    found = solve_ivp(
        turning, (0, 10), [1.47, -0.2], "DOP853", t_eval=t, rtol=1e-12, atol=1e-12
    )
    model = of_x_and_y().fit(t[:, None], found.y.T)
    text = str(model.equation_).splitlines()
    assert text[0].endswith("x_t = 1.00 y")
    assert {*text[1].split(" = ")[1].split(" - ")} == {
        "1.67",
        "0.640 y",
        "1.00 sin(x)",
    }


@pytest.mark.slow
def test_terms_that_stand_in_for_others_are_in_doubt():
    """Two eyes, of which one wins: cubic polynomials meet 150 exact values to 4e-7."""

    def rivals(t, state):
        x, y = state
        drives = (1 / (1 + np.exp(4.89 * other - 1.4)) for other in (y, x))
        return [drive - own for drive, own in zip(drives, state, strict=True)]

    t = np.linspace(0, 10, 150)
    found = solve_ivp(
        rivals, (0, 10), [0.65, 0.59], "DOP853", t_eval=t, rtol=1e-12, atol=1e-13
    )
    model = of_x_and_y()
    with pytest.warns(IdentifiabilityWarning, match="missed by"):
        model.fit(t[:, None], found.y.T)


@pytest.mark.slow
@pytest.mark.parametrize("rounding", [0.0, 1e-12])
def test_forms_that_a_small_range_does_not_tell_apart_are_named(rounding):
    """Growth with predation, from 0.9 to where both are in balance.

    Other forms come as near as 1e-9: rounding errors decide whether it is found.
    """
    t, u = trajectory(lambda t, u: u - u**2 - 0.3 * u / (0.2 + u), [0.9], 8, 30)
    u = u + rounding * np.random.default_rng(0).standard_normal(30)
    with warnings.catch_warnings(record=True, action="always") as caught:
        equation = first_order().fit(t, u).equation_
    is_right = str(equation) == "u_t = 1.00 u - 1.00 u^2 - 0.300 u/(0.2 + u)"
    kinds = {each.category for each in caught}
    assert kinds == (set() if is_right else {IdentifiabilityWarning})
    assert is_right or "in doubt" in repr(equation)


@pytest.mark.slow
def test_a_form_that_polynomials_do_not_lead_to_is_found_along_the_states():
    t, u = trajectory(lambda t, u: 0.9 * u / (0.5 + u) - 0.4 * u, [0.1], 10, 30)
    equation = first_order().fit(t, u).equation_
    assert str(equation) == "u_t = 0.900 u/(0.5 + u) - 0.400 u"


@pytest.mark.slow
def test_forms_that_noise_does_not_tell_apart_are_named():
    """An uptake that saturates: nothing is within the noise that two steps find."""
    t, u = trajectory(lambda t, u: -u / (0.4 + u), [2.0], 4, 25)
    noise = 0.02 * np.std(u) * np.random.default_rng((1, 77)).standard_normal(25)
    model = first_order()
    with pytest.warns(IdentifiabilityWarning, match="do not tell the terms from other"):
        model.fit(t, u + noise)
    tried = [step.terms for step in model.terms_path_ if step.log_evidence > 0]
    assert any("u/(0.4" in name for terms in tried for name in terms)


@pytest.mark.slow
def test_small_systematic_residuals_are_not_noise():
    """Friction on one side, whose kink smooth functions miss, is in no other form."""
    t, u = trajectory(
        lambda t, s: [s[1], -s[0] - 0.3 * max(s[1] - 0.5, 0.0) ** 2], [2.0, 0.0], 12, 40
    )
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",))
    with pytest.warns(IdentifiabilityWarning, match="missed by"):
        model.fit(t, u)


def drag(t, state):
    return [state[1], -state[0] - 0.3 * abs(state[1]) * state[1]]


def saturating(t, state):
    return [state[1], -1.3 * state[0] - 0.4 * np.tanh(3 * state[1])]


@pytest.mark.slow
@pytest.mark.parametrize("rate, friction", [(drag, -0.3), (saturating, -0.4)])
def test_drag_and_friction_that_saturates_are_found(rate, friction):
    """From exact values, steps being short where a kink is; with no warning."""
    t, u = trajectory(rate, [2.0, 0.0], 12, 40)
    found = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",)).fit(t, u).equation_
    name = "u_t |u_t|" if rate is drag else "tanh(3 u_t)"
    terms = found.terms()
    assert set(terms) == {"u", name}
    np.testing.assert_allclose(terms[name], friction, rtol=1e-6)
    S = np.array([[0.0, 0.3, -0.4], [1.0, 2.0, 0.5], [0.0, 1.0, 0.0]])
    expected = np.array([rate(0, row[1:])[1] for row in S])
    np.testing.assert_allclose(-found.unknown_part(S), expected, atol=1e-6)
    copy = LearnedEquation.from_dict(json.loads(json.dumps(found.to_dict())))
    np.testing.assert_array_equal(copy.unknown_part(S), found.unknown_part(S))
    sizes = {"u_t |u_t|": r"\lvert u_{t} \rvert", "tanh(3 u_t)": r"\tanh(3 \, u_{t})"}
    assert sizes[name] in found.to_latex()


def test_friction_that_saturates_is_found_within_noise():
    """A factor that depends on time, as it stood in for it, is told as a rival."""
    t, u = trajectory(saturating, [2.0, 0.0], 12, 45)
    noise = 0.02 * np.std(u) * np.random.default_rng((0, 77)).standard_normal(len(u))
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",))
    with pytest.warns(IdentifiabilityWarning, match=r"t\^2 u_t, u_t instead of tanh"):
        found = model.fit(t, u + noise).equation_
    assert len(found.terms()) == 2 and found.terms()["u"] == pytest.approx(
        -1.3, rel=0.02
    )
    v = np.linspace(-2, 2, 9)
    S = np.column_stack([0 * v, 0 * v, v])
    expected = 0.4 * np.tanh(3 * v)
    np.testing.assert_allclose(found.unknown_part(S), expected, atol=0.01)


def test_prior_odds_do_not_depend_on_what_is_compared_first():
    criteria = Criteria()
    names = ["quadratic polynomial", "cubic polynomial"], ["quartic polynomial"]
    plain, wider = (SimpleNamespace(hypothesis=Hypothesis(name=n[0])) for n in names)
    functions = SimpleNamespace(hypothesis=Hypothesis(name="elementary functions"))
    plain.has_functions = wider.has_functions = False
    functions.has_functions = True
    given = *names, criteria
    in_steps = odds_between(plain, wider, *given) + odds_between(
        wider, functions, *given
    )
    assert odds_between(plain, functions, *given) == in_steps == 0
    assert odds_between(plain, wider, *given) == criteria.wider


def logistic(u):
    return u * (1 - u)


def square_root(u):
    return u**0.5


def linear(u):
    return u


def test_terms_of_a_dictionary_are_chosen():
    t, u = trajectory(lambda t, u: u - u**2, [0.1], 6, 25)
    functions = {"u(1 - u)": logistic, "sqrt(u)": square_root, "u": linear}
    model = OneStepKEqL(
        ("u",),
        "u_t",
        variables=("t",),
        equation_kernel=Dictionary(functions),
        n_terms="auto",
    ).fit(t, u)
    terms = model.equation_.terms()
    assert set(terms) == {"u(1 - u)"}
    np.testing.assert_allclose(terms["u(1 - u)"], 1, rtol=1e-8)
    model.set_params(n_terms=1).fit(t, u)
    assert set(model.equation_.terms()) == {"u(1 - u)"}


def test_a_power_is_printed_as_one(recwarn):
    equation = first_order().fit(*trajectory(torricelli, [2.0], 5, 30)).equation_
    assert str(equation) == "u_t = -0.400 u^0.5"
    assert not [w for w in recwarn if w.category is IdentifiabilityWarning]


@pytest.mark.slow
def test_a_fifth_power_of_what_changes_sign_is_found(recwarn):
    """Beyond the degree of products; it is printed as one."""
    stiff = trajectory(
        lambda t, s: [s[1], -s[0] - 0.3 * s[0] ** 5 - 0.1 * s[1]], [1.4, 0.0], 12, 45
    )
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables=("t",)).fit(*stiff)
    expected = {"u": -1.0, "u^5": -0.3, "u_t": -0.1}
    assert model.equation_.terms() == pytest.approx(expected, rel=1e-6)
    assert not [w for w in recwarn if w.category is IdentifiabilityWarning]


def torricelli(t, u):
    return -0.4 * np.sqrt(u)


@pytest.mark.slow
def test_saturating_prey_are_found_to_rounding_errors(recwarn):
    """Inner parameters are found as exactly as the data allow, so nothing warns."""

    def rate(t, state):
        u, v = state
        eaten = u * v / (0.5 + u)
        return [u - u**2 / 3 - eaten, 0.8 * eaten - 0.4 * v]

    t = np.linspace(0, 25, 60)
    found = solve_ivp(
        rate, (0, 25), [1.0, 0.5], "DOP853", t_eval=t, rtol=1e-12, atol=1e-13
    )
    model = OneStepKEqL(("u", "v"), ("u_t", "v_t"), variables=("t",), states=("u", "v"))
    equation = model.fit(t[:, None], found.y.T).equation_["u_t"]
    assert str(equation) == "u_t = 1.00 u - 0.333 u^2 - 1.00 u v/(0.5 + u)"
    assert equation.terms()["u^2"] == pytest.approx(-1 / 3, abs=1e-9)
    assert not [w for w in recwarn if w.category is IdentifiabilityWarning]


def test_the_report_says_why_they_are_not_tried():
    t, u = trajectory(lambda t, u: u - u**2, [0.1], 6, 25)
    report = str(first_order().set_params(n_terms=2).fit(t, u).fit_report_)
    assert "elementary functions" in report
    assert 'only n_terms="auto" asks for any terms' in report


def test_their_search_is_told_of_and_stopped(monkeypatch, capsys):
    """By what a callback says after a step; the polynomial is kept."""
    steps = []

    def report(self, progress, tasks, two_step, problem, result):
        progress.step(problem, result)
        equation = result.solution.equations[0]
        steps.append(isinstance(equation.equation_kernel, Dictionary))
        return steps[-1]

    monkeypatch.setattr(OneStepKEqL, "_report", report)
    model = first_order().set_params(verbose=1)
    with pytest.warns(ConvergenceWarning, match="stopped by a callback"):
        model.fit(*trajectory(gompertz, [0.2], 6, 30))
    assert sum(steps) == 1 and steps[-1]
    assert not isinstance(model.equation_kernel_, Dictionary)
    assert ", elementary functions\n" in capsys.readouterr().out


def test_sets_are_given_up_when_their_evidence_cannot_rise_enough():
    """It gains at best twice as much in each step, as where errors fall so fast."""
    assert falls_short(-100.0, -100.0, 0.0, 3)  # it rises no more
    assert falls_short(-100.0, -90.0, 0.0, 3)
    assert not falls_short(-100.0, -110.0, 0.0, 3)  # by 20, 40 and 80 in three steps
    assert falls_short(-150.0, -160.0, 0.0, 3)
    assert falls_short(-1.0, -1000.0, 0.0, 0)  # no step is left
    assert not falls_short(1.0, 0.0, 0.0, 0)
    assert not falls_short(-1e6, -np.inf, 0.0, 3)

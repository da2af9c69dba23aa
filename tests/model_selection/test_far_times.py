"""Times far from zero, as years are: a shift of time gives the shifted equation."""

import json

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import LearnedEquation, OneStepKEqL


def fitted(rate, initial, t_end, n, year):
    """A fit to n exact values that were observed from a year on."""
    t = np.linspace(0, t_end, n)
    how = {"t_eval": t, "rtol": 1e-11, "atol": 1e-12}
    y = solve_ivp(rate, (0, t_end), [initial], **how).y[0]
    model = OneStepKEqL(("u",), "u_t", variables=("t",))
    return model.fit(t[:, None] + year, y)


def trend(t, u):
    return 0.15 * t - 0.5 * u


def square(t, u):
    return 0.03 * t**2 - 0.5 * u


@pytest.mark.slow
def test_the_square_of_a_time_is_one_of_its_powers(recwarn):
    equation = fitted(square, 3.0, 12, 35, 2010.0).equation_
    assert str(equation) == "u_t = 0.0300 (t - 2010)^2 - 0.500 u"
    assert not recwarn.list


def driven(t, u):
    return np.sin(1.7 * t) + 1 - 0.5 * u


@pytest.mark.parametrize("year", [pytest.param(-750.0, marks=pytest.mark.slow), 2010.0])
def test_a_trend_is_counted_from_the_first_year(year, recwarn):
    equation = fitted(trend, 3.0, 12, 35, year).equation_
    since = "(t + 750)" if year < 0 else "(t - 2010)"
    assert str(equation) == f"u_t = 0.150 {since} - 0.500 u"
    S = np.array([[year, 1.0, 2.0], [year + 5, 0.3, -1.0]])
    rest = S[:, 2] - trend(S[:, 0] - year, S[:, 1])
    np.testing.assert_allclose(equation(S), rest, atol=1e-8)
    saved = LearnedEquation.from_dict(json.loads(json.dumps(equation.to_dict())))
    np.testing.assert_array_equal(saved(S), equation(S))
    assert not recwarn.list


@pytest.mark.slow
@pytest.mark.parametrize("year", [0.0, 30.0, 2010.0])
def test_a_wave_has_its_phase_where_time_begins(year, recwarn):
    equation = fitted(driven, 1.0, 14, 45, year).equation_
    since = f"(t - {year:g})" if year else "t"
    assert str(equation) == f"u_t = 1.00 - 0.500 u + 1.00 sin(1.7 {since})"
    t = year + np.linspace(0, 14, 8)
    again, here = equation.simulate(t, [1.0])[:, 0], np.linspace(0, 14, 8)
    how = {"t_eval": here, "rtol": 1e-11, "atol": 1e-12}
    expected = solve_ivp(driven, (0, 14), [1.0], **how).y[0]
    np.testing.assert_allclose(again, expected, atol=1e-6)
    assert not recwarn.list

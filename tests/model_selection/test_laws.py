"""Laws of the sciences that come back from few values, by default."""

import re

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import OneStepKEqL


def experiments(rate, initial, times, noise=0.0, seed=0):
    """Table (n, 2) of experiments and times, and states (n, S), with relative noise."""
    rng, X, y = np.random.default_rng(seed), [], []
    for m, start in enumerate(initial):
        found = solve_ivp(
            rate, times[[0, -1]], start, "DOP853", times, rtol=1e-12, atol=1e-13
        )
        X.append(np.column_stack([np.full(len(times), m), times]))
        y.append(found.y.T)
    y = np.concatenate(y)
    y += noise * np.std(y, axis=0) * rng.standard_normal(y.shape)
    return np.concatenate(X), y


def learn(rate, initial, times, states, noise=0.0, seed=0, second=False, **params):
    """The equations that a default fit finds, as text."""
    X, y = experiments(rate, initial, times, noise, seed)
    names, n = tuple(states), len(states)
    slopes = tuple(f"{name}_t" for name in names)
    operators, known = names, slopes
    if second:
        operators, known = names + slopes, tuple(f"{name}_tt" for name in names)
    model = OneStepKEqL(
        operators,
        known if n > 1 else known[0],
        states=names,
        variables=("t",),
        function_column=0 if len(initial) > 1 else None,
        **params,
    )
    y = y[:, :n] if n > 1 else y[:, 0]
    model.fit(X if len(initial) > 1 else X[:, 1:], y)
    return str(model.equation_)


SINGLE = {
    # Michaelis and Menten: no polynomial leads to where 1/(2 + c) is defined
    "c_t = -3.00 c/(2 + c)": (lambda t, c: -3 * c / (2 + c), (1, 5, 12), 6, 15),
    # Hill
    "c_t = -0.900 c + 2.00 c^4/(1 + c^4)": (
        lambda t, c: 2 * c**4 / (1 + c**4) - 0.9 * c,
        (0.5, 0.9, 3),
        6,
        15,
    ),
    # Arrhenius
    "c_t = -0.500 c + 1.00 + 0.300 exp(-3/c)": (
        lambda t, c: -0.5 * (c - 2) + 0.3 * np.exp(-3 / c),
        (1, 5),
        8,
        15,
    ),
    # what limits growth has seasons
    "c_t = -1.00 c + 0.500 c^2 sin(t)": (
        lambda t, c: -c + 0.5 * c**2 * np.sin(t),
        (1, 0.4),
        8,
        20,
    ),
}


@pytest.mark.parametrize("law", SINGLE)
def test_several_experiments_with_one_state(law):
    rate, initial, t_end, n = SINGLE[law]
    times = np.linspace(0, t_end, n)
    assert learn(rate, [[c] for c in initial], times, "c") == law


def test_predators_whose_number_their_prey_limit():
    """Along states with errors tanh(0.087 n) stands for n, which is tried first."""

    def rate(t, s):
        n, p = s
        return [n * (1 - n / 5) - 0.6 * n * p, 0.8 * p * (1 - p / n)]

    text = learn(rate, [[1, 0.5], [4, 2]], np.linspace(0, 12, 25), "np")
    assert text == (
        "n_t = 1.00 n - 0.600 n p - 0.200 n^2\np_t = -0.800 p^2 n^-1 + 0.800 p"
    )


def kepler(t, s):
    x, y, *speed = s
    return [*speed, *(-np.array([x, y]) / (x**2 + y**2) ** 1.5)]


@pytest.mark.filterwarnings("ignore:OneStepKEqL found that .* may be added")
def test_an_orbit_tells_the_law_of_gravitation():
    """A year is 2 pi units of time here; what is conserved along it is told.

    Velocities lie on a circle, so that a cubic polynomial in these is exact, too.
    """
    times, start, year = np.linspace(0, 9, 50), [1, 0, 0, 1.15], 2 * np.pi

    def in_years(t, s):
        return year * np.array(kepler(t, s))

    units = {"t": "yr", "x": "AU", "y": "AU"}
    given = [start], times / year, "xy"
    text = learn(in_years, *given, second=True, units=units)
    assert text == (
        "d2x/dt2 = -39.4784 AU^3 yr^-2 x (x^2 + y^2)^-1.5\n"
        "d2y/dt2 = -39.4784 AU^3 yr^-2 y (x^2 + y^2)^-1.5"
    )


def test_a_charge_that_is_slowed_is_found_within_noise():
    """One power of the distance in both equations, and friction."""

    def rate(t, s):
        return np.array(kepler(t, s)) - 0.05 * np.array([0, 0, s[2], s[3]])

    given = [[1, 0, 0, 1.2]], np.linspace(0, 9, 50), "xy"
    text = learn(rate, *given, second=True, noise=0.01)
    assert text == (
        "x_tt = -0.999 x (x^2 + y^2)^-1.5 - 0.0497 x_t\n"
        "y_tt = -1.00 y (x^2 + y^2)^-1.5 - 0.0502 y_t"
    )


@pytest.mark.filterwarnings("ignore:OneStepKEqL found that .* may be added")
def test_a_ball_is_slowed_by_the_square_of_its_speed():
    """It starts where functions of its place have a step; gravity is constant."""

    def rate(t, s):
        speed = np.hypot(s[2], s[3])
        return [*s[2:], -0.1 * s[2] * speed, -9.81 - 0.1 * s[3] * speed]

    given = [[0, 0, 20, 15]], np.linspace(0, 2.5, 30), "xy"
    assert learn(rate, *given, second=True) == (
        "x_tt = -0.100 x_t (x_t^2 + y_t^2)^0.5\n"
        "y_tt = -9.81 - 0.100 y_t (x_t^2 + y_t^2)^0.5"
    )


def test_a_phase_that_turns_round_is_found_within_noise():
    """Polynomials, from which functions are looked for, are far from it."""
    given = [[0.0], [2.0]], np.linspace(0, 12, 30), "p"
    text = learn(lambda t, p: 1.3 - 0.9 * np.sin(p), *given, noise=0.02, seed=1)
    assert text == "p_t = 1.28 - 0.880 sin(p)"


@pytest.mark.filterwarnings("ignore:OneStepKEqL found that the data do not tell")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_terms_that_cancel_at_rest_are_found_within_noise(seed):
    """Of a tank, whose coefficients are larger than the slopes that they explain."""
    given = [[0.1], [4.0]], np.linspace(0, 8, 15), "h"
    text = learn(lambda t, h: 1 - 0.8 * np.sqrt(h), *given, noise=0.02, seed=seed)
    assert text.startswith(("h_t = -0.8", "h_t = -0.7")) and text.count("h") == 2
    assert "h^0.5 + " in text


@pytest.mark.filterwarnings("ignore:OneStepKEqL found that the data do not tell")
def test_an_exponent_that_is_estimated_leads_to_that_of_a_law():
    """Linearised at a polynomial 3/2 is far less probable than 2.2."""
    given = [[0.1], [9.0]], np.linspace(0, 8, 15), "n"
    text = learn(lambda t, n: 0.8 * n * (1 - (n / 5) ** 0.5), *given, noise=0.02)
    assert text == "n_t = -0.347 n^1.5 + 0.774 n"


@pytest.mark.filterwarnings("ignore:OneStepKEqL found that")
@pytest.mark.parametrize("seed", [0, 1])
def test_genes_that_repress_each_other_are_found_within_noise(seed):
    """Beside the products that each equation has at first no function is probable."""

    def rate(t, s):
        u, v = s
        return [3 / (1 + v**2) - u, 3 / (1 + u**2) - v]

    given = [[0.5, 2], [2, 0.4], [1.2, 1]], np.linspace(0, 6, 18), "uv"
    of_u, of_v = learn(rate, *given, noise=0.02, seed=seed).splitlines()
    number = r"-?[\d.]+"
    assert re.fullmatch(rf"u_t = {number} 1/\({number} \+ v\^2\) - {number} u", of_u)
    assert re.fullmatch(rf"v_t = {number} 1/\({number} \+ u\^2\) - {number} v", of_v)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:OneStepKEqL found that the data do not tell")
@pytest.mark.parametrize("seed", [1, 2])
def test_tanks_with_a_pump_are_found_within_noise(seed):
    """Two roots in place of five products of the second, one beside a wave in time."""

    def rate(t, s):
        h, k = np.sqrt(s)
        return [0.5 * (1 + np.sin(0.5 * t)) - 0.5 * h, 0.5 * h - 0.4 * k]

    given = [[1, 1], [3, 0.3]], np.linspace(0, 20, 40), "hk"
    of_h, of_k = learn(rate, *given, noise=0.02, seed=seed).splitlines()
    assert re.fullmatch(r"h_t = -\S+ h\^0\.5 \+ \S+ \+ \S+ sin\(0\.500\d t\)", of_h)
    assert re.fullmatch(r"k_t = \S+ h\^0\.5 - \S+ k\^0\.5", of_k)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:OneStepKEqL found that the data do not tell")
def test_a_chain_of_reactions_of_three_substances_is_found_within_noise():
    """Each of two enzymes is saturated; before, a sine and a root stood for them."""

    def rate(t, s):
        first, second = 2 * s[0] / (1 + s[0]), 1.2 * s[1] / (0.5 + s[1])
        return [-first, first - second, second - 0.3 * s[2]]

    given = [[4, 0.1, 0.1], [2, 1, 0.5]], np.linspace(0, 8, 25), "abc"
    text = learn(rate, *given, noise=0.02)
    assert re.sub(r"[\d.]+", "k", text) == (
        "a_t = -k a/(k + a)\nb_t = k a/(k + a) - k b/(k + b)\nc_t = k b/(k + b) - k c"
    )

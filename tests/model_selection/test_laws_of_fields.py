"""Laws of fields that are no polynomials come back from few values, by default."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql.model_selection._criteria import Criteria
from keql.model_selection._trajectory_search import TrajectorySearch

N_MODES = 64


def on_circle(rates, initial, t_end, n=150):
    """Fields of first order on a circle, seen at n points in a box: X, values (n, S).

    The slopes are rates(x, derivative), of the position of a field and an order.
    """
    x = 2 * np.pi * np.arange(N_MODES) / N_MODES
    numbers = np.arange(N_MODES // 2 + 1)
    kept = numbers <= N_MODES // 3

    def slope(t, state):
        modes = np.fft.rfft(state.reshape(-1, N_MODES)) * kept

        def derivative(i, n=0):
            return np.fft.irfft(modes[i] * (1j * numbers) ** n, N_MODES)

        return np.ravel(rates(x, derivative))

    start = np.concatenate([own(x) for own in initial])
    how = {"rtol": 1e-9, "atol": 1e-10, "dense_output": True}
    state = solve_ivp(slope, (0, t_end), start, "DOP853", **how).sol
    X = np.random.default_rng((0, 5)).uniform((0, 1), (t_end, 5), (n, 2))
    fields = state(X[:, 0]).T.reshape(n, -1, N_MODES)
    modes = np.fft.rfft(fields) * kept / N_MODES
    modes[..., 1:] *= 2
    waves = np.exp(1j * np.outer(X[:, 1], numbers))
    return X, np.real(np.einsum("pfk,pk->pf", modes, waves))


def waves(x, sizes, phase=0.0):
    return np.cos(np.outer(x + phase, [1, 2, 3]) + [0.0, 1.0, 2.0]) @ sizes


def mixed(x):
    return waves(x, [0.6, 0.4, -0.2])


def learn(rates, initial, t_end, n=150):
    """The equations that a default fit finds, as text, and what it warns of."""
    X, y = on_circle(rates, initial, t_end, n)
    names = ("u", "v")[: y.shape[1]]
    operators = (*names, *(f"{s}_xx" for s in names))
    known, given = tuple(f"{s}_t" for s in names), {"states": names}
    if len(names) == 1:
        operators, known, given, y = ("u", "u_x", "u_xx"), "u_t", {}, y[:, 0]
    model = OneStepKEqL(operators, known, variables=("t", "x"), **given)
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(X, y)
    return str(model.equation_), [str(each.message) for each in caught]


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (lambda x, u: [0.2 * u(0, 2) / (1 + u(0, 1) ** 2)], "0.200 u_xx/(1 + u_x^2)"),
        (
            lambda x, u: [0.1 * u(0, 2) + u(0) - u(0) ** 5],
            "1.00 u - 1.00 u^5 + 0.100 u_xx",
        ),
    ],
)
def test_diffusion_that_depends_on_the_slope_and_fifth_powers_are_found(rate, text):
    """They were cubic polynomials of many terms, after 99 s; or a sine in silence."""
    assert learn(rate, [lambda x: 1.2 * mixed(x)], 2.0) == (f"u_t = {text}", [])


def test_limits_of_growth_that_vary_in_space_are_found():
    text, told = learn(
        lambda x, u: [0.1 * u(0, 2) + u(0) - (1 + np.sin(x) / 2) * u(0) ** 2],
        [lambda x: 0.6 + 0.4 * mixed(x)],
        3.0,
        200,
    )
    parts = {"1.00 u", "-1.00 u^2", "-0.500 u^2 sin(x)", "0.100 u_xx"}
    assert {*text[6:].replace("- ", "+ -").split(" + ")} == parts and told == []


@pytest.mark.slow
def test_functions_of_two_fields_are_found():
    """What an enzyme makes of what it eats was 14 products, after 89 s."""

    def rates(x, u):
        eaten = u(0) / (0.5 + u(0))
        return 0.1 * u(0, 2) - eaten, 0.1 * u(1, 2) + eaten - 0.4 * u(1)

    text, told = learn(
        rates,
        [
            lambda x: 1.2 + waves(x, [0.4, 0.3, -0.3]),
            lambda x: 0.5 + waves(x, [0.2, -0.1, 0.1], 1.0),
        ],
        2.0,
    )
    assert told == []
    assert text == (
        "u_t = -1.00 u/(0.5 + u) + 0.100 u_xx\n"
        "v_t = 1.00 u/(0.5 + u) - 0.400 v + 0.100 v_xx"
    )


@pytest.mark.parametrize(
    ("misfit", "evidence", "taken"),
    [(0.01, 2800.0, True), (0.6, 2800.0, False), (0.01, 2450.0, False)],
)
def test_functions_take_the_place_of_many_products(misfit, evidence, taken):
    """They are decisively more probable, and observations are met more closely."""
    products = SimpleNamespace(misfit=0.5, log_evidence=2446.0)
    given = {"misfit": misfit, "log_evidence": evidence, "has_functions": True}
    search = SimpleNamespace(is_of_fields=True, sees_noise=False, criteria=Criteria())
    fit = SimpleNamespace(**given)
    assert TrajectorySearch._is_preferred(search, fit, products, []) == taken


@pytest.mark.parametrize(
    ("n_terms", "is_tried", "shorter"),
    [(20, False, True), (20, True, False), (9, False, False)],
)
def test_many_products_of_fields_may_be_functions(n_terms, is_tried, shorter):
    """Until these were tried; those of FitzHugh and Nagumo have nine terms."""
    setup = SimpleNamespace(equations=[SimpleNamespace(depends_on=(0,))] * 2)
    fit = SimpleNamespace(
        learned=SimpleNamespace(setup=setup),
        term_names=["a"] * n_terms,
        has_functions=False,
        is_driven=False,
    )
    search = SimpleNamespace(is_of_fields=True, sees_noise=False, criteria=Criteria())
    search._elementary_rows, search.tries_functions = ["functions"], is_tried
    assert TrajectorySearch._may_be_shorter(search, fit) == shorter

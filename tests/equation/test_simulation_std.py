"""Standard deviations of simulations, against differences, draws and closed forms."""

from copy import copy

import numpy as np
import pytest
from known_equations import lotka_volterra, make_equation, make_system, monomial
from numpy.testing import assert_allclose

from keql import LearnedSystem, TwoStepKEqL
from keql.equation import WeightPosterior

TIMES = np.linspace(0, 4, 9)


def spread(n_columns, size=30.0):
    """Training features that a simulation does not leave."""
    return size * np.random.RandomState(0).uniform(-1, 1, size=(200, n_columns))


def with_posterior(equation, size=0.01, seed=0):
    """The equation with weights of correlated errors of a size."""
    p, equation = len(equation.weights), copy(equation)
    root = size * (np.eye(p) + 0.3 * np.random.RandomState(seed).normal(size=(p, p)))
    factor = np.linalg.cholesky(np.linalg.inv(root @ root.T))
    equation.posterior = WeightPosterior(equation.weights, factor, 0.0)
    return equation


def by_differences(equation, simulate, h=1e-4):
    """Variances of what simulate(equation) returns, by its slopes in the weights."""
    root, slopes = equation.posterior.root(), []
    for column in root.T:
        ends = []
        for sign in (1, -1):
            moved = copy(equation)
            moved.weights = equation.weights + sign * h * column
            ends.append(simulate(moved))
        slopes.append((ends[0] - ends[1]) / (2 * h))
    return np.sum(np.square(slopes), axis=0)


def pendulum():
    """(1 + u^2) u_tt = -u - 0.3 u_t + f, whose slope in u_tt depends on the state."""
    kernel = monomial(1) + monomial(2)
    equation = make_equation(
        ("u", "u_t"),
        lambda u, u_tt: (1 + u**2) * u_tt,
        kernel,
        [1.0, 0.3],
        spread(4),
        ("t",),
        has_forcing=True,
    )
    return with_posterior(equation)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["DOP853", "Radau"])
def test_a_single_equation_beside_differences(method):
    def simulate(equation, return_std=False):
        return equation.simulate(
            TIMES,
            [1.0, 0.0],
            forcing=lambda points: np.cos(points[:, 0]),
            return_std=return_std,
            method=method,
            rtol=1e-7,
        )

    equation = pendulum()
    u, std = simulate(equation, return_std=True)
    assert_allclose(u, simulate(equation), atol=1e-5)
    expected = np.sqrt(by_differences(equation, simulate, h=1e-2))
    assert_allclose(std, expected, rtol=1e-3, atol=1e-6)
    assert np.all(std[0] == 0) and np.all(std[1:] > 0)


def hunting():
    system = lotka_volterra(S=spread(5))
    return LearnedSystem(
        {name: with_posterior(e, seed=k) for k, (name, e) in enumerate(system.items())}
    )


def test_a_system_beside_differences():
    """Variances of equations add up."""
    system, initial = hunting(), {"x": 3.0, "y": 1.0}
    _, std = system.simulate(TIMES, initial, return_std=True)
    variances = 0.0
    for name in system:

        def simulate(equation, name=name):
            moved = LearnedSystem(dict(system) | {name: equation})
            return moved.simulate(TIMES, initial)

        variances = variances + by_differences(system[name], simulate)
    assert_allclose(std, np.sqrt(variances), rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_a_system_beside_draws():
    system, initial, rng = hunting(), [3.0, 1.0], np.random.RandomState(1)
    times = TIMES[:5]
    u, std = system.simulate(times, initial, return_std=True)
    drawn = []
    for _ in range(100):
        moved = {}
        for name, equation in system.items():
            moved[name] = copy(equation)
            noise = equation.posterior.root() @ rng.normal(size=len(equation.weights))
            moved[name].weights = equation.weights + noise
        drawn.append(LearnedSystem(moved).simulate(times, initial, rtol=1e-6))
    assert_allclose(np.std(drawn, axis=0)[1:], std[1:], rtol=0.25)
    assert_allclose(np.mean(drawn, axis=0), u, atol=0.3 * std.max())


def test_a_decay_in_closed_form():
    """u = u0 e^(-a t) has the standard deviation t u std(a)."""
    equation = make_equation(("u",), "u_t", monomial(1), [0.7], spread(3), ("t",))
    equation.posterior = WeightPosterior(equation.weights, np.array([[50.0]]), 0.0)
    u, std = equation.simulate(TIMES, [2.0], return_std=True)
    assert_allclose(u[:, 0], 2 * np.exp(-0.7 * TIMES), rtol=1e-7)
    assert_allclose(std[:, 0], TIMES * u[:, 0] / 50, rtol=1e-6)


def test_known_equations_and_inputs():
    """x_tt = -k x as two equations, of which x_t = v is known, and k an input."""
    system = make_system(
        {
            "x": ({"x_t": 1.0, "v": -1.0}, None),
            "v": ({"v_t": 1.0}, {"k x": 1.0}),
        },
        ("x", "v"),
        ("x", "v"),
        inputs=("k",),
        S=spread(6),
    )
    system = LearnedSystem({"x": system["x"], "v": with_posterior(system["v"])})
    given = {"initial": {"x": 1.0, "v": 0.0}, "inputs": {"k": 4.0}}
    found, std = system.simulate(TIMES, return_std=True, **given)
    assert_allclose(found[:, 0], np.cos(2 * TIMES), atol=1e-7)
    # The frequency is the root of 4 a, whose slope in a is 1 at a = 1.
    of_term = system["v"].terms(return_std=True)[1]["k x"]
    expected = np.abs(TIMES * np.sin(2 * TIMES)) * of_term
    assert_allclose(std[:, 0], expected, atol=1e-6)


def test_units_of_the_states():
    rng, t = np.random.RandomState(0), np.linspace(0, 3, 30)[:, None]
    y = np.exp(-t[:, 0]) + 0.01 * rng.standard_normal(30)
    stds = []
    for unit in (1.0, 1e4):
        model = TwoStepKEqL(("u",), "u_t", variables=("t",)).fit(t, unit * y)
        equation = model.equation_.sparse(n_terms=1)
        stds.append(equation.simulate(TIMES[:3], [unit], return_std=True)[1] / unit)
    assert_allclose(*stds, rtol=1e-3)


def test_equations_without_a_posterior():
    with pytest.raises(ValueError, match="no posterior of its weights"):
        lotka_volterra(S=spread(5)).simulate(TIMES, [3.0, 1.0], return_std=True)

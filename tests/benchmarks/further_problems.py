"""More problems of the family unseen: inputs, centres, few values, and phases."""

from dataclasses import replace

import numpy as np
from numpy.polynomial import Polynomial
from scipy.integrate import solve_ivp
from scipy.special import jv, jvp
from suite_problems import SuiteProblem, ode


def chirp(t):
    """A control signal whose frequency rises."""
    return np.sin(0.5 * np.asarray(t) + 0.05 * np.asarray(t) ** 2)


def controlled(rate, initial, t_end, n):
    """One state whose last derivative is rate(w, u, ...), of a control signal w."""
    problem = ode(lambda t, *state: rate(chirp(t), *state), initial, t_end, n)
    t = problem.features[:, 0]
    return replace(
        problem,
        settings=problem.settings | {"inputs": {"w": chirp}},
        features=np.insert(problem.features, 1, chirp(t), axis=1),
    )


def of_second_order(values, X, X_test):
    """A field whose u_t is to be learned as a function of u, u_x and u_xx.

    `values` gives those of a derivative in x, or in time, at points (n, 2).
    """
    slopes = [values(X_test, n) for n in range(3)]
    return SuiteProblem(
        {
            "operators": ("u", "u_x", "u_xx"),
            "known_part": "u_t",
            "variables": ("t", "x"),
        },
        X,
        values(X),
        X_test,
        slopes[0],
        features=np.column_stack([X_test, *slopes]),
        parts=-values(X_test, in_time=1)[:, None],
    )


def disc(order):
    """u_t = (u_xx + u_x/x - m^2 u/x^2)/5 at distances x from a centre: Bessel's."""
    numbers, sizes = np.array([0.8, 1.9, 3.1]), np.array([1.0, 0.8, -0.7])
    rng = np.random.default_rng(2)
    X = rng.uniform((0, 0.4), (2, 3.4), (110, 2))
    X_test = rng.uniform((0.05, 0.5), (1.95, 3.3), (500, 2))

    def values(points, derivative=0, in_time=0):
        t, x = points[:, :1], points[:, 1:]
        waves = numbers**derivative * jvp(order, numbers * x, derivative)
        waves = jv(order, numbers * x) if not derivative else waves
        rates = (-0.2 * numbers**2) ** in_time
        return (rates * waves * np.exp(-0.2 * numbers**2 * t)) @ sizes

    return of_second_order(values, X, X_test)


def trap():
    """u_t = (u_xx - x^2 u)/2, three states of a trap that decay: Hermite's."""
    x = Polynomial([0, 1])
    modes = [(0.5, Polynomial([1.0])), (1.5, 1.2 * x), (2.5, 1.2 * x**2 - 0.6)]
    rng = np.random.default_rng(0)
    X = rng.uniform((0, -2), (1.5, 2), (120, 2))
    X_test = rng.uniform((0.05, -1.9), (1.4, 1.9), (500, 2))

    def values(points, derivative=0, in_time=0):
        t, place = points.T
        total = 0.0
        for rate, factor in modes:
            for _ in range(derivative):  # of the factor times exp(-x^2/2)
                factor = factor.deriv() - x * factor
            decay = (-rate) ** in_time * np.exp(-rate * t)
            total = total + decay * factor(place) * np.exp(-(place**2) / 2)
        return total

    return of_second_order(values, X, X_test)


def swing():
    """Eight values of a damped swing."""
    return ode(lambda t, u, v: -2 * u - 0.3 * v, [1.0, 0.0], 5, 8)


def pendulum():
    return controlled(lambda w, u, v: -np.sin(u) - 0.2 * v + 0.8 * w, [1.5, 0], 15, 50)


def tank():
    return controlled(lambda w, u: 1.5 * (1 + w) - 0.8 * u**0.5, [1.5], 15, 40)


def swings(rates, names, initial, t_end, n):
    """Angles whose second derivatives are rates(angles, speeds), seen n times."""
    k = len(names)

    def slopes(t, y):
        return np.concatenate([y[k:], rates(y[:k], y[k:])])

    how = {"dense_output": True, "rtol": 1e-11, "atol": 1e-13}
    solution = solve_ivp(slopes, (0, t_end), initial, "LSODA", **how).sol
    t, t_test = np.linspace(0, t_end, n), np.linspace(0, t_end, 500)
    states = solution(t_test)
    settings = {
        "operators": (*names, *(f"{name}_t" for name in names)),
        "known_part": tuple(f"{name}_tt" for name in names),
        "variables": ("t",),
        "states": names,
    }
    return SuiteProblem(
        settings,
        t[:, None],
        solution(t)[:k].T,
        t_test[:, None],
        states[:k].T,
        features=np.column_stack([t_test, *states]),
        parts=-np.array([rates(y[:k], y[k:]) for y in states.T]),
    )


def power_grid():
    """Three generators, one of which feeds the others, joined by three lines."""
    lines = np.array([[0.0, 1.2, 0.8], [1.2, 0.0, 1.0], [0.8, 1.0, 0.0]])
    power = np.array([0.5, -0.2, -0.3])

    def rates(angles, speeds):
        ahead = np.sin(angles - angles[:, None])
        return power - 0.2 * speeds + np.sum(lines * ahead, axis=1)

    return swings(rates, ("a", "b", "c"), [0.0, 1.2, -0.8, 1.0, -1.0, 0.3], 14, 70)


def coupled_pendulums():
    """Two pendulums whose angles pull each other."""

    def rates(angles, speeds):
        pulled = 0.5 * np.sin(angles[::-1] - angles)
        return pulled - np.sin(angles) - 0.05 * speeds

    return swings(rates, ("u", "v"), [1.5, -0.5, 0.0, 0.0], 12, 60)


FURTHER = {
    "controlled pendulum": pendulum,
    "controlled pendulum 2%": pendulum,
    "controlled tank": tank,
    "controlled tank 2%": tank,
    "disc": lambda: disc(0),
    "turning disc": lambda: disc(2),
    "trap": trap,
    "trap 2%": trap,
    "few values 2%": swing,
    "power grid": power_grid,
    "power grid 2%": power_grid,
    "coupled pendulums": coupled_pendulums,
    "coupled pendulums 2%": coupled_pendulums,
}

"""The equations of evolution that exact states have to find, as families of the suite.

Each is seen at 200 points inside, exactly and with 2 % noise (advection at 60 points of
each of eight functions). The states are to be within 1e-3, and with noise within 1e-2.

    python tests/benchmarks/bench_suite.py --families "evolution of"
"""

from functools import partial

import numpy as np
from scipy.integrate import solve_ivp
from suite_problems import (
    SuiteProblem,
    fisher_in_two_dimensions,
    heat_in_two_dimensions,
    heat_on_ring,
    inside,
    klein_gordon,
    on_ring,
)

N_VALUES = 200


def korteweg_de_vries(n):
    """u_t = -u u_x - 0.1 u_xxx."""
    terms = {"u u_x": -1.0, "u_xxx": -0.1}
    return on_ring(terms, _waves, 1.0, 2 * np.pi, n, (1.0, 5.0), n_modes=144)


def kuramoto_sivashinsky(n):
    """u_t = -u u_x - u_xx - u_xxxx on a circle of length 22."""
    terms = {"u u_x": -1.0, "u_xx": -1.0, "u_xxxx": -1.0}

    def initial(x):
        phases = 2 * np.pi / 22 * np.outer(x, np.arange(1, 5)) + [0.0, 1.0, 2.5, 4.0]
        return np.cos(phases) @ [0.8, 1.2, -1.0, 0.6]

    return on_ring(terms, initial, 6.0, 22.0, n, (2.0, 20.0), n_modes=192)


def cahn_hilliard(n):
    """u_t = 0.3 (u^3 - u - 0.05 u_xx)_xx."""
    terms = {"u^2 u_xx": 0.9, "u u_x^2": 1.8, "u_xx": -0.3, "u_xxxx": -0.015}

    def initial(x):
        phases = np.outer(x, np.arange(1, 4)) + [0.0, 1.0, 0.0]
        return np.cos(phases) @ [0.5, 0.3, 0.1]

    return on_ring(terms, initial, 1.0, 2 * np.pi, n, (1.0, 5.0), n_modes=256)


def forced_burgers(n):
    """u_t = 0.1 u_xx - u u_x + sin(2 x) cos(3 t), the forcing known."""

    def forcing(X):
        return np.sin(2 * X[:, 1]) * np.cos(3 * X[:, 0])

    terms = {"u_xx": 0.1, "u u_x": -1.0}
    box = (1.0, 5.0)
    return on_ring(terms, _waves, 2.0, 2 * np.pi, n, box, 192, forcing=forcing)


def _waves(x):
    return np.cos(np.outer(x, np.arange(1, 4)) + [0.0, 1.0, 2.0]) @ [0.6, 0.4, -0.2]


def wave(n):
    """u_tt = u_xx, three standing waves."""
    k = np.arange(1, 4)

    def truth(X):
        moving = np.cos(np.outer(X[:, 0], k) + [0.0, 1.0, -0.5])
        waves = moving * np.cos(np.outer(X[:, 1], k) + [0.0, -1.27, 1.0])
        return waves @ [1.0, 0.5, -0.3]

    operators, terms = ("u", "u_x", "u_xx"), {"u_xx": -1.0}
    return inside(truth, operators, "u_tt", {"u_tt": terms}, 3.0, n)


def _speed(x):
    return 0.6 + 0.3 * np.sin(2 * np.pi * x)


def varying_advection(n, n_functions=8):
    """u_t = -speed(x) u_x on a ring of length 1, for several initial conditions.

    Each is seen at n points; values are those at time 0 where characteristics start.
    """
    rng, k = np.random.default_rng(0), 2 * np.pi * np.arange(1, 4)

    def functions(n_each, sizes):
        X, y, slopes = [], [], []
        for m, (even, odd) in enumerate(sizes):
            points = rng.uniform([0.02, 0.0], [0.98, 1.0], (n_each, 2))
            origin, stretch = _origins(points)
            phases = np.outer(origin, k)
            X.append(np.column_stack([np.full(n_each, m), points]))
            y.append(np.cos(phases) @ even + np.sin(phases) @ odd + m / 4)
            slopes.append(
                stretch * (np.cos(phases) @ (k * odd) - np.sin(phases) @ (k * even))
            )
        return np.concatenate(X), np.concatenate(y), np.concatenate(slopes)

    sizes = rng.standard_normal((n_functions, 2, 3)) / np.arange(1, 4)
    X, y, _ = functions(n, sizes)
    X_test, y_test, slopes = functions(100, sizes)
    settings = {
        "operators": ("u", "u_x"),
        "known_part": "u_t",
        "variables": ("t", "x"),
        "function_column": 0,
        "periods": {"x": 1.0},
    }
    features = np.column_stack([X_test[:, 1:], y_test, slopes])
    parts = _speed(X_test[:, 2]) * slopes
    return SuiteProblem(settings, X, y, X_test, y_test, features=features, parts=parts)


def _origins(points):
    """Where characteristics start, and the slope of that in x."""
    t, x = points.T

    def backwards(_, state):
        z, stretch = np.split(state, 2)
        change = 0.6 * np.pi * np.cos(2 * np.pi * z)
        return np.concatenate([-_speed(z) * t, -change * stretch * t])

    start = np.concatenate([x, np.ones_like(x)])
    path = solve_ivp(backwards, (0, 1), start, "DOP853", rtol=1e-10, atol=1e-12)
    return np.split(path.y[:, -1], 2)


EQUATIONS = {
    "wave": wave,
    "klein_gordon": partial(klein_gordon, 1.0),
    "korteweg_de_vries": korteweg_de_vries,
    "kuramoto_sivashinsky": kuramoto_sivashinsky,
    "cahn_hilliard": cahn_hilliard,
    "heat on a ring": heat_on_ring,
    "varying advection": lambda n: varying_advection(60),
    "forced burgers": forced_burgers,
    "two_d heat": heat_in_two_dimensions,
    "two_d fisher": fisher_in_two_dimensions,
}


def evolution():
    """Functions from the number of a draw to a problem, by family and name."""

    def problem(draw, make, noise):
        found = make(N_VALUES)
        return found.with_noise(noise, draw) if noise else found

    return {
        (f"evolution of {N_VALUES}{ending}", name): partial(
            problem, make=make, noise=noise
        )
        for noise, ending in ((0.0, ""), (0.02, " 2%"))
        for name, make in EQUATIONS.items()
    }

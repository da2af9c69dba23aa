"""The problems of `bench_suite.py`: observations, descriptions, and the truth.

Equations of one kind are drawn at random, with the number of the draw as their seed.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.integrate import solve_ivp
from system_problems import (
    cubic_oscillator,
    fitzhugh_nagumo,
    lorenz_partly,
    lorenz_scarce,
)

from keql.datasets import (
    make_burgers,
    make_darcy,
    make_heat_with_boundary_law,
    make_lotka_volterra,
)
from keql.kernels import parse_monomial


@dataclass(frozen=True)
class SuiteProblem:
    """Observations, arguments of a learner that describe the problem, and the truth.

    `terms` are those of P, {equation: {term: coefficient}}, of the signs opposite to
    those printed; None if P is no polynomial or the observations do not determine it. P
    has the values `parts` (n, E) at the features (n, d + Q); None if the terms say all.
    `is_determined` says whether an equation can be learned at all: where it is not, a
    warning is the right answer. `scored` has the columns of y_test whose errors are
    told, None: all.
    """

    settings: dict
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    terms: dict | None = None
    features: np.ndarray | None = None
    parts: np.ndarray | None = None
    noise: float = 0.0
    is_determined: bool = True
    scored: tuple | None = None

    def with_noise(self, noise, draw):
        """The problem with noise of a part of the standard deviation of each state."""
        rng = np.random.default_rng((draw, 77))
        size = np.nanstd(self.y, axis=0)
        y = self.y + noise * size * rng.standard_normal(self.y.shape)
        return replace(self, y=y, noise=noise)

    def state_error(self, predicted):
        """Relative L2 error of the states."""
        error, true = predicted - self.y_test, self.y_test
        if self.scored is not None:
            error, true = error[:, self.scored], true[:, self.scored]
        return np.linalg.norm(error) / np.linalg.norm(true)

    def with_hidden(self, state):
        """The problem of a system with a state that is not seen.

        Its unit is free, and so are the equations: the error of the others is told.
        """
        names = self.settings["states"]
        seen = tuple(i for i, name in enumerate(names) if name != state)
        y = self.y.copy()
        y[:, names.index(state)] = np.nan
        return replace(self, y=y, terms=None, scored=seen)

    def has_right_terms(self, equation):
        """Whether the terms are exactly the true ones; None if that is not asked."""
        if self.terms is None:
            return None
        return all(
            _parsed(_of(equation, name, self.terms).terms(), equation.feature_names)
            == _parsed(terms, equation.feature_names)
            for name, terms in self.terms.items()
        )

    def equation_error(self, equation):
        """Relative error of P at the test features, or else of its coefficients."""
        if self.parts is not None:
            found = equation.unknown_part(self.features).reshape(self.parts.shape)
            return np.linalg.norm(found - self.parts) / np.linalg.norm(self.parts)
        if self.terms is None:
            return np.nan
        differences, true_values = [], []
        for name, terms in self.terms.items():
            try:
                learned = _of(equation, name, self.terms).terms()
            except ValueError:  # it is no sum of terms
                return np.nan
            for term in {*terms, *learned}:
                true_values.append(terms.get(term, 0.0))
                differences.append(learned.get(term, 0.0) + true_values[-1])
        return np.linalg.norm(differences) / np.linalg.norm(true_values)


def _of(equation, name, terms):
    return equation[name] if len(terms) > 1 else equation


def _parsed(terms, names):
    """Terms as powers of features, or names where they are no products."""
    found = set()
    for name, value in terms.items():
        if value:
            try:
                found.add(tuple(parse_monomial(name, names)))
            except ValueError:
                found.add(name)
    return found


# --- ordinary differential equations ------------------------------------------------


def ode(rate, initial, t_end, n, terms=None, forcing=None, operators=None):
    """u^(k) = rate(t, u, ..., u^(k-1)) + forcing, seen at n equal times."""
    order = len(initial)
    names = tuple("u" + ("_" if i else "") + "t" * i for i in range(order + 1))

    def slopes(t, state):
        force = 0.0 if forcing is None else forcing(np.array([[t]]))[0]
        return [*state[1:], rate(t, *state) + force]

    solution = solve_ivp(
        slopes, (0, t_end), initial, "DOP853", dense_output=True, rtol=1e-12, atol=1e-12
    ).sol
    t, t_test = np.linspace(0, t_end, n), np.linspace(0, t_end, 500)
    states = solution(t_test)
    operators = names[:-1] if operators is None else operators
    settings = {"operators": operators, "known_part": names[-1], "variables": ("t",)}
    if forcing is not None:
        settings["forcing"] = forcing
    used = [states[names.index(name)] for name in operators]
    return SuiteProblem(
        settings,
        t[:, None],
        solution(t)[0],
        t_test[:, None],
        states[0],
        None if terms is None else {names[-1]: terms},
        np.column_stack([t_test, *used]),
        -np.asarray([rate(*row) for row in np.column_stack([t_test, *states])]),
    )


def drive(X):
    """The moment that drives the pendulum."""
    return 1.2 * np.cos(2 / 3 * X[:, 0])


ODES = {
    "logistic": lambda: ode(
        lambda t, u: u - u**2, [0.1], 6, 25, {"u": -1.0, "u^2": 1.0}
    ),
    "gompertz": lambda: ode(lambda t, u: -0.8 * u * np.log(u / 3), [0.1], 8, 30),
    "allee": lambda: ode(
        lambda t, u: u * (1 - u) * (u - 0.2),
        [0.25],
        15,
        25,
        {"u": 0.2, "u^2": -1.2, "u^3": 1.0},
    ),
    "rational": lambda: ode(lambda t, u: u / (1 + u**2) - 0.4 * u, [0.1], 12, 30),
    "riccati": lambda: ode(
        lambda t, u: -2 * t * u + u**2, [0.5], 3, 30, {"t u": 2.0, "u^2": -1.0}
    ),
    "van_der_pol": lambda: ode(
        lambda t, u, v: (1 - u**2) * v - u,
        [0.5, 0.0],
        15,
        40,
        {"u^2 u_t": 1.0, "u_t": -1.0, "u": 1.0},
    ),
    "pendulum": lambda: ode(lambda t, u, v: -np.sin(u), [2.5, 0.0], 20, 40),
    "damped_pendulum": lambda: ode(
        lambda t, u, v: -np.sin(u) - 0.2 * v, [2.5, 0.0], 20, 40
    ),
    "driven_pendulum": lambda: ode(
        lambda t, u, v: -np.sin(u) - 0.5 * v, [0.5, 0.0], 20, 40, forcing=drive
    ),
    "duffing": lambda: ode(
        lambda t, u, v: u - u**3 - 0.2 * v,
        [2.0, 0.0],
        12,
        30,
        {"u": -1.0, "u^3": 1.0, "u_t": 0.2},
    ),
    "torricelli": lambda: ode(lambda t, u: -0.4 * np.sqrt(u), [2.0], 5, 30),
    "quadratic friction": lambda: ode(
        lambda t, u, v: -u - 0.3 * v * np.abs(v), [2.0, 0.0], 15, 50
    ),
}


def random_oscillator(draw):
    """u'' = a cubic polynomial of u and u' with three to five random terms, bounded."""
    rng = np.random.default_rng(draw)
    powers = [(i, j) for i in range(4) for j in range(4) if 0 < i + j <= 3]
    names = [_product(i, j) for i, j in powers]
    while True:
        chosen = rng.choice(len(powers), size=rng.integers(3, 6), replace=False)
        values = rng.choice([-1, 1], len(chosen)) * rng.uniform(0.2, 2.0, len(chosen))
        pairs = [(powers[i], value) for i, value in zip(chosen, values, strict=True)]

        def rate(t, u, v, pairs=pairs):
            return sum(value * u**i * v**j for (i, j), value in pairs)

        initial = rng.uniform(-1.5, 1.5, 2)
        if not _stays_bounded(rate, initial, 10.0):
            continue
        terms = {names[i]: -v for i, v in zip(chosen, values, strict=True)}
        problem = ode(rate, initial, 10.0, 30, terms)
        if np.std(problem.y_test[250:]) > 0.2:  # it moves to the end
            return problem


def _product(i, j):
    factors = [("u", i), ("u_t", j)]
    return " ".join(n if p == 1 else f"{n}^{p}" for n, p in factors if p)


def _stays_bounded(rate, initial, t_end, most=4.0):
    def leaves(t, state):
        return most - np.max(np.abs(state))

    leaves.terminal = True
    found = solve_ivp(
        lambda t, s: [s[1], rate(t, *s)], (0, t_end), initial, events=leaves, rtol=1e-6
    )
    return found.status == 0


# --- evolution equations in one space dimension --------------------------------------


def on_ring(terms, initial, t_end, length, n, box, n_modes=128, seed=0, forcing=None):
    """u_t = a polynomial of u and its derivatives, periodic; seen at n points in a box.

    None if the solution grows or is not resolved. A forcing is a function of points.
    Two numbers n are those of times and of sensors, all of which are read every time.
    """
    x = length * np.arange(n_modes) / n_modes
    wave = 2j * np.pi / length * np.fft.rfftfreq(n_modes, 1 / n_modes)
    names = ["u", "u_x", "u_xx", "u_xxx", "u_xxxx"]
    products = [(parse_monomial(name, names), c) for name, c in terms.items()]
    keep = np.arange(len(wave)) <= n_modes // 3

    def derivatives(u):
        modes = np.fft.rfft(u)
        return [np.fft.irfft(wave**k * modes, n_modes) for k in range(len(names))]

    def rate(t, u):
        D = derivatives(u)
        total = sum(
            c * np.prod([d**p for d, p in zip(D, powers, strict=True)], axis=0)
            for powers, c in products
        )
        if forcing is not None:
            total = total + forcing(np.column_stack([np.full(n_modes, t), x]))
        return np.fft.irfft(keep * np.fft.rfft(total), n_modes)

    def leaves(t, u):
        return 6.0 - np.max(np.abs(u))

    leaves.terminal = True
    found = solve_ivp(
        rate,
        (0, t_end),
        initial(x),
        "LSODA",
        dense_output=True,
        events=leaves,
        rtol=1e-10,
        atol=1e-11,
    )
    if found.status != 0:
        return None
    modes = np.abs(np.fft.rfft(found.y[:, -1]))
    if np.max(modes[len(wave) // 3 - 5 : len(wave) // 3]) > 1e-7 * np.max(modes):
        return None

    def truth(X):
        phases = np.exp(np.outer(X[:, 1], wave)) / n_modes
        modes = np.fft.rfft(found.sol(X[:, 0]), axis=0).T
        modes[:, 1:-1] *= 2
        return np.real(np.sum(phases * modes, axis=1))

    (t0, t1), (x0, x1) = (0.0, t_end), box
    rng = np.random.default_rng((seed, 5))
    if np.ndim(n):
        read = np.linspace(t0, t1, n[0]), np.linspace(x0, x1, n[1])
        X = np.stack(np.meshgrid(*read, indexing="ij"), axis=-1).reshape(-1, 2)
    else:
        X = rng.uniform((t0, x0), (t1, x1), (n, 2))
    inside = np.linspace(0.03, 0.97, 40)
    axes = t0 + (t1 - t0) * inside, x0 + (x1 - x0) * inside
    grid = np.meshgrid(*axes, indexing="ij")
    X_test = np.column_stack([g.ravel() for g in grid])
    orders = [max(k for k in range(5) if p[k]) for p, _ in products]
    settings = {
        "operators": tuple(names[: max(2, *orders) + 1]),
        "known_part": "u_t",
        "variables": ("t", "x"),
    }
    if forcing is not None:
        settings["forcing"] = forcing
    left = {name: -c for name, c in terms.items()}
    return SuiteProblem(settings, X, truth(X), X_test, truth(X_test), {"u_t": left})


def random_evolution(draw, n=150):
    """Two to four of u, u^2, u_x, u_xx, u u_x, u_xxx with random coefficients.

    Seen at n points, or at sensors as `on_ring` says.
    """
    rng = np.random.default_rng((draw, 3))
    names = ["u", "u^2", "u_x", "u_xx", "u u_x", "u_xxx"]
    while True:
        chosen = rng.choice(names, size=rng.integers(2, 5), replace=False)
        sizes = {"u_xx": (0.03, 0.2), "u_xxx": (0.01, 0.05)}
        terms = {}
        for name in chosen:
            value = rng.uniform(*sizes.get(name, (0.3, 1.0)))
            terms[str(name)] = value if name == "u_xx" else value * rng.choice([-1, 1])
        if not {"u_xx", "u_xxx"} & {*terms}:
            continue
        heights, phases = rng.uniform(0.2, 0.7, 3), rng.uniform(0, 2 * np.pi, 3)

        def initial(x, heights=heights, phases=phases):
            k = np.arange(1, 4)
            return np.cos(x[:, None] * k + phases) @ heights

        problem = on_ring(terms, initial, 2.0, 2 * np.pi, n, (1.0, 5.0), seed=int(draw))
        if problem is not None:
            return problem


def soliton():
    """One soliton: it is a solution of u_t = -c u_x as well."""

    def truth(X):
        return 2 / np.cosh(X[:, 1] - 4 * X[:, 0]) ** 2

    return _moving(truth, ("u", "u_x", "u_xx", "u_xxx"), False)


def klein_gordon(cubic=1.0, n=120):
    """u_tt = u_xx - u - cubic u^3, standing waves in a box, seen at n points inside."""
    x = 2 * np.pi * np.arange(64) / 64
    wave = np.fft.rfftfreq(64, 1 / 64)

    def rate(t, state):
        u, v = np.split(state, 2)
        u_xx = np.fft.irfft(-(wave**2) * np.fft.rfft(u), 64)
        return np.concatenate([v, u_xx - u - cubic * u**3])

    start = np.concatenate([1.2 * np.cos(x) + 0.5 * np.sin(2 * x), 0.3 * np.cos(x)])
    found = solve_ivp(
        rate, (0, 3), start, "DOP853", dense_output=True, rtol=1e-11, atol=1e-11
    ).sol

    def truth(X):
        modes = np.fft.rfft(found(X[:, 0])[:64], axis=0).T / 64
        modes[:, 1:-1] *= 2
        return np.real(np.sum(np.exp(1j * np.outer(X[:, 1], wave)) * modes, axis=1))

    rng = np.random.default_rng(5)
    X = rng.uniform((0, 1), (3, 5), (n, 2))
    X_test = rng.uniform((0.1, 1.1), (2.9, 4.9), (1000, 2))
    settings = {"operators": ("u", "u_xx"), "known_part": "u_tt"}
    terms = {"u": 1.0, "u_xx": -1.0} | ({"u^3": cubic} if cubic else {})
    return SuiteProblem(
        settings | {"variables": ("t", "x")},
        X,
        truth(X),
        X_test,
        truth(X_test),
        {"u_tt": terms},
    )


def _moving(truth, operators, is_determined):
    rng = np.random.default_rng(11)
    X, X_test = (rng.uniform((-1, -6), (1, 6), (n, 2)) for n in (120, 1000))
    settings = {"operators": operators, "known_part": "u_t", "variables": ("t", "x")}
    return SuiteProblem(
        settings,
        X,
        truth(X),
        X_test,
        truth(X_test),
        is_determined=is_determined,
    )


def heat():
    """u_t = 0.1 u_xx, four modes."""
    heights = np.array([1.0, 0.6, -0.5, 0.3])

    def initial(x):
        return np.cos(np.outer(x, np.arange(1, 5)) + np.arange(4)) @ heights

    return on_ring({"u_xx": 0.1}, initial, 2.0, 2 * np.pi, 60, (1.0, 5.0))


def on_whole_ring(truth, terms, operators, n, seed=0):
    """A ring of length 1, seen at n points anywhere."""
    rng = np.random.default_rng((seed, 6))
    axes = np.linspace(0.03, 0.97, 40), np.linspace(0, 1, 40)
    grid = np.meshgrid(*axes, indexing="ij")
    X, X_test = rng.uniform(size=(n, 2)), np.column_stack([g.ravel() for g in grid])
    settings = {
        "operators": operators,
        "known_part": "u_t",
        "variables": ("t", "x"),
        "periods": {"x": 1.0},
    }
    return SuiteProblem(settings, X, truth(X), X_test, truth(X_test), {"u_t": terms})


def heat_on_ring(n=60):
    """u_t = 0.02 u_xx, six modes and a mean."""
    k = 2 * np.pi * np.arange(1, 7)
    sizes = np.random.default_rng(11).standard_normal((2, 6)) / np.arange(1, 7) ** 1.5

    def truth(X):
        phases, damping = np.outer(X[:, 1], k), np.exp(-0.02 * np.outer(X[:, 0], k**2))
        waves = sizes[0] * np.cos(phases) + sizes[1] * np.sin(phases)
        return 0.7 + np.sum(damping * waves, axis=1)

    return on_whole_ring(truth, {"u_xx": -0.02}, ("u", "u_x", "u_xx"), n)


def advection_on_ring():
    """u_t = -0.7 u_x, four waves and a mean."""
    k = 2 * np.pi * np.arange(1, 5)
    sizes = np.random.default_rng(12).standard_normal((2, 4)) / np.arange(1, 5)

    def truth(X):
        phases = np.outer(X[:, 1] - 0.7 * X[:, 0], k)
        return 0.4 + np.cos(phases) @ sizes[0] + np.sin(phases) @ sizes[1]

    return on_whole_ring(truth, {"u_x": 0.7}, ("u", "u_x"), 100)


def telegraph(n=100):
    """u_tt = u_xx - 0.6 u_t, three damped waves, seen at n points inside."""
    k, heights, damping = np.arange(1, 4), np.array([1.0, 0.5, -0.3]), 0.3
    speeds, phases = np.sqrt(k**2 - damping**2), np.array([0.0, -1.27, 1.0])

    def truth(X):
        angles = np.outer(X[:, 0], speeds)
        moving = np.cos(angles) + damping / speeds * np.sin(angles)
        waves = moving * np.cos(np.outer(X[:, 1], k) + phases)
        return np.exp(-damping * X[:, 0]) * (waves @ heights)

    operators, terms = ("u", "u_t", "u_x", "u_xx"), {"u_xx": -1.0, "u_t": 0.6}
    return inside(truth, operators, "u_tt", {"u_tt": terms}, 3.0, n)


def heat_with_a_source(n=100):
    """u_t = 0.1 u_xx + sin(2 x)/2, whose source is none of the default terms."""
    k, heights = np.arange(1, 4), np.array([1.0, 0.5, -0.3])
    phases = np.array([0.0, -1.27, 1.0])

    def derivatives(X):
        damping = np.exp(-0.1 * np.outer(X[:, 0], k**2)) * heights
        angles = np.outer(X[:, 1], k) + phases
        grown, waves = 1.25 * (1 - np.exp(-0.4 * X[:, 0])), 2 * X[:, 1]
        return [
            np.sum(damping * np.cos(angles), axis=1) + grown * np.sin(waves),
            -np.sum(damping * k * np.sin(angles), axis=1) + 2 * grown * np.cos(waves),
            -np.sum(damping * k**2 * np.cos(angles), 1) - 4 * grown * np.sin(waves),
        ]

    problem = inside(
        lambda X: derivatives(X)[0], ("u", "u_x", "u_xx"), "u_t", None, 2.0, n
    )
    found = derivatives(problem.X_test)
    parts = -0.1 * found[2] - 0.5 * np.sin(2 * problem.X_test[:, 1])
    features = np.column_stack([problem.X_test, *found])
    return replace(problem, features=features, parts=parts)


def inside(truth, operators, known_part, terms, t_end, n, is_determined=True):
    """A field seen at n random points of a box, 1 < x < 5."""
    rng = np.random.default_rng(5)
    X = rng.uniform((0, 1), (t_end, 5), (n, 2))
    X_test = rng.uniform((0.03 * t_end, 1.1), (0.97 * t_end, 4.9), (1000, 2))
    settings = {
        "operators": operators,
        "known_part": known_part,
        "variables": ("t", "x"),
    }
    test = X_test, truth(X_test)
    return SuiteProblem(
        settings, X, truth(X), *test, terms, is_determined=is_determined
    )


def heat_and_sine(n=100):
    """u_t = 0.1 u_xx + sin(u), whose sine is none of the default terms in space."""
    m = 128
    x, k = 2 * np.pi * np.arange(m) / m, np.fft.rfftfreq(m, 1 / m)

    def rate(t, u):
        return np.sin(u) + 0.1 * np.fft.irfft(-(k**2) * np.fft.rfft(u), m)

    start = 1.5 * np.cos(x) + 0.8 * np.sin(2 * x)
    solution = solve_ivp(
        rate, (0, 2), start, "LSODA", dense_output=True, rtol=1e-10, atol=1e-11
    ).sol

    def truth(X, order=0):
        modes = np.fft.rfft(solution(X[:, 0]), axis=0).T / m
        modes[:, 1:-1] *= 2
        waves = np.exp(1j * np.outer(X[:, 1], k)) * (1j * k) ** order
        return np.real(np.sum(waves * modes, axis=1))

    problem = inside(truth, ("u", "u_x", "u_xx"), "u_t", None, 2.0, n)
    u, u_x, u_xx = (truth(problem.X_test, order) for order in range(3))
    features = np.column_stack([problem.X_test, u, u_x, u_xx])
    return replace(problem, features=features, parts=-0.1 * u_xx - np.sin(u))


def standing_wave():
    """cos(2 t) sin(2 x + 0.3), of which u_xx = -4 u."""

    def truth(X):
        return np.cos(2 * X[:, 0]) * np.sin(2 * X[:, 1] + 0.3)

    return inside(truth, ("u", "u_xx"), "u_tt", None, 3.0, 80, False)


def one_mode():
    """exp(-0.3 t) cos(x + 0.4), of which u_xx = -u."""

    def truth(X):
        return np.exp(-0.3 * X[:, 0]) * np.cos(X[:, 1] + 0.4)

    return inside(truth, ("u", "u_x", "u_xx"), "u_t", None, 2.0, 80, False)


def porous_medium():
    """u_t = (0.1 u^2)_xx."""

    def initial(x):
        waves = np.cos(x) + 0.5 * np.sin(2 * x + 0.3) - 0.3 * np.cos(3 * x + 1)
        return 1 + 0.4 * waves

    terms = {"u_x^2": 0.2, "u u_xx": 0.2}
    return on_ring(terms, initial, 2.0, 2 * np.pi, 100, (1.0, 5.0))


def fisher():
    """u_t = 0.05 u_xx + u - u^2."""
    terms = {"u_xx": 0.05, "u": 1.0, "u^2": -1.0}
    return on_ring(
        terms,
        lambda x: 0.15 + 0.1 * np.cos(x) + 0.05 * np.sin(3 * x),
        4.0,
        2 * np.pi,
        60,
        (1.0, 5.0),
    )


def allen_cahn():
    """u_t = 0.05 u_xx + u - u^3."""
    terms = {"u_xx": 0.05, "u": 1.0, "u^3": -1.0}
    return on_ring(
        terms,
        lambda x: 0.6 * np.cos(x) + 0.4 * np.sin(3 * x),
        3.0,
        2 * np.pi,
        80,
        (1.0, 5.0),
        n_modes=256,
    )


def in_two_dimensions(terms, rate, initial, t_end, n, n_modes=32):
    """u_t = 0.1 (u_xx + u_yy) + rate(u), periodic; seen at n points in a box.

    Two numbers n are those of times and of stations, all of which are read every time.
    """
    x = 2 * np.pi * np.arange(n_modes) / n_modes
    k = np.fft.fftfreq(n_modes, 1 / n_modes)
    square = np.add.outer(k**2, k**2)

    def slopes(t, u):
        u = u.reshape(square.shape)
        spread = np.real(np.fft.ifft2(square * np.fft.fft2(u)))
        return (rate(u) - 0.1 * spread).ravel()

    start = initial(x[:, None], x).ravel()
    found = solve_ivp(
        slopes, (0, t_end), start, "DOP853", dense_output=True, rtol=1e-10, atol=1e-10
    ).sol

    def truth(X):
        u = found(X[:, 0]).T.reshape(-1, n_modes, n_modes)
        in_x, in_y = (np.exp(1j * np.outer(c, k)) / n_modes for c in X[:, 1:].T)
        return np.real(np.einsum("nij,ni,nj->n", np.fft.fft2(u), in_x, in_y))

    rng = np.random.default_rng(8)
    if np.ndim(n):
        places = np.tile(rng.uniform(1, 4, (n[1], 2)), (n[0], 1))
        X = np.column_stack([np.repeat(np.linspace(0, t_end, n[0]), n[1]), places])
    else:
        X = rng.uniform((0, 1, 1), (t_end, 4, 4), (n, 3))
    inside = (0.03 * t_end, 1.1, 1.1), (0.97 * t_end, 3.9, 3.9)
    X_test = rng.uniform(*inside, (1000, 3))
    settings = {
        "operators": ("u", "u_x", "u_y", "u_xx", "u_yy"),
        "known_part": "u_t",
        "variables": ("t", "x", "y"),
    }
    terms = {"u_xx": -0.1, "u_yy": -0.1} | {name: -c for name, c in terms.items()}
    return SuiteProblem(settings, X, truth(X), X_test, truth(X_test), {"u_t": terms})


def heat_in_two_dimensions(n=150):
    """u_t = 0.1 (u_xx + u_yy), four waves."""

    def initial(x, y):
        waves = np.cos(x + 0.3) * np.cos(y) + 0.6 * np.sin(2 * x + y)
        return waves + 0.4 * np.cos(2 * y - 1) - 0.3 * np.cos(3 * x + 1)

    return in_two_dimensions({}, np.zeros_like, initial, 2.0, n)


def fisher_in_two_dimensions(n=150):
    """u_t = 0.1 (u_xx + u_yy) + u - u^2."""

    def initial(x, y):
        waves = 0.15 * np.cos(x + 0.3) * np.cos(y) + 0.1 * np.sin(2 * x + y)
        return 0.35 + waves + 0.08 * np.cos(2 * y - 1)

    terms = {"u": 1.0, "u^2": -1.0}
    return in_two_dimensions(terms, lambda u: u - u**2, initial, 3.0, n)


def allen_cahn_in_two_dimensions(n=150):
    """u_t = 0.1 (u_xx + u_yy) + u - u^3."""

    def initial(x, y):
        waves = 0.4 * np.cos(x + 0.3) * np.cos(y) + 0.3 * np.sin(2 * x + y + 2)
        return 0.2 + waves - 0.25 * np.cos(2 * y - 1)

    terms = {"u": 1.0, "u^3": -1.0}
    return in_two_dimensions(terms, lambda u: u - u**3, initial, 2.0, n)


def random_plane(draw, n=150):
    """What spreads in a plane, with one or two of u, u^2 and u^3 at random."""
    rng, powers = np.random.default_rng((draw, 21)), {"u": 1, "u^2": 2, "u^3": 3}
    while True:
        sizes = rng.uniform(-1, 1), rng.uniform(-0.7, 0.7), -rng.uniform(0.3, 1)
        chosen = rng.permutation(3)[: rng.integers(1, 3)]
        terms = {[*powers][i]: sizes[i] for i in chosen}
        heights, phases = rng.uniform(0.2, 0.6, 4), rng.uniform(0, 2 * np.pi, 4)
        mean = rng.uniform(-0.3, 0.6)

        def rate(u, terms=terms):
            return sum(value * u ** powers[name] for name, value in terms.items())

        def initial(x, y, heights=heights, phases=phases, mean=mean):
            first, second, third, fourth = phases
            waves = np.cos(x + first) * np.cos(y), 0.6 * np.sin(2 * x + y + second)
            waves += 0.6 * np.cos(2 * y - third), 0.5 * np.cos(x - 2 * y + fourth)
            return mean + sum(h * wave for h, wave in zip(heights, waves, strict=True))

        with np.errstate(all="ignore"):
            problem = in_two_dimensions(terms, rate, initial, 2.0, n)
        if np.max(np.abs(problem.y)) < 6:  # false of what is not finite
            return problem


# --- equations that white noise drives ------------------------------------------------


def driven(terms, density, initial, t_end, draw, n=60, noise=0.02, n_fine=20_000):
    """A system that white noise of a spectral density drives, seen at n equal times.

    `terms` has {known part: {product: coefficient}}, the right-hand sides; that of u_tt
    is of u and u_t, of which u alone is seen. By the method of Euler and Maruyama.
    """
    is_second = "u_tt" in terms
    names = ["u", "u_t"] if is_second else [name[:-2] for name in terms]
    sums = [
        [(np.array(parse_monomial(name, names)), c) for name, c in own.items()]
        for own in terms.values()
    ]
    rng, dt = np.random.default_rng(draw), t_end / n_fine
    kicks = np.sqrt(density * dt) * rng.standard_normal((n_fine, len(sums)))
    path = [np.array(initial, dtype=float)]
    for kick in kicks:
        y = path[-1]
        rate = [sum(c * np.prod(y**powers) for powers, c in own) for own in sums]
        added = np.array(rate) * dt + kick
        path.append(y + ([y[1] * dt, added[0]] if is_second else added))
    seen = np.array(path)[:, : 1 if is_second else None]
    seen = seen[:, 0] if len(sums) == 1 else seen
    t, asked = (np.linspace(0, n_fine, k).astype(int) for k in (n, 500))
    known = tuple(terms) if len(sums) > 1 else next(iter(terms))
    settings = {"operators": tuple(names), "known_part": known, "variables": ("t",)}
    if len(sums) > 1:
        settings["states"] = tuple(names)
    left = {name: {p: -c for p, c in own.items()} for name, own in terms.items()}
    test = asked[:, None] * dt, seen[asked]
    problem = SuiteProblem(settings, t[:, None] * dt, seen[t], *test, left)
    # Exact values of what noise drives leave equations and states as uncertain.
    return replace(problem.with_noise(noise, draw), noise=max(noise, 0.02))


HUNT = {"x_t": {"x": 1.0, "x y": -0.5}, "y_t": {"x y": 0.4, "y": -0.8}}

DRIVEN = {
    "oscillator": ({"u_tt": {"u": -1.0, "u_t": -0.2}}, 0.05, [1.0, 0.0], 20.0),
    "duffing": (
        {"u_tt": {"u": 1.0, "u^3": -1.0, "u_t": -0.3}},
        0.05,
        [1.5, 0.0],
        20.0,
    ),
    "ornstein uhlenbeck": ({"u_t": {"u": -1.0}}, 0.05, [1.0], 12.0),
    "lotka volterra": (HUNT, 0.005, [1.0, 1.5], 20.0),
}

LORENZ = {
    "x_t": {"x": -10.0, "y": 10.0},
    "y_t": {"x": 28.0, "y": -1.0, "x z": -1.0},
    "z_t": {"x y": 1.0, "z": -8 / 3},
}


# --- systems of equations -------------------------------------------------------------


def polynomial_system(right, initial, t_end, n):
    """A system of ordinary differential equations, seen at n equal times.

    `right` has {state: {product: coefficient}}, the right-hand sides.
    """
    names = [*right]
    sums = [
        [(np.array(parse_monomial(name, names)), c) for name, c in own.items()]
        for own in right.values()
    ]

    def rates(t, y):
        return [sum(c * np.prod(y**powers) for powers, c in own) for own in sums]

    solution = solve_ivp(
        rates, (0, t_end), initial, "DOP853", dense_output=True, rtol=1e-12, atol=1e-12
    ).sol
    t, t_test = np.linspace(0, t_end, n), np.linspace(0, t_end, 500)
    settings = {
        "operators": tuple(names),
        "known_part": tuple(f"{name}_t" for name in names),
        "variables": ("t",),
        "states": tuple(names),
    }
    test = t_test[:, None], solution(t_test).T
    return SuiteProblem(settings, t[:, None], solution(t).T, *test, _left(right))


def _left(right):
    """Terms {equation: {term: coefficient}} of the signs of the left-hand side."""
    return {
        f"{state}_t": {name: -c for name, c in own.items()}
        for state, own in right.items()
    }


# The sum of the states of "a to b to c" is conserved; units of "far units" differ.
SYSTEMS = {
    "brusselator": lambda: polynomial_system(
        {
            "x": {"1": 1.0, "x^2 y": 1.0, "x": -4.0},
            "y": {"x": 3.0, "x^2 y": -1.0},
        },
        [1.0, 1.0],
        15,
        80,
    ),
    "glycolysis": lambda: polynomial_system(
        {
            "x": {"x": -1.0, "y": 0.08, "x^2 y": 1.0},
            "y": {"1": 0.6, "y": -0.08, "x^2 y": -1.0},
        },
        [0.5, 1.0],
        40,
        80,
    ),
    "roessler": lambda: polynomial_system(
        {
            "x": {"y": -1.0, "z": -1.0},
            "y": {"x": 1.0, "y": 0.2},
            "z": {"1": 0.2, "x z": 1.0, "z": -5.7},
        },
        [1.0, 1.0, 0.0],
        25,
        100,
    ),
    "a to b to c": lambda: polynomial_system(
        {"a": {"a": -1.0}, "b": {"a": 1.0, "b": -0.4}, "c": {"b": 0.4}},
        [1.0, 0.0, 0.0],
        8,
        40,
    ),
    "food chain": lambda: polynomial_system(
        {
            "x": {"x": 1.0, "x^2": -0.1, "x y": -0.5},
            "y": {"y": -0.6, "x y": 0.3, "y z": -0.4},
            "z": {"z": -0.4, "y z": 0.3},
        },
        [3.0, 1.5, 0.5],
        25,
        80,
    ),
    "rigid body": lambda: polynomial_system(
        {"p": {"q r": -1.0}, "q": {"p r": 1.2}, "r": {"p q": -0.5}},
        [1.0, 0.3, 0.8],
        15,
        50,
    ),
    "far units": lambda: polynomial_system(
        {"a": {"a": 0.02, "a b": -4.0}, "b": {"b": -0.03, "a b": 1e-5}},
        [5000.0, 0.003],
        700,
        60,
    ),
}


# Which state is not seen.
HIDDEN = {
    "glycolysis": "y",
    "roessler": "z",
    "food chain": "z",
    "a to b to c": "a",
    "rigid body": "r",
    "brusselator": "y",
}


def hidden(name, state, noise, draw):
    """A system of which a state is not seen."""
    return SYSTEMS[name]().with_noise(noise, draw).with_hidden(state)


def saturating_prey():
    """Prey that are eaten at the rate u v/(0.5 + u), seen at 60 equal times."""

    def rates(t, y):
        u, v = y
        eaten = u * v / (0.5 + u)
        return np.array([u - u**2 / 3 - eaten, 0.8 * eaten - 0.4 * v])

    solution = solve_ivp(
        rates, (0, 25), [1.0, 0.5], "DOP853", dense_output=True, rtol=1e-12, atol=1e-13
    ).sol
    t, t_test = np.linspace(0, 25, 60), np.linspace(0, 25, 500)
    settings = {
        "operators": ("u", "v"),
        "known_part": ("u_t", "v_t"),
        "variables": ("t",),
        "states": ("u", "v"),
    }
    states = solution(t_test)
    features, parts = np.column_stack([t_test, *states]), -rates(t_test, states).T
    test = t_test[:, None], states.T
    return SuiteProblem(
        settings, t[:, None], solution(t).T, *test, features=features, parts=parts
    )


def pair_on_ring(right, initial, t_end, n=100, n_modes=64):
    """Two fields of period 2 pi, seen at n points in a box.

    `right` has {state: {product of u, v, u_xx, v_xx: coefficient}}.
    """
    x = 2 * np.pi * np.arange(n_modes) / n_modes
    wave = 1j * np.fft.rfftfreq(n_modes, 1 / n_modes)
    names = ["u", "v", "u_xx", "v_xx"]
    sums = [
        [(parse_monomial(name, names), c) for name, c in own.items()]
        for own in right.values()
    ]

    def rates(t, state):
        fields = np.split(state, 2)
        fields += [np.fft.irfft(wave**2 * np.fft.rfft(f), n_modes) for f in fields]
        return np.concatenate(
            [
                sum(
                    c * np.prod([f**p for f, p in zip(fields, q, strict=True)], axis=0)
                    for q, c in own
                )
                for own in sums
            ]
        )

    start = np.concatenate([own(x) for own in initial])
    solution = solve_ivp(
        rates, (0, t_end), start, "LSODA", dense_output=True, rtol=1e-10, atol=1e-11
    ).sol

    def truth(X):
        phases, values = np.exp(np.outer(X[:, 1], wave)), []
        for own in np.split(solution(X[:, 0]), 2):
            modes = np.fft.rfft(own, axis=0).T / n_modes
            modes[:, 1:-1] *= 2
            values.append(np.real(np.sum(phases * modes, axis=1)))
        return np.column_stack(values)

    X = np.random.default_rng((0, 5)).uniform((0, 1), (t_end, 5), (n, 2))
    inside = np.linspace(0.03, 0.97, 40)
    grid = np.meshgrid(t_end * inside, 1 + 4 * inside, indexing="ij")
    X_test = np.column_stack([g.ravel() for g in grid])
    used = {name for own in right.values() for term in own for name in term.split()}
    settings = {
        "operators": tuple(name for name in names if name in used or "_" not in name),
        "known_part": ("u_t", "v_t"),
        "variables": ("t", "x"),
        "states": ("u", "v"),
    }
    test = X_test, truth(X_test)
    return SuiteProblem(settings, X, truth(X), *test, _left(right))


PAIRS = {
    "schnakenberg": lambda: pair_on_ring(
        {
            "u": {"1": 0.1, "u": -1.0, "u^2 v": 1.0, "u_xx": 0.05},
            "v": {"1": 0.9, "u^2 v": -1.0, "v_xx": 0.5},
        },
        (
            lambda x: 1 + 0.4 * np.cos(x) + 0.2 * np.sin(2 * x),
            lambda x: 0.9 + 0.3 * np.sin(x) - 0.2 * np.cos(3 * x),
        ),
        3.0,
    ),
    "gray_scott": lambda: pair_on_ring(
        {
            "u": {"1": 0.3, "u": -0.3, "u v^2": -1.0, "u_xx": 0.1},
            "v": {"v": -0.5, "u v^2": 1.0, "v_xx": 0.05},
        },
        (
            lambda x: 0.7 + 0.2 * np.cos(x) + 0.1 * np.sin(2 * x),
            lambda x: 0.9 + 0.4 * np.sin(x) + 0.2 * np.cos(2 * x),
        ),
        5.0,
    ),
    "wave": lambda: pair_on_ring(
        {"u": {"v": 1.0}, "v": {"u_xx": 1.0}},
        (
            lambda x: np.cos(x) + 0.4 * np.sin(2 * x),
            lambda x: 0.5 * np.sin(x) + 0.3 * np.cos(3 * x),
        ),
        2.0,
    ),
}


def shallow_water(speed=0.2, n=60, n_modes=64):
    """Depth and speed of water, h_t = -(h v)_x, v_t = -v v_x - h_x, of period 2 pi.

    `speed` is the height of the first wave of v; seen at n points in a box.
    """
    x = 2 * np.pi * np.arange(n_modes) / n_modes
    k = np.fft.rfftfreq(n_modes, 1 / n_modes)

    def slope(values):
        return np.fft.irfft(1j * k * np.fft.rfft(values), n_modes)

    def rates(t, state):
        h, v = np.split(state, 2)
        return np.concatenate([-slope(h * v), -v * slope(v) - slope(h)])

    start = [
        1 + 0.2 * np.cos(x) + 0.1 * np.cos(2 * x + 1),
        speed * np.sin(x) + speed / 3 * np.cos(2 * x),
    ]
    solution = solve_ivp(
        rates, (0, 2), np.concatenate(start), dense_output=True, rtol=1e-9, atol=1e-10
    ).sol

    def truth(X):
        values = []
        for own in np.split(solution(X[:, 0]), 2):
            modes = np.fft.rfft(own, axis=0).T / n_modes
            modes[:, 1:-1] *= 2
            phases = np.exp(1j * np.outer(X[:, 1], k))
            values.append(np.real(np.sum(phases * modes, axis=1)))
        return np.column_stack(values)

    rng = np.random.default_rng((0, 5))
    X = rng.uniform((0, 1), (2, 5), (n, 2))
    X_test = rng.uniform((0.06, 1.1), (1.94, 4.9), (1000, 2))
    settings = {
        "operators": ("h", "v", "h_x", "v_x"),
        "known_part": ("h_t", "v_t"),
        "variables": ("t", "x"),
        "states": ("h", "v"),
    }
    right = {"h": {"h v_x": -1.0, "v h_x": -1.0}, "v": {"v v_x": -1.0, "h_x": -1.0}}
    test = X_test, truth(X_test)
    return SuiteProblem(settings, X, truth(X), *test, _left(right))


# --- from the data sets of the package -----------------------------------------------


def of_data_set(data, terms=None):
    """A data set of one state, its terms those of P."""
    test = np.random.default_rng(0).permutation(len(data.X_test))[:2000]
    X, y = data.X_test[test], data.y_test[test]
    return SuiteProblem(dict(data.problem), data.X, data.y, X, y, terms)


def burgers(n):
    """Burgers' equation as published, n observations inside."""
    data = make_burgers(n, random_state=1)
    return of_data_set(data, {"u_t": {"u u_x": -1.0, "u_xx": -0.01}})


def darcy(draw):
    """Darcy's equation from four functions; P is all of its left-hand side."""
    data = make_darcy(4, n_interior=12, random_state=draw)
    problem = of_data_set(data)
    X, d = problem.X_test, len(data.problem["variables"])
    values = [data.truth(X, name) for name in data.feature_names[d:]]
    features = np.column_stack([X[:, :d], *values])
    return replace(problem, features=features, parts=data.unknown_part(features))


def of_system(make, draw, noise=0.0):
    """A problem of `system_problems`, its right-hand sides on the left."""
    problem = make(draw)
    terms = problem.terms and {
        name: {term: -c for term, c in terms.items()}
        for name, terms in problem.terms.items()
    }
    return SuiteProblem(
        problem.settings,
        problem.X,
        problem.y,
        problem.X_test,
        problem.y_test,
        terms,
        noise=noise,
        scored=problem.scored if terms is None else None,
    )


def elliptic(n=60):
    """u_xx + u_yy = f + u^3 on a square, f known."""

    def truth(X):
        return np.sin(np.pi * X[:, 0]) * np.cos(2 * X[:, 1]) + X[:, 1]

    def forcing(X):
        wave = np.sin(np.pi * X[:, 0]) * np.cos(2 * X[:, 1])
        return -(np.pi**2 + 4) * wave - truth(X) ** 3

    rng = np.random.default_rng(4)
    X, X_test = rng.uniform(0, 1, (n, 2)), rng.uniform(0.05, 0.95, (1000, 2))
    side = np.linspace(0.02, 0.98, 14)
    settings = {
        "operators": ("u", "u_x", "u_y"),
        "known_part": "u_xx + u_yy",
        "variables": ("x", "y"),
        "forcing": forcing,
        "collocation_points": np.array([(a, b) for a in side for b in side]),
    }
    terms = {"u_xx + u_yy": {"u^3": -1.0}}
    u = truth(X_test)
    # P does not depend on slopes; those of the features are not needed exactly.
    features = np.column_stack([X_test, u, np.zeros((len(u), 2))])
    parts = -(u**3)
    return SuiteProblem(settings, X, truth(X), X_test, u, terms, features, parts)


def elliptic_with(part, terms, n=50):
    """u_xx + u_yy = f - P on a square, f known; P = `part` of u, u_x and u_y.

    `terms` are None if it is no polynomial.
    """

    def derivatives(X):
        a, b, c = 2 * X[:, 0] + 0.3, 3 * X[:, 1], 2 * X[:, 0] - X[:, 1]
        return (
            np.sin(a) * np.cos(b) + 0.5 * np.cos(c),
            2 * np.cos(a) * np.cos(b) - np.sin(c),
            -3 * np.sin(a) * np.sin(b) + 0.5 * np.sin(c),
            -13 * np.sin(a) * np.cos(b) - 2.5 * np.cos(c),
        )

    def forcing(X):
        return derivatives(X)[3] + part(*derivatives(X)[:3])

    rng = np.random.default_rng(4)
    X, X_test = rng.uniform(0, 1, (n, 2)), rng.uniform(0.05, 0.95, (1000, 2))
    settings = {
        "operators": ("u", "u_x", "u_y"),
        "known_part": "u_xx + u_yy",
        "variables": ("x", "y"),
        "forcing": forcing,
    }
    values, given = derivatives(X)[0], terms and {"u_xx + u_yy": terms}
    found = derivatives(X_test)[:3]
    problem = SuiteProblem(settings, X, values, X_test, found[0], given)
    if terms is not None:
        return problem
    features = np.column_stack([X_test, *found])
    return replace(problem, features=features, parts=part(*found))


ELLIPTIC = {
    "drift": (lambda u, p, q: 3 * p - 2 * q, {"u_x": 3.0, "u_y": -2.0}),
    "transport": (lambda u, p, q: 3 * u * p, {"u u_x": 3.0}),
    "both": (lambda u, p, q: 5 * u + 2 * u * q, {"u": 5.0, "u u_y": 2.0}),
}


def two_waves_in_a_plane(n=70):
    """u_t = 0.3 (u_xx + u_yy), of which u_t = a u + b u_xx is as true."""

    def truth(X):
        first = np.exp(-0.807 * X[:, 0]) * np.cos(X[:, 1] + 1.3 * X[:, 2] + 0.3)
        second = np.exp(-1.392 * X[:, 0]) * np.cos(2 * X[:, 1] + 0.8 * X[:, 2] + 1)
        return first + 0.7 * second

    rng = np.random.default_rng(8)
    X, X_test = rng.uniform(0, (1, 2, 2), (n, 3)), rng.uniform(0.1, 0.9, (500, 3))
    settings = {
        "operators": ("u", "u_x", "u_y", "u_xx", "u_yy"),
        "known_part": "u_t",
        "variables": ("t", "x", "y"),
    }
    test = X_test, truth(X_test)
    return SuiteProblem(settings, X, truth(X), *test, is_determined=False)


def undetermined(y, operators=("u", "u_t"), known_part="u_tt"):
    """Values that determine no equation, at equal times."""
    t = np.linspace(0, 10, len(y))[:, None]
    settings = {"operators": operators, "known_part": known_part, "variables": ("t",)}
    return SuiteProblem(settings, t, y, t, y, is_determined=False)


def lotka_volterra(noise, draw):
    """Predators and prey, 25 times over two periods."""
    data = make_lotka_volterra(25, t_end=24.0, noise=noise, random_state=draw)
    return of_equations(data, noise)


def rod(noise, draw):
    """Heat in a rod that a law of its wall cools, its other end insulated."""
    data = make_heat_with_boundary_law(150, 30, noise=noise, random_state=draw)
    return of_equations(data, noise)


def of_equations(data, noise):
    """A data set of several equations, of which known constraints have no terms."""
    terms = {
        name: {term: -c for term, c in own.items()}
        for name, own in data.terms.items()
        if own
    }
    test = data.X_test, data.y_test
    return SuiteProblem(dict(data.problem), data.X, data.y, *test, terms, noise=noise)


def suite(n_random):
    """Functions from the number of a draw to a problem, by family and name."""
    problems = {}
    for name, make in ODES.items():
        problems["ode", name] = lambda draw, make=make: make()
        problems["ode", f"{name} 2%"] = lambda draw, make=make: make().with_noise(
            0.02, draw
        )
    for seed in range(n_random):
        make = partial(random_oscillator, seed)
        problems["oscillator", f"{seed}"] = lambda draw, make=make: make()
        problems["oscillator 2%", f"{seed}"] = lambda draw, make=make: (
            make().with_noise(0.02, draw)
        )
    for seed in range(n_random):
        make = partial(random_evolution, seed)
        problems["evolution", f"{seed}"] = lambda draw, make=make: make()
        for name, n in {"at sensors": (25, 8), "snapshots of": (5, 30)}.items():
            problems["evolution", f"{name} {seed}"] = lambda draw, make=make, n=n: make(
                n=n
            )
        plane = partial(random_plane, seed)
        problems["plane", f"{seed}"] = lambda draw, make=plane: make()
        problems["plane", f"{seed} 2%"] = lambda draw, make=plane: make().with_noise(
            0.02, draw
        )
    fields = {
        "heat": heat,
        "heat on a ring": heat_on_ring,
        "advection on a ring": advection_on_ring,
        "fisher": fisher,
        "allen_cahn": allen_cahn,
        "klein_gordon": klein_gordon,
        "klein_gordon linear": partial(klein_gordon, 0.0),
        "two_d heat": heat_in_two_dimensions,
        "two_d fisher": fisher_in_two_dimensions,
        "two_d allen_cahn": allen_cahn_in_two_dimensions,
        "two_d fisher in snapshots": partial(fisher_in_two_dimensions, (4, 45)),
        "two_d fisher at stations": partial(fisher_in_two_dimensions, (12, 16)),
        "telegraph": telegraph,
        "porous medium": porous_medium,
        "source": heat_with_a_source,
        "sine": heat_and_sine,
        "burgers 30": partial(burgers, 30),
        "burgers 100": partial(burgers, 100),
    }
    for name, make in fields.items():
        problems["field", name] = lambda draw, make=make: make()
        if name not in ("burgers 30",):
            problems["field", f"{name} 2%"] = lambda draw, make=make: make().with_noise(
                0.02, draw
            )
    problems["system", "lotka_volterra"] = partial(lotka_volterra, 0.0)
    problems["system", "lotka_volterra 2%"] = partial(lotka_volterra, 0.02)
    problems["law of a wall", "rod"] = partial(rod, 0.0)
    problems["law of a wall", "rod 1%"] = partial(rod, 0.01)
    problems["system", "lorenz"] = partial(of_system, lorenz_scarce)
    problems["system", "cubic 0.08"] = partial(
        of_system, partial(cubic_oscillator, 0.08)
    )
    problems["system", "fitzhugh_nagumo"] = partial(
        of_system, partial(fitzhugh_nagumo, 0.0)
    )
    systems = SYSTEMS | {"saturating prey": saturating_prey}
    for family, makers in (("several states", systems), ("pair of fields", PAIRS)):
        for name, make in makers.items():
            problems[family, name] = lambda draw, make=make: make()
            problems[family, f"{name} 2%"] = lambda draw, make=make: make().with_noise(
                0.02, draw
            )
    for name, state in HIDDEN.items():
        problems["hidden state", name] = partial(hidden, name, state, 0.0)
        problems["hidden state", f"{name} 2%"] = partial(hidden, name, state, 0.02)
    problems["hidden state", "lorenz 3%"] = partial(
        of_system, partial(lorenz_partly, ("x", "y"), 1), noise=0.03
    )
    for name, given in DRIVEN.items():
        problems["driven", name] = partial(driven, *given)
    kicked = LORENZ, 0.5, [-8.0, 7.0, 27.0], 8.0
    problems["driven", "lorenz, exact"] = partial(driven, *kicked, n=200, noise=0.0)
    problems["elliptic", "cubic"] = lambda draw: elliptic()
    problems["elliptic", "cubic 1%"] = lambda draw: elliptic().with_noise(0.01, draw)
    for name, given in ELLIPTIC.items():
        problems["elliptic", f"{name} 2%"] = lambda draw, given=given: elliptic_with(
            *given
        ).with_noise(0.02, draw + 1)
    problems["elliptic", "exponential"] = lambda draw: elliptic_with(
        lambda u, p, q: 2 * np.exp(u), None, 60
    )
    problems["pair of fields", "shallow water 2%"] = lambda draw: (
        shallow_water().with_noise(0.02, draw + 1)
    )
    problems["elliptic", "darcy"] = darcy
    noise = np.random.default_rng(8).standard_normal(30)
    problems["undetermined", "soliton"] = lambda draw: soliton()
    problems["undetermined", "standing wave"] = lambda draw: standing_wave()
    problems["undetermined", "one mode"] = lambda draw: one_mode()
    problems["undetermined", "two waves in a plane"] = lambda draw: (
        two_waves_in_a_plane()
    )
    problems["undetermined", "two values"] = lambda draw: undetermined(noise[:2])
    problems["undetermined", "constant"] = lambda draw: undetermined(np.ones(30))
    problems["undetermined", "pure noise"] = lambda draw: undetermined(noise)
    problems["undetermined", "steady"] = lambda draw: undetermined(
        np.full(30, 2.0) + 1e-3 * noise, ("u",), "u_t"
    )
    return problems

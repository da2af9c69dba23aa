"""The systems of equations of `bench_systems.py`, as published, and their scores."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from published_systems import LORENZ_NOISE_RATIOS

from keql import Equation
from keql.datasets import make_fitzhugh_nagumo, make_lorenz, make_lotka_volterra
from keql.datasets._systems import integrate
from keql.kernels import Polynomial, Restriction, parse_monomial


@dataclass(frozen=True)
class Problem:
    """Observations of a system, its description and what is known of the truth.

    `terms` are the true right-hand sides, {equation: {term: coefficient}}; None if the
    observations do not determine them. `scored` are the columns of the states whose
    errors are told. The variances that normalise them are those of each state, or of
    all if `pooled`. `published_kernel` is the equation kernel of the published run,
    where that is not simply all polynomials of some degree.
    """

    settings: dict
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    terms: dict | None
    scored: tuple
    pooled: bool = False
    published_kernel: object = None

    def state_errors(self, predicted):
        """The relative L2 error, and the root mean square error as published."""
        columns = list(self.scored)
        true = self.y_test.reshape(len(self.X_test), -1)[:, columns]
        error = predicted.reshape(len(self.X_test), -1)[:, columns] - true
        variance = np.var(true) if self.pooled else np.var(true, axis=0)
        relative = np.linalg.norm(error) / np.linalg.norm(true)
        return relative, np.sqrt(np.mean(error**2 / variance))

    def equation_errors(self, equation):
        """The relative error of the coefficients, and whether the terms are exact."""
        if self.terms is None:
            return np.nan, None
        differences, true_values, exact = [], [], True
        for name, terms in self.terms.items():
            # One equation of one state is no mapping.
            learned = equation[name] if len(self.terms) > 1 else equation
            names = learned.feature_names
            found = {parse_monomial(m, names): c for m, c in learned.terms().items()}
            true = {parse_monomial(m, names): c for m, c in terms.items()}
            for powers in {*found, *true}:
                value = true.get(powers, 0.0)
                true_values.append(value)
                differences.append(found.get(powers, 0.0) - value)
            exact &= {powers for powers, c in found.items() if c} == set(true)
        return np.linalg.norm(differences) / np.linalg.norm(true_values), exact


def all_problems():
    """Functions from the number of a draw to a problem, by name."""
    problems = {
        "lorenz_scarce": lorenz_scarce,
        "lorenz_streams": partial(lorenz_partly, ("x", "y", "z"), 10),
        "lorenz_hidden": partial(lorenz_partly, ("x", "y"), 1),
        "lotka_volterra": partial(lotka_volterra, 0.0, 96.0),
        "lotka_volterra_2%": partial(lotka_volterra, 0.02, 96.0),
        "lotka_volterra_denser": partial(lotka_volterra, 0.0, 24.0),
        "lotka_volterra_denser_2%": partial(lotka_volterra, 0.02, 24.0),
    }
    for noise in (0.02, 0.04, 0.08, 0.16, 0.32, 0.64):
        problems[f"cubic_oscillator_{noise}"] = partial(cubic_oscillator, noise)
    problems["coupled_duffing"] = coupled_duffing
    problems["van_der_pol"] = van_der_pol
    problems["fitzhugh_nagumo"] = partial(fitzhugh_nagumo, 0.0)
    problems["fitzhugh_nagumo_2%"] = partial(fitzhugh_nagumo, 0.02)
    problems["fitzhugh_nagumo_hidden"] = partial(fitzhugh_nagumo_hidden, 0.0)
    problems["fitzhugh_nagumo_hidden_2%"] = partial(fitzhugh_nagumo_hidden, 0.02)
    return problems


def of_data_set(data, y, terms, scored=None):
    """A problem with the observations `y` of a data set of the package."""
    scored = tuple(range(y.shape[1])) if scored is None else scored
    settings = dict(data.problem)
    return Problem(settings, data.X, y, data.X_test, data.y_test, terms, scored)


def lorenz_scarce(draw):
    """200 times, spaced by 0.05; the noise has a standard deviation of 2."""
    data = make_lorenz(200, t_end=9.95)
    return of_data_set(data, data.y + 2 * normal(draw, data.y.shape), data.terms)


def lorenz_partly(observed, streams, draw):
    """404 times, one coordinate measured at each; the noise has a variance of 0.05."""
    data = make_lorenz(404, t_end=10.075, observed=observed, streams=streams)
    noise = np.sqrt(0.05) * normal(draw, data.y.shape)
    # The equation of a state that is never measured is free up to an affine change.
    terms = data.terms if len(observed) == 3 else None
    return of_data_set(data, data.y + noise, terms, tuple(range(len(observed))))


def lorenz_cell(t_end, ratio, draw):
    """A cell of the heat map: all measured, at times spaced by 0.01."""
    if ratio not in LORENZ_NOISE_RATIOS:
        raise ValueError(f"the ratios of noise are {LORENZ_NOISE_RATIOS}, not {ratio}")
    size = np.std(make_lorenz(1011, t_end=10.1).y)
    data = make_lorenz(100 * t_end + 1, t_end=t_end)
    noise = ratio * size * normal(draw, data.y.shape)
    return of_data_set(data, data.y + noise, data.terms)


def lotka_volterra(noise, t_end, draw):
    """25 times; those of the published run are spaced by 4, of a period of 10.8."""
    data = make_lotka_volterra(25, t_end=t_end, noise=noise, random_state=draw)
    return of_data_set(data, data.y, data.terms)


def fitzhugh_nagumo(noise, draw):
    """150 points for each field; the points are drawn too."""
    data = make_fitzhugh_nagumo(150, noise=noise, random_state=draw)
    return of_data_set(data, data.y, data.terms)


def fitzhugh_nagumo_hidden(noise, draw):
    """150 points of the first field; the terms of the second equation are known.

    The coefficients of these are not. The second field is free up to an affine change.
    """
    data = make_fitzhugh_nagumo(150, noise=noise, random_state=draw)
    seen = np.isfinite(data.y[:, 0])
    terms = Restriction(Polynomial(1), ["u", "v", "v_xx", "1"])
    equations = [
        ("u_t", Equation("u_t", ("u", "u_xx", "v"))),
        ("v_t", Equation("v_t", ("u", "v", "v_xx"), kernel=terms, n_terms=None)),
    ]
    settings = {"equations": equations, "states": ("u", "v"), "variables": ("t", "x")}
    test = data.X_test, data.y_test
    return Problem(settings, data.X[seen], data.y[seen], *test, None, (0,))


def cubic_oscillator(noise, draw):
    """200 times, spaced by 0.05; the same draw of the noise for all its sizes."""

    def rate(t, state):
        x, y = state**3
        return [-0.1 * x + 2 * y, -2 * x - 0.1 * y]

    solution = integrate(rate, np.array([2.0, 0.0]), 10.0, 400)
    t, t_test = 0.05 * np.arange(200), np.linspace(0.0, 10.0, 500)
    y = solution(t)
    terms = {"x_t": {"x^3": -0.1, "y^3": 2.0}, "y_t": {"x^3": -2.0, "y^3": -0.1}}
    states = ("x", "y")
    settings = describe(states, terms, states=states)
    y = y + noise * normal(draw, y.shape)
    test = t_test[:, None], solution(t_test)
    return Problem(settings, t[:, None], y, *test, terms, (0, 1), pooled=True)


def coupled_duffing(draw):
    """150 times of the positions of five oscillators; stiffnesses are drawn too.

    Each has x'' = -a x - 2 x^3 - 2 (sum of both neighbours - 2 x), a in (2, 4).
    """
    rng = np.random.RandomState(draw)
    stiffness = rng.uniform(2.0, 4.0, 5)

    def rate(t, state):
        x, speed = state[:5], state[5:]
        coupling = np.roll(x, 1) + np.roll(x, -1) - 2 * x
        return np.concatenate([speed, -stiffness * x - 2 * x**3 - 2 * coupling])

    initial = np.concatenate([np.ones(5), np.zeros(5)])
    solution = integrate(rate, initial, 30.0, 100)
    t, t_test = 0.2 * np.arange(150), np.linspace(0.0, 30.0, 1000)
    y = solution(t)[:, :5]
    y = y + 0.2 * rng.standard_normal(y.shape)
    states = [f"x{i}" for i in range(5)]
    terms = {}
    for i, name in enumerate(states):
        own = {name: 4 - stiffness[i], f"{name}^3": -2.0}
        neighbours = {states[i - 1]: -2.0, states[(i + 1) % 5]: -2.0}
        terms[f"{name}_tt"] = own | neighbours
    operators = [*states, *(f"{name}_t" for name in states)]
    settings = describe(operators, terms, states=states)
    powers = [f"{name}^{power}" for name in operators for power in (1, 2, 3)]
    kernel = Restriction(Polynomial(3), ["1", *powers])
    test = t_test[:, None], solution(t_test)[:, :5]
    scored = tuple(range(5))
    return Problem(
        settings, t[:, None], y, *test, terms, scored, published_kernel=kernel
    )


def van_der_pol(draw):
    """50 times, spaced by 2; the noise has a standard deviation of 0.1."""

    def rate(t, state):
        x, speed = state
        return [speed, 0.5 * (1 - x**2) * speed - x]

    solution = integrate(rate, np.array([-0.2, 0.0]), 98.0, 200)
    t, t_test = 2.0 * np.arange(50), np.linspace(0.0, 98.0, 5000)
    y = solution(t)[:, 0] + 0.1 * normal(draw, 50)
    terms = {"u_tt": {"u": -1.0, "u_t": 0.5, "u^2 u_t": -0.5}}
    settings = describe(("u", "u_t"), terms) | {"known_part": "u_tt"}
    test = t_test[:, None], solution(t_test)[:, 0]
    return Problem(settings, t[:, None], y, *test, terms, (0,))


def describe(operators, terms, **others):
    """The arguments of a learner for ordinary differential equations."""
    known = tuple(terms)
    return {"operators": operators, "known_part": known, "variables": ("t",), **others}


def normal(draw, shape):
    """Standard normal numbers, those of a draw."""
    return np.random.RandomState(draw).standard_normal(shape)

"""How often do intervals hold the truth, and how large are errors beside theirs?

For draws of noise, 2 % of the root mean square of the states: the parts of the true
states in bands of 90 % where they were observed, of the true coefficients in their
intervals of 90 %, and the root mean square of z, the errors of coefficients in units of
their standard deviations. Pooled over draws, with the terms known and with
n_terms="auto"; terms that are true and not found are counted apart, others have the
true value zero.

    python tests/benchmarks/bench_calibration.py --problems oscillator --draws 20
"""

import argparse
import time
import warnings

import numpy as np
from scipy.integrate import solve_ivp
from scipy.stats import norm

from keql import OneStepKEqL
from keql.datasets import make_burgers
from keql.kernels import Polynomial, Restriction, parse_monomial

ROW = "{:14} {:6} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7}"
HEADING = "problem", "terms", "draw", "states", "coeff.", "rms z", "missed", "CPU s"


def main():
    """Print a row for each draw, and one for all draws of a problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS))
    parser.add_argument("--terms", nargs="+", default=["known", "auto"])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.02)
    options = parser.parse_args()
    print(ROW.format(*HEADING))
    for name in options.problems:
        for terms in options.terms:
            draws = range(options.first, options.first + options.draws)
            rows = [one_draw(name, terms, draw, options.noise) for draw in draws]
            coverage, z, missed = zip(*rows, strict=True)
            tell(name, terms, "all", np.mean(coverage), np.concatenate(z), sum(missed))


def tell(name, terms, draw, coverage, z, missed, spent=np.nan):
    """Print a row."""
    held = np.mean(np.abs(z) < norm.ppf(0.95))
    numbers = coverage, held, np.sqrt(np.mean(z**2))
    cells = (f"{number:.3f}" for number in numbers)
    print(ROW.format(name, terms, draw, *cells, missed, f"{spent:.1f}"), flush=True)


def one_draw(name, terms, draw, noise):
    """Coverage of the states, z of the coefficients, number of true terms missed."""
    settings, X, exact, places, truth, coefficients = PROBLEMS[name]()
    rng = np.random.default_rng(draw)
    size = np.sqrt(np.mean(exact**2, axis=0))
    y = exact + noise * size * rng.standard_normal(exact.shape)
    if terms == "known":
        kernels = {
            equation: Restriction(Polynomial(3), list(own))
            for equation, own in coefficients.items()
        }
        settings = {**settings, "equation_kernel": kernels}
        if len(kernels) == 1:
            (settings["equation_kernel"],) = kernels.values()
    else:
        settings = {**settings, "n_terms": "auto"}
    began = time.process_time()
    with warnings.catch_warnings(record=True):  # counted whatever a fit says
        model = OneStepKEqL(**settings, random_state=0).fit(X, y)
    spent = time.process_time() - began
    found, std = model.predict(places, return_std=True)
    coverage = np.mean(np.abs(found - truth) < norm.ppf(0.95) * std)
    z, missed = [], 0
    for equation, own in coefficients.items():
        learned = model.equation_
        learned = learned if len(coefficients) == 1 else learned[equation]
        parts = compare(learned, own)
        z, missed = [*z, *parts[0]], missed + parts[1]
    tell(name, terms, draw, coverage, np.array(z), missed, spent)
    return coverage, np.array(z), missed


def compare(equation, coefficients):
    """z of the terms of an equation, and how many of the true ones it lacks.

    `coefficients` are those of the right-hand side.
    """
    names = equation.feature_names
    true = {tuple(parse_monomial(n, names)): c for n, c in coefficients.items()}
    values, errors = equation.terms(return_std=True)
    S = equation.training_features[:, : equation.n_unknown_features]
    powers = {n: tuple(parse_monomial(n, names)) for n in values}
    shown = sum(
        values[n] * np.prod(S ** powers[n][: S.shape[1]], axis=1) for n in values
    )
    sign = -np.sign(np.sum(shown * equation.unknown_part(S)))  # P is on the left
    z = [(sign * values[n] - true.get(powers[n], 0.0)) / errors[n] for n in values]
    return z, len({*true} - {*powers.values()})


def solved(slopes, initial, t):
    found = solve_ivp(
        lambda t, s: slopes(*s),
        (0, t[-1]),
        initial,
        "DOP853",
        t,
        rtol=1e-11,
        atol=1e-11,
    )
    return found.y.T


def oscillator():
    """u'' = u - u^3 - 0.2 u', 40 values."""
    t, places = np.linspace(0, 12, 40), np.linspace(0, 12, 200)

    def slopes(u, v):
        return v, u - u**3 - 0.2 * v

    y, truth = (solved(slopes, [2.0, 0.0], each)[:, 0] for each in (t, places))
    settings = {"operators": ("u", "u_t"), "known_part": "u_tt", "variables": ("t",)}
    coefficients = {"u_tt": {"u": 1.0, "u^3": -1.0, "u_t": -0.2}}
    return settings, t[:, None], y, places[:, None], truth, coefficients


def hunters():
    """Prey and predators, 40 values of each."""
    t, places = np.linspace(0, 12, 40), np.linspace(0, 12, 200)

    def slopes(p, q):
        return p - p * q, 0.5 * p * q - 0.7 * q

    y, truth = (solved(slopes, [2.0, 0.5], each) for each in (t, places))
    settings = {"operators": ("p", "q"), "known_part": ("p_t", "q_t")}
    settings |= {"variables": ("t",), "states": ("p", "q")}
    coefficients = {"p_t": {"p": 1.0, "p q": -1.0}, "q_t": {"p q": 0.5, "q": -0.7}}
    return settings, t[:, None], y, places[:, None], truth, coefficients


def burgers(n_interior=60, n_places=1000):
    """The published benchmark with fewer observations inside."""
    data = make_burgers(n_interior, random_state=0)
    test = np.random.default_rng(0).permutation(len(data.X_test))[:n_places]
    names = "operators", "known_part", "variables"
    settings = {name: data.problem[name] for name in names}
    coefficients = {"u_t": {"u u_x": 1.0, "u_xx": 0.01}}
    exact, places = data.truth(data.X), data.X_test[test]
    return settings, data.X, exact, places, data.truth(places), coefficients


PROBLEMS = {"oscillator": oscillator, "hunters": hunters, "burgers": burgers}


if __name__ == "__main__":
    main()

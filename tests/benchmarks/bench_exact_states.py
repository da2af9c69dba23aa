"""States that obey ordinary differential equations exactly, their terms on offer given.

van der Pol, Duffing on [0, 50] from 32 samples, Lorenz on [0, 20] from 400, Lotka and
Volterra, and a driven damped pendulum with its dictionary: errors of states and of
coefficients, relative L2, with exact samples; with 2 % noise the largest error of a
coefficient in units of its standard error. Times are those of fits in CPU seconds, and
as multiples of one Cholesky factorisation of the size 1,000 in one run. With the
published Burgers runs, where KEQL_REFERENCE names the folder of reference data, the
mean error of the state over three runs for each number of observations.

    python tests/benchmarks/bench_exact_states.py
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.integrate import solve_ivp
from scipy.linalg import cholesky

from keql import OneStepKEqL
from keql.datasets import make_duffing, make_lorenz, make_lotka_volterra
from keql.kernels import Dictionary, Polynomial
from keql.metrics import relative_l2_error

ROW = "{:20} {:>6} {:>9} {:>12} {:>7} {:>7} {:>10}"
HEADING = "problem", "noise", "state", "coefficients", "max z", "CPU s", "x Cholesky"


def main():
    """Print a row for each problem and noise, then the published runs."""
    options = read_options()
    unit = cholesky_seconds()
    print(ROW.format(*HEADING))
    for name in options.problems:
        for noise in options.noise:
            state, coefficients, z, seconds = one_fit(name, noise)
            cells = f"{state:.1e}", f"{coefficients:.1e}", f"{z:.1f}", f"{seconds:.1f}"
            print(ROW.format(name, noise, *cells, f"{seconds / unit:.0f}"), flush=True)
    folder = os.environ.get("KEQL_REFERENCE")
    if folder and not options.without_published:
        published_runs(Path(folder) / "burgers_published_runs.npz")


def read_options():
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", nargs="*", default=[*PROBLEMS])
    parser.add_argument("--noise", nargs="*", type=float, default=[0.0, 0.02])
    parser.add_argument("--without-published", action="store_true")
    return parser.parse_args()


def cholesky_seconds(size=1000, n=5):
    """CPU seconds of one factorisation, the median of some."""
    A = np.random.default_rng(0).standard_normal((size, size))
    A, found = A @ A.T + size * np.eye(size), []
    for _ in range(n):
        start = time.process_time()
        cholesky(A, lower=True)
        found.append(time.process_time() - start)
    return np.median(found)


def one_fit(name, noise, seed=0):
    """Errors of the state and of the coefficients, the largest z, and CPU seconds."""
    settings, X, y, X_test, y_test, truth = PROBLEMS[name]()
    size = np.std(y, axis=0)
    y = y + noise * size * np.random.default_rng(seed).standard_normal(y.shape)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = OneStepKEqL(**settings).fit(X, y)
    seconds = time.process_time() - start
    z, found, true = 0.0, [], []
    for equation, own in truth.items():
        learned = model.equation_ if len(truth) == 1 else model.equation_[equation]
        terms, errors = learned.terms(return_std=True)
        for term in {*terms, *own}:
            value, expected = terms.get(term, 0.0), own.get(term, 0.0)
            found.append(value)
            true.append(expected)
            z = max(z, abs(value - expected) / errors.get(term, np.inf))
    predicted = model.predict(X_test)
    state = relative_l2_error(np.ravel(y_test), np.ravel(predicted))
    return state, relative_l2_error(np.array(true), np.array(found)), z, seconds


def integrated(rate, initial, t_end, n, n_test=1000):
    """Samples of a system at n times, and of it at many."""
    how = {"rtol": 1e-12, "atol": 1e-12, "dense_output": True}
    path = solve_ivp(rate, (0, t_end), initial, "DOP853", **how).sol
    t, test = np.linspace(0, t_end, n), np.linspace(0, t_end, n_test)
    return t[:, None], path(t).T, test[:, None], path(test).T


def van_der_pol():
    """u'' = 1.5 (1 - u^2) u' - u, 40 samples of three periods."""

    def rate(_, state):
        u, v = state
        return [v, 1.5 * (1 - u**2) * v - u]

    X, y, X_test, y_test = integrated(rate, [1.0, 0.5], 20.0, 40)
    truth = {"u_tt": {"u": -1.0, "u_t": 1.5, "u^2 u_t": -1.5}}
    settings = of_second_order(Polynomial(3))
    return settings, X, y[:, 0], X_test, y_test[:, 0], truth


def of_second_order(kernel, operators=("u", "u_t")):
    return {
        "operators": operators,
        "known_part": "u_tt",
        "variables": ("t",),
        "equation_kernel": kernel,
        "n_terms": "auto",
    }


def duffing():
    """The paper's equation on [0, 50], its forcing known, 32 samples."""
    data = make_duffing()
    settings = dict(data.problem, equation_kernel=Polynomial(3), n_terms="auto")
    truth = {"u_tt": {"u": 3.0, "u^3": -3.0, "u_t": -0.2}}
    return settings, data.X, data.y, data.X_test, data.y_test, truth


def pendulum():
    """u'' = -0.2 u' - sin(u) + 0.8 cos(0.7 t), 40 samples."""

    def rate(t, state):
        u, v = state
        return [v, -0.2 * v - np.sin(u) + 0.8 * np.cos(0.7 * t)]

    functions = {
        "u": lambda u: u,
        "u_t": lambda u_t: u_t,
        "sin(u)": lambda u: np.sin(u),
        "cos(u)": lambda u: np.cos(u),
        "cos(0.7 t)": lambda t: np.cos(0.7 * t),
        "sin(0.7 t)": lambda t: np.sin(0.7 * t),
    }
    X, y, X_test, y_test = integrated(rate, [0.5, 0.0], 20.0, 40)
    truth = {"u_tt": {"u_t": -0.2, "sin(u)": -1.0, "cos(0.7 t)": 0.8}}
    settings = of_second_order(Dictionary(functions))
    return settings, X, y[:, 0], X_test, y_test[:, 0], truth


def of_data_set(data, degree=2):
    """A system of a data set, with the degree of its equations."""
    settings = dict(data.problem, equation_kernel=Polynomial(degree), n_terms="auto")
    return settings, data.X, data.y, data.X_test, data.y_test, data.terms


PROBLEMS = {
    "van der Pol": van_der_pol,
    "Duffing": duffing,
    "Lorenz": lambda: of_data_set(make_lorenz(400, t_end=20.0)),
    "Lotka and Volterra": lambda: of_data_set(make_lotka_volterra(40)),
    "pendulum": pendulum,
}


def published_runs(path):
    """Mean errors of states of the published Burgers runs, beside those published."""
    row = "{:>12} {:>10} {:>10} {:>12} {:>6}"
    print(row.format("observations", "state", "published", "right terms", "CPU s"))
    settings = {
        "operators": ("u", "u_x", "u_xx"),
        "known_part": "u_t",
        "variables": ("t", "x"),
    }
    with np.load(path) as data:
        for i, n in enumerate(data["n_obs"]):
            errors, right, start = [], 0, time.process_time()
            for run in range(3):
                rows = data[f"obs_{n}"][run]
                model = OneStepKEqL(**settings, collocation_points=data["tx_int"])
                model.fit(data["tx_all"][rows], data["u_all"][run][rows])
                found = model.predict(data["tx_grid"])
                errors.append(relative_l2_error(data["u_grid"][run], found))
                right += {*model.equation_.terms()} == {"u u_x", "u_xx"}
            published = np.mean(data["ref_varyICs_1_5_u"][i])
            cells = f"{np.mean(errors):.1e}", f"{published:.1e}", f"{right} of 3"
            seconds = time.process_time() - start
            print(row.format(n, *cells, f"{seconds:.0f}"), flush=True)


if __name__ == "__main__":
    main()

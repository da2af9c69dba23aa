"""Exact states of a field on grids, with observations condensed and as they are.

Condensed are values along the axes of a grid, and what they say of boundary values.

    python tests/benchmarks/bench_many_values.py 20:30 25:40 50:64

Burgers' equation with noise of 1 %. Each row has the number of values, the errors of
the state, CPU seconds of both ways and their ratio; without a second way beyond
`--most` values.
"""

import argparse
import time
import warnings
from contextlib import ExitStack
from functools import partial
from unittest import mock

import numpy as np
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql._evolution.boundary.condensed import condensed
from keql._observations.condensed import condense

LENGTH, T_END, N_WAVES = 16.0, 10.0, 256
ROWS = "keql._evolution.boundary.regression.condensed"
GRIDS = "keql._estimators.learner.condense"


def solution(times, n):
    """Places (n,), and the solution (len(times), n) from a bell, periodic in space."""
    x = LENGTH * (np.arange(N_WAVES) / N_WAVES - 0.5)
    k = 2 * np.pi / LENGTH * np.fft.rfftfreq(N_WAVES, 1 / N_WAVES)

    def rate(t, u):
        modes = np.fft.rfft(u)
        u_x, u_xx = (np.fft.irfft((1j * k) ** j * modes, N_WAVES) for j in (1, 2))
        return 0.1 * u_xx - u * u_x

    start = np.exp(-((x + 2) ** 2))
    how = {"t_eval": times, "rtol": 1e-9, "atol": 1e-10}
    found = solve_ivp(rate, (0, T_END), start, "LSODA", **how)
    rows = np.linspace(0, N_WAVES - 1, n).astype(int)
    return x[rows], found.y.T[:, rows]


def fit(X, y, truth, as_they_are=False):
    """The error of the state, CPU seconds, and the equation."""
    ways = {ROWS: condensed, GRIDS: condense}
    if as_they_are:
        ways = {ROWS: partial(condensed, times=np.inf), GRIDS: lambda given: given}
    model = OneStepKEqL(("u", "u_x", "u_xx"), "u_t", variables=("t", "x"))
    start = time.process_time()
    with warnings.catch_warnings(), ExitStack() as patched:
        warnings.simplefilter("ignore")
        for where, way in ways.items():
            patched.enter_context(mock.patch(where, way))
        model.fit(X, y)
    seconds = time.process_time() - start
    error = np.sqrt(np.mean((model.predict(X) - truth) ** 2) / np.mean(truth**2))
    return error, seconds, str(model.equation_)


def main():
    """Print a row for each grid."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grids", nargs="*", default=["15:20", "25:40", "30:45"])
    parser.add_argument("--most", type=int, default=1500)
    options = parser.parse_args()
    print("values    error, s, equation; error, s as they are; ratio")
    for grid in options.grids:
        n_times, n_places = map(int, grid.split(":"))
        times = np.linspace(0, T_END, n_times)
        x, u = solution(times, n_places)
        X = np.column_stack([np.repeat(times, n_places), np.tile(x, n_times)])
        truth = u.ravel()
        noise = np.random.default_rng(0).standard_normal(truth.shape)
        y = truth + 0.01 * np.std(truth) * noise
        error, seconds, equation = fit(X, y, truth)
        row = f"{len(y):6}  {error:8.1e} {seconds:6.1f}  {equation}"
        if len(y) <= options.most:
            other, longer, _ = fit(X, y, truth, as_they_are=True)
            row += f";  {other:8.1e} {longer:6.1f};  {longer / seconds:.2f}"
        print(row, flush=True)


if __name__ == "__main__":
    main()

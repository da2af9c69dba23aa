"""The default prior of a state against single kernels, fitted to the same values.

Errors of the state on new points, means over draws, for several equations, numbers of
observations and noise levels. The single kernels have one length scale for each
coordinate, a variance and an offset, all fitted by maximum likelihood.

    python tests/benchmarks/bench_state_prior.py
"""

from time import perf_counter

import numpy as np

from keql import TwoStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF, Constant, Matern
from keql.metrics import filtering_error

N_DRAWS = 3


def scattered(function, n, box, noise, seed):
    """Values at random points of a box, and test points; as the data sets do."""
    rng = np.random.RandomState(seed)
    box = np.asarray(box)
    X, X_test = (
        box[:, 0] + rng.uniform(size=(m, 2)) * np.ptp(box, axis=1) for m in (n, 2000)
    )
    y, y_test = function(X), function(X_test)
    y = y + noise * np.sqrt(np.mean(y**2)) * rng.standard_normal(n)
    return X, y, X_test, y_test


def heat(n, noise=0.0, seed=0):
    """Eight waves that diffuse, with random amplitudes."""
    j = np.arange(1, 9)
    amplitudes = np.random.RandomState(1000 + seed).standard_normal(8) / j

    def function(X):
        decay = np.exp(-0.02 * X[:, :1] * (np.pi * j) ** 2)
        return decay * np.sin(np.pi * X[:, 1:] * j) @ amplitudes

    return scattered(function, n, [(0, 1), (0, 1)], noise, seed)


def two_solitons(n, noise=0.0, seed=0):
    """Two solitons of u_t + 6 u u_x + u_xxx = 0, with wave numbers 1 and 3/2."""

    def function(X):
        t, x = X.T
        first, second = np.exp(x + 3 - t), np.exp(1.5 * (x + 6) - 3.375 * t)
        # u = 2 (log tau)_xx, tau a sum of exponentials with these wave numbers.
        terms = np.array([np.ones(len(X)), first, second, first * second / 25])
        wave_numbers = np.array([[0.0], [1.0], [1.5], [2.5]])
        shares = terms / terms.sum(axis=0)
        mean = np.sum(shares * wave_numbers, axis=0)
        return 2 * np.sum(shares * (wave_numbers - mean) ** 2, axis=0)

    return scattered(function, n, [(0, 4), (-10, 10)], noise, seed)


def front(n, noise=0.0, seed=0):
    """The travelling front of Fisher's equation u_t = u_xx + u (1 - u)."""

    def function(X):
        phase = (X[:, 1] - 5 / np.sqrt(6) * X[:, 0] + 2) / np.sqrt(6)
        return (1 + np.exp(phase)) ** -2.0

    return scattered(function, n, [(0, 6), (-10, 15)], noise, seed)


def wave(n, noise=0.0, seed=0):
    """Two travelling waves: one length scale is right everywhere."""
    speeds = np.random.RandomState(1000 + seed).uniform(1, 2, size=2)

    def function(X):
        t, x = 2 * np.pi * X.T
        return np.sin(x - speeds[0] * t) + 0.5 * np.cos(2 * x + speeds[1] * t)

    return scattered(function, n, [(0, 1), (0, 1)], noise, seed)


def unpacked(data):
    """Observations and test points of a data set."""
    return data.X, data.y, data.X_test, data.y_test, data.function_column


def burgers(n, noise=0.0, seed=0, **settings):
    """Burgers' equation, by default from a random initial condition."""
    return unpacked(make_burgers(n, noise=noise, random_state=seed, **settings))


def shock(n, noise=0.0, seed=0):
    """The published shock."""
    settings = {"theta": 5, "nu": 0.001, "initial_condition": "published"}
    return burgers(n, noise, seed, **settings)


def boundary(n, noise=0.0, seed=0):
    """Seen on the boundary only."""
    settings = {"theta": 0.5, "layout": "boundary", "collocation_shape": (26, 26)}
    return burgers(n, noise, seed, **settings)


def duffing(n, noise=0.0, seed=0):
    """The oscillator from random initial conditions."""
    initial = tuple(np.random.RandomState(seed).uniform(-1, 1, size=2))
    return unpacked(
        make_duffing(
            n, initial=initial, noise=noise, random_state=seed, n_collocation=9
        )
    )


def darcy(n, noise=0.0, seed=0):
    """Eight functions on a square."""
    return unpacked(make_darcy(8, n, noise=noise, random_state=seed))


CASES = [
    *((burgers, n, 0.0) for n in (30, 100, 400)),
    *((burgers, 100, noise) for noise in (0.01, 0.05, 0.1)),
    (shock, 60, 0.0),
    (shock, 300, 0.0),
    (boundary, 0, 0.0),
    *((duffing, n, 0.0) for n in (32, 64, 128)),
    *((duffing, 128, noise) for noise in (0.01, 0.1)),
    (darcy, 2, 0.0),
    (darcy, 8, 0.0),
    *((darcy, 8, noise) for noise in (0.01, 0.1)),
    *((heat, n, 0.0) for n in (60, 200)),
    *((heat, 200, noise) for noise in (0.01, 0.1)),
    *((two_solitons, n, 0.0) for n in (60, 200)),
    *((front, n, 0.0) for n in (60, 200)),
    *((wave, n, 0.0) for n in (60, 200)),
]


def single(kind, X, y, function_column, **settings):
    """A kernel with its scales within wide bounds around those of the data."""
    points = X if function_column is None else np.delete(X, function_column, axis=1)
    extent, size = np.ptp(points, axis=0), np.mean(y**2)
    lengths = kind(0.2 * extent, np.outer(extent, [1e-2, 1e2]), **settings)
    variance = Constant(size, (1e-4 * size, 1e4 * size))
    return Constant(np.mean(y) ** 2, "fixed") + variance * lengths


def compare(problem, n, noise, seed):
    """Errors with one RBF, with one Matern kernel and with the default; its time."""
    X, y, X_test, y_test, *column = problem(n, noise, seed)
    column = column[0] if column else None
    kernels = (
        single(RBF, X, y, column),
        single(Matern, X, y, column, nu=2.5),
        None,
    )
    errors = []
    for kernel in kernels:
        start = perf_counter()
        model = TwoStepKEqL(state_kernel=kernel, function_column=column).fit(X, y)
        seconds = perf_counter() - start
        errors.append(filtering_error(model, X_test, y_test))
    return [*errors, model.observation_noise_ / np.sqrt(np.mean(y**2)), seconds]


def main():
    """Print the table."""
    print(
        f"{'relative L2 errors':28}   one RBF    Matern   default |  noise     seconds"
    )
    for problem, n, noise in CASES:
        rows = [compare(problem, n, noise, seed) for seed in range(N_DRAWS)]
        name = f"{problem.__name__} {n}" + (f", {noise:.0%} noise" if noise else "")
        means = np.mean(rows, axis=0)
        print(
            f"{name:28}{means[0]:10.4f}{means[1]:10.4f}{means[2]:10.4f} |"
            f"{means[3]:10.1e}{means[4]:7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

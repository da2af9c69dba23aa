"""Ordinary differential equations from long records, condensed and as they are.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_long_records.py [N ...]

A default fit with terms that are found, of an oscillator and of the Lorenz system, with
noise of 2 % and without; each in a process of its own, whose peak of memory is its own.
Times are of the processor. Records of at most 2,000 samples are fitted as they are,
too. 1,000, 2,000, 10,000 and 100,000 samples take some three minutes of a processor.
"""

import resource
import sys
import time
import warnings
from multiprocessing import get_context
from unittest import mock

import numpy as np
from scipy.integrate import solve_ivp

from keql import OneStepKEqL

LARGEST_WHOLE = 2000
OSCILLATOR = {"operators": ("u", "u_t"), "known_part": "u_tt"}
LORENZ = {
    "operators": ("x", "y", "z"),
    "known_part": ("x_t", "y_t", "z_t"),
    "states": ("x", "y", "z"),
}


def oscillator(_, y):
    return [y[1], -2 * y[0] - 0.3 * y[1] - 0.5 * y[0] ** 2]


def lorenz(_, y):
    return [
        10 * (y[1] - y[0]),
        y[0] * (28 - y[2]) - y[1],
        y[0] * y[1] - 8 / 3 * y[2],
    ]


# Right-hand side, initial values, last time, number of states seen, the equation.
PROBLEMS = {
    "oscillator": (oscillator, [1.0, 0.0], 20.0, 1, OSCILLATOR),
    "Lorenz": (lorenz, [-8.0, 7.0, 27.0], 10.0, 3, LORENZ),
}


def fit(name, n, noise, whole, queue):
    """Put error, seconds of the processor, memory and equation into a queue."""
    rate, start, end, n_seen, equation = PROBLEMS[name]
    t = np.linspace(0, end, n)
    exact = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-11, "t_eval": t}
    states = solve_ivp(rate, (0, end), start, **exact).y[:n_seen].T
    errors = np.random.default_rng(0).standard_normal(states.shape)
    observed = states + noise * states.std(axis=0) * errors
    model = OneStepKEqL(**equation, variables="t", n_terms="auto")
    begin = time.process_time()
    where = "keql._estimators.learner.condense"
    with warnings.catch_warnings(), mock.patch(where, new=_whole if whole else _short):
        warnings.simplefilter("ignore")
        model.fit(t[:, None], observed)
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    missed = model.predict(t[:, None]).reshape(n, -1) - states
    error = np.linalg.norm(missed) / np.linalg.norm(states)
    queue.put((error, seconds, memory, str(model.equation_)))


def _whole(observations):
    return observations


def _short(observations):
    from keql._observations.condensed import condense

    return condense(observations)


def main():
    """Print a line for each fit."""
    sizes = [int(n) for n in sys.argv[1:]] or [1000, 2000, 10_000, 100_000]
    context = get_context("spawn")
    for name in PROBLEMS:
        for noise in (0.02, 0.0):
            for n in sizes:
                for whole in (True, False) if n <= LARGEST_WHOLE else (False,):
                    queue = context.Queue()
                    given = name, n, noise, whole, queue
                    process = context.Process(target=fit, args=given)
                    process.start()
                    error, seconds, memory, equation = queue.get()
                    process.join()
                    print(
                        f"{name}, {n} samples, noise {noise:g}, "
                        f"{'as they are' if whole else 'condensed'}: error of states "
                        f"{error:.2g}, {seconds:.1f} s, {memory:.0f} MB\n"
                        + "\n".join(f"    {line}" for line in equation.split("\n")),
                        flush=True,
                    )


if __name__ == "__main__":
    main()

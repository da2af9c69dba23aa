"""Steps of the joint solve, in units of one Cholesky factorisation.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_joint_step.py

A step is what an accepted one costs: linearise, solve, evaluate. Told is its processor
time over that of LAPACK's dpotrf of size N + K, for many functions of one of that size
for each function, and beside it over a single one. Five steps, then five factorisations
are timed in turn in one run, so that a busy machine slows both, and the ratio is that
of the medians. States are represented as the estimator chooses, then in the dual if
that is another way. With `--profile` the functions that take longest are listed.
"""

import argparse
import cProfile
import os
import pstats
import time
import warnings
from functools import partial

import numpy as np
from bench_pieces import Case
from scipy.linalg import lapack

SIZES = {"K": ((16, 18), (26, 31), (38, 43)), "M": (4, 16, 64)}


def seconds_of(function):
    """Processor seconds that a call takes."""
    began = time.process_time()
    function()
    return time.process_time() - began


def factorisation(size):
    """Seconds of dpotrf of a matrix of its own, which is not copied."""
    A = np.random.RandomState(0).standard_normal((size, size))
    A = np.asfortranarray(A @ A.T + size * np.eye(size))

    def seconds():
        own = A.copy(order="F")
        began = time.process_time()
        lapack.dpotrf(own, lower=1, clean=0, overwrite_a=1)
        return time.process_time() - began

    return seconds


def one_step(problem, evaluation):
    """What follows where an iterate has been evaluated, and that of the next one."""
    iterate, _ = problem.linearise(evaluation).step(1e4)
    return problem.evaluate(iterate)


def problems_of(case):
    """The joint problem and its start by the name of what represents the states."""
    found = {}
    for solver in ("auto", "dual"):
        problem, start, _ = case.start(solver)
        found.setdefault(type(problem.blocks[0]).__name__, (problem, start))
    return found


def measure(step, n_data, n_rounds):
    """Medians, in seconds, of a step and of a factorisation."""
    unit, steps, units = factorisation(n_data), [], []
    step()
    for _ in range(n_rounds):
        units += [unit() for _ in range(5)]
        steps += [seconds_of(step) for _ in range(5)]
    return np.median(steps), np.median(units)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = [(kind, size) for kind in options.cases for size in SIZES[kind]]
    for pair in chosen:
        case = Case(*pair)
        n_observed, n_points, n_functions = (case.info[key] for key in "NKM")
        for name, (problem, start) in problems_of(case).items():
            function = partial(one_step, problem, problem.evaluate(start))
            step, unit = measure(function, n_observed + n_points, options.rounds)
            print(
                f"N = {n_observed}, K = {n_points}, M = {n_functions}, {name}: step "
                f"{1e3 * step:.1f} ms, dpotrf {1e3 * unit:.2f} ms, ratio "
                f"{step / unit / n_functions:.2f} for each function, "
                f"{step / unit:.1f} in all (load {os.getloadavg()[0]:.1f})",
                flush=True,
            )
            if options.profile:
                profile = cProfile.Profile()
                profile.runcall(function)
                pstats.Stats(profile).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()

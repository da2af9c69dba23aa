"""Steps of the joint solve in the dual, in units of one Cholesky factorisation.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_joint_step.py

A step is what an accepted one costs: linearise, solve, evaluate. Told is its processor
time over that of LAPACK's dpotrf of size N + K, for many functions of one of that size
for each function, and beside it over a single one. Steps and factorisations are timed
in turn in one run, so that a busy machine slows both, and the ratio is that of the
medians. With `--profile` the functions that take longest are listed.
"""

import argparse
import cProfile
import os
import pstats
import time
import warnings

import numpy as np
from bench_pieces import Case, one_step
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


def measure(kind, size, n_rounds):
    """Medians (seconds) of a step and a factorisation, and the number of functions."""
    case = Case(kind, size)
    problem, start, _ = case.start("dual")
    n_data = case.info["N"] + case.info["K"]
    unit, step = factorisation(n_data), lambda: one_step(problem, start)
    step()
    steps, units = [], []
    for _ in range(n_rounds):
        units += [unit() for _ in range(5)]
        steps.append(seconds_of(step))
    return case.info, np.median(steps), np.median(units), step


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for kind in options.cases:
        for size in SIZES[kind]:
            info, step, unit, function = measure(kind, size, options.rounds)
            n_functions = info["M"]
            print(
                f"N = {info['N']}, K = {info['K']}, M = {n_functions}: step "
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

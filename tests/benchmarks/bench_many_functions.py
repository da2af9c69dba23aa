"""Darcy flow from many functions: what is computed again beside what is kept.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_many_functions.py [M ...] \\
        [--working-memory MIB ...]

Each fit runs in a process of its own, whose peak of memory is its own, with the setting
`working_memory` of scikit-learn in MiB: 16, which has room for the factors of 80
functions, and 100,000. Times are of the processor; errors are those of the equation at
features of five other functions. 50 and 100 functions take some three minutes, 10,000
with 1,024 MiB a quarter of an hour.
"""

import argparse
import resource
import time
import warnings
from multiprocessing import get_context

from bench_darcy import SETTINGS
from sklearn import set_config

from keql import OneStepKEqL
from keql.datasets import make_darcy
from keql.metrics import equation_error


def fit(n_functions, working_memory, queue):
    """Put error, seconds, steps and memory, in MB, of fit and data into a queue."""
    set_config(working_memory=working_memory)
    data = make_darcy(n_functions, 4, random_state=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    model = OneStepKEqL(**{**data.problem, **data.kernels, **SETTINGS}, random_state=0)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X, data.y)
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    new = data.features(5, 0.5, grid_size=40, random_state=100)
    error = equation_error(model.equation_, new, data.unknown_part)
    queue.put((error, seconds, model.n_iter_, memory, before))


def main():
    """Print a line for each fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", type=int, nargs="*", default=[50, 100])
    kept = {"type": int, "nargs": "+", "default": [100_000, 16]}
    parser.add_argument("--working-memory", **kept)
    options, context = parser.parse_args(), get_context("spawn")
    for n_functions in options.functions:
        for working_memory in options.working_memory:
            queue = context.Queue()
            given = n_functions, working_memory, queue
            process = context.Process(target=fit, args=given)
            process.start()
            error, seconds, n_steps, memory, before = queue.get()
            process.join()
            print(
                f"{n_functions} functions, working_memory {working_memory}: error "
                f"{error:.3g}, {seconds:.1f} s, {n_steps} steps, {memory:.0f} MB, "
                f"before the fit {before:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Darcy flow from many functions, in one process and on the workers of a cluster.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_cluster.py [M] [WORKERS ...]

A cluster of dask on this machine, with one thread for each worker. Told are the seconds
of the joint solve, by the clock and of all processors, which workers need for nothing
but the solve: they have imported the package before. The critical path is the time of
this process's processor and of the worker that takes longest: what the clock would say
if each had a processor. If C processors share the work, it is the time of all processes
over C. Differences of predictions, and of P at the features of five other functions,
are relative. 1,000 functions and four workers take two minutes of a processor; a ratio
of the clock says something only where nothing else runs, and whatever else runs adds to
the processor time, as the loops of dask's processes take theirs by the clock.

The statistical profiler of dask is off: it interrupts the work of a worker a hundred
times a second. With ``--profiler`` it is on, as it is where nobody says anything.
"""

import argparse
import os
import resource
import time

import dask
import joblib
import numpy as np
from distributed import Client, LocalCluster

from keql import OneStepKEqL
from keql._joint import cluster as on_cluster
from keql.datasets import make_darcy

FIT = {"observation_noise": 1e-4, "equation_noise": 1e-2, "n_restarts": 0}


def cpu_seconds():
    """Seconds of the processor that this process, a worker or not, has taken."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(function, times):
    """The function, whose calls leave their seconds in a list."""

    def call(*arguments, **settings):
        wall, cpu = time.perf_counter(), cpu_seconds()
        result = function(*arguments, **settings)
        times.append((time.perf_counter() - wall, cpu_seconds() - cpu))
        return result

    return call


def values_of(model, data):
    """Predictions where functions are observed, and P for other functions."""
    new = data.features(5, 0.5, grid_size=40, random_state=100)
    return model.predict(data.X), model.equation_.unknown_part(np.concatenate(new))


def arguments():
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", type=int, nargs="?", default=1000)
    parser.add_argument("workers", type=int, nargs="*")
    parser.add_argument("--profiler", action="store_true")
    return parser.parse_args()


def main():
    """Print a line for each number of workers."""
    options = arguments()
    n_functions, numbers = options.functions, options.workers or [4]
    dask.config.set({"distributed.worker.profile.enabled": options.profiler})
    data, times = make_darcy(n_functions, 8, random_state=0), []
    settings = {**data.problem, **data.kernels, **FIT}
    on_cluster.minimise = timed(on_cluster.minimise, times)
    alone = OneStepKEqL(**settings, random_state=0).fit(data.X, data.y)
    (wall, cpu), expected = times.pop(), values_of(alone, data)
    print(
        f"{n_functions} functions, {alone.n_iter_} steps: {wall:.1f} s, CPU {cpu:.1f}"
    )
    for n_workers in numbers:
        layout = {"n_workers": n_workers, "threads_per_worker": 1}
        with (
            LocalCluster(**layout, dashboard_address=":0") as cluster,
            Client(cluster) as client,
            joblib.parallel_config("dask"),
        ):
            client.run(__import__, "keql")
            before = client.run(cpu_seconds)
            model = OneStepKEqL(**settings, n_jobs=-1, random_state=0)
            model.fit(data.X, data.y)
            after = client.run(cpu_seconds)
            workers = [after[each] - before[each] for each in after]
        seconds, own = times.pop()
        path, whole = own + max(workers), own + sum(workers)
        n_cores = min(n_workers, os.cpu_count())
        differences = [
            np.max(np.abs(values - others)) / np.max(np.abs(others))
            for values, others in zip(values_of(model, data), expected, strict=True)
        ]
        print(
            f"{n_workers} workers: {seconds:.1f} s, "
            f"{wall / seconds:.2f} times as fast, "
            f"CPU {own:.1f} here and {sum(workers):.1f} there, critical path "
            f"{path:.1f}, {cpu / path:.2f} times as fast, on {n_cores} processors "
            f"{min(cpu / path, n_cores * cpu / whole):.2f} times; "
            "predictions differ by {:.1g}, P by {:.1g}".format(*differences),
            flush=True,
        )


if __name__ == "__main__":
    main()

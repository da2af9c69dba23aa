"""Darcy flow from many functions, in one process and on the workers of a cluster.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_cluster.py [M] [WORKERS ...]

A cluster of dask on this machine, with one thread for each worker. Told are the seconds
of the joint solve, by the clock and of all processors, which workers need for nothing
but the solve: they have imported the package before. Differences of predictions are
relative. 300 functions and four workers take some minute of a processor. dask lets its
workers give memory back whenever they can, which the next array asks for again; here
they keep up to 256 MB.
"""

import resource
import sys
import time

import dask
import joblib
import numpy as np
from distributed import Client, LocalCluster

from keql import OneStepKEqL
from keql._joint import cluster as on_cluster
from keql.datasets import make_darcy

ENVIRONMENT = "distributed.nanny.pre-spawn-environ.MALLOC_"
KEPT = {f"{ENVIRONMENT}{name}_THRESHOLD_": 2**28 for name in ("TRIM", "MMAP")}
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


def main():
    """Print a line for each number of workers."""
    n_functions, *numbers = [int(each) for each in sys.argv[1:]] or [300]
    data, times = make_darcy(n_functions, 8, random_state=0), []
    settings = {**data.problem, **data.kernels, **FIT}
    on_cluster.minimise = timed(on_cluster.minimise, times)
    # Predictions of all functions, where the first ones are observed.
    alone = OneStepKEqL(**settings, random_state=0).fit(data.X, data.y)
    (wall, cpu), expected = times.pop(), alone.predict(data.X)
    print(
        f"{n_functions} functions, {alone.n_iter_} steps: {wall:.1f} s, CPU {cpu:.1f}"
    )
    for n_workers in numbers or [4]:
        layout = {"n_workers": n_workers, "threads_per_worker": 1}
        with (
            dask.config.set(KEPT),
            LocalCluster(**layout, dashboard_address=":0") as cluster,
            Client(cluster) as client,
            joblib.parallel_config("dask"),
        ):
            client.run(__import__, "keql")
            before = client.run(cpu_seconds)
            model = OneStepKEqL(**settings, n_jobs=-1, random_state=0)
            model.fit(data.X, data.y)
            after = client.run(cpu_seconds)
            workers = sum(after.values()) - sum(before.values())
        seconds, own = times.pop()
        difference = np.max(np.abs(model.predict(data.X) - expected))
        print(
            f"{n_workers} workers: {seconds:.1f} s, "
            f"{wall / seconds:.2f} times as fast, "
            f"CPU {own:.1f} here and {workers:.1f} there; predictions differ by "
            f"{difference / np.max(np.abs(expected)):.1g}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""-Laplace(u) + u^3 = f at many points: sparse factors beside dense ones.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_many_points.py [K ...]

Both solvers run in one go, each fit in a process of its own, whose peak of memory is
its own; times are of the processor, the sparse ones in ratio to dense ones. Dense fits
are those of at most 5,000 points. 1,000, 5,000, 20,000 and 50,000 points take some five
minutes of a processor.
"""

import resource
import sys
import time
import warnings
from multiprocessing import get_context

import numpy as np
from scipy.stats import qmc

from keql import KernelPDESolver
from keql.kernels import Matern
from keql.metrics import relative_l2_error

PI = np.pi
LARGEST_DENSE = 5000


def state(X):
    """A wave of long and one of short length."""
    x, y = X.T
    long = np.sin(PI * x) * np.sin(PI * y)
    return long + 0.3 * np.sin(4 * PI * x) * np.sin(3 * PI * y)


def source(X):
    x, y = X.T
    long, short = (
        np.sin(PI * x) * np.sin(PI * y),
        np.sin(4 * PI * x) * np.sin(3 * PI * y),
    )
    return 2 * PI**2 * long + 25 * PI**2 * 0.3 * short + state(X) ** 3


def cubic(u, u_xx, u_yy):
    return -(u_xx + u_yy) + u**3


def border(n):
    """4 n points on the sides of the unit square."""
    s = np.arange(n) / n
    zero, one = np.zeros(n), np.ones(n)
    sides = [(s, zero), (one, s), (1 - s, one), (zero, 1 - s)]
    return np.vstack([np.column_stack(side) for side in sides])


def fit(solver, n_points, queue):
    """Put error, seconds of the fit and of predictions, and memory into a queue."""
    points = qmc.Sobol(2, rng=0).random_base2(int(np.ceil(np.log2(n_points))))
    X = border(round(np.sqrt(n_points)))
    model = KernelPDESolver(
        cubic,
        points[:n_points],
        source,
        ("x", "y"),
        state_kernel=Matern(0.3, nu=3.5),
        solver=solver,
    )
    start = time.process_time()
    model.fit(X, state(X))
    seconds = time.process_time() - start
    test = np.random.RandomState(0).uniform(size=(10_000, 2))
    start = time.process_time()
    error = relative_l2_error(state(test), model.predict(test))
    predicting = time.process_time() - start
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    queue.put((error, seconds, predicting, gigabytes, model.n_iter_))


def measure(solver, n_points):
    context = get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=fit, args=(solver, n_points, queue))
    process.start()
    result = queue.get()
    process.join()
    error, seconds, predicting, gigabytes, n_iter = result
    print(
        f"K = {n_points:6d}, {solver:6s}: error {error:.1e}, {seconds:7.1f} s, "
        f"{gigabytes:4.1f} GB, {n_iter} steps, 10,000 predictions {predicting:.1f} s",
        flush=True,
    )
    return error, seconds, gigabytes


def main(numbers):
    warnings.simplefilter("error")
    sparse = {}
    for n_points in numbers:
        sparse[n_points] = measure("sparse", n_points)
        if n_points <= LARGEST_DENSE:
            dense = measure("dense", n_points)
            ratios = [a / b for a, b in zip(sparse[n_points], dense, strict=True)]
            print(
                "    sparse over dense: error {:.2f}, time {:.2f}, memory "
                "{:.2f}".format(*ratios),
                flush=True,
            )
    first, last = numbers[0], numbers[-1]
    for small in {first, LARGEST_DENSE} & set(sparse) - {last}:
        growth = np.log(sparse[last][1] / sparse[small][1]) / np.log(last / small)
        print(f"time grows as K^{growth:.2f} from {small} to {last} points")


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [1000, 5000, 20_000, 50_000])

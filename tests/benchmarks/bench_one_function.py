"""Burgers' equation learned from one function, imposed at many collocation points.

    python tests/benchmarks/bench_one_function.py [SOLVER [K ...]]

The equation of a joint fit, its error and that of the state, seconds of the processor
and the peak of memory, each fit in a process of its own. With the solver "auto" the
states of this smooth kernel are in the primal; "dual" takes 20 steps at most; "rough"
is a Matern kernel whose rank is too high for the primal, with restarts and terms taken
out. 5,000 and 20,000 points in the primal take about two minutes, 5,000 with the rough
kernel one.
"""

import os
import resource
import sys
import time
import warnings
from multiprocessing import get_context

import numpy as np

from keql import OneStepKEqL
from keql.datasets import make_burgers
from keql.kernels import RBF, Matern, Polynomial
from keql.metrics import equation_error, relative_l2_error

SETTINGS = {
    "state_kernel": RBF((0.3, 0.15), "fixed"),
    "equation_kernel": Polynomial(2),
    "observation_noise": 1e-5,
    "equation_noise": 1e-3,
}
OF_SOLVER = {
    "auto": {},
    "dual": {"solver": "dual", "n_terms": None, "n_restarts": 0, "max_iter": 20},
    "rough": {"state_kernel": Matern((0.3, 0.15), "fixed", nu=2.5)},
}


def fit(solver, n_points, queue):
    """Put what is told of one fit into a queue."""
    warnings.simplefilter("ignore")
    n_times = round(np.sqrt(n_points))
    shape = n_times, 2 + round(n_points / n_times)  # none on the sides
    data = make_burgers(100, collocation_shape=shape, random_state=0)
    model = OneStepKEqL(**data.problem, **SETTINGS | OF_SOLVER[solver])
    start = time.process_time()
    model.fit(data.X, data.y)
    seconds = time.process_time() - start
    gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    axis = np.linspace(0, 1, 104)[2:-2]
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    features = np.column_stack(
        [grid, *(data.truth(grid, name) for name in data.problem["operators"])]
    )
    errors = (
        equation_error(model.equation_, features, data.unknown_part),
        relative_l2_error(data.y_test, model.predict(data.X_test)),
    )
    n_points = len(data.collocation_points)
    equation = str(model.equation_)
    queue.put((n_points, *errors, seconds, gigabytes, model.n_iter_, equation))


def main(solver="auto", *numbers):
    """Print a line or two for each number of points."""
    context = get_context("spawn")
    for n_points in map(int, numbers or (5000, 20_000)):
        queue = context.Queue()
        process = context.Process(target=fit, args=(solver, n_points, queue))
        process.start()
        n_points, equation, state, seconds, gigabytes, n_steps, text = queue.get()
        process.join()
        print(
            f"K = {n_points}, {solver}: equation {equation:.1e}, state {state:.1e}, "
            f"{seconds:.1f} s, {gigabytes:.2f} GB, {n_steps} steps "
            f"(load {os.getloadavg()[0]:.1f})\n    {text}",
            flush=True,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])

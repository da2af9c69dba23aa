"""One step of the joint solve of a system, beside a Cholesky factorisation.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_system_step.py

Lorenz' system with all three states observed at `--times` times and equations imposed
at `--points` points: N observations and E equations at K points. Told is the least time
of a Levenberg-Marquardt step (linearise, solve, evaluate), in the dual and in the
primal, in units of one factorisation of size N + E K, measured in turn with it.
"""

import argparse
import time
from dataclasses import replace

import numpy as np
from scipy import linalg

from keql import OneStepKEqL
from keql.datasets import make_lorenz
from keql.kernels import RBF, Polynomial
from keql.model_selection._fit import Context, JointFamily


def problem_of(solver, n_times, n_points):
    """The joint problem, and its start."""
    data = make_lorenz(n_times, noise=0.01, random_state=0)
    model = OneStepKEqL(
        **data.problem | {"collocation_points": n_points},
        solver=solver,
        state_kernel=RBF(0.15, "fixed"),
        equation_kernel=Polynomial(2),
        observation_noise=0.1,
    )
    two_step = model._learn_in_two_steps(data.X, data.y, None)
    context = Context(model._settings, lambda *_: False)
    return JointFamily(two_step, model._hypothesis, context).problem_of(two_step)


def step_time(problem, start):
    """Seconds that one accepted step takes."""
    began = time.perf_counter()
    model = problem.linearise(problem.evaluate(start))
    iterate, _ = model.step(1.0)
    problem.evaluate(iterate)
    return time.perf_counter() - began


def cholesky_time(size):
    """Seconds that one factorisation takes."""
    A = np.random.RandomState(0).standard_normal((size, size))
    A = np.asfortranarray(A @ A.T + size * np.eye(size))
    began = time.perf_counter()
    linalg.lapack.dpotrf(A, lower=1, clean=0)
    return time.perf_counter() - began


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for solver in ("dual", "primal"):
        problem, start = problem_of(solver, options.times, options.points)
        start = replace(start, weights=1.01 * start.weights)
        size = len(problem.precisions[0])
        steps, units = [], []
        for _ in range(options.rounds):
            units.append(cholesky_time(size))
            steps.append(step_time(problem, start))
        print(
            f"{solver}: N + E K = {size}, {problem.blocks[0].n_unknowns} unknowns, "
            f"step {min(steps):.3f} s, Cholesky {min(units):.3f} s, "
            f"ratio {min(steps) / min(units):.2f}"
        )


if __name__ == "__main__":
    main()

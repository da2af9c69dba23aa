"""Larger than the paper: 5,000 collocation points for one function; 1,000 functions.

    python examples/paper/larger.py --quick   # 2,000 points and 200 functions
    python examples/paper/larger.py --full

Burgers' equation seen on its boundary, on finer and finer grids, and Darcy flow with 8
observations inside for each function. Time, memory and errors; a task of its own for
each size, so that peaks do not mix.
"""

import sys

import numpy as np
from burgers_observations import true_features
from darcy import NOISE as DARCY_NOISE
from experiment import measured, new_figure, read_options, run, save, select

from keql import OneStepKEqL, ReducedOneStepKEqL
from keql.datasets import make_burgers, make_darcy
from keql.metrics import equation_error, relative_l2_error

# Noise levels for Burgers' equation.
BURGERS_NOISE = {"observation_noise": 1e-6, "equation_noise": 1e-4}
# Points of the grid per side: K = side (side - 2).
SIDES = {"quick": (26, 46), "full": (26, 46, 72)}
FUNCTIONS = {"quick": (50, 200), "full": (50, 200, 1000)}


def burgers(size, solver):
    """One function and many collocation points."""
    data = make_burgers(
        theta=0.5,
        nu=0.01,
        initial_condition="published",
        layout="boundary",
        collocation_shape=(size, size),
    )
    settings = {**data.problem, **data.kernels, **BURGERS_NOISE}
    model = OneStepKEqL(**settings, n_terms=None, solver=solver, n_restarts=0)
    _, cost = measured(lambda: model.fit(data.X, data.y))
    error = relative_l2_error(data.y_test, model.predict(data.X_test))
    features, unknown_part = true_features(data), data.unknown_part
    return data, model, error, features, unknown_part, cost


def darcy(size, solver):
    """Many functions."""
    data = make_darcy(size, 8, random_state=0)
    estimator = {"full": OneStepKEqL, "reduced": ReducedOneStepKEqL}[solver]
    model = estimator(
        **data.problem | data.kernels | DARCY_NOISE,
        n_restarts=0,
        tol=1e-4,
        random_state=0,
    )
    _, cost = measured(lambda: model.fit(data.X, data.y))
    few = data.X_test[:, 2] < 20  # functions to measure the error of the state on
    error = relative_l2_error(data.y_test[few], model.predict(data.X_test[few]))
    features = data.features(5, grid_size=40, random_state=100)
    return data, model, error, features, data.unknown_part, cost


def measure(problem, size, solver):
    """Errors, steps, time and memory of a fit."""
    case = {"burgers": burgers, "darcy": darcy}[problem]
    data, model, error, features, unknown_part, cost = case(size, solver)
    return {
        "n_collocation": sum(len(Y) for Y in model.collocation_points_),
        "n_observations": len(data.X),
        "state_error": error,
        "equation_error": equation_error(model.equation_, features, unknown_part),
        "n_steps": model.n_iter_,
        **cost,
    }


def main(argv=None):
    """Measure, print, draw."""
    options = read_options(__doc__.splitlines()[0], argv)
    kind = "full" if options.full else "quick"
    tasks = [
        *({"problem": "burgers", "size": n, "solver": "auto"} for n in SIDES[kind]),
        *({"problem": "darcy", "size": n, "solver": "full"} for n in FUNCTIONS[kind]),
    ]
    rows = run(options.output / "larger.csv", tasks, measure, options.jobs)
    figure, axes = new_figure(1, 2, figsize=(9, 3.6))
    for ax, problem in zip(axes, ("burgers", "darcy"), strict=True):
        chosen = select(rows, problem=problem)
        K, seconds, memory = np.array(
            [(r["n_collocation"], r["seconds"], r["peak_mb"]) for r in chosen]
        ).T
        ax.loglog(K, seconds, "o-", label="seconds")
        ax.loglog(K, memory, "s--", label="peak memory, MB")
        ax.set_title({"burgers": "One function", "darcy": "Many functions"}[problem])
        ax.set_xlabel("collocation points of all functions")
        ax.legend()
        for row in chosen:
            print(
                f"{problem}, {row['size']:g}: K = {row['n_collocation']:g} in all, "
                f"errors {row['state_error']:.1e} and {row['equation_error']:.1e}, "
                f"{row['n_steps']:g} steps, {row['seconds']:.0f} s "
                f"({row['cpu_seconds']:.0f} s of CPU), "
                f"{row['peak_mb'] / 1e3:.1f} GB, load {row['load']:g}"
            )
    save(figure, options.output / "larger.png")
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])

"""Errors of the two-step method, beside the published ones.

- Darcy: error of the equation on the training functions, and on new functions of the
  same and of another distribution; published settings.
- Burgers, a new random initial condition in every draw: error of the state, with the
  published settings and with the defaults. What is published as the filtering error of
  SINDy is that of the two-step state.
- Duffing: error of the state on the published trajectory.

Means over draws, with the smallest and the largest; published ones likewise. They are
read from published_errors.json in the folder that the environment variable
KEQL_REFERENCE names, and so is the trajectory; without it they are left out.

    KEQL_REFERENCE=folder python tests/benchmarks/bench_two_step.py
"""

import json
import os
from pathlib import Path
from time import perf_counter

import numpy as np

from keql import TwoStepKEqL
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF
from keql.metrics import equation_error, filtering_error

N_DARCY, N_BURGERS = 20, 10
FUNCTIONS, OBSERVATIONS = (8, 32), (2, 4, 8)
# New functions for the error of an equation in and out of the distribution: how many,
# and the length scales they are drawn with; points of the grid for the features.
NEW, LENGTH_SCALES, GRID = 5, {"in": 0.5, "out of": 0.2}, 50
BURGERS = (100, 400)


def reference(name):
    """Return the path of a reference file, or None."""
    path = Path(os.environ.get("KEQL_REFERENCE", ""), name)
    return path if "KEQL_REFERENCE" in os.environ and path.is_file() else None


def published(*keys, position):
    """Return the published mean, minimum and maximum, or None."""
    path = reference("published_errors.json")
    if path is None:
        return None
    cell = json.loads(path.read_text(encoding="utf-8"))
    for key in keys:
        cell = cell[key]
    return tuple(cell[name][position] for name in ("mean", "min", "max"))


def report(name, errors, known):
    """Print one line: our mean, minimum and maximum, the published, and a verdict."""
    ours = np.mean(errors), np.min(errors), np.max(errors)
    line = f"{name:44}" + summary(ours)
    if known is not None:
        inside = known[1] <= ours[0] <= known[2]
        better = ours[0] < known[1]
        verdict = "inside" if inside else "below" if better else "ABOVE"
        line += f" | {summary(known)} {verdict}"
    print(line, flush=True)


def summary(triple):
    """Write a mean and its range."""
    return "{:8.4f} ({:.4f} .. {:.4f})".format(*triple)


def darcy_errors(n_functions, n_interior, seed):
    """Errors of the equation: training, in and out of the distribution."""
    data = make_darcy(n_functions, n_interior, random_state=seed)
    model = TwoStepKEqL(**data.problem, **data.kernels, random_state=seed)
    equation = model.fit(data.X, data.y).equation_
    points = data.collocation_points
    training = [
        np.column_stack(
            [points, *(data.truth(points, name, m) for name in data.operators)]
        )
        for m in range(n_functions)
    ]
    new = [
        data.features(NEW, length_scale=scale, grid_size=GRID, random_state=100 + seed)
        for scale in LENGTH_SCALES.values()
    ]
    return [equation_error(equation, S, data.unknown_part) for S in (training, *new)]


def darcy():
    """Print the table of Darcy's problem."""
    kinds = ["training", *(f"{name} distribution" for name in LENGTH_SCALES)]
    for n_functions in FUNCTIONS:
        column = [2, 4, 8, 16, 32, 64, 128].index(n_functions)
        for n_interior in OBSERVATIONS:
            errors = [
                darcy_errors(n_functions, n_interior, seed) for seed in range(N_DARCY)
            ]
            for kind, values in zip(kinds, np.transpose(errors), strict=True):
                report(
                    f"Darcy M={n_functions}, {n_interior} inside, {kind}",
                    values,
                    published(
                        "darcy",
                        f"equation_{kind.replace(' ', '_')}",
                        "two_step_keql",
                        f"{n_interior}_interior_observations",
                        position=column,
                    ),
                )


def burgers_errors(n_interior, seed):
    """Errors of the state: published settings, default settings."""
    data = make_burgers(n_interior, random_state=seed)
    settings = {"variables": data.variables}
    noise = data.kernels["observation_noise"]
    likeliest = TwoStepKEqL(
        **settings,
        state_kernel=data.kernels["state_kernel"],
        observation_noise=noise,
    ).fit(data.X, data.y)
    # The published runs shortened the length scales of maximum likelihood.
    lengths = 0.75 * np.asarray(likeliest.state_kernel_.length_scale)
    shortened = TwoStepKEqL(
        **settings, state_kernel=RBF(lengths, "fixed"), observation_noise=noise
    ).fit(data.X, data.y)
    default = TwoStepKEqL(**settings).fit(data.X, data.y)
    return [
        filtering_error(model, data.X_test, data.y_test)
        for model in (shortened, likeliest, default)
    ]


def burgers():
    """Print the table of Burgers' equation."""
    for n_interior in BURGERS:
        errors = [burgers_errors(n_interior, seed) for seed in range(N_BURGERS)]
        known = published(
            "burgers_benchmark",
            "varying_initial_condition",
            "sindy",
            "filtering",
            position=[10, 30, 50, 100, 200, 300, 400].index(n_interior),
        )
        kinds = ("published settings", "without shortening", "defaults")
        for kind, values in zip(kinds, np.transpose(errors), strict=True):
            report(f"Burgers {n_interior} inside, {kind}", values, known)


def duffing():
    """Print the error on the published trajectory."""
    path = reference("duffing_trajectory.npz")
    if path is None:
        print("Duffing: left out, duffing_trajectory.npz not found")
        return
    file, data = np.load(path), make_duffing()
    model = TwoStepKEqL(**data.problem, **data.kernels, random_state=0)
    error = filtering_error(
        model.fit(file["X"], file["y"]), file["X_test"], file["y_test"]
    )
    known = json.loads(reference("published_errors.json").read_text(encoding="utf-8"))
    known = known["duffing"]["filtering [0,50]"]["two_step"]
    print(f"Duffing, state: {error:.4f} | published {known}")


def main():
    """Print all tables."""
    start = perf_counter()
    if reference("published_errors.json") is None:
        print(
            "Published figures are left out: published_errors.json not found. Set "
            "KEQL_REFERENCE to its folder."
        )
    print(f"{'Relative L2 errors':44}    mean (min .. max) | published")
    duffing()
    darcy()
    burgers()
    print(f"{perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()

"""Darcy flow: the error of the learned equation over functions and observations.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_darcy.py
    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_darcy.py --draws 10 \\
        --csv darcy.csv

The first takes minutes, the second hours; with a file, each fit is one line of it,
written as soon as it is known: a run that was interrupted goes on where it ended.
Errors are relative L2 errors of the unknown part at the true features of five new
functions, in and out of the distribution of those that were learned from. The published
figures (mean, and range over ten draws, of the reduced method) are those of
arXiv:2503.01036; they are read from the folder KEQL_REFERENCE if there is one.
"""

import argparse
import csv
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL, ReducedOneStepKEqL
from keql.datasets import make_darcy
from keql.kernels import RBF, Polynomial
from keql.metrics import equation_error

METHODS = {"full": OneStepKEqL, "reduced": ReducedOneStepKEqL}
SETTINGS = {
    # Coefficients that vary over the whole square.
    "equation_kernel": RBF(1.0, "fixed", active_dims=("x1", "x2")) * Polynomial(1),
    "observation_noise": 1e-6,
    "equation_noise": 1e-3,
    "n_inducing": 400,
    "solver": "dual",
}
KEY = ("n_functions", "n_interior", "draw", "method")
MEASURED = ("in_distribution", "out_of_distribution", "misfit", "n_iter", "seconds")


def main():
    """Measure what is missing in the file, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--functions", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--observations", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--csv", type=Path, help="keep and continue results here")
    arguments = parser.parse_args()
    cells = [(m, n) for m in arguments.functions for n in arguments.observations]
    keys = [
        (*cell, draw, method)
        for draw in range(arguments.draws)
        for cell in cells
        for method in arguments.methods
    ]
    results = complete(arguments.csv, keys)
    for cell in cells:
        report(cell, results, arguments)


def complete(path, keys):
    """All results of a file, after those that it lacks have been added to it."""
    if path is None:
        return {key: measure(*key) for key in keys}
    results = read(path)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, KEY + MEASURED)
        if file.tell() == 0:
            writer.writeheader()
        for key in keys:
            if key not in results:
                results[key] = measure(*key)
                writer.writerow(dict(zip(KEY, key, strict=True)) | results[key])
                file.flush()
    return results


def read(path):
    """Measurements by (functions, observations, draw, method)."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {
            (*(int(row[name]) for name in KEY[:3]), row["method"]): {
                name: float(row[name]) for name in MEASURED
            }
            for row in csv.DictReader(file)
        }


def measure(n_functions, n_interior, draw, method):
    """One fit and its errors."""
    data = make_darcy(n_functions, n_interior, random_state=draw)
    model = METHODS[method](
        **{**data.problem, **data.kernels, **SETTINGS}, random_state=draw
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        # A fit that has not converged counts as it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    errors = [
        equation_error(
            model.equation_,
            data.features(5, length_scale, grid_size=40, random_state=100 + draw),
            data.unknown_part,
        )
        for length_scale in (0.5, 0.2)
    ]
    measured = (*errors, model.misfit_, model.n_iter_, seconds)
    return {
        name: float(f"{value:.4g}")
        for name, value in zip(MEASURED, measured, strict=True)
    }


def report(cell, results, arguments):
    """Print mean and range of the errors of the methods in one cell."""
    print(f"M = {cell[0]:3d}, {cell[1]} observations:", end="")
    errors = {
        method: [
            results[*cell, draw, method]["in_distribution"]
            for draw in range(arguments.draws)
        ]
        for method in arguments.methods
    }
    figures = published(*cell)
    if figures:
        errors["published"] = figures
    for name, values in errors.items():
        mean = values[0] if name == "published" else np.mean(values)
        print(f"  {name} {mean:.1e} ({min(values):.1e} to {max(values):.1e})", end="")
    print(flush=True)


def published(n_functions, n_interior):
    """Mean, minimum and maximum of the published reduced method; None without."""
    path = Path(os.environ.get("KEQL_REFERENCE", ".")) / "published_errors.json"
    if not path.exists():
        return None
    darcy = json.loads(path.read_text())["darcy"]
    if n_functions not in darcy["n_functions"]:
        return None
    column = darcy["n_functions"].index(n_functions)
    table = darcy["equation_in_distribution"]["reduced_one_step_keql"]
    row = table[f"{n_interior}_interior_observations"]
    return [row[name][column] for name in ("mean", "min", "max")]


if __name__ == "__main__":
    main()

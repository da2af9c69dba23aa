"""The one-step method without a single setting, on Burgers' equation.

A new random initial condition in every draw; errors of the state and of the equation
beside the published ones (varying initial condition), which are read from
published_errors.json in the folder that the environment variable KEQL_REFERENCE names.

    python tests/benchmarks/bench_scarce_data.py --draws 3 --sizes 10 30 100
    python tests/benchmarks/bench_scarce_data.py --noise 0.05 --sizes 100 200

With noise, of a fraction of the size of the state, its estimate is told beside it.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL
from keql.datasets import make_burgers
from keql.metrics import relative_l2_error

SIZES = (10, 30, 50, 100, 200, 400, 600)
# Where the errors of the equation are taken.
GRID = np.linspace(0, 1, 104)[2:-2]


def main():
    """Print a line for each fit and each number of observations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--noise", type=float, default=0.0)
    options = parser.parse_args()
    published = {} if options.noise else read_published()
    limits = [open_between_points(make_burgers(0, random_state=s)) for s in range(10)]
    print(
        "Left open by the initial values: mean "
        f"{np.mean(limits):.1e}, from {min(limits):.1e} to {max(limits):.1e}"
    )
    for size in options.sizes:
        errors = [one_draw(size, seed, options.noise) for seed in range(options.draws)]
        for name, ours in zip(("state", "equation"), np.transpose(errors), strict=True):
            theirs = published.get((size, name))
            known = "" if theirs is None else f"; published mean {theirs:.1e}"
            print(
                f"{size} observations, {name}: mean {ours.mean():.1e}, median "
                f"{np.median(ours):.1e}, worst {ours.max():.1e}{known}",
                flush=True,
            )


def one_draw(size, seed, noise):
    """Errors of the state and of the unknown part of the equation."""
    data = make_burgers(size, noise=noise, random_state=seed)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = OneStepKEqL(**data.problem, n_terms="auto").fit(data.X, data.y)
    seconds = time.perf_counter() - start
    mean, std = model.predict(data.X_test, return_std=True)
    points = np.stack(np.meshgrid(GRID, GRID, indexing="ij"), -1).reshape(-1, 2)
    names = model.equation_.feature_names[2:]
    S = np.column_stack([points, *(data.truth(points, name) for name in names)])
    errors = (
        relative_l2_error(data.y_test, mean),
        relative_l2_error(data.unknown_part(S), model.equation_.unknown_part(S)),
    )
    estimated = ""
    if noise:
        estimated = f"noise / true {model.observation_noise_ / data.noise_std:.2f}, "
    covered = np.mean(np.abs(mean - data.y_test) < 1.645 * std)
    print(
        f"  {size} observations, draw {seed}: state {errors[0]:.1e}, equation "
        f"{errors[1]:.1e}, in the 90 % band {covered:.2f}, {estimated}{seconds:.0f} s"
        f"{', not converged' if caught else ''}: {model.equation_}",
        flush=True,
    )
    return errors


def open_between_points(data):
    """Expected error of the best estimate from the initial values alone.

    It knows how initial conditions are distributed, u0 = sum_j (j + 1)^-2 Z_j
    sin(j pi x) with 49 terms, and that they diffuse; not that they are advected, nor
    what is observed later, when the frequencies that 31 points cannot tell are gone.
    """
    frequencies = np.pi * np.arange(1, 50)
    sizes = np.arange(2.0, 51.0) ** -2

    def modes(points):
        t, x = points.T
        decay = np.exp(-0.01 * np.outer(t, frequencies**2))
        return sizes * np.sin(np.outer(x, frequencies)) * decay

    seen = modes(data.X[data.X[:, 0] == 0])
    wanted = modes(data.X_test)
    # The variance that is left is that outside of the row space of the modes seen.
    _, s, rows = np.linalg.svd(seen)
    open_ = wanted @ rows[np.sum(s > 1e-10 * s[0]) :].T
    return np.linalg.norm(open_) / np.linalg.norm(data.y_test)


def read_published():
    """Published mean errors of the one-step method, by size and name."""
    path = Path(os.environ.get("KEQL_REFERENCE", ""), "published_errors.json")
    if "KEQL_REFERENCE" not in os.environ or not path.is_file():
        return {}
    table = json.loads(path.read_text(encoding="utf-8"))["burgers_benchmark"]
    means = table["varying_initial_condition"]["one_step_keql"]
    return {
        (size, ours): value
        for ours, theirs in (("state", "filtering"), ("equation", "equation"))
        for size, value in zip(
            table["n_interior_observations"], means[theirs]["mean"], strict=True
        )
    }


if __name__ == "__main__":
    main()

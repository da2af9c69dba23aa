"""Time and memory of the pieces of a fit against K, N, Q and M, kept for comparison.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_pieces.py
    python tests/benchmarks/bench_pieces.py --compare benchmark_pieces.json

Pieces: the Gram matrix of all functionals, a step of the joint solve in the dual and in
the primal, a whole fit, a solve of the learned equation for other data. Every time is
divided by that of Cholesky factorisations of size N + K, one for each function, taken
just before and just after it: the bound that no step in the dual can pass, and a unit
that a busy machine slows down as much as what is measured. (A benchmark plugin of
pytest compares seconds between runs, which on a shared machine says little.)

Results go to a JSON file, with a plot of the ratios beside it; a saved one is compared
with, and the run fails if a piece takes more than `--tolerance` times as long as then.
"""

import argparse
import json
import os
import platform
import sys
import time
import tracemalloc
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import scipy
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning

import keql
from keql import ExtrapolationWarning, OneStepKEqL
from keql.datasets import make_burgers, make_darcy
from keql.kernels import RBF, Polynomial
from keql.operators import gram, parse_operator

# What is varied from N = 181, K = 754 and three operators, or eight functions.
CASES = {
    "K": ((16, 18), (26, 31), (38, 43)),
    "N": (20, 100, 600),
    "Q": (1, 2, 3, 5),
    "M": (4, 16, 64),
}
OPERATORS = ("u", "u_x", "u_xx", "u_tx", "u_tt")
NOISE = {"observation_noise": 1e-5, "equation_noise": 1e-3}
PIECES = ("gram", "dual step", "primal step", "fit", "solve")


def burgers(shape=(26, 31), n_interior=100, n_operators=3):
    """An estimator and its data, one function."""
    data = make_burgers(n_interior, collocation_shape=shape, random_state=0)
    problem = data.problem | {"operators": OPERATORS[:n_operators]}
    settings = {"state_kernel": RBF((0.3, 0.15), "fixed"), **NOISE}
    return {**problem, **settings, "equation_kernel": Polynomial(2)}, data


def darcy(n_functions):
    """An estimator and its data, many functions."""
    data = make_darcy(n_functions, 8, random_state=0)
    return {**data.problem, **data.kernels, "random_state": 0}, data


def make_case(kind, size):
    """Settings of an estimator, and data."""
    if kind == "M":
        return darcy(size)
    name = {"K": "shape", "N": "n_interior", "Q": "n_operators"}[kind]
    return burgers(**{name: size})


def pieces(settings, data):
    """Functions to be timed by name."""
    functionals = None
    for solver in ("dual", "primal"):
        model = OneStepKEqL(**settings, solver=solver, n_restarts=0, max_iter=20)
        two_step = model._learn_in_two_steps(data.X, data.y, None)
        problem, start = model._solve_jointly(two_step)
        if functionals is None:
            functionals = all_functionals(two_step, data)
            yield "gram", partial(gram, two_step.state_kernel, functionals)
        yield f"{solver} step", partial(one_step, problem, start)
    model = OneStepKEqL(**settings, n_restarts=0, max_iter=20)
    yield "fit", lambda: model.fit(data.X, data.y)
    solver = model.pde_solver(
        **{} if data.forcing is None else {"forcing": data.forcing}
    )
    yield "solve", lambda: solver.fit(data.X, data.y)


def all_functionals(two_step, data):
    """Point evaluations of the first function, and its operators everywhere."""
    names = [*two_step.setup.operators]
    points = two_step.setup.collocation_points[0]
    identity = parse_operator("u", two_step.variables)
    observed = two_step.observations.regressions[0].points
    return [(observed, identity), *((points, operator) for operator in names)]


def one_step(problem, start):
    """Linearise, solve, evaluate: what an accepted step costs."""
    model = problem.linearise(problem.evaluate(start))
    iterate, _ = model.step(1e4)
    return problem.evaluate(iterate)


def seconds_of(function, at_least=0.3, repeats=7):
    """Shortest time of a few calls."""
    times = []
    while len(times) < repeats and sum(times) < at_least:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def cholesky_of(size):
    """A function that factors a matrix of this size."""
    A = np.random.RandomState(0).standard_normal((size, size))
    A = np.asfortranarray(A @ A.T + size * np.eye(size))
    return lambda: linalg.lapack.dpotrf(A, lower=1, clean=0)


def peak_of(function):
    """Memory allocated at most during a call, in MB."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measure(kind, size):
    """A row for each piece."""
    settings, data = make_case(kind, size)
    n_functions = size if kind == "M" else 1
    N, K = len(data.X) // n_functions, len(data.collocation_points)
    unit = cholesky_of(N + K)
    for piece, function in pieces(settings, data):
        before = seconds_of(unit)
        seconds = seconds_of(function)
        bound = n_functions * min(before, seconds_of(unit))
        if piece == "gram":  # of one function
            bound /= n_functions
        yield {
            "case": kind,
            "size": K if kind == "K" else size,
            "N": N,
            "K": K,
            "Q": len(settings["operators"]),
            "M": n_functions,
            "piece": piece,
            "seconds": seconds,
            "ratio": seconds / bound,
            "peak_mb": peak_of(function),
            "cholesky_gflops": (N + K) ** 3 / 3e9 * n_functions / bound,
        }


def machine():
    """Where and with what this was measured."""
    return {
        "python": platform.python_version(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "threads": os.environ.get("OPENBLAS_NUM_THREADS"),
        "versions": {m.__name__: m.__version__ for m in (keql, np, scipy)},
    }


def compare(rows, saved, tolerance):
    """Print the change of every ratio; return those that have grown too much."""
    known = {(r["case"], r["size"], r["piece"]): r["ratio"] for r in saved["results"]}
    slower = []
    for row in rows:
        key = row["case"], row["size"], row["piece"]
        if key in known:
            change = row["ratio"] / known[key]
            print(f"{key}: {known[key]:.1f} to {row['ratio']:.1f}, {change:.2f} times")
            if change > tolerance:
                slower.append(key)
    return slower


def plot(rows, target):
    """Ratios over what was varied."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = [kind for kind in CASES if any(row["case"] == kind for row in rows)]
    figure, axes = plt.subplots(
        1,
        len(kinds),
        figsize=(3.4 * len(kinds), 3.4),
        sharey=True,
        layout="constrained",
        squeeze=False,
    )
    for ax, kind in zip(axes[0], kinds, strict=True):
        for piece in PIECES:
            chosen = [r for r in rows if (r["case"], r["piece"]) == (kind, piece)]
            x, y = [r["size"] for r in chosen], [r["ratio"] for r in chosen]
            ax.loglog(x, y, "o-", label=piece)
        ax.set_xlabel(kind)
        ax.set_xticks(x, [str(size) for size in x])
        ax.xaxis.set_minor_locator(plt.NullLocator())
        ax.axhline(1, color="black", linewidth=0.5)
    axes[0, 0].set_ylabel("time over Cholesky of size N + K")
    axes[0, 0].legend(fontsize=7)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def main(argv=None):
    """Measure, save, compare, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--output", type=Path, default=Path("benchmark_pieces.json"))
    parser.add_argument("--compare", type=Path, help="a file of an earlier run")
    parser.add_argument("--tolerance", type=float, default=1.5)
    options = parser.parse_args(argv)
    saved = None
    if options.compare is not None:  # before it may be written over
        saved = json.loads(options.compare.read_text(encoding="utf-8"))
    rows = []
    for category in (ConvergenceWarning, ExtrapolationWarning):
        warnings.simplefilter("ignore", category)
    for kind in options.cases:
        for size in CASES[kind]:
            for row in measure(kind, size):
                rows.append(row)
                print(
                    f"N = {row['N']}, K = {row['K']}, Q = {row['Q']}, M = {row['M']}, "
                    f"{row['piece']}: {row['seconds']:.3f} s, {row['ratio']:.1f} times "
                    f"Cholesky, {row['peak_mb']:.0f} MB",
                    flush=True,
                )
    text = json.dumps({"machine": machine(), "results": rows}, indent=1)
    options.output.write_text(text + "\n", encoding="utf-8")
    plot(rows, options.output.with_suffix(".png"))
    print(f"Results are in {options.output}, a plot beside it")
    slower = compare(rows, saved, options.tolerance) if saved else []
    if slower:
        print(f"Slower than {options.tolerance} times: {slower}")
    return len(slower)


if __name__ == "__main__":
    sys.exit(min(main(), 1))

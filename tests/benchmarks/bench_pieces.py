"""Time and memory of the pieces of a fit against K, N, Q and M, kept for comparison.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/bench_pieces.py
    python tests/benchmarks/bench_pieces.py --compare benchmark_pieces.json

Pieces: the Gram matrix of all functionals, a step of the joint solve in the dual and in
the primal, a whole fit, a solve of the learned equation for other data, all timed by
pytest-benchmark. So is a Cholesky factorisation of size N + K, just before them: every
time is divided by that, once for each function, which is the bound that no step in the
dual can pass, and a unit that a busy machine slows down as much as what is measured.

Results go to the JSON file of pytest-benchmark, with a plot of the ratios beside it; a
saved one is compared with, ratio by ratio, and the run fails if a piece takes more than
`--tolerance` times as long as then.
"""

import argparse
import json
import sys
import tracemalloc
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pytest
from scipy import linalg

from keql import OneStepKEqL
from keql.datasets import make_burgers, make_darcy
from keql.kernels import RBF, Polynomial
from keql.model_selection._fit import Context, JointFamily
from keql.operators import gram, parse_operator

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::keql.ExtrapolationWarning"),
]

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


class Case:
    """A problem of one size, and what is timed of it."""

    def __init__(self, kind, size):
        self.kind, self.size = kind, size
        self.settings, self.data = make_case(kind, size)
        self.n_functions = size if kind == "M" else 1

    @property
    def info(self):
        """What a row says of the problem."""
        n_points = len(self.data.collocation_points)
        return {
            "case": self.kind,
            "size": n_points if self.kind == "K" else self.size,
            "N": len(self.data.X) // self.n_functions,
            "K": n_points,
            "Q": len(self.settings["operators"]),
            "M": self.n_functions,
        }

    def estimator(self, **settings):
        """An estimator that takes twenty steps."""
        settings |= {"n_terms": None, "n_restarts": 0, "max_iter": 20}
        return OneStepKEqL(**self.settings, **settings)

    def start(self, solver):
        """The joint problem, where it starts, and what it was made from."""
        model = self.estimator(solver=solver)
        two_step = model._learn_in_two_steps(self.data.X, self.data.y, None)
        context = Context(model._settings, lambda *_: False)
        family = JointFamily(two_step, model._hypothesis, context)
        return *family.problem_of(two_step), two_step

    @cached_property
    def fitted(self):
        """A fitted estimator."""
        return self.estimator().fit(self.data.X, self.data.y)


PARAMETERS = [
    pytest.param((kind, size), id=f"{kind}-{size}")
    for kind, sizes in CASES.items()
    for size in sizes
]


@pytest.fixture(scope="module", params=PARAMETERS)
def case(request):
    """One problem after the other."""
    return Case(*request.param)


def timed(benchmark, case, piece, function):
    """Time a function, then trace its memory, and note what it was."""
    benchmark(function)
    benchmark.extra_info.update(case.info, piece=piece, peak_mb=peak_of(function))


def test_cholesky(benchmark, case):
    timed(benchmark, case, "cholesky", cholesky_of(case.info["N"] + case.info["K"]))


def test_gram(benchmark, case):
    *_, two_step = case.start("dual")
    functionals = all_functionals(two_step)
    timed(benchmark, case, "gram", partial(gram, two_step.state_kernel, functionals))


@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_step(benchmark, case, solver):
    problem, start, _ = case.start(solver)
    timed(benchmark, case, f"{solver} step", partial(one_step, problem, start))


def test_fit(benchmark, case):
    model, data = case.estimator(), case.data
    timed(benchmark, case, "fit", lambda: model.fit(data.X, data.y))


def test_solve(benchmark, case):
    data = case.data
    forcing = {} if data.forcing is None else {"forcing": data.forcing}
    solver = case.fitted.pde_solver(**forcing)
    timed(benchmark, case, "solve", lambda: solver.fit(data.X, data.y))


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


def all_functionals(two_step):
    """Point evaluations of the first function, and its operators everywhere."""
    points = two_step.setup.collocation_points[0]
    identity = parse_operator("u", two_step.variables)
    observed = two_step.observations.functions[0].points
    imposed = [(points, operator) for operator in two_step.setup.operators]
    return [(observed, identity), *imposed]


def one_step(problem, start):
    """Linearise, solve, evaluate: what an accepted step costs."""
    model = problem.linearise(problem.evaluate(start))
    iterate, _ = model.step(1e4)
    return problem.evaluate(iterate)


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


def compare(rows, saved, tolerance):
    """Print the change of every ratio; return those that have grown too much."""
    known = {(r["case"], r["size"], r["piece"]): r["ratio"] for r in saved}
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


def read_rows(path):
    """A row for each piece, its least time divided by that of Cholesky."""
    results = json.loads(path.read_text(encoding="utf-8"))["benchmarks"]
    rows = [r["extra_info"] | {"seconds": r["stats"]["min"]} for r in results]
    units = {
        (row["case"], row["size"]): row["seconds"]
        for row in rows
        if row["piece"] == "cholesky"
    }
    for row in rows:
        # The Gram matrix is that of one function.
        n_functions = 1 if row["piece"] == "gram" else row["M"]
        unit = n_functions * units[row["case"], row["size"]]
        row["ratio"] = row["seconds"] / unit
    return [row for row in rows if row["piece"] != "cholesky"]


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
        saved = read_rows(options.compare)
    arguments = [
        f"--benchmark-json={options.output}",
        "--benchmark-min-rounds=3",
        "--benchmark-max-time=0.3",
        "--benchmark-columns=min,median,max,rounds",
        f"-k={' or '.join(f'{kind}-' for kind in options.cases)}",
    ]
    status = pytest.main([__file__, "-q", "-p", "no:cacheprovider", *arguments])
    if status != 0:
        return int(status)
    rows = read_rows(options.output)
    for row in rows:
        print(
            f"N = {row['N']}, K = {row['K']}, Q = {row['Q']}, M = {row['M']}, "
            f"{row['piece']}: {row['seconds']:.3f} s, {row['ratio']:.1f} times "
            f"Cholesky, {row['peak_mb']:.0f} MB"
        )
    plot(rows, options.output.with_suffix(".png"))
    print(f"Results are in {options.output}, a plot beside it")
    slower = compare(rows, saved, options.tolerance) if saved else []
    if slower:
        print(f"Slower than {options.tolerance} times: {slower}")
    return len(slower)


if __name__ == "__main__":
    sys.exit(min(main(), 1))

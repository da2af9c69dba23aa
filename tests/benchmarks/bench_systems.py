"""Default fits of systems of equations, beside what others report.

One call for each draw: no kernel, noise level or weight is given. Told are the error of
the states (relative L2; and the root mean square error divided by the standard
deviation of each state, which is what others report), the relative error of all
coefficients, whether the terms are exactly the true ones, whether the fit warned, and
the processor time.

    python tests/benchmarks/bench_systems.py --problems lorenz_scarce cubic --draws 3
    python tests/benchmarks/bench_systems.py --problems --heat-map 10:0.1 4:0.4

Names are taken by how they begin; without --problems all are fitted but the heat map.
"""

import argparse
import time
import warnings
from functools import partial

import numpy as np
from joblib import Parallel, delayed
from published_systems import PUBLISHED, heat_map_figures
from system_problems import all_problems, lorenz_cell

from keql import OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL

ESTIMATORS = {
    "one": partial(OneStepKEqL, n_terms="auto"),
    "two": TwoStepKEqL,
    "reduced": partial(ReducedOneStepKEqL, n_terms="auto"),
}
HEADING = "problem", "draw", "rel. L2", "nrmse", "coeff.", "terms", "warned", "CPU s"
ROW = "{:26} {:>6} {:>9} {:>9} {:>9} {:>6} {:>7} {:>8}"


def main():
    """Print a row for each fit, and the medians of each problem."""
    options = read_options()
    problems, figures = all_problems(), dict(PUBLISHED)
    if options.problems is not None:
        begins = tuple(options.problems)
        problems = {k: v for k, v in problems.items() if k.startswith(begins)}
    for cell in options.heat_map:
        t_end, ratio = (float(number) for number in cell.split(":"))
        name = f"lorenz_T{t_end:g}_noise_{ratio:g}"
        problems[name] = partial(lorenz_cell, int(t_end), ratio)
        figures[name] = heat_map_figures(int(t_end), ratio)
    print(ROW.format(*HEADING))
    for name, make in problems.items():
        fit = delayed(one_fit)
        tasks = (fit(name, make, draw, options) for draw in range(options.draws))
        scores = []
        for row, score in Parallel(options.jobs, return_as="generator")(tasks):
            print(row, flush=True)
            scores.append(score)
        print_summary(name, scores, figures.get(name, "nothing published"))


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*", default=None)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--estimator", choices=ESTIMATORS, default="one")
    parser.add_argument("--heat-map", nargs="*", default=[], metavar="T:RATIO")
    parser.add_argument(
        "--published-library",
        action="store_true",
        help="give the terms that the published run allowed, where they are special",
    )
    parser.add_argument(
        "--equations", action="store_true", help="print what was learned"
    )
    return parser.parse_args()


def one_fit(name, make, draw, options):
    """Fit one draw: its row, and its scores as numbers (None: the fit failed)."""
    problem = make(draw)
    settings = dict(problem.settings)
    if options.published_library and problem.published_kernel is not None:
        settings["equation_kernel"] = problem.published_kernel
    model = ESTIMATORS[options.estimator](**settings)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(problem.X, problem.y)
        except (ValueError, ArithmeticError) as error:
            return f"{name:26} {draw:6}  failed: {error}", None
    seconds = time.process_time() - start
    relative, nrmse = problem.state_errors(model.predict(problem.X_test))
    coefficients, exact = problem.equation_errors(model.equation_)
    numbers = (f"{value:.4f}" for value in (relative, nrmse, coefficients))
    words = "-" if exact is None else yes(exact), yes(caught), f"{seconds:.0f}"
    row = ROW.format(name, draw, *numbers, *words)
    if options.equations:
        row += f"\n{model.equation_}"
        row += "".join(f"\n  {warning.message}" for warning in caught)
    exact = np.nan if exact is None else float(exact)
    return row, (relative, nrmse, coefficients, exact, float(bool(caught)), seconds)


def yes(value):
    """A word for a truth value."""
    return "yes" if value else "no"


def print_summary(name, scores, published):
    """Print the medians of the draws, and what is published."""
    kept = np.array([score for score in scores if score is not None])
    if len(kept):
        relative, nrmse, coefficients, _, _, seconds = np.median(kept, axis=0)
        numbers = (f"{value:.4f}" for value in (relative, nrmse, coefficients))
        exact, warned = (f"{value:.0%}" for value in np.mean(kept[:, 3:5], axis=0))
        print(ROW.format(name, "median", *numbers, exact, warned, f"{seconds:.0f}"))
    print(f"    {published}\n", flush=True)


if __name__ == "__main__":
    main()

"""Default fits of a suite: which problems are solved, and which are wrong in silence.

One call for each problem, nothing given but what describes it. A fit is

- solved, if the terms are right and the errors of state and equation are small: 1e-3
  with exact data, and with noise 5 % in the equation;
- partly solved, if the errors are small, but the terms are not those of the truth; or
  the equation is right, but the error of the states is not small;
- warned, if it is neither and says so;
- silent, if it is neither and says nothing. There should be none.

    python tests/benchmarks/bench_suite.py --families ode field --draws 2
    python tests/benchmarks/bench_suite.py --random 60 --families oscillator evolution

--estimator says which learner is called: "one" (OneStepKEqL, the default), "two"
(TwoStepKEqL) or "reduced" (ReducedOneStepKEqL); --n-terms all keeps all terms of its
equation. --equations prints what was found, what is true, and all warnings.

    python tests/benchmarks/bench_suite.py --families ode --estimator reduced

Times are CPU seconds, and multiples of one Cholesky factorisation of the size 1,000,
the mean of those before and after the fit: a machine is not always as fast.

With --choosing each fit is followed by one of the best hypothesis alone: the terms and
functions that were chosen are given, all of which are kept. The last column is the time
of the first over that of the second, and the last row its median over all problems.
"""

import argparse
import time
import warnings
from collections import Counter, defaultdict

import numpy as np
from bench_exact_states import cholesky_seconds
from evolution_problems import evolution
from flow_problems import flows
from joblib import Parallel, delayed
from ring_problems import rings
from suite_problems import suite
from unseen_problems import unseen

from keql import OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL

ROW = "{:19} {:22} {:>4} {:>8} {:>9} {:>9} {:>6} {:>7} {:>10} {:>7}"
HEADING = "family", "problem", "draw", "outcome", "state", "equation", "terms"
SUMMARY = "median s, most   x Cholesky, most"
OUTCOMES = "solved", "partly", "warned", "silent"
ESTIMATORS = {"one": OneStepKEqL, "two": TwoStepKEqL, "reduced": ReducedOneStepKEqL}


def main():
    """Print a row for each fit, and the counts of each family."""
    options = read_options()
    problems = {
        key: make
        for key, make in (
            suite(options.random)
            | unseen()
            | evolution()
            | flows()
            | rings(options.random)
        ).items()
        if options.families is None or key[0].startswith(tuple(options.families))
        if options.names is None or key[1].startswith(tuple(options.names))
    }
    fits = (
        delayed(one_fit)(key, make, draw, options)
        for key, make in problems.items()
        for draw in range(options.draws)
    )
    counts, times, ratios = defaultdict(Counter), defaultdict(list), []
    print(ROW.format(*HEADING, "CPU s", "x Cholesky", "warned"))
    found = Parallel(options.jobs, return_as="generator")(fits)
    for family, outcome, spent, ratio, row in found:
        print(row, flush=True)
        counts[family][outcome] += 1
        times[family].append(spent)
        ratios.append(ratio)
    print("\n" + "family".ljust(21), *(o.rjust(7) for o in OUTCOMES), SUMMARY)
    for family, count in counts.items():
        cells = (f"{count[outcome]:7}" for outcome in OUTCOMES)
        middle, multiple = np.median(times[family], axis=0)
        most, largest = np.max(times[family], axis=0)
        spent = f"{middle:8.1f} {most:6.1f} {multiple:12.0f} {largest:6.0f}"
        print(family.ljust(21), *cells, spent)
    if np.any(np.isfinite(ratios)):
        print(f"choosing over the best alone, median: {np.nanmedian(ratios):.1f}")


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="*", default=None)
    parser.add_argument("--names", nargs="*", default=None)
    parser.add_argument("--random", type=int, default=6)
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--estimator", choices=ESTIMATORS, default="one")
    parser.add_argument("--n-terms", choices=("auto", "all"), default="auto")
    parser.add_argument("--equations", action="store_true")
    parser.add_argument("--choosing", action="store_true")
    return parser.parse_args()


def one_fit(key, make, draw, options):
    """The family, the outcome, its CPU times, the ratio of choosing, and a row."""
    problem, unit = make(draw), cholesky_seconds()
    start = time.process_time()
    settings = dict(problem.settings)
    if options.n_terms == "all":
        settings["n_terms"] = None
    model, failure = ESTIMATORS[options.estimator](**settings), ""
    with warnings.catch_warnings(record=True, action="always") as caught:
        try:
            model.fit(problem.X, problem.y)
        except ValueError as error:
            failure = str(error)
    seconds = time.process_time() - start
    multiple = 2 * seconds / (unit + cholesky_seconds())
    warned = bool(caught or failure)
    state, equation, right = np.nan, np.nan, False
    if not failure:
        with warnings.catch_warnings(record=True):
            predicted = model.predict(problem.X_test)
        state = problem.state_error(predicted.reshape(problem.y_test.shape))
        equation = problem.equation_error(model.equation_)
        right = problem.has_right_terms(model.equation_)
    outcome = judge(problem, state, equation, right, warned)
    row = ROW.format(
        *key,
        draw,
        outcome,
        f"{state:.1e}",
        f"{equation:.1e}",
        {True: "right", False: "wrong", None: "-"}[right],
        f"{seconds:.1f}",
        f"{multiple:.0f}",
        "yes" if warned else "no",
    )
    ratio = np.nan
    if options.choosing and not failure:
        ratio = seconds / time_alone(problem, model)
        row += f" {ratio:6.1f}"
    if options.equations:
        found = failure or str(model.equation_)
        told = [str(w.message) for w in caught]
        row += f"\n    {found}\n    {problem.terms}\n    {told}"
    return key[0], outcome, (seconds, multiple), ratio, row


def time_alone(problem, model):
    """The CPU time of the hypothesis that was chosen alone; nan if it is refused."""
    kernel, settings = model.equation_kernel_, dict(problem.settings)
    start = time.process_time()
    with warnings.catch_warnings(record=True):
        try:
            alone = OneStepKEqL(**{**settings, "n_terms": None}, equation_kernel=kernel)
            alone.fit(problem.X, problem.y)
        except ValueError:
            return np.nan
    return time.process_time() - start


def judge(problem, state, equation, right, warned):
    """Which of the outcomes a fit has."""
    if not problem.is_determined:
        return "solved" if warned else "silent"
    exact = problem.noise == 0
    small = state < (1e-3 if exact else 2 * problem.noise + 0.01)
    near = np.isnan(equation) or equation < (1e-3 if exact else 0.05)
    if small and near:
        return "partly" if right is False else "solved"
    # Right terms with coefficients as uncertain as the noise makes them are not wrong.
    if right and (near or not exact):
        return "partly"
    return "warned" if warned else "silent"


if __name__ == "__main__":
    main()

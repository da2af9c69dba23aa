"""What maximum likelihood reaches that knows the terms, beside default fits.

The coefficients of the true terms and the initial values are fitted to the observations
by least squares of exactly integrated trajectories, from the true values. A method that
has to find the terms, or the basin, cannot be expected to do better: where a published
figure is below that of this estimator, it is another draw or another measure. Told are
the errors of the states and of the coefficients as in `bench_systems.py`, and for how
long a forecast from the end of the observations follows the truth, all observed states
within a quarter and a half of their standard deviations.

    python tests/benchmarks/bench_limits.py --problems lorenz_hidden --draws 10 --fits
"""

import argparse
import warnings

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares
from system_problems import all_problems

from keql import OneStepKEqL
from keql.datasets import make_lorenz
from keql.kernels import parse_monomial

HEADING = "problem", "draw", "by", "rel. L2", "nrmse", "coeff.", "quarter", "half"
ROW = "{:26} {:>6} {:>10} {:>9} {:>9} {:>9} {:>8} {:>8}"
BEYOND = 8.0  # units of time in which forecasts are compared


def main():
    """Print a row for each draw and estimator, and the medians of each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*", default=["lorenz", "cubic"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--fits", action="store_true", help="default fits as well")
    options = parser.parse_args()
    print(ROW.format(*HEADING))
    for name, make in all_problems().items():
        if not name.startswith(tuple(options.problems)):
            continue
        by = [maximum_likelihood, *([default_fit] if options.fits else [])]
        scores = {estimator: [] for estimator in by}
        for draw in range(options.draws):
            for estimator, rows in scores.items():
                rows.append(score(make(draw), estimator))
                print_row(name, draw, estimator, rows[-1])
        for estimator, rows in scores.items():
            print_row(name, "median", estimator, np.nanmedian(rows, axis=0))


def print_row(name, draw, estimator, numbers):
    """Print the scores of one draw, or their medians."""
    words = estimator.__name__.split("_")[0], *(f"{value:.4f}" for value in numbers)
    print(ROW.format(name, draw, *words), flush=True)


def score(problem, estimator):
    """Errors of states and coefficients, and how long forecasts follow the truth."""
    law = Law(problem.terms or make_lorenz(10).terms)
    t_end = float(problem.X.max())
    t = np.linspace(t_end, t_end + BEYOND, 801)
    true = law.solve(law.true, problem.y_test[0], t)
    on_test, beyond, coefficients = estimator(problem, law, t)
    observed = list(problem.scored)
    spread = np.std(problem.y_test[:, observed], axis=0)
    distance = np.abs(beyond - true)[:, observed] / spread
    times = [follows(distance, limit, t - t_end) for limit in (0.25, 0.5)]
    return *problem.state_errors(on_test), coefficients, *times


def follows(distance, limit, t):
    """The time at which a distance (n, S) from the truth exceeds a limit."""
    is_over = np.any(~(distance <= limit), axis=1)
    return t[np.argmax(is_over)] if is_over.any() else t[-1]


class Law:
    """A polynomial system with given terms: its coefficients are the parameters."""

    def __init__(self, terms):
        states = [name.removesuffix("_t") for name in terms]
        self.rows, self.powers, self.true = [], [], []
        for row, own in enumerate(terms.values()):
            for monomial, value in own.items():
                self.rows.append(row)
                self.powers.append(parse_monomial(monomial, states))
                self.true.append(value)
        self.powers, self.true = np.array(self.powers), np.array(self.true)
        self.incidence = np.equal.outer(np.arange(len(terms)), self.rows).astype(float)

    def solve(self, coefficients, initial, t):
        """The states (n, S) at the times t (n,), from initial values at 0."""

        def rate(_, state):
            values = np.prod(state**self.powers, axis=1)
            return self.incidence @ (coefficients * values)

        times, places = np.unique(t, return_inverse=True)
        options = {"rtol": 1e-9, "atol": 1e-9, "method": "DOP853"}
        found = solve_ivp(rate, (0.0, times[-1]), initial, t_eval=times, **options)
        return found.y.T[places]


def maximum_likelihood(problem, law, t_beyond):
    """States and coefficients by least squares from the true values."""
    times = problem.X[:, 0]
    y = problem.y.reshape(len(times), -1)
    is_known = np.isfinite(y)
    n_terms = len(law.true)

    def residuals(parameters):
        states = law.solve(parameters[:n_terms], parameters[n_terms:], times)
        return (states[:, : y.shape[1]] - y)[is_known]

    start = np.concatenate([law.true, problem.y_test[0]])
    found = least_squares(
        residuals, start, x_scale=np.maximum(np.abs(start), 0.1), xtol=1e-12
    ).x
    t = np.concatenate([problem.X_test[:, 0], t_beyond])
    states = law.solve(found[:n_terms], found[n_terms:], t)
    n_test = len(problem.X_test)
    error = np.linalg.norm(found[:n_terms] - law.true) / np.linalg.norm(law.true)
    error = error if problem.terms else np.nan  # free up to a change of a state
    return states[:n_test], states[n_test:], error


def default_fit(problem, _, t_beyond):
    """States and coefficients of a default fit that chooses the terms."""
    model = OneStepKEqL(**problem.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(problem.X, problem.y)
        beyond = model.forecast(t_beyond[:, None])
    error, _ = problem.equation_errors(model.equation_)
    return model.predict(problem.X_test), beyond, error


if __name__ == "__main__":
    main()

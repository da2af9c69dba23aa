"""What maximum likelihood reaches that knows the terms, beside default fits.

The coefficients of the true terms and the initial values are fitted to the observations
by least squares of exactly integrated trajectories, in at most 100 steps from the true
values: where trajectories are chaotic it ends before the minimum, nearer to the truth.
A method that has to find the terms cannot be expected to do better; where a published
figure is below that of this estimator, it is of other draws or in another measure.

Told are the errors of the states and of the coefficients as in `bench_systems.py`, and
for how long a forecast from the end of the observations follows the truth, all observed
states within a quarter and a half of their standard deviations.

    python tests/benchmarks/bench_limits.py --problems lorenz_hidden --draws 10 --fits
    python tests/benchmarks/bench_limits.py --problems --heat-map 4:0.1 --draws 16
"""

import argparse
import warnings
from functools import partial

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares
from system_problems import all_problems, lorenz_cell

from keql import OneStepKEqL
from keql.datasets import make_lorenz
from keql.kernels import parse_monomial

HEADING = "problem", "draw", "by", "rel. L2", "nrmse", "coeff.", "quarter", "half"
ROW = "{:26} {:>6} {:>10} {:>9} {:>9} {:>9} {:>8} {:>8}"
BEYOND = 8.0  # units of time in which forecasts are compared


def main():
    """Print a row for each draw and estimator, then their means and medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*", default=["lorenz", "cubic"])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--heat-map", nargs="*", default=[], metavar="T:RATIO")
    parser.add_argument("--fits", action="store_true", help="default fits as well")
    options = parser.parse_args()
    begins = tuple(options.problems)
    problems = {k: v for k, v in all_problems().items() if k.startswith(begins)}
    for cell in options.heat_map:
        t_end, ratio = (float(number) for number in cell.split(":"))
        problems[f"lorenz {cell}"] = partial(lorenz_cell, int(t_end), ratio)
    print(ROW.format(*HEADING))
    for name, make in problems.items():
        by = [maximum_likelihood, *([default_fit] if options.fits else [])]
        scores = {estimator: [] for estimator in by}
        for draw in range(options.draws):
            for estimator, rows in scores.items():
                rows.append(score(make(draw), estimator))
                print_row(name, draw, estimator, rows[-1])
        for estimator, rows in scores.items():
            print_row(name, "mean", estimator, np.mean(rows, axis=0))
            print_row(name, "median", estimator, np.median(rows, axis=0))


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
        return self.solve_with_slopes(coefficients, initial, t, False)[0]

    def solve_with_slopes(self, coefficients, initial, t, has_slopes=True):
        """States, and their derivatives (n, S, q) in coefficients and initial values.

        The derivatives are integrated beside the states: differences of trajectories
        that are chaotic have no digits.
        """
        S, q = len(initial), len(coefficients) + len(initial)

        def rate(_, flat):
            state, slopes = flat[:S], flat[S:].reshape(S, -1)
            values = np.prod(state**self.powers, axis=1)
            change = self.incidence @ (coefficients * values)
            if not has_slopes:
                return change
            changes = self.incidence @ (coefficients[:, None] * self._slopes(state))
            of_slopes = changes @ slopes
            of_slopes[:, : len(values)] += self.incidence * values
            return np.concatenate([change, of_slopes.ravel()])

        start = np.asarray(initial, float)
        if has_slopes:
            start = np.concatenate([start, np.eye(S, q, q - S).ravel()])
        times, places = np.unique(t, return_inverse=True)
        options = {"rtol": 1e-9, "atol": 1e-9, "method": "DOP853"}
        found = solve_ivp(rate, (0.0, times[-1]), start, t_eval=times, **options).y.T
        if len(found) < len(times):  # diverged: a step that is to be rejected
            found = np.full((len(times), len(start)), 1e6)
        found = found[places]
        return found[:, :S], found[:, S:].reshape(len(found), S, -1)

    def _slopes(self, state):
        """Derivatives (m, S) of the products in the terms."""
        slopes = np.empty(self.powers.shape)
        for s in range(len(state)):
            lower = self.powers.copy()
            lower[:, s] = np.maximum(lower[:, s] - 1, 0)
            slopes[:, s] = self.powers[:, s] * np.prod(state**lower, axis=1)
        return slopes


def maximum_likelihood(problem, law, t_beyond):
    """States and coefficients by least squares from the true values."""
    times = problem.X[:, 0]
    y = problem.y.reshape(len(times), -1)
    is_known = np.isfinite(y)
    n_terms = len(law.true)

    def both(parameters):
        parts = parameters[:n_terms], parameters[n_terms:]
        states, slopes = law.solve_with_slopes(*parts, times)
        columns = slice(0, y.shape[1])
        return (states[:, columns] - y)[is_known], slopes[:, columns][is_known]

    start = np.concatenate([law.true, problem.y_test[0]])
    scales = np.maximum(np.abs(start), 0.1)
    result = least_squares(
        lambda p: both(p)[0],
        start,
        lambda p: both(p)[1],
        x_scale=scales,
        xtol=1e-10,
        max_nfev=100,
    )
    found = result.x
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

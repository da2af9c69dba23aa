"""Criteria for the choice of a state kernel in the joint problem, compared.

For each problem the joint fit is made with RBF and Matern kernels of several length
scales. Each criterion picks one of them; printed is the relative L2 error of the state
that it leads to, in percent, as a mean over draws, and that of the best kernel.

    python tests/benchmarks/bench_scales.py [--draws 3] [--problems burgers heat]

- likelihood: of the observations alone;
- evidence: of observations and linearised equation;
- density: of each observation given all others and the equation;
- error: of the prediction of each observation from all others and the equation;
- chosen: as `OneStepKEqL` does, with a path and a tie rule.
"""

import argparse
import warnings
from itertools import product

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from keql import OneStepKEqL
from keql._numerics.optimisation import Damping, minimise
from keql._observations.data import left_out_errors
from keql._regression.likelihood import log_marginal_likelihood
from keql.datasets import make_burgers, make_darcy, make_duffing
from keql.kernels import RBF, Constant, Matern, Polynomial
from keql.metrics import filtering_error
from keql.model_selection._fit import Context, JointFamily
from keql.operators import parse_operator

FRACTIONS = (0.4, 0.2, 0.1, 0.05)
CRITERIA = ("likelihood", "evidence", "density", "error", "best")


def burgers(n, noise):
    """Random initial conditions."""
    return lambda seed: make_burgers(n, noise=noise, random_state=seed)


def boundary(seed):
    """Seen on the boundary only."""
    return make_burgers(
        theta=0.5, layout="boundary", collocation_shape=(26, 26), random_state=seed
    )


def duffing(n, t_max):
    """Random initial conditions, a short time."""

    def make(seed):
        initial = tuple(np.random.RandomState(seed).uniform(-1, 1, size=2))
        return make_duffing(
            n, t_max=t_max, initial=initial, n_collocation=300, random_state=seed
        )

    return make


def darcy(n, noise):
    """Four functions."""
    return lambda seed: make_darcy(4, n, noise=noise, random_state=seed)


PROBLEMS = {
    "Burgers, 30 observations inside": burgers(30, 0.0),
    "Burgers, 100": burgers(100, 0.0),
    "Burgers, 30, 5 % noise": burgers(30, 0.05),
    "Burgers, 200, 5 % noise": burgers(200, 0.05),
    "Burgers, boundary only": boundary,
    "Duffing, 32 in 25 units of time": duffing(32, 25.0),
    "Duffing, 64 in 25": duffing(64, 25.0),
    "Darcy, 4 functions, 4 inside": darcy(4, 0.0),
    "Darcy, 4 functions, 8 inside, 5 % noise": darcy(8, 0.05),
}


def equation_kernel(data):
    """The default, or coefficients that depend on the place."""
    if data.function_column is not None:
        return {"equation_kernel": data.kernels["equation_kernel"], "n_inducing": 200}
    return {"equation_kernel": Polynomial(3)} if "x" not in data.variables else {}


def kernels(points, values, order):
    """Kernels on a grid of length scales."""
    extent = np.ptp(points, axis=0)
    offset = Constant(np.mean(values) ** 2, "fixed")
    variance = Constant(np.mean(values**2), "fixed")
    for fractions in product(FRACTIONS, repeat=len(extent)):
        scales = extent * fractions
        yield offset + variance * RBF(scales, "fixed")
        yield offset + variance * Matern(scales, "fixed", nu=order + 2.5)


def judge(data, kernel, noise):
    """What each criterion says of one kernel (small is good), and its error."""
    model = OneStepKEqL(
        **data.problem,
        **equation_kernel(data),
        state_kernel=kernel,
        observation_noise=noise,
        n_terms=None,
        solver="dual",
        random_state=0,
    )
    two_step = model._learn_in_two_steps(data.X, data.y, None)
    functions = two_step.observations.functions
    context = Context(model._settings, lambda *_: False)
    family = JointFamily(two_step, model._hypothesis, context)
    problem, start = family.problem_of(two_step)
    first = 1e-4 * problem.evaluate(start).loss
    result = minimise(problem, start, Damping(first, 1e-4), max_iter=60)
    evaluation = problem.evaluate(result.solution)
    linear = problem.linearise(evaluation)
    errors = np.concatenate(linear.leave_one_out())
    scaled = np.concatenate(
        [
            residuals[: len(block.values)] * precisions[: len(block.values)]
            for residuals, block, precisions in zip(
                evaluation.residuals, problem.blocks, problem.precisions, strict=True
            )
        ]
    )
    variances = errors / scaled
    return {
        "likelihood": -log_marginal_likelihood(kernel, noise, functions),
        "evidence": -linear.log_evidence(),
        "density": np.mean(np.log(variances) + errors**2 / variances),
        "error": np.mean(left_out_errors(linear, functions) ** 2),
        "best": state_error(data, result, problem, two_step),
    }


def state_error(data, result, problem, two_step):
    """Relative error of the states, the mean over functions."""
    states = problem.linearise(problem.evaluate(result.solution)).posterior_states()
    identity = parse_operator("u", two_step.variables)
    if data.function_column is None:
        groups = [(data.X_test, data.y_test)]
    else:
        column = data.function_column
        groups = [
            (np.delete(data.X_test[rows], column, axis=1), data.y_test[rows])
            for rows in (data.X_test[:, column] == m for m in range(len(states)))
        ]
    return np.mean(
        [
            np.linalg.norm(state.evaluate(X, identity) - y) / np.linalg.norm(y)
            for state, (X, y) in zip(states, groups, strict=True)
        ]
    )


def compare(make, seed):
    """The error that each criterion leads to."""
    data = make(seed)
    settings = {**equation_kernel(data), "n_terms": None, "random_state": 0}
    default = OneStepKEqL(**data.problem, **settings)
    default.fit(data.X, data.y)
    chosen = filtering_error(default, data.X_test, data.y_test)
    points = default.coordinates(data.X)
    order = max(operator.order for operator in default.equation_.operators)
    noise = max(default.observation_noise_, 1e-6 * np.std(data.y))
    rows = [judge(data, kernel, noise) for kernel in kernels(points, data.y, order)]
    picked = {name: min(rows, key=lambda row: row[name])["best"] for name in CRITERIA}
    return {**picked, "chosen": chosen}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--problems", nargs="*", default=[""])
    arguments = parser.parse_args()
    columns = ("likelihood", "evidence", "density", "error", "chosen", "best")
    print(f"{'':41}" + "".join(f"{name:>11}" for name in columns))
    for name, make in PROBLEMS.items():
        if not any(part.lower() in name.lower() for part in arguments.problems):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            rows = [compare(make, seed) for seed in range(arguments.draws)]
        means = [100 * np.mean([row[column] for row in rows]) for column in columns]
        print(f"{name:41}" + "".join(f"{mean:11.2f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()

"""Length scales of a state kernel, chosen by what the equation predicts of the data.

The likelihood of the observations alone is a poor guide when they are few: it knows
nothing of the equation, which tells most about the states. The joint problem, solved
with each of several kernels, predicts every observation from all others (leave one out,
in its linearisation) and the kernel whose predictions are best is taken.
"""

from dataclasses import dataclass

import numpy as np

from keql._levenberg_marquardt import minimise
from keql._regression import root_mean_square
from keql.kernels import Constant, Matern

# First damping relative to the loss, steps and tolerance of a fit that is compared.
DAMPING, STEPS, TOL = 1e-4, 40, 1e-3
# The longest length scale tried, and the one tried first, in units of the extent of the
# points; the shortest one is so many times the spacing of the collocation points.
LONGEST, FIRST, RESOLVED = 10.0, 0.4, 2.0
# Factors by which length scales change in turn.
FACTORS = (2.0, 2.0**0.5)
# Predictions as good as this, relative to the size of the observations, are believed:
# then residuals are due to the kernel, and all variances are raised accordingly.
GOOD = 0.1


@dataclass
class Candidate:
    """A joint fit with one kernel, and how well it predicts what was left out."""

    two_step: object
    problem: object
    solution: object
    error: float

    @property
    def states(self):
        """The states of the joint fit."""
        evaluation = self.problem.evaluate(self.solution)
        return self.problem.linearise(evaluation).posterior_states()


def choose_prior(two_step, learn, solve_jointly):
    """The kernel of the states that predicts observations best.

    Compared are the given one and RBF kernels on a path through their length scales.
    Each fit on the path starts from the states of the one before, that is, from the
    two-step solution that these lead to.

    Parameters
    ----------
    two_step : Learned
        The two-step solution with the kernel that the observations alone suggest.
    learn : callable
        Makes the two-step solution for another kernel, from the observations or from
        given states.
    solve_jointly : callable
        Makes the joint problem of a two-step solution and its start.

    Returns
    -------
    best : Candidate
        The joint fit with the best kernel; where the data are predicted well but not
        met, its problem has a dispersion above 1.
    """
    regressions = two_step.observations.regressions
    points = np.concatenate([data.points for data in regressions])
    values = np.concatenate([data.values for data in regressions])
    extent = np.ptp(points, axis=0)
    extent = np.where(extent > 0, extent, 1.0)
    size = root_mean_square(values)
    offset = Constant(np.mean(values) ** 2, "fixed")
    nu = 4.5

    def evaluate(fractions, states):
        scales = Matern(extent * fractions, "fixed", nu=nu)
        kernel = offset + Constant(size**2, "fixed") * scales
        two_step = learn(kernel, states)
        return _evaluate(two_step, *solve_jointly(two_step, states))

    n_points = max(map(len, two_step.setup.collocation_points))
    shortest = min(RESOLVED * n_points ** (-1 / len(extent)), FIRST)
    best = _search(evaluate, len(extent), shortest)
    given = _evaluate(two_step, *solve_jointly(two_step))
    if not best.error < given.error:
        best = given
    best.problem.dispersion = believed_dispersion(
        best.problem, best.solution, regressions
    )
    return best


def _search(evaluate, d, shortest):
    """Descend along single length scales and all of them together."""
    tried = {}

    def visit(logs, states=None):
        key = tuple(np.round(logs, 6))
        if key not in tried:
            tried[key] = evaluate(np.exp(logs), states)
        return tried[key]

    place, states = None, None
    n_halvings = int(np.log2(FIRST / shortest))
    for fraction in FIRST / 2.0 ** np.arange(n_halvings + 1):
        logs = np.full(d, np.log(fraction))
        states = visit(logs, states).states
        if place is None or visit(logs).error < visit(place).error:
            place = logs
    moves = np.vstack([np.eye(d), np.ones((int(d > 1), d))])
    for factor in FACTORS:
        improved = True
        while improved:
            improved, states = False, visit(place).states
            for move in np.vstack([-moves, moves]):
                moved = place + np.log(factor) * move
                within = np.all((moved > np.log(shortest)) & (moved < np.log(LONGEST)))
                if within and visit(moved, states).error < visit(place).error:
                    place, improved = moved, True
                    break
    return visit(place)


def _evaluate(two_step, problem, start):
    first = DAMPING * problem.evaluate(start).loss
    result = minimise(problem, start, damping=first, max_iter=STEPS, tol=TOL)
    regressions = two_step.observations.regressions
    error = prediction_error(problem, result.solution, regressions)
    return Candidate(two_step, problem, result.solution, error)


def prediction_error(problem, solution, regressions):
    """As :func:`leave_one_out_error`, of the problem linearised at a solution."""
    model = problem.linearise(problem.evaluate(solution))
    return leave_one_out_error(model, regressions)


def believed_dispersion(problem, solution, regressions):
    """The factor of all variances that a solution suggests which predicts well.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    solution : Iterate
        Its solution.
    regressions : list of Regression
        The observations.

    Returns
    -------
    dispersion : float
        1 if the data are met, or if they are not predicted well either.
    """
    values = np.concatenate([data.values for data in regressions])
    error = prediction_error(problem, solution, regressions)
    if error >= GOOD * root_mean_square(values):
        return 1.0
    n_residuals = sum(map(len, problem.precisions))
    return max(1.0, 2 * problem.evaluate(solution).loss / n_residuals)


def leave_one_out_error(model, regressions):
    """Root mean square error of predictions of observations from all others.

    Observations on the border of the box around their function's points are not
    counted, unless there are hardly others: what lies there is extrapolated.

    Parameters
    ----------
    model : DualModel or PrimalModel
        Linearised joint problem.
    regressions : list of Regression
        The observations.

    Returns
    -------
    error : float
        In the units of the values, weighted as they are.
    """
    inner, border = [], []
    for data, errors in zip(regressions, model.leave_one_out(), strict=True):
        x = data.points
        inside = np.all((x > x.min(axis=0)) & (x < x.max(axis=0)), axis=1)
        scaled = errors * np.sqrt(data.weights)
        inner.append(scaled[inside])
        border.append(scaled[~inside])
    inner, border = np.concatenate(inner), np.concatenate(border)
    counted = inner if len(inner) >= 5 else np.concatenate([inner, border])
    return root_mean_square(counted)

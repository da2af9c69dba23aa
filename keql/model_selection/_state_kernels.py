"""A state kernel, chosen by what the equation predicts of the data.

The likelihood of the observations alone is a poor guide when they are few: it knows
nothing of the equation, which tells most about the states. The joint problem, solved
with each of several kernels, predicts every observation from all others (leave one out,
in its linearisation) and the kernel whose predictions are best is taken.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from keql._numerics.gauss_newton import Damping, minimise
from keql._numerics.scaling import extent_of, rms, size_or_one
from keql._observations.data import size_of
from keql._observations.left_out import left_out_errors
from keql.kernels import RBF, Constant, Matern

# First damping relative to the loss, steps and tolerance of a fit that is compared.
DAMPING, STEPS, TOL = 1e-4, 40, 1e-3
# The longest length scale tried, and the one tried first, in units of the extent of the
# points; the shortest one is so many times the spacing of the collocation points.
LONGEST, FIRST, RESOLVED = 10.0, 0.4, 2.0
# Factors by which length scales change in turn.
FACTORS = (2.0, 2.0**0.5)
# Degree of a Matern kernel above the order of the operators: it has one continuous
# derivative more, in the mean square, than the equation needs.
ROUGHNESS = 2.5
# Predictions that are worse by so many standard errors pass for as good as the best; a
# difference that is due to one observation is of one standard error.
ALIKE = 0.25
# Predictions as good as this, relative to the size of the observations, are believed:
# then residuals are due to the kernel, and all variances are raised accordingly.
GOOD = 0.1


class WarmStart(NamedTuple):
    """The joint problem with the kernel chosen, near its solution.

    `error` is that of its predictions.
    """

    two_step: object
    problem: object
    solution: object
    error: float


@dataclass
class KernelCandidate:
    """A joint fit with one kernel: its states, and how well they predict and fit."""

    kernel: object
    iterate: object
    errors: np.ndarray
    loss: float

    @property
    def values(self):
        """Values of the states, as of any other kernel."""
        return self.iterate.values

    @property
    def error(self):
        """Root mean square error of the predictions of what was left out."""
        return rms(self.errors)


def compare_kernels(two_step, learn, solve_jointly, values=None):
    """Kernels of the states, those that predict observations best first.

    Compared are, on paths through their length scales, RBF kernels, which suit exact
    data, and rougher Matern kernels, which promise less: they suit noisy data, and
    states with rough places. Each fit on a path starts from the states of the one
    before. No length scale is so short that collocation points would not resolve it:
    between them the equation would not hold.

    Parameters
    ----------
    two_step : LearnedModel
        The two-step solution with the kernel that the observations alone suggest.
    learn : callable
        Makes the two-step solution for another kernel, from the observations or from
        given values of states.
    solve_jointly : callable
        Makes the joint problem of a two-step solution and its start, which is near
        given values of states if there are any.
    values : list of ndarray, default=None
        Values of states to start from, as in an iterate; None: those of two steps with
        the first kernel tried.

    Returns
    -------
    candidates : list of KernelCandidate
        The one to be taken, then the others by the errors of their predictions.
    """
    functions = two_step.observations.functions
    points = np.concatenate([data.points for data in functions])
    observed = np.concatenate([data.values for data in functions])
    extent = extent_of(points)
    offset, variance = (
        Constant(square, "fixed")
        for square in (np.mean(observed) ** 2, size_or_one(observed) ** 2)
    )
    order = max(operator.order for operator in two_step.setup.operators)

    def evaluate(kernel, values):
        learned = learn(kernel, values)
        problem, start = solve_jointly(learned, values)
        return _evaluate(kernel, problem, start, functions)

    def smooth(fractions, values):
        kernel = offset + variance * RBF(extent * fractions, "fixed")
        return evaluate(kernel, values)

    def rough(fractions, values):
        matern = Matern(extent * fractions, "fixed", nu=order + ROUGHNESS)
        return evaluate(offset + variance * matern, values)

    n_points = max(map(len, two_step.setup.collocation_points))
    shortest = min(RESOLVED * n_points ** (-1 / len(extent)), FIRST)
    n_steps = int(np.log(FIRST / shortest) / np.log(FACTORS[-1]))
    path = np.outer(FIRST / FACTORS[-1] ** np.arange(n_steps + 1), np.ones(len(extent)))
    tried = _search(smooth, path, shortest, values)
    place, start = min(tried.items(), key=lambda item: item[1].error)
    rougher = _search(rough, np.atleast_2d(place), shortest, start.values)
    candidates = [*tried.values(), *rougher.values()]
    best = _settle(candidates)
    others = [each for each in candidates if each is not best]
    return [best, *sorted(others, key=lambda candidate: candidate.error)]


def warm_start(candidate, learn, solve_jointly):
    """The joint problem with a kernel that was compared, near its solution.

    Parameters
    ----------
    candidate : KernelCandidate
        The kernel.
    learn, solve_jointly
        As for :func:`compare_kernels`.

    Returns
    -------
    prior : WarmStart
        Where the data are predicted well but not met, with a dispersion above 1.
    """
    two_step = learn(candidate.kernel, candidate.values)
    problem, solution = solve_jointly(two_step, candidate.values)
    there = replace(candidate.iterate, weights=solution.weights)
    solution = min(solution, there, key=lambda each: problem.evaluate(each).loss)
    functions = two_step.observations.functions
    dispersion = residual_dispersion(problem, solution, functions)
    problem = problem.with_dispersion(dispersion)
    return WarmStart(two_step, problem, solution, candidate.error)


def _search(evaluate, path, shortest, values=None):
    """Follow a path of length scales; from its best place, descend.

    Parameters
    ----------
    evaluate : callable
        Of length scales and values of the states to start from: a candidate.
    path : ndarray of shape (n, d)
        Length scales, in units of the extent of the points.
    shortest : float
        No length scale is shorter.
    values : list, default=None
        To start from.

    Returns
    -------
    tried : dict
        From length scales, as tuples, to candidates.
    """
    tried = {}

    def visit(place, values=None):
        key = tuple(np.round(place, 6))
        if key not in tried:
            tried[key] = evaluate(np.asarray(place), values)
        return tried[key]

    for place in path:
        values = visit(place, values).values
    place = min(path, key=lambda place: visit(place).error)
    d = len(place)
    moves = np.vstack([np.eye(d), np.ones((int(d > 1), d))])
    for factor in FACTORS:
        improved = True
        while improved:
            improved, values = False, visit(place).values
            for move in np.vstack([-moves, moves]):
                moved = place * factor**move
                within = np.all((moved > shortest) & (moved < LONGEST))
                if within and visit(moved, values).error < visit(place).error:
                    place, improved = moved, True
                    break
    return tried


def _evaluate(kernel, problem, start, functions):
    control = Damping(DAMPING * problem.evaluate(start).loss, TOL)
    result = minimise(problem, start, control, max_iter=STEPS)
    model = problem.linearise(problem.evaluate(result.solution))
    errors = left_out_errors(model, functions)
    return KernelCandidate(kernel, result.solution, errors, result.loss)


def _settle(candidates):
    """Of those that predict as well as the best, the one of the lowest loss.

    Squared errors are compared observation by observation: candidates are as good as
    the best if they are worse, on average, by a small part of the standard error of
    that average. Smooth kernels predict noisy data as well as others and are too sure
    of themselves; the loss says which kernel the data bend least.
    """
    best = min(candidates, key=lambda candidate: candidate.error)

    def as_good(candidate):
        worse = candidate.errors**2 - best.errors**2
        return np.mean(worse) <= ALIKE * np.std(worse) / np.sqrt(len(worse))

    return min(filter(as_good, candidates), key=lambda candidate: candidate.loss)


def prediction_error(problem, solution, functions):
    """Root mean square of :func:`left_out_errors` of the problem linearised there."""
    model = problem.linearise(problem.evaluate(solution))
    return rms(left_out_errors(model, functions))


def residual_dispersion(problem, solution, functions):
    """The factor of all variances that a solution suggests which predicts well.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    solution : Iterate
        Its solution.
    functions : list of FunctionData
        The observations.

    Returns
    -------
    dispersion : float
        1 if the data are met, or if they are not predicted well either.
    """
    error = prediction_error(problem, solution, functions)
    if error >= GOOD * size_of(functions):
        return 1.0
    n_residuals = sum(map(len, problem.precisions))
    return max(1.0, 2 * problem.evaluate(solution).loss / n_residuals)

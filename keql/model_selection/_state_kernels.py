"""A state kernel, chosen by what the equation predicts of the data.

The likelihood of the observations alone is a poor guide when they are few: it knows
nothing of the equation, which tells most about the states. The joint problem, solved
with each of several kernels, predicts every observation from all others (leave one out,
in its linearisation) and the kernel whose predictions are best is taken.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from keql._joint.assembly import joint_weights
from keql._joint.cluster import minimise_joint
from keql._numerics.linalg import extent_of, rms, size_or_one
from keql._numerics.optimisation import Damping
from keql._observations.data import PredictionScale, left_out_errors
from keql._regression.likelihood import maximise_likelihood
from keql.kernels import RBF, Constant, Matern, SystemKernel, as_kernel


@dataclass(frozen=True)
class KernelComparison:
    """Which kernels are compared, and how closely each joint problem is solved.

    first, longest : float. The length scale tried first and the longest one, in units
        of the extent of the points in a coordinate.
    resolved : float. The shortest length scale, in units of the spacing of collocation
        points: between them the equation would not hold with a shorter one.
    factors : tuple of float. By which length scales change in turn.
    roughness : float. Degree of a Matern kernel above the order of the operators: it
        has one continuous derivative more, in the mean square, than the equation needs.
    damping : float. The first damping, relative to the loss.
    max_iter, tol : int, float. Of the least-squares loop.
    """

    first: float = 0.4
    longest: float = 10.0
    resolved: float = 2.0
    factors: tuple = (2.0, 2.0**0.5)
    roughness: float = 2.5
    damping: float = 1e-4
    max_iter: int = 40
    tol: float = 1e-3


class WarmStart(NamedTuple):
    """The joint problem with a kernel that was compared, near its solution.

    `error` is the root mean square error of its predictions.
    """

    two_step: object
    problem: object
    solution: object
    error: float


@dataclass
class KernelCandidate:
    """A joint fit with one kernel: its states, errors of prediction, and loss.

    `log_density` is the mean log density of observations that are left out. `place` has
    the length scales, in units of the extent of the points, and `is_smooth` says
    whether it is an RBF kernel; of one that was not looked for among others, None.
    `converged` says whether the steps of the joint fit did; None: it was not asked.
    """

    kernel: object
    iterate: object
    errors: np.ndarray
    loss: float
    log_density: float = np.nan
    place: np.ndarray | None = None
    is_smooth: bool | None = None
    converged: bool | None = None

    @property
    def values(self):
        """Values of the states, whatever kernel they are represented with."""
        return self.iterate.values

    @property
    def error(self):
        """Root mean square error of the predictions."""
        return rms(self.errors)


def compare_kernels(family, values=None, comparison=None, near=None, from_there=False):
    """Kernels of the states, the one to be taken first, then those of rising error.

    Compared are RBF kernels, which suit exact data, and rougher Matern kernels, which
    promise less: they suit noisy data, and states with rough places. Their length
    scales are changed step by step, each fit starting from the states of the one
    before.

    family : JointFamily. The joint problems.
    values : list of ndarray, default=None. Values of states to start from, as in an
        iterate; None: the two-step states with the first kernel.
    near : list of KernelCandidate, default=None. Those compared with another level of
        noise, or another equation: the search goes on from the best of either kind.
        None: it begins with long length scales, which fall.
    from_there : bool, default=False. Whether with its states, too.
    comparison : KernelComparison, default=None. None: the default one.
    """
    comparison = comparison or KernelComparison()
    observations = family.observations
    points = np.concatenate([data.points for data in observations.functions])
    extent, setup = extent_of(points), family.two_step.setup
    fit = partial(_fit_at, family, comparison, extent)
    n_points = max(map(len, setup.collocation_points))
    lengths, limits = _falling_lengths(n_points, len(extent), comparison)
    if near:
        best = _best_of(near, is_smooth=True)
        lengths, values = best.place[None], best.values if from_there else values
    given = limits, comparison.factors
    tried = search_lengths(partial(fit, True), lengths, *given, values)
    start = min(tried.values(), key=lambda candidate: candidate.error)
    lengths = np.round(start.place, 6)[None]  # as in the keys of those tried
    if near:
        best = _best_of(near, is_smooth=False)
        lengths, start = best.place[None], best if from_there else start
    rougher = search_lengths(partial(fit, False), lengths, *given, start.values)
    candidates = [*tried.values(), *rougher.values()]
    best = most_parsimonious(candidates, family.context.criteria)
    others = [candidate for candidate in candidates if candidate is not best]
    return [best, *sorted(others, key=lambda candidate: candidate.error)]


def _best_of(candidates, is_smooth):
    """The candidate with the best predictions, of kernels of one kind."""
    alike = [each for each in candidates if each.is_smooth is is_smooth]
    return min(alike, key=lambda candidate: candidate.error)


def with_given_kernels(kernel, family):
    """A kernel of the states in which those that are given are as they were fitted."""
    if not isinstance(kernel, SystemKernel):
        return kernel
    fitted = family.two_step.state_kernel
    free = family.hypothesis.open_states(kernel.kernels)
    own = {
        name: k if name in free else fitted.of_state(name)
        for name, k in kernel.kernels.items()
    }
    return SystemKernel(own)


def _with_offset(family, kernel):
    """The kernel of each state: an offset and a kernel, of the size of its values.

    Those that are given stay.
    """
    observations, kernels = family.observations, {}
    for state in observations.states:
        samples = observations.of_state(state)
        values = np.concatenate([np.empty(0), *(data.values for data in samples)])
        variance = Constant(size_or_one(values) ** 2, "fixed")
        offset = np.mean(values) ** 2 if len(values) else 0.0
        kernels[state] = variance * kernel
        if offset:
            kernels[state] = Constant(offset, "fixed") + kernels[state]
    if len(kernels) == 1:
        return kernels[state]
    return with_given_kernels(SystemKernel(kernels), family)


def _falling_lengths(n_points, d, comparison):
    """Equal length scales (n, d) to go through first, and the shortest and longest."""
    shortest = comparison.resolved * n_points ** (-1 / d)
    shortest, ratio = min(shortest, comparison.first), comparison.factors[-1]
    n_steps = int(np.log(comparison.first / shortest) / np.log(ratio))
    falling = comparison.first / ratio ** np.arange(n_steps + 1)
    return np.outer(falling, np.ones(d)), (shortest, comparison.longest)


def likeliest_kernel(samples, shape, first, extent, periods, variables):
    """An offset and a radial kernel of maximum likelihood, and the noise beside it.

    samples : list of Sample. Values of one state, in its units.
    shape : callable. Of length scales, their bounds and a period: a radial kernel.
    first : float. The length scales to begin with, in units of the extent.
    extent : ndarray of shape (d,). Of the points in each coordinate, in its unit.
    periods : ndarray of shape (d,) or None. Of the coordinates.
    variables : tuple of str. Names of the coordinates.

    Returns kernel : Kernel. Bound to the variables.
    Returns noise : float. Standard deviation, in the unit of the values.
    """
    values = np.concatenate([data.values for data in samples])
    square, offset = size_or_one(values) ** 2, np.mean(values) ** 2
    bounds = np.outer(extent, (1e-3, 10.0))
    free = Constant(square, (1e-4 * square, 1e4 * square))
    kernel = free * shape(first * extent, bounds, period=periods)
    if offset:
        kernel = Constant(offset, "fixed") + kernel
    return maximise_likelihood(as_kernel(kernel).bind(variables), None, samples)


def warm_start(candidate, family):
    """The joint problem with a kernel that was compared, near its solution.

    Where the data are predicted well but not met it has a dispersion above 1. The
    states of the candidate, with the weights that two steps find for these, are a
    better start than the solution of the linearised problem where that is far away.
    """
    two_step, problem, solution = family.at(candidate.kernel, candidate.values)
    weights = solution.weights
    if family.unknown_part is None:
        weights = joint_weights(two_step.equations)
    there = replace(candidate.iterate, weights=weights)
    solution = min(solution, there, key=lambda each: problem.evaluate(each).loss)
    observations, criteria = family.observations, family.context.criteria
    error = _prediction_error(problem, solution, observations)
    dispersion = residual_dispersion(problem, solution, error, observations, criteria)
    problem = problem.with_dispersion(dispersion)
    return WarmStart(two_step, problem, solution, candidate.error)


def search_lengths(evaluate, lengths, limits, factors, values=None):
    """Go through length scales, then descend from the best of them.

    evaluate : callable. Of length scales and values of the states to start from: a
        candidate.
    lengths : ndarray of shape (n, d). Length scales in units of the extent of the
        points, tried in this order.
    limits : (float, float). Between which they change.
    factors : tuple of float. By which each of them, or all, are changed while that
        lowers the error.
    values : list, default=None. Values of the states to start from.

    Returns tried : dict. From length scales, as tuples, to candidates.
    """
    tried = {}

    def visit(place, values=None):
        key = tuple(np.round(place, 6))
        if key not in tried:
            tried[key] = evaluate(np.asarray(place), values)
        return tried[key]

    for place in lengths:
        values = visit(place, values).values
    place = min(lengths, key=lambda place: visit(place).error)
    d, (shortest, longest) = len(place), limits
    moves = np.vstack([np.eye(d), np.ones((int(d > 1), d))])
    for factor in factors:
        improved = True
        while improved:
            improved, values = False, visit(place).values
            for move in np.vstack([-moves, moves]):
                moved = place * factor**move
                within = np.all((moved > shortest) & (moved < longest))
                if within and visit(moved, values).error < visit(place).error:
                    place, improved = moved, True
                    break
    return tried


def most_parsimonious(candidates, criteria):
    """Of those that predict as well as the best, the one of the lowest loss.

    Squared errors are compared observation by observation: candidates are as good as
    the best if they are worse, on average, by a small part of the standard error of
    that average; a difference that is due to one observation is of one standard error.
    Smooth kernels predict noisy data as well as others and are too sure of themselves;
    the loss says which kernel the data bend least.
    """
    best = min(candidates, key=lambda candidate: candidate.error)

    def is_as_good(candidate):
        excess = candidate.errors**2 - best.errors**2
        standard_error = np.std(excess) / np.sqrt(len(excess))
        return np.mean(excess) <= criteria.ties * standard_error

    return min(filter(is_as_good, candidates), key=lambda candidate: candidate.loss)


def _fit_at(family, comparison, extent, is_smooth, fractions, values):
    """The candidate of a kernel of one kind, its length scales parts of the extent."""
    observations, operators = family.observations, family.two_step.setup.operators
    periods, lengths = observations.periods, extent * fractions
    if is_smooth:
        kernel = RBF(lengths, "fixed", period=periods)
    else:
        degree = comparison.roughness + max(operator.order for operator in operators)
        kernel = Matern(lengths, "fixed", nu=degree, period=periods)
    kernel = _with_offset(family, kernel)
    found = _fit_kernel(family, kernel, values, comparison)
    return replace(found, place=fractions, is_smooth=is_smooth)


def _fit_kernel(family, kernel, values, comparison):
    """A candidate: the joint problem with a kernel, solved roughly.

    From the given values of states, or from those that the search knows to be near.
    """
    near = family.context.near
    _, problem, start = family.at(kernel, values if near is None else near)
    result = minimise_roughly(problem, start, comparison)
    model = problem.linearise(problem.evaluate(result.solution))
    errors = left_out_errors(model, family.observations)
    return KernelCandidate(kernel, result.solution, errors, result.loss)


def minimise_roughly(problem, start, settings):
    """The Result of a joint problem with one of many kernels.

    The `settings` have its `damping`, relative to the loss, `tol` and `max_iter`. An
    interruption goes on to whoever called: one kernel of many is no fit to keep.
    """
    damping = settings.damping * problem.evaluate(start).loss
    control = Damping(damping, settings.tol)
    result = minimise_joint(problem, start, control, max_iter=settings.max_iter)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def _prediction_error(problem, solution, observations):
    model = problem.linearise(problem.evaluate(solution))
    return rms(left_out_errors(model, observations))


def residual_dispersion(problem, solution, error, observations, criteria):
    """The factor of all variances that residuals suggest where predictions are good.

    1 if the data are met, or if the error of predictions is not small either: then
    residuals are due to the kernel, and variances do not tell.
    """
    if error >= criteria.predicts_well * PredictionScale(observations).size:
        return 1.0
    n_residuals = sum(map(len, problem.precisions))
    return max(1.0, 2 * problem.evaluate(solution).loss / n_residuals)

"""Other starts of a joint problem: states drawn given the observations, on few points.

The two-step state is the mean of a Gaussian process given the observations. Where these
are sparse it is much flatter than any state can be, and a minimisation from there may
end in a poor minimum. Draws from the same process agree with the observations as well
and are as rough as states are; with fewer collocation points one can try many of them.
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._joint.dual import DualModel
from keql._joint.problem import Tangent
from keql._numerics.linalg import cholesky, solve_cholesky, solve_lower


class ConditionalSamples:
    """Draws of the state of one function given its observations, without the equation.

    A draw of the prior is corrected by what interpolates its errors (Matheron's rule).
    The variance of the prior is that for which the observations are most likely, so
    that draws are of their size whatever the units. `precisions` (N + K,) are those of
    the residuals of the function, `penalty` is lambda.

    References
    ----------
    Wilson et al., "Efficiently sampling functions from Gaussian process posteriors",
    ICML 2020, section 3.1.
    """

    def __init__(self, block, precisions, penalty):
        n, self.block, self.draw_prior = len(block.values), block, block.prior()
        self.factor = cholesky(block.gram_values + np.diag(penalty / precisions[:n]))
        self.scale = np.linalg.norm(solve_lower(self.factor, block.values)) / n**0.5

    def __call__(self, rng):
        """Coefficients of one draw."""
        c = self.scale * self.draw_prior(rng)
        errors = self.block.values - self.block.evaluate(c)[: len(self.block.values)]
        return c + self.block.expand_values(solve_cholesky(self.factor, errors))


class SubsampledProblem:
    """A joint problem with the equation imposed at few of the collocation points.

    Each function of `whole`, a JointProblem, keeps at most `size` of them for each
    equation. They get more weight, so that losses and misfits compare with those of the
    whole.
    """

    def __init__(self, whole, size):
        self.whole = whole
        self.points = [spread_over_equations(block, size) for block in whole.blocks]
        shared, blocks, precisions = {}, [], []
        parts = zip(whole.blocks, self.points, whole.precisions, strict=True)
        for block, points, precision in parts:
            n, rows = len(block.values), block.rows.at(points, len(block.points))
            blocks.append(block.restricted(points, shared))
            before, after = np.diff(block.rows.starts), np.diff(blocks[-1].rows.starts)
            weight = (before / np.maximum(after, 1))[blocks[-1].rows.equation]
            imposed = precision[n:][rows] * weight
            precisions.append(np.concatenate([precision[:n], imposed]))
        self.problem = replace(whole, blocks=blocks, precisions=precisions)

    def narrow(self, iterate):
        """An iterate of the whole as one of the subsampled problem.

        States that are made of representers of other points as well are those of the
        problem that is linearised at their values.
        """
        parts = zip(self.whole.blocks, iterate.coefficients, self.points, strict=True)
        coefficients = [block.narrow(c, points) for block, c, points in parts]
        if all(c is not None for c in coefficients):
            return self.problem.iterate(coefficients, iterate.weights)
        values = []
        for block, z, points in zip(
            self.whole.blocks, iterate.values, self.points, strict=True
        ):
            n = len(block.values)
            imposed = z[n:].reshape(len(block.operators), -1)[:, points]
            values.append(np.concatenate([z[:n], imposed.ravel()]))
        return linearised_start(self.problem, values, iterate.weights)

    def widen(self, iterate):
        """An iterate of the subsampled problem as one of the whole."""
        parts = zip(self.whole.blocks, iterate.coefficients, self.points, strict=True)
        coefficients = [block.widen(c, points) for block, c, points in parts]
        return self.whole.iterate(coefficients, iterate.weights)

    def widen_result(self, result, basis=None):
        """The whole problem, with another basis of P, and the Result as one of it."""
        whole = self.whole if basis is None else self.whole.with_basis(basis)
        coefficients = self.widen(result.solution).coefficients
        solution = whole.iterate(coefficients, result.solution.weights)
        loss = whole.evaluate(solution).loss
        return whole, replace(result, solution=solution, loss=loss)


@dataclass(frozen=True)
class LargeProblems:
    """Which joint problems are solved with fewer collocation points first, and how.

    most_rows : int. Number of data of a function, observations and equations, above
        which a step in the dual takes a second and 0.5 GB: the factor of a matrix of
        that size takes most of it.
    n_points : int. Collocation points that each equation has while terms are taken out,
        which takes some hundred steps; with all points ten are enough then. A rough
        state kernel needs many to tell terms: Burgers' equation with a Matern kernel of
        degree 2.5 and 100 observations kept eight terms with 1,000 points, two with
        1,500.
    first : tuple of int. Points that come before these, in rising order, as the state
        of two steps is far from the solution. With the 2,000 of 5,000 points it took
        105 steps after 500 points, 85 after 1,000 and 31 after both.
    damping : float. The first damping of what is solved next, relative to the loss at
        its start: the states are near. 1e-4 took five times as many steps.
    """

    most_rows: int = 3000
    n_points: int = 2000
    first: tuple = (500, 1000)
    damping: float = 1e-6

    def is_large(self, problem):
        """Whether steps take long, in the dual, and there are fewer points to take."""
        most = max(len(own) for own in problem.precisions)
        can_take_fewer = most_points(problem) > self.n_points
        is_dual = problem.linear_model is DualModel
        return bool(is_dual and most > self.most_rows and can_take_fewer)


def most_points(problem):
    """The largest number of collocation points that an equation of a function has."""
    numbers = [np.diff(block.rows.starts) for block in problem.blocks]
    return int(np.max(np.concatenate(numbers), initial=0))


def spread_over_equations(block, size):
    """Positions of at most `size` points of each equation of a block, in order."""
    chosen = []
    for rows, _ in block.rows.slices():
        everywhere = np.arange(len(block.points))
        points = everywhere if block.rows.points is None else block.rows.points[rows]
        chosen.append(points[evenly_spread(block.points[points], size)])
    return np.unique(np.concatenate(chosen))


def evenly_spread(points, size):
    """At most `size` rows of the points, evenly spread, in order.

    By the first coordinate, then the next: evenly spaced rows are then evenly spaced in
    time, and shift from one time of a grid to the next.
    """
    order = np.lexsort(points.T[::-1])
    picked = np.linspace(0, len(points) - 1, min(len(points), size))
    return np.sort(order[picked.round().astype(int)])


def start_at(problem, expansions, weights):
    """An iterate from sums of representers and weights (p,) of the equation.

    `expansions` has the (functionals, coefficients) of the state of each function. None
    if the problem cannot represent them.
    """
    pairs = zip(problem.blocks, expansions, strict=True)
    coefficients = [block.represent(*expansion) for block, expansion in pairs]
    if any(c is None for c in coefficients):
        return None
    return problem.iterate(coefficients, weights)


def linearised_start(problem, values, weights):
    """An iterate from any states: the solution of the problem linearised there.

    `values` has, for each function, the observed functionals and operators (N + Q' K,)
    of a state of whatever kernel; `weights` (p,) are those of the equation.
    """
    origin = problem.zero(weights)
    there = problem.evaluate(replace(origin, values=values))
    # The linearisation r(v) + T (. - v) as one around zero.
    parts = problem.blocks, values, there.features, there.residuals
    residuals = [
        r - Tangent(problem.slopes(S, weights), block.rows).apply(z)
        for block, z, S, r in zip(*parts, strict=True)
    ]
    linear = replace(there, iterate=origin, residuals=residuals)
    return problem.linearise(linear).step(0.0)[0]

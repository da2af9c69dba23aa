"""Other starts of a joint problem: states drawn given the observations, on few points.

The two-step state is the mean of a Gaussian process given the observations. Where these
are sparse it is much flatter than any state can be, and a minimisation from there may
end in a poor minimum. Draws from the same process agree with the observations as well
and are as rough as states are; with fewer collocation points one can try many of them.
"""

from dataclasses import replace

import numpy as np

from keql._numerics.linalg import cholesky, solve_cholesky, solve_lower


class ConditionalSamples:
    """Draws of the state of one function given its observations, without the equation.

    A draw of the prior is corrected by what interpolates its errors (Matheron's rule).
    The variance of the prior is that for which the observations are most likely, so
    that draws are of their size whatever the units.

    Parameters
    ----------
    block : Block
        The function.
    precisions : ndarray of shape (N + K,)
        Inverse variances of its residuals.
    penalty : float
        lambda.

    References
    ----------
    Wilson et al., "Efficiently sampling functions from Gaussian process posteriors",
    ICML 2020, section 3.1.
    """

    def __init__(self, block, precisions, penalty):
        n = len(block.values)
        covariance = block.gram_values + np.diag(penalty / precisions[:n])
        self.block = block
        self.factor = cholesky(covariance)
        self.scale = np.linalg.norm(solve_lower(self.factor, block.values)) / n**0.5
        self.draw_prior = block.prior()

    def __call__(self, rng):
        """Coefficients of one draw."""
        c = self.scale * self.draw_prior(rng)
        missing = self.block.values - self.block.evaluate(c)[: len(self.block.values)]
        return c + self.block.expand_values(solve_cholesky(self.factor, missing))


class SubsampledProblem:
    """A joint problem with the equation imposed at few of the collocation points.

    Parameters
    ----------
    whole : JointProblem
        The problem.
    size : int
        How many collocation points each function keeps at most. They get more weight,
        so that losses and misfits compare with those of the whole.
    """

    def __init__(self, whole, size):
        self.whole = whole
        self.rows = [evenly_spread(block.points, size) for block in whole.blocks]
        shared, blocks, precisions = {}, [], []
        for block, rows, precision in zip(
            whole.blocks, self.rows, whole.precisions, strict=True
        ):
            n, n_points = len(block.values), len(block.points)
            blocks.append(block.restricted(rows, shared))
            imposed = precision[n:][rows] * (n_points / len(rows))
            precisions.append(np.concatenate([precision[:n], imposed]))
        self.problem = whole.with_blocks(blocks, precisions)

    def widen(self, iterate):
        """An iterate of the thinned problem as one of the whole."""
        parts = zip(self.whole.blocks, iterate.coefficients, self.rows, strict=True)
        coefficients = [block.widen(c, rows) for block, c, rows in parts]
        return self.whole.iterate(coefficients, iterate.weights)


def evenly_spread(points, size):
    """Rows of `size` of the points, evenly spread; all rows if there are fewer.

    Parameters
    ----------
    points : ndarray of shape (K, d)
        The points.
    size : int
        How many rows are wanted.

    Returns
    -------
    rows : ndarray of shape (min(K, size),)
        In the order of the points.
    """
    # By the first coordinate, then the next: evenly spaced rows are then evenly spaced
    # in time, and shift from one time of a grid to the next.
    order = np.lexsort(points.T[::-1])
    picked = np.linspace(0, len(points) - 1, min(len(points), size))
    return np.sort(order[picked.round().astype(int)])


def start_at(problem, expansions, weights):
    """An iterate from sums of representers.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    expansions : list of (functionals, coefficients)
        The state of each function.
    weights : ndarray of shape (p,)
        Of the equation.

    Returns
    -------
    iterate : Iterate or None
        None if the problem cannot represent them.
    """
    coefficients = [
        block.represent(*expansion)
        for block, expansion in zip(problem.blocks, expansions, strict=True)
    ]
    if any(c is None for c in coefficients):
        return None
    return problem.iterate(coefficients, weights)


def linearised_start(problem, values, weights):
    """An iterate from any states: the solution of the problem linearised there.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    values : list of ndarray of shape (N_m + Q' K_m,)
        Point values and operators of states of whatever kernel.
    weights : ndarray of shape (p,)
        Of the equation.

    Returns
    -------
    iterate : Iterate
        The iterate.
    """
    blocks = problem.blocks
    origin = problem.iterate([np.zeros(b.n_unknowns) for b in blocks], weights)
    there = problem.evaluate(replace(origin, values=values))
    # The linearisation r(v) + T (. - v) as one around zero.
    residuals = [
        r - block.apply_functionals(z, problem.slopes(S, weights)[0])
        for block, z, S, r in zip(
            blocks, values, there.features, there.residuals, strict=True
        )
    ]
    linear = replace(there, iterate=origin, residuals=residuals)
    return problem.linearise(linear).step(0.0)[0]

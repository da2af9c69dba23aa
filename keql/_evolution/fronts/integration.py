"""An evolution equation on a grid whose points move, linearised at a state.

The values of a step meet the equation at its Radau points, as on other grids. Ordered
by points, with the three times of each together, they are coupled to those of a few
points beside them only: the matrix of a step has a band, and its factors take a time
that is linear in the number of points. Effects of all boundary values are found from
observations backwards, the last step first, as there are fewer observations than
boundary values: each is a functional of the state, which a step hands on to its start.

Griewank and Walther, Evaluating Derivatives, 2008, chapter 3.
"""

import numpy as np
from scipy.linalg import lapack

from keql._evolution.integration import (
    as_tuple,
    effects_on_rates,
    linear_response,
    linear_solution,
    linearised_at,
    n_weights,
    open_ends,
)


class BandedSteps:
    """An equation linearised at a state, whose steps are solved for one by one.

    grid : MovingGrid. Where.
    equation : LearnedEquation. With p weights.
    state : ndarray of shape (n_steps * 4 * n_points,). Values on the grid.
    forcing : float or ndarray of shape (1 + I, n_steps * 3 * n_points). Its right-hand
        side at the Radau points, and the inputs of its unknown part.

    right : ndarray of shape (n_steps, 3, n_points, 1 + p). That of the linearised
        equation for (1, weights).
    inertia : ndarray of shape (n_steps, 3, n_points). Its slope in the derivative in
        time.
    in_space : ndarray of shape (1 + order, n_steps, 3, n_points). Those in derivatives
        in space, and in values, of points that move.
    is_open : ndarray of bool, of shape (n_steps, 3 * len(grid.ends)). Which values at
        both ends the equation leaves open.
    """

    def __init__(self, grid, equation, state, forcing=0.0):
        self.grid, axis, along = grid, grid.axis, grid.space[0]
        parts = [
            (q, orders[axis], orders[along], factor)
            for q, operator in enumerate(equation.operators)
            for _, orders, factor in operator.parts
        ]
        highest = max(1, *(order for _, _, order, _ in parts))
        values = state.reshape(grid.n_steps, 4, grid.n_points)
        in_space, in_time = grid.derivatives(values, highest)
        operators = np.zeros((len(equation.operators), *in_time.shape))
        for q, once, order, factor in parts:
            operators[q] += factor * (in_time if once else in_space[order])
        slopes, right = linearised_at(grid, (equation,), operators, forcing)
        [slopes] = slopes
        self.right = right.reshape(*in_time.shape, -1)
        self.right[..., 0] += np.einsum("qsin,qsin->sin", slopes, operators)
        self.is_open = open_ends(grid, equation.operators, slopes)
        self.in_space, self.inertia = np.zeros(in_space.shape), np.zeros(in_time.shape)
        for q, once, order, factor in parts:
            own = self.inertia if once else self.in_space[order]
            own += factor * slopes[q]
        self.in_space[1] -= grid.velocities[:, None] * self.inertia

    def factored(self, step):
        """The FactoredStep at a position."""
        return FactoredStep(self, step)


class FactoredStep:
    """The equations of a step, those of values at the ends among them, factored.

    scale : ndarray of shape (3, n_points). By which the equations are multiplied; zero
        for those that give way to values at the ends.
    on_start : ndarray of shape (3, n_points). What multiplies the values that the step
        starts from, in the equations as they are.
    ends : ndarray of int. Positions of the open values at the ends among all values of
        the step.

    Raises LinAlgError if there is no single solution.
    """

    def __init__(self, steps, step):
        grid, n = steps.grid, steps.grid.n_points
        inertia = steps.inertia[step] / grid.steps[step]
        rows = np.einsum(
            "oin,oinw->inw",
            steps.in_space[:, step],
            grid.stencils(len(steps.in_space) - 1)[:, step],
        )
        stage, point = np.divmod(grid.rows_of_ends[steps.is_open[step]], n)
        self.scale = 1 / (np.max(np.abs(rows), axis=2) + np.abs(inertia))
        self.scale[stage, point] = 0.0
        self.on_start = inertia * grid.to_slopes[:, :1]
        self.ends = 3 * point + stage
        rows, inertia = self.scale[..., None] * rows, self.scale * inertia
        # LAPACK keeps the entry in row i and column j of a band in row 2 k + i - j.
        self._k = k = 3 * (grid.width - 1) + 2
        band, places = np.zeros((3 * k + 1, 3 * n)), 3 * np.arange(n)
        for i in range(3):
            for own, beside in zip(rows[i].T, grid.neighbours.T, strict=True):
                columns = 3 * beside + i
                band[2 * k + places + i - columns, columns] += own
            for j in range(3):
                slope = inertia[i] * grid.to_slopes[i, 1 + j]
                band[2 * k + i - j, places + j] += slope
        band[2 * k, self.ends] = 1.0
        self._band, self._pivots, info = lapack.dgbtrf(band, k, k, overwrite_ab=True)
        if info:
            raise np.linalg.LinAlgError(f"the equation of step {step} is singular.")

    def solve(self, right, at_ends):
        """Values (3, n_points, m) of the equations' right-hand sides of this shape.

        `at_ends` (len(ends), m) are the open values at the ends.
        """
        right = _by_points(self.scale[..., None] * right)
        right[self.ends] = at_ends
        return _by_times(lapack.dgbtrs(*self._factors, right, self._pivots)[0])

    def pull(self, functionals):
        """Functionals (3, n_points, m) of the values as those of what makes them.

        Of the right-hand sides (3, n_points, m), and of the open values at the ends
        (len(ends), m).
        """
        given = *self._factors, _by_points(functionals), self._pivots
        pulled = lapack.dgbtrs(*given, trans=1)[0]
        return self.scale[..., None] * _by_times(pulled), pulled[self.ends]

    @property
    def _factors(self):
        return self._band, self._k, self._k


def _by_points(values):
    """Values (3, n, m) of three times by points, the times of each together."""
    return np.asfortranarray(np.moveaxis(values, 0, 1).reshape(-1, values.shape[-1]))


def _by_times(values):
    """The same the other way round."""
    return np.moveaxis(values.reshape(len(values) // 3, 3, -1), 1, 0)


def solutions(grid, equations, state, unknowns, forcing=0.0):
    """Solutions of the linearised equations for several sets of unknowns.

    grid : EvolutionGrid. Where; the arguments but `unknowns` are those of
        :func:`~keql._evolution.integration.linear_response`.
    unknowns : ndarray of shape (1 + p + c, m). Factors of what is known, weights and
        boundary values, by columns.

    Returns values : ndarray of shape (n_steps, 4, size, m). Not all finite if there is
        no solution.
    """
    if not grid.follows:
        response = linear_response(grid, equations, state, forcing, np.inf)
        if response is None:
            return np.full((grid.n_steps, 4, grid.size, unknowns.shape[1]), np.nan)
        return response @ unknowns
    [equation], n = as_tuple(equations), grid.n_points
    steps, p = BandedSteps(grid, equation, state, forcing), len(equation.weights)
    known, start, ends = np.split(unknowns, [1 + p, 1 + p + n])
    ends = ends.reshape(grid.n_steps, -1, ends.shape[1])
    values = np.empty((grid.n_steps, 4, n, unknowns.shape[1]))
    for step in range(grid.n_steps):
        own = steps.factored(step)
        right = steps.right[step] @ known - own.on_start[..., None] * start
        values[step, 0] = start
        values[step, 1:] = own.solve(right, ends[step][steps.is_open[step]])
        start = values[step, -1]
    return values


def solution(grid, equations, state, unknowns, forcing=0.0):
    """The solution for a single set of unknowns, of the shape of the state."""
    if not grid.follows:
        return linear_solution(grid, equations, state, unknowns, forcing)
    given = grid, equations, state, unknowns[:, None], forcing
    return solutions(*given).ravel()


def effects_on_observations(grid, equation, state, observed, forcing=0.0):
    """Effects (N, 1 + p + c) of all unknowns on observations of a state that follows.

    grid : MovingGrid. The further arguments are those of :func:`solutions`.
    observed : sparse matrix of shape (N, n_steps * 4 * n_points). The observations from
        the values on the grid.
    """
    p, n, n_open = len(equation.weights), grid.n_points, 3 * len(grid.ends)
    steps, columns = BandedSteps(grid, equation, state, forcing), observed.tocsc()
    effects = np.zeros((observed.shape[0], 1 + p + n + n_open * grid.n_steps))
    carried = np.zeros((n, len(effects)))
    for step in range(grid.n_steps - 1, -1, -1):
        own = steps.factored(step)
        seen = columns[:, 4 * n * step : 4 * n * (step + 1)].toarray()
        seen = seen.T.reshape(4, n, -1)
        seen[-1] += carried
        right, at_ends = own.pull(seen[1:])
        places = 1 + p + n + n_open * step + np.flatnonzero(steps.is_open[step])
        effects[:, places] = at_ends.T
        flat = right.reshape(3 * n, -1)
        effects[:, : 1 + p] += flat.T @ steps.right[step].reshape(3 * n, -1)
        carried = seen[0] - np.einsum("inm,in->nm", right, own.on_start)
    effects[:, 1 + p : 1 + p + n] = carried.T
    return effects


def rates(grid, equations, state, forcing=0.0):
    """Slopes (S, n_steps * 3 * n_points, p) of time derivatives in the weights."""
    if not grid.follows:
        return effects_on_rates(grid, equations, state, forcing)
    [equation] = as_tuple(equations)
    steps = BandedSteps(grid, equation, state, forcing)
    effects = steps.right[..., 1:] / steps.inertia[..., None]
    return effects.reshape(1, -1, n_weights(equations))

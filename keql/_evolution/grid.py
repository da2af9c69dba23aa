"""A box of time and space, on which an evolution equation is integrated.

Time goes in steps, short ones first: what is rough initially is soon smoothed. In
each of them a function is a cubic through its start, which is the end of the step
before, and the three Radau points, the last of which is its end; a differential
equation that holds there is met to order 5 at the ends, and stiff ones are damped
(Radau IIA). In space it is a polynomial through Chebyshev points.

Hairer and Wanner, Solving Ordinary Differential Equations II, 1996, section IV.5;
Trefethen, Spectral Methods in MATLAB, 2000, chapter 6.
"""

import numpy as np
from scipy.interpolate import BarycentricInterpolator

# Steps in time, whose ends are at (k / N_STEPS)^GRADING of it, and points in space.
N_STEPS, GRADING, N_POINTS = 40, 2.0, 80
# Where values are known in a step, in units of it: its start and the Radau points.
STAGES = np.array([0.0, (4 - 6**0.5) / 10, (4 + 6**0.5) / 10, 1.0])
# Highest order of derivatives in time and space.
ORDERS = 1, 2


class EvolutionGrid:
    """Points in time and space, with interpolation and derivatives.

    An array of values on the grid has shape (n_steps, 4, n_points): in time those of
    each step, its start included.

    Parameters
    ----------
    lower, upper : ndarray of shape (2,)
        Corners of the box.
    axis : {0, 1}
        Which coordinate is the time.
    n_steps, n_points : int, default=40, 80
        Steps in time and points in space.
    """

    def __init__(self, lower, upper, axis, n_steps=N_STEPS, n_points=N_POINTS):
        self.lower, self.upper, self.axis = lower, upper, axis
        self.n_steps, self.n_points = n_steps, n_points
        begin, end = lower[axis], upper[axis]
        self.edges = begin + (end - begin) * np.linspace(0, 1, n_steps + 1) ** GRADING
        self.steps = np.diff(self.edges)
        left, right = lower[1 - axis], upper[1 - axis]
        angles = np.linspace(0, np.pi, n_points)
        self.x = left + (right - left) * (1 - np.cos(angles)) / 2
        times = self.edges[:-1, None] + self.steps[:, None] * STAGES
        pair = np.broadcast_arrays(times[:, :, None], self.x)
        # All points, of shape (n_steps, 4, n_points, 2).
        self.points = np.stack(pair if axis == 0 else pair[::-1], axis=-1)

    @property
    def border(self):
        """Points where an evolution equation leaves the solution open, (c, 2).

        Those of the initial time; then both ends in space at all Radau points.
        """
        sides = self.points[:, 1:][:, :, [0, -1]].reshape(-1, 2)
        return np.concatenate([self.points[0, 0], sides])

    def contains(self, points):
        """Which of the points lie in the box, of shape (n,)."""
        return np.all((points >= self.lower) & (points <= self.upper), axis=1)

    def matrices(self, operators):
        """Operators at the Radau points of a step, from the values of the step.

        Parameters
        ----------
        operators : list of DifferentialOperator
            Of the orders 1 in time and 2 in space at most.

        Returns
        -------
        still, moving : ndarray of shape (len(operators), 3 * n_points, 4 * n_points)
            Parts without and with a derivative in time: in a step of the length h,
            still + moving / h is to be multiplied with its raveled values.
        """
        n = self.n_points
        shape = ORDERS[0] + 1, len(operators), 3 * n, 4 * n
        matrices = np.zeros(shape)
        for q, operator in enumerate(operators):
            for orders, factor in operator.terms:
                in_time, in_space = orders[self.axis], orders[1 - self.axis]
                matrices[in_time, q] += np.kron(
                    factor * _weights(STAGES, STAGES[1:], in_time),
                    _weights(self.x, self.x, in_space),
                )
        return matrices

    def apply(self, functions, points, operator):
        """An operator applied to functions on the grid, at any points of the box.

        Parameters
        ----------
        functions : ndarray of shape (n_steps, 4, n_points, m)
            Values on the grid.
        points : ndarray of shape (n, 2)
            Where.
        operator : DifferentialOperator
            What; of any order, but rough above those of the equation.

        Returns
        -------
        applied : ndarray of shape (n, m)
            One column for each function.
        """
        applied = np.empty((len(points), functions.shape[-1]))
        found = np.searchsorted(self.edges, points[:, self.axis], side="right") - 1
        found = np.clip(found, 0, self.n_steps - 1)
        for step in np.unique(found):
            at = found == step
            rows = self._rows(step, points[at], operator)
            applied[at] = rows @ functions[step].reshape(4 * self.n_points, -1)
        return applied

    def _rows(self, step, points, operator):
        """An operator at points of a step, from its values: (n, 4 * n_points)."""
        h, rows = self.steps[step], np.zeros((len(points), 4, self.n_points))
        places = (points[:, self.axis] - self.edges[step]) / h
        for orders, factor in operator.terms:
            order = orders[self.axis]
            in_time = factor * h**-order * _weights(STAGES, places, order)
            order = orders[1 - self.axis]
            in_space = _weights(self.x, points[:, 1 - self.axis], order)
            rows += in_time[:, :, None] * in_space[:, None]
        return rows.reshape(len(points), 4 * self.n_points)


def _weights(nodes, places, order):
    """Derivatives at places of the polynomials that are 1 at one node each, (n, m)."""
    polynomials = BarycentricInterpolator(nodes, np.eye(len(nodes)))
    if order == 0:
        return polynomials(places)
    if order >= len(nodes):
        return np.zeros((len(places), len(nodes)))
    return polynomials.derivative(places, order)

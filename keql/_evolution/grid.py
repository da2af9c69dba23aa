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
from scipy.sparse import csr_array

# Where values are known in a step, in units of it: its start and the Radau points.
STAGES = np.array([0.0, (4 - 6**0.5) / 10, (4 + 6**0.5) / 10, 1.0])


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
        Steps in time and points in space: two of Burgers' equation with a diffusion of
        0.01 of the box agree to 1e-6 with twice as many.
    grading : float, default=2.0
        Step k of n ends at (k / n)^grading of the time.
    """

    def __init__(self, lower, upper, axis, n_steps=40, n_points=80, grading=2.0):
        self.lower, self.upper, self.axis = lower, upper, axis
        self.n_steps, self.n_points = n_steps, n_points
        begin, end = lower[axis], upper[axis]
        self.edges = begin + (end - begin) * np.linspace(0, 1, n_steps + 1) ** grading
        self.steps = np.diff(self.edges)
        left, right = lower[1 - axis], upper[1 - axis]
        angles = np.linspace(0, np.pi, n_points)
        self.x = left + (right - left) * (1 - np.cos(angles)) / 2
        times = self.edges[:-1, None] + self.steps[:, None] * STAGES
        pair = np.broadcast_arrays(times[:, :, None], self.x)
        # All points, of shape (n_steps, 4, n_points, 2).
        self.points = np.stack(pair if axis == 0 else pair[::-1], axis=-1)

    @property
    def boundary(self):
        """Points (c, 2) where an evolution equation leaves the solution open.

        Those of the initial time; then both ends in space at all Radau points.
        """
        ends = self.points[:, 1:][:, :, [0, -1]].reshape(-1, 2)
        return np.concatenate([self.points[0, 0], ends])

    def contains(self, points):
        """Which of the points (n, 2) lie in the box, of shape (n,)."""
        return np.all((points >= self.lower) & (points <= self.upper), axis=1)

    def matrices(self, operators):
        """Operators at the Radau points of a step, from the values of the step.

        Two arrays of shape (len(operators), 3 n_points, 4 n_points): the parts without
        and with a derivative in time, of which there is at most one. In a step of the
        length h their sum, the second over h, multiplies the raveled values.
        """
        n = self.n_points
        matrices = np.zeros((2, len(operators), 3 * n, 4 * n))
        for q, operator in enumerate(operators):
            for orders, factor in operator.terms:
                in_time, in_space = orders[self.axis], orders[1 - self.axis]
                matrices[in_time, q] += np.kron(
                    factor * _lagrange(STAGES, STAGES[1:], in_time),
                    _lagrange(self.x, self.x, in_space),
                )
        return matrices

    def boundary_of(self, functions):
        """Values (c, m) at the points of the boundary of functions on the grid.

        Functions have shape (n_steps, 4, n_points, m).
        """
        ends = functions[:, 1:, [0, -1]].reshape(-1, functions.shape[-1])
        return np.concatenate([functions[0, 0], ends])

    def interpolation(self, points, operator):
        """An operator at points (n, 2) of the box, from the values on the grid.

        A sparse matrix of shape (n, n_steps * 4 * n_points). The operator may be of any
        order; above those of the equation it is rough.
        """
        time, x = points[:, self.axis], points[:, 1 - self.axis]
        step = np.searchsorted(self.edges, time, side="right") - 1
        step = np.clip(step, 0, self.n_steps - 1)
        h, size = self.steps[step], 4 * self.n_points
        entries = np.zeros((len(points), 4, self.n_points))
        for orders, factor in operator.terms:
            order = orders[self.axis]
            in_time = _lagrange(STAGES, (time - self.edges[step]) / h, order)
            in_time = (factor * h**-order)[:, None] * in_time
            in_space = _lagrange(self.x, x, orders[1 - self.axis])
            entries += in_time[:, :, None] * in_space[:, None]
        columns = size * step[:, None] + np.arange(size)
        starts = size * np.arange(len(points) + 1)
        shape = len(points), self.n_steps * size
        return csr_array((entries.ravel(), columns.ravel(), starts), shape=shape)

    def apply(self, functions, points, operator):
        """An operator applied to functions on the grid at points (n, 2) of the box.

        Functions (n_steps, 4, n_points, m) give an array (n, m).
        """
        flat = functions.reshape(-1, functions.shape[-1])
        return self.interpolation(points, operator) @ flat


def _lagrange(nodes, places, order):
    """Derivatives at places (n,) of the polynomials that are 1 at one of m nodes."""
    polynomials = BarycentricInterpolator(nodes, np.eye(len(nodes)))
    if order == 0:
        return polynomials(places)
    if order >= len(nodes):
        return np.zeros((len(places), len(nodes)))
    return polynomials.derivative(places, order)

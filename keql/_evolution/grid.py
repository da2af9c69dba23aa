"""The grid of an evolution equation: points in time and space, and derivatives there.

Time goes in steps. In each of them a function is a cubic through its start, which is
the end of the step before, and the three Radau points, the last of which is its end. If
the equation is of second order in time, the slope in time is another cubic, through its
start and the slopes at the Radau points; the values are all that is kept. In each
coordinate of space a function is a polynomial through Chebyshev points or, on a ring, a
trigonometric polynomial through an odd number of equidistant ones; in two coordinates
points are all pairs of these.

Trefethen, Spectral Methods in MATLAB, 2000, chapters 3 and 6.
"""

from copy import copy
from dataclasses import dataclass
from functools import reduce

import numpy as np
from scipy.interpolate import BarycentricInterpolator
from scipy.sparse import csr_array

from keql._numerics.memory import in_chunks
from keql.operators import identity_of

# Where values are known in a step, in units of it: its start and the Radau points.
STAGES = np.array([0.0, (4 - 6**0.5) / 10, (4 + 6**0.5) / 10, 1.0])


@dataclass(frozen=True)
class GridSizes:
    """Steps in time and points along each coordinate of space.

    coarse, fine : (int, int). With one coordinate of space: where sets of terms are
        compared first, and where states are found. Two of Burgers' equation with a
        diffusion of 0.01 of the box on the fine grid agree to 1e-6 with twice as many.
    coarse_plane, fine_plane : (int, int). With two: a linearised equation takes the
        cube of the points.
    """

    coarse: tuple = (20, 40)
    fine: tuple = (40, 80)
    coarse_plane: tuple = (6, 9)
    fine_plane: tuple = (8, 13)

    def of(self, d):
        """The coarse and the fine sizes with d coordinates, time included."""
        if d == 2:
            return self.coarse, self.fine
        return self.coarse_plane, self.fine_plane


class EvolutionGrid:
    """Points in time and space, with interpolation and derivatives.

    An array of values on the grid has shape (n_steps, 4, size): in time those of each
    step, its start included; in space those of all states, one after another, `size` =
    n_states n_points in all.

    lower, upper : ndarray of shape (d,). Corners of the box.
    axis : int. Which coordinate is the time.
    n_steps, n_along : int, default=40, 80. Steps in time and points along each
        coordinate of space.
    n_ends : int or array-like of shape (n_states, d - 1), default=1. Points at either
        end of each coordinate of space whose values the equation may leave open: half
        of its order there. Of each state.
    order : {1, 2}, default=1. Of the equation in time.
    grading : float, default=None. Step k of n ends at (k / n)^grading of the time;
        None: 2 if the order is 1, and 1 if it is 2.
    states : tuple of str, default=("u",). Names of the states.
    period : float or array-like of shape (d - 1,), default=inf. Lengths of the
        coordinates of space that are rings: such a one begins at the lower corner, has
        no ends, and one point more if their number is even. Infinity: an interval.
    """

    follows = False  # points stay where they are

    def __init__(
        self,
        lower,
        upper,
        axis,
        n_steps=40,
        n_along=80,
        n_ends=1,
        order=1,
        grading=None,
        states=("u",),
        period=np.inf,
    ):
        self.lower, self.upper, self.axis = lower, upper.copy(), axis
        self.order, self.n_along = order, n_along
        self.space = np.delete(np.arange(len(lower)), axis)
        self.periods = np.broadcast_to(period, len(self.space))
        rings = self.space[self.on_rings]
        self.upper[rings] = lower[rings] + self.periods[self.on_rings]
        # Slopes at the Radau points of a step of length 1 from its values.
        self.to_slopes = _lagrange(STAGES, STAGES[1:], 1)
        grading = self.grading = 3.0 - order if grading is None else grading
        self.n_steps, self.states = n_steps, tuple(states)
        self.n_ends = np.where(
            self.on_rings, 0, np.broadcast_to(n_ends, (len(states), len(self.space)))
        )
        begin, end = self.lower[axis], self.upper[axis]
        self.edges = begin + (end - begin) * np.linspace(0, 1, n_steps + 1) ** grading
        self.steps = np.diff(self.edges)
        self.nodes = [
            _nodes(self.lower[i], self.upper[i], n_along, is_ring)
            for i, is_ring in zip(self.space, self.on_rings, strict=True)
        ]
        self.n_points = int(np.prod([len(nodes) for nodes in self.nodes]))
        self.size = len(states) * self.n_points
        # Of each point its place along each coordinate, and how far from the next end.
        shape = [len(nodes) for nodes in self.nodes]
        self.places = np.indices(shape).reshape(len(shape), -1).T
        self.depths = np.minimum(self.places, np.subtract(shape, 1) - self.places)
        self._in_space = {}  # derivative matrices by their orders
        # Positions among the values of all states.
        self.ends = np.concatenate(
            [
                k * self.n_points + np.flatnonzero(np.any(self.depths < own, axis=1))
                for k, own in enumerate(self.n_ends)
            ]
        )

    @property
    def on_rings(self):
        """Which coordinates of space are rings, of shape (d - 1,)."""
        return np.isfinite(self.periods)

    @property
    def d(self):
        """Number of coordinates."""
        return len(self.lower)

    @property
    def extents(self):
        """Lengths (d - 1,) of the box in space."""
        return (self.upper - self.lower)[self.space]

    @property
    def identity(self):
        """The operator that leaves the first state as it is."""
        return identity_of(self.states[0], self.d)

    @property
    def text(self):
        """How fine it is, in words."""
        return f"{self.n_steps} steps in time, {self.n_points} points in space"

    def places_of(self, times):
        """Places (len(times), n) of the points along the first coordinate of space."""
        return np.tile(self.nodes[0], (len(times), 1))

    def with_edges(self, edges):
        """A grid of the same points in space, whose steps end at other times."""
        grid = copy(self)
        grid.edges, grid.steps, grid.n_steps = edges, np.diff(edges), len(edges) - 1
        grid.lower, grid.upper = self.lower.copy(), self.upper.copy()
        grid.lower[self.axis], grid.upper[self.axis] = edges[0], edges[-1]
        return grid

    @property
    def points(self):
        """All points, of shape (n_steps, 4, n_points, d)."""
        times = self.edges[:-1, None] + self.steps[:, None] * STAGES
        points = np.empty((*times.shape, self.n_points, self.d))
        points[..., self.axis] = times[:, :, None]
        for i, place, nodes in zip(self.space, self.places.T, self.nodes, strict=True):
            points[..., i] = nodes[place]
        return points

    @property
    def boundary(self):
        """Points (c, d) where an evolution equation may leave the solution open.

        Those of the initial time for all states, and once more for the slopes there if
        the equation is of second order; then the ends in space at all Radau points.
        """
        ends = self.points[:, 1:][:, :, self.ends % self.n_points].reshape(-1, self.d)
        initial = self.order * len(self.states) * [self.points[0, 0]]
        return np.concatenate([*initial, ends])

    @property
    def states_of_boundary(self):
        """Position of the state (c,) that each of these points belongs to."""
        initial = np.repeat(np.arange(len(self.states)), self.n_points)
        ends = np.tile(self.ends // self.n_points, 3 * self.n_steps)
        return np.concatenate([*self.order * [initial], ends])

    @property
    def rows_of_slopes(self):
        """Which of these points stand for slopes in time."""
        return slice(self.size, self.order * self.size)

    @property
    def rows_of_ends(self):
        """Rows of the equation of a step that give way to values at the ends."""
        return (self.size * np.arange(3)[:, None] + self.ends).ravel()

    def equals(self, other):
        """Whether another object is a grid of the same points and states."""
        points = getattr(other, "points", None)
        same = points is not None and np.array_equal(points, self.points)
        return same and other.states == self.states

    def resized(self, n_steps, n_along, grading=None):
        """A grid of the same box and states with other numbers of steps and points.

        `grading` is that of the steps; None: it stays.
        """
        grading = self.grading if grading is None else grading
        size = n_steps, n_along, self.n_ends, self.order, grading
        box = self.lower, self.upper, self.axis
        return EvolutionGrid(*box, *size, self.states, self.periods)

    def contains(self, points):
        """Which of the points (n, d) lie in the box, of shape (n,)."""
        time, (begin, end) = points[:, self.axis], self.edges[[0, -1]]
        return self._is_between(points) & (time >= begin) & (time <= end)

    def is_after(self, points):
        """Which of the points (n, d) are after the last time, between both ends."""
        return self._is_between(points) & (points[:, self.axis] > self.edges[-1])

    def _is_between(self, points):
        """Which of the points (n, d) are between the ends; all are on a ring."""
        x, left, right = (each[..., self.space] for each in (points, *self.box))
        return np.all(((x >= left) & (x <= right)) | self.on_rings, axis=1)

    @property
    def box(self):
        """Its lower and its upper corner."""
        return self.lower, self.upper

    def factors(self, operators):
        """Operators as sums of products of a matrix in time and one in space.

        A list of (position of the operator, that of the state, order in time k, matrix
        (3, 3 + order), matrix (n_points, n_points)): the operator at the Radau points
        of a step of the length h is the sum of in_time @ values @ in_space.T / h^k of
        the values of its states.
        """
        return [
            (
                q,
                self.states.index(state),
                orders[self.axis],
                factor * self._at_radau_points(orders[self.axis]),
                self._derivative(self._in_space_of(orders)),
            )
            for q, operator in enumerate(operators)
            for state, orders, factor in operator.parts
        ]

    def _in_space_of(self, orders):
        """Those of the orders of a derivative that are in space."""
        return tuple(orders[i] for i in self.space)

    def _derivative(self, orders):
        """Derivatives in space at the points (n_points, n_points), kept once found."""
        if orders not in self._in_space:
            # Values are themselves, which interpolation on a ring has to rounding.
            along = [
                self._along(i, nodes, order) if order else np.eye(len(nodes))
                for i, (nodes, order) in enumerate(zip(self.nodes, orders, strict=True))
            ]
            self._in_space[orders] = reduce(np.kron, along)
        return self._in_space[orders]

    def _through_points(self, x, orders):
        """Derivatives at places x (n, d - 1) of functions from their values in space.

        An array of shape (n, n_points).
        """
        matrices = [
            self._along(i, *each)
            for i, each in enumerate(zip(x.T, orders, strict=True))
        ]
        return reduce(_products_of_rows, matrices)

    def _along(self, i, x, order):
        """Derivatives at places x (n,) from values at the points along a coordinate."""
        if self.on_rings[i]:
            return _trigonometric(self.nodes[i], x, order, self.periods[i])
        return _lagrange(self.nodes[i], x, order)

    def __getstate__(self):
        return vars(self) | {"_in_space": {}}

    def matrices(self, operators):
        """Operators of a single state at the Radau points, from the values of a step.

        1 + order arrays of shape (len(operators), 3 n_points, 4 n_points): the parts
        without and with a derivative in time, of which there is at most one. In a step
        of the length h their sum, the second over h, multiplies the raveled values. If
        the order is 2, the values have n_points more in front (:meth:`with_slopes`) and
        the third array, of second derivatives, is over h^2.
        """
        n = self.n_points
        matrices = np.zeros(
            (1 + self.order, len(operators), 3 * n, (3 + self.order) * n)
        )
        for q, operator in enumerate(operators):
            for orders, factor in operator.terms:
                in_time = orders[self.axis]
                matrices[in_time, q] += np.kron(
                    factor * self._at_radau_points(in_time),
                    self._derivative(self._in_space_of(orders)),
                )
        return matrices

    def _at_radau_points(self, order):
        """Derivatives in time at the Radau points (3, 3 + order) from values of a step.

        In units of the step's length.
        """
        if self.order == 1:
            return _lagrange(STAGES, STAGES[1:], order)
        if order < 2:
            return np.insert(_lagrange(STAGES, STAGES[1:], order), 0, 0.0, axis=1)
        # That of the cubic through the slope at the start and those of the values.
        return np.column_stack(
            [self.to_slopes[:, 0], self.to_slopes[:, 1:] @ self.to_slopes]
        )

    def with_slopes(self, functions, first=None):
        """Values (n_steps, 4, size, m) with what each step starts from in front.

        If the order is 2 this is the slope in time, times the length of the step;
        `first` (size, m) are the slopes at the initial time, None: those that follow
        from the values.
        """
        if self.order == 1:
            return functions
        h = self.steps[:, None, None]
        first = self.first_slopes(functions) if first is None else first
        starts = h * np.concatenate(
            [
                first[None],
                self.last_slopes(functions[:-1], self.steps[:-1, None, None]),
            ]
        )
        return np.concatenate([starts[:, None], functions], axis=1)

    def last_slopes(self, functions, h):
        """Slopes in time (..., size, m) at the end of steps of the length h.

        None at all, (0, m), if the equation is of first order.
        """
        if self.order == 1:
            return np.empty((0, functions.shape[-1]))
        return np.einsum("j,...jnm->...nm", self.to_slopes[-1], functions) / h

    def first_slopes(self, functions):
        """Slopes in time (size, m) at the initial time.

        Those of the cubic through the slopes at the next four Radau points.
        """
        first, second = self.steps[:2]
        nodes = np.r_[STAGES[1:] * first, first + STAGES[1] * second]
        slopes = np.einsum("ij,jnm->inm", self.to_slopes, functions[0]) / first
        after = np.einsum("j,jnm->nm", self.to_slopes[0], functions[1]) / second
        weights = _lagrange(nodes, np.zeros(1), 0)[0]
        return np.einsum("i,inm->nm", weights, [*slopes, after])

    def boundary_of(self, functions):
        """Values (c, m) at the points of the boundary of functions on the grid.

        Functions have shape (n_steps, 4, size, m).
        """
        ends = functions[:, 1:, self.ends].reshape(-1, functions.shape[-1])
        initial = [functions[0, 0]]
        if self.order == 2:
            initial.append(self.first_slopes(functions))
        return np.concatenate([*initial, ends])

    def interpolation(self, points, operator):
        """An operator at points (n, d) of the box, from the values on the grid.

        A sparse matrix of shape (n, n_steps * 4 * size). The operator may be of any
        order; above those of the equation it is rough. If the equation is of second
        order in time, derivatives in time are those of the slopes.
        """
        matrices = [
            self._interpolation(points, operator.of_state(state), k)
            for k, state in enumerate(self.states)
            if operator.of_state(state) is not None
        ]
        return sum(matrices[1:], start=matrices[0])

    def _interpolation(self, points, operator, k):
        """The part of it for an operator that acts on the state at position `k`."""
        time, x = points[:, self.axis], points[:, self.space]
        step = np.searchsorted(self.edges, time, side="right") - 1
        step = np.clip(step, 0, self.n_steps - 1)
        in_slopes = self.order == 2 and any(o[self.axis] for o, _ in operator.terms)
        steps = np.column_stack([step, _beside(step)]) if in_slopes else step[:, None]
        entries = np.zeros((len(points), 4 * steps.shape[1], self.n_points))
        for orders, factor in operator.terms:
            order = orders[self.axis]
            in_space = self._through_points(x, self._in_space_of(orders))
            if in_slopes and order:
                in_time = factor * self._through_slopes(step, time, order)
            else:
                h = self.steps[step]
                in_time = _lagrange(STAGES, (time - self.edges[step]) / h, order)
                in_time = (factor * h**-order)[:, None] * in_time
            used = in_time.shape[1]
            entries[:, :used] += in_time[:, :, None] * in_space[:, None]
        stages = self.size * np.arange(4)[:, None] + np.arange(self.n_points)
        own = self.n_points * k + stages.ravel()
        columns = 4 * self.size * steps[:, :, None] + own
        starts = own.size * steps.shape[1] * np.arange(len(points) + 1)
        shape = len(points), self.n_steps * 4 * self.size
        return csr_array((entries.ravel(), columns.ravel(), starts), shape=shape)

    def _through_slopes(self, step, time, order):
        """Derivatives in time (n, 8) from the values of steps and of those beside them.

        Those of a cubic through the slopes at the Radau points of a step and at its
        start; for the first step at the first Radau point of the next one instead.
        """
        beside, places = _beside(step), (time - self.edges[step]) / self.steps[step]
        own, other = np.zeros((2, len(step), 4))
        for first in (True, False):
            rows = np.flatnonzero((step == 0) == first)
            fourth = 1 + STAGES[1] * self.steps[1] / self.steps[0] if first else 0.0
            nodes = np.r_[STAGES[1:], fourth]
            weights = _lagrange(nodes, places[rows], order - 1)
            own[rows] = weights[:, :3] @ self.to_slopes
            other[rows] = weights[:, 3:] * self.to_slopes[0 if first else -1]
        h = self.steps[step]
        own *= (h**-order)[:, None]
        other *= (h ** (1 - order) / self.steps[beside])[:, None]
        return np.column_stack([own, other])

    @property
    def _n_numbers_at_a_point(self):
        """How many numbers interpolation in both axes makes for each point."""
        return 20 * self.size

    def apply(self, functions, points, operator):
        """An operator applied to functions on the grid at points (n, d) of the box.

        Functions (n_steps, 4, size, m) give an array (n, m).
        """
        flat = functions.reshape(-1, functions.shape[-1])
        parts = in_chunks(points, self._n_numbers_at_a_point)
        return np.concatenate(
            [self.interpolation(part, operator) @ flat for part in parts]
        )


def _nodes(left, right, n, is_ring):
    """Points along a coordinate: Chebyshev's, or an odd number around a ring."""
    if is_ring:
        n += (n + 1) % 2
        return left + (right - left) * (np.arange(n) / n)
    return left + (right - left) * ((1 - np.cos(np.linspace(0, np.pi, n))) / 2)


def _products_of_rows(first, second):
    """All products (n, k m) of entries in rows of matrices (n, k) and (n, m)."""
    return (first[:, :, None] * second[:, None]).reshape(len(first), -1)


def _beside(step):
    """The step before each one, or after the first one."""
    return np.where(step == 0, 1, step - 1)


def _trigonometric(nodes, places, order, period):
    """Derivatives at places (n,) of trigonometric polynomials, 1 at one of m nodes.

    These are equidistant on a ring, their number odd.
    """
    waves = 2 * np.pi / period * np.arange(1, (len(nodes) + 1) // 2)
    shifted = np.multiply.outer(places, waves) + 0.5 * np.pi * order
    there, here = np.multiply.outer(nodes, waves), waves**order
    # The derivative of cos(k (x - y)) in x, from those of its two factors.
    values = (here * np.cos(shifted)) @ np.cos(there).T
    values += (here * np.sin(shifted)) @ np.sin(there).T
    return (2 * values + (order == 0)) / len(nodes)


def _lagrange(nodes, places, order):
    """Derivatives at places (n,) of the polynomials that are 1 at one of m nodes."""
    # Nodes are taken in a random order, for accuracy: the same one in every fit.
    polynomials = BarycentricInterpolator(nodes, np.eye(len(nodes)), rng=0)
    if order == 0:
        return polynomials(places)
    if order >= len(nodes):
        return np.zeros((len(places), len(nodes)))
    return polynomials.derivative(places, order)

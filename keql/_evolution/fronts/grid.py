"""A grid whose points move.

Where a state is steep in a small part of space, polynomials through all points of a
line need as many of them everywhere. Here each point has a path in time, so that points
may be dense at a front and stay with it: seen from them the state changes slowly, and
steps in time need not be as short as a front is thin. In each step the paths are
straight lines, and along them a function is a cubic as on other grids. In space it is
given by polynomials through a few points nearby, whatever their distances, so that
equations have banded matrices and their solution takes a time that is linear in the
number of points.

Huang and Russell, Adaptive Moving Mesh Methods, 2011.
"""

from copy import copy
from math import comb

import numpy as np
from scipy.sparse import csr_array

from keql._evolution.fronts.stencils import stencil_weights
from keql._evolution.grid import STAGES, EvolutionGrid
from keql.exceptions import SimulationError


class MovingGrid(EvolutionGrid):
    """Points that move along the only coordinate of space, an interval.

    Of one state and of equations of first order in time. Arrays of values on the grid
    are as those of other grids, point k being the same in all of them.

    grid : EvolutionGrid. Its box, its axes and its states are taken.
    edges : ndarray of shape (n_steps + 1,). Times where steps end.
    paths : ndarray of shape (n_steps + 1, n_points). Places of the points then, in
        rising order; the first and the last one stay at the ends of the box.
    width : int. Points that a derivative is found from.
    """

    follows = True

    def __init__(self, grid, edges, paths, width):
        sizes = len(edges) - 1, paths.shape[1], grid.n_ends, grid.order, 1.0
        super().__init__(grid.lower, grid.upper, grid.axis, *sizes, grid.states)
        self.edges, self.steps = edges, np.diff(edges)
        self.paths, self.width = paths, width
        near = np.arange(self.n_points) - width // 2
        near = np.clip(near, 0, self.n_points - width)
        self.neighbours = near[:, None] + np.arange(width)
        self._stencils = None

    def __getstate__(self):
        return super().__getstate__() | {"_stencils": None}

    @property
    def text(self):
        """How fine it is, in words."""
        return f"{super().text} that follow what is steep"

    def with_edges(self, edges):
        """A grid with the same paths, whose steps end at other times.

        After the last time the points go on as they moved in the last step. Raises
        SimulationError if they would meet.
        """
        grid = copy(super().with_edges(edges))
        grid.paths, grid._stencils = self.places_of(edges), None
        later = np.maximum(edges - self.edges[-1], 0.0)
        grid.paths += np.multiply.outer(later, self.velocities[-1])
        if np.any(np.diff(grid.paths, axis=1) <= 0):
            raise SimulationError(
                "points that follow what is steep would meet: the equation cannot be "
                f"integrated to {edges[-1]:g}. Ask for earlier times.",
                float(self.edges[-1]),
            )
        return grid

    def resized(self, n_steps, n_along, grading=None):
        """A grid along the same paths, with other numbers of steps and points.

        Steps and points are denser or less dense everywhere; there is no grading.
        """
        n, counts = self.n_points, np.arange(self.n_steps + 1)
        edges = np.interp(np.linspace(0, self.n_steps, n_steps + 1), counts, self.edges)
        places = np.linspace(0, n - 1, n_along)
        paths = [np.interp(places, np.arange(n), row) for row in self.places_of(edges)]
        return MovingGrid(self, edges, np.array(paths), self.width)

    def places_of(self, times):
        """Places (len(times), n_points) of the points at some times."""
        return np.array([np.interp(times, self.edges, own) for own in self.paths.T]).T

    @property
    def velocities(self):
        """Of the points in each step, of shape (n_steps, n_points)."""
        return np.diff(self.paths, axis=0) / self.steps[:, None]

    @property
    def places_in_steps(self):
        """Places (n_steps, 4, n_points) at the start of steps and at Radau points."""
        moved = np.diff(self.paths, axis=0)[:, None]
        return self.paths[:-1, None] + STAGES[:, None] * moved

    @property
    def points(self):
        """All points, of shape (n_steps, 4, n_points, d)."""
        times = self.edges[:-1, None] + self.steps[:, None] * STAGES
        points = np.empty((*times.shape, self.n_points, self.d))
        points[..., self.axis] = times[:, :, None]
        points[..., self.space[0]] = self.places_in_steps
        return points

    def mean(self, values):
        """The mean over the box of values (m * n_steps * 4 * n_points,) on the grid."""
        gaps = self.steps[:, None] * np.diff(self.paths, axis=1)[:-1]
        shares = np.pad(gaps, ((0, 0), (0, 1))) + np.pad(gaps, ((0, 0), (1, 0)))
        values = values.reshape(-1, self.n_steps, 4, self.n_points).mean(axis=(0, 2))
        return np.sum(shares * values) / np.sum(shares)

    def stencils(self, order):
        """Weights of derivatives in space at the Radau points, from the neighbours.

        An array of shape (1 + order, n_steps, 3, n_points, width), kept once found.
        """
        if self._stencils is None or len(self._stencils) <= order:
            x = self.places_in_steps[:, 1:]
            self._stencils = stencil_weights(x[..., self.neighbours], x, order)
        return self._stencils[: 1 + order]

    def derivatives(self, values, order):
        """Those in space (1 + order, n_steps, 3, n_points), and the one in time.

        At the Radau points, from values (n_steps, 4, n_points). The derivative in time,
        at places that do not move, is that along the paths less what their velocity
        makes.
        """
        near = values[:, 1:][..., self.neighbours]
        in_space = np.einsum("osinw,sinw->osin", self.stencils(order), near)
        along = np.einsum("ij,sjn->sin", self.to_slopes, values)
        along /= self.steps[:, None, None]
        return in_space, along - self.velocities[:, None] * in_space[1]

    @property
    def _n_numbers_at_a_point(self):
        return 20 * self.width  # from points nearby alone

    def _interpolation(self, points, operator, k):
        step, part, near, nodes = self._along_paths(points)
        orders = np.array([orders for orders, _ in operator.terms])
        in_time, in_space = orders[:, self.axis], orders[:, self.space[0]]
        along_x = stencil_weights(
            nodes, points[:, self.space[0]], np.max(in_time + in_space)
        )
        stages = np.broadcast_to(STAGES, (len(points), 4))
        along_path = stencil_weights(stages, part, np.max(in_time))
        h = self.steps[step][:, None, None]
        velocities = np.take_along_axis(self.velocities[step], near, axis=1)
        speeds = np.sum(along_x * velocities, axis=-1)[..., None, None]
        entries = np.zeros((len(points), 4, self.width))
        for a, b, (_, factor) in zip(in_time, in_space, operator.terms, strict=True):
            # A derivative in time is one along the path less the speed times that in
            # space; of higher ones in time, derivatives of the speed are left out.
            for i in range(a + 1):
                weights = factor * along_path[a - i][:, :, None] / h ** (a - i)
                for k in range(b + 1 if a == i == 1 else 1):
                    speed = comb(b, k) * comb(a, i) * (-speeds[0]) ** max(i - 1, 0)
                    speed = speed * (-speeds[k] if i else 1.0)
                    entries += weights * speed * along_x[b + i - k][:, None]
        columns = 4 * self.n_points * step[:, None, None]
        columns = columns + self.n_points * np.arange(4)[:, None] + near[:, None]
        starts = 4 * self.width * np.arange(len(points) + 1)
        shape = len(points), 4 * self.n_steps * self.n_points
        return csr_array((entries.ravel(), columns.ravel(), starts), shape=shape)

    def _along_paths(self, points):
        """The steps (n,) that points are in, the part of these that has gone by.

        And the positions (n, width) of the grid's points nearby, and their places then.
        """
        time, x = points[:, self.axis], points[:, self.space[0]]
        step = np.searchsorted(self.edges, time, side="right") - 1
        step = np.clip(step, 0, self.n_steps - 1)
        part = (time - self.edges[step]) / self.steps[step]

        def places(positions):
            before, after = self.paths[step, positions], self.paths[step + 1, positions]
            return before + part * (after - before)

        n_passed = np.zeros(len(points), dtype=int)  # points of the grid up to x
        for size in 2 ** np.arange(self.n_points.bit_length())[::-1]:
            more = n_passed + size
            last = np.minimum(more, self.n_points) - 1
            is_passed = (more <= self.n_points) & (places(last) <= x)
            n_passed = np.where(is_passed, more, n_passed)
        first = n_passed - 1 - (self.width - 1) // 2
        near = np.clip(first, 0, self.n_points - self.width)
        near = near[:, None] + np.arange(self.width)
        return step, part, near, places(near.T).T

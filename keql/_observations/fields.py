"""Fields at very many points: grids are condensed, of other points some are drawn.

On a grid, values are condensed along one axis after the other: in a box of windows a
state is a polynomial of low degree in each coordinate, and Gauss's rules of the axes
make one of the box, whose nodes are all pairs of theirs, with the products of their
weights.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from scipy import sparse
from scipy.stats import chi2

from keql._observations.data import Sample
from keql._observations.windows import WindowRule

# Coefficients of the degrees q + 1 to q + 3, of which the first is no error of a rule.
_N_BEYOND = 3


def condense_field(sample, limits):
    """A Sample of fewer values of a field, or the same one if there are few.

    sample : Sample. Values of one operator of a function.
    limits : CondensingLimits. How many values are many.
    """
    if len(sample.values) < limits.small_field:
        return sample
    grid = _as_grid(sample)
    if grid is not None:
        sample = _Condenser(*grid, sample, limits).condensed()
    return _drawn(sample, limits.of_fields)


def _drawn(sample, most):
    """A Sample of at most so many values of another one, always the same."""
    if len(sample.values) <= most:
        return sample
    order = np.random.RandomState(0).permutation(len(sample.values))
    kept = np.sort(order[:most])
    return Sample(sample.points[kept], sample.values[kept], sample.weights[kept])


def _as_grid(sample):
    """Coordinates along each axis, and values on the grid; None if it is none.

    All precisions have to be equal.
    """
    axes, places = [], []
    for column in sample.points.T:
        axis, place = np.unique(column, return_inverse=True)
        axes.append(axis)
        places.append(place)
    shape, n = tuple(map(len, axes)), len(sample.values)
    if n != prod(shape) or np.ptp(sample.weights) > 0:
        return None
    if len(np.unique(np.ravel_multi_index(places, shape))) < n:
        return None
    values = np.empty(shape)
    values[tuple(places)] = sample.values
    return axes, values


@dataclass(frozen=True)
class _Axis:
    """An axis of a grid in windows, or each of its n coordinates for itself.

    The first and the last coordinate are in no window, so that no part of the box of
    what was observed is lost.

    nodes, weights : ndarray of shape (m,). Places along the axis, and precisions.
    rows : sparse matrix of shape (m, n). Orthonormal; applied to the samples along the
        axis they are the values at the nodes, times the roots of their weights.
    beyond : sparse matrix of shape (k, n). Applied to them they are the coefficients
        that tell whether windows are too long; there are none without windows.
    """

    nodes: np.ndarray
    weights: np.ndarray
    rows: sparse.csr_array
    beyond: sparse.csr_array

    @classmethod
    def of(cls, coordinates, n_windows, degree):
        """The axis in as many windows; 0: in none."""
        n = len(coordinates)
        each = sparse.eye_array(n, format="csr")
        if n_windows == 0:
            return cls(coordinates, np.ones(n), each, each[:0])
        nodes, weights = [coordinates[[0, -1]]], [np.ones(2)]
        rows, beyond = [], []
        for own in np.array_split(np.arange(1, n - 1), n_windows):
            ones = np.ones(len(own))
            rule = WindowRule.of_samples(coordinates[own], ones, degree, _N_BEYOND)
            nodes.append(rule.nodes)
            weights.append(rule.weights)
            rows.append(rule.rows)
            beyond.append(rule.beyond[1:])
        order = np.argsort(np.concatenate(nodes))
        inner, beyond = (sparse.block_diag(each) for each in (rows, beyond))
        rows = sparse.vstack([each[[0, -1]], inner @ each[1:-1]], format="csr")
        return cls(
            np.concatenate(nodes)[order],
            np.concatenate(weights)[order],
            rows[order],
            (beyond @ each[1:-1]).tocsr(),
        )


class _Condenser:
    """How the values of a grid are condensed."""

    def __init__(self, coordinates, values, sample, limits):
        self.coordinates, self.values = coordinates, values
        self.sample, self.limits = sample, limits
        fewest = limits.degree + _N_BEYOND + 2  # one is left to tell noise by
        self.finest = [max(0, len(x) - 2) // fewest for x in coordinates]

    def condensed(self):
        """A Sample of few values, whose windows are short enough.

        The given one if none are; some of its values if these are exact.
        """
        variance = self._variance()
        if variance is None:
            return self.sample
        if variance < (self.limits.least_noise * np.std(self.values)) ** 2:
            return _drawn(self.sample, self.limits.sizes[0])
        axes = self._shortest_windows(variance)
        n_values = prod(len(axis.nodes) for axis in axes) if axes else 0
        is_few = len(self.sample.values) <= self.limits.of_fields
        if axes is None or (is_few and n_values < self.limits.fewest_of_fields):
            return self.sample
        return self._at_nodes(axes)

    def _shortest_windows(self, variance):
        """Axes in as few windows as leave noise, of many values; None if none do.

        variance : float. That of the noise.
        """
        n_windows, best = [min(1, finest) for finest in self.finest], None
        while any(n_windows):
            axes = [*map(self._axis, range(len(n_windows)), n_windows)]
            excess = [self._excess(axes, i) / variance for i in range(len(axes))]
            too_long = np.greater(excess, self.limits.excess_of_fields)
            if too_long.any() and best:
                break
            if not too_long.any():
                best = axes
                pairs = zip(n_windows, self.finest, strict=True)
                growth = [n and finest / n for n, finest in pairs]
                n_values = prod(len(axis.nodes) for axis in axes)
                if n_values >= self.limits.fewest_of_fields or max(growth) <= 1:
                    break
                too_long[np.argmax(growth)] = True
            n_windows = [
                self._more(n, finest) if own else n
                for n, own, finest in zip(n_windows, too_long, self.finest, strict=True)
            ]
        return best

    @staticmethod
    def _more(n_windows, finest):
        """A larger number of windows along an axis; 0 where there is none."""
        return 0 if n_windows == finest else min(-(-3 * n_windows // 2), finest)

    def _axis(self, i, n_windows):
        return _Axis.of(self.coordinates[i], n_windows, self.limits.degree)

    def _variance(self):
        """Of the noise: the least that polynomials leave along one of the axes."""
        finest = enumerate(self.finest)
        return min((self._left(i, n) for i, n in finest if n), default=None)

    def _left(self, i, n_windows):
        """Variance of what polynomials leave along an axis, in as many windows.

        The median of those of all windows: that of the noise where some have jumps.
        """
        axis = self._axis(i, n_windows)
        values = np.moveaxis(self.values, i, 0).reshape(axis.rows.shape[1], -1)
        squares = (values - axis.rows.T @ (axis.rows @ values)) ** 2
        variances = []
        for own in np.array_split(np.arange(1, len(values) - 1), n_windows):
            n_free = len(own) - self.limits.degree - 1
            variances.append(squares[own].sum(axis=0) / chi2.median(n_free))
        return np.median(variances)

    def _excess(self, axes, i):
        """Mean square of the coefficients beyond an axis's polynomials."""
        if not axes[i].beyond.shape[0]:
            return 0.0
        values = _along(i, axes[i].beyond, self.values)
        for j, axis in enumerate(axes):
            values = values if j == i else _along(j, axis.rows, values)
        return np.mean(values**2)

    def _at_nodes(self, axes):
        values, weights = self.values, np.ones(())
        for j, axis in enumerate(axes):
            values = _along(j, axis.rows, values)
            weights = np.multiply.outer(weights, axis.weights)
        grids = np.meshgrid(*[axis.nodes for axis in axes], indexing="ij")
        points = np.column_stack([grid.ravel() for grid in grids])
        values = values / np.sqrt(weights)
        precision = self.sample.weights[0]
        return Sample(points, values.ravel(), precision * weights.ravel())


def _along(i, rows, values):
    """Rows (m, n) applied to an array along its axis i, of n values."""
    first = np.moveaxis(values, i, 0)
    found = rows @ first.reshape(len(first), -1)
    return np.moveaxis(found.reshape(-1, *first.shape[1:]), 0, i)

"""Products with Gram matrices of many points, without the matrices.

Far from its own cell a smooth kernel is a polynomial to rounding error: points are
sorted into the cells of a tree, sources in a cell act on others through their moments
for the Chebyshev polynomials of that cell, and only neighbouring cells are summed
directly (Fong and Darve, "The black-box fast multipole method", J. Comput. Phys. 228,
2009). Derivatives cost nothing more: they are taken of the polynomials.
"""

from functools import cached_property
from itertools import pairwise, product

import numpy as np
from numpy.linalg import norm
from numpy.polynomial import chebyshev


class HierarchicalGram:
    """Sums of derivatives of a stationary kernel over n points, in linear time.

    A strength f_a(y) for each multi-index a at each point y stands for the function
    ``v = sum_y sum_a f_a(y) d^a_y k(., y)``. Points (n, d) are those of the sources, in
    at most two dimensions, `n_nodes` is the number of Chebyshev nodes in each
    coordinate of a cell, and cells are divided until they have at most `leaf_size`
    points in the mean.
    """

    def __init__(self, kernel, points, orders, n_nodes=14, leaf_size=50):
        self.kernel, self.orders, self.n_nodes = kernel, orders, n_nodes
        self.sums = sums_of(orders, orders)
        self.metric = metric_of(kernel, points)
        scaled = points * self.metric
        self.lower, d = scaled.min(axis=0), points.shape[1]
        # A little more than the extent, so that no point lies on the upper side.
        self.side = 1.001 * float(np.ptp(scaled, axis=0).max()) or 1.0
        cells, depth = np.zeros((len(points), d), dtype=int), 0
        while len(points) > leaf_size * len(np.unique(_keys(cells))) and depth < 20:
            depth += 1
            cells = ((scaled - self.lower) * (2**depth / self.side)).astype(int)
        self.depth = depth
        keys = _keys(cells)
        self.original_points = points
        self.order = np.argsort(keys, kind="stable")
        self.points = points[self.order]
        _, first = np.unique(keys[self.order], return_index=True)
        self.starts = np.append(first, len(points))
        self.cells = [cells[self.order][first]]
        for _ in range(depth):
            self.cells.insert(0, _unique_rows(self.cells[0] >> 1))

    @property
    def leaves(self):
        """The rows of each leaf, slices of the sorted points."""
        return [slice(*pair) for pair in pairwise(self.starts)]

    @cached_property
    def near(self):
        """For each leaf the positions of the sorted points in it and around it."""
        cells = self.cells[-1]
        parts = [[] for _ in cells]
        for offset in product((-1, 0, 1), repeat=cells.shape[1]):
            own, others = _neighbours(cells, cells, np.array(offset))
            for i, j in zip(own, others, strict=True):
                parts[i].append(np.arange(self.starts[j], self.starts[j + 1]))
        return [np.concatenate(part) for part in parts]

    @cached_property
    def polynomials(self):
        """Lagrange polynomials of its leaf at each sorted point, (n, n_nodes**d)."""
        leaf = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        size = self.side / 2**self.depth
        corner = self.lower + size * self.cells[-1][leaf]
        return _lagrange(
            2 * (self.points * self.metric - corner) / size - 1, self.n_nodes
        )

    def far(self, strengths):
        """Values (n_orders, n) at the sorted points that all far sources cause.

        `strengths` are of this shape, and of the sorted points.
        """
        if self.depth < 2:
            return np.zeros_like(strengths)
        P = self.polynomials
        parts = [(strengths[:, rows] @ P[rows]).ravel() for rows in self.leaves]
        nodal = self._far_of_leaves(np.stack(parts))
        nodal = nodal.reshape(len(nodal), len(strengths), -1)
        values = [own @ P[rows].T for own, rows in zip(nodal, self.leaves, strict=True)]
        return np.hstack(values)

    def _far_of_leaves(self, moments):
        levels, width = [moments], self.polynomials.shape[1]
        for level in range(self.depth - 1, 1, -1):
            cells, below = self.cells[level], self.cells[level + 1]
            upper = np.zeros((len(cells), moments.shape[1]))
            for own, parents, matrix in self._children(cells, below):
                part = levels[0][own].reshape(-1, width) @ matrix
                upper[parents] += part.reshape(len(own), -1)
            levels.insert(0, upper)
        values = None
        for level, own in zip(range(2, self.depth + 1), levels, strict=True):
            inherited, values = values, np.zeros_like(own)
            if inherited is not None:
                pairs = self._children(self.cells[level - 1], self.cells[level])
                for children, parents, matrix in pairs:
                    part = inherited[parents].reshape(-1, width) @ matrix.T
                    values[children] = part.reshape(len(children), -1)
            for targets, sources, matrix in self._interactions[level - 2]:
                values[targets] += own[sources] @ matrix.T
        return values

    def _children(self, cells, below):
        """Cells of a level, their parents, and the parents' polynomials there."""
        nodes = chebyshev.chebpts1(self.n_nodes)
        for corner in product((0, 1), repeat=cells.shape[1]):
            own = np.flatnonzero(np.all(below % 2 == corner, axis=1))
            inside = 0.5 * nodes[:, None] + np.array(corner) - 0.5
            matrix = _lagrange(_grid(inside.T), self.n_nodes)
            yield own, _find(cells, below[own] >> 1), matrix

    @cached_property
    def _interactions(self):
        """For each level from 2 on: targets, sources, matrix, for each offset."""
        levels = []
        d = self.points.shape[1]
        nodes = _grid([chebyshev.chebpts1(self.n_nodes)] * d) / 2
        for level in range(2, self.depth + 1):
            size, pairs = self.side / 2**level / self.metric, []
            for offset in product(range(-3, 4), repeat=d):
                if max(map(abs, offset)) < 2:
                    continue
                cells = self.cells[level]
                own, others = _neighbours(cells, cells, np.array(offset))
                apart = np.abs((cells[own] >> 1) - (cells[others] >> 1))
                kept = np.all(apart <= 1, axis=1)
                if kept.any():
                    sources = (nodes + np.array(offset)) * size
                    matrix = self._between(nodes * size, sources)
                    pairs.append((own[kept], others[kept], matrix))
            levels.append(pairs)
        return levels

    def _between(self, X, Y):
        """Gram matrix of all orders at X, order after order, and all orders at Y."""
        of = derivatives_of_difference(self.kernel, X, Y, self.sums)
        return np.block(
            [[(-1) ** sum(b) * of[add(a, b)] for b in self.orders] for a in self.orders]
        )

    def multiply(self, strengths, rows=None):
        """All derivatives of v at the points, (n_orders, n); zero but at `rows`.

        `strengths` are of this shape; `rows` are positions, None for all.
        """
        f = strengths[:, self.order]
        mask = np.full(len(self.points), rows is None)
        if rows is not None:
            mask[rows] = True
            mask = mask[self.order]
        values = np.where(mask, self.far(f), 0.0)
        used = np.any(f != 0, axis=1)
        active = [b for b, own in zip(self.orders, used, strict=True) if own]
        sums = sums_of(self.orders, active)
        f = np.array([(-1) ** sum(b) for b in self.orders])[:, None] * f
        for leaf, near in zip(self.leaves, self.near, strict=True):
            chosen = np.flatnonzero(mask[leaf]) + leaf.start
            if not chosen.size:
                continue
            X, Y = self.points[chosen], self.points[near]
            of = derivatives_of_difference(self.kernel, X, Y, sums)
            for value, a in zip(values, self.orders, strict=True):
                for b, own in zip(self.orders, f, strict=True):
                    if b in active:
                        value[chosen] += of[add(a, b)] @ own[near]
        result = np.empty_like(values)
        result[:, self.order] = values
        return result

    def error(self, n_rows=8):
        """Relative error of products, the largest of all orders, at random points."""
        rng, n = np.random.RandomState(0), len(self.points)
        units = np.eye(len(self.orders))
        sizes = [np.sqrt(self.variances(unit[:, None])) for unit in units]
        strengths = rng.standard_normal((len(sizes), n)) / np.array(sizes)
        rows = rng.permutation(n)[:n_rows]
        X, Y = self.original_points[rows], self.original_points
        exact = self._between(X, Y) @ strengths.ravel()
        exact = exact.reshape(len(sizes), -1)
        apart = self.multiply(strengths, rows)[:, rows] - exact
        return float(np.max(norm(apart, axis=1) / norm(exact, axis=1)))

    def variances(self, weights):
        """Prior variances (n,) of functionals, of which `weights` are (n_orders, n)."""
        rows = np.arange(weights.shape[1])
        return self.covariances(weights, rows, rows)

    def covariances(self, weights, rows, columns):
        """Covariances of pairs of functionals, of the shape of `rows` and `columns`.

        `weights` (n_orders, n) are the factors of the derivatives in functional i at
        point i.
        """
        left, right = rows.ravel(), columns.ravel()
        apart = self.original_points[left] - self.original_points[right]
        zero, total = np.zeros((1, apart.shape[1])), np.zeros(len(left))
        of = derivatives_of_difference(self.kernel, apart, zero, self.sums)
        for a, on_left in zip(self.orders, weights, strict=True):
            for b, on_right in zip(self.orders, weights, strict=True):
                factors = (-1) ** sum(b) * on_left[left] * on_right[right]
                total += factors * of[add(a, b)][:, 0]
        return total.reshape(rows.shape)

    def of_rows(self, weights):
        """The RowGram of functionals, of which `weights` are (n_orders, n)."""
        return RowGram(self, weights[:, self.order])


class RowGram:
    """Gram matrix of one functional at each point; `weights` are of sorted points."""

    def __init__(self, gram, weights):
        self.gram, self.weights, self.blocks = gram, weights, []
        signs = np.array([(-1) ** sum(b) for b in gram.orders])[:, None]
        for leaf, near in zip(gram.leaves, gram.near, strict=True):
            X, Y = gram.points[leaf], gram.points[near]
            of = derivatives_of_difference(gram.kernel, X, Y, gram.sums)
            total, on_right = np.zeros((len(X), len(Y))), (signs * weights)[:, near]
            for a, left in zip(gram.orders, weights[:, leaf], strict=True):
                if np.any(left):
                    part = sum(
                        of[add(a, b)] * right
                        for b, right in zip(gram.orders, on_right, strict=True)
                        if np.any(right)
                    )
                    total += left[:, None] * part
            self.blocks.append(total)

    def multiply(self, x):
        """The matrix times x (n,)."""
        gram = self.gram
        x = x[gram.order]
        values = np.sum(self.weights * gram.far(self.weights * x), axis=0)
        for leaf, near, block in zip(gram.leaves, gram.near, self.blocks, strict=True):
            values[leaf] += block @ x[near]
        result = np.empty_like(values)
        result[gram.order] = values
        return result


def add(a, b):
    """The sum of two multi-indices."""
    return tuple(i + j for i, j in zip(a, b, strict=True))


def sums_of(left, right):
    """{a + b: (a, b)} for multi-indices of two lists, a pair for each sum."""
    return {add(a, b): (a, b) for a in left for b in right}


def derivatives_of_difference(kernel, X, Y, sums):
    """{a: d^a g(x - y)} at all pairs (n, m) for a kernel g(x - y).

    The sums of multi-indices are those of :func:`sums_of`: no argument is
    differentiated more often than operators do it.
    """
    values = kernel.derivatives(X, Y, list(sums.values()))
    signs = [(-1) ** sum(b) for _, b in sums.values()]
    parts = zip(sums, values, signs, strict=True)
    return {a: value if sign > 0 else -value for a, value, sign in parts}


def metric_of(kernel, points):
    """Inverse length scales (d,) of a stationary kernel, from its curvature at zero.

    In a coordinate on which it does not depend, the inverse extent of the points.
    """
    d = points.shape[1]
    zero, units = np.zeros((1, d)), np.eye(d, dtype=int)
    curvature = [kernel.derivative(zero, zero, tuple(e), tuple(e))[0, 0] for e in units]
    roots = np.sqrt(np.array(curvature) / kernel.derivative(zero, zero)[0, 0])
    extent = np.ptp(points, axis=0)
    return np.where(roots > 0, roots, 1 / np.where(extent > 0, extent, 1.0))


def _lagrange(inside, n_nodes):
    """Products of Lagrange polynomials (n, n_nodes**d) at points of [-1, 1]^d."""
    k, nodes = np.arange(n_nodes), chebyshev.chebpts1(n_nodes)
    coefficients = np.cos(np.outer(k, np.arccos(nodes))) * (2 - (k == 0))[:, None]
    total = np.ones((len(inside), 1))
    for x in inside.T:
        values = chebyshev.chebvander(x, n_nodes - 1) @ (coefficients / n_nodes)
        total = (total[:, :, None] * values[:, None, :]).reshape(len(inside), -1)
    return total


def _grid(columns):
    return np.stack(np.meshgrid(*columns, indexing="ij"), axis=-1).reshape(
        -1, len(columns)
    )


def _keys(cells):
    """One integer for each cell, of at most three coordinates."""
    keys = np.zeros(len(cells), dtype=np.int64)
    for column in cells.T:
        keys = (keys << 21) + column + 4
    return keys


def _unique_rows(cells):
    _, first = np.unique(_keys(cells), return_index=True)
    return cells[first]


def _find(cells, wanted):
    """Positions of the wanted cells, which exist, among sorted ones."""
    return np.searchsorted(_keys(cells), _keys(wanted))


def _neighbours(cells, others, offset):
    """Positions of cells, and of those at an offset from them that exist."""
    keys, wanted = _keys(others), _keys(cells + offset)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found = np.flatnonzero(keys[places] == wanted)
    return found, places[found]

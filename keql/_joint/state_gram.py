"""Gram matrices of the operators of a state, and T U T^* of functions that share them.

Different states are independent: each contributes a part of its own.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas
from sklearn import get_config


@dataclass(frozen=True)
class StateGram:
    """Gram matrix of the operators of one state at K points.

    `members` (Q_s,) are the positions of these operators among all. If scikit-learn's
    working memory has room for the `whole` matrix (Q_s, K, Q_s, K), it is kept as one
    array, which BLAS reads fastest. If not, `whole` is None and `blocks` has the matrix
    (K, K) of operators q and r <= q; others are transposes of these.
    """

    members: np.ndarray
    whole: np.ndarray | None = None
    blocks: dict | None = None

    @classmethod
    def computed(cls, members, n_points, compute):
        """That of some operators; `compute(blocks)` fills those of q and r <= q."""
        n = len(members)
        places = [(q, r) for q in range(n) for r in range(q + 1)]
        if 8 * (n * n_points) ** 2 > get_config()["working_memory"] * 2**20:
            blocks = {place: np.empty((n_points, n_points)) for place in places}
            compute(blocks)
            return cls(members, blocks=blocks)
        whole = np.empty((n, n_points, n, n_points))
        compute({(q, r): whole[q, :, r] for q, r in places})
        for q, r in places:
            if q > r:
                whole[r, :, q] = whole[q, :, r].T
        return cls(members, whole)

    def block(self, q, r):
        """The matrix (K, K) of the operators q and r of the state."""
        if self.whole is not None:
            return self.whole[q, :, r]
        return self.blocks[q, r] if q >= r else self.blocks[r, q].T

    def entries(self, left, rows, right, columns):
        """Those (Q_l, n, Q_r, m) of two ranges of operators, at two sets of points.

        Points are slices or positions. What can be is a view of the matrix.
        """
        if self.whole is not None:
            part = self.whole[left.start : left.stop, rows]
            return part[:, :, right.start : right.stop, columns]
        blocks = [
            [_entries(self.block(q, r), rows, columns) for r in right] for q in left
        ]
        return np.array(blocks).transpose(0, 2, 1, 3)

    def multiply(self, c):
        """The matrix times coefficients (Q_s, K, ...)."""
        if self.whole is None:
            return self._multiply_blocks(c)
        size = c.shape[0] * c.shape[1]
        matrix, columns = self.whole.reshape(size, size), c.reshape(size, -1)
        if columns.shape[1] != 1:
            return np.reshape(matrix @ columns, c.shape)
        # Of a symmetric matrix only one triangle is read.
        return blas.dsymv(1.0, matrix.T, columns[:, 0], lower=0).reshape(c.shape)

    def _multiply_blocks(self, c):
        total = np.zeros(c.shape)
        for (q, r), block in self.blocks.items():
            total[q] += block @ c[r]
            if q > r:
                total[r] += block.T @ c[q]
        return total

    def variances(self):
        """The diagonal, of shape (Q_s, K)."""
        return np.stack([np.diag(self.block(q, q)) for q in range(len(self.members))])

    def at(self, rows):
        """That at some of the points."""

        def compute(blocks):
            for place, block in blocks.items():
                block[:] = self.block(*place)[np.ix_(rows, rows)]

        return StateGram.computed(self.members, len(rows), compute)


def add_to_all(blocks, own, slopes, left, right, first=False, n_entries=2**17):
    """What :func:`add_block` adds for one function, for several at once.

    A row of the Gram matrix is multiplied by the slopes of all functions. Products are
    made of so many rows that they have about `n_entries`.
    """
    (left_rows, left_points), (right_rows, right_points) = left, right
    on_left = np.stack([each[own.members, left_rows] for each in slopes])
    on_right = np.stack([each[own.members, right_rows] for each in slopes], axis=1)
    operators = range(len(own.members))
    n_rows = max(1, n_entries // max(1, on_right.size))
    for rows, columns in _strips(blocks[0].shape, n_rows, left is right):
        places = _part_of(left_points, rows), _part_of(right_points, columns)
        entries = own.entries(operators, places[0], operators, places[1])
        factors = on_left[:, :, rows].transpose(2, 0, 1)[:, None]
        products = np.matmul(factors, entries.transpose(1, 2, 0, 3))
        part = np.einsum("irmj,rmj->imj", products, on_right[:, :, columns])
        for m, H in enumerate(blocks):
            if first:
                H[rows, columns] = part[:, m]
            else:
                H[rows, columns] += part[:, m]


def add_block(H, own, slopes, left, right, first=False, n_rows=32):
    """Add what one state contributes to T U T^* for two equations, in H (R_e, R_f).

    `left` and `right` are the rows and the points of the equations; the `first` state
    is written where nothing is yet. Assembled `n_rows` rows at a time, which stay in
    the cache. For one equation and itself only the upper triangle is.
    """
    (left_rows, left_points), (right_rows, right_points) = left, right
    on_left, on_right = slopes[own.members, left_rows], slopes[own.members, right_rows]
    used_left, used_right = _used(on_left), _used(on_right)
    if first and not (used_left and used_right):
        H[:] = 0.0
    if not used_left or not used_right:
        return
    if own.whole is None and left is right and isinstance(left_points, slice):
        _add_symmetric(H, own, on_left, left_points.start, first)
        return
    on_left, on_right = on_left[used_left], on_right[used_right]
    for rows, columns in _strips(H.shape, n_rows, left is right):
        places = _part_of(left_points, rows), _part_of(right_points, columns)
        entries = own.entries(used_left, places[0], used_right, places[1])
        factors = on_left[:, rows].T[:, None, None, :]
        products = np.matmul(factors, entries.transpose(1, 2, 0, 3))[:, :, 0]
        weights, here = on_right[:, columns], H[rows, columns]
        if first:
            np.einsum("irj,rj->ij", products, weights, out=here)
        else:
            here += np.einsum("irj,rj->ij", products, weights)


def _add_symmetric(H, own, slopes, start, first, n_rows=16):
    """What :func:`add_block` adds for an equation and itself, from separate matrices.

    These are U_qr of operators q >= r at all points, of which the equation has those
    from `start` on. Each is read once, by rows: where q > r, what it gives below the
    diagonal of H is added above it.
    """
    places, n_operators = slice(start, start + len(H)), len(slopes)
    for rows, columns in _strips(H.shape, n_rows, symmetric=True):
        points, left = _part_of(places, rows), slopes[:, rows, None]
        here = H[rows, columns]
        if first:
            here[:] = 0.0
        for q in range(n_operators):
            part = own.blocks[q, q][points, _part_of(places, columns)] * left[q]
            part *= slopes[q, columns]
            here += part
        mixed = np.zeros((len(here), len(H)))
        for r in range(n_operators - 1):
            part = sum(
                own.blocks[q, r][points, places] * left[q]
                for q in range(r + 1, n_operators)
            )
            part *= slopes[r]
            mixed += part
        here += mixed[:, columns]
        H[: rows.stop, rows] += mixed[:, : rows.stop].T


def _used(slopes):
    """The range of operators from the first to the last with a slope."""
    used = np.flatnonzero(np.any(slopes != 0, axis=1))
    return range(used[0], used[-1] + 1) if len(used) else range(0)


def _strips(shape, n_rows, symmetric):
    """Slices of rows and columns of a matrix, `n_rows` at a time.

    Of a symmetric one columns from the diagonal on.
    """
    for start in range(0, shape[0], n_rows):
        rows = slice(start, min(start + n_rows, shape[0]))
        yield rows, slice(start if symmetric else 0, shape[1])


def _part_of(points, rows):
    """Positions of points in a slice of the rows of an equation."""
    if not isinstance(points, slice):
        return points[rows]
    return slice(points.start + rows.start, points.start + rows.stop)


def _entries(values, rows, columns):
    """Entries of a matrix (K, K) at rows and columns, positions or slices."""
    if isinstance(rows, slice) or isinstance(columns, slice):
        return values[rows][:, columns]
    return values[np.ix_(rows, columns)]

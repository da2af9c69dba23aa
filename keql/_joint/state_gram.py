"""Gram matrices of the operators of a state, and T U T^* of functions that share them.

Different states are independent: each contributes a part of its own.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from sklearn import get_config


@dataclass(frozen=True)
class StateGram:
    """Gram matrix of the operators of one state at K points.

    `members` (Q_s,) are the positions of these operators among all, and `blocks` has
    the matrix (K, K) of operators q and r <= q; others are transposes of these.
    """

    members: np.ndarray
    blocks: dict

    def block(self, q, r):
        """The matrix (K, K) of the operators q and r of the state."""
        return self.blocks[q, r] if q >= r else self.blocks[r, q].T

    def multiply(self, c):
        """The matrix times coefficients (Q_s, K, ...)."""
        total = np.zeros(c.shape)
        for (q, r), block in self.blocks.items():
            total[q] += block @ c[r]
            if q > r:
                total[r] += block.T @ c[q]
        return total

    def variances(self):
        """The diagonal, of shape (Q_s, K)."""
        return np.stack([np.diag(self.blocks[q, q]) for q in range(len(self.members))])

    @cached_property
    def by_point(self):
        """A copy (K, Q_s, Q_s, K): of each point all operators, those of all points."""
        n, n_points = len(self.members), len(self.blocks[0, 0])
        whole = np.empty((n_points, n, n, n_points))
        for q, r in product(range(n), repeat=2):
            whole[:, q, r] = self.block(q, r)
        return whole

    @property
    def may_be_copied(self):
        """Whether scikit-learn's working memory has room for a copy of all of it."""
        n_bytes = 8 * len(self.members) ** 2 * self.blocks[0, 0].size
        return n_bytes <= get_config()["working_memory"] * 2**20

    def at(self, rows):
        """That at some of the points."""
        places = np.ix_(rows, rows)
        blocks = {place: block[places] for place, block in self.blocks.items()}
        return StateGram(self.members, blocks)


def add_to_all(blocks, own, slopes, left, right):
    """What :func:`add_block` adds for one function, for several at once.

    A row of the Gram matrix is multiplied by the slopes of all functions.
    """
    (left_rows, left_points), (right_rows, right_points) = left, right
    on_left = np.stack([each[own.members, left_rows] for each in slopes], axis=-1)
    on_right = np.stack([each[own.members, right_rows] for each in slopes])
    shape, rows = on_right.shape, own.by_point[left_points]
    total = np.empty((len(rows), len(slopes), shape[2]))
    for i, entries in enumerate(rows):
        used = entries[:, :, right_points].reshape(shape[1], -1)
        products = (on_left[:, i].T @ used).reshape(shape)
        products *= on_right
        np.add.reduce(products, axis=1, out=total[i])
    for m, H in enumerate(blocks):
        H += total[:, m]


def add_block(H, own, slopes, left, right, n_rows=96):
    """Add what one state contributes to T U T^* for two equations, in H (R_e, R_f).

    `left` and `right` are the rows and the points of the equations. Assembled `n_rows`
    rows at a time, which stay in the cache. For one equation and itself only the lower
    triangle is.
    """
    (left_rows, left_points), (right_rows, right_points) = left, right
    on_left, on_right = slopes[own.members, left_rows], slopes[own.members, right_rows]
    used_left, used_right = (
        np.flatnonzero(np.any(own_slopes != 0, axis=1))
        for own_slopes in (on_left, on_right)
    )
    for start in range(0, len(H), n_rows):
        rows = slice(start, min(start + n_rows, len(H)))
        columns = slice(0, rows.stop if left is right else H.shape[1])
        part = H[rows, columns]
        inner, term = np.empty(part.shape), np.empty(part.shape)
        places = _part_of(left_points, rows), _part_of(right_points, columns)
        for q in used_left:
            inner[:] = 0.0
            for other in used_right:
                entries = _entries(own.block(q, other), *places)
                inner += np.multiply(entries, on_right[other, columns], out=term)
            part += np.multiply(inner, on_left[q, rows, None], out=term)


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

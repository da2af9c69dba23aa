"""A sparse inverse Cholesky factor of the covariance of many values at points.

Values at points that come coarse to fine are nearly independent of all that came before
given the nearest of these (the screening effect), so that the columns of the inverse
Cholesky factor have few entries that count. Of all factors with the entries of m
neighbours before each value, the nearest to the truth in the Kullback-Leibler
divergence has columns from small dense factorisations, one for each value (Schaefer,
Katzfuss and Owhadi, "Sparse Cholesky factorization by Kullback-Leibler minimization",
SIAM J. Sci. Comput. 43, 2021).
"""

import numpy as np
from scipy import sparse
from scipy.linalg import lapack
from scipy.spatial import cKDTree

from keql._numerics.linalg import cholesky, solve_lower


def coarse_to_fine(points, n_levels=40):
    """An order of points (n, d) in which each part covers the domain evenly.

    First come points that are nearest to the centres of large cells, one for each cell,
    then those for cells of half the size that have none yet, and so on, at most
    `n_levels` times. Within a size of cells the order is mixed. Only the points decide,
    not how they were sorted; a point that occurs again comes last.
    """
    lower, side = points.min(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
    scaled = (points - lower) / side
    _, rest = np.unique(points, axis=0, return_index=True)
    mix, order = np.random.RandomState(0), rest[:0]
    for level in range(n_levels):
        candidates = np.concatenate([order, rest])
        cells = np.floor(scaled[candidates] * 2**level)
        _, keys = np.unique(cells, axis=0, return_inverse=True)
        keys = keys.ravel()
        away = np.abs(scaled[candidates] * 2**level - cells - 0.5).max(axis=1)
        away[: len(order)] = -1.0  # A cell that has a point needs no other.
        sequence = np.lexsort([away, keys])
        first = sequence[np.diff(keys[sequence], prepend=-1) > 0]
        new = first[first >= len(order)]
        rest = np.delete(rest, new - len(order))
        order = np.concatenate([order, candidates[mix.permutation(np.sort(new))]])
        if not rest.size:
            break
    order = np.concatenate([order, rest])
    return np.concatenate([order, np.setdiff1d(np.arange(len(points)), order)])


def nearest_before(points, m, growth=1.3, surplus=2.0):
    """The m nearest points before each of them: (n, m), filled up with -1 in front.

    Searched are trees of the first points, each `growth` times as many as the one
    before, for `surplus` times as many as wanted, as some of these come later.
    """
    n, stop = len(points), min(len(points), m + 1)
    nearest = np.full((n, m), -1)
    for i in range(stop):
        nearest[i, m - i :] = np.arange(i)
    while stop < n:
        end = min(n, int(growth * stop) + 1)
        k = min(end, int(surplus * m) + 1)
        _, found = cKDTree(points[:end]).query(points[stop:end], k=k)
        is_before = found < np.arange(stop, end)[:, None]
        # Of those before, which come sorted by distance, the first m are kept.
        kept = is_before & (np.cumsum(is_before, axis=1) <= m)
        rows, columns = np.nonzero(kept)
        place = m - 1 - (np.cumsum(kept, axis=1)[rows, columns] - 1)
        nearest[stop + rows, place] = found[rows, columns]
        stop = end
    return nearest


def last_column(A):
    """The last column of the inverse transposed Cholesky factor of a matrix (k, k).

    Conditioned on the others, the last value has the coefficients of this column.
    """
    unit = np.zeros(len(A))
    unit[-1] = 1.0
    lower, info = lapack.dpotrf(A, lower=1)
    if info != 0:
        return solve_lower(cholesky(A), unit, transposed=True)
    return lapack.dtrtrs(lower, unit, lower=1, trans=1)[0]


class InverseFactor:
    """A sparse upper triangular U with U U^T the inverse of a covariance, nearly.

    Row and column i belong to the value at position `order[i]`. The entries are
    collected column by column: `neighbours` (n, m), with -1 where there is none, and
    `columns` (n, m + 1), the last one of which belongs to the value itself.
    """

    def __init__(self, order, neighbours, columns):
        n = len(order)
        rows = np.column_stack([neighbours, np.arange(n)])
        own = np.repeat(np.arange(n), rows.shape[1])
        kept = rows.ravel() >= 0
        entries = columns.ravel()[kept], (rows.ravel()[kept], own[kept])
        self.order, self.upper = order, sparse.csc_array(entries, shape=(n, n))
        self.transposed = sparse.csr_array(self.upper).T
        self.diagonal = columns[:, -1]

    def solve(self, b):
        """The inverse covariance, nearly, times b (n,)."""
        x = np.empty_like(b)
        x[self.order] = self.upper @ (self.upper.T @ b[self.order])
        return x

    @property
    def half_log_determinant(self):
        """Half the logarithm of the determinant of the covariance."""
        return -float(np.sum(np.log(self.diagonal)))


def conjugate_gradients(product, precondition, b, start, is_small, max_iter):
    """Solve A x = b by preconditioned conjugate gradients.

    `product` and `precondition` multiply by A, which is positive definite, and nearly
    by its inverse. It begins at `start` (n,), and ends when `is_small` says so of the
    residual (n,), or after `max_iter` iterations.

    Returns x (n,), the residual there and the number of iterations.
    """
    x, r, n_iter = start.copy(), b - product(start), 0
    z = precondition(r)
    p, square = z, r @ z
    while not is_small(r) and n_iter < max_iter:
        n_iter += 1
        Ap = product(p)
        step = square / (p @ Ap)
        x += step * p
        r -= step * Ap
        z = precondition(r)
        square, before = r @ z, square
        p = z + (square / before) * p
    return x, r, n_iter

"""Many observations of a function in as many rows as there are unknowns.

Observations y = A x + noise of one noise level, in units of the root of their weights,
are rotated by A = Q R: the first rows of Q^T y have all that is said of x, and what is
left of y is one number. The others are noise alone, and are only counted. Densities of
the observations are then exactly what they are, and take the time of few (Golub and Van
Loan, "Matrix computations", 2013, section 5.3).
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg


@dataclass(frozen=True)
class CondensedRows:
    """Observations of a function that are linear in unknowns, or fewer rotated ones.

    matrix : ndarray of shape (r, 1 + q). The target, and the effects of q unknowns.
    levels : ndarray of shape (r,). Which noise level each has, by position.
    weights : ndarray of shape (r,). Noise variances are divided by these.
    n_idle : ndarray of shape (J,). Rows of each level that were left out: zeros.
    log_weights : float. Half the sum of the logarithms of the weights that were taken
        into the rows.
    """

    matrix: np.ndarray
    levels: np.ndarray
    weights: np.ndarray
    n_idle: np.ndarray
    log_weights: float = 0.0

    @property
    def is_rotated(self):
        """Whether rows are no single observations."""
        return bool(np.any(self.n_idle))

    def columns(self, kept):
        """The same with some of the columns."""
        own = self.matrix[:, kept], self.levels, self.weights
        return CondensedRows(*own, self.n_idle, self.log_weights)

    def log_volume(self, noise):
        """Part of the log density that the rows do not have, with a minus sign.

        noise : ndarray of shape (J,). Standard deviations, in units of the values.
        """
        left = self.n_idle > 0  # others may have no noise
        return float(self.n_idle[left] @ np.log(noise[left])) - self.log_weights


def condensed(matrix, levels, weights, n_levels, times=2):
    """The CondensedRows of observations of a function.

    matrix, levels, weights : as those of :class:`CondensedRows`, of N observations.
    n_levels : int. J, how many noise levels there are.
    times : int, default=2. They are condensed if there are at least so many times as
        many of a level as columns.
    """
    counts = np.bincount(levels, minlength=n_levels)
    n_columns, n_idle = matrix.shape[1], np.zeros(n_levels, dtype=int)
    if not np.any(counts >= times * n_columns):
        return CondensedRows(matrix, levels, weights, n_idle)
    parts, kept, log_weights = [], [], 0.0
    for level in np.flatnonzero(counts):
        own = levels == level
        rows, log_weights = matrix[own], log_weights + 0.5 * np.log(weights[own]).sum()
        rows = rows * np.sqrt(weights[own])[:, None]
        if len(rows) >= times * n_columns:
            rows = linalg.qr(rows, mode="r", overwrite_a=True)[0][:n_columns]
        parts.append(rows)
        kept.append(np.full(len(rows), level))
        n_idle[level] = counts[level] - len(rows)
    rows = np.vstack(parts)
    ones = np.ones(len(rows))
    return CondensedRows(rows, np.concatenate(kept), ones, n_idle, log_weights)

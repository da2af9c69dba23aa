"""Evidence of sets of columns in a linear regression, and of all their neighbours."""

import numpy as np
from scipy import linalg

from keql._numerics.linalg import cholesky


class SubsetEvidence:
    """Log evidence of sets of columns of a whitened regression, with their odds.

    The coefficients of the chosen columns are normal with the precision of their rows
    and columns of `prior`; those of all others are zero. Evidence is up to a constant.

    effects : ndarray of shape (n, q). Columns, in units of the noise.
    target : ndarray of shape (n,). What they explain.
    prior : ndarray of shape (q, q). Prior precision of the coefficients.
    odds : callable. Log prior probability of a set of columns; with `more`, those (q,)
        of the set with each of the columns added, and `less`, with each taken out.
    levels : pair of float. The noise, and with it the scale of the coefficients, is of
        maximum likelihood for each set, between so many times what it is taken for:
        that of a regression with many columns is too low for one with few.
    n : int. The number of free observations in the target; None: n.
    """

    def __init__(self, effects, target, prior, odds, levels=(1.0, 1.0), n=None):
        self.odds, self.levels = odds, levels
        self.n = len(target) if n is None else n
        self.square = target @ target
        # Coefficients are in units of their prior standard deviations.
        self.scale = np.sqrt(np.diag(prior))
        self.prior = prior / self.scale / self.scale[:, None]
        effects = effects / self.scale
        self.precision = self.prior + effects.T @ effects
        self.right = effects.T @ target

    def __call__(self, kept):
        """The log evidence of a set."""
        L, z = self._solve(kept)
        volume = _half_log_volume(L, self._factor(self.prior, kept))
        return self._fit(self.square - z @ z) - volume + self.odds(kept)

    def values(self, kept):
        """The most probable coefficients of a set."""
        L, z = self._solve(kept)
        values = linalg.solve_triangular(L, z, lower=True, trans="T")
        return values / self.scale[kept]

    def costs(self, kept):
        """By how much the loss rises without each column, all others kept."""
        return self._costs(*self._solve(kept))[0]

    def less(self, kept):
        """The log evidence (k,) of a set without each of its columns."""
        L, z = self._solve(kept)
        costs, variances = self._costs(L, z)
        prior = self._factor(self.prior, kept)
        volume = _half_log_volume(L, prior)
        volume = volume + 0.5 * np.log(variances / _inverse_squares(prior))
        fit = self._fit(self.square - z @ z + 2 * costs)
        return fit - volume + self.odds.less(kept)[kept]

    def more(self, kept, added):
        """The log evidence (m,) of a set with each of other columns."""
        L, z = self._solve(kept)
        prior = self._factor(self.prior, kept)
        rest, V = _schur(self.precision, L, kept, added)
        of_prior, _ = _schur(self.prior, prior, kept, added)
        gain = (self.right[added] - V.T @ z) ** 2 / rest
        volume = _half_log_volume(L, prior) + 0.5 * np.log(rest / of_prior)
        return (
            self._fit(self.square - z @ z - gain) - volume + self.odds.more(kept)[added]
        )

    def neighbours(self, kept, added):
        """The log evidence of all sets that differ by one column, or by an exchange.

        An array (k + 1, m + 1) for the k columns kept and m others that may be added:
        in row i is what the i-th is taken out of, in column j what the j-th is added
        to; the last ones are those of no column, their entry the set itself.
        """
        table = np.empty((len(kept) + 1, len(added) + 1))
        table[:-1, -1], table[-1, -1] = self.less(kept), self(kept)
        table[-1, :-1] = self.more(kept, added)
        for i in range(len(kept)):
            table[i, :-1] = self.more(kept[:i] + kept[i + 1 :], added)
        return table

    def _costs(self, L, z):
        """Rises of the loss without each column, and their posterior variances."""
        values = linalg.solve_triangular(L, z, lower=True, trans="T")
        variances = _inverse_squares(L)
        return 0.5 * values**2 / variances, variances

    def _fit(self, square):
        """Log likelihood of squared residuals, with the noise that suits them."""
        level = np.clip(square / self.n, *np.square(self.levels))
        return -0.5 * (self.n * np.log(level) + square / level)

    def _solve(self, kept):
        """Factor of the posterior precision, and the target in its columns."""
        L = self._factor(self.precision, kept)
        return L, linalg.solve_triangular(L, self.right[kept], lower=True)

    def _factor(self, matrix, kept):
        return cholesky(matrix[np.ix_(kept, kept)])


def _half_log_volume(L, prior):
    """Half the log ratio of the determinants of posterior and prior precisions."""
    return np.sum(np.log(np.diag(L))) - np.sum(np.log(np.diag(prior)))


def _inverse_squares(L):
    """The diagonal of the inverse of L L^T."""
    inverse = linalg.solve_triangular(L, np.eye(len(L)), lower=True)
    return np.sum(inverse**2, axis=0)


def _schur(matrix, L, kept, added):
    """What each added row has of its diagonal element beside those kept, and V.

    L L^T is the matrix in the rows kept, and L V in the added columns.
    """
    V = linalg.solve_triangular(L, matrix[np.ix_(kept, added)], lower=True)
    diagonal = np.diag(matrix)[added]
    least = np.finfo(float).eps * diagonal
    return np.maximum(diagonal - np.sum(V**2, axis=0), least), V

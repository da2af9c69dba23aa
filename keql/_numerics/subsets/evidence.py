"""The evidence of sets of columns in a linear regression."""

import numpy as np

from keql._numerics.linalg import (
    cholesky,
    largest_factor,
    solve_lower,
    solve_lower_of_each,
)
from keql._numerics.subsets.factors import cholesky_of_each, log_volume, schur


class SubsetEvidence:
    """Log evidence of sets of columns of a whitened regression, with their odds.

    The coefficients of the chosen columns are normal with the precision of their rows
    and columns of `prior`; those of all others are zero. Evidence is up to a constant.

    effects : ndarray of shape (n, q). Columns, in units of the noise.
    target : ndarray of shape (n,). What they explain.
    prior : ndarray of shape (q, q). Prior precision of the coefficients.
    odds : callable. Log prior probability of a set of columns; with `more`, those (q,)
        of the set with each of the columns added, and `many`, those (m,) of sets of one
        size, an array (m, k).
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
        sizes = np.sqrt(np.diag(prior))
        self.prior = prior / sizes / sizes[:, None]
        self.scale = scales_of(sizes, effects)
        effects = effects / self.scale
        self.precision = self.prior + effects.T @ effects
        self.right = effects.T @ target
        self._factors = {}

    def __call__(self, kept):
        """The log evidence of a set."""
        L, z = self._solve(kept)
        volume = log_volume(L) - log_volume(self._factor("prior", kept))
        return self._fit(self.square - z @ z) - volume + self.odds(kept)

    def many(self, sets):
        """The log evidence (m,) of sets of one size, an array (m, k).

        Columns that depend on each other are no set: -inf.
        """
        L, is_set = self._factor_of_each("precision", sets)
        prior, is_possible = self._factor_of_each("prior", sets)
        z = solve_lower_of_each(L, self.right[sets])
        fit = self._fit(self.square - np.sum(z**2, axis=1))
        values = fit - log_volume(L) + log_volume(prior) + self.odds.many(sets)
        return np.where(is_set & is_possible, values, -np.inf)

    def values(self, kept):
        """The most probable coefficients of a set."""
        L, z = self._solve(kept)
        values = solve_lower(L, z, transposed=True)
        return values / self.scale[kept]

    def more(self, kept, added):
        """The log evidence (m,) of a set with each of other columns."""
        L, z = self._solve(kept)
        prior = self._factor("prior", kept)
        rest, V = schur(self.precision, L, kept, added)
        of_prior, _ = schur(self.prior, prior, kept, added)
        gain = (self.right[added] - V.T @ z) ** 2 / rest
        volume = log_volume(L) - log_volume(prior) + 0.5 * np.log(rest / of_prior)
        fit = self._fit(self.square - z @ z - gain)
        return fit - volume + self.odds.more(kept)[added]

    def _fit(self, square):
        return log_likelihood_of(square, self.n, self.levels)

    def _solve(self, kept):
        """Factor of the posterior precision, and the target in its columns."""
        L = self._factor("precision", kept)
        return L, solve_lower(L, self.right[kept])

    def _factor_of_each(self, name, sets):
        """The Cholesky factors of a matrix in the columns of sets; which have one."""
        matrix = getattr(self, name)
        blocks = matrix[sets[:, :, None], sets[:, None, :]]
        return cholesky_of_each(blocks, np.diag(matrix)[sets])

    def _factor(self, name, kept, most=64):
        """The Cholesky factor of a matrix in the columns of a set, kept for a while."""
        key = name, *kept
        if key not in self._factors:
            if len(self._factors) >= most:
                self._factors.clear()
            self._factors[key] = cholesky(getattr(self, name)[np.ix_(kept, kept)])
        return self._factors[key]


def linear_evidence(effects, target, root):
    """Log evidence of a whitened regression on all of its columns, up to a constant.

    effects, target : ndarray of shape (n, k), (n,). In units of the noise.
    root : ndarray of shape (k, k). Its square R^T R is the prior precision.
    """
    rows = np.vstack([effects, root])
    right = np.concatenate([target, np.zeros(len(root))])
    Q, R = np.linalg.qr(rows)
    rest = right - Q @ (Q.T @ right)
    volume = np.sum(np.log(np.abs(np.diag(R)))) - np.linalg.slogdet(root)[1]
    return -0.5 * float(rest @ rest) - float(volume)


def scales_of(sizes, effects):
    """By what columns are divided: their sizes (..., q), or more.

    Products of four columns have to be numbers: those of diverging trajectories count
    as smaller, which leaves them no less absurd.
    """
    largest = np.max(np.abs(effects), axis=0, initial=0.0)
    return np.maximum(sizes, largest / largest_factor())


def log_likelihood_of(square, n, levels):
    """That of squared residuals of n observations, with the noise that suits them.

    Rounding errors may leave less than nothing of the squares, where columns depend on
    each other: that is no better than nothing.
    """
    square = np.maximum(square, 0.0)
    level = np.clip(square / n, *np.square(levels))
    return -0.5 * (n * np.log(level) + square / level)

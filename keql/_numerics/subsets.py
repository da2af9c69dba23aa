"""Sets of columns in a linear regression: prior odds, evidence, neighbours."""

from itertools import combinations
from math import comb

import numpy as np
from scipy.special import betaln

from keql._numerics.linalg import (
    cholesky,
    inverse_lower,
    largest_factor,
    solve_lower,
    solve_lower_of_each,
)

# Exponentials of more are no numbers: as a bound of a logarithm it is none.
LOG_OF_LARGEST = float(np.log(np.finfo(float).max))


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
        volume = _half_log_volume(L, self._factor("prior", kept))
        return self._fit(self.square - z @ z) - volume + self.odds(kept)

    def values(self, kept):
        """The most probable coefficients of a set."""
        L, z = self._solve(kept)
        values = solve_lower(L, z, transposed=True)
        return values / self.scale[kept]

    def more(self, kept, added):
        """The log evidence (m,) of a set with each of other columns."""
        L, z = self._solve(kept)
        prior = self._factor("prior", kept)
        rest, V = _schur(self.precision, L, kept, added)
        of_prior, _ = _schur(self.prior, prior, kept, added)
        gain = (self.right[added] - V.T @ z) ** 2 / rest
        volume = _half_log_volume(L, prior) + 0.5 * np.log(rest / of_prior)
        fit = self._fit(self.square - z @ z - gain)
        return fit - volume + self.odds.more(kept)[added]

    def _fit(self, square):
        return log_likelihood_of(square, self.n, self.levels)

    def _solve(self, kept):
        """Factor of the posterior precision, and the target in its columns."""
        L = self._factor("precision", kept)
        return L, solve_lower(L, self.right[kept])

    def _factor(self, name, kept, most=64):
        """The Cholesky factor of a matrix in the columns of a set, kept for a while."""
        key = name, *kept
        if key not in self._factors:
            if len(self._factors) >= most:
                self._factors.clear()
            self._factors[key] = cholesky(getattr(self, name)[np.ix_(kept, kept)])
        return self._factors[key]


class HighestEvidence:
    """The highest of several evidences of each set, which differ in their priors.

    The arguments are those of :class:`SubsetEvidence`, but for the `precisions` (g, q):
    coefficients are independent of each other before data are seen, and have those of
    one of g priors. What is found of a set is found for all priors at once.
    """

    def __init__(self, effects, target, precisions, odds, levels=(1.0, 1.0), n=None):
        self.odds, self.levels = odds, levels
        self.n = len(target) if n is None else n
        self.square, self._factors = target @ target, {}
        # Priors are unit matrices: coefficients are in units of their deviations.
        self.scale = scales_of(np.sqrt(precisions), effects)
        scaled = [effects / scale for scale in self.scale]
        self.precision = np.array([own.T @ own for own in scaled])
        np.einsum("gii->gi", self.precision)[:] += 1.0
        self.right = np.array([own.T @ target for own in scaled])

    def __call__(self, kept):
        """The log evidence of a set."""
        return float(np.max(self._of_each(kept)) + self.odds(kept))

    def many(self, sets, rest=()):
        """The log evidence (m,) of many sets, each with the columns of `rest` as well.

        These are eliminated first, so that the sets' own columns are all that is
        factorised for each. Columns that depend on each other are no set: -inf.
        """
        scores, rest = np.empty(len(sets)), list(rest)
        sizes, own = np.array([*map(len, sets)]), sorted({i for s in sets for i in s})
        parts = [self._eliminated(g, rest, own) for g in range(len(self.right))]
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            kept = np.array([sets[i] for i in rows], dtype=int)
            values = [_values_of_sets(kept, own, *part, self._fit) for part in parts]
            everywhere = np.tile(np.array(rest, dtype=int), (len(rows), 1))
            odds = self.odds.many(np.hstack([everywhere, kept]))
            scores[rows] = np.max(values, axis=0) + odds
        return scores

    def _eliminated(self, g, rest, own):
        """What is left for one prior in columns `own` beside those of `rest`.

        The diagonal of the precision of all columns, its rest, the right-hand side, the
        square that is not explained, and the log volume of `rest`.
        """
        L, z = (each[g] for each in self._solve(rest))
        precision = self.precision[g]
        left, V = _eliminated(precision, L, rest, own)
        right = self.right[g][own] - V.T @ z
        volume = np.sum(np.log(np.diag(L)))
        return np.diag(precision), left, right, self.square - z @ z, volume

    def less(self, kept):
        """The log evidence (k,) of a set without each of its columns."""
        L, z = self._solve(kept)
        costs, variances = zip(*map(_costs, L, z), strict=True)
        costs, variances = np.array(costs), np.array(variances)
        volume = _log_volume(L)[:, None] + 0.5 * np.log(variances)
        square = self.square - np.sum(z**2, axis=1)
        fit = self._fit(square[:, None] + 2 * costs)
        return np.max(fit - volume, axis=0) + self.odds.less(kept)[kept]

    def neighbours(self, kept, added):
        """The log evidence of all sets that differ by one column, or by an exchange.

        An array (k + 1, m + 1) for the k columns kept and m others that may be added:
        in row i is what the i-th is taken out of, in column j what the j-th is added
        to; the last ones are those of no column, their entry the set itself.
        """
        table = np.empty((len(kept) + 1, len(added) + 1))
        table[:-1, -1], table[-1, -1] = self.less(kept), self(kept)
        table[-1, :-1] = self.more(kept, added)
        if kept:
            table[:-1, :-1] = self._exchanged(kept, added)
        return table

    def _exchanged(self, kept, added):
        """The log evidence (k, m) of a set without each column, with each of others."""
        fewer = [kept[:i] + kept[i + 1 :] for i in range(len(kept))]
        rows, target = self.precision[:, kept], self.right[:, kept, None]
        cross = np.concatenate([rows[:, :, added], target], axis=2)
        diagonal = np.diagonal(self.precision, axis1=1, axis2=2)[:, added]
        nothing = np.zeros(len(diagonal))
        left = diagonal, self.right[:, added], nothing + self.square, nothing
        try:
            parts = [*_beside_all_but_one(rows[:, :, kept], cross, *left)]
        except np.linalg.LinAlgError:  # some need jitter
            return [self.more(own, added) for own in fewer]
        odds = [self.odds.more(own)[added] for own in fewer]
        return self._with_one(diagonal, *map(np.array, zip(*parts, strict=True))) + odds

    def more(self, kept, added):
        """The log evidence (m,) of a set with each of other columns."""
        L, z = self._solve(kept)
        V = np.array([*map(solve_lower, L, self.precision[:, kept][:, :, added])])
        diagonal = np.diagonal(self.precision, axis1=1, axis2=2)[:, added]
        rest = diagonal - np.sum(V**2, axis=1)
        along = self.right[:, added] - np.einsum("gkm,gk->gm", V, z)
        square = self.square - np.sum(z**2, axis=1)
        value = self._with_one(diagonal, rest, along, square, _log_volume(L))
        return value + self.odds.more(kept)[added]

    def _with_one(self, diagonal, rest, along, square, volume):
        """That without odds, from what is left as _beside_all_but_one has it."""
        rest = np.maximum(rest, np.finfo(float).eps * diagonal)
        fit = self._fit(square[..., None] - along**2 / rest)
        return np.max(fit - volume[..., None] - 0.5 * np.log(rest), axis=-2)

    def values(self, kept):
        """The most probable coefficients of a set."""
        L, z = self._solve(kept)
        best = np.argmax(self._of_each(kept))
        values = solve_lower(L[best], z[best], transposed=True)
        return values / self.scale[best][kept]

    def costs(self, kept):
        """By how much the loss rises without each column, all others kept."""
        L, z = self._solve(kept)
        best = np.argmax(self._of_each(kept))
        return _costs(L[best], z[best])[0]

    def _fit(self, square):
        return log_likelihood_of(square, self.n, self.levels)

    def _of_each(self, kept):
        """The log evidence (g,) of a set for each prior, without odds."""
        L, z = self._solve(kept)
        return self._fit(self.square - np.sum(z**2, axis=1)) - _log_volume(L)

    def _solve(self, kept, most=64):
        """Factors L of the posterior precisions, and L^-1 right for each."""
        key = tuple(kept)
        if key not in self._factors:
            if len(self._factors) >= most:
                self._factors.clear()
            kept = list(kept)
            matrices = self.precision[:, kept][:, :, kept]
            try:
                L = np.linalg.cholesky(matrices)
            except np.linalg.LinAlgError:  # some need jitter
                L = np.array([cholesky(own) for own in matrices])
            # An inverse would magnify errors where columns depend on each other.
            z = np.array([*map(solve_lower, L, self.right[:, kept])])
            self._factors[key] = L, z
        return self._factors[key]


def _beside_all_but_one(own, cross, rest, along, square, volume):
    """What is left of others beside all columns but one, for each of them in turn.

    Half of them are eliminated for all of the other half at once, and so on: most work
    is shared, and no inverse is needed, which would magnify errors.

    own, cross : ndarray of shape (g, k, k), (g, k, m + 1). The matrices of the columns,
        and their rows in others, the target last.
    rest, along : ndarray of shape (g, m). The diagonal of the others, and their target.
    square, volume : ndarray of shape (g,). What is left of its square, and log volumes.
    """
    size, n = own.shape[1], cross.shape[2]
    if size == 1:
        yield rest, along, square, volume
        return
    halves = slice(size // 2), slice(size // 2, size)
    for stays, goes in (halves, halves[::-1]):
        L = np.linalg.cholesky(own[:, goes, goes])
        right = np.concatenate([own[:, goes, stays], cross[:, goes]], axis=2)
        V = np.array([*map(solve_lower, L, right)])
        back, others, z = V[:, :, :-n], V[:, :, -n:-1], V[:, :, -1]
        changes = np.swapaxes(back, 1, 2) @ V
        yield from _beside_all_but_one(
            own[:, stays, stays] - changes[:, :, :-n],
            cross[:, stays] - changes[:, :, -n:],
            rest - np.sum(others**2, axis=1),
            along - np.einsum("gkm,gk->gm", others, z),
            square - np.sum(z**2, axis=1),
            volume + _log_volume(L),
        )


def _values_of_sets(kept, own, diagonal, left, right, square, volume, fit):
    """The log evidence (m,) of sets (m, k) of the columns `own`, without their odds.

    What :meth:`HighestEvidence.many` has found for one prior; -inf of columns that
    depend on each other.
    """
    at = np.searchsorted(own, kept)
    blocks = left[at[:, :, None], at[:, None, :]]
    factors, found = _cholesky_of_each(blocks, diagonal[kept])
    x = solve_lower_of_each(factors, right[at])
    values = fit(square - np.sum(x**2, axis=1)) - _log_volume(factors) - volume
    return np.where(found, values, -np.inf)


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


def small_subsets(members, sizes, most):
    """Subsets of members of rising sizes, as tuples, while there are few in all."""
    subsets, count = [], 0
    for size in sizes:
        count += comb(len(members), size)
        if count > most:
            break
        subsets += combinations(members, size)
    return subsets


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


def _half_log_volume(L, prior):
    """Half the log ratio of the determinants of posterior and prior precisions."""
    diagonals = (np.diagonal(factor, axis1=-2, axis2=-1) for factor in (L, prior))
    posterior, prior = (np.sum(np.log(each), axis=-1) for each in diagonals)
    return posterior - prior


def _costs(L, z):
    """Rises of the loss without each column, and their posterior variances."""
    values = solve_lower(L, z, transposed=True)
    variances = np.sum(inverse_lower(L) ** 2, axis=0)
    return 0.5 * values**2 / variances, variances


def _log_volume(L):
    """Half the log determinants (g,) of matrices with the factors L (g, k, k)."""
    return np.sum(np.log(np.diagonal(L, axis1=1, axis2=2)), axis=1)


def _schur(matrix, L, kept, added):
    """What each added row has of its diagonal element beside those kept, and V.

    L L^T is the matrix in the rows kept, and L V in the added columns.
    """
    V = solve_lower(L, matrix[np.ix_(kept, added)])
    diagonal = np.diag(matrix)[added]
    least = np.finfo(float).eps * diagonal
    return np.maximum(diagonal - np.sum(V**2, axis=0), least), V


def _eliminated(matrix, L, kept, others):
    """What is left of a matrix in other rows, those kept being eliminated, and V.

    L L^T is the matrix in the rows kept, and L V in the others' columns.
    """
    V = solve_lower(L, matrix[np.ix_(kept, others)])
    left = matrix[np.ix_(others, others)] - V.T @ V
    i = np.arange(len(others))
    least = np.finfo(float).eps * matrix[others, others]
    left[i, i] = np.maximum(left[i, i], least)
    return left, V


def _cholesky_of_each(matrices, diagonals, exponents=range(-15, -7)):
    """Lower factors of matrices (m, k, k), those that fail with jitter.

    And which (m,) have one; of the others it is that of the unit matrix. The jitter is
    in units of each of `diagonals` (m, k), as the sizes of columns may differ by far:
    those before other columns were eliminated, which is what rounding errors are
    relative to.
    """
    try:
        return np.linalg.cholesky(matrices), np.full(len(matrices), True)
    except np.linalg.LinAlgError:  # some of them
        left = np.arange(len(matrices))
    factors = np.tile(np.eye(matrices.shape[-1]), (len(matrices), 1, 1))
    for jitter in (0.0, *(10.0**k for k in exponents)):
        own = matrices[left]
        np.einsum("mii->mi", own)[:] += jitter * diagonals[left]
        found, is_found = _factors_of_definite(own)
        factors[left[is_found]] = found[is_found]
        left = left[~is_found]
        if not left.size:
            break
    return factors, ~np.isin(np.arange(len(matrices)), left)


def _factors_of_definite(matrices):
    """Lower factors (m, k, k), and which (m,) of the matrices are positive definite.

    Column by column for all matrices at once; those of the others end with zeros.
    """
    L, is_definite = np.zeros_like(matrices), np.full(len(matrices), True)
    for j in range(matrices.shape[-1]):
        known = np.einsum("mij,mj->mi", L[:, j:, :j], L[:, j, :j])
        column = matrices[:, j:, j] - known
        is_definite &= column[:, 0] > 0
        column = column[is_definite]
        L[is_definite, j:, j] = column / np.sqrt(column[:, :1])
    return L, is_definite


class TermOdds:
    """Log prior probabilities of sets of terms.

    kinds : ndarray of shape (q, ...). Of each of the q terms what it is, such as the
        equation and the degree; a negative one if the term is not chosen.

    Each of the n terms of one kind has the same probability p to be in an equation, and
    p, which is unknown, the density b (1 - p)^(b - 1) with b = 1 + n / m, so that of
    many terms m, `expected`, are in it, and of few less than half. Scott and Berger,
    "Bayes and empirical-Bayes multiplicity adjustment in the variable-selection
    problem", Annals of Statistics 38, 2010.
    """

    def __init__(self, kinds, expected=1.0):
        kinds = np.reshape(kinds, (len(kinds), -1))
        chosen = np.flatnonzero(np.all(kinds >= 0, axis=1))
        _, own = np.unique(kinds[chosen], axis=0, return_inverse=True)
        sizes = np.bincount(np.ravel(own))
        # Those that are not chosen are of the last kind, whose odds are zero.
        self.kind = np.full(len(kinds), len(sizes))
        self.kind[chosen] = np.ravel(own)
        # Odds by kind and number of terms, one more than there may be.
        counts = np.arange(max([len(kinds), *sizes]) + 2)
        self.table = np.zeros((len(sizes) + 1, len(counts)))
        for row, n in zip(self.table, sizes, strict=False):
            k, b = counts[: n + 1], 1.0 + n / expected
            row[: n + 1] = betaln(k + 1, n + b - k) - betaln(1, b)
            row[n + 1 :] = -np.inf

    def __call__(self, kept):
        """The odds of a set, a sequence of positions."""
        counts = self._counts(kept)
        return float(np.sum(self.table[np.arange(len(counts)), counts]))

    def many(self, sets):
        """The odds (m,) of sets of one size, an array (m, k)."""
        chosen = self.kind[sets]
        rows = zip(range(len(self.table)), self.table, strict=True)
        return sum(row[np.sum(chosen == kind, axis=1)] for kind, row in rows)

    def more(self, kept, added=slice(None)):
        """The odds (q,) of a set with each of the terms, or with some that it lacks."""
        return self._changed(kept, 1, added)

    def less(self, kept):
        """The odds (q,) of a set without each of the terms that it has."""
        return self._changed(kept, -1)

    def _counts(self, kept):
        return np.bincount(self.kind[list(kept)], minlength=len(self.table))

    def _changed(self, kept, by, of=slice(None)):
        counts = self._counts(kept)
        kinds = np.arange(len(counts))
        now = self.table[kinds, counts]
        change = self.table[kinds, np.maximum(counts + by, 0)] - now
        return float(np.sum(now)) + change[self.kind[of]]


class MixedOdds:
    """Log prior probabilities of sets of terms if one of several priors is true.

    odds : list of TermOdds. Which one is true is not known, each is as probable.
    """

    def __init__(self, odds):
        self.odds = odds

    def __call__(self, kept):
        """The odds of a set, a sequence of positions."""
        return float(self._mean([each(kept) for each in self.odds]))

    def many(self, sets):
        """The odds (m,) of sets of one size, an array (m, k)."""
        return self._mean([each.many(sets) for each in self.odds])

    def more(self, kept):
        """The odds (q,) of a set with each of the terms that it lacks."""
        return self._mean([each.more(kept) for each in self.odds])

    def less(self, kept):
        """The odds (q,) of a set without each of the terms that it has."""
        return self._mean([each.less(kept) for each in self.odds])

    def _mean(self, values):
        return np.logaddexp.reduce(values, axis=0) - np.log(len(self.odds))

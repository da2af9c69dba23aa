"""The highest evidence of sets of columns among several priors."""

import numpy as np

from keql._numerics.linalg import (
    cholesky,
    inverse_lower,
    solve_lower,
    solve_lower_of_each,
)
from keql._numerics.subsets.evidence import log_likelihood_of, scales_of
from keql._numerics.subsets.factors import cholesky_of_each, eliminated, log_volume


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
        left, V = eliminated(precision, L, rest, own)
        right = self.right[g][own] - V.T @ z
        volume = np.sum(np.log(np.diag(L)))
        return np.diag(precision), left, right, self.square - z @ z, volume

    def less(self, kept):
        """The log evidence (k,) of a set without each of its columns."""
        L, z = self._solve(kept)
        costs, variances = zip(*map(_costs, L, z), strict=True)
        costs, variances = np.array(costs), np.array(variances)
        volume = log_volume(L)[:, None] + 0.5 * np.log(variances)
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
        value = self._with_one(diagonal, rest, along, square, log_volume(L))
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
        return self._fit(self.square - np.sum(z**2, axis=1)) - log_volume(L)

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
            volume + log_volume(L),
        )


def _values_of_sets(kept, own, diagonal, left, right, square, volume, fit):
    """The log evidence (m,) of sets (m, k) of the columns `own`, without their odds.

    What :meth:`HighestEvidence.many` has found for one prior; -inf of columns that
    depend on each other.
    """
    at = np.searchsorted(own, kept)
    blocks = left[at[:, :, None], at[:, None, :]]
    factors, found = cholesky_of_each(blocks, diagonal[kept])
    x = solve_lower_of_each(factors, right[at])
    values = fit(square - np.sum(x**2, axis=1)) - log_volume(factors) - volume
    return np.where(found, values, -np.inf)


def _costs(L, z):
    """Rises of the loss without each column, and their posterior variances."""
    values = solve_lower(L, z, transposed=True)
    variances = np.sum(inverse_lower(L) ** 2, axis=0)
    return 0.5 * values**2 / variances, variances

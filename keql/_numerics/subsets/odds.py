"""Sets of terms, and how probable they are before data are seen."""

from itertools import combinations
from math import comb

import numpy as np
from scipy.special import betaln


def small_subsets(members, sizes, most):
    """Subsets of members of rising sizes, as tuples, while there are few in all."""
    subsets, count = [], 0
    for size in sizes:
        count += comb(len(members), size)
        if count > most:
            break
        subsets += combinations(members, size)
    return subsets


def two_exchanged(members, others, most):
    """Sets with two of the members exchanged for two others, as tuples.

    For two of the first others only, where there would be more than `most` sets.
    """
    n_out, n_in = comb(len(members), 2), len(others)
    while n_out * comb(n_in, 2) > most:
        n_in -= 1
    kept = combinations(members, len(members) - 2) if n_out else []
    return [(*own, *pair) for own in kept for pair in combinations(others[:n_in], 2)]


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

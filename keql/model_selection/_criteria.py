"""When one fit is better than another, good enough, or not worth refining."""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln


@dataclass(frozen=True)
class Criteria:
    """What hypotheses are compared by: errors of predicting each observation.

    Each observation is predicted from all others and the equation (leave one out);
    the error of a fit is the root mean square of these errors. The values were found
    on Burgers' equation, Duffing's and Darcy's, with and without noise (see the
    developer notes); none depends on units.

    clearly_better : float. Factor of the error from which on another hypothesis is
        taken although it says more: a higher degree, less noise, coefficients that
        vary.
    predicts_well : float. Error, in units of the root mean square of the observations,
        up to which a fit counts as one that predicts.
    explains : float. Error, in units of the standard deviation of the observations,
        above which a fit explains little: the noise level that two steps find may be
        that of a signal they did not see.
    rival : float. Log odds up to which equations with other terms are told beside the
        one of the highest evidence: one to twelve. From about one to twenty on the
        evidence is called strong: Kass and Raftery, "Bayes factors", JASA 90, 1995.
    noise_limited : float. Error, in units of the observation noise, up to which noise
        hides whether another fit predicts better.
    exact_size, exact_noise : float. Error of exact states, in units of the size of the
        observations and of the noise that two steps find, up to which nothing else is
        tried.
    nothing_missed : float. The same of trajectories if two steps find no noise, in
        units of the size of the observations.
    agreement : float. Trajectories with equal terms whose errors differ by less than
        this part are the same minimum.
    inactive_misfit : float. Mean square of the residuals, in units of the noise levels,
        below which the noise of the equation does not matter.
    less_noise : float. Factor of the noise of the equation that is tried along with it.
    ties : float. Kernels predict as well as the best one if their mean squared error is
        higher by at most this part of the standard error of the difference.
    n_finalists : int. State kernels that are fitted to the last term while predictions
        are poor.
    """

    clearly_better: float = 0.75
    predicts_well: float = 0.1
    explains: float = 0.6
    rival: float = 2.5
    noise_limited: float = 2.0
    exact_size: float = 5e-3
    exact_noise: float = 1.5
    nothing_missed: float = 1e-7
    agreement: float = 0.01
    inactive_misfit: float = 0.1
    less_noise: float = 0.1
    ties: float = 0.25
    n_finalists: int = 8


class TermOdds:
    """Log prior probabilities of sets of terms.

    kinds : ndarray of shape (q, ...). Of each of the q terms what it is, such as the
        equation and the degree; a negative one if the term is not chosen.

    Each of the n terms of one kind has the same probability p to be in an equation, and
    p, which is unknown, the density n (1 - p)^(n - 1), so that one of them is expected.
    As there are more products of high degree than of low, each is less probable. Scott
    and Berger, "Bayes and empirical-Bayes multiplicity adjustment in the
    variable-selection problem", Annals of Statistics 38, 2010.
    """

    def __init__(self, kinds):
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
            k = counts[: n + 1]
            row[: n + 1] = betaln(k + 1, 2 * n - k) - betaln(1, n)
            row[n + 1 :] = -np.inf

    def __call__(self, kept):
        """The odds of a set, a sequence of positions."""
        counts = self._counts(kept)
        return float(np.sum(self.table[np.arange(len(counts)), counts]))

    def more(self, kept):
        """The odds (q,) of a set with each of the terms that it lacks."""
        return self._changed(kept, 1)

    def less(self, kept):
        """The odds (q,) of a set without each of the terms that it has."""
        return self._changed(kept, -1)

    def _counts(self, kept):
        return np.bincount(self.kind[list(kept)], minlength=len(self.table))

    def _changed(self, kept, by):
        counts = self._counts(kept)
        kinds = np.arange(len(counts))
        moved = np.maximum(counts + by, 0)
        change = self.table[kinds, moved] - self.table[kinds, counts]
        return self(kept) + change[self.kind]

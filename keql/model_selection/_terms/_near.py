"""Sets of terms near another one: few are others, or some of it are gone."""

from itertools import chain, combinations

import numpy as np
from scipy import linalg

from keql._numerics.linalg import rms
from keql._numerics.subsets import small_subsets, two_exchanged
from keql._observations.data import PredictionScale
from keql.equation import WeightPosterior


class SetsNear:
    """Sets that are compared by their evidence where a problem is linearised.

    table : TermTable. The terms.
    settings : TrajectorySearchSettings. How far the search goes.
    """

    def __init__(self, table, settings):
        self.table, self.settings = table, settings

    def few(self, kept, score, tried):
        """Pairs (score, set) in which one equation has any few terms, but for `tried`.

        Where some terms stand in for others, all sets between may be poor.
        """
        table, ranked = self.table, []
        for e, fewest in enumerate(table.fewest):
            own = np.flatnonzero(table.groups == e).tolist()
            rest = [i for i in kept if table.groups[i] != e]
            sizes = [fewest] if table.is_fixed(e) else range(1, len(own) + 1)
            subsets = small_subsets(own, sizes, self.settings.n_small)
            ranked += self._ranked(subsets, rest, score, tried)
        return sorted(ranked, reverse=True)[: self.settings.n_compared]

    def within(self, ranked, highest):
        """The sets of (score, set), best first, that are within the margin."""
        near = [kept for each, kept in ranked if each > highest - self.settings.margin]
        return near[: self.settings.n_tried]

    def exchanged(self, kept, score, tried):
        """Sets in which two terms of one equation are two others, the best first.

        Where two terms stand in for two others, sets with one of these are poor. Of
        very many others those that are better in the place of one.
        """
        table, ranked = self.table, []
        for e in range(len(table.fewest) if self.settings.n_simpler else 0):
            own = [i for i in kept if table.groups[i] == e]
            others = np.setdiff1d(np.flatnonzero(table.groups == e), own)
            rest = [i for i in kept if i not in own]
            if len(own) < 2 or len(others) < 2:
                continue
            places = [kept.index(i) for i in own]
            in_place_of_one = score.neighbours(kept, others)[places, :-1]
            order = np.argsort(-np.max(in_place_of_one, axis=0), kind="stable")
            subsets = two_exchanged(own, others[order].tolist(), self.settings.n_small)
            ranked += self._ranked(subsets, rest, score, tried)
        least = score(kept) - self.settings.margin
        near = [own for value, own in sorted(ranked, reverse=True) if value > least]
        return near[: self.settings.n_simpler]

    def without_any(self, kept, score, ends):
        """Sets without any one or two terms of a set, those of most evidence first.

        In other coordinates of a state that was never observed equations may have fewer
        terms, and a linearisation at its first coordinates does not tell.

        kept : list of int. Positions of the terms of the set.
        score : callable. The log evidence of sets where the problem is linearised.
        ends : list of ConvergedSet. Sets that need not be solved for again.
        """
        groups, n_most = self.table.groups, self.settings.n_without
        own = [i for i in kept if groups[i] >= 0] if n_most else []
        rest = [i for i in kept if groups[i] < 0]
        fewer = chain(
            *(combinations(own, len(own) - n) for n in (1, 2) if n < len(own))
        )
        fewer = [[*each] for each in fewer if self._has_enough([*each])]
        known = [end.kept for end in ends]
        fewer = [each for each in fewer if sorted([*rest, *each]) not in known]
        if fewer:
            order = np.argsort(-score.many(fewer, rest), kind="stable")
            yield from (sorted([*rest, *fewer[k]]) for k in order[:n_most])

    def _has_enough(self, kept):
        """Whether no equation has fewer terms than it keeps at least."""
        groups, fewest = self.table.groups[kept], enumerate(self.table.fewest)
        return all(np.count_nonzero(groups == e) >= least for e, least in fewest)

    def improved(self, kept, score):
        """A set, or the best one to which changes of one equation in turn lead."""
        while True:
            offers = [offer for _, offer in self.few(kept, score, set())[:1]]
            offers += self.exchanged(kept, score, set())
            offer = max(offers, key=score, default=kept)
            if not score(offer) > score(kept) + 1e-9:
                return kept
            kept = offer

    def _ranked(self, subsets, rest, score, tried):
        """Pairs (score, set) of the best subsets beside the `rest`, but for `tried`."""
        values = score.many(subsets, rest)
        n_best = self.settings.n_compared + len(tried)
        best = np.argsort(-values, kind="stable")[:n_best]
        sets = (tuple(sorted([*rest, *subsets[k]])) for k in best)
        pairs = zip(values[best].tolist(), sets, strict=True)
        return [(value, [*kept]) for value, kept in pairs if kept not in tried]

    def without_cancelling(self, kept, values, effects, problem):
        """The set without terms that cancel along the trajectories.

        With terms that do, such as those of an energy that is conserved, the equations
        may be so unstable beside the trajectories that a linearisation does not see
        that they can go. Highest derivatives need the others to the part that the noise
        is of the observations. All terms have some `values` (q,), and `effects` (n, q).
        """
        scale = PredictionScale(problem.learned.observations)
        noise, used = scale.noise(problem.prior.noise), effects[:, kept]
        level = rms(used @ values[kept]) * noise / scale.size
        if not level > 0:
            return kept
        return self.without_needless(kept, values[kept], used, level)

    def without_needless(self, kept, values, effects, level):
        """A set without terms that the others make up for.

        Those of the coefficients `values` (k,) with the `effects` (n, k), whose sum is
        needed up to errors of the root mean square `level`.
        """
        # A ridge far below the level makes terms that cancel exactly independent.
        ridge = 1e-3 * level / np.max(np.abs(values)) * np.eye(len(kept))
        upper = linalg.qr(np.vstack([effects, ridge]) / level, mode="r")[0]
        posterior = WeightPosterior(values, upper[: len(kept)].T, 0.0)
        left = [*range(len(kept))]
        while True:
            removable = self.table.removable([kept[i] for i in left])
            removable = {i for i in left if kept[i] in removable}
            if not removable:
                break
            loss, fewer = posterior.without_cheapest(left, removable)
            if loss > 0.5 * len(effects):
                break
            left = fewer
        return [kept[i] for i in left]

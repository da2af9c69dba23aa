"""Functions and their slopes as columns, whose sets are compared by evidence."""

import numpy as np

from keql._numerics.elementary import FAMILIES
from keql._numerics.subsets import LOG_OF_LARGEST, TermOdds
from keql._regression.function_table import kind_of, moved


class FunctionColumns:
    """Terms and their slopes as columns of a linearised problem.

    offered : FunctionTable.
    terms : list of Term. The columns are those of each equation, followed by slopes.
    own : set of int. The `id` of each of the terms that the problem is linearised at.
    evidence : callable. The SubsetEvidence of the columns for given TermOdds.
    settings : ElementarySettings.

    terms : list of Term or None. What each column is; None: a slope.
    slopes : dict. For each position of a term with a parameter that of its slope.
    """

    def __init__(self, offered, terms, own, evidence, settings):
        self.terms, self.slopes, kinds = [], {}, []
        for e in range(len(offered.sizes)):
            start = len(self.terms)
            self.terms += [t for t in terms if t.equation == e]
            kinds += [offered.kinds[t.origin] for t in self.terms[start:]]
            for i in range(start, len(self.terms)):
                if self.terms[i].function.is_free:
                    self.slopes[i] = len(self.terms)
                    self.terms.append(None)
                    kinds.append((-1, -1))
        self.kinds = [None if t is None else kind_of(t) for t in self.terms]
        self.own = {i for i, t in enumerate(self.terms) if id(t) in own}
        self.evidence = evidence(TermOdds(np.array(kinds), settings.n_expected))
        named = [i for i, t in enumerate(self.terms) if t is not None]
        self.singles = np.array([i for i in named if i not in self.slopes], dtype=int)
        self.pairs = np.array([i for i in named if i in self.slopes], dtype=int)
        slopes = [self.slopes[i] for i in self.pairs.tolist()]
        self.slopes_of_pairs = np.array(slopes, dtype=int)
        # How far the logarithm of a parameter moves in a step, and may be supposed to.
        self.limit = settings.largest_change
        self.most = np.full(len(self.terms), self.limit)
        for i in self.pairs.tolist():
            if FAMILIES[self.terms[i].function.family].is_line:
                self.most[i] = LOG_OF_LARGEST

    def is_own(self, i):
        """Whether a column is one of the terms that the problem is linearised at."""
        return i in self.own

    def with_slope(self, i):
        """The positions of a term, and of its slope if it has a parameter."""
        return (i, self.slopes[i]) if i in self.slopes else (i,)

    def products(self, e):
        """Positions of the products of an equation."""
        own = (i for i in self.singles.tolist() if self.terms[i].equation == e)
        return [i for i in own if not self.terms[i].function.family]

    def equation(self, i):
        """The equation of a column; that of the term of a slope."""
        if self.terms[i] is not None:
            return self.terms[i].equation
        return next(self.terms[j].equation for j, k in self.slopes.items() if k == i)

    def named(self, kept):
        """Positions of the terms among those of terms and slopes."""
        return [i for i in kept if self.terms[i] is not None]

    def size(self, kept):
        """Number of terms."""
        return len(self.named(kept))

    def kind(self, kept):
        """What sets have in common that differ in inner parameters."""
        return frozenset(self.kinds[i] for i in self.named(kept))

    def has_function(self, kept):
        """Whether some of the terms are no products."""
        return any(self.terms[i].function.family for i in self.named(kept))

    def score(self, kept):
        """The log evidence of a set."""
        return self.evidence(list(kept))

    def best_added(self, bases):
        """Sets (score, positions) with a term more, the best of each kind."""
        best = {}
        for base in bases:
            is_left = np.ones(len(self.terms), dtype=bool)
            is_left[list(base)] = False
            singles = self.singles[is_left[self.singles]]
            pairs = self.pairs[is_left[self.pairs]]
            slopes = self.slopes_of_pairs[is_left[self.pairs]]
            values = np.concatenate(
                [
                    self.evidence.more(list(base), singles),
                    self.evidence.more_pairs(
                        list(base), pairs, slopes, self.most[pairs]
                    ),
                ]
            )
            added = np.concatenate([singles, pairs])
            for j in np.argsort(-values)[:40].tolist():
                i = int(added[j])
                kind = self.kinds[i], base
                if kind not in best or best[kind][0] < values[j]:
                    best[kind] = values[j], (*base, *self.with_slope(i))
        return sorted(best.values(), key=lambda pair: -pair[0])

    def solved(self, kept):
        """Terms of a set with their most probable parameters, and values."""
        by = dict(zip(kept, self.evidence.values(list(kept)), strict=True))
        terms, values = [], []
        for i in sorted(self.named(kept), key=lambda i: self.terms[i].equation):
            move = by[self.slopes[i]] / by[i] if i in self.slopes and by[i] else 0.0
            terms.append(
                moved(self.terms[i], np.exp(np.clip(move, -self.limit, self.limit)))
            )
            values.append(by[i])
        return terms, np.array(values)

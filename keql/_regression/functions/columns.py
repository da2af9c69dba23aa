"""Functions and their slopes as columns, whose sets are compared by evidence."""

import numpy as np

from keql._numerics.elementary import FAMILIES
from keql._numerics.subsets import (
    TermOdds,
    log_likelihood_of,
    scales_of,
)
from keql._regression.functions.terms import form_of, kind_of, moved

# Exponentials of more are no numbers: as a bound of a logarithm it is none.
LOG_OF_LARGEST = float(np.log(np.finfo(float).max))


class ColumnEvidence:
    """Log evidence of sets of thousands of columns, with their odds.

    The coefficients of columns are independent of each other and of unit variance
    before data are seen. Of all products of columns those are found that sets need.

    effects, target, odds, levels, n : as those of a SubsetEvidence.
    """

    def __init__(self, effects, target, odds, levels=(1.0, 1.0), n=None):
        self.odds, self.levels = odds, levels
        self.n = len(target) if n is None else n
        self.scale = scales_of(1.0, effects)
        self.effects, self.target = effects / self.scale, target
        self.right = self.effects.T @ target
        self.diagonal = 1.0 + np.sum(self.effects**2, axis=0)

    def __call__(self, kept):
        """The log evidence of a set."""
        return float(self.many([kept])[0])

    def many(self, sets, scales=None):
        """The log evidence (m,) of sets.

        `scales` (m,) are prior standard deviations of their coefficients; None: one.
        """
        scores = np.empty(len(sets))
        for places, kept, R, _, squares in self._solved(sets, scales):
            diagonals = np.abs(np.diagonal(R, axis1=1, axis2=2))
            found = self.of_rest(squares, np.sum(np.log(diagonals), axis=1))
            scores[places] = found + self.odds.many(kept)
        return scores

    def scales(self, sets):
        """Prior standard deviations (m,) that suit the coefficients of sets, or one."""
        scales = np.empty(len(sets))
        for places, _, _, values, _ in self._solved(sets):
            scales[places] = np.maximum(np.sqrt(np.mean(values**2, axis=1)), 1.0)
        return scales

    def values(self, kept):
        """The most probable coefficients of a set."""
        return self.values_of([kept])[0]

    def values_of(self, sets):
        """The most probable coefficients of sets, a list of arrays."""
        found = [None] * len(sets)
        for places, kept, _, values, _ in self._solved(sets):
            for i, own in zip(places, values / self.scale[kept], strict=True):
                found[i] = own
        return found

    def of_rest(self, square, volume):
        """The log evidence without odds of what is left of the target's square.

        `volume` is half the log determinant of the precision of the coefficients.
        """
        return log_likelihood_of(square, self.n, self.levels) - volume

    def rows(self, positions):
        """Rows (k, q) of the precision of all columns."""
        found = self.effects[:, positions].T @ self.effects
        found[np.arange(len(positions)), positions] += 1.0
        return found

    def _solved(self, sets, scales=None, most=1e6):
        """Sets of one size together, so many numbers at a time at most.

        Yields the places of m sets, their columns (m, k), roots (m, k, k) of their
        precisions, their coefficients (m, k) in units of their scales, and the squares
        (m,) that are left.

        By orthogonal factors: columns may be nearly dependent.
        """
        sizes, n = np.array([*map(len, sets)], dtype=int), len(self.target)
        for k in np.unique(sizes).tolist():
            alike, step = np.flatnonzero(sizes == k), int(most // ((n + k) * max(k, 1)))
            right = np.concatenate([self.target, np.zeros(k)])
            for start in range(0, len(alike), max(step, 1)):
                places = alike[start : start + max(step, 1)]
                kept = np.array([[*sets[i]] for i in places], dtype=int)
                rows = np.empty((len(places), n + k, k))
                rows[:, :n] = np.moveaxis(self.effects[:, kept], 0, 1)
                if scales is not None:
                    rows[:, :n] *= scales[places, None, None]
                rows[:, n:] = np.eye(k)
                Q, R = np.linalg.qr(rows)
                values = np.linalg.solve(R, (right @ Q)[:, :, None])
                left = right - (rows @ values)[:, :, 0]
                yield places, kept, R, values[:, :, 0], np.sum(left**2, axis=1)


class GrowingSet:
    """What sets of columns leave of the others, with a column more at a time.

    Sets with the first columns in common share what is found of these: they are rows of
    a Cholesky factor. What is left of columns that depend on each other are rounding
    errors: these explain nothing.

    evidence : ColumnEvidence.
    sets : list of tuple of int. All that are to come.
    first, second : ndarray of shape (m,). Columns of pairs that may be added; a second
        one of -1: the first one alone.
    rounding : float. Up to which part of what columns were there is nothing left.
    """

    def __init__(self, evidence, sets, first, second, rounding=1e-14):
        self.evidence, self.first, self.second = evidence, first, second
        columns, size = [*{i: None for own in sets for i in own}], max(map(len, sets))
        self._places = {i: k for k, i in enumerate(columns)}
        # Pairs before all others: parts of rows are faster than entries here and there.
        # What is no column has no effects.
        pairs = np.concatenate([first, second])
        others = np.setdiff1d(np.array(columns, dtype=int), pairs)
        order, m = np.concatenate([pairs, others]), len(first)
        self._at, is_none = {i: k for k, i in enumerate(order.tolist())}, order < 0
        self._rows = evidence.rows(columns)[:, order]
        self._rest, self._right = np.empty((2, size + 1, len(order)))
        self._rest[0], self._right[0] = evidence.diagonal[order], evidence.right[order]
        self._rows[:, is_none], self._right[0, is_none] = 0.0, 0.0
        self._rest[0, is_none] = 1.0
        self._nothing = rounding * self._rest[0]
        self._ratio = evidence.scale[second] / evidence.scale[first]
        self._factor = np.empty((size, len(order)))
        products = evidence.effects[:, first] * evidence.effects[:, second]
        self._cross = np.empty((size + 1, m))
        self._cross[0] = np.where(second < 0, 0.0, np.sum(products, axis=0))
        square = evidence.target @ evidence.target
        self._squares, self._volumes, self.kept = [square], [0.0], ()

    def become(self, kept):
        """The set is this one now."""
        pairs = enumerate(zip(self.kept, kept, strict=False))
        both = min(len(self.kept), len(kept))
        shared = next((k for k, (i, j) in pairs if i != j), both)
        for known in (self._squares, self._volumes):
            del known[shared + 1 :]
        for k in range(shared, len(kept)):
            self._add(k, kept[k])
        self.kept = kept

    def _add(self, k, i):
        """The set of k columns has the column i as well."""
        at, m = self._at[i], len(self.first)
        row, rest = self._factor[k], self._rest[k, at]
        root, z = np.sqrt(max(rest, 1.0)), 0.0
        if rest > self._nothing[at]:
            np.matmul(self._factor[:k, at], self._factor[:k], out=row)
            np.subtract(self._rows[self._places[i]], row, out=row)
            row /= root
            z = self._right[k, at] / root
        else:
            row[:] = 0.0
        np.subtract(self._rest[k], row**2, out=self._rest[k + 1])
        np.subtract(self._right[k], z * row, out=self._right[k + 1])
        products = row[:m] * row[m : 2 * m]
        np.subtract(self._cross[k], products, out=self._cross[k + 1])
        self._squares.append(self._squares[k] - z * z)
        self._volumes.append(self._volumes[k] + np.log(root))

    def more(self, most=None):
        """The log evidence (m,) of the set with each of the pairs.

        If the second columns are slopes of the first ones in a parameter, their
        coefficients are at most `most` (m,) times those of these: beyond a step of that
        length functions are no straight lines. None: there is no bound.
        """
        k, m = len(self.kept), len(self.first)
        rest, nothing = self._rest[k, : 2 * m], self._nothing
        left, cross = np.maximum(rest, 1.0), self._cross[k]
        a, b, x, y = left[:m], left[m:], self._right[k, :m], self._right[k, m : 2 * m]
        volume = a * b - cross * cross
        determinants = np.maximum(volume, 1.0)
        of_first, of_second = b * x - cross * y, a * y - cross * x
        gain = (x * of_first + y * of_second) / determinants
        if most is not None:
            most = most * self._ratio
            is_far = np.abs(of_second) > most * np.abs(of_first)
            far = [own[is_far] for own in (a, b, cross, x, y)]
            gain[is_far] = _gain_at_ends(most[is_far], *far)
        dependent = volume <= nothing[:m] * b + nothing[m : 2 * m] * a
        if dependent.any():
            alone = np.where(rest[:m] > nothing[:m], x * x / a, 0.0)
            gain[dependent] = alone[dependent]
        square = self._squares[-1]
        left = square - np.minimum(np.maximum(gain, 0.0, out=gain), square)
        volume = self._volumes[-1] + 0.5 * np.log(determinants)
        odds = self.evidence.odds.more(self.kept, self.first)
        return self.evidence.of_rest(left, volume) + odds


def _gain_at_ends(most, a, b, cross, x, y):
    """What pairs explain if the ratio of their coefficients is as large as may be."""
    gains = []
    for end in (most, -most):
        sizes = np.maximum(a + 2 * end * cross + end**2 * b, 1.0)
        gains.append((x + end * y) ** 2 / sizes)
    return np.maximum(*gains)


class FunctionColumns:
    """Terms and their slopes as columns of a linearised problem.

    offered : FunctionTable.
    terms : list of Term. The columns are those of each equation, followed by slopes.
    own : set of int. The `id` of each of the terms that the problem is linearised at.
    evidence : callable. The ColumnEvidence of the columns for given TermOdds.
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
        numbers = {}  # of kinds, which take long to compare
        self.kinds = [
            None if t is None else numbers.setdefault(kind_of(t), len(numbers))
            for t in self.terms
        ]
        numbers = {}  # of forms with parameters
        self.forms = np.array(
            [
                -1
                if t is None or not t.function.family
                else numbers.setdefault(form_of(t), len(numbers))
                for t in self.terms
            ]
        )
        self.is_natural = np.array(
            [t is not None and t.function.is_natural for t in self.terms]
        )
        self.own = {i for i, t in enumerate(self.terms) if id(t) in own}
        self.equations = np.array([-1 if t is None else t.equation for t in self.terms])
        self.evidence = evidence(TermOdds(np.array(kinds), settings.n_expected))
        named = [i for i, t in enumerate(self.terms) if t is not None]
        self.named_columns = np.array(named, dtype=int)
        slopes = [self.slopes.get(i, -1) for i in named]
        self.slopes_of_named = np.array(slopes, dtype=int)
        # How far the logarithm of a parameter moves in a step, and may be supposed to.
        self.limit = settings.largest_change
        self.most = np.full(len(self.terms), self.limit)
        for i in self.slopes:
            if FAMILIES[self.terms[i].function.family].is_line:
                self.most[i] = LOG_OF_LARGEST

    def is_own(self, i):
        """Whether a column is one of the terms that the problem is linearised at."""
        return i in self.own

    def all_own(self):
        """The terms that the problem is linearised at, each with its slope, a list."""
        return [self.with_slope(i) for i in sorted(self.own)]

    def with_slope(self, i):
        """The positions of a term, and of its slope if it has a parameter."""
        return (i, self.slopes[i]) if i in self.slopes else (i,)

    def of_equation(self, e):
        """Positions of the terms of an equation, without slopes."""
        return np.flatnonzero(self.equations == e).tolist()

    def products(self, e):
        """Positions of the products of an equation."""
        singles = (i for i in self.named_columns.tolist() if i not in self.slopes)
        own = (i for i in singles if self.terms[i].equation == e)
        return [i for i in own if self.terms[i].function.is_product]

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

    def functions(self, kept):
        """The same of the terms that are no products."""
        named = (i for i in self.named(kept) if self.terms[i].function.family)
        return frozenset(self.kinds[i] for i in named)

    def has_function(self, kept):
        """Whether some of the terms are no products."""
        return any(self.terms[i].function.family for i in self.named(kept))

    def scored(self, sets):
        """Pairs of the log evidence of a set, and the set."""
        return [*zip(self.evidence.many(sets).tolist(), sets, strict=True)]

    def scored_again(self, ranked):
        """The same of ranked pairs, with the prior scale that suits each set.

        Terms that cancel each other nearly, as 1 and the root of a level do where it
        comes to rest, have larger coefficients than those that were linearised at.
        """
        sets = [kept for _, kept in ranked]
        values = self.evidence.many(sets, self.evidence.scales(sets))
        best = np.maximum(values, [value for value, _ in ranked])
        return [*zip(best.tolist(), sets, strict=True)]

    def best_added(self, bases, most=40, equation=None):
        """Sets (score, positions) with a term more, the best of each kind.

        Of each of the `bases` the `most` terms that raise its evidence most, of one
        equation or of all.
        """
        if not bases:
            return []
        added, slopes, best = self.named_columns, self.slopes_of_named, []
        if equation is not None:
            is_own = self.equations[added] == equation
            added, slopes = added[is_own], slopes[is_own]
        growing = GrowingSet(self.evidence, bases, added, slopes)
        limits, place = self.most[added], {i: j for j, i in enumerate(added.tolist())}
        for base in dict.fromkeys(bases):
            growing.become(base)
            values = growing.more(limits)
            values[[place[i] for i in base if i in place]] = -np.inf
            values[self._are_twins(base, added)] = -np.inf
            first = np.argpartition(-values, min(most, len(added) - 1))[:most]
            kinds = set()
            for j in first[np.argsort(-values[first], kind="stable")].tolist():
                i, value = int(added[j]), float(values[j])
                if self.kinds[i] not in kinds and value > -np.inf:
                    kinds.add(self.kinds[i])
                    best.append((value, (*base, *self.with_slope(i))))
        return sorted(best, key=lambda pair: -pair[0])

    def _are_twins(self, base, added):
        """Which columns are of a form that a set has, where one of two is natural.

        These would stand for another parameter, between them or near.
        """
        base = np.array(base, dtype=int)
        forms, natural = self.forms[base], self.is_natural[base]
        forms, natural = forms[forms >= 0], forms[natural]
        own = self.forms[added]
        is_there, is_there_natural = np.isin(own, forms), np.isin(own, natural)
        return np.where(self.is_natural[added], is_there, is_there_natural)

    def solved(self, sets):
        """Of each set its terms with their most probable parameters, and values."""
        found = zip(sets, self.evidence.values_of(sets), strict=True)
        return [self._with_parameters(*pair) for pair in found]

    def _with_parameters(self, kept, coefficients):
        by, terms, values = dict(zip(kept, coefficients, strict=True)), [], []
        for i in sorted(self.named(kept), key=lambda i: self.terms[i].equation):
            move = by[self.slopes[i]] / by[i] if i in self.slopes and by[i] else 0.0
            terms.append(
                moved(self.terms[i], np.exp(np.clip(move, -self.limit, self.limit)))
            )
            values.append(by[i])
        return terms, np.array(values)

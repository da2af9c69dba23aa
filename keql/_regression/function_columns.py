"""Functions and their slopes as columns, whose sets are compared by evidence."""

import numpy as np

from keql._numerics.elementary import FAMILIES
from keql._numerics.linalg import solve_upper
from keql._numerics.subsets import (
    LOG_OF_LARGEST,
    TermOdds,
    log_likelihood_of,
    scales_of,
)
from keql._regression.function_table import kind_of, moved


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
        R, _, square = self._solve(kept)
        volume = np.sum(np.log(np.abs(np.diag(R))))
        return self.of_rest(square, volume) + self.odds(kept)

    def values(self, kept):
        """The most probable coefficients of a set."""
        return self._solve(kept)[1] / self.scale[kept]

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

    def _solve(self, kept):
        """Root of a set's precision, its coefficients, and the square that is left.

        By orthogonal factors: columns may be nearly dependent.
        """
        rows = np.vstack([self.effects[:, kept], np.eye(len(kept))])
        right = np.concatenate([self.target, np.zeros(len(kept))])
        Q, R = np.linalg.qr(rows)
        values = solve_upper(R, Q.T @ right)
        return R, values, np.sum((right - rows @ values) ** 2)


class GrowingSet:
    """What sets of columns leave of the others, with a column more at a time.

    Sets with the first columns in common share what is found of these: they are rows of
    a Cholesky factor. What is left of columns that depend on each other are rounding
    errors: these explain nothing.

    evidence : ColumnEvidence.
    sets : list of tuple of int. All that are to come.
    first, second : ndarray of shape (m,). Columns of pairs that may be added.
    rounding : float. Up to which part of what columns were there is nothing left.
    """

    def __init__(self, evidence, sets, first, second, rounding=1e-14):
        self.evidence, self.first, self.second = evidence, first, second
        columns, size = [*{i: None for own in sets for i in own}], max(map(len, sets))
        self._places = {i: k for k, i in enumerate(columns)}
        self._rows, q = evidence.rows(columns), len(evidence.diagonal)
        self._nothing = rounding * evidence.diagonal
        self._factor = np.empty((size, q))
        self._rest, self._right = np.empty((2, size + 1, q))
        self._cross = np.empty((size + 1, len(first)))
        self._rest[0], self._right[0] = evidence.diagonal, evidence.right
        products = evidence.effects[:, first] * evidence.effects[:, second]
        self._cross[0] = np.sum(products, axis=0)
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
        row, rest = self._factor[k], self._rest[k, i]
        root, z = np.sqrt(max(rest, 1.0)), 0.0
        if rest > self._nothing[i]:
            np.matmul(self._factor[:k, i], self._factor[:k], out=row)
            np.subtract(self._rows[self._places[i]], row, out=row)
            row /= root
            z = self._right[k, i] / root
        else:
            row[:] = 0.0
        np.subtract(self._rest[k], row**2, out=self._rest[k + 1])
        np.subtract(self._right[k], z * row, out=self._right[k + 1])
        products = row[self.first] * row[self.second]
        np.subtract(self._cross[k], products, out=self._cross[k + 1])
        self._squares.append(self._squares[k] - z * z)
        self._volumes.append(self._volumes[k] + np.log(root))

    def more(self, added):
        """The log evidence (m,) of the set with each of other columns."""
        rest, gain = self._alone(added)
        return self._raised(gain, rest, added)

    def _alone(self, added):
        """What is left of the squares of columns (m,), and what each explains."""
        k = len(self.kept)
        rest = self._rest[k, added]
        is_left = rest > self._nothing[added]
        rest = np.maximum(rest, 1.0)  # the prior adds as much
        return rest, np.where(is_left, self._right[k, added] ** 2 / rest, 0.0)

    def more_pairs(self, most=None):
        """The log evidence (m,) of the set with each of the pairs.

        If the second columns are slopes of the first ones in a parameter, their
        coefficients are at most `most` (m,) times those of these: beyond a step of that
        length functions are no straight lines. None: there is no bound.
        """
        k, first, second = len(self.kept), self.first, self.second
        (a, alone), (b, _) = self._alone(first), self._alone(second)
        cross, x, y = self._cross[k], self._right[k, first], self._right[k, second]
        volume = a * b - cross**2
        nothing = self._nothing[first] * b + self._nothing[second] * a
        of_first, of_second = b * x - cross * y, a * y - cross * x
        gain = (x * of_first + y * of_second) / np.maximum(volume, 1.0)
        if most is not None:
            scale = self.evidence.scale
            most = most * scale[second] / scale[first]
            is_far = np.abs(of_second) > most * np.abs(of_first)
            far = [own[is_far] for own in (a, b, cross, x, y)]
            gain[is_far] = _gain_at_ends(most[is_far], *far)
        gain = np.where(volume > nothing, gain, alone)
        return self._raised(gain, np.maximum(volume, 1.0), first)

    def _raised(self, gain, determinants, added):
        """The log evidence with columns that explain more of the target."""
        square = self._squares[-1]
        gain = np.clip(gain, 0.0, square)
        volume = self._volumes[-1] + 0.5 * np.log(determinants)
        odds = self.evidence.odds.more(self.kept)[added]
        return self.evidence.of_rest(square - gain, volume) + odds


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

    def best_added(self, bases, most=40):
        """Sets (score, positions) with a term more, the best of each kind.

        Of each of the `bases` the `most` terms that raise its evidence most.
        """
        if not bases:
            return []
        added, best = np.concatenate([self.singles, self.pairs]), []
        growing = GrowingSet(self.evidence, bases, self.pairs, self.slopes_of_pairs)
        limits, place = self.most[self.pairs], {int(i): j for j, i in enumerate(added)}
        for base in dict.fromkeys(bases):
            growing.become(base)
            values = [growing.more(self.singles), growing.more_pairs(limits)]
            values = np.concatenate(values)
            values[[place[i] for i in base if i in place]] = -np.inf
            first = np.argpartition(-values, min(most, len(added) - 1))[:most]
            kinds = set()
            for j in first[np.argsort(-values[first], kind="stable")].tolist():
                i, value = int(added[j]), float(values[j])
                if self.kinds[i] not in kinds and value > -np.inf:
                    kinds.add(self.kinds[i])
                    best.append((value, (*base, *self.with_slope(i))))
        return sorted(best, key=lambda pair: -pair[0])

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

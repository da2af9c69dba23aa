"""How probable sets of terms are if equations are integrated, and searches of them."""

from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from scipy import linalg

from keql._numerics.linalg import largest_factor
from keql._numerics.subsets import (
    HighestEvidence,
    MixedOdds,
    TermOdds,
    linear_evidence,
)
from keql.equation import (
    PolynomialBasis,
    SystemBasis,
    coefficients,
    find_terms,
    restricted,
    term_name,
    values_of,
    weights_of,
)


@dataclass(frozen=True)
class TermPrior:
    """What is expected of terms before data are seen.

    n_expected, n_of_degree : float. How many an equation has if all terms are as
        probable; or how many of each degree, if each degree has a probability of its
        own in all equations. Which of both holds is not known. The equations in
        textbooks have two to five.
    sizes : tuple. Standard deviations of what a term contributes to the highest
        derivative, root mean square along the states and in units of its size. For each
        set that counts which suits it best: large terms may cancel.
    rounding : float. Largest rounding error of a log evidence, which is found from
        squares of the target: of exact data the noise counts as no lower, as sets of
        terms that explain them alike would be told by rounding errors.
    """

    n_expected: float = 3.0
    n_of_degree: float = 1.0
    rounding: float = 0.1
    sizes: tuple = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)


class TermTable:
    """The terms of all equations of a problem, those that may go among them.

    Terms have positions from 0 to q, one equation after the other; those of an equation
    whose `n_terms` is None stay, and its weights stand for them.

    groups : ndarray of shape (q,). The equation of each term; -1 if it stays.
    fewest : list of int. How many terms each equation keeps at least.
    is_open : bool. Whether their number is to be found.
    names : list of str. Names of the terms; in a system after that of the equation.
    kinds : ndarray of shape (q, 3). Of each term its equation (its group), its degree,
        and whether it depends on coordinates; negative if it stays.
    """

    def __init__(self, two_step, basis, hypothesis):
        setup, self.is_system = two_step.setup, two_step.setup.is_system
        self.equation_names = [terms.name for terms in setup.equations]
        n_columns = len(setup.unknown_names(two_step.variables))
        self.exponents, self.names, groups, self.fewest = [], [], [], []
        self.is_open, given, self.fixed = False, [], []
        for e, (terms, own_basis) in enumerate(
            zip(setup.equations, self._bases(basis), strict=True)
        ):
            n_terms = hypothesis.of_equation(terms.name).n_terms
            if terms.depends_on is None or n_terms is None:
                self.exponents.append(None)
                size = basis.sizes[e] if self.is_system else n_columns
                groups += [-1] * size
                self.names += [f"{terms.name}: weight {i + 1}" for i in range(size)]
                self.fewest.append(size)
                continue
            own = find_terms(own_basis.kernel, n_columns, n_terms)
            names = [term_name(two_step, powers) for powers in own]
            if self.is_system:
                names = [f"{terms.name}: {name}" for name in names]
            self.exponents.append(own)
            self.names += names
            groups += [e] * len(own)
            given.append(n_terms)
            if n_terms != "auto":
                self.fixed.append(e)
            self.fewest.append(1 if n_terms == "auto" else n_terms)
        self.is_open = "auto" in given
        self.groups = np.array(groups, dtype=int)
        d = len(two_step.variables)
        shapes = [
            np.full((fewest, 2), -1) if own is None else _shapes(own, d)
            for own, fewest in zip(self.exponents, self.fewest, strict=True)
        ]
        self.kinds = np.column_stack([self.groups, np.concatenate(shapes).astype(int)])

    def _bases(self, basis):
        return basis.bases if self.is_system else [basis]

    def _members(self, e, kept):
        """Those of the positions `kept` that are terms of an equation, from 0."""
        start = sum(self._sizes()[:e])
        stop = start + self._sizes()[e]
        return [i - start for i in kept if start <= i < stop]

    def _sizes(self):
        counts = [0 if own is None else len(own) for own in self.exponents]
        return [
            fewest if own is None else count
            for own, count, fewest in zip(
                self.exponents, counts, self.fewest, strict=True
            )
        ]

    def positions(self, holds):
        """Those of the terms for whose powers (q, c) a condition holds, or that stay.

        Functions of a dictionary have no powers, and count as such for which it does.
        """
        flags = [
            np.ones(size, bool) if own is None or own.ndim == 1 else holds(own)
            for own, size in zip(self.exponents, self._sizes(), strict=True)
        ]
        return np.flatnonzero(np.concatenate(flags)).tolist()

    def coefficients(self, basis, kept):
        """Coefficients (len(kept), p) of the terms kept, times weights in a basis."""
        blocks = []
        for e, (own, each) in enumerate(
            zip(self.exponents, self._bases(basis), strict=True)
        ):
            rows = self._members(e, kept)
            if own is None:
                blocks.append(np.eye(len(rows)))
            else:
                blocks.append(coefficients(each, own[rows]))
        return linalg.block_diag(*blocks)

    def values_of(self, equations):
        """Coefficients (q,) of all terms in equations that have some of them."""
        values = []
        for own, equation in zip(self.exponents, equations, strict=True):
            if own is None:
                values.append(equation.weights)
                continue
            values.append(values_of(equation.basis, own, equation.weights))
        return np.concatenate(values)

    def printed(self, equations):
        """Coefficients as equations print them, by the names of terms."""
        return {
            (f"{whose}: {name}" if self.is_system else name): value
            for whose, equation in zip(self.equation_names, equations, strict=True)
            for name, value in equation.terms().items()
        }

    def restricted(self, basis, kept):
        """A basis of the terms kept only."""
        bases, sizes = [], []
        for e, (own, each) in enumerate(
            zip(self.exponents, self._bases(basis), strict=True)
        ):
            rows = self._members(e, kept)
            if own is not None:
                each = PolynomialBasis(restricted(each.kernel, own, rows))
            bases.append(each)
            sizes.append(len(rows))
        return SystemBasis(bases, sizes) if self.is_system else bases[0]

    def weights(self, basis, kept, values):
        """Weights of least norm, in a basis, of terms kept with these coefficients."""
        parts, start = [], 0
        for e, (own, each) in enumerate(
            zip(self.exponents, self._bases(basis), strict=True)
        ):
            rows = self._members(e, kept)
            part = values[start : start + len(rows)]
            start += len(rows)
            parts.append(part if own is None else weights_of(each, own[rows], part))
        return np.concatenate(parts)

    def odds(self, prior):
        """Log prior probabilities of sets of the terms, by a TermPrior."""
        equation, degree, depends = self.kinds.T
        by_degree = prior.n_of_degree * len(self.fewest)
        return MixedOdds(
            [
                TermOdds(np.column_stack([equation, depends]), prior.n_expected),
                TermOdds(np.column_stack([degree, depends]), by_degree),
            ]
        )

    def has_many(self, kept, many, share, in_each=False):
        """Whether more terms are kept than `many`, and than a share of all terms.

        Or, `in_each`, more terms of an equation, and than that share of its own. The
        terms `kept` are positions, the `share` is between zero and one.
        """
        if len(kept) > max(many, share * len(self.groups)):
            return True
        chosen, size = self.groups >= 0, len(self.fewest)
        offered = np.bincount(self.groups[chosen], minlength=size)
        own = self.groups[kept]
        counts = np.bincount(own[own >= 0], minlength=size)
        return in_each and bool(np.any(counts > np.maximum(many, share * offered)))

    def is_fixed(self, equation):
        """Whether the number of terms of an equation is given."""
        return equation in self.fixed

    def exceeding(self, kept):
        """Equations that have more terms than the number that is given for them."""
        groups = self.groups[kept]
        counts = [np.count_nonzero(groups == e) for e in self.fixed]
        pairs = zip(self.fixed, counts, strict=True)
        return [e for e, count in pairs if count > self.fewest[e]]

    def removable(self, kept):
        """Positions of the terms that may still go.

        Those go first of which the number is given: how many others stay is told by
        what comes after.
        """
        kept = np.array(kept, dtype=int)
        groups = self.groups[kept]
        exceeding = self.exceeding(kept)
        may_go = np.isin(groups, exceeding) if exceeding else groups >= 0
        for e, fewest in enumerate(self.fewest):
            own = groups == e
            may_go[own] &= np.count_nonzero(own) > fewest
        return set(kept[may_go].tolist())


def _shapes(terms, d):
    """Degrees of terms, and whether they depend on the first d columns, (q, 2).

    Functions of a dictionary, whose degree is not known, count as linear ones.
    """
    if terms.ndim == 1:
        return np.tile([1, 0], (len(terms), 1))
    return np.column_stack([terms.sum(axis=1), np.any(terms[:, :d], axis=1)])


class TermScores:
    """The log evidence of sets of terms, with their odds.

    The contributions of terms are normal before data are seen. The weights of the
    features of a kernel have another prior, in which a term counts as part of a
    polynomial that has all others too.

    table : TermTable. The terms; those that stay keep the prior of their weights.
    single : ndarray of shape (p, q). Weights of each term alone, its coefficient one.
    equations : tuple of LearnedEquation. Those that the search starts from.
    prior : TermPrior. What is expected of terms.
    """

    def __init__(self, table, single, equations, prior):
        self.single, self.equations = single, equations
        self.sizes, self.rounding = np.array(prior.sizes), prior.rounding
        self.is_chosen, self.odds = table.groups >= 0, table.odds(prior)

    def linearised(self, model, odds=None):
        """The evidence of any set in a linearised problem whose equations have all."""
        target, features = model.regression.whitened()
        given = model, target, features @ self.single, model.iterate.equations
        return self._evidence(*given, odds or self.odds)

    def of_some(self, model, kept, single, equations):
        """The same of a problem that has the terms `kept`; the others have no effect.

        `single` (p, k) are the weights of each alone, and `equations` have all terms.
        """
        target, features = model.regression.whitened()
        effects = np.zeros((len(target), len(self.is_chosen)))
        effects[:, kept] = features @ single
        return self._evidence(model, target, effects, equations, self.odds)

    def _evidence(self, model, target, effects, equations, odds):
        """The evidence of sets of terms by their effects (n, q) on a target (n,)."""
        told = np.sqrt(np.finfo(float).eps * (target @ target) / self.rounding)
        unit, (lowest, highest) = max(1.0, told), model.regression.level_range
        levels = max(told, lowest) / unit, max(told, highest) / unit
        how = levels, model.regression.n_free
        precisions = self._precisions(model, equations)
        return HighestEvidence(effects / unit, target / unit, precisions, odds, *how)

    def solved(self, model, kept, to_values, equations):
        """The score of a set of terms that was solved for.

        `to_values` (k, k) times the weights of its equations are the coefficients of
        its terms; `equations` have all terms.
        """
        target, effects = model.regression.whitened()
        roots = np.sqrt(self._precisions(model, equations)[:, kept])
        told = [linear_evidence(effects, target, r[:, None] * to_values) for r in roots]
        by_weights = linear_evidence(effects, target, np.eye(len(kept)))
        return model.log_evidence() + max(told) - by_weights + self.odds(kept)

    def contributions(self, model, equations):
        """Those (q,) of terms whose coefficients are the prior scale of the weights.

        In units of what equations with all terms say of the highest derivatives.
        """
        if not any(np.any(equation.weights) for equation in equations):
            equations = self.equations
        iterate = replace(model.iterate, equations=tuple(equations))
        effects = model.problem.effects_on_highest(iterate) @ self.single
        # States of spikes at their observations have slopes of 1e-80 between these:
        # a term that is so much larger than all slopes is excluded by less, too.
        effects = np.clip(effects, -largest_factor(), largest_factor())
        sizes = np.sqrt(np.sum(effects**2, axis=0) * len(equations) / len(effects))
        return model.regression.prior.scale * np.maximum(sizes, np.finfo(float).tiny)

    def _precisions(self, model, equations):
        """Prior precisions (g, q) of the terms, for each of the sizes."""
        contributions = self.contributions(model, equations)
        precisions = (contributions / self.sizes[:, None]) ** 2
        return np.where(self.is_chosen, precisions, 1.0)


class TermSets:
    """Sets of the terms of a table, as lists of rising positions, and their neighbours.

    table : TermTable. The terms, and how many each equation keeps.
    few, share : int, float. Of more terms than `few`, this part is taken out at once.
    n_compared : int. So many of the best neighbours are compared by their own evidence.
    """

    def __init__(self, table, few, share, n_compared):
        self.table, self.few, self.share = table, few, share
        self.n_compared = n_compared

    def best(self, score, offered=None):
        """The best set by a score, of all terms or of those at the positions `offered`.

        Terms are taken out one by one, that whose loss lowers the evidence least, first
        those of equations whose number of terms is given; from the best set on the way,
        terms are added, taken out or exchanged while that raises it. Once among all of
        them and once among those of low degree: along few states terms of high degree
        stand in for others, and which of these goes first is a matter of chance.
        """
        everything = list(range(len(self.table.groups)))
        starts = self._starts(everything if offered is None else list(offered))
        found = [self._best_on_the_way(kept, score) for kept in starts]
        best = max(found, key=score)
        while True:
            offers = islice(self.neighbours(best, score, offered), self.n_compared)
            offers = [*offers] or [best]
            offer = offers[int(np.argmax(score.many(offers)))]
            if not score(offer) > score(best) + 1e-9:
                return best
            best = offer

    def _starts(self, offered, degree=2):
        """Terms to take out from: all, and those up to a degree if these are enough."""
        groups, degrees = self.table.kinds[:, 0], self.table.kinds[:, 1]
        low = [i for i in offered if degrees[i] <= degree or groups[i] < 0]
        counts = [
            [np.sum(groups[kept] == e) for e in range(len(self.table.fewest))]
            for kept in (low, offered)
        ]
        triples = zip(*counts, self.table.fewest, strict=True)
        are_enough = all(few >= min(own, least) for few, own, least in triples)
        return [offered, low] if are_enough and len(low) < len(offered) else [offered]

    def _best_on_the_way(self, kept, score):
        """The best of the sets from `kept` to the fewest terms there may be."""
        while self._surplus(kept):
            kept = self.without_one(kept, self._surplus(kept), score)
        best, highest = kept, score(kept)
        while len(kept) > self.few:
            fewer = self._without_least(kept, score)
            if len(fewer) == len(kept):
                break
            kept = fewer
            if score(kept) > highest:
                best, highest = kept, score(kept)
        while self.table.removable(kept):
            kept = self.without_one(kept, self.table.removable(kept), score)
            if score(kept) > highest:
                best, highest = kept, score(kept)
        return best

    def fewer(self, kept, score, exchanged=True):
        """The best sets of ever fewer terms than a set has, from the largest on.

        One term is taken out after the other, and, if terms may be `exchanged`, others
        come in their place while that raises the score.
        """
        while self.table.removable(kept):
            kept = self.without_one(kept, self.table.removable(kept), score)
            while exchanged:
                equal = self.neighbours(kept, score)
                offer = next((o for o in equal if len(o) == len(kept)), kept)
                if not score(offer) > score(kept) + 1e-9:
                    break
                kept = offer
            yield kept

    def without_one(self, kept, removable, score):
        """The best set by a score without one of the removable terms."""
        values = zip(score.less(kept), kept, strict=True)
        _, out = max((value, i) for value, i in values if i in removable)
        return [i for i in kept if i != out]

    def neighbours(self, kept, score, offered=None):
        """Sets with a term more, a term less, or a term exchanged for another.

        The best first, by a score of all of them at once; with other terms only of
        those `offered`, if they are given.
        """
        groups, removable = self.table.groups, self.table.removable(kept)
        unused = np.setdiff1d(np.flatnonzero(groups >= 0), kept)
        if offered is not None:
            unused = np.intersect1d(unused, offered)
        free = ~np.isin(groups[unused], self.table.fixed)
        less = np.array([i in removable for i in kept])
        allowed = np.zeros((len(kept) + 1, len(unused) + 1), dtype=bool)
        allowed[:-1, -1], allowed[-1, :-1] = less, free
        allowed[:-1, :-1] = groups[kept][:, None] == groups[unused]
        allowed[:-1, :-1] |= less[:, None] & free
        values = np.where(allowed, score.neighbours(kept, unused), -np.inf)
        order = np.argsort(-values, axis=None, kind="stable")[: np.sum(allowed)]
        for i, j in zip(*np.unravel_index(order, values.shape), strict=True):
            yield sorted([*kept[:i], *kept[i + 1 :], *unused[j : j + 1].tolist()])

    def _surplus(self, kept):
        """Positions of terms that equations have beyond the number that is given."""
        table = self.table
        return {i for i in table.removable(kept) if table.is_fixed(table.groups[i])}

    def _without_least(self, kept, score):
        """The terms kept if some that cost least are taken out at once."""
        costs, removable = score.costs(kept), self.table.removable(kept)
        order = [kept[i] for i in np.argsort(costs) if kept[i] in removable]
        for i in order[: max(1, int(self.share * len(kept)))]:
            if i in self.table.removable(kept):
                kept = [j for j in kept if j != i]
        return kept

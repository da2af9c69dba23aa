"""Which sets of terms are solved for near those of a linearised problem."""

import numpy as np

from keql._numerics.subsets import small_subsets


class SetsNear:
    """Sets of terms, the most probable ones of a linearised problem.

    columns : FunctionColumns.
    settings : ElementarySettings.
    has_much_noise : bool. Whether the evidence of the linearised problem tells which
        sets are worth being solved for.

    Sets are tuples of positions of columns, and are given back as pairs of a list of
    Term and their values (n,), in units of the scales.
    """

    def __init__(self, columns, settings, has_much_noise):
        self.columns, self.settings = columns, settings
        self.has_much_noise, self.own = has_much_noise, columns.all_own()

    def changed(self, is_first, most):
        """Sets with a term more or two, one less, or one exchanged, and their values.

        is_first : bool. Whether no set was solved for yet.
        most : float. They have fewer terms than this. The first sets, or those that are
            to have fewer terms, may have any few products in place of an equation's.
        """
        columns, own = self.columns, self.own
        bases = [sum(own, ())]
        bases += [sum(own[:i] + own[i + 1 :], ()) for i in range(len(own))]
        if is_first or most < np.inf:
            bases += self._in_few_products(bases[0])
        ranked = columns.best_added(bases)
        ranked += columns.best_added([kept for _, kept in ranked[:3]])
        if not is_first:
            ranked += columns.scored([base for base in bases[1:] if base])
        elif own and self.has_much_noise:
            [(least, _)] = columns.scored(bases[:1])
            ranked = [
                (value, kept)
                for value, kept in ranked
                if value > least - self.settings.near and columns.has_function(kept)
            ]
        ranked = [pair for pair in ranked if columns.size(pair[1]) < most]
        yield from self._best_of_each_size(ranked)

    def _in_few_products(self, own):
        """Sets with few products in place of the terms of an equation, one each."""
        for e in self._equations:
            products = self.columns.products(e)
            rest = tuple(i for i in own if self.columns.equation(i) != e)
            sizes = range(len(products))
            for few in small_subsets(products, sizes, self.settings.n_small):
                yield (*rest, *few)

    def replaced(self):
        """Sets with two or three terms in place of all of an equation, and values.

        Those that are more probable than what the problem is linearised at.
        """
        columns = self.columns
        [(least, _)] = columns.scored([sum(self.own, ())])
        for e in self._equations:
            ranked = self._replaced_in(e)
            yield from columns.solved([kept for value, kept in ranked if value > least])

    def _replaced_in(self, e):
        """These sets of one equation, with their scores.

        All pairs of which one has no free parameter, and the best of them, and pairs
        with one of the functions that the equation has, with another term: terms may
        explain together what none does beside those that are there.
        """
        columns, settings = self.columns, self.settings
        is_other = [columns.equation(each[0]) != e for each in self.own]
        pairs = [*zip(is_other, self.own, strict=True)]
        rest = sum((each for other, each in pairs if other), ())
        functions = [each for other, each in pairs if not other and len(each) > 1]
        held = [i for i in columns.of_equation(e) if i not in columns.slopes]
        bases, found = [(*rest, i) for i in held], []
        for _ in range(2):
            ranked = self._best_of_kinds(columns.best_added(bases, equation=e))
            found += ranked[: settings.n_replaced]
            bases = [kept for _, kept in ranked[: settings.n_grown]]
            bases += [(*rest, *each, i) for each in functions for i in held]
        return found

    @property
    def _equations(self):
        """The positions of the equations that have terms on offer."""
        return sorted({*self.columns.equations.tolist()} - {-1})

    def _best_of_kinds(self, ranked):
        """The best (score, positions) of each kind, with the scale that suits each."""
        columns, best = self.columns, {}
        for pair in ranked:
            best.setdefault(columns.kind(pair[1]), pair)
        first = [*best.values()][: self.settings.n_ranked]
        return sorted(columns.scored_again(first), key=lambda pair: -pair[0])

    def _best_of_each_size(self, ranked):
        """Terms and values of the best sets of one term, of two, and so on.

        With one of other functions than these: products that take turns beside one that
        is near would else leave no place for it.
        """
        columns, n_tried = self.columns, self.settings.n_tried
        seen, by_size = {}, {}
        first = {frozenset(kept): (v, kept) for v, kept in sorted(ranked)}
        first = sorted(first.values(), reverse=True)[: self.settings.n_ranked]
        ranked = columns.scored_again(first)
        for value, kept in sorted(ranked, key=lambda pair: -pair[0]):
            size = columns.size(kept), len(kept)
            own, functions = by_size.setdefault(size, {}), seen.setdefault(size, set())
            is_other = columns.functions(kept) not in functions
            if len(own) < n_tried or (len(own) == n_tried and is_other):
                own.setdefault(columns.kind(kept), (value, kept))
                functions.add(columns.functions(kept))
        best = [pair for size in sorted(by_size) for pair in by_size[size].values()]
        if self.has_much_noise:
            best = sorted(best, reverse=True)[: 2 * n_tried]
        for _, kept in best:
            yield from columns.solved([kept])

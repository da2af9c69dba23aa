"""Functions that explain equations along states that are known without them.

There every equation stands alone: what its unknown part has to be is known, up to the
errors of the states. Both sides are integrated over time, which does not magnify these
errors, and compared at the observed times; those of states in time and space are
compared where equations are imposed. Sets of thousands of functions cost little that
way; those found are where exact states start from.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.interpolate import CubicSpline

from keql._numerics.linalg import rms
from keql._numerics.subsets import TermOdds, small_subsets
from keql._regression.functions.columns import ColumnEvidence, FunctionColumns
from keql._regression.functions.terms import kind_of, moved


@dataclass(frozen=True)
class ScreeningOfFunctions:
    """How far the search along known states goes.

    least_noise : float. Of what is compared, relative to its size; it is that of the
        observations if this is more: errors of states go with it.
    least_in_space : float. The same of states in time and space, whose derivatives are
        compared: heat with a source and a sine are met to .002 and .02 along the states
        of a hundred exact values, and found from .003 to .1 on.
    floors : tuple of float. The errors of states are no noise: they follow smooth
        curves, which further terms explain. So the best sets are named for noise of so
        many times the least that is found; and for the least, which tells terms that
        make up for one another along few states.
    ratio : float. Of neighbouring inner parameters at most: where these differ by a
        factor of five, as those of the table may, a function between them came 12
        places behind others, which its slope does not mend.
    n_offered : int. Sets of each size and round whose inner parameters are improved.
    n_kept : int. The best of these, whose inner parameters are solved for.
    n_rounds : int. Tables of functions, those found being taken in.
    first_steps, max_steps : int. Steps for the inner parameters of all sets that are
        offered, and of those that are kept.
    tol : float. Change of the logarithms of the inner parameters at which steps end.
    n_scales : int. Steps for the scale of the values, from that of the equation: terms
        that cancel each other exceed it thirty times and more.
    better : float. By which functions have to exceed the log evidence of products along
        states in time and space to be solved for: odds of a thousand to one.
    far_better : float. The same at one level of noise at least where sets of products
        were not all looked for yet: of 11 fields whose terms are products functions
        exceed these by 14 at most, of 17 that have functions by 22 to 534 in 15.
    """

    least_noise: float = 1e-7
    least_in_space: float = 1e-2
    floors: tuple = (30.0, 8.0, 2.0, 1.0)
    ratio: float = 1.5
    n_offered: int = 60
    n_kept: int = 6
    n_rounds: int = 3
    first_steps: int = 2
    max_steps: int = 12
    tol: float = 1e-7
    n_scales: int = 3
    better: float = 7.0
    far_better: float = 20.0


@dataclass(frozen=True)
class Screened:
    """Terms of one equation, their values, their log evidence, and the noise."""

    terms: tuple
    values: np.ndarray
    score: float
    noise: float


def can_be_screened(learned, fewest=8):
    """Whether collocation points are enough to integrate functions along the states.

    In space they are not those of one path in time.
    """
    if len(learned.variables) > 1:
        return False
    parts = (part for e in range(len(learned.equations)) for part in _times(learned, e))
    return all(len(np.unique(part)) >= fewest for part in parts)


def _times(learned, e):
    """At which times an equation is imposed on each function, a list of arrays."""
    times = learned.equations[e].training_features[:, 0]
    numbers = [np.sum(rows.equation == e) for rows in learned.setup.rows]
    return np.split(times, np.cumsum(numbers)[:-1])


def between(terms, ratio):
    """Terms whose inner parameters lie between those of others of their kind.

    Neighbours then differ by a factor of at most `ratio`.
    """
    by_kind, found = {}, []
    for term in terms:
        if term.function.is_free:
            sign = term.function.parameter > 0
            by_kind.setdefault((kind_of(term), sign), []).append(term)
    for own in by_kind.values():
        own = sorted(own, key=lambda t: abs(t.function.parameter))
        for a, b in pairwise(own):
            gap = b.function.parameter / a.function.parameter
            n = int(np.ceil(np.log(gap) / np.log(ratio) - 1e-9))
            found += [moved(a, gap ** (i / n)) for i in range(1, n)]
    return found


def _have_twins(terms, apart=1e-3):
    """Whether inner parameters of two terms of one kind have become the same."""
    parameters = {}
    for term in terms:
        if term.function.is_free:
            parameters.setdefault(kind_of(term), []).append(term.function.parameter)
    return any(
        abs(b / a - 1) < apart for own in parameters.values() for a, b in pairwise(own)
    )


def _moves(sets, values):
    """Changes (m, k) of the logarithms of the inner parameters of sets of k terms.

    Of values (m, k + s) of their terms and then of the slopes of s of them.
    """
    size, moves = len(sets[0]), np.zeros((len(sets), len(sets[0])))
    rows = [i for i, terms in enumerate(sets) for t in terms if t.function.is_free]
    inner = [[k for k, t in enumerate(a) if t.function.is_free] for a in sets]
    columns = [k for own in inner for k in own]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.ravel(values[:, size:]) / values[rows, columns]
    moves[rows, columns] = np.nan_to_num(ratios)
    return moves


def _rms_of_rows(values):
    """Root mean squares (m,) of rows (m, k), as :func:`rms` of each has them."""
    largest = np.max(np.abs(values), axis=1, initial=0.0)
    unit = np.where(largest > 0, largest, 1.0)
    return largest * np.sqrt(np.mean((values / unit[:, None]) ** 2, axis=1))


class FunctionScreening:
    """Sets of functions of one equation by their evidence along known states.

    learned : LearnedModel. What unknown parts have to be at collocation points.
    offered : FunctionTable.
    e : int. The position of the equation.
    settings : ElementarySettings.
    noise : float. Of the states, in units of their size.
    products_alone : bool, default=False. Whether no functions are offered.

    found : dict. Screened of the sets whose inner parameters were solved for.
    best : Screened or None. What the next round begins with.
    n_rounds : int. How many are done.
    """

    def __init__(self, learned, offered, e, settings, noise=0.0, products_alone=False):
        self.found, self.best, self.n_rounds = {}, None, 0
        self.offered, self.e, self.settings = offered, e, settings
        self.how = ScreeningOfFunctions()
        self.variables = {*learned.variables}
        self.is_in_space = len(self.variables) > 1
        how = self.how
        least = how.least_in_space if self.is_in_space else how.least_noise
        self.least = max(noise, least)
        self.grid = [t for t in offered.terms if t.equation == e]
        if products_alone:
            self.grid = [t for t in self.grid if not t.function.family]
        self.grid += between(self.grid, self.how.ratio)
        times, functions = _times(learned, e), learned.observations.functions
        observed = [np.unique(data.points[:, 0]) for data in functions]
        self.parts = [*zip(times, observed, strict=True)]
        self.ends, self._known = np.cumsum([*map(len, times)])[:-1], {}
        self.target = self._compared(learned.targets[e])
        self.unit, n = rms(self.target) or 1.0, len(self.target)
        self.n_free = max(1, n - len(self.parts))
        if self.is_in_space:  # points between observations tell nothing more
            self.n_free = min(n, sum(len(data.values) for data in functions))
            self.unit *= np.sqrt(n / self.n_free)
        self.odds = TermOdds(offered.kinds, settings.n_expected)

    def run(self, n_rounds=None):
        """Find sets of terms, going on until so many rounds are done.

        None: as many as the settings say, or as are of use.
        """
        while self.n_rounds < (n_rounds or self.how.n_rounds):
            self._refine(self._offers(self.best))
            self.n_rounds += 1
            first = next(iter(self.ranked(1)), None)
            if first is None or (self.best and first.score <= self.best.score):
                self.n_rounds = self.how.n_rounds
                break
            self.best = first

    def ranked(self, n):
        """The n best sets that were found, a list of Screened."""
        return sorted(self.found.values(), key=lambda each: -each.score)[:n]

    def with_errors_of_states(self, n_best):
        """The best sets if states have errors.

        For each of the floors a list of at most `n_best`.

        They differ in more than inner parameters.
        """
        least = self.least_found
        return [self.at_noise(floor * least, n_best) for floor in self.how.floors]

    @property
    def least_found(self):
        """The least noise that a set was found to leave."""
        return min((each.noise for each in self.found.values()), default=self.least)

    def at_noise(self, level, n_best):
        """The best sets, at most `n_best` of them, for noise from a level on."""
        sets, kinds = [each.terms for each in self.found.values()], {}
        fits = self._fits(sets, level, self.how.n_scales)
        for each, _ in sorted(fits, key=lambda pair: -pair[0].score):
            kinds.setdefault(frozenset(map(kind_of, each.terms)), each)
        return [*kinds.values()][:n_best]

    def _offers(self, best):
        """Sets of terms that are worth their inner parameters being solved for.

        Few products of operators with a term or two, or with all functions of the best
        set so far or one of these; and what differs so from that set.
        """
        columns = self._columns(() if best is None else best.terms)
        places = range(len(columns.terms))
        own = [columns.with_slope(i) for i in places if columns.is_own(i)]
        functions = [pair for pair in own if len(pair) > 1]
        products = [
            i
            for i in columns.products(self.e)
            if self.variables.isdisjoint(dict(columns.terms[i].function.powers))
        ]
        most = self.settings.n_small
        subsets = [*small_subsets(products, range(len(products) + 1), most)]
        bases = [sum(own, ())]
        bases += [sum(own[:i] + own[i + 1 :], ()) for i in range(len(own))]
        for kept in (sum(functions, ()), *functions):
            bases += [(*kept, *each) for each in subsets]
        bases = [*dict.fromkeys(bases)]
        ranked = columns.best_added(bases)
        ranked += columns.best_added([kept for _, kept in ranked[: self.how.n_kept]])
        ranked += columns.scored([base for base in bases if base])
        by_size = {}
        for _, kept in sorted(ranked, key=lambda pair: -pair[0]):
            sets = by_size.setdefault(columns.size(kept), {})
            if len(sets) < self.how.n_offered:
                sets.setdefault(columns.kind(kept), kept)
        every = [kept for sets in by_size.values() for kept in sets.values()]
        return [terms for terms, _ in columns.solved(every)]

    def _refine(self, offers):
        """Solve for the inner parameters of sets, of each size the best after a few.

        Where parameters are on a grid, sets of others may come nearer by chance.
        """
        by_size, best = {}, []
        for tried in self._refined(offers, self.how.first_steps):
            by_size.setdefault(len(tried.terms), []).append(tried)
        for tried in by_size.values():
            tried.sort(key=lambda each: -each.score)
            best += [each.terms for each in tried[: self.how.n_kept]]
        for refined in self._refined(best, self.how.max_steps):
            flat = self.offered.are_flat(refined.terms)
            if not (flat or _have_twins(refined.terms)):
                self.found[frozenset(refined.terms)] = refined

    def _refined(self, sets, n_steps):
        """Sets with the inner parameters that explain the equation best."""
        best, last = [None] * len(sets), [np.inf] * len(sets)
        moving, limit = dict(enumerate(sets)), self.settings.largest_change
        for _ in range(n_steps):
            places, fits = [*moving], self._fits(moving.values(), self.least)
            for i, (fit, moves) in zip(places, fits, strict=True):
                if best[i] is None or fit.score > best[i].score:
                    best[i] = fit
                change = np.max(np.abs(moves), initial=0.0)
                terms = moving.pop(i)
                if change < 4 * last[i] and not change < self.how.tol:
                    by = np.exp(np.clip(moves, -limit, limit))
                    pairs = zip(terms, by.tolist(), strict=True)
                    moving[i], last[i] = [moved(*pair) for pair in pairs], change
        return best

    def _fits(self, sets, least, n_scales=1):
        """Values of terms for noise above a level, and how their parameters change.

        Returns fits : list of (Screened, ndarray of shape (k,)). With the evidence for
            the noise that suits the terms, and changes of the parameters' logarithms.
        """
        sets, alike = [tuple(terms) for terms in sets], {}
        self._find_effects([term for terms in sets for term in terms])
        for i, terms in enumerate(sets):
            n_inner = sum(term.function.is_free for term in terms)
            alike.setdefault((len(terms), n_inner), []).append(i)
        fits = [None] * len(sets)
        for (size, _), places in alike.items():
            own = [self._effects_of(sets[i]) for i in places]
            found = self._solved(np.array(own), least * self.unit, n_scales)
            values, squares, volumes = found
            noises = np.maximum(squares / self.n_free, 1.0)
            scores = -0.5 * (self.n_free * np.log(noises) + squares / noises) - volumes
            alike = [sets[i] for i in places]
            scores += self.odds.many(np.array([[t.origin for t in a] for a in alike]))
            moves = _moves(alike, values)
            levels = (least * noises**0.5).tolist()
            own = alike, values[:, :size], scores.tolist(), levels
            pairs = zip(map(Screened, *own), moves, strict=True)
            for i, pair in zip(places, pairs, strict=True):
                fits[i] = pair
        return fits

    def _effects_of(self, terms):
        """The effects (k, n) of terms, then of the slopes of those that have some."""
        known = [self._known[t.function] for t in terms]
        return [own for own, *_ in known] + [
            slope for _, *own in known for slope in own
        ]

    def _solved(self, effects, level, n_scales):
        """Regressions of what is to be explained on sets of effects (m, k, n).

        The prior scale of the values is found in `n_scales` steps, from one: terms that
        cancel each other have large ones.

        Returns values, squares, volumes : ndarray of shape (m, k), (m,), (m,). The
            least sums of squares in units of the level of noise, that of the prior
            included, and half the log ratio of posterior and prior precisions.
        """
        m, k, _ = effects.shape
        effects, scale = np.swapaxes(effects, 1, 2) / level, np.ones(m)
        right = np.concatenate([self.target / level, np.zeros(k)])
        for _ in range(n_scales):
            prior = np.eye(k) / scale[:, None, None]
            rows = np.concatenate([effects, prior], axis=1)
            Q, R = np.linalg.qr(rows)
            values = np.linalg.solve(R, (right @ Q)[:, :, None])
            used, scale = scale, np.maximum(_rms_of_rows(values[:, :, 0]), 1.0)
        squares = np.sum((right - (rows @ values)[:, :, 0]) ** 2, axis=1)
        diagonals = np.abs(np.diagonal(R, axis1=1, axis2=2)) * used[:, None]
        return values[:, :, 0], squares, np.sum(np.log(diagonals), axis=1)

    def _columns(self, terms):
        """Columns of some terms, and of all others of the table."""
        present = {t.function for t in terms}
        everything = [*terms, *(t for t in self.grid if t.function not in present)]
        self._find_effects(everything)
        effects = np.column_stack(self._effects_of(everything))
        level = self.least * self.unit

        def evidence(odds):
            given = effects / level, self.target / level
            return ColumnEvidence(*given, odds, (1.0, np.inf), self.n_free)

        own = {*map(id, terms)}
        return FunctionColumns(self.offered, everything, own, evidence, self.settings)

    def _find_effects(self, terms):
        """Find the integrals of terms and of their slopes that are not known yet.

        In units of their prior scale; where a function is not defined they are zero.
        """
        new = [t.function for t in terms if t.function not in self._known]
        new = [*dict.fromkeys(new)]
        if not new:
            return
        inner = [i for i, function in enumerate(new) if function.is_free]
        slopes = [new[i].in_log_parameter() for i in inner]
        with np.errstate(all="ignore"):
            values = self.offered.values_of([*new, *slopes], self.e)
            sizes = [self.offered.scale_of(own, self.e) for own in values[: len(new)]]
            values *= np.array([*sizes, *(sizes[i] for i in inner)])[:, None]
        values[~np.all(np.isfinite(values), axis=1)] = 0.0
        effects = self._compared(values)
        self._known |= {f: [own] for f, own in zip(new, effects, strict=False)}
        for i, own in zip(inner, effects[len(new) :], strict=True):
            self._known[new[i]].append(own)

    def _compared(self, values):
        """Of values (..., n) at collocation points what is compared.

        In space these themselves. In time their integrals at the observed times,
        without their mean over each function, as it is not known where they start.
        """
        if self.is_in_space:
            return values
        parts = np.split(values, self.ends, axis=-1)
        return np.concatenate(
            [
                own[..., first] @ matrix.T
                for (matrix, first), own in zip(self._integrals, parts, strict=True)
            ],
            axis=-1,
        )

    @cached_property
    def _integrals(self):
        """What gives the integrals of a function, and which of its values: pairs."""
        found = []
        for t, observed in self.parts:
            t, first = np.unique(t, return_index=True)
            matrix = CubicSpline(t, np.eye(len(t))).antiderivative()(observed)
            found.append((matrix - np.mean(matrix, axis=0), first))
        return found


def better_than_products(learned, offered, e, settings, noise):
    """Sets that explain an equation in time and space best, by levels of noise.

    Those with functions have to be far more probable than any products at that level;
    where none are, the best products.

    learned, offered, e, settings, noise : as those of :class:`FunctionScreening`.

    Returns ranked : list of list of Screened. At most `settings.n_tried` of each level;
        none if they have to be far more probable, and are not.
    """
    every, alone = (
        FunctionScreening(learned, offered, e, settings, noise, products_alone)
        for products_alone in (False, True)
    )
    n, how = settings.n_tried, every.how
    for n_rounds in (1, None) if settings.at_first else (None,):
        every.run(n_rounds)
        alone.run(n_rounds)
        levels = [floor * every.least_found for floor in how.floors]
        pairs = [(every.at_noise(v, n), alone.at_noise(v, n)) for v in levels]
        gains = [_first_score(found) - _first_score(own) for found, own in pairs]
        if settings.at_first and not max(gains) > how.far_better:
            return []
    ranked = []
    for found, products in pairs:
        least = _first_score(products) + how.better
        ranked.append([own for own in found if own.score > least] or products)
    return ranked


def _first_score(ranked):
    """The log evidence of the best of some sets, that of none if there are none."""
    return ranked[0].score if ranked else -np.inf


def combined(ranked):
    """Sets of terms of all equations, and their values.

    From those of each equation, by levels of noise at which all have some; of one kind
    the first.
    """
    offers = {}
    for own in filter(all, zip(*ranked, strict=True)):
        for each in _one_exchanged(own):
            terms = [term for screened in each for term in screened.terms]
            values = np.concatenate([screened.values for screened in each])
            offers.setdefault(frozenset(map(kind_of, terms)), (terms, values))
    return offers.values()


def _one_exchanged(ranked):
    """The first of each list, and these with another one of one list in turn."""
    first = [own[0] for own in ranked]
    yield first
    for e, own in enumerate(ranked):
        yield from ([*first[:e], other, *first[e + 1 :]] for other in own[1:])

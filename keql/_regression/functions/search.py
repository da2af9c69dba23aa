"""Elementary functions among the terms of ordinary differential equations.

Products of operators, and functions such as sin(k u) on a grid of their inner
parameters, are columns of the linearised problem of exact trajectories, where the
evidence of sets of them is a matter of small factorisations. The best are solved for
together with their parameters: the derivative of a function in the logarithm of its
parameter is a column beside it, whose coefficient, over that of the function, says by
how much the parameter changes (Golub and Pereyra, "The differentiation of
pseudo-inverses and nonlinear least squares problems whose variables separate", SIAM
Journal on Numerical Analysis 10, 1973).
"""

from dataclasses import replace
from functools import cached_property, partial
from itertools import chain

import numpy as np

from keql._numerics.linalg import rms
from keql._numerics.optimisation import make_no_progress
from keql._numerics.subsets import SubsetEvidence, TermOdds
from keql._observations.data import PredictionScale, left_out_errors
from keql._regression.functions.columns import ColumnEvidence, FunctionColumns
from keql._regression.functions.nearby import SetsNear
from keql._regression.functions.screening import (
    FunctionScreening,
    better_than_products,
    can_be_screened,
    combined,
)
from keql._regression.functions.terms import (
    Refined,
    are_in_products,
    falls_short,
    moved,
    n_extensions,
    with_slopes,
    without_slopes,
)


def _most_probable(*found):
    """The one with the highest score of Refined or None, or None."""
    known = (own for own in found if own is not None)
    return max(known, key=lambda own: own.score, default=None)


class ElementarySearch:
    """The terms of the highest evidence, elementary functions among them.

    problem : TrajectoryProblem.
    offered : FunctionTable.
    settings : ElementarySettings.
    report : callable. Called after each step with the linearised problem and the number
        of the step; returns True to stop the search.
    steps, first : list of Refined, Refined or None. What was solved for; the start.
    """

    def __init__(self, problem, offered, settings, report):
        self.problem, self.offered, self.settings = problem, offered, settings
        self.report, self.is_stopped = report, False
        self.tried, self.steps, self.first = {}, [], None

    def run(self, start, iterate, enough):
        """The best terms.

        start : list of (Term, float). Terms and coefficients to linearise with first.
        iterate : TrajectoryIterate. States to start from.
        enough : float. Error of predictions at which no other set is tried in a round.

        Returns refined : Refined or None.
        """
        terms, values = [term for term, _ in start], [value for _, value in start]
        values = np.array(values) / self.offered.scales(terms)
        at = self.problem, terms, values, iterate
        if start:  # for its evidence
            self.first = self.solve(*at)
            if self.is_stopped:
                return None
            if self.first is not None:  # with the noise that is found with them
                at = self.first.model.problem, *at[1:]
        coupled, settings = self._coupled(iterate), self.settings
        if self.is_stopped or (coupled is not None and coupled.error < enough):
            return coupled
        alone, known = settings.of_single_states, _most_probable(self.first, coupled)
        found = self._uncoupled(at, known, enough) if alone else None
        least = -np.inf if found is None else found.score - settings.dispensable
        if coupled is not None and coupled.score > least and not self.is_stopped:
            if self._has_much_noise or not alone:
                coupled = self._near(coupled, enough, settings.n_rounds) or coupled
        return _most_probable(found, coupled)

    def _uncoupled(self, at, known, enough):
        """The best terms near the start, or those that explain the trajectories.

        at : tuple. The problem, terms (a list of Term), values (n,) in units of the
            scales, and iterate to linearise at first.
        known : Refined or None. The best terms so far.
        enough : float. As in :meth:`run`.

        Returns refined : Refined or None.
        """
        if not self.problem.learned.setup.is_system:
            return self._of_single(at, enough)
        n_rounds, [_, terms, _, iterate] = self.settings.n_rounds, at
        if terms and n_rounds and self._has_much_noise:
            return self._in_rounds(*at, None, enough, n_rounds)
        best = self._along(enough, iterate)
        if best is None or self.is_stopped:
            return best
        best = self._pruned(best)
        if self.is_stopped or best.error < enough:
            return best
        if not self._has_much_noise:
            return self._near(best, enough, self.settings.n_rounds_along)
        if known is None or known.error > self._missed_by_noise:
            return best
        if not self._is_better(best, known):
            return best
        near = self._in_rounds(*at, None, enough, self.settings.n_rounds_again)
        return _most_probable(best, near)

    def _of_single(self, at, enough):
        """The same of a single equation.

        Right ones may be far from where it is linear, or not defined there: they are
        looked for along the trajectories, too, if observations are missed.
        """
        n_rounds, first, met = self.settings.n_rounds, 1, enough
        if self._has_much_noise:
            first, met = n_rounds, self._missed_by_noise
        best = self._in_rounds(*at, None, enough, first)
        if self.is_stopped or (best is not None and best.error < met):
            return best
        along = self._along(enough)
        if along and not self.is_stopped and (not best or along.score > best.score):
            best = self._pruned(along)
        if best is None or self.is_stopped:
            return best
        return self._near(best, enough, n_rounds)

    def _near(self, best, enough, n_rounds):
        """The best of sets near one that was found, linearised there."""
        given = best.model.problem, list(best.terms), best.values, best.iterate
        return self._in_rounds(*given, best, enough, n_rounds)

    def _in_rounds(self, problem, terms, values, iterate, best, enough, n):
        """The best of sets near the terms, linearised again where that is, n times."""
        for _ in range(n):
            is_met = best is not None and best.error < enough
            most = len(best.terms) if is_met else np.inf
            columns = self._linearised(problem, terms, values, iterate)
            if columns is None:
                return best
            near = SetsNear(columns, self.settings, self._has_much_noise)
            offers = near.changed(best is None, most)
            if best is not None and not is_met:
                offers = chain(offers, near.replaced())
            found = self._best_of(problem, offers, iterate, best, enough)
            if found is None or self.is_stopped or not self._is_better(found, best):
                return found
            best = self._pruned(found)
            terms, values, iterate = list(best.terms), best.values, best.iterate
            problem = best.model.problem
        return best

    def _is_better(self, found, best):
        """Whether the evidence of terms is so much higher that others may be near."""
        return best is None or found.score >= best.score + self.settings.better

    def run_along(self, iterate, enough):
        """The best terms with functions that explain states in time and space.

        Those of two steps, which know derivatives well enough to tell a sine from a
        power where no polynomial leads to exact states. None if products explain them
        as well, or if none of the sets can be solved for. What noise has hidden there
        is looked for near the best one, if it predicts with more than `enough` errors.
        """
        noise = self._relative(self.problem.learned.observation_noise)
        known = self.problem.learned, self.offered
        better = partial(better_than_products, *known, noise=noise)
        found = {e: better(e, settings=self.settings) for e in self._unknown}
        if not any(found.values()):
            return None
        every = replace(self.settings, at_first=False)  # one is enough
        ranked = [own or better(e, settings=every) for e, own in found.items()]
        sets = (each for own in ranked for part in own for each in part)
        if not any(term.function.family for each in sets for term in each.terms):
            return None
        offers = combined(ranked)
        best = self._best_of(self.problem, offers, iterate, None)
        if best is None or self.is_stopped:
            return best
        best = self._pruned(best)
        if self.is_stopped or best.error < enough:
            return best
        return self._near(best, 0.0, self.settings.n_rounds)

    @cached_property
    def odds(self):
        """Those of sets of terms before data are seen."""
        return TermOdds(self.offered.kinds, self.settings.n_expected)

    @property
    def _unknown(self):
        """The positions of the equations with unknown parts."""
        return sorted({term.equation for term in self.offered.terms})

    def _coupled(self, iterate):
        """Pairs of phases that pull each other, if more probable than the start."""
        least = -np.inf if self.first is None else self.first.score
        tried = []
        for terms in self.offered.couplings():
            given = self.problem, terms, np.zeros(len(terms)), iterate
            tried.append(self.solve(*given, least - self.settings.dispensable))
            if self.is_stopped:
                return None
        best = max(filter(None, tried), key=lambda each: each.score, default=None)
        if best is None:
            return None
        best = self._pruned(best)
        return best if best.score > least else None

    def _along(self, enough, iterate=None):
        """The best of the sets that explain each equation along states of two steps.

        With noise, which hides the errors of states, those of each equation in turn.
        They are solved for from an iterate, or from these states.
        """
        learned, ranked = self.problem.learned, []
        noise = self._relative(learned.observation_noise)
        if not can_be_screened(learned):
            return None
        n_tried = self.settings.n_tried
        for e in self._unknown:
            given = learned, self.offered, e, self.settings
            screening = FunctionScreening(*given, noise if self._has_much_noise else 0)
            screening.run(None if self.settings.n_rounds else 1)
            if self._has_much_noise:
                ranked.append([screening.ranked(n_tried)])
            else:
                ranked.append(screening.with_errors_of_states(n_tried))
        iterate = self.problem.start() if iterate is None else iterate
        offers = self._with_products(combined(ranked))
        return self._best_of(self.problem, offers, iterate, None, enough)

    def _with_products(self, offers):
        """Sets of terms and values, each after one with products in their place."""
        for kept, first in offers:
            for products in self.offered.with_products(kept):
                yield products, first
            yield kept, first

    def _best_of(self, problem, offers, iterate, best, enough=0.0):
        """The best of some sets of terms, and of what was found before."""
        for kept, first in offers:
            least = -np.inf if best is None else best.score - self.settings.margin
            refined = self.solve(problem, kept, first, iterate, least)
            if self.is_stopped:
                break
            if refined is None:
                continue
            natural = self.offered.at_nearest_natural(refined.terms)
            refined = self._or_with(natural, refined, least)
            if best is None or refined.score > best.score:
                best = refined = self._with_shorter_steps(refined, enough)
            if self.is_stopped or refined.error < enough:
                break
        return best

    def _or_with(self, terms, refined, least=-np.inf):
        """What was found, or other terms, or None, with its values if more probable."""
        given = refined.model.problem, terms, refined.values, refined.iterate
        other = None if terms is None else self.solve(*given, least)
        return other if other is not None and other.score > refined.score else refined

    def _with_shorter_steps(self, refined, enough):
        """Terms solved for with shorter steps in time where theirs are too long.

        Polynomials were resolved with those; functions may have kinks, as |u| has.
        """
        if len(self.problem.learned.variables) > 1:
            return refined
        for _ in range(self.settings.n_resolutions):
            finer = None
            if not refined.error < enough:
                finer = refined.model.problem.resolved(refined.iterate)
            if finer is None:
                break
            problem, iterate = finer
            given = list(refined.terms), refined.values, iterate
            again = self._solved(problem, *given)
            if again is None:
                break
            refined = again
        return refined

    def _pruned(self, best):
        """Terms without those whose loss raises the evidence.

        Of many the most dispensable ones are enough, if one of these can go; whether
        all others are needed is asked where none can.
        """
        while True:
            for products in self.offered.with_products(best.terms):
                best = self._or_with(products, best)
            fewer = [
                ([*best.terms[:i], *best.terms[i + 1 :]], np.delete(best.values, i))
                for i in self._dispensable(best)
                if len(best.terms) > 1
            ]
            found, n = best, self.settings.n_tried
            for offers in (fewer[:n], fewer[n:]):
                if found is best and not self.is_stopped:
                    given = best.model.problem, offers, best.iterate
                    found = self._best_of(*given, best)
            if found is best:
                return best
            best = found

    def _dispensable(self, best):
        """Terms without which evidence may be near that of the best, the highest first.

        By its linearised problem, in which noise is of maximum likelihood: far lower
        evidence is no matter of what steps from there would change.
        """
        regression, columns = best.model.regression, []
        for e in sorted({t.equation for t in best.terms}):
            own = [j for j, t in enumerate(best.terms) if t.equation == e]
            slopes = [j for j in own if best.terms[j].function.is_free]
            columns += [*own, *slopes]
        target, effects = regression.whitened()

        def odds_of(kept):
            return self.odds([best.terms[j].origin for j in {columns[k] for k in kept}])

        given = effects, target, np.eye(effects.shape[1]), odds_of
        evidence = SubsetEvidence(*given, (1.0, np.inf), regression.n_free)
        least = evidence([*range(len(columns))]) - self.settings.dispensable
        without = (
            [k for k, j in enumerate(columns) if j != i] for i in range(len(best.terms))
        )
        found = [(evidence(kept), i) for i, kept in enumerate(without)]
        return [i for value, i in sorted(found, reverse=True) if value > least]

    # --- what is solved for -------------------------------------------------------

    def solve(self, problem, terms, values, iterate, least=-np.inf):
        """Terms solved for together with their inner parameters; None if that fails.

        Or if they say nothing else than products do.
        """
        key = frozenset((t.equation, t.function) for t in terms)
        if key in self.tried:
            return self.tried[key]
        found = self._solved(problem, terms, values, iterate, least)
        if found is not None and (
            are_in_products(found, self.offered.degree)
            or self.offered.are_flat(found.terms)
        ):
            found = None
        self.tried[key] = found
        if found is not None:
            self.steps.append(found)
        return found

    def _solved(self, problem, terms, values, iterate, least=-np.inf):
        """The same, whatever was solved for before."""
        settings, terms = self.settings, sorted(terms, key=lambda t: t.equation)
        if len(values) != len(terms):
            values = np.zeros(len(terms))
        weights = with_slopes(terms, values, len(self.offered.sizes))
        changes, fraction, score = [], 1.0, -np.inf
        for step in range(settings.max_steps):
            here = replace(
                iterate,
                equations=self.offered.equations(problem.learned, terms, weights),
            )
            model = problem.linearise(problem.evaluate(here))
            if model is None:
                return None
            problem = model.problem
            tol = self._tolerance(problem)  # of the noise that is found with the terms
            change = problem.change(here, model.solution)
            if changes and change > 0.9 * changes[-1]:
                fraction = max(fraction / 2, 1 / 16)
            elif changes and change < (1 - fraction / 2) * changes[-1]:
                fraction = min(2 * fraction, 1.0)  # a part of a step leaves the rest
            changes.append(change)
            if make_no_progress(changes, settings.patience, 0.9):
                return None
            found = model.regression.weights
            if not np.all(np.isfinite(found)):
                return None
            if self.report(model, step + 1):
                self.is_stopped = True
                return None
            before, score = score, self._score(model, terms)
            if step >= settings.first_look and falls_short(
                score, before, least, settings.patience - step
            ):
                return None
            values, moves = without_slopes(terms, found)
            iterate = model.solution
            if fraction < 1:
                iterate = problem.interpolate(here, iterate, fraction)
            limit = settings.largest_change
            factors = np.exp(np.clip(fraction * moves, -limit, limit))
            terms = [moved(t, by) for t, by in zip(terms, factors, strict=True)]
            if change < tol and np.max(np.abs(moves), initial=0) < 1e3 * tol:
                break
            weights = with_slopes(terms, values, len(self.offered.sizes))
        else:
            return None
        return self._refined(terms, values, iterate, model)

    def _refined(self, terms, values, iterate, model):
        errors = left_out_errors(model, self.problem.learned.observations)
        score = self._score(model, terms)
        return Refined(tuple(terms), values, iterate, model, score, rms(errors))

    def _score(self, model, terms):
        against = self.settings.against * n_extensions(terms)
        return model.log_evidence() + self.odds([t.origin for t in terms]) - against

    def _tolerance(self, problem):
        noise = self._relative(problem.prior.noise)
        return max(self.settings.tol, self.settings.part * noise)

    def _relative(self, noise):
        """Noise levels (J,) in units of the size of the observations."""
        scale = PredictionScale(self.problem.learned.observations)
        return scale.noise(noise) / scale.size

    @property
    def _missed_by_noise(self):
        """Errors of predictions from which on observations are missed."""
        scale = PredictionScale(self.problem.learned.observations)
        noise = scale.noise(self.problem.learned.observation_noise)
        return self.settings.missed * noise

    @property
    def _has_much_noise(self):
        noise = self.problem.learned.observation_noise  # that of two steps
        return self._relative(noise) > self.settings.much_noise

    # --- what they are chosen from -----------------------------------------------

    def _linearised(self, problem, terms, values, iterate):
        """All columns at terms with these values; None if they cannot be integrated."""
        offered = self.offered
        present = {(t.equation, t.function) for t in terms}
        more = [t for t in offered.terms if (t.equation, t.function) not in present]
        weights = []
        for e in range(len(offered.sizes)):
            own = [v for t, v in zip(terms, values, strict=True) if t.equation == e]
            n = sum(1 for t in more if t.equation == e)
            weights.append(np.r_[own, np.zeros(n)])
        everything = sorted([*terms, *more], key=lambda t: t.equation)
        slopes = [
            sum(t.function.is_free for t in everything if t.equation == e)
            for e in range(len(offered.sizes))
        ]
        weights = [np.r_[w, np.zeros(n)] for w, n in zip(weights, slopes, strict=True)]
        here = replace(
            iterate, equations=offered.equations(problem.learned, everything, weights)
        )
        responses = problem.responses(here)
        if responses is None:
            return None
        # Noise and scale are those found with fewer columns.
        regression = problem.regression(here, responses)
        target, effects = regression.whitened()
        how = regression.level_range, regression.n_free

        def evidence(odds):
            return ColumnEvidence(effects, target, odds, *how)

        own = {*map(id, terms)}
        return FunctionColumns(offered, everything, own, evidence, self.settings)

"""The search for terms where the problem of exact states is linearised.

There the weights of all terms act on the observations linearly, so that the evidence of
any set of terms is a matter of small factorisations: sets are searched, and the best is
solved for; its solution is where the next search linearises.
"""

from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from keql._evolution.form import are_semilinear, diffusion_in
from keql._evolution.model import with_best_prior
from keql._joint.assembly import joint_basis
from keql._numerics.linalg import rms
from keql._numerics.optimisation import Stop
from keql._numerics.subsets import TermOdds
from keql._observations.data import PredictionScale, left_out_errors
from keql._regression.screening import without_terms
from keql._regression.term_scores import TermScores, TermSets
from keql.model_selection._terms._coordinates import ConvergedSet, in_fewest_terms
from keql.model_selection._terms._fewer import step_of, with_step
from keql.model_selection._terms._near import SetsNear


class LinearisedTermSearch:
    """The set of terms of the highest evidence, solved for.

    best : Result or None. The solution with these terms.
    score : float. Its log evidence with the odds of the set, up to a constant.
    kept : list of int or None. Positions of its terms.
    best_converged : tuple. These three of the best solution whose steps converged.
    steps : list of TermsStep. All sets that were solved for.
    ends : list of ConvergedSet. Of hidden states, those whose steps converged.
    reached : float. Log evidence that searches from other states came to before.
    repeats : TrajectoriesFound or None. Where another search ended that went on from
        a set that this one came to, with as large errors: from there it would find what
        that did, and ends.
    lacks_terms : bool. Whether very many terms stand for some that might be on offer.
    """

    def __init__(self, problem, table, solve, settings, known=(), reached=-np.inf):
        self.problem, self.table, self.solve = problem, table, solve
        self.settings, self.repeats, self.known = settings, None, {}
        self.reached, self.lacks_terms = reached, False
        for end in known:
            leading = [step for step in end.steps if step.leads]
            self.known |= {frozenset(s.terms): (s.error, end) for s in leading}
        self.basis = joint_basis(problem.learned.equations)
        everything = list(range(len(table.groups)))
        self.single = table.weights(self.basis, everything, np.eye(len(everything)))
        equations = problem.learned.equations
        self.scores = TermScores(table, self.single, equations, settings.prior)
        sizes = settings.few, settings.share, settings.n_compared
        self.sets, self.near = TermSets(table, *sizes), SetsNear(table, settings)
        self.best, self.score, self.kept = None, -np.inf, None
        self.best_converged = None, -np.inf, None
        self.steps, self.tried, self.ends = [], set(), []

    def extend(self, fit):
        """Search from trajectories whose equations have some of the terms."""
        iterate, table = fit.result.solution, self.table
        values = table.values_of(iterate.equations)
        kept = [i for i, v in enumerate(values) if v or table.groups[i] < 0]
        if not kept:  # all coefficients are zero
            return
        problem = self.problem.on_grid_of(fit.problem)
        basis = table.restricted(self.basis, kept)
        equations = self._with(basis, kept, values[kept])
        result = self.solve(problem, replace(iterate, equations=equations))
        if result is None or result.interrupted:
            self.best = result
        else:
            self.tried.add(tuple(kept))
            self._record(kept, result)
            self.run(*self._with_all_terms(self.best, self.kept))

    def run(self, problem, iterate, begins_dense=True):
        """Search, solve and search again where the solution is.

        Unless it `begins_dense`, nothing is solved for where the best set at the first
        states has very many terms: these stand for what is wrong about such states.
        """
        for _ in range(self.settings.n_rounds):
            before, model = self.score, problem.linearise(problem.evaluate(iterate))
            if model is None and self.kept is None:
                without = tuple(map(without_terms, iterate.equations))
                iterate = replace(iterate, equations=without)
                model = problem.linearise(problem.evaluate(iterate))
            if model is not None:
                score = self.scores.linearised(model)
            elif self.kept is not None:
                model, score = self._among_semilinear(problem, iterate)
            if model is None:
                return
            if self.kept is None:
                offers = [self.sets.best(score)]
                if not begins_dense and self._is_dense(offers[0]):
                    return
            else:
                offers = self._best_neighbours(score, model, iterate)
            for offer in offers:
                self._try(offer, model, score, iterate)
                if self.is_stopped:
                    return
            if self.best is None:
                self._try_more(model, iterate)
            if self.best is None:
                self._try_fewer(model, score, iterate)
            if self.repeats is not None:
                return
            if not (self.score > before and self._leads_on) or self._is_hopeless():
                return
            self.shorten_steps()
            if self.best.interrupted:
                return
            problem, iterate = self._with_all_terms(self.best, self.kept)

    def run_from_diffusion(self, problem, iterate):
        """Search from the best sets that are told where all states diffuse.

        Errors of noisy states are short waves, along which effects of derivatives are
        large, and hide those of the right terms where nothing smooths them. At a speed
        of one waves as long as the extent of the points decay by a factor of e.
        """
        diffusion = self._diffusion()
        everything = list(range(len(diffusion)))
        for speed in self.settings.diffusions if np.any(diffusion) else ():
            diffusing = self._with(self.basis, everything, speed * diffusion)
            there = replace(iterate, equations=diffusing)
            model = problem.linearise(problem.evaluate(there))
            if model is None:
                continue
            score = self.scores.linearised(model)
            offer = self.near.improved(self.sets.best(score), score)
            if tuple(offer) not in self.tried:
                self._try(offer, model, score, there)
            if self.is_stopped:
                return
        self._go_on()

    def _go_on(self):
        """Search from the best set so far, if there is one, with short enough steps."""
        self.shorten_steps()
        if self.best is not None and not self.is_stopped:
            self.run(*self._with_all_terms(self.best, self.kept))

    def _diffusion(self):
        """Coefficients (q,) with which states diffuse; zero where some terms stay."""
        table, learned = self.table, self.problem.learned
        if np.any(table.groups < 0) or any(own.ndim != 2 for own in table.exponents):
            return np.zeros(len(table.groups))
        each = enumerate(table.exponents)
        return np.concatenate([diffusion_in(learned, e, own) for e, own in each])

    def run_from_semilinear(self, problem, iterate):
        """Search anew from the best set without products of highest derivatives.

        These let short waves grow, and some of very many terms are there for the errors
        of the first states, above all if these are of noisy values. The best set is
        looked for where equations with all others are solved, too. Nothing is tried if
        equations then have too few terms.
        """
        table = self.table
        model = problem.linearise(problem.evaluate(iterate))
        offered = table.positions(partial(are_semilinear, self.problem.learned))
        counts = [np.sum(table.groups[offered] == e) for e in range(len(table.fewest))]
        pairs = zip(counts, table.fewest, strict=True)
        if model is None or any(0 < count < least for count, least in pairs):
            return
        score = self.scores.linearised(model)
        self._try(self.sets.best(score, offered), model, score, iterate)
        everything = self._solved(offered, model, score, iterate)
        everything = everything and self._finer(everything, "with_short_steps")
        if everything is not None and everything.interrupted:
            self._record(offered, everything)
            return
        if everything is not None and everything.converged:
            problem, iterate = self._with_all_terms(everything, offered)
            model = problem.linearise(problem.evaluate(iterate))
            if model is not None:
                score = self.scores.linearised(model)
                self._try(self.sets.best(score, offered), model, score, iterate)
        self._go_on()

    def _among_semilinear(self, problem, iterate):
        """The linearised problem without products of highest derivatives, or None.

        Other than those of the best set: along states that nothing smooths the cube of
        a second derivative has effects beyond all bounds. And the evidence of sets.
        """
        table, learned = self.table, self.problem.learned
        if len(learned.variables) == 1:
            return None, None
        semilinear = table.positions(partial(are_semilinear, learned))
        offered = sorted({*semilinear, *self.kept})
        values = table.values_of(iterate.equations)[offered]
        basis = table.restricted(self.basis, offered)
        here = replace(iterate, equations=self._with(basis, offered, values))
        model = problem.linearise(problem.evaluate(here))
        single = table.weights(basis, offered, np.eye(len(offered)))
        given = offered, single, iterate.equations
        return model, model and self.scores.of_some(model, *given)

    def or_better(self, way, problem, start):
        """Search in a way, a method, if none has led to a solution of few terms.

        What was found before stays the best if it is more probable.
        """
        before = self.best_converged
        if self.is_stopped or self.repeats is not None:
            return
        if before[0] is not None and not self._is_dense(before[2]):
            return
        self.best, self.score, self.kept = None, -np.inf, None
        self.best_converged = None, -np.inf, None
        way(problem, start)
        if before[1] > self.best_converged[1]:
            self.best_converged = before

    @property
    def _highest_told(self):
        """The highest log evidence of a set that converged, or was reached before."""
        return max(self.best_converged[1], self.reached)

    @property
    def _leads_on(self):
        """Whether the best set converged, or is decisively better than any that did.

        Of others the evidence is known to the margin only: with a term that lets short
        waves grow steps may not end for any set near.
        """
        if self.best is self.best_converged[0]:
            return True
        return self.score > self._highest_told + self.settings.margin

    def _simpler(self, score):
        """Sets of fewer terms that are about as probable, the fewest first.

        Terms that make up for one another go together: at the solution with all of
        them a set without some is poorer than it is at its own.
        """
        if not self.settings.n_simpler:
            return
        least = score(self.kept) - self.settings.margin
        for exchanged in (False, True):
            fewer = self.sets.fewer(self.kept, score, exchanged)
            near = [kept for kept in fewer if score(kept) > least]
            near = [kept for kept in near[::-1] if tuple(kept) not in self.tried]
            yield from near[: self.settings.n_simpler]

    @property
    def is_stopped(self):
        """Whether the search was interrupted."""
        return self.best is not None and self.best.interrupted

    def _is_hopeless(self):
        """Whether the best terms so far do not predict at all."""
        observations, how = self.problem.learned.observations, self.settings
        error = rms(left_out_errors(self.best.model, observations))
        limit = how.lost if self.best.stop is Stop.NO_PROGRESS else how.hopeless
        return error > limit * PredictionScale(observations).spread

    def refresh(self):
        """Search again with the best prior of boundary values, while there is another.

        What is gained by terms depends on what boundary values may take up.
        """
        for _ in range(self.settings.n_refreshed):
            if self.best is None or not self.best.converged:
                return
            result = with_best_prior(self.best, self.problem, self.solve)
            if result is self.best:
                return
            if self.kept is None:
                self.best = result
                return
            self.tried, self.best_converged = set(), (None, -np.inf, None)
            self.score = -np.inf
            self._record(self.kept, result)
            self.run(*self._with_all_terms(self.best, self.kept))
            self.settle()

    def shorten_steps(self):
        """Solve for the best with shorter steps in time where its own are too long.

        Where that makes it more probable by as much as sets are told apart by, those
        that were tried with longer steps are to be tried again.
        """
        if self._on_finer_grids("with_short_steps") > self.settings.margin:
            self.tried, self.steps = {tuple(self.kept)}, self.steps[-1:]

    def resolve(self):
        """The same, and on a finer grid in space where that of fields is too coarse."""
        self._on_finer_grids("resolved")

    def _on_finer_grids(self, how):
        """By how much the best set is more probable there; others count as if, too."""
        before, reached, gained = self.best, self.score, 0.0
        self.best = before and self._finer(before, how)
        if self.best is before:
            return gained
        if self.kept is not None:
            self.score = self._score(self.best.model, self.kept)
        if self.kept is not None and self.best.converged:
            gained = self.score - reached
            step = self._told(self.kept, self.best, self.score, leads=True)
            self.steps = with_step(self.steps, step, gained)
        if before is self.best_converged[0] and self.best.converged:
            self.best_converged = self.best, self.score, self.kept
        return gained

    def _finer(self, result, how):
        """A result on grids that are fine enough, as far as steps lead there."""
        for _ in range(self.settings.n_resolutions):
            if not result.converged:
                break
            finer = getattr(result.model.problem, how)(result.solution)
            other = None if finer is None else self.solve(*finer)
            if other is None or self._stays_beside(other, result):
                break
            result = other
        return result

    def _stays_beside(self, other, result):
        """Whether steps on a finer grid do not end, and it hardly changes a result."""
        if not self.settings.stays or other.converged or other.interrupted:
            return False
        _, change = result.model.problem.resolution(result.solution)
        return change < self.settings.unresolved

    def _with_all_terms(self, result, kept):
        """The problem of a solution, and that with the features of all terms."""
        equations = self._complete(kept, result.solution.equations)
        return result.model.problem, replace(result.solution, equations=equations)

    def _score(self, model, kept):
        """The log evidence of the solution with a set of terms, and its odds."""
        equations = model.iterate.equations
        to_values = self.table.coefficients(joint_basis(equations), kept)
        complete = self._complete(kept, equations)
        return self.scores.solved(model, kept, to_values, complete)

    def _try(self, kept, model, score, iterate):
        """Solve for a set of terms, and record what it comes to."""
        self.tried.add(tuple(kept))
        result = self._solved(kept, model, score, iterate)
        if result is not None:
            self._record(kept, result)

    def _solved(self, kept, model, score, iterate):
        """The solution for a set of terms, or None."""
        values = model.regression.prior.scale * score.values(kept)
        basis = self.table.restricted(self.basis, kept)
        start = replace(iterate, equations=self._with(basis, kept, values))
        least = self._highest_told - self.settings.beaten
        is_part = self.settings.n_without and {*kept} < {*(self.kept or ())}
        if is_part or not np.isfinite(least):  # steps go far, or nothing competes
            return self.solve(model.problem, start)
        rivals = partial(self._score, kept=kept), least
        return self.solve(model.problem, start, rivals=rivals)

    def _try_more(self, model, iterate):
        """Solve for more terms, where the most probable ones lead nowhere.

        Those of the highest evidence, however many; or all.
        """
        no_odds = TermOdds(np.full(len(self.table.groups), -1))
        even = self.scores.linearised(model, no_odds)
        for offer in (self.sets.best(even), list(range(len(self.table.groups)))):
            if self.best is None and tuple(offer) not in self.tried:
                self._try(offer, model, even, iterate)

    def _try_fewer(self, model, score, iterate):
        """Solve for fewer and fewer terms, until there is a solution.

        Some of many are there for the errors of states, and let short waves grow, or
        trajectories explode beside these.
        """
        kept = self.sets.best(score)
        while self.best is None and self.table.removable(kept):
            kept = self.sets.without_one(kept, self.table.removable(kept), score)
            if tuple(kept) not in self.tried:
                self._try(kept, model, score, iterate)

    def _best_neighbours(self, score, model, iterate):
        """Sets that have not been solved for, the best first.

        Those near the best one, that which a search among all terms finds where the
        solution is now, and the terms of the best one that do not cancel each other. A
        search among many terms may end far from the solution, where its linearisation
        does not hold: if that leads to nothing better, those near the best one again.
        For fields then sets of fewer terms, and those with two others. Once a set has
        gained more than others promise, these are looked at anew where it is. There are
        none where many terms stand for something else.
        """
        before, first = self.score, self.sets.best(score)
        in_each = self.settings.in_each
        if self._is_dense(self.kept, in_each) and self._is_dense(first, in_each):
            self.lacks_terms = in_each
            return
        others = self.sets.neighbours(self.kept, score)
        others = (o for o in others if tuple(o) not in self.tried and o != first)
        others = [*islice(others, self.settings.n_compared)]
        ranked = [*zip(score.many(others).tolist(), others, strict=True)]
        known = self.tried | {tuple(first), *(tuple(o) for _, o in ranked)}
        ranked += self.near.few(self.kept, score, known)
        ranked, here = sorted(ranked, reverse=True), score(self.kept)
        nearest = [here, *(each for each, _ in ranked[:1])]
        highest = max(nearest)
        if tuple(first) not in self.tried:
            ranked = sorted([*ranked, (score(first), first)], reverse=True)
            highest = max(highest, score(first))
        near = self.near.within(ranked, highest)
        plain = self._without_cancelling(model, iterate)
        if not (plain in near or tuple(plain) in self.tried):
            near = [plain, *near]
        for offer in near:
            gained = self.score - before
            if gained > 0 and not gained < score(offer) - here:
                return
            yield offer
        if not self.score > before and len({*first} ^ {*self.kept}) > 2:
            left = [pair for pair in ranked if tuple(pair[1]) not in self.tried]
            yield from self.near.within(left, max(nearest))
        if not self.score > before:
            yield from self._simpler(score)
        if not self.score > before:
            yield from self.near.exchanged(self.kept, score, self.tried)
        if not self.score > before:
            yield from self.near.without_any(self.kept, score, self.ends)

    def _is_dense(self, kept, in_each=False):
        """Whether the terms kept are many enough to stand for one that is not there."""
        many, share = self.settings.many, self.settings.dense
        return self.table.has_many(kept, many, share, in_each)

    def _without_cancelling(self, model, iterate):
        """The best set without terms that cancel along the trajectories."""
        effects = model.problem.effects_on_highest(iterate) @ self.single
        values = self.table.values_of(iterate.equations)
        return self.near.without_cancelling(self.kept, values, effects, model.problem)

    def _record(self, kept, result):
        """Keep a result if it is the best so far."""
        score = self._score(result.model, kept)
        leads = score > self.score
        is_settled = result.converged or result.stop is Stop.BEATEN
        step = self._told(kept, result, score if is_settled else np.nan, leads)
        self.steps.append(step)
        if leads or result.interrupted:
            self.best, self.score, self.kept = result, score, kept
            there, end = self.known.get(frozenset(step.terms), (np.inf, None))
            is_there = abs(step.error - there) < self.settings.repeated * step.error
            self.repeats = end if is_there and not result.interrupted else None
        if self.settings.n_without and result.converged:
            self.ends.append(ConvergedSet.of(kept, score, result))
        if score > self.best_converged[1] and result.converged:
            self.best_converged = result, score, kept

    def _told(self, kept, result, score, leads):
        """The TermsStep of a set that was solved for, with its log evidence."""
        names, found = self.table.names, self.table.printed(result.solution.equations)
        return step_of(result, [names[i] for i in kept], found, score, leads)

    def settle(self):
        """End with the best solution that converged; others only lead on."""
        if not self.is_stopped and self.best_converged[0] is not None:
            own, given = self.best_converged, (self.ends, self.solve, self.settings)
            self.best_converged = in_fewest_terms(*own, *given)
            self.best, self.score, self.kept = self.best_converged

    def _complete(self, kept, equations):
        """Equations with some of the terms as ones in the features of all terms."""
        basis = joint_basis(equations)
        weights = np.concatenate([equation.weights for equation in equations])
        values = np.zeros(len(self.table.groups))
        values[kept] = self.table.coefficients(basis, kept) @ weights
        return self._with(self.basis, list(range(len(values))), values)

    def _with(self, basis, kept, values):
        weights, equations = self.table.weights(basis, kept, values), []
        bases = getattr(basis, "bases", [basis])
        sizes = getattr(basis, "sizes", [len(weights)])
        parts = np.split(weights, np.cumsum(sizes)[:-1])
        for equation, own, part in zip(
            self.problem.learned.equations, bases, parts, strict=True
        ):
            equation = copy(equation)
            equation.basis, equation.weights = own, part
            equations.append(equation)
        return tuple(equations)

"""Sets of terms of exact states in time and space: that of the highest evidence.

States that obey an equation with some of the terms make the observations as likely as
they can be. That likelihood, boundary values and weights integrated out, is the
evidence for these terms; superfluous ones lower it. As many equations as there are sets
of terms are compared in the linearised problem, where each costs next to nothing; the
best of them are solved exactly, and all compared again from there. Sets of one size
share its probability (Scott and Berger, Annals of Statistics 38, 2010), so that the
more terms are on offer, the more is asked of each.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np

from keql._evolution.model import joined, with_best_prior
from keql._numerics.linalg import size_or_one
from keql._numerics.optimisation import FullSteps, Stop, keep_best, minimise
from keql.model_selection._criteria import sees_noise
from keql.model_selection._fit import Fit
from keql.model_selection._terms._fewer import step_of


class TermSearch:
    """A search for the set of terms of the highest evidence.

    problem : EvolutionProblem. The problem of exact states.
    candidates : CandidateTerms. The terms that the equation may have.
    n_terms : int or "auto". How many there must be.
    solve : callable. Of a problem, an iterate and a tolerance: a Result, or None.
    settings : TermSearchSettings. How far the search goes.
    only_leading : bool, default=False. Whether one of the terms has to have a
        derivative of the highest order in space.

    best : Result or None. Of the highest evidence.
    loss : float. Minus its log evidence, up to a constant.
    steps : list of TermsStep. All sets that were solved exactly.
    stop : Stop or None. Why the search was interrupted, if it was.
    has_best_prior : bool. Whether boundary values of the best have the best prior.
    coarse : Result or None. The best on a coarse grid, from which this search began.
    linearised : float. Minus the log likelihood of all candidates at the first states.
    highest : float. That above which none of their sets is solved for.
    failed_at : float. The same on a coarse grid, if sets failed there.
    failed_there : set of tuple or None. Those whose steps from the first states did not
        converge there; None: all that were tried.
    failed : set of tuple. Those whose steps from the states of the best did not
        converge: they would not again.
    failed_first : set of tuple. Those whose steps from the first states did not.
    """

    def __init__(
        self, problem, candidates, n_terms, solve, settings, only_leading=False
    ):
        self.problem = problem
        self.candidates = candidates
        self.n_terms = n_terms
        self.solve = solve
        self.settings = settings
        self.only_leading = only_leading
        self._leading = candidates.leading_terms(problem.grid.space)
        self.tried, self.failed, self.failed_first = set(), set(), set()
        self.best, self.loss, self.steps, self.stop = None, np.inf, [], None
        self.has_best_prior, self.coarse = False, None
        self.linearised, self.highest = np.nan, np.inf
        self.failed_at, self.failed_there = np.nan, None

    def misses_as_before(self, criteria):
        """Whether exact data are missed as on a coarse grid, by equal terms.

        Then the grid is not what is missing, and to compare sets of terms on the finer
        one leads to the same. So it does if steps do not converge there, though a finer
        grid changes the coarse states by less than they miss.
        """
        coarse = self.coarse
        if coarse is None or sees_noise(self.problem.learned):
            return False
        if self.best is None:
            return self._misses(coarse, criteria) and _is_resolved(coarse, criteria)
        least = criteria.clearly_better * _noise_of(coarse)
        misses = self._misses(self.best, criteria)
        return misses and bool(np.any(_noise_of(self.best) > least))

    def misses_far_less(self, criteria):
        """Whether data are missed by far less than on a coarse grid.

        What that missed was no noise, with which the prior of boundary values was found
        there: another one may be far more probable.
        """
        if self.best is None:
            return False
        highest = criteria.far_better * _noise_of(self.coarse)
        return bool(np.any(_noise_of(self.best) < highest))

    def first_states(self, start, criteria):
        """States from which sets are compared first: those of a first iterate.

        Or those of the coarse grid, if data were met there with terms whose steps do
        not converge on the finer one.
        """
        coarse = self.coarse
        if coarse is None or self.best or self._misses(coarse, criteria):
            return start.states
        given = coarse.model.problem, coarse.solution
        return self.problem.interpolate_from(*given).states

    def _misses(self, result, criteria):
        """Whether data are missed by far more than two steps miss them."""
        limit = criteria.interpolated * self.problem.learned.observation_noise
        return bool(np.any(_noise_of(result) > limit))

    def leave_out_failed(self, coarse, criteria):
        """Do not solve for sets again whose steps did not converge on a coarse grid.

        From the states that the best of that search has on this grid as well. That is
        if a finer grid changes them by less than noise does: where it matters steps may
        converge there. These solves took half of the time of a field with a source that
        is none of the terms.
        """
        if self.best is not None and _is_resolved(coarse.best, criteria):
            self.failed = coarse.failed

    def on(self, problem, only_leading=False):
        """The search anew, for a problem on another grid."""
        given = self.candidates, self.n_terms, self.solve, self.settings
        return TermSearch(problem, *given, only_leading)

    def or_better(self, other):
        """The search with the better result, among all sets from now on."""
        better = other if other.loss < self.loss else self
        better.only_leading, better.stop = False, self.stop or other.stop
        better.tried, better.steps = self.tried | other.tried, self.steps + other.steps
        return better

    @property
    def leads(self):
        """Whether the best equation has a derivative of the highest order in space."""
        best = self.best and self.candidates.terms_of(self.best.solution.equation)
        return bool(best and self._leading & {*best})

    @property
    def is_astray(self):
        """Whether steps of more sets failed at the first states than may."""
        return len(self.failed_first) > self.settings.most_failed

    def try_terms(self, problem, equation, states):
        """Solve for the terms of an equation, from some states; whether that worked."""
        result = self.solve(problem, problem.iterate(equation, states), 10.0)
        if result is not None and result.interrupted:
            self.stop, self.best = result.stop, self.best or result
        elif result is not None and result.converged:
            self.record(result)
            return True
        return False

    def record(self, result):
        """Keep a result if it is the best so far."""
        terms = tuple(self.candidates.terms_of(result.solution.equation))
        self.tried.add(terms)
        loss = -result.model.log_evidence() - self.candidates.log_odds(terms)
        found = result.solution.equation.terms()
        self.steps.append(step_of(result, found, found, -loss))
        allowed = self.n_terms in ("auto", len(terms))
        if allowed and loss < self.loss - self.settings.better:
            self.best, self.loss, self.failed = result, loss, set()

    def run(self, states):
        """Compare, solve and compare again, from the best equation or from states."""
        with keep_best(self):
            self._run(states)
        if self.best is not None and self.best.interrupted:
            self.stop = self.best.stop

    def _run(self, states):
        n_rounds = 0
        while n_rounds < self.settings.n_rounds:
            before, size = self.loss, self._size
            self._round(states)
            n_rounds += self._size >= size
            if self.stop is not None or self.best is None or self.is_astray:
                return
            is_better = self.loss < before
            if is_better or not self.has_best_prior:
                self._refresh()
            if not (is_better or self.loss < before):
                self._try_rivals(states)
            if not self.loss < before:
                return

    @property
    def _size(self):
        """How many terms the best equation has; 0 if there is none."""
        return len(self.best.solution.equation.terms()) if self.best else 0

    def _refresh(self):
        """Forget sets that were not solved with the best prior of boundary values."""
        solve = partial(self.solve, factor=10.0)
        other = with_best_prior(self.best, self.problem, solve)
        if other.interrupted:
            self.best, self.stop = other, other.stop
        elif other is not self.best:
            self.tried, self.failed = set(), set()
            self.record(other)
        self.has_best_prior = True

    def _round(self, states):
        """Solve for the best of all sets, compared in one linearised problem.

        They are tried in the order of their evidence until enough of them are solved;
        those after the best one so far are no better.
        """
        before, (ranked, known, offer, solve) = self.loss, self._compared(states)
        left_out, wanted = self.failed, self.settings.n_wanted if known is None else 1
        for _, terms in ranked[: self.settings.n_tried]:
            if terms == known or not wanted or self.stop is not None or self.is_astray:
                break
            if terms in self.tried or terms in left_out:
                continue
            is_solved = solve(terms)
            wanted -= is_solved
            if not is_solved:
                (self.failed_first if known is None else self.failed).add(terms)
        if known is not None and not self.loss < before:
            self._try_simpler(ranked, known, offer, solve)

    def _try_simpler(self, ranked, known, offer, solve):
        """Solve for sets without some terms of the best one, if data are exact.

        Those that are nearly as probable where all are linearised, and the main terms:
        see the settings.
        """
        if sees_noise(self.problem.learned):
            return
        near = self._near(ranked, known, self.settings.margin)
        near = [terms for terms in near if {*terms} < {*known}]
        for terms in near[: self.settings.n_simpler]:
            if self.stop is None and not solve(terms):
                self.failed.add(terms)
        is_open = ranked and self.n_terms == "auto"
        main = self._main_terms(known) if is_open else known
        if self.stop is None and main not in {known, ()} | self.tried | self.failed:
            self._try_main(main, offer)

    def _try_main(self, terms, offer):
        """Solve for the main terms, with the prior that suits these.

        That of the best ones may have taken up what others make up for. If they are
        better, sets of all of them and others are no rivals: what these explained were
        errors of the grid.
        """
        problem, states = self.best.model.problem, self.best.solution.states
        solve = partial(self.solve, factor=10.0)
        result = solve(problem, problem.iterate(offer(terms), states))
        if result is not None and result.converged:
            result = with_best_prior(result, self.problem, solve)
        if result is not None and result.interrupted:
            self.stop = result.stop
        elif result is None or not result.converged:
            self.failed.add(terms)
        else:
            self.record(result)
        if result is self.best:
            main = {*result.solution.equation.terms()}
            self.steps = [step for step in self.steps if not main < {*step.terms}]

    def _main_terms(self, known):
        """The known terms that make up more than a small part of the equation."""
        parts = self.candidates.contributions(self.best.solution.equation)[:, [*known]]
        sizes = np.sqrt(np.mean(parts**2, axis=0))
        least = self.settings.main * size_or_one(np.sum(parts, axis=1))
        return tuple(np.array(known)[sizes > least].tolist())

    def _near(self, ranked, known, margin):
        """Sets that are not solved for yet, and nearly as probable as the known one.

        None if that is not among the ranked ones, as where nothing can be linearised.
        """
        own = [loss for loss, terms in ranked if terms == known]
        return [
            terms
            for loss, terms in ranked
            if own and loss < own[0] + margin
            if terms not in self.tried and terms not in self.failed
        ]

    def _try_rivals(self, states):
        """Solve for sets that are nearly as probable as the best one, if noise is seen.

        Those that have all of its terms differ little from it, unless what these
        contribute shifts: then the data tell of their sum, but not of each.
        """
        n = self.settings.n_rivals
        if not (n and sees_noise(self.problem.learned)):
            return
        ranked, known, offer, solve = self._compared(states)
        near = self._near(ranked, known, self.settings.rival)
        others = [terms for terms in near if not {*known} <= {*terms}]
        wider = (terms for terms in near if {*known} < {*terms})
        shifted = (terms for terms in wider if self._shifts(known, terms, offer))
        for terms in [*others[:n], *islice(shifted, n)]:
            if self.stop is None:
                solve(terms)

    def _shifts(self, known, terms, offer):
        """Whether known terms contribute differently to an equation with more."""
        pairs = (self.candidates.contributions(offer(own)) for own in (known, terms))
        own, other = (parts[:, [*known]] for parts in pairs)
        shift = np.max(np.sqrt(np.mean((other - own) ** 2, axis=0)))
        return shift > self.settings.shifted * size_or_one(np.sum(own, axis=1))

    def _is_in_vain(self, model):
        """Whether no set is worth solving for where all candidates are linearised.

        At the first states none are that failed on a coarse grid if this one is no
        other.
        """
        if self.best is None and np.isnan(self.linearised):
            self.linearised = model.loss
            if abs(model.loss - self.failed_at) < self.settings.rival:
                if self.failed_there is None:
                    return True
                self.failed |= self.failed_there
        return model.loss > self.highest

    def _compared(self, states):
        """All sets in the problem that is linearised at the best one, or at states.

        Returns pairs of minus the log evidence and a set, the set that is known, a
        function that gives the most probable equation of one, and another that solves
        for it and says whether that worked.
        """
        candidates, known = self.candidates, None
        problem, equation = self.problem, candidates.equation
        if self.best is not None:
            problem, states = self.best.model.problem, self.best.solution.states
            known = tuple(candidates.terms_of(self.best.solution.equation))
            equation = candidates.complete(self.best.solution.equation)
        model = problem.linearise(problem.evaluate(problem.iterate(equation, states)))
        if model is None or self._is_in_vain(model):
            return [], known, None, None
        target, features = model.regression.whitened()
        settings, more = self.settings, len(problem.grid.space) - 1
        settings = replace(settings, max_size=settings.max_size + more)
        given = self.n_terms, known, target, features, settings
        compared = candidates.compared(*given)
        if self.only_leading:
            compared = [each for each in compared if self._leading & {*each[1]}]
        scale = model.problem.prior.scale

        def offer(terms):
            return candidates.most_probable(terms, target, features, scale)

        def solve(terms):
            return self.try_terms(model.problem, offer(terms), states)

        return compared, known, offer, solve


def _is_resolved(result, criteria):
    """Whether a finer grid changes states by less than noise does."""
    _, change = result.model.problem.resolution(result.solution)
    return change < criteria.unresolved


def _noise_of(result):
    """Noise levels (J,) beside the states of a result."""
    return np.reshape(result.model.problem.prior.noise, -1)


@dataclass
class MixedSteps(FullSteps):
    """Full steps the last few of which are mixed near the solution.

    Where noise is large beside what an equation tells of a mode, full steps change it
    by a constant factor, positive or negative, and end before they have converged. The
    mixture of the last `memory` steps and this one by which states change least, to
    first order, goes on instead (Anderson, Journal of the ACM 12, 1965; Walker and Ni,
    SIAM Journal on Numerical Analysis 49, 2011, equation 1.1). Steps are forgotten, the
    oldest first, as long as one has a part of more than `most`.

    Steps are mixed if they change the iterate by less than `near` times `tol`, and by
    more than the part `slow` of the least change before: those that fall faster need no
    help, and equations whose steps do not converge far away do not suit the data.
    """

    memory: int = 2
    most: float = 3.0
    near: float = 10.0
    slow: float = 0.3
    steps: list = field(default_factory=list)

    def end_of_step(self, model, iterate):
        """The mixture of the last steps and one that leads to an iterate."""
        moves = model.problem.moves(model.evaluation.iterate, iterate).ravel()
        self.steps = [*self.steps[-self.memory :], (iterate, moves)]
        *before, change = self.changes
        is_slow = change > self.slow * min(before, default=np.inf)
        if not is_slow or change > self.near * self.tol:
            return iterate
        parts = self._parts()
        return model.problem.combine([end for end, _ in self.steps], parts)

    def _parts(self):
        """Parts of the steps that are kept (n,), which add up to one."""
        while True:
            *earlier, last = (moves for _, moves in self.steps)
            if not earlier:
                return np.ones(1)
            differences = np.stack([last - moves for moves in earlier], axis=1)
            parts = np.linalg.lstsq(differences, last, rcond=1e-10)[0]
            parts = np.append(parts, 1.0 - np.sum(parts))
            if np.max(np.abs(parts)) <= self.most:
                return parts
            del self.steps[0]

    def shorter(self, model):
        """The evaluation of the last step alone, if the mixed one cannot be gone on."""
        if len(self.steps) < 2:
            return None
        self.steps = self.steps[-1:]
        return model.problem.evaluate(self.steps[0][0])


def solve_exactly(learned, context, settings, problem, start, factor):
    """Mixed steps until states change by less than a tolerance; None without any.

    `factor` is that of the tolerance at the end.
    """
    control = MixedSteps(factor * settings.tol * context.settings.tol)
    max_iter = min(settings.max_steps, context.settings.max_iter)
    report = partial(context.report, learned, problem)
    result = minimise(problem, start, control, max_iter=max_iter, report=report)
    if result is not None and not (result.interrupted or result.converged):
        result.stop = control.settled_or(result.stop, settings.settled)
    if result is not None and result.interrupted and result.model is None:
        raise KeyboardInterrupt  # there is nothing to keep
    return result


def polished(search):
    """The best result of a search, its steps gone on with to the last digit."""
    best = search.best
    if best is None or search.stop is not None:
        return best if best is None else replace(best, stop=search.stop)
    try:
        result = search.solve(best.model.problem, best.solution, 1.0)
    except KeyboardInterrupt:
        return replace(best, stop=Stop.KEYBOARD)
    if not result.converged:
        return replace(best, stop=result.stop) if result.interrupted else best
    return joined(best, result)


def exact_fit(learned, hypothesis, result, steps):
    """A result as a Fit; None if there is none, or steps did not converge."""
    if result is None or not (result.converged or result.interrupted):
        return None
    return Fit(
        replace(hypothesis, constraint="integration"),
        learned,
        result.model.problem,
        result,
        learned.state_kernel,
        terms_path=sorted(steps, key=lambda step: -len(step.terms)),
    )

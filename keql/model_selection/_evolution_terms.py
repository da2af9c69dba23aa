"""Exact states, and which terms their equation has: those of the highest evidence.

States that obey an equation with some of the terms make the observations as likely as
they can be. That likelihood, boundary values and weights integrated out, is the
evidence for these terms; superfluous ones lower it. As many equations as there are sets
of terms are compared in the linearised problem, where each costs next to nothing; the
best of them are solved exactly, and all compared again from there. Sets of one size
share its probability (Scott and Berger, Annals of Statistics 38, 2010), so that the
more terms are on offer, the more is asked of each.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from keql._evolution.fronts.descent import (
    FollowingSettings,
    are_steep,
    can_follow,
    follow_states,
)
from keql._evolution.model import joined, with_best_prior
from keql._evolution.problem import make_evolution_problem
from keql._numerics.linalg import rms
from keql._numerics.optimisation import (
    FullSteps,
    Stop,
    keep_best,
    minimise,
    or_stopped,
)
from keql._observations.data import left_out_errors
from keql._regression.screening import CandidateTerms
from keql.equation import with_few_weights
from keql.model_selection._criteria import (
    are_many,
    meets_data,
    sees_noise,
    unresolved_change,
)
from keql.model_selection._fewer_terms import TermsStep
from keql.model_selection._fit import Fit, JointFamily, fit_jointly
from keql.model_selection._trajectory_terms import fit_trajectories


@dataclass(frozen=True)
class TermSearchSettings:
    """How far the search among sets of terms goes.

    max_size, max_sets : int. All sets of up to `max_size` terms are compared, if at
        most `max_sets` have a size; larger ones near the best one.
    n_grown : int. Sets of each size from which larger ones grow by a term.
    grows : bool. Whether they do if the number of terms is open, once there is a best
        set. From states that miss the data far too many terms grow.
    n_rounds : int. How often sets are compared; rounds to fewer terms do not count.
    n_wanted, n_tried : int. Sets that are solved exactly in the first round (one in the
        others), and those that are tried for that at most.
    max_steps : int. Gauss-Newton steps of one set, and at the end.
    tol : float. Change of the states that ends the steps at the end, in units of the
        `tol` of the fit; sets are compared at ten times that change.
    settled : float. Multiple of that change up to which steps that do not end are those
        of rounding errors, on which states of exact data depend between observations.
    better : float. By which the log evidence of a better set is higher at least.
    rival, n_rivals : float, int. Within noise, sets of a log evidence that is lower by
        less than this, linearised at the best one, and without one of its terms, are
        solved for at the end, so many at most: odds of one to twenty, up to which
        rivals are told (Kass and Raftery, "Bayes factors", JASA 90, 1995).
    """

    max_size: int = 3
    max_sets: int = 40_000
    n_grown: int = 20
    grows: bool = False
    n_rounds: int = 6
    n_wanted: int = 3
    n_tried: int = 24
    max_steps: int = 15
    tol: float = 10.0
    settled: float = 10.0
    better: float = 0.1
    rival: float = 3.0
    n_rivals: int = 3


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
        self.tried = set()
        self.best, self.loss, self.steps, self.stop = None, np.inf, [], None
        self.has_best_prior, self.coarse = False, None

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
            _, change = coarse.model.problem.resolution(coarse.solution)
            return self._misses(coarse, criteria) and change < criteria.unresolved
        least = criteria.clearly_better * _noise_of(coarse)
        misses = self._misses(self.best, criteria)
        return misses and bool(np.any(_noise_of(self.best) > least))

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
        errors = left_out_errors(result.model, self.problem.learned.observations)
        found, equations = result.solution.equation.terms(), result.solution.equations
        figures = result.loss, result.model.regression.misfit, rms(errors), -loss
        self.steps.append(TermsStep(tuple(found), *figures, found, 0.0, equations))
        allowed = self.n_terms in ("auto", len(terms))
        if allowed and loss < self.loss - self.settings.better:
            self.best, self.loss = result, loss

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
            if self.stop is not None or self.best is None:
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
            self.tried = set()
            self.record(other)
        self.has_best_prior = True

    def _round(self, states):
        """Solve for the best of all sets, compared in one linearised problem.

        They are tried in the order of their evidence until enough of them are solved;
        those after the best one so far are no better.
        """
        ranked, known, solve = self._compared(states)
        wanted = self.settings.n_wanted if self.best is None else 1
        for _, terms in ranked[: self.settings.n_tried]:
            if terms == known or not wanted or self.stop is not None:
                return
            if terms not in self.tried:
                wanted -= solve(terms)

    def _try_rivals(self, states):
        """Solve for sets that are nearly as probable as the best one, if noise is seen.

        Those that have all of its terms differ little from it.
        """
        if not (self.settings.n_rivals and sees_noise(self.problem.learned)):
            return
        ranked, known, solve = self._compared(states)
        highest = [loss for loss, terms in ranked if terms == known]
        near = [
            terms
            for loss, terms in ranked
            if highest and loss < highest[0] + self.settings.rival
            if terms not in self.tried and not {*known} <= {*terms}
        ]
        for terms in near[: self.settings.n_rivals]:
            if self.stop is None:
                solve(terms)

    def _compared(self, states):
        """All sets in the problem that is linearised at the best one, or at states.

        Returns pairs of minus the log evidence and a set, the set that is known, and a
        function that solves for one and says whether that worked.
        """
        candidates, known = self.candidates, None
        problem, equation = self.problem, candidates.equation
        if self.best is not None:
            problem, states = self.best.model.problem, self.best.solution.states
            known = tuple(candidates.terms_of(self.best.solution.equation))
            equation = candidates.complete(self.best.solution.equation)
        model = problem.linearise(problem.evaluate(problem.iterate(equation, states)))
        if model is None:
            return [], known, None
        target, features = model.regression.whitened()
        given = self.n_terms, known, target, features, self.settings
        compared = candidates.compared(*given)
        if self.only_leading:
            compared = [each for each in compared if self._leading & {*each[1]}]
        scale = model.problem.prior.scale

        def solve(terms):
            offered = candidates.most_probable(terms, target, features, scale)
            return self.try_terms(model.problem, offered, states)

        return compared, known, solve


def fit_exact_states(two_step, learned, hypothesis, context, settings=None):
    """Exact states from those of a learned model, with the best terms.

    two_step : LearnedModel. With the equation of all terms that there may be.
    learned : LearnedModel. States and equation to start from; its states are those
        outside of the box.
    hypothesis : Hypothesis. How many terms there are (None: those of `learned`), and
        the noise.
    context : Context. How problems are solved.
    settings : TermSearchSettings, default=None. None: the default ones.

    Returns fit : Fit or None. None if the equation cannot be integrated.
    """
    if are_many(learned, context):
        return fit_trajectories(learned, hypothesis, context)
    settings, learned = settings or TermSearchSettings(), with_few_weights(learned)
    noise, kept = hypothesis.observation_noise, hypothesis.state_kernel
    problem = make_evolution_problem(learned, noise, kept=kept)
    solve = partial(solve_exactly, learned, context, settings)
    start = problem.start_after(context.previous)
    if hypothesis.n_terms is None:
        result = solve(problem, start, 1.0)
        if result is not None and result.converged:
            result = with_best_prior(result, problem, partial(solve, factor=1.0))
        steps = []
    else:
        candidates = CandidateTerms(two_step.equation)
        search = TermSearch(problem, candidates, hypothesis.n_terms, solve, settings)
        if learned.equation is not two_step.equation:
            search.try_terms(problem, learned.equation, start.states)
        else:
            search = _coarse_first(search, start)
        criteria = context.criteria
        if search.stop is None and not search.misses_as_before(criteria):
            search.run(search.first_states(start, criteria))
        result, steps = polished(search), search.steps
    return or_followed(exact_fit(learned, hypothesis, result, steps), two_step, context)


def or_followed(fit, two_step, context):
    """A fit of exact states or None, or one on a grid that follows these.

    If a finer grid changes them, or exact data are missed by states that are as steep
    as their grid allows; terms are again the best of all in `two_step`.
    """
    settings, limit = FollowingSettings(), np.inf
    if fit is None or fit.result.interrupted or are_many(fit.two_step, context):
        return fit
    if meets_data(fit, two_step, context.criteria):
        is_fine = not unresolved_change(fit, context.criteria)
    else:  # they have to become more likely
        is_fine = not are_steep(fit.problem, fit.result.solution, settings)
        limit = fit.result.model.loss - context.criteria.rival
    if is_fine or not can_follow(fit.problem.grid):
        return fit
    other = or_stopped(fit, _followed, fit, two_step, context, settings, limit)
    if other is not None and other.result.interrupted:
        return fit.stopped(other.result.stop)
    return other or fit


def _followed(fit, two_step, context, settings, limit):
    """The fit on a grid that follows its states, finer if need be; or None."""
    given, sizes = (fit.problem, fit.result.solution), None
    report = partial(context.report, fit.two_step)
    for _ in range(2):
        found = follow_states(*given, limit, settings, sizes, report)
        if found is None or found.interrupted:
            return found and fit.stopped(found.stop)
        given = found.model.problem, found.solution, two_step
        other = fit_near(*given, fit.hypothesis, context)
        if other is None or other.result.interrupted:
            return other
        if not unresolved_change(other, context.criteria):
            return other
        given, grid = (other.problem, other.result.solution), other.problem.grid
        sizes = [round(settings.finer * n) for n in (grid.n_steps, grid.n_along)]
    return other


def fit_near(problem, iterate, two_step, hypothesis, context):
    """Exact states from an iterate near them, with the best terms; or None."""
    settings, learned = TermSearchSettings(n_wanted=1, n_tried=3), problem.learned
    solve = partial(solve_exactly, learned, context, settings)
    if hypothesis.n_terms is None:
        return exact_fit(learned, hypothesis, solve(problem, iterate, 1.0), [])
    given = CandidateTerms(two_step.equation), hypothesis.n_terms, solve, settings
    search = TermSearch(problem, *given)
    if search.try_terms(problem, iterate.equation, iterate.states):
        search.run(iterate.states)
    return exact_fit(learned, hypothesis, polished(search), search.steps)


def fit_hypothesis(hypothesis, two_step, context, learned=None):
    """The fit of one hypothesis whose kernels are given, or are those of two steps.

    hypothesis : Hypothesis. What is supposed.
    two_step : LearnedModel. The two-step solution with its equation kernel.
    context : Context. How problems are solved.
    learned : LearnedModel, default=None. States and equation to start exact states
        from; None: those of two steps.

    Returns fit : Fit or None. None if states cannot obey the equation exactly.
    """
    if hypothesis.constraint == "integration":
        return fit_exact_states(two_step, learned or two_step, hypothesis, context)
    family = JointFamily(two_step, hypothesis, context)
    return fit_jointly(
        family, two_step, *family.problem_of(two_step), context.settings.n_restarts
    )


def _coarse_first(search, start):
    """A search that has tried what was found on a coarse grid, from a first iterate.

    If the best equation there has no derivative of the highest order in space, those
    that have one are searched alone: few points are soon met by what is carried along,
    from whose states no equation of what spreads is found. Where the coarse grid has
    solved none of the sets, few more are tried: other hypotheses, or states, are
    nearer. If the search was interrupted, that on the coarse grid.
    """
    settings, fine = search.settings, search.problem
    coarse = fine.on_coarse_grid()
    states = coarse.interpolate_from(fine, start).states
    first = search.on(coarse)
    first.settings = replace(settings, n_rivals=0)  # they are solved for in the end
    first.run(states)
    if first.stop is None and first.best is not None and not first.leads:
        other = search.on(coarse, only_leading=True)
        other.settings = first.settings
        other.run(states)
        first = first.or_better(other)
        if first.stop is None and first.leads:
            first.run(states)
    if first.best is None:
        search.settings = replace(settings, n_tried=settings.n_wanted)
        return search
    if first.stop is not None:
        return first
    best = first.best
    try:
        search.try_terms(
            fine.with_priors_of(best.model.problem),
            best.solution.equation,
            fine.interpolate_from(coarse, best.solution).states,
        )
    except KeyboardInterrupt:
        first.stop = Stop.KEYBOARD
        return first
    search.has_best_prior, search.coarse = first.has_best_prior, best
    if search.best is not None:
        search.steps += [
            step._replace(log_evidence=step.log_evidence + first.loss - search.loss)
            for step in first.steps
            if set(step.terms) != set(search.steps[0].terms)
        ]
    return search


def _noise_of(result):
    """Noise levels (J,) beside the states of a result."""
    return np.reshape(result.model.problem.prior.noise, -1)


def solve_exactly(learned, context, settings, problem, start, factor):
    """Full steps until states change by less than a tolerance; None without any.

    `factor` is that of the tolerance at the end.
    """
    control = FullSteps(factor * settings.tol * context.settings.tol)
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

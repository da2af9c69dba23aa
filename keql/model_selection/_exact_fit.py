"""Exact states in time and space of one hypothesis: the best terms that it offers.

They start from those of two steps, first on a coarse grid, and end on a grid that is
fine enough, or that follows what moves.
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
from keql._evolution.model import with_best_prior
from keql._evolution.problem import make_evolution_problem
from keql._numerics.optimisation import Stop, or_stopped
from keql._observations.data import PredictionScale
from keql._regression.screening import CandidateTerms
from keql.equation import with_few_weights
from keql.model_selection._criteria import are_many, meets_data
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._terms._evolution import (
    TermSearch,
    exact_fit,
    polished,
    solve_exactly,
)
from keql.model_selection._terms._settings import TermSearchSettings
from keql.model_selection._terms._trajectories import fit_trajectories


@dataclass(frozen=True)
class ResolutionSettings:
    """When exact states are found on a finer grid, and how fine one may be.

    Where data are more precise than a grid, its errors count as noise, and terms that
    make up for them as evident: of Burgers' equation seen with noise of 1e-4, a grid of
    40 x 80 found seven terms, and one of 60 x 120 the true two in two thirds of the
    time, as nothing else was tried then.

    part_of_noise, part_of_size : float. Change of the states on a finer grid, in units
        of the noise and of the size of the observations, from which on they are found
        there: both have to be exceeded.
    factor : float. By which numbers of steps or of points grow.
    n_grids, finest : int, (int, int). How many times they grow at most, and from which
        numbers of steps and of points on they do not.
    """

    part_of_noise: float = 0.5
    part_of_size: float = 2e-5
    factor: float = 1.5
    n_grids: int = 3
    finest: tuple = (100, 200)


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
    noise = hypothesis.noise_levels(learned.observations.operators)
    problem = make_evolution_problem(learned, noise, kept=hypothesis.state_kernel)
    criteria = context.criteria
    solve = partial(solve_exactly, learned, context, settings)
    start = problem.start_after(context.previous)
    if hypothesis.n_terms is None:
        at_once = context.previous is not None
        result, steps = _with_all_terms(problem, start, solve, at_once), []
    else:
        candidates = CandidateTerms(two_step.equation)
        search = TermSearch(problem, candidates, hypothesis.n_terms, solve, settings)
        if learned.equation is not two_step.equation:
            search.try_terms(problem, learned.equation, start.states)
        else:
            search = _coarse_first(search, start, criteria)
        if search.is_astray and search.stop is None:
            return None
        if search.stop is None and not search.misses_as_before(criteria):
            search.run(search.first_states(start, criteria))
        result, steps = polished(search), search.steps
    return or_followed(exact_fit(learned, hypothesis, result, steps), two_step, context)


def _with_all_terms(problem, start, solve, at_once=False):
    """Exact states of all terms that an equation has; None if there are none.

    From those on a coarse grid, where steps with many weights take a small part of the
    time, unless the first iterate is near and they are solved for `at_once`.
    """
    result, coarse = None, problem.on_coarse_grid()
    if not at_once:
        first = solve(coarse, coarse.interpolate_from(problem, start), 10.0)
        if first is not None and first.interrupted:
            return first
        if first is not None and first.converged:
            near = problem.interpolate_from(coarse, first.solution)
            result = solve(problem.with_priors_of(first.model.problem), near, 1.0)
    if result is None or not (result.converged or result.interrupted):
        result = solve(problem, start, 1.0)
    if result is not None and result.converged:
        result = with_best_prior(result, problem, partial(solve, factor=1.0))
    return result


def unresolved_change(fit, criteria):
    """Change of exact states on a finer grid, in units of the noise; 0 if little."""
    scale, (_, change) = PredictionScale(fit.observations), fit.resolution
    size = change * scale.noise(fit.problem.prior.noise) / scale.size
    is_large = change > criteria.unresolved and size > criteria.resolved
    return change if is_large else 0.0


def or_followed(fit, two_step, context):
    """A fit of exact states or None, or one on a finer grid, or that follows these.

    One follows if a finer grid changes them still, or exact data are missed by states
    that are as steep as their grid allows; terms are again the best in `two_step`.
    """
    settings, limit = FollowingSettings(), np.inf
    fit = fit and _resolved(fit, two_step, context)
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


def _resolved(fit, two_step, context):
    """The fit on a grid whose errors are small beside the noise, if it is likelier.

    Of equations in time and one coordinate of space.
    """
    settings, grid = ResolutionSettings(), fit.problem.grid
    stays = fit.result.interrupted or are_many(fit.two_step, context)
    if stays or grid.follows or len(grid.space) > 1:
        return fit
    scale = PredictionScale(fit.observations)
    for _ in range(settings.n_grids):
        noise = scale.noise(fit.problem.prior.noise) / scale.size
        part = max(settings.part_of_noise, settings.part_of_size / noise)
        given = fit.result.solution, settings.finest, part, settings.factor
        finer = fit.problem.resolved(*given)
        if finer is None:
            return fit
        near = *finer, two_step, fit.hypothesis, context
        other = or_stopped(fit, fit_near, *near)
        if other is not None and other.result.interrupted:
            return fit.stopped(other.result.stop)
        if other is None or other.result.model.loss > fit.result.model.loss:
            return fit
        if fit.result.converged and not other.result.converged:
            return fit
        fit = other
    return fit


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


def fit_hypothesis(hypothesis, two_step, context, learned=None, settings=None):
    """The fit of one hypothesis whose kernels are given, or are those of two steps.

    hypothesis : Hypothesis. What is supposed.
    two_step : LearnedModel. The two-step solution with its equation kernel.
    context : Context. How problems are solved.
    learned : LearnedModel, default=None. States and equation to start exact states
        from; None: those of two steps.
    settings : TermSearchSettings, default=None. None: the default ones.

    Returns fit : Fit or None. None if states cannot obey the equation exactly.
    """
    if hypothesis.constraint == "integration":
        given = two_step, learned or two_step, hypothesis, context, settings
        return fit_exact_states(*given)
    family = JointFamily(two_step, hypothesis, context)
    return fit_jointly(
        family, two_step, *family.problem_of(two_step), context.settings.n_restarts
    )


def _coarse_first(search, start, criteria):
    """A search that has tried what was found on a coarse grid, from a first iterate.

    If the best equation there has no derivative of the highest order in space, those
    that have one are searched alone: few points are soon met by what is carried along,
    from whose states no equation of what spreads is found. Where the coarse grid has
    solved none of the sets, few more are tried, and none if a finer grid changes
    nothing: other hypotheses, or states, are nearer. If the search was interrupted,
    that on the coarse grid.
    """
    settings, fine = search.settings, search.problem
    coarse = fine.on_coarse_grid()
    states = coarse.interpolate_from(fine, start).states
    first = search.on(coarse)
    # Sets near the best one are solved for in the end.
    first.settings = replace(settings, n_rivals=0, n_simpler=0)
    first.run(states)
    if first.is_astray:
        return first
    # From here on all sets that are tried may fail.
    n_tried = min(settings.n_again, settings.n_tried)
    search.settings = replace(settings, most_failed=settings.n_tried, n_tried=n_tried)
    if first.stop is None and first.best is not None and not first.leads:
        other = search.on(coarse, only_leading=True)
        other.settings = replace(first.settings, most_failed=settings.n_tried)
        other.run(states)
        first = first.or_better(other)
        if first.stop is None and first.leads:
            first.run(states)
    if first.best is None:
        search.settings = replace(search.settings, n_tried=settings.n_wanted)
        search.failed_at = first.linearised
        return search
    return first if first.stop is not None else _gone_on(search, first, criteria)


def _gone_on(search, first, criteria):
    """A search that has tried the best terms of the first one, on a coarse grid.

    Or the first one if it is interrupted.
    """
    fine, coarse, best = search.problem, first.problem, first.best
    try:
        search.try_terms(
            fine.with_priors_of(best.model.problem),
            best.solution.equation,
            fine.interpolate_from(coarse, best.solution).states,
        )
    except KeyboardInterrupt:
        first.stop = Stop.KEYBOARD
        return first
    search.coarse = best
    is_found_anew = search.misses_far_less(criteria)
    search.has_best_prior = first.has_best_prior and not is_found_anew
    search.leave_out_failed(first, criteria)
    search.failed_at, search.failed_there = first.linearised, first.failed_first
    if search.best is not None:
        search.steps += [
            step._replace(log_evidence=step.log_evidence + first.loss - search.loss)
            for step in first.steps
            if set(step.terms) != set(search.steps[0].terms)
        ]
    return search

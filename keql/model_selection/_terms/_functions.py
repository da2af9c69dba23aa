"""Exact states of equations with elementary functions among their terms."""

from copy import copy
from dataclasses import replace
from functools import partial
from math import comb

import numpy as np

from keql._evolution.problem import make_evolution_problem
from keql._evolution.trajectories import make_trajectory_problem
from keql._numerics.linalg import rms, size_or_one
from keql._numerics.optimisation import Result, Stop
from keql._observations.data import PredictionScale
from keql._regression.functions.search import ElementarySearch
from keql._regression.functions.settings import ElementarySettings
from keql._regression.functions.table import FunctionTable
from keql._regression.functions.terms import (
    form_of,
    n_extensions,
    says_the_same,
    with_digits,
)
from keql.equation import PolynomialBasis, terms_of, text_product
from keql.model_selection._criteria import (
    error_within_noise,
    sees_noise,
)
from keql.model_selection._fit import Fit, given_equation_noise
from keql.model_selection._terms._fewer import TermsStep
from keql.model_selection._terms._settings import TrajectorySearchSettings
from keql.model_selection._terms._trajectories import (
    solve_trajectories,
)


def fit_elementary(two_step, hypothesis, context, simpler=None, enough=0.0):
    """Exact states with elementary functions among the terms.

    Those of fields are compared on a coarse grid, where their evidence is found, and
    the best are solved for on that of the simpler ones.

    two_step : LearnedModel. The two-step solution.
    hypothesis : Hypothesis. The noise, and what the fit is called.
    context : Context. How problems are solved.
    simpler : Fit, default=None. Exact states of polynomials that are near; None: the
        search starts from the states of two steps, which fields do not.
    enough : float, default=0. Error of predictions, in their units, at which no other
        set of functions is tried.

    Returns fit : Fit or None. With the terms of the highest evidence; its path has the
    polynomials, too.
    """
    is_field = len(two_step.variables) > 1
    settings = _settings_of(two_step, context)
    if is_field:
        problem = simpler.problem.with_grid(*settings.grid)
        iterate = problem.interpolate_from(simpler.problem, simpler.result.solution)
    else:
        problem = _trajectory_problem(two_step, hypothesis, simpler)
        iterate = problem.start() if simpler is None else simpler.result.solution
    # Where functions are evaluated exact states of fields are known better.
    states_of = simpler.learned if is_field else two_step
    time = problem.grid.axis if is_field else 0
    offered, start = FunctionTable(states_of, settings, time), []
    if simpler is not None:
        for e, equation in enumerate(iterate.equations):
            terms = terms_of(equation)
            values = terms.coefficients @ equation.weights
            pairs = zip(terms.products, values, strict=True)
            start += [(offered.term(e, powers), value) for powers, value in pairs]
    report = partial(_report_step, context, two_step)
    search = ElementarySearch(problem, offered, settings, report)
    best = search.run(start, iterate, enough)
    if search.is_stopped:
        return None if simpler is None else simpler.stopped(Stop.CALLBACK)
    if best is None or not best.has_functions:
        return None
    found, gain = best, 0.0
    if is_field:
        again, found = _on_grid(simpler.problem, best, search)
        if found is None:
            return None
        gain = _gain_on_grid(again, found, search, best, simpler.result.solution)
    return _fit_of_terms(found, best, search, two_step, hypothesis, context, gain)


def _settings_of(two_step, context):
    """Which functions are tried beside exact states, and how far the search goes."""
    data = two_step.observations
    if len(two_step.variables) > 1:
        settings = ElementarySettings.of_fields()
    else:
        how = len(data.states), sees_noise(two_step), bool(data.hidden_states)
        settings = ElementarySettings.of_trajectories(*how)
    scale = PredictionScale(data)
    is_precise = scale.noise(two_step.observation_noise) <= (
        settings.much_noise * scale.size
    )
    return replace(
        settings,
        against=context.criteria.elementary,
        of_precise_data=settings.of_precise_data and is_precise,
    )


def fit_functions_along(two_step, hypothesis, context, at_first=False):
    """Exact states in time and space with functions that explain those of two steps.

    They are compared on a coarse grid.

    two_step, hypothesis, context : as those of :func:`fit_elementary`.
    at_first : bool, default=False. Whether sets of products were not all looked for.

    Returns fit : Fit or None. None if products explain the states of two steps as well,
    or if nothing that was found can be solved for.
    """
    settings = ElementarySettings.along_fields()
    settings = replace(settings, against=context.criteria.elementary, at_first=at_first)
    if at_first and not sees_noise(two_step):  # no terms are hidden by noise
        settings = replace(settings, n_rounds=0)
    noise = hypothesis.noise_levels(two_step.observations.operators)
    fine = make_evolution_problem(two_step, noise, kept=hypothesis.state_kernel)
    problem = fine.on_coarse_grid()
    offered = FunctionTable(two_step, settings, fine.grid.axis)
    report = partial(_report_step, context, two_step)
    search = ElementarySearch(problem, offered, settings, report)
    enough = error_within_noise(two_step, context.criteria)
    if two_step.setup.is_system and not sees_noise(two_step):
        enough = 0.0  # states of two steps tell products of two states too poorly
    best = search.run_along(problem.interpolate_from(fine, fine.start()), enough)
    best = best and or_first_powers(search, best)
    if search.is_stopped or best is None or not best.has_functions:
        return None
    _, found = _on_grid(fine, best, search)
    if found is None:
        return None
    return _fit_of_terms(found, best, search, two_step, hypothesis, context)


def or_first_powers(search, best):
    """A set of terms, or a more probable one with an operator for functions of it.

    Two and more functions of one operator alone may add up to little else: those of two
    steps do so where a law has other terms that are not among products.

    search, best : ElementarySearch, Refined. A search, and what it has found.

    Returns best : Refined. What was found, or the more probable set.
    """
    for term in search.offered.terms:
        [(name, power), *others] = term.function.powers or [("", 0)]
        if term.function.family or others or power != 1 or search.is_stopped:
            continue
        of_it = [
            i
            for i, own in enumerate(best.terms)
            if own.equation == term.equation and own.function.depends_on == {name}
        ]
        if len(of_it) < 2 or not any(best.terms[i].function.family for i in of_it):
            continue
        kept = [own for i, own in enumerate(best.terms) if i not in of_it]
        values = np.append(np.delete(best.values, of_it), 0.0)
        given = [*kept, term], values, best.iterate
        other = search.solve(best.model.problem, *given)
        if other is not None and other.score > best.score:
            best = other
    return best


def offers_cubics(two_step):
    """Whether functions along fields stand beside all products of the third degree.

    Beside fewer of them they may explain what a polynomial does.
    """
    settings = ElementarySettings.along_fields()
    [operators] = (part.depends_on for part in two_step.setup.equations)
    return comb(len(operators) + 3, 3) <= settings.most_products


def _trajectory_problem(two_step, hypothesis, simpler):
    """That of two steps, with the times and the prior of a simpler Fit or None."""
    problem = make_trajectory_problem(
        two_step,
        hypothesis.noise_levels(two_step.observations.operators),
        equation_noise=given_equation_noise(hypothesis, two_step.setup),
    )
    if simpler is None:
        return problem
    own = simpler.problem
    return replace(problem, times=own.times, prior=own.prior)


def _on_grid(fine, best, search):
    """A search on a fine grid, and the best terms of one on a coarse grid solved there.

    `fine` is a problem on the fine grid. The terms are None if that fails.
    """
    coarse = best.model.problem
    fine = fine.with_priors_of(coarse)
    iterate = fine.interpolate_from(coarse, best.iterate)
    again = ElementarySearch(fine, search.offered, search.settings, search.report)
    return again, again.solve(fine, list(best.terms), best.values, iterate)


def _gain_on_grid(again, found, search, best, solution):
    """What a fine grid adds to the log evidence of terms, over that of the first ones.

    Beside exact data a coarse grid has errors that further terms may explain. It is
    zero where the first ones cannot be solved for on either grid.

    again, found : ElementarySearch, Refined. On the fine grid; the best terms there.
    search, best : ElementarySearch, Refined. The same on the coarse grid, where the
        search started with the first terms.
    solution : EvolutionIterate. Theirs on the fine grid.
    """
    first = search.first
    if first is None:
        return 0.0
    on_fine = again.solve(again.problem, list(first.terms), first.values, solution)
    if on_fine is None:
        return 0.0
    return (found.score - on_fine.score) - (best.score - first.score)


def _report_step(context, two_step, model, n_iter):
    """Tell of a step of a search; returns whether it is to be stopped."""
    loss = model.regression.loss
    curves = {"loss_curve": [loss], "damping_curve": [0.0]}
    result = Result(model.solution, loss, model, n_iter=n_iter, **curves)
    return context.report(two_step, model.problem, result)


def _fit_of_terms(found, best, search, two_step, hypothesis, context, gain=0.0):
    """The Fit of terms that were found, their inner parameters held, or None.

    They are the best ones of a search, whose evidence is told; those of fields `found`
    on a finer grid, which adds the `gain` to the log evidence of all but the first.
    """
    offered, terms, equations = search.offered, with_digits(found), []
    if len({(term.equation, term.function.name) for term in terms}) < len(terms):
        return None  # functions that are printed alike
    setups = enumerate(two_step.setup.equations)
    unknown = {e for e, setup in setups if setup.depends_on is not None}
    if not unknown <= {term.equation for term in terms}:
        return None  # an equation is left without terms
    for e, equation in enumerate(two_step.equations):
        equation = copy(equation)
        own = [i for i, term in enumerate(terms) if term.equation == e]
        if two_step.setup.equations[e].depends_on is not None:
            equation.basis = PolynomialBasis(offered.kernel([terms[i] for i in own]))
            equation.weights = found.values[own]
        equations.append(equation)
    learned = replace(two_step, equations=tuple(equations))
    problem = replace(found.model.problem, learned=learned)
    start = replace(found.iterate, equations=tuple(learned.equations))
    settings = TrajectorySearchSettings()
    if len(two_step.variables) > 1:
        settings = TrajectorySearchSettings.of_fields()
    result = solve_trajectories(learned, context, settings, problem, start)
    if result is None or not (result.converged or result.interrupted):
        return None
    others = [r for r in search.steps if not says_the_same(r, best)]
    others = [r for r in others if not _stands_for(r, best, search, context.criteria)]
    kinds = {}  # of those that differ in inner parameters the most probable
    for refined in sorted(others, key=lambda r: r.score):
        kinds[frozenset(map(form_of, refined.terms))] = refined
    against, path = search.settings.against, []
    for told in (best, *kinds.values()):
        score = told.score if told is search.first else told.score + gain
        path.append(_step_of(replace(told, score=score), two_step, against))
    path[0] = path[0]._replace(terms=_step_of(found, two_step).terms)
    return Fit(
        hypothesis,
        learned,
        result.model.problem,
        result,
        learned.state_kernel,
        terms_path=path,
    )


def _stands_for(refined, best, search, criteria, alike=0.999):
    """Whether terms say in other words what the best ones do, and differ by little.

    As (exp(0.02 u) u_x)_x stands for u_xx.
    """
    sets = search.offered.with_products(refined.terms, alike, beside=False)
    forms = [{*map(form_of, terms)} for terms in (*sets[:1], best.terms)]
    if len(forms) < 2 or forms[0] != forms[1]:
        return False
    solutions = (own.model.solution.equations for own in (refined, best))
    return all(
        rms(other.unknown_part(S) - own.unknown_part(S))
        <= criteria.differs * size_or_one(own.unknown_part(S))
        for other, own, S in zip(*solutions, search.offered.features, strict=True)
    )


def _step_of(refined, two_step, against=0.0):
    """What a set of terms came to, for the report.

    `against` are the log odds against functions that its evidence has.
    """
    setup, names = two_step.setup, []
    for term in with_digits(refined):
        name = text_product(term.function.product)
        prefix = f"{setup.equations[term.equation].name}: " if setup.is_system else ""
        names.append(prefix + name)
    # Those of the iterate may have posteriors that were there before any step.
    r, equations = refined.model.regression, refined.model.solution.equations
    figures = r.loss, r.misfit, refined.error, refined.score
    odds = against * n_extensions(refined.terms)
    return TermsStep(tuple(names), *figures, prior_odds=odds, equations=equations)

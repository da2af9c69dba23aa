"""Equations that grow from a diffusion, where no states are known to start from.

States that observations alone suggest may be so far from any that obey an equation that
none is found from them. Those of a diffusion, u_t = D u_xx, are smooth; those of waves,
u_tt = D u_xx, are what equations of second order in time begin with. Each other term
is added to it, the pair solved for on a coarse grid by steps that are shortened until
the objective falls, and the pair of the highest evidence is where the search among all
sets of terms begins.
"""

from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from keql._evolution.problem import (
    EvolutionProblem,
    IntegratedProblem,
    make_evolution_problem,
)
from keql._numerics.optimisation import Backtracking, Result, Stop, minimise
from keql._regression.screening import CandidateTerms
from keql.equation import PolynomialBasis
from keql.model_selection._criteria import are_many, meets_data, sees_noise
from keql.model_selection._exact_fit import or_followed
from keql.model_selection._terms._evolution import (
    TermSearch,
    exact_fit,
    polished,
    solve_exactly,
)
from keql.model_selection._terms._settings import TermSearchSettings


@dataclass(frozen=True)
class DiffusionSettings:
    """How pairs of terms are compared.

    spread : float. Part of the squared extent of space that the first diffusion spreads
        over. The first waves cross all of the extent in all of the time.
    first_steps, n_kept, more_steps, fine_steps : int. Steps for each pair; how many of
        the best pairs go on, and their further steps; steps for the best pair on the
        fine grid.
    """

    spread: float = 0.1
    first_steps: int = 3
    n_kept: int = 3
    more_steps: int = 8
    fine_steps: int = 19


def fit_from_diffusion(learned, hypothesis, context, settings=None):
    """Exact states wherever the learned model's states are.

    learned : LearnedModel. Observations, the equation of all terms that there may be,
        and the states outside of the box.
    hypothesis : Hypothesis. How many terms there are, and the noise.
    context : Context. How problems are solved.
    settings : DiffusionSettings, default=None. None: the default ones.

    Returns fit : Fit or None. None if the equation has no second derivative in space as
        one of its terms, or cannot be integrated.
    """
    settings = settings or DiffusionSettings()
    is_polynomial = isinstance(learned.equation.basis, PolynomialBasis)
    in_one = len(learned.variables) == 2  # coordinate of space
    if not (is_polynomial and in_one) or are_many(learned, context):
        return None
    given = learned, hypothesis.noise_levels(learned.observations.operators)
    problem = make_evolution_problem(*given, kept=hypothesis.state_kernel)
    candidates = CandidateTerms(learned.equation)
    diffusion = _diffusion_term(problem.grid, candidates)
    if diffusion is None:
        return None
    model, stop = _best_pair(problem, candidates, diffusion, context, settings)
    if model is None:
        return None
    search_settings = TermSearchSettings()
    solve = partial(solve_exactly, learned, context, search_settings)
    full, iterate = _as_full_steps(model.problem), model.solution
    if hypothesis.n_terms is None and stop is None:
        equation = candidates.complete(iterate.equation)
        start = full.iterate(equation, iterate.states)
        return exact_fit(learned, hypothesis, solve(full, start, 1.0), [])
    n_terms = hypothesis.n_terms or "auto"
    search = TermSearch(problem, candidates, n_terms, solve, search_settings)
    loss = iterate.equation.posterior.loss
    laplace = model.with_laplace_evidence()
    laplace.problem = full  # to compare sets of terms these states are not integrated
    pair = Result(iterate, loss, laplace, Stop.CONVERGED, [loss])
    found = None if stop is not None else _followed(pair, learned, hypothesis, context)
    if found is not None:
        return found
    search.record(pair)
    search.stop = stop
    if stop is None:
        search.run(iterate.states)
    fit = exact_fit(learned, hypothesis, polished(search), search.steps)
    return or_followed(fit, learned, context)


def _followed(pair, learned, hypothesis, context):
    """Exact states on a grid that follows those of a pair of terms, or None.

    Where exact data are missed by states that are as steep as their grid allows: among
    other terms on such a grid none would be found that meet them.
    """
    if sees_noise(learned):
        return None
    fit = exact_fit(learned, hypothesis, pair, [])
    found = or_followed(fit, learned, context)
    is_met = found is not fit and meets_data(found, learned, context.criteria)
    return found if found.result.interrupted or is_met else None


def _best_pair(problem, candidates, diffusion, context, settings):
    """The model at the best states of a diffusion and one other term, and why to stop.

    (None, None) if no pair can be integrated.
    """

    def descend(problem, start, max_iter):
        report = partial(context.report, problem.learned, problem)
        return minimise(
            problem, start, Backtracking(), max_iter=max_iter, report=report
        )

    coarse = _integrated(problem.on_coarse_grid())
    states = coarse.start().states
    models = []
    for equation in _pairs(coarse.grid, candidates, diffusion, settings):
        start = coarse.iterate(equation, states)
        result = descend(coarse, start, settings.first_steps)
        model = _model_at_solution(result)
        if model is not None and result.interrupted:
            return model, result.stop
        if model is not None:
            models.append(model)
    models.sort(key=lambda model: -model.laplace_log_evidence())
    reached = []
    for model in models[: settings.n_kept]:
        result = descend(model.problem, model.iterate, settings.more_steps)
        reached.append(_model_at_solution(result) or model)
    if not reached:
        return None, None
    best = max(reached, key=lambda model: model.laplace_log_evidence())
    fine = _integrated(problem).with_priors_of(best.problem)
    start = fine.interpolate_from(coarse, best.iterate)
    result = descend(fine, start, settings.fine_steps)
    stop = result.stop if result is not None and result.interrupted else None
    return _model_at_solution(result), stop


def _model_at_solution(result):
    """The linearisation at the best iterate, or at the one before; None if none."""
    if result is None or result.model is None:
        return None
    model = result.model
    if model.iterate is result.solution or result.stop is Stop.FAILED:
        return model
    return model.problem.linearise(_evaluated(model.problem, result.solution)) or model


def _evaluated(problem, iterate):
    """An integrated iterate, which need not be integrated again."""
    return EvolutionProblem.evaluate(problem, iterate)


def _integrated(problem):
    return IntegratedProblem(**_fields(problem))


def _as_full_steps(problem):
    return EvolutionProblem(**_fields(problem))


def _fields(problem):
    return {each.name: getattr(problem, each.name) for each in fields(problem)}


def _diffusion_term(grid, candidates):
    """Position of the second derivative in space among the terms; None if none."""
    order, equation = [2, 0] if grid.axis else [0, 2], candidates.equation
    first = equation.n_unknown_features - equation.n_operators
    for q, operator in enumerate(equation.operators):
        if all(list(orders) == order for orders, _ in operator.terms):
            alone = np.eye(candidates.exponents.shape[1], dtype=int)[[first + q]]
            found = np.flatnonzero(np.all(candidates.exponents == alone, axis=1))
            return int(found[0]) if len(found) else None
    return None


def _pairs(grid, candidates, diffusion, settings):
    """Equations of a diffusion, and of another term that does nothing yet."""
    equation = candidates.equation
    duration = grid.edges[-1] - grid.edges[0]
    rate = grid.extents[0] ** 2 / duration**grid.order
    if grid.order == 1:
        rate = settings.spread * rate
    origin = np.zeros((1, len(equation.feature_names)))
    in_time = [
        max(orders[grid.axis] for orders, _ in operator.terms)
        for operator in equation.operators
    ]
    first = origin.shape[1] - len(in_time)
    inertia = equation.known_part.gradient(origin)[first + np.argmax(in_time), 0]
    for other in range(len(candidates.exponents)):
        if other != diffusion:
            values = np.array([-inertia * rate, 0.0])  # inertia (u_t - D u_xx) = 0
            yield candidates.with_values([diffusion, other], values)

"""Exact states from other starts than two steps, and with more terms on offer.

They grow from a diffusion, or from the first times, where no states are known to start
from. Or they begin from a single travelling wave, if the observations are values of
one: its profile is better known than any states in time and space, and as many
equations have it as a solution, few sets of terms are worth being solved for.

Or they are there already, and it is asked whether other terms would have been found if
more had been on offer.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

from keql._evolution.problem import make_evolution_problem
from keql._numerics.optimisation import or_stopped
from keql._observations.data import PredictionScale
from keql._regression.periodic import periodic_prior, travelling_wave
from keql._regression.screening import CandidateTerms
from keql._regression.two_step import refit_two_steps
from keql.equation import PolynomialBasis
from keql.model_selection._criteria import (
    are_many,
    error_without_equation,
    meets_data,
    predicts_within_noise,
    sees_noise,
)
from keql.model_selection._exact_fit import fit_hypothesis, or_followed
from keql.model_selection._starts._diffusion import fit_from_diffusion
from keql.model_selection._starts._early_times import fit_from_early_times
from keql.model_selection._terms._evolution import (
    TermSearch,
    exact_fit,
    polished,
    solve_exactly,
)
from keql.model_selection._terms._settings import TermSearchSettings
from keql.operators import parse_operator


def or_from_diffusion(fit, learned, hypothesis, context):
    """A fit, or a better one from a diffusion, or if data are missed from first times.

    No diffusion is begun where observations alone predict well: an equation is looked
    for along states that are known better than those of a diffusion with another term.

    fit : Fit or None. From the states of the learned model; else as below.
    """
    interrupted = fit is not None and fit.result.interrupted
    if interrupted or not context.settings.n_restarts:
        return fit
    starts = [fit_from_early_times, fit_from_diffusion]
    alone = error_without_equation(learned.states, learned.observations)
    size = PredictionScale(learned.observations).size
    if alone < context.criteria.predicts_well * size:
        starts = starts[:1]
    for start in starts:
        found = or_stopped(fit, start, learned, hypothesis, context)
        if fit is None or (found is not None and found.error < fit.error):
            fit = found
        if fit is None:
            continue
        if fit.result.interrupted or meets_data(fit, learned, context.criteria):
            break
    return fit


@dataclass(frozen=True)
class WaveSettings:
    """How equations that a travelling wave obeys are compared.

    n_steps, n_points : int. Steps in time and points in space: a wave is as steep at
        the end as in the beginning, so that all steps are alike.
    n_wanted, n_tried, n_rounds : int. As those of TermSearchSettings.
    """

    n_steps: int = 40
    n_points: int = 60
    n_wanted: int = 1
    n_tried: int = 3
    n_rounds: int = 1


def leads_nowhere(fit, two_step, in_doubt):
    """Whether exact states do not tell where an equation is to be looked for.

    There are none, or they predict poorly and obey an equation without a derivative of
    the highest order in space: few values are soon met by what is carried along or
    grows in its place, from whose states no equation of what spreads is found.

    fit : Fit or None. From the states of two steps.
    two_step : LearnedModel. With the equation of all terms there may be.
    in_doubt : callable. Whether an error of predictions is too large.
    """
    if fit is None or not isinstance(two_step.equation.basis, PolynomialBasis):
        return fit is None
    return in_doubt(fit.error) and not _leads(fit, two_step)


def _leads(fit, two_step):
    """Whether an equation has a derivative of the highest order in space on offer."""
    candidates = CandidateTerms(two_step.equation)
    leading = candidates.leading_terms(fit.problem.grid.space)
    return bool(leading & {*candidates.terms_of(fit.result.solution.equation)})


def fit_from_wave(learned, hypothesis, context, settings=None):
    """Exact states of a single travelling wave, or None if the data are not of one.

    It is looked for in the values of one function, for equations of first order in time
    whose terms are chosen, and only exactly: noise hides what else there may be. The
    arguments are those of :func:`fit_from_diffusion`.
    """
    settings, functions = settings or WaveSettings(), learned.observations.functions
    is_polynomial = isinstance(learned.equation.basis, PolynomialBasis)
    if not is_polynomial or hypothesis.n_terms is None:
        return None
    if (
        len(learned.variables) > 2
        or len(functions) > 1
        or learned.observations.periods is not None
    ):
        return None
    noise = hypothesis.noise_levels(learned.observations.operators)
    problem = make_evolution_problem(learned, noise, kept=hypothesis.state_kernel)
    if problem.grid.order > 1:
        return None
    axis = problem.grid.axis
    wave = travelling_wave(functions[0], axis, _speed(learned, axis))
    if wave is None:
        return None
    problem = problem.with_grid(settings.n_steps, settings.n_points, 1.0)
    search_settings = TermSearchSettings(
        n_wanted=settings.n_wanted,
        n_tried=settings.n_tried,
        n_rounds=settings.n_rounds,
    )
    solve = partial(solve_exactly, learned, context, search_settings)
    candidates = CandidateTerms(learned.equation)
    given = candidates, hypothesis.n_terms, solve, search_settings
    search = TermSearch(problem, *given)
    search.run([wave(problem.grid.points.reshape(-1, 2))])
    fit = exact_fit(learned, hypothesis, polished(search), search.steps)
    return or_followed(fit, learned, context)


@dataclass
class RepeatedStates:
    """Periodic states to start from, whose period is looked for once.

    two_step : LearnedModel. Observations and equations, in time alone.
    context : Context. How problems are solved.
    in_doubt : callable. Whether an error of predictions is too large.
    """

    two_step: object
    context: object
    in_doubt: object

    @cached_property
    def prior(self):
        """Kernel and noise levels of periodic states; None if they predict poorly."""
        observations = self.two_step.observations
        kernel, noise = periodic_prior(observations, self.two_step.variables)
        scale = PredictionScale(observations)
        poor = kernel is None or self.in_doubt(scale.noise(noise))
        return None if poor else (kernel, noise)

    def states_of(self, hypothesis):
        """The LearnedModel of a hypothesis whose states are periodic, or None."""
        if self.prior is None:
            return None
        kernel, noise = self.prior
        two_step = replace(self.two_step, observation_noise=noise)
        given = two_step, hypothesis, self.context.settings, kernel
        return refit_two_steps(*given)


def or_more_terms(fit, hypothesis, offered, context):
    """A fit, or exact states of a wider hypothesis that are far more probable.

    Of few functions, where there is noise, without which equations are met or not, and
    in a plane, where grids are so coarse that exact data are met by others, too. They
    are looked for from the states of the fit, and from those of two steps if no
    derivative of the highest order in space is found so.

    fit : Fit. Exact states of an equation, or those of the wider hypothesis already.
    hypothesis : Hypothesis. The wider one: how many terms there are.
    offered : callable. The LearnedModel with the equation of all terms there may be.
    context : Context. How problems are solved.

    Returns fit : Fit. All sets of terms that were solved for are in its path.
    """
    criteria = context.criteria
    if fit.result.interrupted or fit.hypothesis.name == hypothesis.name:
        return fit
    in_plane = len(fit.two_step.variables) > 2
    is_open = hypothesis.n_terms is not None and not are_many(fit.two_step, context)
    if not (is_open and (in_plane or sees_noise(fit.two_step))):
        return fit
    if not (in_plane or predicts_within_noise(fit, fit.two_step, criteria)):
        return fit
    learned = offered()
    # A few products of three may be in the place of many of two.
    given = fit, learned, hypothesis, context
    other = or_stopped(fit, partial(_among_more_terms, grows=True), *given)
    if other is None:
        return fit
    if not (other.result.interrupted or _leads(other, learned)):
        other = _or_from_two_steps(other, learned, hypothesis, context)
    if other.result.interrupted:
        return fit.stopped(other.result.stop)
    return fit.or_more_probable(other, criteria.wider)


def _among_more_terms(fit, learned, hypothesis, context, grows=False, n_tried=3):
    """Exact states of a wider hypothesis, its terms searched from those of a fit.

    All sets are compared in the problem that is linearised at the fit; at most
    `n_tried` that seem better are solved for. None if it has terms that are not on
    offer.
    """
    search = _search_near(fit, learned, hypothesis, context, n_tried, grows)
    own = search.candidates.terms_of(fit.result.solution.equation)
    if len(own) < len(fit.term_names):
        return None  # it has other terms
    search.record(fit.result)
    search.run(fit.result.solution.states)
    is_new = search.best is not None and search.best is not fit.result
    result = polished(search) if is_new else search.best
    return exact_fit(learned, hypothesis, result, search.steps)


def _search_near(fit, learned, hypothesis, context, n_tried, grows=False):
    """A search among the terms of a learned model on the grid of a fit."""
    settings = TermSearchSettings(n_wanted=1, n_tried=n_tried, grows=grows)
    solve = partial(solve_exactly, learned, context, settings)
    given = CandidateTerms(learned.equation), hypothesis.n_terms, solve, settings
    return TermSearch(fit.problem, *given)


def or_polynomial(fit, learned, hypothesis, context, n_tried=3):
    """Exact states of other terms, or of a polynomial that meets the data, too.

    Its terms are those of the highest evidence at the states of the fit, `n_tried` sets
    of which are tried, unless all of its terms miss the data there. As these states
    meet the data, sets grow there: of four terms no three need be better than others.
    The other arguments are those of :func:`from_simpler`.
    """
    if hypothesis.n_terms is None or fit.result.interrupted:
        return fit

    def find():
        search = _search_near(fit, learned, hypothesis, context, n_tried, grows=True)
        search.highest = _highest_near(fit, learned, search.settings)
        search.run(fit.result.solution.states)
        return exact_fit(learned, hypothesis, polished(search), search.steps)

    other = or_stopped(fit, find)
    if other is not None and other.result.interrupted:
        return fit.stopped(other.result.stop)
    return other if other and meets_data(other, learned, context.criteria) else fit


def _highest_near(fit, learned, settings):
    """Minus the log likelihood of all terms above which none of their sets is tried."""
    return fit.result.model.loss + settings.hopeless * len(learned.equation.weights)


def _misses_near(fit, learned, settings):
    """Whether all terms there may be miss the data, linearised at the states of a fit.

    Nothing is said where they cannot be integrated.
    """
    everything = CandidateTerms(learned.equation).equation
    start = fit.problem.iterate(everything, fit.result.solution.states)
    model = fit.problem.linearise(fit.problem.evaluate(start))
    return model is not None and model.loss > _highest_near(fit, learned, settings)


def _or_from_two_steps(fit, learned, hypothesis, context):
    """Exact states of a wider hypothesis, or more probable ones from two steps.

    Where what is carried along or grows takes the place of what spreads, an equation of
    the latter is not found from its states. All sets that were solved for are told.
    """
    other = or_stopped(fit, fit_hypothesis, hypothesis, learned, context)
    if other is None or other.result.interrupted:
        return fit if other is None else fit.stopped(other.result.stop)
    steps = [*fit.terms_path, *other.terms_path]
    is_better = other.log_evidence > fit.log_evidence
    return replace(other if is_better else fit, terms_path=steps)


def from_simpler(fit, hypothesis, two_step, context):
    """Exact states of a wider hypothesis that meet exact data, or None.

    From simpler ones that are near, but miss the data: they are better known than those
    of two steps, and so is the noise, by which terms are told from others.

    fit : Fit or None. Exact states of a simpler hypothesis.
    hypothesis, two_step, context : as those of :func:`fit_hypothesis`.
    """
    criteria, size = context.criteria, PredictionScale(two_step.observations).size
    if fit is None or hypothesis.n_terms is None or sees_noise(two_step):
        return None
    is_polynomial = isinstance(two_step.equation.basis, PolynomialBasis)
    is_far = fit.error > criteria.approximate * size
    if fit.has_functions or not is_polynomial or is_far or are_many(two_step, context):
        return None
    given = fit, two_step, hypothesis, context
    other = or_stopped(fit, _among_more_terms, *given)
    if other is None or other.result.interrupted:
        return other
    return other if meets_data(other, two_step, criteria) else None


def or_simpler(fit, row, two_steps, context):
    """Exact states, or those of a simpler hypothesis if these meet the data, too.

    They are looked for from the states of the fit: from less exact ones the terms of a
    simpler equation may not have been found. In the place of functions first on its
    grid and with its noise, which tell terms from others that the first ones stand for.
    None is looked for if all terms of the simpler hypothesis miss the data there.

    fit : Fit. Exact states that meet the data.
    row : Candidate. The simpler hypothesis, if there is no reason not to try it.
    two_steps : callable. Of a hypothesis: the LearnedModel with the equation of all
        terms there may be.
    context : Context. How problems are solved.
    """
    if row.why_not or fit.result.interrupted:
        return fit
    two_step = two_steps(row.hypothesis)
    if _misses_near(fit, two_step, TermSearchSettings()):
        return fit
    if fit.has_functions:
        near = or_polynomial(fit, two_step, row.hypothesis, context)
        if near is not fit:
            return near
    learned = replace(fit.learned, equations=two_step.equations)
    given = row.hypothesis, two_step, context, learned
    other = or_stopped(fit, fit_hypothesis, *given)
    if other is not None and other.result.interrupted:
        return fit.stopped(other.result.stop)
    return other if other and meets_data(other, two_step, context.criteria) else fit


def _speed(learned, axis):
    """The speed of a wave that is nearest to the states of two steps."""
    [data], [name] = learned.observations.functions, learned.observations.states
    slopes = []
    for variable in learned.variables:
        slope = parse_operator(f"{name}_{variable}", learned.variables, (name,))
        slopes.append(learned.states[0].evaluate(data.points, slope))
    in_time, in_space = slopes[axis], slopes[1 - axis]
    return -(in_time @ in_space) / (in_space @ in_space or 1.0)

"""Exact trajectories, and exact fields of systems, with the terms that suit best."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from keql._evolution.form import why_no_trajectories, why_not_integrated
from keql._evolution.problem import make_evolution_problem
from keql._evolution.trajectories import make_trajectory_problem
from keql._evolution.trajectory import TrajectoryLimits
from keql._joint.assembly import joint_basis
from keql._numerics.linalg import size_or_one
from keql._numerics.optimisation import RelaxedSteps, Stop, keep_best, minimise
from keql._observations.data import PredictionScale
from keql._regression.screening import ScreeningSettings, with_most_probable_terms
from keql._regression.term_scores import TermTable
from keql.model_selection._criteria import sees_noise
from keql.model_selection._fit import given_equation_noise
from keql.model_selection._terms._evolution import exact_fit
from keql.model_selection._terms._linearised import LinearisedTermSearch
from keql.model_selection._terms._settings import TrajectorySearchSettings


@dataclass(frozen=True)
class TrajectoriesFound:
    """Where a search for exact trajectories and their terms ended.

    fit : Fit or None. None if there are no trajectories near the states it began from,
        or steps did not converge at the end, as where short waves grow on a finer grid.
    steps : list of TermsStep. All sets of terms that were solved for.
    """

    fit: object = None
    steps: list = field(default_factory=list)


def fit_trajectories(learned, hypothesis, context, settings=None, simpler=None):
    """The Fit of :func:`search_trajectories`, or None."""
    return search_trajectories(learned, hypothesis, context, settings, simpler).fit


def search_trajectories(
    learned,
    hypothesis,
    context,
    settings=None,
    simpler=None,
    known=(),
    reached=-np.inf,
):
    """Exact trajectories from the states of a learned model, with the best terms.

    learned : LearnedModel. States to start from, and equations with all terms.
    hypothesis : Hypothesis. How many terms there are, and the noise.
    context : Context. How problems are solved.
    settings : TrajectorySearchSettings, default=None. None: the default ones.
    simpler : Fit, default=None. Trajectories with some of the terms, from which the
        search starts instead.
    known : sequence of TrajectoriesFound, default=(). Where searches from other states
        ended, with this hypothesis. A search that comes to terms that led to one of
        these ends there.
    reached : float, default=-inf. Log evidence, with the odds of the terms, that other
        searches have come to. Steps are given up that cannot come near it.

    Returns found : TrajectoriesFound.
    """
    is_field = len(learned.variables) > 1
    if (why_not_integrated if is_field else why_no_trajectories)(learned):
        return TrajectoriesFound()
    given = hypothesis, context, simpler, (known, reached)
    settings = settings or _settings(learned)
    few = with_most_probable_terms(learned, hypothesis)
    if is_field and not simpler:
        few, search = _searched_among_more(learned, few, settings, *given)
    else:
        search = _searched_finely(few, settings, *given)
    if search.repeats is not None:
        return replace(search.repeats, steps=search.steps)
    fit = exact_fit(few, hypothesis, search.best, search.steps)
    return TrajectoriesFound(fit, search.steps)


def _searched_among_more(learned, few, settings, hypothesis, *given):
    """The search of fields among few terms, or among more of them.

    If very many of the few are the best, they stand for some that are not on offer.

    learned, few : LearnedModel. With equations of all terms, and of those that the
        states suggest most.

    Returns learned : LearnedModel. With equations of the terms that were searched.
        search : LinearisedTermSearch. At its end.
    """
    more = ScreeningSettings.of_dense_sets()
    more = with_most_probable_terms(learned, hypothesis, more)
    how = replace(settings, in_each=_n_weights(more) > _n_weights(few))
    search = _searched_finely(few, how, hypothesis, *given)
    if search.is_stopped or search.repeats is not None or not search.lacks_terms:
        return few, search
    with keep_best(search):
        wider = _searched_finely(more, settings, hypothesis, *given)
        if wider.is_stopped or wider.score > search.best_converged[1]:
            return more, wider
        _end(search)
    return few, search


def _n_weights(learned):
    """How many weights all equations have together."""
    return sum(len(equation.weights) for equation in learned.equations)


def _searched_finely(learned, settings, hypothesis, context, simpler, before):
    """The LinearisedTermSearch of a learned model, at its end.

    Of noisy trajectories on short steps in time if there are none on longer ones.
    """
    given = learned, hypothesis, context, settings, simpler, before
    problem = _problem_of(learned, hypothesis, settings)
    search = _searched(problem, *given)
    is_open = search.best is None and search.repeats is None
    if is_open and not (len(learned.variables) > 1 or simpler):
        # Steps of noisy data may be too long where equations are poorly known.
        finer = _problem_of(learned, hypothesis, settings, TrajectoryLimits.short())
        if sum(map(len, finer.times)) > sum(map(len, problem.times)):
            search = _searched(finer, *given)
    return search


def _searched(problem, learned, hypothesis, context, settings, simpler, before):
    """The LinearisedTermSearch of a problem, at its end, or where it lacks terms.

    `before` are what is known from other searches, and the evidence reached there.
    """
    is_field = len(learned.variables) > 1
    solve = partial(solve_trajectories, learned, context, settings)
    table = TermTable(learned, joint_basis(learned.equations), hypothesis)
    search = LinearisedTermSearch(problem, table, solve, settings, *before)
    with keep_best(search):
        if simpler is not None:
            search.extend(simpler)
        elif table.groups.size and np.any(table.groups >= 0):
            start = problem.start_without_terms() if is_field else problem.start()
            ways = [search.run]
            if is_field:
                of_few = partial(search.run, begins_dense=False)
                first = search.run_from_diffusion if sees_noise(learned) else of_few
                ways = [first, search.run_from_semilinear, *ways]
            for way in ways:
                search.or_better(way, problem, start)
                if search.lacks_terms:
                    return search
        else:
            search.best = solve(problem, problem.start())
        if search.repeats is None:
            _end(search)
    return search


def _end(search):
    """End with the best set that converged, resolved, and with the best prior."""
    search.settle()
    if len(search.problem.learned.variables) > 1:
        search.refresh()
    search.resolve()


def _settings(learned):
    """How far a search for exact states of a learned model goes."""
    if len(learned.variables) == 1:
        if learned.observations.hidden_states:
            return TrajectorySearchSettings.of_hidden_states()
        return TrajectorySearchSettings()
    return TrajectorySearchSettings.of_fields(sees_noise(learned))


def _problem_of(learned, hypothesis, settings, limits=None):
    """The problem of exact states of a learned model, with the noise that is given."""
    given = hypothesis.noise_levels(learned.observations.operators)
    if len(learned.variables) > 1:
        kept = hypothesis.state_kernel
        return make_evolution_problem(learned, given, settings.first_grid, kept)
    if hypothesis.constraint == "driven":
        units = units_of_noise(learned)
        return make_trajectory_problem(learned, given, limits, units, finds_noise=True)
    levels = given_equation_noise(hypothesis, learned.setup)
    return make_trajectory_problem(learned, given, limits, levels)


def units_of_noise(learned):
    """Sizes (E,) of what each equation explains; zero for known ones."""
    pairs = zip(learned.setup.equations, learned.targets, strict=True)
    return np.array(
        [0.0 if t.depends_on is None else size_or_one(own) for t, own in pairs]
    )


@dataclass
class SettlingSteps(RelaxedSteps):
    """Relaxed steps that may have settled where they do not converge.

    Of exact fields observations leave directions open in which full steps go round for
    ever: states change by a hundred times the noise there, the evidence by a few units.

    settled, n_last : float, int. They have settled if the losses of the last so many
        linear models differ by less than that; 0: they never have.
    """

    settled: float = 0.0
    n_last: int = 8
    losses: list = field(default_factory=list)

    def advance(self, model):
        """Take the step: the evaluation there, and why to stop, if so."""
        if self.settled > 0:
            self.losses.append(model.loss)
        return super().advance(model)

    def settled_or(self, stop):
        """Why steps ended, or that they have converged, as their evidence has."""
        last = self.losses[-self.n_last :]
        has_ended = stop in (Stop.MAX_ITER, Stop.NO_PROGRESS)
        is_enough = has_ended and len(last) == self.n_last
        is_settled = is_enough and max(last) - min(last) < self.settled
        return Stop.CONVERGED if is_settled else stop


@dataclass
class CompetingSteps(SettlingSteps):
    """Relaxed steps that end where they cannot lead to a score that counts.

    score : callable. The score of a linear model: the higher, the better.
    least : float. Scores below this do not count.
    max_iter : int. Steps of the loop at most.

    Steps are given up if the last two scores are below the least, and would be after
    all steps that may follow if each added what the last one did. The first one, at
    which another set was linearised, says nothing.
    """

    score: Callable | None = None
    least: float = -np.inf
    max_iter: int = 0
    scores: list = field(default_factory=list)

    def advance(self, model):
        """Take the step: the evaluation there, and why to stop, if so."""
        trial, stop = super().advance(model)
        is_beaten = stop is None and self._is_beaten(model)
        return trial, Stop.BEATEN if is_beaten else stop

    def _is_beaten(self, model):
        if len(self.changes) < 2:
            return False
        self.scores.append(self.score(model))
        if len(self.scores) < 2:
            return False
        before, here = self.scores[-2:]
        n_left = self.max_iter - len(self.changes)
        return max(before, here, here + n_left * (here - before)) < self.least


def solve_trajectories(learned, context, settings, problem, start, rivals=None):
    """Steps until states do not change any more; None if that fails.

    With `rivals`, which are the score of a linear model, a callable, and the least
    score that counts, steps end where they cannot lead there, too.
    """
    scale = PredictionScale(learned.observations)
    part = settings.part * scale.noise(problem.prior.noise) / scale.size
    tol = max(settings.tol * context.settings.tol, part)
    max_iter = min(settings.max_steps, context.settings.max_iter)
    control = SettlingSteps(tol, settled=settings.settled)
    if rivals:
        score, least = rivals
        given = {"score": score, "least": least, "max_iter": max_iter}
        control = CompetingSteps(tol, settled=settings.settled, **given)
    result = minimise(
        problem,
        start,
        control,
        max_iter=max_iter,
        report=partial(context.report, learned, problem),
    )
    if result is not None and result.interrupted and result.model is None:
        raise KeyboardInterrupt  # there is nothing to keep, and this is no failure
    if result is None or result.model is None:
        return None
    result.stop = control.settled_or(result.stop)
    return result

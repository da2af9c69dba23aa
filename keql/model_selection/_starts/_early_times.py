"""Exact states of all times from those of the first ones.

Where a state is rough at first, as from initial values that are far from what it
becomes, two steps know it poorly there, and no equation that is integrated from so poor
states comes near the later ones. Over a short time there is less to be wrong: the
equation that is found from the first observations alone has states which go on in those
that two steps know.
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._evolution.problem import make_evolution_problem
from keql.equation import PolynomialBasis
from keql.model_selection._criteria import (
    are_many,
    level_in_space,
    missed_in_space,
    predicts_within_noise,
    sees_noise,
)
from keql.model_selection._exact_fit import fit_exact_states, fit_near


@dataclass(frozen=True)
class EarlySettings:
    """Which observations come first.

    part : float. The part of the time that they are from.
    fewest : int. Number of them without which no equation is looked for.
    """

    part: float = 0.25
    fewest: int = 40


def fit_from_early_times(learned, hypothesis, context, settings=None):
    """Exact states from those that the first observations tell, or None.

    Of a few functions in one coordinate of space, with terms to choose. None if the
    first observations are missed, too, or are too few.

    learned : LearnedModel. Observations, states to go on with, and the equation of all
        terms that there may be.
    hypothesis : Hypothesis. How many terms there are, and the noise.
    context : Context. How problems are solved.
    settings : EarlySettings, default=None. None: the default ones.
    """
    settings = settings or EarlySettings()
    has_terms = hypothesis.n_terms is not None
    has_terms &= isinstance(learned.equation.basis, PolynomialBasis)
    if not has_terms or len(learned.variables) > 2:
        return None
    if are_many(learned, context):
        return None
    noise = hypothesis.noise_levels(learned.observations.operators)
    problem = make_evolution_problem(learned, noise, kept=hypothesis.state_kernel)
    begin, end = problem.grid.edges[[0, -1]]
    until = begin + settings.part * (end - begin)
    early = _until(learned, problem.grid.axis, until)
    if sum(len(d.values) for d in early.observations.functions) < settings.fewest:
        return None
    fit = fit_exact_states(early, early, hypothesis, context)
    if fit is not None and fit.result.interrupted:
        raise KeyboardInterrupt  # there is nothing to keep
    if fit is None or _is_missed(fit, early, context.criteria):
        return None
    iterate = _gone_on_with(problem, fit)
    return fit_near(problem, iterate, learned, hypothesis, context)


def _is_missed(fit, early, criteria):
    """Whether early exact states do not describe the observations that they are of.

    Predictions from a few observations may be poor though these are met.
    """
    if not sees_noise(early):
        return bool(missed_in_space(fit, early, criteria))
    is_met = level_in_space(fit, early) < criteria.exact_noise
    return not (is_met or predicts_within_noise(fit, early, criteria))


def _gone_on_with(problem, fit):
    """The iterate of a problem: states of an early Fit, and of two steps elsewhere."""
    start, grid = problem.start(), fit.problem.grid
    points = problem.grid.points.reshape(-1, problem.grid.d)
    known = grid.contains(points)
    values = np.stack(fit.result.solution.states, axis=-1)
    values = values.reshape(grid.n_steps, 4, grid.size, -1)
    states = np.stack(start.states, axis=-1)
    states[known] = grid.apply(values, points[known], grid.identity)
    return problem.iterate(fit.result.solution.equation, list(states.T))


def _until(learned, axis, until):
    """A learned model with its observations up to a time, and points for them."""
    functions = []
    for data in learned.observations.functions:
        rows = data.points[:, axis] <= until
        parts = {
            name: getattr(data, name)[rows]
            for name in ("points", "values", "weights", "index")
        }
        functions.append(replace(data, **parts))
    placed = learned.setup.collocation_points
    placed = [points[points[:, axis] <= until] for points in placed]
    return replace(
        learned,
        observations=replace(learned.observations, functions=functions),
        setup=replace(learned.setup, collocation_points=placed),
    )

"""States that white noise drives, beside exact ones."""

from dataclasses import replace

import numpy as np

from keql._numerics.linalg import rms
from keql._observations.data import PredictionScale, left_out_errors
from keql.model_selection._criteria import (
    correlation_of_neighbours,
    error_without_equation,
    predicts_worse_than_none,
    sees_noise,
)
from keql.model_selection._terms._fewer import most_probable
from keql.model_selection._terms._settings import TrajectorySearchSettings
from keql.model_selection._terms._trajectories import fit_trajectories, units_of_noise


def why_not_driven(fit, two_step, criteria, misses, max_iter=10, tol=0.03):
    """Why white noise in the equations is not tried beside exact states, or empty.

    It is where equations depend on time; or if noise adds to the evidence of the terms
    that the fit has, in the problem linearised there: no other terms are solved for,
    and levels are searched in few steps. That takes a fiftieth of a search for terms,
    and noise adds to what poor equations leave all the more. It is not where states
    of two steps predict far better than driven ones do. If the linearised problem is
    not finite, it is tried where the fit predicts poorly.

    fit : Fit or None. Exact states.
    misses : bool. Whether they miss observations by more than these allow.
    """
    if fit is None:
        return ""
    if fit.result.interrupted:
        return "the search was interrupted"
    if not (misses or sees_noise(two_step)):
        return "exact data are met without it"
    equations = fit.learned.equations
    on_time = [e.gradient(e.training_features)[:, 0] for e in equations]
    if np.any(on_time):
        return ""
    problem = fit.problem.driven(units_of_noise(fit.learned))
    responses = problem.responses(fit.result.solution)
    if responses is None and fit.predicts_poorly(criteria):
        return ""
    if responses is not None:
        regression = problem.regression(fit.result.solution, responses)
        driven = regression.with_best_prior(max_iter, tol)
        error = rms(left_out_errors(driven, fit.observations))
        alone = error_without_equation(two_step.states, fit.observations)
        if alone < criteria.undriven * error:
            return "states are too smooth for noise to drive them"
        if driven.log_evidence() > fit.model.log_evidence() + criteria.driven:
            return ""
    return "noise in the equations makes the data no more probable"


def fit_driven(learned, hypothesis, context):
    """Trajectories that white noise of an open level drives, a Fit or None.

    Other terms are looked for only where the first ones leave states that noise may
    drive: of 36 records of equations that noise drives, exact ones and of 2 % noise,
    the first terms had innovations of 1.5 standard errors at most, and predictions 1.2
    times as far off as without any equation. With exact data of rational functions,
    where both were above the limits, further terms took most of the time, in vain.

    learned : LearnedModel. States to start from, and equations with all terms.
    hypothesis : Hypothesis. Of states that noise drives.
    context : Context. How problems are solved, and the criteria.
    """
    few = replace(TrajectorySearchSettings(), n_rounds=1)
    first = fit_trajectories(learned, hypothesis, context, few)
    if first is None or first.result.interrupted:
        return first
    criteria = context.criteria
    is_smooth = predicts_worse_than_none(first, criteria)
    if is_smooth and not _leaves_white_noise(first, criteria):
        return first
    return fit_trajectories(learned, hypothesis, context, simpler=first)


def _leaves_white_noise(driven, criteria):
    """Whether the innovations of driven states do not follow one another."""
    innovations = np.concatenate(driven.model.regression.innovations)
    order = correlation_of_neighbours(innovations, driven.observations)
    return order < criteria.random


def or_driven(fit, other, criteria):
    """A Fit or None, or another one whose states white noise drives, if more probable.

    Either is told beside the other, as one of its sets of terms, if it has other terms
    and is about as probable. What drives states is white noise only if it leaves
    innovations that do not follow one another (Mehra, "On the identification of
    variances and adaptive Kalman filtering", IEEE Transactions on Automatic Control 15,
    1970): if they do, it is told at most. And it is noise only if observations are no
    smoother than states that it drives: if these are predicted clearly better without
    any equation, it stands for terms that were not tried.
    """
    is_white = _leaves_white_noise(other, criteria)
    is_white = is_white and not predicts_worse_than_none(other, criteria)
    if fit is None:
        most = criteria.explains * PredictionScale(other.observations).spread
        return other if is_white and other.error < most else None
    fits = fit, other
    terms = [frozenset(each.term_names) for each in fits]
    best = [
        most_probable(f.terms_path).get(t) for f, t in zip(fits, terms, strict=True)
    ]
    values = [each.model.log_evidence() for each in fits]
    if None not in best:
        values = [step.log_evidence for step in best]
    values[1] -= criteria.driven
    taken = values[1] > values[0] and is_white
    chosen, left = (1, 0) if taken else (0, 1)
    path = fits[chosen].terms_path
    if None not in best and terms[0] != terms[1]:
        names = *best[left].terms, "white noise" if left else "no white noise"
        evidence = best[chosen].log_evidence + values[left] - values[chosen]
        told = {"terms": names, "log_evidence": evidence, "coefficients": None}
        path = [*path, best[left]._replace(**told)]
    return replace(fits[chosen], terms_path=path)

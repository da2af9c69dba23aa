"""Noisy fields at collocation points: other terms of far higher evidence.

There errors of prediction hardly tell equations apart that are as wrong as the noise
hides, whatever their terms; the probability of the data given the terms does, as all
are compared with the kernel of the states and the noise levels of one fit.
"""

from keql.equation import FixedUnknownPart
from keql.model_selection._candidates import is_all_open
from keql.model_selection._criteria import sees_noise
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._terms._by_evidence import with_most_probable_terms
from keql.model_selection._terms._fewer import TermCriteria, is_worse


def is_told_by_evidence(fit, search):
    """Whether the evidence of terms tells which those of a joint fit are.

    Of fields, and along a line whose states cannot be exact, if data are seen with
    noise and all kernels and noise levels are found from them: with others the evidence
    tells of these. And if the loss is no larger than noise makes it, as with kernels
    that suit the states.

    fit : Fit. At collocation points.
    search : HypothesisSearch. It knows the data, and what may be tried.
    """
    two_step, criteria = search.two_step, search.criteria
    observations = two_step.observations
    is_held = isinstance(fit.problem.basis, FixedUnknownPart)
    is_asked_for = search.context.settings.solver != "auto"
    is_along = search.table.exact.why_not and not is_asked_for
    is_field = len(two_step.variables) > 1 or is_along
    if fit.result.interrupted or is_held or not is_field:
        return False
    is_open = is_all_open(two_step, fit.hypothesis)
    few = len(observations.functions) <= criteria.n_functions
    n_residuals = sum(map(len, fit.problem.precisions))
    is_met = 2 * fit.result.loss <= n_residuals and fit.problem.dispersion == 1.0
    noisy = sees_noise(two_step) and not fit.predicts_poorly(criteria)
    return is_open and few and is_met and noisy


def or_more_probable(fit, search, rows=()):
    """A joint fit, or one with other terms whose evidence is higher.

    fit : Fit. Its terms are told by evidence.
    search : HypothesisSearch. It knows the data, and what was tried.
    rows : iterable of Hypothesis. Wider ones, each solved for from the states of the
        fit, and taken if its log odds to the best one before are strong.
    """
    fit = with_most_probable_terms(fit, search.context)
    for row in rows:
        if fit.result.interrupted:
            break
        other = _wider_fit(fit, row, search)
        if other.result.interrupted:
            return fit.stopped(other.result.stop)
        chosen = fit.or_more_probable(other, search.criteria.rival)
        if chosen.problem is other.problem and _predicts_worse(other, fit):
            chosen = fit
        fit = chosen
    return fit


def _wider_fit(fit, row, search):
    """The most probable fit of a wider hypothesis with the kernels of another fit."""
    noise = fit.problem.equation_noise
    family = JointFamily(search.two_step, row, search.context, noise)
    kernel, values = fit.two_step.state_kernel, fit.result.solution.values
    other = fit_jointly(family, *family.at(kernel, values))
    if other.result.interrupted:
        return other
    return with_most_probable_terms(other, search.context)


def _predicts_worse(other, fit):
    return is_worse(other.left_out_errors, fit.left_out_errors, TermCriteria())

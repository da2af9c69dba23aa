"""Noisy states that cannot be exact: kernels and terms of far higher evidence.

There errors of prediction hardly tell equations apart that are as wrong as the noise
hides, whatever their terms, nor kernels of the states. The probability of the data
given both does, integrated over states and weights; noise levels are those of one fit.
"""

from dataclasses import replace

from keql.equation import FixedUnknownPart
from keql.model_selection._candidates import is_all_open
from keql.model_selection._criteria import sees_noise
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._state_kernels import compare_kernels
from keql.model_selection._terms._by_evidence import (
    with_evidence,
    with_most_probable_terms,
)
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


def or_more_probable(best, search, rows=()):
    """A selection, or one with a kernel and terms whose evidence is higher.

    best : Selection. A joint fit whose terms are told by evidence.
    search : HypothesisSearch. It knows the data, and what was tried.
    rows : iterable of Hypothesis. Wider ones, each with the kernel that suits it, taken
        if the log odds to the best one before are strong and it predicts no worse.
    """
    fit, context = best.joint, search.context
    noise, values = fit.problem.equation_noise, fit.result.solution.values
    kernels = [] if search.two_step.setup.is_system else best.kernels
    family = JointFamily(search.two_step, fit.hypothesis, context, noise)
    fit = _of_highest_evidence(family, kernels, values, [fit], search.criteria)
    for row in rows:
        if fit.result.interrupted:
            break
        family = replace(family, hypothesis=row)
        compared = compare_kernels(family, values)
        other = _of_highest_evidence(family, compared, values, [], search.criteria)
        if other.result.interrupted:
            fit = fit.stopped(other.result.stop)
            break
        fit = _more_probable(fit, other, search.criteria.rival)
    is_chosen = bool(kernels) and not fit.result.interrupted
    return replace(best, joint=fit, by_evidence=is_chosen)


def _of_highest_evidence(family, kernels, values, fits, criteria, most=4):
    """The most probable fit with a kernel of those that predict about as well.

    Errors of prediction hardly tell these apart. With one that is too rough states bend
    to the equation at its collocation points, and evidence says little of terms.

    family, kernels : JointFamily, list of KernelCandidate. The best kernel first.
    values : list of ndarray. Values of states to start from.
    fits : list of Fit. That with the first kernel, if it is there already.
    most : int, default=4. Kernels whose evidence is compared; that of smooth ones was
        thousands higher where they were among the first three.
    """
    limit = kernels[0].error / criteria.clearly_better if kernels else 0.0
    near = [kernel for kernel in kernels[len(fits) : most] if kernel.error <= limit]
    if not near:  # there is one kernel
        return with_most_probable_terms(fits[0], family.context)
    fits = [with_evidence(fit, family.context) for fit in fits]
    for kernel in near:
        fit = fit_jointly(family, *family.at(kernel.kernel, values))
        if fit.result.interrupted:
            return fits[0].stopped(fit.result.stop) if fits else fit
        fits.append(with_evidence(fit, family.context))
    best = max(fits, key=lambda fit: fit.log_evidence)
    return with_most_probable_terms(best, family.context)


def _more_probable(fit, other, odds):
    """A fit, or another one that is more probable by log odds; told of both."""
    steps = [step.less_probable(0.0, odds) for step in other.terms_path]
    is_better = other.log_evidence - odds > fit.log_evidence
    if is_better and not _predicts_worse(other, fit):
        return replace(other, terms_path=[*fit.terms_path, *other.terms_path])
    return replace(fit, terms_path=[*fit.terms_path, *steps])


def _predicts_worse(other, fit):
    return is_worse(other.left_out_errors, fit.left_out_errors, TermCriteria())

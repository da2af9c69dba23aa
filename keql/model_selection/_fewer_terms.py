"""Which terms of a polynomial equation the data call for, states fitted along."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from keql._numerics.linalg import rms
from keql._numerics.optimisation import Damping, minimise
from keql._observations.data import left_out_errors
from keql.equation import (
    PolynomialBasis,
    coefficients,
    find_terms,
    term_name,
    weights_of,
)
from keql.kernels import Restriction


@dataclass(frozen=True)
class TermCriteria:
    """When terms are taken out of an equation, and how many.

    gap : float. A term costs clearly more than all before it if its ratio to the
        highest cost before is larger.
    worse, significant : float. Without terms, observations are predicted worse if the
        error is this many times as large, or if squared errors are larger by so many
        standard errors.
    hopeless : float. Terms are taken out until the loss is this many times that with
        all terms.
    damping : float. The first damping after a term is taken out, relative to the loss:
        the states are near.
    """

    gap: float = 3.0
    worse: float = 2.0
    significant: float = 2.0
    hopeless: float = 1e3
    damping: float = 1e-6


class TermsStep(NamedTuple):
    """A fit with some of the terms.

    terms : tuple of str. Their names.
    loss : float. The objective at its minimum.
    misfit : float. Mean square of the residuals in units of the noise levels.
    error : float. Root mean square error of predicting each observation from all
        others.
    log_evidence : float. Of exact states: log probability of the terms given the
        observations, up to a constant; not a number for others.
    """

    terms: tuple
    loss: float
    misfit: float
    error: float
    log_evidence: float = np.nan


def fit_with_fewer_terms(problem, result, two_step, n_terms, context, criteria=None):
    """Take terms out of P one by one, fitting states and equation again each time.

    Those stay that cost least in the quadratic approximation of the loss, in which a
    term that was taken out may come back for another. How many are kept is told by the
    largest gap: the first term that costs many times more than any before it, unless
    observations are predicted worse without it; if there is no gap, by how well
    observations are predicted. A threshold on the loss itself would not do, as its size
    depends on how well the state kernel suits the states, which the data do not tell.

    problem, result : JointProblem, Result. With the features of a polynomial kernel,
        and its solution.
    two_step : LearnedModel. With the observations, and names.
    n_terms : int or "auto". How many terms are kept.
    context : Context. How problems are solved.
    criteria : TermCriteria, default=None. None: the default ones.

    Returns problem : JointProblem. With the terms kept.
    Returns result : Result. Its solution, with the history of the loss before.
    Returns path : list of TermsStep. All fits, from all terms to few.
    """
    criteria = criteria or TermCriteria()
    fits = _fits_with_fewer(problem, result, two_step, n_terms, context, criteria)
    path, errors = _describe_path(fits, two_step)
    place = len(fits) - 1
    if n_terms == "auto":
        n_residuals = sum(map(len, problem.precisions))
        place = largest_gap([step.loss for step in path], errors, n_residuals, criteria)
    _, chosen, fit = fits[place]
    if place > 0:
        fit = replace(
            fit,
            loss_curve=result.loss_curve + fit.loss_curve,
            damping_curve=result.damping_curve + fit.damping_curve,
            n_iter=sum(each.n_iter for *_, each in fits),
        )
    return chosen, fit, path


def _fits_with_fewer(problem, result, two_step, n_terms, context, criteria):
    """Positions of terms, problem and result: with all terms, one less, and so on."""
    exponents = find_terms(problem.basis.kernel, problem.n_unknown, n_terms)
    settings = context.settings
    fits = [(list(range(len(exponents))), problem, result)]
    fewest = 1 if n_terms == "auto" else n_terms
    while len(fits[-1][0]) > fewest:
        kept, smaller, start = _drop_cheapest_term(problem, exponents, *fits[-1])
        damping = criteria.damping * smaller.evaluate(start).loss
        fit = minimise(
            smaller,
            start,
            Damping(damping, settings.tol),
            max_iter=settings.max_iter,
            report=partial(context.report, two_step, smaller),
        )
        fits.append((kept, smaller, fit))
        if fit.interrupted or fit.loss > criteria.hopeless * result.loss:
            break
    return fits


def _describe_path(fits, two_step):
    """What each fit came to, and its errors of predicting observations."""
    _, problem, _ = fits[0]
    exponents = find_terms(problem.basis.kernel, problem.n_unknown, "auto")
    names = [term_name(two_step, powers) for powers in exponents]
    steps, errors = [], []
    for kept, problem, result in fits:
        model = problem.linearise(problem.evaluate(result.solution))
        errors.append(left_out_errors(model, two_step.observations))
        terms, misfit = tuple(names[i] for i in kept), problem.misfit(result.solution)
        steps.append(TermsStep(terms, result.loss, misfit, rms(errors[-1])))
    return steps, errors


def largest_gap(losses, errors, n_residuals, criteria):
    """Where the next loss rises most, compared with all rises before.

    Rises below what the Bayesian information criterion grants a coefficient, half the
    logarithm of the number of residuals, count as that; where residuals are above the
    noise levels, it is in units of their mean.

    losses : list of float. With all terms, one less, and so on.
    errors : list of ndarray. Those of predicting each observation from all others,
        likewise.
    n_residuals : int. Number of data.
    criteria : TermCriteria. How large a gap must be, and when predictions are worse.

    Returns place : int. If no gap is clear, where observations are predicted best.
    """
    highest = 0.5 * np.log(n_residuals) * max(1.0, 2 * losses[0] / n_residuals)
    place, widest = None, criteria.gap
    for i, rise in enumerate(np.diff(losses)):
        if rise / highest > widest and not _is_worse(errors[i], errors[0], criteria):
            place, widest = i, rise / highest
        highest = max(highest, rise)
    if place is None:
        return int(np.argmin([rms(missed) for missed in errors]))
    return place


def _is_worse(errors, others, criteria):
    """Whether errors are larger than others of the same observations."""
    excess = errors**2 - others**2
    significant = criteria.significant * np.std(excess) / len(excess) ** 0.5
    larger = rms(errors) > criteria.worse * rms(others)
    return larger or np.mean(excess) > significant


def _drop_cheapest_term(problem, exponents, kept, smaller, fit):
    """The terms kept if there is one less, their problem, and a start near a fit."""
    solution = fit.solution
    values = np.zeros(len(exponents))
    values[kept] = coefficients(smaller.basis, exponents[kept]) @ (solution.weights)
    weights = weights_of(problem.basis, exponents, values)
    iterate = problem.iterate(solution.coefficients, weights)
    posterior = problem.linearise(problem.evaluate(iterate)).posterior_weights()
    in_terms = posterior.transform(coefficients(problem.basis, exponents))
    kept = in_terms.swap_terms(in_terms.without_cheapest(kept)[1])
    terms = exponents[kept]
    basis = PolynomialBasis(
        Restriction(problem.basis.kernel, [*map(tuple, terms.tolist())])
    )
    weights = weights_of(basis, terms, in_terms.restrict(kept).weights)
    smaller = problem.with_basis(basis)
    return kept, smaller, smaller.iterate(solution.coefficients, weights)

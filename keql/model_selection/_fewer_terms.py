"""Which terms of a polynomial equation the data call for, states fitted along."""

from typing import NamedTuple

import numpy as np

from keql._numerics.gauss_newton import Damping, minimise
from keql._numerics.scaling import rms
from keql._observations.left_out import left_out_errors
from keql.equation import PolynomialBasis, coefficients, find_terms, weights_of
from keql.kernels import Restriction

# First damping after a term is taken out, relative to the loss: the states are near.
DAMPING = 1e-6
# The loop over terms ends when the loss is this many times that with all terms.
HOPELESS = 1e3
# A term costs clearly more than all before it from this ratio on.
GAP = 3.0
# With fewer terms, observations are predicted worse if their errors are this much
# larger, or if squared errors differ by so many standard errors.
WORSE, SIGNIFICANT = 2.0, 2.0


class TermsStep(NamedTuple):
    """A fit with some of the terms: their names, and what the fit came to.

    The error is that of predicting each observation from all others.
    """

    terms: tuple
    loss: float
    misfit: float
    error: float


def fit_with_fewer_terms(
    problem, result, n_terms, names, functions, *, max_iter, tol, report
):
    """Take terms out of P one by one, fitting states and equation again each time.

    Those stay that cost least in the quadratic approximation of the loss, in which a
    term that was taken out may come back for another. How many are kept is told by the
    largest gap: the first term that costs many times more than any before it, unless
    observations are predicted worse without these; if there is no gap, by how well
    observations are predicted. A threshold on the loss itself would not do, as its size
    depends on how well the state kernel suits the states, which the data do not tell.

    Parameters
    ----------
    problem : JointProblem
        With the features of a polynomial kernel.
    result : Result
        Its solution.
    n_terms : int or "auto"
        How many terms are kept.
    names : callable
        The name of a monomial from its exponents.
    functions : list of FunctionData
        The observations.
    max_iter, tol, report
        As for :func:`keql._numerics.gauss_newton.minimise`.

    Returns
    -------
    problem : JointProblem
        With the terms kept.
    result : Result
        Its solution, with the history of the loss before.
    path : list of TermsStep
        All fits, from all terms to few.
    """
    exponents = find_terms(problem.basis.kernel, problem.n_unknown, n_terms)
    fits = [(list(range(len(exponents))), problem, result)]
    fewest = 1 if n_terms == "auto" else n_terms
    while len(fits[-1][0]) > fewest:
        kept, smaller, start = _with_one_less(problem, exponents, *fits[-1])
        fit = minimise(
            smaller,
            start,
            Damping(DAMPING * smaller.evaluate(start).loss, tol),
            max_iter=max_iter,
            report=lambda result, problem=smaller: report(problem, result),
        )
        fits.append((kept, smaller, fit))
        if fit.interrupted or fit.loss > HOPELESS * result.loss:
            break
    errors = [
        left_out_errors(each.linearise(each.evaluate(fit.solution)), functions)
        for _, each, fit in fits
    ]
    path = [
        TermsStep(
            tuple(map(names, exponents[kept])),
            fit.loss,
            each.misfit(fit.solution),
            rms(missed),
        )
        for (kept, each, fit), missed in zip(fits, errors, strict=True)
    ]
    place = len(fits) - 1
    if n_terms == "auto":
        n_residuals = sum(map(len, problem.precisions))
        place = largest_gap([step.loss for step in path], errors, n_residuals)
    _, chosen, fit = fits[place]
    if place > 0:
        fit.loss_curve = result.loss_curve + fit.loss_curve
        fit.damping_curve = result.damping_curve + fit.damping_curve
        fit.n_iter = sum(each.n_iter for *_, each in fits)
    return chosen, fit, path


def largest_gap(losses, errors, n_residuals):
    """Where the next loss rises most, compared with all rises before.

    Rises below what the Bayesian information criterion grants a coefficient, half the
    logarithm of the number of residuals, count as that; where residuals are above the
    noise levels, it is in units of their mean.

    Parameters
    ----------
    losses : list of float
        With all terms, one less, and so on.
    errors : list of ndarray
        Those of predicting each observation from all others, likewise.
    n_residuals : int
        Number of data.

    Returns
    -------
    place : int
        If no gap is clear, where observations are predicted best.
    """
    highest = 0.5 * np.log(n_residuals) * max(1.0, 2 * losses[0] / n_residuals)
    place, widest = None, GAP
    for i, rise in enumerate(np.diff(losses)):
        if rise / highest > widest and not _worse(errors[i], errors[0]):
            place, widest = i, rise / highest
        highest = max(highest, rise)
    if place is None:
        return int(np.argmin([rms(missed) for missed in errors]))
    return place


def _worse(errors, others):
    """Whether errors are larger than others of the same observations."""
    excess = errors**2 - others**2
    significant = SIGNIFICANT * np.std(excess) / len(excess) ** 0.5
    larger = rms(errors) > WORSE * rms(others)
    return larger or np.mean(excess) > significant


def _with_one_less(problem, exponents, kept, smaller, fit):
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

"""Smooth states with the equation at collocation points, beside exact ones.

Where states cannot be exact, rough ones meet exact data and nearly any equation: they
bend from point to point. Smooth states do not, and with them the data tell equations
apart. Of 25 elliptic problems with exact data the mean square of the residuals was
0.002 to 0.016, in units of the noise levels, with a right equation, and 0.07 to 2,000
with others; where it was less with one of these, P was right to 1e-3.
"""

from dataclasses import replace
from functools import partial
from math import comb

import numpy as np

from keql._numerics.linalg import extent_of
from keql._numerics.optimisation import or_stopped
from keql._regression.hidden import with_fixed_bounds
from keql._regression.likelihood import log_marginal_likelihood
from keql._regression.two_step import polynomial_kernel
from keql.kernels import RBF, Matern
from keql.model_selection._beside._smooth_functions import fit_smooth_functions
from keql.model_selection._candidates import default_kernels
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._selection import Selection
from keql.model_selection._state_kernels import (
    KernelCandidate,
    KernelComparison,
    likeliest_kernel,
)


def select_smooth_states(search, context):
    """The Selection of smooth states of exact data, or None.

    It is the first hypothesis that such states meet, or else the one that they miss
    least: polynomials, then elementary functions, and at last the many products that
    one function may have. None if the data do not call for smooth states.

    search : ExactSearch. It knows the data, and what may be tried.
    context : Context. How problems are solved.
    """
    two_step = search.two_step
    kernel, log_odds = _smooth_kernel(two_step)
    if log_odds < context.criteria.smooth:
        return None
    rows = [r.hypothesis for r in search.table.at_collocation_points if not r.why_not]
    best = _best_of(rows, None, two_step, kernel, context)
    if not _is_last(best, context):
        best = _or_functions(best, search, kernel, context)
    if not _is_last(best, context):
        wider = _wider_polynomials(two_step, search.table)
        best = _best_of(wider, best, two_step, kernel, context)
    best = best.with_residual_dispersion(context.criteria)
    found = best.result.solution, best.left_out_errors, best.result.loss
    kernels = [KernelCandidate(kernel, *found)]
    return Selection(best, None, best.error, kernels, is_smooth=True)


def _is_last(fit, context):
    """Whether nothing else is tried after a fit."""
    return fit.result.interrupted or fit.misfit < context.criteria.met_smoothly


def _best_of(hypotheses, best, two_step, kernel, context):
    """The first of hypotheses that smooth states meet, or the one they miss least.

    Or the `best` before, if they miss that less.
    """
    for hypothesis in hypotheses:
        family = JointFamily(two_step, hypothesis, context)
        fit = fit_jointly(family, *family.at(kernel))
        if best is None or fit.result.interrupted or fit.misfit < best.misfit:
            best = fit
        if _is_last(fit, context):
            break
    return best


def _or_functions(best, search, kernel, context):
    """A fit, or one with functions in its equation if it misses less."""
    first, two_step = search.table.first.hypothesis, search.two_step
    if two_step.setup.is_system or first.n_terms != "auto":
        return best
    given = two_step, first, kernel, context
    other = or_stopped(best, fit_smooth_functions, *given)
    if other is not None and other.result.interrupted:
        return best.stopped(other.result.stop)
    return other if other is not None and other.misfit < best.misfit else best


def _smooth_kernel(two_step):
    """The likeliest RBF kernel of a state, and its log odds to a rougher one.

    That is a Matern kernel which is as rough as those that joint fits compare.
    """
    observations, operators = two_step.observations, two_step.setup.operators
    samples = observations.of_state(observations.states[0])
    extent = extent_of(np.concatenate([data.points for data in samples]))
    given = KernelComparison.first, extent, observations.periods, two_step.variables
    degree = KernelComparison.roughness + max(L.order for L in operators)
    found = [
        likeliest_kernel(samples, shape, *given)
        for shape in (RBF, partial(Matern, nu=degree))
    ]
    smooth, rough = (log_marginal_likelihood(*each, samples) for each in found)
    return with_fixed_bounds(found[0][0]), smooth - rough


def _wider_polynomials(two_step, table):
    """What else is tried with smooth states, as it takes less than with rough ones.

    Of a single function, polynomials of the coordinates too, and of degree four, with
    no more terms than observations.
    """
    [data, *others] = two_step.observations.functions
    if table.cubic.why_not or others or two_step.observations.periods is not None:
        return []
    d, first, rows = len(two_step.variables), table.first.hypothesis, []
    columns = tuple(range(len(two_step.setup.unknown_names(two_step.variables))))
    for name, degree, own in (
        ("quadratic polynomial of coordinates too", 2, columns),
        ("cubic polynomial of coordinates too", 3, columns),
        ("quartic polynomial", 4, columns[d:]),
    ):
        if comb(len(own) + degree, degree) <= len(data.values):
            make = partial(polynomial_kernel, degree=degree, columns=own)
            kernel = default_kernels(two_step, first, make)
            rows.append(replace(first, equation_kernel=kernel, name=name))
    return rows

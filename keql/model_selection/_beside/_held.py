"""States of a fit with the equation of another one, which is held."""

import numpy as np

from keql.model_selection._fit import refit_states


def with_equation_of(fit, other, context):
    """A joint fit, its states found again with the equation of another Fit.

    They keep their prior. Those of `other` may be exact: its weights and their
    posterior are held, too.
    """
    problem = fit.problem.with_basis(other.unknown_part(context.criteria))
    start = problem.iterate(fit.result.solution.coefficients, np.empty(0))
    source = fit if other.is_exact else other
    return refit_states(source, fit.two_step, problem, start, context)


def with_better_equation(fit, other, context):
    """A fit, or its prior of the states with the equation of another fit.

    The equation is the other one if states of the same prior then predict observations
    better, each from all others.
    """
    if other.result.interrupted:
        return fit.stopped(other.result.stop)
    held = with_equation_of(fit, other, context)
    if held.result.interrupted:
        return fit.stopped(held.result.stop)
    errors = [np.median(np.abs(each.left_out_errors)) for each in (held, fit)]
    return held if errors[0] < errors[1] else fit

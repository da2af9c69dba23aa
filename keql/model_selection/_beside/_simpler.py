"""Functions in the place of many products that explain exact trajectories as well."""

from itertools import combinations_with_replacement

import numpy as np

from keql.equation import terms_of


def or_fewer_terms(fit, find, enough):
    """Exact trajectories of products, or of functions if these are fewer terms.

    Functions are looked for where products of two operators depend on each other along
    the trajectories, so that several sets of products are exact: the velocities of a
    planet lie on a circle, and a cubic polynomial in these is its acceleration.

    fit : Fit. Trajectories that miss nothing.
    find : callable. Finds trajectories with functions from these: a Fit or None.
    enough : float. Error of predictions up to which functions miss nothing.

    Returns fit : Fit.
    """
    most = 2 * len(fit.learned.setup.equations)
    if len(fit.term_names) <= most or _are_linear(fit.learned):
        return fit
    if not _are_dependent(fit.learned):
        return fit
    other = find(fit)
    if other is None:
        return fit
    if other.result.interrupted:
        return fit.stopped(other.result.stop)
    is_simpler = len(other.term_names) < len(fit.term_names)
    return other if is_simpler and other.error < enough else fit


def _are_linear(learned):
    """Whether all equations are linear, whose solutions are seldom those of others."""
    products = (each for own in learned.equations for each in terms_of(own).products)
    return all(sum(power for _, power in product) <= 1 for product in products)


def _are_dependent(learned, least=1e-9):
    """Whether products of up to two operators depend on each other on the data.

    The least singular value of their columns is compared with the largest: that of
    states that determined their products was 1.3e-4 of it, of an orbit 1e-16.
    """
    first, equation = len(learned.variables), learned.equations[0]
    first += len(learned.setup.inputs.names)
    S = equation.training_features[:, first : equation.n_unknown_features].T
    S = [(column - np.mean(column)) / (np.std(column) or 1.0) for column in S]
    rows = [np.ones(len(S[0])), *S]
    rows = [a * b for a, b in combinations_with_replacement(rows, 2)]
    values = np.linalg.svd(np.array(rows), compute_uv=False)
    return values[-1] < least * values[0]

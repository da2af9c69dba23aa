"""What errors of fitted states make of the equations that were learned from them.

Two steps take fitted states, and their derivatives, for exact. Errors of these are
those of one smooth function, of one sign over many collocation points, and do not
average out as those of independent rows would: standard errors of the weights from the
residuals alone are too small by far. The posterior of the states tells how large they
are, to first order.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from keql._numerics.linalg import rms, solve_cholesky
from keql.equation import PolynomialBasis


@dataclass(frozen=True)
class SampledRows:
    """Which rows stand for all where errors of states are looked at.

    n_rows : int. As many rows of an equation, evenly spaced, at most: errors are
        correlated over the distance of observations, of which there are fewer.
    n_functions : int. Of as many functions, which stand for the others.
    """

    n_rows: int = 200
    n_functions: int = 4


def with_errors_of_states(learned, sampled=None):
    """A two-step LearnedModel whose weights are as uncertain as its states make them.

    The SampledRows stand for all; None: their defaults. Returns it, and for each
    equation the root mean square of the errors of its residual that are due to those of
    the states, in units of the forcing.
    """
    sampled, found, sizes = sampled or SampledRows(), [], []
    for e, equation in enumerate(learned.equations):
        errors = errors_of_residual(learned, e, sampled)
        variances = [np.sum(root**2, axis=1) for *_, root in errors]
        sizes.append(rms(np.sqrt(np.concatenate(variances))))
        found.append(_widened(learned, e, equation, errors))
    return replace(learned, equations=tuple(found)), sizes


def errors_of_residual(learned, e, sampled):
    """Errors of the residual of an equation that are due to those of the states.

    A list with an entry for each of some functions: positions of rows among the
    features of the equation, how many rows each of them stands for, and a matrix (n, n)
    whose product with its transpose is the covariance of the errors there.
    """
    equation, setup, found = learned.equations[e], learned.setup, []
    places = setup.some_rows(e, sampled.n_rows, sampled.n_functions)
    n_all = len(equation.training_features)
    share = n_all / sum(len(rows) for _, rows, _ in places)
    for m, rows, points in places:
        slopes = equation.gradient(equation.training_features[rows])
        slopes = slopes[:, -len(setup.operators) :].T
        C = learned.states[m].covariance(points, setup.operators, slopes)
        variances, directions = linalg.eigh(C)
        root = directions * np.sqrt(np.maximum(variances, 0.0))
        found.append((rows, share, root))
    return found


def _widened(learned, e, equation, errors):
    """An equation with a posterior that has the errors of the states, too.

    The weights are w = Lambda^-1 Phi^T r / sigma^2, with the precision Lambda and noise
    sigma of a regression of r on features Phi: errors of the residual move them by as
    much.
    """
    posterior, noise = equation.posterior, learned.equation_noise[e]
    has_features = isinstance(equation.basis, PolynomialBasis)
    if posterior is None or not noise or not has_features:
        return equation
    # Of the rows of a function some stand for the others, and so of the functions,
    # whose errors are independent.
    each = len(learned.states) / len(errors)
    S, moved = equation.training_features[:, : equation.n_unknown_features], []
    for rows, share, root in errors:
        moves = equation.basis(S[rows]).T @ root * (share / each / noise**2)
        moved.append(solve_cholesky(posterior.factor, moves).T * each**0.5)
    moved = np.concatenate(moved)
    wider, shares = copy(equation), np.ones(len(moved))
    wider.posterior = posterior.averaged_over(equation.weights + moved, shares)
    return wider

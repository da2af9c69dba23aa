"""What errors of fitted states make of the equations that were learned from them.

Two steps take fitted states, and their derivatives, for exact. Errors of these are
those of one smooth function, of one sign over many collocation points, and do not
average out as those of independent rows would: standard errors of the weights from the
residuals alone are too small by far. The posterior of the states tells how large they
are, to first order.
"""

from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.special import gammaincinv

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


@dataclass(frozen=True)
class SmallResiduals:
    """When a residual says that errors of the states are smaller than they seem.

    chance : float. A residual of an equation that has at most this chance, if errors of
        the states are those that their posterior tells, bounds these from above. With
        5 %, of 481 exact values of a Burgers solution P was uncertain by 2.5 % of its
        size instead of 16 %, and 0.5 % off; in the suite nothing else went below the
        3 % that are told.
    """

    chance: float = 0.05


class ErrorsOfStates(NamedTuple):
    """What errors of the states make of an equation.

    The root mean square `size` of the errors of its residual, in units of the forcing,
    and the `part` of the standard deviations of the states that the residual allows.
    """

    size: float
    part: float


def with_errors_of_states(learned, sampled=None):
    """A two-step LearnedModel whose weights are as uncertain as its states make them.

    The SampledRows stand for all; None: their defaults. Returns it, and the
    ErrorsOfStates of each equation.
    """
    sampled, found, sizes = sampled or SampledRows(), [], []
    for e, equation in enumerate(learned.equations):
        errors = errors_of_residual(learned, e, sampled)
        moves = _moves_of_weights(learned, e, errors)
        part = 1.0 if moves is None else largest_part(learned, e, errors, moves)
        variances = [np.sum(root**2, axis=1) for *_, root in errors]
        size = part * rms(np.sqrt(np.concatenate(variances)))
        sizes.append(ErrorsOfStates(size, part))
        if moves is not None:
            each = len(learned.states) / len(errors)
            equation = _widened(equation, part * each**0.5 * np.hstack(moves))
        found.append(equation)
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


def _moves_of_weights(learned, e, errors):
    """How weights of an equation move with errors of the states of single functions.

    They are w = Lambda^-1 Phi^T r / sigma^2, with the precision Lambda and noise sigma
    of a regression of r on features Phi: errors of the residual move them by as much.
    Returns a list of matrices (p, n), or None of an equation that is no regression.
    """
    equation, noise = learned.equations[e], learned.equation_noise[e]
    posterior = equation.posterior
    has_features = isinstance(equation.basis, PolynomialBasis)
    if posterior is None or not noise or not has_features:
        return None
    # Of the rows of a function some stand for the others, and so of the functions,
    # whose errors are independent.
    each, moves = len(learned.states) / len(errors), []
    for rows, share, root in errors:
        pulls = _features(equation, rows).T @ root * (share / each / noise**2)
        moves.append(solve_cholesky(posterior.factor, pulls))
    return moves


def _features(equation, rows):
    """Features of P in some rows of those of the training."""
    S = equation.training_features[rows]
    return equation.basis(S[:, : equation.n_unknown_features])


def largest_part(learned, e, errors, moves, small=None):
    """The largest part of errors of the states that the residual of an equation allows.

    Weights make up for some of the errors, the others are seen as a residual. A prior
    that is rougher than the states makes errors of derivatives larger than they are,
    and the residual smaller than these would leave it. The square of a residual of
    normal errors is, nearly, a multiple of a chi-squared variable of the mean and
    variance that they say (Satterthwaite, Biometrics Bulletin 2, 1946).
    """
    equation, small = learned.equations[e], small or SmallResiduals()
    square = expected = variance = 0.0
    for (rows, _, root), moved in zip(errors, moves, strict=True):
        misses = equation.unknown_part(equation.training_features[rows])
        square += np.sum((misses - learned.targets[e][rows]) ** 2)
        seen = root - _features(equation, rows) @ moved
        covariance = seen.T @ seen
        expected += np.trace(covariance)
        variance += np.sum(covariance**2)
    if not variance:
        return 1.0
    freedom = expected**2 / variance
    least = 2 * gammaincinv(freedom / 2, small.chance) / freedom * expected
    return float(min(1.0, (square / least) ** 0.5)) if least else 1.0


def _widened(equation, moved):
    """An equation whose weights have a posterior with independent moves (p, n), too."""
    wider, moved = copy(equation), moved.T
    shares = np.ones(len(moved))
    wider.posterior = equation.posterior.averaged_over(equation.weights + moved, shares)
    return wider

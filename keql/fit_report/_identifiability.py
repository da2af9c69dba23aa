"""Do the learned states tell the terms of an equation apart?

A coefficient can be told only if the features of the states vary enough: in a
travelling wave u_t and u_x are proportional, near an equilibrium u^2 and u are. Such
terms trade off against one another, and the fit is as good with other coefficients.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

# A combination of terms says something if it is so many times what errors make of it.
SIGNAL = 2.0
# Terms of unit size that combine to less than this are dependent whatever is said of
# their errors.
ROUNDING = 1e-10
# Terms with a smaller part in a combination than this are not named.
PART = 0.3
# The errors of features are looked at in so many rows, of so many functions.
ROWS, FUNCTIONS = 100, 4


class Identifiability(NamedTuple):
    """How well terms can be told apart, and which cannot.

    Attributes
    ----------
    n_terms : int
        How many there are.
    rank : int
        How many combinations of them the data determine.
    condition : float
        Condition number of the terms' values, each scaled to unit root mean square.
    dependent_terms : list of (tuple of str, float, float)
        Terms that combine to hardly more than errors; to what, relative to their size,
        and what it would be by errors alone. The thinnest combination first.
    """

    n_terms: int
    rank: int
    condition: float
    dependent_terms: list


def identify(names, values, slopes, errors):
    """Find combinations of terms that are made of errors.

    With all terms scaled to unit size, the singular vectors of their values are
    combinations of falling size. One that is hardly larger than what the errors of the
    features make of it (to first order) says nothing, as in total least squares.

    Parameters
    ----------
    names : list of str
        Of q terms.
    values : ndarray of shape (n, q)
        Values of the terms at the learned states.
    slopes : ndarray of shape (Q, r, q)
        Their derivatives with respect to each of Q features in r rows.
    errors : ndarray of shape (Q, r)
        Standard deviations of the features there.

    Returns
    -------
    identifiability : Identifiability
        With the combinations that say nothing.
    """
    size = np.sqrt(np.mean(values**2, axis=0))
    used = np.flatnonzero(size > 0)
    scaled = values[:, used] / size[used] / len(values) ** 0.5
    _, sizes, combinations = linalg.svd(scaled, full_matrices=len(scaled) < len(used))
    sizes = np.append(sizes, np.zeros(len(used) - len(sizes)))
    dependent_terms = []
    for s, combination in zip(sizes[::-1], combinations[::-1], strict=True):
        moved = slopes[:, :, used] @ (combination / size[used]) * errors
        error = np.sqrt(np.mean(np.sum(moved**2, axis=0)))
        if s <= max(ROUNDING, SIGNAL * error):
            parts = np.abs(combination) / np.abs(combination).max()
            # Equal parts in the order of the terms, whatever rounding says.
            by_size = np.argsort(-np.round(parts, 1), kind="stable")
            order = [i for i in by_size if parts[i] > PART]
            named = tuple(names[used[i]] for i in order)
            dependent_terms.append((named, float(s), float(error)))
    condition = sizes[0] / sizes[-1] if sizes[-1] > 0 else np.inf
    return Identifiability(
        len(names), len(used) - len(dependent_terms), float(condition), dependent_terms
    )


def slopes_of_monomials(exponents, S, columns):
    """Derivatives of monomials with respect to some of their variables.

    Parameters
    ----------
    exponents : ndarray of shape (q, d)
        Of the monomials.
    S : ndarray of shape (n, d)
        Where.
    columns : sequence of int
        With respect to which.

    Returns
    -------
    slopes : ndarray of shape (len(columns), n, q)
        The derivatives.
    """
    slopes = []
    for j in columns:
        lower = exponents.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        slopes.append(exponents[:, j] * np.prod(S[:, None] ** lower, axis=2))
    return np.stack(slopes)

"""Do the learned states tell the terms of an equation apart?

A coefficient can be told only if the features of the states vary enough: in a
travelling wave u_t and u_x are proportional, near an equilibrium u^2 and u are. Such
terms trade off against one another, and the fit is as good with other coefficients.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from keql.equation import terms_of


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


def identify_terms(learned, is_exact, criteria):
    """The identifiability of the terms of a learned equation; None without a list.

    Errors of features are posterior standard deviations of the states, looked at in
    some rows. Exact states have none: they need not be differentiated for the equation.
    """
    terms = terms_of(learned.equation)
    if terms is None:
        return None
    setup, d = learned.setup, len(learned.variables)
    placed, operators = setup.collocation_points, setup.operators[: setup.n_operators]
    starts = np.cumsum([0, *map(len, placed)])
    chosen = range(0, len(placed), -(-len(placed) // criteria.n_functions))
    stride = -(-sum(len(placed[m]) for m in chosen) // criteria.n_rows)
    rows = [np.arange(starts[m], starts[m + 1], stride) for m in chosen]
    S = learned.equation.training_features[np.concatenate(rows), : d + len(operators)]
    errors = np.zeros((len(operators), len(S)))
    if not is_exact:
        variances = [
            [learned.states[m].variance(placed[m][::stride], L) for L in operators]
            for m in chosen
        ]
        errors = np.sqrt(np.concatenate(variances, axis=1))
    slopes = _slopes(learned.equation.equation_kernel, terms, S, range(d, S.shape[1]))
    return identify(terms.names, terms.values, slopes, errors, criteria)


def identify(names, values, slopes, errors, criteria):
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
    criteria : ReportCriteria
        What an error is, and which terms are named.
    """
    size = np.sqrt(np.mean(values**2, axis=0))
    used = np.flatnonzero(size > 0)
    scaled = values[:, used] / size[used] / len(values) ** 0.5
    _, sizes, combinations = linalg.svd(scaled, full_matrices=len(scaled) < len(used))
    sizes = np.append(sizes, np.zeros(len(used) - len(sizes)))  # fewer rows than terms
    dependent_terms = []
    for s, combination in zip(sizes[::-1], combinations[::-1], strict=True):
        moved = slopes[:, :, used] @ (combination / size[used]) * errors
        error = np.sqrt(np.mean(np.sum(moved**2, axis=0)))
        if s <= max(criteria.rounding, criteria.signal * error):
            parts = np.abs(combination) / np.abs(combination).max()
            # Equal parts in the order of the terms, whatever rounding says.
            by_size = np.argsort(-np.round(parts, 1), kind="stable")
            order = [i for i in by_size if parts[i] > criteria.named_part]
            named = tuple(names[used[i]] for i in order)
            dependent_terms.append((named, float(s), float(error)))
    condition = sizes[0] / sizes[-1] if sizes[-1] > 0 else np.inf
    return Identifiability(
        len(names), len(used) - len(dependent_terms), float(condition), dependent_terms
    )


def _slopes(kernel, terms, S, columns):
    """Derivatives (Q, r, q) of terms in Q columns of the features S of shape (r, p)."""
    if terms.exponents is not None:
        return slopes_of_monomials(terms.exponents, S, columns)
    units = np.eye(S.shape[1], dtype=int)
    slopes = np.stack([kernel.feature_map(S, tuple(units[j])) for j in columns])
    return slopes / kernel.feature_scales()


def slopes_of_monomials(exponents, S, columns):
    """Derivatives (Q, n, q) of monomials of exponents (q, d) in Q columns of S."""
    slopes = []
    for j in columns:
        lower = exponents.copy()
        lower[:, j] = np.maximum(lower[:, j] - 1, 0)
        slopes.append(exponents[:, j] * np.prod(S[:, None] ** lower, axis=2))
    return np.stack(slopes)

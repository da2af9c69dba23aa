"""Terms that the data do not tell apart, as the states do not vary enough.

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

    Of `n_terms` terms the data determine `rank` combinations. The `condition` number is
    that of the terms' values, each scaled to unit root mean square. The list
    `dependent_terms`, the thinnest combination first, has the names of terms that
    combine to hardly more than errors (a tuple); to what, relative to their size; and
    what it would be by errors alone.
    """

    n_terms: int
    rank: int
    condition: float
    dependent_terms: list


def identify_terms(learned, is_exact, criteria, parts=None):
    """The Identifiability of the terms of a learned equation; of a system, a dict.

    None for an equation without a list of terms. Errors of features are posterior
    standard deviations of the states, looked at in some rows. Exact states have none:
    they need not be differentiated for the equation. The ReportCriteria say what an
    error is, and `parts`, for each equation, by what the deviations are multiplied;
    None: by one.
    """
    names = [each.name for each in learned.setup.equations]
    terms = [
        _of_equation(learned, e, is_exact, criteria, parts[e] if parts else 1.0)
        for e in range(len(names))
    ]
    return dict(zip(names, terms, strict=True)) if learned.setup.is_system else terms[0]


def _of_equation(learned, e, is_exact, criteria, part):
    """The same of the equation at position `e`."""
    equation, setup = learned.equations[e], learned.setup
    terms = None if setup.equations[e].depends_on is None else terms_of(equation)
    if terms is None:
        return None
    operators = setup.operators[: setup.n_operators]
    n_columns = len(setup.unknown_names(learned.variables))
    columns = range(n_columns - len(operators), n_columns)
    places = setup.some_rows(e, criteria.n_rows, criteria.n_functions)
    S = equation.training_features[np.concatenate([own for _, own, _ in places])]
    errors = np.zeros((len(operators), len(S)))
    if not is_exact:
        variances = [
            [learned.states[m].variance(points, L) for L in operators]
            for m, _, points in places
        ]
        errors = part * np.sqrt(np.concatenate(variances, axis=1))
    slopes = _slopes(equation.equation_kernel, terms, S[:, :n_columns], columns)
    return identify(terms.names, terms.values, slopes, errors, criteria)


def identify(names, values, slopes, errors, criteria):
    """Find combinations of terms that are made of errors.

    With all terms scaled to unit size, the singular vectors of their values are
    combinations of falling size. One that is hardly larger than what the errors of the
    features make of it (to first order) says nothing, as in total least squares.

    The terms have q `names` and, at the learned states, `values` (n, q); `slopes` of
    shape (Q, r, q) are their derivatives with respect to each of Q features in r rows,
    and `errors` (Q, r) the standard deviations of the features there. The
    ReportCriteria say what an error is, and which terms are named.
    """
    size = np.sqrt(np.mean(values**2, axis=0))
    used = np.flatnonzero(size > 0)
    if not len(used):  # an equation without terms
        return Identifiability(len(names), 0, 1.0, [])
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
    condition = float(sizes[0] / sizes[-1] if sizes[-1] > 0 else np.inf)
    rank = len(used) - len(dependent_terms)
    return Identifiability(len(names), rank, condition, dependent_terms)


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


def dependent_terms(identifiability):
    """Terms of equations that the data do not tell apart, sentences.

    identifiability : Identifiability or None, or a dict of these by equation.
    """
    each = (
        identifiability if isinstance(identifiability, dict) else {"": identifiability}
    )
    return [text for name, own in each.items() for text in _dependent(own, name)]


def _dependent(identifiability, equation):
    """The sentence on the terms of a named equation, if there is one."""
    if identifiability is None or not identifiability.dependent_terms:
        return
    names, size, error = identifiability.dependent_terms[0]
    subject = f"the term {names[0]} is made of errors"
    if len(names) > 1:
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        subject = f"the terms {listed} trade off against one another"
    subject += f" in the equation {equation}" if equation else ""
    n_more = len(identifiability.dependent_terms) - 1
    more = f"; the same holds for {n_more} more combinations of terms" if n_more else ""
    yield (
        f"{subject}: on the learned states they combine to {size:.1g} of their size, "
        f"of which errors of the derivatives alone would make {error:.1g}, so that the "
        f"data do not tell their coefficients{more}. Observe more, or states that "
        "differ more, or leave some of these terms out of the equation kernel"
    )

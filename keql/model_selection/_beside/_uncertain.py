"""How well data tell equations with terms: their coefficients, and other terms.

Of each set of terms that was solved for the evidence says how probable it is, and its
equation what would be true then. The mean square of what such equations differ by from
the one that was found, weighted by their probabilities, beside the variance that its
coefficients and inner parameters have, is that of the unknown part (Hoeting et al.,
"Bayesian model averaging", Statistical Science 14, 1999).
"""

import numpy as np

from keql._numerics.linalg import rms, size_or_one
from keql._regression.hidden import hidden_operators, involves
from keql.equation import rms_std, terms_of
from keql.model_selection._criteria import level_in_space, sees_noise
from keql.model_selection._terms._fewer import most_probable


def uncertainty_of_terms(fit):
    """Standard deviations of unknown parts where states are, in units of their sizes.

    fit : Fit. Its terms are chosen or given.

    Returns parts : dict of str to float. By the names of equations with listed terms.
        Not of those with hidden states, of which nothing tells the unit.
    """
    steps, parts = most_probable(fit.terms_path), {}
    chosen = steps.get(frozenset(fit.term_names))
    setup, learned = fit.two_step.setup, fit.learned.equations
    own = fit.model.solution.equations if fit.is_exact else learned
    hidden = hidden_operators(fit.learned)
    if fit.has_functions and chosen is not None:
        own = chosen.equations  # in which inner parameters are free
    for e, terms in enumerate(setup.equations):
        if own[e].posterior is None or terms_of(learned[e]) is None:
            continue
        S, n_columns = learned[e].training_features, learned[e].n_unknown_features
        known = S[:, :n_columns]
        if involves(terms, S, S.shape[1] - len(setup.operators), hidden):
            continue
        variance = rms_std(own[e], known) ** 2
        variance += _variance_between(steps.values(), e, learned[e], S)
        size = size_or_one(learned[e].unknown_part(S))
        parts[terms.name] = variance**0.5 / size
    return parts


def least_told(fit, criteria):
    """From which part of its size on the uncertainty of an equation is told.

    That of exact data is small: two steps see no noise in them, and exact states, which
    none drives, find none. Two steps alone may take noise for a motion.

    fit : Fit. As above.
    criteria : Criteria. Those by which it was chosen.

    Returns least : float. In units of the size of the unknown part.
    """
    if not fit.is_exact or fit.is_driven or sees_noise(fit.two_step):
        return criteria.uncertain_terms
    is_met = level_in_space(fit, fit.two_step) <= criteria.interpolated
    return criteria.uncertain_if_exact if is_met else criteria.uncertain_terms


def _variance_between(steps, e, equation, S):
    """The mean square by which other equations differ, as probable as their terms."""
    solved = [step for step in steps if step.equations]
    logs = np.array([step.log_evidence for step in solved])
    shares = np.exp(logs - np.max(logs, initial=-np.inf))
    own, squares = equation.unknown_part(S), []
    for step in solved:
        with np.errstate(invalid="ignore", divide="ignore"):
            # Roots are not defined where a state that begins at zero is below it.
            difference = step.equations[e].unknown_part(S) - own
        squares.append(rms(np.where(np.isfinite(difference), difference, 0.0)) ** 2)
    return float(shares @ squares / np.sum(shares)) if solved else 0.0

"""Laws that grow from a diffusion, where no states are known to start from.

States that observations alone suggest may be so far from any that follow a law that
none can be followed from them. Those of a diffusion, u_t = D u_xx, are smooth. Each
other term is added to it, the pair followed on a coarse grid
(:mod:`keql._evolution.descent`), and the one of the highest evidence is where the
search among all sets of terms begins.
"""

from collections import deque
from itertools import islice

import numpy as np

from keql._evolution.descent import descend
from keql._evolution.problem import find_evolution
from keql.equation import PolynomialBasis
from keql.model_selection._evolution_terms import CandidateTerms, LawSearch

# Steps in time and points in space of the coarse grid, and part of the squared extent
# that the first diffusion spreads over.
COARSE, SPREAD = (20, 40), 0.1
# States that are gone through with each pair; with the best ones; and with the best one
# on the fine grid.
FIRST_STEPS, KEPT, MORE_STEPS, FINE_STEPS = 4, 3, 8, 20


def grow_law(learned, equation, n_terms=None, noise=None):
    """States that follow a law of evolution exactly, wherever one starts.

    Parameters
    ----------
    learned : LearnedModel
        Observations, and the states outside of what is integrated.
    equation : LearnedEquation
        Of all terms that the law may have.
    n_terms : int, "auto" or None, default=None
        How many terms the law has; None: all.
    noise : float, default=None
        Standard deviation of an observation; None: it is estimated.

    Returns
    -------
    followed : Followed or None
        None if the law is not one of evolution, has no second derivative in space as
        one of its terms, or cannot be integrated.
    """
    evolution = find_evolution(learned, noise)
    if evolution is None or not isinstance(equation.basis, PolynomialBasis):
        return None
    candidates = CandidateTerms(equation)
    grown = _best_pair(evolution, candidates, learned)
    if grown is None:
        return None
    if n_terms is None:
        law, near = candidates.complete(grown.equation), grown.regression
        best = evolution.settle(law, grown.states, near)
        return None if best is None else evolution.followed(best, learned.states, [])
    search = LawSearch(evolution, candidates, n_terms)
    search.keep(grown)
    search.go_on(grown.states)
    return search.result(learned.states)


def _best_pair(evolution, candidates, learned):
    """The law of a diffusion and one other term that is followed best; or None."""
    diffusion = _diffusion_term(evolution, candidates)
    if diffusion is None:
        return None
    coarse = evolution.coarser(*COARSE)
    states = coarse.states_of(learned)
    pairs = _pairs(coarse, candidates, diffusion)
    descents = [descend(coarse, law, states) for law in pairs]
    first = [(_last(descent, FIRST_STEPS), descent) for descent in descents]
    first = [pair for pair in first if pair[0] is not None]
    first.sort(key=lambda pair: pair[0].negative_log_evidence)
    reached = [_last(descent, MORE_STEPS) or at for at, descent in first[:KEPT]]
    if not reached:
        return None
    best = min(reached, key=lambda at: at.negative_log_evidence)
    states, near = evolution.carry(best.states, coarse), best.target.regression
    best = _last(descend(evolution, best.equation, states, near), FINE_STEPS)
    return None if best is None else best.target


def _diffusion_term(evolution, candidates):
    """Position of the second derivative in space among the terms; None if none."""
    order = [2, 0] if evolution.grid.axis else [0, 2]
    for q, operator in enumerate(candidates.equation.operators):
        if all(list(orders) == order for orders, _ in operator.terms):
            alone = np.eye(candidates.exponents.shape[1], dtype=int)[[2 + q]]
            found = np.flatnonzero(np.all(candidates.exponents == alone, axis=1))
            return int(found[0]) if len(found) else None
    return None


def _pairs(evolution, candidates, diffusion):
    """Laws of a diffusion, and another term that does nothing yet."""
    grid, equation = evolution.grid, candidates.equation
    rate = SPREAD * np.ptp(grid.x) ** 2 / (grid.edges[-1] - grid.edges[0])
    at = np.zeros((1, len(equation.feature_names)))
    in_time = [
        max(orders[grid.axis] for orders, _ in operator.terms)
        for operator in equation.operators
    ]
    inertia = equation.known_part.gradient(at)[2 + np.argmax(in_time), 0]
    for other in range(len(candidates.exponents)):
        if other != diffusion:
            values = np.array([-inertia * rate, 0.0])  # inertia (u_t - D u_xx) = 0
            yield candidates.with_values([diffusion, other], values)


def _last(items, n):
    """The last one of the first n of some items; None if there are none."""
    found = deque(islice(items, n), maxlen=1)
    return found[0] if found else None

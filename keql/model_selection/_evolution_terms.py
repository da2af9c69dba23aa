"""Which terms a law of evolution has: those of the highest evidence.

Followed exactly, a law with some of the terms makes the observations as likely as they
can be. That likelihood, border values and weights integrated out, is the evidence for
these terms; superfluous ones lower it. As many laws as there are sets of terms are
compared in the linearised problem, where each costs next to nothing; the best of them
are followed, and all compared again from there. Sets of one size share its probability
(Scott and Berger, Annals of Statistics 38, 2010), so that the more terms are on offer,
the more is asked of each.
"""

from copy import copy
from dataclasses import replace
from itertools import combinations
from math import comb, log

import numpy as np
from scipy import linalg

from keql._evolution.problem import find_evolution
from keql._observations.data import size_of
from keql.equation import PolynomialBasis, coefficients, find_terms, weights_of
from keql.kernels import Restriction
from keql.model_selection._fewer_terms import TermsStep

# All sets of so many terms are compared, if there are no more than LARGEST; larger ones
# if they differ by one or two terms from the best so far.
SIZES, LARGEST = 3, 20_000
# In the first round so many sets are followed, in the others one; of so many at most.
ROUNDS, WANTED, TRIED = 6, 3, 24
# Change of the states, relative to their size, up to which laws are followed that are
# compared; and how much higher the log evidence of a better one is.
TOL, BETTER = 1e-4, 0.1
# Errors of predictions with which a law is not doubted, in units of the size of the
# observations and of their noise.
SMALL, AT_NOISE = 5e-3, 1.5


class CandidateTerms:
    """The terms that a law may have.

    Parameters
    ----------
    equation : LearnedEquation
        Of all terms, the features those of a polynomial kernel.
    """

    def __init__(self, equation):
        n_columns = len(equation.variables) + equation.n_operators
        self.exponents = find_terms(equation.basis.kernel, n_columns, "auto")
        self.equation = copy(equation)
        self.equation.weights = np.zeros_like(equation.weights)
        # Weights of each term alone.
        units = np.eye(len(self.exponents))
        self.single = weights_of(equation.basis, self.exponents, units)

    def directions(self, terms):
        """Orthonormal directions of the weights of laws with some of the terms."""
        return linalg.qr(self.single[:, list(terms)], mode="economic")[0]

    def law(self, terms, target, features, scale=1.0):
        """The most probable law with some of the terms, of a whitened regression.

        In it weights are in units of a scale.
        """
        exponents, D = self.exponents[list(terms)], self.directions(terms)
        A = features @ D
        found = linalg.solve(A.T @ A + np.eye(len(terms)), A.T @ target)
        weights = scale * (D @ found)
        return self.with_values(
            terms, coefficients(self.equation.basis, exponents) @ weights
        )

    def with_values(self, terms, values):
        """The law that has some of the terms, with coefficients of given values."""
        exponents = self.exponents[list(terms)]
        kernel = Restriction(
            self.equation.basis.kernel, [*map(tuple, exponents.tolist())]
        )
        law = copy(self.equation)
        law.basis = PolynomialBasis(kernel)
        law.weights = weights_of(law.basis, exponents, values)
        return law

    def complete(self, law):
        """The same law in the features of all terms."""
        exponents = self.terms_of(law)
        values = coefficients(law.basis, self.exponents[exponents]) @ law.weights
        complete = copy(self.equation)
        complete.weights = self.single[:, exponents] @ values
        return complete

    def terms_of(self, law):
        """Positions of the terms of a law."""
        n_columns = self.exponents.shape[1]
        found = find_terms(law.basis.kernel, n_columns, "auto").tolist()
        return [
            i for i, powers in enumerate(self.exponents.tolist()) if powers in found
        ]

    def sets(self, n_terms, best):
        """Sets of terms to be compared.

        Parameters
        ----------
        n_terms : int or "auto"
            How many there must be.
        best : tuple of int or None
            The best so far.

        Returns
        -------
        sets : list of tuple of int
            Positions of the terms, in rising order.
        """
        n = len(self.exponents)
        sizes = range(1, SIZES + 1) if n_terms == "auto" else [n_terms]
        found = set()
        for size in sizes:
            if comb(n, size) <= LARGEST:
                found.update(combinations(range(n), size))
        if best is not None:
            others = [i for i in range(n) if i not in best]
            near = [(*best, i) for i in others]
            for j in best:
                kept = [i for i in best if i != j]
                near += [tuple(kept), *((*kept, i) for i in others)]
            found.update(tuple(sorted(each)) for each in near if each)
        if n_terms != "auto":
            found = {each for each in found if len(each) == n_terms}
        return sorted(found)

    def ranked(self, sets, target, features):
        """Sets of terms in the order of their evidence in a whitened regression."""
        A, b = features.T @ features, features.T @ target
        losses = []
        for terms in sets:
            D = self.directions(terms)
            L = linalg.cholesky(D.T @ A @ D + np.eye(len(terms)), lower=True)
            z = linalg.solve_triangular(L, D.T @ b, lower=True)
            determinant = np.log(np.diag(L)).sum()
            losses.append(determinant + self.price(terms) - 0.5 * z @ z)
        return [terms for _, terms in sorted(zip(losses, sets, strict=True))]

    def price(self, terms):
        """Minus the log probability of a set of terms among those of its size."""
        return log(comb(len(self.exponents), len(terms)))


class LawSearch:
    """Laws that were followed, and the best of them.

    Parameters
    ----------
    evolution : Evolution
        The problem of following a law.
    candidates : CandidateTerms
        The terms that the law may have.
    n_terms : int or "auto"
        How many there must be.

    Attributes
    ----------
    best : Trajectory or None
        Of the highest evidence.
    loss : float
        Minus its log evidence, up to a constant.
    steps : list of TermsStep
        All that were followed.
    """

    def __init__(self, evolution, candidates, n_terms):
        self.evolution = evolution
        self.candidates = candidates
        self.n_terms = n_terms
        self.followed = set()
        self.best, self.loss, self.steps = None, np.inf, []

    def offer(self, law, states, near=None):
        """Follow a law from some states, and keep it if it is the best so far."""
        found = self.evolution.settle(law, states, near, TOL)
        if found is None:
            return False
        self.keep(found)
        return True

    def keep(self, found):
        """Keep a trajectory if it is the best so far."""
        terms = tuple(self.candidates.terms_of(found.equation))
        self.followed.add(terms)
        loss = found.negative_log_likelihood + self.candidates.price(terms)
        names = tuple(found.equation.terms())
        step = TermsStep(names, loss, found.solution.misfit, found.error)
        self.steps.append(step)
        allowed = self.n_terms in ("auto", len(terms))
        if allowed and loss < self.loss - BETTER:
            self.best, self.loss = found, loss

    def go_on(self, states):
        """Compare, follow and compare again, from the best law or from some states."""
        candidates, near, known = self.candidates, None, None
        law = candidates.equation
        for _ in range(ROUNDS):
            if self.best is not None:
                states, near = self.best.states, self.best.regression
                known = tuple(candidates.terms_of(self.best.equation))
                law = candidates.complete(self.best.equation)
            flows, regression, _ = self.evolution.linearise(law, states, near)
            if flows is None:
                return
            before, wanted = self.loss, WANTED if near is None else 1
            target, features = regression.whitened()
            sets = candidates.sets(self.n_terms, known)
            for terms in candidates.ranked(sets, target, features)[:TRIED]:
                if terms == known or not wanted:
                    break  # the others are no better
                if terms not in self.followed:
                    offered = candidates.law(terms, target, features, regression.scale)
                    if self.offer(offered, states, regression):
                        wanted -= 1
            if not self.loss < before:
                return

    def result(self, outside):
        """The best, to the last digit if that can be had.

        Parameters
        ----------
        outside : list of KernelExpansion
            The states outside of the box.

        Returns
        -------
        followed : Followed or None
            None if no law could be followed.
        """
        best = self.best
        if best is None:
            return None
        polished = self.evolution.settle(best.equation, best.states, best.regression)
        if polished is not None:
            best = replace(polished, losses=best.losses + polished.losses)
        path = sorted(self.steps, key=lambda step: -len(step.terms))
        return self.evolution.followed(best, outside, path)


def follow_law(learned, equation=None, n_terms=None, noise=None):
    """States that follow a law of evolution exactly, and the law at its best for them.

    Parameters
    ----------
    learned : LearnedModel
        States and law to start from.
    equation : LearnedEquation, default=None
        Of all terms that the law may have; needed if `n_terms` is given.
    n_terms : int, "auto" or None, default=None
        How many terms the law has; None: those that it had.
    noise : float, default=None
        Standard deviation of an observation; None: it is estimated.

    Returns
    -------
    followed : Followed or None
        None if the law is not one of evolution, or cannot be integrated.
    """
    evolution = find_evolution(learned, noise)
    if evolution is None:
        return None
    states = evolution.states_of(learned)
    if n_terms is None:
        best = evolution.settle(learned.equation, states)
        return None if best is None else evolution.followed(best, learned.states, [])
    search = LawSearch(evolution, CandidateTerms(equation), n_terms)
    if learned.equation is not equation:
        search.offer(learned.equation, states)
    search.go_on(states)
    return search.result(learned.states)


def is_convincing(followed, two_step):
    """Whether nothing better than states that follow their law is to be looked for.

    Parameters
    ----------
    followed : Followed
        The states.
    two_step : LearnedModel
        What the observations alone suggest.

    Returns
    -------
    convincing : bool
        Observations are predicted to a small part of their size, or as well as their
        noise, as it would be without a law, allows.
    """
    size = size_of(two_step.observations.functions)
    return followed.error < max(SMALL * size, AT_NOISE * two_step.observation_noise)

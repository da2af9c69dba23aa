"""The terms that equations may have, and which of them are worth being solved for."""

from copy import copy
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb

import numpy as np
from scipy import linalg

from keql._numerics.linalg import rms
from keql._numerics.subsets import SubsetEvidence, TermOdds
from keql.equation import (
    PolynomialBasis,
    coefficients,
    find_terms,
    restricted,
    weights_of,
)
from keql.kernels import Restriction


@dataclass(frozen=True)
class ScreeningSettings:
    """How many terms are searched.

    most : int. Of more terms in one equation, so many are searched: those that raise
        the evidence of the equation most at the states to start from, taken in one
        after the other.
    degree : int. All terms up to this degree are among them, if there are no more than
        that: two true products of two states, of three competing species that diffuse,
        were not among the 60 of 120 terms that first states suggested.
    unexplained : float. The part of what it has to explain that the equation leaves at
        least: with many terms, two steps explain all.
    """

    most: int = 60
    degree: int = 2
    unexplained: float = 0.1

    @classmethod
    def of_dense_sets(cls):
        """More terms, where a search among fewer ended with very many of them.

        All cubic ones of two fields with two derivatives each: states of two steps gave
        `u^3` no place among 60, and what came of those were 43 terms.
        """
        return cls(most=100)


def with_most_probable_terms(learned, hypothesis, settings=None):
    """A learned model whose equations have few enough terms to be searched.

    learned : LearnedModel. States to start from, and equations with all terms.
    hypothesis : Hypothesis. How many terms there are.
    settings : ScreeningSettings, default=None. None: the default ones.

    Returns learned : LearnedModel. With equations in fewer terms.
    """
    settings, equations = settings or ScreeningSettings(), []
    for terms, equation, target, noise in zip(
        learned.setup.equations,
        learned.equations,
        learned.targets,
        learned.equation_noise,
        strict=True,
    ):
        n_terms = hypothesis.of_equation(terms.name).n_terms
        if terms.depends_on is not None and n_terms is not None:
            equation = _in_most_probable_terms(
                equation, target, noise, n_terms, settings
            )
        equations.append(equation)
    return replace(learned, equations=tuple(equations))


def _in_most_probable_terms(equation, target, noise, n_terms, settings):
    """An equation in the terms that raise its evidence most, one after the other.

    It has to explain the target (n,) at its training features up to the noise.
    """
    S = equation.training_features[:, : equation.n_unknown_features]
    basis = equation.basis
    exponents = find_terms(basis.kernel, S.shape[1], n_terms)
    if len(exponents) <= settings.most:
        return equation
    single = weights_of(basis, exponents, np.eye(len(exponents)))
    is_function = exponents.ndim == 1
    degrees = np.ones(len(exponents)) if is_function else exponents.sum(axis=1)
    odds = TermOdds(degrees)
    effects, prior = basis(S) @ single, single.T @ single
    noise = max(noise, settings.unexplained * rms(target))
    score = SubsetEvidence(effects / noise, target / noise, prior, odds, (1.0, np.inf))
    low = np.flatnonzero(degrees <= settings.degree)
    kept = low.tolist() if len(low) <= settings.most else []
    left = np.setdiff1d(np.arange(len(exponents)), kept)
    while len(kept) < settings.most:
        best = np.argmax(score.more(kept, left))
        kept.append(int(left[best]))
        left = np.delete(left, best)
    kept, values = sorted(kept), score.values(sorted(kept))
    equation = copy(equation)
    equation.basis = PolynomialBasis(restricted(basis.kernel, exponents, kept))
    equation.weights = weights_of(equation.basis, exponents[kept], values)
    return equation


class CandidateTerms:
    """The terms that an equation may have.

    equation : LearnedEquation. Of all terms, its features those of a polynomial kernel.
    """

    def __init__(self, equation):
        n_columns = equation.n_unknown_features
        self.exponents = find_terms(equation.basis.kernel, n_columns, "auto")
        self.log_odds = TermOdds(self.exponents.sum(axis=1))
        self.equation = copy(equation)
        self.equation.weights = np.zeros_like(equation.weights)
        # Weights of each term alone.
        units = np.eye(len(self.exponents))
        self.single = weights_of(equation.basis, self.exponents, units)

    def directions(self, terms):
        """Orthonormal directions (p, q) of the weights of equations with q terms."""
        return linalg.qr(self.single[:, list(terms)], mode="economic")[0]

    def most_probable(self, terms, target, features, scale=1.0):
        """The most probable equation with some of the terms.

        Of a whitened regression (:meth:`BoundaryValueRegression.whitened`) in which
        weights are in units of a scale.
        """
        exponents, D = self.exponents[list(terms)], self.directions(terms)
        # Effects may be so large that normal equations would be singular.
        A = np.vstack([features @ D, np.eye(len(terms))])
        b = np.concatenate([target, np.zeros(len(terms))])
        weights = scale * (D @ linalg.lstsq(A, b)[0])
        return self.with_values(
            terms, coefficients(self.equation.basis, exponents) @ weights
        )

    def with_values(self, terms, values):
        """The equation with some of the terms, given the values of coefficients."""
        exponents = self.exponents[list(terms)]
        kernel = Restriction(
            self.equation.basis.kernel, [*map(tuple, exponents.tolist())]
        )
        equation = copy(self.equation)
        equation.basis = PolynomialBasis(kernel)
        equation.weights = weights_of(equation.basis, exponents, values)
        return equation

    def complete(self, equation):
        """An equation in the features of all terms."""
        exponents = self.terms_of(equation)
        values = coefficients(equation.basis, self.exponents[exponents])
        complete = copy(self.equation)
        complete.weights = self.single[:, exponents] @ (values @ equation.weights)
        return complete

    def contributions(self, equation):
        """Those (n, q) of all terms where states are, to an equation with some."""
        terms, values = self.terms_of(equation), np.zeros(len(self.exponents))
        own = coefficients(equation.basis, self.exponents[terms])
        values[terms] = own @ equation.weights
        S = self.equation.training_features[:, : self.equation.n_unknown_features]
        return (self.equation.basis(S) @ self.single) * values

    def leading_terms(self, space):
        """Positions of those with a derivative of the highest order in space, a set.

        `space` has the coordinates of space.
        """
        equation = self.equation
        orders = [
            max(max(orders[i] for i in space) for orders, _ in operator.terms)
            for operator in equation.operators[: equation.n_operators]
        ]
        first = equation.n_unknown_features - equation.n_operators
        columns = first + np.flatnonzero(orders == np.max(orders))
        return {*np.flatnonzero(np.any(self.exponents[:, columns], axis=1)).tolist()}

    def terms_of(self, equation):
        """Positions of the terms of an equation."""
        n_columns = self.exponents.shape[1]
        has = find_terms(equation.basis.kernel, n_columns, "auto").tolist()
        return [i for i, powers in enumerate(self.exponents.tolist()) if powers in has]

    def compared(self, n_terms, best, target, features, settings):
        """Sets of terms by falling evidence in a whitened regression.

        All small ones; those near the best one so far; and, if the settings say so or
        their number is given, those that grow from the best of the small ones by one
        term after the other, as the best one may have superfluous terms in the place of
        others that are far from it.

        n_terms : int or "auto". How many terms there are.
        best : tuple of int, or None. The best set so far.
        target, features : ndarray. Of the regression, see :meth:`most_probable`.
        settings : TermSearchSettings. How many are compared.

        Returns compared : list of (float, tuple of int). Minus the log evidence, up to
        a constant, and the positions of the terms in rising order.
        """
        effects, prior = features @ self.single, self.single.T @ self.single
        score = SubsetEvidence(effects, target, prior, self.log_odds)
        sets = _ComparedSets(score, len(self.exponents))
        largest = settings.max_size if n_terms == "auto" else n_terms
        size = sets.add_all(largest, settings.max_sets)
        if best is not None:
            sets.add_near(best)
        if n_terms != "auto":
            sets.grow(size, settings.n_grown, n_terms)
        elif settings.grows:
            sets.grow(size, settings.n_grown)
        return sorted(
            (loss, terms)
            for terms, loss in sets.losses.items()
            if n_terms in ("auto", len(terms))
        )


class _ComparedSets:
    """Sets of terms, each compared as another one with one term more.

    score : SubsetEvidence. Of the regression.
    n : int. The number of terms.

    losses : dict. Minus the log evidence of sets, tuples in rising order.
    """

    def __init__(self, score, n):
        self.score, self.n, self.losses = score, n, {}

    def _extend(self, terms, others):
        values = self.score.more(list(terms), others) if others else []
        for i, value in zip(others, values, strict=True):
            self.losses[tuple(sorted((*terms, i)))] = -float(value)

    def add_all(self, largest, most):
        """Add all sets of up to `largest` terms; the size up to which they are few."""
        for size in range(1, largest + 1):
            if comb(self.n, size) > most:
                return size - 1
            self._add([*combinations(range(self.n), size)])
        return largest

    def _add(self, sets):
        """Add sets of one size, of which there may be none."""
        if sets:
            values = self.score.many(np.array(sets, dtype=int))
            self.losses.update(zip(sets, (-values).tolist(), strict=True))

    def add_near(self, terms, n_less=3):
        """Add sets with one term more, one for another, or up to `n_less` less.

        Terms that make up for one another go together: without one of them a set may be
        far less probable than with all or with none.
        """
        self._extend(terms, [i for i in range(self.n) if i not in terms])
        for j in terms:
            fewer = tuple(i for i in terms if i != j)
            self._extend(fewer, [i for i in range(self.n) if i not in fewer])
        for size in range(max(1, len(terms) - n_less), len(terms)):
            self._add([*combinations(terms, size)])

    def grow(self, size, n_grown, largest=None, patience=2):
        """Add sets with a term more than the best `n_grown` of a size; and so on.

        Until they have `largest` terms; None: until `patience` more are of no use.
        """
        lowest, rest = min(self.losses.values(), default=np.inf), patience
        while size < (largest or self.n) and (largest or rest):
            own = [terms for terms in self.losses if len(terms) == size] or [()]
            for terms in sorted(own, key=self.losses.get)[:n_grown]:
                self._extend(terms, [i for i in range(self.n) if i not in terms])
            size += 1
            found = [loss for terms, loss in self.losses.items() if len(terms) == size]
            rest = patience if min(found) < lowest else rest - 1
            lowest = min(lowest, *found)


def without_terms(equation):
    """An equation whose weights are zero.

    Many weights that two steps find may make trajectories diverge at once; without them
    the linearised problem is that of integrals of all terms along the states.
    """
    equation = copy(equation)
    equation.weights = np.zeros_like(equation.weights)
    return equation

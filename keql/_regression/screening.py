"""Of many terms, those that are most probable at the states to start from."""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from keql._numerics.linalg import rms
from keql._numerics.subsets import SubsetEvidence, TermOdds
from keql.equation import PolynomialBasis, find_terms, restricted, weights_of


@dataclass(frozen=True)
class ScreeningSettings:
    """How many terms are searched.

    most : int. Of more terms in one equation, so many are searched: those that raise
        the evidence of the equation most at the states to start from, taken in one
        after the other.
    unexplained : float. The part of what it has to explain that the equation leaves at
        least: with many terms, two steps explain all.
    """

    most: int = 60
    unexplained: float = 0.1


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
    odds = TermOdds(np.ones(len(exponents)) if is_function else exponents.sum(axis=1))
    effects, prior = basis(S) @ single, single.T @ single
    noise = max(noise, settings.unexplained * rms(target))
    score = SubsetEvidence(effects / noise, target / noise, prior, odds, (1.0, np.inf))
    kept, left = [], np.arange(len(exponents))
    while len(kept) < settings.most:
        best = np.argmax(score.more(kept, left))
        kept.append(int(left[best]))
        left = np.delete(left, best)
    kept, values = sorted(kept), score.values(sorted(kept))
    equation = copy(equation)
    equation.basis = PolynomialBasis(restricted(basis.kernel, exponents, kept))
    equation.weights = weights_of(equation.basis, exponents[kept], values)
    return equation

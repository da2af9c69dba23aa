"""How probable sets of terms are: the evidence of equations that are integrated."""

from dataclasses import dataclass, replace

import numpy as np

from keql._numerics.subsets import (
    HighestEvidence,
    MixedOdds,
    SubsetEvidence,
    TermOdds,
    linear_evidence,
)


@dataclass(frozen=True)
class TermPrior:
    """What is expected of terms before data are seen.

    n_expected, n_of_degree : float. How many an equation has if all terms are as
        probable; or how many of each degree, if each degree has a probability of its
        own in all equations. Which of both holds is not known. The equations in
        textbooks have two to five.
    sizes : tuple. Standard deviations of what a term contributes to the highest
        derivative, root mean square along the states and in units of its size. For each
        set that counts which suits it best: large terms may cancel.
    rounding : float. Largest rounding error of a log evidence that is found from
        squares of the target, in double precision: of exact data the noise counts as no
        lower, as sets of terms that explain them alike would be told by rounding
        errors.
    """

    n_expected: float = 3.0
    n_of_degree: float = 1.0
    rounding: float = 0.1
    sizes: tuple = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)


class TermScores:
    """The log evidence of sets of terms, with their odds.

    The contributions of terms are normal before data are seen. The weights of the
    features of a kernel have another prior, in which a term counts as part of a
    polynomial that has all others too.

    table : TermTable. The terms; those that stay keep the prior of their weights.
    single : ndarray of shape (p, q). Weights of each term alone, its coefficient one.
    equations : tuple of LearnedEquation. Those that the search starts from.
    prior : TermPrior. What is expected of terms.
    """

    def __init__(self, table, single, equations, prior):
        self.single, self.equations = single, equations
        self.sizes, self.rounding = np.array(prior.sizes), prior.rounding
        self.is_chosen = table.groups >= 0
        equation, degree, depends = table.kinds.T
        by_degree = prior.n_of_degree * len(equations)
        self.odds = MixedOdds(
            [
                TermOdds(np.column_stack([equation, depends]), prior.n_expected),
                TermOdds(np.column_stack([degree, depends]), by_degree),
            ]
        )

    def linearised(self, model, odds=None):
        """The evidence of any set in a linearised problem whose equations have all."""
        target, features = model.regression.whitened()
        told = np.sqrt(np.finfo(float).eps * (target @ target) / self.rounding)
        unit, (lowest, highest) = max(1.0, told), model.regression.level_range
        levels = max(told, lowest) / unit, max(told, highest) / unit
        how = levels, model.regression.n_free
        given = features @ self.single / unit, target / unit
        precisions = self._precisions(model, model.iterate.equations)
        odds = odds or self.odds
        return HighestEvidence(
            [SubsetEvidence(*given, np.diag(own), odds, *how) for own in precisions]
        )

    def solved(self, model, kept, to_values, equations):
        """The score of a set of terms that was solved for.

        `to_values` (k, k) times the weights of its equations are the coefficients of
        its terms; `equations` have all terms.
        """
        target, effects = model.regression.whitened()
        roots = np.sqrt(self._precisions(model, equations)[:, kept])
        told = [linear_evidence(effects, target, r[:, None] * to_values) for r in roots]
        by_weights = linear_evidence(effects, target, np.eye(len(kept)))
        return model.log_evidence() + max(told) - by_weights + self.odds(kept)

    def contributions(self, model, equations):
        """Those (q,) of terms whose coefficients are the prior scale of the weights.

        In units of what equations with all terms say of the highest derivatives.
        """
        if not any(np.any(equation.weights) for equation in equations):
            equations = self.equations
        iterate = replace(model.iterate, equations=tuple(equations))
        effects = model.problem.effects_on_highest(iterate) @ self.single
        sizes = np.sqrt(np.sum(effects**2, axis=0) * len(equations) / len(effects))
        return model.regression.prior.scale * np.maximum(sizes, np.finfo(float).tiny)

    def _precisions(self, model, equations):
        """Prior precisions (g, q) of the terms, for each of the sizes."""
        contributions = self.contributions(model, equations)
        precisions = (contributions / self.sizes[:, None]) ** 2
        return np.where(self.is_chosen, precisions, 1.0)

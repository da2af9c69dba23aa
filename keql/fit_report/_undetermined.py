"""Equations that the data do not determine, or do not tell from others."""

from math import exp

import numpy as np

from keql.equation import terms_of
from keql.fit_report._report import percent


def undetermined(learned, significant=3.0):
    """Equations of a system that the data do not determine, each in a sentence.

    learned : LearnedModel. States and equations.
    significant : float. How many standard errors one of the coefficients of an equation
        is away from zero, at least, if the equation is determined.
    """
    if learned.setup is None or not learned.setup.is_system:
        return []
    seen = {s for L in learned.observations.operators for s in L.states}
    if seen < set(learned.observations.states):  # nothing tells the unit of the others
        return []
    sentences = {}
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        if equation.posterior is None or terms_of(equation) is None:
            continue
        largest = _largest_ratio(learned, equation)
        if largest < significant:
            sentences[terms.name] = (
                f"the equation {terms.name} is not determined: none of its "
                f"coefficients is more than {largest:.1f} standard errors away from "
                "zero. Observe more, or with less noise, or ask for fewer terms"
            )
    return list(sentences.values())


def _largest_ratio(learned, equation):
    """The largest of the coefficients of an equation, in units of their errors.

    Noise levels that are too small are made up for: the loss of a fit in its own units
    is half of the number of observations.
    """
    values, errors = equation.terms(return_std=True)
    if not values:
        return np.inf
    n_observed = sum(len(data.values) for data in learned.observations.functions)
    unit = max(1.0, 2 * equation.posterior.loss / n_observed) ** 0.5
    ratios = [abs(v) / (unit * errors[name]) for name, v in values.items()]
    return max(ratios)


def unexplained(residuals, most):
    """Equations of which a part is not explained, each in a sentence.

    residuals : dict of str to Residual. Those of equations are named so.
    most : float. The largest part of the size of its terms by which one may be missed.
    """
    sentences = []
    for name, residual in residuals.items():
        if name.startswith("equation") and residual.rms > most * residual.size:
            part = percent(residual.rms, residual.size)
            sentences.append(
                f"the {name} leaves {part} of its terms unexplained: operators or "
                "terms are missing, or derivatives are poorly known. Try more "
                "operators, or an equation_kernel of a higher degree or another form"
            )
    return sentences


def rivals_in_words(rivals, most=3):
    """Other terms that explain the data about as well, as a sentence, or empty.

    rivals : list of (set of str, float). Terms and log odds, those of the fit first.
    most : int. How many are told.
    """
    if len(rivals) < 2:
        return ""
    (chosen, _), *others = rivals
    texts = [f"{_difference(t, chosen)} (odds {exp(o):.2g})" for t, o in others[:most]]
    if len(others) > most:
        texts.append(f"{len(others) - most} more")
    return (
        f"the data do not tell the terms from others: {'; '.join(texts)}. Observe "
        "more, or with less noise, or say more of the equation"
    )


def _difference(terms, chosen):
    """What a set of terms has in place of another, in words."""
    more, less = sorted(terms - chosen), sorted(chosen - terms)
    if more and less:
        return f"{', '.join(more)} instead of {', '.join(less)}"
    return f"also {', '.join(more)}" if more else f"without {', '.join(less)}"

"""What the equations of two steps leave open, as states were found without them."""

from dataclasses import dataclass

from keql._numerics.linalg import rms
from keql.fit_report._describe import residuals_of_equations
from keql.fit_report._given import pulled_to_zero
from keql.fit_report._report import percent
from keql.fit_report._undetermined import travelling, undetermined


@dataclass(frozen=True)
class TwoStepCriteria:
    """When an equation that was learned from fitted states is in doubt.

    unexplained : float. Residual, in units of what P has to explain, from which on a
        part of it is not explained.
    above_errors : float. The same in units of what errors of the states make of it: in
        the suite, residuals of equations of the right form were 0.2 to 3 times these,
        and those of others 1.5 to 1,000 times.
    uncertain : float. Standard deviation of P where states are, in units of what it has
        to explain, from which on it is told: nine of ten errors are below 5 % with it.
    """

    unexplained: float = 0.01
    above_errors: float = 2.0
    uncertain: float = 0.03


def doubts_of_two_steps(hypothesis, learned, errors, criteria=None):
    """Why the equations of two steps may be others, sentences of warning and report.

    The Hypothesis is what the user says, the LearnedModel has weights that are as
    uncertain as its states make them, and `errors` has, for each equation, the root
    mean square of the errors of its residual that are due to those of the states, in
    units of what P has to explain.
    """
    if learned.setup is None:
        return []
    criteria = criteria or TwoStepCriteria()
    doubts = undetermined(learned, singly=True)
    doubts += travelling(learned, criteria.unexplained)
    doubts += pulled_to_zero(hypothesis, learned)
    residuals = residuals_of_equations(learned, False)
    names = [terms.name for terms in learned.setup.equations]
    is_open = [hypothesis.of_equation(n).equation_noise is None for n in names]
    for (name, residual), free, equation, error in zip(
        residuals.items(), is_open, learned.equations, errors, strict=True
    ):
        doubts += _unexplained(name, residual, error, criteria) if free else []
        doubts += _uncertain(name, residual.size, equation, criteria)
    return doubts


def _unexplained(name, residual, error, criteria):
    """A sentence if the residual is larger than errors of the states make it."""
    part = residual.rms / residual.size
    if part <= max(criteria.unexplained, criteria.above_errors * error):
        return []
    return [
        f"the {name} leaves {percent(part, 1.0)} of its terms unexplained, of which "
        f"errors of the states would make {percent(error, 1.0)}: operators or terms are "
        "missing. Try more operators, an equation_kernel of a higher degree or another "
        "form, or OneStepKEqL, which compares them"
    ]


def _uncertain(name, size, equation, criteria):
    """A sentence if errors of the states leave P uncertain."""
    if equation.posterior is None:
        return []
    S = equation.training_features[:, : equation.n_unknown_features]
    part = rms(equation.posterior.std(equation.basis(S))) / size
    if part <= criteria.uncertain:
        return []
    return [
        f"the {name} is uncertain by {percent(part, 1.0)} of its size, as states and "
        "their derivatives are: observe more often or with less noise, or use "
        "OneStepKEqL, where the equation helps to find the states"
    ]

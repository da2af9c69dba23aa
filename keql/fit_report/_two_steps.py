"""What the equations of two steps leave open, as states were found without them."""

from dataclasses import dataclass

import numpy as np

from keql.equation import rms_std
from keql.fit_report._describe import SearchSummary, examine
from keql.fit_report._given import pulled_to_zero
from keql.fit_report._identify import dependent_terms
from keql.fit_report._one_solution import travelling
from keql.fit_report._report import ReportCriteria, percent
from keql.fit_report._undetermined import undetermined


@dataclass(frozen=True)
class TwoStepCriteria:
    """When an equation that was learned from fitted states is in doubt.

    unexplained : float. Residual, in units of what P has to explain, up to which all of
        it counts as explained.
    above_errors : float. Larger residuals are told if they are also as many times what
        errors of the states make of them, or are a large part by ReportCriteria: in
        the suite, residuals of equations of the right form were 0.2 to 3 times these,
        and those of others 1.5 to 1,000 times.
    uncertain : float. Standard deviation of P where states are, in units of what it has
        to explain, from which on it is told: nine of ten errors are below 5 % with it.
    mostly_noise : float. Noise level, in units of the standard deviation of the values,
        from which on states explain little of them.
    """

    unexplained: float = 0.01
    above_errors: float = 2.0
    uncertain: float = 0.03
    mostly_noise: float = 0.5


def summary_of_two_steps(hypothesis, learned, errors, criteria=None):
    """A SearchSummary with what the equations of two steps leave open.

    The Hypothesis is what the user says, the LearnedModel has weights that are as
    uncertain as its states make them, and `errors` are the ErrorsOfStates of each of
    its equations.
    """
    examined = examine(learned, parts=[each.part for each in errors])
    doubts = []
    if learned.setup is not None:
        criteria = criteria or TwoStepCriteria()
        doubts += pulled_to_zero(hypothesis, learned)
        doubts += _mostly_noise(learned, criteria.mostly_noise)
        doubts += undetermined(learned, in_two_steps=True)
        doubts += travelling(learned, criteria.unexplained)
        residuals = examined.residuals
        doubts += _of_residuals(hypothesis, learned, errors, residuals, criteria)
        doubts += _trade_offs(learned, examined.identifiability)
    return SearchSummary(doubts=tuple(doubts), examined=examined)


def _of_residuals(hypothesis, learned, errors, residuals, criteria):
    """Sentences on residuals by their names, and on what errors make of equations."""
    doubts, names = [], [terms.name for terms in learned.setup.equations]
    is_open = [hypothesis.of_equation(n).equation_noise is None for n in names]
    for (name, residual), free, equation, error in zip(
        residuals.items(), is_open, learned.equations, errors, strict=True
    ):
        doubts += _unexplained(name, residual, error.size, free, criteria)
        doubts += _uncertain(name, residual.size, equation, criteria)
    return doubts


def _trade_offs(learned, identifiability):
    """Sentences on terms that the data do not tell apart.

    Not of one state in time: every oscillator without friction has an energy, of which
    an orbit shows a single value. The report tells of its terms all the same.
    """
    if len(learned.variables) == len(learned.observations.states) == 1:
        return []
    return dependent_terms(identifiability)


def _mostly_noise(learned, most):
    """Sentences on states that explain little of what was observed."""
    doubts, observations = [], learned.observations
    for j, operator in enumerate(observations.operators):
        parts = [data.of_operator(j).values for data in observations.functions]
        values = np.concatenate(parts)
        noise, spread = float(learned.observation_noise[j]), float(np.std(values))
        if noise > most * spread > 0:
            doubts.append(
                f"the observations of {operator.name} are mostly noise, of "
                f"{percent(noise, spread)} of their standard deviation: observe more "
                "often or with less noise, and do not rely on the equations"
            )
    return doubts


def _unexplained(name, residual, error, free, criteria):
    """A sentence if the residual is larger than errors of the states make it.

    A noise level that is given is believed: only a large part above it is told.
    """
    part, error = residual.rms / residual.size, error / residual.size
    large = ReportCriteria.large_part
    most = max(criteria.unexplained, min(criteria.above_errors * error, large))
    if not free:
        most = max(criteria.above_errors * residual.noise / residual.size, large)
    if part <= most:
        return []
    told = f"the {name} leaves {percent(part, 1.0)} of its terms unexplained, of which "
    told += f"errors of the states would make {percent(error, 1.0)}: "
    if part <= criteria.above_errors * error:
        return [
            f"{told}derivatives are poorly known. Observe more often or with less "
            "noise, or use OneStepKEqL, where the equation helps to find the states"
        ]
    return [
        f"{told}operators or terms are missing, or derivatives are worse than they "
        "seem. Try more operators, an equation_kernel of a higher degree or another "
        "form, or OneStepKEqL, which compares them"
    ]


def _uncertain(name, size, equation, criteria):
    """A sentence if errors of the states leave P uncertain."""
    if equation.posterior is None:
        return []
    S = equation.training_features[:, : equation.n_unknown_features]
    part = rms_std(equation, S) / size
    if part <= criteria.uncertain:
        return []
    return [
        f"the {name} is uncertain by {percent(part, 1.0)} of its size, as states and "
        "their derivatives are: observe more often or with less noise, or use "
        "OneStepKEqL, where the equation helps to find the states"
    ]

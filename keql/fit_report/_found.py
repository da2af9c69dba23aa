"""What a fit found, and from what: rows of a report, and values for its pictures."""

from typing import NamedTuple

import numpy as np

from keql._observations.units import Units, labelled, with_unit
from keql.equation import LearnedSystem, number, terms_of
from keql.operators import identity_of


class ReportUnits:
    """Units of what a report says of a model; all None if it has none."""

    def __init__(self, model, learned):
        self.units = None if model.units is None else Units(model.units)
        self.variables = learned.variables

    def of(self, name):
        """The unit of a coordinate or a state."""
        return None if self.units is None else self.units.of(name)

    def of_operator(self, operator):
        """The unit of an operator's values."""
        if self.units is None:
            return None
        return self.units.of_operator(operator, self.variables)

    def labelled(self, name):
        """A coordinate or a state with its unit, as the label of an axis."""
        return labelled(name, self.of(name))

    def identity(self, state):
        """The operator that leaves a state as it is."""
        return identity_of(state, len(self.variables))

    def of_residuals(self, learned):
        """Units as text, by the names of the residuals."""
        units = {}
        for operator in learned.observations.operators:
            single = learned.observations.n_operators == 1
            name = "observations" if single else f"observations of {operator.name}"
            units[name] = self.of_operator(operator)
        for i, equation in enumerate(learned.equations):
            setup = learned.setup
            name = f"equation {setup.equations[i].name}" if setup.is_system else ""
            units[name or "equation"] = equation.unit
        return {name: str(unit) for name, unit in units.items() if unit}


class Fitted(NamedTuple):
    """What a report says of a fit when it is read.

    units : ReportUnits.
    variables : tuple of str. Names of the coordinates.
    observations : Observations.
    fits : list of states, one for each function.
    equation : LearnedEquation, LearnedSystem or None.
    targets : list of ndarray. Values f - Pbar that each P has to give.
    loss_curve : list of float. Empty if there were no steps.
    error : float or None. Of predicting each observation from all others.
    """

    units: ReportUnits
    variables: tuple
    observations: object
    fits: list
    equation: object
    targets: list
    loss_curve: list
    error: float | None

    @classmethod
    def from_fit(cls, model, learned, error):
        """From a model, the LearnedModel that it has stored, and its error."""
        return cls(
            ReportUnits(model, learned),
            learned.variables,
            learned.observations,
            learned.states,
            _as_one(learned),
            learned.targets if learned.equations else [],
            list(getattr(model, "loss_curve_", [])),
            error,
        )

    @property
    def equations(self):
        """The learned equations, a list."""
        if isinstance(self.equation, LearnedSystem):
            return list(self.equation.values())
        return [] if self.equation is None else [self.equation]

    def found(self, near=0.05, max_terms=3):
        """Rows: equations with standard errors, how well observations are predicted.

        Beside an unknown part without a list of terms a formula of few terms that is as
        `near`, in relative L2 distance.
        """
        rows = []
        if self.equation is not None:
            rows = [
                ("equation", line, "") for line in self.equation.to_text().split("\n")
            ]
        for equation in self.equations:
            if terms_of(equation) is None:
                formula = equation.formula(near, max_terms)
                if formula.unexplained < near:
                    part = f"{100 * formula.unexplained:.2g} % from it"
                    rows.append(("near", str(formula), part))
        if self.error is not None:
            operators = self.observations.operators
            unit, kind = None, "in units of the size of the values"
            if len(operators) == 1:
                unit, kind = self.units.of_operator(operators[0]), "root mean square"
            value = with_unit(number(self.error), unit)
            remark = f"of observations left out one by one, {kind}"
            rows.append(("error of predictions", value, remark))
        return rows

    def data(self):
        """Rows: how much was observed of what, and where."""
        observations, rows = self.observations, []
        for j, operator in enumerate(observations.operators):
            samples = observations.of_operator(j)
            values = np.concatenate([sample.values for sample in samples])
            unit = self.units.of_operator(operator)
            rows.append((operator.name, _range(values, unit), f"{len(values)} values"))
        seen = {state for L in observations.operators for state in L.states}
        for state in observations.states:
            if state not in seen:
                remark = (
                    "its unit is not determined by the data, nor what is added to it: "
                    "a few of its values would tell"
                )
                rows.append((state, "not measured", remark))
        points = np.concatenate([data.points for data in observations.functions])
        for name, column in zip(self.variables, points.T, strict=True):
            rows.append((name, _range(column, self.units.of(name)), ""))
        if len(observations.labels) > 1:
            names = ", ".join(map(str, observations.labels[:10]))
            more = ", ..." if len(observations.labels) > 10 else ""
            rows.append(("functions", names + more, f"{len(observations.labels)}"))
        return rows


def _as_one(learned):
    """The learned equation, or the system of several; None without one."""
    if len(learned.equations) < 2:
        return learned.equation
    names = [terms.name for terms in learned.setup.equations]
    return LearnedSystem(dict(zip(names, learned.equations, strict=True)))


def _range(values, unit):
    """The least and the largest of some values, as text that tells them apart.

    They have three digits, and more where these are the same in all values: years.
    """
    ends, digits = np.array([values.min(), values.max()]), 3
    largest, span = np.max(np.abs(ends)), np.ptp(ends)
    if largest > 10 * span > 0:
        size = int(np.floor(np.log10(largest)))
        wanted = size - int(np.floor(np.log10(span))) + 2
        digits = min(max(wanted, size + 1), 15)  # no power of ten, as in seconds
    return with_unit(" to ".join(number(end, digits) for end in ends), unit)

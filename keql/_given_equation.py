"""An equation that is known, in the form that learned ones have."""

import numpy as np

from keql._known_part import make_known_part


class GivenEquation:
    """A differential equation F(x, L_1 u, ..., L_Q u) = f with a known F.

    Parameters
    ----------
    equation : operator, {operator: coefficient} or callable
        F, as the `known_part` of an estimator.
    variables : tuple of str
        Names of the d coordinates.

    Raises
    ------
    ValueError
        If an operator does not parse or an argument of the function is no feature.
    """

    def __init__(self, equation, variables):
        self.variables = tuple(variables)
        try:
            self.part = make_known_part(equation, self.variables)
        except ValueError as error:
            text = str(error).replace("known_part", "equation")
            raise ValueError(text) from error
        self.operators = []
        for operator in self.part.operators:
            if not any(operator.same_as(other) for other in self.operators):
                self.operators.append(operator)
        if not self.operators:
            raise ValueError(
                "equation depends on no operator: name at least one of its arguments "
                "u, or after a derivative such as u_xx."
            )
        self.part.locate(self.feature_names, self._column_of)

    @property
    def feature_names(self):
        """Names of the columns of the features."""
        return [*self.variables, *(operator.name for operator in self.operators)]

    def _column_of(self, operator):
        same = [i for i, o in enumerate(self.operators) if operator.same_as(o)]
        return len(self.variables) + same[0]

    def __call__(self, S):
        """Left-hand side at features `S` of shape (n, d + Q), of shape (n,)."""
        return np.array(self.part(S))

    def gradient(self, S):
        """Partial derivatives in the features, of shape (n, d + Q)."""
        return self.part.gradient(S).T

    def __str__(self):
        terms = self.part.terms.items()
        return " + ".join(n if v == 1 else f"{v:.3g} {n}" for n, v in terms) + " = f"

    def __repr__(self):
        return f"<GivenEquation {self}>"

"""Equations built by hand from coefficients that are known."""

import numpy as np

from keql._basis import InducingBasis, PolynomialBasis
from keql._known_part import make_known_part
from keql.equation import LearnedEquation
from keql.kernels import RBF, Constant, Polynomial
from keql.operators import parse_operator

TX = ("t", "x")


def monomial(*columns):
    """A kernel whose only feature is the product of the columns."""
    kernel = Constant(1.0)
    for column in columns:
        kernel = kernel * Polynomial(1, 1.0, 0.0, offset=0.0, active_dims=column)
    return kernel


def make_equation(
    operators, known_part, kernel, weights, S=None, variables=TX, has_forcing=False
):
    """A learned equation; with inducing points if `kernel` has no finite features."""
    operators = [parse_operator(operator, variables) for operator in operators]
    part = make_known_part(known_part, variables)
    n_operators = len(operators)
    for operator in part.operators:
        if not any(operator.same_as(other) for other in operators):
            operators.append(operator)

    def column_of(operator):
        same = [i for i, other in enumerate(operators) if operator.same_as(other)]
        return len(variables) + same[0]

    part.locate([*variables, *(o.name for o in operators)], column_of)
    if S is None:
        S = np.ones((3, len(variables) + len(operators)))
    if kernel.n_features(S.shape[1]) is None:
        basis = InducingBasis(kernel, S[:, : len(variables) + n_operators])
    else:
        basis = PolynomialBasis(kernel)
    return LearnedEquation(
        variables,
        operators,
        n_operators,
        part,
        basis,
        np.asarray(weights, dtype=float),
        RBF(0.3),
        S,
        has_forcing,
    )

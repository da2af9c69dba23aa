"""Equations built by hand from coefficients that are known, and a solution."""

import numpy as np

from keql import TwoStepKEqL
from keql.equation import (
    InducingBasis,
    LearnedEquation,
    LearnedSystem,
    NoUnknownPart,
    PolynomialBasis,
    bind_known_part,
    make_known_part,
    weights_of,
)
from keql.equation._known import LinearKnownPart
from keql.kernels import RBF, Constant, Polynomial, Restriction, parse_monomial
from keql.operators import extend_operators, parse_operator

TX = ("t", "x")
DIFFUSION = 0.1


def monomial(*columns):
    """A kernel whose only feature is the product of the columns."""
    kernel = Constant(1.0)
    for column in columns:
        kernel = kernel * Polynomial(1, 1.0, 0.0, offset=0.0, active_dims=column)
    return kernel


def make_equation(
    operators,
    known_part,
    kernel,
    weights,
    S=None,
    variables=TX,
    has_forcing=False,
    inputs=(),
):
    """A learned equation; with inducing points if `kernel` has no finite features."""
    operators = [parse_operator(operator, variables) for operator in operators]
    part = make_known_part(known_part, variables)
    n_operators, given = len(operators), (*variables, *inputs)
    operators = bind_known_part(part, given, operators)
    if S is None:
        S = np.ones((3, len(given) + len(operators)))
    if kernel.n_features(S.shape[1]) is None:
        basis = InducingBasis(kernel, S[:, : len(given) + n_operators])
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
        inputs=inputs,
    )


def make_system(equations, operators, states, variables=("t",), inputs=(), S=None):
    """A learned system from {name: (known part, {term: coefficient} or None)}.

    The known parts are {operator: coefficient}; None is no unknown part, P = 0. The
    basis of each unknown part is that of the monomials in it.
    """
    given = (*variables, *inputs)
    operators = [parse_operator(name, variables, states) for name in operators]
    n_operators, parts = len(operators), {}
    for name, (known, _) in equations.items():
        known_operators = [parse_operator(o, variables, states) for o in known]
        parts[name] = LinearKnownPart(known_operators, list(known.values()))
        operators = extend_operators(operators, known_operators)
    names = [*given, *(operator.name for operator in operators[:n_operators])]
    if S is None:
        n_columns = len(given) + len(operators)
        S = 2 * np.random.RandomState(0).normal(size=(40, n_columns))
    learned = {}
    for name, (_, terms) in equations.items():
        bind_known_part(parts[name], given, operators)
        basis, weights = NoUnknownPart(), np.empty(0)
        if terms is not None:
            exponents = [parse_monomial(term, names) for term in terms]
            kernel = Polynomial(3, 1.0, 0.0).bind(names)
            basis = PolynomialBasis(Restriction(kernel, exponents))
            weights = weights_of(
                basis, np.array(exponents), np.array([*terms.values()])
            )
        learned[name] = LearnedEquation(
            variables,
            operators,
            n_operators,
            parts[name],
            basis,
            weights,
            RBF(0.3),
            S,
            states=states,
            inputs=inputs,
        )
    return LearnedSystem(learned)


def lotka_volterra(**changes):
    """x_t = x - x y / 2, y_t = x y / 4 - y."""
    arguments = {
        "equations": {
            "prey": ({"x_t": 1.0}, {"x": -1.0, "x y": 0.5}),
            "predator": ({"y_t": 1.0}, {"x y": -0.25, "y": 1.0}),
        },
        "operators": ("x", "y"),
        "states": ("x", "y"),
    }
    return make_system(**{**arguments, **changes})


def cole_hopf(t, x, amplitude=0.5, order=0):
    """A solution of u_t = u u_x + 0.1 u_xx, zero at x = 0 and 1; or its u_x."""
    e = amplitude * np.exp(-DIFFUSION * np.pi**2 * t)
    c, s, below = np.cos(np.pi * x), np.sin(np.pi * x), 1 + e * np.cos(np.pi * x)
    if order:
        return -2 * DIFFUSION * np.pi**2 * e * (c + e) / below**2
    return -2 * DIFFUSION * np.pi * e * s / below


def points_of_cole_hopf(n, seed=0):
    """Both sides, the begin, and `n` points inside."""
    rng = np.random.RandomState(seed)
    t, x = np.linspace(0, 1, 9), np.linspace(0, 1, 12)
    sides = [np.column_stack([t, np.full(9, side)]) for side in (0.0, 1.0)]
    begin = np.column_stack([np.zeros(12), x])
    return np.unique(np.concatenate([*sides, begin, rng.uniform(size=(n, 2))]), axis=0)


def learn_cole_hopf(n, **changes):
    """What two steps learn from that solution, n observations of it inside."""
    settings = {
        "operators": ("u", "u_x", "u_xx"),
        "known_part": "u_t",
        "variables": TX,
    }
    X = points_of_cole_hopf(n)
    model = TwoStepKEqL(**(settings | changes))
    return model._learn_in_two_steps(X, cole_hopf(*X.T), None)

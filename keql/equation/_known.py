"""What is known of an equation: its known part, or all of it."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from keql._numerics.arguments import in_short, is_real
from keql._numerics.autodiff import (
    parameter_names,
    partial_derivatives,
    refuse_unsuitable,
)
from keql.equation._basis import NoUnknownPart
from keql.operators import (
    DifferentialOperator,
    as_factor,
    extend_operators,
    parse_operator,
    position_of,
)


class LinearKnownPart:
    """A combination of differential operators with constant coefficients."""

    def __init__(self, operators, coefficients):
        self.operators = operators
        self.coefficients = np.asarray(coefficients, dtype=float)
        self.columns = None

    def _locate(self, names, column_of):
        """Remember the columns of the features, given where each operator stands."""
        self.columns = [column_of(operator) for operator in self.operators]
        self.names = [names[column] for column in self.columns]

    def __call__(self, S):
        """Values at features `S` of shape (n, d + Q'), of shape (n,)."""
        return S[:, self.columns] @ self.coefficients

    def gradient(self, S):
        """Partial derivatives in the features, of shape (d + Q', n)."""
        gradient = np.zeros(S.T.shape)
        for column, coefficient in zip(self.columns, self.coefficients, strict=True):
            gradient[column] += coefficient
        return gradient

    @property
    def terms(self):
        """Printable terms, {feature: coefficient}."""
        terms = dict.fromkeys(self.names, 0.0)
        for name, value in zip(self.names, self.coefficients, strict=True):
            terms[name] += float(value)
        return {n if v == 1 else as_factor(n): v for n, v in terms.items()}


class FunctionKnownPart:
    """A function of named features, written in `autograd.numpy`.

    It takes an array of shape (n,) for each of `parameters`, the names of coordinates
    and of `operators`.
    """

    def __init__(self, function, parameters, operators):
        self.function = function
        self.parameters = parameters
        self.operators = operators
        self.columns = None

    def _locate(self, names, column_of):
        """Remember the columns of the features, given where each operator stands."""
        by_name = {operator.name: column_of(operator) for operator in self.operators}
        self.columns = [
            by_name[name] if name in by_name else names.index(name)
            for name in self.parameters
        ]

    def __call__(self, S):
        """Values at features `S` of shape (n, d + Q'), of shape (n,)."""
        values = np.asarray(self.function(*S[:, self.columns].T), dtype=float)
        if values.shape not in {(), (len(S),)}:
            raise ValueError(
                f"known_part returned an array of shape {values.shape} when it was "
                f"called with arrays of shape ({len(S)},): it must return one number "
                "for each point."
            )
        return np.broadcast_to(values, (len(S),))

    def gradient(self, S):
        """Partial derivatives in the features, of shape (d + Q', n)."""
        gradient = np.zeros(S.T.shape)
        slopes = partial_derivatives(self.function, S[:, self.columns].T)
        for column, slope in zip(self.columns, slopes, strict=True):
            gradient[column] += slope
        return gradient

    @property
    def terms(self):
        """Printable terms, {feature: coefficient}."""
        name = getattr(self.function, "__name__", "known_part").strip("<>")
        return {f"{name}({', '.join(self.parameters)})": 1.0}


def make_known_part(known_part, variables, states=("u",), inputs=()):
    """Bring the `known_part` of an equation into one form.

    It is None, an operator, {operator: coefficient} or a function of named features.
    The result, a LinearKnownPart or FunctionKnownPart, has the operators that it uses
    in `operators`. A ValueError says which operator does not parse, which coefficient
    is no finite number, or which parameter of a function names no feature.
    """
    if known_part is None:
        return LinearKnownPart([], [])
    if isinstance(known_part, str | tuple | DifferentialOperator):
        return LinearKnownPart([parse_operator(known_part, variables, states)], [1.0])
    if isinstance(known_part, dict):
        parse = partial(parse_operator, variables=variables, states=states)
        operators = [parse(operator) for operator in known_part]
        for operator, coefficient in known_part.items():
            if not (is_real(coefficient) and np.isfinite(coefficient)):
                raise ValueError(
                    f"known_part has the coefficient {coefficient!r} for the operator "
                    f"{operator!r}: give a finite number, or write a function of named "
                    "features."
                )
        if not any(known_part.values()):
            raise ValueError(
                f"known_part={in_short(known_part)} is zero: give None if nothing of "
                "the equation is known."
            )
        return LinearKnownPart(operators, list(known_part.values()))
    if not callable(known_part) or isinstance(known_part, type):
        raise ValueError(
            f"known_part={in_short(known_part)} must be None, an operator such "
            "as 'u_t', a dict {operator: coefficient}, or a function of named features."
        )
    parameters, known_names = parameter_names(known_part), (*variables, *inputs)
    features = [name for name in parameters if name not in known_names]
    operators = [_parse_parameter(name, variables, states) for name in features]
    refuse_unsuitable(known_part, parameters, "known_part")
    return FunctionKnownPart(known_part, parameters, operators)


def _parse_parameter(name, variables, states):
    """The operator that a parameter of a user's function is named after."""
    try:
        return parse_operator(name, variables, states)
    except ValueError as error:
        raise ValueError(
            f"known_part has the parameter {name!r}, which is neither one of the "
            f"variables {', '.join(variables)} nor an operator: {error}"
        ) from error


def bind_known_parts(parts, coordinates, operators):
    """Bind known parts to the columns of the features, and return all Q' operators.

    These are the given operators and those that only known parts use; the features are
    the coordinates (the variables and the inputs, by name) and the operators.
    """
    for part in parts:
        operators = extend_operators(operators, part.operators)
    names = [*coordinates, *(operator.name for operator in operators)]
    for part in parts:
        part._locate(names, lambda o: len(coordinates) + position_of(o, operators))
    return operators


def bind_known_part(part, variables, operators):
    """Bind a single known part, as :func:`bind_known_parts` does."""
    return bind_known_parts([part], variables, operators)


class SystemKnownPart:
    """The known parts of the equations of a system, as that of one equation.

    The first feature says which equation a row belongs to; the `parts` take the others.
    """

    def __init__(self, parts):
        self.parts = parts

    def __call__(self, S):
        """Values at features `S` of shape (n, 1 + d + Q'), of shape (n,)."""
        values = np.empty(len(S))
        for e, part in enumerate(self.parts):
            rows = S[:, 0] == e
            values[rows] = part(S[rows, 1:])
        return values

    def gradient(self, S):
        """Partial derivatives in the features, of shape (1 + d + Q', n)."""
        gradient = np.zeros(S.T.shape)
        for e, part in enumerate(self.parts):
            rows = S[:, 0] == e
            gradient[1:, rows] = part.gradient(S[rows, 1:])
        return gradient


class GivenEquation:
    """A differential equation F(x, inputs, L_1 u, ..., L_Q u) = f with a known F.

    F is given as the `known_part` of an estimator, in named coordinates, `states` and
    `inputs`; a ValueError says which operator does not parse, or which argument of a
    function is no feature. An operator of several states counts as a combination of
    operators that each have one.
    """

    basis, weights, posterior = NoUnknownPart(), np.empty(0), None
    n_unknown_features = 0
    has_forcing = False

    def __init__(self, equation, variables, states=("u",), inputs=()):
        self.variables, self.states = tuple(variables), tuple(states)
        self.inputs = tuple(inputs)
        named = self.variables, self.states, self.inputs
        try:
            self.known_part = _apart(make_known_part(equation, *named), self.variables)
        except (TypeError, ValueError) as error:
            text = str(error).replace("known_part", "equation")
            text = text if "equation" in text else f"equation: {text}"
            raise ValueError(text) from error
        self._bind()
        if not self.operators:
            raise ValueError(
                f"equation depends on no operator: name at least one of its arguments "
                f"{self.states[0]}, or after a derivative such as {self.states[0]}_xx."
            )

    def _bind(self, others=()):
        """Find the features among those of this and of other equations."""
        parts = [equation.known_part for equation in others] or [self.known_part]
        self.operators = bind_known_parts(parts, (*self.variables, *self.inputs), [])

    @property
    def feature_names(self):
        """Names of the columns of the features."""
        operators = [operator.name for operator in self.operators]
        return [*self.variables, *self.inputs, *operators]

    def __call__(self, S):
        """Left-hand side at features `S` of shape (n, d + Q), of shape (n,)."""
        return np.array(self.known_part(S))

    def gradient(self, S):
        """Partial derivatives in the features, of shape (n, d + Q)."""
        return self.known_part.gradient(S).T

    def __str__(self):
        terms = self.known_part.terms.items()
        return " + ".join(n if v == 1 else f"{v:.3g} {n}" for n, v in terms) + " = f"

    def __repr__(self):
        return f"<GivenEquation {self}>"


class EquationMapping(Mapping):
    """Equations by name, in their order: a mapping of `_equations`."""

    def __getitem__(self, name):
        return self._equations[name]

    def __iter__(self):
        return iter(self._equations)

    def __len__(self):
        return len(self._equations)


class GivenSystem(EquationMapping):
    """Several known equations of the same states, which share their features.

    They are given as {name: equation}, each as to a GivenEquation.
    """

    def __init__(self, equations, variables, states, inputs=()):
        named = variables, states, inputs
        self._equations = {
            name: GivenEquation(equation, *named)
            for name, equation in equations.items()
        }
        for equation in self.values():
            equation._bind(self.values())
        first = next(iter(self.values()))
        self.variables, self.states, self.inputs = (
            first.variables,
            first.states,
            first.inputs,
        )
        self.operators, self.feature_names = first.operators, first.feature_names

    def __str__(self):
        return "\n".join(map(str, self.values()))

    def __repr__(self):
        return f"<GivenSystem {'; '.join(map(str, self.values()))}>"


def _apart(part, variables):
    """A known part with operators of one state each."""
    if all(operator.state is not None for operator in part.operators):
        return part
    operators, coefficients = [], []
    for operator, coefficient in zip(part.operators, part.coefficients, strict=True):
        if operator.state is not None:
            operators.append(operator)
            coefficients.append(coefficient)
            continue
        for state, orders, factor in operator.parts:
            operators.append(parse_operator(orders, variables, (state,)))
            coefficients.append(coefficient * factor)
    return LinearKnownPart(operators, coefficients)

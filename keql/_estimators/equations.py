"""The equations that an estimator learns, from what a user says of them."""

from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from keql._estimators.base import StrOptions, at_least
from keql._evolution.form import time_axis
from keql._numerics.arguments import naming, refuse_odd_numbers
from keql._observations.data import (
    evaluate_forcing,
    forcing_functions,
    inside_of,
    place_collocation,
)
from keql._observations.imposed import Imposed, join_places
from keql.equation import (
    EquationSetup,
    EquationTerms,
    bind_known_parts,
    make_known_part,
)
from keql.operators import (
    DifferentialOperator,
    extend_operators,
    parse_operator,
    position_of,
)


class Equation(BaseEstimator):
    """One equation of a system, for the parameter `equations` of the estimators.

    Parameters that are None leave the choice to the estimator.

    Parameters
    ----------
    known_part : operator, dict or callable, default=None
        Pbar, as for :class:`keql.TwoStepKEqL`.
    operators : tuple of operators, default=None
        What the unknown part P depends on; None: P is zero, and the equation is a
        known constraint.
    collocation_points : array-like, dict or int, default=None
        Where the equation is imposed, such as the points of one side for a boundary
        law; None: where the estimator's other equations are.
    forcing : callable, array-like or dict, default=None
        Right-hand side f.
    kernel : kernel, default=None
        Kernel of P.
    n_terms : int, "auto" or None, default="auto"
        How many terms P keeps, as for :class:`keql.OneStepKEqL`.
    noise : float, default=None
        Standard deviation of the equation's residual, in units of its forcing.

    Examples
    --------
    >>> from keql import Equation, OneStepKEqL
    >>> from keql.kernels import Polynomial
    >>> model = OneStepKEqL(
    ...     states=("prey", "predator"),
    ...     equations=[
    ...         ("prey", Equation("prey_t", ("prey",), kernel=Polynomial(2))),
    ...         ("predator", Equation("predator_t", ("prey", "predator"))),
    ...     ],
    ... )
    >>> model.get_params()["prey__kernel__degree"]
    2
    """

    _parameter_constraints: dict = {
        "known_part": [None, str, tuple, list, dict, callable, DifferentialOperator],
        "operators": [None, str, tuple, list],
        "collocation_points": [None, at_least(1), "array-like", dict],
        "forcing": [None, callable, "array-like", dict],
        "n_terms": [None, StrOptions({"auto"}), at_least(1)],
        "noise": [None, at_least(0, Real)],
    }

    def __init__(
        self,
        known_part: Any = None,
        operators: Any = None,
        collocation_points: Any = None,
        forcing: Any = None,
        kernel: Any = None,
        n_terms: Any = "auto",
        noise: float | None = None,
    ) -> None:
        self.known_part, self.operators = known_part, operators
        self.collocation_points, self.forcing = collocation_points, forcing
        self.kernel, self.n_terms, self.noise = kernel, n_terms, noise

    def _check(self, name):
        """Refuse parameters of a named equation that are not as documented."""
        try:
            refuse_odd_numbers(self.get_params(deep=False), self._parameter_constraints)
            self._validate_params()
        except (TypeError, ValueError) as error:
            raise ValueError(f"equations has {name!r}: {error}") from None
        _refuse_empty(self.operators)
        learned = self.operators is not None and self.forcing is not None
        if self.known_part is None and not learned:
            raise ValueError(
                f"equations has {name!r} with neither known_part nor forcing, or with "
                "a forcing alone: nothing would be learned. Say what its P equals, "
                "such as known_part='u_t'."
            )


@dataclass(frozen=True)
class NamedEquation:
    """An Equation and its name."""

    name: str
    given: Equation


def list_equations(model):
    """The NamedEquations of an estimator; none if it has no equation to learn.

    They are those of `equations`, or one for each entry of the tuple `known_part`, all
    with the same operators.
    """
    if model.equations is not None:
        if not model.equations:
            raise ValueError(
                "equations is empty: give pairs (name, keql.Equation), or None."
            )
        _refuse_single_parameters(model)
        for name, given in model.equations:
            given._check(name)
        return [NamedEquation(name, given) for name, given in model.equations]
    if model.operators is None and model.known_part is None and model.forcing is None:
        return []
    names = ("u",) if model.operators is None else as_tuple(model.operators)
    _refuse_empty(names)
    if model.known_part is None and model.forcing is None:
        raise ValueError(
            f"operators={names} are given with neither known_part nor forcing: "
            "P = 0 would solve the equation P = 0. Say what P equals, such as "
            "known_part='u_t'."
        )
    parts = [model.known_part]
    if is_several(model.known_part):
        parts = list(model.known_part)
    forcing = [model.forcing] * len(parts)
    if len(parts) > 1 and isinstance(model.forcing, tuple):
        forcing = list(model.forcing)
        if len(forcing) != len(parts):
            raise ValueError(
                f"forcing is a tuple of {len(forcing)}, but known_part has "
                f"{len(parts)} equations: give one for each, None for zero."
            )
    pairs = zip(parts, forcing, strict=True)
    if any(part is None and right is None for part, right in pairs):
        raise ValueError(
            f"known_part={model.known_part!r} has an entry None without a forcing: "
            "P = 0 would solve that equation. Say what each P equals, as in "
            "known_part=('u_t', 'v_t')."
        )
    given = [
        Equation(part, names, forcing=right)
        for part, right in zip(parts, forcing, strict=True)
    ]
    return [*map(NamedEquation, name_equations(parts), given)]


def named_equations(model):
    """The pairs of a name and an Equation that an estimator has in `equations`.

    What is something else is left out, so that parameters can be set before they are
    validated.
    """
    given = model.equations if isinstance(model.equations, list | tuple) else []
    pairs = [pair for pair in given if isinstance(pair, tuple) and len(pair) == 2]
    return [
        (name, equation)
        for name, equation in pairs
        if isinstance(name, str) and isinstance(equation, Equation)
    ]


def _refuse_empty(operators):
    """Refuse a tuple of no operators."""
    if operators is not None and not len(operators):
        raise ValueError(
            "operators is empty: name what the unknown part P depends on, such as "
            "('u',); where it is to be zero, leave operators out of an Equation."
        )


def is_several(known_part):
    """Whether a known part is a tuple of known parts, not a multi-index."""
    if not isinstance(known_part, tuple | list):
        return False
    return not all(isinstance(entry, Integral) for entry in known_part)


def as_tuple(operators):
    """Operators as a tuple; a string stands for a tuple of one."""
    return (operators,) if isinstance(operators, str) else tuple(operators)


def name_equations(parts):
    """A different name for each known part: as it is called, numbered if need be."""
    names = []
    for part in parts:
        name = getattr(part, "name", None) or getattr(part, "__name__", None)
        if isinstance(part, str):
            name = part
        elif isinstance(part, dict):
            name = " + ".join(str(operator) for operator in part)
        name = name or "equation"
        again = sum(other.partition(" #")[0] == name for other in names)
        names.append(f"{name} #{again + 1}" if again else name)
    return names


def _refuse_single_parameters(model):
    """Refuse parameters that describe a single equation beside `equations`."""
    single = "operators", "known_part", "forcing", "equation_kernel", "equation_noise"
    given = [name for name in single if getattr(model, name, None) is not None]
    if getattr(model, "n_terms", "auto") != "auto":
        given.append("n_terms")
    if given:
        raise ValueError(
            f"{given[0]} is given beside equations: say it of each Equation there."
        )
    pairs, parameters = named_equations(model), model.get_params(deep=False)
    if len(pairs) < len(model.equations):
        raise ValueError(
            f"equations={model.equations!r} must be a list of pairs (name, "
            "keql.Equation)."
        )
    names = [name for name, _ in pairs]
    wrong = [name for name in names if "__" in name or name in parameters]
    if len(set(names)) < len(names) or wrong:
        raise ValueError(
            f"equations has the names {', '.join(names)}: they must differ from each "
            "other and from the estimator's parameters, and have no '__'."
        )


def describe_equations(model, named, observations, variables, inputs):
    """The EquationSetup of NamedEquations; None if there are none."""
    if not named:
        return None
    parse = _Parser(variables, observations.states, inputs.names)
    operators, own = [], []
    for each in named:
        asked = each.given.operators
        asked = [] if asked is None else [parse(name) for name in as_tuple(asked)]
        operators = extend_operators(operators, asked)
        own.append(asked)
    parts = [parse.known_part(each.given.known_part) for each in named]
    _refuse_mixed(operators, parts)
    coordinates = (*variables, *inputs.names)
    every = bind_known_parts(parts, coordinates, operators)
    terms = []
    for each, asked, part in zip(named, own, parts, strict=True):
        depends = (position_of(operator, operators) for operator in asked)
        depends = tuple(dict.fromkeys(depends))  # one that is named twice is one
        depends = None if each.given.operators is None else depends
        forced = each.given.forcing is not None
        terms.append(EquationTerms(each.name, part, depends, forced))
    places = _Places(model, named, observations, variables)
    rows = [
        Imposed.system(points, inputs.at(m, points), places.rows[m])
        for m, points in enumerate(places.points)
    ]
    return EquationSetup(
        tuple(terms),
        every,
        len(operators),
        places.points,
        rows,
        places.forcing,
        places.functions_of_points,
        inputs,
        places.points,
    )


def where_observed(setup, observations, d):
    """The setup without collocation points far beyond the data in time.

    The state of an equation of evolution is unknown there, and follows from it: such
    points say nothing of the equation, but misguide what is learned from the states
    that are found first. With a single coordinate these are points on both sides.
    """
    axis = 0 if d == 1 else time_axis(setup, d, observations.periods)
    if axis is None:
        return setup
    masks = [
        inside_of(data.points, placed, axis, both_sides=d == 1)
        for data, placed in zip(
            observations.functions, setup.collocation_points, strict=True
        )
    ]
    return setup if all(mask.all() for mask in masks) else setup.select(masks)


@dataclass(frozen=True)
class _Parser:
    """Reads operators and known parts in named coordinates, states and inputs."""

    variables: tuple
    states: tuple
    inputs: tuple = field(default=())

    def __call__(self, name):
        with naming("operators"):
            known = (*self.inputs, *self.variables)
            if name in known and name not in self.states:
                raise ValueError(
                    f"{name!r} is the name of an input or a coordinate, on which "
                    "equations may depend anyway: leave it out."
                )
            return parse_operator(name, self.variables, self.states)

    def known_part(self, given):
        with naming("known_part"):
            return make_known_part(given, self.variables, self.states, self.inputs)


def _refuse_mixed(operators, parts):
    """Refuse operators of several states among the features."""
    for operator in [*operators, *(L for part in parts for L in part.operators)]:
        if operator.state is None:
            raise ValueError(
                f"the operator {operator.name!r} has several states: give that of each "
                "state, and their combination as a known part {operator: coefficient}."
            )


class _Places:
    """Where equations are imposed, and their right-hand sides there.

    points : list of ndarray of shape (K_m, d). Of each function.
    rows : list of list of ndarray. For each function and equation, positions of points.
    forcing : list of ndarray of shape (R_m,). Those of all equations, in this order.
    functions_of_points : list of tuple. The same as functions, for each equation.
    """

    def __init__(self, model, named, observations, variables):
        self.labels, self.functions = observations.labels, observations.functions
        self.variables, self.n_equations = variables, len(named)
        shared = {}
        placed, forcing, functions = [], [], []
        for each in named:
            given = each.given.collocation_points
            if given is None:
                given = model.collocation_points
            if id(given) not in shared:
                shared[id(given)] = self._place(given)
            points = shared[id(given)]
            at_points = given is not None and not isinstance(given, Integral)
            right = each.given.forcing, self.labels, points, at_points
            placed.append(points)
            forcing.append(evaluate_forcing(*right))
            functions.append(forcing_functions(*right[:3]))
        joined = {}  # functions with one array of points share what is made of it
        for own in zip(*placed, strict=True):
            joined.setdefault(tuple(map(id, own)), join_places(own))
        together = [joined[tuple(map(id, own))] for own in zip(*placed, strict=True)]
        self.points = [points for points, _ in together]
        self.rows = [rows for _, rows in together]
        self.forcing = [np.concatenate(own) for own in zip(*forcing, strict=True)]
        self.functions_of_points = [*zip(*functions, strict=True)]

    def _place(self, given):
        places = self.labels, self.functions, self.variables, self.n_equations
        return place_collocation(given, *places)

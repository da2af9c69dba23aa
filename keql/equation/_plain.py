"""Equations as numbers, texts, lists and dicts, of which JSON is made, and back."""

from dataclasses import fields
from functools import partial
from numbers import Integral, Real

import numpy as np

import keql.kernels as kernels
from keql._numerics.arguments import as_numbers, check_flag
from keql._numerics.elementary import Elementary
from keql._observations.units import Units
from keql.equation._basis import (
    InducingBasis,
    NoUnknownPart,
    PolynomialBasis,
    WeightPosterior,
)
from keql.equation._known import LinearKnownPart, bind_known_part
from keql.operators import DifferentialOperator

EQUATION, SYSTEM = "keql equation, version 1", "keql system, version 1"


def equation_to_plain(equation, with_features=True):
    """A LearnedEquation as plain values; its training features only if asked."""
    if not isinstance(equation.known_part, LinearKnownPart):
        raise ValueError(
            f"the known part of {equation} is a function, which is no data: give it as "
            "{operator: coefficient}, or save the model with pickle."
        )
    original = None
    if equation.original is not None:
        original = equation_to_plain(equation.original, with_features=False)
    posterior = equation.posterior
    return {
        "format": EQUATION,
        "variables": list(equation.variables),
        "states": list(equation.states),
        "inputs": list(equation.inputs),
        "operators": [_operator_to_plain(L) for L in equation.operators],
        "n_operators": equation.n_operators,
        "known_part": {
            "operators": [_operator_to_plain(L) for L in equation.known_part.operators],
            "coefficients": equation.known_part.coefficients.tolist(),
        },
        "has_forcing": bool(equation.has_forcing),
        "equation_kernel": to_plain(equation.equation_kernel),
        "inducing_points": to_plain(getattr(equation.basis, "points", None)),
        "weights": to_plain(equation.weights),
        "posterior": None
        if posterior is None
        else to_plain([posterior.weights, posterior.factor, posterior.loss]),
        "state_kernel": to_plain(equation.state_kernel),
        "training_features": to_plain(equation.training_features)
        if with_features
        else None,
        "original": original,
        "in_doubt": bool(equation.in_doubt),
        "units": None if equation.units is None else equation.units.given,
    }


def equation_from_plain(make, plain, features=None):
    """The equation of plain values, which `make` makes of its parameters.

    The training `features` are those of the values themselves, if they have some.
    """
    check_format(plain, EQUATION)
    entry = _Entries(plain)
    entries = {name: entry(name, _names) for name in ("variables", "states", "inputs")}
    operators = entry("operators", _operators)
    known_part = entry("known_part", _known_part)
    coordinates = [*entries["variables"], *entries["inputs"]]
    bind_known_part(known_part, coordinates, operators)
    kernel = entry("equation_kernel", _kernel)
    points = entry("inducing_points", partial(_numbers, ndim=2))
    width = len(coordinates) + len(operators)
    own = entry("training_features", partial(_rows_of, width=width))
    weights = entry("weights", partial(_numbers, ndim=1))
    basis = entry("inducing_points", lambda _: _basis(kernel, points))
    equation = make(
        operators=operators,
        n_operators=entry("n_operators", partial(_whole, most=len(operators))),
        known_part=known_part,
        basis=basis,
        weights=weights,
        state_kernel=entry("state_kernel", _kernel),
        training_features=features if own is None else own,
        has_forcing=entry("has_forcing", _flag),
        posterior=entry("posterior", partial(_posterior, p=np.size(weights))),
        **entries,
    )
    entry("weights", partial(_fit, basis=basis, n=equation.n_unknown_features))
    originally = partial(_original, make=make, features=features)
    original = entry("original", originally)
    if original is not None:
        equation.original = original
    equation.in_doubt = entry("in_doubt", _flag)
    equation.units = entry("units", _units)
    return equation


def _original(given, make, features):
    return None if given is None else equation_from_plain(make, given, features)


class _Entries:
    """Reads entries of plain values, whose names errors tell."""

    def __init__(self, plain):
        self.plain = plain

    def __call__(self, name, read):
        """What `read` makes of the entry."""
        try:
            return read(self.plain[name])
        except (
            LookupError,
            TypeError,
            ValueError,
            ArithmeticError,
            RecursionError,
        ) as error:
            raise ValueError(
                f"the entry {name!r} of the values is none that to_dict gives: {error}"
            ) from error


def _names(given):
    if not isinstance(given, list | tuple) or not all(
        isinstance(name, str) and name.isidentifier() for name in given
    ):
        raise TypeError("a list of names is expected.")
    return given


def _operators(given):
    return [_operator_from_plain(each) for each in _listed(given)]


def _known_part(given):
    operators = _operators(given["operators"])
    coefficients = as_numbers(given["coefficients"], "coefficients", ndim=1)
    if len(coefficients) != len(operators):
        raise ValueError("there is not one coefficient for each operator.")
    return LinearKnownPart(operators, given["coefficients"])


def _listed(given):
    if not isinstance(given, list | tuple):
        raise TypeError("a list is expected.")
    return given


def _kernel(given):
    kernel = from_plain(given)
    if kernel is None or isinstance(kernel, kernels.Kernel | kernels.SystemKernel):
        return kernel
    raise TypeError("a kernel is expected.")


def _numbers(given, ndim):
    """An array of numbers, or None."""
    given = from_plain(given)
    return None if given is None else as_numbers(given, "it", ndim)


def _rows_of(given, width):
    """Rows of numbers of a known length, or None."""
    rows = _numbers(given, ndim=2)
    if rows is not None and rows.shape[1] != width:
        raise ValueError(
            f"it has {rows.shape[1]} column(s), where variables, inputs and "
            f"n_operators say {width}."
        )
    return rows


def _whole(given, most):
    is_number = isinstance(given, Integral) and not isinstance(given, bool)
    if not is_number or not 0 <= given <= most:
        raise TypeError(f"a whole number from 0 to {most} is expected.")
    return int(given)


def _flag(given):
    check_flag(given, "it")
    return bool(given)


def _posterior(given, p):
    """That of `p` weights, or None."""
    if given is None:
        return None
    weights, factor, loss = from_plain(_listed(given))
    weights = as_numbers(weights, "it", ndim=1)
    factor = as_numbers(factor, "it", ndim=2)
    if len(weights) != p or factor.shape != (p, p) or not isinstance(loss, Real):
        raise ValueError("it is not of as many weights as the equation has.")
    return WeightPosterior(weights, factor, loss)


def _units(given):
    if given is not None and not isinstance(given, dict):
        raise TypeError("a dict is expected.")
    return None if given is None else Units(given)


def _fit(given, basis, n):
    """Refuse weights that are not those of the features of a basis of n columns."""
    weights = from_plain(given)
    try:
        features = basis(np.ones((1, n)))
    except ValueError as error:
        raise ValueError(
            f"variables, inputs and n_operators say that the unknown part has {n} "
            f"arguments, which equation_kernel or inducing_points do not fit: {error}"
        ) from error
    if np.shape(weights) != features.shape[1:]:
        raise ValueError(
            f"{features.shape[1]} numbers are expected, one for each feature that "
            "equation_kernel and inducing_points have."
        )


def check_format(plain, expected):
    """Refuse values that are of something else, or of another version."""
    found = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
    found = found if isinstance(found, str) else type(found).__name__
    if found != expected:
        raise ValueError(f"plain has the format {found!r}, expected is {expected!r}.")


def equations_of(plain):
    """The equations of a system, of whose values `plain` is; by name."""
    check_format(plain, SYSTEM)
    equations = plain.get("equations")
    if not isinstance(equations, dict):
        raise ValueError("the entry 'equations' must be a dict of equations.")
    return equations


def _basis(kernel, points):
    """The features of an equation kernel, of which there may be none."""
    if kernel is None:
        return NoUnknownPart()
    return PolynomialBasis(kernel) if points is None else InducingBasis(kernel, points)


def _operator_to_plain(operator):
    terms = [[list(a), float(value)] for a, value in operator.terms]
    return {"name": operator.name, "states": list(operator.states), "terms": terms}


def _operator_from_plain(plain):
    terms = tuple((tuple(a), float(value)) for a, value in plain["terms"])
    return DifferentialOperator(terms, plain["name"], tuple(plain["states"]))


def to_plain(value):
    """A value of a kernel's parameter as plain values; kernels by name."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    if isinstance(value, tuple):
        return {"tuple": [to_plain(each) for each in value]}
    if isinstance(value, kernels.SystemKernel):
        own = {name: to_plain(kernel) for name, kernel in value.kernels.items()}
        return {"kernels": own}
    if isinstance(value, Elementary):
        own = {each.name: getattr(value, each.name) for each in fields(value)}
        return {"function": {name: to_plain(each) for name, each in own.items()}}
    if isinstance(value, dict):
        return {"named": {name: to_plain(each) for name, each in value.items()}}
    name = type(value).__name__
    if getattr(kernels, name, None) is type(value):
        own = value.get_params(deep=False)
        own = {key: to_plain(each) for key, each in own.items()}
        return {"kernel": name, "parameters": own}
    raise ValueError(
        f"{value!r} is a function or a class of your own, which is no data: save the "
        "model with pickle."
    )


def from_plain(plain):
    """The value that :func:`to_plain` was given."""
    if isinstance(plain, list):
        return [from_plain(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    if "array" in plain:
        return np.array(plain["array"])
    if "tuple" in plain:
        return tuple(from_plain(each) for each in plain["tuple"])
    if "kernels" in plain:
        own = plain["kernels"].items()
        return kernels.SystemKernel({name: from_plain(kernel) for name, kernel in own})
    if "function" in plain:
        own = plain["function"].items()
        return Elementary(**{name: from_plain(each) for name, each in own})
    if "named" in plain:
        return {name: from_plain(each) for name, each in plain["named"].items()}
    kind = getattr(kernels, str(plain.get("kernel")), None)
    if not (isinstance(kind, type) and issubclass(kind, kernels.Kernel)):
        raise ValueError(
            f"the values name the kernel {plain.get('kernel')!r}: unknown."
        )
    return kind(**{key: from_plain(each) for key, each in plain["parameters"].items()})

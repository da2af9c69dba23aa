"""Equations as numbers, texts, lists and dicts, of which JSON is made, and back."""

from dataclasses import fields

import numpy as np

import keql.kernels as kernels
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
    if plain["training_features"] is not None:
        features = from_plain(plain["training_features"])
    operators = [_operator_from_plain(each) for each in plain["operators"]]
    known = plain["known_part"]
    known_part = LinearKnownPart(
        [_operator_from_plain(each) for each in known["operators"]],
        known["coefficients"],
    )
    bind_known_part(known_part, [*plain["variables"], *plain["inputs"]], operators)
    kernel, points = (
        from_plain(plain[key]) for key in ("equation_kernel", "inducing_points")
    )
    posterior = plain["posterior"]
    equation = make(
        variables=plain["variables"],
        operators=operators,
        n_operators=plain["n_operators"],
        known_part=known_part,
        basis=_basis(kernel, points),
        weights=from_plain(plain["weights"]),
        state_kernel=from_plain(plain["state_kernel"]),
        training_features=features,
        has_forcing=plain["has_forcing"],
        posterior=None
        if posterior is None
        else WeightPosterior(*from_plain(posterior)),
        states=plain["states"],
        inputs=plain["inputs"],
    )
    if plain["original"] is not None:
        equation.original = equation_from_plain(make, plain["original"], features)
    equation.in_doubt = plain["in_doubt"]
    equation.units = None if plain["units"] is None else Units(plain["units"])
    return equation


def check_format(plain, expected):
    """Refuse values that are of something else, or of another version."""
    found = plain.get("format") if isinstance(plain, dict) else type(plain).__name__
    if found != expected:
        raise ValueError(f"the values are of {found!r}, expected is {expected!r}.")


def _basis(kernel, points):
    """The features of an equation kernel, of which there may be none."""
    if kernel is None:
        return NoUnknownPart()
    return PolynomialBasis(kernel) if points is None else InducingBasis(kernel, points)


def _operator_to_plain(operator):
    terms = [[list(a), float(value)] for a, value in operator.terms]
    return {"name": operator.name, "states": list(operator.states), "terms": terms}


def _operator_from_plain(plain):
    terms = tuple((tuple(a), value) for a, value in plain["terms"])
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

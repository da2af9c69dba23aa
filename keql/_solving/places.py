"""Where a solver imposes equations, and their right-hand sides there."""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral

import numpy as np

from keql._observations.data import evaluate_forcing, place_collocation
from keql._observations.imposed import Imposed, join_places
from keql._solving.conditions import default_points
from keql._solving.problem import by_name
from keql._solving.well_posed import check_near


def by_equation(given, names, parameter):
    """The entry of each of several equations in a parameter, a list.

    `given` may be a tuple, in the order of the `names` of the equations, or a dict of
    some of these; of a single equation, and for all of them, it is what it is.
    """
    if len(names) > 1 and isinstance(given, tuple):
        if len(given) != len(names):
            raise ValueError(
                f"{parameter} is a tuple of {len(given)}, but there are {len(names)} "
                f"equations, {', '.join(names)}: give an entry for each, or a dict."
            )
        return list(given)
    if len(names) > 1 and isinstance(given, Mapping) and set(given) <= set(names):
        return [given.get(name) for name in names]
    return [given] * len(names)


def impose(equation, labels, conditions, collocation_points, forcing, inputs):
    """The conditions of all functions with the equations at collocation points.

    `collocation_points`, `forcing` and the Inputs `inputs` are parameters of the
    solver.
    """
    equations = by_name(equation)
    points = by_equation(collocation_points, tuple(equations), "collocation_points")
    forcing = by_equation(forcing, tuple(equations), "forcing")
    _refuse_missing_forcing(equations, forcing)
    placed, right, shared = [], [], {}
    for given, f in zip(points, forcing, strict=True):
        if id(given) not in shared:
            shared[id(given)] = _place(given, equation, labels, conditions)
        placed.append(shared[id(given)])
        right.append(evaluate_forcing(f, labels, placed[-1], not _is_default(given)))
    imposed = []
    for m, own in enumerate(conditions):
        x, rows = join_places([each[m] for each in placed])
        imposed.append(
            replace(
                own,
                points=x,
                operators=equation.operators,
                forcing=np.concatenate([f[m] for f in right]),
                rows=Imposed.system(x, inputs.at(m, x), rows),
            )
        )
        if not all(_is_default(given) for given in points):
            check_near(x, own.observed)
    return imposed


def _is_default(given):
    is_number = isinstance(given, Integral) and not isinstance(given, bool)
    return given is None or is_number


def _place(given, equation, labels, conditions):
    """The points of each function: a list of arrays (K_m, d)."""
    if _is_default(given):
        n_equations = max(1, len(by_name(equation)))
        return [default_points(conditions, given, n_equations)] * len(labels)
    return place_collocation(given, labels, None, equation.variables)


def _refuse_missing_forcing(equations, forcing):
    """Refuse to take a right-hand side for zero that was not when it was learned."""
    for (name, equation), given in zip(equations.items(), forcing, strict=True):
        if equation.has_forcing and given is None:
            whose = f" for {name!r}" if name else ""
            raise ValueError(
                f"forcing is None{whose}, but the equation was learned with a "
                "right-hand side: give the one to solve for (zero: lambda points: "
                "0 * points[:, 0])."
            )

"""Boundary and initial data of a solver: operators of the rows, checks."""

from dataclasses import dataclass

import numpy as np

from keql._observations.collocation import CollocationDefaults, low_discrepancy
from keql.operators import DifferentialOperator, parse_operator

# Values at one point that differ by more, relative to the largest, contradict.
CONFLICT = 1e-8


@dataclass(frozen=True)
class BoundaryData:
    """What `fit` was given: functionals and values of each function."""

    labels: tuple
    variables: tuple
    given: list


def name_coordinates(given, learned, columns, n):
    """Names of the `n` coordinates: those given, an equation's, or those of columns."""
    names = given
    if names is None:
        names = learned or columns or [f"x{i}" for i in range(n)]
    names = tuple(str(name) for name in names)
    if len(names) != n or len(set(names)) != n:
        raise ValueError(
            f"variables={names} must be {n} different name(s): X has {n} coordinate "
            "column(s)."
        )
    for found, whose in ((learned, "the equation has"), (columns, "X has")):
        if found and set(found) == set(names) and tuple(found) != names:
            raise ValueError(
                f"the variables are {', '.join(names)} in this order, but {whose} them "
                f"in the order {', '.join(found)}: bring them into one order."
            )
    return names


def operators_of_rows(boundary_operators, entries, variables, named):
    """The operator whose value each row holds.

    Parameters
    ----------
    boundary_operators : None, operator, or list of operators
        As documented for the solver.
    entries : list
        Of the operator column; None without one.
    variables : tuple of str
        Names of the coordinates.
    named : bool
        Whether there is an operator column.

    Returns
    -------
    operators : list of DifferentialOperator
        The different ones.
    index : ndarray of shape (n,)
        Which of them a row belongs to.
    """
    given = boundary_operators
    if given is None or isinstance(given, str | DifferentialOperator):
        given = ["u" if given is None else given]
    operators = [parse_operator(operator, variables) for operator in given]
    if not named:
        if len(operators) > 1:
            raise ValueError(
                f"boundary_operators has {len(operators)} operators: name the column "
                "of X that says which one a row belongs to, operator_column."
            )
        return operators, np.zeros(len(entries), dtype=int)
    index = np.empty(len(entries), dtype=int)
    for i, entry in enumerate(entries):
        if isinstance(entry, str):
            operator = parse_operator(entry, variables)
            same = [j for j, other in enumerate(operators) if operator.same_as(other)]
            if not same:
                same = [len(operators)]
                operators.append(operator)
            index[i] = same[0]
        elif entry == int(entry) and 0 <= entry < len(operators):
            index[i] = int(entry)
        else:
            raise ValueError(
                f"X has the entry {entry!r} in its operator column: it must be the "
                "name of an operator or its position in boundary_operators, from 0 to "
                f"{len(operators) - 1}."
            )
    return operators, index


def make_conditions(points, values, index, operators, exact):
    """Conditions on one function, each point and operator once if they are exact.

    Parameters
    ----------
    points : ndarray of shape (n, d)
        Of the rows of one function.
    values : ndarray of shape (n,)
        Their values.
    index : ndarray of shape (n,)
        Which operator they are values of.
    operators : list of DifferentialOperator
        The operators.
    exact : bool
        Whether different values at one point contradict each other.

    Returns
    -------
    functionals : list of (points, operator)
        One entry for each operator that occurs.
    values : ndarray of shape (N,)
        In their order.
    """
    functionals, kept = [], []
    for j in np.unique(index):
        at, held = points[index == j], values[index == j]
        order = np.lexsort(np.column_stack([held, at]).T)
        at, held = at[order], held[order]
        if exact:
            at, held = _merge_equal(at, held, operators[j])
        functionals.append((at, operators[j]))
        kept.append(held)
    return functionals, np.concatenate(kept)


def _merge_equal(points, values, operator):
    """Sorted points once each, with the middle of their values."""
    begins = np.r_[True, np.any(points[1:] != points[:-1], axis=1)]
    if begins.all():
        return points, values
    first = np.flatnonzero(begins)
    lowest = np.minimum.reduceat(values, first)
    spread = np.maximum.reduceat(values, first) - lowest
    if np.any(spread > CONFLICT * np.max(np.abs(values))):
        i = int(np.argmax(spread))
        raise ValueError(
            f"y has conflicting values of {operator.name} at the point "
            f"{points[first[i]]} of X, from {lowest[i]:g} to "
            f"{lowest[i] + spread[i]:g}: correct them, or give observation_noise, "
            "their standard deviation."
        )
    return points[first], lowest + 0.5 * spread


def box_of(points, functionals):
    """Lower and upper corner of all points of one function, of shape (2, d)."""
    everything = np.concatenate([points, *(at for at, _ in functionals)])
    return np.array([everything.min(axis=0), everything.max(axis=0)])


def default_points(functionals_of_all, n):
    """`n` low-discrepancy points in the box of the data, which must have a volume."""
    everything = np.concatenate([at for f in functionals_of_all for at, _ in f])
    if np.any(np.ptp(everything, axis=0) == 0):
        raise ValueError(
            f"collocation_points={n} places them in the bounding box of X, but all "
            "rows of X agree in a coordinate: give an array of points."
        )
    if n is None:
        largest = max(sum(len(at) for at, _ in f) for f in functionals_of_all)
        n = CollocationDefaults().number(largest)
    return low_discrepancy(everything, n)


@dataclass(frozen=True)
class Conditions:
    """Linear conditions on one function, and the right-hand side of its equation.

    Parameters
    ----------
    functionals : list of (points, operator)
        As in :func:`keql.operators.gram`.
    values : ndarray of shape (N,)
        In their order.
    forcing : ndarray of shape (K,)
        Right-hand side of the equation at the collocation points.
    """

    functionals: list
    values: np.ndarray
    forcing: np.ndarray

    @property
    def key(self):
        """What is the same for functions with the same functionals."""
        return tuple((at.tobytes(), o.terms) for at, o in self.functionals)

    @property
    def right(self):
        """Values and forcing, of shape (N + K,)."""
        return np.concatenate([self.values, self.forcing])

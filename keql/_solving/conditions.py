"""Boundary and initial data of a solver: operators of the rows, checks."""

import numpy as np

from keql._joint.problem import Conditions
from keql._observations.data import CollocationDefaults, low_discrepancy
from keql._observations.imposed import Imposed


def observe(points, values, index, operators, noise):
    """The conditions of the sorted rows of one function, yet without an equation.

    `index` has the position of the operator of each row. If by the NoiseLevels `noise`
    its values are exact, or may be, each point occurs once, and different values
    contradict each other.
    """
    functionals, sorted_values = [], []
    for j in np.unique(index):
        x, y = points[index == j], values[index == j]
        order = np.lexsort(np.column_stack([y, x]).T)
        x, y = x[order], y[order]
        if not noise.of_operator(operators[j]):
            x, y = _merge_equal(x, y, operators[j])
        functionals.append((x, operators[j]))
        sorted_values.append(y)
    values = np.concatenate(sorted_values)
    nowhere = np.empty((0, points.shape[1]))
    no_equation = nowhere, [], np.empty(0), Imposed.everywhere(nowhere)
    return Conditions(functionals, values, np.ones(len(values)), *no_equation)


def _merge_equal(points, values, operator, tolerance=1e-8):
    """Sorted points once each, with the middle of their values.

    Values that differ by more than `tolerance`, relative to the largest, contradict.
    """
    begins = np.r_[True, np.any(points[1:] != points[:-1], axis=1)]
    if begins.all():
        return points, values
    first = np.flatnonzero(begins)
    lowest = np.minimum.reduceat(values, first)
    spread = np.maximum.reduceat(values, first) - lowest
    if np.any(spread > tolerance * np.max(np.abs(values))):
        i = int(np.argmax(spread))
        raise ValueError(
            f"y has conflicting values of {operator.name} at the point "
            f"{points[first[i]]} of X, from {lowest[i]:g} to "
            f"{lowest[i] + spread[i]:g}: correct them, or give observation_noise, "
            "their standard deviation."
        )
    return points[first], lowest + 0.5 * spread


def box_of(conditions):
    """Lower and upper corner of all points of one function, of shape (2, d)."""
    x = np.concatenate([conditions.points, *(x for x, _ in conditions.observed)])
    return np.array([x.min(axis=0), x.max(axis=0)])


def default_points(conditions, n, n_equations=1):
    """`n` low-discrepancy points in the box of the data, which must have a volume.

    None for `n` stands for a multiple of the largest number of data of one function,
    shared by the equations.
    """
    everything = np.concatenate([x for given in conditions for x, _ in given.observed])
    if np.any(np.ptp(everything, axis=0) == 0):
        raise ValueError(
            f"collocation_points={n} places them in the bounding box of X, but all "
            "rows of X agree in a coordinate: give an array of points."
        )
    if n is None:
        largest = max(len(given.values) for given in conditions)
        n = CollocationDefaults().number(largest, n_equations=n_equations)
    return low_discrepancy(everything, n)

"""Operators applied to functions that a user has written."""

from typing import Any

import autograd.numpy as anp
import numpy as np

from keql._numerics.arguments import as_rows, in_short, naming
from keql._numerics.autodiff import differentiate
from keql.operators._differential import DifferentialOperator


def apply_operator(
    function: Any, points: Any, operator: Any, states: Any = ("u",)
) -> np.ndarray:
    """Values of an operator applied to a function written in `autograd.numpy`.

    Parameters
    ----------
    function : callable
        Takes points of shape (n, d) and returns values of shape (n,), each of which
        depends on its own point only; of shape (n, S) if there are S states.
    points, operator : ndarray of shape (n, d), DifferentialOperator
        Where, and what.
    states : sequence of str, default=("u",)
        Names of the states in the order of the function's columns.

    Returns
    -------
    values : ndarray of shape (n,)
        By automatic differentiation.

    Examples
    --------
    >>> import autograd.numpy as np
    >>> from keql.operators import apply_operator, parse_operator
    >>> u_xx = parse_operator("u_xx", ("x",))
    >>> apply_operator(lambda X: X[:, 0] ** 3, np.array([[2.0]]), u_xx)
    array([12.])
    """
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"function is {in_short(function)}, which cannot be called.")
    if not isinstance(operator, DifferentialOperator):
        raise TypeError(
            f"operator is {in_short(operator)}: it must be a DifferentialOperator, as "
            "of parse_operator."
        )
    points, states = as_rows(points, "points"), tuple(states)
    total = np.zeros(len(points))
    for state, a, coefficient in operator.parts:
        if len(a) != points.shape[1]:
            raise ValueError(
                f"points has {points.shape[1]} column(s), but the operator "
                f"{operator.name!r} is of functions of {len(a)} coordinate(s)."
            )
        column = _column(function, len(points), states, state)
        with naming("function"):
            total += coefficient * differentiate(column, a, points.T)
    return total


def _column(function, n, states, state):
    """One state of a function of `n` points, as a function of their coordinates."""
    if len(states) == 1:
        shape, rows = (n,), "one value for each row of X"
    else:
        if state not in states:
            raise ValueError(
                f"the operator is applied to {state!r}, which is not one of the states "
                f"{', '.join(states)}: give the names of the function's columns."
            )
        position = states.index(state)
        shape, rows = (n, len(states)), f"a column for each of {', '.join(states)}"

    def by_coordinate(*columns):
        try:
            values = function(anp.stack(columns, axis=-1))
        except Exception as error:
            raise ValueError(
                f"function failed at {n} points: {type(error).__name__}: {error}. It "
                "must be written in autograd.numpy and take rows of coordinates."
            ) from error
        if anp.shape(values) != shape:
            raise ValueError(
                f"function: that of {n} points returned an array of shape "
                f"{anp.shape(values)}: it must return {rows}."
            )
        return values if len(states) == 1 else values[:, position]

    return by_coordinate

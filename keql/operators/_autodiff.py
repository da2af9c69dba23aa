"""Operators applied to functions that a user has written."""

import autograd.numpy as anp
import numpy as np

from keql._numerics.autodiff import differentiate


def apply_operator(function, points, operator):
    """Values of an operator applied to a function written in `autograd.numpy`.

    Parameters
    ----------
    function : callable
        Takes points of shape (n, d) and returns values of shape (n,), each of which
        depends on its own point only.
    points, operator : ndarray of shape (n, d), DifferentialOperator
        Where, and what.

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
    points = np.asarray(points, dtype=float)

    def by_coordinate(*columns):
        values = function(anp.stack(columns, axis=-1))
        if anp.shape(values) != (len(points),):
            raise ValueError(
                f"a function of {len(points)} points returned an array of shape "
                f"{anp.shape(values)}: it must return one value for each row of X."
            )
        return values

    total = np.zeros(len(points))
    for a, coefficient in operator.terms:
        total += coefficient * differentiate(by_coordinate, a, points.T)
    return total

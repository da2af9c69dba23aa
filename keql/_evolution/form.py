"""Whether an equation is one of evolution, and in which coordinate."""

import numpy as np

from keql._evolution.grid import ORDERS


def time_axis(setup, n_variables):
    """Which coordinate is the time of an equation of evolution; None for others.

    There are two coordinates; in one of them the equation is of first order, in the
    other of second.

    Parameters
    ----------
    setup : EquationSetup
        The equation.
    n_variables : int
        Number of coordinates.

    Returns
    -------
    axis : {0, 1} or None
        Its column.
    """
    if n_variables != 2 or setup.has_forcing:
        return None
    orders = [orders for operator in setup.operators for orders, _ in operator.terms]
    highest = tuple(np.max(orders, axis=0))
    return {ORDERS: 0, ORDERS[::-1]: 1}.get(highest)

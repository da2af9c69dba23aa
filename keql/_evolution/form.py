"""Whether an equation is one of evolution, and in which coordinate."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class IntegrationLimits:
    """Data for which exact states would take too long or too much memory.

    Attributes
    ----------
    observations : int
        Each step factors the covariance of all observations some 50 times.
    functions : int
        The linearised solution of each function takes about 50 MB.
    """

    observations: int = 2000
    functions: int = 12


def time_axis(setup, n_variables):
    """Which of two coordinates is the time of an evolution equation; None for others.

    The equation is of first order in time and of second order in space.
    """
    if n_variables != 2 or setup.has_forcing:
        return None
    orders = [orders for operator in setup.operators for orders, _ in operator.terms]
    return {(1, 2): 0, (2, 1): 1}.get(tuple(np.max(orders, axis=0)))


def why_not_integrated(learned, limits=None):
    """Why states cannot obey the equation exactly, as a clause; empty if they can.

    Parameters
    ----------
    learned : LearnedModel
        Observations and equation.
    limits : IntegrationLimits, default=None
        None: the default ones.
    """
    limits = limits or IntegrationLimits()
    setup, functions = learned.setup, learned.observations.functions
    n_values = sum(len(data.values) for data in functions)
    if setup.has_forcing:
        return "a forcing is given"
    if len(learned.variables) != 2:
        return "the equation does not have one coordinate of time and one of space"
    if time_axis(setup, 2) is None:
        return "the equation is not of first order in time and second in space"
    if n_values > limits.observations:
        return f"there are {n_values} observations, more than {limits.observations}"
    if len(functions) > limits.functions:
        return f"there are {len(functions)} functions, more than {limits.functions}"
    points = np.concatenate([data.points for data in functions])
    if np.any(np.ptp(points, axis=0) == 0):
        return "all observations are at one time or at one place"
    return ""

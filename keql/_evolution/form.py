"""Which equations are of evolution: a coordinate is their time."""

import numpy as np


def time_axis(setup, n_variables):
    """Which of two coordinates is the time of an evolution equation; None for others.

    The equation is of first or second order in time and of second to fourth order in
    space. One of first order in space leaves values open at one end only, where waves
    come in: with those of both ends, as a grid has them, states are worse than with the
    equation at collocation points. If it is of second order in time, the known part has
    nothing but derivatives in time, as in u_tt = u_xx, and the unknown part none of
    second order: u_xx + u_yy = f has no time.
    """
    if n_variables != 2:
        return None
    orders = np.max(_orders(setup.operators), axis=0)
    known = getattr(setup.equations[0].known_part, "operators", [])
    in_known = np.max(_orders(known), axis=0, initial=0)
    for axis in (0, 1):
        if orders[axis] == 1 and 2 <= orders[1 - axis] <= 4:
            return axis
    unknown = setup.operators[: setup.n_operators]
    in_unknown = np.max(_orders(unknown), axis=0, initial=0)
    for axis in (0, 1):
        explicit = (in_known[axis], in_known[1 - axis]) == (2, 0)
        if explicit and in_unknown[axis] < 2 and 2 <= orders[1 - axis] <= 4:
            return axis
    return None


def grows_without_bounds(learned, axis, certainty=3.0):
    """Whether an equation of second order in time is one of boundary values instead.

    The shortest waves of u_tt = c u_xx and of u_tt = -c u_xxxx grow the faster the
    shorter they are if c is negative. It is that of the linear equation which fits the
    states of a learned model best; so many of its standard errors below zero it has to
    be. Of odd orders in space, and of first order in time, nothing is said.
    """
    setup, equation = learned.setup, learned.equation
    order = order_in_space(setup, axis)
    if order_in_time(setup, axis) == 1 or order % 2:
        return False
    d, S = len(learned.variables), equation.training_features
    operators = setup.operators[: setup.n_operators]
    leading = [(0, order) if axis == 0 else (order, 0)]
    places = [i for i, o in enumerate(operators) if [a for a, _ in o.terms] == leading]
    if not places:
        return False
    A = np.column_stack([S[:, d : d + setup.n_operators], np.ones(len(S))])
    A = A / np.maximum(np.max(np.abs(A), axis=0), np.finfo(float).tiny)
    target = learned.targets[0]
    found, *_ = np.linalg.lstsq(A, target, rcond=None)
    variance = np.mean((target - A @ found) ** 2)
    spread = np.sqrt(variance * np.diag(np.linalg.pinv(A.T @ A)))
    known = equation.known_part
    second = [max(a[axis] for a, _ in o.terms) == 2 for o in known.operators]
    inertia = known.gradient(S[:1])[known.columns[second.index(True)], 0]
    factor = operators[places[0]].terms[0][1]
    # f - Pbar = -inertia c u_xx + ...
    sign = -np.sign(inertia * factor) * (-1) ** (order // 2 + 1)
    return bool(sign * found[places[0]] < -certainty * spread[places[0]])


def _orders(operators):
    """Orders (n, d) of the derivatives in operators."""
    orders = [orders for operator in operators for orders, _ in operator.terms]
    return np.reshape(orders, (-1, 2))


def order_in_time(setup, axis):
    """The highest order of a derivative in time, which is the coordinate `axis`."""
    return int(np.max(_orders(setup.operators), axis=0)[axis])


def order_in_space(setup, axis):
    """The highest order of a derivative in space, `axis` being that of time."""
    return int(np.max(_orders(setup.operators), axis=0)[1 - axis])

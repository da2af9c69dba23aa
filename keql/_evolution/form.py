"""Which equations are of evolution: a coordinate is their time."""

from dataclasses import dataclass

import numpy as np
from scipy.interpolate import BSpline

from keql._evolution.flow import flow_of
from keql._numerics.linalg import extent_of


@dataclass(frozen=True)
class IntegrationLimits:
    """Data for which exact states would take too long.

    observations : int. Of one function: each step makes a dense matrix of as many rows,
        with a column for each unknown, 0.1 GB. There may be any number of functions,
        one of which is integrated after another.
    """

    observations: int = 30000


def why_not_integrated(learned, limits=None):
    """Why states cannot obey the equations exactly, as a clause; empty if they can.

    learned : LearnedModel. Observations and equations.
    limits : IntegrationLimits, default=None. None: the default ones.
    """
    limits = limits or IntegrationLimits()
    setup, functions = learned.setup, learned.observations.functions
    n_values = max(len(data.values) for data in functions)
    if setup.is_system or len(learned.observations.states) > 1:
        why_not = _why_no_fields(learned)
    else:
        why_not = _why_no_field(learned)
    if why_not:
        return why_not
    if n_values > limits.observations:
        return (
            f"there are {n_values} observations of a function, more than "
            f"{limits.observations}"
        )
    points = np.concatenate([data.points for data in functions])
    if np.any(np.ptp(points, axis=0) == 0):
        return "all observations are at one time or at one place"
    axis = time_axis(setup, points.shape[1], learned.observations.periods)
    if grows_without_bounds(learned, axis):
        return "short waves would grow without bounds, as those of u_xx + u_yy = 0 do"
    return ""


def _why_no_field(learned):
    """The same of what a single equation of a single state is made of."""
    setup = learned.setup
    if setup.equations[0].depends_on is None:
        return "the equation has no unknown part"
    if len(setup.rows[0].coordinates) < len(setup.collocation_points[0]):
        return "the equation is not imposed everywhere"
    if not _has_forcing_everywhere(setup):
        return "the forcing is known at the collocation points only"
    d = len(learned.variables)
    if d not in (2, 3):
        return "the equation does not have a coordinate of time and one or two of space"
    axis = time_axis(setup, d, learned.observations.periods)
    if axis is None:
        return (
            "the equation is not of order 1 in time and 1 to 4 in space, of order 2 in "
            "time and 2 to 4 in space, or of any order on rings"
        )
    if not learned.observations.of_state(learned.observations.states[0]):
        return "no values of the state were observed"
    highest = order_in_time(setup, axis)
    for operator in learned.observations.operators:
        if max(orders[axis] for orders, _ in operator.terms) >= highest:
            return f"values of {operator.name} were observed"
    return ""


def _why_no_fields(learned):
    """The same of several equations of several states."""
    setup, observations = learned.setup, learned.observations
    states, n_equations = observations.states, len(setup.equations)
    if n_equations != len(states):
        return "there are not as many equations as states"
    named = [operator.name in states for operator in observations.operators]
    if not all(named):
        return "there are values of other operators than the states"
    if len({*observations.operators}) < len(states):
        return "a state is never observed, whose boundary values are free then"
    if len(setup.rows[0].coordinates) < n_equations * len(setup.collocation_points[0]):
        return "an equation is not imposed everywhere"
    if not _has_forcing_everywhere(setup):
        return "a forcing is known at the collocation points only"
    if len(learned.variables) != 2:
        return "the equations do not have one coordinate of time and one of space"
    if time_axis(setup, 2, observations.periods) is None:
        return (
            "the equations are not one for the first time derivative of each state, of "
            "order 0 or 2 to 4 in space, or one for the second, of order 0 or 2, or of "
            "any order on a ring"
        )
    return ""


def _has_forcing_everywhere(setup):
    """Whether right-hand sides that are given are known as functions of points."""
    pairs = zip(*setup.forcing_functions, strict=True)
    return all(
        f is not None
        for terms, given in zip(setup.equations, pairs, strict=True)
        if terms.has_forcing
        for f in given
    )


def time_axis(setup, n_variables, periods=None):
    """Which coordinate is the time of evolution equations; None for others.

    Of several equations each is solved for the highest time derivative of another
    state, all of one order. An equation is of first order in time and of first to
    fourth order in space, or of second order in time and of second to fourth in space.
    In the second case the known part has nothing but derivatives in time, as in u_tt =
    u_xx, and the unknown part none of second order: u_xx + u_yy = f has no time. One or
    two coordinates are those of space, of which several equations have one.

    A ring leaves no values open, so that the order in space may be any: `periods` has
    the length of each coordinate that is one, and infinity for others (None: none is).
    Time is no ring.
    """
    d = n_variables
    if d not in (2, 3) or (d == 3 and setup.is_system):
        return None
    is_ring = np.isfinite(np.broadcast_to(np.inf if periods is None else periods, d))
    axes = [axis for axis in range(d) if not is_ring[axis]]
    if setup.is_system:
        found = (i for i in axes if _are_of_evolution(setup, i, is_ring[1 - i]))
        return next(found, None)
    orders = np.max(_orders(setup.operators, d), axis=0)
    known = getattr(setup.equations[0].known_part, "operators", [])
    unknown = setup.operators[: setup.n_operators]
    in_known, in_unknown = (
        np.max(_orders(those, d), axis=0, initial=0) for those in (known, unknown)
    )
    axes.sort(key=lambda axis: in_known[axis] == 0)  # any may be of first order
    for axis in axes:
        space = np.delete(np.arange(d), axis)
        if orders[axis] == 1 and _is_solved_for(orders[space], is_ring[space]):
            return axis
    for axis in axes:
        space = np.delete(np.arange(d), axis)
        explicit = in_known[axis] == 2 and not np.any(in_known[space])
        allowed = np.max(orders[space]) > 1
        allowed = allowed and _is_solved_for(orders[space], is_ring[space])
        if explicit and in_unknown[axis] < 2 and allowed:
            return axis
    return None


def _is_solved_for(orders, on_rings):
    """Whether equations of such orders in the coordinates of space are integrated.

    Orders of mixed derivatives are below those of others.
    """
    orders, on_rings = np.atleast_1d(orders, on_rings)
    return bool(np.max(orders) >= 1 and np.all((orders <= 4) | on_rings))


def _are_of_evolution(setup, axis, on_ring):
    """Whether a coordinate is the time of several equations, of one order in it.

    Each is solved for the highest derivative in time of another state. States of first
    order in space are left out but on a ring: which waves come in at an end is not told
    by the sign of one speed. So are those of third and fourth order if they are of
    second in time, as nothing damps the rounding errors of such derivatives between
    ends: steps for a beam beside a wave, exactly seen, did not converge.
    """
    highest_in_time = order_in_time(setup, axis)
    evolving = []
    for terms in setup.equations:
        known = getattr(terms.known_part, "operators", [])
        parts = [(s, orders) for L in known for s, orders, _ in L.parts]
        if highest_in_time == 2 and any(orders[1 - axis] for _, orders in parts):
            return False
        evolving += [s for s, orders in parts if orders[axis] == highest_in_time]
    unknown = setup.operators[: setup.n_operators]
    in_unknown = np.max(_orders(unknown, 2)[:, axis], initial=0)
    if highest_in_time not in (1, 2) or in_unknown >= highest_in_time:
        return False
    if not len({*evolving}) == len(evolving) == len(setup.equations):
        return False
    orders = [order_in_space(setup, axis, state) for state in evolving]
    allowed = {0, 2, 3, 4} if highest_in_time == 1 else {0, 2}
    is_allowed = on_ring or {*orders} <= allowed
    return is_allowed and _is_solved_for(max(orders, default=0), on_ring)


def grows_without_bounds(learned, axis, certainty=3.0):
    """Whether equations of second order in time are of boundary values instead.

    The shortest waves of u_tt = c u_xx and of u_tt = -c u_xxxx grow the faster the
    shorter they are if c is negative. It is that of the linear equation which fits the
    states of a learned model best; so many of its standard errors below zero it has to
    be. Of odd orders in space, and of first order in time, nothing is said.
    """
    if order_in_time(learned.setup, axis) == 1:
        return False
    equations = zip(learned.equations, learned.targets, strict=True)
    return any(_grows(learned, axis, *own, certainty) for own in equations)


def _grows(learned, axis, equation, target, certainty):
    """The same of one equation and the state whose second derivative it has."""
    setup, d, S = learned.setup, len(learned.variables), equation.training_features
    known, operators = equation.known_part, setup.operators[: setup.n_operators]
    parts = [(i, *part) for i, o in enumerate(known.operators) for part in o.parts]
    second, state = next((i, s) for i, s, a, _ in parts if a[axis] == 2)
    order = order_in_space(setup, axis, state)
    leading = [
        [(state, tuple(order * (i == k) for k in range(d)))]
        for i in range(d)
        if i != axis
    ]
    places = [
        i
        for i, o in enumerate(operators)
        if [(name, orders) for name, orders, _ in o.parts] in leading
    ]
    if order % 2 or not places:
        return False
    first = d + len(setup.inputs.names)
    A = np.column_stack([S[:, first : first + setup.n_operators], np.ones(len(S))])
    A = A / np.maximum(np.max(np.abs(A), axis=0), np.finfo(float).tiny)
    found, *_ = np.linalg.lstsq(A, target, rcond=None)
    variance = np.mean((target - A @ found) ** 2)
    spread = np.sqrt(variance * np.diag(np.linalg.pinv(A.T @ A)))
    inertia = known.gradient(S[:1])[known.columns[second], 0]
    factors = np.array([operators[i].parts[0][2] for i in places])
    # f - Pbar = -inertia c u_xx + ...
    signs = -np.sign(inertia * factors) * (-1) ** (order // 2 + 1)
    return bool(np.any(signs * found[places] < -certainty * spread[places]))


def _orders(operators, d):
    """Orders (n, d) of the derivatives in operators."""
    orders = [orders for operator in operators for orders, _ in operator.terms]
    return np.reshape(orders, (-1, d))


def order_in_time(setup, axis):
    """The highest order of a derivative in time, which is the coordinate `axis`."""
    return order_along(setup, axis)


def count_initial_values(setup, observations):
    """How many numbers, at least, the solutions of all functions have.

    In time they are the initial values, by the orders of the operators. In several
    coordinates a solution has one number at least for each state that operators have.
    """
    single = observations.functions[0].points.shape[1] == 1
    orders = [order_along(setup, 0, state) for state in observations.states]
    if not single:
        named = {name for operator in setup.operators for name, *_ in operator.parts}
        orders = [int(state in named) for state in observations.states]
    return len(observations.functions) * sum(orders)


def order_along(setup, i, state=None):
    """The highest order of a derivative in a coordinate.

    Of one state if it is named.
    """
    parts = [part for operator in setup.operators for part in operator.parts]
    return max(
        (int(orders[i]) for name, orders, _ in parts if state in (None, name)),
        default=0,
    )


def order_in_space(setup, axis, state=None):
    """The highest order of a derivative in a coordinate of space, `axis` being time.

    Of one state if it is named.
    """
    d = len(setup.operators[0].terms[0][0])
    space = np.delete(np.arange(d), axis)
    return max(order_along(setup, i, state) for i in space)


def are_semilinear(learned, products):
    """Which products of features have no highest derivative in space as a factor.

    But for such a derivative alone. `products` (q, c) are powers of the features that
    an unknown part of the LearnedModel depends on; an array of shape (q,) of bool.
    """
    setup, n = learned.setup, learned.setup.n_operators
    axis = time_axis(setup, len(learned.variables), learned.observations.periods)
    highest = [
        any(
            0 < orders[1 - axis] == order_in_space(setup, axis, name)
            for name, orders, _ in operator.parts
        )
        for operator in setup.operators[:n]
    ]
    powers = np.sum(products[:, products.shape[1] - n :][:, highest], axis=1)
    return (powers == 0) | (np.sum(products, axis=1) == 1)


def diffusion_in(learned, e, products):
    """Coefficients (q,) of the products with which the state of an equation diffuses.

    By u_t = k u_xx, or u_t = -k u_xxxx, of its highest derivative of even order that is
    one of the products: zero without any, or if no single state evolves by it. A wave
    as long as the extent of the points decays by a factor of e in their duration.

    learned : LearnedModel. Fields in time and one space dimension.
    e, products : int, ndarray of shape (q, c). The equation, and powers of the features
        that its unknown part depends on.
    """
    setup, n = learned.setup, learned.setup.n_operators
    axis = time_axis(setup, len(learned.variables), learned.observations.periods)
    evolving = [
        (name, coefficient)
        for operator in getattr(setup.equations[e].known_part, "operators", [])
        for name, orders, coefficient in operator.parts
        if orders[axis]
    ]
    found, highest = np.zeros(len(products)), 0
    if len(evolving) != 1:
        return found
    [(state, unit)] = evolving
    points = np.concatenate([data.points for data in learned.observations.functions])
    duration, length = extent_of(points)[[axis, 1 - axis]]
    alone = np.sum(products, axis=1) == 1
    for q, operator in enumerate(setup.operators[:n]):
        (name, orders, coefficient), *others = operator.parts
        order = orders[1 - axis]
        is_own = alone & (products[:, products.shape[1] - n + q] == 1)
        if others or name != state or order % 2 or order <= highest or not any(is_own):
            continue
        rate = (length / (2 * np.pi)) ** order / duration ** order_in_time(setup, axis)
        scale = unit / coefficient
        found, highest = (-1) ** (order // 2) * rate * scale * is_own, order
    return found


def why_no_trajectories(learned):
    """Why states cannot be integrated in time alone, as a clause; empty if they can."""
    setup, observations = learned.setup, learned.observations
    if len(learned.variables) != 1:
        return "there are several coordinates"
    if observations.periods is not None:
        return "the time is a ring by periods: it has no beginning"
    try:
        flow = flow_of(learned, 0)
    except ValueError as error:
        return str(error)
    if len(learned.equations) != len(observations.states):
        return "there are not as many equations as states"
    highest = {column - flow.layout.offset for column in _columns_of_highest(flow)}
    depends = {q for terms in setup.equations for q in terms.depends_on or ()}
    if highest & depends:
        return "an unknown part depends on a highest derivative"
    for operator in observations.operators:
        if (
            len(operator.parts) > 1
            or operator.order >= flow.layout.orders[operator.state]
        ):
            return f"values of {operator.name} were observed"
    for data, forcing in zip(
        observations.functions, setup.forcing_functions, strict=True
    ):
        if not all(_covers(f, data.points[:, 0]) for f in forcing):
            return "the forcing is not known at all observed times"
    points = observations.functions[0].points
    if not _is_explicit(flow, float(points.min())):
        return "the equations are not solved for the highest derivatives"
    return ""


def _covers(forcing, times):
    """Whether a function is known at times; a spline is between its knots."""
    if not isinstance(forcing, BSpline):
        return True
    return forcing.t[0] <= times.min() and times.max() <= forcing.t[-1]


def _columns_of_highest(flow):
    return [flow.layout.offset + j for j, _ in flow.layout.solved_for]


def _is_explicit(flow, t):
    """Whether the highest derivatives enter linearly, with slopes that are numbers.

    They may depend on time and inputs, not on the states, as a step takes the slopes of
    the equations in these for those of the solved equations.
    """
    rng = np.random.RandomState(0)
    n_highest = len(flow.layout.states)
    y, highest = rng.standard_normal((flow.n_states, 3)), np.zeros((n_highest, 3))
    highest[:, 1:] = rng.standard_normal((n_highest, 2))
    with np.errstate(all="ignore"):  # where a known part is not defined
        M = flow.mass(np.full(3, t), y, highest)
    size = np.max(np.abs(M), axis=(0, 2), keepdims=True)
    if not (np.all(np.isfinite(M)) and np.all(size > 0)):
        return False
    constant = np.max(np.ptp(M, axis=0) / size[0]) < 1e-8
    return constant and np.linalg.matrix_rank(M[0] / size[0]) == M.shape[1]

"""Whether boundary data determine a solution."""

import warnings

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from keql._numerics.linalg import extent_of
from keql._solving.problem import by_name
from keql.exceptions import IllPosedWarning


def check_near(points, observed):
    """Refuse data far outside of the box of the collocation points."""
    lower, upper = points.min(axis=0), points.max(axis=0)
    extent = upper - lower
    data = np.concatenate([x for x, _ in observed])
    beyond = np.maximum(lower - data, data - upper)
    far = np.any(beyond > np.where(extent > 0, extent, np.inf), axis=1)
    if far.any():
        raise ValueError(
            f"X has {far.sum()} point(s) outside of the domain of the collocation "
            f"points, by more than its size, such as {data[far][0]}: these go "
            f"from {lower} to {upper}. Give collocation_points that reach to the data."
        )


def check_posed(equation, labels, conditions, boxes):
    """Warn if the data of a function are too few for the orders of the equation.

    A derivative of order p in a coordinate needs p conditions, each for all values of
    the other coordinates: u on the two sides for u_xx, u on one for u_t, and u and
    u_t on one for u_tt. Data inside of the domain count as well. Of several states,
    data of one count for another that it depends on by the equations.
    """
    structure, different = Structure(equation), {}
    # There may be many functions, but few sets of places.
    for label, given, box in zip(labels, conditions, boxes, strict=True):
        different.setdefault((given.key, box.tobytes()), (label, given, box))
    for label, *places in different.values():
        lacks = _lacking_conditions(structure, *places)
        if lacks:
            of = "" if label is None else f" of function {label!r}"
            is_ = "equation is" if structure.is_single else "equations are"
            warnings.warn(
                f"the problem{of} is ill-posed, boundary data are missing: the "
                f"{is_} {', and '.join(lacks)}. Of all states that meet the "
                "equation and the data, the one of least norm is returned.",
                IllPosedWarning,
                stacklevel=3,
            )
            return


class Structure:
    """Which orders in a coordinate equations have in their states.

    The number of conditions that a system needs across a coordinate is the largest sum
    of orders when each equation is assigned to a state of its own (Pryce, "A simple
    structural analysis method for DAEs", BIT 41, 2001): that of each state is its order
    in the equation which is assigned to it, for a single equation its highest.
    """

    def __init__(self, equation):
        self.variables, self.states = equation.variables, equation.states
        self.operators = [operators_in(each) for each in by_name(equation).values()]
        self.is_single = len(self.operators) == 1

    def orders(self, axis):
        """Orders (E, S) of the equations in the states; -inf where one has none."""
        orders = np.full((len(self.operators), len(self.states)), -np.inf)
        for e, operators in enumerate(self.operators):
            for state, a, _ in (part for L in operators for part in L.parts):
                s = self.states.index(state)
                orders[e, s] = max(orders[e, s], a[axis])
        return orders

    def needs(self, axis):
        """Orders (S,) of the states, which tell of which, and what further equations.

        Entry (r, s) of the matrix (S, S) says whether data of state r tell of state s:
        whether s occurs in the equation that is assigned to r, or in one assigned to a
        state that does. Equations that are assigned to no state come on top: pairs of
        their position and the states (S,) that occur in them.
        """
        orders = self.orders(axis)
        occurs, n_states = np.isfinite(orders), len(self.states)
        unlikely = -1e6  # no state is assigned an equation in which it does not occur
        pairs = linear_sum_assignment(np.where(occurs, orders, unlikely), maximize=True)
        pairs = [(e, s) for e, s in zip(*pairs, strict=True) if occurs[e, s]]
        needed, tells = np.zeros(n_states, dtype=int), np.eye(n_states, dtype=bool)
        for e, s in pairs:
            needed[s] = orders[e, s]
            tells[s] |= occurs[e]
        for _ in self.states:
            tells = tells @ tells
        assigned = {e for e, _ in pairs}
        further = [(e, occurs[e]) for e in range(len(orders)) if e not in assigned]
        return needed, tells, further


def operators_in(equation):
    """The operators that an equation depends on; of a single state, all it has."""
    if len(equation.states) == 1:
        return equation.operators
    used = list(equation.known_part.operators)
    kernel = getattr(equation, "equation_kernel", None)
    if kernel is not None:
        active = kernel.depends_on(equation.n_unknown_features)
        active = active[len(active) - equation.n_operators :]
        used += [equation.operators[q] for q in np.flatnonzero(active)]
    return used


def _lacking_conditions(structure, given, box):
    """A text for each coordinate with fewer conditions than the equations have orders.

    Conditions are assigned to what they determine, one for each order of a state. An
    equation that comes on top of others, such as a boundary law, is a condition on
    those sides of the box where it is imposed.
    """
    texts, states = [], structure.states
    for axis, name in enumerate(structure.variables):
        needed, tells, further = structure.needs(axis)
        told = [
            (np.isin(states, operator.states), points)
            for points, operator in given.observed
        ]
        counts = [_conditions_across(x, axis, box) for _, x in told]
        own = np.sum([n * mask for n, (mask, _) in zip(counts, told, strict=True)], 0)
        for e, mask in further:
            points = given.points[given.rows.slices()[e][1]]
            told.append((mask, points))
            on_side = points[np.any(_on_sides(points, box), axis=(0, 2))]
            counts.append(_conditions_across(on_side, axis, box))
        # Rows are conditions, columns the orders of all states.
        rows = [np.any(tells[mask], axis=0) for mask, _ in told]
        rows = np.repeat(rows, np.minimum(counts, needed.sum()), axis=0)
        n = _matched(np.repeat(rows, needed, axis=1))
        if n < needed.sum():
            texts.append(_say(structure, name, needed, n, own))
    return texts


def _matched(fits):
    """To how many columns a row of its own can be assigned that fits, (n, m)."""
    if not fits.size:
        return 0
    columns = maximum_bipartite_matching(csr_array(fits), perm_type="column")
    return int(np.sum(columns >= 0))


def _say(structure, name, needed, n, own):
    has = "has" if structure.is_single else "have"
    text = f"of order {needed.sum()} in {name} and {has} {n} condition(s) across it"
    if len(structure.states) == 1:
        return text
    each = zip(structure.states, own, needed, strict=True)
    each = [f"{number} of {order} for {state}" for state, number, order in each]
    return f"{text} ({', '.join(each)})"


def _on_sides(points, box, on_side=1e-6):
    """Which points lie on the lower and the upper sides of a box, (2, n, d).

    A point is on a side if it is as near as `on_side` times the extent of the box.
    """
    scaled = (points - box[0]) / extent_of(box)
    return np.abs(scaled - np.array([0, 1])[:, None, None]) <= on_side


def _conditions_across(points, axis, box):
    """On how many values of one coordinate data are spread over the others.

    Data on either side of the box count once, data inside once for each value.
    """
    scaled = (points - box[0]) / extent_of(box)
    on_lower, on_upper = _on_sides(points, box)
    inside = scaled[~np.any(on_lower | on_upper, axis=1)]
    count = _is_spread_out(scaled[on_lower[:, axis]], axis)
    count += _is_spread_out(scaled[on_upper[:, axis]], axis)
    if _is_spread_out(inside, axis):
        count += len(np.unique(inside[:, axis]))
    return int(count)


def _is_spread_out(scaled, axis, largest_gap=0.5):
    """Whether points of the unit box leave no large gap in any coordinate but one."""
    others = np.sort(np.delete(scaled, axis, axis=1), axis=0)
    gaps = np.diff(others, axis=0, prepend=0, append=1)
    return len(scaled) > 0 and bool(np.all(gaps <= largest_gap))

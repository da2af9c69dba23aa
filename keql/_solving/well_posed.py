"""Whether boundary data determine a solution."""

import warnings

import numpy as np

from keql._numerics.linalg import extent_of
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
    u_t on one for u_tt. Data inside of the domain count as well.
    """
    different = {}  # there may be many functions, but few sets of places
    for label, given, box in zip(labels, conditions, boxes, strict=True):
        different.setdefault((given.key, box.tobytes()), (label, given.observed, box))
    for label, *places in different.values():
        lacks = _lacking_conditions(equation, *places)
        if lacks:
            of = "" if label is None else f" of function {label!r}"
            warnings.warn(
                f"the problem{of} is ill-posed, boundary data are missing: the "
                f"equation is {', and '.join(lacks)}. Of all states that meet the "
                "equation and the data, the one of least norm is returned.",
                IllPosedWarning,
                stacklevel=3,
            )
            return


def _lacking_conditions(equation, observed, box):
    """A text for each coordinate with fewer conditions than the equation has orders."""
    texts = []
    for axis, name in enumerate(equation.variables):
        order = max(a[axis] for o in equation.operators for a, _ in o.terms)
        n = sum(min(_conditions_across(x, axis, box), order) for x, _ in observed)
        text = f"of order {order} in {name} and has {n} condition(s) across it"
        texts += [text] if n < order else []
    return texts


def _conditions_across(points, axis, box, on_side=1e-6):
    """On how many values of one coordinate data are spread over the others.

    Data on either side of the box count once, data inside once for each value. A point
    is on a side if it is as near as `on_side` times the extent of the box.
    """
    scaled = (points - box[0]) / extent_of(box)
    on_lower, on_upper = np.abs(scaled) <= on_side, np.abs(scaled - 1) <= on_side
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

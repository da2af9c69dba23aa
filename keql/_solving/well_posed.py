"""Whether boundary data determine a solution."""

import warnings

import numpy as np

from keql._numerics.scaling import extent_of
from keql.exceptions import IllPosedWarning

# A row lies on a side of the domain's box if it is so near, relative to the extent.
ON_SIDE = 1e-6
# Data on a side count if they leave no larger part of it empty.
LARGEST_GAP = 0.5


def check_near(points, functionals):
    """Refuse data far outside of the box of the collocation points."""
    lower, upper = points.min(axis=0), points.max(axis=0)
    extent = upper - lower
    everything = np.concatenate([at for at, _ in functionals])
    beyond = np.maximum(lower - everything, everything - upper)
    far = np.any(beyond > np.where(extent > 0, extent, np.inf), axis=1)
    if far.any():
        raise ValueError(
            f"X has {far.sum()} point(s) outside of the domain of the collocation "
            f"points, by more than its size, such as {everything[far][0]}: these go "
            f"from {lower} to {upper}. Give collocation_points that reach to the data."
        )


def check_posed(equation, labels, problems, boxes):
    """Warn if the data of a function are too few for the orders of the equation.

    A derivative of order p in a coordinate needs p conditions, each for all values of
    the other coordinates: u on the two sides for u_xx, u on one for u_t, and u and
    u_t on one for u_tt. Data inside of the domain count as well.
    """
    seen = set()
    for label, (conditions, _), box in zip(labels, problems, boxes, strict=True):
        key = (conditions.key, box.tobytes())
        if key in seen:  # as many functions as there may be, few places
            continue
        seen.add(key)
        missing = _missing(equation, conditions, box)
        if missing:
            of = "" if label is None else f" of function {label!r}"
            warnings.warn(
                f"the problem{of} is ill-posed, boundary data are missing: the "
                f"equation is {', and '.join(missing)}. Of all states that meet the "
                "equation and the data, the one of least norm is returned.",
                IllPosedWarning,
                stacklevel=3,
            )
            return


def _missing(equation, conditions, box):
    """Which coordinates have fewer conditions than the equation has orders."""
    missing = []
    for axis, name in enumerate(equation.variables):
        order = max(a[axis] for o in equation.operators for a, _ in o.terms)
        found = sum(_n_sheets(at, axis, box, order) for at, _ in conditions.functionals)
        if found < order:
            missing.append(
                f"of order {order} in {name} and has {found} condition(s) across it"
            )
    return missing


def _n_sheets(points, axis, box, order):
    """On how many values of one coordinate data span the others; at most `order`."""
    scaled = (points - box[0]) / extent_of(box)
    near = np.stack([np.abs(scaled) <= ON_SIDE, np.abs(scaled - 1) <= ON_SIDE])
    groups = [scaled[near[side][:, axis]] for side in (0, 1)]
    inside = scaled[~near.any(axis=(0, 2))]

    def spans(group):
        others = np.sort(np.delete(group, axis, axis=1), axis=0)
        gaps = np.diff(others, axis=0, prepend=0, append=1)
        return len(group) > 0 and np.all(gaps <= LARGEST_GAP)

    found = sum(spans(group) for group in groups)
    if spans(inside):
        found += len(np.unique(inside[:, axis]))
    return min(int(found), order)

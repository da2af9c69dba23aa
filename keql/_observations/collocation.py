"""The points where an equation is imposed, and its right-hand side there."""

import numpy as np
from scipy.stats import qmc
from sklearn.utils import check_array

# Collocation points chosen by default: so many times the observations of a function,
# within these limits for one function and for all together.
FILL_FACTOR, FILL_LIMITS, FILL_TOTAL = 5, (200, 1000), 10_000


def by_label(given, labels, name):
    """The entry of each function in a parameter that may be a dict of labels."""
    if not isinstance(given, dict):
        return [given] * len(labels)
    missing = [label for label in labels if label not in given]
    if missing:
        raise ValueError(
            f"{name} has no entry for the function label(s) "
            f"{', '.join(str(label) for label in missing[:5])}: the labels in X are "
            f"{', '.join(str(label) for label in labels[:10])}."
        )
    return [given[label] for label in labels]


def low_discrepancy(points, n):
    """`n` points of a Halton sequence in the bounding box of `points`."""
    lower, upper = points.min(axis=0), points.max(axis=0)
    sequence = qmc.Halton(points.shape[1], scramble=False)
    sequence.fast_forward(1)  # the first one is a corner
    return lower + (upper - lower) * sequence.random(n)


def default_collocation(functions):
    """The observation points of each function, and a low-discrepancy fill."""
    everything = np.concatenate([data.points for data in functions])
    cap = max(FILL_LIMITS[0], FILL_TOTAL // len(functions))
    chosen = []
    for data in functions:
        points = np.unique(data.points, axis=0)
        wanted = np.clip(FILL_FACTOR * len(points), *FILL_LIMITS)
        n_fill = max(0, min(int(wanted), cap) - len(points))
        fill = [low_discrepancy(everything, n_fill)] if n_fill else []
        chosen.append(np.concatenate([points, *fill]))
    return chosen


def evaluate_forcing(forcing, labels, collocation_points, at_points):
    """Right-hand side at the collocation points of each function.

    Arrays are taken only if the points were given too (`at_points`).
    """
    if forcing is None:
        return [np.zeros(len(points)) for points in collocation_points]
    values = []
    per_function = by_label(forcing, labels, "forcing")
    for given, points in zip(per_function, collocation_points, strict=True):
        if callable(given):
            given = given(points)
        elif not at_points:
            raise ValueError(
                "forcing is an array, but collocation_points is not: give the "
                "points that the forcing belongs to, or the forcing as a function."
            )
        given = check_array(
            given, ensure_2d=False, dtype=np.float64, input_name="forcing"
        )
        if given.shape != (len(points),):
            raise ValueError(
                f"forcing has shape {given.shape}: it must have one value for "
                f"each of the {len(points)} collocation points."
            )
        values.append(given)
    return values

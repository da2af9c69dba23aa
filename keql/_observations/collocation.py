"""The points where an equation is imposed, and its right-hand side there."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc
from sklearn.utils import check_array


@dataclass(frozen=True)
class CollocationDefaults:
    """How many collocation points a function gets if their number is not given.

    Parameters
    ----------
    per_observation : int
        Collocation points for each observed point of the function.
    fewest, most : int
        Limits of the collocation points of one function.
    total : int
        Limit for all functions together; each gets `fewest` whatever it is.
    """

    per_observation: int = 5
    fewest: int = 200
    most: int = 1000
    total: int = 10_000

    def number(self, n_observed, n_functions=1):
        """Collocation points of a function with `n_observed` different points."""
        wanted = np.clip(self.per_observation * n_observed, self.fewest, self.most)
        return min(int(wanted), max(self.fewest, self.total // n_functions))


def by_label(given, labels, name):
    """The entry of each function in a parameter `given`, which may be a dict of labels.

    `name` is the parameter's in the error message.
    """
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
    """`n` points of a Halton sequence in the bounding box of `points`: (n, d)."""
    lower, upper = points.min(axis=0), points.max(axis=0)
    sequence = qmc.Halton(points.shape[1], scramble=False)
    sequence.fast_forward(1)  # the first one is a corner
    return lower + (upper - lower) * sequence.random(n)


def default_collocation(functions):
    """The observation points of each function, and a low-discrepancy fill."""
    everything = np.concatenate([data.points for data in functions])
    chosen = []
    for data in functions:
        points = np.unique(data.points, axis=0)
        number = CollocationDefaults().number(len(points), len(functions))
        fill = low_discrepancy(everything, max(0, number - len(points)))
        chosen.append(np.concatenate([points, fill]))
    return chosen


def evaluate_forcing(forcing, labels, collocation_points, at_points):
    """Right-hand side at the collocation points of each function: a list of (K,).

    `forcing` is None, a function of points or an array, or a dict of these by label. An
    array is taken only if the collocation points were given too (`at_points`).
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

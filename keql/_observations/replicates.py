"""Several values where one function has a single one: errors, or several functions."""

from dataclasses import dataclass

import numpy as np

from keql._numerics.linalg import rms


@dataclass(frozen=True)
class MixtureLimits:
    """When values of one function count as those of several, mixed.

    Values at one place differ by errors, which know nothing of each other; those of
    several experiments differ by a function that varies slowly. The gap d between two
    values with normal errors changes from place to place by 2 - 4 / pi = 0.73 times its
    mean square, in the mean of squares (von Neumann, "Distribution of the ratio of the
    mean square successive difference to the variance", Ann. Math. Stat. 12, 1941); of
    4e5 simulated sets of 10 places 5e-5 have less than 0.05, and of 2.7e5 sets of 15
    none has. Gaps between the neighbours of more values vary more.

    fewest : int. Places with several values, or values of a pass through the
        coordinate, below which nothing is said.
    smooth : float. That ratio, below which differences are no errors.
    apart : float. Differences between two passes, in units of the errors that each has
        from straight lines between its own neighbours, above which they are no errors.
        Equal errors alone make it 0.75.
    size : float. Differences, in units of the standard deviation of the values, below
        which they do no harm.
    """

    fewest: int = 10
    smooth: float = 0.05
    apart: float = 3.0
    size: float = 0.05


def refuse_contradictions(functions, table, noise):
    """Refuse values that no single function has, with the given observation noise.

    `functions` is a list of FunctionData; `table` has its rows (function, operator,
    point, value) in the order in which they were given. Values that are exact (a noise
    of 0) must agree; those with errors of unknown size (None) must differ as errors do.
    """
    if not isinstance(noise, dict) and noise == 0:
        _refuse_conflicts(functions)
    if noise is not None:
        return
    limits = MixtureLimits()
    table = table[np.lexsort(table[:, 1::-1].T)]  # keeps the order of equal rows
    starts = np.flatnonzero(np.any(np.diff(table[:, :2], axis=0), axis=1)) + 1
    for own in np.split(table[:, 2:], starts):
        points, values = own[:, :-1], own[:, -1]
        floor = limits.size * np.std(values)
        _refuse_replicates(points, values, limits, floor)
        if points.shape[1] == 1:
            _refuse_passes(points[:, 0], values, limits, floor)


def _refuse_conflicts(functions):
    """Refuse different values at one point, which exact observations cannot have."""
    for data in functions:
        table = np.column_stack([data.points, data.index])
        points, counts = np.unique(table, axis=0, return_counts=True)
        points = points[:, :-1]
        if np.any(counts > 1):
            raise ValueError(
                f"y has {counts.max()} conflicting values at the point "
                f"{points[counts.argmax()]} of X, but observation_noise=0 says that "
                "they are exact: give a noise level, or leave it to be estimated."
            )


def _refuse_replicates(points, values, limits, floor):
    """Refuse values at the same places that differ by a smooth function of the place.

    Of the values at a place, in rising order, the gaps between neighbours are compared
    with those at the next place in some coordinate. Places with as many values as most
    of those that have several are looked at.
    """
    places, where, counts = np.unique(
        points, axis=0, return_inverse=True, return_counts=True
    )
    counts_of_several = counts[counts > 1]
    if len(counts_of_several) < limits.fewest:
        return
    number = np.bincount(counts_of_several).argmax()
    order = np.lexsort([values, where.ravel()])
    order = order[np.repeat(counts == number, counts)]
    gaps = np.diff(values[order].reshape(-1, number), axis=1)
    places, square = places[counts == number], np.mean(np.sum(gaps**2, axis=1))
    if square <= floor**2:
        return
    for axis in range(places.shape[1]):
        others = np.delete(places, axis, axis=1)
        order = np.lexsort([places[:, axis], *others.T])
        on_a_line = np.all(np.diff(others[order], axis=0) == 0, axis=1)
        change = np.sum(np.diff(gaps[order], axis=0)[on_a_line] ** 2, axis=1)
        if (
            len(change) + 1 >= limits.fewest
            and np.mean(change) < limits.smooth * square
        ):
            _refuse(f"{number} values at each of {len(gaps)} places", gaps)


def _refuse_passes(times, values, limits, floor):
    """Refuse values whose times begin again, with another course of the values."""
    steps = np.diff(times)
    if np.sum(steps < 0) > np.sum(steps > 0):
        times, values = times[::-1], values[::-1]
    starts = np.flatnonzero(np.diff(times) < 0) + 1
    if len(times) < limits.fewest * (len(starts) + 1):
        return
    passes = [
        _Pass(*own)
        for own in zip(np.split(times, starts), np.split(values, starts), strict=True)
    ]
    for one, other in zip(passes[:-1], passes[1:], strict=True):
        between = one.from_line(other), other.from_line(one)
        if min(map(len, between)) < limits.fewest / 2:
            continue
        own = np.hypot(one.roughness(), other.roughness())
        least = max(limits.apart * own, floor)
        if min(rms(each) for each in between) > least:
            _refuse(f"{len(passes)} passes through the times", between[0])


class _Pass:
    """Values (n,) at rising times (n,); equal times have the mean of their values."""

    def __init__(self, times, values):
        self.times, where = np.unique(times, return_inverse=True)
        self.values = np.bincount(where, values) / np.bincount(where)

    def from_line(self, other):
        """How far another pass is from straight lines between the values of this."""
        inside = (other.times >= self.times[0]) & (other.times <= self.times[-1])
        line = np.interp(other.times[inside], self.times, self.values)
        return other.values[inside] - line

    def roughness(self):
        """Root mean square of each value's distance from a line between the next."""
        if len(self.times) < 3:
            return np.inf
        t, v = self.times, self.values
        part = (t[1:-1] - t[:-2]) / (t[2:] - t[:-2])
        return rms(v[1:-1] - (1 - part) * v[:-2] - part * v[2:])


def _refuse(what, apart):
    raise ValueError(
        f"y has {what} of X, which differ by {rms(apart):.3g} (root mean square), and "
        "steadily along X, as errors do not: more than one experiment in one table. "
        "Name the column of X that labels them, function_column, or add one. If they "
        "are one, measured again, say how large their errors are: observation_noise."
    )

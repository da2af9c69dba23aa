"""Long records in time, condensed window by window."""

import numpy as np

from keql._observations.data import Sample
from keql._observations.windows import WindowRule


def condense_records(records, limits):
    """Samples in place of records, if they are long.

    records : list of Sample. Of the operators that were observed of a function of time.
    limits : CondensingLimits. How many samples are many.
    """
    if max(len(own.values) for own in records) < limits.shortest * limits.sizes[0]:
        return records
    records = [_without_replicates(own) for own in records]
    size, is_exact = limits.sizes[-1], False
    for size in limits.sizes:
        parts = [
            _Windows(own, size, limits)
            if len(own.values) >= limits.shortest * size
            else own
            for own in records
        ]
        windows = [part for part in parts if isinstance(part, _Windows)]
        if all(each.are_short for each in windows):
            return [p.condensed() if p in windows else p for p in parts]
        is_exact = all(each.noise < limits.least_noise for each in windows)
        if is_exact:
            break
    return [_every_kth(own, size) for own in records]


class _Windows:
    """The windows of a record, with as many samples in each.

    The first and the last sample are in none, so that no time is lost.

    are_short : bool. Whether polynomials leave noise only.
    noise : float. Root mean square of what they leave, in units of the standard
        deviation of the values.
    """

    def __init__(self, record, size, limits):
        self.record, self.degree = record, limits.degree
        n_windows = max(1, (size - 2) // (limits.degree + 1))
        inner = np.arange(1, len(record.values) - 1)
        self.rows = np.array_split(inner, n_windows)
        self.rules = [self._rule(rows) for rows in self.rows]
        beyond, rest = np.transpose([*map(self._left, self.rows, self.rules)])
        variance = rest.sum() / (len(inner) - n_windows * (limits.degree + 3))
        spread = np.std(record.values) * np.sqrt(np.mean(record.weights))
        self.noise = float(np.sqrt(variance) / spread) if spread else 0.0
        self.are_short = bool(
            self.noise >= limits.least_noise
            and np.mean(beyond**2) < limits.excess * variance
        )

    def _rule(self, rows):
        t, roots = self.record.points[rows, 0], np.sqrt(self.record.weights[rows])
        return WindowRule.of_samples(t, roots, self.degree, 2)

    def _in_units_of_noise(self, rows):
        return self.record.values[rows] * np.sqrt(self.record.weights[rows])

    def _left(self, rows, rule):
        """Coefficient of degree q + 2 in a window, and sum of squares of the rest."""
        right = self._in_units_of_noise(rows)
        beyond = rule.beyond @ right
        rest = right - rule.rows.T @ (rule.rows @ right) - rule.beyond.T @ beyond
        return beyond[1], float(rest @ rest)

    def condensed(self):
        """A Sample of the first and the last sample, and what is between."""
        own, ends = self.record, [0, -1]
        times, values, weights = [own.points[ends, 0]], [own.values[ends]], []
        weights.append(own.weights[ends])
        for rows, rule in zip(self.rows, self.rules, strict=True):
            right = rule.rows @ self._in_units_of_noise(rows)
            times.append(rule.nodes)
            values.append(right / np.sqrt(rule.weights))
            weights.append(rule.weights)
        t = np.concatenate(times)
        order = np.argsort(t)
        values, weights = np.concatenate(values)[order], np.concatenate(weights)[order]
        return Sample(t[order, None], values, weights)


def _without_replicates(record):
    """A record in rising order of time, with the mean of the values at each time."""
    t, place = np.unique(record.points[:, 0], return_inverse=True)
    weights = np.bincount(place, weights=record.weights)
    sums = np.bincount(place, weights=record.weights * record.values)
    return Sample(t[:, None], sums / weights, weights)


def _every_kth(record, size):
    """At most about `size` samples, evenly spaced in the record, with its ends."""
    if len(record.values) <= size:
        return record
    rows = np.round(np.linspace(0, len(record.values) - 1, size)).astype(int)
    return Sample(record.points[rows], record.values[rows], record.weights[rows])

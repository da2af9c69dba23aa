"""Long records in time: what many neighbouring samples say, as few values.

In a short window of time a state is a polynomial of low degree, whatever its equation.
The n samples of a window, of precisions w_i, say of a polynomial of degree q what its
values at q + 1 places say with independent errors: those of the Gauss rule of the
measure sum_i w_i delta(t_i), whose weights are the precisions of these values. For the
nodes x_k and weights lambda_k of this rule, and the orthonormal polynomials p_j of the
measure, least squares has the covariance

    sum_j p_j(x_k) p_j(x_l) = delta_kl / lambda_k.

Nodes and weights are eigenvalues and eigenvectors of the Jacobi matrix <p_i, t p_j>
(Golub and Welsch, "Calculation of Gauss quadrature rules", Math. Comp. 23, 1969). What
a state has of degree q + 1 vanishes at these nodes and does no harm either.
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._observations.data import FunctionData, Sample


@dataclass(frozen=True)
class RecordLimits:
    """When there are too many values, and to how many they are condensed.

    The linear algebra of states takes the number of values cubed. Records are condensed
    to the first number of values for which windows are short enough; if none is, as
    where noise is correlated or there is none, only every k-th sample is taken.

    sizes : tuple of int. Numbers of values of each observed operator that are tried.
    shortest : float. A record of fewer samples than this, in units of the number of
        values, is left as it is.
    degree : int. Of the polynomials, q: there are q + 1 values in each window.
    excess : float. Mean square of the coefficients of degree q + 2 in units of what
        noise alone makes of them, 1 on average, up to which windows are short enough.
    least_noise : float. Root mean square of what polynomials leave, in units of the
        standard deviation of the record, below which a record counts as exact; if they
        leave less, as few of its samples are taken.
    of_fields : int. Of several coordinates, or around rings, at most so many values of
        each observed operator of a function are taken, drawn at random, always the
        same: 6,400 of a field took 2.3 GB and 95 s.
    """

    sizes: tuple = (1000, 2000, 4000)
    shortest: float = 1.5
    degree: int = 7
    excess: float = 1.5
    least_noise: float = 1e-6
    of_fields: int = 4000


def condense_records(observations, limits=None):
    """The Observations with fewer values in place of long records in time.

    Each function has its own number of values. Of several coordinates, or of one that
    is a ring, some values are taken. Few observations are returned as they are.
    """
    limits = limits or RecordLimits()
    points = observations.functions[0].points
    is_record = points.shape[1] == 1 and observations.periods is None
    fewer = _condense if is_record else _drawn
    functions = [fewer(data, limits) for data in observations.functions]
    pairs = zip(functions, observations.functions, strict=True)
    if all(new is old for new, old in pairs):
        return observations
    n_samples = sum(len(data.values) for data in observations.functions)
    return replace(observations, functions=functions, n_samples=n_samples)


def _condense(data, limits):
    """A FunctionData with records of all operators condensed, if they are long."""
    present = np.unique(data.index)
    records = [data.of_operator(j) for j in present]
    if max(len(own.values) for own in records) < limits.shortest * limits.sizes[0]:
        return data
    records = [_without_replicates(own) for own in records]
    return _join([*_condensed(records, limits)], present, data.operators)


def _condensed(records, limits):
    """Samples in place of records, each in rising order of time."""
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


def _drawn(data, limits):
    """A FunctionData with at most as many values of each operator as there may be."""
    rows = [np.flatnonzero(data.index == j) for j in np.unique(data.index)]
    if max(map(len, rows), default=0) <= limits.of_fields:
        return data
    order = (np.random.RandomState(0).permutation(len(own)) for own in rows)
    pairs = zip(rows, order, strict=True)
    kept = [np.sort(own[places[: limits.of_fields]]) for own, places in pairs]
    kept = np.concatenate(kept)
    names = ("points", "values", "weights", "index")
    return replace(data, **{name: getattr(data, name)[kept] for name in names})


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
        self.fits = [self._fit(rows) for rows in np.array_split(inner, n_windows)]
        beyond = np.array([c[limits.degree + 2] for *_, c, _ in self.fits])
        n_free = len(inner) - n_windows * (limits.degree + 3)
        variance = sum(rest for *_, rest in self.fits) / n_free
        spread = np.std(record.values) * np.sqrt(np.mean(record.weights))
        self.noise = float(np.sqrt(variance) / spread) if spread else 0.0
        self.are_short = bool(
            self.noise >= limits.least_noise
            and np.mean(beyond**2) < limits.excess * variance
        )

    def _fit(self, rows):
        """Middle and half width, Q (n, q + 3), coefficients and rest of a window.

        Q has the orthonormal polynomials at the samples, times the roots of their
        precisions.
        """
        own = self.record
        t, roots = own.points[rows, 0], np.sqrt(own.weights[rows])
        middle, half = 0.5 * (t[0] + t[-1]), 0.5 * (t[-1] - t[0])
        x = (t - middle) / half
        columns = np.polynomial.legendre.legvander(x, self.degree + 2)
        Q, _ = np.linalg.qr(columns * roots[:, None])
        right = own.values[rows] * roots
        c = Q.T @ right
        return (middle, half), x, roots, Q, c, float(np.sum((right - Q @ c) ** 2))

    def condensed(self):
        """A Sample of the first and the last sample, and what is between."""
        own, ends, n = self.record, [0, -1], self.degree + 1
        times, values, weights = [own.points[ends, 0]], [own.values[ends]], []
        weights.append(own.weights[ends])
        for (middle, half), x, roots, Q, c, _ in self.fits:
            Q = Q[:, :n]
            nodes, vectors = np.linalg.eigh(Q.T @ (x[:, None] * Q))
            # The first column of Q is the constant polynomial: its sign is free.
            first = vectors[0] * (Q[:, 0] @ roots)
            times.append(middle + half * nodes)
            values.append(vectors.T @ c[:n] / first)
            weights.append(first**2)
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


def _join(records, index, operators):
    """A FunctionData of the Samples of operators at positions `index`."""
    return FunctionData(
        np.concatenate([own.points for own in records]),
        np.concatenate([own.values for own in records]),
        np.concatenate([own.weights for own in records]),
        np.repeat(index, [len(own.values) for own in records]),
        operators,
    )

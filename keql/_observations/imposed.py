"""Which equations are imposed at which points."""

import itertools
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Imposed:
    """Which equations are imposed where: R rows, each an equation at a point.

    A system of E equations is one equation on E copies of the domain: the number of the
    copy, the equation, is the first coordinate. `points` (R,) has the position of the
    point of each row among K = `n_points`, or is None if row k has point k;
    `equation` (R,) the position of its equation, in rising order; `coordinates` (R, c)
    what equations may depend on besides operators: the number of the equation if there
    are several, the d coordinates, the inputs. Saved states have their rows, which is
    why positions of equations are short integers and no coordinates are copied in vain.
    """

    points: np.ndarray | None
    equation: np.ndarray
    coordinates: np.ndarray
    n_points: int
    n_equations: int = 1

    @classmethod
    def everywhere(cls, points):
        """A single equation without inputs at all of the points (K, d)."""
        return cls(None, np.zeros(len(points), dtype=np.int16), points, len(points))

    @classmethod
    def system(cls, points, inputs, rows):
        """Equations at rows of the points (K, d), where inputs (K, I) are known.

        `rows` has, for each equation, positions of points.
        """
        known = np.hstack([points, inputs]) if inputs.size else points
        if len(rows) == 1 and np.array_equal(rows[0], np.arange(len(points))):
            return replace(cls.everywhere(points), coordinates=known)
        chosen = np.concatenate(rows)
        numbers = np.arange(len(rows), dtype=np.int16)
        equation = np.repeat(numbers, [len(own) for own in rows])
        coordinates = known[chosen]
        if len(rows) > 1:
            coordinates = np.column_stack([equation, coordinates])
        return cls(chosen, equation, coordinates, len(points), len(rows))

    @property
    def starts(self):
        """First row of each equation, and the number of rows: of shape (E + 1,)."""
        return np.searchsorted(self.equation, np.arange(self.n_equations + 1))

    def slices(self):
        """The rows of each equation, and the points of these: a list of pairs.

        Points that follow one another are a slice.
        """
        pairs = []
        for start, stop in itertools.pairwise(self.starts):
            rows = slice(int(start), int(stop))
            points = rows if self.points is None else _as_slice(self.points[rows])
            pairs.append((rows, points))
        return pairs

    def gather(self, values):
        """Values (Q, K, ...) at the points as values (Q, R, ...) in the rows."""
        return values if self.points is None else values[:, self.points]

    def scatter(self, values):
        """Sums (Q, K, ...) of values (Q, R, ...) over the rows of each point."""
        if self.points is None:
            return values
        total = np.zeros((len(values), self.n_points, *values.shape[2:]))
        for rows, points in self.slices():
            total[:, points] += values[:, rows]
        return total

    def at(self, kept, n_points):
        """Positions of the rows whose points are kept; `kept` are those of points."""
        if self.points is None:
            return kept
        mask = np.zeros(n_points, dtype=bool)
        mask[kept] = True
        return np.flatnonzero(mask[self.points])

    def select(self, rows, kept, n_points):
        """The rows in question, if only some of the points are kept."""
        points = None
        if self.points is not None:
            position = np.empty(n_points, dtype=int)
            position[kept] = np.arange(len(kept))
            points = position[self.points[rows]]
        return replace(
            self,
            points=points,
            equation=self.equation[rows],
            coordinates=self.coordinates[rows],
            n_points=len(kept),
        )


def join_places(placed):
    """The different arrays of points one after the other, and where each one is.

    `placed` has the points of each equation; equal arrays are the same points, whether
    they are one object or not. Returned are the points (K, d), and for each equation
    positions among them.
    """
    arrays, starts, rows = [], [], []
    for points in placed:
        known = [i for i, array in enumerate(arrays) if np.array_equal(array, points)]
        if not known:
            starts.append(sum(map(len, arrays)))
            arrays.append(points)
        start = starts[known[0]] if known else starts[-1]
        rows.append(np.arange(start, start + len(points)))
    return (arrays[0] if len(arrays) == 1 else np.concatenate(arrays)), rows


def _as_slice(positions):
    """Positions as a slice if they follow one another."""
    if len(positions) and np.all(np.diff(positions) == 1):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions

"""Observations of several functions, and the points where their equation is imposed."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import qmc
from sklearn.utils import check_array

# Collocation points chosen by default: so many times the observations of a function,
# within these limits for one function and for all together.
FILL_FACTOR, FILL_LIMITS, FILL_TOTAL = 5, (200, 1000), 10_000


@dataclass(frozen=True)
class Observations:
    """Validated data: one regression problem for each function."""

    labels: tuple
    regressions: list


@dataclass(frozen=True)
class EquationSetup:
    """What is known about the equation before anything is learned."""

    operators: list
    n_operators: int
    known_part: object
    collocation_points: list
    forcing: list
    has_forcing: bool

    def features(self, imposed):
        """Features of shape (n, d + Q') at the collocation points of all functions.

        Parameters
        ----------
        imposed : list of ndarray of shape (Q' K_m,)
            Values of the operators, one after the other, at the points of a function.

        Returns
        -------
        S : ndarray of shape (sum K_m, d + Q')
            Coordinates, and a column for each operator.
        """
        pairs = zip(self.collocation_points, imposed, strict=True)
        return np.concatenate(
            [np.column_stack([x, z.reshape(-1, len(x)).T]) for x, z in pairs]
        )

    def features_of(self, states):
        """The same of states, given by one object with `evaluate` for each function."""
        imposed = [
            np.concatenate([state.evaluate(x, L) for L in self.operators])
            for state, x in zip(states, self.collocation_points, strict=True)
        ]
        return self.features(imposed)


@dataclass(frozen=True)
class Learned:
    """States and equation, with what they were learned from."""

    observations: Observations
    variables: tuple
    setup: EquationSetup | None
    state_kernel: object
    observation_noise: float
    states: list
    equation: object
    equation_noise: float | None

    @property
    def target(self):
        """What P has to explain, f - Pbar, at the features it was learned from.

        Of shape (sum K_m,), in units of the forcing.
        """
        known = self.setup.known_part(self.equation.training_features)
        return np.concatenate(self.setup.forcing) - known


def sorted_labels(labels):
    """Different labels in an order that does not depend on that of the rows."""
    return sorted(set(labels), key=lambda label: (type(label).__name__, label))


def refuse_conflicts(regressions):
    """Refuse different values at one point, which exact observations cannot have."""
    for data in regressions:
        points, counts = np.unique(data.points, axis=0, return_counts=True)
        if np.any(counts > 1):
            raise ValueError(
                f"y has {counts.max()} conflicting values at the point "
                f"{points[counts.argmax()]} of X, but observation_noise=0 says that "
                "they are exact: give a noise level, or leave it to be estimated."
            )


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


def default_collocation(regressions):
    """The observation points of each function, and a low-discrepancy fill."""
    everything = np.concatenate([data.points for data in regressions])
    cap = max(FILL_LIMITS[0], FILL_TOTAL // len(regressions))
    chosen = []
    for data in regressions:
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

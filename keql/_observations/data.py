"""Observed values of functions, where an equation is imposed, what is left out."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.stats import qmc
from sklearn.utils import check_array

from keql._numerics.arguments import as_numbers, call_given, naming
from keql._numerics.linalg import size_or_one
from keql._numerics.memory import MemoryBudget
from keql._observations.columns import coordinates_by_name
from keql._observations.tables import refuse_what_is_no_number


def noise_range(size=1.0, smallest=1e-5, largest=1.0):
    """Least and largest noise level that is fitted, of shape (2,).

    They are the parts `smallest`, which counts as exact data, and `largest` of the root
    mean square `size` of the values, in its unit.
    """
    return np.multiply.outer((smallest, largest), size)


def expected_noise(level, n_left, is_free, fewest=3.0):
    """Root mean squares of the noise levels that observations leave possible.

    Given observations, of which `n_left` are left when what they determine is taken
    off, the variance of the noise has an inverse gamma density, if its logarithm is
    anything before; with a normal density of the rest it makes Student's t of `n_left`
    degrees of freedom (Gelman et al., Bayesian Data Analysis, 2013, section 3.2). Its
    mean is n / (n - 2) times the square of the `level`, which is infinite for two:
    degrees of freedom are taken to be the `fewest` at least. Levels that are not free
    stay.
    """
    n = np.maximum(np.reshape(n_left, np.shape(level)), fewest)
    return np.where(is_free, level * np.sqrt(n / (n - 2)), level)[()]


@dataclass(frozen=True)
class ObservationCriteria:
    """What values of a state tell of it.

    followed : int. Points at which a state was observed, beside the first one of each
        function, from which on values tell a length scale and a noise level. One or two
        such points of one of two states, of Lotka and Volterra and of an epidemic, led
        to errors of 37 to 130 % in five of eight fits, and in two if it was found as if
        it was never observed. With three to seven, of five systems with noise of 2 %,
        that was better in six of sixteen fits and worse in four.
    """

    followed: int = 3


@dataclass(frozen=True)
class Observations:
    """Validated data: one regression problem for each function, names of the states.

    `periods` has the length of each coordinate that is a ring, and infinity for each
    other one; None: none is a ring. `n_samples` is the number of samples of which the
    values were taken; None: as many as there are values. With `is_condensed` some of
    these stand for several samples.
    """

    labels: tuple
    functions: list
    states: tuple = ("u",)
    periods: tuple | None = None
    n_samples: int | None = None
    is_condensed: bool = False

    @property
    def operators(self):
        """The J operators of which values were observed."""
        return self.functions[0].operators

    @property
    def n_places(self):
        """How many values there are at different places of their functions."""
        rows = (np.column_stack([d.index, d.points]) for d in self.functions)
        return sum(len(np.unique(own, axis=0)) for own in rows)

    def of_operator(self, j):
        """The values of one operator: a Sample for each function that has some."""
        samples = [data.of_operator(j) for data in self.functions]
        return [sample for sample in samples if len(sample.values)]

    def of_state(self, name):
        """The values of a state itself: a Sample for each function that has some."""
        named = [j for j, L in enumerate(self.operators) if L.name == name]
        return self.of_operator(named[0]) if named else []

    @property
    def hidden_states(self):
        """Names of the states that were not followed, while others were.

        Values at one or two points, as initial ones, do not tell how a state varies.
        """
        seen = [name for name in self.states if self._is_followed(name)]
        seen = seen or [operator.state for operator in self.operators]
        return [name for name in self.states if name not in seen]

    def _is_followed(self, name):
        """Whether values tell a length scale and a noise level of a state.

        That takes as many points as the ObservationCriteria say; values of derivatives
        tell more.
        """
        n_further = 0
        for j, operator in enumerate(self.operators):
            if operator.state != name:
                continue
            if operator.name != name:
                return True
            samples = self.of_operator(j)
            n_further += sum(len(np.unique(d.points, axis=0)) - 1 for d in samples)
        return n_further >= ObservationCriteria.followed

    def sizes(self):
        """Root mean square (J,) of the values of each operator, in their units."""
        return np.array([size_of(self.of_operator(j)) for j in range(self.n_operators)])

    @property
    def n_operators(self):
        """Number J of operators."""
        return len(self.operators)


def sorted_labels(labels):
    """Different labels in an order that does not depend on that of the rows."""
    different = set(labels)
    try:
        return sorted(different, key=lambda label: (type(label).__name__, label))
    except TypeError as error:
        raise TypeError(
            "function_column has labels that cannot be put in an order: use numbers or "
            f"texts ({error})."
        ) from error


@dataclass(frozen=True)
class Sample:
    """Noisy values of one function: y_i = v(x_i) + noise / sqrt(weight_i).

    It has the points x_i (n, d), the values y_i (n,) and their positive weights (n,),
    which are relative precisions.
    """

    points: np.ndarray
    values: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class FunctionData(Sample):
    """Noisy values of J `operators` applied to the states of one function.

    The rows are sorted by operator; `index` (n,) has the position of that of each row.
    """

    index: np.ndarray
    operators: list

    @property
    def functionals(self):
        """The observed (points, operator), without operators that have no rows."""
        present = np.unique(self.index)
        return [(self.points[self.index == j], self.operators[j]) for j in present]

    def of_operator(self, j):
        """The values of the operator at position `j`, a Sample."""
        rows = self.index == j
        return Sample(self.points[rows], self.values[rows], self.weights[rows])


def size_of(samples):
    """Root mean square of the values of several functions, in their units."""
    return size_or_one(np.concatenate([data.values for data in samples]))


class PredictionScale:
    """In which units errors of predicting observations are compared.

    Those of the values if a single operator was observed; otherwise the `sizes` (J,) of
    the values of each operator, as units differ. The `size` of all values is their root
    mean square in these units, their `spread` that of deviations from means. Errors and
    noise are those of a value of mean weight, the `weights` (J,).
    """

    def __init__(self, observations):
        single = observations.n_operators == 1
        self.sizes = np.ones(1) if single else observations.sizes()
        self.size = float(observations.sizes()[0]) if single else 1.0
        self.counts = np.sum(
            [
                np.bincount(d.index, minlength=len(self.sizes))
                for d in observations.functions
            ],
            axis=0,
        )
        total = [
            np.bincount(d.index, d.weights, len(self.counts))
            for d in observations.functions
        ]
        self.weights = np.sum(total, axis=0) / self.counts
        self.spread = self._mean(_standard_deviations(observations))

    def noise(self, levels):
        """Root mean square of the noise in these units, for `levels` (J,) of weight 1.

        It is that of values of mean weight.
        """
        return self._mean(np.asarray(levels) / np.sqrt(self.weights))

    def _mean(self, deviations):
        squares = (np.asarray(deviations) / self.sizes) ** 2
        return float(np.sqrt(np.average(squares, weights=self.counts)))


def _standard_deviations(observations):
    """Of the observed values of each operator, of shape (J,)."""
    values = np.concatenate([data.values for data in observations.functions])
    index = np.concatenate([data.index for data in observations.functions])
    return [np.std(values[index == j]) for j in range(observations.n_operators)]


@dataclass(frozen=True)
class CollocationDefaults:
    """How many collocation points a function gets if their number is not given.

    For each of its observed points it gets `per_observation`, but `fewest` at least and
    `most` at most. All functions together get `total` at most, and each gets `fewest`
    whatever that is. Several equations share these numbers. A number that is given may
    be as large as `drawn`: ten times that took six minutes for 30 observations in time.
    """

    per_observation: int = 5
    fewest: int = 200
    most: int = 1000
    total: int = 10_000
    drawn: int = 1_000_000

    def number(self, n_observed, n_functions=1, n_equations=1):
        """Collocation points of a function with `n_observed` different points."""
        wanted = self.per_observation * n_observed / n_equations
        wanted = np.clip(wanted, self.fewest, self.most)
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
            f"{', '.join(str(label) for label in missing[:5])}: the labels in X, those "
            f"in the function_column, are "
            f"{', '.join(str(label) for label in labels[:10])}."
        )
    return [given[label] for label in labels]


def low_discrepancy(points, n):
    """`n` points of a Halton sequence in the bounding box of `points`: (n, d)."""
    MemoryBudget().refuse_above(
        100.0 * n,  # features, their gradients, terms, and copies of them
        f"collocation_points={n:,}",
        "give fewer of them.",
    )
    most = CollocationDefaults().drawn
    if n > most:
        raise ValueError(
            f"collocation_points={n:,} would take hours: at most {most:,} are drawn. "
            "Give fewer, or an array of the points."
        )
    lower, upper = points.min(axis=0), points.max(axis=0)
    sequence = qmc.Halton(points.shape[1], scramble=False)
    sequence.fast_forward(1)  # the first one is a corner
    return lower + (upper - lower) * sequence.random(n)


def default_collocation(functions, n_equations=1):
    """The observation points of each function, and a low-discrepancy fill."""
    everything, chosen = np.concatenate([data.points for data in functions]), []
    for data in functions:
        points = np.unique(data.points, axis=0)
        number = CollocationDefaults().number(len(points), len(functions), n_equations)
        fill = low_discrepancy(everything, max(0, number - len(points)))
        chosen.append(np.concatenate([points, fill]))
    return chosen


def place_collocation(given, labels, functions, variables, n_equations=1):
    """Collocation points of each function: a list of arrays (K_m, d).

    `given` is None, for default ones; their number in the box of the points of the
    `functions`; an array, or a dict of arrays by label. At default ones several
    equations are imposed. `variables` names the d coordinates.
    """
    if given is None:
        return default_collocation(functions, n_equations)
    if isinstance(given, Integral) and not isinstance(given, bool):
        everything = np.concatenate([data.points for data in functions])
        return [low_discrepancy(everything, given)] * len(labels)
    per_function = by_label(given, labels, "collocation_points")
    strictly = "collocation_points", True
    checks = {"dtype": np.float64, "input_name": "collocation_points"}
    different = {id(points): points for points in per_function}
    checked = {}
    for key, points in different.items():
        refuse_what_is_no_number(points, "collocation_points")
        columns = getattr(points, "columns", None)
        with naming("collocation_points"):
            array = check_array(points, **checks)
        if array.shape[1] != len(variables):
            raise ValueError(
                f"collocation_points has {array.shape[1]} column(s): it must have one "
                f"for each of the variables {', '.join(variables)}."
            )
        checked[key] = array[:, coordinates_by_name(columns, variables, *strictly)]
    return [checked[id(points)] for points in per_function]


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
            values.append(call_given(given, "forcing", points, twice=True))
            continue
        if not at_points:
            raise ValueError(
                "forcing is an array, but collocation_points is not: give the "
                "points that the forcing belongs to, or the forcing as a function."
            )
        given = as_numbers(given, "forcing")
        if given.shape != (len(points),):
            raise ValueError(
                f"forcing has shape {given.shape}: it must have one value for "
                f"each of the {len(points)} collocation points."
            )
        if not np.all(np.isfinite(given)):
            raise ValueError(
                f"forcing is not finite at {np.sum(~np.isfinite(given))} of "
                f"{len(points)} points: it must be known wherever it is asked for."
            )
        values.append(given)
    return values


def forcing_functions(forcing, labels, collocation_points):
    """The right-hand side of each function as a function of points, or None for zero.

    Values at collocation points become those of the interpolating spline of degree
    five if there is one coordinate, and None if there are several.
    """
    if forcing is None:
        return [None] * len(collocation_points)
    per_function = by_label(forcing, labels, "forcing")
    return [
        given if callable(given) else _interpolated(points, given)
        for given, points in zip(per_function, collocation_points, strict=True)
    ]


def _interpolated(points, values):
    if points.shape[1] > 1:
        return None
    times, rows = np.unique(points[:, 0], return_index=True)
    degree = min(5, len(times) - 1)
    return make_interp_spline(times, np.asarray(values, float)[rows], k=degree)


def box_around(observed, placed, gaps=2.0):
    """Corners of a box around observed and placed points (n, d), and what these fill.

    A side with a single observation is one that points scattered in a larger region
    come nearest to: of n points that are uniform in an interval the outermost are one
    part in n + 1 away from its ends. `gaps` such parts are added there; sides with
    several observations are kept.
    """
    lower, upper = observed.min(axis=0), observed.max(axis=0)
    margin = gaps * (upper - lower) / (len(observed) + 1)
    alone = [np.sum(observed == side, axis=0) == 1 for side in (lower, upper)]
    lower, upper = lower - margin * alone[0], upper + margin * alone[1]
    return np.minimum(lower, placed.min(axis=0)), np.maximum(upper, placed.max(axis=0))


def mean_gap(points):
    """Gaps (d,) between points (n, d): those of a regular grid of as many points."""
    n, d = np.unique(points, axis=0).shape
    return np.ptp(points, axis=0) / max(n ** (1 / d) - 1, 1.0)


def reach_of(observed, placed, periods=None):
    """Corners (2, d) of the box in which a state counts as known.

    That of observed points (n, d) and placed ones (K, d), wider on all sides by the
    mean gap of the observed; without ends where a coordinate of the `periods` (d,) is a
    ring.
    """
    gap, points = mean_gap(observed), np.concatenate([observed, placed])
    box = np.array([points.min(axis=0) - gap, points.max(axis=0) + gap])
    rings = np.isfinite(np.inf if periods is None else periods)
    return np.where(rings, [[-np.inf], [np.inf]], box)


def inside_of(observed, placed, axis, both_sides):
    """Which of placed points (K, d) learn from observed points (n, d): a mask (K,).

    If some are beyond these in one coordinate by more than a mean gap, all that are
    beyond do not; before the first observation only if `both_sides` are asked for.
    """
    times, own, gap = observed[:, axis], placed[:, axis], mean_gap(observed)[axis]
    slack = 1e-9 * np.ptp(times)  # for rounding
    inside = np.ones(len(own), dtype=bool)
    if np.max(own, initial=-np.inf) > times.max() + gap + slack:
        inside &= own <= times.max() + slack
    if both_sides and np.min(own, initial=np.inf) < times.min() - gap - slack:
        inside &= own >= times.min() - slack
    return inside if inside.any() else np.ones_like(inside)


def left_out_errors(model, observations, fewest_inside=5):
    """Error of the prediction of each observation from all others, of shape (n,).

    `model` is a linearised joint problem (a LinearModel) of the Observations. The
    errors have the units of a PredictionScale and are weighted as the values are,
    relative to their mean weight. An observation on the border of the box around the
    points of its function is extrapolated and not counted, unless fewer than
    `fewest_inside` lie inside.
    """
    functions, scale = observations.functions, PredictionScale(observations)
    index = np.concatenate([data.index for data in functions])
    weights = np.concatenate([data.weights for data in functions])
    roots = np.sqrt(weights / scale.weights[index]) / scale.sizes[index]
    errors = np.concatenate(model.leave_one_out()) * roots
    border = [np.any(_at_ends(data.points), axis=1) for data in functions]
    inside = ~np.concatenate(border)
    return errors[inside] if inside.sum() >= fewest_inside else errors


def on_border(points, labels):
    """Mask (n,) of the points (n, d) on the border of the box of their function.

    `labels`, a list of length n, names the function of each point. A coordinate that is
    the same for all points of a function has no border.
    """
    rows_of = {}
    for row, label in enumerate(labels):
        rows_of.setdefault(label, []).append(row)
    mask = np.zeros(len(points), dtype=bool)
    for rows in rows_of.values():
        varies = np.ptp(points[rows], axis=0) > 0
        mask[rows] = np.any(_at_ends(points[rows]) & varies, axis=1)
    return mask


def _at_ends(points):
    """Where a coordinate of points (n, d) is the least or the largest of all."""
    return (points == points.min(axis=0)) | (points == points.max(axis=0))

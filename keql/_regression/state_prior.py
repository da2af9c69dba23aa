"""The prior of states about which nothing is said, and its posterior density.

A state is an unknown offset, plus a smooth function, plus a rougher one of limited
extent: what diffuses is rough at first, shocks and fronts have a place. One stationary
kernel must take the shortest length scale of all parts everywhere.
"""

from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import inf, log
from typing import NamedTuple

import numpy as np

from keql._numerics.linalg import (
    cholesky_of_packed,
    extent_of,
    inverse_in_place,
    minus_square,
    packed,
    size_or_one,
    solve_cholesky,
    sums_of_pairs,
    sums_of_rows,
)
from keql._numerics.optimisation import (
    Interruption,
    best_optimum,
    minimise_in_boxes,
    minimise_within_bounds,
    random_starts,
)
from keql._observations.data import noise_range, size_of
from keql._regression.hidden import with_fixed_bounds
from keql._regression.likelihood import log_marginal_likelihood, maximise_likelihood
from keql.kernels import RBF, Constant, Envelope, RationalQuadratic


class Normal(NamedTuple):
    """A hyperparameter with a normal prior: its median, standard deviation and range.

    For positive quantities the standard deviation is that of the logarithm.
    """

    median: float
    spread: float
    lower: float
    upper: float

    def rows(self, n):
        """Median, standard deviation and range of n such numbers, as four rows."""
        return np.outer(self, np.ones(n))

    def log_rows(self, n, shortest=0.0, resolved=np.inf):
        """Rows of the logarithms; `shortest`, of shape (n,), also bounds the range.

        Which begins at what is `resolved` if that is less.
        """
        rows = self.rows(n)
        rows[2] = np.maximum(np.minimum(rows[2], resolved), shortest)
        rows[[0, 2, 3]] = np.log(rows[[0, 2, 3]])
        return rows


@dataclass(frozen=True)
class StatePriorSettings:
    """The prior of states about which nothing is said, and how its best one is found.

    Lengths and places are in units of the extent of the points, sizes and noise levels
    in units of the root mean square of the values. The numbers are judged by the errors
    of states on diffusing functions, waves, fronts, shocks and oscillations
    (tests/benchmarks/bench_state_prior.py); priors this wide leave the choice to the
    data, and keep finite what they say nothing about.

    Attributes
    ----------
    smooth_size, smooth_length : Normal
        The smooth part: about as large as the values, and half as long as the box.
    rough_size, rough_length, alpha : Normal
        The rougher part, with the exponent alpha of a RationalQuadratic: from 1, many
        length scales at once, to a single one. A smaller spread of its length keeps
        the two parts apart.
    resolved : float
        Lengths may be as short as this, in units of the mean spacing of points, where
        that is below their range: a record of 150 values has twenty periods. Neighbours
        at one length are correlated by 0.6, as noise never is.
    width, center : Normal
        Where the rougher part is: the width of its envelope, and the centre, which is
        normal around the middle of the box and need not lie in it.
    start_noises, start_factors : tuple of float
        Noise levels and multiples of the median lengths from which a search starts.
        Between exact data, noisy data, and a function that is rough enough to look
        noisy there are barriers.
    noise_power : float
        The prior density of the logarithm of the noise is this power of the noise: few
        data that noise and a function explain equally well are thought to be exact.
    resolution : float
        Coordinates and values are rounded to multiples of this (30 bits), so that
        rounding errors, and with them the search, are the same in all units.
    coarse_rows, first_steps : int
        Starts are compared after `first_steps` iterations, on at most `coarse_rows`
        values of each function, on which the best one is then improved.
    fine_rows : int
        It is improved once more on at most so many values of each function.
    precision, box : float
        To what a log density is maximised, far below 1, the scale on which it counts;
        how far one run of the optimiser goes from its start, in units of theta.
    fall : float
        Another run starts where one ended while the log density rises by more: of 58
        problems of the suite single ones ended more than 20 below the optimum in two.
    """

    smooth_size: Normal = Normal(1.0, 3.0, 1e-4, 1e3)
    smooth_length: Normal = Normal(0.4, 3.0, 1e-2, 1e2)
    rough_size: Normal = Normal(0.5, 3.0, 1e-4, 1e3)
    rough_length: Normal = Normal(0.1, 1.5, 1e-2, 1e2)
    alpha: Normal = Normal(2.0, 3.0, 1.0, 1e3)
    resolved: float = 1.0
    width: Normal = Normal(1.0, 1.5, 1e-3, 1e2)
    center: Normal = Normal(0.5, 1.0, -1.0, 2.0)
    start_noises: tuple = (1e-3, 1e-1)
    start_factors: tuple = (1.0, 0.5, 0.25, 0.125)
    noise_power: float = -0.25
    resolution: float = 2.0**-30
    coarse_rows: int = 200
    fine_rows: int = 1500
    first_steps: int = 20
    precision: float = 1e-3
    box: float = 2.0
    fall: float = 0.1


@dataclass(frozen=True)
class Scaled:
    """Functions observed at the same points, in units of extent and size.

    They have the points (n, d) and the weights (n,) in common, and with them one
    covariance matrix; `values` (n, M) has a column for each of them. What belongs to
    pairs of points is kept as a packed triangle (:func:`keql._numerics.linalg.packed`).
    """

    points: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    @cached_property
    def squares(self):
        """Squared differences of all pairs of points (d, pairs), by coordinates."""
        differences = (np.subtract.outer(x, x) for x in self.points.T)
        return np.array([packed(each) for each in differences]) ** 2

    @cached_property
    def diagonal(self):
        """Positions (n,) of the pairs of a point with itself."""
        return np.cumsum(np.arange(1, len(self.points) + 1)) - 1

    def thinned(self, n_rows):
        """At most `n_rows` rows, chosen at random but always the same."""
        rows = np.random.RandomState(0).permutation(len(self.values))[:n_rows]
        return Scaled(self.points[rows], self.values[rows], self.weights[rows])


class StatePrior:
    """Hyperparameters of the prior, with their posterior density given data.

    The prior covariance is, with unknown sizes a, lengths l, widths w and centre c,

        offset^2 + a_1^2 RBF(l_1) + a_2^2 Envelope(w, c) RationalQuadratic(l_2, alpha),

    where the offset is the mean of the values. A vector `theta` holds, in this order
    and in units of the points' extent and of the values' size, log a_1, log l_1,
    log a_2, log alpha, log l_2, log w, c and, if it is unknown, log noise. All but the
    noise have weak normal priors; the noise has a weak preference for small levels.
    It is made from a list of FunctionData, the size of their values, and the standard
    deviation of a value of weight 1 or None. The medians (n,), spreads (n,) and bounds
    (n, 2) of `theta` are attributes, and `parts` has the slices of its parts by name.
    """

    def __init__(self, functions, size, noise):
        self.settings = StatePriorSettings()
        points = np.concatenate([data.points for data in functions])
        self.origin, self.extent = points.min(axis=0), extent_of(points)
        self.size, self.known_noise = size, noise
        self.data = self._scaled(functions)
        scaled = np.concatenate([np.ravel(data.values) for data in self.data])
        self.offset = np.mean(scaled) ** 2
        # Where a coordinate takes few values, a length scale below half their spacing
        # says only that nothing is known between them.
        n_values = np.array([len(np.unique(column)) for column in points.T])
        d, n_points = points.shape[1], max(len(data.points) for data in functions)
        resolved = self.settings.resolved * n_points ** (-1 / d)
        self._set_up(d, 0.5 / np.maximum(n_values - 1, 1), resolved)

    def _scaled(self, functions):
        """Scaled data, those of functions with the same points together."""
        together = {}
        for data in functions:
            same = data.points.tobytes(), data.weights.tobytes()
            together.setdefault(same, []).append(data)
        return [self._scale(same) for same in together.values()]

    def _scale(self, same):
        points = self._rounded((same[0].points - self.origin) / self.extent)
        values = np.column_stack([data.values for data in same]) / self.size
        return Scaled(points, self._rounded(values), same[0].weights)

    def _rounded(self, values):
        step = self.settings.resolution
        return np.round(values / step) * step

    def _set_up(self, d, *limits):
        """Medians, spreads and bounds of theta, and where its parts are."""
        settings = self.settings
        parts = {
            "smooth size": settings.smooth_size.log_rows(1),
            "smooth length": settings.smooth_length.log_rows(d, *limits),
            "rough size": settings.rough_size.log_rows(1),
            "alpha": settings.alpha.log_rows(1),
            "rough length": settings.rough_length.log_rows(d, *limits),
            "width": settings.width.log_rows(d),
            "center": settings.center.rows(d),
        }
        if self.known_noise is None:
            noise = Normal(settings.start_noises[0], inf, *noise_range())
            parts["noise"] = noise.log_rows(1)
        ends = np.cumsum([rows.shape[1] for rows in parts.values()])
        starts = np.append(0, ends[:-1])
        self.parts = dict(zip(parts, map(slice, starts, ends), strict=True))
        rows = np.concatenate(list(parts.values()), axis=1)
        self.median, self.spread, self.bounds = rows[0], rows[1], rows[2:].T

    def unpack(self, theta):
        """The kernel and the noise level in the units of the data."""
        part = self._named(theta)
        sizes = part["smooth size"][0], part["rough size"][0]
        variances = self.offset, *(np.exp(2 * size) for size in sizes)
        offset, smooth, rough = (Constant(self.size**2 * v, "fixed") for v in variances)
        smooth *= RBF(self.extent * np.exp(part["smooth length"]), "fixed")
        width = self.extent * np.exp(part["width"])
        rough *= Envelope(width, self.origin + self.extent * part["center"], "fixed")
        length, alpha = self.extent * np.exp(part["rough length"]), part["alpha"][0]
        rough *= RationalQuadratic(length, float(np.exp(alpha)), "fixed", "fixed")
        if self.known_noise is not None:
            return offset + smooth + rough, self.known_noise
        noise = float(self.size * np.exp(part["noise"][0]))
        return offset + smooth + rough, noise

    def starts(self):
        """Starts of a search: medians with several length scales and noise levels."""
        settings = self.settings
        noises = settings.start_noises if self.known_noise is None else (None,)
        return [self._start(*pair) for pair in product(noises, settings.start_factors)]

    def _start(self, noise, factor):
        theta = self.median.copy()
        for name in ("smooth length", "rough length"):
            theta[self.parts[name]] += log(factor)
        if noise is not None:
            theta[self.parts["noise"]] = log(noise)
        return np.clip(theta, *self.bounds.T)

    def thinned(self, n_rows):
        """The density given at most `n_rows` values of each function."""
        if max(len(data.values) for data in self.data) <= n_rows:
            return self
        thin = copy(self)
        thin.data = [data.thinned(n_rows) for data in self.data]
        return thin

    def __call__(self, theta, eval_gradient=True):
        """Negative log posterior density, up to a constant, and its gradient (n,)."""
        deviation = (theta - self.median) / self.spread
        value, gradient = 0.5 * deviation @ deviation, deviation / self.spread
        if self.known_noise is None:
            value -= self.settings.noise_power * theta[-1]
            gradient[-1] -= self.settings.noise_power
        for data in self.data:
            value += self._evaluate(theta, data, gradient if eval_gradient else None)
        return (value, gradient) if eval_gradient else value

    def _named(self, theta):
        return {name: theta[where] for name, where in self.parts.items()}

    def _noise(self, part):
        if self.known_noise is None:
            return np.exp(part["noise"][0])
        # Rounded as the values are, for the same reason.
        return float(np.float32(self.known_noise / self.size))

    def _evaluate(self, theta, data, gradient):
        """Negative log likelihood of some functions; adds its gradient to `gradient`.

        The functions are Scaled data, observed at the same points.
        """
        part, (n, n_functions) = self._named(theta), data.values.shape
        prior = _Covariance(part, data)
        variances = self._noise(part) ** 2 / data.weights
        covariance = prior.smooth + prior.rough
        covariance += self.offset
        covariance[data.diagonal] += variances
        L = cholesky_of_packed(covariance, n)
        weights = solve_cholesky(L, data.values)
        value = 0.5 * np.vdot(data.values, weights)
        value += n_functions * np.log(L.diagonal()).sum()
        if gradient is not None:
            # Derivative with respect to the entries of K, as in eq. 5.9 of Rasmussen
            # and Williams, Gaussian Processes for Machine Learning, 2006. A pair of
            # two points stands for two entries.
            slope = packed(inverse_in_place(L))
            slope *= n_functions
            for each in weights.T:
                slope = minus_square(slope, each)
            slope[data.diagonal] *= 0.5
            if self.known_noise is None:
                gradient[-1] += 2 * slope[data.diagonal] @ variances
            for name, values in prior.chain_rule(slope).items():
                gradient[self.parts[name]] += values
        return value


class _Covariance:
    """The `smooth` and the `rough` part of a prior covariance, as packed triangles.

    Of some `data` (Scaled), for the parts of theta by name.
    """

    def __init__(self, part, data):
        self.part, self.data, self.alpha = part, data, np.exp(part["alpha"][0])
        lengths = np.array([part["smooth length"], part["rough length"]])
        self.inverse_squares = np.exp(-2 * lengths)
        self.inverse_widths = np.exp(-part["width"])
        self.z = (data.points - part["center"]) * self.inverse_widths
        smooth, distance = self.inverse_squares @ data.squares
        distance *= 0.5 / self.alpha
        self.distance, self.logs = distance, np.log1p(distance)
        amplitude = part["rough size"][0] - 0.5 * (self.z**2).sum(axis=1)
        rough = sums_of_pairs(amplitude)
        rough -= self.alpha * self.logs
        smooth *= -0.5
        smooth += 2 * part["smooth size"][0]
        self.smooth, self.rough = np.exp(smooth, out=smooth), np.exp(rough, out=rough)

    def chain_rule(self, slope):
        """Derivatives with respect to parts of theta, from those of the covariance.

        The `slope`, and the parts of the covariance, are lost.
        """
        smooth, rough, squares = self.smooth, self.rough, self.data.squares
        smooth *= slope
        rough *= slope
        rows = sums_of_rows(rough, len(self.z)) + rough[self.data.diagonal]
        rows *= 0.5
        inner = np.divide(rough, np.add(self.distance, 1.0, out=slope), out=slope)
        both = np.array([part @ squares.T for part in (smooth, inner)])
        both *= self.inverse_squares
        return {
            "smooth size": 2 * smooth.sum(),
            "smooth length": both[0],
            "rough size": 2 * rows.sum(),
            "alpha": self.alpha * (inner @ self.distance - rough @ self.logs),
            "rough length": both[1],
            "width": 2 * rows @ self.z**2,
            "center": 2 * (rows @ self.z) * self.inverse_widths,
        }


def fit_state_prior(
    functions,
    noise=None,
    *,
    optimizer="fmin_l_bfgs_b",
    n_restarts=0,
    rng=None,
    interruption=None,
):
    """Choose a prior for states about which nothing is said.

    The kernel, all of its hyperparameters fixed, and the noise level are the most
    probable ones of :class:`StatePrior`. The arguments are those of
    :func:`maximise_likelihood`.
    """
    prior = StatePrior(functions, size_of(functions), noise)
    interruption = interruption or Interruption(is_kept=False)
    thin = prior.thinned(prior.settings.coarse_rows)
    starts = thin.starts()
    if optimizer is None:
        return prior.unpack(min(starts, key=lambda theta: thin(theta)[0]))
    starts += random_starts(prior.bounds, n_restarts, rng)
    if callable(optimizer):
        search = partial(minimise_within_bounds, optimizer, bounds=prior.bounds)
        given = prior, search, starts
        return prior.unpack(interruption.best(_best_search, *given)[0])
    # A few steps tell which start is the most promising.
    few = partial(_search, settings=prior.settings, bounds=prior.bounds)
    theta, _ = interruption.best(
        _best_search, thin, partial(few, is_first=True), starts
    )
    fine = () if thin is prior else (prior.thinned(prior.settings.fine_rows),)
    for density in (thin, *fine):
        if not interruption.has_come:
            theta, _ = interruption.best(few, density, theta)
    return prior.unpack(theta)


def _best_search(density, search, starts):
    """The best optimum of a density that `search` finds from the starts."""
    return best_optimum(search(density, start) for start in starts)


def _search(density, start, settings, bounds, is_first=False):
    """Minimise to a precision that matters; at first in `first_steps` iterations.

    The minimum need not be polished, as rounding errors are the same in all units.
    """
    where = density, start, bounds, settings.box
    scale = max(1, abs(density(start, eval_gradient=False)))
    options = {"maxcor": 20, "ftol": settings.precision / scale}
    if not is_first:
        return minimise_in_boxes(*where, options=options, fall=settings.fall)
    return minimise_in_boxes(*where, 1, {**options, "maxiter": settings.first_steps})


def fit_ring_prior(
    functions,
    noise,
    periods,
    *,
    lengths=(0.4, 0.2, 0.1),
    interruption=None,
    **how,
):
    """The prior of states on rings about which nothing is said, and the noise level.

    An offset plus an RBF kernel of maximum likelihood, the best of those found from
    some first `lengths`, in units of the extent of the points. `periods` (d,) has the
    lengths of the rings, and infinity for other coordinates; the other arguments are
    those of :func:`maximise_likelihood`.
    """
    values = np.concatenate([data.values for data in functions])
    extent = extent_of(np.concatenate([data.points for data in functions]))
    square, bounds = size_or_one(values) ** 2, np.outer(extent, (0.02, 30.0))
    offset = Constant(np.mean(values) ** 2, "fixed")
    variance, found = Constant(square, (1e-2 * square, 1e4 * square)), []
    how["interruption"] = interruption = interruption or Interruption(is_kept=False)
    for length in lengths:
        kernel = variance * RBF(length * extent, bounds, period=periods)
        kernel = offset + kernel if offset.constant_value else kernel
        pair = maximise_likelihood(kernel, noise, functions, **how)
        found.append((log_marginal_likelihood(*pair, functions), *pair))
        if interruption.has_come:
            break
    _, kernel, noise = max(found, key=lambda each: each[0])
    return with_fixed_bounds(kernel), noise


def refuse_other_periods(kernel, state, observations, tolerance=1e-6):
    """Refuse a state kernel whose functions do not repeat themselves on rings.

    `kernel` is bound to the coordinates; values of it, once around each ring, may
    differ by a `tolerance` of the largest.
    """
    if observations.periods is None:
        return
    points = np.concatenate([data.points for data in observations.functions])[:20]
    K = kernel(points)
    for axis, length in enumerate(observations.periods):
        if np.isinf(length):
            continue
        around = points + length * np.eye(points.shape[1])[axis]
        if np.max(np.abs(kernel(around, points) - K)) > tolerance * np.max(np.abs(K)):
            raise ValueError(
                f"state_kernel of {state} has not the period {length:g} in coordinate "
                f"{axis}, which is a ring by periods: give RBF or Matern with "
                "period=..., or Periodic, on that coordinate, or leave it open."
            )

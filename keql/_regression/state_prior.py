"""The prior of states about which nothing is said, and its posterior density.

A state is an unknown offset, plus a smooth function, plus a rougher one of limited
extent: what diffuses is rough at first, shocks and fronts have a place. One stationary
kernel must take the shortest length scale of all of these everywhere.
"""

from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import log

import numpy as np

from keql._numerics.bounded_search import (
    best_optimum,
    minimise_in_boxes,
    random_starts,
)
from keql._numerics.linalg import cholesky, inverse_from_cholesky, solve_cholesky
from keql._numerics.scaling import extent_of
from keql._observations.data import noise_range, size_of
from keql.kernels import RBF, Constant, Envelope, RationalQuadratic

# A search starts from exact and from noisy data, between which and a function that is
# rough enough to look noisy there are barriers, and from multiples of the lengths.
NOISES, START_FACTORS = (1e-3, 1e-1), (1.0, 0.5, 0.25, 0.125)
# The density of the logarithm of the noise is this power of it: few data that noise and
# a function explain equally well are thought to be exact.
NOISE_POWER = -0.25
# Of the hyperparameters, in units of the extent of the points and the size of the
# values: medians, standard deviations of the logarithms, and ranges.
SMOOTH_LENGTH, ROUGH_LENGTH, WIDTH, ALPHA = 0.4, 0.1, 1.0, 2.0
SMOOTH_SIZE, ROUGH_SIZE = 1.0, 0.5
SPREAD, SPREAD_OF_ROUGHNESS = 3.0, 1.5
SIZES, LENGTHS, WIDTHS, ALPHAS = (1e-4, 1e3), (1e-2, 1e2), (1e-3, 1e2), (1.0, 1e3)
# Of the centre of the rough part, normal around the middle of the points.
CENTER, CENTER_SPREAD, CENTERS = 0.5, 1.0, (-1.0, 2.0)
# The search sees coordinates and values as multiples of this.
STEP = 2.0**-30


@dataclass(frozen=True)
class Scaled:
    """The data of one function in units of extent and size."""

    points: np.ndarray
    values: np.ndarray
    weights: np.ndarray

    @cached_property
    def squares(self):
        """Squared differences of all pairs of points, for each coordinate."""
        return [np.subtract.outer(x, x) ** 2 for x in self.points.T]

    def thinned(self, n_rows):
        """At most so many rows, chosen at random but always the same."""
        rows = np.random.RandomState(0).permutation(len(self.values))[:n_rows]
        return Scaled(self.points[rows], self.values[rows], self.weights[rows])


class StatePrior:
    """Hyperparameters of the prior, with their posterior density given data.

    The prior covariance is, with unknown sizes a, lengths l, widths w and centre c,

        offset^2 + a_1^2 RBF(l_1) + a_2^2 Envelope(w, c) RationalQuadratic(l_2, alpha),

    where the offset is the mean of the values. A vector `theta` holds, in this order
    and in units of the points' extent and of the values' size, log a_1, log l_1,
    log a_2, log alpha, log l_2, log w, c and, if it is unknown, log noise. All but the
    noise have weak normal priors, which keep those finite that the data say nothing
    about; the noise has a weak preference for small levels.

    Units do not matter, to the last digit: coordinates and values are rounded to 30
    bits, so that a search takes the same path whatever they were measured in.

    Parameters
    ----------
    functions : list of FunctionData
        The data of each function.
    size : float
        Size of the values.
    noise : float or None
        Standard deviation of a value of weight 1; None: unknown.

    Attributes
    ----------
    bounds : ndarray of shape (n, 2)
        Of `theta`.
    """

    def __init__(self, functions, size, noise):
        points = np.concatenate([data.points for data in functions])
        self.origin, self.extent = points.min(axis=0), extent_of(points)
        self.size, self.known_noise = size, noise
        self.data = [self._scale(data) for data in functions]
        scaled = np.concatenate([data.values for data in self.data])
        self.offset = np.mean(scaled) ** 2
        # Where a coordinate takes few values, a length scale below half their spacing
        # says only that nothing is known between them.
        n_values = np.array([len(np.unique(column)) for column in points.T])
        shortest = np.maximum(LENGTHS[0], 0.5 / np.maximum(n_values - 1, 1))
        self._set_up(points.shape[1], np.log(shortest))

    def _scale(self, data):
        points = _rounded((data.points - self.origin) / self.extent)
        values = _rounded(data.values / self.size)
        return Scaled(points, values, data.weights)

    def _set_up(self, d, shortest):
        """Medians, spreads and bounds of theta, and where its parts are."""
        ones = np.ones(d)
        lengths = np.column_stack([shortest, log(LENGTHS[1]) * ones])
        centers = np.outer(ones, CENTERS)
        parts = {  # name: medians, spread, bounds
            "smooth size": (log(SMOOTH_SIZE), SPREAD, np.log([SIZES])),
            "smooth length": (log(SMOOTH_LENGTH) * ones, SPREAD, lengths),
            "rough size": (log(ROUGH_SIZE), SPREAD, np.log([SIZES])),
            "alpha": (log(ALPHA), SPREAD, np.log([ALPHAS])),
            "rough length": (log(ROUGH_LENGTH) * ones, SPREAD_OF_ROUGHNESS, lengths),
            "width": (
                log(WIDTH) * ones,
                SPREAD_OF_ROUGHNESS,
                np.log(np.outer(ones, WIDTHS)),
            ),
            "center": (CENTER * ones, CENTER_SPREAD, centers),
        }
        if self.known_noise is None:
            parts["noise"] = (log(NOISES[0]), np.inf, np.log([noise_range()]))
        ends = np.cumsum([np.size(median) for median, *_ in parts.values()])
        starts = np.append(0, ends[:-1])
        self.parts = dict(zip(parts, map(slice, starts, ends), strict=True))
        self.median = np.concatenate([np.ravel(part[0]) for part in parts.values()])
        self.bounds = np.concatenate([part[2] for part in parts.values()])
        self.spread = np.concatenate(
            [np.full(np.size(part[0]), part[1]) for part in parts.values()]
        )

    def unpack(self, theta):
        """The kernel and the noise level in the units of the data."""
        part = self._named(theta)
        offset, smooth, rough = (
            Constant(self.size**2 * variance, "fixed")
            for variance in (
                self.offset,
                np.exp(2 * part["smooth size"][0]),
                np.exp(2 * part["rough size"][0]),
            )
        )
        smooth_length, rough_length, width = (
            self.extent * np.exp(part[name])
            for name in ("smooth length", "rough length", "width")
        )
        center = self.origin + self.extent * part["center"]
        alpha = float(np.exp(part["alpha"][0]))
        kernel = (
            offset
            + smooth * RBF(smooth_length, "fixed")
            + rough
            * Envelope(width, center, "fixed")
            * RationalQuadratic(rough_length, alpha, "fixed", "fixed")
        )
        if self.known_noise is not None:
            return kernel, self.known_noise
        return kernel, float(self.size * np.exp(part["noise"][0]))

    def starts(self):
        """Starts of a search: medians with several length scales and noise levels."""
        noises = NOISES if self.known_noise is None else (None,)
        return [self._start(*pair) for pair in product(noises, START_FACTORS)]

    def _start(self, noise, factor):
        theta = self.median.copy()
        for name in ("smooth length", "rough length"):
            theta[self.parts[name]] += log(factor)
        if noise is not None:
            theta[self.parts["noise"]] = log(noise)
        return np.clip(theta, *self.bounds.T)

    def thinned(self, n_rows):
        """The density given at most so many values of each function."""
        if max(len(data.values) for data in self.data) <= n_rows:
            return self
        thin = copy(self)
        thin.data = [data.thinned(n_rows) for data in self.data]
        return thin

    def __call__(self, theta, eval_gradient=True):
        """Negative log posterior density, up to a constant.

        Parameters
        ----------
        theta : ndarray of shape (n,)
            Hyperparameters.
        eval_gradient : bool, default=True
            Whether the gradient is returned.

        Returns
        -------
        value : float
            The value.
        gradient : ndarray of shape (n,)
            Only if `eval_gradient`.
        """
        deviation = (theta - self.median) / self.spread
        value, gradient = 0.5 * deviation @ deviation, deviation / self.spread
        if self.known_noise is None:
            value -= NOISE_POWER * theta[-1]
            gradient[-1] -= NOISE_POWER
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
        """Negative log likelihood of one function; adds its gradient to `gradient`."""
        part = self._named(theta)
        smooth, rough, distance = _parts_of_covariance(part, data)
        K = smooth + rough + self.offset
        variances = self._noise(part) ** 2 / data.weights
        K[np.diag_indices_from(K)] += variances
        L = cholesky(K)
        weights = solve_cholesky(L, data.values)
        if gradient is not None:
            # Derivative with respect to the entries of K, as in eq. 5.9 of Rasmussen
            # and Williams, Gaussian Processes for Machine Learning, 2006.
            slope = 0.5 * (inverse_from_cholesky(L) - np.outer(weights, weights))
            added = _chain_rule(part, data, slope, smooth, rough, distance)
            if self.known_noise is None:
                added["noise"] = 2 * np.diag(slope) @ variances
            for name, values in added.items():
                gradient[self.parts[name]] += values
        return 0.5 * data.values @ weights + np.log(np.diag(L)).sum()


def _parts_of_covariance(part, data):
    """The smooth and the rough part, and the scaled distance of the latter."""
    smooth = np.full(data.squares[0].shape, 2 * part["smooth size"][0])
    distance = np.zeros_like(smooth)
    alpha = np.exp(part["alpha"][0])
    lengths = zip(part["smooth length"], part["rough length"], strict=True)
    for squares, (first, second) in zip(data.squares, lengths, strict=True):
        smooth -= squares * (0.5 * np.exp(-2 * first))
        distance += squares * (0.5 * np.exp(-2 * second) / alpha)
    z = (data.points - part["center"]) * np.exp(-part["width"])
    amplitude = part["rough size"][0] - 0.5 * np.sum(z**2, axis=1)
    rough = np.add.outer(amplitude, amplitude) - alpha * np.log1p(distance)
    return np.exp(smooth, out=smooth), np.exp(rough, out=rough), distance


def _chain_rule(part, data, slope, smooth, rough, distance):
    """Derivatives with respect to theta, from that with respect to the covariance."""
    smooth, rough = slope * smooth, slope * rough
    inner = rough / (1 + distance)
    alpha = np.exp(part["alpha"][0])
    rows = rough.sum(axis=1)
    z = (data.points - part["center"]) * np.exp(-part["width"])
    return {
        "smooth size": 2 * smooth.sum(),
        "smooth length": [np.vdot(smooth, squares) for squares in data.squares]
        * np.exp(-2 * part["smooth length"]),
        "rough size": 2 * rows.sum(),
        "alpha": alpha
        * (np.vdot(inner, distance) - np.vdot(rough, np.log1p(distance))),
        "rough length": [np.vdot(inner, squares) for squares in data.squares]
        * np.exp(-2 * part["rough length"]),
        "width": 2 * rows @ z**2,
        "center": 2 * rows @ z * np.exp(-part["width"]),
    }


def _rounded(values):
    return np.round(values / STEP) * STEP


# To what a log density is maximised where the prior is chosen.
PRECISION = 1e-3
# Rows of a function from which it is chosen first, before all of them are taken.
COARSE_ROWS = 200
# Iterations by which its starts are compared.
FIRST_STEPS = 20


def fit_state_prior(
    functions, noise=None, *, optimizer="fmin_l_bfgs_b", n_restarts=0, rng=None
):
    """Choose a prior for states about which nothing is said.

    The most probable hyperparameters of :class:`StatePrior`.

    Parameters
    ----------
    functions : list of FunctionData
        The data of each function.
    noise, optimizer, n_restarts, rng
        As in :func:`maximise_likelihood`.

    Returns
    -------
    kernel : Kernel
        All of its hyperparameters are fixed.
    noise : float
        The given or the fitted noise level.
    """
    size = size_of(functions)
    prior = StatePrior(functions, size, noise)
    if callable(optimizer):
        starts = [*prior.starts(), *random_starts(prior.bounds, n_restarts, rng)]
        optima = [optimizer(prior, start, bounds=prior.bounds) for start in starts]
        return prior.unpack(best_optimum(optima)[0])
    thin = prior.thinned(COARSE_ROWS)
    starts = thin.starts()
    if optimizer is None:
        return prior.unpack(min(starts, key=lambda theta: thin(theta)[0]))
    starts += random_starts(prior.bounds, n_restarts, rng)
    # A few steps tell which start is the most promising.
    theta, _ = best_optimum(_search(thin, start, FIRST_STEPS) for start in starts)
    theta, _ = _search(thin, theta)
    if thin is not prior:
        theta, _ = _search(prior, theta)
    return prior.unpack(theta)


def _search(prior, start, n_steps=None, box=2.0):
    """Minimise to a precision that matters: far below 1 in a log density.

    It need not be polished, as rounding errors are the same in all units.
    """
    options = {"ftol": PRECISION / max(1, abs(prior(start)[0])), "maxcor": 20}
    if n_steps is None:
        return minimise_in_boxes(prior, start, prior.bounds, box, options=options)
    options["maxiter"] = n_steps
    return minimise_in_boxes(prior, start, prior.bounds, box, 1, options)

"""States that repeat themselves, in time or as they travel, from few values.

Where values are so far apart that a smooth function explains them no better than noise
does, those of many periods may still tell one of them, once they are put one upon
another. Which period that is, the likelihood of all states together says. So it is with
a wave that travels through space: all values are those of one profile, once they are
put where it was at one time, and the likelihood says how fast it travels.
"""

from dataclasses import dataclass

import numpy as np
from scipy import special

from keql._numerics.linalg import (
    cholesky,
    extent_of,
    inverse_lower,
    rms,
    solve_cholesky,
)
from keql.kernels import Constant, Periodic, SystemKernel


@dataclass(frozen=True)
class PeriodSearch:
    """Which periods, shapes and noise levels are compared.

    fewest : float. The data have that many periods at least, and at most one for two
        values of a state.
    steps, n_grids : int. Frequencies that are compared for each period that the data
        have more, and how many grids there are, each around the best of the one before.
    lengths : tuple of float. Length scales of the periodic kernel, without unit: from a
        few harmonics to nearly one.
    ratios : tuple of float. Noise levels, in units of the size of a state.
    n_harmonics : int. So many are computed with.
    """

    fewest: float = 2.0
    steps: int = 16
    n_grids: int = 3
    lengths: tuple = (0.5, 1.0, 2.0)
    ratios: tuple = (1e-3, 1e-2, 3e-2, 0.1)
    n_harmonics: int = 8


def periodic_prior(observations, variables, settings=None):
    """The kernel of states of one period, and noise levels, of maximum likelihood.

    observations : Observations. Values of the states themselves, in time alone.
    variables : tuple of str. The time.
    settings : PeriodSearch, default=None. None: the default one.

    Returns kernel : Kernel or None. Hyperparameters are fixed. None if a state was not
        observed, or there are several functions, or too few values for a period.
    Returns noise : ndarray of shape (J,) or None. Of the observed operators.
    """
    settings, names = settings or PeriodSearch(), observations.states
    states = [observations.of_state(state) for state in names]
    if len(observations.functions) > 1:  # each may have a period of its own
        return None, None
    observed = [operator.name for operator in observations.operators]
    if not all(states) or observed != list(names):
        return None, None
    frequencies = _frequencies(states, settings)
    if not len(frequencies):
        return None, None
    for _ in range(settings.n_grids):
        found = [_best_of(states, frequency, settings) for frequency in frequencies]
        best = int(np.argmax([total for total, _ in found]))
        step, frequency = frequencies[1] - frequencies[0], frequencies[best]
        frequencies = frequency + step * np.linspace(-1, 1, settings.steps + 1)
    kernels, noise = {}, []
    for state, own, shape in zip(names, states, found[best][1], strict=True):
        length, ratio, size = shape
        kernel = Periodic(length, 1 / frequency, "fixed", "fixed")
        square = np.mean(np.concatenate([sample.values for sample in own]) ** 2)
        kernel = Constant(size**2, "fixed") * kernel + Constant(square, "fixed")
        kernels[state] = kernel.bind(variables)
        noise.append(ratio * size)
    kernel = SystemKernel(kernels) if len(kernels) > 1 else kernels[names[0]]
    return kernel, np.array(noise)


def _frequencies(states, settings):
    """An even grid of frequencies, or none, for what was observed of all states."""
    points = [np.concatenate([sample.points for sample in own]) for own in states]
    extent = float(extent_of(np.concatenate(points))[0])
    n = min(len(np.unique(own)) for own in points)
    lowest, highest = settings.fewest / extent, n / (2 * extent)
    if not highest > lowest:
        return np.empty(0)
    count = int(np.ceil(settings.steps * extent * (highest - lowest)))
    return np.linspace(lowest, highest, count + 1)


def _best_of(states, frequency, settings):
    """Log likelihood of a frequency, and what is best of each state."""
    total, shapes = 0.0, []
    for samples in states:
        best = max(likelihoods(samples, frequency, settings))
        total += best[0]
        shapes.append(best[1:])
    return total, shapes


def likelihoods(samples, frequency, settings):
    """Tuples (log likelihood, length scale, noise ratio, size) of a state's shapes.

    The state has a mean, the noise level ratio times size, and the size of maximum
    likelihood.
    """
    t = np.concatenate([sample.points[:, 0] for sample in samples])
    y = np.concatenate([sample.values for sample in samples])
    y, n = y - y.mean(), len(y)
    k = np.arange(1, settings.n_harmonics + 1)
    angles = 2 * np.pi * frequency * np.multiply.outer(t, k)
    waves = np.hstack([np.cos(angles), np.sin(angles)])
    for length in settings.lengths:
        # exp(-2 sin^2(a / 2) / l^2) = sum_k v_k cos(k a), with Bessel functions.
        roots = np.sqrt(2 * special.ive(k, length**-2.0))
        constant = np.full(n, special.ive(0, length**-2.0) ** 0.5)
        columns = np.column_stack([constant, waves * np.tile(roots, 2)])
        eigenvalues, vectors = np.linalg.eigh(columns.T @ columns)
        eigenvalues = np.maximum(eigenvalues, 0.0)
        projected = vectors.T @ (columns.T @ y)
        for ratio in settings.ratios:
            # Covariance s^2 (columns columns^T + ratio^2), s of maximum likelihood.
            explained = np.sum(projected**2 / (eigenvalues + ratio**2))
            square = max(y @ y - explained, np.finfo(float).tiny) / (n * ratio**2)
            volume = np.sum(np.log1p(eigenvalues / ratio**2)) + 2 * n * np.log(ratio)
            value = -0.5 * (n * np.log(2 * np.pi * square) + n + volume)
            yield float(value), length, ratio, square**0.5


@dataclass(frozen=True)
class WaveSearch:
    """Which travelling waves are compared, and when there is one.

    range, steps, n_grids : float, int, int. Speeds from 1 - range to 1 + range of the
        first one, on so many grids, each around the best of the one before.
    lengths : tuple of float. Length scales of the profile, in units of the extent of
        space.
    ratios : tuple of float. Noise levels, in units of the size of the profile.
    noise : float. Up to this part of the standard deviation of the values they count
        as met.
    error : float. The same of errors of predicting each value from all others, and from
        those that a wave carries there from elsewhere.
    least : float. Of the extent of space that a wave travels over at least.
    apart : float. In units of the length scale, how far from a value, and how long
        before or after it in the time that a wave takes so far, others have to be seen
        that it is carried from. Any record of a sensor, and any snapshot, is met by a
        profile of its own.
    carried : float. Part of the values that these predict well, at least.
    most : int. So many values are compared at most.
    """

    range: float = 0.5
    steps: int = 20
    n_grids: int = 4
    lengths: tuple = (0.02, 0.04, 0.08, 0.16, 0.32)
    ratios: tuple = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    noise: float = 1e-3
    error: float = 0.05
    least: float = 0.1
    apart: float = 0.25
    carried: float = 0.5
    most: int = 300


@dataclass(frozen=True)
class TravellingWave:
    """A profile that keeps its shape: u(t, x) = f(x - speed t).

    The mean of a Gaussian process of an RBF kernel. `axis` is the time.
    """

    axis: int
    speed: float
    length: float
    places: np.ndarray
    mean: float
    coefficients: np.ndarray
    noise: float
    error: float

    def __call__(self, points):
        """Values (n,) at points (n, 2)."""
        s = places_of(points, self.axis, self.speed)
        return self.mean + _gaussian(s, self.places, self.length) @ self.coefficients


def places_of(points, axis, speed):
    """Where each of the points (n, 2) lies in a profile that travels."""
    return points[:, 1 - axis] - speed * points[:, axis]


def _gaussian(s, r, length):
    return np.exp(-0.5 * (np.subtract.outer(s, r) / length) ** 2)


def travelling_wave(data, axis, speed, settings=None):
    """The travelling wave whose values a function has, or None if it has not.

    data : FunctionData. Values of one state in time and space.
    axis : {0, 1}. Which coordinate is the time.
    speed : float. Near that of the wave.
    settings : WaveSearch, default=None. None: the default one.

    Returns wave : TravellingWave or None. Noise, length scale and speed are those of
        maximum likelihood; the values are met, and each one is predicted by the others,
        most of them also by those of other times and places.
    """
    settings = settings or WaveSearch()
    rows = slice(None, None, -(-len(data.values) // settings.most))
    points, values = data.points[rows], data.values[rows]
    spread, extent = np.std(values), np.ptp(points, axis=0)
    if not abs(speed) * extent[axis] > settings.least * extent[1 - axis] or not spread:
        return None
    mean, y = np.mean(values), values - np.mean(values)
    speeds = speed * np.linspace(
        1 - settings.range, 1 + settings.range, settings.steps + 1
    )
    for _ in range(settings.n_grids):
        tried = [
            (*shape, c)
            for c in speeds
            for shape in _profiles(
                places_of(points, axis, c), y, extent, axis, settings
            )
        ]
        *_, best = max(tried)
        step = speeds[1] - speeds[0]
        speeds = best + step * np.linspace(-1, 1, settings.steps + 1)
    _, length, ratio, speed = max(tried)
    s = places_of(points, axis, speed)
    L = cholesky(_gaussian(s, s, length) + ratio**2 * np.eye(len(s)))
    alpha = solve_cholesky(L, y)
    noise = ratio * np.sqrt(y @ alpha / len(y))
    certainty = np.sum(inverse_lower(L) ** 2, axis=0)
    error = rms(alpha / certainty)  # Rasmussen and Williams, eq. 5.12
    if noise > settings.noise * spread or error > settings.error * spread:
        return None
    wave = TravellingWave(axis, speed, length, s, mean, alpha, noise, error)
    errors, deviations = _carried(wave, points, L, noise / ratio, settings.apart)
    is_told = deviations < settings.error * spread
    if np.mean(is_told) < settings.carried:
        return None
    return wave if rms(errors[is_told]) < settings.error * spread else None


def _carried(wave, points, L, size, apart):
    """How well a wave carries values from other times and places.

    Each value is predicted from those that are further away than `apart` length scales
    in space, and than the wave takes so far in time. With the others left out, the rows
    B of the covariance K, the errors are [(K^-1)_BB]^-1 (K^-1 y)_B, and the variances
    the diagonal of [(K^-1)_BB]^-1: Rasmussen and Williams, 2006, eq. 5.12, for blocks.

    wave : TravellingWave. Of the values y, less their mean.
    points : ndarray of shape (n, 2). Where they are seen.
    L : ndarray of shape (n, n). The lower Cholesky factor of K in units of the square
        of the `size` of the profile.

    Returns errors, deviations : ndarray of shape (n,). In units of the values.
    """
    half = inverse_lower(L)
    precision, alpha = half.T @ half, wave.coefficients
    scaled = points * np.where(np.arange(2) == wave.axis, abs(wave.speed), 1.0)
    distances = np.abs(scaled[:, None] - scaled[None])
    near = np.any(distances < apart * wave.length, axis=2)
    found = np.empty((len(points), 2))
    for i, left_out in enumerate(near):
        rows, own = np.flatnonzero(left_out), np.count_nonzero(left_out[:i])
        right = np.column_stack([alpha[rows], np.arange(len(rows)) == own])
        block = cholesky(precision[np.ix_(rows, rows)])
        found[i] = solve_cholesky(block, right)[own]
    return found[:, 0], size * np.sqrt(found[:, 1])


def _profiles(s, y, extent, axis, settings):
    """Tuples (log likelihood, length scale, noise ratio) of values at places (n,)."""
    n = len(y)
    for length in settings.lengths:
        length = length * extent[1 - axis]
        eigenvalues, vectors = np.linalg.eigh(_gaussian(s, s, length))
        eigenvalues, rotated = np.maximum(eigenvalues, 0.0), (vectors.T @ y) ** 2
        for ratio in settings.ratios:
            variances = eigenvalues + ratio**2
            square = np.sum(rotated / variances) / n
            value = -0.5 * (n * np.log(square) + np.sum(np.log(variances)))
            yield float(value), length, ratio

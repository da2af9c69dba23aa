"""States that repeat themselves, from few values in each period.

Where values are so far apart that a smooth function explains them no better than noise
does, those of many periods may still tell one of them, once they are put one upon
another. Which period that is, the likelihood of all states together says.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from keql._numerics.linalg import extent_of
from keql._regression.two_step import refit_two_steps
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


def repeated_states(two_step, hypothesis, settings):
    """The two-step solution whose states have one period, or None if there is none.

    two_step : LearnedModel. Observations and equations, in time alone.
    hypothesis : Hypothesis. The equation kernels.
    settings : FitSettings. How equations are learned from states.

    Returns learned : LearnedModel or None. With the noise that such states leave. None
        if a state was not observed, or other operators were, or for too few values.
    """
    kernel, noise = periodic_prior(two_step.observations, two_step.variables)
    if kernel is None:
        return None
    two_step = replace(two_step, observation_noise=noise)
    return refit_two_steps(two_step, hypothesis, settings, kernel)


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

"""White noise on the right-hand sides of equations, and what it does to states."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg


@dataclass(frozen=True)
class ProcessNoise:
    """White noise on the right-hand side of each equation of one function.

    The residual of an equation at collocation points is its level times independent
    standard normal numbers: in continuous time, white noise of the spectral density
    level^2 times the mean distance of the points.

    levels : ndarray of shape (E,). Standard deviations, in the units of the forcings.
    distances : ndarray of shape (E,). Mean distances of the collocation points.
    """

    levels: np.ndarray
    distances: np.ndarray

    def times(self, factors):
        """The noise with levels (E,) times as high."""
        return replace(self, levels=self.levels * factors)

    def near(self, flow, t, y, units):
        """The WhiteNoise of a flow at times (n,) and y (n, D)."""
        return flow.driven(t, y, self.levels * np.sqrt(self.distances), units)

    def between(self, flow, times, nodes, units):
        """The same in the middle of each of the steps between nodes (K, D)."""
        t, y = (times[:-1] + times[1:]) / 2, (nodes[:-1] + nodes[1:]) / 2
        return self.near(flow, t, y, units)


def process_noise(setup, levels):
    """The ProcessNoise of each function; None if all equations hold exactly.

    setup : EquationSetup. With the collocation points.
    levels : ndarray of shape (E,) or None. Nan or zero for equations that do.
    """
    if levels is None or not np.any(np.nan_to_num(levels)):
        return None
    found = []
    for points, rows in zip(setup.collocation_points, setup.rows, strict=True):
        places = [points[own, 0] for _, own in rows.slices()]
        gaps = [np.ptp(t) / max(len(t) - 1, 1) if len(t) else 0.0 for t in places]
        found.append(ProcessNoise(np.nan_to_num(levels), np.array(gaps)))
    return found


@dataclass(frozen=True)
class WhiteNoise:
    """White noise that drives linear systems dx = J x dt + B dW, n at once.

    jacobians, loads : ndarray of shape (n, D, D), (n, D, E). J and B.
    units : ndarray of shape (D,). Sizes of the entries of x.
    """

    jacobians: np.ndarray
    loads: np.ndarray
    units: np.ndarray

    def transition(self, h):
        """What times h (n,) later is left of a change: exp(J h) of shape (n, D, D)."""
        ratios = self.units / self.units[:, None]
        exponents = self.jacobians * ratios * h[:, None, None]
        if not np.all(np.isfinite(exponents)):
            return np.full_like(exponents, np.nan)
        return linalg.expm(exponents) / ratios

    def root(self, h):
        """A root (n, D, D) of the covariance of what the noise adds in times h (n,).

        The times may be negative.
        """
        return compressed(np.concatenate(self._parts(h), axis=2))

    def roots(self, h):
        """Roots (n, D, E D) of the covariances of each of the E loads, side by side."""
        each = np.moveaxis(np.stack(self._parts(h), axis=3), 2, 0)
        return np.concatenate([*compressed(each)], axis=2)

    def _parts(self, h, n_points=5):
        """Summands (n, D, E) of a root of the covariance, for each of some times.

        By Gauss's quadrature of exp(J s) B B^T exp(J s)^T over s, of order 10: no
        covariance is factorised, which may be singular, or zero.
        """
        places, shares = np.polynomial.legendre.leggauss(n_points)
        parts = []
        for place, share in zip((1 + places) / 2, shares / 2, strict=True):
            width = np.sqrt(share * np.abs(h))[:, None, None]
            parts.append(width * (self.transition(place * h) @ self.loads))
        return parts


def compressed(roots):
    """Lower triangular L (..., D, D) with L L^T = R R^T, of roots R (..., D, k)."""
    D, k = roots.shape[-2:]
    if k < D:
        roots = np.concatenate([roots, np.zeros((*roots.shape[:-1], D - k))], axis=-1)
    return np.swapaxes(np.linalg.qr(np.swapaxes(roots, -1, -2), mode="r"), -1, -2)

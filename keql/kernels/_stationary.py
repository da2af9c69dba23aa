"""What stationary kernels share, and the periodic kernel."""

from math import comb, pi, prod
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import StationaryKernelMixin

from keql.kernels._active import ActiveKernel, hyperparameter


class AnisotropicKernel(StationaryKernelMixin, ActiveKernel):
    """A stationary kernel with one length scale, or one for each active column."""

    hyperparameter_length_scale = hyperparameter("length_scale")

    def __init__(
        self,
        length_scale: Any = 1.0,
        length_scale_bounds: Any = (1e-5, 1e5),
        active_dims: Any = None,
    ) -> None:
        self.length_scale = length_scale
        self.length_scale_bounds = length_scale_bounds
        self.active_dims = active_dims

    def diag(self, X: Any) -> np.ndarray:
        X = np.atleast_2d(X)
        return np.full(len(X), self(X[:1])[0, 0])


class Periodic(AnisotropicKernel):
    r"""Periodic kernel exp(-2 sum_i sin^2(pi (x_i - y_i) / p_i) / l_i^2).

    For functions on a ring (or a torus): every function of its RKHS has period p_i in
    column i. In one dimension it is scikit-learn's `ExpSineSquared` (Rasmussen and
    Williams, Gaussian Processes for Machine Learning, 2006, eq. 4.31).

    Parameters
    ----------
    length_scale : float or array-like of shape (n_active,), default=1.0
        The l_i: smoothness relative to the period, without unit.
    periodicity : float or array-like of shape (n_active,), default=1.0
        The periods p_i, in units of the coordinates.
    length_scale_bounds, periodicity_bounds : pair of float, default=(1e-5, 1e5)
        Bounds in a search for the maximum likelihood; "fixed" for none.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.

    Examples
    --------
    >>> from keql.kernels import Periodic
    >>> Periodic(1.0, periodicity=2.0)([[0.0]], [[2.0]])
    array([[1.]])
    """

    hyperparameter_periodicity = hyperparameter("periodicity")

    def __init__(
        self,
        length_scale: Any = 1.0,
        periodicity: Any = 1.0,
        length_scale_bounds: Any = (1e-5, 1e5),
        periodicity_bounds: Any = (1e-5, 1e5),
        active_dims: Any = None,
    ) -> None:
        super().__init__(length_scale, length_scale_bounds, active_dims)
        self.periodicity = periodicity
        self.periodicity_bounds = periodicity_bounds

    def _angles(self, X, Y):
        """For each column: the angle 2 pi tau / p, the frequency and l."""
        frequency = 2 * pi / self._per_column("periodicity", X.shape[1])
        scale = self._per_column("length_scale", X.shape[1])
        return [
            (np.subtract.outer(x, y) * w, w, length)
            for x, y, w, length in zip(X.T, Y.T, frequency, scale, strict=True)
        ]

    def _active_derivatives(self, X, Y, pairs):
        totals = [tuple(np.add(a, b)) for a, b in pairs]
        highest = np.max(totals, axis=0, initial=0)
        factors = [
            _exponential_cosine(*angle, order)
            for angle, order in zip(self._angles(X, Y), highest, strict=True)
        ]
        return [
            (-1) ** sum(b)
            * prod(factor[k] for factor, k in zip(factors, n, strict=True))
            for n, (_, b) in zip(totals, pairs, strict=True)
        ]

    def _active_gradient(self, X, Y):
        angles = self._angles(X, Y)
        exponents = [
            2 * np.sin(angle / 2) ** 2 / scale**2 for angle, _, scale in angles
        ]
        value = np.exp(-sum(exponents))
        lengths = [2 * exponent * value for exponent in exponents]
        periods = [
            angle * np.sin(angle) / scale**2 * value for angle, _, scale in angles
        ]
        layers = self._log_layers("length_scale", lengths)
        return layers + self._log_layers("periodicity", periods)


def _exponential_cosine(angle, frequency, length, highest):
    """Derivatives 0..highest in tau of f = exp(h), h = (cos(frequency tau) - 1) / l^2.

    f' = h' f gives f^(n+1) = sum_k binom(n, k) h^(k+1) f^(n-k).
    """
    inner = [
        np.cos(angle + k * pi / 2) * frequency**k / length**2
        for k in range(1, highest + 1)
    ]
    values = [np.exp(-2 * np.sin(angle / 2) ** 2 / length**2)]
    for n in range(highest):
        values.append(sum(comb(n, k) * inner[k] * values[n - k] for k in range(n + 1)))
    return values

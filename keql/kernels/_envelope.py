"""An amplitude that fades away from a centre."""

from math import prod
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermeval

from keql._numerics.arguments import as_rows
from keql.kernels._active import ActiveKernel, NonStationaryKernel, hyperparameter


class Envelope(NonStationaryKernel, ActiveKernel):
    r"""Gaussian envelope e(x) e(y), e(x) = exp(-1/2 sum_i (x_i - c_i)^2 / w_i^2).

    Times a kernel it multiplies the functions of that kernel by e, so that they matter
    near a centre only: near the initial time of a diffusing state, say, or around a
    front. ``RBF(...) + Envelope(...) * RationalQuadratic(...)`` describes a smooth
    function with a region in which it is rougher.

    Parameters
    ----------
    width : float or array-like of shape (n_active,), default=1.0
        The w_i, in units of the coordinates. A coordinate whose width is large does not
        matter.
    center : float or array-like of shape (n_active,), default=0.0
        The c_i, in units of the coordinates; inside or outside of the data. A search
        for the maximum likelihood leaves it alone.
    width_bounds : pair of float or "fixed", default=(1e-5, 1e5)
        Bounds of `width` in a search for the maximum likelihood.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.

    Examples
    --------
    >>> from keql.kernels import RBF, Envelope
    >>> kernel = Envelope(0.5, center=1.0) * RBF(0.1)
    >>> kernel.diag([[1.0], [2.0]]).round(6)
    array([1.      , 0.018316])
    """

    hyperparameter_width = hyperparameter("width")

    def __init__(
        self,
        width: Any = 1.0,
        center: Any = 0.0,
        width_bounds: Any = (1e-5, 1e5),
        active_dims: Any = None,
    ) -> None:
        self.width = width
        self.center = center
        self.width_bounds = width_bounds
        self.active_dims = active_dims

    def diag(self, X: Any) -> np.ndarray:
        X = as_rows(X, "X")
        columns = self._columns(X.shape[1])
        return self._amplitude(X[:, columns], (0,) * len(columns)) ** 2

    def _scaled(self, X):
        """The arrays (x_i - c_i) / w_i, one column each, and the widths."""
        width = self._per_column("width", X.shape[1])
        center = self._per_column("center", X.shape[1], positive=False)
        return (X - center) / width, width

    def _amplitude(self, X, a):
        """Derivative d^a e at points: d^n exp(-z^2/2) = (-1)^n He_n(z) exp(-z^2/2)."""
        z, width = self._scaled(X)
        factors = [
            hermeval(column, (-1 / w) ** n * np.eye(n + 1)[n])
            for column, w, n in zip(z.T, width, a, strict=True)
        ]
        return np.exp(-0.5 * np.sum(z**2, axis=1)) * prod(factors)

    def _active_derivatives(self, X, Y, pairs):
        left = {a: self._amplitude(X, a) for a in {a for a, _ in pairs}}
        right = {b: self._amplitude(Y, b) for b in {b for _, b in pairs}}
        return [np.outer(left[a], right[b]) for a, b in pairs]

    def _active_gradient(self, X, Y):
        value = np.outer(*(self._amplitude(P, (0,) * P.shape[1]) for P in (X, Y)))
        squares = [self._scaled(points)[0].T ** 2 for points in (X, Y)]
        sums = map(np.add.outer, *squares)
        return self._log_layers("width", [each * value for each in sums])

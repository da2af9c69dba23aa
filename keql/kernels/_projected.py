"""The kernel of a finite-dimensional part of an RKHS."""

import numpy as np

from keql._numerics.linalg import cholesky, solve_lower
from keql.kernels._base import NonStationaryKernel


class ProjectedKernel(NonStationaryKernel):
    """Kernel of the span of U(y_1, .), ..., U(y_K, .) in the RKHS of U.

    k(x, y) = U(x, Y) U(Y, Y)^-1 U(Y, y): a Gaussian process with this covariance has
    no variance outside of the span. `kernel` is U, and the distinct `points` (K, d) are
    the y_k.
    """

    def __init__(self, kernel, points):
        self.kernel = kernel
        self.points = points
        self.cholesky = cholesky(kernel(points))

    def __reduce__(self):
        # The factor, which is computed again, would be most of what is saved.
        return ProjectedKernel, (self.kernel, self.points)

    def __call__(self, X, Y=None):
        """Values at all pairs of points, of shape (n, m)."""
        return self.derivative(X, Y)

    def diag(self, X):
        """Values k(x, x), of shape (n,)."""
        zero = (0,) * X.shape[1]
        return np.sum(self._whitened(X, [zero])[zero] ** 2, axis=0)

    def check_order(self, a, operator=None):
        self.kernel.check_order(a, operator)

    def _derivatives(self, X, Y, pairs):
        left = self._whitened(X, dict.fromkeys(a for a, _ in pairs))
        right = self._whitened(Y, dict.fromkeys(b for _, b in pairs))
        return [left[a].T @ right[b] for a, b in pairs]

    def _whitened(self, X, orders):
        """C^-1 d^a_x U(Y, x), of shape (K, n), for each multi-index a."""
        zero = (0,) * X.shape[1]
        layers = self.kernel.derivatives(self.points, X, [(zero, a) for a in orders])
        return {
            a: solve_lower(self.cholesky, layer)
            for a, layer in zip(orders, layers, strict=True)
        }

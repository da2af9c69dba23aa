"""Orthonormal features of the equation's RKHS."""

import numpy as np

from keql._linalg import cholesky, solve_lower


class PolynomialBasis:
    """Exact features of a kernel whose RKHS has finite dimension.

    Parameters
    ----------
    kernel : Kernel
        With a feature map.
    """

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, S, a=None):
        """Features, or their derivative a, at the rows of `S`, of shape (n, p)."""
        return self.kernel.feature_map(S, a)

    def values(self, S, weights):
        """Values of psi . weights, of shape (n,)."""
        return self(S) @ weights

    def gradient(self, S, weights):
        """Partial derivatives of psi . weights, of shape (d, n)."""
        units = np.eye(S.shape[1], dtype=int)
        return np.stack([self.kernel.feature_map(S, tuple(e)) @ weights for e in units])


class InducingBasis:
    """Features psi(s) = C^-1 P(S_I, s) with P(S_I, S_I) = C C^T.

    They span the kernel functions at the inducing points S_I, orthonormally: the
    projection of the RKHS on what the points can tell (Nystrom).

    Parameters
    ----------
    kernel : Kernel
        The equation kernel.
    points : ndarray of shape (p, d)
        The inducing points, distinct.
    """

    def __init__(self, kernel, points):
        self.kernel = kernel
        self.points = points
        self.cholesky = cholesky(kernel(points))

    def __call__(self, S, a=None):
        """Features, or their derivative a, at the rows of `S`, of shape (n, p)."""
        return solve_lower(self.cholesky, self.kernel.derivative(self.points, S, b=a)).T

    def values(self, S, weights):
        """Values of psi . weights, of shape (n,)."""
        return self.kernel(S, self.points) @ self._coefficients(weights)

    def gradient(self, S, weights):
        """Partial derivatives of psi . weights, of shape (d, n)."""
        return self.kernel.gradient(S, self.points) @ self._coefficients(weights)

    def _coefficients(self, weights):
        """Of the kernel functions at the inducing points."""
        return solve_lower(self.cholesky, weights, transposed=True)


def make_basis(kernel, S, n_inducing, rng):
    """Exact features if the kernel has them, otherwise features of inducing points.

    Parameters
    ----------
    kernel : Kernel
        The equation kernel, resolved to columns and scales.
    S : ndarray of shape (n, d)
        Features to draw the inducing points from.
    n_inducing : int
        How many at most.
    rng : numpy.random.RandomState
        Draws them.

    Returns
    -------
    basis : PolynomialBasis or InducingBasis
        Callable, with a gradient.
    """
    if kernel.n_features(S.shape[1]) is not None:
        return PolynomialBasis(kernel)
    return InducingBasis(kernel, draw_rows(np.unique(S, axis=0), n_inducing, rng))


def draw_rows(S, n, rng):
    """At most `n` rows of `S`, in order; all of them if there are no more."""
    if len(S) <= n:
        return S
    return S[np.sort(rng.choice(len(S), n, replace=False))]

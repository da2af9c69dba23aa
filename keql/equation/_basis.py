"""Orthonormal features of the equation's RKHS."""

import numpy as np

from keql._numerics.linalg import cholesky, solve_lower
from keql.kernels import Product, leibniz, unrestricted


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

    def unrestricted(self, weights, d):
        """Features of d coordinates that are faster to compute, and weights in them."""
        kernel, weights = unrestricted(self.kernel, weights, d)
        return PolynomialBasis(kernel), weights


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
        return self._combined(S, weights, [(0,) * S.shape[1]])[0]

    def gradient(self, S, weights):
        """Partial derivatives of psi . weights, of shape (d, n)."""
        units = np.eye(S.shape[1], dtype=int).tolist()
        return self._combined(S, weights, [*map(tuple, units)])

    def _combined(self, S, weights, orders):
        """Derivatives of psi . weights, one row for each of the orders."""
        coefficients = solve_lower(self.cholesky, weights, transposed=True)
        kernel, points = self.kernel, self.points
        columns = combine(kernel, S, points, coefficients[:, None], orders)
        return np.stack([column[:, 0] for column in columns])


class FixedUnknownPart:
    """An equation that is not sought any more: it has no features with free weights.

    Parameters
    ----------
    basis : PolynomialBasis or InducingBasis
        Features of the equation.
    weights : ndarray of shape (p,)
        Its coefficients.
    posterior : WeightPosterior
        What it was learned from says about them.
    """

    def __init__(self, basis, weights, posterior):
        self.basis = basis
        self.weights = weights
        self.posterior = posterior

    def __call__(self, S):
        """No features, of shape (n, 0)."""
        return np.empty((len(S), 0))

    def values(self, S, _):
        """Values of the equation, of shape (n,)."""
        return self.basis.values(S, self.weights)

    def gradient(self, S, _):
        """Its partial derivatives, of shape (d, n)."""
        return self.basis.gradient(S, self.weights)


def combine(kernel, X, Y, coefficients, orders):
    """Derivatives of linear combinations of kernel functions, sum_j k(x, y_j) c_j.

    A product k1(x, y) phi(x) . phi(y) with few features phi is never formed: its
    combinations are those of k1 with the coefficients c_j phi(y_j), times phi(x). So k1
    is evaluated once for all derivatives in what only phi depends on.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    X : ndarray of shape (n, d)
        Where.
    Y : ndarray of shape (m, d)
        The points y_j.
    coefficients : ndarray of shape (m, p)
        Of p combinations.
    orders : list of tuple of int
        Multi-indices of derivatives in x.

    Returns
    -------
    combinations : list of ndarray of shape (n, p)
        One for each of the orders.
    """
    d = X.shape[1]
    if isinstance(kernel, Product):
        for narrow, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
            if narrow.n_features(d) is not None:
                return _combine_product(narrow, other, X, Y, coefficients, orders)
    blocks = kernel.derivatives(X, Y, [(order, None) for order in orders])
    return [block @ coefficients for block in blocks]


def _combine_product(narrow, other, X, Y, coefficients, orders):
    """Combinations of phi(x) . phi(y) k(x, y), `narrow` being the kernel of phi."""
    d = X.shape[1]
    on = narrow.depends_on(d), other.depends_on(d)
    splits = [list(leibniz(order, *on)) for order in orders]
    inner = list(dict.fromkeys(second for split in splits for _, _, second in split))
    # The coefficients c_j phi(y_j), of shape (m, features * p).
    spread = (narrow.feature_map(Y)[:, :, None] * coefficients[:, None]).reshape(
        len(Y), -1
    )
    combined = {
        order: each.reshape(len(X), -1, coefficients.shape[1])
        for order, each in zip(inner, combine(other, X, Y, spread, inner), strict=True)
    }
    features = {
        first: narrow.feature_map(X, first) for split in splits for _, first, _ in split
    }
    totals = []
    for split in splits:
        total = np.zeros((len(X), coefficients.shape[1]))
        for factor, first, second in split:
            total += factor * np.einsum("nf,nfp->np", features[first], combined[second])
        totals.append(total)
    return totals


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

"""A state learned together with its equation, and how certain it is."""

import numpy as np

from keql._numerics.linalg import solve_lower
from keql.operators import KernelExpansion, gram_diagonal


class DualState(KernelExpansion):
    """A state in terms of representers, with variances of the linearised problem.

    The covariance of the data of one function is H + Psi Psi^T, and functions share
    the weights of P; by the Woodbury identity what the data explain of a prior
    variance is ``|L^-1 q|^2 - |R^-1 Y^T L^-1 q|^2`` with R R^T = I + sum Y^T Y.

    Parameters
    ----------
    kernel : Kernel
        State kernel.
    block : DualBlock
        The function.
    coefficients : ndarray of shape (N + Q' K,)
        Of the representers.
    slopes : ndarray of shape (Q', K)
        Coefficients of the linearised equation.
    penalty : float
        lambda: the prior covariance is the kernel over lambda.
    cholesky : ndarray of shape (N + K, N + K)
        L.
    shared : ndarray of shape (p, N + K)
        R^-1 Y^T.
    dispersion : float
        By which all variances are multiplied.
    """

    def __init__(
        self,
        kernel,
        block,
        coefficients,
        slopes,
        penalty,
        cholesky,
        shared,
        dispersion,
    ):
        super().__init__(kernel, block.functionals, coefficients, cholesky)
        self.slopes = slopes
        self.penalty = penalty
        self.shared = shared
        self.dispersion = dispersion

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the state.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent state, without observation noise; never negative.
        """
        n_values = len(self.functionals[0][0])
        explained = []
        for cross in self._cross(points, operator):
            operators = cross[:, n_values:].reshape(len(cross), *self.slopes.shape)
            imposed = np.einsum("nqk,qk->nk", operators, self.slopes)
            q = np.hstack([cross[:, :n_values], imposed]).T / self.penalty
            q = solve_lower(self.cholesky, q)
            explained.append(
                np.sum(q**2, axis=0) - np.sum((self.shared @ q) ** 2, axis=0)
            )
        prior = gram_diagonal(self.kernel, points, operator) / self.penalty
        left = np.maximum(prior - np.concatenate(explained), 0.0)
        return self.dispersion * left


class PrimalState(KernelExpansion):
    """A state in an orthonormal basis, with variances of the linearised problem.

    Given the weights of P, the covariance of the coefficients z is ``(H^T H)^-1``; with
    phi the basis functions at a point, the variance is ``|H^-T phi|^2``, plus
    ``|R^-1 B^T H^-T phi|^2`` from the weights of P, plus the prior variance of what the
    basis does not span. No difference of large numbers is taken of data.

    Parameters
    ----------
    basis : SpanBasis
        The basis.
    z : ndarray of shape (r,)
        Coefficients of the state.
    penalty : float
        lambda: the prior covariance is the kernel over lambda.
    triangle : ndarray of shape (r, r)
        H, upper triangular.
    shared : ndarray of shape (p, r)
        R^-1 B^T.
    dispersion : float
        By which all variances are multiplied.
    """

    def __init__(self, basis, z, penalty, triangle, shared, dispersion):
        super().__init__(basis.kernel, basis.functionals, basis.coefficients(z))
        self.basis = basis
        self.penalty = penalty
        self.triangle = triangle
        self.shared = shared
        self.dispersion = dispersion

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the state.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent state, without observation noise; never negative.
        """
        phi = self.basis([(points, operator)]).T
        prior = gram_diagonal(self.kernel, points, operator)
        outside = np.maximum(prior - np.sum(phi**2, axis=0), 0.0) / self.penalty
        q = solve_lower(self.triangle.T, phi)
        within = np.sum(q**2, axis=0) + np.sum((self.shared @ q) ** 2, axis=0)
        return self.dispersion * (outside + within)

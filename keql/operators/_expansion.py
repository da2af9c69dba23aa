"""Functions of an RKHS, as sums of representers."""

import numpy as np

from keql._numerics.linalg import solve_lower
from keql.operators._gram import gram, gram_diagonal

# Rows of a Gram matrix that are held in memory at once, times its columns.
BLOCK_ENTRIES = 2**21


class KernelExpansion:
    """A function v = sum_j c_j phi_j k(., y_j) of an RKHS, for functionals phi_j.

    Parameters
    ----------
    kernel : Kernel
        Kernel of the RKHS.
    functionals : list of (points, operator)
        As in :func:`gram`.
    coefficients : ndarray of shape (n,)
        The c_j, in the order of the functionals.
    cholesky : ndarray of shape (n, n), default=None
        Lower Cholesky factor of the covariance of the data that determined the c_j;
        gives posterior variances.

    Examples
    --------
    >>> import numpy as np
    >>> from keql.kernels import RBF
    >>> from keql.operators import KernelExpansion, parse_operator
    >>> u = parse_operator("u", ("x",))
    >>> bump = KernelExpansion(RBF(1.0), [(np.array([[0.0]]), u)], np.array([2.0]))
    >>> bump.evaluate(np.array([[0.0]]), u)
    array([2.])
    """

    def __init__(self, kernel, functionals, coefficients, cholesky=None):
        self.kernel = kernel
        self.functionals = functionals
        self.coefficients = coefficients
        self.cholesky = cholesky

    def evaluate(self, points, operator):
        """Values of an operator applied to the function.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        values : ndarray of shape (n,)
            Computed in blocks of rows: memory grows with n linearly.
        """
        return np.concatenate(
            [cross @ self.coefficients for cross in self._cross(points, operator)]
        )

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the function.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent function, without observation noise; never negative.
        """
        explained = np.concatenate(
            [
                np.sum(solve_lower(self.cholesky, cross.T) ** 2, axis=0)
                for cross in self._cross(points, operator)
            ]
        )
        prior = gram_diagonal(self.kernel, points, operator)
        return np.maximum(prior - explained, 0.0)

    def _cross(self, points, operator):
        rows = max(1, BLOCK_ENTRIES // len(self.coefficients))
        for i in range(0, len(points), rows):
            functional = (points[i : i + rows], operator)
            yield gram(self.kernel, [functional], self.functionals)

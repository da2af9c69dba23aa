"""Functions of an RKHS, as sums of representers."""

import numpy as np

from keql._numerics.linalg import cholesky, solve_lower
from keql.operators._gram import gram, gram_diagonal


class KernelExpansion:
    """A function v = sum_j c_j phi_j k(., y_j) of an RKHS, for functionals phi_j.

    What is saved of one has the size of the data: without the factor, which is computed
    again whenever variances are asked for.

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
        None: computed from the kernel and `noise_variances` whenever posterior
        variances are asked for.
    noise_variances : ndarray of shape (n,), default=None
        Of these data, in units of their squares; None: they are exact.

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

    def __init__(
        self, kernel, functionals, coefficients, cholesky=None, noise_variances=None
    ):
        self.kernel = kernel
        self.functionals = functionals
        self.coefficients = coefficients
        self.noise_variances = noise_variances
        self.factors = cholesky

    def __getstate__(self):
        return {**vars(self), "factors": None}

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
        L = self._factorise() if self.factors is None else self.factors
        explained = np.concatenate(
            [
                np.sum(solve_lower(L, cross.T) ** 2, axis=0)
                for cross in self._cross(points, operator)
            ]
        )
        prior = gram_diagonal(self.kernel, points, operator)
        return np.maximum(prior - explained, 0.0)

    def _factorise(self):
        covariance = gram(self.kernel, self.functionals)
        if self.noise_variances is not None:
            covariance[np.diag_indices_from(covariance)] += self.noise_variances
        return cholesky(covariance)

    def _cross(self, points, operator, n_entries=2**21):
        """Rows of the Gram matrix of points and representers, `n_entries` at a time."""
        rows = max(1, n_entries // len(self.coefficients))
        for i in range(0, len(points), rows):
            functional = (points[i : i + rows], operator)
            yield gram(self.kernel, [functional], self.functionals)

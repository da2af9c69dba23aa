"""The state of a function by kernel ridge regression."""

import numpy as np

from keql._numerics.linalg import cholesky, solve_cholesky
from keql.operators import KernelExpansion, gram


def fit_state(kernel, noise, data, identity):
    """Kernel ridge regression: the mean of a Gaussian process given its values.

    The minimiser of ``|v|^2 + sum_i w_i (v(x_i) - y_i)^2 / noise^2`` in the RKHS.

    Parameters
    ----------
    kernel : Kernel
        Prior covariance.
    noise : float
        Standard deviation of a value of weight 1.
    data : FunctionData
        The values.
    identity : DifferentialOperator
        The operator "u" in the variables of the points.

    Returns
    -------
    state : KernelExpansion
        With posterior variances.
    """
    functional = [(data.points, identity)]
    covariance = gram(kernel, functional)
    covariance[np.diag_indices_from(covariance)] += noise**2 / data.weights
    factor = cholesky(covariance)
    coefficients = solve_cholesky(factor, data.values)
    return KernelExpansion(kernel, functional, coefficients, factor)

"""The state of a function by kernel ridge regression."""

import numpy as np

from keql._numerics.linalg import cholesky, solve_cholesky
from keql.operators import KernelExpansion, gram


def fit_state(kernel, noise, data, identity):
    """Kernel ridge regression: the mean of a Gaussian process given its values.

    The minimiser of ``|v|^2 + sum_i w_i (v(x_i) - y_i)^2 / noise^2`` in the RKHS of a
    kernel, for a FunctionData and the operator "u" in its variables; a KernelExpansion
    with posterior variances.
    """
    functional = [(data.points, identity)]
    covariance = gram(kernel, functional)
    variances = noise**2 / data.weights
    covariance[np.diag_indices_from(covariance)] += variances
    factor = cholesky(covariance)
    coefficients = solve_cholesky(factor, data.values)
    return KernelExpansion(kernel, functional, coefficients, factor, variances)

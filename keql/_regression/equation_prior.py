"""The laws that are tried when nothing is said about the equation.

The first is a quadratic polynomial in the operators, the next one a cubic one. One
function, whatever it is, may as well solve a linear equation whose coefficients vary
with the coordinates, so that only several functions tell these apart.
"""

import numpy as np

from keql._numerics.scaling import extent_of
from keql.kernels import RBF, Constant, Polynomial

# Bounds of a variance, relative to that of what P has to explain.
VARIANCES = (1e-6, 1e6)
# Length scale of varying coefficients, in units of the points' extent: the features of
# two-step states, from which it could be estimated, are too poor for that.
LENGTH = 1.0


def polynomial_kernel(size, degree=2):
    """A kernel of polynomials in the operators.

    Parameters
    ----------
    size : float
        Of P: the root mean square of what it has to explain.
    degree : int, default=2
        Of the polynomials.

    Returns
    -------
    kernel : Kernel
        With a free variance.
    """
    return _variance(size) * Polynomial(degree)


def varying_coefficient_kernel(size, points):
    """A kernel of linear laws whose coefficients vary smoothly.

    Parameters
    ----------
    size : float
        Of P: the root mean square of what it has to explain.
    points : ndarray of shape (n, d)
        Where it is imposed or states are observed, for the extent.

    Returns
    -------
    kernel : Kernel
        With a free variance.
    """
    columns = tuple(range(points.shape[1]))
    coefficients = RBF(LENGTH * extent_of(points), "fixed", active_dims=columns)
    return _variance(size) * coefficients * Polynomial(1)


def _variance(size):
    return Constant(size**2, tuple(np.multiply(VARIANCES, size**2)))

"""The equation kernels that are tried when nothing is said about the equation.

The first one is of quadratic polynomials in the operators, the next of cubic ones. One
function, whatever it is, may as well solve a linear equation whose coefficients vary
with the coordinates, so that only several functions tell these apart.
"""

import numpy as np

from keql._numerics.scaling import extent_of
from keql.kernels import RBF, Constant, Polynomial


def polynomial_kernel(size, degree=2):
    """A kernel of polynomials in the operators, with a free variance.

    `size` is the root mean square of what P has to explain.
    """
    return _variance(size) * Polynomial(degree)


def varying_coefficient_kernel(size, points, length=1.0):
    """A kernel of linear equations with smoothly varying coefficients, free variance.

    `size` is the root mean square of what P has to explain. The length scale of the
    coefficients is `length` in units of the extent of the points (n, d): the features
    of two-step states are too poor to estimate it from.
    """
    columns = tuple(range(points.shape[1]))
    coefficients = RBF(length * extent_of(points), "fixed", active_dims=columns)
    return _variance(size) * coefficients * Polynomial(1)


def _variance(size, limits=(1e-6, 1e6)):
    """A free variance, its bounds in units of the square of `size`."""
    return Constant(size**2, tuple(np.multiply(limits, size**2)))

"""scikit-learn's kernels and their counterparts here."""

from numbers import Real

import numpy as np
from sklearn.gaussian_process import kernels as sklearn_kernels

from keql._numerics.arguments import is_real, naming, refuse_odd_number
from keql.kernels._base import Exponentiation, Product, Sum, as_kernel
from keql.kernels._polynomial import Constant, Polynomial
from keql.kernels._radial import RBF, Matern, RationalQuadratic
from keql.kernels._stationary import Periodic


@as_kernel.register(sklearn_kernels.WhiteKernel)
def _refuse_white(kernel):
    raise TypeError(
        "WhiteKernel describes noise, not a function that can be differentiated: leave "
        "it out and give (or leave to be estimated) the estimator's observation_noise."
    )


@as_kernel.register(sklearn_kernels.Sum)
@as_kernel.register(sklearn_kernels.Product)
def _convert_pair(kernel):
    counterpart = Sum if isinstance(kernel, sklearn_kernels.Sum) else Product
    return counterpart(as_kernel(kernel.k1), as_kernel(kernel.k2))


@as_kernel.register(sklearn_kernels.Exponentiation)
def _convert_power(kernel):
    return Exponentiation(as_kernel(kernel.kernel), kernel.exponent)


def _register(given, counterpart):
    """Convert to a kernel that has parameters of the same names."""
    as_kernel.register(given, lambda kernel: counterpart(**kernel.get_params()))


_register(sklearn_kernels.ConstantKernel, Constant)
_register(sklearn_kernels.RBF, RBF)
_register(sklearn_kernels.RationalQuadratic, RationalQuadratic)
_register(sklearn_kernels.ExpSineSquared, Periodic)


@as_kernel.register(sklearn_kernels.Matern)
def _convert_matern(kernel):
    if kernel.nu == np.inf:
        return RBF(kernel.length_scale, kernel.length_scale_bounds)
    return Matern(**kernel.get_params())


@as_kernel.register(sklearn_kernels.DotProduct)
def _convert_dot_product(kernel):
    bounds = kernel.sigma_0_bounds
    if not isinstance(bounds, str):
        bounds = tuple(np.square(np.ravel(bounds)))
    return Polynomial(1, 1.0, 0.0, offset=kernel.sigma_0**2, offset_bounds=bounds)


@as_kernel.register(Real)
def _convert_number(value):
    with naming("kernel"):
        refuse_odd_number(value)
    if not is_real(value) or not 0 < value < np.inf:
        raise ValueError(f"a number used as a kernel must be positive, got {value!r}.")
    # A number beyond the usual bounds would be moved into these by a fit.
    low, high = (1e-5, 1e5) if 1e-5 <= value <= 1e5 else (1e-5 * value, 1e5 * value)
    return Constant(float(value), (low, high))

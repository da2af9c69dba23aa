"""Kernels with mixed derivatives of any order in both arguments.

Every kernel is a scikit-learn kernel as well, so that it also serves in
:class:`sklearn.gaussian_process.GaussianProcessRegressor`.
"""

from keql.kernels import _convert  # registers scikit-learn's kernels
from keql.kernels._active import ActiveKernel
from keql.kernels._base import Exponentiation, Kernel, Product, Sum, as_kernel
from keql.kernels._envelope import Envelope
from keql.kernels._features import (
    Dictionary,
    combinations,
    narrow_and_wide,
)
from keql.kernels._function import FunctionKernel
from keql.kernels._multi_index import distinct_rows, leibniz
from keql.kernels._polynomial import Constant, Polynomial
from keql.kernels._radial import RBF, Matern, RadialKernel, RationalQuadratic
from keql.kernels._restriction import (
    Restriction,
    feature_slopes,
    features_with_slopes,
    parse_monomial,
    unrestricted,
)
from keql.kernels._states import ProjectedKernel, SystemKernel, map_states
from keql.kernels._stationary import Periodic

__all__ = [
    "RBF",
    "ActiveKernel",
    "Constant",
    "Dictionary",
    "Envelope",
    "Exponentiation",
    "FunctionKernel",
    "Kernel",
    "Matern",
    "Periodic",
    "Polynomial",
    "Product",
    "RadialKernel",
    "RationalQuadratic",
    "Restriction",
    "Sum",
    "SystemKernel",
    "as_kernel",
    "parse_monomial",
]

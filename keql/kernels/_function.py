"""A kernel of any two points, differentiated automatically."""

from typing import Any

import autograd.numpy as anp
import numpy as np

from keql._numerics.arguments import check_functions
from keql._numerics.autodiff import differentiate
from keql.kernels._active import ActiveKernel, NonStationaryKernel


class FunctionKernel(NonStationaryKernel, ActiveKernel):
    r"""A kernel of your own, given as a function of two points.

    Its derivatives come from automatic differentiation, coordinate by coordinate on
    arrays of all pairs; they cost more time and memory than the closed forms (about
    ten arrays of shape (n, m) for each order), so a function of the distance is
    better given to :class:`RadialKernel`.

    Parameters
    ----------
    function : callable
        The function k(x, y), symmetric and positive definite, written in
        `autograd.numpy`: takes two arrays of shape (..., d) and returns one of shape
        (...). To be pickled it must be importable (a function of a module, not a
        lambda).
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.

    Examples
    --------
    >>> import autograd.numpy as np
    >>> from keql.kernels import FunctionKernel
    >>> kernel = FunctionKernel(lambda x, y: np.exp(np.sum(x * y, axis=-1)))
    >>> kernel.derivative([[0.0]], [[0.0]], a=(1,), b=(1,))
    array([[1.]])
    """

    def __init__(self, function: Any, active_dims: Any = None) -> None:
        self.function = function
        self.active_dims = active_dims

    def _active_derivatives(self, X, Y, pairs):
        check_functions(self, "function")
        n, m = len(X), len(Y)
        coordinates = [np.repeat(x, m) for x in X.T] + [np.tile(y, n) for y in Y.T]
        for column in np.flatnonzero(np.sum(pairs, axis=(0, 1))):
            self._check_diagonal(X[0], column)
        with np.errstate(divide="ignore", invalid="ignore"):  # reported below
            values = [self._differentiate(coordinates, a + b) for a, b in pairs]
        for value in map(np.asarray, values):
            if value.dtype.kind not in "fiub" or value.size != n * m:
                raise ValueError(
                    f"function returned {value.size} value(s) for {n * m} pairs of "
                    "points: it must return one number for each."
                )
        if not all(np.all(np.isfinite(value)) for value in values):
            raise ValueError(
                "`function` has a derivative that is not finite at X and Y: these are "
                "not finite themselves, or the kernel is too "
                "rough for the operator, or written with a function that autograd "
                "cannot differentiate (such as a square root at 0)."
            )
        return [np.reshape(value, (n, m)) for value in values]

    def _differentiate(self, coordinates, orders):
        """A derivative at pairs of points, given as the columns of x, then of y."""
        d = len(coordinates) // 2

        def function(*columns):
            x, y = anp.stack(columns[:d], axis=-1), anp.stack(columns[d:], axis=-1)
            try:
                return self.function(x, y)
            except Exception as error:
                raise ValueError(
                    f"function failed for x and y of shape {np.shape(x)}: "
                    f"{type(error).__name__}: {error}. It must take two arrays."
                ) from error

        return differentiate(function, orders, coordinates)

    def _check_diagonal(self, x, column):
        """Refuse a first derivative that autograd gets wrong where x = y.

        There it is not a number through a square root, or 0 without complaint through
        np.where or a guarded square root, while every kernel has
        k_xy(x, y)^2 <= k_xy(x, x) k_xy(y, y) for the derivative k_xy in the same
        coordinate of both arguments.
        """
        steps = np.append(0.0, 10.0 ** np.arange(-6, 7))
        here, there = np.tile(x, (len(steps), 1)), x + steps[:, None]
        unit = (np.arange(len(x)) == column).astype(int)
        with np.errstate(all="ignore"):
            mixed, *variances = (
                self._differentiate([*first.T, *second.T], (*unit, *unit))
                for first, second in ((here, there), (here, here), (there, there))
            )
            too_large = mixed**2 > 4 * variances[0] * variances[1]
        if np.any(too_large) or not np.isfinite(variances[0][0]):
            raise ValueError(
                "`function` is differentiated wrongly where x = y: autograd gives the "
                f"variance {variances[0][0]:.3g} to its first derivative there. Write "
                "the kernel without np.where and without a square root, guarded or not."
            )

    def _active_gradient(self, X, Y):
        return []

"""Kernels that know their derivatives: the base class and the compositions."""

from functools import reduce, singledispatch
from operator import add, mul
from typing import Any, Self

import numpy as np
from scipy.linalg import block_diag
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sklearn_kernels

from keql._numerics.arguments import as_rows, check_functions, in_short, is_int
from keql.kernels._multi_index import (
    as_multi_index,
    by_index,
    combine,
    leibniz,
    merge_monomials,
    sum_of_derivatives,
    sum_of_products,
    times_variance,
)


@singledispatch
def as_kernel(kernel: Any) -> Any:
    """Convert a scikit-learn kernel, or a positive number, to a keql kernel.

    Parameters
    ----------
    kernel : kernel or float
        A keql kernel is returned as it is; scikit-learn's `RBF`, `Matern`,
        `RationalQuadratic`, `ExpSineSquared`, `ConstantKernel`, `DotProduct` and their
        sums, products and integer powers become their keql counterparts with the same
        hyperparameters and bounds; a number becomes a :class:`Constant`.

    Returns
    -------
    kernel : Kernel
        The same function of two points, with derivatives.

    Raises
    ------
    TypeError
        If there is no counterpart with derivatives.
    ValueError
        If a number is not positive.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from keql.kernels import as_kernel
    >>> as_kernel(RBF([1.0, 2.0])).derivative([[0.0, 0.0]], a=(1, 0), b=(1, 0))
    array([[1.]])
    """
    if isinstance(kernel, type):
        name = kernel.__name__
        raise TypeError(f"the class {name} is no kernel: give an instance, {name}().")
    raise TypeError(
        f"{kernel!r} has no known derivatives: use a kernel of keql.kernels or its "
        "scikit-learn counterpart, or write the function of two points in "
        "autograd.numpy and pass it as keql.kernels.FunctionKernel(function)."
    )


class Kernel(sklearn_kernels.Kernel):
    """Base class of the kernels of keql: scikit-learn kernels with derivatives.

    Sums and products, also with numbers and scikit-learn's kernels, and `theta` work as
    in scikit-learn. A kernel of your own derives from :class:`ActiveKernel`.

    Examples
    --------
    >>> from keql.kernels import RBF
    >>> kernel = 2.0 * RBF(0.5) + RBF(3.0)
    >>> kernel.derivative([[0.0]], [[0.0]], a=(2,)).round(6)
    array([[-8.111111]])
    """

    @property
    def feature_names(self) -> Any:
        """Names of exact features that are no polynomials; None if there are none."""
        return None

    def derivative(self, X: Any, Y: Any = None, a: Any = None, b: Any = None) -> Any:
        """Mixed derivative d^a_x d^b_y k(x, y) for all pairs of points.

        Parameters
        ----------
        X, Y : array-like of shape (n, d) and (m, d)
            First and second points; `Y` is `X` if it is None, the default.
        a, b : tuple of d int, default=None
            Orders of differentiation in each coordinate of the first and of the second
            argument; None differentiates not at all.

        Returns
        -------
        values : ndarray of shape (n, m)
            In units of the kernel over those of the coordinates differentiated.

        Raises
        ------
        ValueError
            If a multi-index has the wrong length, or the derivative does not exist.
        """
        return self.derivatives(X, Y, [(a, b)])[0]

    def derivatives(self, X: Any, Y: Any, pairs: Any) -> list:
        """Several mixed derivatives at once, sharing what they have in common.

        Parameters
        ----------
        X, Y : array-like of shape (n, d) and (m, d)
            First and second points; `Y` is `X` if it is None.
        pairs : list of (a, b)
            Multi-indices as in :meth:`derivative`.

        Returns
        -------
        values : list of ndarray of shape (n, m)
            One new array for each pair.
        """
        X = as_rows(X, "X")
        Y = X if Y is None else as_rows(Y, "Y")
        d = X.shape[1]
        if Y.shape[1] != d:
            raise ValueError(f"Y has {Y.shape[1]} column(s), and X has {d}.")
        pairs = [(as_multi_index(a, d), as_multi_index(b, d, "b")) for a, b in pairs]
        for a in {a for pair in pairs for a in pair if any(a)}:
            self.check_order(a)
        return self._derivatives(X, Y, pairs)

    def gradient(self, X: Any, Y: Any = None) -> np.ndarray:
        """Gradient of k(x, y) with respect to its first argument.

        Parameters
        ----------
        X, Y : array-like of shape (n, d) and (m, d)
            First and second points; `Y` is `X` if it is None, the default.

        Returns
        -------
        gradient : ndarray of shape (d, n, m)
            The partial derivatives, one coordinate after the other.
        """
        X = as_rows(X, "X")
        units = np.eye(X.shape[1], dtype=int)
        return np.stack(self.derivatives(X, Y, [(tuple(e), None) for e in units]))

    def check_order(self, a: Any, operator: str | None = None) -> None:
        """Refuse a derivative that is not defined on the kernel's RKHS.

        Parameters
        ----------
        a : tuple of d int
            Multi-index of the derivative.
        operator : str, default=None
            What the error message calls it.

        Raises
        ------
        ValueError
            If point values of the derivative are unbounded on the RKHS.
        """

    def of_state(self, name: str) -> Any:
        """The kernel of a state: this one, whatever the name of the state.

        Parameters
        ----------
        name : str
            Name of the state.

        Returns
        -------
        kernel : Kernel
            This kernel; a :class:`SystemKernel` has one for each state.
        """
        return self

    def bind(self, names: Any, default: Any = None) -> Any:
        """Resolve `active_dims` to column indices.

        Parameters
        ----------
        names : list of str
            Names of the columns that the kernel will see.
        default : tuple of int, default=None
            Columns for the parts whose `active_dims` is None; None leaves them be.

        Returns
        -------
        kernel : Kernel
            A clone.

        Raises
        ------
        ValueError
            If an active dimension is no column.
        """
        return self._map(lambda kernel: kernel._bind(list(names), default))

    def scaled_to(self, S: Any) -> Any:
        """Set centre and scale of polynomial parts that say "auto" from features.

        Parameters
        ----------
        S : array-like of shape (n, d)
            Features as the kernel will see them.

        Returns
        -------
        kernel : Kernel
            A clone.
        """
        S = as_rows(S, "S")
        return self._map(lambda kernel: kernel._scaled_to(S))

    def depends_on(self, d: int) -> np.ndarray:
        """Which of `d` columns the kernel looks at.

        Parameters
        ----------
        d : int
            Number of columns.

        Returns
        -------
        mask : ndarray of bool of shape (d,)
            False where the kernel is constant.
        """
        return np.ones(d, dtype=bool)

    def n_features(self, d: int) -> Any:
        """Dimension of the exact feature map on `d` columns.

        Parameters
        ----------
        d : int
            Number of columns.

        Returns
        -------
        p : int or None
            None when the kernel's space has infinite dimension.
        """
        return None

    def feature_polynomials(self, d: int) -> Any:
        """Exact features of a polynomial kernel as polynomials of the columns.

        Parameters
        ----------
        d : int
            Number of columns.

        Returns
        -------
        polynomials : (exponents, coefficients) or None
            Feature j is `sum_q coefficients[q, j] * prod_i s_i**exponents[q, i]`,
            with exponents (q, d) and coefficients (q, p), and the kernel is the inner
            product of the features; None when its space has infinite dimension.
        """
        return None

    def degree_in(self, columns: Any) -> Any:
        """Degree of the functions of the kernel's space, as polynomials of columns.

        Parameters
        ----------
        columns : array-like of bool, of shape (d,)
            The columns in question; the others are held fixed.

        Returns
        -------
        degree : int or None
            None when the functions are no polynomials of these columns.
        """
        columns = np.asarray(columns, dtype=bool)
        if not np.any(self.depends_on(len(columns)) & columns):
            return 0
        polynomials = self.feature_polynomials(len(columns))
        if polynomials is None:
            return None
        return int(polynomials[0][:, columns].sum(axis=1).max())

    def feature_map(self, S: Any, a: Any = None) -> Any:
        """Values, or a derivative, of the exact features.

        Parameters
        ----------
        S : array-like of shape (n, d)
            Points.
        a : tuple of d int, default=None
            Multi-index of the derivative; None for the values.

        Returns
        -------
        features : ndarray of shape (n, p) or None
            `feature_map(S) @ feature_map(T).T` equals `kernel(S, T)`; None when the
            kernel's space has infinite dimension.
        """
        return None

    def __add__(self, other):
        return Sum(self, as_kernel(other))

    def __radd__(self, other):
        return Sum(as_kernel(other), self)

    def __mul__(self, other):
        return Product(self, as_kernel(other))

    def __rmul__(self, other):
        return Product(as_kernel(other), self)

    def __pow__(self, exponent):
        return Exponentiation(self, exponent)

    def _map(self, function):
        """Apply a function to each part that is not itself a composition."""
        return function(self)

    def _bind(self, names, default):
        return clone(self)

    def _scaled_to(self, S):
        return clone(self)


as_kernel.register(Kernel, lambda kernel: kernel)


class _Pair(Kernel):
    """What sums and products of two kernels share."""

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        check_functions(self, "k1", "k2")
        return super().__call__(X, Y, eval_gradient)

    def check_order(self, a: Any, operator: str | None = None) -> None:
        self.k1.check_order(a, operator)
        self.k2.check_order(a, operator)

    def depends_on(self, d: int) -> np.ndarray:
        return self.k1.depends_on(d) | self.k2.depends_on(d)

    def clone_with_theta(self, theta: Any) -> Self:
        n = self.k1.n_dims
        first = self.k1.clone_with_theta(theta[:n])
        return type(self)(first, self.k2.clone_with_theta(theta[n:]))

    def _map(self, function):
        return type(self)(self.k1._map(function), self.k2._map(function))


class Sum(_Pair, sklearn_kernels.Sum):
    """Sum of two kernels: a function that is the sum of two independent ones.

    Parameters
    ----------
    k1, k2 : Kernel
        The kernels; usually written `k1 + k2`.

    Examples
    --------
    >>> from keql.kernels import RBF, Polynomial
    >>> (RBF(1.0) + Polynomial(1, scale=1.0, center=0.0))([[2.0]])
    array([[6.]])
    """

    def degree_in(self, columns: Any) -> Any:
        return combine(max, self.k1.degree_in(columns), self.k2.degree_in(columns))

    def n_features(self, d: int) -> Any:
        return combine(add, self.k1.n_features(d), self.k2.n_features(d))

    def feature_polynomials(self, d: int) -> Any:
        first, second = self.k1.feature_polynomials(d), self.k2.feature_polynomials(d)
        if first is None or second is None:
            return None
        exponents = np.vstack([first[0], second[0]])
        return merge_monomials(exponents, block_diag(first[1], second[1]))

    def feature_map(self, S: Any, a: Any = None) -> Any:
        features = self.k1.feature_map(S, a), self.k2.feature_map(S, a)
        return None if any(part is None for part in features) else np.hstack(features)

    def _derivatives(self, X, Y, pairs):
        return sum_of_derivatives(self.k1, self.k2, X, Y, pairs)


class Product(_Pair, sklearn_kernels.Product):
    """Product of two kernels; its derivatives follow from the Leibniz rule.

    Parameters
    ----------
    k1, k2 : Kernel
        The kernels; usually written `k1 * k2`.

    Examples
    --------
    >>> from keql.kernels import RBF, Periodic
    >>> kernel = RBF(0.5, active_dims=0) * Periodic(1.0, 2.0, active_dims=1)
    >>> kernel.derivative([[0.0, 0.0]], a=(1, 1), b=(1, 1)).round(6)
    array([[39.478418]])
    """

    def degree_in(self, columns: Any) -> Any:
        return combine(add, self.k1.degree_in(columns), self.k2.degree_in(columns))

    def n_features(self, d: int) -> Any:
        return combine(mul, self.k1.n_features(d), self.k2.n_features(d))

    def feature_polynomials(self, d: int) -> Any:
        first, second = self.k1.feature_polynomials(d), self.k2.feature_polynomials(d)
        if first is None or second is None:
            return None
        if len(first[0]) == 1 and not np.any(first[0]):  # a constant
            return second[0], np.kron(first[1], second[1])
        exponents = (first[0][:, None, :] + second[0][None, :, :]).reshape(-1, d)
        return merge_monomials(exponents, np.kron(first[1], second[1]))

    def feature_map(self, S: Any, a: Any = None) -> Any:
        S = np.atleast_2d(S)
        d = S.shape[1]
        if self.n_features(d) is None:
            return None
        on = self.k1.depends_on(d), self.k2.depends_on(d)
        total = np.zeros((len(S), self.n_features(d)))
        for factor, a1, a2 in leibniz(as_multi_index(a, d), *on):
            first, second = self.k1.feature_map(S, a1), self.k2.feature_map(S, a2)
            total += factor * (first[:, :, None] * second[:, None]).reshape(total.shape)
        return total

    def _derivatives(self, X, Y, pairs):
        d, kernels = X.shape[1], (self.k1, self.k2)
        on = [np.tile(kernel.depends_on(d), 2) for kernel in kernels]
        if not all(map(np.any, on)):
            return times_variance(*kernels, on[0], X, Y, pairs)
        splits = [list(leibniz(a + b, *on)) for a, b in pairs]  # between the factors
        first, second = (
            by_index(kernel, X, Y, {split[k] for terms in splits for split in terms})
            for k, kernel in enumerate(kernels, 1)
        )
        return [sum_of_products(t, first, second, (len(X), len(Y))) for t in splits]


class Exponentiation(Kernel, sklearn_kernels.Exponentiation):
    """Positive integer power of a kernel, k(x, y)**exponent.

    Parameters
    ----------
    kernel : Kernel
        The kernel; the power is usually written `kernel**exponent`.
    exponent : int
        At least 1.

    Examples
    --------
    >>> from keql.kernels import RBF
    >>> (RBF(1.0) ** 2).derivative([[0.0]], a=(1,), b=(1,))
    array([[2.]])
    """

    def check_order(self, a: Any, operator: str | None = None) -> None:
        self.kernel.check_order(a, operator)

    def depends_on(self, d: int) -> np.ndarray:
        return self.kernel.depends_on(d)

    def degree_in(self, columns: Any) -> Any:
        return self._as_product().degree_in(columns)

    def n_features(self, d: int) -> Any:
        return self._as_product().n_features(d)

    def feature_polynomials(self, d: int) -> Any:
        return self._as_product().feature_polynomials(d)

    def feature_map(self, S: Any, a: Any = None) -> Any:
        return self._as_product().feature_map(S, a)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        check_functions(self, "kernel")
        self._as_product()  # checks the exponent
        return super().__call__(X, Y, eval_gradient)

    def _as_product(self):
        if not is_int(self.exponent) or not 1 <= self.exponent <= 100:
            raise ValueError(
                f"exponent={in_short(self.exponent)} must be an integer from 1 to 100."
            )
        return reduce(Product, [self.kernel] * int(self.exponent))

    def _derivatives(self, X, Y, pairs):
        return self._as_product()._derivatives(X, Y, pairs)

    def _map(self, function):
        return Exponentiation(self.kernel._map(function), self.exponent)

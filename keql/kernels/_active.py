"""Kernels that look at some of the columns only."""

from copy import copy
from functools import cache
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process.kernels import Hyperparameter

from keql._numerics.arguments import (
    as_numbers,
    as_rows,
    in_short,
    naming,
    refuse_odd_number,
)
from keql.kernels._base import Kernel


def hyperparameter(name):
    """A property: the parameter, of one or more numbers, as scikit-learn wants it."""

    def describe(kernel):
        bounds, size = getattr(kernel, f"{name}_bounds"), np.size(getattr(kernel, name))
        plain = isinstance(bounds, tuple) and [type(b) for b in bounds] == [float] * 2
        if not (plain and 0 < bounds[0] <= bounds[1]):
            bounds = _bounds(bounds, size, f"{name}_bounds")
        return Hyperparameter(name, "numeric", bounds, size)

    return property(describe, doc=f"`{name}` as a hyperparameter of scikit-learn.")


def _bounds(given, size, name):
    """Bounds of a hyperparameter, checked."""
    if isinstance(given, str) and given == "fixed":
        return "fixed"
    given = as_numbers(given, name)
    if given.shape not in {(2,), (1, 2), (size, 2)}:
        raise ValueError(
            f"{name} has the shape {given.shape}: give a pair, or 'fixed'."
        )
    lower, upper = given.T
    if not np.all((lower > 0) & (lower <= upper)):
        raise ValueError(
            f"{name}={in_short(given.tolist())} must be pairs of positive numbers, the "
            "lower one first, or 'fixed'."
        )
    return given


def row_blocks(n, m, n_entries=2**14):
    """Slices of the rows of an (n, m) matrix with about `n_entries` entries in each.

    A few arrays of this size fit into the cache, and the memory that is needed beside
    the result does not grow with it.
    """
    step = max(1, n_entries // max(1, m))
    return [slice(start, start + step) for start in range(0, n, step)]


@cache
def _names_of_hyperparameters(kernel):
    """The attributes of a class of kernels that describe its hyperparameters."""
    return [name for name in dir(kernel) if name.startswith("hyperparameter_")]


class ParametricKernel(Kernel):
    """A kernel with hyperparameters of its own, which are read and set often.

    scikit-learn reads the signature of a kernel each time.
    """

    @property
    def hyperparameters(self) -> Any:
        """Descriptions of all hyperparameters, fixed or free, sorted by name."""
        cls: Any = type(self)
        return [getattr(self, name) for name in _names_of_hyperparameters(cls)]

    @property
    def n_dims(self) -> int:
        """Number of the free log-hyperparameters."""
        return sum(each.n_elements for each in self._free_hyperparameters())

    @property
    def theta(self) -> np.ndarray:
        """Logarithms of the free hyperparameters, of shape (n_dims,)."""
        free = [getattr(self, each.name) for each in self._free_hyperparameters()]
        return np.log(np.hstack(free)) if free else np.array([])

    @theta.setter
    def theta(self, theta: Any) -> None:
        free = self._free_hyperparameters()
        ends = np.cumsum([each.n_elements for each in free], dtype=int)
        if len(theta) != sum(each.n_elements for each in free):
            raise ValueError(
                f"theta has {len(theta)} entries, and {self} has {self.n_dims} free "
                "hyperparameters."
            )
        for each, end in zip(free, ends, strict=True):
            values = np.exp(theta[end - each.n_elements : end])
            setattr(self, each.name, values if each.n_elements > 1 else values[0])

    def _free_hyperparameters(self):
        return [each for each in self.hyperparameters if not each.fixed]

    def clone_with_theta(self, theta: Any) -> Self:
        """The kernel with other log-hyperparameters; it shares what else it has.

        Parameters
        ----------
        theta : ndarray of shape (n_dims,)
            Logarithms of the free hyperparameters.

        Returns
        -------
        kernel : ParametricKernel
            A new one.
        """
        kernel = copy(self)
        kernel.theta = theta
        return kernel


class NonStationaryKernel(Kernel):
    """A kernel that is not known to depend on the difference of the points only."""

    def is_stationary(self) -> bool:
        return False


class ActiveKernel(ParametricKernel):
    """Base of the kernels that look at some columns only (`active_dims`).

    A subclass implements `_active_derivatives(X, Y, pairs)` on the active columns and
    `_active_gradient(X, Y)`, the derivatives with respect to its free `theta`.

    Examples
    --------
    >>> from keql.kernels import RBF, ActiveKernel
    >>> isinstance(RBF(active_dims=(1,)), ActiveKernel)
    True
    >>> RBF(active_dims="x").bind(["t", "x"]).active_dims
    (1,)
    """

    active_dims = None

    def __repr__(self):
        parameters = [
            f"{name}={_short(value)}"
            for name, value in self.get_params().items()
            if not name.endswith("_bounds") and value is not None
        ]
        return f"{type(self).__name__}({', '.join(parameters)})"

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Values (n, m) at points X (n, d) and Y (m, d); None for Y stands for X.

        With `eval_gradient` also their gradient (n, m, n_dims) with respect to `theta`,
        the log-hyperparameters.
        """
        X = as_rows(X, "X")
        Y = X if Y is None else as_rows(Y, "Y")
        if X.shape[1] != Y.shape[1]:
            raise ValueError(
                f"X has {X.shape[1]} and Y has {Y.shape[1]} column(s): they must have "
                "one for each coordinate, the same number."
            )
        columns = self._columns(X.shape[1])
        X, Y, zero = X[:, columns], Y[:, columns], (0,) * len(columns)
        if not eval_gradient:
            return self._active_derivatives(X, Y, [(zero, zero)])[0]
        K, layers = np.empty((len(X), len(Y))), np.empty((self.n_dims, len(X), len(Y)))
        for rows in row_blocks(*K.shape):
            K[rows], own = self._active_value_and_gradient(X[rows], Y)
            for layer, part in zip(layers, own, strict=True):
                layer[rows] = part
        return K, np.moveaxis(layers, 0, -1)

    def _active_value_and_gradient(self, X, Y):
        """What `_active_gradient` says, and before it the values."""
        zero = (0,) * X.shape[1]
        (K,) = self._active_derivatives(X, Y, [(zero, zero)])
        return K, self._active_gradient(X, Y)

    def diag(self, X: Any) -> np.ndarray:
        return np.array([self(x[None])[0, 0] for x in np.atleast_2d(X)])

    def depends_on(self, d: int) -> np.ndarray:
        mask = np.zeros(d, dtype=bool)
        mask[self._columns(d)] = True
        return mask

    def _columns(self, d):
        """Indices of the active columns among `d`."""
        given = self.active_dims
        if given is None:
            return np.arange(d)
        if type(given) is tuple and all(type(i) is int and 0 <= i < d for i in given):
            if 0 < len(given) == len(set(given)):
                return np.array(given)  # as nearly all of them are
        with naming("active_dims"):
            names = np.atleast_1d(given)
        if names.dtype.kind in "US":
            raise ValueError(
                f"active_dims={self.active_dims!r} are names of columns: use the "
                "kernel in a keql estimator, or call kernel.bind(names) first."
            )
        is_index = names.dtype.kind in "iu" and 0 < names.size == len(set(names))
        if not is_index or names.min() < 0 or names.max() >= d:
            raise ValueError(
                f"active_dims={self.active_dims!r} must be different column indices "
                f"from 0 to {d - 1}: the input has {d} column(s)."
            )
        return names

    def _per_column(self, name, d, positive=True, finite=True):
        """A parameter as a vector with one entry for each of `d` active columns."""
        value = as_numbers(getattr(self, name), name).ravel()
        if value.size not in (1, d):
            raise ValueError(
                f"{name} of {type(self).__name__} has {value.size} entries for {d} "
                "active column(s): give one number, or one for each column."
            )
        allowed = np.isfinite(value) if finite else ~np.isnan(value)
        if not allowed.all() or (positive and not (value > 0).all()):
            kind = "positive" if positive else "finite"
            raise ValueError(f"{name} must be {kind}, got {getattr(self, name)!r}.")
        return value if value.size == d else np.broadcast_to(value, (d,))

    def _log_layers(self, name, layers):
        """Gradient with respect to log(parameter), summed if it is one number."""
        if getattr(self, f"hyperparameter_{name}").fixed:
            return []
        return layers if np.size(getattr(self, name)) > 1 else [sum(layers)]

    def _bind(self, names, default):
        dims, given = default, self.active_dims
        if given is not None:
            given = [given] if isinstance(given, str | Integral) else given
            with naming("active_dims"):
                dims = tuple(_column_index(dim, names) for dim in given)
        kernel = clone(self).set_params(active_dims=dims)
        for each in kernel.hyperparameters:  # which checks the bounds
            with naming(each.name):
                refuse_odd_number(getattr(kernel, each.name))
                if as_numbers(getattr(kernel, each.name), each.name).ndim > 1:
                    raise ValueError(f"{each.name} must be one number, or a list.")
        return kernel

    def _derivatives(self, X, Y, pairs):
        d = X.shape[1]
        columns = self._columns(d).tolist()
        inactive = np.flatnonzero(~self.depends_on(d)).tolist()
        if not inactive and columns == [*range(d)]:
            return self._active_derivatives(X, Y, pairs)
        vanish = [any(a[i] or b[i] for i in inactive) for a, b in pairs]
        indices = [tuple(tuple(a[i] for i in columns) for a in pair) for pair in pairs]
        active = [pair for pair, zero in zip(indices, vanish, strict=True) if not zero]
        values = iter(())
        if active:
            values = iter(
                self._active_derivatives(X[:, columns], Y[:, columns], active)
            )
        shape = (len(X), len(Y))
        return [np.zeros(shape) if zero else next(values) for zero in vanish]


def _short(value):
    """A parameter in few characters, as scikit-learn shows them."""
    if callable(value):
        return getattr(value, "__name__", repr(value))
    entries = value.ravel().tolist() if isinstance(value, np.ndarray) else value
    if isinstance(entries, list) and all(isinstance(each, Real) for each in entries):
        return f"[{', '.join(f'{entry:.3g}' for entry in entries)}]"
    return f"{value:.3g}" if isinstance(value, float) else repr(value)


def _column_index(dim, names):
    if isinstance(dim, Integral) and 0 <= dim < len(names):
        return int(dim)
    if dim in names:
        return names.index(dim)
    raise ValueError(
        f"active_dims names {dim!r}, which is not a column here: choose among "
        f"{', '.join(names)}, or an index below {len(names)}."
    )

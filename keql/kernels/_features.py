"""Kernels with a finite list of features: their base, and a list of functions.

Also combinations of the functions of a kernel, where one factor has such a list.
"""

from collections.abc import Mapping
from functools import partial, reduce
from typing import Any

import numpy as np

from keql._numerics.arguments import as_numbers, as_rows, in_short, naming
from keql._numerics.autodiff import differentiate, parameter_names
from keql._numerics.elementary import Elementary, ElementaryTable
from keql.kernels._active import NonStationaryKernel
from keql.kernels._base import Product
from keql.kernels._multi_index import as_multi_index, distinct_rows, leibniz


class FeatureKernel(NonStationaryKernel):
    """Base of the kernels k(s, s') = sum_j f_j(s) f_j(s') without hyperparameters.

    A subclass implements `feature_map`, `n_features` and `depends_on`.
    """

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """Values at all pairs of points, and their gradient in no hyperparameters."""
        K = self.derivative(X, Y)
        return (K, np.empty((*K.shape, 0))) if eval_gradient else K

    def diag(self, X: Any) -> np.ndarray:
        return np.sum(self.feature_map(X) ** 2, axis=1)

    def _derivatives(self, X, Y, pairs):
        left = {a: self.feature_map(X, a) for a in {a for a, _ in pairs}}
        right = {b: self.feature_map(Y, b) for b in {b for _, b in pairs}}
        return [left[a] @ right[b].T for a, b in pairs]


class Dictionary(FeatureKernel):
    """Kernel of the combinations of given functions with independent coefficients.

    k(s, s') = sum_j b_j^2 f_j(s) f_j(s'): as a prior, each f_j has a normal
    coefficient with standard deviation b_j.

    Parameters
    ----------
    functions : dict of str to callable
        What the functions are called in printed equations, and the functions, written
        in `autograd.numpy`. Their parameters, but those with a default, are names of
        columns. To be pickled they must be importable.
    scale : float, array-like of shape (n_functions,) or "auto", default="auto"
        The b_j, in units of the kernel's functions over those of the f_j; "auto": one
        over the root mean square of f_j at the features that the equation is learned
        from.
    columns : tuple of str, default=None
        Names of the columns that the kernel sees; an estimator sets them.

    Examples
    --------
    >>> import autograd.numpy as np
    >>> from keql.kernels import Dictionary
    >>> functions = {"sin(u)": lambda u: np.sin(u), "u_t": lambda u_t: u_t}
    >>> kernel = Dictionary(functions, scale=1.0).bind(["u", "u_t"])
    >>> kernel([[np.pi / 2, 3.0]])
    array([[10.]])
    """

    def __init__(
        self, functions: Any, scale: Any = "auto", columns: Any = None
    ) -> None:
        self.functions = functions
        self.scale = scale
        self.columns = columns

    def __repr__(self):
        names = self.functions if isinstance(self.functions, Mapping) else ["?"]
        return f"Dictionary([{', '.join(map(str, names))}])"

    def __eq__(self, other):
        return (
            type(self) is type(other)
            and self.functions == other.functions
            and np.array_equal(self.scale, other.scale)
            and self.columns == other.columns
        )

    @property
    def feature_names(self) -> Any:
        """What the functions are called."""
        return [name for name, _ in self._items()]

    def _items(self):
        """Pairs of a name and a function, checked."""
        given = self.functions
        if given is self.__dict__.get("_checked"):
            return list(given.items())
        items = list(given.items()) if isinstance(given, Mapping) else [(None, None)]
        if not all(isinstance(name, str) and callable(f) for name, f in items):
            raise TypeError(
                f"functions is {in_short(given)}: it must be a dict of functions by "
                "the texts that they are called."
            )
        self._checked = given
        return items

    @property
    def feature_products(self) -> Any:
        """How they are written, pairs of a factor and its power for each of them."""
        pairs = self._items()
        return [getattr(f, "product", ((name, 1),)) for name, f in pairs]

    def feature_scales(self) -> np.ndarray:
        """Standard deviations of the coefficients.

        Returns
        -------
        scales : ndarray of shape (n_functions,)
            The b_j.
        """
        if isinstance(self.scale, str):
            raise ValueError(
                f"scale={self.scale!r} is set from the features when an estimator is "
                "fitted: here give numbers, or call kernel.scaled_to(features) first."
            )
        scale = as_numbers(self.scale, "scale")
        n = len(self._items())
        if not np.all(scale > 0) or scale.size not in (1, n):
            raise ValueError(
                f"scale={self.scale!r} must be positive: one number, or one for each "
                f"of the {n} functions."
            )
        return np.broadcast_to(scale, (n,)).astype(float)

    def keep(self, kept: Any) -> Any:
        """The kernel of some of the functions.

        Parameters
        ----------
        kept : sequence of int
            Their positions.

        Returns
        -------
        kernel : Dictionary
            With the same scales.
        """
        items = self._items()
        chosen = dict(items[i] for i in kept)
        return Dictionary(chosen, self.feature_scales()[list(kept)], self.columns)

    def depends_on(self, d: int) -> np.ndarray:
        mask = np.zeros(d, dtype=bool)
        mask[self._compiled_for(d)[1]] = True
        return mask

    def n_features(self, d: int) -> Any:
        return len(self._items())

    def feature_map(self, S: Any, a: Any = None) -> Any:
        S = as_rows(S, "S")
        a, table = as_multi_index(a, S.shape[1]), self._table(S.shape[1])
        if table is not None and sum(a) < 2:
            rows = table.derivative(S, a.index(1)) if any(a) else table(S)
        else:
            resolved = self._resolved(S.shape[1])
            rows = [_derivative(f, columns, S, a) for f, columns in resolved]
        return np.reshape(rows, (len(rows), len(S))).T * self.feature_scales()

    def _feature_slopes(self, S, weights):
        """Slopes (d, n) of `feature_map(S) @ weights` in the columns of S (n, d)."""
        d, used = S.shape[1], np.flatnonzero(weights)
        if len(used) < len(weights):
            return self._kept(used)._feature_slopes(S, weights[used])
        slopes, units = np.zeros(S.T.shape), np.eye(d, dtype=int).tolist()
        columns, table = np.flatnonzero(self.depends_on(d)), self._table(d)
        if table is None:
            for column in columns:
                slopes[column] = self.feature_map(S, tuple(units[column])) @ weights
            return slopes
        weights = weights * self.feature_scales()
        found = table.derivatives(S, columns.tolist())
        for column, derivatives in zip(columns, found, strict=True):
            slopes[column] = weights @ derivatives
        return slopes

    def _prepared(self, directions, d):
        """What makes of weights a function of rows S (n, d), as that of a Polynomial.

        None if some functions are not elementary.
        """
        table = self._table(d)
        return None if table is None else partial(self._combined, directions, d)

    def _combined(self, directions, d, weights):
        weights = weights if directions is None else directions @ weights
        # Functions without weight, beside which a parameter is open, are not derived.
        table, used = self._table(d), np.flatnonzero(weights)
        scales, derived = self.feature_scales(), self._kept(used)._compiled_for(d)
        return _Functions(table, scales, directions, used, weights[used], *derived)

    def _kept(self, used):
        """The kernel of some of the functions, the last one again."""
        key = tuple(self._items()), self.columns, tuple(used.tolist())
        known, scale, kernel = self.__dict__.get("_last_kept", (None, None, None))
        if known != key or scale is not self.scale:
            kernel = self.keep(used)
            self._last_kept = key, self.scale, kernel
        return kernel

    def _table(self, d):
        """An ElementaryTable of the functions; None if some are other ones."""
        return self._compiled_for(d)[0]

    def _compiled_for(self, d):
        """The table, and the columns that functions depend on; kept until they change.

        To read the arguments of functions takes longer than to evaluate them.
        """
        key = tuple(self._items()), self.columns, d
        known, compiled = self.__dict__.get("_compiled", (None, None))
        if known != key:
            resolved, table = self._resolved(d), None
            functions = [function for function, _ in resolved]
            if all(isinstance(f, Elementary) for f in functions):
                table = ElementaryTable(functions, list(self.columns))
            used = sorted({column for _, columns in resolved for column in columns})
            compiled = table, used
            self._compiled = key, compiled
        return compiled

    def __getstate__(self):
        kept = {"_checked", "_compiled", "_last_kept"}
        return {k: v for k, v in self.__dict__.items() if k not in kept}

    def _resolved(self, d) -> Any:
        """Functions with the positions of their arguments."""
        if self.columns is None or len(self.columns) != d:
            raise ValueError(
                f"columns={self.columns!r} must name the {d} column(s): use the kernel "
                "in a keql estimator, or call kernel.bind(names) first."
            )
        resolved = []
        for name, function in self._items():
            is_known = isinstance(function, Elementary)
            parameters = function.columns if is_known else parameter_names(function)
            unknown = [p for p in parameters if p not in self.columns]
            if unknown:
                raise ValueError(
                    f"the function {name!r} has the parameter {unknown[0]!r}, which is "
                    f"none of the columns {', '.join(self.columns)}."
                )
            resolved.append((function, [self.columns.index(p) for p in parameters]))
        return resolved

    def _bind(self, names, default):
        return Dictionary(self.functions, self.scale, tuple(names))

    def _scaled_to(self, S):
        if not self._items():
            raise ValueError("functions is empty: give {name: function}.")
        if not (isinstance(self.scale, str) and self.scale == "auto"):
            return self
        unit = Dictionary(self.functions, 1.0, self.columns)
        sizes = np.sqrt(np.mean(unit.feature_map(S) ** 2, axis=0))
        scale = 1 / np.where(sizes > 0, sizes, 1.0)
        return Dictionary(self.functions, scale, self.columns)


class _Functions:
    """Elementary functions with weights, their values and slopes.

    table : ElementaryTable. Of m functions.
    scales : ndarray of shape (m,). Of the features.
    directions : ndarray of shape (m, q) or None. Which of their combinations are asked.
    used, weights : ndarray of shape (k,). Those with weights, and these.
    own : ElementaryTable. Of those with weights.
    columns : list of int. Columns that these depend on.
    """

    def __init__(self, table, scales, directions, used, weights, own, columns):
        self.table, self.scales, self.directions = table, scales, directions
        self.used, self.weights = used, weights * scales[used]
        self.own, self.columns = own, columns

    def __call__(self, S):
        """Features (n, q) and slopes (d, n) at the rows of S (n, d)."""
        F, slopes = self.table.functions(S), np.zeros(S.T.shape)
        found = self.own.derivatives(S, self.columns, F[self.used])
        for column, each in zip(self.columns, found, strict=True):
            slopes[column] = self.weights @ each
        features = self.table.multiplied(S, F).T * self.scales
        if self.directions is not None:
            features = features @ self.directions
        return features, slopes

    def values(self, S):
        """Values (n,) of the combination with the weights."""
        return self.weights @ self.own(S)


def _derivative(function, columns, S, a):
    """Derivative a of a function of some columns of S (n, d), of shape (n,)."""
    if any(order for column, order in enumerate(a) if column not in columns):
        return np.zeros(len(S))
    orders = [a[column] for column in columns]
    with naming("functions"):
        values = differentiate(function, orders, S[:, columns].T)
        values = np.asarray(values, dtype=float)
    if values.shape not in {(), (len(S),)}:
        raise ValueError(
            f"functions has one with values of shape {values.shape} at {len(S)} points."
        )
    return np.broadcast_to(values, (len(S),))


def combinations(kernel, X, Y, coefficients, orders):
    """Derivatives in x of linear combinations of kernel functions, sum_j k(x, y_j) c_j.

    A product k1(x, y) phi(x) . phi(y) with few features phi is never formed: its
    combinations are those of k1 with the coefficients c_j phi(y_j), times phi(x). So k1
    is evaluated once for all derivatives in what only phi depends on. The points have
    shapes (n, d) and (m, d), the coefficients (m, p); for each of the multi-indices
    `orders` there is an array of shape (n, p).
    """
    parts = narrow_and_wide(kernel, X.shape[1])
    if parts is not None:
        return _combine_product(*parts, X, Y, coefficients, orders)
    blocks = kernel.derivatives(X, Y, [(order, None) for order in orders])
    return [block @ coefficients for block in blocks]


def narrow_and_wide(kernel, d):
    """The factors of a product of which one has few features; None of other kernels.

    Of several factors, one of which may be a variance, all that have features are one.
    """
    factors = _factors(kernel)
    narrow = [each for each in factors if each.n_features(d) is not None]
    if len(factors) == 1 or not narrow:
        return None
    wide = [each for each in factors if each.n_features(d) is None] or [narrow.pop()]
    return reduce(Product, narrow), reduce(Product, wide)


def _factors(kernel):
    """The factors of a product of products; of another kernel itself."""
    if not isinstance(kernel, Product):
        return [kernel]
    return [*_factors(kernel.k1), *_factors(kernel.k2)]


def _combine_product(narrow, wide, X, Y, coefficients, orders):
    """Derivatives of sum_j phi(x) . phi(y_j) k(x, y_j) c_j; phi are f features.

    For example, phi = (1, u_x) and an RBF k of the column x alone give

        P(s) = phi(s) . g(x)    with    g(x) = sum_j k(x, x_j) c_j phi(s_j),

    f = 2 functions of x. By Leibniz' rule P_x = phi . g', as phi does not depend on x,
    and the derivative of P in u_x is (0, 1) . g, as g does not depend on u_x. The
    orders (0, 0), (1, 0) and (0, 1) of P need the orders (0, 0) and (1, 0) of k only.
    """
    d = X.shape[1]
    on = narrow.depends_on(d), wide.depends_on(d)
    # For each order of P: triples of a factor, an order of phi and an order of k.
    splits = [list(leibniz(order, *on)) for order in orders]
    needed = list(dict.fromkeys(second for split in splits for _, _, second in split))
    # The coefficients c_j phi(y_j), of shape (m, f p).
    spread = narrow.feature_map(Y)[:, :, None] * coefficients[:, None]
    rows, places = distinct_rows(X, on[1])
    sums = combinations(wide, X[rows], Y, spread.reshape(len(Y), -1), needed)
    g = {  # derivatives, each of shape (n, f, p)
        order: values.reshape(len(values), -1, coefficients.shape[1])[places]
        for order, values in zip(needed, sums, strict=True)
    }
    phi = {  # derivatives, each of shape (n, f)
        first: narrow.feature_map(X, first) for split in splits for _, first, _ in split
    }
    totals = []
    for split in splits:
        total = np.zeros((len(X), coefficients.shape[1]))
        for factor, first, second in split:
            total += factor * np.einsum("nf,nfp->np", phi[first], g[second])
        totals.append(total)
    return totals

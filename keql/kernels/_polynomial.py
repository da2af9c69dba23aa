"""Constant and polynomial kernels: exact features, exact monomials."""

from functools import lru_cache
from itertools import combinations_with_replacement, product
from math import comb, perm, prod
from numbers import Real
from typing import Any

import numpy as np
from scipy.special import comb as binom
from scipy.special import factorial
from sklearn.base import clone
from sklearn.gaussian_process.kernels import ConstantKernel

from keql._numerics.arguments import as_rows, check_positive, is_int
from keql._numerics.memory import MemoryBudget
from keql.kernels._active import (
    ActiveKernel,
    NonStationaryKernel,
    ParametricKernel,
    hyperparameter,
)
from keql.kernels._multi_index import as_multi_index, merge_monomials


class Constant(ParametricKernel, ConstantKernel):
    """Constant kernel k(x, y) = constant_value.

    Times a kernel it is its variance; added, it is the prior of an unknown offset.

    Parameters
    ----------
    constant_value : float, default=1.0
        The value, in squared units of the function that the kernel describes.
    constant_value_bounds : pair of float or "fixed", default=(1e-5, 1e5)
        Bounds of `constant_value` in a search for the maximum likelihood.

    Examples
    --------
    >>> from keql.kernels import RBF, Constant
    >>> (Constant(4.0) * RBF(1.0))([[0.0]])
    array([[4.]])
    """

    hyperparameter_constant_value = hyperparameter("constant_value")

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        self._check_value()
        X, Y = as_rows(X, "X"), None if Y is None else as_rows(Y, "Y")
        if Y is not None and X.shape[1] != Y.shape[1]:
            raise ValueError(f"Y has {Y.shape[1]} column(s), and X has {X.shape[1]}.")
        return super().__call__(X, Y, eval_gradient)

    def diag(self, X: Any) -> np.ndarray:
        self._check_value()
        return super().diag(as_rows(X, "X"))

    def _check_value(self):
        check_positive(self.constant_value, "constant_value")

    def depends_on(self, d: int) -> np.ndarray:
        return np.zeros(d, dtype=bool)

    def n_features(self, d: int) -> Any:
        return 1

    def feature_polynomials(self, d: int) -> Any:
        return np.zeros((1, d), dtype=int), np.array([[self.constant_value**0.5]])

    def feature_map(self, S: Any, a: Any = None) -> Any:
        S = np.atleast_2d(S)
        differentiated = any(as_multi_index(a, S.shape[1]))
        return np.full((len(S), 1), 0.0 if differentiated else self.constant_value**0.5)

    def _derivatives(self, X, Y, pairs):
        shape, value = (len(X), len(Y)), float(self.constant_value)
        return [np.full(shape, 0.0 if any(a + b) else value) for a, b in pairs]


class Polynomial(NonStationaryKernel, ActiveKernel):
    r"""Polynomial kernel (sum_i z_i z'_i + offset)^degree, z_i = (s_i - c_i) / b_i.

    Its functions are the polynomials of at most `degree` in the active columns. With
    "auto" the centre c and the scale b are the mean and the standard deviation, or a
    thousandth of the mean if that is more, of the features that the equation is learned
    from, so that the prior does not depend on units (Jalalian, Osorio, Hsu, Hosseini,
    Owhadi, arXiv:2503.01036, section 4).

    Parameters
    ----------
    degree : int, default=2
        Highest total degree of the monomials.
    scale, center : float, array-like of shape (n_active,) or "auto", default="auto"
        The b_i and the c_i, in units of the columns.
    offset : float, default=1.0
        Weight of the lower degrees, without unit; 0 leaves the monomials of exactly
        `degree`.
    offset_bounds : pair of float or "fixed", default="fixed"
        Bounds of `offset` in a search for the maximum likelihood.
    active_dims : int, str or tuple of them, default=None
        Columns that the kernel looks at, by index or name; None for all.

    Examples
    --------
    >>> from keql.kernels import Polynomial
    >>> kernel = Polynomial(2, scale=1.0, center=0.0)
    >>> kernel([[1.0, 2.0], [3.0, -1.0]])
    array([[ 36.,   4.],
           [  4., 121.]])
    >>> kernel.feature_map([[1.0, 0.0]]).round(3)
    array([[1.   , 0.   , 0.   , 1.414, 0.   , 1.   ]])
    """

    hyperparameter_offset = hyperparameter("offset")

    def __init__(
        self,
        degree: int = 2,
        scale: Any = "auto",
        center: Any = "auto",
        offset: float = 1.0,
        offset_bounds: Any = "fixed",
        active_dims: Any = None,
    ) -> None:
        self.degree = degree
        self.scale = scale
        self.center = center
        self.offset = offset
        self.offset_bounds = offset_bounds
        self.active_dims = active_dims

    def diag(self, X: Any) -> np.ndarray:
        self._check_degree_and_offset()
        X = as_rows(X, "X")
        Z, _ = self._standardise(X[:, self._columns(X.shape[1])])
        return (np.sum(Z * Z, axis=1) + self.offset) ** self.degree

    def n_features(self, d: int) -> Any:
        return len(self._exponents(len(self._columns(d))))

    def feature_polynomials(self, d: int) -> Any:
        columns = self._columns(d)
        center, scale = map(tuple, self._center_and_scale(len(columns)))
        offset = float(self.offset)
        raw, coefficients = _expanded(self.degree, offset, center, scale)
        full = np.zeros((len(raw), d), dtype=int)
        full[:, columns] = raw
        if np.all(np.diff(columns) > 0):  # none occurs twice
            return full, coefficients
        return merge_monomials(full, coefficients)

    def feature_map(self, S: Any, a: Any = None) -> Any:
        S = as_rows(S, "S")
        d = S.shape[1]
        columns = self._columns(d)
        a = np.array(as_multi_index(a, d))
        own = self._exponents(len(columns))
        if np.any(a[~self.depends_on(d)]):
            return np.zeros((len(S), len(own)))
        Z, scale = self._standardise(S[:, columns])
        places, factors = self._derived(a[columns])
        weights = self._weights(len(columns)) / np.prod(scale ** a[columns])
        return _values_of_monomials(Z, self.degree)[:, places] * (factors * weights)

    def _feature_slopes(self, S, weights):
        """Slopes (d, n) of `feature_map(S) @ weights` in the columns of S (n, d)."""
        slopes, columns = np.zeros(S.T.shape), self._columns(S.shape[1])
        Z, scale = self._standardise(S[:, columns])
        values = _values_of_monomials(Z, self.degree)
        weights = weights * self._weights(len(columns))
        combined = np.zeros((values.shape[1], len(columns)))
        for i, unit in enumerate(np.eye(len(columns), dtype=int)):
            places, factors = self._derived(unit)
            np.add.at(combined[:, i], places, factors * weights / scale[i])
        slopes[columns] = (values @ combined).T
        return slopes

    def _prepared(self, directions, d):
        """What makes of weights a function of rows S (n, d).

        The function gives features (n, q), which are those of `feature_map` times
        `directions` (p, q), or None for themselves, and at once slopes (d, n) of
        `feature_map(S) @ directions @ weights`, whose `values` it knows, too. All are
        combinations of monomials, of which only those that occur are computed.
        """
        columns, lower = self._columns(d), bool(self.offset > 0)
        center, scale = self._center_and_scale(len(columns))
        own = self._weights(len(columns))
        directions = np.eye(len(own)) if directions is None else directions
        n = len(_monomials(len(columns), self.degree, True))
        units = np.eye(len(columns), dtype=int)
        parts = np.zeros((len(units) + 1, n, directions.shape[1]))
        for part, order in zip(parts, [units[0] * 0, *units], strict=True):
            places, factors = _derived(self.degree, lower, tuple(order.tolist()))
            factors = factors * own / np.prod(scale**order)
            np.add.at(part, places, factors[:, None] * directions)
        return _Monomials(self.degree, columns, center, scale, parts)

    def _derived(self, order):
        """The monomials that those of the kernel become, and factors, if derived."""
        return _derived(self.degree, bool(self.offset > 0), tuple(order.tolist()))

    def _exponents(self, d):
        """Exponents (p, d) of the monomials in z that the kernel contains."""
        self._check_degree_and_offset()
        p = comb(d + self.degree, self.degree)
        MemoryBudget().refuse_above(
            16.0 * p**2,  # expansions, derivatives and products of all terms
            f"the {p:,} terms of degree={self.degree} in {d} column(s) of a polynomial",
            "choose a lower degree, or active_dims with fewer columns.",
        )
        return _monomials(d, self.degree, bool(self.offset > 0))

    def _weights(self, d):
        """Square roots of the multinomial coefficients, times the offset's share."""
        return _multinomial_roots(d, self.degree, float(self.offset))

    def _center_and_scale(self, d):
        self._check_degree_and_offset()
        for name in ("center", "scale"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise ValueError(f'{name}={value!r} must be numbers or "auto".')
            if isinstance(value, str):
                raise ValueError(
                    f'{name}="auto" is set from the features when an estimator is '
                    "fitted: give numbers, or call kernel.scaled_to(features) first."
                )
        center = self._per_column("center", d, positive=False)
        return center, self._per_column("scale", d)

    def _check_degree_and_offset(self, highest=170):
        if not is_int(self.degree) or self.degree < 0:
            raise ValueError(f"degree must be an integer >= 0, got {self.degree!r}.")
        if self.degree > highest:  # factorial(highest + 1) is beyond all numbers
            raise ValueError(f"degree={self.degree} must be at most {highest}.")
        if not isinstance(self.offset, Real) or not self.offset >= 0:
            raise ValueError(
                f"offset must not be negative, got {self.offset!r}: the kernel would "
                "not be positive definite."
            )

    def _standardise(self, X):
        center, scale = self._center_and_scale(X.shape[1])
        return (X - center) / scale, scale

    def _scaled_to(self, S):
        S = S[:, self._columns(S.shape[1])]
        spread, center = S.std(axis=0), S.mean(axis=0)
        # In units of a spread far below its mean the powers of a column are hardly
        # different functions; one that does not vary keeps its own size as scale.
        varies = spread > 1e-12 * np.abs(S).max(axis=0)
        spread = np.maximum(spread, 1e-3 * np.abs(center))
        auto = {"center": center, "scale": np.where(varies, spread, 1.0)}
        chosen = [n for n in auto if np.array_equal(getattr(self, n), "auto")]
        return clone(self).set_params(**{name: auto[name] for name in chosen})

    def _active_derivatives(self, X, Y, pairs):
        Z, scale = self._standardise(X)
        W, _ = self._standardise(Y)
        inner = Z @ W.T + self.offset
        return [self._one_derivative(Z, W, inner, scale, a, b) for a, b in pairs]

    def _one_derivative(self, Z, W, inner, scale, a, b):
        """d^a_x d^b_y of inner^degree.

        The y-derivatives give inner^(degree-|b|) prod_i z_i^b_i; by the Leibniz rule
        e of the x-derivatives act on the product and a - e on the power.
        """
        total = np.zeros_like(inner)
        for e in product(*(range(min(p, q) + 1) for p, q in zip(a, b, strict=True))):
            order = sum(a) + sum(b) - sum(e)
            if order > self.degree:
                continue
            factor = perm(self.degree, order) * prod(
                comb(p, k) * perm(q, k) for p, q, k in zip(a, b, e, strict=True)
            )
            left = np.prod(Z ** np.subtract(b, e), axis=1)
            right = np.prod(W ** np.subtract(a, e), axis=1)
            total += factor * np.outer(left, right) * inner ** (self.degree - order)
        return total * prod(scale ** -np.add(a, b).astype(float))

    def _active_gradient(self, X, Y):
        if self.hyperparameter_offset.fixed:
            return []
        inner = self._standardise(X)[0] @ self._standardise(Y)[0].T + self.offset
        return [self.degree * self.offset * inner ** (self.degree - 1)]


class _Monomials:
    """Combinations of monomials in k standardised columns, and their slopes.

    combined : ndarray of shape (k + 1, n_monomials, q). Of q features, and then of
        their slopes in each column.
    """

    def __init__(self, degree, columns, center, scale, combined):
        self.columns, self.center, self.scale = columns, center, scale
        needed = set(np.flatnonzero(np.any(combined, axis=(0, 2))).tolist())
        recursion = _recursion(len(columns), degree)
        for own, before, _ in reversed(recursion):
            pairs = zip(own.tolist(), before, strict=True)
            needed |= {first for i, first in pairs if i in needed}
        place, self.steps = {0: 0}, []
        for own, before, factors in recursion:
            kept = [j for j, i in enumerate(own.tolist()) if i in needed]
            if kept:
                first = [place[before[j]] for j in kept]
                start = len(place)
                place |= {int(own[j]): start + i for i, j in enumerate(kept)}
                self.steps.append((slice(start, len(place)), first, factors[kept]))
        self.combined = combined[:, [*place]]
        self.features = np.ascontiguousarray(self.combined[0].T)

    def __call__(self, weights):
        """A function of rows, for these weights (q,)."""
        return _Combination(self, self.combined @ weights)

    def values(self, S):
        """Values (m, n) of the m monomials that occur at rows S (n, d)."""
        Z = ((S[:, self.columns] - self.center) / self.scale).T
        values = np.empty((self.combined.shape[1], len(S)))
        values[0] = 1.0
        for own, before, columns in self.steps:
            np.multiply(values[before], Z[columns], out=values[own])
        return values


class _Combination:
    """Features, and the values and slopes (k + 1, m) of one combination of them."""

    def __init__(self, monomials, combined):
        self.monomials, self.combined = monomials, combined

    def __call__(self, S):
        """Features (n, q) and slopes (d, n) at the rows of S (n, d)."""
        values, slopes = self.monomials.values(S), np.zeros(S.T.shape)
        slopes[self.monomials.columns] = self.combined[1:] @ values
        return (self.monomials.features @ values).T, slopes

    def values(self, S):
        """Values (n,) of the combination."""
        return self.combined[0] @ self.monomials.values(S)


@lru_cache(maxsize=64)
def _monomials(d, degree, lower):
    """Exponents (p, d) of the monomials of a degree, and of lower ones if wanted."""
    table = []
    for k in range(0 if lower else degree, degree + 1):
        for factors in combinations_with_replacement(range(d), k):
            table.append(np.bincount(np.array(factors, dtype=int), minlength=d))
    table = np.array(sorted(map(tuple, table))).reshape(-1, d)
    table.setflags(write=False)
    return table


@lru_cache(maxsize=8)
def _expanded(degree, offset, center, scale):
    """Exponents (q, d) of the monomials in s, and their coefficients (q, p).

    The p functions prod_i ((s_i - c_i) / b_i)^e_i with their weights, expanded by the
    binomial theorem.
    """
    d = len(center)
    raw, own = _monomials(d, degree, True), _monomials(d, degree, offset > 0)
    powers = np.arange(degree + 1)
    ways = binom(powers, powers[:, None])  # 0 where the power of s_i exceeds e_i
    coefficients = np.tile(_multinomial_roots(d, degree, offset), (len(raw), 1))
    for i, (c, b) in enumerate(zip(center, scale, strict=True)):
        rest = np.maximum(powers - powers[:, None], 0)
        factors = ways * (-c) ** rest / b**powers
        coefficients *= factors[np.ix_(raw[:, i], own[:, i])]
    coefficients.setflags(write=False)
    return raw, coefficients


@lru_cache(maxsize=64)
def _recursion(d, degree):
    """How monomials up to a degree are made of those of one degree less.

    For each degree from one on three arrays: positions of monomials, of those that they
    are multiples of, and the columns by which.
    """
    table = _monomials(d, degree, True)
    place = {tuple(powers): i for i, powers in enumerate(table.tolist())}
    steps = []
    for k in range(1, degree + 1):
        own = np.flatnonzero(table.sum(axis=1) == k)
        columns = np.argmax(table[own] > 0, axis=1)
        before = table[own] - np.eye(d, dtype=int)[columns]
        steps.append((own, [place[tuple(row)] for row in before.tolist()], columns))
    return steps


def _values_of_monomials(Z, degree):
    """Values (n, p) of all monomials up to a degree at points (n, d)."""
    n, d = Z.shape
    values = np.ones((n, len(_monomials(d, degree, True))))
    for own, before, columns in _recursion(d, degree):
        values[:, own] = values[:, before] * Z[:, columns]
    return values


@lru_cache(maxsize=256)
def _derived(degree, lower, order):
    """Derivatives of the monomials of a degree, and of lower ones if wanted.

    Their positions among all monomials up to the degree, and their factors.
    """
    d = len(order)
    place = {tuple(e): i for i, e in enumerate(_monomials(d, degree, True).tolist())}
    places, factors = [], []
    for powers in _monomials(d, degree, lower).tolist():
        factor = prod(perm(e, k) for e, k in zip(powers, order, strict=True))
        rest = [e - k for e, k in zip(powers, order, strict=True)]
        places.append(place[tuple(rest)] if factor else 0)
        factors.append(float(factor))
    return np.array(places), np.array(factors)


@lru_cache(maxsize=64)
def _multinomial_roots(d, degree, offset):
    exponents = _monomials(d, degree, offset > 0)
    left = degree - exponents.sum(axis=1)
    ways = factorial(degree) / np.prod(factorial(exponents), axis=1)
    roots = np.sqrt(ways / factorial(left) * offset**left)
    roots.setflags(write=False)
    return roots

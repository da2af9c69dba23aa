"""Multi-indices: orders of differentiation and exponents, one for each column."""

from itertools import product
from math import comb, prod

import numpy as np

from keql._numerics.arguments import as_numbers, in_short


def as_multi_index(a, d, name="a"):
    """Check a multi-index for `d` coordinates; None is the zero multi-index.

    The `name` is that of the argument.
    """
    if a is None:
        return (0,) * d
    if type(a) is tuple and len(a) == d and all(type(n) is int and n >= 0 for n in a):
        return a  # as nearly all of them are: they are read very often
    given = a
    a = tuple(np.ravel(as_numbers(a, name)).tolist())
    a = tuple(int(order) if order % 1 == 0 else -1 for order in a)
    if len(a) != d or not all(order >= 0 for order in a):
        raise ValueError(
            f"{name}={in_short(given)}: the multi-index must have one integer order "
            f">= 0 for each of the {d} coordinate(s) of X."
        )
    return a


def leibniz(orders, on1, on2):
    """Yield (binomial factor, orders of factor 1, orders of factor 2).

    Splits in which a factor would be differentiated in a variable that it does not
    depend on contribute nothing and are left out.
    """
    choices = []
    for order, first, second in zip(orders, on1, on2, strict=True):
        lowest, highest = (0 if second else order), (order if first else 0)
        choices.append(range(lowest, highest + 1))
    for first in product(*choices):
        factor = prod(comb(n, k) for n, k in zip(orders, first, strict=True))
        yield factor, first, tuple(n - k for n, k in zip(orders, first, strict=True))


def merge_monomials(exponents, coefficients):
    """Add up the rows that belong to the same monomial."""
    unique, inverse = np.unique(exponents, axis=0, return_inverse=True)
    merged = np.zeros((len(unique), coefficients.shape[1]))
    np.add.at(merged, inverse.ravel(), coefficients)
    return unique, merged


def combine(function, first, second):
    """`function(first, second)`, or None if one of them is None."""
    return None if first is None or second is None else function(first, second)


def by_index(kernel, X, Y, indices):
    """Derivatives of a kernel: {multi-index (a, b) of 2d orders: array (n, m)}."""
    d, indices = X.shape[1], list(indices)
    values = kernel._derivatives(X, Y, [(c[:d], c[d:]) for c in indices])
    return dict(zip(indices, values, strict=True))


def sum_of_products(terms, first, second, shape):
    """Sum of factor * first[c1] * second[c2] over the terms of Leibniz' rule."""
    total = None
    for factor, c1, c2 in terms:
        product_of_both = first[c1] * second[c2]
        if factor != 1:
            product_of_both *= factor
        total = product_of_both if total is None else np.add(total, product_of_both)
    return np.zeros(shape) if total is None else total


def sum_of_derivatives(kernel, added, X, Y, pairs):
    """Derivatives of the sum of two kernels, one of which may have no argument.

    That one is evaluated at one pair of points.
    """
    if not np.any(kernel.depends_on(X.shape[1])):
        kernel, added = added, kernel
    values = kernel._derivatives(X, Y, pairs)
    if not np.any(added.depends_on(X.shape[1])):
        X, Y = X[:1], Y[:1]
    for value, other in zip(values, added._derivatives(X, Y, pairs), strict=True):
        if np.any(other):
            value += other
    return values


def times_variance(first, second, on_first, X, Y, pairs):
    """Derivatives of the product of two kernels, one of which has no argument.

    That one is evaluated at one pair of points. It is the first if none of `on_first`,
    the columns that this depends on, is true.
    """
    variance, other = (second, first) if any(on_first) else (first, second)
    zero = (0,) * X.shape[1]
    [value] = variance._derivatives(X[:1], Y[:1], [(zero, zero)])
    values = other._derivatives(X, Y, pairs)
    for each in values:
        each *= value
    return values


def distinct_rows(X, columns):
    """Rows of X (n, d) that differ in some columns, and for each row its place in them.

    Functions of the coordinates are evaluated once where many functions of a fit have
    the same collocation points. All rows, if more than half of them differ.
    """
    own = X[:, columns].T
    order = np.lexsort(own)  # many times faster than unique rows of numpy
    is_new = np.ones(len(X), dtype=bool)
    is_new[1:] = (own[:, order[1:]] != own[:, order[:-1]]).any(axis=0)
    if not len(X) or 2 * np.count_nonzero(is_new) > len(X):
        return slice(None), slice(None)
    places = np.empty(len(X), dtype=int)
    places[order] = np.cumsum(is_new) - 1
    return order[is_new], places

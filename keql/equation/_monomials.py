"""The terms that P is a combination of: exponents, coefficients, values, names.

A *product* is a tuple of (name, power) and stands for a monomial; the names are those
of features. A function of a dictionary is a product of one name.
"""

import re
from copy import copy
from typing import NamedTuple

import numpy as np
from scipy import linalg

from keql.kernels import Restriction
from keql.operators import as_factor


class PathStep(NamedTuple):
    """An equation on the way to one with few terms, as :meth:`path` returns it."""

    n_terms: int
    loss_ratio: float
    unexplained: float
    terms: tuple


def as_product(names, powers):
    """The product of features with these names to these powers."""
    pairs = zip(names, powers, strict=True)
    return tuple((as_factor(name), int(power)) for name, power in pairs if power)


def text_product(product, names=None):
    """A product as text: "u^2 u_x", "1" if it is empty.

    In `names` is how features are written that are not as they are called.
    """
    factors, names = [], names or {}
    for name, power in product:
        name = names.get(name, name)
        base = f"({name})" if "/" in name else name
        factors.append(name if power == 1 else f"{base}^{power}")
    return " ".join(factors) or "1"


class Terms(NamedTuple):
    """Functions whose combination P is, and how the weights of P combine them.

    They are called by q `products`; monomials have `exponents` (q, d + Q), the
    functions of a dictionary None. The coefficients of the terms are the matrix
    `coefficients` (q, p) times the weights, and `values` (n, q) are those at the
    features asked for, or None.
    """

    products: list
    exponents: np.ndarray | None
    coefficients: np.ndarray
    values: np.ndarray

    @property
    def names(self):
        """As they are printed."""
        return [text_product(product) for product in self.products]

    def sizes(self, weights):
        """Contributions: root mean squares (q,) of coefficient times value."""
        values = self.values * (self.coefficients @ weights)
        return np.sqrt(np.mean(values**2, axis=0))


def make_terms(kernel, names, S=None):
    """The terms of a kernel of finite dimension in named columns; None of others."""
    polynomials = _contained(kernel, len(names))
    if polynomials is not None:
        exponents, coefficients = polynomials
        products = [as_product(names, powers) for powers in exponents]
        values = None if S is None else np.prod(S[:, None] ** exponents, axis=2)
        return Terms(products, exponents, coefficients, values)
    if kernel.feature_names is None:
        return None
    scale = kernel.feature_scales()
    products = kernel.feature_products
    values = None if S is None else kernel.feature_map(S) / scale
    return Terms(products, None, np.diag(scale), values)


def terms_of(equation):
    """The terms of a learned equation at its training features; None without a list."""
    n_columns = equation.n_unknown_features
    names = equation.feature_names[:n_columns]
    S = equation.training_features[:, :n_columns]
    if equation.equation_kernel is None:  # nothing is unknown
        return Terms([], None, np.empty((0, 0)), np.empty((len(S), 0)))
    return make_terms(equation.equation_kernel, names, S)


def are_monomials(terms):
    """Whether names of terms are products of whole powers of features."""
    texts = [name.rpartition(": ")[2] for name in terms]
    return all(re.fullmatch(r"[\w^ ]+", text) for text in texts)


def highest_derivatives(equation, axes):
    """The highest derivatives along some axes among the monomials of an equation."""
    terms, d = terms_of(equation), len(equation.variables)
    kept = terms.exponents[(terms.coefficients @ equation.weights) != 0]
    found = [np.zeros(d, dtype=int)]
    for q in np.flatnonzero(np.any(kept[:, d + len(equation.inputs) :], axis=0)):
        found += [orders for orders, _ in equation.operators[q].terms]
    return np.max(found, axis=0)[axes].tolist()


def find_terms(kernel, n_columns, n_terms):
    """The terms that P may contain.

    Exponents (q, n_columns) of monomials, or names (q,) of the functions of a
    dictionary. A ValueError names the parameter `n_terms` if the equation kernel has no
    list of terms.
    """
    polynomials = _contained(kernel, n_columns)
    if polynomials is not None:
        return polynomials[0]
    if kernel.feature_names is None:
        raise ValueError(
            f"n_terms={n_terms!r} needs a polynomial equation_kernel, and {kernel} has "
            "no finite list of terms: leave it to n_terms='auto', or use "
            "keql.kernels.Polynomial or keql.kernels.Dictionary."
        )
    return np.array(kernel.feature_names, dtype=object)


def _contained(kernel, n_columns):
    """Exponents (q, n_columns) and coefficients (q, p) of a polynomial kernel, or None.

    The kernel's own expansion also lists monomials that no function of the RKHS has.
    """
    polynomials = kernel.feature_polynomials(n_columns)
    if polynomials is None:
        return None
    contained = np.any(polynomials[1] != 0, axis=1)
    return polynomials[0][contained], polynomials[1][contained]


def coefficients(basis, terms):
    """Coefficients of terms in the features, of shape (q, p).

    The terms are as :func:`find_terms` has them, some or all of those of the basis.
    """
    if terms.ndim == 1:
        rows, table = basis.kernel.feature_names, np.diag(basis.kernel.feature_scales())
    else:
        powers, table = basis.kernel.feature_polynomials(terms.shape[1])
        rows = [*map(tuple, powers.tolist())]
    place = {row: i for i, row in enumerate(rows)}
    return table[[place[key] for key in _keys(terms)]]


def values_of(basis, terms, weights):
    """Coefficients (q,) of terms in a basis that may lack some, which are zero there.

    The terms are as :func:`find_terms` has them, and the weights (p,) in the basis.
    """
    n_columns = None if terms.ndim == 1 else terms.shape[1]
    present = find_terms(basis.kernel, n_columns, None)
    found = dict(
        zip(_keys(present), coefficients(basis, present) @ weights, strict=True)
    )
    return np.array([found.get(key, 0.0) for key in _keys(terms)])


def restricted(kernel, terms, kept):
    """The kernel of those terms at the positions `kept`."""
    if terms.ndim == 1:
        return kernel.keep(kept)
    return Restriction(kernel, [*map(tuple, terms[kept].tolist())])


def _keys(terms):
    return terms.tolist() if terms.ndim == 1 else [*map(tuple, terms.tolist())]


def weights_of(basis, terms, values):
    """Weights (p,) or (p, m) of least norm of P with these coefficients of terms."""
    C = coefficients(basis, terms)
    scale = linalg.norm(C, axis=1)  # the units of the coefficients differ
    return linalg.lstsq(C / scale[:, None], (values.T / scale).T)[0]


def term_name(two_step, powers):
    """Text of a product of what P depends on, from its exponents, or of a function."""
    if isinstance(powers, str):
        return powers
    names = two_step.setup.unknown_names(two_step.variables)
    return text_product(as_product(names, powers))


def averaged(equation, others, shares, start):
    """An equation, uncertain as others are that may be true instead.

    `others` are dicts of coefficients by the names of terms, which begin with `start`,
    and `shares` (k,) their probabilities, with those of the equation itself.
    """
    terms = terms_of(equation)
    if equation.posterior is None or terms is None or not terms.names:
        return equation
    A, own = terms.coefficients, equation.terms()
    if len(A) != A.shape[1]:
        return equation
    changes = [
        [each.get(start + n, 0.0) - own[n] for n in terms.names] for each in others
    ]
    # The units of the coefficients may differ by many powers of ten.
    scale = np.exp2(np.floor(np.log2(np.max(np.abs(A), axis=1))))[:, None]
    moved = linalg.solve(A / scale, np.array(changes).T / scale).T
    weights = equation.weights + moved
    equation = copy(equation)
    equation.posterior = equation.posterior.averaged_over(weights, shares)
    return equation

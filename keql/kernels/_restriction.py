"""A polynomial kernel that keeps some monomials only."""

import re
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy import linalg

from keql._numerics.arguments import as_rows, in_short, naming
from keql.kernels._base import Product, as_kernel
from keql.kernels._features import Dictionary, FeatureKernel
from keql.kernels._polynomial import Constant, Polynomial


class Restriction(FeatureKernel):
    """The functions of a polynomial kernel that are made of given monomials.

    They keep the norm that they have as functions of the given kernel; as a prior, it
    is that kernel's, given that the coefficients of all other monomials are zero. An
    equation kernel for when the terms are known, from the subject or from
    :meth:`keql.LearnedEquation.sparse`, and their coefficients are not.

    Parameters
    ----------
    kernel : Kernel
        With a finite list of monomials, such as :class:`Polynomial`. Its
        hyperparameters are kept as they are.
    monomials : sequence of str or of tuple of int
        The monomials: products of column names such as "u u_x" or "u^3" ("1" for the
        constant), which an estimator resolves, or exponents with one entry for each
        column that the kernel sees.

    Examples
    --------
    >>> from keql.kernels import Polynomial, Restriction
    >>> kernel = Restriction(Polynomial(2, scale=1.0, center=0.0), ["u u_x", "u_xx"])
    >>> kernel = kernel.bind(["u", "u_x", "u_xx"])
    >>> kernel([[2.0, 3.0, 5.0]])  # 2 (u u_x)^2 + 2 u_xx^2
    array([[122.]])
    """

    def __init__(self, kernel: Any, monomials: Any) -> None:
        self.kernel = kernel
        self.monomials = monomials

    def __repr__(self):
        inner = self.kernel
        while isinstance(inner, Restriction):  # whose monomials are more than these
            inner = inner.kernel
        return f"Restriction({inner!r}, {list(self.monomials)!r})"

    def __eq__(self, other):
        return (
            type(self) is type(other)
            and self.kernel == other.kernel
            and [*map(_plain, self.monomials)] == [*map(_plain, other.monomials)]
        )

    def depends_on(self, d: int) -> np.ndarray:
        return np.any(self._exponents(d) > 0, axis=0)

    def n_features(self, d: int) -> Any:
        return len(self.monomials)

    def feature_polynomials(self, d: int) -> Any:
        return self._exponents(d), self._directions(d)[1]

    def feature_map(self, S: Any, a: Any = None) -> Any:
        S = as_rows(S, "S")
        directions, _ = self._directions(S.shape[1])
        return as_kernel(self.kernel).feature_map(S, a) @ directions

    def _directions(self, d):
        """Orthonormal directions (p, q) among the p features of the restricted kernel.

        They span the weights whose polynomials consist of the q monomials alone. Also
        returns the coefficients (q, q) of the monomials in the directions.
        """
        with naming("kernel"):
            kernel = as_kernel(self.kernel)
        wanted = self._exponents(d)
        polynomials = kernel.feature_polynomials(d)
        if polynomials is None:
            raise ValueError(
                f"kernel={self.kernel} has no finite list of monomials: a restriction "
                "needs a polynomial kernel."
            )
        exponents, coefficients = polynomials
        row_of = {tuple(powers): row for row, powers in enumerate(exponents)}
        missing = [tuple(e.tolist()) for e in wanted if tuple(e) not in row_of]
        if missing:
            raise ValueError(
                f"monomials={list(self.monomials)}: kernel={self.kernel} does not "
                f"contain the exponents {missing[0]}."
            )
        rows = [row_of[tuple(powers)] for powers in wanted]
        shape, entries = coefficients.shape, coefficients.tobytes()
        directions = _orthonormal_weights(entries, shape, tuple(rows))
        if directions is None:
            raise ValueError(
                f"{self.kernel} does not contain the monomials {list(self.monomials)} "
                "one by one: use an offset above 0, or center=0."
            )
        return directions, coefficients[rows] @ directions

    def _exponents(self, d):
        """Exponents of the monomials, of shape (q, d)."""
        is_list = isinstance(self.monomials, list | tuple | np.ndarray)
        is_list = (
            is_list and getattr(self.monomials, "dtype", np.dtype(int)).names is None
        )
        if not is_list or getattr(self.monomials, "ndim", 1) == 0:
            raise TypeError(
                f"monomials is {in_short(self.monomials)}: it must be a list of "
                "exponents, such as (1, 0), or of names."
            )
        if any(isinstance(monomial, str) for monomial in self.monomials):
            raise ValueError(
                f"monomials={list(self.monomials)} are names: use the kernel in a keql "
                "estimator, or call kernel.bind(names) first."
            )
        with naming("monomials"):
            exponents = [_plain(powers) for powers in self.monomials]
        if not exponents:
            raise ValueError("monomials is empty: name at least one.")
        if any(len(powers) != d or min(powers) < 0 for powers in exponents):
            raise ValueError(
                f"monomials={list(self.monomials)} must have one exponent >= 0 for "
                f"each of the {d} column(s) of X and Y."
            )
        return np.array(exponents)

    def _map(self, function):
        # The inner kernel first, then the names of the monomials here.
        inner = as_kernel(self.kernel)._map(function)
        return function(Restriction(inner, self.monomials))

    def _bind(self, names, default):
        resolved = [
            parse_monomial(monomial, names) if isinstance(monomial, str) else monomial
            for monomial in self.monomials
        ]
        return Restriction(self.kernel, resolved)


@lru_cache(maxsize=16)
def _orthonormal_weights(entries, shape, rows):
    """Directions (p, q) of the weights of q monomials, or None (see `_weights_of`).

    From the entries, as bytes, of an array of this shape: found once for all kernels
    that differ in their variance only.
    """
    coefficients = np.frombuffer(entries).reshape(shape)
    weights = _weights_of(coefficients, list(rows))
    if weights is None:
        return None
    directions = linalg.qr(weights, mode="economic")[0]
    directions.setflags(write=False)
    return directions


def _weights_of(coefficients, rows, rounding=1e-13, tolerance=1e-6):
    """Weights (p, q) of p features that give each of q monomials by itself.

    `coefficients` (n, p) are those of n monomials in the features, and `rows` are the q
    monomials. The weights are the ones of least norm: singular values below the part
    `rounding` of the largest count as zero. None if a coefficient, in units of the
    length of its row, is missed by more than `tolerance`.
    """
    # Rows are brought to unit length: coefficients have the most different units.
    lengths = linalg.norm(coefficients, axis=1, keepdims=True)
    C = coefficients / np.maximum(lengths, np.finfo(float).tiny)
    target = np.eye(len(C))[:, rows]
    weights = linalg.lstsq(C, target, cond=rounding, lapack_driver="gelsd")[0]
    return None if np.abs(C @ weights - target).max() > tolerance else weights


def _plain(monomial):
    return monomial if isinstance(monomial, str) else tuple(map(int, monomial))


def parse_monomial(text: str, names: Any) -> Any:
    """Exponents of a product of column names, such as "u^2 u_x".

    Parameters
    ----------
    text : str
        Names with integer powers, separated by spaces or "*"; sums in brackets. "1"
        is the empty product.
    names : list of str
        The columns.

    Returns
    -------
    exponents : tuple of int
        One for each column.

    Raises
    ------
    ValueError
        If the text does not parse.

    Examples
    --------
    >>> from keql.kernels import parse_monomial
    >>> parse_monomial("u^2 u_x", ["x", "u", "u_x"])
    (0, 2, 1)
    """
    _refuse_no_texts(text, names)
    exponents = [0] * len(names)
    rest = text.replace("**", "^").replace("*", " ").strip()
    column = {name: i for i, name in enumerate(names)}
    column.update({f"({name})": i for i, name in enumerate(names)})
    longest = sorted(map(re.escape, column), key=len, reverse=True)
    factor = re.compile(rf"({'|'.join(longest)})(?:\^(\d+))?(?:\s+|$)")
    rest = "" if rest == "1" else rest
    while rest:
        match = factor.match(rest)
        if match is None:
            raise ValueError(
                f"the text {in_short(text)} of a monomial does not parse at "
                f"{in_short(rest)}: write a product such as "
                f"'u^2 u_x' of the names {', '.join(names)}, or '1'."
            )
        exponents[column[match[1]]] += int(match[2] or 1)
        rest = rest[match.end() :]
    return tuple(exponents)


def unrestricted(kernel, weights, d):
    """The kernel that `kernel` restricts, and a function's weights in its features.

    The function has `weights` (p,) in the features of `kernel`, on `d` columns. A
    constant that multiplies the kernel becomes a factor of the weights. The kernel and
    the weights are returned as they are if it is neither.
    """
    while True:
        if isinstance(kernel, Restriction):
            directions, _ = kernel._directions(d)
            kernel, weights = as_kernel(kernel.kernel), directions @ weights
        elif isinstance(kernel, Product) and isinstance(kernel.k1, Constant):
            variance = kernel.k1.constant_value
            kernel, weights = as_kernel(kernel.k2), variance**0.5 * weights
        else:
            return kernel, weights


def feature_slopes(kernel, S, weights):
    """Slopes (d, n) of a combination of exact features at points.

    They are those of `feature_map(S) @ weights` in the columns of S (n, d), for weights
    (p,); polynomials know all of them at once.
    """
    d = S.shape[1]
    kernel, weights = unrestricted(kernel, weights, d)
    if isinstance(kernel, Polynomial | Dictionary):
        return kernel._feature_slopes(S, weights)
    slopes, units = np.zeros(S.T.shape), np.eye(d, dtype=int).tolist()
    for column in np.flatnonzero(kernel.depends_on(d)):
        slopes[column] = kernel.feature_map(S, tuple(units[column])) @ weights
    return slopes


def features_with_slopes(kernel, directions, d):
    """What makes of weights (q,) a function of rows S (n, d).

    It gives features (n, q), combinations `directions` (p, q) of the exact features of
    an unrestricted kernel, or these if it is None, and at once the slopes (d, n) of
    these times the weights. What depends on neither is found once: for many weights, of
    which each is for many calls. The `values` (n,) of the function are those of
    features times weights alone.
    """
    found = None
    if isinstance(kernel, Polynomial | Dictionary):
        found = kernel._prepared(directions, d)
    return partial(_OfFeatures, kernel, directions) if found is None else found


class _OfFeatures:
    """What :func:`features_with_slopes` returns for any kernel with features."""

    def __init__(self, kernel, directions, weights):
        self.kernel, self.directions = kernel, directions
        self.weights = weights if directions is None else directions @ weights

    def __call__(self, S):
        """Features (n, q) and slopes (d, n) at the rows of S (n, d)."""
        features = self.kernel.feature_map(S)
        if self.directions is not None:
            features = features @ self.directions
        return features, feature_slopes(self.kernel, S, self.weights)

    def values(self, S):
        """Values (n,) of the combination with the weights."""
        return self.kernel.feature_map(S) @ self.weights


def _refuse_no_texts(text, names):
    """Refuse what is no text of a monomial, or no list of names."""
    if not isinstance(text, str):
        raise TypeError(f"text: a monomial is one such as 'u^2 u_x', not {text!r}.")
    is_list = not isinstance(names, str | bytes) and hasattr(names, "__len__")
    is_list = is_list and getattr(names, "ndim", 1) > 0
    is_list = is_list and (hasattr(names, "__iter__") or hasattr(names, "__getitem__"))
    if not is_list or not all(isinstance(name, str) for name in names):
        raise TypeError(f"names is {in_short(names)}: it must be a list of texts.")
    if not text.strip():
        raise ValueError(f"the text {text!r} of a monomial is empty: write '1'.")

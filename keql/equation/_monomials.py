"""The terms of polynomial equations: exponents, coefficients, names."""

import numpy as np
from scipy import linalg

from keql.equation._formulas import text_product
from keql.operators import as_factor


def find_terms(kernel, n_columns, n_terms):
    """Exponents of the monomials that P may contain.

    Parameters
    ----------
    kernel : Kernel
        The equation kernel.
    n_columns : int
        Number of columns that P depends on.
    n_terms : int or "auto"
        What asks for them.

    Returns
    -------
    exponents : ndarray of shape (q, n_columns)
        One row for each.

    Raises
    ------
    ValueError
        If the equation kernel is not polynomial.
    """
    polynomials = kernel.feature_polynomials(n_columns)
    if polynomials is None:
        raise ValueError(
            f"n_terms={n_terms!r} needs a polynomial equation_kernel, and {kernel} has "
            "no finite list of terms: leave n_terms=None, or use "
            "keql.kernels.Polynomial."
        )
    return polynomials[0][np.any(polynomials[1] != 0, axis=1)]


def coefficients(basis, exponents):
    """Coefficients of monomials in the features, of shape (q, p)."""
    powers, table = basis.kernel.feature_polynomials(exponents.shape[1])
    rows = {tuple(each): i for i, each in enumerate(powers.tolist())}
    return table[[rows[tuple(each)] for each in exponents.tolist()]]


def weights_of(basis, exponents, values):
    """Weights (p,) or (p, m) of least norm of polynomials with these coefficients."""
    C = coefficients(basis, exponents)
    scale = linalg.norm(C, axis=1)  # the units of the coefficients differ
    return linalg.lstsq(C / scale[:, None], (values.T / scale).T)[0]


def term_name(two_step, powers):
    """Text of a product of what P depends on, from its exponents."""
    operators = two_step.setup.operators[: two_step.setup.n_operators]
    names = [*two_step.variables, *(operator.name for operator in operators)]
    return text_product(
        [(as_factor(n), p) for n, p in zip(names, powers, strict=True) if p]
    )

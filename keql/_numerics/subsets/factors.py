"""Factors of many small matrices, and of what elimination leaves of large ones."""

import numpy as np

from keql._numerics.linalg import solve_lower


def log_volume(L):
    """Half the log determinant of a matrix with the factor L, or those of many."""
    return np.sum(np.log(np.diagonal(L, axis1=-2, axis2=-1)), axis=-1)


def schur(matrix, L, kept, added):
    """What each added row has of its diagonal element beside those kept, and V.

    L L^T is the matrix in the rows kept, and L V in the added columns.
    """
    V = solve_lower(L, matrix[np.ix_(kept, added)])
    diagonal = np.diag(matrix)[added]
    least = np.finfo(float).eps * diagonal
    return np.maximum(diagonal - np.sum(V**2, axis=0), least), V


def eliminated(matrix, L, kept, others):
    """What is left of a matrix in other rows, those kept being eliminated, and V.

    L L^T is the matrix in the rows kept, and L V in the others' columns.
    """
    V = solve_lower(L, matrix[np.ix_(kept, others)])
    left = matrix[np.ix_(others, others)] - V.T @ V
    i = np.arange(len(others))
    least = np.finfo(float).eps * matrix[others, others]
    left[i, i] = np.maximum(left[i, i], least)
    return left, V


def cholesky_of_each(matrices, diagonals, exponents=range(-15, -7)):
    """Lower factors of matrices (m, k, k), those that fail with jitter.

    And which (m,) have one; of the others it is that of the unit matrix. The jitter is
    in units of each of `diagonals` (m, k), as the sizes of columns may differ by far:
    those before other columns were eliminated, which is what rounding errors are
    relative to.
    """
    try:
        return np.linalg.cholesky(matrices), np.full(len(matrices), True)
    except np.linalg.LinAlgError:  # some of them
        left = np.arange(len(matrices))
    factors = np.tile(np.eye(matrices.shape[-1]), (len(matrices), 1, 1))
    for jitter in (0.0, *(10.0**k for k in exponents)):
        own = matrices[left]
        np.einsum("mii->mi", own)[:] += jitter * diagonals[left]
        found, is_found = _factors_of_definite(own)
        factors[left[is_found]] = found[is_found]
        left = left[~is_found]
        if not left.size:
            break
    return factors, ~np.isin(np.arange(len(matrices)), left)


def _factors_of_definite(matrices):
    """Lower factors (m, k, k), and which (m,) of the matrices are positive definite.

    Column by column for all matrices at once; those of the others end with zeros.
    """
    L, is_definite = np.zeros_like(matrices), np.full(len(matrices), True)
    for j in range(matrices.shape[-1]):
        known = np.einsum("mij,mj->mi", L[:, j:, :j], L[:, j, :j])
        column = matrices[:, j:, j] - known
        is_definite &= column[:, 0] > 0
        column = column[is_definite]
        L[is_definite, j:, j] = column / np.sqrt(column[:, :1])
    return L, is_definite

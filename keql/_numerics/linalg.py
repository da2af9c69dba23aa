"""Dense linear algebra: Cholesky with a stated jitter policy, ridge regression."""

import numpy as np
from scipy import linalg

# A covariance that is positive definite in exact arithmetic may not be so in floating
# point. These multiples of its mean diagonal are added to the diagonal in turn.
JITTERS = (0.0, *10.0 ** np.arange(-15, -7))


def cholesky(A):
    """Lower Cholesky factor of a symmetric positive definite matrix.

    If the factorisation fails, 1e-15 times the mean of the diagonal is added to the
    diagonal, then ten times as much, up to 1e-8 times: relative, so that it does not
    depend on units, and far below what data can tell.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric; only the lower triangle is read.

    Returns
    -------
    L : ndarray of shape (n, n)
        With zeros above the diagonal.

    Raises
    ------
    numpy.linalg.LinAlgError
        If the largest jitter does not suffice, or an entry is not finite.
    """
    if not np.all(np.isfinite(np.tril(A))):  # LAPACK takes nan for a positive pivot
        raise np.linalg.LinAlgError(
            f"a covariance matrix of size {len(A)} has entries that are not finite: "
            "check the scales of the data and of the kernel."
        )
    mean = np.trace(A) / max(1, len(A))
    for jitter in JITTERS:
        L = np.array(A, order="C")
        L[np.diag_indices_from(L)] += jitter * mean
        # The lower triangle by rows is, to LAPACK, the upper one by columns.
        upper, info = linalg.lapack.dpotrf(L.T, lower=0, clean=1, overwrite_a=1)
        if info == 0:
            return upper.T
    raise np.linalg.LinAlgError(
        f"a covariance matrix of size {len(A)} is not positive definite, even with "
        f"{JITTERS[-1]:g} of its mean diagonal added: raise the noise level, or "
        "shorten the length scales of the kernel."
    )


def pivoted_cholesky(A, tol=1e-14):
    """Rank-revealing Cholesky factorisation of a positive semi-definite matrix.

    Rows are picked in turn, each time the one that those before explain least of. All
    are first scaled to a unit diagonal, so that functionals of different units count
    alike.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric, with a positive diagonal; only the lower triangle is read.
    tol : float, default=1e-14
        The factorisation ends when of no row more than this part of its diagonal
        element is left.

    Returns
    -------
    rows : ndarray of shape (n, r)
        ``rows @ rows.T`` is A up to `tol`; ``rows[pivots]`` is lower triangular.
    pivots : ndarray of shape (r,)
        The rows picked.
    """
    if not np.all(np.isfinite(A)):
        raise np.linalg.LinAlgError(
            f"a covariance matrix of size {len(A)} has entries that are not finite: "
            "check the scales of the data and of the kernel."
        )
    scale = np.sqrt(np.diag(A))
    scale = np.where(scale > 0, scale, 1.0)
    scaled = np.asfortranarray(A / scale / scale[:, None])
    factor, pivots, rank, _ = linalg.lapack.dpstrf(
        scaled, tol=tol, lower=1, overwrite_a=1
    )
    pivots -= 1  # as Fortran counts
    rows = np.empty((len(A), rank))
    rows[pivots] = np.tril(factor[:, :rank])
    return rows * scale[:, None], pivots[:rank]


def solve_lower(L, B, transposed=False):
    """Solve L Z = B, or L^T Z = B, for a lower triangular L.

    Parameters
    ----------
    L : ndarray of shape (n, n)
        Lower triangular.
    B : ndarray of shape (n,) or (n, m)
        Right-hand sides.
    transposed : bool, default=False
        Whether L^T takes the place of L.

    Returns
    -------
    Z : ndarray of the shape of B
        The solution.
    """
    trans = "T" if transposed else "N"
    return linalg.solve_triangular(L, B, lower=True, trans=trans, check_finite=False)


def solve_cholesky(L, B):
    """Solve L L^T Z = B.

    Parameters
    ----------
    L : ndarray of shape (n, n)
        Lower Cholesky factor.
    B : ndarray of shape (n,) or (n, m)
        Right-hand sides.

    Returns
    -------
    Z : ndarray of the shape of B
        The solution.
    """
    return solve_lower(L, solve_lower(L, B), transposed=True)


def inverse_from_cholesky(L):
    """All entries of (L L^T)^-1, for traces of its products with full matrices.

    Systems are solved with the factor itself, never with this.

    Parameters
    ----------
    L : ndarray of shape (n, n)
        Lower Cholesky factor.

    Returns
    -------
    inverse : ndarray of shape (n, n)
        Symmetric.
    """
    upper, _ = linalg.lapack.dpotri(L.T, lower=0)
    lower = np.tril(upper.T)
    return lower + np.tril(lower, -1).T


def ridge(A, b, noise):
    """Minimise ``|w|^2 + |A w - b|^2 / noise^2``.

    As a least-squares problem with the rows ``noise * w = 0`` appended, by a pivoted
    orthogonal factorisation: the normal equations would square the condition number.

    Parameters
    ----------
    A : ndarray of shape (n, p)
        Orthonormal features at the data.
    b : ndarray of shape (n,)
        The data.
    noise : float
        Standard deviation of the data; 0 gives the least-squares solution of least
        norm.

    Returns
    -------
    w : ndarray of shape (p,)
        The minimiser.
    """
    p = A.shape[1]
    rows = np.vstack([A, noise * np.eye(p)]) if noise > 0 else A
    right = np.concatenate([b, np.zeros(len(rows) - len(b))])
    return linalg.lstsq(rows, right, lapack_driver="gelsy", check_finite=False)[0]

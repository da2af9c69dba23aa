"""Dense linear algebra with a stated jitter policy, and the scales of data."""

import numpy as np
from scipy import linalg
from scipy.linalg import blas, lapack


def cholesky(A, jitter_exponents=range(-15, -7)):
    """Lower Cholesky factor of a symmetric positive definite matrix (n, n).

    A covariance that is positive definite in exact arithmetic may not be so in
    floating point. If the factorisation of A fails, 1e-15 times the mean of its
    diagonal is added to the diagonal, then ten times as much, up to 1e-8 times
    (`jitter_exponents` are the powers of ten): relative, so that it does not depend on
    units, and far below what data can tell. Only the lower triangle of A is read.
    Raises LinAlgError if the largest jitter does not suffice or an entry is not finite.
    """
    return _factor_of(lambda: np.array(A, order="C"), jitter_exponents)


def cholesky_of_packed(triangle, n, jitter_exponents=range(-15, -7)):
    """That of the matrix (n, n) of a packed triangle, with the same policy."""
    return _factor_of(lambda: unpacked(triangle, n), jitter_exponents)


def _factor_of(copied, jitter_exponents):
    """The factor of the matrix of which `copied` makes a copy."""
    factor = cholesky_in_place(copied())
    if factor is not None:
        return factor
    A = copied()
    _refuse_infinite(A, np.tril(A))
    mean = np.trace(A) / max(1, len(A))
    for jitter in (10.0**k for k in jitter_exponents):
        L = copied()
        np.einsum("ii->i", L)[:] += jitter * mean
        factor = cholesky_in_place(L)
        if factor is not None:
            return factor
    raise np.linalg.LinAlgError(
        f"a covariance matrix of size {len(A)} is not positive definite, even with "
        f"{jitter:g} of its mean diagonal added: raise the noise level, or "
        "shorten the length scales of the kernel."
    )


def cholesky_in_place(A, block=5000, clean=True):
    """Lower Cholesky factor in the memory of A (n, n), in C or in Fortran order.

    None if A is not positive definite; A is lost in any case. It is made of columns by
    the `block` at most: no other thread of Python runs until LAPACK returns, and one
    that tells of progress has to. Above the diagonal are zeros, or, if it is not to be
    `clean`, whatever was there.
    """
    by_columns = A.flags.f_contiguous
    # Blocks of one size: with a small one a large triangle would be copied for it.
    block = -(-len(A) // max(1, -(-len(A) // block)))
    for begin in range(0, len(A), max(1, block)):
        own = slice(begin, begin + block)
        if begin:
            A[begin:, own] -= A[begin:, :begin] @ A[own, :begin].T
        part = A[own, own]
        # The lower triangle by rows is, to LAPACK, the upper one by columns.
        given = part if by_columns else part.T
        factor, info = lapack.dpotrf(given, by_columns, clean, overwrite_a=1)
        # Every entry has a part in a pivot, and LAPACK may take nan for a positive one.
        if info or not np.all(np.isfinite(np.diag(factor))):
            return None
        if not np.may_share_memory(factor, A):
            part[:] = factor if by_columns else factor.T
        if begin + block < len(A):
            below = slice(begin + block, None)
            A[own, below] = 0.0
            A[below, own] = solve_lower(A[own, own], A[below, own].T).T
    return A


def pivoted_cholesky(A, tol=1e-14):
    """Rank-revealing Cholesky factorisation of a positive semi-definite matrix (n, n).

    That of :func:`pivoted_cholesky_of_columns`, all of whose entries are known. Of A
    only the lower triangle is read.
    """
    _refuse_infinite(A, A)
    scale = _root_or_one(np.diag(A))
    scaled = np.asfortranarray(A / scale / scale[:, None])
    factor, pivots, rank, _ = lapack.dpstrf(scaled, tol=tol, lower=1, overwrite_a=1)
    pivots -= 1  # as Fortran counts
    rows = np.empty((len(A), rank))
    rows[pivots] = np.tril(factor[:, :rank])
    return rows * scale[:, None], pivots[:rank]


def pivoted_cholesky_of_columns(diagonal, column, tol=1e-14, most=None):
    """Rank-revealing Cholesky factorisation of a positive semi-definite matrix (n, n).

    In each turn it picks the row that the rows picked before explain least of. Rows are
    first scaled to a unit diagonal, so that functionals of different units count alike;
    it ends when no row has more than the part `tol` of its diagonal element
    unexplained. Only the `diagonal` (n,) is needed, and `column(i)` (n,) of the rows
    that are picked: time and memory are those of r columns (Harbrecht, Peters,
    Schneider, "On the low-rank approximation by the pivoted Cholesky decomposition",
    Appl. Numer. Math. 62, 2012).

    Returns `rows` (n, r), with ``rows @ rows.T`` equal to the matrix up to `tol` and
    ``rows[pivots]`` lower triangular, and `pivots` (r,), the rows picked; None if the
    rank is above `most`.
    """
    n, scale = len(diagonal), _root_or_one(diagonal)
    most = n if most is None else min(most, n)
    rest, pivots = np.where(diagonal > 0, 1.0, 0.0), []
    rows = np.zeros((n, min(most, 64)), order="F")
    while n:
        i = int(np.argmax(rest))
        if not rest[i] > tol:
            break
        r = len(pivots)
        if r == most:
            return None
        if r == rows.shape[1]:
            grown = np.zeros((n, min(most, 2 * r)), order="F")
            grown[:, :r] = rows
            rows = grown
        new = column(i) / (scale * scale[i])
        new -= rows[:, :r] @ rows[i, :r]
        new /= rest[i] ** 0.5
        new[pivots] = 0.0  # but for rounding they are
        new[i] = rest[i] ** 0.5
        rows[:, r] = new
        rest -= new * new
        pivots.append(i)
        rest[pivots] = 0.0
    _refuse_infinite(rest, rest)
    return rows[:, : len(pivots)] * scale[:, None], np.array(pivots, dtype=int)


def _root_or_one(diagonal):
    """The scales (n,) of rows, 1 of those that are zero."""
    scale = np.sqrt(diagonal)
    return np.where(scale > 0, scale, 1.0)


def _refuse_infinite(A, entries):
    if not np.all(np.isfinite(entries)):
        raise np.linalg.LinAlgError(
            f"a covariance matrix of size {len(A)} has entries that are not finite: "
            "check the scales of the data and of the kernel."
        )


def solve_lower(L, B, transposed=False, most=4e10, overwrite=False):
    """Solve L Z = B, or L^T Z = B if `transposed`, for a lower triangular L (n, n).

    The right-hand sides B have shape (n,) or (n, m), and so has Z. As many are
    solved for at once as take `most` products of numbers, seconds at most: see
    :func:`cholesky_in_place`. With `overwrite` the memory of B is used, if it is in
    Fortran order.
    """
    size = max(1, int(most / max(1, len(L)) ** 2))
    if np.ndim(B) == 1 or B.shape[1] <= size:
        return _solve_triangle(L, B, transposed, overwrite)
    Z = np.empty(B.shape, order="F")
    for begin in range(0, B.shape[1], size):
        own = slice(begin, begin + size)
        Z[:, own] = _solve_triangle(L, B[:, own], transposed)
    return Z


def _solve_triangle(L, B, transposed, overwrite=False):
    """By LAPACK, which takes columns: to it a triangle by rows is the other one."""
    if not np.size(B):
        return np.zeros(np.shape(B))
    if L.strides[0] <= L.strides[1]:
        Z, info = lapack.dtrtrs(L, B, lower=1, trans=transposed, overwrite_b=overwrite)
    else:
        Z, info = lapack.dtrtrs(
            L.T, B, lower=0, trans=not transposed, overwrite_b=overwrite
        )
    if info:
        raise np.linalg.LinAlgError(f"row {info - 1} of a triangular matrix is zero")
    return Z


def solve_lower_of_each(factors, right, transposed=False):
    """The solutions (m, k, ...) of lower triangular systems (m, k, k), all at once.

    Those of L^T if `transposed`.
    """
    x, k = np.empty(right.shape), right.shape[1]
    diagonals = np.diagonal(factors, axis1=1, axis2=2)
    diagonals = diagonals.reshape(*diagonals.shape, *[1] * (right.ndim - 2))
    for j in reversed(range(k)) if transposed else range(k):
        done = slice(j + 1, k) if transposed else slice(j)
        row = factors[:, done, j] if transposed else factors[:, j, done]
        known = np.einsum("mi,mi...->m...", row, x[:, done])
        x[:, j] = (right[:, j] - known) / diagonals[:, j]
    return x


def solve_upper(R, B):
    """Solve R Z = B for an upper triangular R (n, n) and B (n,) or (n, m)."""
    return solve_lower(R.T, B, transposed=True)


def inverse_lower(L, smallest=64):
    """The inverse (n, n) of a lower triangular L, for sums over its entries.

    By halves, down to the `smallest`: products of these take half of dtrtri's time.
    """
    if len(L) <= smallest:
        return lapack.dtrtri(L.T, lower=0)[0].T
    half, inverse = len(L) // 2, np.zeros(L.shape)
    inverse[:half, :half] = inverse_lower(L[:half, :half], smallest)
    inverse[half:, half:] = inverse_lower(L[half:, half:], smallest)
    inverse[half:, :half] = (
        -inverse[half:, half:] @ L[half:, :half] @ inverse[:half, :half]
    )
    return inverse


def solve_cholesky(L, B):
    """Solve L L^T Z = B for a Cholesky factor L (n, n) and B (n,) or (n, m)."""
    return solve_lower(L, solve_lower(L, B), transposed=True)


def inverse_in_place(L, block=5000):
    """The lower triangle of (L L^T)^-1, in the memory of L (n, n) if it is by rows.

    Above the diagonal of L are zeros. One of more rows than the `block` is full, see
    :func:`inverse_from_cholesky`.
    """
    if len(L) > block:
        return inverse_from_cholesky(L, block)
    return lapack.dpotri(L.T, lower=0, overwrite_c=1)[0].T


def inverse_from_cholesky(L, block=5000):
    """All entries (n, n) of (L L^T)^-1, for traces of its products with full matrices.

    Systems are solved with the factor itself, never with this. Above the diagonal of L
    are zeros. It is made of rows by the `block`: see :func:`cholesky_in_place`.
    """
    n = len(L)
    if n <= block:
        upper, _ = lapack.dpotri(L.T, lower=0)
        inverse = upper + upper.T
        np.einsum("ii->i", inverse)[:] *= 0.5
        return inverse
    factor, inverse = np.zeros((n, n)), np.empty((n, n))
    for begin in range(0, n, block):
        own = np.eye(n - begin, min(block, n - begin))
        factor[begin:, begin : begin + block] = solve_lower(L[begin:, begin:], own)
    for begin in range(0, n, block):
        own, rows = slice(begin, begin + block), factor[begin:]
        inverse[own, : own.stop] = rows[:, own].T @ rows[:, : own.stop]
        inverse[: own.stop, own] = inverse[own, : own.stop].T
    return inverse


def packed(A):
    """The lower triangle of A (n, n), row after row, in a vector.

    What is computed of all pairs takes half the time with it: see BLAS and LAPACK.
    """
    return lapack.dtrttp(A.T)[0]


def unpacked(triangle, n):
    """The matrix (n, n) of a packed lower triangle, which ends at the diagonal."""
    return lapack.dtpttr(n, triangle)[0].T


def minus_square(triangle, x):
    """A packed triangle minus that of the products x_i x_j of x (n,)."""
    return blas.dspr(len(x), -1.0, x, triangle, overwrite_ap=1)


def sums_of_pairs(x):
    """The packed triangle of the sums x_i + x_j of x (n,)."""
    ones, zeros = np.ones(len(x)), np.zeros(len(x) * (len(x) + 1) // 2)
    return blas.dspr2(len(x), 1.0, x, ones, zeros, overwrite_ap=1)


def sums_of_rows(triangle, n):
    """Sums (n,) of the rows of the symmetric matrix of a packed triangle."""
    return blas.dspmv(n, 1.0, triangle, np.ones(n))


def triangle(A, block_size=32):
    """The upper trapezoidal R of A = Q R, of as many rows as columns at most.

    By LAPACK's dgeqrt, in blocks of columns to the last one: dgeqrf takes the last 128
    columns one by one, which are most of them here.
    """
    if not A.size:
        return np.zeros((min(A.shape), A.shape[1]))
    R, *_ = lapack.dgeqrt(min(block_size, *A.shape), A)
    return np.triu(R[: A.shape[1]])


def ridge(A, b, noise):
    """Minimise ``|w|^2 + |A w - b|^2 / noise^2`` over the weights w (p,).

    As a least-squares problem with the rows ``noise * w = 0`` appended, by a pivoted
    orthogonal factorisation: the normal equations would square the condition number.
    A (n, p) holds orthonormal features at the data b (n,), and `noise` is the standard
    deviation of the data; 0 gives the least-squares solution of least norm.
    """
    p = A.shape[1]
    rows = np.vstack([A, noise * np.eye(p)]) if noise > 0 else A
    right = np.concatenate([b, np.zeros(len(rows) - len(b))])
    return linalg.lstsq(rows, right, lapack_driver="gelsy", check_finite=False)[0]


def rms(values):
    """Root mean square of values, in their units; 0 if there are none.

    The largest value is divided out first, so that no square overflows or vanishes.
    """
    largest = np.abs(values).max(initial=0.0)
    if largest == 0:
        return 0.0
    scaled = np.ravel(values / largest)
    return float(largest * np.sqrt(scaled @ scaled / len(scaled)))


def largest_factor():
    """The size up to which products of four numbers are finite, squared as well."""
    return np.finfo(float).max ** 0.125


def size_or_one(values):
    """Root mean square of values by which others are divided; 1 if all are zero."""
    return rms(values) or 1.0


def extent_of(points):
    """Extent (d,) of points (n, d) in each coordinate; 1 where they do not differ."""
    extent = np.ptp(points, axis=0)
    return np.where(extent > 0, extent, 1.0)


def extrapolated(start, first, second, longest=16.0):
    """Where a fixed-point iteration leads to, from three points that follow each other.

    The squared extrapolation of Varadhan and Roland, "Simple and globally convergent
    methods for accelerating the convergence of any EM algorithm", Scandinavian Journal
    of Statistics 35, 2008, with the step length of their scheme S3: at least one, with
    which it is `second`, and at most `longest`. All points have the shape (n,).
    """
    change, bend = first - start, second - 2 * first + start
    length = np.linalg.norm(change) / max(np.linalg.norm(bend), np.finfo(float).tiny)
    length = np.clip(length, 1.0, longest)
    return start + 2 * length * change + length**2 * bend

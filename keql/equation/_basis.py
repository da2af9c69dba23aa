"""Orthonormal features of the RKHS of P, and what data say of weights in them."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from keql._numerics.arguments import naming
from keql._numerics.linalg import (
    cholesky,
    pivoted_cholesky,
    solve_lower,
    solve_upper,
    triangle,
)
from keql._numerics.memory import in_chunks
from keql.kernels import (
    combinations,
    distinct_rows,
    feature_slopes,
    features_with_slopes,
    narrow_and_wide,
    unrestricted,
)


class PolynomialBasis:
    """Exact features of a kernel whose RKHS has finite dimension p.

    Those of a restriction are combinations of the features of the kernel that it
    restricts, which are found once for each number of coordinates.
    """

    def __init__(self, kernel):
        self.kernel = kernel
        self._wider, self._prepared = {}, {}

    def __getstate__(self):
        return {**vars(self), "_prepared": {}}  # functions are made where needed

    def __call__(self, S, a=None):
        """Features, or their derivative a, at the rows of `S`, of shape (n, p)."""
        kernel, directions = self._unrestricted(S.shape[1])
        features = kernel.feature_map(S, a)
        return features if directions is None else features @ directions

    def values(self, S, weights):
        """Values of psi . weights, of shape (n,)."""
        wider, weights = self.unrestricted(weights, S.shape[1])
        return wider.kernel.feature_map(S) @ weights

    def gradient(self, S, weights, skipped=0):
        """Partial derivatives of psi . weights, of shape (d, n).

        Those in the first `skipped` columns are not needed: they may be zeros instead.
        """
        wider, weights = self.unrestricted(weights, S.shape[1])
        return feature_slopes(wider.kernel, S, weights)

    def unrestricted(self, weights, d):
        """Features of d coordinates that are faster to compute, and weights in them."""
        kernel, directions = self._unrestricted(d)
        if directions is None:
            return self, weights
        return PolynomialBasis(kernel), directions @ weights

    def _unrestricted(self, d):
        """The kernel that is restricted, and directions (p, q); None if there is none.

        They are kept, and saved along: to find them takes as long as features at many
        points.
        """
        if d not in self._wider:
            n_features = self.kernel.n_features(d)
            kernel, directions = unrestricted(self.kernel, np.eye(n_features), d)
            directions = None if kernel is self.kernel else directions
            self._wider[d] = kernel, directions
        return self._wider[d]


class InducingBasis:
    """Features psi(s) = C^-1 P(S_I, s) with P(S_I, S_I) = C C^T.

    They span the kernel functions at p distinct inducing points S_I of shape (p, d),
    orthonormally: the projection of the RKHS on what the points can tell (Nystrom). The
    points were chosen among `n_drawn`; None: all of them were.
    """

    def __init__(self, kernel, points, n_drawn=None):
        self.kernel, self.points = kernel, points
        self.n_drawn = len(points) if n_drawn is None else n_drawn
        self.cholesky = cholesky(kernel(points))
        self._at_points = None, None

    @classmethod
    def among(cls, kernel, points, negligible=1e-12):
        """The basis of those of the points that are independent.

        Kernels of smooth functions have a low numerical rank: a point is left out if
        the others leave less than a `negligible` part of its prior variance. With them,
        psi . w for |w| = 1 could have coefficients of k(S_I, s) above 1 / negligible**
        0.5, and values whose rounding errors are as many times the precision of floats.
        """
        _, pivots = pivoted_cholesky(kernel(points), negligible)
        return cls(kernel, points[np.sort(pivots)], len(points))

    def thinned(self, weights, negligible=1e-10):
        """A basis of fewer of the points, and the weights of psi . weights in it."""
        basis = InducingBasis.among(self.kernel, self.points, negligible)
        values = self.values(basis.points, weights)
        return basis, solve_lower(basis.cholesky, values)

    def __reduce__(self):
        # The factor, which is computed again, would be most of what is saved.
        return InducingBasis, (self.kernel, self.points, self.n_drawn)

    def __call__(self, S, a=None):
        """Features, or their derivative a, at the rows of `S`, of shape (n, p)."""
        shared = None if a is not None else self._at_shared_points(S)
        if shared is None:
            return solve_lower(
                self.cholesky, self.kernel.derivative(self.points, S, b=a)
            ).T
        phi, by_point, places = shared
        features = np.empty((len(S), len(self.points)))
        order = np.argsort(places, kind="stable")
        phi = phi[order].reshape(len(by_point), -1, phi.shape[1])
        features[order] = np.matmul(phi, by_point).reshape(features.shape)
        return features

    def _at_shared_points(self, S, most=4):
        """What gives features where functions share points; None where they do not.

        For P(s) = phi(s) . g(x) with f features phi, psi(s) is the sum over these of
        phi_f(s) C^-1 k(S_I, x) phi_f(S_I). Returned are phi(s) (n, f), the rest
        (k, f, p) at the k points x, which is kept from step to step, and the point of
        each row of S, (n,). Points have to be so few that C^-1 is multiplied by at most
        `most` times as many columns as S has rows, and each occur equally often.
        """
        parts = narrow_and_wide(self.kernel, S.shape[1])
        if parts is None:
            return None
        narrow, wide = parts
        on_points, n_features = (
            wide.depends_on(S.shape[1]),
            narrow.n_features(S.shape[1]),
        )
        rows, places = distinct_rows(S, on_points)
        if isinstance(rows, slice) or len(rows) * n_features > most * len(S):
            return None
        if np.ptp(np.bincount(places)):
            return None
        x = S[np.ix_(rows, on_points)]
        points, by_point = self._at_points
        if not np.array_equal(x, points):
            k = wide.derivative(self.points, S[rows])
            columns = k[:, :, None] * narrow.feature_map(self.points)[:, None]
            solved = solve_lower(self.cholesky, columns.reshape(len(k), -1))
            by_point = solved.reshape(columns.shape).transpose(1, 2, 0)
            by_point = np.ascontiguousarray(by_point)
            self._at_points = x, by_point
        return narrow.feature_map(S), by_point, places

    def values(self, S, weights):
        """Values of psi . weights, of shape (n,)."""
        shared = self._at_shared_points(S)
        if shared is None:
            return self._combined(S, weights, [(0,) * S.shape[1]])[0]
        phi, by_point, places = shared
        return np.einsum("nf,nf->n", phi, (by_point @ weights)[places])

    def gradient(self, S, weights, skipped=0):
        """Partial derivatives (d, n) of psi . weights; zeros in columns `skipped`."""
        gradient, orders = np.zeros(S.T.shape), _units(S)[skipped:]
        shared = self._at_shared_points(S)
        if shared is not None:
            narrow, wide = narrow_and_wide(self.kernel, S.shape[1])
            if not np.any(wide.depends_on(S.shape[1])[skipped:]):
                g = (shared[1] @ weights)[shared[2]]
                for row, order in zip(gradient[skipped:], orders, strict=True):
                    np.einsum("nf,nf->n", narrow.feature_map(S, order), g, out=row)
                return gradient
        with naming("equation_kernel"):  # its functions may be too rough
            gradient[skipped:] = self._combined(S, weights, orders)
        return gradient

    def unrestricted(self, weights, d):
        """Features of d coordinates, and weights in them: here none are faster."""
        return self, weights

    def _combined(self, S, weights, orders):
        """Derivatives of psi . weights, one row for each of the orders."""
        c = solve_lower(self.cholesky, weights, transposed=True)[:, None]
        return np.hstack(
            [
                [
                    column[:, 0]
                    for column in combinations(self.kernel, s, self.points, c, orders)
                ]
                for s in in_chunks(S, len(self.points), copies=8)
            ]
        )


class NoUnknownPart:
    """The basis of an equation that is known: P = 0, and there is no kernel."""

    kernel = None

    def __call__(self, S, a=None):
        """No features, of shape (n, 0)."""
        return np.empty((len(S), 0))

    def values(self, S, _):
        """Zeros of shape (n,)."""
        return np.zeros(len(S))

    def gradient(self, S, _, skipped=0):
        """Zeros of shape (d, n)."""
        return np.zeros(S.T.shape)


class SystemBasis:
    """The features of all equations of a system, as those of one equation.

    The first column of its arguments says which equation a row belongs to; the `bases`
    of the equations take the others. The weights (p,) of the equations follow one
    another, `sizes` (E,) of them.
    """

    def __init__(self, bases, sizes):
        self.bases, self.sizes = list(bases), tuple(sizes)

    def split(self, weights):
        """The weights of each equation."""
        return np.split(weights, np.cumsum(self.sizes)[:-1])

    def __call__(self, S):
        """Features at the rows of `S`, of shape (n, p)."""
        features, start = np.zeros((len(S), sum(self.sizes))), 0
        for e, (basis, size) in enumerate(zip(self.bases, self.sizes, strict=True)):
            rows = np.flatnonzero(S[:, 0] == e)
            features[rows, start : start + size] = basis(S[rows, 1:])
            start += size
        return features

    def values(self, S, weights):
        """Values of psi . weights, of shape (n,)."""
        values = np.zeros(len(S))
        for e, own in enumerate(self.split(weights)):
            rows = S[:, 0] == e
            values[rows] = self.bases[e].values(S[rows, 1:], own)
        return values

    def gradient(self, S, weights, skipped=0):
        """Partial derivatives (d, n) of psi . weights; columns may be `skipped`."""
        gradient = np.zeros(S.T.shape)
        for e, own in enumerate(self.split(weights)):
            rows = S[:, 0] == e
            gradient[1:, rows] = self.bases[e].gradient(
                S[rows, 1:], own, max(0, skipped - 1)
            )
        return gradient


class FixedUnknownPart:
    """An unknown part that is not sought any more: it has no free weights.

    It has the `basis`, the `weights` of shape (p,) and their `posterior`, a
    WeightPosterior, of the fit that it was learned in.
    """

    def __init__(self, basis, weights, posterior):
        self.basis, self.weights, self.posterior = basis, weights, posterior

    def __call__(self, S):
        """No features, of shape (n, 0)."""
        return np.empty((len(S), 0))

    def values(self, S, _):
        """Values of P, of shape (n,)."""
        return self.basis.values(S, self.weights)

    def gradient(self, S, _, skipped=0):
        """Partial derivatives of P, of shape (d, n); columns may be `skipped`."""
        return self.basis.gradient(S, self.weights, skipped)


def with_slopes(basis, weights, d):
    """A function of rows S (n, d): features (n, p), slopes (d, n) of psi . weights.

    For many calls with the same weights, of any basis. Its `values` (n,) are those of
    psi . weights alone.
    """
    if not isinstance(basis, PolynomialBasis):
        return _WithSlopes(basis, weights)
    if d not in basis._prepared:
        basis._prepared[d] = features_with_slopes(*basis._unrestricted(d), d)
    return basis._prepared[d](weights)


class _WithSlopes:
    """Features and slopes of any basis."""

    def __init__(self, basis, weights):
        self.basis, self.weights = basis, weights

    def __call__(self, S):
        return self.basis(S), self.basis.gradient(S, self.weights)

    def values(self, S):
        return self.basis.values(S, self.weights)


def _units(S):
    """Multi-indices of the first derivatives in the columns of `S`."""
    return [tuple(row) for row in np.eye(S.shape[1], dtype=int).tolist()]


# Exact data have this noise level, in units of their size.
EXACT = 1e-9


class WeightPosterior:
    """The quadratic approximation of the loss in the weights.

    It has the weights w* (p,), the lower triangular factor L (p, p) of the precision
    Lambda = L L^T, and the loss J(w*).
    """

    def __init__(self, weights, factor, loss):
        self.weights, self.factor, self.loss = weights, factor, loss

    def with_dispersion(self, dispersion):
        """The posterior with all variances, of priors and noise, multiplied."""
        factor = self.factor / dispersion**0.5
        return WeightPosterior(self.weights, factor, self.loss / dispersion)

    def averaged_over(self, others, shares):
        """The posterior of the same weights where others may be true instead.

        others : ndarray of shape (k, p). Weights, each as uncertain as these.
        shares : ndarray of shape (k,). Their probabilities; these have the rest.

        Its covariance is the mean square of what true weights deviate by.
        """
        deviations = np.sqrt(shares)[:, None] * (others - self.weights)
        # The covariance is R^T R, and the precision M^T M with the R of R^-T = Q M.
        R = triangle(np.vstack([self.root().T, deviations]))
        p = len(self.weights)
        lower = triangle(solve_lower(R[:p].T, np.eye(p))).T
        return WeightPosterior(self.weights, lower, self.loss)

    def root(self):
        """A matrix (p, p) whose product with its transpose is the covariance."""
        return solve_lower(self.factor, np.eye(len(self.factor))).T

    def std(self, A):
        """Standard deviations of A w for A of shape (n, p)."""
        return linalg.norm(solve_lower(self.factor, A.T), axis=0)

    def part(self, start, stop):
        """The posterior of the weights from `start` to `stop`, whatever the others."""
        if start == 0 and stop == len(self.weights):
            return self
        return self.transform(np.eye(len(self.weights))[start:stop], independent=0.0)

    def transform(self, A, independent=1e-12):
        """The posterior of A w for A of shape (q, p) of full row rank.

        A row is refused if, given those before it, less than the part `independent` of
        its standard deviation is left: rounding errors alone leave about 1e-16.
        """
        # Cov(A w) = A Lambda^-1 A^T = root^T root with root = L^-1 A^T of shape (p, q).
        root = solve_lower(self.factor, A.T)
        # With D of the standard deviations and root D^-1 = Q R it is D R^T R D.
        std = np.maximum(linalg.norm(root, axis=0), np.finfo(float).tiny)
        R = triangle(root / std)[: len(A)]
        if len(R) < len(A) or np.abs(np.diag(R)).min() < independent:
            raise ValueError(
                "the terms of P are not independent in its kernel, so that none can be "
                "taken out: use an offset above 0, or center=0, or fewer functions, or "
                "observe states more often of which there are few values."
            )
        # The precision is D^-1 R^-1 R^-T D^-1. Orthogonalising R^-T = Q' M makes that
        # D^-1 M^T M D^-1, and its lower factor D^-1 M^T.
        lower = triangle(solve_lower(R.T, np.eye(len(A)))).T / std[:, None]
        return WeightPosterior(A @ self.weights, lower, self.loss)

    def restrict(self, kept):
        """The posterior of the weights at the positions `kept` if all others are zero.

        They are the best ones then, and the loss is higher.
        """
        upper = self.factor.T
        R, weights, rise = _least_squares(upper[:, list(kept)], upper @ self.weights)
        return WeightPosterior(weights, R.T, self.loss + rise)

    def eliminate(self):
        """Set weights to zero one by one, each time the one that costs least.

        Returns a list of Elimination, from all p weights to one.
        """
        # In units of their standard deviations given the others.
        scale = linalg.norm(self.factor, axis=1)
        B = self.factor.T / scale
        target = self.factor.T @ self.weights
        kept, steps = list(range(len(target))), []
        while kept:
            R, scaled, rise = _least_squares(B[:, kept], target)
            values = scaled / scale[kept]
            steps.append(Elimination(tuple(kept), values, self.loss + rise))
            # |x_j|^2 over its variance is twice the rise of the loss without term j.
            std = linalg.norm(solve_upper(R, np.eye(len(R))), axis=1)
            del kept[int(np.argmin(np.abs(scaled) / std))]
        return steps

    def without_cheapest(self, kept, removable=None):
        """The lowest loss with one weight less than `kept`, and the positions left.

        Only weights at the positions `removable` go; None: any may.
        """
        restricted = self.restrict(kept)
        std = restricted.std(np.eye(len(kept)))
        costs = 0.5 * (restricted.weights / std) ** 2
        if removable is not None:
            costs[[i not in removable for i in kept]] = np.inf
        out = int(np.argmin(costs))
        return restricted.loss + costs[out], kept[:out] + kept[out + 1 :]

    def swap_terms(self, kept, groups=None, rounding=1e-9):
        """Exchange weights that are not zero for others while that lowers the loss.

        Taking out the cheapest one by one may end with two terms that stand in for a
        third, which hardly counted beside them. Returns as many positions as `kept`,
        of which no exchange of one for another lowers the loss by more, relatively,
        than `rounding`. Weights are exchanged within `groups` (p,) of equal numbers; a
        negative one stands for weights that stay.
        """
        loss = self.restrict(kept).loss
        groups = np.zeros(len(self.weights)) if groups is None else groups
        while True:
            unused = [i for i in range(len(self.weights)) if i not in kept]
            offers = [
                self.without_cheapest(
                    [*kept, added], set(np.flatnonzero(groups == groups[added]))
                )
                for added in unused
                if groups[added] >= 0
            ]
            lowest, offered = min(offers, default=(loss, kept))
            if lowest >= loss * (1 - rounding):
                return sorted(kept)
            loss, kept = lowest, offered


def _least_squares(A, target):
    """A = Q R: the factor R, the minimiser w of |A w - target|^2 / 2, the minimum."""
    Q, R = np.linalg.qr(A)
    projected = Q.T @ target
    minimum = 0.5 * np.sum((target - Q @ projected) ** 2)
    return R, solve_upper(R, projected), minimum


class Elimination(NamedTuple):
    """Positions of the weights that are not zero, their best values, and the loss."""

    kept: tuple
    weights: np.ndarray
    loss: float


def regression_rows(basis, S, target):
    """Features (k, p) and right-hand side (k,) of a regression on features of S (n, d).

    Those at the rows of S, or, where these take too much memory, p + 1 rows of a
    triangular factor, of which all sums of squares are those of all rows.
    """
    parts, rows = in_chunks(np.arange(len(S)), len(basis(S[:1])[0]), copies=4), None
    if len(parts) == 1:
        return basis(S), target
    for part in parts:
        own = np.column_stack([basis(S[part]), target[part]])
        rows = own if rows is None else np.vstack([rows, own])
        rows = triangle(rows)
    return rows[:, :-1], rows[:, -1]


def regression_posterior(features, target, noise, weights):
    """The posterior of a ridge regression, for which the approximation is exact.

    Orthonormal features (n, p) at the data `target` (n,) of standard deviation `noise`;
    the `weights` (p,) are the minimiser.
    """
    noise = max(noise, EXACT * linalg.norm(target) / len(target) ** 0.5) or 1.0
    rows = np.vstack([features / noise, np.eye(features.shape[1])])
    lower = triangle(rows).T
    residual = (features @ weights - target) / noise
    loss = 0.5 * (weights @ weights + residual @ residual)
    return WeightPosterior(weights, lower, loss)

"""What the data say about the weights of P, and what it costs to leave terms out.

Near the minimum the loss, with the states at their best for each w, is

    J(w) = J(w*) + 1/2 (w - w*)^T Lambda (w - w*),      Lambda = I + sum_m Y_m^T Y_m,

where Y_m are the whitened features of function m. Lambda^-1 is the posterior covariance
of the weights (Laplace), and minimising J over a subspace tells, without fitting again,
what an equation with fewer terms would be: its states have moved along.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from keql._numerics.linalg import solve_lower

# Exact data have this noise level, in units of their size.
EXACT = 1e-9


class WeightPosterior:
    """The quadratic approximation of the loss in the weights.

    It has the weights w* of shape (p,), the lower triangular factor L of shape (p, p)
    with Lambda = L L^T, and the loss J(w*).
    """

    def __init__(self, weights, factor, loss):
        self.weights = weights
        self.factor = factor
        self.loss = loss

    def with_dispersion(self, dispersion):
        """The posterior with all variances, of priors and noise, multiplied."""
        factor = self.factor / dispersion**0.5
        return WeightPosterior(self.weights, factor, self.loss / dispersion)

    def std(self, A):
        """Standard deviations of A w for A of shape (n, p)."""
        return linalg.norm(solve_lower(self.factor, A.T), axis=0)

    def transform(self, A, independent=1e-12):
        """The posterior of A w for A of shape (q, p) of full row rank.

        A row is refused if, given those before it, less than the part `independent` of
        its standard deviation is left: rounding errors alone leave about 1e-16.
        """
        # Cov(A w) = A Lambda^-1 A^T = root^T root with root = L^-1 A^T of shape (p, q).
        root = solve_lower(self.factor, A.T)
        # With D of the standard deviations and root D^-1 = Q R it is D R^T R D.
        std = np.maximum(linalg.norm(root, axis=0), np.finfo(float).tiny)
        R = linalg.qr(root / std, mode="r")[0][: len(A)]
        if len(R) < len(A) or np.abs(np.diag(R)).min() < independent:
            raise ValueError(
                "the terms of P are not independent in its kernel, so that none can be "
                "taken out: use an offset above 0, or center=0, or fewer functions."
            )
        # The precision is D^-1 R^-1 R^-T D^-1. Orthogonalising R^-T = Q' M makes that
        # D^-1 M^T M D^-1, and its lower factor D^-1 M^T.
        inverse = solve_lower(R.T, np.eye(len(A)))
        lower = linalg.qr(inverse, mode="r")[0].T / std[:, None]
        return WeightPosterior(A @ self.weights, lower, self.loss)

    def restrict(self, kept):
        """The posterior of the weights at the positions `kept` if all others are zero.

        They are the best ones then, and the loss is higher.
        """
        target = self.factor.T @ self.weights
        Q, R = linalg.qr(self.factor.T[:, list(kept)], mode="economic")
        weights = linalg.solve_triangular(R, Q.T @ target)
        rise = 0.5 * np.sum((target - Q @ (Q.T @ target)) ** 2)
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
            Q, R = linalg.qr(B[:, kept], mode="economic")
            scaled = linalg.solve_triangular(R, Q.T @ target)
            values = scaled / scale[kept]
            rise = 0.5 * np.sum((target - Q @ (Q.T @ target)) ** 2)
            steps.append(Elimination(tuple(kept), values, self.loss + rise))
            # |x_j|^2 over its variance is twice the rise of the loss without term j.
            std = linalg.norm(linalg.solve_triangular(R, np.eye(len(R))), axis=1)
            del kept[int(np.argmin(np.abs(scaled) / std))]
        return steps

    def without_cheapest(self, kept):
        """The lowest loss with one weight less than `kept`, and the positions left."""
        restricted = self.restrict(kept)
        std = restricted.std(np.eye(len(kept)))
        costs = 0.5 * (restricted.weights / std) ** 2
        out = int(np.argmin(costs))
        return restricted.loss + costs[out], kept[:out] + kept[out + 1 :]

    def swap_terms(self, kept, rounding=1e-9):
        """Exchange weights that are not zero for others while that lowers the loss.

        Taking out the cheapest one by one may end with two terms that stand in for a
        third, which hardly counted beside them. Returns as many positions as `kept`,
        of which no exchange of one for another lowers the loss by more, relatively,
        than `rounding`.
        """
        loss = self.restrict(kept).loss
        while True:
            offers = [
                self.without_cheapest([*kept, added])
                for added in range(len(self.weights))
                if added not in kept
            ]
            lowest, offered = min(offers, default=(loss, kept))
            if lowest >= loss * (1 - rounding):
                return sorted(kept)
            loss, kept = lowest, offered


class Elimination(NamedTuple):
    """Positions of the weights that are not zero, their best values, and the loss."""

    kept: tuple
    weights: np.ndarray
    loss: float


def regression_posterior(features, target, noise, weights):
    """The posterior of a ridge regression, for which the approximation is exact.

    Parameters
    ----------
    features : ndarray of shape (n, p)
        Orthonormal features at the data.
    target : ndarray of shape (n,)
        The data.
    noise : float
        Their standard deviation.
    weights : ndarray of shape (p,)
        The minimiser.
    """
    noise = max(noise, EXACT * linalg.norm(target) / len(target) ** 0.5) or 1.0
    rows = np.vstack([features / noise, np.eye(features.shape[1])])
    lower = linalg.qr(rows, mode="r")[0][: rows.shape[1]].T
    residual = (features @ weights - target) / noise
    loss = 0.5 * (weights @ weights + residual @ residual)
    return WeightPosterior(weights, lower, loss)

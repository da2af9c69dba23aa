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

# A noise level of zero is this small, relative to the data.
EXACT = 1e-9
# Functions whose coefficients are correlated this closely are one and the same.
DEPENDENT = 1e-12


class WeightPosterior:
    """The quadratic approximation of the loss in the weights.

    Parameters
    ----------
    weights : ndarray of shape (p,)
        w*.
    factor : ndarray of shape (p, p)
        Lower triangular L with Lambda = L L^T.
    loss : float
        J(w*).
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

    def transform(self, A):
        """The posterior of A w for A of shape (q, p) of full row rank."""
        root = solve_lower(self.factor, A.T)  # the covariance is root^T root
        scale = np.maximum(linalg.norm(root, axis=0), np.finfo(float).tiny)
        upper = linalg.qr(root / scale, mode="r")[0][: len(A)]
        if len(upper) < len(A) or np.abs(np.diag(upper)).min() < DEPENDENT:
            raise ValueError(
                "the terms of P are not independent in its kernel, so that none can be "
                "taken out: use an offset above 0, or center=0, or fewer functions."
            )
        # Lambda = R^-1 R^-T, and its lower factor by orthogonalising R^-T.
        inverse = solve_lower(upper.T, np.eye(len(A)))
        lower = linalg.qr(inverse, mode="r")[0].T / scale[:, None]
        return WeightPosterior(A @ self.weights, lower, self.loss)

    def restrict(self, kept):
        """What is left when the other weights are zero, at the best of these.

        Parameters
        ----------
        kept : sequence of int
            Positions of the weights that are not set to zero.

        Returns
        -------
        posterior : WeightPosterior
            Of these weights, with the higher loss.
        """
        target = self.factor.T @ self.weights
        Q, R = linalg.qr(self.factor.T[:, list(kept)], mode="economic")
        weights = linalg.solve_triangular(R, Q.T @ target)
        rise = 0.5 * np.sum((target - Q @ (Q.T @ target)) ** 2)
        return WeightPosterior(weights, R.T, self.loss + rise)

    def eliminate(self):
        """Set weights to zero one by one, each time the one that costs least.

        Returns
        -------
        steps : list of Elimination
            From all p weights to one.
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
            spread = linalg.norm(linalg.solve_triangular(R, np.eye(len(R))), axis=1)
            del kept[int(np.argmin(np.abs(scaled) / spread))]
        return steps

    def without_cheapest(self, kept):
        """The loss without the weight that costs least of some, and the others.

        Parameters
        ----------
        kept : list of int
            Positions of the weights that are not set to zero.

        Returns
        -------
        loss : float
            The lowest without it.
        kept : list of int
            One less.
        """
        some = self.restrict(kept)
        costs = 0.5 * (some.weights / some.std(np.eye(len(kept)))) ** 2
        out = int(np.argmin(costs))
        return some.loss + costs[out], kept[:out] + kept[out + 1 :]

    def swap_terms(self, kept):
        """Exchange weights that are not zero for others while that lowers the loss.

        Taking out the cheapest one by one may end with two terms that stand in for a
        third, which hardly counted beside them.

        Parameters
        ----------
        kept : list of int
            Positions of the weights that are not set to zero.

        Returns
        -------
        kept : list of int
            As many; no exchange of one for another lowers the loss.
        """
        loss = self.restrict(kept).loss
        while True:
            offers = [
                self.without_cheapest([*kept, other])
                for other in range(len(self.weights))
                if other not in kept
            ]
            lowest, offered = min(offers, default=(loss, kept))
            if lowest >= loss * (1 - EXACT):
                return sorted(kept)
            loss, kept = lowest, offered


class Elimination(NamedTuple):
    """The weights that are left, by position, at the lowest loss with them."""

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
        Standard deviation of the data.
    weights : ndarray of shape (p,)
        The minimiser.

    Returns
    -------
    posterior : WeightPosterior
        Of the weights.
    """
    noise = max(noise, EXACT * linalg.norm(target) / len(target) ** 0.5) or 1.0
    rows = np.vstack([features / noise, np.eye(features.shape[1])])
    lower = linalg.qr(rows, mode="r")[0][: rows.shape[1]].T
    residual = (features @ weights - target) / noise
    loss = 0.5 * (weights @ weights + residual @ residual)
    return WeightPosterior(weights, lower, loss)

"""Weights and initial values from observations that are linear in them.

Unknown are the weights w of all equations and, for each function, its initial values
z_m. Linearised equations make the observations of a function

    y_m = a_m + B_m w + C_m z_m + noise,

with the prior N(0, scale^2 I) of the weights and one so wide of the initial values that
it hardly matters. The noise levels and the scale are those of maximum likelihood
(MacKay, "Bayesian interpolation", Neural Computation 4, 1992, section 4.4).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from keql._numerics.linalg import solve_lower
from keql.equation import WeightPosterior


@dataclass(frozen=True)
class InitialPrior:
    """The prior of initial values and weights, and the noise of observations.

    spread : ndarray of shape (D,). Prior standard deviations of the initial values.
    noise : ndarray of shape (J,). Those of the observed operators, in their units.
    free_noise : ndarray of bool, of shape (J,). Which are of maximum likelihood.
    lowest : ndarray of shape (J,). Least noise levels that are found.
    scale : float. Prior standard deviation of the weights, between 1 and `max_scale`:
        features of equations are scaled to what two steps say, which may be too small.
    max_scale : float.
    """

    spread: np.ndarray
    noise: np.ndarray
    free_noise: np.ndarray
    lowest: np.ndarray
    scale: float = 1.0
    max_scale: float = 1e3


@dataclass(frozen=True)
class Rows:
    """The observations: what they belong to, and how they depend on the unknowns.

    target : ndarray of shape (N,). y_m - a_m of all functions.
    on_weights : ndarray of shape (N, p). B_m.
    on_initial : ndarray of shape (N, M D). C_m, zero for other functions.
    index : ndarray of shape (N,). The operator of each observation.
    weights : ndarray of shape (N,). Relative precisions.
    ends : ndarray of shape (M - 1,). Where the observations of a function end.
    """

    target: np.ndarray
    on_weights: np.ndarray
    on_initial: np.ndarray
    index: np.ndarray
    weights: np.ndarray
    ends: np.ndarray


class InitialValueRegression:
    """Weights and initial values, from Rows and an InitialPrior."""

    def __init__(self, rows, prior):
        self.rows, self.prior = rows, prior
        self.p, n_functions = rows.on_weights.shape[1], len(rows.ends) + 1
        self.scales = np.concatenate(
            [np.full(self.p, prior.scale), np.tile(prior.spread, n_functions)]
        )
        self.roots = np.sqrt(rows.weights) / prior.noise[rows.index]

    @cached_property
    def _solved(self):
        """Orthogonal rows Q (N, q), the factor R (q, q), and the unknowns, scaled."""
        A = np.hstack([self.rows.on_weights, self.rows.on_initial]) * self.scales
        A, b = A * self.roots[:, None], self.rows.target * self.roots
        q = A.shape[1]
        Q, R = linalg.qr(np.vstack([A, np.eye(q)]), mode="economic")
        unknowns = linalg.solve_triangular(R, Q[: len(b)].T @ b)
        return Q[: len(b)], R, unknowns, b - A @ unknowns

    @property
    def unknowns(self):
        """The most probable weights and initial values, of shape (p + M D,)."""
        return self.scales * self._solved[2]

    @property
    def weights(self):
        """The most probable weights, of shape (p,)."""
        return self.unknowns[: self.p]

    @cached_property
    def loss(self):
        """The lowest value of 1/2 |residuals|^2 + 1/2 |unknowns|^2, both whitened."""
        _, _, unknowns, residuals = self._solved
        return 0.5 * float(unknowns @ unknowns + residuals @ residuals)

    @property
    def misfit(self):
        """Mean square of the residuals in units of the noise levels."""
        return float(np.mean(self._solved[3] ** 2))

    def log_evidence(self):
        """Log likelihood of the observations, weights and initial values averaged."""
        _, R, _, _ = self._solved
        volume = np.sum(np.log(np.abs(np.diag(R)))) - np.sum(np.log(self.roots))
        return -self.loss - float(volume)

    def leave_one_out(self):
        """Errors of predicting each observation from all others, for each function."""
        Q, _, _, residuals = self._solved
        left = np.maximum(1 - np.sum(Q**2, axis=1), np.finfo(float).eps)
        return np.split(residuals / left / self.roots, self.rows.ends)

    def posterior_weights(self):
        """What the observations say about the weights, whatever the initial values."""
        p, scale = self.p, self.prior.scale
        _, R, _, _ = self._solved
        order = np.r_[np.arange(p, len(R)), np.arange(p)]
        lower = (
            linalg.qr(R[:, order], mode="r")[0][-p:, -p:].T / scale if p else R[:0, :0]
        )
        return WeightPosterior(self.weights, lower, self.loss)

    def root_of_covariance(self):
        """A matrix (q, q) whose square is the posterior covariance of the unknowns."""
        _, R, _, _ = self._solved
        return self.scales[:, None] * solve_lower(R.T, np.eye(len(R))).T

    def with_best_prior(self, max_iter=50, tol=1e-3):
        """The regression with noise levels and the scale of maximum likelihood.

        Fixed-point steps, at most `max_iter`, until logarithms change by less than
        `tol`.
        """
        best = self
        for _ in range(max_iter):
            prior = best._better_prior()
            before = np.r_[best.prior.noise, best.prior.scale]
            after = np.r_[prior.noise, prior.scale]
            best = InitialValueRegression(self.rows, prior)
            if np.max(np.abs(np.log(after / before))) < tol:
                break
        return best

    def _better_prior(self):
        Q, R, unknowns, residuals = self._solved
        prior, rows, noise = self.prior, self.rows, self.prior.noise.copy()
        leverage = np.sum(Q**2, axis=1)
        for j in np.flatnonzero(prior.free_noise):
            own = rows.index == j
            free = max(np.sum(1 - leverage[own]), 1.0)
            level = noise[j] * np.sqrt(np.sum(residuals[own] ** 2) / free)
            noise[j] = max(level, prior.lowest[j])
        scale = prior.scale
        if self.p:
            inverse = solve_lower(R.T, np.eye(len(R)))
            variances = np.sum(inverse[:, : self.p] ** 2, axis=0)
            determined = max(np.sum(1 - variances), 1e-3)
            scale *= np.sqrt(np.sum(unknowns[: self.p] ** 2) / determined)
        scale = float(np.clip(scale, 1.0, prior.max_scale))
        return replace(prior, noise=noise, scale=scale)

    def whitened(self):
        """The target (N,) and the effects (N, p) of weights, initial values averaged.

        In units of what is uncertain if the weights are known; the weights in units of
        their scale.
        """
        n_initial = self.rows.on_initial.shape[1]
        C = self.rows.on_initial * self.scales[self.p :] * self.roots[:, None]
        B = self.rows.on_weights * self.prior.scale * self.roots[:, None]
        b = self.rows.target * self.roots
        Q = linalg.qr(np.vstack([C, np.eye(n_initial)]), mode="economic")[0]
        # Of rows (C; I) only those of the data have values: project both on the rest.
        padded = np.vstack(
            [np.column_stack([b, B]), np.zeros((n_initial, 1 + B.shape[1]))]
        )
        projected = padded - Q @ (Q.T @ padded)
        return projected[:, 0], projected[:, 1:]

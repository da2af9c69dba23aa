"""What an evolution equation leaves open, from observations that are linear in it.

Unknown are the weights w of the equation and, for each function, its values z_m on the
border of the box. Their priors are N(0, I) and N(0, K), K a kernel on the border. The
linearised equation makes the observations of a function

    y_m = a_m + B_m w + C_m z_m + noise / sqrt(weights).
"""

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from keql._numerics.bounded_search import minimise_in_boxes
from keql._numerics.linalg import (
    cholesky,
    inverse_from_cholesky,
    solve_cholesky,
    solve_lower,
)
from keql._numerics.scaling import extent_of, size_or_one
from keql._observations.data import NOISE_RANGE
from keql.equation import WeightPosterior
from keql.kernels import Constant, Matern

# Degrees of the kernels that are compared.
DEGREES = (1.5, 2.5)
# First length scale and range, in units of the extent of the border; range of the
# variance, in units of the squared values; first noise level, in units of these.
LENGTH, LENGTHS = 0.3, (0.02, 30.0)
VARIANCES = (1e-2, 1e3)
NOISE = 1e-3
# Range of the prior scale of the weights, in units of what two steps say: far from the
# true states laws seem to have no effect.
SCALES = 1.0, 1e3
# Relative precision of log likelihoods, and the largest change of a log-hyperparameter
# in one run of the optimiser.
PRECISION, BOX = 1e-6, 2.0


@dataclass(frozen=True)
class Solution:
    """What is most probable, and how certain it is.

    Parameters
    ----------
    unknowns : list of ndarray of shape (1 + p + c,)
        1, weights and border values, for each function.
    weights : WeightPosterior
        That of the weights alone.
    errors : list of ndarray of shape (N_m,)
        Of the predictions of each observation from all others.
    misfit : float
        Mean square of the residuals in units of the noise levels.
    """

    unknowns: list
    weights: WeightPosterior
    errors: list
    misfit: float

    def leave_one_out(self):
        """Errors of predictions, as linear models of the joint problem have them."""
        return self.errors


class BorderRegression:
    """Weights and border values from observations.

    Parameters
    ----------
    border : ndarray of shape (c, 2)
        Points of the border.
    maps : list of ndarray of shape (N_m, 1 + p + c)
        (a_m, B_m, C_m) of each function.
    functions : list of FunctionData
        The observations.
    kernel : Kernel
        Prior covariance on the border.
    noise : float
        Standard deviation of an observation of weight 1.
    scale : float, default=1.0
        Prior standard deviation of the weights.
    """

    def __init__(self, border, maps, functions, kernel, noise, scale=1.0):
        self.border, self.kernel = border, kernel
        self.noise, self.scale = noise, scale
        p = maps[0].shape[1] - 1 - len(border)
        self.on_weights = np.concatenate([each[:, 1 : 1 + p] for each in maps])
        self.on_border = [each[:, 1 + p :] for each in maps]
        ends = np.cumsum([0, *map(len, maps)])
        self.places = [slice(*pair) for pair in zip(ends[:-1], ends[1:], strict=True)]
        values = np.concatenate([data.values for data in functions])
        self.size = size_or_one(values)
        self.target = values - np.concatenate([each[:, 0] for each in maps])
        self.variances = 1 / np.concatenate([data.weights for data in functions])

    def _covariance(self, K, noise):
        """Covariance (N, N) of the observations if the weights are known."""
        G = np.diag(noise**2 * self.variances)
        for at, C in zip(self.places, self.on_border, strict=True):
            G[at, at] += C @ K @ C.T
        return G

    def _factored(self):
        """Prior covariance (c, c), part of the weights (N, p), Cholesky factor (N, N).

        The factor is that of the covariance of the observations.
        """
        K, B = self.kernel(self.border), self.scale * self.on_weights
        return K, B, cholesky(self._covariance(K, self.noise) + B @ B.T)

    def log_likelihood(self, kernel, noise, scale):
        """Log marginal likelihood of the observations, up to a constant.

        Parameters
        ----------
        kernel : Kernel
            Prior covariance on the border.
        noise : float
            Standard deviation of an observation of weight 1.
        scale : float
            Prior standard deviation of the weights.

        Returns
        -------
        value : float
            The log likelihood.
        gradient : ndarray of shape (kernel.n_dims + 2,)
            Derivatives with respect to `kernel.theta`, log(noise) and log(scale).
        """
        K, layers = kernel(self.border, eval_gradient=True)
        B = scale * self.on_weights
        G = self._covariance(K, noise) + B @ B.T
        L = cholesky(G)
        alpha = solve_cholesky(L, self.target)
        value = -0.5 * self.target @ alpha - np.log(np.diag(L)).sum()
        # tr[(alpha alpha^T - G^-1) C dK C^T] / 2 for each hyperparameter
        outer = np.outer(alpha, alpha) - inverse_from_cholesky(L)
        pulled = sum(
            C.T @ outer[at, at] @ C
            for at, C in zip(self.places, self.on_border, strict=True)
        )
        gradient = 0.5 * np.einsum("ij,ijk->k", pulled, layers)
        on_noise = noise**2 * np.diag(outer) @ self.variances
        return value, np.r_[gradient, on_noise, np.sum(B * (outer @ B))]

    def with_best_prior(self, free_noise, free_scale):
        """The same with the prior, and the noise if that is free, of most likelihood.

        Parameters
        ----------
        free_noise, free_scale : bool
            Whether the noise level, and the prior scale of the weights, are to be found
            too.

        Returns
        -------
        regression : BorderRegression
            With other hyperparameters.
        loss : float
            Minus its log likelihood, up to a constant that only the data decide.
        """
        n, levels = self.kernel.n_dims, np.multiply(NOISE_RANGE, self.size)
        free = np.r_[np.ones(n, dtype=bool), free_noise, free_scale]
        bounds = np.vstack([self.kernel.bounds, np.log([levels, SCALES])])
        full = np.r_[self.kernel.theta, np.log([self.noise, self.scale])]

        def unpack(theta):
            values = full.copy()
            values[free] = theta
            levels = np.where(free[n:], np.exp(values[n:]), [self.noise, self.scale])
            return self.kernel.clone_with_theta(values[:n]), *levels

        def objective(theta):
            value, gradient = self.log_likelihood(*unpack(theta))
            # In units of the values, so that the stopping rule knows none.
            shift = len(self.target) * np.log(self.size)
            return -value - shift, -gradient[free]

        start = np.clip(full[free], *bounds[free].T)
        theta, loss = minimise_in_boxes(
            objective, start, bounds[free], BOX, options={"ftol": PRECISION}
        )
        found = copy(self)
        found.kernel, found.noise, found.scale = unpack(theta)
        return found, loss

    def with_noise_above(self, level):
        """The same with a noise level that is not below another one."""
        found = copy(self)
        found.noise = max(self.noise, level)
        return found

    def whitened(self):
        """What is left of the observations, and of the weights' part in them.

        Returns
        -------
        target : ndarray of shape (N,)
            Observations, in units of their uncertainty if the weights are known.
        features : ndarray of shape (N, p)
            What they are multiplied with by the weights, in units of their prior
            scale, likewise.
        """
        L = cholesky(self._covariance(self.kernel(self.border), self.noise))
        features = solve_lower(L, self.scale * self.on_weights)
        return solve_lower(L, self.target), features

    def solve(self):
        """Weights and border values.

        Returns
        -------
        solution : Solution
            The most probable ones.
        """
        K, B, L = self._factored()
        alpha = solve_cholesky(L, self.target)
        weights = self.scale * (B.T @ alpha)
        unknowns = [
            np.r_[1.0, weights, K @ (C.T @ alpha[at])]
            for at, C in zip(self.places, self.on_border, strict=True)
        ]
        # As in a ridge regression on the weights, whitened by what else is uncertain.
        rows = np.vstack([self.whitened()[1], np.eye(len(weights))])
        lower = linalg.qr(rows, mode="r")[0][: len(weights)].T / self.scale
        posterior = WeightPosterior(weights, lower, 0.5 * self.target @ alpha)
        errors = alpha / np.diag(inverse_from_cholesky(L))
        errors = [errors[at] for at in self.places]
        misfit = self.noise**2 * np.mean(self.variances * alpha**2)
        return Solution(unknowns, posterior, errors, float(misfit))

    def loss(self, weights, border, missed):
        """What is minimised, of any weights and border values.

        Parameters
        ----------
        weights : ndarray of shape (p,)
            Of the equation.
        border : list of ndarray of shape (c,)
            Values on the border, of each function.
        missed : ndarray of shape (N,)
            Observations less what follows from these.

        Returns
        -------
        loss : float
            For the prior and the noise at hand.
        """
        L = cholesky(self.kernel(self.border))
        norms = [np.sum(solve_lower(L, values) ** 2) for values in border]
        misfit = np.sum(missed**2 / self.variances) / self.noise**2
        return 0.5 * float(weights @ weights / self.scale**2 + sum(norms) + misfit)

    def log_volume(self):
        """What the evidence is lowered by because the unknowns are not certain."""
        return float(np.log(np.diag(self._factored()[-1])).sum())

    def covariances(self):
        """Posterior covariance of weights and border values of each function.

        Returns
        -------
        covariances : list of ndarray of shape (p + c, p + c)
            For the prior and the noise at hand.
        """
        K, B, L = self._factored()
        p = B.shape[1]
        prior, covariances = linalg.block_diag(self.scale**2 * np.eye(p), K), []
        for at, C in zip(self.places, self.on_border, strict=True):
            cross = np.zeros((len(L), p + len(K)))
            cross[:, :p], cross[at, p:] = self.scale * B, C @ K
            explained = solve_lower(L, cross)
            covariances.append(prior - explained.T @ explained)
        return covariances


def border_kernels(points, values):
    """Kernels on the border to start from.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        That cover the box.
    values : ndarray of shape (N,)
        The observations.

    Returns
    -------
    kernels : list of Kernel
        Of different smoothness.
    """
    extent, square = extent_of(points), size_or_one(values) ** 2
    offset = Constant(np.mean(values) ** 2, "fixed")
    variance = Constant(square, tuple(np.multiply(VARIANCES, square)))
    bounds = np.outer(extent, LENGTHS)
    return [
        offset + variance * Matern(LENGTH * extent, bounds, nu=nu) for nu in DEGREES
    ]

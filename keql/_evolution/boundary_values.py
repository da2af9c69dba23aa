"""What an evolution equation leaves open, from observations that are linear in it.

Unknown are the weights w of the equation and, for each function, its initial values and
those at both ends in space, together the boundary values z_m. Their priors are
N(0, scale^2 I) and N(0, K), K a kernel on the boundary. The linearised equation makes
the observations of a function

    y_m = a_m + B_m w + C_m z_m + noise / sqrt(weights).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from keql._numerics.linalg import (
    cholesky,
    extent_of,
    inverse_from_cholesky,
    size_or_one,
    solve_cholesky,
    solve_lower,
)
from keql._numerics.optimisation import minimise_in_boxes
from keql._observations.data import noise_range
from keql.equation import WeightPosterior
from keql.kernels import RBF, Constant, Matern


@dataclass(frozen=True)
class PointsWithSlopes:
    """Points of the boundary, some of which stand for slopes in time.

    points : ndarray of shape (c, 2). All of them.
    slopes : slice. Which of them stand for slopes.
    axis : {0, 1}. The coordinate of time.
    """

    points: np.ndarray
    slopes: slice
    axis: int

    def __len__(self):
        return len(self.points)

    def covariance(self, kernel):
        """Prior covariance (c, c), the kernel that of the function itself."""
        return self._put(kernel(self.points), self._rows(kernel))

    def covariance_with(self, kernel, points):
        """Prior covariance (c, n) with values at other points (n, 2)."""
        K, once = kernel(self.points, points), self._once
        K[self.slopes] = kernel.derivative(self.points[self.slopes], points, once, None)
        return K

    def covariance_and_gradient(self, kernel, step=1e-4):
        """With it, (c, c, n), its derivatives with respect to `kernel.theta`.

        Those of slopes are differences over `step` to both sides: kernels do not tell
        theirs.
        """
        K, layers = kernel(self.points, eval_gradient=True)
        for k, change in enumerate(step * np.eye(kernel.n_dims)):
            after, before = (
                self._rows(kernel.clone_with_theta(kernel.theta + sign * change))
                for sign in (1, -1)
            )
            self._put(layers[:, :, k], (after - before) / (2 * step))
        return self._put(K, self._rows(kernel)), layers

    @property
    def _once(self):
        """The multi-index of a derivative in time."""
        return tuple(int(i == self.axis) for i in range(2))

    def _rows(self, kernel):
        """Prior covariances (s, c) of the slopes."""
        moving, once = self.points[self.slopes], self._once
        rows = kernel.derivative(moving, self.points, once, None)
        rows[:, self.slopes] = kernel.derivative(moving, moving, once, once)
        return rows

    def _put(self, K, rows):
        """K, with the rows and columns of slopes put in."""
        K[self.slopes], K[:, self.slopes] = rows, rows.T
        return K


@dataclass(frozen=True)
class BoundaryPrior:
    """The prior of boundary values and weights, and the noise of observations.

    kernel : Kernel. Prior covariance on the boundary.
    noise : float. Standard deviation of an observation of weight 1, in its units.
    scale : float. Prior standard deviation of the weights, in units of what two steps
        say: far from the true states equations seem to have no effect.
    free_noise, free_scale : bool. Whether noise and scale are of maximum likelihood, as
        the kernel is.
    max_scale : float. The scale is between 1 and this.
    """

    kernel: object
    noise: float
    scale: float = 1.0
    free_noise: bool = True
    free_scale: bool = True
    max_scale: float = 1e3

    def bounds(self, size):
        """Of the logarithms of all hyperparameters, free or not; values of a size."""
        levels = np.log([noise_range(size), (1.0, self.max_scale)])
        return np.vstack([np.reshape(self.kernel.bounds, (-1, 2)), levels])

    @cached_property
    def theta(self):
        """Logarithms of all hyperparameters: the kernel's, the noise, the scale."""
        return np.r_[self.kernel.theta, np.log([self.noise, self.scale])]

    @cached_property
    def is_free(self):
        """Which of them are free."""
        kernel = np.ones(self.kernel.n_dims, dtype=bool)
        return np.r_[kernel, self.free_noise, self.free_scale]

    def covariance(self, boundary, eval_gradient=False):
        """Prior covariance of boundary values, and its gradient if that is wanted.

        `boundary` has the points (c, 2), or is a PointsWithSlopes.
        """
        if not isinstance(boundary, PointsWithSlopes):
            return self.kernel(boundary, eval_gradient=eval_gradient)
        if eval_gradient:
            return boundary.covariance_and_gradient(self.kernel)
        return boundary.covariance(self.kernel)

    def with_theta(self, theta):
        """The prior with other values of the free hyperparameters."""
        values, n = self.theta.copy(), self.kernel.n_dims
        values[self.is_free] = theta
        noise = np.exp(values[n]) if self.free_noise else self.noise
        scale = np.exp(values[n + 1]) if self.free_scale else self.scale
        kernel = self.kernel.clone_with_theta(values[:n])
        return replace(self, kernel=kernel, noise=noise, scale=scale)


class BoundaryValueRegression:
    """Weights and boundary values from observations.

    boundary : ndarray of shape (c, 2) or PointsWithSlopes. Points of the boundary.
    maps : list of ndarray of shape (N_m, 1 + p + c). (a_m, B_m, C_m) of each function.
    functions : list of FunctionData. The observations.
    prior : BoundaryPrior. With the noise of the observations.
    """

    def __init__(self, boundary, maps, functions, prior):
        self.boundary, self.maps, self.functions = boundary, maps, functions
        self.prior = prior
        p = maps[0].shape[1] - 1 - len(boundary)
        self.on_weights = np.concatenate([rows[:, 1 : 1 + p] for rows in maps])
        self.on_boundary = [rows[:, 1 + p :] for rows in maps]
        ends = np.cumsum([0, *map(len, maps)])
        self.places = [slice(*pair) for pair in zip(ends[:-1], ends[1:], strict=True)]
        values = np.concatenate([data.values for data in functions])
        self.size = size_or_one(values)
        self.target = values - np.concatenate([rows[:, 0] for rows in maps])
        self.variances = 1 / np.concatenate([data.weights for data in functions])

    def with_prior(self, prior):
        """The same observations with another prior."""
        return BoundaryValueRegression(self.boundary, self.maps, self.functions, prior)

    def log_likelihood(self, prior):
        """Log marginal likelihood of the observations, up to a constant.

        With it the gradient with respect to `prior.theta`.
        """
        K, layers = prior.covariance(self.boundary, eval_gradient=True)
        B = prior.scale * self.on_weights
        L = cholesky(self._covariance(K, prior.noise) + B @ B.T)
        alpha = solve_cholesky(L, self.target)
        value = -0.5 * self.target @ alpha - np.log(np.diag(L)).sum()
        # tr[(alpha alpha^T - G^-1) C dK C^T] / 2 for each hyperparameter
        outer = np.outer(alpha, alpha) - inverse_from_cholesky(L)
        pulled = sum(
            C.T @ outer[rows, rows] @ C
            for rows, C in zip(self.places, self.on_boundary, strict=True)
        )
        on_kernel = 0.5 * np.einsum("ij,ijk->k", pulled, layers)
        on_noise = prior.noise**2 * np.diag(outer) @ self.variances
        return value, np.r_[on_kernel, on_noise, np.sum(B * (outer @ B))]

    def with_best_prior(self, precision=1e-6, box=2.0):
        """The regression with the free hyperparameters of maximum likelihood.

        With it minus the log likelihood, up to a constant that only the data decide;
        `precision` is relative, and `box` the largest change of a log-hyperparameter
        in one run of the optimiser.
        """
        bounds, is_free = self.prior.bounds(self.size), self.prior.is_free
        # In units of the values, so that the stopping rule knows none.
        shift = len(self.target) * np.log(self.size)
        if not is_free.any():
            return self, -self.log_likelihood(self.prior)[0] - shift

        def objective(theta):
            value, gradient = self.log_likelihood(self.prior.with_theta(theta))
            return -value - shift, -gradient[is_free]

        start = np.clip(self.prior.theta[is_free], *bounds[is_free].T)
        theta, loss = minimise_in_boxes(
            objective, start, bounds[is_free], box, options={"ftol": precision}
        )
        return self.with_prior(self.prior.with_theta(theta)), loss

    def whitened(self):
        """Observations (N,) and the effects (N, p) of the weights on them, whitened.

        In units of the observations' uncertainty if the weights are known; the weights
        in units of their prior scale.
        """
        K, prior = self.prior.covariance(self.boundary), self.prior
        L = cholesky(self._covariance(K, prior.noise))
        features = solve_lower(L, prior.scale * self.on_weights)
        return solve_lower(L, self.target), features

    @cached_property
    def unknowns(self):
        """The most probable (1, weights, boundary values) of each function."""
        K, B, _ = self._factored
        weights = self.prior.scale * (B.T @ self._alpha)
        return [
            np.r_[1.0, weights, K @ (C.T @ self._alpha[rows])]
            for rows, C in zip(self.places, self.on_boundary, strict=True)
        ]

    @property
    def weights(self):
        """The most probable weights, of shape (p,)."""
        return self.unknowns[0][1 : 1 + self.on_weights.shape[1]]

    @property
    def misfit(self):
        """Mean square of the residuals in units of the noise levels."""
        return float(self.prior.noise**2 * np.mean(self.variances * self._alpha**2))

    def posterior_weights(self):
        """What the observations say about the weights, whatever the boundary values.

        As in a ridge regression, whitened by what else is uncertain.
        """
        p = len(self.weights)
        rows = np.vstack([self.whitened()[1], np.eye(p)])
        lower = linalg.qr(rows, mode="r")[0][:p].T / self.prior.scale
        return WeightPosterior(self.weights, lower, 0.5 * self.target @ self._alpha)

    def leave_one_out(self):
        """Errors of predicting each observation from all others, for each function."""
        _, _, L = self._factored
        errors = self._alpha / np.diag(inverse_from_cholesky(L))
        return [errors[rows] for rows in self.places]

    def covariances(self):
        """Posterior covariance (p + c, p + c) of the unknowns of each function."""
        K, B, L = self._factored
        p, scale = B.shape[1], self.prior.scale
        prior, covariances = linalg.block_diag(scale**2 * np.eye(p), K), []
        for rows, C in zip(self.places, self.on_boundary, strict=True):
            cross = np.zeros((len(L), p + len(K)))
            cross[:, :p], cross[rows, p:] = scale * B, C @ K
            explained = solve_lower(L, cross)
            covariances.append(prior - explained.T @ explained)
        return covariances

    def log_volume(self):
        """By which the log evidence is lower because the unknowns are uncertain."""
        return float(np.log(np.diag(self._factored[-1])).sum())

    @cached_property
    def _factored(self):
        """K (c, c), B (N, p) and the Cholesky factor (N, N) of the observations."""
        K = self.prior.covariance(self.boundary)
        B = self.prior.scale * self.on_weights
        covariance = self._covariance(K, self.prior.noise) + B @ B.T
        return K, B, cholesky(covariance)

    @cached_property
    def _alpha(self):
        return solve_cholesky(self._factored[-1], self.target)

    def _covariance(self, K, noise):
        """Covariance (N, N) of the observations if the weights are known."""
        G = np.diag(noise**2 * self.variances)
        for rows, C in zip(self.places, self.on_boundary, strict=True):
            G[rows, rows] += C @ K @ C.T
        return G


def boundary_loss(prior, points, weights, boundary, residuals, precisions):
    """The objective for any weights and boundary values.

    prior : BoundaryPrior. Of them, with the noise.
    points : ndarray of shape (c, 2) or PointsWithSlopes. Points of the boundary.
    weights : ndarray of shape (p,). Of the equation.
    boundary : list of ndarray of shape (c,). Boundary values of each function.
    residuals, precisions : ndarray of shape (N,). Observations less the states, and
        their relative precisions.

    Returns loss : float. 1/2 |w|^2 / scale^2 + 1/2 sum z^T K^-1 z + 1/2 sum of squared
        residuals in units of the noise.
    """
    L = cholesky(prior.covariance(points))
    norms = [np.sum(solve_lower(L, values) ** 2) for values in boundary]
    misfit = np.sum(residuals**2 * precisions) / prior.noise**2
    return 0.5 * float(weights @ weights / prior.scale**2 + sum(norms) + misfit)


def boundary_kernels(points, values, order=1, length=0.3):
    """Kernels on the boundary to start from, of different smoothness.

    An unknown offset and Matern kernels of some degrees; the first length scales are a
    fraction of the extent of the points (n, 2) that cover the box, between 0.02 and 30
    of it, and variances between 0.01 and 1,000 of the mean square of the values (N,).
    If the equation is of second order in time, slopes have to exist; and as it does not
    make states smoother than they are initially, one kernel is of smooth functions.
    """
    extent, square = extent_of(points), size_or_one(values) ** 2
    offset = Constant(np.mean(values) ** 2, "fixed")
    variance = Constant(square, (1e-2 * square, 1e3 * square))
    bounds = np.outer(extent, (0.02, 30.0))
    degrees = (1.5, 2.5) if order == 1 else (2.5,)
    kernels = [Matern(length * extent, bounds, nu=nu) for nu in degrees]
    if order == 2:
        kernels.append(RBF(length * extent, bounds))
    return [offset + variance * kernel for kernel in kernels]

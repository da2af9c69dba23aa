"""States by kernel ridge regression, their kernels by marginal likelihood."""

from math import log, pi

import numpy as np
from sklearn.base import clone

from keql._numerics.linalg import cholesky, inverse_from_cholesky, solve_cholesky
from keql._numerics.optimisation import (
    Interruption,
    best_optimum,
    minimise_in_boxes,
    minimise_within_bounds,
    random_starts,
)
from keql._observations.data import noise_range, size_of
from keql.operators import KernelExpansion, gram


def log_marginal_likelihood(kernel, noise, functions, eval_gradient=False):
    """Log marginal likelihood of independent functions with one prior.

    sum_m log N(y_m; 0, K_m + noise^2 diag(1 / w_m)) of a list of FunctionData, where
    `noise` is the standard deviation of a value of weight 1. With `eval_gradient` also
    the gradient (kernel.n_dims + 1,) in `kernel.theta` and log(noise).

    Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.30 and
    5.9.
    """
    value, gradient = 0.0, np.zeros(kernel.n_dims + 1)
    for data in functions:
        covariance = kernel(data.points, eval_gradient=eval_gradient)
        K, layers = covariance if eval_gradient else (covariance, None)
        variances = noise**2 / data.weights
        np.einsum("ii->i", K)[:] += variances
        L = cholesky(K)
        alpha = solve_cholesky(L, data.values)
        value -= 0.5 * data.values @ alpha
        value -= np.log(np.diag(L)).sum() + 0.5 * len(K) * log(2 * pi)
        if eval_gradient:
            # tr[(alpha alpha^T - K^-1) dK] / 2 for each hyperparameter
            outer = np.outer(alpha, alpha) - inverse_from_cholesky(L)
            gradient[:-1] += 0.5 * np.einsum("ij,ijk->k", outer, layers)
            gradient[-1] += np.diag(outer) @ variances
    return (value, gradient) if eval_gradient else value


def left_out_log_densities(kernel, noise, functions):
    """Log densities (n,) of the values of functions, each given all others of its own.

    Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 5.10 to
    5.12; arguments are those of :func:`log_marginal_likelihood`.
    """
    found = []
    for data in functions:
        K = kernel(data.points)
        K[np.diag_indices_from(K)] += noise**2 / data.weights
        inverse = inverse_from_cholesky(cholesky(K))
        found.append(log_densities(inverse @ data.values, np.diag(inverse)))
    return np.concatenate(found)


def log_densities(alpha, precisions):
    """Normal log densities (n,) of errors alpha / precisions."""
    return 0.5 * (np.log(precisions / (2 * pi)) - alpha**2 / precisions)


def maximise_likelihood(
    kernel,
    noise,
    functions,
    *,
    optimizer="fmin_l_bfgs_b",
    interruption=None,
    **restarts,
):
    """Fit the free hyperparameters of a kernel, and the noise level if it is None.

    The kernel is the start, and its bounds say what is free; the `restarts` are
    `n_restarts` further starts, which an `rng` draws log-uniformly within them. A
    callable `optimizer`, as in
    :class:`sklearn.gaussian_process.GaussianProcessRegressor`, takes `(obj_func,
    initial_theta, bounds)` and returns `(theta, minimum)`; None keeps the kernel, and
    sets an unknown noise level to the lower end of its range. An Interruption keeps the
    best so far. Returns a clone with the best ones, and the noise's standard deviation.
    """
    size, n_values = size_of(functions), sum(len(d.values) for d in functions)
    lowest, highest = np.log(noise_range(size))
    if optimizer is None:
        return clone(kernel), np.exp(lowest) if noise is None else noise
    n_dims = kernel.n_dims
    is_free = np.r_[np.ones(n_dims, dtype=bool), noise is None]
    if not is_free.any():
        return clone(kernel), noise
    spectra = _spectra(kernel, functions)

    def split(theta):
        return theta[:n_dims], np.exp(theta[-1]) if noise is None else noise

    def objective(theta, eval_gradient=True):
        given = kernel, *split(theta), functions, spectra, eval_gradient
        value, gradient = _likelihood(*given)
        # With n log(size) neither the value nor the stopping rule knows the unit.
        value = -value - n_values * log(size)
        return (value, -gradient[is_free]) if eval_gradient else value

    bounds = [*kernel.bounds] if n_dims else []
    bounds = np.array([*bounds, (lowest, highest)])[is_free]
    start = np.r_[kernel.theta, 0.5 * (lowest + highest)][is_free]
    interruption = interruption or Interruption(is_kept=False)
    if interruption.has_come:
        given = minimise_in_boxes, objective, start, bounds, 1.0, 1
    else:
        starts = [start, *random_starts(bounds, **restarts)]
        given = _best_of_starts, objective, optimizer, starts, bounds
    theta, level = split(interruption.best(*given)[0])
    return kernel.clone_with_theta(theta), level


def fit_given_kernel(kernel, noise, functions, *, decisive=7.0, **how):
    """A state kernel of maximum likelihood, also where a given noise level is too low.

    States are not equally smooth everywhere, as stationary kernels suppose. With a
    noise level far below what a kernel misses, the most likely length scales are so
    short that nothing is known between observations. If a higher level is more likely
    by the log odds `decisive` (Kass and Raftery, "Bayes factors", JASA 90, 1995), the
    hyperparameters are those that go with it; the level that is given is returned. The
    arguments are those of :func:`maximise_likelihood`.
    """
    fitted, level = maximise_likelihood(kernel, noise, functions, **how)
    if noise is None or how.get("optimizer") is None or not kernel.n_dims:
        return fitted, level
    other, higher = maximise_likelihood(kernel, None, functions, **how)
    if higher <= noise:
        return fitted, noise
    gain = log_marginal_likelihood(other, higher, functions)
    gain -= log_marginal_likelihood(fitted, noise, functions)
    return (other if gain > decisive else fitted), noise


def _likelihood(kernel, theta, noise, functions, spectra, eval_gradient):
    """:func:`log_marginal_likelihood` of hyperparameters `theta`, and its gradient.

    From spectra, if they exist, without a kernel that is made of theta.
    """
    if spectra is not None:
        return _spectral_likelihood(theta, noise, spectra)
    kernel = kernel.clone_with_theta(theta)
    found = log_marginal_likelihood(kernel, noise, functions, eval_gradient)
    return found if eval_gradient else (found, None)


def _best_of_starts(objective, optimizer, starts, bounds):
    return best_optimum(
        minimise_within_bounds(optimizer, objective, start, bounds) for start in starts
    )


def _spectra(kernel, functions):
    """Eigenvalues of the weighted kernel matrices, for kernels exp(theta) times K.

    These kernels, which are their own derivatives, are factored once and not at each
    step of an optimiser; so are those without hyperparameters, beside a free noise
    level. For each function: the eigenvalues of W^1/2 K W^1/2 = Q diag(eigenvalues)
    Q^T, Q^T W^1/2 y, and log det W. None for other kernels.
    """
    if kernel.n_dims > 1:
        return None
    if kernel.n_dims == 1:
        kernel = kernel.clone_with_theta(np.zeros(1))
        for data in functions:
            rows = _some_rows(data.points)
            K, layers = kernel(rows, eval_gradient=True)
            if not np.array_equal(layers[:, :, 0], K):
                return None
    return [_spectrum(kernel, data) for data in functions]


def _some_rows(points, most=60):
    """At most so many of the points (n, d), evenly spaced."""
    return points[:: -(-len(points) // most)] if len(points) else points


def _spectrum(kernel, data):
    """Eigenvalues (n,), the rotated values (n,) and log det W of one function.

    Of few features they are found from these: all but as many eigenvalues are zero, and
    of the values rotated to them only the sum of squares counts.
    """
    root = np.sqrt(data.weights)
    values, log_det = root * data.values, np.log(data.weights).sum()
    n, n_features = len(values), kernel.n_features(data.points.shape[1])
    if n_features is None or n_features >= n:
        K = kernel(data.points)
        # NumPy's lets other threads run meanwhile, such as one that tells of progress.
        eigenvalues, Q = np.linalg.eigh(root[:, None] * K * root)
        return np.maximum(eigenvalues, 0.0), Q.T @ values, log_det
    features = root[:, None] * kernel.feature_map(data.points)
    Q, sizes, _ = np.linalg.svd(features, full_matrices=False)
    eigenvalues, rotated = np.zeros(n), np.zeros(n)
    r = len(sizes)
    eigenvalues[:r], rotated[:r] = sizes**2, Q.T @ values
    rotated[r] = np.linalg.norm(values - Q @ rotated[:r])
    return eigenvalues, rotated, log_det


def _spectral_likelihood(theta, noise, spectra):
    """:func:`log_marginal_likelihood` and its gradient, in linear time.

    `theta` are the free hyperparameters of the kernel, none or that of its variance.
    """
    value, gradient, variance = 0.0, np.zeros(2), np.exp(np.sum(theta))
    for eigenvalues, rotated, log_det in spectra:
        variances = np.empty((2, len(rotated)))  # of the function, and of the noise
        variances[0] = eigenvalues * variance
        # That of rounding errors where no noise is given: features may be few.
        variances[1] = (noise or np.finfo(float).eps * np.linalg.norm(rotated)) ** 2
        total = variances.sum(axis=0)
        squares = rotated**2 / total
        value += 0.5 * (log_det - np.sum(squares + np.log(2 * pi * total)))
        gradient += variances @ ((squares - 1) / total) * [0.5, 1.0]
    return value, gradient[1 - len(theta) :]


def fit_state(kernel, noise, data):
    """Kernel ridge regression: the mean of a Gaussian process given its values.

    The minimiser of ``|v|^2 + sum_i w_i (phi_i v - y_i)^2 / noise_i^2`` in the RKHS of
    a kernel, for the functionals phi_i of a FunctionData and the noise levels (J,) of
    its operators; a KernelExpansion with posterior variances.
    """
    covariance = gram(kernel, data.functionals)
    variances = noise[data.index] ** 2 / data.weights
    covariance[np.diag_indices_from(covariance)] += variances
    factor = cholesky(covariance)
    coefficients = solve_cholesky(factor, data.values)
    return KernelExpansion(kernel, data.functionals, coefficients, factor, variances)

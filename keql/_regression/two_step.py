"""States by kernel ridge regression, then the equation from their features."""

from dataclasses import dataclass, replace

import numpy as np
from sklearn.utils import check_random_state

from keql._numerics.linalg import extent_of, ridge, size_or_one
from keql._observations.data import FunctionData
from keql._regression.likelihood import fit_state, maximise_likelihood
from keql._regression.state_prior import fit_state_prior
from keql.equation import (
    LearnedEquation,
    LearnedModel,
    make_basis,
    regression_posterior,
)
from keql.kernels import RBF, Constant, Polynomial, as_kernel
from keql.operators import parse_operator


@dataclass(frozen=True)
class Hypothesis:
    """What a fit supposes of states and equation; None: it is to be chosen.

    Free hyperparameters of the kernels, those of the states and of P, are a start. A
    polynomial P has `n_terms` terms, an int or "auto"; None: all. The noise levels are
    standard deviations, in the units of y and of the forcing. The `constraint` is
    "collocation", where the equation is imposed at points, or "integration", where
    states are integrated from it. The `name` is what a report calls the hypothesis.
    """

    state_kernel: object = None
    equation_kernel: object = None
    n_terms: object = None
    observation_noise: float | None = None
    equation_noise: float | None = None
    constraint: str = "collocation"
    name: str = "quadratic polynomial"


@dataclass(frozen=True)
class FitSettings:
    """How hypotheses are fitted, whatever they say: parameters of the estimators.

    `state_penalty` is lambda, the weight of the squared RKHS norms of the states, and P
    has `n_inducing` inducing points. With `reduced` states are sought in the span of
    `n_basis` kernel functions; None: one at each collocation point. The `solver`,
    "auto", "dual" or "primal", says how a state of the joint problem is represented.
    Likelihoods have an `optimizer` (a name, a callable or None) and `n_restarts`
    further starts, the least-squares loop has `max_iter` and `tol`. There are `n_jobs`
    threads that work on different functions, and a `random_state` for what is drawn.
    Hyperparameters of the equation kernel are found from `n_likelihood_rows` rows of
    features, evenly spaced, at most: the likelihood takes their number cubed.
    """

    state_penalty: float = 1.0
    n_inducing: int = 500
    n_basis: int | None = None
    reduced: bool = False
    solver: str = "auto"
    optimizer: object = "fmin_l_bfgs_b"
    n_restarts: int = 0
    max_iter: int = 300
    tol: float = 1e-6
    n_jobs: int | None = None
    random_state: object = None
    n_likelihood_rows: int = 500


def fit_two_steps(hypothesis, observations, variables, setup, settings, n_restarts=0):
    """The two-step solution, its free hyperparameters of maximum likelihood.

    A LearnedModel, from the Hypothesis about kernels and noise levels, the Observations
    of all functions, the names of the coordinates, an EquationSetup (None: states are
    fitted without an equation), the FitSettings, and the number of further starts of
    the likelihood of the state kernel.
    """
    rng = check_random_state(settings.random_state)
    kernel, noise = _fit_state_kernel(
        hypothesis, observations, variables, settings, n_restarts, rng
    )
    learned = LearnedModel(observations, variables, setup, kernel, noise)
    return _fit_states(learned, hypothesis, settings, rng)


def refit_two_steps(two_step, hypothesis, settings, kernel, values=None):
    """The two-step solution for another state kernel or another equation kernel.

    The LearnedModel `two_step` has the noise of the observations, the Hypothesis the
    equation kernel; the state `kernel` is used as it is. With `values`, one array of
    shape (N_m + Q' K_m,) for each function, the equation is learned from these values
    of states and operators, and the result, a LearnedModel, has no states; None: states
    are fitted to the observations.
    """
    rng = check_random_state(settings.random_state)
    learned = replace(two_step, state_kernel=kernel, states=None)
    if values is None:
        return _fit_states(learned, hypothesis, settings, rng)
    n_observed = [len(data.values) for data in two_step.observations.functions]
    imposed = [z[n:] for z, n in zip(values, n_observed, strict=True)]
    S = two_step.setup.features(imposed)
    return _learn_equation(learned, S, hypothesis, settings, rng)


def _fit_state_kernel(hypothesis, observations, variables, settings, n_restarts, rng):
    """State kernel and noise level of maximum likelihood or posterior density."""
    # A prior covariance kernel / lambda has the likelihood of the kernel with all
    # variances, those of the noise included, times lambda.
    root = settings.state_penalty**0.5
    scaled = [
        FunctionData(data.points, data.values * root, data.weights)
        for data in observations.functions
    ]
    noise = hypothesis.observation_noise
    noise = None if noise is None else noise * root
    how = {"optimizer": settings.optimizer, "n_restarts": n_restarts, "rng": rng}
    if hypothesis.state_kernel is None:
        kernel, noise = fit_state_prior(scaled, noise, **how)
    else:
        kernel = as_kernel(hypothesis.state_kernel).bind(variables)
        kernel, noise = maximise_likelihood(kernel, noise, scaled, **how)
    return kernel, noise / root


def _fit_states(learned, hypothesis, settings, rng):
    """Both steps, with the state kernel and the noise level of `learned`."""
    prior = Constant(1 / settings.state_penalty, "fixed") * learned.state_kernel
    identity = parse_operator("u", learned.variables)
    states = [
        fit_state(prior, learned.observation_noise, data, identity)
        for data in learned.observations.functions
    ]
    learned = replace(learned, states=states, equation=None, equation_noise=None)
    if learned.setup is None:
        return learned
    S = learned.setup.features_of(states)
    return _learn_equation(learned, S, hypothesis, settings, rng)


def _learn_equation(learned, S, hypothesis, settings, rng):
    """Second step: regression of f - Pbar on the features S (n, d + Q') of states."""
    setup, variables = learned.setup, learned.variables
    target = np.concatenate(setup.forcing) - setup.known_part(S)
    unknown = S[:, : len(variables) + setup.n_operators]
    kernel = _bind_equation_kernel(hypothesis, setup, variables, unknown, target)
    stride = -(-len(target) // settings.n_likelihood_rows)
    rows, sampled = unknown[::stride], target[::stride]
    sample = FunctionData(rows, sampled, np.ones(len(sampled)))
    kernel, noise = maximise_likelihood(
        kernel, hypothesis.equation_noise, [sample], optimizer=settings.optimizer
    )
    basis = make_basis(kernel, unknown, settings.n_inducing, rng)
    features = basis(unknown)
    weights = ridge(features, target, noise)
    posterior = regression_posterior(features, target, noise, weights)
    parts = setup.operators, setup.n_operators, setup.known_part, basis, weights
    origin = learned.state_kernel, S, setup.has_forcing, posterior
    equation = LearnedEquation(variables, *parts, *origin)
    return replace(learned, equation=equation, equation_noise=noise)


def _bind_equation_kernel(hypothesis, setup, variables, unknown, target):
    """The equation kernel on the columns of the features, scaled to them."""
    kernel = hypothesis.equation_kernel
    kernel = polynomial_kernel(size_or_one(target)) if kernel is None else kernel
    names = setup.unknown_names(variables)
    on_operators = tuple(range(len(variables), len(names)))
    return as_kernel(kernel).bind(names, default=on_operators).scaled_to(unknown)


def polynomial_kernel(size, degree=2):
    """A kernel of polynomials in the operators, with a free variance.

    `size` is the root mean square of what P has to explain.
    """
    return _variance(size) * Polynomial(degree)


def varying_coefficient_kernel(size, points, length=1.0):
    """A kernel of linear equations with smoothly varying coefficients, free variance.

    `size` is the root mean square of what P has to explain. The length scale of the
    coefficients is `length` in units of the extent of the points (n, d): the features
    of two-step states are too poor to estimate it from.
    """
    columns = tuple(range(points.shape[1]))
    coefficients = RBF(length * extent_of(points), "fixed", active_dims=columns)
    return _variance(size) * coefficients * Polynomial(1)


def _variance(size, limits=(1e-6, 1e6)):
    """A free variance, its bounds in units of the square of `size`."""
    return Constant(size**2, tuple(np.multiply(limits, size**2)))

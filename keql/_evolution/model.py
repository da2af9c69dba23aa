"""Evolution equations linearised at states: what observations then say of them."""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
from scipy import linalg

from keql._evolution.boundary.regression import boundary_loss
from keql._evolution.forecast import EvolvedState
from keql._numerics.linalg import rms


@dataclass(frozen=True)
class EvolutionIterate:
    """Equations, and states on the grid with their boundary values.

    equations : tuple of LearnedEquation. With their weights.
    states : list of ndarray of shape (n_steps * 4 * size,). Values of each function on
        the grid.
    boundary : list of ndarray of shape (c,). Those on the boundary.
    """

    equations: tuple
    states: list
    boundary: list

    @property
    def equation(self):
        """The first equation; the only one unless there is a system."""
        return self.equations[0]

    @property
    def weights(self):
        """Those of all equations, one after another."""
        return np.concatenate([equation.weights for equation in self.equations])


def combined(iterates, parts):
    """An iterate that consists of parts (n,) of others: their numbers, added up."""

    def mixture(values):
        return sum(part * each for part, each in zip(parts, values, strict=True))

    equations = []
    for own in zip(*(each.equations for each in iterates), strict=True):
        equation = copy(own[0])
        equation.weights = mixture([each.weights for each in own])
        equations.append(equation)
    return EvolutionIterate(
        tuple(equations),
        [*map(mixture, zip(*(each.states for each in iterates), strict=True))],
        [*map(mixture, zip(*(each.boundary for each in iterates), strict=True))],
    )


@dataclass(frozen=True)
class EvolutionEvaluation:
    """An iterate of a problem, and observations less its states (N,)."""

    problem: object
    iterate: EvolutionIterate
    residuals: np.ndarray

    @cached_property
    def loss(self):
        """The objective, for which the covariance of boundary values is factorised.

        Full steps do not look at that of the iterate where they linearise.
        """
        problem, iterate = self.problem, self.iterate
        return boundary_loss(
            problem.prior,
            problem.boundary,
            iterate.weights,
            iterate.boundary,
            self.residuals,
            np.concatenate([*map(problem.prior.variances, problem.functions)]),
        )


class EvolutionModel:
    """An evolution problem with the equation linearised at an iterate.

    problem : EvolutionProblem. With the prior of maximum likelihood.
    iterate : EvolutionIterate. Where.
    regression : BoundaryValueRegression. Weights and boundary values from the
        observations.
    loss : float. Minus the log likelihood of the observations.
    states : list of ndarray. The most probable solution of the linearised equation for
        each function.
    """

    def __init__(self, problem, iterate, regression, loss, states):
        self.problem = problem
        self.iterate = iterate
        self.regression = regression
        self.loss = loss
        self.posterior, equations, start = regression.posterior_weights(), [], 0
        for equation in iterate.equations:
            equation, stop = copy(equation), start + len(equation.weights)
            equation.weights = regression.weights[start:stop]
            equation.posterior = (
                self.posterior.part(start, stop) if stop > start else None
            )
            equations.append(equation)
            start = stop
        p = len(regression.weights)
        boundary = [unknowns[1 + p :] for unknowns in regression.unknowns]
        self.solution = EvolutionIterate(tuple(equations), states, boundary)

    @cached_property
    def evaluation(self):
        """The iterate with the objective that the problem's prior gives."""
        return self.problem.evaluate_states(self.iterate)

    def step(self, damping):
        """The full Gauss-Newton iterate, and the predicted decrease of the loss."""
        if damping:
            raise ValueError(f"damping={damping}: full steps are not damped.")
        return self.solution, self.evaluation.loss - self.posterior.loss

    def leave_one_out(self):
        """Errors of predicting each observation from all others, for each function."""
        return self.regression.leave_one_out()

    def log_evidence(self):
        """Log likelihood of the observations, weights and boundary values averaged."""
        return -self.loss

    def laplace_log_evidence(self):
        """The same at the iterate itself, by Laplace's approximation.

        The likelihood of the linearised problem is too high as long as steps are long:
        the noise is taken to be no less than the residuals are.
        """
        here, prior = self.evaluation, self.problem.prior
        prior = replace(prior, noise=np.maximum(prior.noise, rms(here.residuals)))
        noisier = self.regression.with_prior(prior)
        loss = boundary_loss(
            prior,
            noisier.boundary,
            here.iterate.weights,
            here.iterate.boundary,
            here.residuals,
            np.concatenate([*map(prior.variances, self.problem.functions)]),
        )
        return noisier.shift - loss - noisier.log_volume()

    def with_laplace_evidence(self):
        """The model whose evidence is that of the iterate itself."""
        model = copy(self)
        model.loss = -self.laplace_log_evidence()
        return model

    def posterior_weights(self):
        """What the observations say about the weights of all equations."""
        return self.posterior

    def posterior_states(self, negligible=1e-10):
        """States on the grid with their uncertainty, one for each function.

        Directions of a smaller part of the largest posterior variance are left out.
        """
        grid, states = self.problem.grid, []
        for values, boundary, covariance, outside, forcing in zip(
            self.solution.states,
            self.solution.boundary,
            self.regression.covariances(),
            self.problem.learned.states,
            self.problem.forcing,
            strict=True,
        ):
            variances, directions = linalg.eigh(covariance)
            kept = variances > negligible * variances[-1]
            root = directions[:, kept] * np.sqrt(variances[kept])
            values = values.reshape(grid.n_steps, 4, grid.size)
            given = self.solution.equations, root, outside, boundary
            given = *given, self.problem.prior, forcing
            states.append(EvolvedState(grid, values, *given))
        return states


def with_best_prior(result, first, solve, better=0.1, apart=1.0):
    """A result, or one with another prior of boundary values that explains more.

    Steps keep the prior of the first linearisation: far from the solution, its
    likelihood may have another maximum, where boundary values take up what the
    equations do not explain yet. Kernels begin anew, with the noise of the result, as
    with less boundary values may take that up, and with the first one, as exact data
    call for.

    result : Result. With exact states.
    first : EvolutionProblem. With the kernels to start from.
    solve : callable. Of an evolution problem and an iterate: a Result, or None.
    better : float. By which the log likelihood has to be higher.
    apart : float. By which the logarithms of noise levels differ at least if steps from
        both are tried: a search among them crosses as much in its first steps.
    """
    problem = result.model.problem
    kernels = (*first.priors, first.smooth_prior)
    levels, ratios = [problem.prior], problem.prior.noise / first.prior.noise
    if np.max(np.abs(np.log(ratios))) > apart:
        levels.append(first.prior)
    pairs = product(levels, kernels)
    priors = [
        replace(prior, kernel=other.kernel, log_odds=other.log_odds)
        for prior, other in pairs
    ]
    problem = replace(problem, priors=tuple(priors))
    model = problem.linearise(problem.evaluate(result.solution))
    if model is None:
        return result
    losses = [each.loss + each.problem.prior.log_odds for each in (result.model, model)]
    if losses[1] > losses[0] - better:
        return result
    other = solve(model.problem, result.solution)
    if other is not None and other.interrupted:
        return replace(result, stop=other.stop)
    return result if other is None or not other.converged else joined(result, other)


def joined(result, after):
    """A result with the history of the one that it began from."""
    return replace(
        after,
        loss_curve=result.loss_curve + after.loss_curve[1:],
        damping_curve=result.damping_curve + after.damping_curve,
        n_iter=result.n_iter + after.n_iter,
    )

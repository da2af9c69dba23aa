"""States that obey an evolution equation exactly, as a least-squares problem.

The joint problem imposes the equation at its collocation points, and a prior says what
states are in between. Where the equation says how a state evolves, u_t = G(t, x, u,
u_x, u_xx), it leaves open only the boundary values: those at the initial time and at
both ends in space. With a prior covariance K of these values z, and the equation
integrated so that u depends on z and on its weights w, the objective is

    1/2 |w|^2 / scale^2 + sum_m [ 1/2 z_m^T K^-1 z_m + 1/2 r_m^T W_m r_m / sigma^2 ],

r_m = y_m - u(X_m; z_m, w): the joint problem as its collocation points become dense
and the noise of the equation vanishes, but for the prior. Gauss-Newton steps integrate
the linearised equation; in each, K, sigma and scale are those of maximum likelihood. In
data assimilation this is 4D-Var with a strong constraint: Le Dimet and Talagrand,
Tellus 38A, 1986.
"""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import linalg

from keql._evolution.boundary_values import (
    BoundaryPrior,
    BoundaryValueRegression,
    PointsWithSlopes,
    boundary_kernels,
    boundary_loss,
)
from keql._evolution.forecast import EvolvedState
from keql._evolution.form import (
    grows_without_bounds,
    order_in_space,
    order_in_time,
    time_axis,
)
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import integrate, linear_response
from keql._numerics.linalg import rms, size_or_one
from keql._observations.data import box_around


@dataclass(frozen=True)
class IntegrationLimits:
    """Data for which exact states would take too long or too much memory.

    observations : int. Each step factors the covariance of all observations some 50
        times.
    functions : int. The linearised solution of each function takes about 50 MB.
    """

    observations: int = 2000
    functions: int = 12


def why_not_integrated(learned, limits=None):
    """Why states cannot obey the equation exactly, as a clause; empty if they can.

    learned : LearnedModel. Observations and equation.
    limits : IntegrationLimits, default=None. None: the default ones.
    """
    limits = limits or IntegrationLimits()
    setup, functions = learned.setup, learned.observations.functions
    n_values = sum(len(data.values) for data in functions)
    if setup.is_system or len(learned.observations.states) > 1:
        return "there are several states or equations"
    if not learned.observations.is_plain or setup.inputs.names:
        return "there are inputs, or values of other operators than the state"
    if setup.equations[0].depends_on is None:
        return "the equation has no unknown part"
    if len(setup.rows[0].coordinates) < len(setup.collocation_points[0]):
        return "the equation is not imposed everywhere"
    if setup.has_forcing and any(f is None for (f,) in setup.forcing_functions):
        return "the forcing is known at the collocation points only"
    if len(learned.variables) != 2:
        return "the equation does not have one coordinate of time and one of space"
    if time_axis(setup, 2) is None:
        return "the equation is not of order 1 or 2 in time and 2 to 4 in space"
    if n_values > limits.observations:
        return f"there are {n_values} observations, more than {limits.observations}"
    if len(functions) > limits.functions:
        return f"there are {len(functions)} functions, more than {limits.functions}"
    points = np.concatenate([data.points for data in functions])
    if np.any(np.ptp(points, axis=0) == 0):
        return "all observations are at one time or at one place"
    if grows_without_bounds(learned, time_axis(setup, 2)):
        return "short waves would grow without bounds, as those of u_xx + u_yy = 0 do"
    return ""


@dataclass(frozen=True)
class EvolutionIterate:
    """An equation, and states on the grid with their boundary values.

    equation : LearnedEquation. With its weights.
    states : list of ndarray of shape (n_steps * 4 * n_points,). Values of each function
        on the grid.
    boundary : list of ndarray of shape (c,). Those on the boundary.
    """

    equation: object
    states: list
    boundary: list


@dataclass(frozen=True)
class EvolutionEvaluation:
    """An iterate, observations less its states (N,), and the objective."""

    iterate: EvolutionIterate
    residuals: np.ndarray
    loss: float


@dataclass(frozen=True)
class EvolutionProblem:
    """The states need not solve the equation: a full step makes them do so.

    learned : LearnedModel. Observations and equation; its states are those outside of
        the box.
    grid : EvolutionGrid. The box of all observations and collocation points.
    observed : tuple of sparse matrices of shape (N_m, n_steps * 4 * n_points). Values
        at the observations of each function, from those on the grid.
    priors : tuple of BoundaryPrior. From which a linearisation takes the one of maximum
        likelihood.
    forcing : tuple. The right-hand side of each function, as a function of points,
        or None for zero.
    """

    learned: object
    grid: EvolutionGrid
    observed: tuple
    priors: tuple
    forcing: tuple
    is_exact = True

    @property
    def boundary_kernel(self):
        """Prior covariance of the initial values and of those at both ends."""
        return self.prior.kernel

    def assemble(self, model):
        """The learned model whose states are those of a linearisation's solution."""
        states = model.posterior_states()
        equation = model.solution.equation
        equation.training_features = self.learned.setup.features_of(states)
        return replace(
            self.learned,
            states=states,
            equations=(equation,),
            observation_noise=np.array([model.problem.prior.noise]),
            equation_noise=np.zeros(1),
        )

    @property
    def functions(self):
        """Observations of each function."""
        return self.learned.observations.functions

    @property
    def prior(self):
        """The first prior: after a linearisation there is only one."""
        return self.priors[0]

    @property
    def boundary(self):
        """Points of the boundary, as its prior takes them."""
        grid = self.grid
        if grid.order == 1:
            return grid.boundary
        return PointsWithSlopes(grid.boundary, grid.rows_of_slopes, grid.axis)

    @cached_property
    def size(self):
        """Root mean square of the observations, in their units."""
        return size_or_one(np.concatenate([data.values for data in self.functions]))

    @cached_property
    def identity(self):
        """The operator that leaves the state as it is."""
        return self.learned.observations.operators[0]

    def start(self, learned=None):
        """The iterate of a learned model's equation and states."""
        learned = learned or self.learned
        points = self.grid.points.reshape(-1, 2)
        states = [state.evaluate(points, self.identity) for state in learned.states]
        return self.iterate(learned.equation, states)

    def iterate(self, equation, states):
        """An iterate whose boundary values are those of its states."""
        shape = self.grid.n_steps, 4, self.grid.n_points, 1
        boundary = [self.grid.boundary_of(s.reshape(shape))[:, 0] for s in states]
        return EvolutionIterate(equation, states, boundary)

    def forcing_of(self, m):
        """The right-hand side of a function at all Radau points, one after another."""
        if self.forcing[m] is None:
            return 0.0
        return np.ravel(self.forcing[m](self.grid.points[:, 1:].reshape(-1, 2)))

    def with_grid(self, n_steps, n_points):
        """The same problem on another number of steps in time and points in space."""
        grid = self.grid
        size = n_steps, n_points, len(grid.ends) // 2, grid.order
        grid = EvolutionGrid(grid.lower, grid.upper, grid.axis, *size)
        return replace(self, grid=grid, observed=_observed(grid, self.learned))

    def interpolate_from(self, other, iterate):
        """An iterate of a problem on another grid, on this grid."""
        points = self.grid.points.reshape(-1, 2)
        matrix = other.grid.interpolation(points, self.identity)
        states = [matrix @ state for state in iterate.states]
        return self.iterate(iterate.equation, states)

    def evaluate(self, iterate):
        """Residuals and objective of an iterate, its states taken as they are."""
        residuals = np.concatenate(
            [
                data.values - matrix @ state
                for data, matrix, state in zip(
                    self.functions, self.observed, iterate.states, strict=True
                )
            ]
        )
        loss = boundary_loss(
            self.prior,
            self.boundary,
            iterate.equation.weights,
            iterate.boundary,
            residuals,
            np.concatenate([data.weights for data in self.functions]),
        )
        return EvolutionEvaluation(iterate, residuals, loss)

    def linearise(self, evaluation):
        """The model at an evaluation; None if the equation cannot be integrated."""
        iterate = evaluation.iterate
        with np.errstate(over="ignore", invalid="ignore"):  # growth is looked at
            responses = [
                linear_response(self.grid, iterate.equation, state, self.forcing_of(m))
                for m, state in enumerate(iterate.states)
            ]
        if any(response is None for response in responses):
            return None
        maps = [
            matrix @ response.reshape(matrix.shape[1], -1)
            for matrix, response in zip(self.observed, responses, strict=True)
        ]
        try:
            fits = [
                BoundaryValueRegression(
                    self.boundary, maps, self.functions, prior
                ).with_best_prior()
                for prior in self.priors
            ]
            regression, loss = min(fits, key=lambda fit: fit[1])
            problem = replace(self, priors=(regression.prior,))
            model = EvolutionModel(problem, iterate, responses, regression, loss)
            return model if np.isfinite(model.evaluation.loss) else None
        except np.linalg.LinAlgError:  # of weights with effects beyond bounds
            return None

    def change(self, before, after):
        """Root mean square change of states between iterates, relative to their size.

        The size is that of the observations.
        """
        moved = np.concatenate(after.states) - np.concatenate(before.states)
        return rms(moved) / self.size

    def interpolate(self, start, end, fraction):
        """An iterate on the straight line between two others."""

        def between(first, second):
            return (1 - fraction) * first + fraction * second

        equation = copy(start.equation)
        equation.weights = between(start.equation.weights, end.equation.weights)
        return EvolutionIterate(
            equation,
            [*map(between, start.states, end.states)],
            [*map(between, start.boundary, end.boundary)],
        )


@dataclass(frozen=True)
class IntegratedProblem(EvolutionProblem):
    """The states of an iterate are integrated from its boundary values.

    It takes longer, but steps that are shortened until the objective falls find
    states from far away, where full steps get lost.
    """

    def evaluate(self, iterate):
        """Residuals and objective of the integrated iterate; None if it is not found.

        The states that the iterate has are where Newton steps start.
        """
        states = []
        with np.errstate(over="ignore", invalid="ignore"):  # Newton looks at changes
            for m, given in enumerate(
                zip(iterate.boundary, iterate.states, strict=True)
            ):
                forcing = self.forcing_of(m)
                states.append(integrate(self.grid, iterate.equation, *given, forcing))
        if any(state is None for state in states):
            return None
        return super().evaluate(replace(iterate, states=states))


class EvolutionModel:
    """An evolution problem with the equation linearised at an iterate.

    problem : EvolutionProblem. With the prior of maximum likelihood.
    iterate : EvolutionIterate. Where.
    responses : list of ndarray. Of each function, as :func:`linear_response` has them.
    regression : BoundaryValueRegression. Weights and boundary values from the
        observations.
    loss : float. Minus the log likelihood of the observations.
    """

    def __init__(self, problem, iterate, responses, regression, loss):
        self.problem = problem
        self.iterate = iterate
        self.regression = regression
        self.loss = loss
        equation = copy(iterate.equation)
        equation.weights = regression.weights
        equation.posterior = regression.posterior_weights()
        p = len(regression.weights)
        states = [
            (response @ unknowns).ravel()
            for response, unknowns in zip(responses, regression.unknowns, strict=True)
        ]
        boundary = [unknowns[1 + p :] for unknowns in regression.unknowns]
        self.solution = EvolutionIterate(equation, states, boundary)

    @cached_property
    def evaluation(self):
        """The iterate with the objective that the problem's prior gives."""
        return EvolutionProblem.evaluate(self.problem, self.iterate)

    def step(self, damping):
        """The full Gauss-Newton iterate, and the predicted decrease of the loss."""
        if damping:
            raise ValueError(f"damping={damping}: full steps are not damped.")
        decrease = self.evaluation.loss - self.solution.equation.posterior.loss
        return self.solution, decrease

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
        prior = replace(prior, noise=max(prior.noise, rms(here.residuals)))
        noisier = self.regression.with_prior(prior)
        loss = boundary_loss(
            prior,
            noisier.boundary,
            here.iterate.equation.weights,
            here.iterate.boundary,
            here.residuals,
            1 / noisier.variances,
        )
        shift = len(here.residuals) * np.log(noisier.size)
        return shift - loss - noisier.log_volume()

    def with_laplace_evidence(self):
        """The model whose evidence is that of the iterate itself."""
        model = copy(self)
        model.loss = -self.laplace_log_evidence()
        return model

    def posterior_weights(self):
        """What the observations say about the weights."""
        return self.solution.equation.posterior

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
            values = values.reshape(grid.n_steps, 4, grid.n_points)
            given = self.solution.equation, root, outside, boundary
            given = *given, self.problem.prior, forcing
            states.append(EvolvedState(grid, values, *given))
        return states


def make_evolution_problem(learned, noise=None, first_noise=1e-3, exact=1e-9):
    """The problem of exact states for a learned model's observations and equation.

    The equation is one of evolution (:func:`why_not_integrated` says so). `noise` is
    the standard deviation of an observation; None: it is found, from `first_noise` on.
    A level is at least `exact`; both are relative to the observations' size.
    """
    functions = learned.observations.functions
    values = np.concatenate([data.values for data in functions])
    observed = np.unique(np.concatenate([d.points for d in functions]), axis=0)
    placed = np.concatenate(learned.setup.collocation_points)
    points = np.concatenate([placed, observed])
    axis, size = time_axis(learned.setup, points.shape[1]), size_or_one(values)
    order = order_in_time(learned.setup, axis)
    level = first_noise * size if noise is None else noise
    priors = tuple(
        BoundaryPrior(
            kernel,
            max(level, exact * size),
            free_noise=noise is None,
            free_scale=learned.equation.equation_kernel.n_dims > 0,
        )
        for kernel in boundary_kernels(points, values, order)
    )
    n_ends = (order_in_space(learned.setup, axis) + 1) // 2
    box = box_around(observed, placed)
    grid = EvolutionGrid(*box, axis, n_ends=n_ends, order=order)
    forcing = tuple(f for (f,) in learned.setup.forcing_functions)
    return EvolutionProblem(learned, grid, _observed(grid, learned), priors, forcing)


def _observed(grid, learned):
    """Interpolation to the observations of each function."""
    return tuple(
        grid.interpolation(data.points, data.operators[0])
        for data in learned.observations.functions
    )

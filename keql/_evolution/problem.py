"""States that follow a learned law exactly, from their initial and side values.

The joint problem imposes the law at its collocation points, and a prior tells what the
states are in between. Where the law says how a state evolves, u_t = G(t, x, u, u_x,
u_xx), it leaves open only what the state is on the border of the box: initially and on
both sides. With a prior covariance K of these values z, the law integrated so that u
depends on z and on the weights w of the law, what is minimised is

    1/2 |w|^2 + sum_m [ 1/2 z_m^T K^-1 z_m + 1/2 r_m^T W_m r_m / sigma^2 ],

r_m = u(X_m; z_m, w) - y_m: the joint problem as its collocation points become dense
and the noise of the equation vanishes, but for the prior. Gauss-Newton steps integrate
the linearised law; in each, K and sigma are those of maximum likelihood. In data
assimilation this is 4D-Var with a strong constraint: Le Dimet and Talagrand, Tellus
38A, 1986.
"""

from copy import copy
from dataclasses import replace

import numpy as np
from scipy import linalg

from keql._evolution.boundary_values import NOISE, BorderRegression, border_kernels
from keql._evolution.form import time_axis
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import integrate
from keql._evolution.states import EvolvedState, Followed, Trajectory
from keql._numerics.scaling import rms, size_or_one
from keql._observations.left_out import left_out_errors
from keql.equation import EXACT
from keql.operators import parse_operator

# Gauss-Newton steps, and the change of the states, relative to their size, that ends
# them.
MAX_STEPS, TOL = 15, 1e-5
# With more observations the covariance of all of them takes long to factor; each
# function needs some 50 MB.
MOST_OBSERVATIONS, MOST_FUNCTIONS = 2000, 12
# Directions with a smaller part of the largest posterior variance are left out.
NEGLIGIBLE = 1e-10


class Evolution:
    """The problem of finding states that follow a law of evolution.

    Parameters
    ----------
    learned : LearnedModel
        Observations and equation.
    noise : float or None
        Standard deviation of an observation; None: it is estimated.
    axis : {0, 1}
        Which coordinate is the time.
    """

    def __init__(self, learned, noise, axis):
        self.learned = learned
        self.functions = learned.observations.functions
        values = np.concatenate([data.values for data in self.functions])
        points = [data.points for data in self.functions]
        points = np.concatenate([*learned.setup.collocation_points, *points])
        self.size = size_or_one(values)
        self.grid = EvolutionGrid(points.min(axis=0), points.max(axis=0), axis)
        self.kernels = border_kernels(points, values)
        self.free_noise = noise is None
        self.free_scale = learned.equation.basis.kernel.n_dims > 0
        self.level = NOISE * self.size if noise is None else noise
        self.level = max(self.level, EXACT * self.size)
        self.identity = parse_operator("u", learned.variables)

    def coarser(self, n_steps, n_points):
        """The same problem on a grid of so many steps in time and points in space."""
        other, grid = copy(self), self.grid
        other.grid = EvolutionGrid(grid.lower, grid.upper, grid.axis, n_steps, n_points)
        return other

    def carry(self, states, other):
        """Values on the grid of states on that of another problem."""
        at = self.grid.points.reshape(-1, 2)
        return [other.values_at(state, at) for state in states]

    def states_of(self, learned):
        """Values of states on the grid."""
        at = self.grid.points.reshape(-1, 2)
        return [state.evaluate(at, self.identity) for state in learned.states]

    def linearise(self, equation, states, near=None):
        """The law linearised at states, and the observations in what it leaves open.

        Parameters
        ----------
        equation : LearnedEquation
            The law.
        states : list of ndarray
            Values on the grid.
        near : BorderRegression, default=None
            Whose priors and noise are to be started from.

        Returns
        -------
        flows : list of ndarray or None
            None if the law cannot be integrated.
        regression : BorderRegression
            Its priors, and the noise if that is not given, are those of most
            likelihood.
        negative_log_likelihood : float
            Minus the log likelihood, up to a constant.
        """
        failed = None, None, np.inf
        with np.errstate(over="ignore", invalid="ignore"):  # it is looked at
            flows = [integrate(self.grid, equation, state) for state in states]
        if any(flow is None for flow in flows):
            return failed
        maps = [
            self.grid.apply(flow, data.points, self.identity)
            for flow, data in zip(flows, self.functions, strict=True)
        ]
        kernels = self.kernels if near is None else [near.kernel]
        levels = (self.level, 1.0) if near is None else (near.noise, near.scale)
        tried = [
            BorderRegression(self.grid.border, maps, self.functions, kernel, *levels)
            for kernel in kernels
        ]
        free = self.free_noise, self.free_scale
        try:
            tried = [each.with_best_prior(*free) for each in tried]
        except np.linalg.LinAlgError:  # of weights with effects beyond bounds
            return failed
        return flows, *min(tried, key=lambda pair: pair[1])

    def settle(self, equation, states, near=None, tol=TOL):
        """Gauss-Newton steps from any states, until they follow the law.

        Parameters
        ----------
        equation, states, near
            As for :meth:`linearise`.
        tol : float, default=1e-5
            The change of the states, relative to their size, that ends the steps.

        Returns
        -------
        trajectory : Trajectory or None
            None if the law cannot be integrated, or the steps do not end.
        """
        losses = []
        for _ in range(MAX_STEPS):
            flows, near, negative_log_likelihood = self.linearise(
                equation, states, near
            )
            if flows is None:
                return None
            try:
                found = self.trajectory(
                    equation, flows, near, negative_log_likelihood, losses
                )
            except np.linalg.LinAlgError:
                return None
            moved, old = np.concatenate(found.states), np.concatenate(states)
            if rms(moved - old) < tol * self.size:
                return found
            states, equation, losses = found.states, found.equation, found.losses
        return None

    def values_at(self, state, points):
        """Values at points of the box of a state on the grid."""
        shape = self.grid.n_steps, 4, self.grid.n_points, 1
        return self.grid.apply(state.reshape(shape), points, self.identity)[:, 0]

    def trajectory(self, equation, flows, near, negative_log_likelihood, losses=()):
        """States and law that solve the linearised problem."""
        solution, equation = near.solve(), copy(equation)
        equation.weights = solution.weights.weights
        equation.posterior = solution.weights
        states = [
            (flow @ unknowns).ravel()
            for flow, unknowns in zip(flows, solution.unknowns, strict=True)
        ]
        return Trajectory(
            equation,
            states,
            flows,
            near,
            solution,
            [*losses, float(solution.weights.loss)],
            negative_log_likelihood,
            rms(left_out_errors(solution, self.functions)),
        )

    def followed(self, trajectory, outside, path):
        """A trajectory as states and equation.

        Parameters
        ----------
        trajectory : Trajectory
            The trajectory.
        outside : list of KernelExpansion
            The states outside of the box.
        path : list of TermsStep
            Laws that it was compared with.

        Returns
        -------
        followed : Followed
            What an estimator stores.
        """
        solution, learned = trajectory.solution, self.learned
        states = [
            self._state(*each)
            for each in zip(
                trajectory.flows,
                solution.unknowns,
                trajectory.regression.covariances(),
                outside,
                strict=True,
            )
        ]
        equation = copy(trajectory.equation)
        equation.training_features = learned.setup.features_of(states)
        learned = replace(
            learned,
            states=states,
            equation=equation,
            observation_noise=trajectory.regression.noise,
            equation_noise=0.0,
        )
        return Followed(learned, trajectory, path)

    def _state(self, flow, unknowns, covariance, outside):
        spread, directions = linalg.eigh(covariance)
        kept = spread > NEGLIGIBLE * spread[-1]
        roots = flow[..., 1:] @ (directions[:, kept] * np.sqrt(spread[kept]))
        return EvolvedState(self.grid, flow @ unknowns, roots, outside)


def find_evolution(learned, noise=None):
    """The problem of following the law, where there is one of evolution.

    Parameters
    ----------
    learned : LearnedModel
        Observations and equation.
    noise : float, default=None
        Standard deviation of an observation; None: it is to be estimated.

    Returns
    -------
    evolution : Evolution or None
        None if the equation is not one of evolution in one space dimension, if there
        are too many observations, or if all are at one time or place.
    """
    axis = time_axis(learned.setup, len(learned.variables))
    functions = learned.observations.functions
    n_values = sum(len(data.values) for data in functions)
    many = n_values > MOST_OBSERVATIONS or len(functions) > MOST_FUNCTIONS
    if axis is None or many:
        return None
    if np.any(np.ptp(np.concatenate([d.points for d in functions]), axis=0) == 0):
        return None
    return Evolution(learned, noise, axis)

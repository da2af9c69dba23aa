"""States that follow a learned law exactly, from what they are at the begin and sides.

The joint problem imposes the law at its collocation points, and a prior tells what the
states are in between. Where the law says how a state evolves, u_t = G(t, x, u, u_x,
u_xx), it leaves open only what the state is on the border of the box: at the begin and
on both sides. With a prior covariance K of these values z, the law integrated so that
u depends on z and on the weights w of the law, what is minimised is

    1/2 |w|^2 + sum_m [ 1/2 z_m^T K^-1 z_m + 1/2 r_m^T W_m r_m / sigma^2 ],

r_m = u(X_m; z_m, w) - y_m: the joint problem as its collocation points become dense
and the noise of the equation vanishes, but for the prior. Gauss-Newton steps integrate
the linearised law; in each, K and sigma are those of maximum likelihood. In data
assimilation this is 4D-Var with a strong constraint: Le Dimet and Talagrand, Tellus
38A, 1986.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg

from keql._border import NOISE, BorderRegression, border_kernels
from keql._evolution_grid import N_POINTS, N_STEPS, ORDERS, EvolutionGrid
from keql._regression import root_mean_square
from keql._scales import left_out_errors
from keql.operators import parse_operator

# Gauss-Newton steps, and the change of the states, relative to their size, that ends
# them.
MAX_STEPS, TOL = 15, 1e-5
# A change on the border that has grown so many times is not followed further.
UNSTABLE = 1e4
# With more observations the covariance of all of them takes long to factor.
MOST_OBSERVATIONS = 2000
# A noise level of zero is this small, relative to the data.
EXACT = 1e-9
# Directions with a smaller part of the largest posterior variance are left out.
NEGLIGIBLE = 1e-12


class EvolvedState:
    """A state that follows from the law by integration.

    Parameters
    ----------
    grid : EvolutionGrid
        Where it is known.
    values : ndarray of shape (N_STEPS, 4, N_POINTS)
        What it is there.
    roots : ndarray of shape (N_STEPS, 4, N_POINTS, r)
        Its posterior covariance there is their product with themselves over the last
        axis.
    outside : KernelExpansion
        The state outside of the box.
    """

    def __init__(self, grid, values, roots, outside):
        self.grid = grid
        self.values = values
        self.roots = roots
        self.outside = outside

    def evaluate(self, points, operator):
        """Values of an operator applied to the state.

        Parameters
        ----------
        points : ndarray of shape (n, 2)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        values : ndarray of shape (n,)
            In units of the values over those of the coordinates differentiated.
        """
        inside, values = self.grid.contains(points), np.empty(len(points))
        state = self.values[..., None]
        values[inside] = self.grid.apply(state, points[inside], operator)[:, 0]
        if not inside.all():
            values[~inside] = self.outside.evaluate(points[~inside], operator)
        return values

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the state.

        Parameters
        ----------
        points : ndarray of shape (n, 2)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Of the latent state, without observation noise; never negative.
        """
        inside, variances = self.grid.contains(points), np.empty(len(points))
        roots = self.grid.apply(self.roots, points[inside], operator)
        variances[inside] = np.sum(roots**2, axis=1)
        if not inside.all():
            variances[~inside] = self.outside.variance(points[~inside], operator)
        return variances


@dataclass(frozen=True)
class Followed:
    """States that follow their law.

    Parameters
    ----------
    learned : Learned
        States and law.
    error : float
        Root mean square error of the predictions of each observation from all others.
    """

    learned: object
    error: float


def follow_law(learned, noise=None):
    """States that follow the learned law exactly, and the law at its best for them.

    Parameters
    ----------
    learned : Learned
        States and law to start from.
    noise : float, default=None
        Standard deviation of an observation; None: it is estimated.

    Returns
    -------
    followed : Followed or None
        None if the law is not one of evolution in one space dimension, or cannot be
        integrated.
    """
    regressions = learned.observations.regressions
    values = np.concatenate([data.values for data in regressions])
    axis = time_axis(learned.setup, len(learned.variables))
    if axis is None or len(values) > MOST_OBSERVATIONS:
        return None
    points = [data.points for data in regressions]
    points = np.concatenate([*learned.setup.collocation_points, *points])
    grid = EvolutionGrid(points.min(axis=0), points.max(axis=0), axis)
    at, identity = grid.points.reshape(-1, 2), parse_operator("u", learned.variables)
    states = [each.evaluate(at, identity) for each in learned.states]
    size = root_mean_square(values)
    level = NOISE * size if noise is None else max(noise, EXACT * size)
    kernels, equation = border_kernels(points, values), learned.equation
    for _ in range(MAX_STEPS):
        flows = [integrate(grid, equation, state) for state in states]
        if any(flow is None for flow in flows):
            return None
        maps = [
            grid.apply(flow, data.points, identity)
            for flow, data in zip(flows, regressions, strict=True)
        ]
        tried = [
            BorderRegression(grid.border, maps, regressions, kernel, level)
            for kernel in kernels
        ]
        tried = [each.with_best_prior(noise is None) for each in tried]
        best, _ = min(tried, key=lambda pair: pair[1])
        kernels, level = [best.kernel], best.noise
        solution = best.solve()
        moved = [
            (flow @ unknowns).ravel()
            for flow, unknowns in zip(flows, solution.unknowns, strict=True)
        ]
        change = root_mean_square(np.concatenate(moved) - np.concatenate(states))
        states, equation = moved, _with_weights(equation, solution.weights)
        if change < TOL * size:
            error = root_mean_square(left_out_errors(solution, regressions))
            states = _evolved(grid, flows, solution, learned.states)
            return Followed(_with_states(learned, states, equation, level), error)
    return None


def time_axis(setup, n_variables):
    """Which coordinate is the time of an equation of evolution; None for others.

    There are two coordinates; in one of them the equation is of first order, in the
    other of second.

    Parameters
    ----------
    setup : EquationSetup
        The equation.
    n_variables : int
        Number of coordinates.

    Returns
    -------
    axis : {0, 1} or None
        Its column.
    """
    if n_variables != 2 or setup.has_forcing:
        return None
    orders = [orders for operator in setup.operators for orders, _ in operator.terms]
    highest = tuple(np.max(orders, axis=0))
    return {ORDERS: 0, ORDERS[::-1]: 1}.get(highest)


def integrate(grid, equation, state):
    """The equation, linearised at a state, integrated from any border values.

    Parameters
    ----------
    grid : EvolutionGrid
        Where.
    equation : LearnedEquation
        The law, with p weights.
    state : ndarray of shape (N_STEPS * 4 * N_POINTS,)
        Values on the grid.

    Returns
    -------
    flow : ndarray of shape (N_STEPS, 4, N_POINTS, 1 + p + c) or None
        Its product with 1, the weights and the c values on the border is the solution;
        None if small changes of these grow beyond bounds, as if time ran backwards.
    """
    n, p = N_POINTS, len(equation.weights)
    flow = np.zeros((N_STEPS, 4, n, 1 + p + n + 6 * N_STEPS))
    flow[0, 0, :, 1 + p : 1 + p + n] = np.eye(n)
    # Rows of the equation at both ends give way to the border values.
    sides = (n * np.arange(3)[:, None] + [0, n - 1]).ravel()
    for step, values in enumerate(state.reshape(N_STEPS, -1)):
        J, right = _linearise(grid, equation, step, values)
        last = 1 + p + n + 6 * step
        known = np.zeros((3 * n, last + 6))
        known[:, : 1 + p] = right
        known -= J[:, :n] @ flow[step, 0, :, : last + 6]
        unknown = J[:, n:]
        unknown[sides], known[sides] = 0.0, 0.0
        unknown[sides, sides], known[sides, last + np.arange(6)] = 1.0, 1.0
        try:
            solved = np.linalg.solve(unknown, known)
        except np.linalg.LinAlgError:
            return None
        if not np.max(np.abs(solved[:, 1 + p :])) < UNSTABLE:
            return None
        flow[step, 1:, :, : last + 6] = solved.reshape(3, n, -1)
        if step + 1 < N_STEPS:
            flow[step + 1, 0] = flow[step, -1]
    return flow


def _linearise(grid, equation, step, values):
    """J and b with J u = b (1, w) for the equation at the Radau points of a step."""
    L = grid.matrices(step, equation.operators)
    S = np.column_stack([grid.points[step, 1:].reshape(-1, 2), (L @ values).T])
    slopes = equation.gradient(S)[:, 2:]
    psi = equation.basis(S[:, : 2 + equation.n_operators])
    J = np.einsum("kq,qkj->kj", slopes, L)
    constant = J @ values - equation(S) + psi @ equation.weights
    return J, np.column_stack([constant, -psi])


def _with_weights(equation, posterior):
    equation = copy(equation)
    equation.weights, equation.posterior = posterior.weights, posterior
    return equation


def _evolved(grid, flows, solution, outside):
    """The solution as states."""
    states = []
    for flow, unknowns, C, other in zip(
        flows, solution.unknowns, solution.covariances, outside, strict=True
    ):
        spread, directions = linalg.eigh(C)
        kept = spread > NEGLIGIBLE * spread[-1]
        roots = flow[..., 1:] @ (directions[:, kept] * np.sqrt(spread[kept]))
        states.append(EvolvedState(grid, flow @ unknowns, roots, other))
    return states


def _with_states(learned, states, equation, noise):
    """States, and the equation with their features in place of those before."""
    imposed = [
        np.concatenate([state.evaluate(x, L) for L in learned.setup.operators])
        for state, x in zip(states, learned.setup.collocation_points, strict=True)
    ]
    equation.training_features = learned.setup.features(imposed)
    return replace(learned, states=states, equation=equation, observation_noise=noise)

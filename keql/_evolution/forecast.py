"""States of an evolution equation after the last time that they were found at.

The equation goes on from the last state of the grid. What it leaves open there, the
values at both ends in space, follows the prior of boundary values given those at the
times of the grid, which are uncertain themselves. With z the c known boundary values, k
those that come, and K their prior covariance,

    z_k = A z + e,   A = K_kz K_zz^-1,   cov(e) = K_kk - A K_zk :

the mean is integrated, and the linearised equation carries the covariance of weights,
last state and z_k, which all depend on the same observations.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from keql._evolution.boundary.prior import (
    PointsOfStates,
    boundary_points,
    covariance_with,
)
from keql._evolution.fronts.integration import solution, solutions
from keql._evolution.integration import integrate
from keql._evolution.known import known_at
from keql._numerics.linalg import cholesky, size_or_one, solve_lower
from keql._numerics.memory import in_chunks
from keql.exceptions import SimulationError


@dataclass(frozen=True)
class ForecastLimits:
    """How finely a forecast is integrated.

    accuracy : float. Largest difference to steps of twice the length, in units of the
        size of the state; above the errors of the Newton steps. Those of the order 5 of
        the method make the forecast 30 times as accurate.
    part_of_noise, slow : float. Or this part of the least noise of observations, once
        half of the steps' length leaves more than the part `slow` of that difference:
        waves have slopes as rough as the steps that they were found with, and shorter
        ones follow what is rough.
    halvings : int. How often steps are halved; first they are twice the longest of the
        fit.
    steps : int. The most of them: what both ends leave open in all takes memory that
        grows with their square, 70 MB for these.
    window : int. Steps that are linearised at once, for the same reason.
    """

    accuracy: float = 1e-6
    part_of_noise: float = 1e-2
    slow: float = 0.5
    halvings: int = 6
    steps: int = 500
    window: int = 20


class EvolvedState:
    """A state that follows from its equation by integration.

    Its posterior covariance on the grid is R R^T with R the product of the linear
    response and a root of the posterior covariance of weights and boundary values. R
    takes more memory than all else together and is computed whenever variances are
    asked for.

    grid : EvolutionGrid. Where it is known.
    values : ndarray of shape (n_steps, 4, size). Its values there.
    equations : tuple of LearnedEquation. That it obeys, with p weights in all.
    root : ndarray of shape (p + c, r). Of the posterior covariance of the weights and
        the c boundary values.
    outside : KernelExpansion. The state outside of the box, where it does not go on.
    boundary : ndarray of shape (c,). The boundary values.
    prior : BoundaryPrior. That these were found with.
    forcing : tuple. Right-hand side of each equation, as a function of points, or None,
        then the inputs of unknown parts.
    """

    def __init__(
        self, grid, values, equations, root, outside, boundary, prior, forcing
    ):
        self.grid = grid
        self.values = values
        self.equations = equations
        self.root = root
        self.outside = outside
        self.boundary = boundary
        self.prior = prior
        self.forcing = forcing

    def __getstate__(self):
        # The root is by far the largest part; seven digits of it are enough.
        scale = np.max(np.abs(self.root), initial=0.0) or 1.0
        return vars(self) | {"root": (scale, np.float32(self.root / scale))}

    def __setstate__(self, state):
        scale, root = state["root"]
        vars(self).update(state, root=scale * root.astype(float))

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, d)."""

        def inside(own):
            return self.grid.apply(self.values[..., None], own, operator)[:, 0]

        return self._gather(points, operator, "evaluate", inside)

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, without observation noise."""

        def inside(own):
            return _squares(self.grid, self.deviations(), own, operator)

        return self._gather(points, operator, "variance", inside)

    def _gather(self, points, operator, name, inside):
        """What is known in the box, after it by a forecast, and elsewhere."""
        own, values = self.grid.contains(points), np.empty(len(points))
        if own.any():
            values[own] = inside(points[own])
        after, left = ~own & self.grid.is_after(points), ~own
        if after.any():
            values[after] = self._after(points[after], operator, name)
            left[after] = np.isnan(values[after])
        if left.any():
            values[left] = getattr(self.outside, name)(points[left], operator)
        return values

    def _after(self, points, operator, name):
        """The same at points (n, d) after the last time; nan where a solution ended."""
        times, values = points[:, self.grid.axis], np.full(len(points), np.nan)
        with suppress(SimulationError):
            forecast = Forecast(self, float(times.max()))
            return getattr(forecast, name)(points, operator)
        different = np.unique(times)
        early = times < different[len(different) // 2]
        if early.any():
            values[early] = self._after(points[early], operator, name)
            if not np.any(np.isnan(values[early])):
                values[~early] = self._after(points[~early], operator, name)
        return values

    def deviations(self):
        """R on the grid, of shape (n_steps, 4, n_points, r).

        Raises SimulationError if the linearised equation has no solution.
        """
        unknowns = np.insert(self.root, 0, 0.0, axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            given = self.equations, self.values, unknowns
            known = known_at(self.grid, self.forcing)
            deviations = solutions(self.grid, *given, known)
        if not np.all(np.isfinite(deviations)):
            raise SimulationError(
                "small changes of the state grow beyond all numbers: its uncertainty "
                "cannot be told. Ask for earlier times.",
                float(self.grid.edges[0]),
            )
        return deviations


def _squares(grid, deviations, points, operator):
    """Sums (n,) of squares of an operator applied to functions on the grid."""
    parts = in_chunks(points, deviations.shape[-1])
    applied = (grid.apply(deviations, part, operator) for part in parts)
    return np.concatenate([np.sum(values**2, axis=1) for values in applied])


class Forecast:
    """A fitted state, and after its last time the equation integrated on.

    state : EvolvedState. As it was fitted.
    until : float. The last time.
    limits : ForecastLimits, default=None. None: the default ones.

    Raises SimulationError if the solution cannot be integrated so far.
    """

    def __init__(self, state, until, limits=None):
        self.state, self.limits = state, limits or ForecastLimits()
        self.later = None
        if until > state.grid.edges[-1]:
            self.later, self.values = self._integrate(until)

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, d)."""
        self._refuse_outside(points)
        after, values = self.state.grid.is_after(points), np.empty(len(points))
        if not after.all():
            values[~after] = self.state.evaluate(points[~after], operator)
        if after.any():
            later = self.later.grid.apply(
                self.values[..., None], points[after], operator
            )
            values[after] = later[:, 0]
        return values

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, without observation noise."""
        after, variances = self.state.grid.is_after(points), np.empty(len(points))
        if not after.all():
            variances[~after] = self.state.variance(points[~after], operator)
        if after.any():
            variances[after] = self._variance_after(points[after], operator)
        return variances

    def _refuse_outside(self, points):
        """Refuse points where no equation can be integrated to."""
        grid = self.state.grid
        outside = ~(grid.contains(points) | grid.is_after(points))
        if outside.any():
            first, t, lower = points[outside][0], grid.axis, grid.lower
            between = " and ".join(
                f"{lower[i]:g} and {grid.upper[i]:g}" for i in grid.space
            )
            raise ValueError(
                f"X has {outside.sum()} point(s) such as {tuple(first.tolist())} that "
                "the equation cannot be integrated to: forecasts begin at "
                f"{lower[t]:g} in time, and in space are between {between}."
            )

    # --- the mean -------------------------------------------------------------------

    def _integrate(self, until):
        """The values at both ends from the last time on, and the state on their grid.

        Steps are halved until the state does not depend on their length.
        """
        grid, limits, coarse, before = self.state.grid, self.limits, None, np.inf
        sizes, begin = sizes_of_states(self.state), grid.edges[-1]
        noise = limits.part_of_noise * np.min(self.state.prior.noise)
        n = int(np.ceil((until - begin) / (2 * np.max(grid.steps))))
        counts = [n * 2**k for k in range(limits.halvings + 1)]
        counts = [n for n in counts if n <= limits.steps]
        for n in counts:
            edges = np.linspace(begin, until, n + 1)
            later = LaterBoundary(self.state, grid.with_edges(edges))
            fine, change = self._solve(later), np.inf
            if fine is not None and coarse is not None:
                changes = np.abs(fine[1::2, -1] - coarse[:, -1])
                change = np.max(changes / sizes)
                is_rough = change > limits.slow * before and np.max(changes) < noise
                if change < limits.accuracy or is_rough:
                    return later, fine
            coarse, before = fine, change
        most = max(counts, default=n)
        raise SimulationError(
            f"the equation cannot be integrated to {until:g} in {most} steps: its "
            "solution ends or leaves all bounds before, or changes too fast, or it is "
            "too far away. Ask for earlier times.",
            float(begin),
        )

    def _solve(self, later):
        """The state (n_steps, 4, size) with the most probable values at both ends.

        None if it is not found.
        """
        state, grid = self.state, later.grid
        slopes = state.grid.last_slopes(state.values[-1, ..., None], _last_step(state))
        boundary = np.concatenate([state.values[-1, -1], slopes[:, 0], later.mean])
        right = known_at(grid, state.forcing)
        with np.errstate(over="ignore", invalid="ignore"):  # Newton looks at changes
            if len(state.equations) > 1 or grid.follows:
                given = state.equations, boundary, right, sizes_of_states(state)
                return integrate_fields(grid, *given)
            found = integrate(grid, state.equations[0], boundary, None, right)
        return None if found is None else found.reshape(grid.n_steps, 4, grid.size)

    # --- the covariance -------------------------------------------------------------

    def _variance_after(self, points, operator):
        """Variances (n,) at points (n, d) after the last time of the fit."""
        grid, window = self.later.grid, self.limits.window
        times, variances = points[:, grid.axis], np.empty(len(points))
        last = self.state.deviations()[-1]
        in_ends = self.later.root(self.state.root)
        step, added = _last_step(self.state), in_ends.shape[1] - last.shape[-1]
        last = np.pad(last, ((0, 0), (0, 0), (0, added)))
        p = sum(len(equation.weights) for equation in self.state.equations)
        weights = np.pad(self.state.root[:p], ((0, 0), (0, added)))
        n_open = 3 * len(grid.ends)
        for steps in np.array_split(
            np.arange(grid.n_steps), -(-grid.n_steps // window)
        ):
            own = slice(steps[0], steps[-1] + 1)
            edges = grid.edges[own.start : own.stop + 1]
            slopes = self.state.grid.last_slopes(last, step)
            ends = in_ends[n_open * own.start : n_open * own.stop]
            root = np.concatenate([weights, last[-1], slopes, ends])
            here = grid.with_edges(edges)
            given = self.values[own], self.state.equations, root
            given = *given, None, None, None, self.state.forcing
            deviations = EvolvedState(here, *given).deviations()
            rows = (times >= edges[0]) & (times <= edges[-1])
            variances[rows] = _squares(here, deviations, points[rows], operator)
            last, step = deviations[-1], here.steps[-1]
        return variances


def _last_step(state):
    return state.grid.steps[-1]


def sizes_of_states(state):
    """Root mean squares (size,) of the states of an EvolvedState, at each point."""
    grid = state.grid
    values = state.values.reshape(-1, len(grid.states), grid.n_points)
    sizes = [size_or_one(values[:, k]) for k in range(len(grid.states))]
    return np.repeat(sizes, grid.n_points)


def integrate_fields(
    grid, equations, boundary, forcing, sizes, n_newton=8, precision=1e-4, wild=100.0
):
    """Several states of one order in time, from given boundary values (c,).

    An array (n_steps, 4, size), or None if Newton steps, from where each time step
    starts, do not find it. Changes are in units of the sizes (size,) of the states;
    `forcing` (E + I, n_steps * 3 * n_points) and the rest are as of :func:`integrate`.
    """
    weights = np.concatenate([equation.weights for equation in equations])
    places = [grid.size, grid.order * grid.size]
    start, slopes, ends = np.split(boundary, places)
    ends = ends.reshape(grid.n_steps, -1)
    forcing = forcing.reshape(len(forcing), grid.n_steps, -1)
    states = np.empty((grid.n_steps, 4, grid.size))
    for step, h in enumerate(grid.steps):
        here = grid.with_edges(grid.edges[step : step + 2])
        unknowns = np.concatenate([[1.0], weights, start, slopes, ends[step]])
        state = np.tile(start, 4)
        for _ in range(n_newton):
            given = here, equations, state, unknowns, forcing[:, step]
            before, state = state, solution(*given)
            changed = np.max(np.abs(state - before).reshape(4, -1) / sizes)
            if not changed < wild or changed < precision:
                break
        if not changed < precision:
            return None
        states[step] = state.reshape(4, -1)
        start = states[step, -1]
        slopes = grid.last_slopes(states[step][..., None], h).ravel()
    return states


class LaterBoundary:
    """Values at both ends in space at later times, given those that were found.

    state : EvolvedState. With its boundary values and their prior.
    grid : EvolutionGrid. That of the later times.
    """

    def __init__(self, state, grid):
        self.grid, self.kernel = grid, state.prior.kernel
        known, n = boundary_points(state.grid), grid.order * grid.size
        self.points = grid.boundary[n:]
        if len(grid.states) > 1:
            self.points = PointsOfStates(self.points, grid.states_of_boundary[n:])
        cross = covariance_with(known, self.kernel, self.points)
        self._own = state.prior.covariance(self.points)
        self._factor = cholesky(state.prior.covariance(known))
        self._explained = solve_lower(self._factor, cross)
        self.mean = self._explained.T @ solve_lower(self._factor, state.boundary)

    def root(self, root, negligible=1e-10):
        """A root (k, r + q) of their covariance, that of weights and known ones given.

        The first r columns go with those of `root` (p + c, r), the others are of what
        the prior leaves open; directions of a smaller part of its largest variance are
        left out.
        """
        known = solve_lower(self._factor, root[-len(self._factor) :])
        left = self._own - self._explained.T @ self._explained
        variances, directions = linalg.eigh(left)
        kept = variances > negligible * np.max(variances, initial=np.finfo(float).tiny)
        added = directions[:, kept] * np.sqrt(variances[kept])
        return np.column_stack([self._explained.T @ known, added])

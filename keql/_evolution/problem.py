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
from itertools import zip_longest

import numpy as np
from scipy.sparse import vstack

from keql._evolution.boundary.prior import boundary_points, boundary_priors
from keql._evolution.boundary.regression import BoundaryValueRegression
from keql._evolution.form import order_along, order_in_time, time_axis
from keql._evolution.fronts.integration import effects_on_observations, rates, solution
from keql._evolution.grid import EvolutionGrid, GridSizes
from keql._evolution.integration import ResponsesKept, integrate, linear_responses
from keql._evolution.known import known_at, known_functions
from keql._evolution.model import (
    EvolutionEvaluation,
    EvolutionIterate,
    EvolutionModel,
    combined,
)
from keql._numerics.linalg import largest_factor, rms, size_or_one
from keql._observations.data import box_around, size_of
from keql.kernels import SystemKernel
from keql.operators import identity_of


@dataclass(frozen=True)
class EvolutionProblem:
    """The states need not solve the equation: a full step makes them do so.

    learned : LearnedModel. Observations and equation; its states are those outside of
        the box.
    grid : EvolutionGrid. The box of all observations and collocation points.
    observed : tuple of sparse matrices of shape (N_m, n_steps * 4 * size). Values at
        the observations of each function, from those on the grid.
    priors : tuple of BoundaryPrior. From which a linearisation takes the one of maximum
        likelihood.
    forcing : tuple. For each function the right-hand side of each equation, then the
        inputs of unknown parts, as functions of points, or None for zero.
    smooth_prior : BoundaryPrior or None. Of smooth functions, for states that solve an
        equation: values of others are so improbable that nothing else would count.
    """

    learned: object
    grid: EvolutionGrid
    observed: tuple
    priors: tuple
    forcing: tuple
    smooth_prior: object = None
    is_exact = True
    process = None

    @property
    def boundary_kernel(self):
        """Prior covariance of the initial values and of those at both ends."""
        kernel = self.prior.kernel
        if len(self.grid.states) == 1:
            return kernel
        return SystemKernel(dict(zip(self.grid.states, kernel.kernels, strict=True)))

    def assemble(self, model):
        """The learned model whose states are those of a linearisation's solution."""
        states, setup = model.posterior_states(), self.learned.setup
        features = setup.split(setup.features_of(states))
        for equation, S in zip(model.solution.equations, features, strict=True):
            equation.training_features = S
        return replace(
            self.learned,
            states=states,
            equations=model.solution.equations,
            observation_noise=np.reshape(model.problem.prior.noise, -1),
            equation_noise=np.zeros(len(features)),
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
        return boundary_points(self.grid)

    @cached_property
    def sizes(self):
        """Root mean squares of the observed values of each state; 0 if there are none.

        An array of shape (S,), in the units of the states.
        """
        observations = self.learned.observations
        sizes = dict.fromkeys(self.grid.states, 0.0)
        for state in sizes:
            samples = observations.of_state(state)
            sizes[state] = size_of(samples) if samples else 0.0
        return np.array([*sizes.values()])

    @property
    def identities(self):
        """The operators that leave a state as it is, one for each."""
        return [identity_of(state, self.grid.d) for state in self.grid.states]

    def start(self, learned=None):
        """The iterate of a learned model's equations and states."""
        learned = learned or self.learned
        points = self.grid.points.reshape(-1, self.grid.d)

        def values(state):
            return [state.evaluate(points, identity) for identity in self.identities]

        states = [self._stacked(values(state)) for state in learned.states]
        return self.iterate(tuple(learned.equations), states)

    def start_after(self, previous):
        """The iterate of the learned model, or of earlier states on an equal grid."""
        states = [] if previous is None else previous.states
        grids = [getattr(state, "grid", None) for state in states]
        if len(grids) != len(self.functions) or not all(map(self.grid.equals, grids)):
            return self.start()
        equation, (earlier,) = self.learned.equation, previous.equations
        if earlier.weights.shape == equation.weights.shape:
            equation = earlier
        return self.iterate(equation, [state.values.ravel() for state in states])

    def start_without_terms(self):
        """The states of the learned model, with equations whose weights are zero.

        In these the effects of terms are their integrals in time along the states,
        which do not grow whatever the learned weights are.
        """
        start, equations = self.start(), []
        for equation in start.equations:
            equation = copy(equation)
            equation.weights = np.zeros_like(equation.weights)
            equations.append(equation)
        return replace(start, equations=tuple(equations))

    def _stacked(self, values):
        """Values of each state at all points of the grid, as they are kept there."""
        grid = self.grid
        shape = grid.n_steps, 4, grid.n_points
        return np.concatenate([v.reshape(shape) for v in values], axis=2).ravel()

    def iterate(self, equations, states):
        """An iterate whose boundary values are those of its states.

        `equations` is a tuple, or the only equation.
        """
        equations = equations if isinstance(equations, tuple) else (equations,)
        shape = self.grid.n_steps, 4, self.grid.size, 1
        boundary = [self.grid.boundary_of(s.reshape(shape))[:, 0] for s in states]
        return EvolutionIterate(equations, states, boundary)

    def forcing_of(self, m):
        """What is known of a function at all Radau points, (E + I, 3 n_steps n)."""
        return known_at(self.grid, self.forcing[m])

    def with_grid(self, n_steps, n_along, grading=None):
        """The same problem on another number of steps in time and points along space.

        `grading` is that of the steps; None: it stays.
        """
        return self.on(self.grid.resized(n_steps, n_along, grading))

    def on(self, grid):
        """The same problem on another grid of the same box and states."""
        return replace(self, grid=grid, observed=_observed(grid, self.learned))

    def on_grid_of(self, other):
        """The same problem on the grid of another one, with its priors."""
        return self.on(other.grid).with_priors_of(other)

    def on_coarse_grid(self, first_noise=1e-3):
        """The same problem on the grid where sets of terms are compared first.

        Noise levels that are given are open there, from `first_noise` on in units of
        the values: the error of the grid, which may be far above, would tell terms.
        """
        coarse = self.with_grid(*GridSizes().of(self.grid.d)[0])
        start = first_noise * self.learned.observations.sizes()
        priors = (prior.with_open_noise(start) for prior in self.priors)
        return replace(coarse, priors=tuple(priors))

    def with_priors_of(self, other):
        """The same problem with the priors of another one; given noise levels stay."""
        priors = (prior.with_given_noise(self.prior) for prior in other.priors)
        return replace(self, priors=tuple(priors))

    def interpolate_from(self, other, iterate):
        """An iterate of a problem on another grid, on this grid."""
        points = self.grid.points.reshape(-1, self.grid.d)
        values = np.stack(iterate.states, axis=-1)
        values = values.reshape(other.grid.n_steps, 4, other.grid.size, -1)
        parts = [other.grid.apply(values, points, u) for u in self.identities]
        states = [self._stacked(own) for own in np.moveaxis(parts, 2, 0)]
        return self.iterate(iterate.equations, states)

    def evaluate(self, iterate):
        """Residuals and objective of an iterate, its states taken as they are."""
        return self.evaluate_states(iterate)

    def evaluate_states(self, iterate):
        """The same, whatever problem it is."""
        triples = zip(self.functions, self.observed, iterate.states, strict=True)
        residuals = [data.values - matrix @ state for data, matrix, state in triples]
        return EvolutionEvaluation(self, iterate, np.concatenate(residuals))

    def linearise(self, evaluation):
        """The model at an evaluation; None if the equation cannot be integrated."""
        iterate, kept = evaluation.iterate, ResponsesKept()
        maps = self.responses(iterate, kept)
        if maps is None:
            return None
        try:
            fits = [
                self.regression(iterate, maps, prior).with_best_prior()
                for prior in self.priors
            ]
            regression, loss = min(fits, key=lambda fit: fit[1] + fit[0].prior.log_odds)
            problem = replace(self, priors=(regression.prior,))
            states = problem.solution_of(iterate, regression.unknowns, kept)
            model = EvolutionModel(problem, iterate, regression, loss, states)
            sizes = model.loss, rms(model.evaluation.residuals)
            return model if np.all(np.isfinite(sizes)) else None
        except np.linalg.LinAlgError:  # of weights with effects beyond bounds
            return None

    def responses(self, iterate, kept=None):
        """Effects (N_m, 1 + p + c) of unknowns on the observations of each function.

        A list, or None if the equation cannot be integrated. The effects on the states
        are appended to `kept`, where they are found on the way.
        """
        maps, most = [], largest_factor()
        with np.errstate(over="ignore", invalid="ignore"):  # growth is looked at
            for effects, response in self._effects(iterate):
                if effects is None or not np.max(np.abs(effects), initial=0.0) < most:
                    return None
                maps.append(effects)
                if kept is not None and response is not None:
                    kept.append(response)
        return maps

    def _effects(self, iterate):
        """Effects on the observations, and on the states, of each function in turn.

        None and None if the equation cannot be integrated. Those on states, of shape
        (n_steps * 4 * size, 1 + p + c), are None on a grid that follows them.
        """
        forcings = [self.forcing_of(m) for m in range(len(self.functions))]
        if self.grid.follows:
            for given in zip(iterate.states, self.observed, forcings, strict=True):
                yield self._followed(iterate.equation, *given), None
            return
        given = self.grid, iterate.equations, iterate.states, forcings
        for observed, found in zip(
            self.observed, linear_responses(*given), strict=True
        ):
            if found is None or not np.all(np.isfinite(found)):
                yield None, None
            else:
                response = found.reshape(-1, found.shape[-1])
                yield observed @ response, response

    def _followed(self, equation, *given):
        """The effects on observations on a grid that follows the state; or None."""
        try:
            return effects_on_observations(self.grid, equation, *given)
        except np.linalg.LinAlgError:
            return None

    def regression(self, iterate, maps, prior=None):
        """Weights and boundary values from the observations, with a prior as it is.

        `maps` are the responses; of no iterate more than these is needed. The prior is
        the first one unless it is given.
        """
        prior = prior or self.prior
        return BoundaryValueRegression(self.boundary, maps, self.functions, prior)

    def solution_of(self, iterate, unknowns, responses=()):
        """States that solve the equation linearised at an iterate, for its unknowns.

        `unknowns` has, for each function, (1, weights, boundary values), and
        `responses` what is known of the effects of these; None: nothing.
        """
        states, pairs = [], zip_longest(iterate.states, responses)
        with np.errstate(over="ignore", invalid="ignore"):  # of states that diverge
            for m, (state, response) in enumerate(pairs):
                if response is None:
                    given = self.grid, iterate.equations, state, unknowns[m]
                    states.append(solution(*given, self.forcing_of(m)))
                else:
                    states.append(response @ unknowns[m])
        return states

    def change(self, before, after):
        """Largest root mean square change of a state between iterates, relatively.

        The size of a state is that of its observations; the unit of one that was never
        observed is free. On a grid that follows it, it is the mean of the absolute
        change over the box: a front that moves by little changes values by much where
        it is, and most points are there.
        """
        moved = self.moves(before, after)
        if self.grid.follows:
            return self.grid.mean(np.abs(moved.ravel()))
        return max(map(rms, np.moveaxis(moved, 1, 0)))

    def moves(self, before, after):
        """Changes of states between iterates, in units of the states' sizes.

        An array of shape (n, S, n_points), for n times of all functions; zero where a
        state was never observed, as its unit is free.
        """
        moved = np.concatenate(after.states) - np.concatenate(before.states)
        moved = moved.reshape(-1, len(self.grid.states), self.grid.n_points)
        units = np.where(self.sizes > 0, self.sizes, np.inf)
        return moved / units[:, None]

    def with_short_steps(self, iterate, most=40):
        """The same as :meth:`resolved` in time alone, from less than `most` steps."""
        return self.resolved(iterate, (most, 0))

    def resolved(self, iterate, finest=(40, 80), part_of_noise=0.1, factor=2):
        """The problem and the iterate on a grid that is fine enough; None if this is.

        Solutions on `factor` times as many steps in time, and as many points in space,
        have to agree at the observations to a part of the noise, both changes together,
        root mean square. A number that makes half of that part grows by the factor if
        it is less than that in `finest`, those of steps and of points.
        """
        changes, factors = [], 1 + (factor - 1) * np.eye(2)
        sizes = self.grid.n_steps, self.grid.n_points
        for size, most, own in zip(sizes, finest, factors, strict=True):
            finer = size < most and self._refined(iterate, own)
            changes.append(self._change_from(iterate, *finer) if finer else 0.0)
        if sum(changes) < part_of_noise:
            return None
        are_fine = np.less(changes, part_of_noise / 2)
        return self._refined(iterate, np.where(are_fine, 1, factor))

    def resolution(self, iterate, factor=1.5, n_functions=4):
        """How fine the grid is, as text, and the change of states on a finer one.

        On one with `factor` times as many steps and points, for the weights and the
        boundary values of the iterate: root mean square at the observations of the
        first few functions, in units of the noise.
        """
        first = replace(
            iterate,
            states=iterate.states[:n_functions],
            boundary=iterate.boundary[:n_functions],
        )
        change = self._change_from(first, *self._refined(first, factor))
        return self.grid.text, change

    def _refined(self, iterate, factor):
        """The problem and the iterate on `factor` times as many steps and points.

        Of each as many times, if there are two factors.
        """
        sizes = np.multiply(factor, (self.grid.n_steps, self.grid.n_along))
        finer = self.with_grid(*np.rint(sizes).astype(int).tolist())
        return finer, finer.interpolate_from(self, iterate)

    def _change_from(self, iterate, finer, there):
        """Change of the observed states on a finer grid, in units of the noise."""
        unknowns = [np.r_[1.0, iterate.weights, z] for z in there.boundary]
        solved = finer.solution_of(there, unknowns)
        changes = [
            (own @ after - here @ before) / np.sqrt(self.prior.variances(data))
            for own, after, here, before, data in zip(
                finer.observed,
                solved,
                self.observed,
                iterate.states,
                self.functions,
                strict=False,
            )
        ]
        return rms(np.concatenate(changes))

    def effects_on_highest(self, iterate):
        """Slopes (n, p) of time derivatives at all points in the weights.

        Each state in units of the size of its time derivative.
        """
        found = [
            rates(self.grid, iterate.equations, u, self.forcing_of(m))
            for m, u in enumerate(iterate.states)
        ]
        effects = np.concatenate(found, axis=1)
        sizes = [size_or_one(values @ iterate.weights) for values in effects]
        return np.concatenate(effects / np.reshape(sizes, (-1, 1, 1)))

    def interpolate(self, start, end, fraction):
        """An iterate on the straight line between two others."""
        return self.combine([start, end], [1 - fraction, fraction])

    def combine(self, iterates, parts):
        """An iterate that consists of parts (n,) of others, which add up to one."""
        return combined(iterates, parts)


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
        states, pairs = [], zip(iterate.boundary, iterate.states, strict=True)
        with np.errstate(over="ignore", invalid="ignore"):  # Newton looks at changes
            for m, given in enumerate(pairs):
                known = *given, self.forcing_of(m)
                states.append(integrate(self.grid, iterate.equation, *known))
        if any(state is None for state in states):
            return None
        return self.evaluate_states(replace(iterate, states=states))


def make_evolution_problem(
    learned, noise=None, sizes=None, kept=None, first_noise=1e-3, exact=1e-9
):
    """The problem of exact states for a learned model's observations and equations.

    The equations are of evolution (:func:`why_not_integrated` says so). `noise` is the
    standard deviation of an observation, or an array (J,) of those of the observed
    operators; None or nan: it is found, from `first_noise` on. A level is at least
    `exact`; both are relative to the observations' size. The grid has `sizes`, steps in
    time and points along each coordinate of space; None: those of a fine grid. The
    kernels in `kept`, a dict by state, are given, and the first prior of its boundary.
    """
    observations, setup = learned.observations, learned.setup
    functions, states = observations.functions, observations.states
    observed = np.unique(np.concatenate([d.points for d in functions]), axis=0)
    placed = np.concatenate(setup.collocation_points)
    points = np.concatenate([placed, observed])
    d = points.shape[1]
    axis = time_axis(setup, d, observations.periods)
    space = np.delete(np.arange(d), axis)
    order = order_in_time(setup, axis)
    periods = np.array(observations.periods or (np.inf,) * d)[space]
    n_ends = [[(order_along(setup, i, s) + 1) // 2 for i in space] for s in states]
    given = learned, points, order, noise, first_noise, exact
    priors = boundary_priors(*given, kept or {})
    box = box_around(observed, placed)
    sizes = sizes or GridSizes().of(d)[1]
    grid = EvolutionGrid(*box, axis, *sizes, n_ends, order, None, states, periods)
    given = _observed(grid, learned), priors[:-1], known_functions(setup)
    return EvolutionProblem(learned, grid, *given, priors[-1])


def _observed(grid, learned):
    """Interpolation to the observations of each function, sorted by operator."""
    return tuple(
        vstack([grid.interpolation(*each) for each in data.functionals], format="csr")
        for data in learned.observations.functions
    )

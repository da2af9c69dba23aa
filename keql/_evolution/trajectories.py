"""States of ordinary differential equations that obey these exactly.

Between times, the nodes, a trajectory is integrated; the nodes need not fit together
until the end: the equations are linearised at all of them (multiple shooting), so that
the change of every node is an affine function of those of weights and initial values,

    dy_{k+1} = A_k dy_k + B_k dw + g_k    becomes    dy_k = r_k + N_k dw + M_k dy_0,

with the gap g_k between the end of a step and the next node, and observations tell both
(:mod:`keql._evolution.initial_values`). In the step after, the equations are linearised
at the nodes found, whose gaps are of second order, so that rounding errors do not
matter although N_k and M_k grow. Bock, "Recent advances in parameter
identification techniques for ODE", 1983.
"""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from keql._evolution.driven.nodes import DrivenNodes
from keql._evolution.driven.noise import process_noise
from keql._evolution.driven.regression import NoisyRegression
from keql._evolution.driven.smoother import NoisyRows, Smoother
from keql._evolution.flow import flow_of
from keql._evolution.initial_values import (
    InitialPrior,
    InitialValueRegression,
    LatePosterior,
    Rows,
)
from keql._evolution.trajectory import (
    NoisyTrajectory,
    Trajectory,
    TrajectoryEvaluation,
    TrajectoryIterate,
    TrajectoryLimits,
    entry_of,
    hidden_sizes,
    nodes_of,
    relative_changes,
    rounding_of,
    values_at,
)
from keql._numerics.linalg import largest_factor, rms, size_or_one
from keql._observations.data import noise_range
from keql.equation import layout_of


@dataclass(frozen=True)
class TrajectoryProblem:
    """Trajectories of all functions: full steps make them solve the equations.

    learned : LearnedModel. Observations and equations; its states are those outside of
        the observed times.
    times : list of ndarray of shape (K_m,). The nodes of each function.
    prior : InitialPrior. From which a linearisation takes the one of most likelihood.
    limits : TrajectoryLimits.
    process : list of ProcessNoise, one for each function, or None. None: the equations
        hold exactly.
    """

    learned: object
    times: list
    prior: InitialPrior
    limits: TrajectoryLimits
    process: list | None = None
    is_exact = True
    boundary_kernel = None

    @property
    def functions(self):
        """Observations of each function."""
        return self.learned.observations.functions

    def flow(self, m, equations=None):
        """The vector field of one function."""
        return flow_of(self.learned, m, equations)

    @property
    def layout(self):
        """Where derivatives of the states stand in the nodes."""
        return layout_of(self.learned.equations[0], None)

    def start(self, learned=None):
        """The iterate of a learned model's equations and states."""
        learned = learned or self.learned
        layout, pairs = self.layout, zip(learned.states, self.times, strict=True)
        nodes = [values_at(own, t, layout, learned.variables) for own, t in pairs]
        return TrajectoryIterate(tuple(learned.equations), nodes)

    def on_grid_of(self, other):
        """The same problem at the nodes of another one, with its prior."""
        return replace(self, times=other.times, prior=other.prior)

    def evaluate(self, iterate):
        """Residuals and objective of an iterate, its nodes taken as they are."""
        residuals, precisions = [], []
        for m, data in enumerate(self.functions):
            residuals.append(data.values - iterate.nodes[m][self._seen(m)])
            precisions.append(data.weights / self.prior.noise[data.index] ** 2)
        residuals = np.concatenate(residuals)
        weights = iterate.weights
        misfit = np.sum(residuals**2 * np.concatenate(precisions))
        norms = np.sum(weights**2) / self.prior.scale**2
        norms += sum(np.sum((n[0] / self.prior.spread) ** 2) for n in iterate.nodes)
        norms += iterate.squared_jumps
        return TrajectoryEvaluation(iterate, residuals, 0.5 * float(misfit + norms))

    def _seen(self, m):
        """Positions in the nodes (K, D) of what each observation of a function is."""
        data, layout = self.functions[m], self.layout
        rows = np.searchsorted(self.times[m], data.points[:, 0])
        columns = [entry_of(operator, layout) for operator in data.operators]
        return rows, np.array(columns)[data.index]

    def linearise(self, evaluation):
        """The model at an evaluation; None if the equations cannot be integrated."""
        iterate = evaluation.iterate
        responses = self.responses(iterate)
        if responses is None:
            return None
        regression = self.regression(iterate, responses).with_best_prior()
        if not np.isfinite(regression.loss):
            return None
        problem = replace(self, prior=regression.prior)
        if regression.prior.drive is not None:
            problem, responses = problem._with_found_noise(responses)
        smoothed = problem.smoothed(responses)
        return TrajectoryModel(problem, iterate, *smoothed, regression)

    def driven(self, units):
        """The problem with noise in its equations whose level is to be found.

        units : ndarray of shape (E,). Sizes of what the equations explain; zero for
            those that hold exactly.
        """
        ones, first = np.ones(len(units)), self.limits.first_drive
        lowest = self.prior.lowest * self.limits.least_beside / self.limits.least_noise
        prior = replace(self.prior, lowest=lowest, drive=ones, first_drive=first)
        return replace(
            self, prior=prior, process=process_noise(self.learned.setup, units)
        )

    def _with_found_noise(self, responses):
        """The problem whose process has the level that is found, and its NoisyRows."""
        drive = self.prior.drive
        prior = replace(self.prior, drive=np.ones_like(drive), first_drive=())
        process = [own.times(drive) for own in self.process]
        responses = [own.driven(drive) for own in responses]
        return replace(self, prior=prior, process=process), responses

    def responses(self, iterate):
        """What :meth:`Flow.respond` says of each function; None if one diverges.

        With noise in the equations their NoisyRows instead.
        """
        responses = []
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for m, nodes in enumerate(iterate.nodes):
                find = self._respond if self.process is None else self._noisy_rows
                response = find(m, iterate, nodes)
                if response is None:
                    return None
                responses.append(response)
        return responses

    def regression(self, iterate, responses, center=None):
        """Weights and initial values from the observations, with the prior as it is."""
        center = iterate.weights if center is None else center
        if self.process is not None:
            rows = [own.observed for own in responses]
            return NoisyRegression(rows, center, self.prior)
        rows = [*map(self._rows, range(len(responses)), iterate.nodes, responses)]
        return InitialValueRegression(rows, center, self.prior)

    def _respond(self, m, iterate, nodes):
        """As :meth:`Flow.respond` has it; None also if it grows too much."""
        response = self.flow(m, iterate.equations).respond(self.times[m], nodes)
        if response is None:
            return None
        # In units of the states and the time: spreads have those of the nodes.
        spread, on_initial = self.prior.spread, response[:, :, -nodes.shape[1] :]
        growth = np.max(np.abs(on_initial) * spread / spread[:, None])
        is_finite = np.max(np.abs(response)) < largest_factor()
        return response if is_finite and growth < self.limits.largest_growth else None

    def _rows(self, m, nodes, response):
        """The observations of a function, as a regression sees them."""
        data, seen, D = self.functions[m], self._seen(m), nodes.shape[1]
        own = response[seen]
        return Rows(
            data.values - nodes[seen] - own[:, 0],
            own[:, 1:-D],
            own[:, -D:],
            nodes[0],
            data.index,
            data.weights,
        )

    def _noisy_rows(self, m, iterate, nodes):
        """The observations of a function with jumps; None if it diverges."""
        flow, times = self.flow(m, iterate.equations), self.times[m]
        data, (rows, columns) = self.functions[m], self._seen(m)
        h, D = np.diff(times), nodes.shape[1]
        ends, slopes = flow.step(times[:-1], h, nodes[:-1])
        noise = self.process[m].between(flow, times, nodes, self.prior.spread)
        if not (np.all(np.isfinite(ends)) and np.all(np.isfinite(slopes))):
            return None
        is_found = self.prior.drive is not None
        roots = noise.roots(h) if is_found else noise.root(h)
        if not np.all(np.isfinite(roots)):
            return None
        own = NoisyRows(
            slopes[:, :, :D],
            roots,
            np.dstack([ends - nodes[1:], slopes[:, :, D:]]),
            data.values - nodes[rows, columns],
            rows,
            columns,
            nodes[0],
            data.index,
            data.weights,
            noise.loads.shape[2] if is_found else 1,
        )
        first = self._smoother(own.observed)
        is_tame = first.is_tame(self.prior.spread, self.limits.largest_growth)
        return own if is_tame else None

    def _smoother(self, own):
        return Smoother(own, self.prior.noise[own.index] / np.sqrt(own.weights))

    def smoothed(self, responses):
        """Changes of the nodes as arrays, and the Smoother of each function or None."""
        if self.process is None:
            return responses, None
        smoothers = [*map(self._smoother, responses)]
        return [smoother.response for smoother in smoothers], smoothers

    def change(self, before, after):
        """Largest root mean square change of what is observed, relative to its size.

        Changes of a hidden state need not show there to first order. Of it the squares
        count, which is the order of what a linear step is wrong by.
        """
        layout, operators = self.layout, self.learned.observations.operators
        seen = [entry_of(operator, layout) for operator in operators]
        changes = relative_changes(before.nodes, after.nodes)
        return float(np.max(np.r_[changes[seen], changes[self.hidden] ** 2]))

    @property
    def hidden(self):
        """Positions in y of states of which nothing was observed."""
        names, observations = self.layout.names, self.learned.observations
        seen = {state for each in observations.operators for state in each.states}
        return [names.index(own) for own in observations.states if own not in seen]

    def step_errors(self, iterate):
        """Errors of all steps of each function: a list of arrays (K_m - 1, D).

        Full steps beside two of half their length, relative to the size of the state.
        """
        errors = []
        for m, (times, nodes) in enumerate(zip(self.times, iterate.nodes, strict=True)):
            flow, t, h = self.flow(m, iterate.equations), times[:-1], np.diff(times)
            both = np.tile(t, 2), np.r_[h, h / 2], np.tile(nodes[:-1], (2, 1))
            once, half = np.split(flow.step(*both, with_slopes=False)[0], 2)
            twice, _ = flow.step(t + h / 2, h / 2, half, with_slopes=False)
            sizes = [size_or_one(column) for column in nodes.T]
            errors.append((once - twice) / sizes)
        return errors

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def resolved(self, iterate):
        """The problem and the iterate with steps that are short enough for these.

        None if all are.
        """
        noise = np.min(self.prior.noise / self.learned.observations.sizes())
        times, nodes, counts = [], [], []
        of_steps = self.step_errors(iterate)
        for own, errors, at in zip(self.times, of_steps, iterate.nodes, strict=True):
            part = self.limits.part_of_noise * noise / len(errors)
            error = np.max(np.abs(errors), axis=1)
            error /= max(part, self.limits.accuracy, rounding_of(own, at))
            counts.append(np.clip(np.ceil(np.nan_to_num(error) ** (1 / 9)), 1, 20))
        if np.all(np.concatenate(counts) == 1):
            return None
        for m, (own, n) in enumerate(zip(self.times, counts, strict=True)):
            flow = self.flow(m, iterate.equations)
            finer = [
                np.linspace(a, b, int(k) + 1)[:-1]
                for a, b, k in zip(own, own[1:], n, strict=False)
            ]
            finer = np.append(np.concatenate(finer), own[-1])
            k = np.minimum(np.searchsorted(own, finer, "right") - 1, len(own) - 2)
            step = own[k], finer - own[k], iterate.nodes[m][k]
            times.append(finer)
            nodes.append(flow.step(*step, with_slopes=False)[0])
        return replace(self, times=times), replace(iterate, nodes=nodes)

    with_short_steps = resolved

    def resolution(self, iterate):
        """How fine the steps are, as text, and the change of states with halved ones.

        Root mean square at the observations, in units of the noise, for the weights of
        the iterate and the initial values that suit best: these may matter too much.
        """
        times, nodes = [], []
        for m, (own, before) in enumerate(zip(self.times, iterate.nodes, strict=True)):
            flow, h = self.flow(m, iterate.equations), np.diff(own) / 2
            between, _ = flow.step(own[:-1], h, before[:-1], with_slopes=False)
            places = np.arange(1, len(own))
            times.append(np.insert(own, places, own[:-1] + h))
            nodes.append(np.insert(before, places, between, axis=0))
        halved, there = replace(self, times=times), replace(iterate, nodes=nodes)
        text = f"{sum(map(len, self.times)) - len(self.times)} steps in time"
        responses, changes = halved.responses(there), []
        if responses is None:
            return text, np.inf
        responses, _ = self.smoothed(responses)
        for m, data in enumerate(self.functions):
            scale = data.weights**0.5 / self.prior.noise[data.index]
            own = scale[:, None] * responses[m][halved._seen(m)]
            initial = own[:, -nodes[m].shape[1] :]
            follow, *_ = np.linalg.lstsq(initial, own[:, 0], rcond=None)
            changes.append(own[:, 0] - initial @ follow)
        return text, rms(np.concatenate(changes))

    def effects_on_highest(self, iterate):
        """Slopes (n, p) of the highest derivatives at all nodes in the weights.

        Each state in units of the size of its highest derivative.
        """
        effects, weights = [], iterate.weights
        for m, (times, nodes) in enumerate(zip(self.times, iterate.nodes, strict=True)):
            flow = self.flow(m, iterate.equations)
            _, _, on_weights = flow.velocity(times, nodes)
            effects.append(on_weights[:, flow.layout.position_of_highest()])
        effects = np.concatenate(effects)
        sizes = [size_or_one(values) for values in (effects @ weights).T]
        effects = np.moveaxis(effects, 1, 0) / np.reshape(sizes, (-1, 1, 1))
        return np.concatenate(effects)

    def interpolate(self, start, end, fraction):
        """An iterate on the straight line between two others."""

        def between(first, second):
            return (1 - fraction) * first + fraction * second

        equations = []
        for first, second in zip(start.equations, end.equations, strict=True):
            equation = copy(second)
            equation.weights = between(first.weights, second.weights)
            equations.append(equation)
        nodes = [*map(between, start.nodes, end.nodes)]
        jumps = between(start.squared_jumps, end.squared_jumps)
        return TrajectoryIterate(tuple(equations), nodes, jumps)

    def assemble(self, model):
        """The learned model whose states are those of a linearisation's solution."""
        states, setup = model.posterior_states(), self.learned.setup
        features = setup.split(setup.features_of(states))
        equations = []
        for equation, S in zip(model.solution.equations, features, strict=True):
            equation = copy(equation)
            equation.training_features = S
            equations.append(equation)
        return replace(
            self.learned,
            states=states,
            equations=tuple(equations),
            observation_noise=self.prior.noise,
            equation_noise=self._equation_noise(),
        )

    def _equation_noise(self):
        """The noise levels (E,) of the equations, in the units of their forcing."""
        if self.process is None:
            return np.zeros(len(self.learned.equations))
        return self.process[0].levels


class TrajectoryModel:
    """A trajectory problem linearised at an iterate.

    problem : TrajectoryProblem. With the prior of maximum likelihood.
    iterate : TrajectoryIterate. Where.
    responses : list of ndarray of shape (K_m, D, 1 + p + D). Changes of the nodes of
        each function as affine functions of those of weights and initial values.
    smoothers : list of Smoother or None. With noise in the equations, of each function.
    regression : InitialValueRegression. Weights and initial values from observations.
    """

    def __init__(self, problem, iterate, responses, smoothers, regression):
        self.problem, self.iterate, self.smoothers = problem, iterate, smoothers
        self.responses, self.regression = responses, regression
        sizes = hidden_sizes(iterate.nodes, responses, problem.hidden)
        change, initial = regression.changes_keeping(*sizes)
        weights = regression.center + change
        self._changes = [np.concatenate([[1.0], change, own]) for own in initial]
        nodes = [
            before + response @ own
            for before, response, own in zip(
                iterate.nodes, responses, self._changes, strict=True
            )
        ]
        jumps = [
            smoother.squared_jumps(own)
            for smoother, own in zip(smoothers or [], self._changes, strict=False)
        ]
        equations, start = [], 0
        for equation in iterate.equations:
            size = len(equation.weights)
            equation = copy(equation)
            equation.weights = weights[start : start + size]
            part = slice(start, start + size)
            equation.posterior = LatePosterior(regression, part) if size else None
            equations.append(equation)
            start += size
        self.solution = TrajectoryIterate(tuple(equations), nodes, sum(jumps))

    @cached_property
    def evaluation(self):
        """The iterate with the objective that the problem's prior gives."""
        return self.problem.evaluate(self.iterate)

    def step(self, damping):
        """The full Gauss-Newton iterate, and the predicted decrease of the loss."""
        if damping:
            raise ValueError(f"damping={damping}: full steps are not damped.")
        return self.solution, self.evaluation.loss - self.regression.loss

    def leave_one_out(self):
        """Errors of predicting each observation from all others, for each function."""
        return self.regression.leave_one_out()

    def log_evidence(self):
        """Log likelihood of the observations, weights and initial values averaged."""
        return self.regression.log_evidence()

    def posterior_weights(self):
        """What the observations say about the weights of all equations."""
        return self.regression.posterior_weights()

    def posterior_states(self):
        """Trajectories with their uncertainty, one for each function."""
        states, roots = [], self.regression.roots_of_covariance()
        for m, (nodes, root, outside) in enumerate(
            zip(self.solution.nodes, roots, self.problem.learned.states, strict=True)
        ):
            flow = self.problem.flow(m, self.solution.equations)
            given = flow, self.problem.times[m], nodes, root, outside
            if self.smoothers is None:
                states.append(Trajectory(*given))
                continue
            drive, units = self.problem.process[m], self.problem.prior.spread
            own = self.smoothers[m], self.responses[m], self._changes[m]
            driven = DrivenNodes.found(drive, units, *own)
            states.append(NoisyTrajectory(*given, driven))
        return states


def make_trajectory_problem(
    learned, given_noise, limits=None, equation_noise=None, finds_noise=False
):
    """The problem of exact trajectories for a learned model.

    The equations can be integrated (:func:`why_no_trajectories` says so).
    `given_noise` (J,) has the noise levels of the observed operators; nan where they
    are found. `equation_noise` (E,) has those of the equations, nan or zero for those
    that hold exactly; None: all do. With `finds_noise` those are units of levels that
    are found.
    """
    limits, observations = limits or TrajectoryLimits(), learned.observations
    flow = flow_of(learned, 0)
    sizes = observations.sizes()
    noise = np.where(np.isnan(given_noise), learned.observation_noise, given_noise)
    lowest, _ = noise_range(sizes, limits.least_noise)
    process = process_noise(learned.setup, equation_noise)
    is_noisy = process is None and np.all(noise > limits.noisy * noise_range(sizes)[0])
    steps = limits.steps_in_noise if is_noisy else limits.steps
    times = [nodes_of(data.points[:, 0], steps) for data in observations.functions]
    spread, gap = [], np.mean([np.mean(np.diff(np.unique(t))) for t in times])
    names = [operator.name for operator in observations.operators]
    by_state = dict(zip(names, sizes, strict=True))
    for state, order in flow.layout.orders.items():
        size = by_state.get(state, 1.0)
        spread += [limits.spread * size / gap**k for k in range(order)]
    prior = InitialPrior(
        np.array(spread),
        np.maximum(noise, lowest),
        np.isnan(given_noise),
        lowest,
        first_noise=np.outer(limits.first_noise, sizes),
    )
    problem = TrajectoryProblem(learned, times, prior, limits, process)
    return problem.driven(equation_noise) if finds_noise else problem

"""States of ordinary differential equations that obey these exactly.

Between times, the nodes, a trajectory is integrated; the nodes need not fit together
until the end: the equations are linearised at all of them (multiple shooting), so that
every node is an affine function of the weights and of the initial values,

    y_{k+1} = A_k y_k + B_k w + d_k    becomes    y_k = r_k + N_k w + M_k y_0,

and observations tell both (:mod:`keql._evolution.initial_values`). In the step after,
the equations are linearised at the nodes found. Bock, "Recent advances in parameter
identification techniques for ODE", 1983.
"""

from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from keql._evolution.flow import Flow
from keql._evolution.initial_values import (
    InitialPrior,
    InitialValueRegression,
    Rows,
)
from keql._numerics.linalg import rms
from keql._observations.data import noise_range
from keql.operators import parse_operator


@dataclass(frozen=True)
class TrajectoryLimits:
    """How trajectories are divided, and which are too long.

    steps : int. Steps between the first and the last time at least; those of order 8
        that resolve twenty oscillations to about nine digits.
    largest_growth : float. Factor by which perturbations of the initial values may
        grow until they are lost in rounding errors.
    spread : float. Prior standard deviation of initial values, in units of the size of
        the state; of their derivatives, over the time between observations.
    """

    steps: int = 200
    largest_growth: float = 1e10
    spread: float = 100.0


def why_no_trajectories(learned):
    """Why states cannot be integrated in time alone, as a clause; empty if they can."""
    setup, observations = learned.setup, learned.observations
    if len(learned.variables) != 1:
        return "there are several coordinates"
    if setup.has_forcing:
        return "a forcing is given"
    try:
        flow = Flow(learned.equations, _inputs_of(setup, 0))
    except ValueError as error:
        return str(error)
    if len(learned.equations) != len(observations.states):
        return "there are not as many equations as states"
    highest = {column - flow.layout.offset for column in _columns_of_highest(flow)}
    depends = {q for terms in setup.equations for q in terms.depends_on or ()}
    if highest & depends:
        return "an unknown part depends on a highest derivative"
    for operator in observations.operators:
        if (
            len(operator.parts) > 1
            or operator.order >= flow.layout.orders[operator.state]
        ):
            return f"values of {operator.name} were observed"
    points = observations.functions[0].points
    if not _is_explicit(flow, float(points.min())):
        return "the equations are not solved for the highest derivatives"
    return ""


def _columns_of_highest(flow):
    return [flow.layout.offset + j for j, _ in flow.layout.solved_for]


def _is_explicit(flow, t):
    """Whether the highest derivatives enter linearly, with slopes that are numbers.

    They may depend on time and inputs, not on the states, as a step takes the slopes of
    the equations in these for those of the solved equations.
    """
    rng = np.random.RandomState(0)
    n_highest = len(flow.layout.states)
    y, highest = rng.standard_normal((flow.n_states, 3)), np.zeros((n_highest, 3))
    highest[:, 1:] = rng.standard_normal((n_highest, 2))
    with np.errstate(all="ignore"):  # where a known part is not defined
        M = flow.mass(np.full(3, t), y, highest)
    size = np.max(np.abs(M), axis=(0, 2), keepdims=True)
    if not (np.all(np.isfinite(M)) and np.all(size > 0)):
        return False
    constant = np.max(np.ptp(M, axis=0) / size[0]) < 1e-8
    return constant and np.linalg.matrix_rank(M[0] / size[0]) == M.shape[1]


def _inputs_of(setup, m):
    """The inputs of one function as {name: function of points}."""

    def column(i):
        return lambda points: setup.inputs.at(m, points)[:, i]

    return {name: column(i) for i, name in enumerate(setup.inputs.names)}


@dataclass(frozen=True)
class TrajectoryIterate:
    """Equations with their weights, and nodes (K_m, D) of each function."""

    equations: tuple
    nodes: list


@dataclass(frozen=True)
class TrajectoryEvaluation:
    """An iterate, observations less its states (N,), and the objective."""

    iterate: TrajectoryIterate
    residuals: np.ndarray
    loss: float


@dataclass(frozen=True)
class TrajectoryProblem:
    """Trajectories of all functions: full steps make them solve the equations.

    learned : LearnedModel. Observations and equations; its states are those outside of
        the observed times.
    times : list of ndarray of shape (K_m,). The nodes of each function.
    prior : InitialPrior. From which a linearisation takes the one of most likelihood.
    limits : TrajectoryLimits.
    """

    learned: object
    times: list
    prior: InitialPrior
    limits: TrajectoryLimits
    is_exact = True
    boundary_kernel = None

    @property
    def functions(self):
        """Observations of each function."""
        return self.learned.observations.functions

    def flow(self, m, equations=None):
        """The vector field of one function."""
        equations = self.learned.equations if equations is None else equations
        return Flow(equations, _inputs_of(self.learned.setup, m))

    def start(self, learned=None):
        """The iterate of a learned model's equations and states."""
        learned = learned or self.learned
        layout, nodes = self.flow(0).layout, []
        for state, times in zip(learned.states, self.times, strict=True):
            nodes.append(_values_at(state, times, layout, learned.variables))
        return TrajectoryIterate(tuple(learned.equations), nodes)

    def evaluate(self, iterate):
        """Residuals and objective of an iterate, its nodes taken as they are."""
        residuals, precisions = [], []
        for m, data in enumerate(self.functions):
            seen = self._seen(m)
            residuals.append(data.values - iterate.nodes[m][seen])
            precisions.append(data.weights / self.prior.noise[data.index] ** 2)
        residuals = np.concatenate(residuals)
        weights = np.concatenate([e.weights for e in iterate.equations])
        misfit = np.sum(residuals**2 * np.concatenate(precisions))
        norms = np.sum(weights**2) / self.prior.scale**2
        norms += sum(np.sum((n[0] / self.prior.spread) ** 2) for n in iterate.nodes)
        return TrajectoryEvaluation(iterate, residuals, 0.5 * float(misfit + norms))

    def _seen(self, m):
        """Positions in the nodes (K, D) of what each observation of a function is."""
        data, layout = self.functions[m], self.flow(m).layout
        rows = np.searchsorted(self.times[m], data.points[:, 0])
        columns = [_entry_of(operator, layout) for operator in data.operators]
        return rows, np.array(columns)[data.index]

    def linearise(self, evaluation):
        """The model at an evaluation; None if the equations cannot be integrated."""
        iterate = evaluation.iterate
        responses = []
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for m, nodes in enumerate(iterate.nodes):
                response = self._respond(m, iterate, nodes)
                if response is None:
                    return None
                responses.append(response)
        rows = self._rows(responses)
        regression = InitialValueRegression(rows, self.prior).with_best_prior()
        problem = replace(self, prior=regression.prior)
        model = TrajectoryModel(problem, iterate, responses, regression)
        return model if np.isfinite(regression.loss) else None

    def _respond(self, m, iterate, nodes):
        """Nodes (K, D, 1 + p + D) as affine functions of weights and initial values."""
        times, flow = self.times[m], self.flow(m, iterate.equations)
        weights = np.concatenate([e.weights for e in iterate.equations])
        D, p = nodes.shape[1], len(weights)
        ends, slopes = flow.step(times[:-1], np.diff(times), nodes[:-1])
        if not (np.all(np.isfinite(ends)) and np.all(np.isfinite(slopes))):
            return None
        A, B = slopes[:, :, :D], slopes[:, :, D:]
        shift = ends - np.einsum("kij,kj->ki", A, nodes[:-1]) - B @ weights
        response = np.zeros((len(times), D, 1 + p + D))
        response[0, :, 1 + p :] = np.eye(D)
        for k in range(len(ends)):
            response[k + 1] = A[k] @ response[k]
            response[k + 1, :, 0] += shift[k]
            response[k + 1, :, 1 : 1 + p] += B[k]
        growth = np.max(np.abs(response[:, :, 1 + p :]))
        return response if growth < self.limits.largest_growth else None

    def _rows(self, responses):
        p = responses[0].shape[2] - 1 - responses[0].shape[1]
        targets, on_weights, on_initial, index, precisions = [], [], [], [], []
        M, D = len(responses), responses[0].shape[1]
        for m, (data, response) in enumerate(
            zip(self.functions, responses, strict=True)
        ):
            rows = response[self._seen(m)]
            targets.append(data.values - rows[:, 0])
            on_weights.append(rows[:, 1 : 1 + p])
            own = np.zeros((len(rows), M * D))
            own[:, m * D : (m + 1) * D] = rows[:, 1 + p :]
            on_initial.append(own)
            index.append(data.index)
            precisions.append(data.weights)
        ends = np.cumsum([len(t) for t in targets])[:-1]
        parts = targets, on_weights, on_initial, index, precisions
        return Rows(*map(np.concatenate, parts), ends)

    def change(self, before, after):
        """Largest root mean square change of what is observed, relative to its size.

        The unit of a state that was never observed, and what is added to it, are free.
        """
        layout = self.flow(0).layout
        seen = [_entry_of(L, layout) for L in self.learned.observations.operators]
        old = np.concatenate(before.nodes)[:, seen]
        new = np.concatenate(after.nodes)[:, seen]
        sizes = np.array([rms(column) or 1.0 for column in new.T])
        return float(np.max([rms(c) for c in ((new - old) / sizes).T]))

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
        return TrajectoryIterate(tuple(equations), nodes)

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
            equation_noise=np.zeros(len(equations)),
        )


def _entry_of(operator, layout):
    """Position in y of a derivative below the highest of a state."""
    state, (order,), _ = operator.parts[0]
    return layout.names.index(f"{state}_{layout.variable * order}" if order else state)


def _values_at(state, times, layout, variables):
    """Values (K, D) of a state and of its lower derivatives."""
    operators = [
        parse_operator(name, variables, layout.states) for name in layout.names
    ]
    values = [state.evaluate(times[:, None], operator) for operator in operators]
    return np.column_stack(values)


class TrajectoryModel:
    """A trajectory problem linearised at an iterate.

    problem : TrajectoryProblem. With the prior of maximum likelihood.
    iterate : TrajectoryIterate. Where.
    responses : list of ndarray of shape (K_m, D, 1 + p + D). Nodes of each function as
        affine functions of weights and initial values.
    regression : InitialValueRegression. These from the observations.
    """

    def __init__(self, problem, iterate, responses, regression):
        self.problem, self.iterate = problem, iterate
        self.responses, self.regression = responses, regression
        unknowns, p = regression.unknowns, regression.p
        D = responses[0].shape[1]
        nodes = []
        for m, response in enumerate(responses):
            initial = unknowns[p + m * D : p + (m + 1) * D]
            nodes.append(response @ np.r_[1.0, unknowns[:p], initial])
        posterior, equations, start = regression.posterior_weights(), [], 0
        for equation in iterate.equations:
            size = len(equation.weights)
            equation = copy(equation)
            equation.weights = unknowns[start : start + size]
            equation.posterior = posterior.part(start, start + size) if size else None
            equations.append(equation)
            start += size
        self.solution = TrajectoryIterate(tuple(equations), nodes)

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
        root, p = self.regression.root_of_covariance(), self.regression.p
        states, D = [], self.responses[0].shape[1]
        for m, (nodes, outside) in enumerate(
            zip(self.solution.nodes, self.problem.learned.states, strict=True)
        ):
            rows = np.r_[np.arange(p), np.arange(p + m * D, p + (m + 1) * D)]
            flow = self.problem.flow(m, self.solution.equations)
            times = self.problem.times[m]
            states.append(Trajectory(flow, times, nodes, root[rows], outside))
        return states


class Trajectory:
    """A state integrated from its nodes, and another one elsewhere.

    flow : Flow. The vector field.
    times, nodes : ndarray of shape (K,), (K, D). Where, and what it is there.
    root : ndarray of shape (p + D, q). A root of the posterior covariance of weights
        and initial values.
    outside : State. Before the first and after the last time, and for derivatives
        above the highest of the equations.
    """

    def __init__(self, flow, times, nodes, root, outside):
        self.flow, self.times, self.nodes = flow, times, nodes
        self.root, self.outside = root, outside

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, 1)."""
        return self._gather(points, operator, "evaluate", self._inside)

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, never negative."""
        return self._gather(points, operator, "variance", self._variance_inside)

    def _gather(self, points, operator, name, inside):
        t, values = points[:, 0], np.empty(len(points))
        layout = self.flow.layout
        within = (t >= self.times[0]) & (t <= self.times[-1])
        within &= all(a[0] <= layout.orders[state] for state, a, _ in operator.parts)
        if within.any():
            values[within] = inside(t[within], operator)
        if not within.all():
            values[~within] = getattr(self.outside, name)(points[~within], operator)
        return values

    def _from_nodes(self, t, with_slopes):
        """y (n, D) at times, its slopes in nodes and weights, and the nodes used."""
        k = np.clip(np.searchsorted(self.times, t, side="right") - 1, 0, None)
        k = np.minimum(k, len(self.times) - 2)
        step = self.times[k], t - self.times[k], self.nodes[k]
        y, slopes = self.flow.step(*step, with_slopes)
        return y, slopes, k

    def _inside(self, t, operator):
        y, _, _ = self._from_nodes(t, with_slopes=False)
        velocity, _, _ = self.flow.velocity(t, y, with_slopes=False)
        columns = self._columns(operator)
        return sum(f * (velocity if top else y)[:, i] for top, i, f in columns)

    def _columns(self, operator):
        """Triples (is a highest derivative, position in dy/dt or y, factor)."""
        layout, columns = self.flow.layout, []
        highest = dict(zip(layout.states, layout.position_of_highest(), strict=True))
        for state, (order,), factor in operator.parts:
            if order == layout.orders[state]:
                columns.append((True, highest[state], factor))
            else:
                name = f"{state}_{layout.variable * order}" if order else state
                columns.append((False, layout.names.index(name), factor))
        return columns

    def _variance_inside(self, t, operator):
        y, slopes, k = self._from_nodes(t, with_slopes=True)
        D = y.shape[1]
        effects = slopes[:, :, :D] @ self._responses[k]
        p = effects.shape[2] - D
        effects[:, :, :p] += slopes[:, :, D:]
        _, on_y, on_w = self.flow.velocity(t, y)
        rate = on_y @ effects
        rate[:, :, :p] += on_w
        total = sum(
            f * (rate if top else effects)[:, i]
            for top, i, f in self._columns(operator)
        )
        return np.sum((total @ self.root) ** 2, axis=1)

    @cached_property
    def _responses(self):
        """Slopes (K, D, p + D) of the nodes in weights and initial values."""
        steps = self.times[:-1], np.diff(self.times), self.nodes[:-1]
        _, slopes = self.flow.step(*steps)
        D = self.nodes.shape[1]
        p = slopes.shape[2] - D
        responses = np.zeros((len(self.times), D, p + D))
        responses[0, :, p:] = np.eye(D)
        for k, slope in enumerate(slopes):
            responses[k + 1] = slope[:, :D] @ responses[k]
            responses[k + 1, :, :p] += slope[:, D:]
        return responses

    def __getstate__(self):
        # The slopes are computed again when variances are asked for.
        return {k: v for k, v in vars(self).items() if k != "_responses"}


def make_trajectory_problem(learned, given_noise, limits=None):
    """The problem of exact trajectories for a learned model.

    The equations can be integrated (:func:`why_no_trajectories` says so).
    `given_noise` (J,) has the noise levels of the observed operators; nan where they
    are found.
    """
    limits, observations = limits or TrajectoryLimits(), learned.observations
    flow = Flow(learned.equations, _inputs_of(learned.setup, 0))
    times = [_nodes(data.points[:, 0], limits) for data in observations.functions]
    sizes = observations.sizes()
    noise = np.where(np.isnan(given_noise), learned.observation_noise, given_noise)
    lowest, _ = noise_range(sizes)
    spread, gap = [], np.mean([np.mean(np.diff(np.unique(t))) for t in times])
    by_state = {
        operator.name: size
        for operator, size in zip(observations.operators, sizes, strict=True)
    }
    for state, order in flow.layout.orders.items():
        size = by_state.get(state, 1.0)
        spread += [limits.spread * size / gap**k for k in range(order)]
    prior = InitialPrior(
        np.array(spread), np.maximum(noise, lowest), np.isnan(given_noise), lowest
    )
    return TrajectoryProblem(learned, times, prior, limits)


def _nodes(observed, limits):
    """Observed times, and others between where they are far apart."""
    observed = np.unique(observed)
    longest = np.ptp(observed) / limits.steps
    times = [observed[:1]]
    for start, stop in zip(observed[:-1], observed[1:], strict=True):
        n = max(1, int(np.ceil((stop - start) / longest - 1e-9)))
        times.append(np.linspace(start, stop, n + 1)[1:])
    return np.concatenate(times)

"""A fitted state of ordinary differential equations: integrated from what was found."""

import itertools
from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy import linalg
from scipy.integrate import solve_ivp
from scipy.interpolate import BSpline

from keql._evolution.driven.noise import compressed
from keql._evolution.flow import Flow
from keql._numerics.linalg import rms, size_or_one
from keql._numerics.memory import in_chunks
from keql.exceptions import SimulationError
from keql.operators import parse_operator


def integrated_from(state, time, equations, inputs, forcing):
    """A Trajectory of learned equations from a state at one time on.

    state : State. With its uncertainty, taken to be independent of that of equations.
    time : float. Where the initial values are taken.
    equations : tuple of LearnedEquation. Ordinary differential equations.
    inputs, forcing : dict, tuple. As of a :class:`Flow`.

    Returns trajectory : Trajectory.
    """
    flow, at = Flow(equations, inputs, forcing), np.array([[time]])
    variables = (flow.layout.variable,)
    operators = [
        parse_operator(name, variables, flow.layout.states)
        for name in flow.layout.names
    ]
    initial = np.concatenate([state.evaluate(at, operator) for operator in operators])
    variances = np.concatenate([state.variance(at, L) for L in operators])
    weights = [e.posterior.root() for e in equations if len(e.weights)]
    root = linalg.block_diag(*weights, np.diag(np.sqrt(variances)))
    return Trajectory(flow, np.array([time]), initial[None], root, state)


class Trajectory:
    """A state integrated from its nodes, also before the first and after the last.

    flow : Flow. The vector field.
    times, nodes : ndarray of shape (K,), (K, D). Where, and what it is there.
    root : ndarray of shape (p + D, p + D). A root of the posterior covariance of
        weights and initial values.
    outside : State or None. For derivatives above the highest of the equations, and for
        times that the integration does not reach; None: these are an error.
    initial : int. Which node has the initial values.
    rtol : float. Relative tolerance of the integration beyond the nodes.
    largest : float. Size of the state, relative to that of the nodes, at which that
        ends.
    most : int. Evaluations of the vector field after which that is given up.
    """

    def __init__(
        self,
        flow,
        times,
        nodes,
        root,
        outside,
        initial=0,
        rtol=1e-9,
        largest=1e4,
        most=100_000,
    ):
        self.flow, self.times, self.nodes = flow, times, nodes
        self.root, self.outside, self.initial = root, outside, initial
        self.rtol, self.largest, self.most = rtol, largest, most

    def alone(self, times):
        """The trajectory up to times (n,), without another state beyond."""
        state = self._reaching(times)
        state.outside = None
        return state

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, 1)."""
        return self._gather(points, operator, "evaluate", type(self)._values)

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, never negative."""
        return self._gather(points, operator, "variance", type(self)._variances)

    def _gather(self, points, operator, name, integrated):
        t, values = points[:, 0], np.full(len(points), np.nan)
        orders = self.flow.layout.orders
        if len(t) and all(a[0] <= orders[state] for state, a, _ in operator.parts):
            state = self._reaching(t)
            known = (t >= state.times[0]) & (t <= state.times[-1])
            if known.any():
                # Steps of y have slopes in y and in the weights, at several stages.
                parts = in_chunks(t[known], 20 * state.nodes.shape[1] * len(self.root))
                values[known] = np.concatenate(
                    [integrated(state, part, operator) for part in parts]
                )
        left = np.isnan(values)
        if left.any() and self.outside is None:
            raise SimulationError(
                f"the equations cannot be integrated to {self.flow.layout.variable} = "
                f"{t[left][np.argmin(np.abs(t[left] - self.times[-1]))]:g}: their "
                "solution ends or leaves all bounds before, or a forcing that was given"
                " as values is not known there. Ask for earlier times, or give the "
                "forcing as a function.",
                float(np.max(t[~left], initial=self.times[-1])),
            )
        if left.any():
            values[left] = getattr(self.outside, name)(points[left], operator)
        return values

    def _values(self, t, operator):
        y, _ = self._at(t)
        velocity, _, _ = self.flow.velocity(t, y, with_slopes=False)
        columns = self._columns(operator)
        return sum(f * (velocity if top else y)[:, i] for top, i, f in columns)

    def _variances(self, t, operator):
        y, effects = self._at(t, self._responses())
        p = effects.shape[2] - y.shape[1]
        _, on_y, on_w = self.flow.velocity(t, y)
        rate = on_y @ effects
        rate[:, :, :p] += on_w
        total = sum(
            f * (rate if top else effects)[:, i]
            for top, i, f in self._columns(operator)
        )
        return np.sum((total @ self.root) ** 2, axis=1)

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

    def _responses(self):
        """Slopes (K, D, p + D) of the nodes in the weights and initial values.

        What the nodes lack to fit together does not matter. Not a number if steps are
        not finite.
        """
        begin = self.initial
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [
                self.flow.respond(self.times[rows], self.nodes[rows])
                for rows in (slice(begin, None, -1), slice(begin, None))
            ]
        if any(part is None for part in parts):
            D = self.nodes.shape[1]
            return np.full((*self.nodes.shape, sum(self.flow.sizes) + D), np.nan)
        return np.concatenate([parts[0][:0:-1], parts[1]])[:, :, 1:]

    def _at(self, t, responses=None):
        """y (n, D) at times among the nodes, and its slopes (n, D, p + D) from theirs.

        Without slopes of the nodes there are none.
        """
        k = np.searchsorted(self.times, t, side="right") - 1
        k = np.clip(k, 0, max(len(self.times) - 2, 0))
        step = self.times[k], t - self.times[k], self.nodes[k]
        y, slopes = self.flow.step(*step, with_slopes=responses is not None)
        if responses is None:
            return y, None
        D = y.shape[1]
        effects = slopes[:, :, :D] @ responses[k]
        effects[:, :, :-D] += slopes[:, :, D:]
        return y, effects

    def _reaching(self, t):
        """The trajectory with nodes as far as times (n,), or as far as it goes."""
        state = copy(self)
        t = t[self._has_forcing(t)]
        if np.min(t, initial=np.inf) < self.times[0]:
            times, nodes = self._beyond(t.min(), 0)
            state.initial += len(times)
            state.times = np.concatenate([times[::-1], state.times])
            state.nodes = np.concatenate([nodes[::-1], state.nodes])
        if np.max(t, initial=-np.inf) > self.times[-1]:
            times, nodes = self._beyond(t.max(), -1)
            state.times = np.concatenate([state.times, times])
            state.nodes = np.concatenate([state.nodes, nodes])
        return state

    def _beyond(self, end, k):
        """Times (K',) from node `k` to an end, without that node, and y (K', D)."""
        size, (begin, start) = rms(self.nodes) or 1.0, (self.times[k], self.nodes[k])
        evaluations = itertools.count(1)

        def rate(time, y):
            spent, done = next(evaluations), (time - begin) / (end - begin)
            # As hopeless: steps would have to become thousands of times as long.
            if spent > self.most or (spent > 0.05 * self.most and done < 1e-6):
                name = self.flow.layout.variable
                raise SimulationError(
                    f"the equations were integrated to {name} = {time:g} on the way to "
                    f"{end:g} in {spent} evaluations: X asks for too far a time.",
                    time,
                )
            t = np.array([time])
            return self.flow.velocity(t, y[None], with_slopes=False)[0][0]

        def ends(_, y):
            return self.largest * size - np.max(np.abs(y))

        ends.terminal = True
        how = {"method": "DOP853", "events": ends}
        how |= {"rtol": self.rtol, "atol": self.rtol * size}
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            solution = solve_ivp(rate, (begin, end), start, **how)
        return solution.t[1:], solution.y.T[1:]

    def _has_forcing(self, t):
        """Which of the times (n,) all right-hand sides are known at."""
        known = np.ones(len(t), dtype=bool)
        for f in self.flow.forcing:
            if isinstance(f, BSpline):  # of given values, which end somewhere
                known &= (t >= f.t[0]) & (t <= f.t[-1])
        return known


@dataclass(frozen=True)
class TrajectoryIterate:
    """Equations with their weights, and nodes (K_m, D) of each function.

    With noise in the equations, also the sum of squares of the jumps in its units.
    """

    equations: tuple
    nodes: list
    squared_jumps: float = 0.0

    @property
    def weights(self):
        """Those of all equations, one after another."""
        return np.concatenate([equation.weights for equation in self.equations])


@dataclass(frozen=True)
class TrajectoryEvaluation:
    """An iterate, observations less its states (N,), and the objective."""

    iterate: TrajectoryIterate
    residuals: np.ndarray
    loss: float


class NoisyTrajectory(Trajectory):
    """A state whose equations are driven by white noise, given its observations.

    Before the first and after the last observed time the noise has the mean zero. A
    highest derivative has the variance of the noise as residuals at collocation points
    have it: that of white noise itself is infinite.

    flow, times, nodes, root, outside : as of a :class:`Trajectory`.
    driven : DrivenNodes. What is known of the nodes.
    """

    def __init__(self, flow, times, nodes, root, outside, driven):
        super().__init__(flow, times, nodes, root, outside)
        self.driven = driven

    def _reaching(self, t):
        state = super()._reaching(t)
        if len(state.times) == len(self.times):
            return state
        n, last = state.initial - self.initial, state.initial + len(self.times) - 1
        with np.errstate(over="ignore", invalid="ignore"):
            if n:
                own = state.times[n::-1], state.nodes[n::-1]
                state.driven = state.driven.going_on(self.flow, *own, backwards=True)
            if last < len(state.times) - 1:
                own = state.times[last:], state.nodes[last:]
                state.driven = state.driven.going_on(self.flow, *own)
        return state

    def _between(self, t, with_slopes):
        """What is known at times (n,) among the nodes.

        A tuple of y (n, D), the slopes of a step from a node, the positions of these
        nodes and of those after the times, and the noise, what it has added since the
        node (n, D, D) and what is left of a change until the node after.
        """
        k = np.clip(
            np.searchsorted(self.times, t, side="right") - 1, 0, len(self.times) - 2
        )
        node = np.where(t < self.times[self.initial], k + 1, k)
        h = t - self.times[node]
        y, slopes = self.flow.step(self.times[node], h, self.nodes[node], with_slopes)
        driven = self.driven
        middle = (self.times[k] + self.times[k + 1]) / 2
        state = (self.nodes[k] + self.nodes[k + 1]) / 2
        noise = driven.process.near(self.flow, middle, state, driven.units)
        root, left = noise.root(h), noise.transition(self.times[k + 1] - t)
        # Nothing is known of the noise before the first time.
        left[t < self.times[self.initial]] = 0.0
        added = root @ np.swapaxes(root, 1, 2)
        later = np.swapaxes(left, 1, 2) @ driven.later[k + 1][:, :, None]
        y = y + (added @ later)[:, :, 0]
        return y, slopes, (node, k + 1), noise, root, left

    def _values(self, t, operator):
        y, _, (_, after), noise, _, left = self._between(t, False)
        velocity, _, _ = self.flow.velocity(t, y, with_slopes=False)
        later = np.swapaxes(left, 1, 2) @ self.driven.later[after][:, :, None]
        loads = noise.loads
        velocity = velocity + (loads @ (np.swapaxes(loads, 1, 2) @ later))[:, :, 0]
        columns = self._columns(operator)
        return sum(f * (velocity if top else y)[:, i] for top, i, f in columns)

    def _variances(self, t, operator):
        y, slopes, (node, after), noise, root, left = self._between(t, True)
        driven, D = self.driven, y.shape[1]
        back = np.swapaxes(left, 1, 2)
        later = back @ driven.slopes_of_later[after]
        effects = slopes[:, :, :D] @ driven.response[node]
        effects[:, :, :-D] += slopes[:, :, D:]
        effects = effects + root @ (np.swapaxes(root, 1, 2) @ later)
        before = slopes[:, :, :D] @ driven.filtered[node]
        L = compressed(np.concatenate([before, root], axis=2))
        known = np.swapaxes(L, 1, 2) @ (back @ driven.information[after] @ left) @ L
        values, vectors = np.linalg.eigh((known + np.swapaxes(known, 1, 2)) / 2)
        # What later observations leave of each direction: rounding may say less.
        own = L @ (vectors * np.sqrt(np.clip(1 - values, 0.0, 1.0))[:, None])
        _, on_y, on_w = self.flow.velocity(t, y)
        loads = noise.loads
        rate = on_y @ effects + loads @ (np.swapaxes(loads, 1, 2) @ later)
        rate[:, :, :-D] += on_w
        levels = loads / np.sqrt(driven.process.distances)
        total, common, residual = 0.0, 0.0, 0.0
        for top, i, f in self._columns(operator):
            total = total + f * (rate if top else effects)[:, i]
            common = common + f * (on_y @ own if top else own)[:, i]
            residual = residual + f * levels[:, i] * top
        parts = total @ self.root, common, residual
        return sum(np.sum(part**2, axis=1) for part in parts)


@dataclass(frozen=True)
class TrajectoryLimits:
    """How trajectories are divided, and which are too long.

    steps, steps_in_noise : int. Steps between the first and the last time at least;
        those of order 8 that resolve twenty oscillations to about nine digits, and as
        many periods as few noisy values tell, where equations hold exactly. Where a
        solution needs shorter ones, they are divided.
    noisy : float. Noise levels of two steps, in units of the lowest that these find,
        from which on values are noisy.
    largest_growth : float. Factor by which perturbations of the initial values may
        grow until they are lost in rounding errors.
    spread : float. Prior standard deviation of initial values, in units of the size of
        the state; of their derivatives, over the time between observations.
    least_noise : float. Lowest noise level that is found, in units of the size of the
        state; above the errors of integration.
    least_beside : float. The same beside noise in the equations whose level is found:
        where this explains all, nothing tells a lower one, and steps would be short.
    first_noise : tuple of float. Noise levels at one of which a search for that of most
        likelihood begins, beside noise in the equations, in units of the size of the
        state: from below one in a thousand it would not come to one in ten.
    first_drive : tuple of float. The same of the noise of equations, where its level is
        found, in units of the size of what they explain.
    accuracy : float. Error of a step, in units of the size of the state, below which
        it is not divided.
    part_of_noise : float. The same of all steps together, in units of the noise.
    """

    steps: int = 200
    steps_in_noise: int = 100
    noisy: float = 2.0
    largest_growth: float = 1e12
    spread: float = 100.0
    least_noise: float = 1e-8
    least_beside: float = 1e-4
    first_noise: tuple = (1e-3, 1e-2, 1e-1)
    first_drive: tuple = (1e-2, 1e-1, 1.0)
    accuracy: float = 1e-11
    part_of_noise: float = 1e-3

    @classmethod
    def short(cls):
        """With steps that are short also where there is noise."""
        return cls(steps_in_noise=cls.steps)


def entry_of(operator, layout):
    """Position in y of a derivative below the highest of a state."""
    state, (order,), _ = operator.parts[0]
    return layout.names.index(f"{state}_{layout.variable * order}" if order else state)


def values_at(state, times, layout, variables):
    """Values (K, D) of a state and of its lower derivatives."""
    operators = [
        parse_operator(name, variables, layout.states) for name in layout.names
    ]
    values = [state.evaluate(times[:, None], operator) for operator in operators]
    return np.column_stack(values)


def nodes_of(observed, steps):
    """Observed times, and others between where they are far apart."""
    observed = np.unique(observed)
    longest = np.ptp(observed) / steps
    times = [observed[:1]]
    for start, stop in zip(observed[:-1], observed[1:], strict=True):
        n = max(1, int(np.ceil((stop - start) / longest - 1e-9)))
        times.append(np.linspace(start, stop, n + 1)[1:])
    return np.concatenate(times)


def rounding_of(times, nodes):
    """What rounding of times (K,) makes of nodes (K, D), in units of their size.

    No step is more accurate, however short: far from zero, times have few digits.
    """
    sizes = [size_or_one(column) for column in nodes.T]
    speed = np.max(np.abs(np.diff(nodes, axis=0) / sizes) / np.diff(times)[:, None])
    return 2 * np.spacing(np.max(np.abs(times))) * speed


def relative_changes(before, after):
    """Root mean square changes (D,) of nodes, lists of (K_m, D), relative to sizes."""
    old, new = np.concatenate(before), np.concatenate(after)
    pairs = zip(old.T, new.T, strict=True)
    return np.array([rms(b - a) / (rms(b) or 1.0) for a, b in pairs])


def hidden_sizes(nodes, responses, hidden):
    """Changes of the sizes of hidden states, as affine functions of what is unknown.

    nodes, responses : list of ndarray. As a TrajectoryModel has them.
    hidden : list of int. Positions of H states in y.

    Returns change, on_weights : ndarray of shape (H,), (H, p). By which part of the
        standard deviation they change, and slopes of that in the weights.
    Returns on_initial : list of ndarray of shape (H, D). In those of initial values.
    """
    D = nodes[0].shape[1]
    own = [each[:, hidden] - np.mean(each[:, hidden], axis=0) for each in nodes]
    squares = sum(np.sum(each**2, axis=0) for each in own)
    parts = [each / np.where(squares > 0, squares, 1.0) for each in own]
    pairs = zip(parts, responses, strict=True)
    changes = [np.einsum("kh,khj->hj", part, own[:, hidden]) for part, own in pairs]
    shared = sum(each[:, :-D] for each in changes)
    return shared[:, 0], shared[:, 1:], [each[:, -D:] for each in changes]

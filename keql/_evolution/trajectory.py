"""A fitted state of ordinary differential equations: integrated from what was found."""

import itertools
from copy import copy

import numpy as np
from scipy import linalg
from scipy.integrate import solve_ivp
from scipy.interpolate import BSpline

from keql._evolution.flow import Flow
from keql._numerics.linalg import rms
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
        return self._gather(points, operator, "evaluate", Trajectory._values)

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, never negative."""
        return self._gather(points, operator, "variance", Trajectory._variances)

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

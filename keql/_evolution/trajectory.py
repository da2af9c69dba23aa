"""A fitted state of ordinary differential equations: integrated from what was found."""

from copy import copy

import numpy as np
from scipy import linalg
from scipy.integrate import solve_ivp
from scipy.interpolate import BSpline

from keql._evolution.flow import Flow
from keql._numerics.linalg import rms
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
    times, nodes : ndarray of shape (K,), (K, D). Where, and what it is there; the first
        ones are those of the initial values.
    root : ndarray of shape (p + D, p + D). A root of the posterior covariance of
        weights and initial values.
    outside : State or None. For derivatives above the highest of the equations, and for
        times that the integration does not reach; None: these are an error.
    rtol : float. Relative tolerance of the integration beyond the nodes.
    largest : float. Size of the state, relative to that of the nodes, at which that
        ends.
    """

    def __init__(self, flow, times, nodes, root, outside, rtol=1e-9, largest=1e4):
        self.flow, self.times, self.nodes = flow, times, nodes
        self.root, self.outside = root, outside
        self.rtol, self.largest = rtol, largest

    def alone(self):
        """The trajectory without another state where it does not reach."""
        state = copy(self)
        state.outside = None
        return state

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, 1)."""
        return self._gather(points, operator, "evaluate", self._values)

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, never negative."""
        return self._gather(points, operator, "variance", self._variances)

    def _gather(self, points, operator, name, integrated):
        t, values = points[:, 0], np.full(len(points), np.nan)
        orders = self.flow.layout.orders
        if len(t) and all(a[0] <= orders[state] for state, a, _ in operator.parts):
            values = integrated(t, operator)
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
        y, _ = self._at(t, with_effects=False)
        velocity, _, _ = self.flow.velocity(t, y, with_slopes=False)
        columns = self._columns(operator)
        return sum(f * (velocity if top else y)[:, i] for top, i, f in columns)

    def _variances(self, t, operator):
        y, effects = self._at(t, with_effects=True)
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

    def _at(self, t, with_effects):
        """y (n, D) at times, and its slopes (n, D, p + D) in weights, initial values.

        Not a number where the integration does not reach.
        """
        responses = None
        if with_effects:  # what the nodes lack to fit together does not matter
            responses = self.flow.respond(self.times, self.nodes)[:, :, 1:]
        y = np.full((len(t), self.nodes.shape[1]), np.nan)
        effects = np.full((len(t), *responses.shape[1:]), np.nan) if with_effects else 0
        before, after = t < self.times[0], t > self.times[-1]
        within = ~(before | after)
        parts = [(within, lambda own: self._from_nodes(own, responses))]
        for rows, k in ((before, 0), (after, -1)):
            parts.append((rows, lambda own, k=k: self._beyond(own, k, responses)))
        for rows, find in parts:
            if rows.any():
                y[rows], own = find(t[rows])
                if with_effects:
                    effects[rows] = own
        return y, effects

    def _from_nodes(self, t, responses):
        """y (n, D) at times among the nodes, with its slopes if those are given."""
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

    def _beyond(self, t, k, responses):
        """y (n, D) at times beyond node `k`, with its slopes if those are given."""
        D, size = self.nodes.shape[1], rms(self.nodes) or 1.0
        shape = (D, 0) if responses is None else (D, responses.shape[2])
        start = self.nodes[k]
        if responses is not None:
            start = np.concatenate([start, responses[k].ravel()])

        def rate(time, z):
            return self._rate(time, z, shape)

        def ends(_, z):
            return self.largest * size - np.max(np.abs(z[:D]))

        ends.terminal = True
        order = np.argsort(np.abs(t - self.times[k]))
        order = order[self._has_forcing(t[order])]
        if not len(order):
            shape = len(t), D, shape[1]
            return np.full(shape[:2], np.nan), np.full(shape, np.nan)
        span = self.times[k], t[order[-1]]
        how = {"t_eval": t[order], "method": "DOP853", "events": ends}
        how |= {"rtol": self.rtol, "atol": self.rtol * size}
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            solution = solve_ivp(rate, span, start, **how)
        reached = np.full((len(t), len(start)), np.nan)
        values = np.reshape(solution.y, (len(start), -1))
        reached[order[: values.shape[1]]] = values.T
        effects = reached[:, D:].reshape(len(t), *shape)
        return reached[:, :D], None if responses is None else effects

    def _has_forcing(self, t):
        """Which of the times (n,) all right-hand sides are known at."""
        known = np.ones(len(t), dtype=bool)
        for f in self.flow.forcing:
            if isinstance(f, BSpline):  # of given values, which end somewhere
                known &= (t >= f.t[0]) & (t <= f.t[-1])
        return known

    def _rate(self, time, z, shape):
        """The time derivative of y and of its slopes (D, p + D), in one vector."""
        D = shape[0]
        with_slopes = shape[1] > 0
        t, y = np.array([time]), z[None, :D]
        velocity, on_y, on_w = self.flow.velocity(t, y, with_slopes)
        if not with_slopes:
            return velocity[0]
        effects = on_y[0] @ z[D:].reshape(shape)
        effects[:, : shape[1] - D] += on_w[0]
        return np.concatenate([velocity[0], effects.ravel()])

"""Long times in windows: the state at the end of one is the start of the next."""

import numpy as np

from keql._solving.conditions import Conditions
from keql.operators import parse_operator


class SequentialState:
    """States on consecutive windows of one coordinate.

    Parameters
    ----------
    states : list of SolvedState
        One for each window.
    edges : ndarray of shape (n_windows + 1,)
        Where windows begin and end.
    axis : int
        The coordinate.
    """

    def __init__(self, states, edges, axis):
        self.states = states
        self.edges = edges
        self.axis = axis

    def evaluate(self, points, operator):
        """Values of an operator applied to the state, of shape (n,)."""
        return self._gather(points, lambda state, rows: state.evaluate(rows, operator))

    def variance(self, points, operator):
        """Posterior variances, given the state at the start of the window."""
        return self._gather(points, lambda state, rows: state.variance(rows, operator))

    def _gather(self, points, function):
        # A point between two windows belongs to the earlier one.
        window = np.searchsorted(self.edges[1:-1], points[:, self.axis], side="left")
        values = np.empty(len(points))
        for w in np.unique(window):
            rows = window == w
            values[rows] = function(self.states[w], points[rows])
        return values


def solve_in_windows(solve, equation, problems, axis, n_windows):
    """Solve for all functions, window after window.

    Parameters
    ----------
    solve : callable
        Takes problems and returns their outcomes.
    equation : LearnedEquation, GivenEquation or None
        Its order in time says what is handed over.
    problems : list of (Conditions, ndarray of shape (K, d))
        What is given of each function, and its collocation points.
    axis : int
        The coordinate that is divided.
    n_windows : int
        How many windows.

    Returns
    -------
    solved : list of (state, list of Outcome)
        Of each function.
    """
    if n_windows == 1:
        return [(outcome.state, [outcome]) for outcome in solve(problems)]
    if equation is None:
        raise ValueError(f"n_windows={n_windows} needs an equation: give equation.")
    carried = _carried(equation, axis)
    windows = [_Windows(*problem, axis, n_windows, carried) for problem in problems]
    outcomes = [[] for _ in problems]
    for w in range(n_windows):
        previous = [each[-1].state if each else None for each in outcomes]
        parts = [
            window.part(w, state)
            for window, state in zip(windows, previous, strict=True)
        ]
        for each, outcome in zip(outcomes, solve(parts), strict=True):
            # Factors of all windows would need memory that grows with their number.
            outcome.state = outcome.state.without_factor()
            each.append(outcome)
    return [
        (SequentialState([o.state for o in each], window.edges, axis), each)
        for window, each in zip(windows, outcomes, strict=True)
    ]


def _carried(equation, axis):
    """The state and its derivatives in time of less than the equation's order."""
    order = max(a[axis] for o in equation.operators for a, _ in o.terms)
    units = [
        tuple(k * (i == axis) for i in range(len(equation.variables)))
        for k in range(max(order, 1))
    ]
    return [parse_operator(unit, equation.variables) for unit in units]


class _Windows:
    """One function in windows of time."""

    def __init__(self, conditions, points, axis, n_windows, carried):
        self.given, self.points = conditions, points
        self.axis, self.carried = axis, carried
        t = np.concatenate([points, *(at for at, _ in conditions.functionals)])[:, axis]
        self.edges = np.linspace(t.min(), t.max(), n_windows + 1)
        # Rounding must not lose the last points.
        self.edges[-1] = t.max()
        first = [at[at[:, axis] == t.min()] for at, _ in conditions.functionals]
        self.start = np.unique(np.concatenate(first), axis=0)
        if not len(self.start):
            raise ValueError(
                f"n_windows={n_windows} needs initial data, but X has no row at the "
                f"earliest time of all points, {t.min():g}: give u there, or "
                "n_windows=1."
            )

    def part(self, w, previous):
        """Conditions and collocation points in window `w`.

        In place of initial data there are the values of the previous state.
        """
        functionals, values, position = [], [], 0
        for at, operator in self.given.functionals:
            rows = self._within(at, w)
            if rows.any():
                functionals.append((at[rows], operator))
                values.append(self.given.values[position : position + len(at)][rows])
            position += len(at)
        if previous is not None:
            start = self.start.copy()
            start[:, self.axis] = self.edges[w]
            for operator in self.carried:
                functionals.append((start, operator))
                values.append(previous.evaluate(start, operator))
        rows = self._within(self.points, w)
        if not rows.any():
            raise ValueError(
                f"no collocation point lies in window {w + 1} of "
                f"n_windows={len(self.edges) - 1}: give more points, or fewer windows."
            )
        conditions = Conditions(
            functionals, np.concatenate(values), self.given.forcing[rows]
        )
        return conditions, self.points[rows]

    def _within(self, points, w):
        """Which points lie in window `w`; those on its start only in the first."""
        t = points[:, self.axis]
        above = t >= self.edges[0] if w == 0 else t > self.edges[w]
        return above & (t <= self.edges[w + 1])

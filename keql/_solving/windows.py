"""Long times in windows: the state at the end of one is the start of the next."""

from dataclasses import replace

import numpy as np

from keql._numerics.memory import refuse_steps
from keql.operators import parse_operator


class SequentialState:
    """States on consecutive windows of the coordinate `axis`.

    The windows lie between the `edges` (n_windows + 1,).
    """

    def __init__(self, states, edges, axis):
        self.states, self.edges, self.axis = states, edges, axis

    def evaluate(self, points, operator):
        """Values of an operator applied to the state, of shape (n,)."""
        return self._gather(points, lambda state, x: state.evaluate(x, operator))

    def variance(self, points, operator):
        """Posterior variances, given the state at the start of the window."""
        return self._gather(points, lambda state, x: state.variance(x, operator))

    def _gather(self, points, function):
        # A point between two windows belongs to the earlier one.
        window = np.searchsorted(self.edges[1:-1], points[:, self.axis], side="left")
        values = np.empty(len(points))
        for w in np.unique(window):
            rows = window == w
            values[rows] = function(self.states[w], points[rows])
        return values


def solve_in_windows(solve, equation, conditions, axis, n_windows):
    """For each function its state, and its solutions window after window.

    `solve` takes a list of Conditions, one for each function, and returns Solutions.
    The coordinate `axis` is divided; the order of the equation in it says what is
    handed over.
    """
    if n_windows == 1:
        return [(solution.state, [solution]) for solution in solve(conditions)]
    if equation is None:
        raise ValueError(f"n_windows={n_windows} needs an equation: give equation.")
    refuse_steps(n_windows, f"n_windows={n_windows:,}", "give fewer.", most=1e5)
    carried = _carried(equation, axis)
    functions = [_Windows(given, axis, n_windows, carried) for given in conditions]
    solutions = [[] for _ in conditions]
    for w in range(n_windows):
        previous = [solved[-1].state if solved else None for solved in solutions]
        pairs = zip(functions, previous, strict=True)
        in_window = solve([windows.part(w, state) for windows, state in pairs])
        for solved, solution in zip(solutions, in_window, strict=True):
            # Factors of all windows would need memory that grows with their number.
            solution.state.factors = None
            solved.append(solution)
    return [
        (SequentialState([s.state for s in solved], windows.edges, axis), solved)
        for windows, solved in zip(functions, solutions, strict=True)
    ]


def _carried(equation, axis):
    """Each state and its derivatives in time of less than its order.

    Of several states, those without a derivative in time follow from the others.
    """
    unit = np.eye(len(equation.variables), dtype=int)[axis]
    parts, operators = [part for o in equation.operators for part in o.parts], []
    for state in equation.states:
        order = max((a[axis] for s, a, _ in parts if s == state), default=0)
        order = max(order, 1) if len(equation.states) == 1 else order
        for k in range(order):
            multi_index = tuple((k * unit).tolist())
            operators.append(parse_operator(multi_index, equation.variables, (state,)))
    return operators


class _Windows:
    """The conditions of one function in windows of time."""

    def __init__(self, conditions, axis, n_windows, carried):
        self.conditions, self.axis, self.carried = conditions, axis, carried
        observed = [points for points, _ in conditions.observed]
        t = np.concatenate([conditions.points, *observed])[:, axis]
        self.edges = np.linspace(t.min(), t.max(), n_windows + 1)
        # Rounding must not lose the last points.
        self.edges[-1] = t.max()
        initial = [points[points[:, axis] == t.min()] for points in observed]
        self.initial = np.unique(np.concatenate(initial), axis=0)
        if not len(self.initial):
            raise ValueError(
                f"n_windows={n_windows} needs initial data, but X has no row at the "
                f"earliest time of all points, {t.min():g}: give u there, or "
                "n_windows=1."
            )

    def part(self, w, previous):
        """Conditions in window `w`; the previous state gives the initial data."""
        observed_rows = [self._rows_in(x, w) for x, _ in self.conditions.observed]
        rows = self._rows_in(self.conditions.points, w)
        if not rows.size:
            raise ValueError(
                f"no collocation point lies in window {w + 1} of "
                f"n_windows={len(self.edges) - 1}: give more points, or fewer windows."
            )
        part = self.conditions.select(observed_rows, rows)
        if previous is None:
            return part
        start = self.initial.copy()
        start[:, self.axis] = self.edges[w]
        handed = [previous.evaluate(start, operator) for operator in self.carried]
        observed = part.observed + [(start, operator) for operator in self.carried]
        values = np.concatenate([part.values, *handed])
        weights = np.ones(len(values))
        return replace(part, observed=observed, values=values, weights=weights)

    def _rows_in(self, points, w):
        """The points in window `w`; those on its start only in the first."""
        t = points[:, self.axis]
        above = t >= self.edges[0] if w == 0 else t > self.edges[w]
        return np.flatnonzero(above & (t <= self.edges[w + 1]))

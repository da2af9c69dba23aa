"""Whether other equations are one law with those found, in other coordinates.

Of a state z that was never observed nothing tells the unit, nor what may be added to
it: with z' = a z + b + c . x, or any other function of z and of observed states x that
has an inverse in z, trajectories of x stay as they are, and equations of z' may have
other terms than those of z.
"""

from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from keql._numerics.linalg import rms, size_or_one
from keql.model_selection._terms._fewer import most_probable


def of_other_laws(fit, rivals, most):
    """Of rivals those that are not the law of a fit in other coordinates, a list.

    fit : Fit. Its terms were chosen by evidence.
    rivals : list of (set of str, float). Terms that were solved for, and log odds.
    most : float. Rates of change of one law differ by at most this part of their size.

    Returns others : list of (set of str, float). In the order of the rivals.
    """
    hidden = fit.observations.hidden_states
    if not (hidden and fit.is_exact and len(fit.two_step.variables) == 1):
        return rivals
    steps, iterate = most_probable(fit.terms_path), fit.result.solution
    pairs = ((terms, steps[terms].equations) for terms, _ in rivals)
    same = [
        terms
        for terms, equations in pairs
        if equations and are_one_law(fit.problem, iterate, equations, most)
    ]
    return [(terms, odds) for terms, odds in rivals if terms not in same]


class ConvergedSet(NamedTuple):
    """Where steps with a set of terms ended.

    kept : list of int. Positions of the terms.
    score : float. Their log evidence.
    problem : TrajectoryProblem. That was solved, whose times others may not have.
    solution : TrajectoryIterate. Trajectories that obey equations with these terms.
    """

    kept: list
    score: float
    problem: object
    solution: object

    @classmethod
    def of(cls, kept, score, result):
        """That of a Result, whose large matrices are let go."""
        return cls(kept, score, result.model.problem, result.solution)


def in_fewest_terms(best, score, kept, ends, solve, settings):
    """The best set of terms, or fewer terms of one law in other coordinates.

    A term that is added with another coordinate alone costs no evidence.

    best, score, kept : Result, float, list of int. The solution with the terms kept,
        and their log evidence.
    ends : list of ConvergedSet. Among which the law is looked for.
    solve : callable. The Result of a problem from a start, or None.
    settings : TrajectorySearchSettings. How much less probable the law may be.

    Returns best, score, kept : as above.
    """
    fewer = [end for end in ends if len(end.kept) < len(kept)]
    fewer = [end for end in fewer if end.score > score - settings.equal]
    for end in sorted(fewer, key=lambda end: (len(end.kept), -end.score)):
        problem, own = best.model.problem, best.solution
        if are_one_law(problem, own, end.solution.equations, settings.differs):
            result = solve(end.problem, end.solution)
            if result is not None and result.converged:
                return result, end.score, end.kept
    return best, score, kept


def are_one_law(problem, iterate, equations, most):
    """Whether equations are those of an iterate in coordinates z' of a hidden state.

    They are compared where states are, and at states x with the z of other times: along
    trajectories alone others may be equal as well. The z' are quadratic in all states,
    such that rates of change of observed states, if linear in z', differ least.

    problem : TrajectoryProblem. One of its states was never observed.
    iterate : TrajectoryIterate. Equations, and trajectories of them.
    equations : tuple of LearnedEquation. Others of that problem.
    most : float. See :func:`of_other_laws`.

    Returns are_one : bool. Not where rates of change of the others are not finite.
    """
    if len(problem.hidden) != 1:
        return False
    [k] = problem.hidden
    nodes = [_with_other_values(own, k) for own in iterate.nodes]
    rates = _rates(problem, iterate.equations, nodes)
    z, z_t = _coordinate(problem, equations, nodes, rates, k)
    places = np.split(z, np.cumsum([len(own) for own in nodes])[:-1])
    moved = [_replaced(own, k, new) for own, new in zip(nodes, places, strict=True)]
    others, expected = _rates(problem, equations, moved), _replaced(rates, k, z_t)
    if not np.all(np.isfinite(others)):
        return False
    pairs = zip((others - expected).T, expected.T, strict=True)
    return all(rms(error) <= most * size_or_one(rate) for error, rate in pairs)


def _coordinate(problem, equations, nodes, rates, k):
    """Values (n,) of the hidden state, column k, of other equations, and their rates.

    problem, equations : See :func:`are_one_law`.
    nodes : list of ndarray of shape (n_m, D). States of each function, n in all.
    rates : ndarray of shape (n, D). Rates of change there in the first coordinates.
    k : int. The column of the hidden state.
    """
    none, one = (
        _rates(problem, equations, [_replaced(own, k, value) for own in nodes])
        for value in (0.0, 1.0)
    )
    if not np.all(np.isfinite([none, one])):
        return np.zeros(len(rates)), np.zeros(len(rates))
    seen = [d for d in range(rates.shape[1]) if d != k]
    sizes = np.array([size_or_one(column) for column in rates[:, seen].T])
    products, changes = _products(np.vstack(nodes), rates)
    units = np.array([size_or_one(column) for column in products.T])
    effects = (one - none)[:, seen] / sizes
    rows = effects[:, :, None] * (products / units)[:, None, :]
    right = (rates - none)[:, seen] / sizes
    matrix = rows.reshape(-1, len(units))
    values = np.linalg.lstsq(matrix, right.ravel(), rcond=None)[0] / units
    return products @ values, changes @ values


def _with_other_values(nodes, k):
    """Nodes (n, D), and these with the column k of nodes a third of them later."""
    return np.vstack(
        [nodes, _replaced(nodes, k, np.roll(nodes[:, k], len(nodes) // 3))]
    )


def _replaced(nodes, k, values):
    """Nodes (n, D) with other values in the column k."""
    nodes = nodes.copy()
    nodes[:, k] = values
    return nodes


def _rates(problem, equations, nodes):
    """Rates of change of states at nodes of all functions, given twice, one by one."""
    rates = []
    for m, (times, own) in enumerate(zip(problem.times, nodes, strict=True)):
        flow = problem.flow(m, equations)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            # Roots and logarithms are not defined at some of the other values.
            own_rates, *_ = flow.velocity(np.tile(times, 2), own, with_slopes=False)
        rates.append(own_rates)
    return np.vstack(rates)


def _products(y, rates):
    """Products (n, q) of up to two columns of y (n, D), and their rates of change."""
    columns, changes = [np.ones(len(y)), *y.T], [np.zeros(len(y)), *rates.T]
    for i, j in combinations_with_replacement(range(y.shape[1]), 2):
        columns.append(y[:, i] * y[:, j])
        changes.append(rates[:, i] * y[:, j] + y[:, i] * rates[:, j])
    return np.column_stack(columns), np.column_stack(changes)

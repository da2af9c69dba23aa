"""An evolution equation, integrated over a box of time and space.

Linearised, for all boundary values and weights at once; or as it is, for given ones.
"""

from copy import copy

import numpy as np


def linear_response(grid, equation, state, max_growth=1e4):
    """The equation, linearised at a state, integrated from any boundary values.

    Parameters
    ----------
    grid : EvolutionGrid
        Where.
    equation : LearnedEquation
        With p weights.
    state : ndarray of shape (n_steps * 4 * n_points,)
        Values on the grid.
    max_growth : float, default=1e4
        By which a change of a boundary value may grow before it counts as unstable.

    Returns
    -------
    response : ndarray of shape (n_steps, 4, n_points, 1 + p + c) or None
        Its product with 1, the weights and the c boundary values is the solution; None
        if small changes of them grow beyond bounds, as if time ran backwards.
    """
    n, n_steps, p = grid.n_points, grid.n_steps, len(equation.weights)
    without, moving = grid.matrices(equation.operators)
    state = state.reshape(n_steps, 4 * n)
    slopes, right = _linearise(grid, equation, (without, moving), state)
    response = np.zeros((n_steps, 4, n, 1 + p + n + 6 * n_steps))
    response[0, 0, :, 1 + p : 1 + p + n] = np.eye(n)
    for step, h in enumerate(grid.steps):
        J = np.einsum("kq,qkj->kj", slopes[step], without + moving / h)
        right[step][:, 0] += J @ state[step]
        solved = _solve_linear_step(J, right[step])
        if solved is None:
            return None
        # The columns belong to what is known, to the values where the step starts, and
        # to the values at both ends in space at its three Radau points.
        particular, from_start, from_ends = np.split(solved, [1 + p, 1 + p + n], axis=1)
        last = 1 + p + n + 6 * step
        here = from_start @ response[step, 0, :, :last]
        here[:, : 1 + p] += particular
        growth = [np.max(np.abs(part)) for part in (here[:, 1 + p :], from_ends)]
        if not np.max(growth) < max_growth:
            return None
        response[step, 1:, :, :last] = here.reshape(3, n, -1)
        response[step, 1:, :, last : last + 6] = from_ends.reshape(3, n, -1)
        if step + 1 < n_steps:
            response[step + 1, 0] = response[step, -1]
    return response


def _solve_linear_step(J, right):
    """Values at the Radau points of a step that meet J values = right; or None.

    J (3n, 4n) acts on the values of the step, its start included, and `right` (3n, m)
    has a column for each of m known parts; a column for each of the n values at the
    start and of the 6 values at the ends in space follows in the result.
    """
    n = J.shape[1] // 4
    ends, known = _rows_of_ends(n), np.column_stack([right, -J[:, :n]])
    unknown, on_ends = J[:, n:], np.zeros((3 * n, 6))
    on_ends[ends, np.arange(6)] = 1.0
    unknown[ends], known[ends] = 0.0, 0.0
    unknown[ends, ends] = 1.0
    try:
        return np.linalg.solve(unknown, np.column_stack([known, on_ends]))
    except np.linalg.LinAlgError:
        return None


def integrate(grid, equation, boundary, guess, n_newton=6, precision=1e-4, wild=100.0):
    """The equation integrated from given boundary values.

    Parameters
    ----------
    grid : EvolutionGrid
        Where.
    equation : LearnedEquation
        With a polynomial kernel.
    boundary : ndarray of shape (c,)
        Boundary values.
    guess : ndarray of shape (n_steps * 4 * n_points,)
        Values on the grid from which the Newton steps of each time step start.
    n_newton : int, default=6
        Newton steps of a time step at most.
    precision, wild : float, default=1e-4, 100
        Changes, in units of the largest boundary value, at which Newton steps end, and
        at which they are given up.

    Returns
    -------
    state : ndarray of shape (n_steps * 4 * n_points,) or None
        The solution; None if Newton steps do not find it.
    """
    n, size = grid.n_points, np.max(np.abs(boundary))
    equation, d = copy(equation), 2 + equation.n_operators
    equation.basis, equation.weights = equation.basis.unrestricted(equation.weights, d)
    without, moving = grid.matrices(equation.operators)
    state = guess.reshape(grid.n_steps, 4, n).copy()
    state[0, 0] = boundary[:n]
    state[:, 1:, [0, -1]] = boundary[n:].reshape(grid.n_steps, 3, 2)
    for step, h in enumerate(grid.steps):
        points, matrices = grid.points[step, 1:].reshape(-1, 2), without + moving / h
        for _ in range(n_newton):
            changed = _newton_step(equation, matrices, points, state[step])
            if not changed < wild * size:
                return None
            if changed < precision * size:
                break
        else:
            return None
        if step + 1 < grid.n_steps:
            state[step + 1, 0] = state[step, -1]
    return state.ravel()


def _newton_step(equation, matrices, points, values):
    """Move values (4, n) of a time step towards a solution; the largest change.

    It is infinite if the linearised equation is singular.
    """
    n = values.shape[1]
    ends = _rows_of_ends(n)
    S = np.column_stack([points, (matrices @ values.ravel()).T])
    residual, slopes = equation(S), equation.gradient(S)[:, 2:]
    J = np.einsum("kq,qkj->kj", slopes, matrices[:, :, n:])
    residual[ends], J[ends] = 0.0, 0.0
    J[ends, ends] = 1.0
    try:
        change = np.linalg.solve(J, residual).reshape(3, n)
    except np.linalg.LinAlgError:
        return np.inf
    values[1:] -= change
    return np.max(np.abs(change))


def _rows_of_ends(n):
    """Rows of the equation of a step that give way to values at the ends in space."""
    return (n * np.arange(3)[:, None] + [0, n - 1]).ravel()


def _linearise(grid, equation, matrices, state):
    """Slopes (n_steps, 3n, Q') at the Radau points, and (-F + psi . w, -psi) there.

    `state` has shape (n_steps, 4n); F is the equation, psi are its features.
    """
    without, moving = matrices
    features = [
        ((without + moving / h) @ values).T
        for h, values in zip(grid.steps, state, strict=True)
    ]
    points = grid.points[:, 1:].reshape(-1, 2)
    S = np.column_stack([points, np.concatenate(features)])
    slopes = equation.gradient(S)[:, 2:]
    psi = equation.basis(S[:, : 2 + equation.n_operators])
    right = np.column_stack([psi @ equation.weights - equation(S), -psi])
    shape = grid.n_steps, 3 * grid.n_points, -1
    return slopes.reshape(shape), right.reshape(shape)

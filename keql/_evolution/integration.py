"""A law of evolution, integrated over a box of time and space.

Linearised, for all border values and weights at once; or as it is, for given ones.
"""

from copy import copy

import numpy as np

# A change on the border that has grown so many times is not followed further.
UNSTABLE = 1e4
# Newton steps of a step in time, the change, relative to the size of the border values,
# that ends them, and one at which they are given up.
NEWTON_STEPS, PRECISION, WILD = 6, 1e-4, 100.0


def integrate(grid, equation, state):
    """The equation, linearised at a state, integrated from any border values.

    Parameters
    ----------
    grid : EvolutionGrid
        Where.
    equation : LearnedEquation
        The law, with p weights.
    state : ndarray of shape (n_steps * 4 * n_points,)
        Values on the grid.

    Returns
    -------
    flow : ndarray of shape (n_steps, 4, n_points, 1 + p + c) or None
        Its product with 1, the weights and the c values on the border is the solution;
        None if small changes of these grow beyond bounds, as if time ran backwards.
    """
    n, n_steps, p = grid.n_points, grid.n_steps, len(equation.weights)
    still, moving = grid.matrices(equation.operators)
    state = state.reshape(n_steps, 4 * n)
    slopes, right = _linearise(grid, equation, still, moving, state)
    flow = np.zeros((n_steps, 4, n, 1 + p + n + 6 * n_steps))
    flow[0, 0, :, 1 + p : 1 + p + n] = np.eye(n)
    sides = _sides(n)
    on_sides = np.zeros((3 * n, 6))
    on_sides[sides, np.arange(6)] = 1.0
    for step, h in enumerate(grid.steps):
        J = np.einsum("kq,qkj->kj", slopes[step], still + moving / h)
        known = np.column_stack([right[step], -J[:, :n]])
        known[:, 0] += J @ state[step]
        unknown = J[:, n:]
        unknown[sides], known[sides] = 0.0, 0.0
        unknown[sides, sides] = 1.0
        try:
            solved = np.linalg.solve(unknown, np.column_stack([known, on_sides]))
        except np.linalg.LinAlgError:
            return None
        # Of what is known, of the values where the step starts, and of both ends.
        forced, moved, pulled = np.split(solved, [1 + p, 1 + p + n], axis=1)
        last = 1 + p + n + 6 * step
        passed = moved @ flow[step, 0, :, :last]
        passed[:, : 1 + p] += forced
        grown = [np.max(np.abs(part)) for part in (passed[:, 1 + p :], pulled)]
        if not np.max(grown) < UNSTABLE:
            return None
        flow[step, 1:, :, :last] = passed.reshape(3, n, -1)
        flow[step, 1:, :, last : last + 6] = pulled.reshape(3, n, -1)
        if step + 1 < n_steps:
            flow[step + 1, 0] = flow[step, -1]
    return flow


def simulate(grid, equation, border, guess):
    """The equation integrated from given border values.

    Parameters
    ----------
    grid : EvolutionGrid
        Where.
    equation : LearnedEquation
        The law, with a polynomial kernel.
    border : ndarray of shape (c,)
        Values on the border.
    guess : ndarray of shape (n_steps * 4 * n_points,)
        Values on the grid from which each step is looked for.

    Returns
    -------
    state : ndarray of shape (n_steps * 4 * n_points,) or None
        The solution; None if it cannot be found.
    """
    n, size = grid.n_points, np.max(np.abs(border))
    equation, d = copy(equation), 2 + equation.n_operators
    equation.basis, equation.weights = equation.basis.unrestricted(equation.weights, d)
    still, moving = grid.matrices(equation.operators)
    state = guess.reshape(grid.n_steps, 4, n).copy()
    state[0, 0] = border[:n]
    state[:, 1:, [0, -1]] = border[n:].reshape(grid.n_steps, 3, 2)
    for step, h in enumerate(grid.steps):
        points = grid.points[step, 1:].reshape(-1, 2)
        if not _solve_step(equation, still + moving / h, points, state[step], size):
            return None
        if step + 1 < grid.n_steps:
            state[step + 1, 0] = state[step, -1]
    return state.ravel()


def _solve_step(equation, matrices, points, values, size):
    """Let values (4, n) of a step solve the equation; whether Newton steps do it."""
    n = values.shape[1]
    sides = _sides(n)
    for _ in range(NEWTON_STEPS):
        S = np.column_stack([points, (matrices @ values.ravel()).T])
        missed, slopes = equation(S), equation.gradient(S)[:, 2:]
        J = np.einsum("kq,qkj->kj", slopes, matrices[:, :, n:])
        missed[sides], J[sides] = 0.0, 0.0
        J[sides, sides] = 1.0
        try:
            change = np.linalg.solve(J, missed).reshape(3, n)
        except np.linalg.LinAlgError:
            return False
        values[1:] -= change
        changed = np.max(np.abs(change))
        if not changed < WILD * size:
            return False
        if changed < PRECISION * size:
            return True
    return False


def _sides(n):
    """Rows of the equation of a step that give way to the border values."""
    return (n * np.arange(3)[:, None] + [0, n - 1]).ravel()


def _linearise(grid, equation, still, moving, state):
    """Slopes (n_steps, 3 n, Q') at the Radau points, and (-F + psi . w, -psi) there."""
    features = [
        ((still + moving / h) @ values).T
        for h, values in zip(grid.steps, state, strict=True)
    ]
    points = grid.points[:, 1:].reshape(-1, 2)
    S = np.column_stack([points, np.concatenate(features)])
    slopes = equation.gradient(S)[:, 2:]
    psi = equation.basis(S[:, : 2 + equation.n_operators])
    right = np.column_stack([psi @ equation.weights - equation(S), -psi])
    shape = grid.n_steps, 3 * grid.n_points, -1
    return slopes.reshape(shape), right.reshape(shape)

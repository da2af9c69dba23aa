"""An evolution equation, integrated over a box of time and space.

Time goes in steps, short ones first: what is rough initially is soon smoothed. In
each of them a function is a cubic through its start, which is the end of the step
before, and the three Radau points, the last of which is its end; a differential
equation that holds there is met to order 5 at the ends, and stiff ones are damped
(Radau IIA). In space it is a polynomial through Chebyshev points.

Equations are integrated linearised, for all boundary values and weights at once; or as
they are, for given ones.

Hairer and Wanner, Solving Ordinary Differential Equations II, 1996, section IV.5;
Trefethen, Spectral Methods in MATLAB, 2000, chapter 6.
"""

from copy import copy

import numpy as np
from scipy.interpolate import BarycentricInterpolator
from scipy.sparse import csr_array

# Where values are known in a step, in units of it: its start and the Radau points.
STAGES = np.array([0.0, (4 - 6**0.5) / 10, (4 + 6**0.5) / 10, 1.0])


class EvolutionGrid:
    """Points in time and space, with interpolation and derivatives.

    An array of values on the grid has shape (n_steps, 4, n_points): in time those of
    each step, its start included.

    lower, upper : ndarray of shape (2,). Corners of the box.
    axis : {0, 1}. Which coordinate is the time.
    n_steps, n_points : int, default=40, 80. Steps in time and points in space: two of
        Burgers' equation with a diffusion of 0.01 of the box agree to 1e-6 with twice
        as many.
    n_ends : int, default=1. Points at either end in space whose values the equation
        leaves open: half of its order in space.
    grading : float, default=2.0. Step k of n ends at (k / n)^grading of the time.
    """

    def __init__(
        self, lower, upper, axis, n_steps=40, n_points=80, n_ends=1, grading=2.0
    ):
        self.lower, self.upper, self.axis = lower, upper, axis
        self.n_steps, self.n_points = n_steps, n_points
        self.ends = np.r_[:n_ends, n_points - n_ends : n_points]
        begin, end = lower[axis], upper[axis]
        self.edges = begin + (end - begin) * np.linspace(0, 1, n_steps + 1) ** grading
        self.steps = np.diff(self.edges)
        left, right = lower[1 - axis], upper[1 - axis]
        angles = np.linspace(0, np.pi, n_points)
        self.x = left + (right - left) * (1 - np.cos(angles)) / 2

    @property
    def points(self):
        """All points, of shape (n_steps, 4, n_points, 2)."""
        times = self.edges[:-1, None] + self.steps[:, None] * STAGES
        pair = np.broadcast_arrays(times[:, :, None], self.x)
        return np.stack(pair if self.axis == 0 else pair[::-1], axis=-1)

    @property
    def boundary(self):
        """Points (c, 2) where an evolution equation leaves the solution open.

        Those of the initial time; then both ends in space at all Radau points.
        """
        ends = self.points[:, 1:][:, :, self.ends].reshape(-1, 2)
        return np.concatenate([self.points[0, 0], ends])

    @property
    def rows_of_ends(self):
        """Rows of the equation of a step that give way to values at the ends."""
        return (self.n_points * np.arange(3)[:, None] + self.ends).ravel()

    def equals(self, other):
        """Whether another object is a grid of the same points."""
        points = getattr(other, "points", None)
        return points is not None and np.array_equal(points, self.points)

    def contains(self, points):
        """Which of the points (n, 2) lie in the box, of shape (n,)."""
        return np.all((points >= self.lower) & (points <= self.upper), axis=1)

    def matrices(self, operators):
        """Operators at the Radau points of a step, from the values of the step.

        Two arrays of shape (len(operators), 3 n_points, 4 n_points): the parts without
        and with a derivative in time, of which there is at most one. In a step of the
        length h their sum, the second over h, multiplies the raveled values.
        """
        n = self.n_points
        matrices = np.zeros((2, len(operators), 3 * n, 4 * n))
        for q, operator in enumerate(operators):
            for orders, factor in operator.terms:
                in_time, in_space = orders[self.axis], orders[1 - self.axis]
                matrices[in_time, q] += np.kron(
                    factor * _lagrange(STAGES, STAGES[1:], in_time),
                    _lagrange(self.x, self.x, in_space),
                )
        return matrices

    def boundary_of(self, functions):
        """Values (c, m) at the points of the boundary of functions on the grid.

        Functions have shape (n_steps, 4, n_points, m).
        """
        ends = functions[:, 1:, self.ends].reshape(-1, functions.shape[-1])
        return np.concatenate([functions[0, 0], ends])

    def interpolation(self, points, operator):
        """An operator at points (n, 2) of the box, from the values on the grid.

        A sparse matrix of shape (n, n_steps * 4 * n_points). The operator may be of any
        order; above those of the equation it is rough.
        """
        time, x = points[:, self.axis], points[:, 1 - self.axis]
        step = np.searchsorted(self.edges, time, side="right") - 1
        step = np.clip(step, 0, self.n_steps - 1)
        h, size = self.steps[step], 4 * self.n_points
        entries = np.zeros((len(points), 4, self.n_points))
        for orders, factor in operator.terms:
            order = orders[self.axis]
            in_time = _lagrange(STAGES, (time - self.edges[step]) / h, order)
            in_time = (factor * h**-order)[:, None] * in_time
            in_space = _lagrange(self.x, x, orders[1 - self.axis])
            entries += in_time[:, :, None] * in_space[:, None]
        columns = size * step[:, None] + np.arange(size)
        starts = size * np.arange(len(points) + 1)
        shape = len(points), self.n_steps * size
        return csr_array((entries.ravel(), columns.ravel(), starts), shape=shape)

    def apply(self, functions, points, operator):
        """An operator applied to functions on the grid at points (n, 2) of the box.

        Functions (n_steps, 4, n_points, m) give an array (n, m).
        """
        flat = functions.reshape(-1, functions.shape[-1])
        return self.interpolation(points, operator) @ flat


class EvolvedState:
    """A state that follows from its equation by integration.

    Its posterior covariance on the grid is R R^T with R the product of the linear
    response and a root of the posterior covariance of weights and boundary values. R
    takes more memory than all else together and is computed whenever variances are
    asked for.

    grid : EvolutionGrid. Where it is known.
    values : ndarray of shape (n_steps, 4, n_points). Its values there.
    equation : LearnedEquation. That it obeys, with p weights.
    root : ndarray of shape (p + c, r). Of the posterior covariance of the weights and
        the c boundary values.
    outside : KernelExpansion. The state outside of the box.
    """

    def __init__(self, grid, values, equation, root, outside):
        self.grid = grid
        self.values = values
        self.equation = equation
        self.root = root
        self.outside = outside

    def __getstate__(self):
        # The root is by far the largest part; seven digits of it are enough.
        scale = np.max(np.abs(self.root), initial=0.0) or 1.0
        return vars(self) | {"root": (scale, np.float32(self.root / scale))}

    def __setstate__(self, state):
        scale, root = state["root"]
        vars(self).update(state, root=scale * root.astype(float))

    def evaluate(self, points, operator):
        """Values (n,) of an operator applied to the state at points (n, 2)."""
        inside, values = self.grid.contains(points), np.empty(len(points))
        state = self.values[..., None]
        values[inside] = self.grid.apply(state, points[inside], operator)[:, 0]
        if not inside.all():
            values[~inside] = self.outside.evaluate(points[~inside], operator)
        return values

    def variance(self, points, operator):
        """Posterior variances (n,) of these values, without observation noise."""
        inside, variances = self.grid.contains(points), np.empty(len(points))
        if inside.any():
            response = linear_response(self.grid, self.equation, self.values)
            roots = response[..., 1:] @ self.root
            roots = self.grid.apply(roots, points[inside], operator)
            variances[inside] = np.sum(roots**2, axis=1)
        if not inside.all():
            variances[~inside] = self.outside.variance(points[~inside], operator)
        return variances


def linear_response(grid, equation, state, forcing=0.0, max_growth=1e4):
    """The equation, linearised at a state, integrated from any boundary values.

    grid : EvolutionGrid. Where.
    equation : LearnedEquation. With p weights.
    state : ndarray of shape (n_steps * 4 * n_points,). Values on the grid.
    forcing : ndarray of shape (n_steps * 3 * n_points,), default=0. Right-hand side at
        the Radau points.
    max_growth : float, default=1e4. By which a change of a boundary value may grow
        before it counts as unstable.

    Returns response : ndarray of shape (n_steps, 4, n_points, 1 + p + c) or None. Its
        product with 1, the weights and the c boundary values is the solution; None if
        small changes of them grow beyond bounds, as if time ran backwards.
    """
    n, n_steps, p = grid.n_points, grid.n_steps, len(equation.weights)
    without, moving = grid.matrices(equation.operators)
    state = state.reshape(n_steps, 4 * n)
    slopes, right = _linearise(grid, equation, (without, moving), state, forcing)
    ends, n_open = grid.rows_of_ends, 3 * len(grid.ends)
    response = np.zeros((n_steps, 4, n, 1 + p + n + n_open * n_steps))
    response[0, 0, :, 1 + p : 1 + p + n] = np.eye(n)
    for step, h in enumerate(grid.steps):
        J = np.einsum("kq,qkj->kj", slopes[step], without + moving / h)
        right[step][:, 0] += J @ state[step]
        solved = _solve_linear_step(J, right[step], ends)
        if solved is None:
            return None
        # The columns belong to what is known, to the values where the step starts, and
        # to the values at both ends in space at its three Radau points.
        particular, from_start, from_ends = np.split(solved, [1 + p, 1 + p + n], axis=1)
        last = 1 + p + n + n_open * step
        here = from_start @ response[step, 0, :, :last]
        here[:, : 1 + p] += particular
        growth = [np.max(np.abs(part)) for part in (here[:, 1 + p :], from_ends)]
        if not np.max(growth) < max_growth:
            return None
        response[step, 1:, :, :last] = here.reshape(3, n, -1)
        response[step, 1:, :, last : last + n_open] = from_ends.reshape(3, n, -1)
        if step + 1 < n_steps:
            response[step + 1, 0] = response[step, -1]
    return response


def _solve_linear_step(J, right, ends):
    """Values at the Radau points of a step that meet J values = right; or None.

    J (3n, 4n) acts on the values of the step, its start included, and `right` (3n, m)
    has a column for each of m known parts; a column for each of the n values at the
    start and of those at the `ends` in space follows in the result.
    """
    n = J.shape[1] // 4
    known = np.column_stack([right, -J[:, :n]])
    unknown, on_ends = J[:, n:], np.zeros((3 * n, len(ends)))
    on_ends[ends, np.arange(len(ends))] = 1.0
    unknown[ends], known[ends] = 0.0, 0.0
    unknown[ends, ends] = 1.0
    try:
        return np.linalg.solve(unknown, np.column_stack([known, on_ends]))
    except np.linalg.LinAlgError:
        return None


def integrate(
    grid,
    equation,
    boundary,
    guess,
    forcing=0.0,
    n_newton=6,
    precision=1e-4,
    wild=100.0,
):
    """The equation integrated from given boundary values.

    grid : EvolutionGrid. Where.
    equation : LearnedEquation. With a polynomial kernel.
    boundary : ndarray of shape (c,). Boundary values.
    guess : ndarray of shape (n_steps * 4 * n_points,). Values on the grid from which
        the Newton steps of each time step start.
    forcing : ndarray of shape (n_steps * 3 * n_points,), default=0. Right-hand side at
        the Radau points.
    n_newton : int, default=6. Newton steps of a time step at most.
    precision, wild : float, default=1e-4, 100. Changes, in units of the largest
        boundary value, at which Newton steps end, and at which they are given up.

    Returns state : ndarray of shape (n_steps * 4 * n_points,) or None. The solution;
        None if Newton steps do not find it.
    """
    n, size = grid.n_points, np.max(np.abs(boundary))
    equation, d = copy(equation), 2 + equation.n_operators
    equation.basis, equation.weights = equation.basis.unrestricted(equation.weights, d)
    without, moving = grid.matrices(equation.operators)
    state = guess.reshape(grid.n_steps, 4, n).copy()
    state[0, 0] = boundary[:n]
    state[:, 1:, grid.ends] = boundary[n:].reshape(grid.n_steps, 3, -1)
    forcing = np.broadcast_to(forcing, grid.n_steps * 3 * n).reshape(grid.n_steps, -1)
    points_of_steps = grid.points[:, 1:].reshape(grid.n_steps, -1, 2)
    for step, h in enumerate(grid.steps):
        points, matrices = points_of_steps[step], without + moving / h
        for _ in range(n_newton):
            given = points, forcing[step], grid.rows_of_ends
            changed = _newton_step(equation, matrices, *given, state[step])
            if not changed < wild * size:
                return None
            if changed < precision * size:
                break
        else:
            return None
        if step + 1 < grid.n_steps:
            state[step + 1, 0] = state[step, -1]
    return state.ravel()


def _newton_step(equation, matrices, points, forcing, ends, values):
    """Move values (4, n) of a time step towards a solution; the largest change.

    It is infinite if the linearised equation is singular.
    """
    n = values.shape[1]
    S = np.column_stack([points, (matrices @ values.ravel()).T])
    residual, slopes = equation(S) - forcing, equation.gradient(S)[:, 2:]
    J = np.einsum("kq,qkj->kj", slopes, matrices[:, :, n:])
    residual[ends], J[ends] = 0.0, 0.0
    J[ends, ends] = 1.0
    try:
        change = np.linalg.solve(J, residual).reshape(3, n)
    except np.linalg.LinAlgError:
        return np.inf
    values[1:] -= change
    return np.max(np.abs(change))


def _linearise(grid, equation, matrices, state, forcing):
    """Slopes (n_steps, 3n, Q') at the Radau points, and (f - F + psi . w, -psi) there.

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
    known = forcing + psi @ equation.weights - equation(S)
    right = np.column_stack([known, -psi])
    shape = grid.n_steps, 3 * grid.n_points, -1
    return slopes.reshape(shape), right.reshape(shape)


def _lagrange(nodes, places, order):
    """Derivatives at places (n,) of the polynomials that are 1 at one of m nodes."""
    # Nodes are taken in a random order, for accuracy: the same one in every fit.
    polynomials = BarycentricInterpolator(nodes, np.eye(len(nodes)), rng=0)
    if order == 0:
        return polynomials(places)
    if order >= len(nodes):
        return np.zeros((len(places), len(nodes)))
    return polynomials.derivative(places, order)

"""An evolution equation, integrated over a box of time and space.

In each step in time a differential equation that holds at the three Radau points, the
last of which is the end, is met to order 5 at the ends, and stiff ones are damped
(Radau IIA). One of second order in time is a pair of first order, for u and u_t: the
steps are the same, and only u is kept.

Equations are integrated linearised, for all boundary values and weights at once; or as
they are, for given ones.

Hairer and Wanner, Solving Ordinary Differential Equations II, 1996, section IV.5.
"""

from copy import copy

import numpy as np
from scipy.linalg import lapack
from sklearn import get_config

from keql._evolution.known import split_known
from keql._numerics.memory import in_chunks


class ResponsesKept(list):
    """Effects of unknowns on states, kept while they take little memory.

    A response is some 50 MB large; without it the equation is integrated once more. All
    together take the part `part` of scikit-learn's working memory; those of further
    functions are None.
    """

    def __init__(self, part=0.25):
        super().__init__()
        self._left = part * get_config()["working_memory"] * 2**20

    def append(self, response):
        """Keep a response, or None in its place."""
        fits = response.nbytes <= self._left
        self._left -= response.nbytes if fits else 0
        super().append(response if fits else None)


def linear_response(grid, equation, state, forcing=0.0, max_growth=1e4):
    """The equation, linearised at a state, integrated from any boundary values.

    grid : EvolutionGrid. Where.
    equation : LearnedEquation or tuple of them. With p weights in all; of several
        states one equation for each, the known part of which has its time derivative.
    state : ndarray of shape (n_steps * 4 * size,). Values on the grid.
    forcing : ndarray of shape (E + I, n_steps * 3 * n_points), default=0. Right-hand
        side of each equation at the Radau points, then the inputs of unknown parts.
    max_growth : float, default=1e4. By which a change of a boundary value may grow
        before it counts as unstable.

    Returns response : ndarray of shape (n_steps, 4, size, 1 + p + c) or None. Its
        product with 1, the weights and the c boundary values is the solution; None if
        small changes of them grow beyond bounds, as if time ran backwards.
    """
    [response] = linear_responses(grid, equation, [state], [forcing], max_growth)
    return response


def linear_responses(grid, equation, states, forcings, max_growth=1e4):
    """The responses of M functions, one after the other.

    The equation is linearised for many functions at once: they have the points of the
    grid in common, so that functions of these alone are evaluated once. Those along
    which a linear equation is the same share all factorisations, and what follows from
    boundary values.

    states : list of M ndarray of shape (n_steps * 4 * size,). Values on the grid.
    forcings : list of M float or ndarray of shape (E + I, n_steps * 3 * n_points).
        What is known; it and all else is that of :func:`linear_response`.

    Yields the response of each, or None.
    """
    p = n_weights(equation)
    n_numbers = grid.n_steps * 3 * grid.size * (1 + p)
    functions = [*zip(states, forcings, strict=True)]
    for part in in_chunks(functions, n_numbers, copies=8):
        linearised = _linearised(grid, equation, *zip(*part, strict=True))
        for alike in _with_equal_slopes(linearised):
            own, slopes, right = zip(*alike, strict=True)
            steps = _linear_steps(grid, equation, own, slopes[0], right)
            found = _response(grid, len(alike) * (1 + p), steps, max_growth)
            yield from _of_each(found, len(alike), 1 + p)


def _with_equal_slopes(linearised, rounding=1e-13):
    """Lists of those that follow one another, and are linearised alike.

    linearised : iterable of tuple. Of each function what :func:`_linearised` finds: its
        state, the slopes of the equation, and the right-hand sides.
    rounding : float, default=1e-13. Slopes are equal up to this part of the largest:
        features are summed in another order in each function.
    """
    groups = []
    for own in linearised:
        first = groups[-1][0][1] if groups else np.inf
        if np.max(np.abs(own[1] - first)) <= rounding * np.max(np.abs(own[1])):
            groups[-1].append(own)
        else:
            groups.append([own])
    return groups


def _of_each(response, n_functions, n_known):
    """The responses of functions from one that has the known columns of all.

    response : ndarray of shape (n_steps, 4, size, n_functions * n_known + c) or None.
        With c columns of boundary values, which the functions have in common.

    Yields ndarray of shape (n_steps, 4, size, n_known + c), or None, of each.
    """
    if response is None or n_functions == 1:
        yield from [response] * n_functions
        return
    known, from_boundary = np.split(response, [n_functions * n_known], axis=-1)
    for own in np.split(known, n_functions, axis=-1):
        yield np.concatenate([own, from_boundary], axis=-1)


def _response(grid, n_known, steps, max_growth):
    """The response of functions, from the :func:`_linear_steps`; or None.

    Its first `n_known` columns belong to what is known and to the weights.
    """
    n, n_steps = grid.size, grid.n_steps
    n_initial, n_open = grid.order * n, 3 * len(grid.ends)
    response = np.zeros((n_steps, 4, n, n_known + n_initial + n_open * n_steps))
    response[0, 0, :, n_known : n_known + n] = np.eye(n)
    # Of the slopes in time where a step starts, if the equation is of second order.
    moving = np.zeros((n_initial - n, response.shape[-1]))
    moving[:, n_known + n : n_known + n_initial] = np.eye(n_initial - n)
    for step, (J, right, is_open) in enumerate(steps):
        h = grid.steps[step]
        solved = _solve_linear_step(J, right, grid.rows_of_ends, is_open)
        if solved is None:
            return None
        # The columns belong to what is known, to what the step starts from, and to the
        # values at both ends in space at its three Radau points.
        particular, from_start, from_ends = np.split(
            solved, [n_known, n_known + n_initial], axis=1
        )
        last = n_known + n_initial + n_open * step
        here = from_start[:, n_initial - n :] @ response[step, 0, :, :last]
        if len(moving):
            here += h * from_start[:, :n] @ moving[:, :last]
        here[:, :n_known] += particular
        if not _growth(grid, here[:, n_known:], from_ends) < max_growth:
            return None
        response[step, 1:, :, :last] = here.reshape(3, n, -1)
        response[step, 1:, :, last : last + n_open] = from_ends.reshape(3, n, -1)
        if step + 1 < n_steps:
            response[step + 1, 0] = response[step, -1]
            moving = grid.last_slopes(response[step], h)
    return response


def linear_solution(grid, equation, state, unknowns, forcing=0.0):
    """The solution of the linearised equation for one set of weights, boundary values.

    The product of the linear response with `unknowns` (1 + p + c,), of which the first
    is 1, without the response; all else is as there. An array of the shape of `state`.
    """
    n, p = grid.size, n_weights(equation)
    boundary, known = unknowns[1 + p :], unknowns[: 1 + p]
    start, slopes = boundary[:n], boundary[n : grid.order * n]
    at_ends = boundary[grid.order * n :].reshape(grid.n_steps, -1)
    solution = np.empty((grid.n_steps, 4, n))
    linearised = _linearised(grid, equation, [state], [forcing], slopes[:, None])
    [(along, gradient, known_parts)] = linearised
    steps = _linear_steps(grid, equation, [along], gradient, [known_parts])
    for step, (J, right, is_open) in enumerate(steps):
        h, unknown = grid.steps[step], J[:, -3 * n :].copy()
        values = right @ known - J[:, : -3 * n] @ np.r_[h * slopes, start]
        unknown, values = _balanced(unknown, values)
        ends = grid.rows_of_ends[is_open]
        unknown[ends] = 0.0
        unknown[ends, ends] = 1.0
        values[ends] = at_ends[step][is_open]
        solution[step] = [start, *np.linalg.solve(unknown, values).reshape(3, n)]
        start = solution[step, -1]
        slopes = grid.last_slopes(solution[step, ..., None], h).ravel()
    return solution.ravel()


def as_tuple(equations):
    return equations if isinstance(equations, tuple) else (equations,)


def n_weights(equations):
    return sum(len(equation.weights) for equation in as_tuple(equations))


def _linear_steps(grid, equations, states, slopes, rights):
    """Equations linearised at states, step by step: J values = right (1, weights).

    J (3 size, (3 + order) size) acts on what the step starts from and on the values at
    its Radau points; `right` has the shape (3 size, 1 + p) for each function, one after
    the other. Of the values at both ends, those that the equation leaves open follow
    (:func:`open_ends`). The arguments are those of functions with equal slopes that
    :func:`_linearised` finds.
    """
    operators, n = as_tuple(equations)[0].operators, len(grid.states) * grid.n_points
    factors, is_open = grid.factors(operators), open_ends(grid, operators, slopes[0])
    for step, h in enumerate(grid.steps):
        J = _step_matrix(grid, factors, slopes[:, :, step], h).reshape(3 * n, -1)
        for state, right in zip(states, rights, strict=True):
            right[step][:, 0] += J @ state[step].ravel()
        yield J, np.hstack([right[step] for right in rights]), is_open[step]


def _step_matrix(grid, factors, slopes, h):
    """What acts on the values of a step of the length h in linearised equations.

    An array (3, S, n_points, 3 + order, S, n_points) for slopes (S, Q', 3, n_points).
    Of operators without a derivative in space only the diagonals are computed.
    """
    S, n = len(grid.states), grid.n_points
    J = np.zeros((3, S, n, 3 + grid.order, S, n))
    for q, k, order, in_time, in_space in factors:
        stays = np.count_nonzero(in_space) == n
        for row in range(S):
            own = slopes[row, q] / h**order
            if not own.any():
                continue
            if stays:
                diagonals = np.einsum("ixjx->ixj", J[:, row, :, :, k])
                own = own * np.diag(in_space)
                diagonals += in_time[:, None] * own[:, :, None]
            else:
                for i, j in zip(*np.nonzero(in_time), strict=True):
                    J[i, row, :, j, k] += (in_time[i, j] * own[i])[:, None] * in_space
    return J


def open_ends(grid, operators, slopes, negligible=1e-9):
    """Which of the values at both ends an equation leaves open at the Radau points.

    An equation of an even order in space leaves open half as many at either end. One of
    an odd order leaves open one more where waves come in, at the left end for u_t =
    -u_x and u_t = u_xxx and at the right end for the opposite signs. The order is that
    of the terms which an equation has, not of those that it may have: values that are
    imposed where waves leave would disagree with them. In two coordinates of space the
    same holds along each.

    grid : EvolutionGrid. Where. The values of several states, and those of an equation
        of second order in time, are all open.
    operators : list of Q' operators. Of the equation.
    slopes : ndarray of shape (Q', n_steps, 3, n_points). Of the equation in these.
    negligible : float, default=1e-9. Slopes over powers of the extent of space that are
        so small beside the largest one are rounding errors.

    Returns is_open : ndarray of bool, of shape (n_steps, 3 * len(grid.ends)).
    """
    is_open = np.ones((slopes.shape[1], 3, len(grid.ends)), dtype=bool)
    if len(grid.states) > 1 or grid.order > 1 or not len(grid.ends):
        return is_open.reshape(len(is_open), -1)
    orders = [o for operator in operators for o, _ in operator.terms]
    highest = int(np.max(np.array(orders)[:, grid.space]))
    in_space = np.zeros((len(grid.space), 1 + highest, *slopes.shape[1:]))
    inertia = 0.0
    for q, operator in enumerate(operators):
        for orders, factor in operator.terms:
            along = [orders[i] for i in grid.space]
            if orders[grid.axis] and not any(along):
                inertia = inertia + factor * slopes[q]
            elif np.count_nonzero(along) <= 1:  # mixed ones are never alone
                for own, order in zip(in_space, along, strict=True):
                    own[order] += factor * slopes[q] * (order == max(along))
    units = grid.extents[:, None] ** np.arange(1 + highest)
    sizes = np.max(np.abs(in_space), axis=(3, 4)) / units[:, :, None]
    is_open[:] = False
    for i, (own, size) in enumerate(zip(in_space, sizes, strict=True)):
        is_open |= _open_along(
            grid, i, own, size > negligible * sizes.max((0, 1)), inertia
        )
    return is_open.reshape(len(is_open), -1)


def _open_along(grid, i, in_space, is_there, inertia):
    """The same of the ends of one coordinate of space, (n_steps, 3, len(grid.ends)).

    in_space : ndarray of shape (orders, n_steps, 3, n_points). Slopes in derivatives.
    is_there : ndarray of bool, of shape (orders, n_steps). Those the equation has.
    inertia : ndarray of shape (n_steps, 3, n_points). The slope in that in time.
    """
    depths, n_ends = grid.depths[grid.ends, i], grid.n_ends[0, i]
    side = np.where(grid.places[grid.ends, i] == depths, 1.0, -1.0)
    is_open = np.zeros((*inertia.shape[:2], len(grid.ends)), dtype=bool)
    for step, there in enumerate(is_there.T):
        order = max(np.flatnonzero(there), default=0)
        speed = (-1) ** (order // 2) * in_space[order, step] / inertia[step]
        comes_in = side * speed[:, grid.ends] > 0
        is_open[step] = depths < order // 2 + (order % 2) * comes_in
    return is_open & (depths < n_ends)


def _growth(grid, from_boundary, from_ends):
    """The largest effect of a boundary value; that of a slope is over all the time."""
    growth = [np.max(np.abs(part), initial=0.0) for part in (from_boundary, from_ends)]
    if grid.order == 2:
        slopes, duration = grid.rows_of_slopes, grid.edges[-1] - grid.edges[0]
        values = np.delete(from_boundary, slopes, axis=1)
        from_slopes = from_boundary[:, slopes] / duration
        growth[0] = max(np.max(np.abs(part)) for part in (values, from_slopes))
    return np.max(growth)


def _in_step(matrices, h):
    """Operators at the Radau points of a step of the length h, from its values."""
    total = matrices[0]
    for order, matrix in enumerate(matrices[1:], 1):
        total = total + matrix / h**order
    return total


def _balance(left):
    """Factors (n,) by which the largest element of each row is between a half and one.

    Pivots are chosen by size, and equations are in other units than the values at both
    ends in space that take the place of some of them: with coordinates of 1e-12 all
    digits were lost. Factors are powers of two, which cost none.
    """
    return np.ldexp(1.0, -np.frexp(np.max(np.abs(left), axis=1))[1])


def _balanced(left, right):
    """Rows of left x = right, times these factors."""
    factors = _balance(left)
    return factors[:, None] * left, factors * right


def _solve_linear_step(J, right, ends, is_open):
    """Values at the Radau points of a step that meet J values = right; or None.

    J (3n, s + 3n) acts on the s values that the step starts from and on those at the
    Radau points, and `right` (3n, m) has a column for each of m known parts; a column
    for each of the s values and of those at the `ends` in space follows in the result,
    zero for those that are not open.
    """
    n, first = len(J), right.shape[1]
    last = first + J.shape[1] - n
    unknown, is_imposed = J[:, -n:], ends[is_open]
    factors = _balance(unknown)[:, None]
    left = np.empty((n, n), order="F")  # by columns, as LAPACK takes them
    known = np.zeros((n, last + len(ends)), order="F")
    np.multiply(factors, unknown, out=left)
    np.multiply(factors, right, out=known[:, :first])
    np.multiply(-factors, J[:, :-n], out=known[:, first:last])
    left[is_imposed], known[is_imposed] = 0.0, 0.0
    left[is_imposed, is_imposed] = 1.0
    known[is_imposed, last + np.flatnonzero(is_open)] = 1.0
    *_, solved, info = lapack.dgesv(left, known, overwrite_a=1, overwrite_b=1)
    return None if info else solved


def integrate(
    grid, equation, boundary, guess, forcing=0.0, n_newton=6, precision=1e-4, wild=100.0
):
    """The equation integrated from given boundary values.

    grid : EvolutionGrid. Where.
    equation : LearnedEquation. That the solution obeys.
    boundary : ndarray of shape (c,). Boundary values.
    guess : ndarray of shape (n_steps * 4 * n_points,) or None. Values on the grid from
        which the Newton steps of each time step start; None: those at its start.
    forcing : ndarray of shape (1 + I, n), default=0. As of :func:`linear_response`.
    n_newton : int, default=6. Newton steps of a time step at most.
    precision, wild : float, default=1e-4, 100. Changes, in units of the largest
        boundary value, at which Newton steps end, and at which they are given up.

    Returns state : ndarray of shape (n_steps * 4 * n_points,) or None. The solution;
        None if Newton steps do not find it.
    """
    n, slopes = grid.n_points, boundary[grid.rows_of_slopes]
    boundary = np.delete(boundary, grid.rows_of_slopes)
    size = np.max(np.abs(boundary))
    equation, d = copy(equation), equation.n_unknown_features
    equation.basis, equation.weights = equation.basis.unrestricted(equation.weights, d)
    of_orders = grid.matrices(equation.operators)
    start, ends = boundary[:n], boundary[n:].reshape(grid.n_steps, 3, -1)
    state = np.empty((grid.n_steps, 4, n))
    guess = None if guess is None else guess.reshape(state.shape)
    right, inputs = split_known((equation,), forcing, grid.n_steps * 3 * n)
    right = right.reshape(grid.n_steps, -1)
    known = np.hstack([grid.points[:, 1:].reshape(-1, grid.d), inputs.T])
    known = known.reshape(grid.n_steps, 3 * n, -1)
    for step, h in enumerate(grid.steps):
        state[step] = start if guess is None else guess[step]
        state[step, 0], matrices = start, _in_step(of_orders, h)
        state[step, 1:, grid.ends] = ends[step].T
        given = known[step], right[step], h * slopes.ravel()
        for _ in range(n_newton):
            changed = _newton_step(grid, equation, matrices, *given, state[step])
            if not changed < wild * size:
                return None
            if changed < precision * size:
                break
        else:
            return None
        start, slopes = state[step, -1], grid.last_slopes(state[step, ..., None], h)
    return state.ravel()


def _newton_step(grid, equation, matrices, known, forcing, moving, values):
    """Move values (4, n) of a time step towards a solution; the largest change.

    It is infinite if the linearised equation is singular. `known` has coordinates and
    inputs; `moving`, if the equation is of second order, the slopes at the start, times
    the length of the step.
    """
    n = values.shape[1]
    S = np.column_stack([known, (matrices @ np.r_[moving, values.ravel()]).T])
    residual, slopes = equation(S) - forcing, equation.gradient(S)[:, len(known.T) :]
    J = np.einsum("kq,qkj->kj", slopes, matrices[:, :, -3 * n :])
    is_open = open_ends(grid, equation.operators, slopes.T.reshape(-1, 1, 3, n))
    ends = grid.rows_of_ends[is_open[0]]
    J, residual = _balanced(J, residual)
    residual[ends], J[ends] = 0.0, 0.0
    J[ends, ends] = 1.0
    try:
        change = np.linalg.solve(J, residual).reshape(3, n)
    except np.linalg.LinAlgError:
        return np.inf
    values[1:] -= change
    return np.max(np.abs(change))


def _linearised(grid, equations, states, forcings, first=None):
    """Equations linearised at the states of functions: a triple for each of these.

    The state with the slopes where steps start (n_steps, 3 + order, size), `first` the
    first of them (size, 1) or None, and what :func:`linearised_at` finds.
    """
    equations, M, shape = as_tuple(equations), len(states), (grid.n_steps, 4, -1, 1)
    states = [grid.with_slopes(own.reshape(shape), first)[..., 0] for own in states]
    parts = np.reshape(states, (M, grid.n_steps, -1, len(grid.states), grid.n_points))
    operators = equations[0].operators
    values = np.zeros((len(operators), M, grid.n_steps, 3, grid.n_points))
    for q, k, order, in_time, in_space in grid.factors(operators):
        part = in_time @ (parts[:, :, :, k] @ in_space.T)
        values[q] += part / grid.steps[:, None, None] ** order
    n = grid.n_steps * 3 * grid.n_points
    known = [np.vstack(split_known(equations, own, n)) for own in forcings]
    slopes, right = linearised_at(grid, equations, values, np.hstack(known))
    return zip(states, np.moveaxis(slopes, 2, 0), right, strict=True)


def linearised_at(grid, equations, values, forcing):
    """Slopes of equations in operators, and (f - F + psi . w, -psi), where they hold.

    F are the equations, psi their features, at the values (Q', ..., n_steps, 3,
    n_points) of their operators at the Radau points, of one function or of several; f
    is the forcing of all of these, followed by their inputs (E + I, n), or a number.
    Slopes (S, Q', ..., n_steps, 3, n_points) and the right-hand sides (..., n_steps, 3
    size, 1 + p) are ordered by the states that equations are those of.
    """
    points = grid.points[:, 1:].reshape(-1, grid.d)
    n_functions = values[0].size // len(points)
    forcing, inputs = split_known(equations, forcing, values[0].size)
    operators = values.reshape(len(values), -1).T
    S = np.column_stack([np.tile(points, (n_functions, 1)), inputs.T, operators])
    slopes = np.zeros((len(grid.states), *values.shape))
    right = np.zeros((len(grid.states), len(S), 1 + n_weights(equations)))
    start = 1
    for equation, f in zip(equations, forcing, strict=True):
        row, stop = evolving_state(grid, equation), start + len(equation.weights)
        psi = equation.basis(S[:, : equation.n_unknown_features])
        slopes[row] = equation.gradient(S).T[-len(values) :].reshape(values.shape)
        right[row, :, 0] = f + psi @ equation.weights - equation(S)
        right[row, :, start:stop] = -psi
        start = stop
    right = right.reshape(len(grid.states), *values.shape[1:], -1)
    shape = *values.shape[1:-2], 3 * grid.size, -1
    return slopes, np.moveaxis(right, 0, -3).reshape(shape)


def effects_on_rates(grid, equations, state, forcing=0.0):
    """Slopes (S, n_steps * 3 * n_points, p) of time derivatives in the weights.

    At the Radau points, along a `state` (n_steps * 4 * size,) on the grid.
    """
    factors = grid.factors(equations[0].operators)
    [(_, slopes, right)] = _linearised(grid, equations, [state], [forcing])
    right = right.reshape(grid.n_steps, 3, len(grid.states), grid.n_points, -1)
    right = np.moveaxis(right[..., 1:], 2, 0)
    inertia = sum(slopes[:, q] for q, _, k, *_ in factors if k == grid.order)
    effects = right / inertia[..., None]
    return effects.reshape(len(grid.states), -1, right.shape[-1])


def evolving_state(grid, equation):
    """Position of the state whose highest time derivative an equation is solved for."""
    for operator in getattr(equation.known_part, "operators", []):
        for state, orders, _ in operator.parts:
            if orders[grid.axis] == grid.order:
                return grid.states.index(state)
    return 0  # of a single state, whatever the equation

"""Solving a given equation for states: Gauss-Newton steps in observation space.

The state v of least RKHS norm is sought that meets N linear conditions and the
equation at K points, each up to a noise whose variance s_i is a fraction, the level,
of the prior variance of its functional (that of the equation linearised at zero):

    J = 1/2 |v|^2 + 1/2 sum_i r_i^2 / s_i.

A problem with a high level is easily solved, and its solution starts the search at
the next lower one. How far to go is told by the likelihood of the linearised problem
with the scale of the kernel profiled out: with T the linearised functionals and
H = T U T^* + diag(s),

    -n/2 log(2 J / n) - 1/2 log det H,

in which the scale must be one that the size of the data allows. A kernel that cannot
represent a solution, an equation that holds only roughly, or points that do not
resolve it would otherwise be answered with wild states.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from keql._numerics.gauss_newton import Damping, minimise
from keql._numerics.linalg import solve_lower
from keql._numerics.scaling import rms
from keql._solving.problem import (
    KnownProblem,
    SolvedState,
    combine,
    factorise,
    make_block,
)
from keql.operators import gram

# Noise variances relative to the prior ones, as they are tried. The last level is as
# near to exact conditions as rounding allows.
LEVELS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-13)
# First damping, relative to the weight of the squared norm.
DAMPING = 1.0
# Largest scale of the kernel, relative to the mean square of conditions or of the
# equation in units of their prior variance.
LARGEST_SCALE = 1e3
# Relative difference of values by which linear equations are told.
VALUES_DIFFER = 1e-7


class Noise(NamedTuple):
    """Standard deviations; 0 stands for exact, None for "as small as makes sense"."""

    conditions: float | None
    equation: float | None

    def choices(self, prior, n_conditions):
        """Variances to try, of shape (n,), for each level; and whether to choose."""
        is_equation = np.arange(len(prior)) >= n_conditions
        stds = np.where(
            is_equation,
            np.nan if self.equation is None else self.equation,
            np.nan if self.conditions is None else self.conditions,
        )
        free = np.isnan(stds)
        choose = bool(free.any())
        given = np.nan_to_num(stds) ** 2
        levels = {
            # If nothing is free, high levels are where the search begins all the same.
            level: np.where(free | (not choose), level, LEVELS[-1])
            for level in LEVELS
        }
        tried = {
            level: np.maximum(given, each * prior) for level, each in levels.items()
        }
        return tried, choose


@dataclass
class Outcome:
    """A state that solves an equation, and how it was found.

    Parameters
    ----------
    state : SolvedState
        The solution.
    features : ndarray of shape (K, d + Q)
        Its features at the collocation points.
    level : float
        Relative noise variance.
    likelihood : float
        Logarithm, with the scale of the kernel profiled out.
    scale : float
        The factor of the kernel that maximises the likelihood.
    residual : float
        Root mean square of the equation's residual.
    linear : bool
        Whether one step was all.
    n_iter : int
        Steps tried.
    converged : bool
        Whether the last search met its stopping rule.
    message : str
        Why it ended.
    loss_curve : list of float
        Of the last search.
    """

    state: object
    features: np.ndarray
    level: float
    likelihood: float
    scale: float
    residual: float
    linear: bool = True
    n_iter: int = 1
    converged: bool = True
    message: str = "the equation is linear: one step."
    loss_curve: list = field(default_factory=list)


def solve_all(kernel, equation, problems, noise, settings, map_functions=map):
    """Solve one equation for several functions.

    Parameters
    ----------
    kernel : Kernel
        State kernel.
    equation : LearnedEquation, GivenEquation or None
        The equation; None: states of least norm that meet the conditions.
    problems : list of (Conditions, ndarray of shape (K, d))
        What is given of each function, and its collocation points.
    noise : Noise
        How exactly conditions and equation hold.
    settings : dict
        `max_iter` and `tol` of the loop.
    map_functions : callable, default=map
        Applies a function to each problem of a nonlinear equation.

    Returns
    -------
    outcomes : list of Outcome
        One for each. Functions with the same functionals share their Gram matrix,
        and, if the equation is linear, its factorisation.
    """
    groups = {}
    for m, (conditions, points) in enumerate(problems):
        groups.setdefault((conditions.key, points.tobytes()), []).append(m)
    outcomes = [None] * len(problems)
    for members in groups.values():
        group = [problems[m][0] for m in members]
        if equation is None:
            solved = _interpolate(kernel, group, noise)
        else:
            points = problems[members[0]][1]
            problem = KnownProblem(
                kernel,
                make_block(kernel, group[0], equation.operators, points),
                equation,
            )
            solved = _solve_group(problem, group, noise, settings, map_functions)
        for m, outcome in zip(members, solved, strict=True):
            outcomes[m] = outcome
    return outcomes


def _solve_group(problem, group, noise, settings, map_functions):
    if problem.seems_linear():
        outcomes = _solve_linear(problem, group, noise)
        if outcomes is not None:
            return outcomes

    def solve(conditions):
        return _solve_nonlinear(problem.for_data(conditions), noise, settings)

    return list(map_functions(solve, group))


def _interpolate(kernel, group, noise):
    """States of least norm that meet conditions, without an equation."""
    functionals, none = group[0].functionals, np.zeros((0, 0))
    H = gram(kernel, functionals)
    right = np.column_stack([conditions.values for conditions in group])
    solution, L, variances, summary = _choose_level(H, right, noise, len(H))
    return [
        Outcome(
            SolvedState(kernel, functionals, x, none, variances, L), none, *summary, 0.0
        )
        for x in solution.T
    ]


def _solve_linear(problem, group, noise):
    """All functions by one factorisation; None if the equation is not linear."""
    block, slopes = problem.block, problem.slopes_at_zero
    right = np.column_stack([conditions.right for conditions in group])
    n = len(block.values)
    right[n:] -= problem.value_at_zero[:, None]
    solution, L, variances, summary = _choose_level(
        problem.matrix_at_zero, right, noise, n
    )
    coefficients = np.column_stack([block.expand(x, slopes) for x in solution.T])
    values = _apply_gram(block, coefficients)
    imposed = combine(values, slopes)[n:] + problem.value_at_zero[:, None]
    # The largest solution is where a small nonlinear term would show.
    m = int(np.argmax(np.abs(values).max(axis=0)))
    S = block.features(values[:, m])
    size = np.abs(problem.value_at_zero)
    size = size + np.sum(np.abs(slopes * S[:, -len(slopes) :].T), axis=0)
    error = problem.equation(S) - imposed[:, m]
    if not np.linalg.norm(error) <= VALUES_DIFFER * np.linalg.norm(size):
        return None
    outcomes = []
    for m, conditions in enumerate(group):
        c = coefficients[:, m]
        state = SolvedState(problem.kernel, block.functionals, c, slopes, variances, L)
        residual = rms(imposed[:, m] - conditions.forcing)
        outcomes.append(
            Outcome(state, block.features(values[:, m]), *summary, residual)
        )
    return outcomes


def _apply_gram(block, coefficients):
    """As `block.apply_gram`, for several functions at once."""
    n = len(block.values)
    square = block.gram_operators.reshape((block.n_operators,) * 2)
    above, below = coefficients[:n], coefficients[n:]
    return np.vstack(
        [
            block.gram_values @ above + block.gram_cross @ below,
            block.gram_cross.T @ above + square @ below,
        ]
    )


def _choose_level(H, right, noise, n_conditions):
    """Solve a linear problem with the level of the highest likelihood.

    From the lowest one upwards: a problem that is posed and resolved well needs no
    other.
    """
    tried, choose = noise.choices(np.diag(H), n_conditions)
    best = None
    for level in reversed(LEVELS) if choose else LEVELS[-1:]:
        L = factorise(H, tried[level])
        half = solve_lower(L, right)
        likelihood, scale = profile_likelihood(
            np.sum(half**2), right, np.diag(H), n_conditions, L
        )
        if best is not None and likelihood <= best[0]:
            break
        best = likelihood, scale, level, L, half
    likelihood, scale, level, L, half = best
    solution = solve_lower(L, half, transposed=True)
    return solution, L, tried[level], (level, likelihood, scale)


def profile_likelihood(quadratic, right, prior, n_conditions, L):
    """Log likelihood of values with covariance scale * L L^T at the best scale.

    The scale is at most LARGEST_SCALE times what the values say one by one. It would
    grow without limit with a kernel that is too smooth for the solution, and so would
    the likelihood where points are so dense that most of their covariance is noise.

    Parameters
    ----------
    quadratic : float
        Sum of right^T (L L^T)^-1 right over functions.
    right : ndarray of shape (n, M)
        The values.
    prior : ndarray of shape (n,)
        Their variances without noise, for scale 1.
    n_conditions : int
        How many of them are conditions, not of the equation.
    L : ndarray of shape (n, n)
        Lower Cholesky factor.

    Returns
    -------
    likelihood : float
        The sum over functions.
    scale : float
        The scale.
    """
    ratios = right**2 / np.where(prior > 0, prior, np.inf)[:, None]
    parts = ratios[:n_conditions], ratios[n_conditions:]
    largest = LARGEST_SCALE * max(np.mean(part) for part in parts if part.size)
    scale = min(quadratic / right.size, largest)
    likelihood = -right.shape[1] * np.sum(np.log(np.diag(L)))
    if scale > 0:
        likelihood -= 0.5 * (right.size * np.log(scale) + quadratic / scale)
    return float(likelihood), float(scale)


def _solve_nonlinear(problem, noise, settings):
    """From the highest level of the noise downwards while the likelihood rises."""
    block = problem.block
    n = len(block.values)
    tried, choose = noise.choices(problem.prior, n)
    size = n + block.n_operators
    iterate, best, n_iter = (np.zeros(size), np.zeros(size)), None, 0
    for level in LEVELS:
        stage = problem.with_variances(tried[level])
        control = Damping(DAMPING, settings["tol"])
        result = minimise(stage, iterate, control, max_iter=settings["max_iter"])
        n_iter += result.n_iter
        model = stage.linearise(stage.evaluate(result.solution))
        L = model.factor()
        likelihood, scale = profile_likelihood(
            2 * result.loss, model.right[:, None], np.diag(model.matrix), n, L
        )
        worse = best is not None and not (result.converged and likelihood > best[0])
        if choose and worse:
            break
        iterate, best = result.solution, (likelihood, scale, level, model, L, result)
    likelihood, scale, level, model, L, result = best
    c = result.solution[0]
    state = SolvedState(
        problem.kernel, block.functionals, c, model.slopes, tried[level], L
    )
    return Outcome(
        state,
        model.evaluation.features,
        level,
        likelihood,
        scale,
        rms(model.evaluation.residuals[n:]),
        linear=False,
        n_iter=n_iter,
        converged=result.converged,
        message=result.message,
        loss_curve=result.loss_curve,
    )

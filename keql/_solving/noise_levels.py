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

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.linalg import norm

from keql._joint.dual import DualState, factorise
from keql._joint.problem import Iterate
from keql._numerics.linalg import rms, solve_lower
from keql._numerics.optimisation import Damping, minimise
from keql._solving.problem import (
    by_name,
    make_problem,
    prior_variances,
    seems_linear,
)


@dataclass(frozen=True)
class NoiseLevels:
    """How exactly conditions and equation hold, and what is tried if that is open.

    Attributes
    ----------
    observation_noise, equation_noise : float, dict or None
        Standard deviations in the units of the data and of the forcing; 0 stands for
        exact, None for "as small as the likelihood says". They may differ by the name
        of the state or operator observed, and of the equation; what is not named is
        open.
    levels : tuple of float
        Noise variances relative to the prior ones, from high to low, as they are tried.
        The last one is as near to exact conditions as rounding allows.
    """

    observation_noise: float | dict | None
    equation_noise: float | dict | None
    levels: tuple = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12, 1e-13)

    def of_operator(self, operator):
        """What is given for the values of an operator."""
        given = self.observation_noise
        if not isinstance(given, dict):
            return given
        return given.get(operator.name, given.get(operator.state))

    def of_equation(self, name):
        """What is given for the residuals of an equation."""
        given = self.equation_noise
        return given.get(name) if isinstance(given, dict) else given

    def given(self, conditions, names=("",)):
        """Standard deviations (N + R,) that are given; nan where they are open.

        `names` are those of the equations.
        """
        sizes = [len(points) for points, _ in conditions.observed]
        levels = [self.of_operator(operator) for _, operator in conditions.observed]
        sizes += np.diff(conditions.rows.starts).tolist()
        levels += [self.of_equation(name) for name in names]
        return np.repeat(np.array(levels, dtype=float), sizes)

    def variances(self, level, given, prior):
        """Noise variances (N + K,) at a level, from those given and the prior ones.

        A noise that is given is at least as large as the lowest level. If none is open,
        high levels are lower limits, where a search begins all the same.
        """
        is_open = np.isnan(given)
        varies = is_open | (not is_open.any())
        lowest = np.where(varies, level, self.levels[-1]) * prior
        return np.maximum(np.nan_to_num(given) ** 2, lowest)


@dataclass
class Solution:
    """A state that solves an equation, and how it was found.

    `features` (R, c + Q') are those of the DualState in the rows of the equations, and
    `residual` (E,) is the root mean square of the residual of each equation in its own.
    `level` is the relative noise variance, `likelihood` the logarithm of that with the
    `scale` of the kernel that maximises it. The search took `n_iter` steps at all
    levels; `converged` and `message` are of the last level, also where the search at
    a lower one was `interrupted` from the keyboard.
    """

    state: object
    features: np.ndarray
    residual: np.ndarray
    level: float
    likelihood: float
    scale: float
    linear: bool = True
    n_iter: int = 1
    converged: bool = True
    message: str = "the equation is linear: one step."
    interrupted: bool = False


def solve_all(kernel, equation, conditions, noise, *, max_iter, tol, map_functions=map):
    """A Solution of an equation, or of a system, for each of several functions.

    `equation` is learned or given, a system of several, or None, for states of least
    norm that meet the `conditions`, a list; `noise`, a NoiseLevels, says how exactly.
    The loop for a nonlinear equation takes at most `max_iter` steps at each level and
    ends at the relative decrease `tol`; `map_functions` applies it to each function.
    Functions with the same functionals share their Gram matrix, and, if the equation is
    linear, its factorisation.
    """
    groups, solutions = {}, {}
    for m, given in enumerate(conditions):
        groups.setdefault(given.key, []).append(m)
    training_features = getattr(equation, "training_features", None)
    names = tuple(by_name(equation)) or ("",)
    loop = {"noise": noise, "names": names, "max_iter": max_iter, "tol": tol}
    for members in groups.values():
        group = [conditions[m] for m in members]
        model = _linearise_at_zero(make_problem(kernel, equation, group[0]))
        solved = None
        if seems_linear(model, _size(model, group[0].values), training_features):
            solved = _solve_linear(model, group, noise, names)
        if solved is None:
            solved = map_functions(partial(_solve_nonlinear, model, **loop), group)
        solutions.update(zip(members, solved, strict=True))
    return [solutions[m] for m in range(len(conditions))]


def _size(model, values):
    """The largest of the values; of several states, in prior standard deviations."""
    (H,), (block,) = model.matrices, model.problem.blocks
    if len({state for _, operator in block.observed for state in operator.states}) > 1:
        values = values / np.sqrt(np.diag(H)[: len(values)])
    return np.max(np.abs(values), initial=0.0) or 1.0


def _residuals_of(block, residuals):
    """Root mean square (E,) of the residuals (R,) of each equation."""
    return np.array([rms(residuals[rows]) for rows, _ in block.rows.slices()])


def _linearise_at_zero(problem):
    """The model at the zero state, with data that are zero: residuals are F(0)."""
    (block,) = problem.blocks
    block = replace(block, values=0 * block.values, forcing=0 * block.forcing)
    problem = replace(problem, blocks=[block])
    return problem.linearise(problem.evaluate(problem.zero(np.empty(0))))


def _solve_linear(model, group, noise, names, tolerance=1e-7):
    """All functions by one factorisation; None if the equation is not linear.

    It is not if its values, or those of one of several equations, differ from those of
    its linearisation by more than `tolerance`, relatively.
    """
    problem, (block,), (tangent,) = model.problem, model.problem.blocks, model.tangents
    (at_zero,) = model.evaluation.residuals
    n, no_weights = len(block.values), np.empty(0)
    right = np.column_stack([np.r_[given.values, given.forcing] for given in group])
    right -= at_zero[:, None]
    solved, factor, precisions, summary = _choose_level(model, right, noise, names)
    coefficients = tangent.expand(solved)
    values = block.evaluate(coefficients)
    linear = tangent.apply(values)
    # The largest solution is where a small nonlinear term would show.
    m = int(np.argmax(np.abs(values).max(axis=0)))
    largest = Iterate([coefficients[:, m]], [values[:, m]], no_weights)
    exact = problem.evaluate(largest).residuals[0] - at_zero
    n_coordinates = block.rows.coordinates.shape[1]
    features = block.features(values[:, m])[:, n_coordinates:]
    terms = np.abs(tangent.slopes * features.T)
    size = np.abs(at_zero[n:]) + np.sum(terms, axis=0)
    error = exact[n:] - linear[n:, m]
    for rows, _ in block.rows.slices():
        if not norm(error[rows]) <= tolerance * norm(size[rows]):
            return None
    data = model.data_of(0, precisions, np.empty((0, 0)))
    factors, residuals = (factor, np.empty((0, len(factor)))), (linear - right)[n:]
    expansion = block.kernel, data.functionals
    states = [DualState(*expansion, c, data, factors=factors) for c in coefficients.T]
    return [
        Solution(state, block.features(z), _residuals_of(block, residual), *summary)
        for state, z, residual in zip(states, values.T, residuals.T, strict=True)
    ]


def _choose_level(model, right, noise, names):
    """Solve a linear problem with the level of the highest likelihood.

    From the lowest one upwards: a problem that is posed and resolved well needs no
    other. Returned are H^-1 right, the factor of H, the precisions of the noise, and
    the level with its likelihood and scale.
    """
    (H,), (block,) = model.matrices, model.problem.blocks
    n, prior = len(block.values), prior_variances(model)
    given = noise.given(block, names)
    levels = noise.levels[::-1] if np.isnan(given).any() else noise.levels[-1:]
    best = None
    for level in levels:
        precisions = 1 / noise.variances(level, given, prior)
        L = factorise(H, precisions)
        half = solve_lower(L, right)
        data = right, prior, n, _half_log_determinant(L)
        likelihood, scale = profile_likelihood(np.sum(half**2), *data)
        if best is not None and likelihood <= best[-1][1]:
            break
        best = half, L, precisions, (level, likelihood, scale)
    half, L, precisions, summary = best
    return solve_lower(L, half, transposed=True), L, precisions, summary


def _half_log_determinant(L):
    return float(np.sum(np.log(np.diag(L))))


def profile_likelihood(
    quadratic,
    right,
    prior,
    n_conditions,
    half_log_determinant,
    largest_scale=1e3,
):
    """Log likelihood of values with covariance scale * H, and the best scale.

    The `right` values of M functions (n, M), of which `n_conditions` rows do not belong
    to the equation, have prior variances (n,) without noise for scale 1. `quadratic` is
    the sum of right^T H^-1 right, and `half_log_determinant` is that of H. The scale is
    at most `largest_scale` times what the values say one by one, in the mean over the
    conditions or the equation. It would grow without limit with a kernel that is too
    smooth for the solution, and so would the likelihood where points are so dense that
    most of their covariance is noise.
    """
    ratios = right**2 / np.where(prior > 0, prior, np.inf)[:, None]
    parts = ratios[:n_conditions], ratios[n_conditions:]
    largest = largest_scale * max(np.mean(part) for part in parts if part.size)
    scale = min(quadratic / right.size, largest)
    likelihood = -right.shape[1] * half_log_determinant
    if scale > 0:
        likelihood -= 0.5 * (right.size * np.log(scale) + quadratic / scale)
    return float(likelihood), float(scale)


def _solve_nonlinear(
    at_zero, conditions, noise, names, max_iter, tol, first_damping=1.0
):
    """From the highest level of the noise downwards while the likelihood rises.

    The first damping is relative to the weight of the squared norm.
    """
    (block,) = at_zero.problem.blocks
    block = replace(block, values=conditions.values, forcing=conditions.forcing)
    n, prior = len(block.values), prior_variances(at_zero)
    given = noise.given(block, names)
    iterate, best, n_iter = at_zero.evaluation.iterate, None, 0
    for level in noise.levels:
        precisions = 1 / noise.variances(level, given, prior)
        problem = replace(at_zero.problem, blocks=[block], precisions=[precisions])
        control = Damping(first_damping, tol)
        result = minimise(problem, iterate, control, max_iter=max_iter)
        n_iter += result.n_iter
        model = problem.linearise(problem.evaluate(result.solution))
        right = model.tangents[0].apply(result.solution.values[0])
        right -= model.evaluation.residuals[0]
        half_log_determinant = _half_log_determinant(model.undamped.factors[0])
        data = right[:, None], np.diag(model.matrices[0]), n, half_log_determinant
        likelihood, scale = profile_likelihood(2 * result.loss, *data)
        worse = best is not None and not (result.converged and likelihood > best[1])
        if worse and (np.isnan(given).any() or result.interrupted):
            break
        iterate, best = result.solution, (level, likelihood, scale, model, result)
        if result.interrupted:
            break
    stopped, (*summary, model, _) = result.interrupted, best
    result = result if stopped else best[-1]
    (state,), (features,) = model.posterior_states(), model.evaluation.features
    residual = _residuals_of(block, model.evaluation.residuals[0][n:])
    loop = False, n_iter, result.converged, result.message, stopped
    return Solution(state, features, residual, *summary, *loop)

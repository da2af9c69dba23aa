"""Equations at many points: from a dense solve at some of them to all.

The dense solver finds how exactly the conditions can be met, and a state to begin with,
at a part of the points; Gauss-Newton steps by sparse factors lead from there to all.
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._joint.problem import Iterate
from keql._joint.sparse import SparseModel, SparseSettings, make_sparse_block
from keql._numerics.linalg import rms
from keql._numerics.optimisation import Damping, minimise
from keql._numerics.sparse_cholesky import coarse_to_fine
from keql._solving.noise_levels import Solution, profile_likelihood, solve_all
from keql._solving.problem import by_name, joint_problem


@dataclass(frozen=True)
class ManyPoints:
    """When problems are solved by sparse factors, and where they begin.

    Attributes
    ----------
    n_dense : int
        Data and collocation points of one function up to which a dense solve takes
        less time.
    n_coarse : int
        Number of these in the dense solve that comes first.
    n_derivatives : int
        A kernel with more derivatives is too smooth for the screening effect, and
        "auto" does not take it.
    max_representers : int
        Data, and operators at collocation points, from which on "auto" refuses a dense
        solve: their Gram matrix has 8 bytes times the square of it.
    first_damping : float
        Of the Gauss-Newton steps at all points, which begin near their end.
    """

    n_dense: int = 4000
    n_coarse: int = 1500
    n_derivatives: int = 8
    max_representers: int = 60_000
    first_damping: float = 1e-3

    def takes(self, solver, kernel, equation, given):
        """Whether the Conditions of a function are met by sparse factors.

        `solver` is "auto", "dense" or "sparse". A ValueError says why "sparse" is not
        possible, or what to do if "auto" finds no way.
        """
        if solver == "dense":
            return False
        reason = _why_not_sparse(equation, given)
        if not reason and not kernel.is_stationary():
            reason = f"the kernel {kernel} is not stationary"
        if solver == "sparse":
            if reason:
                raise ValueError(
                    f"solver='sparse' is not possible, as {reason}: take "
                    "solver='auto' or 'dense'."
                )
            return True
        if not self._is_large(given):
            return False
        if not reason and self._is_rough(kernel, given):
            return True
        if not self.fits_dense(given):
            n = _n_representers(given)
            reason = reason or f"the kernel {kernel} is too smooth for sparse factors"
            raise ValueError(
                f"a dense solve with {n} representers needs {8e-9 * n**2:.0f} GB, and "
                f"{reason}: give fewer collocation_points or, for one equation in one "
                "or two coordinates, a rougher state_kernel such as "
                "keql.kernels.Matern(length_scale, nu=3.5)."
            )
        return False

    def smoothness(self, solver, equation, conditions):
        """The nu of a Matern kernel that suits a problem; None if any kernel does.

        One and a half more than the order of the equation, for sparse factors.
        """
        given = conditions[0]
        large = solver == "sparse" or self._is_large(given)
        if solver == "dense" or not large or _why_not_sparse(equation, given):
            return None
        return max(operator.order for operator in given.operators) + 1.5

    def fits_dense(self, given):
        """Whether there is memory for a dense solve."""
        return _n_representers(given) <= self.max_representers

    def _is_large(self, given):
        return len(given.values) + len(given.forcing) > self.n_dense

    def _is_rough(self, kernel, given):
        """Whether functions of the kernel do not have all of many derivatives."""
        d = given.points.shape[1]
        for unit in np.eye(d, dtype=int):
            try:
                kernel.check_order(tuple((self.n_derivatives * unit).tolist()))
            except ValueError:
                return True
        return False


def _n_representers(given):
    return len(given.values) + len(given.operators) * len(given.points)


def _why_not_sparse(equation, given):
    """Why sparse factors are not possible; an empty string if they are."""
    if equation is None:
        return "there is no equation"
    if len(by_name(equation)) > 1 or len(equation.states) > 1:
        return "there are several equations or states"
    if given.points.shape[1] > 2:
        return f"there are {given.points.shape[1]} coordinates, and not one or two"
    return ""


def solve_each(kernel, equation, conditions, noise, *, solver="auto", **loop):
    """A Solution for each function, by dense or by sparse factors.

    All but `solver` is as for :func:`solve_all`. Where sparse factors do not reach
    their tolerance, "auto" goes on with dense ones if memory allows.
    """
    settings, solutions, dense = ManyPoints(), {}, []
    for m, given in enumerate(conditions):
        dense.append(m)
        if settings.takes(solver, kernel, equation, given):
            try:
                own = _solve(kernel, equation, given, noise, settings, **loop)
            except np.linalg.LinAlgError:
                if solver == "sparse" or not settings.fits_dense(given):
                    raise
            else:
                solutions[dense.pop()] = own
    given = [conditions[m] for m in dense]
    solved = solve_all(kernel, equation, given, noise, **loop) if dense else []
    solutions.update(zip(dense, solved, strict=True))
    return [solutions[m] for m in range(len(conditions))]


def _solve(kernel, equation, given, noise, settings, *, max_iter, tol, **_):
    """The Solution of one equation at many points."""
    observed_rows, rows = _coarse(given, settings.n_coarse)
    part = given.select(observed_rows, rows)
    loop = {"max_iter": max_iter, "tol": tol}
    (coarse,) = solve_all(kernel, equation, [part], noise, **loop)
    block = make_sparse_block(kernel, given, SparseSettings())
    c = _widen(coarse.state.coefficients, given, observed_rows, rows)
    iterate = Iterate([c], [block.evaluate(c)], np.empty(0))
    problem = joint_problem([block], equation, SparseModel)
    prior, own = _prior_variances(problem), noise.given(given)
    is_open, best, n_iter = np.isnan(own).any(), None, coarse.n_iter
    levels = [level for level in noise.levels if level <= coarse.level or not is_open]
    for level in levels if is_open else levels[-1:]:
        precisions = 1 / noise.variances(level, own, prior)
        problem = replace(problem, precisions=[precisions])
        if coarse.linear:
            iterate, _ = problem.linearise(problem.evaluate(iterate)).step(0.0)
            end = 1, True, coarse.message
        else:
            control = Damping(settings.first_damping, tol)
            result = minimise(problem, iterate, control, max_iter=max_iter)
            iterate, end = result.solution, (result.n_iter, *_end(result))
        n_iter += end[0]
        evaluation = problem.evaluate(iterate)
        summary = level, *_likelihood(problem.linearise(evaluation), len(given.values))
        if best is not None and not (end[1] and summary[1] > best[0][1]):
            break
        best = summary, evaluation, end[1:]
    summary, evaluation, end = best
    (state,) = SparseModel(problem, evaluation).posterior_states()
    residual = np.array([rms(evaluation.residuals[0][len(given.values) :])])
    found = state, evaluation.features[0], residual, *summary
    return Solution(*found, coarse.linear, n_iter, *end)


def _end(result):
    return result.converged, result.message


def _coarse(given, n):
    """Rows of each observed operator, and collocation points: n of all, evenly.

    Observations are mostly at the border, where as many points lie as far apart as the
    square root of that number inside.
    """
    share = min(1.0, n / (len(given.values) + len(given.points)))
    observed = [
        coarse_to_fine(x)[: int(np.ceil(share**0.5 * len(x)))]
        for x, _ in given.observed
    ]
    n_points = max(1, n - sum(map(len, observed)))
    inside = coarse_to_fine(given.points)[:n_points]
    return [np.sort(rows) for rows in observed], np.sort(inside)


def _widen(c, given, observed_rows, rows):
    """Coefficients of the state that a part of the conditions represents by `c`."""
    starts = np.cumsum([0, *(len(x) for x, _ in given.observed)])
    chosen = [start + own for start, own in zip(starts, observed_rows, strict=False)]
    n, n_points = starts[-1], len(given.points)
    inside = [n + q * n_points + rows for q in range(len(given.operators))]
    wide = np.zeros(n + len(given.operators) * n_points)
    wide[np.concatenate([*chosen, *inside])] = c
    return wide


def _prior_variances(problem):
    """Prior variances (N + K,) of the functionals linearised at zero.

    As :func:`keql._solving.problem.prior_variances` has them.
    """
    (block,) = problem.blocks
    zero = [np.zeros(block.n_unknowns)]
    S = problem.evaluate(Iterate(zero, zero, np.empty(0))).features[0]
    slopes = problem.slopes(S, np.empty(0))
    prior = block.prior_variances(slopes)
    of_ones = block.prior_variances(np.ones_like(slopes))
    return np.where(prior > 0, prior, of_ones)


def _likelihood(model, n_conditions):
    """Log likelihood of the linearised problem, and the best scale of the kernel."""
    right = model.tangents[0].apply(model.evaluation.iterate.values[0])
    right -= model.evaluation.residuals[0]
    prior = model.problem.blocks[0].gram.variances(model.matrices[0])
    data = right[:, None], prior, n_conditions, model.half_log_determinant
    return profile_likelihood(2 * model.evaluation.loss, *data)

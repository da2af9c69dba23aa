"""The joint problem in the primal: states in an orthonormal basis, steps by QR.

Smooth kernels have a low numerical rank: a few of the representers, picked by a pivoted
Cholesky factorisation of their Gram matrix, span all of them to rounding accuracy.
With phi the orthonormal basis of their span (the Cholesky change of variables), a state
is v = phi . z with |v| = |z|, and a Levenberg-Marquardt step is a linear least-squares
problem in the z_m and w. Orthogonal factorisations do not square its condition number,
so that noise levels near rounding errors, and more unknowns than data, do no harm.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from keql._joint.linearised import LinearisedProblem, LinearisedState, below_zeros
from keql._joint.problem import (
    Conditions,
    distinct_functionals,
    first_equal,
    same_points,
)
from keql._numerics.linalg import (
    pivoted_cholesky,
    pivoted_cholesky_of_columns,
    solve_lower,
    triangle,
)
from keql._numerics.memory import in_chunks
from keql.kernels import ProjectedKernel, SystemKernel
from keql.operators import gram, gram_diagonal, identity_of


@dataclass(frozen=True)
class SpanBasis:
    """An orthonormal basis of the span of the representers of r functionals.

    `order` (r,) says in which order they were picked, and `cholesky` (r, r) is the
    lower Cholesky factor of their Gram matrix in this order.
    """

    kernel: object
    functionals: list
    order: np.ndarray
    cholesky: np.ndarray

    def __call__(self, functionals):
        """Values of functionals on the basis functions, of shape (n, r)."""
        cross = gram(self.kernel, self.functionals, functionals)
        return solve_lower(self.cholesky, cross[self.order]).T

    def coefficients(self, z):
        """Coefficients of phi . z on the representers, in the order of these."""
        c = np.empty(len(z))
        c[self.order] = solve_lower(self.cholesky, z, transposed=True)
        return c


class SystemSpan:
    """Orthonormal bases of all states of a system, one after the other.

    `spans` has the SpanBasis of each state by its name, and `kernel` is the
    SystemKernel.
    """

    def __init__(self, kernel, spans):
        self.kernel, self.spans = kernel, spans

    @property
    def functionals(self):
        """Those of which the basis functions are made."""
        return [each for basis in self.spans.values() for each in basis.functionals]

    def __call__(self, functionals):
        """Values of functionals on the basis functions, of shape (n, r)."""
        parts = [
            _values_of_state(basis, name, functionals)
            for name, basis in self.spans.items()
        ]
        return np.hstack(parts)

    def coefficients(self, z):
        """Coefficients of phi . z on the representers, in the order of these."""
        sizes = [len(basis.order) for basis in self.spans.values()]
        parts = np.split(z, np.cumsum(sizes)[:-1])
        pairs = zip(self.spans.values(), parts, strict=True)
        return np.concatenate([basis.coefficients(part) for basis, part in pairs])


def _values_of_state(basis, name, functionals):
    """Values (n, r_s) of functionals on the basis functions of one state."""
    rows, own = functionals_of_state(name, functionals)
    values = np.zeros((sum(len(points) for points, _ in functionals), len(basis.order)))
    if own:
        values[rows] = basis(own)
    return values


def functionals_of_state(name, functionals):
    """Positions of the functionals that one state has a part in, and these parts."""
    rows, own, start = [], [], 0
    for points, operator in functionals:
        part = operator.of_state(name)
        if part is not None:
            rows.append(np.arange(start, start + len(points)))
            own.append((points, part))
        start += len(points)
    return (np.concatenate(rows) if rows else np.empty(0, dtype=int)), own


def span(kernel, functionals, most=None, most_dense=1000, most_whole=5000):
    """Pick functionals whose representers span those of all to rounding accuracy.

    Returned are a SpanBasis of r functions, and the values (n, r) of all functionals on
    these; of several states a SystemSpan. Of the Gram matrix of more than `most_dense`
    functionals the rows of those picked are eliminated one by one, and of more than
    `most_whole`, whose matrix would take more than 200 MB, only these are computed. Of
    4,650 in time and space, 422 of which were picked, that took 1.2 s with the whole
    matrix, and 4.8 s without. None if more than `most` are picked, of a state.
    """
    if isinstance(kernel, SystemKernel):
        return _span_of_states(kernel, functionals, most)
    ends = np.cumsum([len(points) for points, _ in functionals])
    if ends[-1] <= most_dense:
        found = pivoted_cholesky(gram(kernel, functionals))
    else:
        given = _columns(kernel, functionals, ends[-1] <= most_whole)
        found = pivoted_cholesky_of_columns(*given, most=most)
    if found is None or most is not None and len(found[1]) > most:
        return None
    rows, pivots = found
    owner = np.searchsorted(ends, pivots, side="right")
    # The picked functionals by operator and points, and where each of them stands.
    sequence = np.argsort(owner, kind="stable")
    order = np.argsort(sequence)
    picked = []
    for i in np.unique(owner):
        points, operator = functionals[i]
        start = ends[i] - len(points)
        picked.append((points[pivots[owner == i] - start], operator))
    return SpanBasis(kernel, picked, order, rows[pivots]), rows


def _columns(kernel, functionals, are_kept):
    """The diagonal (n,) of a Gram matrix, and a function from i to its i-th column.

    All columns are computed at once if they are kept. The matrix of a kernel of few
    functions is the square of the values of these.
    """
    if isinstance(kernel, ProjectedKernel):
        values = _values_of_centres(kernel, functionals)
        return np.sum(values**2, axis=0), lambda i: values[:, i] @ values
    ends = np.cumsum([len(points) for points, _ in functionals])
    if are_kept:
        whole = gram(kernel, functionals)
        return np.diag(whole).copy(), lambda i: whole[:, i]

    def column(i):
        owner = np.searchsorted(ends, i, side="right")
        points, operator = functionals[owner]
        row = i - ends[owner] + len(points)
        return gram(kernel, functionals, [(points[row : row + 1], operator)])[:, 0]

    variances = [gram_diagonal(kernel, *functional) for functional in functionals]
    return np.concatenate(variances), column


def _values_of_centres(kernel, functionals):
    """Values (K, n) of functionals on orthonormal functions of a ProjectedKernel."""
    (_, operator), *_ = functionals
    centres = [(kernel.points, identity_of(operator.state, kernel.points.shape[1]))]
    return solve_lower(kernel.cholesky, gram(kernel.kernel, centres, functionals))


def _span_of_states(kernel, functionals, most):
    """A SystemSpan, and the values of all functionals on it; None as of :func:`span`"""
    n = sum(len(points) for points, _ in functionals)
    spans, parts = {}, []
    for name, own_kernel in kernel.kernels.items():
        rows, own = functionals_of_state(name, functionals)
        if own:
            found = span(own_kernel, own, most)
            if found is None:
                return None
            spans[name], values = found
            parts.append(np.zeros((n, values.shape[1])))
            parts[-1][rows] = values
    return SystemSpan(kernel, spans), np.hstack(parts)


@dataclass(frozen=True)
class PrimalBlock(Conditions):
    """One function, its state in an orthonormal basis of r functions.

    Functions with one kernel share the `basis`, a SpanBasis, of several states a
    SystemSpan. `basis_values` (N, r) are the observed
    functionals of its functions, `basis_operators` (Q', K, r) the operators.
    """

    basis: object
    basis_values: np.ndarray
    basis_operators: np.ndarray

    @property
    def n_unknowns(self):
        """Number of basis functions, r."""
        return self.basis_values.shape[1]

    def evaluate(self, z):
        """Observed functionals and operators of the state with coefficients `z`."""
        return np.concatenate([self.basis_values @ z, (self.basis_operators @ z).flat])

    def squared_norm(self, z, values):
        """Squared RKHS norm of the state with coefficients `z`."""
        return z @ z

    def represent(self, functionals, coefficients):
        """Coefficients of a sum of representers, projected on the basis."""
        return self.basis(functionals).T @ coefficients

    @property
    def gram_values(self):
        """Gram matrix of the observed functionals, of shape (N, N)."""
        return self.basis_values @ self.basis_values.T

    def restricted(self, points, shared):
        """The block with some of the collocation points; nothing can be shared."""
        rows = self.rows.at(points, len(self.points))
        return replace(
            self,
            forcing=self.forcing[rows],
            points=self.points[points],
            rows=self.rows.select(rows, points, len(self.points)),
            basis_operators=self.basis_operators[:, points],
        )

    def narrow(self, z, rows):
        """Coefficients `z` of a state on the basis of a restricted block, its own."""
        return z

    def widen(self, z, rows):
        """Coefficients of the state that a restricted block represents by `z`."""
        return z

    def prior(self):
        """A function that draws coefficients of states from the prior."""
        return lambda rng: rng.standard_normal(self.n_unknowns)

    def expand_values(self, x):
        """Coefficients of the sum of the representers of observations, times `x`."""
        return x @ self.basis_values

    def jacobian(self, slopes):
        """T phi for the T of a :class:`Tangent`, of shape (N + R, r)."""
        imposed = self.rows.gather(self.basis_operators)
        imposed = np.einsum("qk,qkr->kr", slopes, imposed)
        return np.concatenate([self.basis_values, imposed])


def make_primal_blocks(kernels, conditions, most=None):
    """A PrimalBlock for each function; those with one kernel share a basis.

    `kernels` has the state kernel of each function, `conditions` what it has to meet;
    the observed functionals are point values. None if a state has a basis of more than
    `most` functions.
    """
    blocks = {}
    bases = first_equal(kernels, lambda one, other: one is other)
    for basis in set(bases):
        members = [m for m, own in enumerate(bases) if own == basis]
        given = [conditions[m] for m in members]
        group = _blocks_of_one_kernel(kernels[basis], given, most)
        if group is None:
            return None
        blocks.update(zip(members, group, strict=True))
    return [blocks[m] for m in range(len(kernels))]


def _blocks_of_one_kernel(kernel, conditions, most):
    """Blocks on one basis, of all functionals of the functions together."""
    observed, rows_of = distinct_functionals(conditions)
    n_observed, operators = sum(len(x) for x, _ in observed), conditions[0].operators
    places = first_equal([given.points for given in conditions], same_points)
    owners = list(dict.fromkeys(places))
    imposed = [functional for i in owners for functional in conditions[i].imposed]
    found = span(kernel, [*observed, *imposed], most)
    if found is None:
        return None
    basis, rows = found
    sizes = [len(operators) * len(conditions[i].points) for i in owners]
    parts = np.split(rows[n_observed:], np.cumsum(sizes)[:-1])
    rows_at = dict(zip(owners, parts, strict=True))
    shape = len(operators), -1, rows.shape[1]
    return [
        PrimalBlock(*vars(given).values(), basis, rows[own], rows_at[i].reshape(shape))
        for given, own, i in zip(conditions, rows_of, places, strict=True)
    ]


class PrimalModel(LinearisedProblem):
    """Linearisation of a problem with primal blocks.

    With a = lambda + mu, b = 1 + mu, J = T phi and all rows in units of the noise, the
    step of function m minimises

        |J dz + Psi dw + r|^2 + a |dz + (lambda / a) z|^2

    for any dw by a QR factorisation whose last rows leave p equations for dw; those of
    all functions and sqrt(b) (dw + w / b) = 0 are solved by another (block arrowhead).
    """

    def _matrix(self, m, tangent, features):
        problem, residual = self.problem, self.evaluation.residuals[m]
        psi = below_zeros(features, len(residual))
        jacobian = problem.blocks[m].jacobian(tangent.slopes)
        rows = weighted_rows(jacobian, psi, residual, problem.precisions[m])
        return triangle(rows) if len(rows) >= rows.shape[1] else rows

    def _eliminate_state(self, a, b, m):
        z = self.evaluation.iterate.coefficients[m]
        R = eliminate_state(self.matrices[m], a, self.problem.penalty / a**0.5 * z)
        r = len(z)
        return R[:r, :r], R[:r, r:-1], R[:r, -1], R[r:, r:]

    def _summary(self, features, right, rest):
        return np.vstack(rest)

    @staticmethod
    def merged(summaries):
        """The summary of several problems."""
        return np.vstack(summaries)

    @staticmethod
    def solve_for_weights(b, w, summary):
        """R (p, p) and the step of the weights w (p,), from the summary."""
        p = len(w)
        prior = np.hstack([b**0.5 * np.eye(p), (w / b**0.5)[:, None]])
        R = triangle(np.vstack([summary, prior]))
        dw = -linalg.solve_triangular(R[:p, :p], R[:p, p], check_finite=False)
        return R[:p, :p].T, dw

    def _step_of_state(self, m, parts, a, effect):
        target = parts.features[m] @ parts.dw + parts.right[m]
        return -linalg.solve_triangular(parts.factors[m], target, check_finite=False)

    def _whitened_observations(self, m, factor):
        block = self.problem.blocks[m]
        n = len(block.values)
        rows = block.basis_values * np.sqrt(self.problem.precisions[m][:n])[:, None]
        return solve_lower(factor.T, rows.T)

    def _left_out_precision(self, m, own, shared):
        # The residual r_i at the minimum becomes r_i / (1 - h_i) where its observation
        # is left out, with the leverage h_i of its row.
        rest = np.maximum(1 - own - shared, np.finfo(float).eps)
        return rest * self.problem.precisions[m][: len(own)]

    def _half_log_determinant(self, m, factor):
        scaled = np.abs(np.diag(factor)) / self.problem.penalty**0.5
        return np.sum(np.log(scaled)) - 0.5 * np.sum(np.log(self.problem.precisions[m]))

    def _state(self, m, data, penalty, dispersion, *factors):
        basis, z = self.problem.blocks[m].basis, self.evaluation.iterate.coefficients[m]
        expansion = basis.kernel, basis.functionals, basis.coefficients(z)
        return PrimalState(*expansion, data, penalty, dispersion, (basis, *factors))


def weighted_rows(jacobian, psi, right, precisions):
    """The rows (J, Psi, r) of a least-squares problem, in units of the noise."""
    rows = np.hstack([jacobian, psi, right[:, None]])
    rows *= np.sqrt(precisions)[:, None]
    return rows


def eliminate_state(rows, a, prior, block_size=32):
    """Triangular factor of the rows of a function and of sqrt(a) dz + prior = 0.

    Rows as many as columns are upper triangular: a factorisation leaves out the zeros
    of both parts, in blocks of `block_size` columns.
    """
    r, (n_rows, n_columns) = len(prior), rows.shape
    below = np.zeros((r, n_columns))
    below[np.diag_indices(r)] = a**0.5
    below[:, -1] = prior
    if n_rows < n_columns:
        return triangle(np.vstack([rows, below]))
    R, *_ = lapack.dtpqrt(r, min(block_size, n_columns), rows, below)
    return R


class PrimalState(LinearisedState):
    """A state in an orthonormal basis, with variances of the linearised problem.

    Given the weights of P, the covariance of the coefficients z is ``(H^T H)^-1``; with
    phi the basis functions at a point, the variance is ``|H^-T phi|^2``, plus
    ``|R^-1 B^T H^-T phi|^2`` from the weights of P, plus the prior variance of what the
    basis does not span. No difference of large numbers is taken of data. The factors
    are the SpanBasis, H (r, r) and R^-1 B^T (p, r).
    """

    def variance(self, points, operator):
        """Posterior variances (n,) of an operator at points, never negative."""
        factors = self.factors or self._factorise()
        parts = in_chunks(points, sum(len(x) for x, _ in self.functionals))
        return np.concatenate([self._variance(x, operator, *factors) for x in parts])

    def _variance(self, points, operator, basis, H, shared):
        phi = basis([(points, operator)]).T
        prior = gram_diagonal(self.kernel, points, operator)
        outside = np.maximum(prior - np.sum(phi**2, axis=0), 0.0) / self.penalty
        q = solve_lower(H.T, phi)
        within = np.sum(q**2, axis=0) + np.sum((shared @ q) ** 2, axis=0)
        return self.dispersion * (outside + within)

    def _factorise(self):
        data = self.data
        basis, _ = span(self.kernel, self.functionals)
        jacobian = data.tangent.apply(basis(data.functionals))
        psi, r = data.psi, jacobian.shape[1]
        nothing = np.zeros(len(jacobian))
        rows = triangle(weighted_rows(jacobian, psi, nothing, data.precisions))
        R = eliminate_state(rows, self.penalty, np.zeros(r))
        return basis, R[:r, :r], solve_lower(data.coupling, R[:r, r:-1].T)

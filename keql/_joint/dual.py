"""The joint problem in the dual: representers as unknowns, steps in observation space.

A Levenberg-Marquardt step is a linear Gaussian regression with as many functionals as
residuals, T = (observed functionals, linearised equation); only matrices of that size
are factored (design: the representer theorem in observation space).
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._joint.linearised import LinearisedProblem, LinearisedState, below_zeros
from keql._joint.problem import Conditions, apply_functionals, first_equal, same_points
from keql._numerics.linalg import (
    cholesky,
    pivoted_cholesky,
    solve_cholesky,
    solve_lower,
)
from keql.operators import gram, gram_diagonal, gram_rows


@dataclass(frozen=True)
class DualBlock(Conditions):
    """One function, its state as a sum of representers.

    These are the representers of its N observed functionals, then of the Q' operators
    at K points. Their Gram matrix for the state kernel is kept in three parts: observed
    functionals (N, N), these against operators (N, Q' K), and operators, (Q', K, Q',
    K). Functions of one `group` have the same kernel and points, and share the last
    part.
    """

    kernel: object
    group: int
    gram_values: np.ndarray
    gram_cross: np.ndarray
    gram_operators: np.ndarray

    @property
    def n_unknowns(self):
        """Number of representers."""
        return sum(self.gram_cross.shape)

    @property
    def gram_square(self):
        """Gram matrix of the operators, of shape (Q' K, Q' K)."""
        return self.gram_operators.reshape((self.gram_cross.shape[1],) * 2)

    def evaluate(self, c):
        """Values of the representers on functions with coefficients `c`, in columns."""
        n = len(self.values)
        imposed = self.gram_square @ c[n:] + self.gram_cross.T @ c[:n]
        observed = self.gram_values @ c[:n] + self.gram_cross @ c[n:]
        return np.concatenate([observed, imposed])

    def squared_norm(self, c, z):
        """Squared RKHS norm of the state with coefficients c and values z."""
        return c @ z

    def represent(self, functionals, coefficients):
        """Coefficients of a sum of the first representers; None of any other sum."""
        ours = (self.observed + self.imposed)[: len(functionals)]
        if [len(points) for points, _ in functionals] != [len(p) for p, _ in ours]:
            return None
        c = np.zeros(self.n_unknowns)
        c[: len(coefficients)] = coefficients
        return c

    def restricted(self, rows, shared):
        """The block with the collocation points `rows` only.

        In the dict `shared` the functions of a group, which have the same points and so
        the same rows, find what they share.
        """
        n, n_points = len(self.values), len(self.points)
        if self.group not in shared:
            part = self.gram_operators[:, rows][:, :, :, rows]
            shared[self.group] = np.ascontiguousarray(part)
        cross = self.gram_cross.reshape(n, -1, n_points)[:, :, rows]
        return replace(
            self,
            forcing=self.forcing[rows],
            points=self.points[rows],
            gram_cross=cross.reshape(n, -1),
            gram_operators=shared[self.group],
        )

    def widen(self, c, rows):
        """Coefficients of the state that a restricted block represents by `c`."""
        n, n_operators = len(self.values), len(self.operators)
        wide = np.zeros((n_operators, len(self.points)))
        wide[:, rows] = c[n:].reshape(n_operators, -1)
        return np.concatenate([c[:n], wide.ravel()])

    def prior(self, negligible=1e-10):
        """A function that draws coefficients of states from the prior.

        From the part of it that the representers span: values L z at the pivots of
        their Gram matrix L L^T, with z standard normal, have coefficients L^-T z.
        Parts smaller than `negligible`, relatively, are drowned by rounding.
        """
        upper = np.hstack([self.gram_values, self.gram_cross])
        lower = np.hstack([self.gram_cross.T, self.gram_square])
        rows, pivots = pivoted_cholesky(np.vstack([upper, lower]), negligible)
        L = rows[pivots]

        def draw(rng):
            c = np.zeros(self.n_unknowns)
            c[pivots] = solve_lower(L, rng.standard_normal(len(L)), transposed=True)
            return c

        return draw

    def expand_values(self, x):
        """Coefficients of the sum of the representers of observations, times `x`."""
        return np.concatenate([x, np.zeros(self.gram_cross.shape[1])])

    def normal_matrix(self, slopes, n_rows=96):
        """T U T^* for T as in `apply_functionals`; its lower triangle.

        Assembled `n_rows` rows at a time, which stay in the cache.
        """
        n, n_points = len(self.values), len(self.points)
        H = np.zeros((n + n_points, n + n_points))
        H[:n, :n] = self.gram_values
        cross = self.gram_cross.reshape(n, *slopes.shape)
        H[n:, :n] = np.einsum("nqk,qk->kn", cross, slopes)
        used = np.flatnonzero(np.any(slopes != 0, axis=1))
        for start in range(0, n_points, n_rows):
            rows = slice(start, min(start + n_rows, n_points))
            part = H[n + start : n + rows.stop, n : n + rows.stop]
            inner, term = np.empty(part.shape), np.empty(part.shape)
            for q in used:
                inner[:] = 0.0
                for other in used:
                    entries = self.gram_operators[q, rows, other, : rows.stop]
                    inner += np.multiply(entries, slopes[other, : rows.stop], out=term)
                part += np.multiply(inner, slopes[q, rows, None], out=term)
        return H


def expand(x, slopes):
    """Coefficients of T^* x on the representers; `x` may have several columns."""
    n = len(x) - slopes.shape[1]
    imposed = np.einsum("qk,k...->qk...", slopes, x[n:])
    return np.concatenate([x[:n], imposed.reshape(slopes.size, *x.shape[1:])])


def make_dual_blocks(kernels, conditions):
    """A DualBlock for each function; what functions share is computed once.

    `kernels` has the state kernel of each function, `conditions` what it has to meet.
    """
    groups = first_equal(
        list(zip(kernels, [given.points for given in conditions], strict=True)),
        lambda one, other: one[0] is other[0] and same_points(one[1], other[1]),
    )
    shared, blocks = {}, []
    for kernel, given, group in zip(kernels, conditions, groups, strict=True):
        observed, imposed = given.observed, given.imposed
        shape = (len(given.operators), len(given.points)) * 2
        cross = np.empty((len(given.values), 0))
        if imposed:
            cross = gram(kernel, observed, imposed)
        if imposed and group not in shared:
            shared[group] = gram(kernel, imposed).reshape(shape)
        grams = gram(kernel, observed), cross, shared.get(group, np.empty(shape))
        blocks.append(DualBlock(*vars(given).values(), kernel, group, *grams))
    return blocks


def factorise(H, precisions, a=1.0):
    """Lower Cholesky factor of H / a + diag(1 / precisions).

    Of H only the lower triangle is read. Where jitter is needed, rows and columns are
    first scaled to a diagonal near one, by powers of two, which rounds nothing:
    functionals differ in size by orders of magnitude, and what is added against
    rounding should be small beside each.
    """
    A = H / a
    A[np.diag_indices_from(A)] += 1 / precisions
    try:
        return cholesky(A, jitter_exponents=())
    except np.linalg.LinAlgError:
        scale = np.ldexp(1.0, np.frexp(np.diag(A))[1] // 2)
    A /= scale
    A /= scale[:, None]
    L = cholesky(A)
    L *= scale[:, None]
    return L


class DualModel(LinearisedProblem):
    """Linearisation of a problem with dual blocks.

    With a = lambda + mu, b = 1 + mu and, for each function, H = T U T^*/a + W^-1 =
    L L^T, Y = L^-1 Psi, d = L^-1 rt (block arrowhead: H has no Psi in it),

        rt = r - (lambda/a) T v - (1/b) Psi w,
        e = -(b I + sum Y^T Y)^-1 sum Y^T d,      x = L^-T (d + Y e),
        dw = e - w / b,                           dv = -(lambda/a) v - T^* x / a.
    """

    def _matrix(self, m, slopes, features):
        return self.problem.blocks[m].normal_matrix(slopes)

    def _eliminate_state(self, a, b, m):
        problem, iterate = self.problem, self.evaluation.iterate
        Tv = apply_functionals(iterate.values[m], self.slopes[m])
        rt = self.evaluation.residuals[m] - problem.penalty / a * Tv
        psi = below_zeros(self.features[m], len(rt))
        rt -= psi @ (iterate.weights / b)
        L = factorise(self.matrices[m], problem.precisions[m], a)
        solved = solve_lower(L, np.column_stack([psi, rt]))
        return L, solved[:, :-1], solved[:, -1]

    def _eliminate_weights(self, b, features, right):
        w = self.evaluation.iterate.weights
        R = cholesky(b * np.eye(len(w)) + sum(Y.T @ Y for Y in features))
        pairs = zip(features, right, strict=True)
        e = -solve_cholesky(R, sum(Y.T @ d for Y, d in pairs))
        return R, e - w / b

    def _step_of_state(self, m, parts, a, b):
        iterate, penalty = self.evaluation.iterate, self.problem.penalty
        e = parts.dw + iterate.weights / b
        right = parts.right[m] + parts.features[m] @ e
        x = solve_lower(parts.factors[m], right, transposed=True)
        dc = -(penalty / a) * iterate.coefficients[m]
        return dc - expand(x, self.slopes[m]) / a

    def _whitened_observations(self, m, L):
        return solve_lower(L, np.eye(len(L), len(self.problem.blocks[m].values)))

    def _left_out(self, m, own, shared):
        # With C = H + Psi Psi^T the covariance of the data and s the variance of a
        # noise, the residual r at the minimum becomes r / (s (C^-1)_ii) (Rasmussen and
        # Williams, 2006, eq. 5.12).
        weighted = self.evaluation.residuals[m] * self.problem.precisions[m]
        return weighted[: len(own)] / (own - shared)

    def _half_log_determinant(self, m, L):
        return np.sum(np.log(np.diag(L)))

    def _state(self, m, data, penalty, dispersion, *factors):
        c = self.evaluation.iterate.coefficients[m]
        expansion = self.problem.blocks[m].kernel, data.functionals, c
        return DualState(*expansion, data, penalty, dispersion, factors)


class DualState(LinearisedState):
    """A state in terms of representers, with variances of the linearised problem.

    The covariance of the data of one function is H + Psi Psi^T, and functions share
    the weights of P; by the Woodbury identity what the data explain of a prior
    variance is ``|L^-1 q|^2 - |R^-1 Y^T L^-1 q|^2`` with R R^T = I + sum Y^T Y. The
    factors are L (N + K, N + K) and R^-1 Y^T (p, N + K).
    """

    def variance(self, points, operator):
        """Posterior variances (n,) of an operator at points, never negative."""
        L, shared = self.factors or self._factorise()
        explained = []
        for rows in gram_rows(self.kernel, points, operator, self.functionals):
            q = apply_functionals(rows.T, self.data.slopes) / self.penalty
            q = solve_lower(L, q)
            explained.append(np.sum(q**2, axis=0) - np.sum((shared @ q) ** 2, axis=0))
        prior = gram_diagonal(self.kernel, points, operator) / self.penalty
        unexplained = np.maximum(prior - np.concatenate(explained), 0.0)
        return self.dispersion * unexplained

    def _factorise(self):
        data = self.data
        H = apply_functionals(gram(self.kernel, self.functionals), data.slopes)
        H = apply_functionals(H.T, data.slopes)
        L = factorise(H, data.precisions, self.penalty)
        return L, solve_lower(data.coupling, solve_lower(L, data.psi).T)

"""The joint problem in the dual: representers as unknowns, steps in observation space.

A Levenberg-Marquardt step is a linear Gaussian regression with as many functionals as
residuals, T = (point values, linearised equation); only matrices of that size are
factored (design: the representer theorem in observation space).
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._joint.problem import Block, Iterate
from keql._joint.states import DualState
from keql._numerics.linalg import (
    cholesky,
    pivoted_cholesky,
    solve_cholesky,
    solve_lower,
)
from keql.equation import WeightPosterior
from keql.operators import gram

# Rows of the normal matrix that are assembled at once: they stay in the cache.
ROWS = 96
# Parts of the prior that are smaller, relatively, are not drawn: rounding drowns them.
NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class DualBlock(Block):
    """One function, its state as a sum of representers.

    The representers are its N point values, then the Q' operators at K points; their
    Gram matrix is kept in three parts, because functions with the same collocation
    points share the last one.

    Parameters
    ----------
    kernel : Kernel
        State kernel.
    functionals : list of (points, operator)
        The representers.
    gram_values : ndarray of shape (N, N)
        Gram matrix of the point values.
    gram_cross : ndarray of shape (N, Q' K)
        Point values against operators.
    gram_operators : ndarray of shape (Q', K, Q', K)
        Gram matrix of the operators.
    """

    kernel: object
    functionals: list
    gram_values: np.ndarray
    gram_cross: np.ndarray
    gram_operators: np.ndarray

    @property
    def n_operators(self):
        """Number of representers that are operators, Q' K."""
        return self.gram_cross.shape[1]

    @property
    def n_unknowns(self):
        """Number of representers."""
        return len(self.values) + self.n_operators

    def evaluate(self, c):
        """Values of the representers on the function with coefficients `c`."""
        n = len(self.values)
        square = (self.n_operators, self.n_operators)
        lower = self.gram_operators.reshape(square) @ c[n:]
        lower += c[:n] @ self.gram_cross
        return np.concatenate(
            [self.gram_values @ c[:n] + self.gram_cross @ c[n:], lower]
        )

    def squared_norm(self, c, z):
        """Squared RKHS norm of the state with coefficients c and values z."""
        return c @ z

    def represent(self, functionals, coefficients):
        """Coefficients of a sum of the first representers; None of any other sum."""
        ours = self.functionals[: len(functionals)]
        if [len(points) for points, _ in functionals] != [len(p) for p, _ in ours]:
            return None
        c = np.zeros(self.n_unknowns)
        c[: len(coefficients)] = coefficients
        return c

    def restricted(self, rows, shared):
        """The same with the collocation points `rows` only.

        Parameters
        ----------
        rows : ndarray of shape (k,)
            Which points.
        shared : dict
            Where parts that functions share are kept: those that share them have the
            same points, and so the same rows.
        """
        n, n_points = len(self.values), len(self.points)
        key = id(self.gram_operators)
        if key not in shared:
            kept = self.gram_operators[:, rows][:, :, :, rows]
            shared[key] = np.ascontiguousarray(kept)
        cross = self.gram_cross.reshape(n, -1, n_points)[:, :, rows]
        observed, *imposed = self.functionals
        return replace(
            self,
            forcing=self.forcing[rows],
            points=self.points[rows],
            functionals=[observed, *((points[rows], op) for points, op in imposed)],
            gram_cross=cross.reshape(n, -1),
            gram_operators=shared[key],
        )

    def widen(self, c, rows):
        """Coefficients of the state that a restricted block represents by `c`."""
        n, n_points = len(self.values), len(self.points)
        wide = np.zeros((self.n_operators // n_points, n_points))
        wide[:, rows] = c[n:].reshape(len(wide), -1)
        return np.concatenate([c[:n], wide.ravel()])

    def prior(self):
        """A function that draws coefficients of states from the prior.

        From the part of it that the representers span: values L z at the pivots of
        their Gram matrix L L^T, with z standard normal, have coefficients L^-T z.
        """
        square = (self.n_operators, self.n_operators)
        lower = np.hstack([self.gram_cross.T, self.gram_operators.reshape(square)])
        upper = np.hstack([self.gram_values, self.gram_cross])
        rows, pivots = pivoted_cholesky(np.vstack([upper, lower]), NEGLIGIBLE)
        L = rows[pivots]

        def draw(rng):
            c = np.zeros(self.n_unknowns)
            c[pivots] = solve_lower(L, rng.standard_normal(len(L)), transposed=True)
            return c

        return draw

    def expand_values(self, x):
        """Coefficients of the sum of the representers of point values, times `x`."""
        return np.concatenate([x, np.zeros(self.n_operators)])

    def normal_matrix(self, slopes):
        """T U T^* for T = (point values, sum_q slopes_q L_q); its lower triangle."""
        n, n_points = len(self.values), len(self.points)
        H = np.zeros((n + n_points, n + n_points))
        H[:n, :n] = self.gram_values
        cross = self.gram_cross.reshape(n, -1, n_points)
        H[n:, :n] = np.einsum("nqk,qk->kn", cross, slopes)
        used = np.flatnonzero(np.any(slopes != 0, axis=1))
        for start in range(0, n_points, ROWS):
            rows = slice(start, min(start + ROWS, n_points))
            part = H[n + start : n + rows.stop, n : n + rows.stop]
            inner, term = np.empty(part.shape), np.empty(part.shape)
            for q in used:
                inner[:] = 0.0
                for other in used:
                    entries = self.gram_operators[q, rows, other, : rows.stop]
                    inner += np.multiply(entries, slopes[other, : rows.stop], out=term)
                part += np.multiply(inner, slopes[q, rows, None], out=term)
        return H

    def expand(self, x, slopes):
        """Coefficients of T^* x on the representers."""
        n = len(self.values)
        return np.concatenate([x[:n], (slopes * x[n:]).ravel()])


def make_dual_blocks(
    kernels, functions, collocation_points, forcing, operators, identity
):
    """Gram matrices of all functions; what functions share is computed once.

    Parameters
    ----------
    kernels : list of Kernel
        State kernel of each function.
    functions : list of FunctionData
        Observations of each function.
    collocation_points, forcing : list of ndarray
        Of each function.
    operators : list of DifferentialOperator
        L_1, ..., L_Q'.
    identity : DifferentialOperator
        The operator "u".

    Returns
    -------
    blocks : list of DualBlock
        One for each function.
    """
    shared, blocks = {}, []
    for kernel, data, points, right in zip(
        kernels, functions, collocation_points, forcing, strict=True
    ):
        imposed = [(points, operator) for operator in operators]
        observed = [(data.points, identity)]
        if id(points) not in shared:
            shape = (len(operators), len(points), len(operators), len(points))
            shared[id(points)] = gram(kernel, imposed).reshape(shape)
        blocks.append(
            DualBlock(
                kernel=kernel,
                functionals=observed + imposed,
                values=data.values,
                weights=data.weights,
                forcing=right,
                points=points,
                gram_values=gram(kernel, observed),
                gram_cross=gram(kernel, observed, imposed),
                gram_operators=shared[id(points)],
            )
        )
    return blocks


class DualModel:
    """Linearisation of a dual problem; `step` solves it for any damping.

    With a = lambda + mu, b = 1 + mu and, for each function, H = T U T^*/a + W^-1 =
    L L^T, Y = L^-1 Psi, d = L^-1 rt (block arrowhead: H has no Psi in it),

        rt = r - (lambda/a) T v - (1/b) Psi w,
        e = -(b I + sum Y^T Y)^-1 sum Y^T d,      x = L^-T (d + Y e),
        dw = e - w / b,                           dv = -(lambda/a) v - T^* x / a.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    evaluation : Evaluation
        Where it is linearised.
    """

    def __init__(self, problem, evaluation):
        self.problem = problem
        self.evaluation = evaluation
        weights = evaluation.iterate.weights

        def prepare(item):
            block, S = item
            slopes, features = problem.slopes(S, weights)
            above = np.zeros((len(block.values), features.shape[1]))
            return slopes, np.vstack([above, features]), block.normal_matrix(slopes)

        items = zip(problem.blocks, evaluation.features, strict=True)
        parts = list(problem.map_blocks(prepare, items))
        self.slopes, self.features, self.matrices = zip(*parts, strict=True)

    def factor(self, m, a):
        """Lower Cholesky factor of H of function `m`."""
        H = self.matrices[m] / a
        H[np.diag_indices_from(H)] += 1 / self.problem.precisions[m]
        return cholesky(H)

    def step(self, damping):
        """The damped Gauss-Newton iterate, and the decrease of the loss predicted.

        Parameters
        ----------
        damping : float
            mu, in units of the squared RKHS norms' weights.

        Returns
        -------
        iterate : Iterate
            The new iterate.
        decrease : float
            By which the linear model is lower there.
        """
        problem, iterate = self.problem, self.evaluation.iterate
        penalty = problem.penalty
        a, b = penalty + damping, 1.0 + damping
        old_w = iterate.weights

        def reduce(m):
            block, features = problem.blocks[m], self.features[m]
            Tv = block.apply_functionals(iterate.values[m], self.slopes[m])
            rt = self.evaluation.residuals[m] - penalty / a * Tv
            rt -= features @ (old_w / b)
            L = self.factor(m, a)
            solved = solve_lower(L, np.column_stack([features, rt]))
            return L, solved[:, :-1], solved[:, -1]

        reduced = list(problem.map_blocks(reduce, range(len(problem.blocks))))
        C = b * np.eye(len(old_w)) + sum(Y.T @ Y for _, Y, _ in reduced)
        e = -solve_cholesky(cholesky(C), sum(Y.T @ d for _, Y, d in reduced))
        dw = e - old_w / b

        def expand(m):
            L, Y, d = reduced[m]
            x = solve_lower(L, d + Y @ e, transposed=True)
            dc = -(penalty / a) * iterate.coefficients[m]
            dc -= problem.blocks[m].expand(x, self.slopes[m]) / a
            return dc, problem.blocks[m].evaluate(dc)

        steps = list(problem.map_blocks(expand, range(len(problem.blocks))))
        new = Iterate(
            [c + dc for c, (dc, _) in zip(iterate.coefficients, steps, strict=True)],
            [z + dz for z, (_, dz) in zip(iterate.values, steps, strict=True)],
            old_w + dw,
        )
        return new, self.evaluation.loss - self._model_loss(new, steps, dw)

    def _model_loss(self, new, steps, dw):
        """Loss of the linear model at the new iterate."""
        problem = self.problem
        loss = 0.5 * new.weights @ new.weights
        for m, (_, dz) in enumerate(steps):
            residual = self.evaluation.residuals[m] + self.features[m] @ dw
            residual += problem.blocks[m].apply_functionals(dz, self.slopes[m])
            loss += 0.5 * problem.penalty * (new.coefficients[m] @ new.values[m])
            loss += 0.5 * np.sum(problem.precisions[m] * residual**2)
        return loss

    def posterior_states(self):
        """The states with their posterior variances, the equation being uncertain too.

        Returns
        -------
        states : list of DualState
            One for each function.
        """
        problem, iterate = self.problem, self.evaluation.iterate
        factors = [self.factor(m, problem.penalty) for m in range(len(problem.blocks))]
        whitened = [
            solve_lower(L, features)
            for L, features in zip(factors, self.features, strict=True)
        ]
        coupling = cholesky(
            np.eye(len(iterate.weights)) + sum(Y.T @ Y for Y in whitened)
        )
        return [
            DualState(
                block.kernel,
                block,
                iterate.coefficients[m],
                self.slopes[m],
                problem.penalty,
                factors[m],
                solve_lower(coupling, whitened[m].T),
                problem.dispersion,
            )
            for m, block in enumerate(problem.blocks)
        ]

    def leave_one_out(self):
        """Errors of the prediction of each observation from all other data.

        With C = H + Psi Psi^T the covariance of the data and s the variance of a noise,
        the residual r at the minimum becomes r / (s (C^-1)_ii) where its observation is
        left out (Rasmussen and Williams, 2006, eq. 5.12).

        Returns
        -------
        errors : list of ndarray of shape (N,)
            For each function.
        """
        problem = self.problem
        factors = [self.factor(m, problem.penalty) for m in range(len(problem.blocks))]
        whitened = [
            solve_lower(L, features)
            for L, features in zip(factors, self.features, strict=True)
        ]
        p = len(self.evaluation.iterate.weights)
        coupling = cholesky(np.eye(p) + sum(Y.T @ Y for Y in whitened))
        errors = []
        for m, (L, Y) in enumerate(zip(factors, whitened, strict=True)):
            n = len(problem.blocks[m].values)
            columns = solve_lower(L, np.eye(len(L), n))
            shared = solve_lower(coupling, Y.T @ columns)
            diagonal = np.sum(columns**2, axis=0) - np.sum(shared**2, axis=0)
            residual = self.evaluation.residuals[m][:n] * problem.precisions[m][:n]
            errors.append(residual / diagonal)
        return errors

    def posterior_weights(self):
        """What the data say about the weights of P, whatever the states are."""
        evaluation = self.evaluation
        weights = evaluation.iterate.weights
        whitened = (
            solve_lower(self.factor(m, self.problem.penalty), features)
            for m, features in enumerate(self.features)
        )
        factor = cholesky(np.eye(len(weights)) + sum(Y.T @ Y for Y in whitened))
        return WeightPosterior(weights, factor, evaluation.loss).with_dispersion(
            self.problem.dispersion
        )

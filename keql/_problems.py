"""The joint least-squares problem of states and equation, solved in the dual.

The unknowns are one function v_m of the state RKHS for each of M functions, and P in
the span of orthonormal features psi. With r the residuals, the objective is

    J = 1/2 |w|^2 + sum_m [ lambda/2 |v_m|^2 + 1/2 r_m^T W_m r_m ],
    r_m = (v_m(X_m) - y_m, (P + Pbar)(Phi(v_m, Y_m)) - f_m),   P = psi . w.

A Levenberg-Marquardt step is a linear Gaussian regression with as many functionals as
residuals, T = (point values, linearised equation); only matrices of that size are
factored (design: the representer theorem in observation space).
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from keql._linalg import cholesky, solve_cholesky, solve_lower
from keql._posterior import PosteriorState
from keql._weights import WeightsPosterior
from keql.operators import gram

# Rows of the normal matrix that are assembled at once: they stay in the cache.
ROWS = 96
# Noise of the equation outside of a window, relative to that inside.
OUTSIDE = 1e3


@dataclass(frozen=True)
class Block:
    """One function: what is observed of it, and where the equation is imposed.

    The representers are its N point values, then the Q' operators at K points; their
    Gram matrix is kept in three parts, because functions with the same collocation
    points share the last one.

    Parameters
    ----------
    functionals : list of (points, operator)
        The representers.
    values, weights : ndarray of shape (N,)
        Observed values and their relative precisions.
    forcing : ndarray of shape (K,)
        Right-hand side.
    points : ndarray of shape (K, d)
        Collocation points.
    gram_values : ndarray of shape (N, N)
        Gram matrix of the point values.
    gram_cross : ndarray of shape (N, Q' K)
        Point values against operators.
    gram_operators : ndarray of shape (Q', K, Q', K)
        Gram matrix of the operators.
    """

    functionals: list
    values: np.ndarray
    weights: np.ndarray
    forcing: np.ndarray
    points: np.ndarray
    gram_values: np.ndarray
    gram_cross: np.ndarray
    gram_operators: np.ndarray

    @property
    def n_operators(self):
        """Number of representers that are operators, Q' K."""
        return self.gram_cross.shape[1]

    def precisions(self, observation_noise, equation_noise):
        """Inverse variances of the N + K residuals."""
        imposed = np.full(len(self.points), equation_noise**-2.0)
        return np.concatenate([self.weights * observation_noise**-2.0, imposed])

    def apply_gram(self, c):
        """Values of the representers on the function with coefficients `c`."""
        n = len(self.values)
        square = (self.n_operators, self.n_operators)
        lower = self.gram_operators.reshape(square) @ c[n:]
        lower += c[:n] @ self.gram_cross
        return np.concatenate(
            [self.gram_values @ c[:n] + self.gram_cross @ c[n:], lower]
        )

    def features(self, z):
        """Features Phi(v, Y) of shape (K, d + Q') from values of the representers."""
        n_points = len(self.points)
        return np.column_stack(
            [self.points, z[len(self.values) :].reshape(-1, n_points).T]
        )

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

    def apply_functionals(self, z, slopes):
        """T v from the values of the representers."""
        n = len(self.values)
        linearised = np.einsum("qk,qk->k", slopes, z[n:].reshape(slopes.shape))
        return np.concatenate([z[:n], linearised])

    def expand(self, x, slopes):
        """Coefficients of T^* x on the representers."""
        n = len(self.values)
        return np.concatenate([x[:n], (slopes * x[n:]).ravel()])


def make_blocks(kernels, regressions, collocation_points, forcing, operators, identity):
    """Gram matrices of all functions; what functions share is computed once.

    Parameters
    ----------
    kernels : list of Kernel
        State kernel of each function.
    regressions : list of Regression
        Observations of each function.
    collocation_points, forcing : list of ndarray
        Of each function.
    operators : list of DifferentialOperator
        L_1, ..., L_Q'.
    identity : DifferentialOperator
        The operator "u".

    Returns
    -------
    blocks : list of Block
        One for each function.
    """
    shared, blocks = {}, []
    for kernel, data, points, right in zip(
        kernels, regressions, collocation_points, forcing, strict=True
    ):
        imposed = [(points, operator) for operator in operators]
        observed = [(data.points, identity)]
        if id(points) not in shared:
            shape = (len(operators), len(points), len(operators), len(points))
            shared[id(points)] = gram(kernel, imposed).reshape(shape)
        blocks.append(
            Block(
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


@dataclass(frozen=True)
class Iterate:
    """States and equation: coefficients and values of the representers, weights of P.

    Parameters
    ----------
    coefficients, values : list of ndarray of shape (N_m + Q' K_m,)
        Of each function; ``values = G @ coefficients``.
    weights : ndarray of shape (p,)
        Of the equation's features.
    """

    coefficients: list
    values: list
    weights: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """An iterate with its residuals and loss."""

    iterate: Iterate
    features: list
    residuals: list
    loss: float


class DualProblem:
    """The joint problem with Levenberg-Marquardt steps in observation space.

    Parameters
    ----------
    blocks : list of Block
        The functions.
    basis : PolynomialBasis or InducingBasis
        Features of the equation's RKHS.
    known_part : LinearKnownPart or FunctionKnownPart
        Pbar.
    n_unknown : int
        Number of leading columns of the features that P depends on.
    precisions : list of ndarray of shape (N_m + K_m,)
        Inverse variances of the residuals of each function.
    penalty : float
        lambda, weight of the squared RKHS norms of the states.
    map_blocks : callable, default=map
        Applies a function to each block, possibly in parallel.
    """

    def __init__(
        self, blocks, basis, known_part, n_unknown, precisions, penalty, map_blocks=map
    ):
        self.blocks = blocks
        self.basis = basis
        self.known_part = known_part
        self.n_unknown = n_unknown
        self.precisions = precisions
        self.penalty = penalty
        self.map_blocks = map_blocks

    def iterate(self, coefficients, weights):
        """An iterate from coefficients of the representers and weights of P."""
        values = [
            block.apply_gram(c)
            for block, c in zip(self.blocks, coefficients, strict=True)
        ]
        return Iterate(list(coefficients), values, weights)

    @property
    def equation_noise(self):
        """Standard deviation of the residual of the equation."""
        return self.precisions[0][-1] ** -0.5

    def with_basis(self, basis):
        """The same problem with other features of the equation's RKHS."""
        problem = copy(self)
        problem.basis = basis
        return problem

    def with_observation_noise(self, factor):
        """The same problem with `factor` times the noise of the observations."""
        return self._with_precisions(
            lambda block: (factor**-2.0, np.ones(len(block.points)))
        )

    def within(self, start, stop):
        """The same problem with the equation imposed in a window only.

        Parameters
        ----------
        start, stop : float
            The window, as fractions of the extent of the first coordinate; outside
            of it the residual of the equation has a thousand times its noise.
        """

        def factors(block):
            first = block.points[:, 0]
            lower, extent = first.min(), np.ptp(first)
            inside = (first >= lower + start * extent) & (
                first <= lower + stop * extent
            )
            return 1.0, np.where(inside, 1.0, OUTSIDE**-2.0)

        return self._with_precisions(factors)

    def _with_precisions(self, factors):
        precisions = []
        for block, precision in zip(self.blocks, self.precisions, strict=True):
            observed, imposed = factors(block)
            scaled = precision.copy()
            scaled[: len(block.values)] *= observed
            scaled[len(block.values) :] *= imposed
            precisions.append(scaled)
        problem = copy(self)
        problem.precisions = precisions
        return problem

    def misfit(self, iterate):
        """Mean square of the residuals in units of the noise levels."""
        residuals = np.concatenate(self.evaluate(iterate).residuals)
        return float(np.mean(np.concatenate(self.precisions) * residuals**2))

    def evaluate(self, iterate):
        """Residuals and loss of an iterate."""
        features, residuals = [], []
        loss = 0.5 * iterate.weights @ iterate.weights
        for block, c, z, precision in zip(
            self.blocks,
            iterate.coefficients,
            iterate.values,
            self.precisions,
            strict=True,
        ):
            S = block.features(z)
            equation = self.basis.values(S[:, : self.n_unknown], iterate.weights)
            equation += self.known_part(S) - block.forcing
            residual = np.concatenate([z[: len(block.values)] - block.values, equation])
            loss += 0.5 * self.penalty * (c @ z)
            loss += 0.5 * np.sum(precision * residual**2)
            features.append(S)
            residuals.append(residual)
        return Evaluation(iterate, features, residuals, float(loss))

    def linearise(self, evaluation):
        """Linear model at an evaluation."""
        return DualModel(self, evaluation)

    def slopes(self, S, weights):
        """d(P + Pbar) / d(L_q u) at features S, of shape (Q', K), and psi(S)."""
        gradient = self.known_part.gradient(S)
        unknown = S[:, : self.n_unknown]
        gradient[: self.n_unknown] += self.basis.gradient(unknown, weights)
        n_coordinates = S.shape[1] - self.blocks[0].gram_operators.shape[0]
        return gradient[n_coordinates:], self.basis(unknown)


class DualModel:
    """Linearisation of a dual problem; `step` solves it for any damping.

    With a = lambda + mu, b = 1 + mu and, for each function, H = T U T^*/a + W^-1 =
    L L^T, Y = L^-1 Psi, d = L^-1 rt (block arrowhead: H has no Psi in it),

        rt = r - (lambda/a) T v - (1/b) Psi w,
        e = -(b I + sum Y^T Y)^-1 sum Y^T d,      x = L^-T (d + Y e),
        dw = e - w / b,                           dv = -(lambda/a) v - T^* x / a.

    Parameters
    ----------
    problem : DualProblem
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
            return dc, problem.blocks[m].apply_gram(dc)

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

    def posterior_states(self, kernels):
        """The states with their posterior variances, the equation being uncertain too.

        Parameters
        ----------
        kernels : list of Kernel
            State kernel of each function.

        Returns
        -------
        states : list of PosteriorState
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
            PosteriorState(
                kernels[m],
                block,
                iterate.coefficients[m],
                self.slopes[m],
                problem.penalty,
                factors[m],
                solve_lower(coupling, whitened[m].T),
            )
            for m, block in enumerate(problem.blocks)
        ]

    def posterior_weights(self):
        """What the data say about the weights of P, whatever the states are."""
        evaluation = self.evaluation
        weights = evaluation.iterate.weights
        whitened = (
            solve_lower(self.factor(m, self.problem.penalty), features)
            for m, features in enumerate(self.features)
        )
        factor = cholesky(np.eye(len(weights)) + sum(Y.T @ Y for Y in whitened))
        return WeightsPosterior(weights, factor, evaluation.loss)

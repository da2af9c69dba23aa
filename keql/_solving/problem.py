"""A function whose equation is known, as a least-squares problem.

The joint problem without its learned part: the unknown is one state v, and no other
function depends on it. Residuals are N linear conditions and K values of the
equation, each with a noise of its own variance s_i,

    J = 1/2 |v|^2 + 1/2 sum_i r_i^2 / s_i.
"""

from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from keql._joint.dual import DualBlock
from keql._numerics.linalg import cholesky, solve_cholesky, solve_lower
from keql.operators import KernelExpansion, gram, gram_diagonal

# Relative differences of slopes by which linear equations are told.
SLOPES_DIFFER = 1e-5


def make_block(kernel, conditions, operators, points):
    """Representers of one function and their Gram matrix.

    Parameters
    ----------
    kernel : Kernel
        State kernel.
    conditions : Conditions
        What is given.
    operators : list of DifferentialOperator
        Those of the equation.
    points : ndarray of shape (K, d)
        Collocation points.

    Returns
    -------
    block : DualBlock
        With the values and the forcing of the conditions.
    """
    imposed = [(points, operator) for operator in operators]
    shape = (len(operators), len(points), len(operators), len(points))
    return DualBlock(
        kernel=kernel,
        functionals=conditions.functionals + imposed,
        values=conditions.values,
        weights=np.ones(len(conditions.values)),
        forcing=conditions.forcing,
        points=points,
        gram_values=gram(kernel, conditions.functionals),
        gram_cross=gram(kernel, conditions.functionals, imposed),
        gram_operators=gram(kernel, imposed).reshape(shape),
    )


class KnownProblem:
    """One function with a known equation, as a least-squares problem.

    An iterate is a pair (coefficients, values) of the representers.

    Parameters
    ----------
    kernel : Kernel
        State kernel.
    block : DualBlock
        The function.
    equation : LearnedEquation or GivenEquation
        Its equation.
    """

    def __init__(self, kernel, block, equation):
        self.kernel = kernel
        self.block = block
        self.equation = equation
        self.variances = None
        zero = self.zero_features()
        self.slopes_at_zero = self.slopes(zero)
        self.value_at_zero = equation(zero)
        self.matrix_at_zero = block.normal_matrix(self.slopes_at_zero)

    def for_data(self, conditions):
        """The same problem with other values and another forcing."""
        problem = copy(self)
        problem.block = replace(
            self.block, values=conditions.values, forcing=conditions.forcing
        )
        return problem

    def with_variances(self, variances):
        """The same problem with other variances of the noise, of shape (N + K,)."""
        problem = copy(self)
        problem.variances = variances
        return problem

    def zero_features(self):
        """Features of the zero state at the collocation points."""
        points = self.block.points
        n_operators = len(self.equation.operators)
        return np.hstack([points, np.zeros((len(points), n_operators))])

    def slopes(self, S):
        """Derivatives of the equation in the operators, of shape (Q, K)."""
        d = self.block.points.shape[1]
        return np.ascontiguousarray(self.equation.gradient(S)[:, d:].T)

    @property
    def prior(self):
        """Prior variances of the functionals, of shape (N + K,).

        Where the linearised equation vanishes, as that of u_x^2 + u_y^2 = 1 does at
        zero, its operators count with slope one.
        """
        prior = np.diag(self.matrix_at_zero).copy()
        if np.all(prior > 0):
            return prior
        ones = np.ones_like(self.slopes_at_zero)
        return np.where(prior > 0, prior, np.diag(self.block.normal_matrix(ones)))

    def seems_linear(self):
        """Whether the slopes are the same at zero and at random features."""
        rng = np.random.RandomState(0)
        n_points = len(self.block.points)
        variances = np.diag(
            self.block.gram_operators.reshape((self.block.n_operators,) * 2)
        )
        spread = np.sqrt(variances).reshape(-1, n_points).T
        sizes = np.max(np.abs(self.block.values), initial=0.0) or 1.0
        known = getattr(self.equation, "training_features", None)
        if known is not None:  # beyond these the slopes may be flat
            spread, sizes = np.std(known[:, -spread.shape[1] :], axis=0), 1.0
        largest = np.abs(self.slopes_at_zero).max()
        for factor in (0.1, 1.0, 10.0):
            S = self.zero_features()
            noise = rng.standard_normal((n_points, self.slopes_at_zero.shape[0]))
            S[:, -noise.shape[1] :] = factor * sizes * spread * noise
            change = np.abs(self.slopes(S) - self.slopes_at_zero).max()
            if not change <= SLOPES_DIFFER * largest:
                return False
        return True

    def evaluate(self, iterate):
        """Residuals and loss of an iterate."""
        c, z = iterate
        n = len(self.block.values)
        S = self.block.features(z)
        residual = np.concatenate(
            [z[:n] - self.block.values, self.equation(S) - self.block.forcing]
        )
        loss = 0.5 * (c @ z) + 0.5 * np.sum(residual**2 / self.variances)
        return Evaluation(iterate, S, residual, float(loss))

    def linearise(self, evaluation):
        """Linear model at an evaluation."""
        return KnownModel(self, evaluation)


class Evaluation(NamedTuple):
    """An iterate with its features, residuals and loss."""

    iterate: tuple
    features: np.ndarray
    residuals: np.ndarray
    loss: float


class KnownModel:
    """Linearisation of a problem with a known equation.

    With a = 1 + mu and H = T U T^*/a + diag(s),

        x = H^-1 (r - T v / a),   dv = -v / a - T^* x / a.

    Parameters
    ----------
    problem : KnownProblem
        The problem.
    evaluation : Evaluation
        Where it is linearised.
    """

    def __init__(self, problem, evaluation):
        self.problem = problem
        self.evaluation = evaluation
        self.slopes = problem.slopes(evaluation.features)
        self.matrix = problem.block.normal_matrix(self.slopes)

    def step(self, damping):
        """The damped Gauss-Newton iterate, and the decrease of the loss predicted."""
        block, (c, z) = self.problem.block, self.evaluation.iterate
        residual, a = self.evaluation.residuals, 1.0 + damping
        L = factorise(self.matrix / a, self.problem.variances)
        x = solve_cholesky(L, residual - block.apply_functionals(z, self.slopes) / a)
        dc = -(c + block.expand(x, self.slopes)) / a
        dz = block.evaluate(dc)
        new = (c + dc, z + dz)
        residual = residual + block.apply_functionals(dz, self.slopes)
        loss = 0.5 * (new[0] @ new[1])
        loss += 0.5 * np.sum(residual**2 / self.problem.variances)
        return new, self.evaluation.loss - loss

    @property
    def right(self):
        """What the linearised functionals should be equal to, of shape (N + K,)."""
        values = self.problem.block.apply_functionals(
            self.evaluation.iterate[1], self.slopes
        )
        return values - self.evaluation.residuals

    def factor(self):
        """Factor of H without damping."""
        return factorise(self.matrix, self.problem.variances)


class SolvedState(KernelExpansion):
    """A solution, with the variances of the linearised problem.

    Parameters
    ----------
    kernel : Kernel
        State kernel.
    functionals : list of (points, operator)
        Conditions, then the operators of the equation.
    coefficients : ndarray of shape (N + Q K,)
        Of the representers.
    slopes : ndarray of shape (Q, K)
        Coefficients of the linearised equation.
    variances : ndarray of shape (N + K,)
        Of the noise.
    cholesky : ndarray of shape (N + K, N + K), default=None
        Factor of H; None: computed whenever variances are asked for.
    """

    def __init__(
        self, kernel, functionals, coefficients, slopes, variances, cholesky=None
    ):
        super().__init__(kernel, functionals, coefficients, cholesky)
        self.slopes = slopes
        self.variances = variances

    def variance(self, points, operator):
        """Posterior variances of an operator applied to the solution.

        Parameters
        ----------
        points : ndarray of shape (n, d)
            Where.
        operator : DifferentialOperator
            What.

        Returns
        -------
        variances : ndarray of shape (n,)
            Never negative.
        """
        L = self._factor() if self.cholesky is None else self.cholesky
        explained = [
            np.sum(solve_lower(L, combine(cross.T, self.slopes)) ** 2, axis=0)
            for cross in self._cross(points, operator)
        ]
        prior = gram_diagonal(self.kernel, points, operator)
        return np.maximum(prior - np.concatenate(explained), 0.0)

    def _factor(self):
        G = gram(self.kernel, self.functionals)
        H = combine(combine(G, self.slopes).T, self.slopes)
        return factorise(H, self.variances)

    def without_factor(self):
        """The same solution, in memory proportional to the number of points."""
        state = copy(self)
        state.cholesky = None
        return state


def combine(values, slopes):
    """Apply T to values of the representers, stacked in rows."""
    n = len(values) - slopes.size
    if slopes.size == 0:
        return values
    imposed = values[n:].reshape(*slopes.shape, -1)
    return np.vstack([values[:n], np.einsum("qk,qkj->kj", slopes, imposed)])


def factorise(H, variances):
    """Lower Cholesky factor of H + diag(variances).

    Scaled to a unit diagonal first: functionals differ in size by orders of magnitude,
    and what is added against rounding should be small beside each.
    """
    A = np.array(H)
    A[np.diag_indices_from(A)] += variances
    scale = np.sqrt(np.diag(A))
    A /= scale
    A /= scale[:, None]
    L = cholesky(A)
    L *= scale[:, None]
    return L

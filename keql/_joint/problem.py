"""The joint least-squares problem of states and equation, whatever its unknowns are.

Sought are one function v_m of the state RKHS for each of M functions, and P in the
span of orthonormal features psi. With r the residuals, the objective is

    J = 1/2 |w|^2 + sum_m [ lambda/2 |v_m|^2 + 1/2 r_m^T W_m r_m ],
    r_m = (O_m v_m - y_m, (P + Pbar)(Phi(v_m, Y_m)) - f_m),   P = psi . w,

with O_m the observed functionals, in most problems point values. An equation that is
known has no features with free weights; then the functions are independent.

How a state is represented, and how a Levenberg-Marquardt step is computed, is told by
:mod:`keql._joint.dual` and :mod:`keql._joint.primal`.
"""

from copy import copy
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Conditions:
    """What one function has to meet: N observations, and the equation at K points.

    The values z of a state are those of the observed functionals, then of the Q'
    operators at the K points, one operator after the other.

    Parameters
    ----------
    observed : list of (points, operator)
        Functionals as in :func:`keql.operators.gram`, N in all.
    values, weights : ndarray of shape (N,)
        Observed values and their relative precisions.
    points : ndarray of shape (K, d)
        Collocation points.
    operators : list of DifferentialOperator
        L_1, ..., L_Q' of the equation.
    forcing : ndarray of shape (K,)
        Right-hand side.
    """

    observed: list
    values: np.ndarray
    weights: np.ndarray
    points: np.ndarray
    operators: list
    forcing: np.ndarray

    @property
    def imposed(self):
        """The functionals of the equation: each operator at the collocation points."""
        return [(self.points, operator) for operator in self.operators]

    @property
    def key(self):
        """Hashable; equal for functions with the same functionals."""
        observed = tuple((x.tobytes(), operator.terms) for x, operator in self.observed)
        return observed, self.points.tobytes()

    @property
    def observations(self):
        """The observed (points, operator, values), one triple for each operator."""
        ends = np.cumsum([len(points) for points, _ in self.observed])
        parts = np.split(self.values, ends[:-1])
        pairs = zip(self.observed, parts, strict=True)
        return [(points, operator, values) for (points, operator), values in pairs]

    def select(self, observed_rows, rows):
        """The conditions at some points only.

        `observed_rows` has the rows of the points of each observed operator, `rows`
        those of the collocation points.
        """
        starts = np.cumsum([0, *(len(points) for points, _ in self.observed)])
        chosen = np.concatenate(
            [start + i for start, i in zip(starts[:-1], observed_rows, strict=True)]
        )
        parts = zip(self.observed, observed_rows, strict=True)
        return replace(
            self,
            observed=[
                (points[i], operator) for (points, operator), i in parts if i.size
            ],
            values=self.values[chosen],
            weights=self.weights[chosen],
            points=self.points[rows],
            forcing=self.forcing[rows],
        )

    def precisions(self, observation_noise, equation_noise):
        """Inverse variances of the N + K residuals."""
        imposed = np.full(len(self.points), equation_noise**-2.0)
        return np.concatenate([self.weights * observation_noise**-2.0, imposed])

    def features(self, z):
        """Features Phi(v, Y) of shape (K, d + Q') from the values z."""
        imposed = z[len(self.values) :].reshape(len(self.operators), len(self.points))
        return np.column_stack([self.points, imposed.T])


def apply_functionals(z, slopes):
    """T v for T = (observed functionals, sum_q slopes_q L_q).

    `z` has the values of one state, (N + Q' K,), or of several in its columns.
    """
    n = len(z) - slopes.size
    imposed = z[n:].reshape(*slopes.shape, *z.shape[1:])
    return np.concatenate([z[:n], np.einsum("qk,qk...->k...", slopes, imposed)])


def distinct(items, same):
    """The different ones among items, and for each item its position in them."""
    different, index = [], []
    for item in items:
        known = (i for i, other in enumerate(different) if same(item, other))
        index.append(next(known, len(different)))
        if index[-1] == len(different):
            different.append(item)
    return different, index


def same_points(points, others):
    """Whether two arrays hold the same points in the same order."""
    return points is others or np.array_equal(points, others)


@dataclass(frozen=True)
class Iterate:
    """States and equation: coefficients and values of the states, weights of P.

    Parameters
    ----------
    coefficients : list of ndarray
        Of each state, in whatever basis its block represents it.
    values : list of ndarray of shape (N_m + Q' K_m,)
        Observed functionals and operators of each state.
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


class JointProblem:
    """The joint problem of M functions and one equation.

    Parameters
    ----------
    blocks : list of DualBlock or PrimalBlock
        The functions.
    basis : PolynomialBasis, InducingBasis or FixedUnknownPart
        Features of the equation's RKHS.
    known_part : LinearKnownPart or FunctionKnownPart
        Pbar.
    n_unknown : int
        Number of leading columns of the features that P depends on.
    precisions : list of ndarray of shape (N_m + K_m,)
        Inverse variances of the residuals of each function.
    penalty : float
        lambda, weight of the squared RKHS norms of the states.
    linear_model : callable
        Of a problem and an evaluation: the linearised problem, whose `step` gives the
        damped Gauss-Newton iterate.
    map_blocks : callable, default=map
        Applies a function to each block, possibly in parallel.
    dispersion : float, default=1.0
        By which all variances, of noise and priors, are to be multiplied: it does not
        change the solution, but how certain it is.
    """

    def __init__(
        self,
        blocks,
        basis,
        known_part,
        n_unknown,
        precisions,
        penalty,
        linear_model,
        map_blocks=map,
        dispersion=1.0,
    ):
        self.blocks = blocks
        self.basis = basis
        self.known_part = known_part
        self.n_unknown = n_unknown
        self.precisions = precisions
        self.penalty = penalty
        self.linear_model = linear_model
        self.map_blocks = map_blocks
        self.dispersion = dispersion

    def iterate(self, coefficients, weights):
        """An iterate from coefficients of the states and weights of P."""
        pairs = zip(self.blocks, coefficients, strict=True)
        values = [block.evaluate(c) for block, c in pairs]
        return Iterate(list(coefficients), values, weights)

    def zero(self, weights):
        """The iterate whose states are zero."""
        return self.iterate([np.zeros(b.n_unknowns) for b in self.blocks], weights)

    @property
    def equation_noise(self):
        """Standard deviation of the residual of the equation."""
        return self.precisions[0][-1] ** -0.5

    def with_basis(self, basis):
        """The problem with other features of the equation's RKHS."""
        problem = copy(self)
        problem.basis = basis
        return problem

    def with_blocks(self, blocks, precisions):
        """The problem with other blocks, and the precisions of their residuals."""
        problem = copy(self)
        problem.blocks, problem.precisions = blocks, precisions
        return problem

    def with_dispersion(self, dispersion):
        """The problem with another factor of all variances."""
        problem = copy(self)
        problem.dispersion = dispersion
        return problem

    def misfit(self, iterate):
        """Mean square of the residuals in units of the noise levels."""
        residuals = np.concatenate(self.evaluate(iterate).residuals)
        squares = np.concatenate(self.precisions) * residuals**2
        return float(np.mean(squares)) / self.dispersion

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
            loss += 0.5 * self.penalty * block.squared_norm(c, z)
            loss += 0.5 * np.sum(precision * residual**2)
            features.append(S)
            residuals.append(residual)
        return Evaluation(iterate, features, residuals, float(loss))

    def linearise(self, evaluation):
        """Linear model at an evaluation."""
        return self.linear_model(self, evaluation)

    def slopes(self, S, weights):
        """d(P + Pbar) / d(L_q u) at features S, of shape (Q', K), and psi(S)."""
        gradient = self.known_part.gradient(S)
        unknown = S[:, : self.n_unknown]
        gradient[: self.n_unknown] += self.basis.gradient(unknown, weights)
        n_coordinates = self.blocks[0].points.shape[1]
        return gradient[n_coordinates:], self.basis(unknown)

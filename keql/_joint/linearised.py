"""The joint problem linearised at an evaluation: a linear Gaussian regression.

With T the linearised functionals of a function and Psi the features of P there, the
data are T v + Psi w up to noise. Functions share the weights w only, so their states
are eliminated one by one, which leaves p equations for w (block arrowhead). With
a = lambda + mu and b = 1 + mu for the damping mu, these have the matrix

    R R^T = b I + sum_m Psi_m^T (T_m U T_m^* / a + W_m^-1)^-1 Psi_m.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from keql._joint.problem import Iterate, apply_functionals
from keql._numerics.linalg import solve_lower
from keql.equation import WeightPosterior


class Elimination(NamedTuple):
    """The states eliminated: one triangular factor for each function, one for w.

    The `factors` (s_m, s_m) of the functions are lower triangular in the dual, upper
    triangular in the primal. `features` (s_m, p) are those of P in the coordinates of
    these factors, `right` (s_m,) what the states have to explain. `coupling` (p, p) is
    R, lower triangular, and `dw` (p,) the step of the weights.
    """

    factors: list
    features: list
    right: list
    coupling: np.ndarray
    dw: np.ndarray


@dataclass(frozen=True)
class LinearisedData:
    """The data T v + Psi w that determine one state, and what is known of w.

    Everything is of the size of the data, or of P: factors are computed from it. The
    `functionals` are those observed, then the Q' operators at the K collocation points,
    `slopes` (Q', K) the coefficients of the linearised equation, `precisions` (N + K,)
    the inverse variances of the noise. P has the features psi of `basis` at the
    features `S` (K, d + Q) of the state, and `coupling` (p, p) is R without damping.
    """

    functionals: list
    slopes: np.ndarray
    precisions: np.ndarray
    basis: object
    S: np.ndarray
    coupling: np.ndarray

    @property
    def psi(self):
        """Psi, of shape (N + K, p)."""
        return below_zeros(self.basis(self.S), len(self.precisions))


def below_zeros(features, n_rows):
    """Features of P at the collocation points, (K, p), below zeros for observations."""
    rows = np.zeros((n_rows, features.shape[1]))
    rows[n_rows - len(features) :] = features
    return rows


class LinearisedProblem:
    """What linear models have in common, whatever represents the states.

    A subclass says how the states are eliminated, `_eliminate(a, b)`, from matrices
    that it makes with `_prepare(m, slopes, features)`, and what follows for one
    function.
    """

    def __init__(self, problem, evaluation):
        self.problem = problem
        self.evaluation = evaluation
        weights = evaluation.iterate.weights

        def prepare(m):
            slopes, features = problem.slopes(evaluation.features[m], weights)
            return slopes, features, self._prepare(m, slopes, features)

        parts = problem.map_blocks(prepare, range(len(problem.blocks)))
        self.slopes, self.features, self.matrices = zip(*parts, strict=True)

    @cached_property
    def undamped(self):
        """The :class:`Elimination` without damping."""
        return self._eliminate(self.problem.penalty, 1.0)

    def step(self, damping):
        """The iterate after a step with damping mu, and the predicted decrease."""
        problem, iterate = self.problem, self.evaluation.iterate
        a, b = problem.penalty + damping, 1.0 + damping
        parts = self._eliminate(a, b) if damping > 0 else self.undamped

        def expand(m):
            dc = self._step_of_state(m, parts, a, b)
            return dc, problem.blocks[m].evaluate(dc)

        steps = list(problem.map_blocks(expand, range(len(problem.blocks))))
        new = Iterate(
            [c + dc for c, (dc, _) in zip(iterate.coefficients, steps, strict=True)],
            [z + dz for z, (_, dz) in zip(iterate.values, steps, strict=True)],
            iterate.weights + parts.dw,
        )
        changes = [dz for _, dz in steps]
        return new, self.evaluation.loss - self._model_loss(new, changes, parts.dw)

    def _model_loss(self, new, changes, dw):
        """Loss of the linear model at an iterate with these changes of the values."""
        problem = self.problem
        loss = 0.5 * new.weights @ new.weights
        for m, (block, dz) in enumerate(zip(problem.blocks, changes, strict=True)):
            residual = self.evaluation.residuals[m]
            residual = residual + apply_functionals(dz, self.slopes[m])
            residual[len(block.values) :] += self.features[m] @ dw
            norm = block.squared_norm(new.coefficients[m], new.values[m])
            loss += 0.5 * problem.penalty * norm
            loss += 0.5 * np.sum(problem.precisions[m] * residual**2)
        return loss

    def leave_one_out(self):
        """Errors (N_m,) of predicting each observation from all other data."""
        parts, errors = self.undamped, []
        for m, (factor, F) in enumerate(
            zip(parts.factors, parts.features, strict=True)
        ):
            q = self._whitened_observations(m, factor)
            shared = solve_lower(parts.coupling, F.T @ q)
            squares = np.sum(q**2, axis=0), np.sum(shared**2, axis=0)
            errors.append(self._left_out(m, *squares))
        return errors

    def log_evidence(self):
        """Log density of the linearised data, states and weights integrated out.

        The data d have the covariance C = H + Psi Psi^T, and 1/2 d^T C^-1 d is the
        lowest loss of the linear model; n/2 log(2 pi) is left out.
        """
        loss = self.evaluation.loss - self.step(0.0)[1]
        dispersion, parts = self.problem.dispersion, self.undamped
        half_log_determinant = np.sum(np.log(np.abs(np.diag(parts.coupling))))
        for m, factor in enumerate(parts.factors):
            half_log_determinant += self._half_log_determinant(m, factor)
        n_data = sum(map(len, self.problem.precisions))
        half_log_determinant += 0.5 * n_data * np.log(dispersion)
        return float(-loss / dispersion - half_log_determinant)

    def posterior_weights(self):
        """What the data say about the weights of P, whatever the states are."""
        evaluation = self.evaluation
        weights, coupling = evaluation.iterate.weights, self.undamped.coupling
        posterior = WeightPosterior(weights, coupling, evaluation.loss)
        return posterior.with_dispersion(self.problem.dispersion)

    def data_of(self, m, precisions, coupling):
        """The LinearisedData of function `m`, with the precisions of its noise."""
        block, S = self.problem.blocks[m], self.evaluation.features[m]
        return LinearisedData(
            block.observed + block.imposed,
            self.slopes[m],
            precisions,
            self.problem.basis,
            S[:, : self.problem.n_unknown],
            coupling,
        )

    def posterior_states(self):
        """The states with their variances, the equation being uncertain too."""
        parts, states = self.undamped, []
        for m, precisions in enumerate(self.problem.precisions):
            data = self.data_of(m, precisions, parts.coupling)
            shared = solve_lower(parts.coupling, parts.features[m].T)
            states.append(self._state(m, data, parts.factors[m], shared))
        return states

"""The joint problem linearised at an evaluation: a linear Gaussian regression.

With T the linearised functionals of a function and Psi the features of P there, the
data are T v + Psi w up to noise. Functions share the weights w only, so their states
are eliminated one by one, which leaves p equations for w (block arrowhead). With
a = lambda + mu and b = 1 + mu for the damping mu, these have the matrix

    R R^T = b I + sum_m Psi_m^T (T_m U T_m^* / a + W_m^-1)^-1 Psi_m.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from sklearn import get_config

from keql._joint.problem import Iterate, Tangent
from keql._numerics.linalg import solve_lower
from keql.equation import WeightPosterior
from keql.operators import KernelExpansion


class Elimination(NamedTuple):
    """The states eliminated: one triangular factor for each function, one for w.

    What there is for each function is None if it is computed whenever it is needed. If
    only `factors` are kept, these are packed triangles.

    The `factors` (s_m, s_m) of the functions are lower triangular in the dual, upper
    triangular in the primal. `features` (s_m, p) are those of P in the coordinates of
    these factors, in the dual without the zeros of observations, `right` (s_m,) what
    the states have to explain. `coupling` (p, p) is
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
    `tangent` is the :class:`Tangent` T, `precisions` (N + R,) are the inverse variances
    of the noise. P has the features psi of `basis` at the features `S` (R, c + Q) of
    the state, and `coupling` (p, p) is R without damping.
    """

    functionals: list
    tangent: Tangent
    precisions: np.ndarray
    basis: object
    S: np.ndarray
    coupling: np.ndarray

    @property
    def psi(self):
        """Psi, of shape (N + R, p)."""
        return below_zeros(self.basis(self.S), len(self.precisions))


def below_zeros(features, n_rows):
    """Features of P at the collocation points, (R, p), below zeros for observations."""
    rows = np.zeros((n_rows, features.shape[1]))
    rows[n_rows - len(features) :] = features
    return rows


def last_rows(values, features):
    """The last rows of values (n, ...): as many as the features (R, p) of P have."""
    return values[len(values) - len(features) :]


class LinearisedProblem:
    """What linear models have in common, whatever represents the states.

    A subclass says how the state of function `m` is eliminated, from a matrix that it
    makes with `_matrix(m, tangent, features)`, then the weights, and what follows for
    one function. One that `_can_recompute` makes the matrices of many functions when
    their states are eliminated, a few at a time, and keeps the triangles of the
    factors. Where all of these would take more memory than scikit-learn's
    `working_memory`, it keeps none, but for those of functions that are worked on: what
    is needed again is computed again.
    """

    _can_recompute = False

    def __init__(self, problem, evaluation):
        self.problem, self.evaluation = problem, evaluation
        self.tangents = problem.map_parts(self._tangents_of)
        self.features = self.matrices = None
        self.keeps_factors = self._factors_fit()
        is_kept = len(problem.blocks) == 1 or problem.is_small and self.keeps_factors
        if is_kept or not self._can_recompute:
            pairs = problem.map_parts(self._features_and_matrices)
            self.features, self.matrices = zip(*pairs, strict=True)

    def _map(self, function):
        """What a function of m returns for each block, possibly in parallel."""
        return self.problem.map_blocks(function, range(len(self.problem.blocks)))

    def _factors_fit(self):
        """Whether there is memory for the packed factors of all functions."""
        sizes = np.array([len(r) for r in self.evaluation.residuals], dtype=float)
        n_bytes = 8 * np.sum(sizes * (sizes + 1) / 2)
        return bool(n_bytes <= get_config()["working_memory"] * 2**20)

    def _tangents_of(self, members):
        problem, evaluation = self.problem, self.evaluation
        S = np.concatenate([evaluation.features[m] for m in members])
        slopes = problem.slopes(S, evaluation.iterate.weights)
        pairs = zip(members, problem.split(members, slopes, axis=1), strict=True)
        return [Tangent(own, problem.blocks[m].rows) for m, own in pairs]

    def _features_and_matrices(self, members):
        problem, evaluation = self.problem, self.evaluation
        S = np.concatenate([evaluation.features[m] for m in members])
        features = problem.split(members, problem.psi(S))
        matrices = self._matrices(members, features)
        return zip(features, matrices, strict=True)

    def _matrices(self, members, features):
        """The matrices of several functions, a list."""
        pairs = zip(members, features, strict=True)
        return [self._matrix(m, self.tangents[m], own) for m, own in pairs]

    def _features_and_matrix(self, m):
        if self.matrices is not None:
            return self.features[m], self.matrices[m]
        ((features, matrix),) = self._features_and_matrices([m])
        return features, matrix

    def _eliminate(self, a, b):
        kept, summary = self.eliminate_states(a, b)
        solved = self.solve_for_weights(b, self.evaluation.iterate.weights, summary)
        return Elimination(*kept, *solved)

    def eliminate_states(self, a, b):
        """What an Elimination keeps of each function, and a summary of all.

        Equations for the weights follow from the summary by `solve_for_weights`; those
        of several problems are put together by `merged`.
        """
        if self.matrices is None:
            factors, summary = self._factors_and_summary(a, b)
            return (factors, None, None), summary
        parts = self._map(partial(self._eliminate_state, a, b))
        factors, features, right, *rest = zip(*parts, strict=True)
        return (factors, features, right), self._summary(features, right, *rest)

    def _factor_and_features(self, m):
        """Those of the :class:`Elimination` without damping."""
        parts = self.undamped
        if parts.features is not None:
            return parts.factors[m], parts.features[m]
        return self._eliminate_state(self.problem.penalty, 1.0, m)[:2]

    def _effects(self, members, dw):
        """Values psi . dw (R,) at the collocation points of several functions."""
        problem = self.problem
        if self.features is not None:
            return [self.features[m] @ dw for m in members]
        S = np.concatenate([self.evaluation.features[m] for m in members])
        return problem.split(
            members, problem.basis.values(S[:, : problem.n_unknown], dw)
        )

    def _steps_of_states(self, members, parts, a, b, effects):
        """The steps of the coefficients of several functions, for these effects."""
        pairs = zip(members, effects, strict=True)
        return [self._step_of_state(m, parts, a, effect) for m, effect in pairs]

    @cached_property
    def undamped(self):
        """The :class:`Elimination` without damping."""
        return self._eliminate(self.problem.penalty, 1.0)

    def step(self, damping):
        """The iterate after a step with damping mu, and the predicted decrease."""
        a, b = self.problem.penalty + damping, 1.0 + damping
        parts = self._eliminate(a, b) if damping > 0 else self.undamped
        new, residuals = self.moved(parts, a, b)
        return new, self.evaluation.loss - self.problem.loss(new, residuals)

    def step_to(self, weights):
        """The iterate of lowest loss in this model among those with given weights."""
        dw = weights - self.evaluation.iterate.weights
        parts = self.undamped._replace(dw=dw)
        return self.moved(parts, self.problem.penalty, 1.0)[0]

    def moved(self, parts, a, b):
        """The iterate after the step of an Elimination, and its residuals here."""
        problem, iterate = self.problem, self.evaluation.iterate

        def moved_state(m, effect, dc):
            dz = problem.blocks[m].evaluate(dc)
            residual = self.evaluation.residuals[m]
            residual = residual + self.tangents[m].apply(dz)
            residual[len(problem.blocks[m].values) :] += effect
            return iterate.coefficients[m] + dc, iterate.values[m] + dz, residual

        def moved_states(members):
            effects = self._effects(members, parts.dw)
            steps = self._steps_of_states(members, parts, a, b, effects)
            return list(map(moved_state, members, effects, steps))

        found = problem.map_parts(moved_states)
        coefficients, values, residuals = zip(*found, strict=True)
        new = Iterate(list(coefficients), list(values), iterate.weights + parts.dw)
        return new, residuals

    def leave_one_out(self):
        """Errors (N_m,) of predicting each observation from all other data."""
        errors = []
        for m, certainty in enumerate(self._left_out_precisions):
            n = len(certainty)
            weighted = self.evaluation.residuals[m][:n] * self.problem.precisions[m][:n]
            errors.append(weighted / certainty)
        return errors

    def left_out_density(self):
        """Mean log density of the observations, each predicted from all other data.

        Rasmussen and Williams, 2006, eq. 5.10; log(2 pi) / 2 is left out.
        """
        certainty = np.concatenate(self._left_out_precisions) / self.problem.dispersion
        squares = certainty * np.concatenate(self.leave_one_out()) ** 2
        return float(0.5 * np.mean(np.log(certainty) - squares))

    def left_out_dispersion(self):
        """Mean square of the errors of these predictions, in units of their variances.

        What kernels and noise levels say of states is right if it is about one.
        """
        certainty = np.concatenate(self._left_out_precisions) / self.problem.dispersion
        return float(np.mean(certainty * np.concatenate(self.leave_one_out()) ** 2))

    @cached_property
    def _left_out_precisions(self):
        """Inverse variances (N_m,) of the predictions of each observation."""
        parts, precisions = self.undamped, []
        for m in range(len(self.problem.blocks)):
            factor, features = self._factor_and_features(m)
            q = self._whitened_observations(m, factor)
            shared = solve_lower(parts.coupling, features.T @ last_rows(q, features))
            squares = np.sum(q**2, axis=0), np.sum(shared**2, axis=0)
            precisions.append(self._left_out_precision(m, *squares))
        return precisions

    def log_evidence(self):
        """Log density of the linearised data, states and weights integrated out.

        The data d have the covariance C = H + Psi Psi^T, and 1/2 d^T C^-1 d is the
        lowest loss of the linear model; n/2 log(2 pi) is left out.
        """
        loss = self.evaluation.loss - self.step(0.0)[1]
        dispersion, parts = self.problem.dispersion, self.undamped
        half_log_determinant = np.sum(np.log(np.abs(np.diag(parts.coupling))))
        half_log_determinant += self.half_log_determinant_of_states()
        n_data = sum(map(len, self.problem.precisions))
        half_log_determinant += 0.5 * n_data * np.log(dispersion)
        return float(-loss / dispersion - half_log_determinant)

    def half_log_determinant_of_states(self):
        """That part of it, of all H, which does not depend on the features of P."""
        total = 0.0
        for m in range(len(self.problem.blocks)):
            factor, _ = self._factor_and_features(m)
            total += self._half_log_determinant(m, factor)
        return float(total)

    def whitened_weights(self):
        """A regression for the weights, states eliminated: target, effects.

        Half of its squared residuals, of the target (p + 1,) and the effects (p + 1, p)
        of the weights, is the lowest loss of the linear model with given weights,
        without the part of their prior.
        """
        new, decrease = self.step(0.0)
        precision = self.undamped.coupling @ self.undamped.coupling.T
        right = precision @ new.weights
        sizes, V = np.linalg.eigh(precision - np.eye(len(precision)))
        roots = np.sqrt(np.maximum(sizes, np.finfo(float).eps * sizes[-1]))
        target = (right @ V) / roots
        square = 2 * (self.evaluation.loss - decrease) + new.weights @ right
        rest = np.sqrt(max(square - target @ target, 0.0))
        effects = np.vstack([roots[:, None] * V.T, np.zeros(len(right))])
        return np.append(target, rest), effects

    def posterior_weights(self):
        """What the data say about the weights of P, whatever the states are."""
        evaluation = self.evaluation
        weights, coupling = evaluation.iterate.weights, self.undamped.coupling
        posterior = WeightPosterior(weights, coupling, evaluation.loss)
        return posterior.with_dispersion(self.problem.dispersion)

    def data_of(self, m, precisions, coupling):
        """The LinearisedData of function `m`, with the precisions of its noise."""
        problem, block = self.problem, self.problem.blocks[m]
        T = block.observed + block.imposed, self.tangents[m]
        P = problem.basis, self.evaluation.features[m][:, : problem.n_unknown]
        return LinearisedData(*T, precisions, *P, coupling)

    def posterior_states(self):
        """The states with their variances, the equation being uncertain too."""
        parts, problem, states = self.undamped, self.problem, []
        for m, precisions in enumerate(problem.precisions):
            data = self.data_of(m, precisions, parts.coupling)
            factors = ()
            if parts.features is not None:
                shared = solve_lower(parts.coupling, parts.features[m].T)
                factors = parts.factors[m], shared
            scales = problem.penalty, problem.dispersion
            states.append(self._state(m, data, *scales, *factors))
        return states


class LinearisedState(KernelExpansion):
    """A state with the variances of the linearised problem.

    They follow from its LinearisedData `data`; the prior covariance is the kernel over
    `penalty`, and all variances are multiplied by `dispersion`. The `factors` are not
    saved, but computed from the data whenever variances are asked for without them.
    """

    def __init__(
        self, kernel, functionals, c, data, penalty=1.0, dispersion=1.0, factors=None
    ):
        super().__init__(kernel, functionals, c, factors)
        self.data, self.penalty, self.dispersion = data, penalty, dispersion

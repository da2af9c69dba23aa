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

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from keql._observations.imposed import Imposed


@dataclass(frozen=True)
class Conditions:
    """What one function has to meet: N observations, and the equation at K points.

    `observed` is a list of (points, operator), N functionals in all, with their
    `values` (N,) and the relative precisions of these, `weights` (N,). The equations
    have Q' `operators` at the `points` (K, d); where each is imposed is told by the
    :class:`Imposed` `rows`, and `forcing` (R,) is the right-hand side in these. The
    values z of a state are those of the observed functionals, then of the operators at
    the points, one operator after the other.
    """

    observed: list
    values: np.ndarray
    weights: np.ndarray
    points: np.ndarray
    operators: list
    forcing: np.ndarray
    rows: Imposed

    @property
    def imposed(self):
        """The functionals of the equation: each operator at the collocation points."""
        return [(self.points, operator) for operator in self.operators]

    @property
    def key(self):
        """Hashable; equal for functions with the same functionals."""
        parts = [(x, tuple(operator.parts)) for x, operator in self.observed]
        observed = tuple((x.tobytes(), terms) for x, terms in parts)
        return observed, self.points.tobytes(), self.rows.coordinates.tobytes()

    @property
    def observations(self):
        """The observed (points, operator, values), one triple for each operator."""
        parts = zip(self.observed, self._split(self.values), strict=True)
        return [(*pair, y) for pair, y in parts]

    def _split(self, values):
        """Parts of an array (N,), one for each observed operator."""
        ends = np.cumsum([len(points) for points, _ in self.observed])
        return np.split(values, ends[:-1])

    def select(self, observed_rows, rows):
        """The conditions at some rows of the points of each observed operator.

        `rows` are those of the collocation points.
        """
        places = self._split(np.arange(len(self.values)))
        chosen = [own[i] for own, i in zip(places, observed_rows, strict=True)]
        chosen, kept = np.concatenate(chosen), self.rows.at(rows, len(self.points))
        pairs = zip(self.observed, observed_rows, strict=True)
        return replace(
            self,
            observed=[(x[i], operator) for (x, operator), i in pairs if i.size],
            values=self.values[chosen],
            weights=self.weights[chosen],
            points=self.points[rows],
            forcing=self.forcing[kept],
            rows=self.rows.select(kept, rows, len(self.points)),
        )

    def precisions(self, observation_noise, equation_noise):
        """Inverse variances of the N + R residuals.

        `observation_noise` has a standard deviation for all observed values, or one for
        each of the observed operators; `equation_noise` (E,) one for each equation.
        """
        sizes = [len(points) for points, _ in self.observed]
        stds = np.broadcast_to(observation_noise, len(sizes))
        observed = self.weights * np.repeat(stds, sizes) ** -2.0
        imposed = np.broadcast_to(equation_noise, self.rows.n_equations)
        return np.concatenate([observed, imposed[self.rows.equation] ** -2.0])

    def features(self, z):
        """Features Phi(v, Y) of shape (R, c + Q') from the values z.

        The c coordinates of :class:`Imposed` come first.
        """
        imposed = z[len(self.values) :].reshape(len(self.operators), len(self.points))
        return np.column_stack([self.rows.coordinates, self.rows.gather(imposed).T])


class Tangent(NamedTuple):
    """The linearised functionals T = (observed ones, sum_q slopes_q L_q in each row).

    `slopes` (Q', R) are the derivatives of the left-hand sides in the Q' operators, and
    `rows` says at which of the points.
    """

    slopes: np.ndarray
    rows: Imposed

    @property
    def n_values(self):
        """Number Q' K of the operators' values at the points."""
        return len(self.slopes) * self.rows.n_points

    def apply(self, z):
        """T v, of shape (N + R, ...).

        `z` has the values of one state, (N + Q' K,), or of several in its columns.
        """
        n, n_operators = len(z) - self.n_values, len(self.slopes)
        imposed = z[n:].reshape(n_operators, self.rows.n_points, *z.shape[1:])
        imposed = self.rows.gather(imposed)
        return np.concatenate(
            [z[:n], np.einsum("qk,qk...->k...", self.slopes, imposed)]
        )

    def expand(self, x):
        """Coefficients (N + Q' K, ...) of T^* x on the representers, x (N + R, ...)."""
        n = len(x) - self.slopes.shape[1]
        imposed = np.einsum("qk,k...->qk...", self.slopes, x[n:])
        imposed = self.rows.scatter(imposed)
        return np.concatenate([x[:n], imposed.reshape(self.n_values, *x.shape[1:])])


def distinct_functionals(conditions):
    """The different observed functionals, and where those of each function are.

    A list of (points, operator), and for each function positions (N,) in all of them.
    """
    of_operator = {}
    for m, given in enumerate(conditions):
        for points, operator in given.observed:
            own = of_operator.setdefault(tuple(operator.parts), (operator, []))
            own[1].append((m, points))
    functionals, start, rows_of = [], 0, [[] for _ in conditions]
    for operator, own in of_operator.values():
        stacked = np.concatenate([x for _, x in own])
        points, inverse = np.unique(stacked, axis=0, return_inverse=True)
        ends = np.cumsum([len(x) for _, x in own])[:-1]
        for (m, _), rows in zip(own, np.split(inverse.ravel(), ends), strict=True):
            rows_of[m].append((tuple(operator.parts), start + rows))
        functionals.append((points, operator))
        start += len(points)
    # In the order in which each function has its operators.
    sequences = []
    for given, found in zip(conditions, rows_of, strict=True):
        rows, order = dict(found), [tuple(L.parts) for _, L in given.observed]
        sequences.append(np.concatenate([rows[key] for key in order]))
    return functionals, sequences


def first_equal(items, equal):
    """For each item the position of the first one that is equal to it."""
    return [
        next(i for i, other in enumerate(items) if equal(item, other)) for item in items
    ]


def same_points(points, others):
    """Whether two arrays hold the same points in the same order."""
    return points is others or np.array_equal(points, others)


def ranges_of_equal_sums(costs, n_ranges):
    """Ranges of positions whose costs have about equal sums, none of them empty."""
    n, total = len(costs), np.sum(costs)
    wanted = total * np.arange(1, n_ranges) / n_ranges
    ends = np.searchsorted(np.cumsum(costs) - costs / 2, wanted)
    order = np.arange(1, n_ranges)
    ends = np.maximum.accumulate(np.maximum(ends, order) - order) + order
    ends = np.minimum(ends, n - n_ranges + order)
    return [range(*pair) for pair in itertools.pairwise([0, *ends.tolist(), n])]


@dataclass(frozen=True)
class Iterate:
    """States and equation.

    The `coefficients` of each state, in whatever basis its block represents it, the
    `values` (N_m + Q' K_m,) of its functionals, and the `weights` (p,) of P.
    """

    coefficients: list
    values: list
    weights: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """An iterate with features (R_m, c + Q') and residuals of each function."""

    iterate: Iterate
    features: list
    residuals: list
    loss: float


@dataclass(eq=False)
class JointProblem:
    """The joint problem of M functions and one equation.

    The functions are DualBlocks or PrimalBlocks. `basis` has the features psi of P,
    which depends on the first `n_unknown` columns of the features of states, and
    `known_part` is Pbar. `precisions` has the inverse variances (N_m + K_m,) of the
    residuals of each function; `penalty` is lambda. `linear_model` makes the linearised
    problem from the problem and an evaluation; `map_blocks` applies a function to each
    block, or part of them, possibly in `n_threads`. All variances, of noise and priors,
    are to be multiplied by `dispersion`: it does not change the solution, but how
    certain it is. The `client` is that of a cluster on which the problem is minimised;
    None: here. The equation is evaluated at about `most_rows` points at once.
    """

    blocks: list
    basis: object
    known_part: object
    n_unknown: int
    precisions: list
    penalty: float
    linear_model: type
    map_blocks: object = map
    n_threads: int = 1
    dispersion: float = 1.0
    client: object = None
    most_rows: int = 4096
    is_exact = False
    process = None

    def iterate(self, coefficients, weights):
        """An iterate from coefficients of the states and weights of P."""
        pairs = zip(self.blocks, coefficients, strict=True)
        return Iterate(list(coefficients), [b.evaluate(c) for b, c in pairs], weights)

    def zero(self, weights):
        """The iterate whose states are zero."""
        return self.iterate([np.zeros(b.n_unknowns) for b in self.blocks], weights)

    @property
    def equation_noise(self):
        """Standard deviations (E,) of the residuals of the equations."""
        block = self.blocks[0]
        first = len(block.values) + block.rows.starts[:-1]
        return self.precisions[0][first] ** -0.5

    def with_equation_noise(self, levels):
        """The problem with other noise levels (E,) of the equations."""
        precisions = []
        for block, before in zip(self.blocks, self.precisions, strict=True):
            imposed = np.asarray(levels)[block.rows.equation] ** -2.0
            precisions.append(np.concatenate([before[: len(block.values)], imposed]))
        return replace(self, precisions=precisions)

    def with_basis(self, basis):
        """The problem with other features of the equation's RKHS."""
        return replace(self, basis=basis)

    def with_dispersion(self, dispersion):
        """The problem with another factor of all variances."""
        return replace(self, dispersion=dispersion)

    def misfit(self, iterate):
        """Mean square of the residuals in units of the noise levels."""
        residuals = np.concatenate(self.evaluate(iterate).residuals)
        squares = np.concatenate(self.precisions) * residuals**2
        return float(np.mean(squares)) / self.dispersion

    @property
    def is_small(self):
        """Whether the equation can be evaluated for all functions at once."""
        return sum(len(block.forcing) for block in self.blocks) <= self.most_rows

    @cached_property
    def parts(self):
        """Functions that are worked on together: ranges of positions.

        If these are more than one, one at least for each thread.
        """
        sizes = np.array([len(block.forcing) for block in self.blocks], dtype=float)
        n_parts = math.ceil(np.sum(sizes) / self.most_rows)
        n_parts = 1 if self.is_small else max(self.n_threads, n_parts)
        return ranges_of_equal_sums(sizes, min(n_parts, len(sizes)))

    def map_parts(self, function):
        """What a function of several positions returns for each of them, a list."""
        found = self.map_blocks(function, self.parts)
        return [each for part in found for each in part]

    def split(self, members, values, axis=0):
        """Parts of an array of the rows of some functions, one for each of these."""
        if len(members) == 1:
            return [values]
        sizes = [len(self.blocks[m].forcing) for m in members]
        return np.split(values, np.cumsum(sizes)[:-1], axis=axis)

    def evaluate(self, iterate):
        """Residuals and loss of an iterate."""

        def residuals_of(members):
            S = np.concatenate(
                [self.blocks[m].features(iterate.values[m]) for m in members]
            )
            values = self.basis.values(S[:, : self.n_unknown], iterate.weights)
            values += self.known_part(S)
            pairs = self.split(members, S), self.split(members, values)
            return [
                (own, self._residuals(m, iterate.values[m], left))
                for m, own, left in zip(members, *pairs, strict=True)
            ]

        features, residuals = map(list, zip(*self.map_parts(residuals_of), strict=True))
        loss = float(self.loss(iterate, residuals))
        return Evaluation(iterate, features, residuals, loss)

    def _residuals(self, m, z, left_sides):
        """Residuals (N + R,) of a function, from values of its functionals."""
        block = self.blocks[m]
        observed = z[: len(block.values)] - block.values
        return np.concatenate([observed, left_sides - block.forcing])

    def loss(self, iterate, residuals):
        """The objective J of an iterate that has these residuals."""
        loss = 0.5 * iterate.weights @ iterate.weights
        parts = iterate.coefficients, iterate.values, residuals, self.precisions
        for block, c, z, r, precision in zip(self.blocks, *parts, strict=True):
            loss += 0.5 * self.penalty * block.squared_norm(c, z)
            loss += 0.5 * np.sum(precision * r**2)
        return loss

    def linearise(self, evaluation):
        """Linear model at an evaluation."""
        return self.linear_model(self, evaluation)

    def psi(self, S):
        """The features (R, p) of P at features S (R, c + Q') of a state."""
        return self.basis(S[:, : self.n_unknown])

    def slopes(self, S, weights):
        """d(P + Pbar) / d(L_q u) at features S, of shape (Q', R)."""
        gradient = self.known_part.gradient(S)
        unknown = S[:, : self.n_unknown]
        n_coordinates = self.blocks[0].rows.coordinates.shape[1]
        gradient[: self.n_unknown] += self.basis.gradient(
            unknown, weights, n_coordinates
        )
        return gradient[n_coordinates:]

"""A first guess of a state that was never observed, from what equations leave open.

Where the observed states do not determine one of their own derivatives, the hidden
state does. With m a product of observed operators and phi all of their products up to
the second degree, an equation is taken to be

    -Pbar = phi . a + m z + error,

linear in the coefficients a and in the hidden state z, a Gaussian process: the product
m and the length scale of z are those of the highest likelihood. The unit of z, and what
is added to it, are free; its guess has mean zero and size one. From there the joint
problem finds all equations.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from scipy import linalg

from keql._numerics.linalg import (
    cholesky,
    extent_of,
    rms,
    size_or_one,
    solve_cholesky,
    solve_lower,
)
from keql.kernels import RBF
from keql.operators import gram, identity_of


@dataclass(frozen=True)
class HiddenStateSettings:
    """How a hidden state is guessed.

    lengths : tuple of float. Length scales, in units of the extent of the points.
    ratios : tuple of float. Noise levels of the equation, in units of the size of what
        the hidden state explains.
    n_points : int. Collocation points at most.
    """

    lengths: tuple = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
    ratios: tuple = (0.03, 0.1, 0.3)
    n_points: int = 400


class HiddenGuess(NamedTuple):
    """The guess: log likelihood, values (K,) at points (K, d), length scales (d,)."""

    likelihood: float
    values: np.ndarray
    points: np.ndarray
    lengths: np.ndarray

    def evaluate(self, points, operator, ratio=1e-3):
        """Values (n,) of an operator applied to the guess, smoothed to a `ratio`."""
        kernel, identity = RBF(self.lengths), identity_of(operator.state, len(points.T))
        K = kernel(self.points)
        K[np.diag_indices_from(K)] += ratio**2
        c = solve_cholesky(cholesky(K), self.values)
        return gram(kernel, [(points, operator)], [(self.points, identity)]) @ c


def guess_hidden_state(learned, name, settings=None):
    """The best HiddenGuess of a state of a LearnedModel; None if there is none.

    Of the equations that may depend on the state, and whose known part does not, the
    one is taken that the observed states explain least, and each product of at most one
    observed operator is tried in it.
    """
    settings = settings or HiddenStateSettings()
    largest, problems = 0.0, None
    setup, d = learned.setup, len(learned.variables)
    offset = d + len(setup.inputs.names)
    for terms, equation in zip(setup.equations, learned.equations, strict=True):
        known = [operator.state for operator in terms.known_part.operators]
        depends = terms.depends_on or ()
        states = {setup.operators[q].state for q in depends}
        if name not in states or name in known:
            continue
        S = equation.training_features
        S = S[:: -(-len(S) // settings.n_points)]
        observed = [q for q in depends if setup.operators[q].state != name]
        columns = S[:, [offset + q for q in observed]]
        columns = columns / np.array([size_or_one(column) for column in columns.T])
        target = -terms.known_part(S)
        target = target / size_or_one(target)
        Q, _ = linalg.qr(_products(columns), mode="economic")
        residual = target - Q @ (Q.T @ target)
        if rms(residual) > largest:
            largest, problems = rms(residual), (S[:, :d], columns, Q, residual)
    if problems is None:
        return None
    return max(_guesses(*problems, settings), key=lambda guess: guess.likelihood)


def _guesses(points, columns, Q, residual, settings):
    """A HiddenGuess for each product that multiplies the state, and length scale."""
    extent = extent_of(points)
    for length in settings.lengths:
        K = RBF(length * extent)(points)
        for multiplier in [np.ones(len(points)), *columns.T]:
            for ratio in settings.ratios:
                guess = _guess(K, multiplier, Q, residual, ratio)
                yield HiddenGuess(*guess, points, length * extent)


def with_hidden_state(learned, problem, start):
    """Values of the states and operators at a start, the hidden state being guessed.

    One array (N_m + Q' K_m,) for each function, or None if no state is hidden, or
    several are, or there are several functions.
    """
    observations = learned.observations
    hidden = observations.hidden_states
    if len(hidden) != 1 or len(problem.blocks) > 1:
        return None
    guess = guess_hidden_state(learned, hidden[0])
    if guess is None:
        return None
    (block,), values = problem.blocks, start.values[0].copy()
    first, n_points = len(block.values), len(block.points)
    for q, operator in enumerate(block.operators):
        if operator.state == hidden[0]:
            rows = slice(first + q * n_points, first + (q + 1) * n_points)
            values[rows] = guess.evaluate(block.points, operator)
    return [values]


def _guess(K, multiplier, Q, residual, ratio):
    """Log likelihood of a residual, and the state of size one that explains it.

    The covariance m K m + ratio^2 I has a scale of maximum likelihood, and the columns
    of Q are explained by coefficients without a prior.
    """
    n, q = Q.shape
    covariance = multiplier[:, None] * K * multiplier
    covariance[np.diag_indices(n)] += ratio**2
    L = cholesky(covariance)
    whitened = solve_lower(L, np.column_stack([Q, residual]))
    R, QtB = whitened[:, :q], whitened[:, q]
    orthogonal, triangle = linalg.qr(R, mode="economic")
    rest = QtB - orthogonal @ (orthogonal.T @ QtB)
    scale = float(rest @ rest) / (n - q)
    volume = np.log(np.diag(L)).sum() + np.log(np.abs(np.diag(triangle))).sum()
    likelihood = -0.5 * (n - q) * np.log(scale) - volume
    alpha = solve_lower(L, rest, transposed=True)
    values = K @ (multiplier * alpha)
    values = values - values.mean()
    return float(likelihood), values / size_or_one(values)


def _products(columns):
    """All products of columns up to the second degree, with a constant."""
    n = columns.shape[1]
    pairs = combinations_with_replacement(range(n), 2)
    squares = [columns[:, i] * columns[:, j] for i, j in pairs]
    return np.column_stack([np.ones(len(columns)), columns, *squares])

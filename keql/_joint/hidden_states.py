"""First guesses of a state that was never observed, from what equations leave open.

Where the observed states do not determine one of their own derivatives, the hidden
state does. With a product m and some products phi of observed operators, an equation is
taken to be

    -Pbar = phi . a + m z + error,

linear in the coefficients a and in the hidden state z, a Gaussian process. The errors
are those of the fitted states, which are smooth as well: their posterior tells how they
are correlated. The length scale of z and the size of the errors are those of the
highest evidence, and so are the products phi; with others z is another one, in which
equations may have fewer terms, so that there is a guess for each product m and each
degree of the phi. The unit of z, and what is added to it, are free; its guesses have
mean zero and size one. From there all equations are found.

Where one state was observed, sums of products of it that are added to z leave its
equation what it is, so that -Pbar / m is such a state as well. This is a guess for each
product m that is zero nowhere.
"""

from dataclasses import dataclass, replace
from itertools import chain, combinations_with_replacement
from math import comb
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
from keql._numerics.subsets import SubsetEvidence, TermOdds
from keql._observations.data import FunctionData
from keql._regression.two_step import refit_two_steps
from keql.kernels import RBF, Constant, SystemKernel
from keql.operators import gram, identity_of


@dataclass(frozen=True)
class HiddenStateSettings:
    """How a hidden state is guessed.

    lengths : tuple of float. Length scales, in units of the extent of the points.
    length : float. That of quotients by a product.
    ratios : tuple of float. Errors of the equation, in units of the size of what the
        hidden state explains.
    white : float. The part of the variance of these errors that is independent from
        point to point; 1: all.
    has_few_terms : bool. Whether products are chosen: with those that the equation does
        not have, other equations have more terms. Else all are in it.
    degree : int. Of the products of observed operators, where the equation is no
        polynomial; else it is that of the equation, and at most `highest`.
    n_products : int. The degree is lowered while there would be more products.
    n_points : int. Collocation points at most.
    smallest : float. A product may divide what is to be explained if it is nowhere
        smaller than this part of its largest value.
    noise : float. Of the values of a guess, in units of their size.
    n_guesses, n_further : int. How many are made of the equation that observed states
        explain least, and then of each other one, at most.
    """

    lengths: tuple = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
    length: float = 0.1
    ratios: tuple = (0.03, 0.1, 0.3)
    white: float = 1e-3
    has_few_terms: bool = True
    degree: int = 2
    highest: int = 3
    n_products: int = 70
    n_points: int = 200
    smallest: float = 0.02
    noise: float = 0.05
    n_guesses: int = 5
    n_further: int = 2

    @classmethod
    def of_all_terms(cls):
        """Those of a start of the joint problem, in whose equations all terms are.

        With correlated errors, or few products, joint fits of exact values of
        Roessler's flow ended with 40 or 18 terms instead of seven.
        """
        number = {"n_products": 200, "n_points": 400, "n_guesses": 1, "n_further": 0}
        return cls(white=1.0, has_few_terms=False, highest=2, **number)


class HiddenGuess(NamedTuple):
    """A guess: log evidence, values (K,) at points (K, d), length scales (d,)."""

    evidence: float
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


def guess_hidden_state(learned, name, settings):
    """Guesses of a state of a LearnedModel of one function.

    Of the equations that may depend on the state, and whose known part does not, those
    come first that the observed states explain least, and in each every product of
    observed operators may multiply the state. The most probable guesses of an equation
    come first.

    learned : LearnedModel. In two steps.
    name : str. The state.
    settings : HiddenStateSettings. How it is guessed.

    Returns guesses : list of HiddenGuess. Empty if no equation tells of the state.
    """
    guesses, most = [], settings.n_guesses
    for own in sorted(_unexplained(learned, name, settings), key=lambda own: -own.size):
        found = own.guesses(settings) if most and own.size else ()
        guesses += sorted(found, key=lambda guess: -guess.evidence)[:most]
        most = settings.n_further
    return guesses


def _unexplained(learned, name, settings):
    """What may depend on a state in each equation whose known part does not."""
    setup = learned.setup
    for e, terms in enumerate(setup.equations):
        known = [operator.state for operator in terms.known_part.operators]
        states = {setup.operators[q].state for q in terms.depends_on or ()}
        if name in states and name not in known:
            yield _Unexplained(learned, e, name, settings)


class _Unexplained:
    """What observed operators leave open in an equation of a LearnedModel.

    points, target : ndarray of shape (n, d), (n,). Collocation points, and what is to
        be explained there, of size one.
    products, degrees : ndarray of shape (n, p), (p,). Products of observed operators.
    highest : int. The degree of the equation, up to which there may be products.
    errors : ndarray of shape (n, n). Correlations of the errors of the target.
    size : float. Of what no sum of products explains.
    """

    def __init__(self, learned, e, name, settings):
        setup, equation = learned.setup, learned.equations[e]
        terms, operators = setup.equations[e], setup.operators
        S = equation.training_features
        S = S[:: -(-len(S) // settings.n_points)]
        self.points = S[:, : len(learned.variables)]
        first = S.shape[1] - len(operators)
        seen = [q for q in terms.depends_on if operators[q].state != name]
        columns = S[:, [first + q for q in seen]]
        columns = columns / np.array([size_or_one(column) for column in columns.T])
        self.highest = _degree_of(equation, settings, len(seen))
        self.products, self.degrees = _products(columns, self.highest)
        target = -terms.known_part(S)
        self.target = target / size_or_one(target)
        Q, _ = linalg.qr(self.products, mode="economic")
        self.size = rms(self.target - Q @ (Q.T @ self.target))
        self.errors = np.eye(len(S))
        if settings.white < 1.0:
            slopes = terms.known_part.gradient(S)[first:]
            C = learned.states[0].covariance(self.points, operators, slopes)
            part = (1.0 - settings.white) / size_or_one(np.sqrt(np.diag(C))) ** 2
            self.errors = part * C + settings.white * self.errors

    def quotients(self, settings):
        """A HiddenGuess for each product that explains all if it multiplies the state.

        Its evidence is not known.
        """
        length = settings.length * extent_of(self.points)
        for multiplier in self.products[:, self.degrees < self.highest].T:
            least = settings.smallest * np.max(np.abs(multiplier))
            if np.min(np.abs(multiplier)) > least:
                values = self.target / multiplier
                yield HiddenGuess(np.nan, _of_size_one(values), self.points, length)

    def guesses(self, settings):
        """A HiddenGuess for each product that may multiply the state, and degree.

        With all terms in the equation those of the highest degree, with all products.
        """
        lengths = [own * extent_of(self.points) for own in settings.lengths]
        kernels = [(own, RBF(own)(self.points)) for own in lengths]
        lowest, explained = self.highest, self._beside
        if settings.has_few_terms:
            lowest, explained = 0, self._explained
        for multiplier in self.products[:, self.degrees < self.highest].T:
            factors = [
                (own, K, self._factor(multiplier[:, None] * K * multiplier, ratio))
                for own, K in kernels
                for ratio in settings.ratios
            ]
            found = {}
            for degree in range(lowest, self.highest + 1):
                offered = np.flatnonzero(self.degrees <= degree)
                fits = [explained(L, offered) for *_, L in factors]
                best = int(np.argmax([evidence for evidence, *_ in fits]))
                (evidence, kept, rest), (own, K, L) = fits[best], factors[best]
                alpha = solve_lower(L, rest, transposed=True)
                values = K @ (multiplier * alpha)
                guess = evidence, _of_size_one(values), self.points, own
                found.setdefault(tuple(kept), HiddenGuess(*guess))
            yield from found.values()

    def _factor(self, covariance, ratio):
        """The Cholesky factor of what the state explains, and of errors."""
        return cholesky(covariance + ratio**2 * self.errors)

    def _explained(self, L, offered):
        """The log evidence of the best products on offer, these, and the rest.

        The covariance L L^T has a scale of maximum likelihood. A coefficient has the
        prior for which its product is about as large as what the state explains.
        """
        products, degrees = self.products[:, offered], self.degrees[offered]
        effects, target = solve_lower(L, products), solve_lower(L, self.target)
        sizes = np.array([size_or_one(product) for product in products.T])
        given = np.diag(sizes**2), TermOdds(np.where(degrees, degrees, -1))
        score = SubsetEvidence(effects, target, *given, (0.0, np.inf))
        kept = _best_set(score, len(offered))
        rest = target - effects[:, kept] @ score.values(kept)
        evidence = score(kept) - np.sum(np.log(np.diag(L)))
        return float(evidence), kept, rest

    def _beside(self, L, kept):
        """The log likelihood beside all products kept, these, and the rest.

        That of what does not depend on the coefficients, which have no prior. Products
        may depend on each other: they are those of an orthonormal basis.
        """
        basis, _ = linalg.qr(self.products[:, kept], mode="economic")
        Q, R = linalg.qr(solve_lower(L, basis), mode="economic")
        target, n_left = solve_lower(L, self.target), len(self.target) - len(kept)
        rest = target - Q @ (Q.T @ target)
        scale = float(rest @ rest) / n_left
        volume = np.sum(np.log(np.diag(L))) + np.sum(np.log(np.abs(np.diag(R))))
        return float(-0.5 * n_left * np.log(scale) - volume), kept, rest


def _of_size_one(values):
    """Values of mean zero and size one."""
    values = values - values.mean()
    return values / size_or_one(values)


def _degree_of(equation, settings, n):
    """The degree of products of n operators in an equation."""
    n_columns, degree = equation.n_unknown_features, settings.degree
    kernel = getattr(equation.basis, "kernel", None)
    polynomials = kernel and kernel.feature_polynomials(n_columns)
    if polynomials is not None:
        degree = min(int(np.max(np.sum(polynomials[0], axis=1))), settings.highest)
    while degree > 1 and comb(n + degree, degree) > settings.n_products:
        degree -= 1
    return degree


def _products(columns, highest):
    """All products of columns (n, q) up to a degree, with a constant; and degrees."""
    factors, each = [], range(columns.shape[1])
    for degree in range(highest + 1):
        factors += combinations_with_replacement(each, degree)
    products = [np.prod(columns[:, list(own)], axis=1) for own in factors]
    return np.column_stack(products), np.array([*map(len, factors)])


def _best_set(score, n):
    """Columns of n whose evidence is highest, added or taken out one by one.

    The first one stays.
    """
    kept = [0]
    while True:
        left = np.setdiff1d(np.arange(n), kept)
        offers = [[j for j in kept if j != i] for i in kept[1:]]
        if len(left):
            added = left[np.argmax(score.more(kept, left))]
            offers.append(sorted([*kept, int(added)]))
        best = max(offers, key=score, default=kept)
        if not score(best) > score(kept):
            return kept
        kept = best


def with_hidden_state(learned, problem, start):
    """Values of the states and operators at a start, the hidden state being guessed.

    One array (N_m + Q' K_m,) for each function, or None if no state is hidden, or
    several are, or there are several functions.
    """
    settings = HiddenStateSettings.of_all_terms()
    guesses, hidden = _guesses_of(learned, settings), learned.observations.hidden_states
    if not guesses:
        return None
    (block,), values = problem.blocks, start.values[0].copy()
    first, n_points = len(block.values), len(block.points)
    for q, operator in enumerate(block.operators):
        if operator.state == hidden[0]:
            rows = slice(first + q * n_points, first + (q + 1) * n_points)
            values[rows] = guesses[0].evaluate(block.points, operator)
    return [values]


def _guesses_of(learned, settings):
    """Guesses of the hidden state of a LearnedModel, see :func:`guess_hidden_state`.

    There are none if no state is hidden, or several are, or there are several
    functions.
    """
    hidden, states = learned.observations.hidden_states, learned.states
    if len(hidden) != 1 or len(states) > 1:
        return []
    return guess_hidden_state(learned, hidden[0], settings)


def states_of_guesses(two_step, hypothesis, how):
    """The two-step solution with each guess of the hidden state, one after the other.

    Where no value of it was observed, as that would have its unit. Where a single other
    state was, quotients come first. See :func:`with_guess`.
    """
    observations, settings = two_step.observations, HiddenStateSettings()
    hidden = observations.hidden_states
    if len(hidden) != 1 or observations.of_state(hidden[0]):
        return
    guesses = _guesses_of(two_step, settings)
    if guesses and len(observations.states) == 2:
        own = _unexplained(two_step, hidden[0], settings)
        guesses = chain(*(each.quotients(settings) for each in own), guesses)
    for guess in guesses:
        yield with_guess(two_step, guess, hypothesis, how, settings)


def with_guess(two_step, guess, hypothesis, how, settings):
    """The two-step solution as if values of the hidden state had been observed.

    two_step : LearnedModel. That of the Hypothesis, in which one state is hidden.
    guess : HiddenGuess. Of that state.
    how : FitSettings. How hypotheses are fitted.
    settings : HiddenStateSettings. How it was guessed.

    Returns learned : LearnedModel. Its observations are those of `two_step`.
    """
    observations = two_step.observations
    [name], [data] = observations.hidden_states, observations.functions
    n, operators = len(guess.points), data.operators
    identity = identity_of(name, len(two_step.variables))
    seen = FunctionData(
        np.vstack([data.points, guess.points]),
        np.concatenate([data.values, guess.values]),
        np.concatenate([data.weights, np.ones(n)]),
        np.concatenate([data.index, np.full(n, len(operators))]),
        [*operators, identity],
    )
    own = Constant(1.0, "fixed") * RBF(guess.lengths, "fixed")
    kernel = SystemKernel({**two_step.state_kernel.kernels, name: own})
    noise = np.append(two_step.observation_noise, settings.noise)
    as_seen = replace(
        two_step,
        observations=replace(observations, functions=[seen]),
        observation_noise=noise,
    )
    learned = refit_two_steps(as_seen, hypothesis, how, kernel)
    return replace(
        learned,
        observations=observations,
        observation_noise=two_step.observation_noise,
    )

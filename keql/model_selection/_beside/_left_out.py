"""Terms that were not on offer, beside those of trajectories that were found.

What an equation may depend on is what the user says, and driving noise takes what that
leaves: forgotten friction passes as noise. So products of what the state of a system
consists of, all states and their derivatives below the highest, are forces that may act
beside the equation: the problem is linearised where the trajectories are, and each
force has a weight there, as terms have. Its evidence, with noise levels of maximum
likelihood of its own, says whether the data are more probable with it.
"""

import itertools
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from keql._numerics.linalg import size_or_one
from keql.equation import text_product
from keql.model_selection._terms._trajectories import units_of_noise


class LeftOut(NamedTuple):
    """A product of states and derivatives that may be added to an equation.

    The name of the `equation`, that of the `term`, its `coefficient` on the right-hand
    side where the term would stand, and the log odds of the equation with it.
    """

    equation: str
    term: str
    coefficient: float
    log_odds: float


class _Force(NamedTuple):
    """A term, the name of its equation, its values, and the factor they have."""

    equation: str
    term: str
    values: np.ndarray
    size: float


def terms_left_out(fit, given, criteria):
    """The term of each equation that would make the data most probable, if any does.

    fit : Fit. Trajectories.
    given : Hypothesis. What the user says. Of an equation whose kernel and number of
        terms are open products of its operators were compared before: what remains are
        the states and derivatives which it was not to depend on.
    criteria : Criteria. Which products there are.

    Returns found : list of LeftOut. With each of them the data are more probable, terms
        sharing the prior probability of one more. Sets of terms that were compared with
        that of the fit are rivals of it, and no others.
    """
    if not fit.is_exact or len(fit.two_step.variables) > 1:
        return []
    problem, iterate = _with_open_levels(fit), fit.result.solution
    forces = _forces(problem, iterate, given, criteria)
    responses = problem.responses(iterate) if forces else None
    if responses is None:
        return []
    forced = _Forced(problem, iterate, responses, forces)
    (without, _), found = forced.evidence(), {}
    compared = fit.log_evidences
    for i, force in enumerate(forces):
        if _with_term(fit, force) in compared:
            continue
        log_evidence, [coefficient] = forced.evidence(i)
        log_odds = log_evidence - without - np.log(len(forces))
        name = force.equation
        if log_odds > (found[name].log_odds if name in found else 0.0):
            found[name] = LeftOut(name, force.term, coefficient, log_odds)
    return [*found.values()]


def _with_term(fit, force):
    """The set of the names of the terms of a fit and that of a force."""
    is_system = fit.two_step.setup.is_system
    name = f"{force.equation}: {force.term}" if is_system else force.term
    return frozenset([*fit.term_names, name])


def _with_open_levels(fit):
    """The problem of trajectories, its driving noise of any level if that was found."""
    problem = fit.problem
    if not (fit.is_driven and fit.finds_noise):
        return problem
    ones = np.ones(len(fit.result.solution.equations))
    first = problem.limits.first_drive
    return replace(problem, prior=replace(problem.prior, drive=ones, first_drive=first))


def _forces(problem, iterate, given, criteria):
    """Products that equations with unknown parts do not have, a list of _Force.

    Products of up to `degree_left_out` factors where an equation's kernel or number of
    terms is given, and else what it was not to depend on.
    """
    learned, forces = problem.learned, []
    setup, names = learned.setup, problem.flow(0).layout.names
    nodes, units = np.concatenate(iterate.nodes), units_of_noise(learned)
    for e, terms in enumerate(setup.equations):
        if terms.depends_on is None:
            continue
        own = given.of_equation(terms.name)
        is_open = own.equation_kernel is None and own.n_terms in ("auto", None)
        offered = {setup.operators[q].name for q in terms.depends_on}
        degree = 1 if is_open else criteria.degree_left_out
        features = _features(problem, iterate, e)
        for factors, values in _products(names, nodes, degree):
            is_new = not (is_open and set(factors) <= offered)
            if is_new and not _explains(features, values, criteria.explained):
                size = units[e] / size_or_one(values)
                term = text_product(Counter(factors).items())
                forces.append(_Force(terms.name, term, size * values, size))
    return forces


def _explains(features, values, explained):
    """Whether features (n, p) have a combination that is nearly values (n,).

    A force that is so near to terms that are there would share their weights.
    """
    rest = values
    if features.shape[1]:
        rest = values - features @ np.linalg.lstsq(features, values, rcond=None)[0]
    return np.linalg.norm(rest) < explained * np.linalg.norm(values)


def _features(problem, iterate, e):
    """Values (n, p) of the terms of equation `e` at the nodes of all functions."""
    equation, parts = iterate.equations[e], []
    for m, (t, nodes) in enumerate(zip(problem.times, iterate.nodes, strict=True)):
        flow = problem.flow(m, iterate.equations)
        S = flow.layout.features(t, nodes.T, 0.0)
        parts.append(equation.basis(S[:, : flow.n_unknown]))
    return np.concatenate(parts)


def _products(names, values, degree):
    """Products of up to `degree` columns of values (n, D): names of factors, (n,)."""
    for k in range(1, degree + 1):
        for own in itertools.combinations_with_replacement(range(len(names)), k):
            yield [names[i] for i in own], np.prod(values[:, own], axis=1)


class _Forced:
    """A problem linearised at trajectories, with forces that have weights.

    problem : TrajectoryProblem. With noise in the equations or without.
    iterate : TrajectoryIterate. The trajectories.
    responses : list. What :meth:`TrajectoryProblem.responses` says.
    forces : list of _Force. Their values are those at the nodes of all functions.
    """

    def __init__(self, problem, iterate, responses, forces):
        self.problem, self.iterate, self.forces = problem, iterate, forces
        self.weights = np.concatenate([e.weights for e in iterate.equations])
        names = [terms.name for terms in problem.learned.setup.equations]
        sizes = [len(nodes) for nodes in iterate.nodes]
        values = np.zeros((sum(sizes), len(names), len(forces)))
        for i, force in enumerate(forces):
            values[:, names.index(force.equation), i] = force.values
        of_functions = np.split(values, np.cumsum(sizes)[:-1])
        self.responses = [
            self._with_forces(m, *pair)
            for m, pair in enumerate(zip(responses, of_functions, strict=True))
        ]

    def evidence(self, *chosen):
        """Log evidence with the chosen forces, and their coefficients."""
        center = np.concatenate([self.weights, np.zeros(len(chosen))])
        responses = [self._with_chosen(each, chosen) for each in self.responses]
        found = self.problem.regression(self.iterate, responses, center)
        found = found.with_best_prior()
        weights = found.weights[len(self.weights) :]
        sizes = [self.forces[i].size for i in chosen]
        return found.log_evidence(), weights * sizes

    def _with_chosen(self, response, chosen):
        """What a function responds to weights and to chosen forces, and no others."""
        first = 1 + len(self.weights)
        others = [first + i for i in range(len(self.forces)) if i not in chosen]
        if self.problem.process is None:
            return np.delete(response, others, axis=2)
        return replace(response, added=np.delete(response.added, others, axis=2))

    def _with_forces(self, m, response, values):
        """What a function responds to weights and to forces of values (K, E, q)."""
        steps, nodes = self._effects(m, values), self.iterate.nodes[m]
        if self.problem.process is not None:
            return replace(response, added=np.dstack([response.added, steps]))
        flow = self.problem.flow(m, self.iterate.equations)
        times = self.problem.times[m]
        _, slopes = flow.step(times[:-1], np.diff(times), nodes[:-1])
        D = nodes.shape[1]
        effects = np.zeros((len(times), D, steps.shape[2]))
        for k, (own, added) in enumerate(zip(slopes, steps, strict=True)):
            effects[k + 1] = own[:, :D] @ effects[k] + added
        return np.dstack([response[:, :, :-D], effects, response[:, :, -D:]])

    def _effects(self, m, values, n_points=3):
        """What forces (K, E, q), linear between nodes, add to the ends of steps.

        By Gauss's quadrature: of shape (K - 1, D, q).
        """
        flow = self.problem.flow(m, self.iterate.equations)
        times = self.problem.times[m]
        nodes, h = self.iterate.nodes[m], np.diff(times)
        middle = (times[:-1] + times[1:]) / 2, (nodes[:-1] + nodes[1:]) / 2
        ones = np.ones(values.shape[1])
        system = flow.driven(*middle, ones, self.problem.prior.spread)
        effects, (places, shares) = 0.0, np.polynomial.legendre.leggauss(n_points)
        for part, share in zip((1 + places) / 2, shares / 2, strict=True):
            left = system.transition((1 - part) * h) @ system.loads
            there = (1 - part) * values[:-1] + part * values[1:]
            effects += share * h[:, None, None] * (left @ there)
        return effects

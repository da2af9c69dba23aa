"""Trying again when the minimum of a joint problem is a poor one."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from keql._joint.starts import ConditionalSamples, SubsampledProblem
from keql._numerics.gauss_newton import Damping, minimise
from keql._numerics.linalg import ridge
from keql.equation import InducingBasis, PolynomialBasis, make_basis
from keql.kernels import Constant, Polynomial

# First damping, relative to the loss at the start (both have no unit).
DAMPING = 1e-4
# A squared residual this many times the noise variance, on average, says that the
# minimum is a poor one or that the model does not hold.
POOR = 4.0
# One this large in the end is worth a warning.
FAILED = 100.0
# Degree of the polynomial that stands in for another equation first.
DEGREE = 3
# Collocation points of each function while starts are compared. Steps get cheaper by
# the square and more; a third of the published thousand points still tell a state that
# meets the equation from one that meets it at these points only.
FEW_POINTS = 350
# Steps from a draw: one near enough to a good minimum is there in half as many.
DRAW_STEPS = 40
# The loss from a draw need not have settled.
DRAW_TOL = 1e-3
# So many tries that end at the same lowest loss, up to this part of it, say that there
# is no lower one: the model does not hold, and more draws would not help.
AGREEING, SAME = 3, 1e-2


def minimise_with_restarts(problem, start, *, n_restarts, max_iter, tol, report, rng):
    """Minimise, and while the residuals are far above the noise start elsewhere.

    An equation that is not polynomial is then first sought as a cubic polynomial: it
    has fewer unknowns, and its features show where inducing points are needed.

    Parameters
    ----------
    problem : JointProblem
        The problem.
    start : Iterate
        The two-step solution.
    n_restarts : int
        Largest number of further tries; each may take about as many steps as the first
        one, but on fewer collocation points and from several draws of the states.
    max_iter, tol
        As for :func:`keql._numerics.gauss_newton.minimise`.
    report : callable
        Called with the problem and the result so far after each accepted step.
    rng : numpy.random.RandomState
        Draws states and inducing points.

    Returns
    -------
    problem : JointProblem
        The problem, or the same with other inducing points.
    result : Result
        That of the try with the lowest loss.
    misfit : float
        Its mean squared residual in units of the noise.
    tries : list of dict
        What was tried, and what it led to.
    """
    settings = {"max_iter": max_iter, "tol": tol, "report": report}
    outcome = _minimise(problem, start, settings)
    if outcome.settled or n_restarts == 0:
        return outcome
    if isinstance(problem.basis, InducingBasis):
        cubic = _as_cubic(problem, start)
        simple = _minimise(*cubic, settings, degree=DEGREE)
        simple = _search(simple, cubic[0], n_restarts, settings, rng)
        outcome = outcome.noting(simple.tries)
        if simple.misfit <= POOR:
            back = _from_cubic(problem, simple, rng)
            outcome = outcome.or_better(_minimise(*back, settings, start="cubic"))
    return _search(outcome, problem, n_restarts, settings, rng)


class Outcome(NamedTuple):
    """The best of several tries on one problem."""

    problem: object
    result: object
    misfit: float
    tries: list

    @property
    def settled(self):
        """Whether there is nothing more to try."""
        return self.misfit <= POOR or self.result.interrupted

    def noting(self, tries):
        """The same after further tries."""
        return self._replace(tries=self.tries + tries)

    def or_better(self, other):
        """That of two with the lower loss, and the tries of both."""
        best = min(self, other, key=lambda outcome: outcome.result.loss)
        return best._replace(tries=self.tries + other.tries)

    def stopped(self, stop):
        """The same as the result of a fit that was stopped while it tried again."""
        return self._replace(result=replace(self.result, stop=stop))


def _minimise(problem, start, settings, /, **how):
    """One minimisation; `how` tells a user what it was."""
    report = partial(settings["report"], problem)
    control = Damping(DAMPING * problem.evaluate(start).loss, settings["tol"])
    max_iter = settings["max_iter"]
    result = minimise(problem, start, control, max_iter=max_iter, report=report)
    misfit = problem.misfit(result.solution)
    figures = {"loss": result.loss, "misfit": misfit, "n_iter": result.n_iter}
    return Outcome(problem, result, misfit, [{**how, **figures}])


def _search(outcome, problem, n_restarts, settings, rng):
    """Try from drawn states until the residuals are near the noise.

    Each try takes the best of a few draws with few collocation points; if that leaves
    small residuals there, the whole problem is solved from it. If none does, it is
    solved from the best one in the end. When tries agree on the lowest loss, it stops.
    """
    if outcome.settled:
        return outcome
    few = SubsampledProblem(problem, FEW_POINTS)
    draw = _Draws(few.problem, settings, rng)
    best, losses = None, []
    for _ in range(n_restarts):
        drawn = draw()
        outcome = outcome.noting(drawn.tries)
        if drawn.result.interrupted:
            return outcome.stopped(drawn.result.stop)
        if drawn.misfit <= POOR:
            outcome = outcome.or_better(_go_on(few, drawn, settings))
            if outcome.settled:
                return outcome
        elif best is None or drawn.result.loss < best.result.loss:
            best = drawn
        losses.append(drawn.result.loss)
        if sum(loss <= (1 + SAME) * min(losses) for loss in losses) >= AGREEING:
            break
    return outcome if best is None else outcome.or_better(_go_on(few, best, settings))


def _go_on(few, drawn, settings):
    """Solve the whole problem from a solution with few collocation points."""
    start = few.widen(drawn.result.solution)
    return _minimise(few.whole, start, settings, start="drawn")


class _Draws:
    """Minimisations from drawn states and the equations that these meet best."""

    def __init__(self, problem, settings, rng):
        self.problem, self.rng = problem, rng
        steps = min(settings["max_iter"], DRAW_STEPS)
        self.n_draws = settings["max_iter"] // steps
        tol = max(settings["tol"], DRAW_TOL)
        self.settings = {**settings, "max_iter": steps, "tol": tol}
        self.states = [
            ConditionalSamples(block, precision, problem.penalty)
            for block, precision in zip(problem.blocks, problem.precisions, strict=True)
        ]

    def __call__(self):
        """The best of a few; one that leaves small residuals is the last."""
        best, count, n_iter = None, 0, 0
        while count < self.n_draws:
            count += 1
            drawn = _minimise(self.problem, self._start(), self.settings)
            n_iter += drawn.result.n_iter
            if best is None or drawn.settled or drawn.result.loss < best.result.loss:
                best = drawn
            if drawn.settled:
                break
        tried = {"draws": count, **best.tries[0], "n_iter": n_iter}
        return best._replace(tries=[tried])

    def _start(self):
        problem = self.problem
        coefficients = [draw(self.rng) for draw in self.states]
        S = np.concatenate(
            [
                block.features(block.evaluate(c))
                for block, c in zip(problem.blocks, coefficients, strict=True)
            ]
        )
        forcing = np.concatenate([block.forcing for block in problem.blocks])
        target = forcing - problem.known_part(S)
        # No equation holds on drawn states: all of the target is as good as noise, and
        # the prior keeps the weights from following it too closely.
        noise = np.sqrt(np.mean(target**2))
        weights = ridge(problem.basis(S[:, : problem.n_unknown]), target, noise)
        return problem.iterate(coefficients, weights)


def _as_cubic(problem, start):
    """The problem with a cubic polynomial for P, and its start."""
    S, values = _unknown_part(problem, start)
    columns = np.flatnonzero(problem.basis.kernel.depends_on(S.shape[1]))
    polynomial = Polynomial(DEGREE, active_dims=tuple(columns)).scaled_to(S)
    variance = max(np.mean(values**2), problem.equation_noise**2)
    basis = PolynomialBasis(Constant(variance, "fixed") * polynomial)
    return _with_basis(problem, start, basis, S, values)


def _from_cubic(problem, cubic, rng):
    """The problem with inducing points, and a start, from a cubic solution."""
    S, values = _unknown_part(cubic.problem, cubic.result.solution)
    kernel, n_inducing = problem.basis.kernel, len(problem.basis.points)
    basis = make_basis(kernel, S, n_inducing, rng)
    return _with_basis(problem, cubic.result.solution, basis, S, values)


def _unknown_part(problem, iterate):
    """Features of the states that P depends on, and the values of P there."""
    features = problem.evaluate(iterate).features
    S = np.concatenate(features)[:, : problem.n_unknown]
    return S, problem.basis.values(S, iterate.weights)


def _with_basis(problem, iterate, basis, S, values):
    problem = problem.with_basis(basis)
    weights = ridge(basis(S), values, problem.equation_noise)
    return problem, problem.iterate(iterate.coefficients, weights)

"""Trying again when the minimum of a joint problem is a poor one."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from keql._basis import InducingBasis, PolynomialBasis, make_basis
from keql._levenberg_marquardt import minimise
from keql._linalg import ridge
from keql.kernels import Constant, Polynomial

# First damping, relative to the loss of the two-step solution (both have no unit).
DAMPING = 1e-4
# A squared residual this many times the noise variance, on average, says that the
# minimum is a poor one or that the model does not hold.
POOR = 4.0
# One this large in the end is worth a warning.
FAILED = 100.0
# Steps of a first stage; it need not converge.
STAGE_STEPS = 60
# By how much a window grows at each end while the equation holds within.
WIDEN = 0.15
# Degree of the polynomial that stands in for another equation first.
DEGREE = 3
# What is tried in turn while the minimum is poor. A first stage with other noise, or
# with the equation imposed in a window only (in fractions of the extent of the first
# coordinate), may find a state near enough to the right one in part of the domain,
# and with it the equation.
ATTEMPTS = (
    {"damping": 1.0},
    {"damping": 1e-4},
    {"window": (0.5, 1.0)},
    {"window": (0.0, 0.5)},
    {"noise": 0.1},
    {"window": (2 / 3, 1.0)},
    {"window": (0.4, 0.6)},
    {"window": (0.8, 1.0)},
    {"window": (0.25, 0.75)},
    {"window": (0.0, 0.2)},
    {"window": (1 / 3, 2 / 3)},
    {"damping": 1e4},
    {"window": (0.2, 0.4)},
    {"window": (0.6, 0.8)},
    {"noise": 10.0},
    {"noise": 100.0},
)


def minimise_with_restarts(problem, start, *, n_restarts, max_iter, tol, report, rng):
    """Minimise, and while the residuals are far above the noise try another way.

    An equation that is not polynomial is first sought as a cubic polynomial: it has
    fewer unknowns, and its features show where inducing points are needed.

    Parameters
    ----------
    problem : DualProblem
        The problem.
    start : Iterate
        The two-step solution.
    n_restarts : int
        Largest number of further tries.
    max_iter, tol
        As for :func:`keql._levenberg_marquardt.minimise`.
    report : callable
        Called with the problem and the result so far after each accepted step.
    rng : numpy.random.RandomState
        Draws inducing points.

    Returns
    -------
    problem : DualProblem
        The problem, or the same with other inducing points.
    result : Result
        That of the try with the lowest loss.
    misfit : float
        Its mean squared residual in units of the noise.
    tries : list of dict
        What was tried, and what it led to.
    """
    settings = {"max_iter": max_iter, "tol": tol, "report": report}
    first = _try_all(problem, start, settings, ATTEMPTS[:1])
    if first.settled or n_restarts == 0:
        return first
    tries = first.tries
    if isinstance(problem.basis, InducingBasis):
        cubic = _as_cubic(problem, start)
        simple = _try_all(*cubic, settings, ATTEMPTS[: n_restarts + 1])
        tries = tries + [{"degree": DEGREE, **each} for each in simple.tries]
        if simple.misfit <= POOR:
            last = _try_all(*_from_cubic(problem, simple, rng), settings, ATTEMPTS[:1])
            tries = tries + [{"start": "cubic", **each} for each in last.tries]
            if last.result.loss < first.result.loss:
                first = last
            if first.misfit <= POOR:
                return first._replace(tries=tries)
    more = _try_all(problem, start, settings, ATTEMPTS[1 : n_restarts + 1])
    best = min(first, more, key=lambda outcome: outcome.result.loss)
    return best._replace(tries=tries + more.tries)


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


def _try_all(problem, start, settings, attempts):
    """Try in turn until the residuals are near the noise; keep the lowest loss."""
    settings = {**settings, "report": partial(settings["report"], problem)}
    best, tries = None, []
    for attempt in attempts:
        result = _attempt(problem, start, settings, **attempt)
        misfit = problem.misfit(result.solution)
        outcome = {"loss": result.loss, "misfit": misfit, "n_iter": result.n_iter}
        tries.append({**attempt, **outcome})
        if best is None or result.loss < best.result.loss:
            best = Outcome(problem, result, misfit, tries)
        if misfit <= POOR or result.interrupted:
            break
    return best


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


def _attempt(problem, start, settings, damping=1.0, noise=None, window=None):
    """One minimisation, after a first stage with other noise or in a window."""
    n_iter = 0
    for stage in _stages(problem, noise, window):
        first = DAMPING * stage.evaluate(start).loss
        steps = min(settings["max_iter"], STAGE_STEPS)
        staged = minimise(
            stage, start, damping=first, **{**settings, "max_iter": steps}
        )
        start, n_iter = staged.solution, n_iter + staged.n_iter
        if staged.interrupted:
            loss = problem.evaluate(start).loss
            return replace(staged, loss=loss, loss_curve=[loss], damping_curve=[])
        if stage.misfit(start) > POOR:
            break
    first = DAMPING * damping * problem.evaluate(start).loss
    result = minimise(problem, start, damping=first, **settings)
    result.n_iter += n_iter
    return result


def _stages(problem, noise, window):
    """Problems to solve before the whole one: easier ones, then wider windows."""
    if noise is not None:
        yield problem.with_observation_noise(noise)
    if window is not None:
        start, stop = window
        while start > 0 or stop < 1:
            yield problem.within(start, stop)
            start, stop = max(start - WIDEN, 0), min(stop + WIDEN, 1)

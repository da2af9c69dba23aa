"""Trying again when the minimum of a joint problem is a poor one."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from keql._joint.cluster import minimise_joint
from keql._joint.starts import ConditionalSamples, SubsampledProblem
from keql._numerics.linalg import ridge, size_or_one
from keql._numerics.optimisation import Damping, Result
from keql.equation import InducingBasis, PolynomialBasis, SystemBasis, make_basis
from keql.kernels import Constant, Polynomial


@dataclass(frozen=True)
class RestartSettings:
    """When a minimum is a poor one, and what is tried then.

    Attributes
    ----------
    poor_misfit, failed_misfit : float
        Mean squared residuals, in units of the noise variances, above which the minimum
        is a poor one or the model does not hold: a user is warned who has given all
        noise levels, of which residuals are twice as large there. Where levels are
        chosen, a user is warned above the other one.
    damping, degree : float, int
        First damping, relative to the loss at the start (both have no unit); degree of
        the polynomial that first stands in for an equation of another kernel.
    damping_near : float
        First damping from a solution with fewer collocation points, relative to the
        loss: the states are near, and with 1e-4 it took three times as many steps.
    n_points : int
        Collocation points of each function while starts are compared. Steps get cheaper
        by the square and more; a third of the published thousand points still tell a
        state that meets the equation from one that meets it at these points only.
    max_draw_iter, draw_tol : int, float
        Steps from a drawn state, of which one near a good minimum needs half, and the
        smallest relative decrease of the loss for which they go on.
    n_agreeing, agreement : int, float
        Number of tries, and the relative difference of their losses, that say that
        there is no lower minimum: the model does not hold, and more draws do not help.
    n_all_agreeing : int
        Number of drawn states that say so if all led to one loss: if half of all draws
        led elsewhere, five would agree with a probability of 6 %.
    """

    poor_misfit: float = 4.0
    failed_misfit: float = 100.0
    damping: float = 1e-4
    damping_near: float = 1e-6
    degree: int = 3
    n_points: int = 350
    max_draw_iter: int = 40
    draw_tol: float = 1e-3
    n_agreeing: int = 3
    agreement: float = 1e-2
    n_all_agreeing: int = 5


def minimise_with_restarts(
    problem,
    start,
    *,
    n_restarts,
    max_iter,
    tol,
    report,
    rng,
    settings=None,
    first=(),
):
    """Minimise, and while the residuals are far above the noise start elsewhere.

    An equation that is not polynomial is then first sought as a cubic polynomial: it
    has fewer unknowns, and its features show where inducing points are needed. Each of
    the `n_restarts` further tries may take about as many steps as the first one,
    `max_iter`, but on fewer collocation points and from several draws of the states. A
    minimisation has converged at the relative decrease `tol` of the loss; `report` is
    called with the problem and the result so far after each accepted step; `rng` draws
    states and inducing points. The problem is solved before at so many of its
    collocation points as `first` says, one number after the other. Returned is a
    BestTry; the default `settings` are those of RestartSettings.
    """
    settings = settings or RestartSettings()
    minimiser = _Minimiser(max_iter, tol, report, settings)
    best = minimiser.after(first, problem, start)
    if minimiser.is_done(best) or n_restarts == 0:
        return best
    restarts = partial(_restart, n_restarts=n_restarts, minimiser=minimiser, rng=rng)
    bases = getattr(problem.basis, "bases", [problem.basis])
    if any(isinstance(basis, InducingBasis) for basis in bases):
        polynomial = partial(_polynomial_basis, settings.degree)
        simpler, simple_start = _with_basis(problem, problem, start, polynomial)
        simple = minimiser(simpler, simple_start, degree=settings.degree)
        simple = restarts(simple, simpler)
        best = best.noting(simple.tries)
        if simple.misfit <= settings.poor_misfit:
            inducing = partial(_inducing_basis, rng)
            solution = simple.problem, simple.result.solution
            back = _with_basis(problem, *solution, inducing)
            best = best.or_better(minimiser(*back, start="cubic"))
    return restarts(best, problem)


class BestTry(NamedTuple):
    """The best of several minimisations of one problem.

    The `problem` may have other inducing points. `result` is the one of lowest loss,
    `misfit` its mean squared residual in units of the noise variances, and `tries` tell
    a user what was tried, and what it led to.
    """

    problem: object
    result: Result
    misfit: float
    tries: list

    def noting(self, tries):
        """This one after further tries."""
        return self._replace(tries=self.tries + tries)

    def or_better(self, other):
        """The one of two with the lower loss, and the tries of both."""
        best = min(self, other, key=lambda one: one.result.loss)
        return best._replace(tries=self.tries + other.tries)


@dataclass(frozen=True)
class _Minimiser:
    """Minimises a problem from a start; its keywords tell a user which one it was."""

    max_iter: int
    tol: float
    report: object
    settings: RestartSettings

    def __call__(self, problem, start, /, **which):
        loss = problem.evaluate(start).loss
        control = Damping(self.settings.damping * loss, self.tol)
        loop = {"max_iter": self.max_iter, "report": partial(self.report, problem)}
        result = minimise_joint(problem, start, control, **loop)
        misfit = problem.misfit(result.solution)
        figures = {"loss": result.loss, "misfit": misfit, "n_iter": result.n_iter}
        return BestTry(problem, result, misfit, [{**which, **figures}])

    def after(self, sizes, problem, start):
        """Minimises a problem from solutions of it with fewer points.

        `sizes` are the numbers of points of each equation, in rising order.
        """
        minimiser = self
        near = replace(self.settings, damping=self.settings.damping_near)
        for size in sizes:
            before = minimiser._with_few(size, problem, start)
            if before.result.interrupted:
                return before
            minimiser, start = replace(self, settings=near), before.result.solution
        return minimiser(problem, start)

    def _with_few(self, size, problem, start):
        """The solution with `size` points of each equation, as a try of the problem.

        Matrices of these points do not outlive it.
        """
        few = SubsampledProblem(problem, size)
        minimiser = replace(self, tol=max(self.tol, self.settings.draw_tol))
        found = minimiser(few.problem, few.narrow(start))
        _, result = few.widen_result(found.result)
        return BestTry(problem, result, problem.misfit(result.solution), found.tries)

    def is_done(self, best):
        """Whether the residuals are near the noise, or a user stopped the fit."""
        return best.misfit <= self.settings.poor_misfit or best.result.interrupted

    def for_draws(self):
        """One that takes fewer steps, for drawn states, and the number of draws."""
        max_iter = min(self.max_iter, self.settings.max_draw_iter)
        tol = max(self.tol, self.settings.draw_tol)
        return replace(self, max_iter=max_iter, tol=tol), self.max_iter // max_iter


def _restart(best, problem, *, n_restarts, minimiser, rng):
    """Try from drawn states until the residuals are near the noise.

    Each try takes the best of a few draws with few collocation points; if that leaves
    small residuals there, the whole problem is solved from it. If none does, it is
    solved from the best one in the end. When tries agree on the lowest loss, it stops.
    """
    if minimiser.is_done(best):
        return best
    settings = minimiser.settings
    subsampled = SubsampledProblem(problem, settings.n_points)

    def solve_whole(drawn):
        start = subsampled.widen(drawn.result.solution)
        return minimiser(problem, start, start="drawn")

    draw = _DrawnStarts(subsampled.problem, minimiser, rng)
    best_drawn, losses = None, []
    for _ in range(n_restarts):
        drawn = draw()
        best = best.noting(drawn.tries)
        if drawn.result.interrupted:
            return best._replace(result=replace(best.result, stop=drawn.result.stop))
        if drawn.misfit <= settings.poor_misfit:
            best = best.or_better(solve_whole(drawn))
            if minimiser.is_done(best):
                return best
        elif best_drawn is None or drawn.result.loss < best_drawn.result.loss:
            best_drawn = drawn
        losses.append(drawn.result.loss)
        if draw.all_agree or _n_lowest(losses, settings) >= settings.n_agreeing:
            break
    return best if best_drawn is None else best.or_better(solve_whole(best_drawn))


def _n_lowest(losses, settings):
    """How many losses agree with the lowest of them."""
    lowest = (1 + settings.agreement) * min(losses)
    return sum(loss <= lowest for loss in losses)


class _DrawnStarts:
    """Minimisations from drawn states and the equations that these meet best.

    losses : list of float. Those of all of them so far.
    """

    def __init__(self, problem, minimiser, rng):
        self.problem, self.rng, self.losses = problem, rng, []
        self.minimiser, self.n_draws = minimiser.for_draws()
        pairs = zip(problem.blocks, problem.precisions, strict=True)
        self.samples = [ConditionalSamples(*pair, problem.penalty) for pair in pairs]

    def __call__(self):
        """The best of a few; one that leaves small residuals is the last."""
        drawn = []
        while len(drawn) < self.n_draws:
            drawn.append(self.minimiser(self.problem, self._start()))
            self.losses.append(drawn[-1].result.loss)
            if self.minimiser.is_done(drawn[-1]) or self.all_agree:
                break
        is_done = self.minimiser.is_done(drawn[-1])
        best = drawn[-1] if is_done else min(drawn, key=lambda one: one.result.loss)
        n_iter = sum(one.result.n_iter for one in drawn)
        summary = {"draws": len(drawn), **best.tries[0], "n_iter": n_iter}
        return best._replace(tries=[summary])

    @property
    def all_agree(self):
        """Whether there were enough, and all of them led to one loss."""
        settings, n = self.minimiser.settings, len(self.losses)
        return n >= settings.n_all_agreeing and _n_lowest(self.losses, settings) == n

    def _start(self):
        problem = self.problem
        drawn = [draw(self.rng) for draw in self.samples]
        states = problem.iterate(drawn, np.empty(0))
        pairs = zip(problem.blocks, states.values, strict=True)
        S = np.concatenate([block.features(z) for block, z in pairs])
        forcing = np.concatenate([block.forcing for block in problem.blocks])
        target = forcing - problem.known_part(S)
        # No equation holds on drawn states: all of the target is as good as noise, and
        # the prior keeps the weights from following it too closely.
        features = problem.basis(S[:, : problem.n_unknown])
        equation = np.concatenate([block.rows.equation for block in problem.blocks])
        noise = np.empty(len(target))
        for e in np.unique(equation):
            noise[equation == e] = size_or_one(target[equation == e])
        largest, relative = np.max(noise), noise / np.max(noise)
        weights = ridge(features / relative[:, None], target / relative, largest)
        return replace(states, weights=weights)


def _with_basis(problem, solved, iterate, make):
    """The problem with another basis of P, and a start from a solution of one like it.

    `make` takes the basis of an equation, features that P depends on, the values of P
    there and the equation's noise level, and returns another basis.
    """
    features = solved.evaluate(iterate).features
    S = np.concatenate(features)[:, : problem.n_unknown]
    values = solved.basis.values(S, iterate.weights)
    noise = problem.equation_noise
    if not isinstance(problem.basis, SystemBasis):
        basis = make(problem.basis, S, values, noise[0])
        weights = ridge(basis(S), values, noise[0])
    else:
        bases, weights = [], []
        for e, own in enumerate(problem.basis.bases):
            rows = S[:, 0] == e
            part, size = (S[rows, 1:], values[rows]), problem.basis.sizes[e]
            bases.append(make(own, *part, noise[e]) if size else own)
            target = bases[-1](part[0]), part[1], noise[e]
            weights.append(ridge(*target) if size else np.empty(0))
        basis = SystemBasis(bases, [len(own) for own in weights])
        weights = np.concatenate(weights)
    problem = problem.with_basis(basis)
    return problem, problem.iterate(iterate.coefficients, weights)


def _polynomial_basis(degree, basis, S, values, noise):
    if not isinstance(basis, InducingBasis):
        return basis
    columns = np.flatnonzero(basis.kernel.depends_on(S.shape[1]))
    polynomial = Polynomial(degree, active_dims=tuple(columns)).scaled_to(S)
    variance = max(np.mean(values**2), noise**2)
    return PolynomialBasis(Constant(variance, "fixed") * polynomial)


def _inducing_basis(rng, basis, S, values, noise):
    if not isinstance(basis, InducingBasis):
        return basis
    return make_basis(basis.kernel, S, basis.n_drawn, rng)

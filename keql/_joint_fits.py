"""Joint fits, from the start to the last term, with the best kernel and law.

No prior of the states is best for everything. Rough ones let the states follow
whatever the data are, so that the law is right, but leave open what lies between
the points; smoother ones fill the gaps, but their states do not quite meet the law,
which bends instead. A law learned with the one may be held while states are found
with the other.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

import numpy as np

from keql._joint.assembly import learned_jointly
from keql._joint.restarts import minimise_with_restarts
from keql._numerics.gauss_newton import minimise
from keql._numerics.scaling import root_mean_square
from keql._observations.data import size_of
from keql._observations.left_out import left_out_errors
from keql._scales import (
    GOOD,
    Candidate,
    Prior,
    believed_dispersion,
    compare_kernels,
    make_prior,
)
from keql._terms import fit_with_fewer_terms
from keql.equation import FixedEquation, term_name

# First damping relative to the loss: the states are near.
DAMPING = 1e-4
# Kernels of the states that are tried to the last term while predictions are poor.
FINALISTS = 8
# An equation that is not said to be noisy is also tried with so much less noise; or, if
# residuals have so small a mean square in units of the noise levels that these do not
# matter, with as much as its own residuals.
LESS_NOISE, IDLE = 0.1, 0.1
# That is worth being so much surer of the equation if predictions are so much better,
# or better at all with fewer terms.
CLEARLY = 0.75
# Predictions with errors of so many noise levels are as good as can be told.
HIDDEN = 2.0


@dataclass(frozen=True)
class JointFit:
    """A solution of the joint problem, and how it was found.

    Parameters
    ----------
    two_step : Learned
        What it started from.
    learned_with : Kernel
        The state kernel with which the law was learned.
    problem : JointProblem
        The problem, with the features that the law has in the end.
    result : Result
        Of its minimisation.
    tries : list of dict
        What was tried.
    path : list of TermsStep
        Fits with fewer and fewer terms.
    """

    two_step: object
    learned_with: object
    problem: object
    result: object
    tries: list
    path: list

    @property
    def learned(self):
        """States and equation."""
        return learned_jointly(self.two_step, self.problem, self.result.solution)

    @property
    def prior(self):
        """The prior of its states."""
        return Prior(self.two_step, self.problem, self.result.solution, self.error)

    @property
    def candidate(self):
        """Its kernel, to be compared with others."""
        result = self.result
        kernel = self.two_step.state_kernel
        return Candidate(kernel, result.solution, self.errors, result.loss)

    @property
    def n_weights(self):
        """Number of free weights of the equation."""
        return len(self.result.solution.weights)

    @property
    def law(self):
        """The equation, which is not to be sought any more."""
        if isinstance(self.problem.basis, FixedEquation):
            return self.problem.basis
        fit = self.believing_predictions()
        model = fit.problem.linearise(fit.problem.evaluate(fit.result.solution))
        weights = fit.result.solution.weights
        return FixedEquation(fit.problem.basis, weights, model.posterior_weights())

    @cached_property
    def errors(self):
        """Errors of the predictions of each observation from all others.

        Of shape (n,), without observations on the border, in the units of the values.
        """
        model = self.problem.linearise(self.problem.evaluate(self.result.solution))
        return left_out_errors(model, self.two_step.observations.regressions)

    @property
    def misfit(self):
        """Mean square of the residuals in units of the noise levels."""
        return self.problem.misfit(self.result.solution)

    @property
    def is_idle(self):
        """Whether the noise levels are so high that they do not matter."""
        return self.misfit < IDLE

    @property
    def less_noise(self):
        """A lower level of noise of the equation, in units of the forcing."""
        if not self.is_idle:
            return LESS_NOISE * self.problem.equation_noise
        residuals = self.problem.evaluate(self.result.solution).residuals
        pairs = zip(self.problem.blocks, residuals, strict=True)
        return root_mean_square(np.concatenate([r[len(b.values) :] for b, r in pairs]))

    @property
    def error(self):
        """Root mean square of these."""
        return root_mean_square(self.errors)

    @property
    def is_poor(self):
        """Whether it does not predict observations."""
        return self.error >= GOOD * self.size

    @property
    def size(self):
        """Root mean square of the observations."""
        return size_of(self.two_step.observations.regressions)

    @property
    def is_hidden(self):
        """Whether noise hides how well it predicts observations."""
        return self.error <= HIDDEN * self.two_step.observation_noise

    @property
    def is_settled(self):
        """Whether no better law is sought.

        One that does not predict observations is not worth being held, and where
        their noise hides the difference no law is seen to be better than another.
        """
        return self.result.interrupted or self.is_poor or self.is_hidden

    def believing_predictions(self):
        """The same, its variances raised to what is left if predictions are good."""
        regressions = self.two_step.observations.regressions
        dispersion = believed_dispersion(
            self.problem, self.result.solution, regressions
        )
        return replace(self, problem=self.problem.with_dispersion(dispersion))

    def holding(self, two_step, problem, start, *, max_iter, tol, report):
        """The law and its history, with the states of a problem that has this law."""
        damping = DAMPING * problem.evaluate(start).loss
        settings = {"damping": damping, "max_iter": max_iter, "tol": tol}
        states = minimise(problem, start, **settings, report=partial(report, problem))
        law = self.result
        result = replace(
            states,
            loss_curve=law.loss_curve,
            damping_curve=law.damping_curve,
            n_iter=law.n_iter + states.n_iter,
            converged=law.converged and states.converged,
            message=states.message if law.converged else law.message,
        )
        return replace(self, two_step=two_step, problem=problem, result=result)

    def interrupted(self, message):
        """The same, as what is left of a fit that was to go on."""
        stop = {"interrupted": True, "converged": False, "message": message}
        return replace(self, result=replace(self.result, **stop))

    @property
    def outcome(self):
        """What an estimator says of it, by the names of its attributes."""
        result = self.result
        return {
            "loss_curve_": result.loss_curve,
            "damping_curve_": result.damping_curve,
            "n_iter_": result.n_iter,
            "converged_": result.converged,
            "message_": result.message,
            "misfit_": self.misfit,
            "restarts_": self.tries,
            "terms_path_": self.path,
        }


def fit_jointly(two_step, problem, start, *, n_terms, n_restarts, rng, **settings):
    """Minimise, again if the minimum is poor, and take out terms.

    Parameters
    ----------
    two_step : Learned
        What the problem was made from.
    problem : JointProblem
        The problem.
    start : Iterate
        Where to start.
    n_terms : int, "auto" or None
        How many terms are kept; None: all.
    n_restarts : int
        Largest number of further tries.
    rng : numpy.random.RandomState
        For these.
    **settings
        `max_iter`, `tol`, and `report`, called with the problem and the result so far
        after each accepted step.

    Returns
    -------
    fit : JointFit
        The fit.
    """
    problem, result, _, tries = minimise_with_restarts(
        problem, start, n_restarts=n_restarts, rng=rng, **settings
    )
    path = []
    if n_terms is not None and not result.interrupted:
        problem, result, path = fit_with_fewer_terms(
            problem,
            result,
            n_terms,
            lambda powers: term_name(two_step, powers),
            two_step.observations.regressions,
            **settings,
        )
    return JointFit(two_step, two_step.state_kernel, problem, result, tries, path)


def with_better_law(fit, other, **settings):
    """A fit, or its prior of the states with the law of another fit.

    The law is the other one if states of the same prior then predict observations
    better, each from all others.

    Parameters
    ----------
    fit : JointFit
        Whose prior of the states both laws are tried with.
    other : JointFit
        With another prior.
    **settings
        As for :func:`fit_jointly`.

    Returns
    -------
    best : JointFit
        The fit, or its prior with the law and the history of the other.
    """
    if other.result.interrupted:
        return fit.interrupted(other.result.message)
    problem = fit.problem.with_basis(other.law)
    start = problem.iterate(fit.result.solution.coefficients, np.empty(0))
    held = other.holding(fit.two_step, problem, start, **settings)
    if held.result.interrupted:
        return fit.interrupted(held.result.message)
    better = np.median(np.abs(held.errors)) < np.median(np.abs(fit.errors))
    return held if better else fit


@dataclass(frozen=True)
class KernelSearch:
    """A joint fit with the prior of its states, and what that was chosen from.

    Parameters
    ----------
    prior : Prior
        The prior of the states.
    fit : JointFit
        The fit.
    kernels : list of Candidate
        All kernels that were compared, under the same conditions.
    followed : Followed, default=None
        States that follow the law exactly; None if those of the fit are better.
    """

    prior: object
    fit: JointFit
    kernels: list
    followed: object = None

    @property
    def learned(self):
        """States and equation."""
        return (self.followed or self.fit).learned

    @property
    def error(self):
        """Root mean square error of their predictions of observations."""
        return (self.followed or self.fit).error

    @property
    def is_poor(self):
        """Whether they do not predict observations."""
        return self.error >= GOOD * self.fit.size

    def following(self, follow, factor=1.0):
        """The same with states that follow the law, if these have smaller errors.

        Parameters
        ----------
        follow : callable
            Of states and equation: a Followed, or None.
        factor : float, default=1.0
            Of the errors: so many times those before at most.

        Returns
        -------
        search : KernelSearch
            This one, or one with `followed`.
        """
        if self.fit.result.interrupted:
            return self
        followed = follow(self.fit.learned)
        better = followed is not None and followed.error < factor * self.error
        return replace(self, followed=followed) if better else self

    def or_better(self, other, factor=1.0):
        """This, or another one with smaller errors, `factor` times its own at most."""
        if other.fit.result.interrupted:
            return replace(self, fit=self.fit.interrupted(other.fit.result.message))
        lost = self.fit.result.converged and not other.fit.result.converged
        better = other.error < factor * self.error and not lost
        return other if better else self

    @property
    def outcome(self):
        """What an estimator says of it, by the names of its attributes."""
        return (self.followed or self.fit).outcome

    @property
    def for_report(self):
        """What a report says of it."""
        is_fit = self.followed is None
        return {
            "learned_with": self.fit.learned_with,
            "error": self.prior.error,
            "alternatives": [(each.kernel, each.error) for each in self.kernels],
            "dispersion": self.fit.problem.dispersion if is_fit else 1.0,
            "followed": None if is_fit else self.followed.error,
        }


def fit_finalists(kernels, priors, fit, follow, n_restarts):
    """The joint fit with the best kernel; if it is a poor one, with the best of some.

    Kernels are compared with all terms in the equation. Where observations are few,
    these are too many, and what predicts best then may not do so any more when
    superfluous ones are gone, or when states follow the law exactly.

    Parameters
    ----------
    kernels : list of Candidate
        The kernels that were compared.
    priors : iterable of Prior
        The most promising first; it is not asked for more than are needed.
    fit : callable
        The joint fit from two steps, the joint problem made from them, a start and a
        number of further tries.
    follow : callable
        Of states and equation: a :class:`keql._evolution.states.Followed`, or None.
    n_restarts : int
        Further tries with the first kernel; then others are tried instead.

    Returns
    -------
    search : KernelSearch
        The first of the fits that is not poor; or the first one, unless the one that
        predicts best does so clearly better.
    """
    tried = []
    for prior in islice(priors, FINALISTS):
        tries = 0 if tried else n_restarts
        found = fit(prior.two_step, prior.problem, prior.solution, tries)
        search = KernelSearch(prior, found, kernels)
        if found.result.interrupted:
            return tried[0].or_better(search) if tried else search
        search = search.following(follow, CLEARLY)
        if found.is_hidden or not search.is_poor:
            return search
        tried.append(search)
    best = min(tried, key=lambda search: search.error)
    return tried[0].or_better(best, CLEARLY)


def fit_with_best_kernel(
    two_step,
    kernels,
    learn,
    solve_jointly,
    fit,
    follow,
    *,
    n_restarts,
    free_noise,
    report,
    **settings,
):
    """The joint fit with a kernel of the states that is not given.

    It is the one that predicts observations best with all terms; with the level of
    noise of the equation that does, if that is free; or that of the two steps, if it
    predicts clearly better. Then states are found again with the law that was found, or
    with a better one. If states that follow the law exactly predict clearly better from
    the first, nothing else is tried.

    Parameters
    ----------
    two_step, learn
        As for :func:`keql._scales.compare_kernels`.
    kernels : list of Candidate
        What that has found of them, the best one first.
    solve_jointly : callable
        As there; it takes a `law` that is held and a level of `equation_noise`, too.
    fit : callable
        The joint fit from two steps, the joint problem made from them, a start and a
        number of further tries.
    follow : callable
        Of states and equation: a :class:`keql._evolution.states.Followed`, or None.
    n_restarts : int
        Largest number of further tries.
    free_noise : bool
        Whether the noise of the equation is not given.
    report : callable
        Of a two-step solution: what is called after each step.
    **settings
        `max_iter` and `tol`.

    Returns
    -------
    search : KernelSearch
        The fit and what it was chosen from.
    """
    priors = (make_prior(each, learn, solve_jointly) for each in kernels)
    best = fit_finalists(kernels, priors, fit, follow, n_restarts)
    if best.followed is not None:
        return best
    solve = solve_jointly
    if free_noise and not best.fit.is_settled:
        less = partial(solve_jointly, equation_noise=best.fit.less_noise)
        kernels = compare_kernels(two_step, learn, less)
        prior = make_prior(kernels[0], learn, less)
        found = fit(prior.two_step, prior.problem, prior.solution)
        factor = 1.0 if found.n_weights < best.fit.n_weights else CLEARLY
        is_idle, other = best.fit.is_idle, KernelSearch(prior, found, kernels)
        # A level that does not matter need not be the worse one.
        best = best.or_better(other, 1 / CLEARLY if is_idle else factor)
        if is_idle and best is other:
            solve = less
    if not best.fit.is_settled:
        other = fit(two_step, *solve(two_step))
        kernels = [other.candidate, *best.kernels]
        best = best.or_better(KernelSearch(other.prior, other, kernels), CLEARLY)
        if best.fit is not other:
            to_user = report(best.fit.two_step)
            found = with_better_law(best.fit, other, report=to_user, **settings)
            best = replace(best, fit=found)
    if not best.fit.is_settled:
        # What is known of a law is not so exact that it should be met more closely.
        held = partial(solve_jointly, law=best.fit.law)
        learn = partial(_with_kernel, best.fit.two_step)
        values = best.fit.result.solution.values
        kernels = compare_kernels(two_step, learn, held, values)
        prior = make_prior(kernels[0], learn, held)
        to_user = report(prior.two_step)
        found = best.fit.holding(*prior[:3], report=to_user, **settings)
        best = best.or_better(KernelSearch(prior, found, kernels))
    best = replace(best, fit=best.fit.believing_predictions())
    return best.following(follow)


def _with_kernel(two_step, kernel, values=None):
    """Two steps of which only the equation is made use of, with another kernel."""
    return replace(two_step, state_kernel=kernel, states=None)

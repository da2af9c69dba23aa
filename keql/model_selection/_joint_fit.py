"""A joint fit, from the start to the last term."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from keql._joint.assembly import assemble_learned
from keql._joint.restarts import minimise_with_restarts
from keql._numerics.gauss_newton import Damping, minimise
from keql._numerics.scaling import rms
from keql._observations.data import size_of
from keql._observations.left_out import left_out_errors
from keql.equation import FixedUnknownPart, term_name
from keql.model_selection._fewer_terms import fit_with_fewer_terms
from keql.model_selection._state_kernels import (
    GOOD,
    KernelCandidate,
    WarmStart,
    residual_dispersion,
)

# First damping relative to the loss: the states are near.
DAMPING = 1e-4
# Predictions with errors of so many noise levels are as good as can be told.
HIDDEN = 2.0
# An equation that is not said to be noisy is also tried with so much less noise; or, if
# residuals have so small a mean square in units of the noise levels that these do not
# matter, with as much as its own residuals.
LESS_NOISE, IDLE = 0.1, 0.1


@dataclass(frozen=True)
class JointFit:
    """A solution of the joint problem, and how it was found.

    Parameters
    ----------
    two_step : LearnedModel
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
        return assemble_learned(self.two_step, self.problem, self.result.solution)

    @property
    def prior(self):
        """The prior of its states."""
        return WarmStart(self.two_step, self.problem, self.result.solution, self.error)

    @property
    def candidate(self):
        """Its kernel, to be compared with others."""
        result = self.result
        kernel = self.two_step.state_kernel
        return KernelCandidate(kernel, result.solution, self.errors, result.loss)

    @property
    def n_weights(self):
        """Number of free weights of the equation."""
        return len(self.result.solution.weights)

    @property
    def law(self):
        """The equation, which is not to be sought any more."""
        if isinstance(self.problem.basis, FixedUnknownPart):
            return self.problem.basis
        fit = self.with_residual_dispersion()
        model = fit.problem.linearise(fit.problem.evaluate(fit.result.solution))
        weights = fit.result.solution.weights
        return FixedUnknownPart(fit.problem.basis, weights, model.posterior_weights())

    @cached_property
    def errors(self):
        """Errors of the predictions of each observation from all others.

        Of shape (n,), without observations on the border, in the units of the values.
        """
        model = self.problem.linearise(self.problem.evaluate(self.result.solution))
        return left_out_errors(model, self.two_step.observations.functions)

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
        return rms(np.concatenate([r[len(b.values) :] for b, r in pairs]))

    @property
    def error(self):
        """Root mean square of these."""
        return rms(self.errors)

    @property
    def is_poor(self):
        """Whether it does not predict observations."""
        return self.error >= GOOD * self.size

    @property
    def size(self):
        """Root mean square of the observations."""
        return size_of(self.two_step.observations.functions)

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

    def with_residual_dispersion(self):
        """The same, its variances raised to what is left if predictions are good."""
        functions = self.two_step.observations.functions
        dispersion = residual_dispersion(self.problem, self.result.solution, functions)
        return replace(self, problem=self.problem.with_dispersion(dispersion))

    def holding(self, two_step, problem, start, *, max_iter, tol, report):
        """The law and its history, with the states of a problem that has this law."""
        control = Damping(DAMPING * problem.evaluate(start).loss, tol)
        to_user = partial(report, problem)
        states = minimise(problem, start, control, max_iter=max_iter, report=to_user)
        law = self.result
        result = replace(
            states,
            loss_curve=law.loss_curve,
            damping_curve=law.damping_curve,
            n_iter=law.n_iter + states.n_iter,
            stop=states.stop if law.converged else law.stop,
        )
        return replace(self, two_step=two_step, problem=problem, result=result)

    def interrupted(self, stop):
        """The same, as what is left of a fit that was to go on."""
        return replace(self, result=replace(self.result, stop=stop))

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
    two_step : LearnedModel
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
            two_step.observations.functions,
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
        return fit.interrupted(other.result.stop)
    problem = fit.problem.with_basis(other.law)
    start = problem.iterate(fit.result.solution.coefficients, np.empty(0))
    held = other.holding(fit.two_step, problem, start, **settings)
    if held.result.interrupted:
        return fit.interrupted(held.result.stop)
    better = np.median(np.abs(held.errors)) < np.median(np.abs(fit.errors))
    return held if better else fit

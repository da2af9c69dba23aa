"""A joint fit from its start to its last term, and the better law of two fits.

No prior of the states is best for everything. Rough ones let the states follow
whatever the data are, so that the law is right, but leave open what lies between
the points; smoother ones fill the gaps, but their states do not quite meet the law,
which bends instead. A law learned with the one may be held while states are found
with the other.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from keql._basis import FixedEquation
from keql._joint import learned_jointly, term_name
from keql._levenberg_marquardt import minimise
from keql._regression import root_mean_square
from keql._restarts import minimise_with_restarts
from keql._scales import GOOD, believed_dispersion, left_out_errors
from keql._terms import find_terms, fit_with_fewer_terms

# First damping relative to the loss: the states are near.
DAMPING = 1e-4
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
    def law(self):
        """The equation, which is not to be sought any more."""
        if isinstance(self.problem.basis, FixedEquation):
            return self.problem.basis
        fit = self.believing_predictions()
        model = fit.problem.linearise(fit.problem.evaluate(fit.result.solution))
        weights = fit.result.solution.weights
        return FixedEquation(fit.problem.basis, weights, model.posterior_weights())

    @property
    def errors(self):
        """Errors of the predictions of each observation from all others."""
        model = self.problem.linearise(self.problem.evaluate(self.result.solution))
        return left_out_errors(model, self.two_step.observations.regressions)

    @property
    def is_settled(self):
        """Whether nothing better is sought.

        A law that does not predict observations is not worth being held, and where
        their noise hides the difference no law is seen to be better than another.
        """
        values = [data.values for data in self.two_step.observations.regressions]
        error = root_mean_square(self.errors)
        poor = error >= GOOD * root_mean_square(np.concatenate(values))
        hidden = error <= HIDDEN * self.two_step.observation_noise
        return self.result.interrupted or poor or hidden

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
            "misfit_": self.problem.misfit(result.solution),
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
    if n_terms is not None:
        find_terms(problem, n_terms)  # or refuse before the long part
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


def with_other_states(fit, prior, **settings):
    """A fit, or states of another prior with its law if these predict better.

    Parameters
    ----------
    fit : JointFit
        The fit.
    prior : Prior
        Chosen with its law.
    **settings
        As for :func:`fit_jointly`.

    Returns
    -------
    fit : JointFit
        With the history of how the law was found.
    """
    held = fit.holding(prior.two_step, prior.problem, prior.solution, **settings)
    if held.result.interrupted:
        return fit.interrupted(held.result.message)
    better = root_mean_square(held.errors) < root_mean_square(fit.errors)
    return held if better else fit

"""Which terms of a polynomial equation the data call for, states fitted along."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from keql._joint.cluster import minimise_joint
from keql._numerics.linalg import rms
from keql._numerics.optimisation import Damping
from keql._observations.data import PredictionScale, left_out_errors
from keql._regression.term_scores import TermTable


@dataclass(frozen=True)
class TermCriteria:
    """When terms are taken out of an equation, and how many.

    gap : float. A term costs clearly more than all before it if its ratio to the
        highest cost before is larger.
    worse, significant : float. Without terms, observations are predicted worse if the
        error is this many times as large, or if squared errors are larger by so many
        standard errors.
    hopeless : float. Where their number is open, terms are taken out until the loss is
        this many times that with all terms.
    damping : float. The first damping after a term is taken out, relative to the loss:
        the states are near.
    few : int. Of more terms than this several are taken out at once, as long as each of
        them costs less than the Bayesian information criterion grants one.
    tol : float. Fits with fewer terms, and of a system that with all, are solved until
        the loss falls by less than this, relatively: how much it rises matters in units
        of what is granted a term, a hundredth of it. The one that is chosen is solved
        to the tolerance of the settings.
    max_steps : int. Steps of such a fit at most: those of right equations took 2 to 20,
        those that lacked terms crept on for hundreds.
    n_rounds, n_tried, margin : int, int, float. Sets of terms are looked for by their
        evidence so many times, each time where the best one was solved for. So many
        neighbours of it, and sets of fewer terms, are solved for each time, if their
        log evidence is below the highest by at most the margin: where states bend to
        more terms, that of the true ones, linearised, was 10 too low.
    """

    gap: float = 3.0
    worse: float = 2.0
    significant: float = 2.0
    hopeless: float = 1e3
    damping: float = 1e-6
    few: int = 12
    tol: float = 1e-4
    max_steps: int = 50
    n_rounds: int = 4
    n_tried: int = 2
    margin: float = 12.0


class TermsStep(NamedTuple):
    """A fit with some of the terms.

    terms : tuple of str. Their names.
    loss : float. The objective at its minimum.
    misfit : float. Mean square of the residuals in units of the noise levels.
    error : float. Root mean square error of predicting each observation from all
        others.
    log_evidence : float. Log probability of the terms given the observations, up to a
        constant; not a number where it was not computed.
    coefficients : dict of str to float. Of exact states: as they are printed.
    prior_odds : float. Log odds against a wider hypothesis that the log evidence has.
    equations : tuple of LearnedEquation. Of exact states: as they were solved for.
    leads : bool. Whether it was the most probable one when it was found.
    """

    terms: tuple
    loss: float
    misfit: float
    error: float
    log_evidence: float = np.nan
    coefficients: dict | None = None
    prior_odds: float = 0.0
    equations: tuple = ()
    leads: bool = False

    def less_probable(self, shift, odds):
        """It with another log evidence, which has odds against its hypothesis, too."""
        evidence, known = self.log_evidence + shift, self.prior_odds
        return self._replace(log_evidence=evidence, prior_odds=known + odds)


def step_of(result, terms, coefficients, log_evidence, leads=False):
    """The TermsStep of exact states with some of the terms.

    result : Result. The states, solved for.
    terms : iterable of str. Names of the terms.
    coefficients : dict of str to float. As they are printed.
    log_evidence, leads : as those of :class:`TermsStep`.
    """
    model, equations = result.model, result.solution.equations
    error = rms(left_out_errors(model, model.problem.learned.observations))
    figures = result.loss, model.regression.misfit, error, log_evidence
    return TermsStep(tuple(terms), *figures, coefficients, 0.0, equations, leads)


def with_step(steps, step, gained):
    """Steps with one that was solved for anew, as if all others gained as much."""
    others = (other for other in steps if other.terms != step.terms)
    return [*(other.less_probable(gained, 0.0) for other in others), step]


def most_probable(steps):
    """The TermsStep of the highest log evidence for each set of terms, as a dict."""
    best = {}
    for step in steps:
        key = frozenset(step.terms)
        if not np.isfinite(step.log_evidence):
            continue
        if key not in best or step.log_evidence > best[key].log_evidence:
            best[key] = step
    return best


def with_rivals(fit, others):
    """A Fit that knows the log evidence of the sets of terms of other fits, too.

    fit : Fit. What it knows of a set of terms itself stays.
    others : list of Fit. Of the same hypothesis, from other starts. Their coefficients
        are left out of means: they may be those of other coordinates of a state that
        was never observed.

    Returns fit : Fit. With more steps in `terms_path`.
    """
    known, steps = most_probable(fit.terms_path), []
    for other in others:
        found = most_probable(other.terms_path).items()
        new = [step for terms, step in found if terms not in known]
        steps += [step._replace(coefficients=None) for step in new]
    return replace(fit, terms_path=[*fit.terms_path, *steps])


def fit_with_fewer_terms(problem, result, two_step, hypothesis, context, criteria=None):
    """Take terms out of P one by one, fitting states and equation again each time.

    Those stay that cost least in the quadratic approximation of the loss, in which a
    term that was taken out may come back for another. How many are kept is told by the
    largest gap: the first term that costs many times more than any before it, unless
    observations are predicted worse without it; if there is no gap, by how well
    observations are predicted. A threshold on the loss itself would not do, as its size
    depends on how well the state kernel suits the states, which the data do not tell.

    problem, result : JointProblem, Result. With the features of a polynomial kernel,
        and its solution.
    two_step : LearnedModel. With the observations, and names.
    hypothesis : Hypothesis. How many terms are kept, an int or "auto".
    context : Context. How problems are solved.
    criteria : TermCriteria, default=None. None: the default ones.

    Returns problem : JointProblem. With the terms kept.
    Returns result : Result. Its solution, with the history of the loss before.
    Returns path : list of TermsStep. All fits, from all terms to few.
    """
    given = two_step, TermTable(two_step, problem.basis, hypothesis), context
    path = _Path(problem, result, *given, criteria or TermCriteria())
    path.extend()
    place = path.place()
    _, chosen, fit = path.fits[place]
    # A fit that was not solved in all steps that are allowed is not solved in more.
    has_steps = fit.converged or context.settings.max_iter > path.criteria.max_steps
    if (path.table.is_system or place > 0) and has_steps and not fit.interrupted:
        fit = path.polished(place)
    if place > 0:
        fit = replace(
            fit,
            loss_curve=result.loss_curve + fit.loss_curve,
            # To take terms out is a step without damping.
            damping_curve=[*result.damping_curve, 0.0, *fit.damping_curve],
            n_iter=sum(each.n_iter for *_, each in path.fits),
        )
    last = path.fits[-1][2]  # also where the next one was interrupted at its start
    return chosen, replace(fit, stop=last.stop) if last.interrupted else fit, path.steps


class _Path:
    """Fits with fewer and fewer terms, what each came to, and which one is taken.

    fits : list of (list of int, JointProblem, Result). With all terms, then with fewer:
        their positions in a TermTable, the problem and its solution.
    steps, errors : list of TermsStep, list of ndarray. What they came to, and their
        errors of predicting observations.
    """

    def __init__(self, problem, result, two_step, table, context, criteria):
        self.two_step, self.table = two_step, table
        self.context, self.criteria = context, criteria
        self.granted = information_of_a_term(problem, result.loss)
        self.fits, self.steps, self.errors = [], [], []
        self._add(list(range(len(table.groups))), problem, result)
        noise = PredictionScale(two_step.observations).noise(two_step.observation_noise)
        allowed = context.criteria.noise_limited * noise
        self.within_noise = rms(self.errors[0]) <= allowed

    def _add(self, kept, problem, result):
        model = problem.linearise(problem.evaluate(result.solution))
        errors = left_out_errors(model, self.two_step.observations)
        terms = tuple(self.table.names[i] for i in kept)
        misfit = problem.misfit(result.solution)
        self.fits.append((kept, problem, result))
        self.errors.append(errors)
        self.steps.append(TermsStep(terms, result.loss, misfit, rms(errors)))

    def extend(self):
        """Take terms out until that is hopeless, or the number is certain."""
        _, everything, first = self.fits[0]
        while self.table.removable(self.fits[-1][0]):
            kept, smaller, start = _drop_cheapest(
                everything, self.table, *self.fits[-1], self.criteria
            )
            fit = self._minimise(smaller, start)
            self._add(kept, smaller, fit)
            hopeless = fit.loss > self.criteria.hopeless * first.loss
            enough = not self.table.exceeding(kept) and (hopeless or self._is_decided())
            if fit.interrupted or enough:
                return

    def _minimise(self, problem, start, to_the_end=False):
        """The Result of a problem from a start that is near its solution."""
        settings, criteria = self.context.settings, self.criteria
        tol, most = settings.tol, settings.max_iter
        if not to_the_end:
            tol, most = max(tol, criteria.tol), min(most, criteria.max_steps)
        return minimise_joint(
            problem,
            start,
            Damping(criteria.damping * problem.evaluate(start).loss, tol),
            max_iter=most,
            report=partial(self.context.report, self.two_step, problem),
        )

    def polished(self, place):
        """The fit at a place, solved to the tolerance of the settings."""
        kept, problem, fit = self.fits[place]
        last = self._minimise(problem, fit.solution, to_the_end=True)
        polished = replace(
            last,
            loss_curve=fit.loss_curve + last.loss_curve[1:],
            damping_curve=fit.damping_curve + last.damping_curve,
            n_iter=fit.n_iter + last.n_iter,
        )
        self.fits[place] = kept, problem, polished
        return polished

    def _is_decided(self):
        """Whether fewer terms of a system would not be chosen whatever they come to."""
        if not (self.table.is_open and self.table.is_system):
            return False
        if self.within_noise and self._first_rise() is not None:
            return True
        return is_worse(self.errors[-1], self.errors[0], self.criteria)

    def _first_rise(self):
        return first_rise(*self._figures())

    @property
    def _first(self):
        """The first fit in which all numbers of terms that are given are reached."""
        reached = [not self.table.exceeding(kept) for kept, *_ in self.fits]
        return reached.index(True) if any(reached) else len(reached)

    def _figures(self):
        first = self._first
        losses = [step.loss for step in self.steps[first:]]
        counts = [len(kept) for kept, *_ in self.fits[first:]]
        return losses, self.errors[first:], self.granted, self.criteria, counts

    def place(self):
        """Which of the fits is taken."""
        first = self._first
        if not self.table.is_open or first == len(self.fits):
            return len(self.fits) - 1
        place = self._first_rise() if self.within_noise else None
        if place is None:
            fewest = len(self.two_step.variables) > 1  # in time, exact states tell
            place = largest_gap(*self._figures(), fewest=fewest)
        return first + place


def information_of_a_term(problem, loss):
    """What the Bayesian information criterion grants a coefficient, in units of a loss.

    Half the logarithm of the number of residuals; where residuals are above the noise
    levels, in units of their mean.
    """
    n_residuals = sum(map(len, problem.precisions))
    return 0.5 * np.log(n_residuals) * max(1.0, 2 * loss / n_residuals)


def first_rise(losses, errors, granted, criteria, counts=None):
    """Where the next loss rises by clearly more than what is granted a term; or None.

    Where observations are met within their noise, a rise has the distribution of a
    log likelihood ratio: there is no need to compare it with other rises. But it may
    also be that states which a kernel does not quite suit bend less with one more term.
    Then what is left out is predicted no worse without it, and the rise does not count.
    The arguments are those of :func:`largest_gap`.
    """
    squares = np.array([np.mean(missed**2) for missed in errors])
    significant = rises_of_terms(losses, counts) > criteria.gap * granted
    places = np.flatnonzero(significant & (np.diff(squares) > 0))
    return int(places[0]) if len(places) else None


def rises_of_terms(losses, counts=None):
    """By how much the loss rises from each fit to the next, for each term taken out.

    losses : list of float. With all terms, with fewer, and so on.
    counts : list of int. How many terms there are in each; None: one less each time.
    """
    removed = 1 if counts is None else -np.diff(counts)
    return np.diff(losses) / removed


def largest_gap(losses, errors, granted, criteria, counts=None, fewest=False):
    """Where the next loss rises most, those before being what is granted at least.

    losses, errors : lists of float and of ndarray. With all terms, one less, and so on;
        errors are those of predicting each observation from all others.
    granted : float. See :func:`information_of_a_term`.
    criteria : TermCriteria. How large a gap must be, and when predictions are worse.
    counts : list of int. See :func:`rises_of_terms`.
    fewest : bool. Whether it is the last if no rise is above that, nor errors worse.

    Returns place : int. If no gap is clear, where observations are predicted best.
    """
    rises, highest = rises_of_terms(losses, counts), granted
    place, widest = None, criteria.gap
    for i, rise in enumerate(rises):
        if rise / highest > widest and not is_worse(errors[i], errors[0], criteria):
            place, widest = i, rise / highest
        highest = max(highest, rise)
    if place is None:
        place = int(np.argmin([rms(missed) for missed in errors]))
        suffers = is_worse(errors[-1], errors[place], criteria)
        return len(rises) if fewest and highest == granted and not suffers else place
    return place


def is_worse(errors, others, criteria):
    """Whether errors are larger than others of the same observations."""
    excess = errors**2 - others**2
    least = criteria.significant * np.std(excess) / len(excess) ** 0.5
    return rms(errors) > criteria.worse * rms(others) or np.mean(excess) > least


def _drop_cheapest(problem, table, kept, smaller, fit, criteria):
    """The terms kept if there are fewer, their problem, and a start near a fit.

    One less, or several if there are many that cost little.
    """
    solution, everything = fit.solution, list(range(len(table.groups)))
    values = np.zeros(len(everything))
    values[kept] = table.coefficients(smaller.basis, kept) @ solution.weights
    weights = table.weights(problem.basis, everything, values)
    iterate = problem.iterate(solution.coefficients, weights)
    model = problem.linearise(problem.evaluate(iterate))
    posterior = model.posterior_weights()
    in_terms = posterior.transform(table.coefficients(problem.basis, everything))
    granted = information_of_a_term(problem, fit.loss)
    last, kept = in_terms.without_cheapest(kept, table.removable(kept))
    while len(kept) > criteria.few and table.removable(kept):
        loss, fewer = in_terms.without_cheapest(kept, table.removable(kept))
        if loss > last + granted:
            break
        last, kept = loss, fewer
    kept = in_terms.swap_terms(kept, table.groups)
    best = in_terms.restrict(kept).weights
    smaller = problem.with_basis(table.restricted(problem.basis, kept))
    start = start_with_fewer(model, smaller, table, kept, best)
    return kept, smaller, start


def start_with_fewer(model, smaller, table, kept, values):
    """A start with some terms only, which have the coefficients `values`.

    The states are those of the linearised problem for these, or those that they were.
    """
    weights = table.weights(smaller.basis, kept, values)
    states = model.evaluation.iterate.coefficients
    start = smaller.iterate(states, weights)
    if not table.is_system:
        return start
    everything = np.zeros(len(table.groups))
    everything[kept] = values
    full = table.weights(model.problem.basis, list(range(len(everything))), everything)
    moved = smaller.iterate(model.step_to(full).coefficients, weights)
    return min(start, moved, key=lambda iterate: smaller.evaluate(iterate).loss)

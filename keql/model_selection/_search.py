"""Joint fits, from the start to the last term, with the best kernel and law.

No prior of the states is best for everything. Rough ones let the states follow
whatever the data are, so that the law is right, but leave open what lies between
the points; smoother ones fill the gaps, but their states do not quite meet the law,
which bends instead. A law learned with the one may be held while states are found
with the other.
"""

from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from keql.model_selection._joint_fit import JointFit, with_better_law
from keql.model_selection._state_kernels import GOOD, compare_kernels, warm_start

# Kernels of the states that are tried to the last term while predictions are poor.
FINALISTS = 8
# That is worth being so much surer of the equation if predictions are so much better,
# or better at all with fewer terms.
CLEARLY = 0.75


@dataclass(frozen=True)
class KernelSearch:
    """A joint fit with the prior of its states, and what that was chosen from.

    Parameters
    ----------
    prior : WarmStart
        The prior of the states.
    fit : JointFit
        The fit.
    kernels : list of KernelCandidate
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
            return replace(self, fit=self.fit.interrupted(other.fit.result.stop))
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
    kernels : list of KernelCandidate
        The kernels that were compared.
    priors : iterable of WarmStart
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
        As for :func:`keql.model_selection._state_kernels.compare_kernels`.
    kernels : list of KernelCandidate
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
    priors = (warm_start(each, learn, solve_jointly) for each in kernels)
    best = fit_finalists(kernels, priors, fit, follow, n_restarts)
    if best.followed is not None:
        return best
    solve = solve_jointly
    if free_noise and not best.fit.is_settled:
        less = partial(solve_jointly, equation_noise=best.fit.less_noise)
        kernels = compare_kernels(two_step, learn, less)
        prior = warm_start(kernels[0], learn, less)
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
        prior = warm_start(kernels[0], learn, held)
        to_user = report(prior.two_step)
        found = best.fit.holding(*prior[:3], report=to_user, **settings)
        best = best.or_better(KernelSearch(prior, found, kernels))
    best = replace(best, fit=best.fit.with_residual_dispersion())
    return best.following(follow)


def _with_kernel(two_step, kernel, values=None):
    """Two steps of which only the equation is made use of, with another kernel."""
    return replace(two_step, state_kernel=kernel, states=None)

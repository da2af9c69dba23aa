"""The search for the hypothesis that predicts observations best.

Exact states come first. Where they do not convince, or do not exist, the joint problem
is solved with a state kernel that is chosen along with it. No prior of the states is
best for everything there. Rough ones let the states follow whatever the data are, so
that the equation is right, but leave open what lies between the points; smoother ones
fill the gaps, but their states do not quite meet the equation, which bends instead. An
equation learned with the one may be held while states are found with the other.
"""

from dataclasses import replace
from itertools import islice

import numpy as np

from keql._numerics.optimisation import Stop
from keql.equation import PolynomialBasis, find_terms
from keql.model_selection._beside._given_kernels import search_with_given_kernels
from keql.model_selection._beside._held import with_better_equation, with_equation_of
from keql.model_selection._beside._more_probable import (
    is_told_by_evidence,
    or_more_probable,
)
from keql.model_selection._beside._reduced import exact_states_of
from keql.model_selection._beside._smooth import select_smooth_states
from keql.model_selection._candidates import (
    candidates,
    is_all_open,
    row_of_terms,
    with_known_kernels,
    with_terms_of,
    without_equation_noise,
)
from keql.model_selection._exact_states import ExactSearch
from keql.model_selection._fit import (
    JointFamily,
    fit_jointly,
    refit_states,
)
from keql.model_selection._selection import Selection
from keql.model_selection._starts._annealing import (
    Imposition,
    anneal,
    compare_lengths,
)
from keql.model_selection._state_kernels import (
    KernelCandidate,
    compare_kernels,
    warm_start,
)


def search(two_step, given, context):
    """The best fit of the table of hypotheses.

    two_step : LearnedModel. The two-step solution.
    given : Hypothesis. What the user says.
    context : Context. How problems are solved.

    Returns selection : Selection. The fit, and what it was chosen from.
    """
    setup, variables = two_step.setup, two_step.variables
    given = given.with_listed_terms(setup, variables)
    n_columns = len(setup.unknown_names(variables))
    for terms, equation in zip(setup.equations, two_step.equations, strict=True):
        n_terms = given.of_equation(terms.name).n_terms
        if terms.depends_on is not None and n_terms is not None:
            # Refuse before the long part.
            find_terms(equation.equation_kernel, n_columns, n_terms)
    if not context.settings.reduced:
        return _search(two_step, given, context)
    known = with_known_kernels(given, two_step)
    exact = exact_states_of(two_step, known, context)
    selection = _search(*exact.of_terms(two_step, given, context))
    return exact.beside(selection, context.criteria)


def _search(two_step, given, context):
    """The same, of a hypothesis whose terms are known to be in its kernels."""
    known = with_known_kernels(given, two_step)
    table = candidates(two_step, known, context.settings)
    is_open = given.open_states(two_step.observations.states)
    if not is_open or context.settings.optimizer is None:
        return search_with_given_kernels(two_step, given, table, context)
    exact = without_equation_noise(two_step, known, context.settings)
    return _Search(two_step, table, context, exact).run()


class _Search:
    """The order in which hypotheses are tried, and when nothing else is."""

    def __init__(self, two_step, table, context, for_terms=None):
        self.two_step, self.context = two_step, context
        self.criteria, self.table = context.criteria, table
        # Exact states beside given noise of the equations say which terms there are.
        self.for_terms = for_terms is not None
        self.exact = ExactSearch(two_step, for_terms or table, context)
        self.so_far = None  # the best Selection until now
        self.from_terms = {}  # errors of joint fits, and exact states from there

    def run(self):
        """The selection."""
        exact = self.exact.run()
        enough = exact is not None and self.exact.is_enough(exact)
        if enough and not self.for_terms:
            left = self.table.at_collocation_points
            self.exact.leave_out(left, "exact states predict well enough")
            selection = Selection(exact=exact)
        else:
            selection = self._joint_or_stopped(exact)
        return replace(
            selection,
            not_tried=self.exact.not_tried,
            integrable=not self.exact.table.exact.why_not,
            criteria=self.criteria,
        )

    def _joint_or_stopped(self, exact):
        """The same, or the exact states so far if it is interrupted."""
        try:
            return (self._beside_noise if self.for_terms else self._joint)(exact)
        except KeyboardInterrupt:
            if self.so_far is not None:
                return self.so_far.or_exact(exact).stopped()
            if exact is None:
                raise
            return Selection(exact=exact).stopped()

    def _joint(self, exact):
        """The joint fit with the best kernels, or exact states if it promises less."""
        if self.two_step.setup.is_system:
            return self._joint_system(exact)
        if exact is not None and self.exact.is_in_plane:
            row = row_of_terms(exact, self.table, *self.exact.known)
            if row is not None:
                best = replace(self._with_terms_of(exact, row), integrated=exact)
                return self._or_exact_equation(best, exact).or_exact(exact)
        first, cubic, varying = self.table.at_collocation_points
        if self.context.near is not None:  # with the states the terms are known
            return self._with_known_terms(first.hypothesis)
        smooth = self._smooth()
        if smooth is not None:
            return smooth
        self.exact.begin(first.hypothesis)
        family = JointFamily(self.two_step, first.hypothesis, self.context)
        kernels = compare_kernels(family)
        if not cubic.why_not and self.exact.in_doubt(kernels[0].error):
            other = JointFamily(
                self.exact.two_steps(cubic.hypothesis), cubic.hypothesis, self.context
            )
            others = compare_kernels(other)
            better = others[0].error < self.criteria.clearly_better * kernels[0].error
            if better and not self.exact.in_doubt(others[0].error):
                family, kernels = other, others
        if self._is_beaten(kernels[0], exact):
            return Selection(exact=exact)
        self.so_far = best = self._with_best_kernel(family, kernels)
        rows = [cubic]
        if cubic.why_not or family.hypothesis is not first.hypothesis:
            rows = []
        if self._is_told_by_evidence(best):
            self.so_far = best = self._or_more_probable(best, *rows)
        elif rows:
            self.so_far = best = self._or_cubic(best, cubic)
        if not varying.why_not:
            best = self._or_varying(best, varying)
        factor = 1.0
        if best.exact is None and self.exact.explains_more(exact, best.joint):
            factor = 1 / self.criteria.clearly_better
        return best.or_exact(exact, factor)

    def _is_beaten(self, candidate, exact):
        """Whether exact states predict better than joint fits with a kernel may."""
        if exact is None or self.exact.in_doubt(exact.error):
            return False
        is_beaten = candidate.error > self.criteria.clearly_better * exact.error
        if is_beaten:
            left = self.table.at_collocation_points
            self.exact.leave_out(left, "exact states predict better")
        return is_beaten

    def _smooth(self):
        """A selection of smooth states of exact data, if they cannot be exact; or None.

        Where kernels, noise levels and terms are all to be found. Where slopes are
        observed in time, and where a solver is given, states could be exact.
        """
        is_exact = not (self.exact.sees_noise or self.for_terms)
        is_single = len(self.two_step.observations.states) == 1
        is_tried = self.exact.table.exact.why_not and is_exact and is_single
        has_slopes = any(own.order for own in self.two_step.observations.operators)
        is_along = has_slopes and self.exact.is_in_time
        can_be_exact = is_along or self.context.settings.solver != "auto"
        is_open = is_all_open(self.two_step, self.table.first.hypothesis)
        if can_be_exact or not (is_tried and is_open):
            return None
        return select_smooth_states(self.exact, self.context)

    def _beside_noise(self, exact):
        """The joint fit with given noise of the equations of fields.

        It has the terms of exact states, if these predict within the noise of the
        observations: how much the loss rises without a term says little where equations
        may be missed, and the evidence of equations at collocation points finds more
        terms there. Exact states are taken if they predict clearly better: then the
        noise of the equations is smaller than what is given.
        """
        row = exact and row_of_terms(exact, self.table, *self.exact.known)
        best = self._with_terms_of(exact, row) if row else self._joint(None)
        best = best.with_rivals_of(exact)
        return best.or_exact(exact, self.criteria.clearly_better)

    def _with_terms_of(self, exact, row):
        """The joint fit with the terms of exact states, which have no others.

        With two coordinates of space a grid is coarse, and nothing but initial and
        boundary values has a prior: evidence tells terms there. A smooth state that
        meets the equation at collocation points predicts better where there are few
        observations, but with terms to choose from it bends to superfluous ones.
        """
        left = self.table.at_collocation_points
        self.exact.leave_out(left, "the terms are those of exact states")
        best = self._with_known_terms(with_terms_of(exact, row.hypothesis))
        joint = replace(best.joint, terms_path=exact.terms_path)
        return replace(best, joint=joint)

    def _or_exact_equation(self, best, exact):
        """A selection in a plane, or its states with the equation of exact states held.

        If there is noise, and they predict better. The smooth prior of joint fits
        counts as knowledge of the equation: coefficients of 12 equations seen with
        noise of 2 % were 2.2 of their standard errors away from the truth, root mean
        square, beside 1.5 of those of exact states. Exact data it meets better.
        """
        is_exact = best.joint.noise_part <= self.context.criteria.bent_if_exact
        if best.joint.result.interrupted or is_exact:
            return best
        held = with_equation_of(best.joint, exact, self.context)
        return best.or_better(replace(best, joint=held))

    def _with_known_terms(self, hypothesis):
        """The joint fit of a hypothesis without superfluous terms."""
        family = JointFamily(self.exact.two_steps(hypothesis), hypothesis, self.context)
        kernels = compare_kernels(family)
        start = warm_start(kernels[0], family)
        joint = fit_jointly(family, *start[:3])
        joint = joint.with_residual_dispersion(self.criteria)
        return Selection(joint, None, start.error, kernels)

    def _joint_system(self, exact):
        """The joint fit of several equations, imposed more and more strictly.

        Cubic equations are taken if they predict clearly better, where quadratic ones
        do not predict within the noise; and state kernels are compared as for a single
        equation where predictions are poor.
        """
        first, cubic, varying = self.table.at_collocation_points
        self.exact.leave_out([varying], "it is tried for single equations only")
        family, start = self._imposed(first.hypothesis)
        other = None
        if not cubic.why_not and not self.exact.convinces(start):
            other = self._imposed(cubic.hypothesis)
            if self._is_clearly_better(other[1], start):
                (family, start), other = other, None
        elif not cubic.why_not:
            self.exact.leave_out([cubic], "the lower degree predicts well")
        self.exact.begin(family.hypothesis)
        kernels = self.exact.once(compare_lengths, family, start)
        if other is not None and not self.exact.convinces(kernels[0]):
            others = self.exact.once(compare_lengths, *other)
            if self._is_clearly_better(others[0], kernels[0]):
                family, kernels = other[0], others
        if self.exact.calls_for_kernels(kernels[0]):
            compared = self.exact.once(compare_kernels, family)
            kernels = min(kernels, compared, key=lambda k: k[0].error)
        if self._is_beaten(kernels[0], exact):
            return Selection(exact=exact)
        start = warm_start(kernels[0], family)
        poor = self.exact.in_doubt(start.error) and not self.exact.convinces(kernels[0])
        n_restarts = self.context.settings.n_restarts if poor else 0
        if n_restarts:
            fit = fit_jointly(family, *start[:3], n_restarts)
        else:
            fit = self.exact.joint_with_terms(family, kernels[0])
        self.so_far = best = Selection(fit, None, start.error, kernels)
        names = [t.name for t in self.two_step.setup.equations if t.depends_on]
        noise = family.hypothesis.equation_noise  # None: exact states are the limit
        is_open = noise is not None and family.hypothesis.open_equations(names)
        if is_open and self._is_worth_more(best):
            best, _ = self._or_less_noise(family, best)
        if self._is_told_by_evidence(best):
            best = self._or_more_probable(best)
        return best.or_exact(exact)

    def _is_told_by_evidence(self, best):
        return best.exact is None and is_told_by_evidence(best.joint, self.exact)

    def _or_more_probable(self, best, *rows):
        """A selection whose terms are told by evidence, or one with others."""
        return or_more_probable(best, self.exact, [row.hypothesis for row in rows])

    def _imposed(self, hypothesis):
        """The joint problems of a hypothesis, and their solution with a first kernel.

        The length scales of that are not compared with others yet: where the degree is
        too low, none predict well.
        """
        family = JointFamily(self.exact.two_steps(hypothesis), hypothesis, self.context)
        return family, self.exact.once(Imposition, family).candidate

    def _is_clearly_better(self, candidate, other):
        return candidate.error < self.criteria.clearly_better * other.error

    def _or_cubic(self, best, row):
        """A selection, or one with a cubic equation if that is better.

        It starts from the states of the fit, with their kernel, and is taken if it
        predicts clearly better, or no worse with fewer terms. One that predicts about
        as well is kept beside it.
        """
        fit, clearly = best.joint, self.criteria.clearly_better
        if fit.result.interrupted or best.exact is not None:
            self.exact.leave_out([row], "exact states predict better")
            return best
        two_step = self.exact.two_steps(row.hypothesis)
        family = JointFamily(two_step, row.hypothesis, self.context)
        kernel, values = fit.two_step.state_kernel, fit.result.solution.values
        other = fit_jointly(family, *family.at(kernel, values))
        if other.result.interrupted:
            return replace(best, joint=fit.stopped(other.result.stop))
        fewer = other.n_weights < fit.n_weights
        if other.error < (1.0 if fewer else clearly) * fit.error:
            fit, other = other.with_residual_dispersion(self.criteria), fit
        if clearly * other.error < fit.error:
            best = replace(best, alternative=other)
        return replace(best, joint=fit)

    def _or_varying(self, best, row):
        """A selection, or one with varying coefficients if it is clearly better."""
        fit, clearly = best.joint, self.criteria.clearly_better
        hopeless = fit.result.interrupted or fit.is_noise_limited(self.criteria)
        if hopeless or best.exact is not None:
            self.exact.leave_out([row], "nothing would be seen to predict better")
            return best
        family = JointFamily(
            self.exact.two_steps(row.hypothesis), row.hypothesis, self.context
        )
        kernels = compare_kernels(family)
        if kernels[0].error < clearly * best.error:
            best = best.or_better(self._with_best_kernel(family, kernels), clearly)
        return best

    def _with_best_kernel(self, family, kernels):
        """The joint fit with a kernel of the states that is not given.

        It is the one that predicts observations best with all terms; with the level of
        noise of the equation that does, if that is free; or that of the two steps, if
        it predicts clearly better. Then states are found again with the equation that
        was found, or with a better one. If exact states predict clearly better from
        the first, nothing else is tried.
        """
        self.exact.begin(family.hypothesis)
        best = self._finalist(family, kernels)
        if best.exact is not None:
            return best
        noise = None
        try:
            if family.hypothesis.equation_noise is None and self._is_worth_more(best):
                best, noise = self._or_less_noise(family, best)
            if self._is_worth_more(best):
                own = replace(family, equation_noise=noise)
                best = self._or_kernel_of_two_steps(own, best)
            if self._is_worth_more(best):
                best = self._or_held_equation(family, best)
            joint = best.joint.with_residual_dispersion(self.criteria)
            best = replace(best, joint=joint)
            exact = self._exact_from(family, best.joint)
            return best.or_exact(
                exact, max(1.0, self.exact.factor_beside(exact, best.joint))
            )
        except KeyboardInterrupt:
            return replace(best, joint=best.joint.stopped(Stop.KEYBOARD))

    def _is_worth_more(self, selection):
        return not selection.joint.needs_no_refinement(self.criteria)

    def _finalist(self, family, kernels):
        """The fit with the best kernel; if it is a poor one, with the best of some.

        Kernels are compared with all terms in the equation. Where observations are few
        these are too many, and what predicts best then may not do so any more when
        superfluous ones are gone, or when states are exact. The first fit that is not
        poor is taken, or the first one, unless another one is clearly better.
        """
        clearly, tried = self.criteria.clearly_better, []
        for kernel in islice(kernels, self.criteria.n_finalists):
            start = warm_start(kernel, family)
            n_restarts = 0 if tried else self.context.settings.n_restarts
            fit = fit_jointly(family, *start[:3], n_restarts)
            selection = Selection(fit, None, start.error, kernels)
            if fit.result.interrupted:
                return tried[0].or_better(selection) if tried else selection
            if self.so_far is None or selection.error < self.so_far.error:
                self.so_far = selection
            exact = self._exact_from(family, fit)
            selection = selection.or_exact(exact, self.exact.factor_beside(exact, fit))
            poor = self.exact.in_doubt(selection.error)
            if fit.is_noise_limited(self.criteria) or not poor:
                return selection
            tried.append(selection)
        best = min(tried, key=lambda selection: selection.error)
        return tried[0].or_better(best, clearly)

    def _exact_from(self, family, fit):
        """Exact states from those of a joint fit of a polynomial, or None.

        They are not looked for again from a joint fit with equal terms that predicts no
        clearly better than one which has led to some, or to none where joint fits with
        all terms did not.
        """
        if self.for_terms:
            return None
        equations = fit.learned.equations
        if not all(isinstance(e.basis, PolynomialBasis) for e in equations):
            return self.exact.from_joint_fit(family, fit)
        terms = family.hypothesis.name, frozenset(fit.term_names)
        error, exact = self.from_terms.get(terms, (np.inf, None))
        is_known = exact is not None or self.exact.joint_failed
        if is_known and fit.error > self.criteria.clearly_better * error:
            return exact
        exact = self.exact.from_joint_fit(family, fit)
        self.from_terms[terms] = fit.error, exact
        return exact

    def _or_less_noise(self, family, best):
        """A selection, or one with less noise of the equation; and a level to keep.

        Less noise is worth being surer of the equation if predictions are clearly
        better, or better at all with fewer terms; a level that does not matter need not
        be the worse one.
        """
        level = best.joint.lower_equation_noise(self.criteria)
        less = replace(family, equation_noise=level)
        is_system = self.two_step.setup.is_system
        if is_system:
            kernels = anneal(less)
        else:
            kernels = compare_kernels(less, near=best.kernels)
        start = warm_start(kernels[0], less)
        fit = fit_jointly(less, *start[:3])
        factor = self.criteria.clearly_better
        if fit.n_weights < best.joint.n_weights:
            factor = 1.0
        inactive = best.joint.noise_is_inactive(self.criteria)
        if inactive:
            factor = 1 / self.criteria.clearly_better
        other = Selection(fit, None, start.error, kernels)
        best = best.or_better(other, factor)
        return best, level if inactive and best is other else None

    def _or_kernel_of_two_steps(self, family, best):
        """A selection, or one with the state kernel of the two steps; its equation.

        The equation of the other fit is held if states then predict better.
        """
        fit = fit_jointly(family, family.two_step, *family.problem_of(family.two_step))
        result = fit.result
        own = KernelCandidate(
            fit.two_step.state_kernel,
            result.solution,
            fit.left_out_errors,
            result.loss,
        )
        other = Selection(fit, None, fit.error, [own, *best.kernels])
        best = best.or_better(other, self.criteria.clearly_better)
        if best.joint is fit:
            return best
        return replace(best, joint=with_better_equation(best.joint, fit, self.context))

    def _or_held_equation(self, family, best):
        """A selection, or other states with its equation held.

        What is known of an equation is not so exact that it should be met more closely
        than at its own level of noise.
        """
        fit = best.joint
        given = fit.two_step, family.hypothesis, self.context
        held = JointFamily(*given, unknown_part=fit.unknown_part(self.criteria))
        kernels = compare_kernels(held, fit.result.solution.values)
        start = warm_start(kernels[0], held)
        states = refit_states(fit, *start[:3], self.context)
        return best.or_better(Selection(states, None, start.error, kernels))

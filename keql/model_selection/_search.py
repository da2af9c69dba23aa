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

from keql._observations.data import PredictionScale, noise_range
from keql._regression.two_step import refit_two_steps
from keql.equation import find_terms
from keql.model_selection._annealing import (
    anneal,
    compare_lengths,
    impose_gradually,
)
from keql.model_selection._candidates import candidates
from keql.model_selection._evolution_terms import (
    fit_exact_states,
    predicts_within_noise,
)
from keql.model_selection._fit import (
    JointFamily,
    Selection,
    fit_jointly,
    refit_states,
    with_better_equation,
)
from keql.model_selection._from_diffusion import or_from_diffusion
from keql.model_selection._state_kernels import (
    KernelCandidate,
    compare_kernels,
    warm_start,
)
from keql.model_selection._trajectory_terms import (
    TrajectorySearchSettings,
    fit_trajectories,
)


def fit_hypothesis(hypothesis, two_step, context, learned=None):
    """The fit of one hypothesis whose kernels are given, or are those of two steps.

    hypothesis : Hypothesis. What is supposed.
    two_step : LearnedModel. The two-step solution with its equation kernel.
    context : Context. How problems are solved.
    learned : LearnedModel, default=None. States and equation to start exact states
        from; None: those of two steps.

    Returns fit : Fit or None. None if states cannot obey the equation exactly.
    """
    if hypothesis.constraint == "integration":
        return fit_exact_states(two_step, learned or two_step, hypothesis, context)
    family = JointFamily(two_step, hypothesis, context)
    return fit_jointly(
        family, two_step, *family.problem_of(two_step), context.settings.n_restarts
    )


def search(two_step, given, context):
    """The best fit of the table of hypotheses.

    two_step : LearnedModel. The two-step solution.
    given : Hypothesis. What the user says.
    context : Context. How problems are solved.

    Returns selection : Selection. The fit, and what it was chosen from.
    """
    if given.n_terms is not None:  # refuse before the long part
        for terms, equation in zip(
            two_step.setup.equations, two_step.equations, strict=True
        ):
            n_terms = given.of_equation(terms.name).n_terms
            if terms.depends_on is not None and n_terms is not None:
                names = two_step.setup.unknown_names(two_step.variables)
                find_terms(equation.equation_kernel, len(names), n_terms)
    table = candidates(two_step, given, context.settings)
    is_open = given.open_states(two_step.observations.states)
    if not is_open or context.settings.optimizer is None:
        return Selection(fit_hypothesis(given, two_step, context))
    return _Search(two_step, table, context).run()


class _Search:
    """The order in which hypotheses are tried, and when nothing else is."""

    def __init__(self, two_step, table, context):
        self.two_step, self.context = two_step, context
        self.criteria = context.criteria
        self.size = PredictionScale(two_step.observations).size
        self.table, self.agreed = table, False
        self.not_tried = [
            (row.hypothesis.name, row.why_not) for row in table if row.why_not
        ]

    def run(self):
        """The selection."""
        by_terms = self._is_in_time or self._is_of_fields
        exact = self._trajectories() if by_terms else self._exact_states()
        if exact is not None and self._is_enough(exact):
            self._leave_out(self.table[2:5], "exact states predict well enough")
            selection = Selection(exact=exact)
        else:
            selection = self._joint(exact)
        return replace(selection, not_tried=self.not_tried, criteria=self.criteria)

    def _is_enough(self, exact):
        """Whether nothing else is tried beside exact states."""
        if exact.result.interrupted or (self._is_of_fields and self.agreed):
            return True
        if self._is_in_time or self._is_of_fields:
            return self._misses_nothing(exact)
        return predicts_within_noise(exact, self.two_step, self.criteria)

    def _leave_out(self, rows, reason):
        names = dict(self.not_tried)
        for row in rows:
            if row.hypothesis.name not in names:
                self.not_tried.append((row.hypothesis.name, reason))

    def _in_doubt(self, error):
        """Whether an equation that predicts so poorly may be another one."""
        return error >= self.criteria.predicts_well * self.size

    def _two_steps(self, hypothesis):
        """The two-step solution with the equation kernel of a hypothesis."""
        if hypothesis.equation_kernel is self.table[0].hypothesis.equation_kernel:
            return self.two_step
        kernel, settings = self.two_step.state_kernel, self.context.settings
        return refit_two_steps(self.two_step, hypothesis, settings, kernel)

    # --- exact states ---------------------------------------------------------------

    @property
    def _is_in_time(self):
        """Whether equations are ordinary differential equations."""
        return len(self.two_step.variables) == 1

    @property
    def _is_of_fields(self):
        """Whether they are several equations in space and time."""
        return self.two_step.setup.is_system and not self._is_in_time

    def _trajectories(self):
        """Exact trajectories with quadratic, or cubic equations if they are better.

        From the states of two steps; then from those that the equations at collocation
        points lead to, these imposed more and more strictly; then, for systems, from
        those of compared kernels, which are tried for single equations anyway.
        """
        rows = [row.hypothesis for row in self.table[:2] if not row.why_not]
        wider = [row.hypothesis for row in self.table[5:] if not row.why_not]
        pairs = zip(self.table[:2], self.table[2:4], strict=True)
        joint = [a.hypothesis for a, b in pairs if not (a.why_not or b.why_not)]
        if self._is_of_fields and len(rows) > 1 and rows[0].n_terms is not None:
            self._leave_out(self.table[:1], "its terms are among the cubic ones")
            rows, joint = rows[1:], joint[1:]
        starts, best = [(None, [*rows, *wider]), (anneal, joint)], None
        starts += [(compare_kernels, joint)] if self.two_step.setup.is_system else []
        for find_kernels, tried in starts:
            before = best
            for hypothesis in tried:
                fit = self._trajectories_from(find_kernels, hypothesis)
                clearly = 1.0 if best is None else self.criteria.clearly_better
                if fit is not None and (
                    best is None or fit.error < clearly * best.error
                ):
                    best = fit
                if best is not None and best.result.interrupted:
                    return best
                if best is not None and self._misses_nothing(best):
                    return self._or_more_terms(best, rows, wider)
                if before is not None and self._agree(fit, before):
                    self.agreed = True
                    return before
        return best

    def _agree(self, fit, other):
        """Whether trajectories from another start are those that predict well."""
        doubts = fit is None or self._in_doubt(other.error)
        if doubts or {*fit.term_names} != {*other.term_names}:
            return False
        return abs(fit.error - other.error) < self.criteria.agreement * other.error

    def _or_more_terms(self, fit, rows, wider):
        """Trajectories that predict as well as noise allows, or others with more terms.

        By their evidence: errors of prediction hardly tell terms within the noise. The
        wider hypotheses are less probable before data are seen.
        """
        names = [row.name for row in (*rows, *wider)]
        place = names.index(fit.hypothesis.name)
        for row in rows[place + 1 :]:
            if row.n_terms is None or fit.result.interrupted:
                return fit
            two_step = self._two_steps(row)
            fit = fit_trajectories(two_step, row, self.context, simpler=fit) or fit
        last = place == len(names) - 1
        if last or not wider or not self._sees_noise or fit.result.interrupted:
            return fit
        two_step, few = self._two_steps(wider[-1]), TrajectorySearchSettings(n_tried=2)
        other = fit_trajectories(two_step, wider[-1], self.context, few, simpler=fit)
        if other is None:
            return fit
        return fit.or_more_probable(other, self.criteria.wider)

    def _trajectories_from(self, find_kernels, hypothesis):
        """Exact trajectories from two steps, or from a joint fit with all terms."""
        two_step = self._two_steps(hypothesis)
        if find_kernels is None:
            return fit_trajectories(two_step, hypothesis, self.context)
        everything = replace(hypothesis, n_terms=None)
        family = JointFamily(two_step, everything, self.context)
        kernels = find_kernels(family)
        fit = fit_jointly(family, *warm_start(kernels[0], family)[:3])
        if fit.result.interrupted:
            return None
        return fit_trajectories(fit.learned, hypothesis, self.context)

    def _convinces(self, fit):
        """Whether nothing that predicts better than a fit is to be looked for."""
        scale = PredictionScale(self.two_step.observations)
        limit = self.criteria.exact_noise * scale.noise(self.two_step.observation_noise)
        return fit.error < min(limit, self.criteria.explains * scale.spread)

    def _misses_nothing(self, fit):
        """The same of trajectories; to more digits than interpolation if exact."""
        if self._is_of_fields:
            own = fit.problem.prior.noise
            return predicts_within_noise(fit, self.two_step, self.criteria, own)
        if self._sees_noise:
            return self._convinces(fit)
        return fit.error < self.criteria.nothing_missed * self.size

    @property
    def _sees_noise(self):
        """Whether two steps find more noise than they take exact data to have."""
        lowest, _ = noise_range(self.two_step.observations.sizes())
        return bool(np.any(self.two_step.observation_noise > 2 * lowest))

    def _exact_states(self):
        """Exact states with a quadratic, or a cubic equation if clearly better."""
        first, cubic = self.table[:2]
        if first.why_not:
            return None
        best = self._exact_from_anywhere(first.hypothesis)
        if best is None or cubic.why_not:
            return best
        if not self._in_doubt(best.error) or best.result.interrupted:
            self._leave_out([cubic], "the lower degree predicts well")
            return best
        other = self._exact_from_anywhere(cubic.hypothesis)
        clearly = self.criteria.clearly_better
        better = other is not None and other.error < clearly * best.error
        return other if better else best

    def _exact_from_anywhere(self, hypothesis):
        """Exact states from those of two steps, or from a diffusion if that is poor."""
        two_step = self._two_steps(hypothesis)
        best = fit_hypothesis(hypothesis, two_step, self.context)
        given = self.two_step, self.criteria
        if best is not None and predicts_within_noise(best, *given):
            return best
        return or_from_diffusion(best, two_step, hypothesis, self.context)

    # --- the equation at collocation points -----------------------------------------

    def _joint(self, exact):
        """The joint fit with the best kernels, or exact states if it promises less."""
        if self.two_step.setup.is_system:
            return self._joint_system().or_exact(exact)
        _, _, first, cubic, varying = self.table[:5]
        family = JointFamily(self.two_step, first.hypothesis, self.context)
        kernels = compare_kernels(family)
        if not cubic.why_not and self._in_doubt(kernels[0].error):
            other = JointFamily(
                self._two_steps(cubic.hypothesis), cubic.hypothesis, self.context
            )
            others = compare_kernels(other)
            better = others[0].error < self.criteria.clearly_better * kernels[0].error
            if better and not self._in_doubt(others[0].error):
                family, kernels = other, others
        elif not cubic.why_not:
            self._leave_out([cubic], "the lower degree predicts well")
        if exact is not None and not self._in_doubt(exact.error):
            if kernels[0].error > self.criteria.clearly_better * exact.error:
                self._leave_out([first, cubic, varying], "exact states predict better")
                return Selection(exact=exact)
        best = self._with_best_kernel(family, kernels)
        if not varying.why_not:
            best = self._or_varying(best, varying)
        return best.or_exact(exact)

    def _joint_system(self):
        """The joint fit of several equations, imposed more and more strictly.

        Cubic equations are taken if they predict clearly better, where quadratic ones
        do not predict within the noise; and state kernels are compared as for a single
        equation where predictions are poor.
        """
        _, _, first, cubic, varying = self.table[:5]
        self._leave_out([varying], "it is tried for single equations only")
        family, start = self._imposed(first.hypothesis)
        other = None
        if not cubic.why_not and not self._convinces(start):
            other = self._imposed(cubic.hypothesis)
            if self._is_clearly_better(other[1], start):
                family, start, other = *other, None
        elif not cubic.why_not:
            self._leave_out([cubic], "the lower degree predicts well")
        kernels = compare_lengths(family, start)
        if other is not None and not self._convinces(kernels[0]):
            others = compare_lengths(*other)
            if self._is_clearly_better(others[0], kernels[0]):
                family, kernels = other[0], others
        if self._in_doubt(kernels[0].error) and not self._convinces(kernels[0]):
            kernels = min(kernels, compare_kernels(family), key=lambda k: k[0].error)
        start = warm_start(kernels[0], family)
        poor = self._in_doubt(start.error) and not self._convinces(kernels[0])
        n_restarts = self.context.settings.n_restarts if poor else 0
        fit = fit_jointly(family, *start[:3], n_restarts)
        best = Selection(fit, None, start.error, kernels)
        if family.hypothesis.equation_noise is None:  # exact states are the limit
            return best
        names = [t.name for t in self.two_step.setup.equations if t.depends_on]
        if family.hypothesis.open_equations(names) and self._is_worth_more(best):
            best, _ = self._or_less_noise(family, best)
        return best

    def _imposed(self, hypothesis):
        """The joint problems of a hypothesis, and a solution with a first kernel."""
        family = JointFamily(self._two_steps(hypothesis), hypothesis, self.context)
        return family, impose_gradually(family)

    def _is_clearly_better(self, candidate, other):
        return candidate.error < self.criteria.clearly_better * other.error

    def _or_varying(self, best, row):
        """A selection, or one with varying coefficients if it is clearly better."""
        fit, clearly = best.joint, self.criteria.clearly_better
        hopeless = fit.result.interrupted or fit.is_noise_limited(self.criteria)
        if hopeless or best.exact is not None:
            self._leave_out([row], "nothing would be seen to predict better")
            return best
        family = JointFamily(
            self._two_steps(row.hypothesis), row.hypothesis, self.context
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
        best = self._finalist(family, kernels)
        if best.exact is not None:
            return best
        noise = None
        if family.hypothesis.equation_noise is None and self._is_worth_more(best):
            best, noise = self._or_less_noise(family, best)
        if self._is_worth_more(best):
            best = self._or_kernel_of_two_steps(
                replace(family, equation_noise=noise), best
            )
        if self._is_worth_more(best):
            best = self._or_held_equation(family, best)
        best = replace(best, joint=best.joint.with_residual_dispersion(self.criteria))
        factor = 1.0 if not self._is_in_time else self._factor_of_exact
        return best.or_exact(self._exact_from(family, best.joint), factor)

    @property
    def _factor_of_exact(self):
        """Factor of the error of a joint fit up to which exact states are taken.

        Trajectories unless the joint fit predicts clearly better: they say more of the
        states. On a grid, exact states that are clearly better, as nothing else is
        tried then.
        """
        clearly = self.criteria.clearly_better
        return 1 / clearly if self._is_in_time else clearly

    def _is_worth_more(self, selection):
        return not selection.joint.needs_no_refinement(self.criteria)

    def _exact_from(self, family, fit):
        """Exact states from those of a joint fit; None if there are none."""
        exact = self.table[0]
        if exact.why_not or fit.result.interrupted:
            return None
        if self._is_in_time:
            return fit_trajectories(fit.learned, family.hypothesis, self.context)
        hypothesis = replace(
            family.hypothesis,
            constraint="integration",
            name=f"exact states, {family.hypothesis.name}",
        )
        return fit_hypothesis(hypothesis, family.two_step, self.context, fit.learned)

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
            exact = self._exact_from(family, fit)
            selection = selection.or_exact(exact, self._factor_of_exact)
            poor = self._in_doubt(selection.error)
            if fit.is_noise_limited(self.criteria) or not poor:
                return selection
            tried.append(selection)
        best = min(tried, key=lambda selection: selection.error)
        return tried[0].or_better(best, clearly)

    def _or_less_noise(self, family, best):
        """A selection, or one with less noise of the equation; and a level to keep.

        Less noise is worth being surer of the equation if predictions are clearly
        better, or better at all with fewer terms; a level that does not matter need not
        be the worse one.
        """
        level = best.joint.lower_equation_noise(self.criteria)
        less = replace(family, equation_noise=level)
        is_system = self.two_step.setup.is_system
        kernels = anneal(less) if is_system else compare_kernels(less)
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
        held = JointFamily(
            fit.two_step,
            family.hypothesis,
            self.context,
            unknown_part=fit.unknown_part(self.criteria),
        )
        kernels = compare_kernels(held, fit.result.solution.values)
        start = warm_start(kernels[0], held)
        states = refit_states(fit, *start[:3], self.context)
        return best.or_better(Selection(states, None, start.error, kernels))

"""The search among hypotheses whose states obey the equation exactly."""

from dataclasses import replace
from functools import partial

import numpy as np

from keql._numerics.optimisation import Stop, or_stopped
from keql._observations.data import PredictionScale
from keql.model_selection._criteria import (
    agree,
    are_many,
    few_terms_meet,
    meets_data,
    misses_at_random,
    predicts_within_noise,
    sees_noise,
)
from keql.model_selection._exact_fit import (
    fit_hypothesis,
    or_followed,
    unresolved_change,
)
from keql.model_selection._starts._annealing import compare_lengths
from keql.model_selection._starts._from_diffusion import (
    fit_from_wave,
    from_simpler,
    leads_nowhere,
    or_from_diffusion,
    or_more_terms,
    or_polynomial,
    or_simpler,
)
from keql.model_selection._terms._functions import fit_functions_along, offers_cubics
from keql.model_selection._terms._settings import TermSearchSettings
from keql.model_selection._terms._trajectories import fit_trajectories
from keql.model_selection._trajectory_search import TrajectorySearch


class ExactSearch(TrajectorySearch):
    """The order in which exact states are tried, and when nothing else is.

    direct, spread : dict. By name of hypothesis, two steps and the Fit from there, or
        None; and the Fit from there or from a diffusion, or None.
    wave : Fit or None. Exact states of a single travelling wave, if data are of one.
    spreads : bool. Whether a diffusion has led to better states, or may.
    varies : bool. Whether coefficients that vary meet data that others miss.
    joint_failed : bool. Whether states of joint fits with all terms led to none that
        meet exact data.
    """

    def __init__(self, two_step, table, context):
        super().__init__(two_step, table, context)
        self.direct, self.spread, self.wave = {}, {}, None
        self.spreads, self.varies, self.joint_failed = True, False, False

    def run(self):
        """The best fit with exact states, or None."""
        try:
            if self.is_in_time:
                return self._or_driven(self._trajectories())
            return self._trajectories() if self.is_of_fields else self._exact_states()
        except KeyboardInterrupt:
            if self.so_far is None:
                raise
            return self.so_far.stopped(Stop.KEYBOARD)

    def is_enough(self, exact):
        """Whether nothing else is tried beside exact states."""
        if exact.result.interrupted or exact is self.wave:
            return True
        if self.is_in_time:
            noise = self.agreed and self.sees_noise
            noise = noise and misses_at_random(exact, self.criteria)
            return noise or self._misses_nothing(exact)
        if self.is_of_fields:
            return self.agreed or self._misses_nothing(exact)
        return not self.is_in_plane and predicts_within_noise(exact, *self.known)

    def factor_beside(self, exact, joint):
        """Factor of the error of a joint fit up to which exact states are taken.

        Trajectories unless the joint fit predicts clearly better: they say more of the
        states. On a grid so are states with its terms if they are enough to try nothing
        else, or any that meet exact data; with others these have to predict better, and
        all the rest clearly, unless they explain noisy data with fewer terms.
        """
        clearly = self.criteria.clearly_better
        if self.is_in_time:
            return 1 / clearly
        if exact is None or not self.is_enough(exact):
            return 1 / clearly if self.explains_more(exact, joint) else clearly
        if {*exact.term_names} != {*joint.term_names}:
            return 1.0
        is_met = not self.sees_noise and meets_data(exact, *self.known)
        return np.inf if is_met else 1 / clearly

    def explains_more(self, exact, joint):
        """Whether exact states in space, or None, explain noisy data with fewer terms.

        They miss observations by no more than the joint fit errs where it predicts one
        from all others. That has its kernels and terms from such errors, and is not as
        good as they say: of a plate seen with noise of 2 % they were 15 % lower with
        nine terms than with the true one, and its states 1.7 times as far off.
        """
        if exact is None or self.is_in_time or not self.sees_noise:
            return False
        noise = PredictionScale(exact.observations).noise(exact.problem.prior.noise)
        return noise <= joint.error and exact.n_weights < joint.n_weights

    def _exact_states(self):
        """Exact states with a quadratic equation, or a wider one if clearly better."""
        first, cubic = self.table.exact_polynomials
        wider, varying = self.table.in_coordinates, self.table.exact_varying
        if first.why_not:
            return None
        given = self.two_steps(first.hypothesis), first.hypothesis, self.context
        self.wave = fit_from_wave(*given)
        if self.wave is not None:
            many = "many equations have a single travelling wave"
            self.leave_out([cubic, wider, varying], many)
            return self.wave
        best = self._exact_from_two_steps(first, cubic, wider)
        if self.varies:
            return best
        if best is None:
            best = self._exact_from_anywhere(first.hypothesis)
            again = self._is_found_again(best, first, cubic)
            if best and not (cubic.why_not or again or self.is_in_plane):
                best = self._or_wider(best, cubic)
        for row in (cubic, wider):
            if best and not row.why_not:
                best = self._or_more_products(best, row.hypothesis)
        if are_many(self.two_step, self.context):
            self.leave_out([varying], "there are many functions")
        elif not varying.why_not:
            best = self._or_wider(best, varying)
        return self._or_functions(best)

    def _from_joint_fits(self):
        """Exact states that leave but noise, from joint fits with all terms; or None.

        Derivatives in space that observations alone suggest may be too poor to tell
        terms by, those of a high order above all.
        """
        joint = self._joint_degrees
        for hypothesis in self._by_degree(joint) if len(joint) > 1 else joint:
            if self.in_doubt(self._with_all_terms(hypothesis)[1][0].error):
                continue
            fit = self._trajectories_from(compare_lengths, hypothesis, None)
            if fit is not None and fit.result.interrupted:
                return self.so_far.stopped(fit.result.stop) if self.so_far else fit
            if fit is not None and self._misses_nothing(fit):
                fit = self._with_terms_near(fit, joint[-1])
                if fit.result.interrupted or not unresolved_change(fit, self.criteria):
                    return self._keep(fit)
            self.joint_failed = not self.sees_noise
        return None

    @property
    def _tries_joint_fits(self):
        """Whether states start from joint fits, if those of two steps are poor.

        Those of few functions, in one coordinate of space, whose terms are looked for.
        """
        joint = self._joint_degrees
        few = not (self.is_in_plane or are_many(self.two_step, self.context))
        is_searched = bool(joint) and all(row.n_terms is not None for row in joint)
        return few and is_searched and self._has_open_kernels

    def _with_terms_near(self, fit, hypothesis):
        """Exact states with the best terms near those of a fit, on a fine enough grid.

        Of exact data they are looked for anew among all of a hypothesis, from the
        states of the fit, and priors are compared, unless few terms meet the data where
        a grid is fine enough: on the coarse one, whose errors are above those of the
        data, others make up for these, and more of a wider hypothesis. Of noisy ones
        they are looked for where the fit is: on the coarse grid that it began with,
        terms may have stood for what that did not resolve. Sets of all of the best
        terms and others are no rivals then: they differ little, as TermSearch says, and
        would be told beside most right equations.
        """
        two_step = self.two_steps(hypothesis)
        if self.sees_noise:
            given = fit_trajectories, two_step, hypothesis, self.context, None, fit
        else:
            fit = or_followed(fit, self.two_step, self.context)
            if fit.result.interrupted or few_terms_meet(fit, *self.known):
                return fit
            given = fit_hypothesis, hypothesis, two_step, self.context, fit.learned
        near = or_stopped(fit, *given)
        if near is not None and near.result.interrupted:
            return fit.stopped(near.result.stop)
        if not self.sees_noise:
            return near if near and self._misses_nothing(near) else fit
        found = or_followed(near or fit, self.two_step, self.context)
        best = {*found.term_names}
        rivals = [step for step in found.terms_path if not best < {*step.terms}]
        return replace(found, terms_path=rivals)

    def _is_found_again(self, best, *rows):
        """Whether other states lead to what all rows found from two steps, with noise.

        No more terms are looked for from these other states then.
        """
        direct = [self.direct.get(row.hypothesis.name, (None, None)) for row in rows]
        return sees_noise(self.two_step) and all(
            fit and best and fit is not best and agree(best, fit, self.criteria)
            for _, fit in direct
        )

    def _or_functions(self, best, near=np.inf):
        """Exact states in space, or those with elementary functions.

        These are far more probable, or meet exact data that others miss by less than
        `near`. Where few terms meet these, nothing is to be explained.
        """
        if not self._elementary_rows or best is None or best.result.interrupted:
            return best
        is_noisy, meets = sees_noise(self.two_step), meets_data(best, *self.known)
        reason, far = "", not meets if is_noisy else best.error > near
        if self.in_doubt(best.error) or far:
            reason = "no simpler equation is near"
        elif are_many(self.two_step, self.context) or not best.hypothesis.n_terms:
            reason = "it is tried for few functions and with terms only"
        elif few_terms_meet(best, *self.known):
            reason = "a simpler equation predicts well"
        if reason:
            if near == np.inf:
                self.leave_out([self.table.functions], reason)
            return best
        [functions] = self._elementary_rows
        if best.has_functions or self._is_compared(functions, best):
            return best
        self.compared.append((functions.name, best.result))
        other = self._elementary(best)
        if other is None or other.result.interrupted:
            return best if other is None else best.stopped(other.result.stop)
        if meets:
            return self._or_more_probable(best, other)
        if not meets_data(other, *self.known):
            return best
        return or_simpler(other, self.table.exact_cubic, self.two_steps, self.context)

    def _or_more_products(self, best, hypothesis):
        """Exact states, or those of a wider hypothesis that are far more probable.

        In a plane those that two steps led to, if they did: grids are so coarse there
        that errors of predictions hardly tell equations apart.
        """
        _, known = self.direct.get(hypothesis.name, (None, None))
        if self.is_in_plane and known and not best.result.interrupted:
            return best.or_more_probable(known, self.criteria.wider)
        offered = partial(self.two_steps, hypothesis)
        return or_more_terms(best, hypothesis, offered, self.context)

    def _or_wider(self, best, row):
        """Exact states, or those of a wider hypothesis if these predict clearly better.

        Where data are met it is not tried. `best` may be None.
        """
        if self._is_found(best):
            self.leave_out([row], "a simpler equation predicts well")
            return best
        other = self._exact_from_anywhere(row.hypothesis)
        clearly = self.criteria.clearly_better
        is_better = not best or (other and other.error < clearly * best.error)
        return other if is_better else best

    def _exact_from_two_steps(self, *rows):
        """Exact states from those of two steps if they predict well; or None.

        Of terms that are chosen, cubic ones and those in the coordinates, in the order
        of the rows, are tried before other states are looked for, which takes longer,
        unless those of two steps lead nowhere. Functions along these follow the first
        sets of the first row, and where there is noise joint fits, and coefficients
        that vary, before the search of that goes on; where there is none joint fits
        come before the last row: they take longer than another search from two steps,
        which leads further there.
        """
        exact = not sees_noise(self.two_step)
        for i, row in enumerate(rows):
            if row.why_not or (i and row.hypothesis.n_terms is None):
                continue
            fit = self._found_before(row) if i == len(rows) - 1 else None
            if fit:
                return fit
            impatient = i == 0 and self._is_impatient(exact)
            two_step, fit = self._from_two_steps(row.hypothesis, impatient)
            if impatient and not self._is_found(fit):
                found = self._before_all_terms(exact)
                if found:
                    return found
                # They take less than sets of terms do.
                fit = None if exact else self._varying(row)
                if not fit:
                    two_step, fit = self._from_two_steps(row.hypothesis)
            if i == 0 and leads_nowhere(fit, two_step, self.in_doubt):
                anywhere = partial(self._exact_from_anywhere, row.hypothesis)
                fit = self._varying(row) or self._functions_along() or anywhere()
            if self._is_found(fit):
                left = rows[i + 1 :] if exact else rows[i + 1 : -1]
                left = [] if fit.result.interrupted else left
                self.leave_out(left, "a simpler equation predicts well")
                given = fit, rows[0], self.two_steps, self.context
                return or_simpler(*given) if i else fit
        return None

    def _is_impatient(self, exact):
        """Whether something else is tried where first sets from two steps fail."""
        if not self._tries_joint_fits or (exact and not offers_cubics(self.two_step)):
            return False
        functions = self.two_step.observations.functions
        return max(len(d.values) for d in functions) < TermSearchSettings.dense

    def _before_all_terms(self, exact):
        """What meets data before all sets of terms from two steps are tried; or None.

        Elementary functions, if these explain states far better than all products up to
        the third degree; and joint fits to data that are not exact.
        """
        found = None
        if offers_cubics(self.two_step):
            found = self._functions_along(at_first=True)
        return found if found or exact else self._from_joint_fits()

    def _found_before(self, wider):
        """What meets data before a `wider` row, of terms in the coordinates; or None.

        Elementary functions, which take less, if one is near or explains the states of
        two steps; and joint fits to exact data.
        """
        exact = not sees_noise(self.two_step)
        near = self.criteria.approximate * self.size
        fit = self._or_functions(self.so_far, near) if exact else None
        fit = fit if self._is_found(fit) else self._functions_along()
        if not fit and exact and self._tries_joint_fits:
            fit = self._from_joint_fits()
        if fit and exact and not fit.result.interrupted:
            self.leave_out([wider], "a simpler equation predicts well")
        return fit

    def _varying(self, polynomial):
        """Exact states with varying coefficients that meet data, from two steps.

        Or those of a polynomial, a row, that do from there; or None.
        """
        row = self.table.exact_varying
        if row.why_not or are_many(self.two_step, self.context):
            return None
        _, fit = self._from_two_steps(row.hypothesis)
        if not self._is_found(fit):
            return None
        given = self.two_steps(polynomial.hypothesis), polynomial.hypothesis
        found = or_polynomial(fit, *given, self.context)
        self.varies = found is fit
        return found

    def _is_found(self, fit):
        """Whether a fit or None meets the data or was stopped: no other is tried."""
        return bool(fit and (fit.result.interrupted or meets_data(fit, *self.known)))

    def _functions_along(self, at_first=False):
        """Exact states with functions that explain those of two steps and meet data.

        What is not found `at_first`, before all sets of products, may be later.
        """
        if are_many(self.two_step, self.context) or not self._elementary_rows:
            return None
        [hypothesis] = self._elementary_rows
        if hypothesis.name not in self.direct:
            self.begin(hypothesis)
            given = self.two_step, hypothesis, self.context, at_first
            fit = fit_functions_along(*given)
            is_complete = fit is not None and self.sees_noise
            if at_first and not (is_complete or self._is_found(fit)):
                return None
            self.direct[hypothesis.name] = self.two_step, fit
        (_, fit), cubic = self.direct[hypothesis.name], self.table.exact_cubic
        if not self._is_found(fit):
            return None
        given = self.two_steps(cubic.hypothesis), cubic.hypothesis, self.context
        return fit if cubic.why_not else or_polynomial(fit, *given)

    def _exact_from_anywhere(self, hypothesis):
        """Exact states from those of two steps, or from a diffusion if that is poor.

        A diffusion that led further away than those of any hypothesis do is left.
        """
        two_step, best = self._from_two_steps(hypothesis)
        if self._is_found(best) or not self.spreads:
            return best
        if hypothesis.name not in self.spread:
            found = or_from_diffusion(best, two_step, hypothesis, self.context)
            self.spread[hypothesis.name] = self._keep(found)
        found, known = self.spread[hypothesis.name], self.so_far
        is_better = found is not best and found and found.error <= known.error
        self.spreads = found is None or is_better
        return found

    def _from_two_steps(self, hypothesis, impatient=False):
        """The two-step solution of a hypothesis, and a Fit from there or None.

        An `impatient` search is given up where states of two steps are too poor. That
        is not kept: asked for again, the search goes on to its end.
        """
        if hypothesis.name not in self.direct:
            settings = TermSearchSettings.of_poor_states() if impatient else None
            given = hypothesis, self.two_steps(hypothesis), self.context
            fit = from_simpler(self.so_far, *given)
            fit = fit or fit_hypothesis(*given, settings=settings)
            if impatient and fit is None:
                return given[1], None
            self.direct[hypothesis.name] = given[1], self._keep(fit)
        return self.direct[hypothesis.name]

    def from_joint_fit(self, family, fit):
        """Exact states from those of a joint fit; None if there are none.

        Where such states led nowhere before, few terms are tried but those of the fit.
        """
        if self.table.exact.why_not or fit.result.interrupted:
            return None
        if self.is_in_time:
            given = fit.learned, family.hypothesis, self.context
            return self._or_driven(fit_trajectories(*given), at_last=True)
        name = f"exact states, {family.hypothesis.name}"
        hypothesis = replace(family.hypothesis, constraint="integration", name=name)
        few = TermSearchSettings.of_failed_states() if self.joint_failed else None
        given = family.two_step, self.context, fit.learned, few
        found = fit_hypothesis(hypothesis, *given)
        return self._or_cubic_from(family, fit, found, few)

    def _or_cubic_from(self, family, fit, found, settings):
        """Exact states or None, or those of a cubic equation that meet the data.

        They are tried where a quadratic one does not: states of its joint fit may be
        good enough to tell cubic terms by, which those of two steps were not.
        """
        row, hypothesis = self.table.exact_cubic, family.hypothesis
        is_wider = family.two_step is not self.two_step
        left = row.why_not or is_wider or hypothesis.n_terms is None
        if left or self.in_doubt(fit.error) or self._is_found(found):
            return found
        given = self.two_steps(row.hypothesis), self.context, fit.learned, settings
        cubic = or_stopped(found, fit_hypothesis, row.hypothesis, *given)
        return cubic if self._is_found(cubic) else found

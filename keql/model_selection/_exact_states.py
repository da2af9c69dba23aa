"""The search among hypotheses whose states obey the equation exactly."""

from dataclasses import replace
from functools import partial

import numpy as np

from keql._numerics.optimisation import Stop, or_stopped
from keql._regression.two_step import refit_two_steps
from keql.model_selection._beside._driven import fit_driven, or_driven, why_not_driven
from keql.model_selection._criteria import (
    Judgement,
    are_many,
    few_terms_meet,
    meets_data,
    misses_at_random,
    odds_between,
    predicts_within_noise,
    sees_noise,
)
from keql.model_selection._exact_fit import fit_hypothesis
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._from_diffusion import (
    RepeatedStates,
    fit_from_wave,
    from_simpler,
    leads_nowhere,
    or_from_diffusion,
    or_more_terms,
    or_polynomial,
    or_simpler,
)
from keql.model_selection._starts._annealing import (
    compare_lengths,
    impose_gradually,
    told_by,
)
from keql.model_selection._state_kernels import compare_kernels, warm_start
from keql.model_selection._terms._functions import fit_elementary, fit_functions_along
from keql.model_selection._terms._trajectories import (
    TrajectorySearchSettings,
    fit_trajectories,
)


class ExactSearch(Judgement):
    """The order in which exact states are tried, and when nothing else is.

    two_step : LearnedModel. The two-step solution.
    table : Hypotheses. What may be tried.
    context : Context. How problems are solved.

    not_tried : list of (str, str). Names of hypotheses, and why they were left out.
    direct, spread : dict. By name of hypothesis, two steps and the Fit from there, or
        None; and the Fit from there or from a diffusion, or None.
    wave : Fit or None. Exact states of a single travelling wave, if data are of one.
    spreads : bool. Whether a diffusion has led to better states, or may.
    """

    def __init__(self, two_step, table, context):
        noise = table.exact.hypothesis.equation_noise
        super().__init__(two_step, noise, context.criteria)
        self.context, self.known = context, (two_step, context.criteria)
        self.table, self.agreed, self.spreads = table, False, True
        self.direct, self.spread, self.wave, self.so_far = {}, {}, None, None
        self.repeated = RepeatedStates(two_step, context, self.in_doubt)
        self.tries_noise, self.is_driven, self.varies = False, False, False
        self.found, self.compared = {}, []  # of joint problems; with other results
        pairs = ((row.hypothesis.name, row.why_not) for row in table)
        self.not_tried = [pair for pair in pairs if pair[1]]

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

    def _keep(self, fit):
        """A fit, or None, which is kept from now on if it is the best so far."""
        if fit and not (self.so_far and fit.error >= self.so_far.error):
            self.so_far = fit
        return fit

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

    def leave_out(self, rows, reason):
        known, left = dict(self.not_tried), [row.hypothesis.name for row in rows]
        self.not_tried += [(name, reason) for name in left if name not in known]

    def begin(self, hypothesis):
        """Tell that a hypothesis of the table is tried."""
        if self.context.tried is not None:
            names = [row.hypothesis.name for row in self.table if not row.why_not]
            place = names.index(hypothesis.name)
            self.context.tried(hypothesis.name, place + 1, len(names))

    def once(self, find, family, *given):
        """What a function finds of joint problems, which do not know terms yet."""
        key = find.__name__, id(family.hypothesis.equation_kernel)
        if key not in self.found:
            known = [own for (name, _), own in self.found.items() if name == key[0]]
            self.found[key] = find(family, *given, **told_by(find, known))
        return self.found[key]

    def two_steps(self, hypothesis, known=None):
        """The two-step solution with the equation kernel of a hypothesis, now tried.

        With the prior and noise of a `known` one, if they are not those of all.
        """
        self.begin(hypothesis)
        first, known = self.table.exact.hypothesis, known or self.two_step
        if known is self.two_step:
            if hypothesis.equation_kernel is first.equation_kernel:
                return known
        given = hypothesis, self.context.settings, known.state_kernel
        return refit_two_steps(known, *given)

    def _trajectories(self):
        """Exact trajectories with quadratic, or cubic equations if they are better.

        From the states of two steps; for systems, if that predicts poorly, from states
        that repeat themselves; then from those that the equations at collocation points
        lead to, these imposed more and more strictly; then, for systems for which these
        predict poorly, from those of compared kernels. Fields that are seen with noise
        start from the joint fit: derivatives in space that observations alone suggest
        are too poor then. If the best so far is led to again, that is it.
        """
        table = self.table
        rows = [row.hypothesis for row in table.exact_polynomials if not row.why_not]
        wider = [row.hypothesis for row in table.wider if not row.why_not]
        pairs = zip(table.exact_polynomials, (table.first, table.cubic), strict=True)
        joint = [a.hypothesis for a, b in pairs if not (a.why_not or b.why_not)]
        if self.is_of_fields and len(rows) > 1 and rows[0].n_terms is not None:
            self.leave_out([table.exact], "its terms are among the cubic ones")
            rows, joint = rows[1:], joint[1:]
        strict = [*self._elementary_rows, *wider]
        starts, best = [(None, [*rows, *strict]), (compare_lengths, joint)], None
        if self.two_step.setup.is_system:
            repeated = [] if self.is_of_fields else [(self.repeated, rows)]
            starts = [starts[0], *repeated, starts[1], (compare_kernels, joint)]
        if not self._has_open_kernels:
            starts = starts[:1]
        elif self.is_of_fields and joint and self.sees_noise:
            starts = [starts[1], starts[0], starts[2]]
        for find_kernels, tried in starts:
            before, name = best, best and best.hypothesis.name
            for hypothesis in sorted(tried, key=lambda row, n=name: row.name != n):
                given = find_kernels, hypothesis, best
                fit = or_stopped(best, self._trajectories_from, *given)
                if fit is not None and fit.result.interrupted:
                    return fit if best is None else best.stopped(fit.result.stop)
                if fit is not None and hypothesis in strict:
                    # So many terms come near to anything but noise.
                    met = self._misses_nothing(fit) or self.are_noisy(best, fit)
                    best, fit = self._by_evidence(best, fit if met else None)
                if fit and (not best or self.is_better(fit, best, rows)):
                    best = self.so_far = fit
                if best is not None and self._misses_nothing(best):
                    return self._or_more_terms(best, rows, wider)
                if before is not None and self.agrees(fit, before):
                    self.agreed = True
                    return self._among_noisy(before, rows, wider)
            if best is not None and self.is_in_time:
                best = self._or_driven(best)
                if best.finds_noise:
                    return best
        return self._among_noisy(best, rows, wider)

    def _or_driven(self, fit, at_last=False):
        """Trajectories, or those that white noise drives; without any, `at_last`."""
        if self.tries_noise or not (fit or at_last):
            return fit
        row, self.tries_noise = self.table.driven, True
        given = self.two_step, self.criteria, fit is None or not self.is_enough(fit)
        reason = row.why_not or why_not_driven(fit, *given)
        if reason:
            self.leave_out([row], reason)
            return fit
        given = self.two_steps(row.hypothesis), row.hypothesis, self.context
        other = or_stopped(fit, fit_driven, *given)
        if other is None or other.result.interrupted:
            return fit and (fit.stopped(other.result.stop) if other else fit)
        found = or_driven(fit, other, self.criteria)
        self.is_driven = fit is not None and found.finds_noise
        return self._keep(found)

    def _by_evidence(self, best, other):
        """Trajectories, and those of a wider hypothesis that may be better, or None.

        Where there is noise and both were solved for, these have to be more probable.
        """
        if not (best and other and self.are_noisy(best, other)):
            return best, other
        own, known = best.log_evidences, other.log_evidences
        chosen, terms = (frozenset(fit.term_names) for fit in (best, other))
        if terms in own:  # of another hypothesis
            return best, other if own[terms] > own.get(chosen, np.inf) else None
        if chosen not in known:
            return best, other
        return self._or_more_probable(best, other), None

    def _or_more_probable(self, fit, other):
        """A fit, or one of a wider hypothesis whose evidence outweighs its odds."""
        rows = self.table.exact_polynomials, self.table.wider
        polynomials, wider = ([row.hypothesis.name for row in own] for own in rows)
        wider = wider if self.is_in_time else []
        odds = odds_between(fit, other, polynomials, wider, self.criteria)
        self.compared.append((other.hypothesis.name, fit.result))
        return fit.or_more_probable(other, odds)

    def _is_compared(self, hypothesis, fit):
        """Whether a fit was compared with a hypothesis already."""
        return any(n == hypothesis.name and r is fit.result for n, r in self.compared)

    def _among_noisy(self, fit, rows, wider):
        """Trajectories, compared with other terms by evidence where there is noise."""
        is_known = fit is not None and not self.in_doubt(fit.error)
        is_compared = is_known and self.is_in_time and self.are_noisy(fit)
        return self._or_more_terms(fit, rows, wider) if is_compared else fit

    @property
    def _has_open_kernels(self):
        """Whether kernels of states are compared: none of them is given."""
        states = self.two_step.observations.states
        return len(self.table.exact.hypothesis.open_states(states)) == len(states)

    @property
    def _elementary_rows(self):
        """The hypothesis of elementary functions, if it is tried."""
        row = self.table.functions
        return [] if row.why_not else [row.hypothesis]

    def _elementary(self, simpler):
        """Exact trajectories with elementary functions, from those of a polynomial."""
        if simpler is not None and self.in_doubt(simpler.error):
            simpler = None
        [hypothesis] = self._elementary_rows
        self.begin(hypothesis)
        given = self.two_step, hypothesis, self.context, simpler
        enough = self.criteria.functions_miss * self.size
        return or_stopped(simpler, fit_elementary, *given, enough)

    def _or_more_terms(self, fit, rows, wider):
        """Trajectories that predict as well as noise allows, or others with more terms.

        By their evidence: errors of prediction hardly tell terms within noise, of which
        there may be none. The wider hypotheses are less probable before data are seen.
        """
        names = [row.name for row in (*rows, *wider)]
        is_met = fit.error < self.criteria.nothing_missed * self.size
        if is_met or fit.hypothesis.name not in names:  # elementary functions
            return fit
        place = names.index(fit.hypothesis.name)
        higher = [row for row in rows[place + 1 :] if row.n_terms is not None]
        is_noisy = self.are_noisy(fit)
        if is_noisy and place < len(names) - 1:
            higher += wider[-1:]
        for row in higher:
            if self._is_compared(row, fit):
                continue
            settings = TrajectorySearchSettings(n_tried=2) if row in wider else None
            given = self.two_steps(row, fit.two_step), row, self.context, settings, fit
            other = or_stopped(fit, fit_trajectories, *given)
            if other is not None and other.result.interrupted:
                return fit.stopped(other.result.stop)
            is_wider = row in wider or fit.is_driven
            if other is not None:
                fit = self._or_more_probable(fit, other) if is_wider else other
        functions = self._elementary_rows if is_noisy else []
        if functions and not self._is_compared(functions[0], fit):
            other = self._elementary(fit)
            if other is not None and other.result.interrupted:
                return fit.stopped(other.result.stop)
            if other is not None:
                fit = self._or_more_probable(fit, other)
        return fit

    def _trajectories_from(self, find_kernels, hypothesis, best):
        """Exact trajectories from two steps, or from a joint fit with all terms."""
        if hypothesis in self._elementary_rows:
            return self._elementary(best)
        if find_kernels is self.repeated:
            if best is not None and not self.in_doubt(best.error):
                return None
            return self.repeated.fit(hypothesis)
        two_step = self.two_steps(hypothesis)
        if find_kernels is None:
            return fit_trajectories(two_step, hypothesis, self.context)
        everything = replace(hypothesis, n_terms=None)
        family = JointFamily(two_step, everything, self.context.rough)
        imposed = self.once(impose_gradually, family)
        kernels = self.once(compare_lengths, family, imposed)
        if find_kernels is compare_kernels:
            if not self.calls_for_kernels(kernels[0]):
                return None
            kernels = self.once(compare_kernels, family)
        fit = fit_jointly(family, *warm_start(kernels[0], family)[:3])
        if fit.result.interrupted:
            return None
        known = best if best and best.hypothesis.name == hypothesis.name else None
        return fit_trajectories(fit.learned, hypothesis, self.context, known=known)

    def _misses_nothing(self, fit):
        """The same of trajectories.

        Where two steps find no noise, exact states have to predict to more digits than
        interpolation does. States that white noise drives have to predict well.
        """
        if not self.is_in_time:
            return predicts_within_noise(fit, *self.known, fit.problem.prior.noise)
        if fit.is_driven:
            return self.is_driven or not self.in_doubt(fit.error)
        if self.sees_noise:
            return self.convinces(fit) or self.leaves_but_noise(fit)
        return fit.error < self.criteria.nothing_missed * self.size

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
            if best and not cubic.why_not:
                best = self._or_wider(best, cubic)
        for row in (cubic, wider):
            if best and not row.why_not:
                offered = partial(self.two_steps, row.hypothesis)
                best = or_more_terms(best, row.hypothesis, offered, self.context)
        if are_many(self.two_step, self.context):
            self.leave_out([varying], "there are many functions")
        elif not varying.why_not:
            best = self._or_wider(best, varying)
        return self._or_functions(best)

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
        unless those of two steps lead nowhere; before the last row elementary
        functions, which take less, if one is `near`.
        """
        exact = not sees_noise(self.two_step)
        for i, row in enumerate(rows):
            if row.why_not or (i and row.hypothesis.n_terms is None):
                continue
            if i == len(rows) - 1:
                near = self.criteria.approximate * self.size
                fit = self._or_functions(self.so_far, near) if exact else None
                fit = fit if self._is_found(fit) else self._functions_along()
                if fit:
                    return fit
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

    def _functions_along(self):
        """Exact states with functions that explain those of two steps and meet data."""
        if are_many(self.two_step, self.context) or not self._elementary_rows:
            return None
        [hypothesis] = self._elementary_rows
        if hypothesis.name not in self.direct:
            self.begin(hypothesis)
            fit = fit_functions_along(self.two_step, hypothesis, self.context)
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

    def _from_two_steps(self, hypothesis):
        """The two-step solution of a hypothesis, and a Fit from there or None."""
        if hypothesis.name not in self.direct:
            given = hypothesis, self.two_steps(hypothesis), self.context
            fit = from_simpler(self.so_far, *given) or fit_hypothesis(*given)
            self.direct[hypothesis.name] = given[1], self._keep(fit)
        return self.direct[hypothesis.name]

    def from_joint_fit(self, family, fit):
        """Exact states from those of a joint fit; None if there are none."""
        if self.table.exact.why_not or fit.result.interrupted:
            return None
        if self.is_in_time:
            given = fit.learned, family.hypothesis, self.context
            return self._or_driven(fit_trajectories(*given), at_last=True)
        name = f"exact states, {family.hypothesis.name}"
        hypothesis = replace(family.hypothesis, constraint="integration", name=name)
        return fit_hypothesis(hypothesis, family.two_step, self.context, fit.learned)

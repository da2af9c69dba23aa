"""The search among hypotheses of exact trajectories, and of exact fields of systems."""

from dataclasses import replace
from itertools import chain

import numpy as np

from keql._joint.hidden_states import states_of_guesses
from keql._numerics.optimisation import or_stopped
from keql._observations.data import PredictionScale
from keql.model_selection._beside._driven import fit_driven, or_driven, why_not_driven
from keql.model_selection._beside._simpler import or_fewer_terms
from keql.model_selection._criteria import (
    error_within_noise,
    missed_in_space,
    nothing_missed,
    predicts_within_noise,
)
from keql.model_selection._fit import JointFamily, fit_jointly
from keql.model_selection._hypothesis_search import HypothesisSearch
from keql.model_selection._starts._annealing import Imposition, compare_lengths, told_by
from keql.model_selection._starts._from_diffusion import RepeatedStates
from keql.model_selection._state_kernels import compare_kernels, warm_start
from keql.model_selection._terms._fewer import with_rivals
from keql.model_selection._terms._functions import fit_functions_along
from keql.model_selection._terms._settings import TrajectorySearchSettings
from keql.model_selection._terms._trajectories import (
    fit_trajectories,
    search_trajectories,
)


class TrajectorySearch(HypothesisSearch):
    """The order in which exact trajectories are tried.

    agreed : bool. Whether searches from different states came to one result.
    is_driven : bool. Whether white noise drives states that others describe as well.
    """

    def __init__(self, two_step, table, context):
        super().__init__(two_step, table, context)
        self.repeated = RepeatedStates(two_step, context, self.in_doubt)
        self.agreed, self.tries_noise, self.is_driven = False, False, False
        self.tries_functions = False  # of fields
        self.found, self.joint = {}, {}  # of joint problems
        self.ends = {}  # of searches, by name of hypothesis

    def once(self, find, family, *given):
        """What a function finds of joint problems, which do not know terms yet."""
        key = find.__name__, id(family.hypothesis.equation_kernel)
        if key not in self.found:
            known = [own for (name, _), own in self.found.items() if name == key[0]]
            self.found[key] = find(family, *given, **told_by(find, known))
        return self.found[key]

    def _trajectories(self):
        """Exact trajectories with quadratic, or cubic equations if they are better.

        In the order of :meth:`_starts`. If the best so far is led to again, that is it.
        """
        table = self.table
        rows = [row.hypothesis for row in table.exact_polynomials if not row.why_not]
        wider = [row.hypothesis for row in table.wider if not row.why_not]
        joint = self._joint_degrees
        strict, best = [*self._elementary_rows, *wider], None
        for find_kernels, tried in self._starts(rows, joint, strict):
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
                if fit and (not best or self._is_preferred(fit, best, rows)):
                    best = self.so_far = fit
                if best is not None and self._suffices(best):
                    return self._or_more_terms(best, rows, wider)
                if before is not None and self.agrees(fit, before):
                    self.agreed = True
                    return self._among_noisy(before, rows, wider)
            if best is not None and self.is_in_time:
                if self._misses_nothing(best):
                    return self._or_more_terms(best, rows, wider)
                best = self._or_driven(best)
                if best.finds_noise:
                    return best
        return self._among_noisy(best, rows, wider)

    def _starts(self, rows, joint, strict):
        """What trajectories start from, and hypotheses to try there: pairs, in order.

        The states of two steps; for systems that these predict poorly, states that
        repeat themselves, those of equations that are imposed more and more strictly,
        and those of compared kernels. Where a state was never observed, guesses of it
        come with the first.

        rows, joint, strict : list of Hypothesis. Polynomials; those with a joint fit;
            and those that come near to anything but noise.
        """
        first, from_joint = (None, [*rows, *strict]), (compare_lengths, joint)
        if not self._has_open_kernels:
            return [first]
        if not self.two_step.setup.is_system:
            return [first, from_joint]
        if self.is_of_fields:
            return self._starts_of_fields(rows, joint)
        ways = [first, (self.repeated, rows), from_joint]
        if self.two_step.observations.hidden_states:
            ways = [(states_of_guesses, rows), *ways[1:], (None, strict)]
        return [*ways, (compare_kernels, joint)]

    def _starts_of_fields(self, rows, joint):
        """The same of fields, as they are reached; noisy ones start from joint fits.

        Derivatives in space that observations alone suggest are too poor then.
        """
        cubic, is_open = joint, len(rows) > 1 and rows[0].n_terms is not None
        if is_open:  # a search among cubic terms has the quadratic ones
            self.leave_out([self.table.exact], "its terms are among the cubic ones")
            rows, cubic = rows[1:], joint[1:]
        starts_from_joint = bool(cubic) and self.sees_noise
        if not starts_from_joint:
            functions = [] if self.sees_noise else self._elementary_rows
            yield None, [*rows, *functions]
        yield compare_lengths, self._by_degree(joint) if is_open and cubic else cubic
        if starts_from_joint:
            yield None, rows
        yield compare_kernels, cubic

    def _by_degree(self, hypotheses):
        """Quadratic and cubic equations, or the cubic ones if joint fits suggest these.

        If quadratic ones predict about as well with all terms, or exact data well where
        they are imposed at first, they come first: fewer terms lead less astray.
        """
        quadratic, cubic = hypotheses
        rough = self._imposition(quadratic)[1].candidate.error
        if not self.sees_noise and rough < error_within_noise(*self.known):
            return hypotheses
        high = self._with_all_terms(cubic)[1][0].error
        if self.criteria.far_better * rough > high:
            return [cubic]  # what is no solution takes long to find
        low = self._with_all_terms(quadratic)[1][0].error
        is_worse = low > high / self.criteria.clearly_better
        is_worse = self._predicts_worse(low, high) if self.sees_noise else is_worse
        return [cubic] if is_worse else [quadratic, cubic]

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

    def _among_noisy(self, fit, rows, wider):
        """Trajectories, compared with other terms by evidence where there is noise."""
        is_known = fit is not None and not self.in_doubt(fit.error)
        is_compared = is_known and self.is_in_time and self.are_noisy(fit)
        return self._or_more_terms(fit, rows, wider) if is_compared else fit

    @property
    def _degrees(self):
        """Pairs of rows of the table: exact states, and at collocation points."""
        joint = self.table.first, self.table.cubic
        return [*zip(self.table.exact_polynomials, joint, strict=True)]

    @property
    def _joint_degrees(self):
        """Hypotheses of exact states that have a joint fit, the lower degree first."""
        pairs = self._degrees
        return [a.hypothesis for a, b in pairs if not (a.why_not or b.why_not)]

    @property
    def _has_open_kernels(self):
        """Whether kernels of states are compared: none of them is given."""
        states = self.two_step.observations.states
        return len(self.table.exact.hypothesis.open_states(states)) == len(states)

    def _or_more_terms(self, fit, rows, wider):
        """Trajectories that predict as well as noise allows, or others with more terms.

        By their evidence: errors of prediction hardly tell terms within noise, of which
        there may be none. The wider hypotheses are less probable before data are seen.
        """
        names = [row.name for row in (*rows, *wider)]
        is_met = fit.error < nothing_missed(fit, self.criteria) * self.size
        if self.is_of_fields or fit.hypothesis.name not in names:
            return fit
        if is_met:
            enough = self.criteria.functions_miss * self.size
            functions = bool(self._elementary_rows) and not self.sees_noise
            return or_fewer_terms(fit, self._elementary, enough) if functions else fit
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
            fit = self._or_more_probable(fit, other) if other else fit
        return fit

    def _trajectories_from(self, find_kernels, hypothesis, best):
        """Exact trajectories from two steps, or from a joint fit with all terms."""
        if hypothesis in self._elementary_rows:
            along = self.is_of_fields
            return self._along_fields(best) if along else self._elementary(best)
        if find_kernels is self.repeated:
            if best is not None and not self.in_doubt(best.error):
                return None
            learned = self.repeated.states_of(hypothesis)
            return None if learned is None else self._searched(learned, hypothesis)
        two_step = self.two_steps(hypothesis)
        if find_kernels is None:
            return self._searched(two_step, hypothesis)
        if find_kernels is states_of_guesses:
            return self._guessed(two_step, hypothesis)
        if find_kernels is compare_lengths and self.is_in_time:
            _, imposition = self._imposition(hypothesis)
            fit = self._from_any(imposition.levels(), hypothesis)
            if fit is not None:
                return fit
        family, kernels = self._with_all_terms(hypothesis)
        if find_kernels is compare_kernels:
            if not self.calls_for_kernels(kernels[0]):
                return None
            kernels = self.once(compare_kernels, family)
        given = two_step, hypothesis, kernels[0]
        if self.is_of_fields and self._sees_little_noise:
            # Exact data leave little choice of terms at collocation points, and states
            # that are not as exact lead searches among all terms astray.
            found, joint = self._exact_with_terms(*given)
            stopped = any(own and own.result.interrupted for own in (found, joint))
            if stopped or (found and found.error < joint.error):
                return found
        fit = fit_jointly(family, *warm_start(kernels[0], family)[:3])
        if fit.result.interrupted:
            return None
        found = self._searched(fit.learned, hypothesis)
        return found or self._from_joint_terms(*given, fit)

    def _along_fields(self, best):
        """Exact fields with functions that explain the states of two steps, or None.

        Unless many products meet the data, functions have to be far more probable along
        these states: else it takes less to find other states first.
        """
        [hypothesis] = self._elementary_rows
        self.begin(hypothesis)
        self.tries_functions = True
        at_first = best is None or not self._misses_nothing(best)
        given = self.two_step, hypothesis, self.context, at_first
        return fit_functions_along(*given)

    def _with_all_terms(self, hypothesis):
        """Joint problems with all terms of a hypothesis, and state kernels for them."""
        family, imposition = self._imposition(hypothesis)
        return family, self.once(compare_lengths, family, imposition.candidate)

    def _imposition(self, hypothesis):
        """Joint problems with all terms, and how they are imposed at first."""
        given = self.two_steps(hypothesis), replace(hypothesis, n_terms=None)
        family = JointFamily(*given, self.context.rough)
        return family, self.once(Imposition, family)

    def _guessed(self, two_step, hypothesis):
        """The most probable exact trajectories with guesses of what was never observed.

        Those of two steps are one of them. Starts are not told apart by whether others
        lead to the same: equations in other coordinates of the state have more terms,
        and several starts may lead there.
        """
        found, how = [], self.context.settings
        guesses = states_of_guesses(two_step, hypothesis, how)
        for learned in chain([two_step], guesses):
            fit = self._searched(learned, hypothesis)
            if fit is not None and fit.result.interrupted:
                return fit
            found += [fit] if fit is not None else []
        best = max(found, key=lambda fit: fit.log_evidence, default=None)
        return best and with_rivals(best, [fit for fit in found if fit is not best])

    def _from_any(self, starts, hypothesis):
        """Exact trajectories that miss nothing, from levels of imposed equations.

        Levels follow where one takes as long as a search. Those that two starts lead to
        are taken at once, and else, where there is noise, the most probable ones of
        all: exact data have more terms at times where equations are hardly imposed,
        which nothing tells then. None if there are none.
        """
        found = []
        for learned in starts:
            fit = self._searched(learned, hypothesis)
            if fit is not None and fit.result.interrupted:
                return fit
            if fit is not None and self._misses_nothing(fit):
                if any(self.agrees(fit, other) for other in found):
                    return fit
                found.append(fit)
        if not self.sees_noise:
            return None
        return max(found, key=lambda fit: fit.log_evidence, default=None)

    def _searched(self, learned, hypothesis):
        """Exact trajectories from the states of a learned model, or None.

        Where it comes to what led another one of the hypothesis to its end, that is its
        end, too. Steps are given up that cannot come near the evidence of good ones.
        """
        ends = self.ends.setdefault(hypothesis.name, [])
        fits = [end.fit for end in ends if end.fit and not self.in_doubt(end.fit.error)]
        told = [value for fit in fits for value in fit.log_evidences.values()]
        how = {"known": ends, "reached": max(told, default=-np.inf)}
        ends.append(search_trajectories(learned, hypothesis, self.context, **how))
        return ends[-1].fit

    def _from_joint_terms(self, two_step, hypothesis, candidate, fit):
        """Exact trajectories from a joint fit with the terms that suit best; or None.

        Where those with all terms, of a `fit` that predicts within the noise, explode.
        A state that was never observed is found up to a change of coordinates only:
        with few terms these are found where few are enough.
        """
        within = predicts_within_noise(fit, *self.known)
        if not (within and self.two_step.observations.hidden_states):
            return None
        return self._exact_with_terms(two_step, hypothesis, candidate)[0]

    def _exact_with_terms(self, two_step, hypothesis, candidate):
        """Exact states with the terms of a joint fit, or None; and that fit."""
        [row] = [joint for own, joint in self._degrees if own.hypothesis is hypothesis]
        family = JointFamily(two_step, row.hypothesis, self.context)
        fit = self.joint_with_terms(family, candidate)
        if fit.result.interrupted:
            return None, fit
        return self._searched(fit.learned, hypothesis), fit

    def joint_with_terms(self, family, candidate):
        """The joint fit of a family with a KernelCandidate, solved for once."""
        name = family.hypothesis.name
        known, fit = self.joint.get(name, (None, None))
        if known is not candidate:
            fit = fit_jointly(family, *warm_start(candidate, family)[:3])
            self.joint[name] = candidate, fit
        return fit

    @property
    def _sees_little_noise(self):
        """Whether data are exact, or hardly differ from such where states vary."""
        scale = PredictionScale(self.two_step.observations)
        noise = scale.noise(self.two_step.observation_noise)
        return noise < self.criteria.exact_size * scale.spread

    def _suffices(self, fit):
        """Whether no other start or hypothesis is tried beside exact states.

        Those of noisy fields with few terms predict decisively worse than equations at
        collocation points with all terms only if some are missing.
        """
        if not self._misses_nothing(fit) or self._may_be_shorter(fit):
            return False
        if not (self.is_of_fields and self.sees_noise):
            return True
        compared = compare_lengths.__name__
        known = (own for (name, _), own in self.found.items() if name == compared)
        return not any(self._predicts_worse(fit.error, own[0].error) for own in known)

    def _predicts_worse(self, error, other):
        """Whether an error of predictions is decisively larger than another.

        The log odds are those of left-out values with normal errors; those from which
        on they are decisive are `wider` of the Criteria.
        """
        n_values = sum(len(d.values) for d in self.two_step.observations.functions)
        return n_values * np.log(error / other) > self.criteria.wider

    def _may_be_shorter(self, fit):
        """Whether exact states of many products may be those of fewer terms.

        Of fields they may be until functions were tried: from twice as many on as are
        few, as right ones have nine in two equations, and wrong ones had 25 to 52.
        """
        if self.sees_noise or fit.is_driven:
            return False
        if not self.is_of_fields:
            return fit.error >= nothing_missed(fit, self.criteria) * self.size
        n_unknown = sum(t.depends_on is not None for t in fit.learned.setup.equations)
        are_many = len(fit.term_names) > 2 * self.criteria.few_terms * n_unknown
        is_left = bool(self._elementary_rows) and not self.tries_functions
        return are_many and is_left and not fit.has_functions

    def _is_preferred(self, fit, best, rows):
        """Whether a fit is better, or has functions in the place of many products.

        Of exact fields these meet observations more closely then, and are decisively
        more probable, though many products may predict those left out as well.
        """
        if self.is_of_fields and fit.has_functions and not self.sees_noise:
            odds = fit.log_evidence - best.log_evidence
            return fit.misfit < best.misfit and odds > self.criteria.wider
        return self.is_better(fit, best, rows)

    def _misses_nothing(self, fit):
        """Whether nothing that predicts better than a fit is to be looked for.

        Where two steps find no noise, exact states have to predict to more digits than
        interpolation does. States that white noise drives have to predict well.
        """
        if not self.is_in_time:
            missed = self._sees_little_noise and missed_in_space(fit, *self.known)
            noise = fit.problem.prior.noise
            return predicts_within_noise(fit, *self.known, noise) and not missed
        if fit.is_driven:
            return self.is_driven or not self.in_doubt(fit.error)
        if self.sees_noise:
            return self.convinces(fit) or self.leaves_but_noise(fit)
        return fit.error < self.criteria.nothing_missed * self.size

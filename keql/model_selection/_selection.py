"""What was chosen, from what, and what the data leave open of it."""

from dataclasses import dataclass, field, replace

import numpy as np

from keql._numerics.linalg import rms, size_or_one
from keql._numerics.optimisation import Stop
from keql._observations.data import PredictionScale, left_out_errors
from keql.equation import are_monomials, highest_derivatives
from keql.model_selection._beside._left_out import terms_left_out
from keql.model_selection._beside._uncertain import least_told, uncertainty_of_terms
from keql.model_selection._beside._without import gain_of_equations
from keql.model_selection._criteria import (
    Criteria,
    correlation_of_residuals,
    missed_in_space,
    misses_at_random,
    sees_noise,
)
from keql.model_selection._exact_fit import unresolved_change
from keql.model_selection._fit import given_equation_noise
from keql.model_selection._terms._coordinates import of_other_laws
from keql.model_selection._terms._fewer import most_probable


@dataclass(frozen=True)
class Selection:
    """The fit that was chosen, and what it was chosen from.

    joint : Fit or None. With the equation at collocation points.
    exact : Fit or None. With exact states, if they predict better.
    promised : float or None. The error of predictions for which the state kernel was
        chosen.
    kernels : list of KernelCandidate. State kernels that were compared, under the same
        conditions.
    not_tried : list of (str, str). Names of hypotheses, and why they were not tried.
    integrable : bool. Whether states can obey the equations exactly.
    criteria : Criteria. By which they were compared.
    alternative : Fit or None. Of another hypothesis, which predicts about as well; of
        exact states, where noise of the equation is given that keeps none.
    integrated : Fit or None. Exact states whose terms a joint fit has.
    terms_from : Selection or None. That of these exact states, where nothing but what
        states are asked to be keeps the fit from having them.
    is_smooth : bool. Whether the states of exact data are smooth.
    by_evidence : bool. Whether kernel and terms are the most probable ones, of those
        that predict about as well.
    """

    joint: object = None
    exact: object = None
    promised: float | None = None
    kernels: list = field(default_factory=list)
    not_tried: list = field(default_factory=list)
    integrable: bool = False
    criteria: Criteria = field(default_factory=Criteria)
    alternative: object = None
    integrated: object = None
    terms_from: object = None
    is_smooth: bool = False
    by_evidence: bool = False

    @property
    def best(self):
        """The fit."""
        return self.exact or self.joint

    @property
    def most_exact(self):
        """The fit whose states meet the equation best.

        A relation of operators that holds on them may not hold on states which meet it
        at collocation points only.
        """
        return self.exact or self.integrated or self.joint

    @property
    def error(self):
        """Root mean square error of its predictions of observations."""
        return self.best.error

    @property
    def explains_little(self):
        """Whether errors of prediction are as large as the states vary.

        Noise levels that are found may be those of a signal that was not seen; those
        that are given are believed. Rows count alike, whatever their weights.
        """
        fit, alike = self.best, []
        if self._noise_given or self.is_constant:
            return False
        for data in fit.observations.functions:
            alike.append(replace(data, weights=np.ones_like(data.weights)))
        observations = replace(fit.observations, functions=alike)
        errors = left_out_errors(fit.model, observations)
        spread = PredictionScale(observations).spread
        return rms(errors) > self.criteria.explains * spread

    @property
    def is_constant(self):
        """Whether all observed values of each operator are equal, up to rounding.

        Their standard deviation is ten times the spacing of numbers of their size at
        most.
        """
        scale = PredictionScale(self.best.observations)
        return bool(scale.spread <= 10 * np.finfo(float).eps * scale.size)

    @property
    def misses(self):
        """By how many times more than noise allows a fit misses; 0 if it does not.

        Of an equation at collocation points, residuals are compared with the noise
        levels, or errors of prediction if these are poor; where there are exact
        trajectories and terms were searched for, errors of prediction with the noise
        that two steps find without an equation; unless they are as random as noise is,
        which two steps may take for a motion, or so small and systematic that nothing
        is noise. Errors of exact states in space are large
        where nothing is seen of what comes in: instead, where two steps find no noise,
        the noise that remains beside the equation is compared with theirs. Noise that
        is given is believed.
        """
        fit, criteria = self.best, self.criteria
        scale = PredictionScale(fit.observations)
        noise = scale.noise(fit.two_step.observation_noise)
        if self._noise_given or fit.is_driven:
            return 0.0
        allowed = criteria.missed_if_exact * scale.size
        in_time = self.integrable and len(fit.two_step.variables) == 1
        sees, systematic = sees_noise(fit.two_step), False
        if in_time and fit.is_exact:
            correlation = correlation_of_residuals(fit)
            systematic = correlation > criteria.systematic
            sees = sees and not self._is_not_noise(correlation, scale.size)
        if sees:
            allowed = criteria.missed * noise
        if in_time and fit.is_exact and not sees:
            if systematic:
                allowed = criteria.nothing_missed * scale.size
            if fit.has_functions:
                allowed = criteria.functions_miss * scale.size
        if in_time and fit.hypothesis.n_terms and fit.error > allowed:
            is_noise = sees and fit.is_exact and misses_at_random(fit, criteria)
            is_noise = is_noise or self._looks_like_noise(scale.size)
            return 0.0 if is_noise else fit.error / allowed
        if fit.is_exact:
            return 0.0 if in_time else missed_in_space(fit, fit.two_step, criteria)
        poor = fit.predicts_poorly(criteria) and noise > 0
        factor = fit.error / noise if poor else fit.problem.dispersion**0.5
        return factor if factor > criteria.missed else 0.0

    @property
    def misses_smoothly(self):
        """By how many times more than right equations smooth states miss; or 0."""
        fit, most = self.best, self.criteria.met_smoothly
        if not self.is_smooth or fit.result.interrupted or fit.misfit < most:
            return 0.0
        return (fit.misfit / most) ** 0.5

    @property
    def error_between(self):
        """Error of predictions far above the noise, at collocation points; 0 if not.

        In units of the size of the observations, of kernels that are found. Between
        observations states are known no better, however closely they meet these and
        the equation.
        """
        fit, criteria = self.best, self.criteria
        states, scale = fit.observations.states, PredictionScale(fit.observations)
        is_open = len(fit.hypothesis.open_states(states)) == len(states)
        if fit.is_exact or self._noise_given or not is_open:
            return 0.0
        noise = scale.noise(fit.two_step.observation_noise)
        least = max(criteria.exact_size * scale.size, criteria.missed * noise)
        return fit.error / scale.size if fit.error > least else 0.0

    @property
    def better_without(self):
        """By how much observations are more probable without the equation, or 0.

        Each given all others, a factor in the mean, if the log densities of a Gain
        differ by more than the criterion says.
        """
        gain, clear = self._gain, self.criteria.clear
        is_worse = gain is not None and -gain.total > clear * gain.error
        return float(np.exp(-gain.total / gain.n)) if is_worse else 0.0

    @property
    def unsupported(self):
        """The Gain of elementary functions that predict no better than none, or None.

        Many sets of these are compared, and some come near to any motion: they count as
        found if predictions are better than those of states without an equation, by
        what the criterion asks of each term. If they are worse that is told.
        """
        gain, fit = self._gain, self.best
        if gain is None or not fit.has_functions or self.better_without:
            return None
        least = self.criteria.supported * len(fit.term_names)
        return gain if gain.total < least else None

    @property
    def _gain(self):
        """The Gain of the fit, unless noise is given."""
        return None if self._noise_given else gain_of_equations(self.best)

    @property
    def uncertain(self):
        """The deviation of P that is told, in units of its size, and a factor of it.

        That of exact data is small, unless noise is given. Deviations are what kernels
        and noise levels say of states at collocation points: where observations are
        predicted from each other with larger errors, P is more uncertain by as much.
        """
        fit, criteria = self.best, self.criteria
        is_noisy = self._noise_given or sees_noise(fit.two_step)
        most = criteria.uncertain if is_noisy else criteria.uncertain_if_exact
        factor = 1.0 if fit.is_exact else fit.model.left_out_dispersion() ** 0.5
        return most, max(1.0, factor)

    @property
    def uncertain_terms(self):
        """Equations with terms that leave P uncertain, and by what part, a dict.

        Standard deviations of P where states are, in units of its size, above that
        which is told. Noise of an equation that is given is believed; and who keeps all
        terms has asked for no choice among equations.
        """
        fit, least = self.best, least_told(self.best, self.criteria)
        given = given_equation_noise(fit.hypothesis, fit.two_step.setup)
        parts = uncertainty_of_terms(fit) if np.all(np.isnan(given)) else {}
        n_terms = {name: fit.hypothesis.of_equation(name).n_terms for name in parts}
        return {
            name: part
            for name, part in parts.items()
            if part > least and n_terms[name] is not None
        }

    @property
    def unresolved(self):
        """How finely exact states are integrated, and what a finer grid changes.

        A text, and the change in units of the noise; 0 if it is little.
        """
        if self.best.resolution is None:
            return "", 0.0
        return self.best.resolution[0], unresolved_change(self.best, self.criteria)

    @property
    def told_from_zero(self):
        """Size of a combination of operators that the data tell from zero.

        In units of the size of the operators, of the states that are most exact.
        """
        fit, criteria = self.most_exact, self.criteria
        scale = PredictionScale(fit.observations)
        in_time = fit.is_exact and len(fit.two_step.variables) == 1
        levels = fit.two_step.observation_noise
        if fit.is_exact:
            levels = np.reshape(fit.problem.prior.noise, -1)
        error = scale.noise(levels) / scale.size / np.sum(scale.counts) ** 0.5
        least = criteria.missed_if_exact if in_time else criteria.related
        most = max(least, criteria.unexplained)  # also of noise that is given
        return float(np.clip(criteria.related_errors * error, least, most))

    @property
    def conserved(self):
        """Size of a polynomial of trajectories that counts as zero; 0 of others."""
        in_time = self.best.is_exact and len(self.best.two_step.variables) == 1
        return self.criteria.conserved if in_time else 0.0

    def _is_not_noise(self, correlation, size):
        """Whether what two steps take for noise is what an equation does not explain.

        Where exact states have a kink in some derivative, smooth functions leave little
        residuals, as noise does: but these, and those of another form of the equation,
        are alike at neighbouring times. Nor are residuals of two steps noise if the
        equation leaves far less: many functions bend to random ones, too.
        """
        fit, criteria = self.best, self.criteria
        if not fit.error < criteria.approximate * size:
            return False
        if not fit.has_functions:
            return correlation > criteria.systematic
        levels = fit.problem.prior.noise, fit.two_step.observation_noise
        own, other = map(PredictionScale(fit.observations).noise, levels)
        return correlation > criteria.random or own < other / criteria.missed

    def _looks_like_noise(self, size):
        """Whether trajectories miss observations at random, and by more than little."""
        fit, criteria = self.best, self.criteria
        if not fit.is_exact or fit.error < criteria.approximate * size:
            return False
        return misses_at_random(fit, criteria)

    @property
    def _noise_given(self):
        """Whether the noise of an observed operator is given."""
        operators = self.best.observations.operators
        given = self.best.hypothesis.noise_levels(operators)
        return not np.all(np.isnan(given))

    @property
    def disagreement(self):
        """By how much P of the alternative differs where the states of the fit are.

        Relative to the size of P; zero if it is not more than the criterion, or if the
        fit is not of a single equation.
        """
        fit, other = self.best, self.alternative
        if other is None or fit.is_exact or len(fit.learned.equations) > 1:
            return 0.0
        (equation,), (rival,) = fit.learned.equations, other.learned.equations
        S = equation.training_features
        difference = rms(equation.unknown_part(S) - rival.unknown_part(S))
        part = difference / (rms(equation.unknown_part(S)) or 1.0)
        return part if part > self.criteria.disagree else 0.0

    @property
    def bent(self):
        """By how much P differs from that of the exact states which gave its terms.

        Relative to the size of P where states are; 0 if it is not more than the
        criterion says.
        """
        source = self.terms_from.best if self.terms_from else self.integrated
        if source is None:
            return 0.0
        part = _difference(source.learned.equations, self.best.learned)
        criteria = self.criteria
        noisy = self.best.noise_part > criteria.bent_if_exact
        most = criteria.bent if noisy else criteria.bent_if_exact
        return part if part > most else 0.0

    @property
    def other_kind(self):
        """The kind of the equation of the alternative, in words."""
        kind = self.alternative.hypothesis.name.removeprefix("exact states, ")
        return f"a {kind}" + " with exact states" * self.alternative.is_exact

    @property
    def rivals(self):
        """Terms that explain the data about as well, if terms were chosen by evidence.

        A list of (terms, log odds): those of the fit, with the log odds zero, and
        others, the most probable first, if they are as probable as the criterion says.
        Of very many functions some are near to anything: polynomials in place of them
        are told unless the evidence is decisive. Other equations that predict each
        observation from all others no worse are told unless it is very strong. Not
        those that are the law that was found in other coordinates of a hidden state.
        """
        evidence = self.best.log_evidences
        chosen = frozenset(self.best.term_names if evidence else ())
        if chosen not in evidence:
            return []
        odds = {terms: value - evidence[chosen] for terms, value in evidence.items()}
        ranked = sorted(odds.items(), key=lambda item: -item[1])
        polynomial = self.criteria.rival
        if self.best.has_functions:
            polynomial = self.criteria.wider
        near = [
            (terms, o)
            for terms, o in ranked
            if o > -(polynomial if are_monomials(terms) else self.criteria.rival)
            or (o > -self.criteria.very_strong and self._predicts_no_worse(terms))
        ]
        near = [(terms, o) for terms, o in near if terms != chosen]
        return [(chosen, 0.0), *of_other_laws(self.best, near, self.criteria.differs)]

    def _predicts_no_worse(self, terms):
        """Whether other terms predict no worse, with an equation that differs."""
        steps = most_probable(self.best.terms_path)
        own, other = steps[frozenset(self.best.term_names)], steps[terms]
        differs = _difference(other.equations, self.best.learned)
        return other.error <= own.error and differs > self.criteria.differs

    @property
    def wider_rivals(self):
        """Terms of wider hypotheses that the data alone do not tell from those found.

        The odds against these hypotheses are what is believed before data are seen, and
        not what data say. A list of (terms, part): those of the fit, with the part
        zero, and others whose equations differ from those that were found where states
        are, by a part of their size above the criterion. Of polynomials of fields as
        many as `rivals` would have without these odds; products of four operators, or
        of time, were never the truth where an ordinary differential equation has them
        as rivals. Of very many functions some are near to anything: such that are as
        probable, but for a bare mention.
        """
        steps, criteria = most_probable(self.best.terms_path), self.criteria
        chosen = frozenset(self.best.term_names if steps else ())
        if chosen not in steps:
            return []
        own, told = steps[chosen], {frozenset(terms) for terms, _ in self.rivals}
        is_field, found = len(self.best.two_step.variables) > 1, [(chosen, 0.0)]
        for terms, step in steps.items():
            is_polynomial = are_monomials(terms)
            if terms in told or (is_polynomial and not is_field):
                continue
            odds = step.prior_odds - own.prior_odds
            margin = criteria.rival if is_polynomial else criteria.bare
            if odds > 0 and step.log_evidence + odds > own.log_evidence - margin:
                found.append((terms, _difference(step.equations, self.best.learned)))
        return [found[0], *(p for p in found[1:] if p[1] > criteria.disagree)]

    @property
    def rivals_of_other_orders(self):
        """Terms with other highest derivatives whose equations predict no worse.

        States in space that spread have more free boundary values than those that are
        carried along, for which evidence asks a price; errors of prediction do not. A
        list of (terms, part), as that of wider rivals.
        """
        steps, d = (
            most_probable(self.best.terms_path),
            len(self.best.two_step.variables),
        )
        chosen = frozenset(self.best.term_names if steps else ())
        is_field = d > 1 and self.most_exact.is_exact and chosen in steps
        if not is_field or self.best.has_functions:
            return []
        axes = [i for i in range(d) if i != self.most_exact.problem.grid.axis]

        def orders(step):
            return [highest_derivatives(each, axes) for each in step.equations]

        own, told = orders(steps[chosen]), {terms for terms, _ in self.rivals}
        others = [
            (terms, _difference(step.equations, self.best.learned))
            for terms, step in steps.items()
            if terms not in told and self._predicts_no_worse(terms)
            if are_monomials(terms) and orders(step) != own
        ]
        return [(chosen, 0.0), *others]

    def left_out(self, given):
        """Terms that equations were not to have, which make data more probable.

        given : Hypothesis. What the user says.

        Returns found : list of LeftOut.
        """
        return terms_left_out(self.best, given, self.criteria)

    @property
    def misses_exact_fields(self):
        """Whether fields that could be exact are not: none found, or worse ones.

        Terms that were chosen with equations at collocation points may then be there
        for what states do between these.
        """
        fit = self.best
        is_field = len(fit.two_step.variables) > 1
        chosen = fit.hypothesis.n_terms is not None
        missed = self.integrable and not fit.is_exact and self.integrated is None
        return bool(is_field and chosen and missed)

    def with_rivals_of(self, exact):
        """This, with the rivals of exact states, a Fit or None, that have its terms."""
        if exact is None or {*exact.term_names} != {*self.joint.term_names}:
            return self
        joint = replace(self.joint, terms_path=exact.terms_path)
        return replace(self, joint=joint, integrated=exact)

    def or_better(self, other, factor=1.0):
        """This, or another one with smaller errors, `factor` times its own at most."""
        if other.joint.result.interrupted:
            return replace(self, joint=self.joint.stopped(other.joint.result.stop))
        lost = self.joint.result.converged and not other.joint.result.converged
        better = other.error < factor * self.error and not lost
        return other if better else self

    def stopped(self):
        """The selection as the outcome of a search that was interrupted."""
        if self.exact is not None:
            return replace(self, exact=self.exact.stopped(Stop.KEYBOARD))
        return replace(self, joint=self.joint.stopped(Stop.KEYBOARD))

    def or_exact(self, exact, factor=1.0):
        """This, or exact states with smaller errors, `factor` times its own at most."""
        if exact is None or self.joint.result.interrupted:
            return self
        better = exact.error < factor * self.error
        return replace(self, exact=exact) if better else self


def _difference(equations, learned):
    """The largest difference of unknown parts from learned ones where states are.

    Relative to the size of each; 0 if there are no other equations.
    """
    parts = [0.0]
    for other, equation in zip(equations, learned.equations, strict=False):
        if len(equation.weights):
            S = equation.training_features
            own = equation.unknown_part(S)
            parts.append(rms(other.unknown_part(S) - own) / size_or_one(own))
    return max(parts)

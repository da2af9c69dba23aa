"""When one fit is better than another or good enough, and what was chosen."""

import re
from dataclasses import dataclass, field, replace

import numpy as np

from keql._numerics.linalg import rms
from keql._numerics.optimisation import Stop
from keql._observations.data import PredictionScale, left_out_errors, noise_range
from keql._regression.likelihood import left_out_log_densities


@dataclass(frozen=True)
class Criteria:
    """What hypotheses are compared by: errors of predicting each observation.

    Each observation is predicted from all others and the equation (leave one out);
    the error of a fit is the root mean square of these errors. The values were found
    on Burgers' equation, Duffing's and Darcy's, with and without noise (see the
    developer notes); none depends on units.

    clearly_better : float. Factor of the error from which on another hypothesis is
        taken although it says more: a higher degree, less noise, coefficients that
        vary.
    predicts_well : float. Error, in units of the root mean square of the observations,
        up to which a fit counts as one that predicts.
    explains : float. Error, in units of the standard deviation of the observations,
        above which a fit explains little: the noise level that two steps find may be
        that of a signal they did not see.
    unexplained : float. Residual of an equation at collocation points, in units of the
        size of its known part and forcing, above which a part of it is not explained.
        Right equations were met to 0.75 % at most, wrong ones missed by 2.4 % at least.
    disagree : float. Difference of two equations that predict about as well, relative
        to their size, above which it is told.
    rival : float. Log odds up to which equations with other terms are told beside the
        one of the highest evidence: one to twenty, from which on
        evidence is called strong: Kass and Raftery, "Bayes factors", JASA 90, 1995.
    wider : float. Prior log odds that an ordinary differential equation has no products
        of four operators and does not depend on time, and that a noisy field whose
        quadratic equation predicts well has no cubic terms, nor coordinates in terms:
        odds that call for decisive evidence (Kass and Raftery).
    elementary : float. The same that it has no elementary functions: odds that call for
        strong evidence, as those of `rival`. Beside it, each of them has the odds of
        one among all of the table.
    driven : float. The same that no white noise drives the states: odds that call for
        strong evidence. Its level is of maximum likelihood.
    worth_noise : float. What such noise has to add to the log evidence of exact states,
        with their own terms, for others to be looked for: of equations that hold
        exactly it was 1.2 at most, of driven states 14 at least.
    noise_limited : float. Error, in units of the observation noise, up to which noise
        hides whether another fit predicts better.
    exact_size, exact_noise : float. Error of exact states, in units of the size of the
        observations and of the noise that two steps find, up to which nothing else is
        tried.
    nothing_missed : float. The same of trajectories if two steps find no noise, in
        units of the size of the observations.
    functions_miss : float. The same with elementary functions: those of another form
        come as near as 1e-9, with their inner parameters, where states cover a small
        range. Right ones met exact data to 1e-11, one to 3e-10 (see the developer
        notes).
    missed : float. The largest error of trajectories, or residual of a joint fit, in
        units of the noise that two steps find, with which data count as met.
    missed_if_exact : float. The same of trajectories if two steps find no noise, in
        units of the size of the observations: right equations are met better, also
        where steps in time or few digits of the data leave errors.
    interpolated : float. Noise that is found beside exact states in space, in units of
        that which two steps find in exact data, up to which the data are met: those of
        right equations were met to twice the lowest level there is at most, of wrong
        ones missed by 11 times that at least.
    unresolved, resolved : float. Change of exact states on a grid that is half as fine
        again, in units of the noise and of the size of the observations, of which they
        may exceed one: right equations were resolved to 1.2e-4 of the size, four wrong
        terms that made up for the grid to 4.7e-4.
    random : float. Correlation of the errors of neighbouring observations, in standard
        errors of those that are independent, up to which errors are as random as noise,
        and innovations of driven states those of white noise.
    approximate : float. Error, in units of the size of the observations, up to which it
        may be that of an equation that describes exact data approximately: polynomials
        in the place of other functions come as near as 1e-4 to 1e-3.
    systematic : float. The correlation as of `random` from which on trajectories miss
        exact data if their errors are above `nothing_missed`: rounding errors are
        random, an equation in the place of another one misses neighbours alike.
    related : float. Combination of operators, in units of their size, that states in
        space do not tell from zero, as they are uncertain between observations. That of
        a standing wave was 1.8e-3, the least of fields that determine their equations
        6e-2; of trajectories it is `missed_if_exact`.
    related_errors : float. The same in standard errors of the mean of the noise, up to
        `unexplained`.
    conserved : float. Polynomial of degree two in the operators of trajectories, each
        without its mean and in units of its standard deviation, that counts as zero:
        those of circles and conserved energies were 4e-12 at most, the least of others
        2e-5.
    agreement : float. Trajectories with equal terms whose errors differ by less than
        this part are the same minimum.
    inactive_misfit : float. Mean square of the residuals, in units of the noise levels,
        below which the noise of the equation does not matter.
    less_noise : float. Factor of the noise of the equation that is tried along with it.
    ties : float. Kernels predict as well as the best one if their mean squared error is
        higher by at most this part of the standard error of the difference.
    n_finalists : int. State kernels that are fitted to the last term while predictions
        are poor.
    n_functions : int. Functions in space and time whose exact states are compared for
        all sets of few terms on a fine grid; of more, terms are taken out one by one on
        a coarse grid, as those of several fields are.
    """

    clearly_better: float = 0.75
    predicts_well: float = 0.1
    explains: float = 0.6
    unexplained: float = 0.02
    disagree: float = 0.1
    rival: float = 3.0
    wider: float = 7.0
    elementary: float = 3.0
    driven: float = 3.0
    worth_noise: float = 2.0
    noise_limited: float = 2.0
    exact_size: float = 5e-3
    exact_noise: float = 1.5
    nothing_missed: float = 1e-7
    functions_miss: float = 4e-10
    missed: float = 3.0
    missed_if_exact: float = 1e-5
    interpolated: float = 5.0
    unresolved: float = 2.0
    resolved: float = 2.5e-4
    random: float = 2.0
    systematic: float = 4.0
    related: float = 5e-3
    related_errors: float = 3.0
    conserved: float = 1e-7
    approximate: float = 0.01
    agreement: float = 0.01
    inactive_misfit: float = 0.1
    less_noise: float = 0.1
    ties: float = 0.25
    n_finalists: int = 8
    n_functions: int = 12


def sees_noise(two_step):
    """Whether two steps find more noise than they take exact data to have."""
    lowest, _ = noise_range(two_step.observations.sizes())
    return bool(np.any(two_step.observation_noise > 2 * lowest))


def missed_in_space(fit, two_step, criteria):
    """By how many times exact states in space miss what two steps interpolate, or 0."""
    if sees_noise(two_step) or not fit.hypothesis.n_terms:
        return 0.0
    factor = level_in_space(fit, two_step)
    return factor if factor > criteria.interpolated else 0.0


def level_in_space(fit, two_step, rounding=1e-6):
    """The noise beside exact states in space, in units of that of two steps."""
    levels = np.reshape(fit.problem.prior.noise, -1) / two_step.observation_noise
    return float(np.max(levels)) / (1 + rounding)


def predicts_within_noise(fit, two_step, criteria, own_noise=0.0):
    """Whether nothing better than exact states is to be looked for.

    Observations are predicted to a small part of their size, or as well as their
    noise, as it would be without an equation, allows; `own_noise` is that with it, if
    it counts where the other one confirms it.
    """
    scale = PredictionScale(two_step.observations)
    noise = scale.noise(two_step.observation_noise)
    own_noise = scale.noise(own_noise)
    if own_noise < criteria.exact_noise * noise:
        noise = max(noise, own_noise)
    return fit.error < max(
        criteria.exact_size * scale.size, criteria.exact_noise * noise
    )


def meets_data(fit, two_step, criteria):
    """Whether exact states predict within the noise, and miss no exact data."""
    misses = missed_in_space(fit, two_step, criteria)
    return predicts_within_noise(fit, two_step, criteria) and not misses


def unresolved_change(fit, criteria):
    """Change of exact states on a finer grid, in units of the noise; 0 if little."""
    scale, (_, change) = PredictionScale(fit.observations), fit.resolution
    size = change * scale.noise(fit.problem.prior.noise) / scale.size
    is_large = change > criteria.unresolved and size > criteria.resolved
    return change if is_large else 0.0


def _are_monomials(terms):
    """Whether names of terms are products of whole powers of features."""
    texts = [name.rpartition(": ")[2] for name in terms]
    return all(re.fullmatch(r"[\w^ ]+", text) for text in texts)


def is_better(fit, other, criteria):
    """Whether trajectories predict clearly better than others.

    Or better, and their terms are strongly more probable: those of one hypothesis from
    different starts have the same prior.
    """
    if fit.error < criteria.clearly_better * other.error:
        return True
    if fit.hypothesis.name != other.hypothesis.name or fit.error > other.error:
        return False
    logs = [
        each.log_evidences.get(frozenset(each.term_names), np.nan)
        for each in (fit, other)
    ]
    return logs[0] - logs[1] > criteria.rival


def correlation_of_neighbours(residuals, observations):
    """That of residuals which follow one another, in standard errors of random ones.

    Observations of one operator of a function follow one another in time. An equation
    that lacks a term misses neighbours alike; noise does not.
    """
    start, products, count = 0, 0.0, 0
    for data in observations.functions:
        own = residuals[start : start + len(data.values)]
        start += len(own)
        for j in np.unique(data.index):
            e = own[data.index == j]
            products += e[1:] @ e[:-1] / (e @ e or 1.0) * len(e)
            count += len(e)
    return products / np.sqrt(count)


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
    alternative : Fit or None. Of another hypothesis, which predicts about as well.
    """

    joint: object = None
    exact: object = None
    promised: float | None = None
    kernels: list = field(default_factory=list)
    not_tried: list = field(default_factory=list)
    integrable: bool = False
    criteria: Criteria = field(default_factory=Criteria)
    alternative: object = None

    @property
    def best(self):
        """The fit."""
        return self.exact or self.joint

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
        if self._noise_given:
            return False
        for data in fit.observations.functions:
            alike.append(replace(data, weights=np.ones_like(data.weights)))
        observations = replace(fit.observations, functions=alike)
        errors = left_out_errors(fit.model, observations)
        spread = PredictionScale(observations).spread
        return spread > 0 and rms(errors) > self.criteria.explains * spread

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
            residuals = fit.model.evaluation.residuals
            correlation = correlation_of_neighbours(residuals, fit.observations)
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
            return 0.0 if self._looks_like_noise(scale.size) else fit.error / allowed
        if fit.is_exact:
            return 0.0 if in_time else missed_in_space(fit, fit.two_step, criteria)
        poor = fit.predicts_poorly(criteria) and noise > 0
        factor = fit.error / noise if poor else fit.problem.dispersion**0.5
        return factor if factor > criteria.missed else 0.0

    @property
    def better_without(self):
        """By how much observations are more probable without the equation, or 0.

        Each given all others, a factor in the mean, of the values of a single state
        whose exact states in space are compared with two steps: an equation that holds
        predicts no worse than none. It does if the log densities differ by more than
        two standard errors. Densities of exact data tell of rounding and resolution.
        """
        fit, two_step = self.best, self.best.two_step
        alone = len(two_step.observations.states) == two_step.observations.n_operators
        alone = alone and two_step.observations.n_operators == 1
        if not (alone and fit.is_exact and len(two_step.variables) > 1):
            return 0.0
        if self._noise_given or not sees_noise(two_step):
            return 0.0
        level = float(np.ravel(two_step.observation_noise)[0])
        functions = two_step.observations.functions
        without = left_out_log_densities(two_step.state_kernel, level, functions)
        change = without - fit.result.model.regression.left_out_log_densities()
        is_clear = np.sum(change) > 2 * np.std(change) * len(change) ** 0.5
        return float(np.exp(np.mean(change))) if is_clear else 0.0

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

        In units of the size of the operators.
        """
        fit, criteria = self.best, self.criteria
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
        residuals = fit.model.evaluation.residuals
        return correlation_of_neighbours(residuals, fit.observations) < criteria.random

    @property
    def _noise_given(self):
        """Whether the noise of an observed operator is given."""
        fit = self.best
        names = [operator.name for operator in fit.observations.operators]
        given = [fit.hypothesis.of_state(name).observation_noise for name in names]
        return any(level is not None for level in given)

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
    def rivals(self):
        """Terms that explain the data about as well, if terms were chosen by evidence.

        A list of (terms, log odds): those of the fit, with the log odds zero, and
        others, the most probable first, if they are as probable as the criterion says.
        Of very many functions some are near to anything: polynomials in place of them
        are told unless the evidence is decisive.
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
            if o > -(polynomial if _are_monomials(terms) else self.criteria.rival)
        ]
        return [(chosen, 0.0), *((t, o) for t, o in near if t != chosen)]

    @property
    def misses_exact_fields(self):
        """Whether fields that could be exact are not: none found, or worse ones.

        Terms that were chosen with equations at collocation points may then be there
        for what states do between these.
        """
        fit = self.best
        is_field = len(fit.two_step.variables) > 1
        chosen = fit.hypothesis.n_terms is not None
        return bool(is_field and chosen and self.integrable and not fit.is_exact)

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

"""When one fit is better than another or good enough, and what was chosen."""

from dataclasses import dataclass

import numpy as np

from keql._numerics.linalg import rms
from keql._observations.data import PredictionScale, left_out_errors, noise_range
from keql.operators import KernelExpansion


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
    far_better : float. Error of trajectories that leave but noise, in units of that
        without an equation, below which nothing else is looked for: where states alone
        predict so poorly, the noise they see is none. Right ones had 0.04 to 0.42.
    predicts_well : float. Error, in units of the root mean square of the observations,
        up to which a fit counts as one that predicts.
    explains : float. Error, in units of the standard deviation of the observations,
        above which a fit explains little: the noise level that two steps find may be
        that of a signal they did not see.
    unexplained : float. Residual of an equation at collocation points, in units of the
        size of its known part and forcing, above which a part of it is not explained.
        Right equations were met to 0.75 % at most, wrong ones missed by 2.4 % at least.
    between : float. The same between collocation points, on states that are learned:
        right ones were met to 2.7 % at most, but for two with noise that were in doubt
        anyway (13 and 64 %); wrong ones missed by 12 % at least.
    clear : float. Standard errors by which log densities of observations, each given
        all others, are higher without an equation that predicts worse than none. Those
        of right ordinary differential equations were 0.1 standard errors higher
        without at most, of one of too low an order 5.9.
    supported : float. What each term has to add to these log densities, in comparison
        with no equation, where some are elementary functions: what Akaike's criterion
        asks of a parameter, beyond what leaving out takes already, as terms are chosen
        out of very many. Of 44 solved fits with noise of 2 % seven added less, six of
        which had other doubts, the seventh functions in the place of others; so did ten
        of 13 with such functions in the place of a state or form not on offer.
    pulled : float. Change of P where states are, in units of its size, with the
        likeliest scale in place of one that is given and too small, above which it is
        told: from 0.07 on states were about two to four times as far off, up to 0.031
        they were not.
    disagree : float. Difference of two equations that predict about as well, relative
        to their size, above which it is told.
    bent, bent_if_exact : float. Difference of an equation from that of the exact states
        which gave its terms, relative to its size, above which it is told; and the same
        if noise that two steps find is below the latter, in units of the spread. With
        2 % noise it was 1.7e-2 at most where kernels are open, 6e-2 with one that does
        not suit; of exact data 8.3e-4 where coefficients were right to 1e-3, and 1.6e-3
        at least where they were not.
    rival : float. Log odds up to which equations with other terms are told beside the
        one of the highest evidence: one to twenty, from which on
        evidence is called strong: Kass and Raftery, "Bayes factors", JASA 90, 1995.
    very_strong, differs : float. Log odds up to which equations that predict each
        observation from all others no worse are told as well, where they differ by more
        than this, relative to their size: one to 150, from which on evidence is called
        very strong (Kass and Raftery). Within noise of 2 % such equations had odds of
        one to 700 at most beside right ones that no other rival left open, and one to
        30 beside a wrong one.
    bare : float. Log odds that the data alone give up to which elementary functions are
        told that differ by more than `disagree`: worth a bare mention only (Kass and
        Raftery). A sine had -0.1 beside a wrong polynomial; beside 81 noisy right
        equations without other doubts none had more than -1.6.
    wider : float. Prior log odds that an ordinary differential equation has no products
        of four operators and does not depend on time, and that a noisy field whose
        quadratic equation predicts well has no cubic terms, nor coordinates in terms:
        odds that call for decisive evidence (Kass and Raftery).
    elementary : float. The same that it has no elementary functions: odds that call for
        strong evidence, as those of `rival`. Beside it, each has the odds of one
        among all of the table, or of those with natural parameters.
    driven : float. The same that no white noise drives the states: odds that call for
        strong evidence. Its level is of maximum likelihood. Other terms are looked for
        only where noise outweighs these odds with the terms of exact states: it added
        14 at least to the log evidence of driven states, and to that of equations that
        hold exactly 1.2 at most in the suite, 3.4 at most in 69 noisy fits of Lorenz's.
    undriven : float. Error of predictions without any equation, in units of that of
        driven states with the terms of exact ones, below which states are too smooth
        for noise to drive them, whatever their terms: of states that white noise drives
        it was 0.23 at least, of polynomials in the place of sines 4e-4.
    noise_limited : float. Error, in units of the observation noise, up to which noise
        hides whether another fit predicts better.
    exact_size, exact_noise : float. Error of exact states, in units of the size of the
        observations and of the noise that two steps find, up to which nothing else is
        tried. Larger errors of equations at collocation points, that are also above
        `missed`, are told: those of right ones with exact data were 1e-4 at most, and
        1.4e-2 where states between observations were found to 5e-3 only.
    nothing_missed : float. The same of trajectories if two steps find no noise, in
        units of the size of the observations; and, whatever noise these find, up to
        which trajectories are compared with no others.
    functions_miss : float. The same with elementary functions: those of another form
        come as near as 1e-9, with their inner parameters, where states cover a small
        range. Right ones met exact data to 1e-11, one to 3e-10.
    missed : float. The largest error of trajectories, or residual of a joint fit, in
        units of the noise that two steps find, with which data count as met.
    missed_if_exact : float. The same of trajectories if two steps find no noise, in
        units of the size of the observations: right equations are met better, also
        where steps in time or few digits of the data leave errors.
    interpolated : float. Noise that is found beside exact states in space, in units of
        that which two steps find in exact data, up to which the data are met: those of
        right equations were met to twice the lowest level there is at most, of wrong
        ones missed by 11 times that at least.
    few_terms : int. Terms of an equation of exact states in space up to which nothing
        is looked for beside it, where it meets exact data to the lowest noise: series
        in the place of elementary functions had five and more.
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
    uncertain : float. Standard deviation of an equation without a list of terms where
        states are, in units of its size, above which it is told. Of Darcy's with two,
        four and eight functions it was 0.042, 0.033 and 0.0041, and errors were 0.055,
        0.029 and 0.0027; at new functions both were two to five times as large.
    uncertain_terms : float. The same of one with terms, others counting as probable as
        they are: three of 22 noisy equations without other doubts had more.
    uncertain_if_exact : float. Both of these for exact data: 103 right equations of
        exact states had 3.1e-4 at most, one in a plane 8.2e-4, a wrong one 2.8e-2.
    amplified, amplification : float. Change of an equation of trajectories, in units of
        its size, by states that are off by the noise of observations, above which it is
        told, if the equation amplifies that noise, in units of the standard deviation
        of states, as many times: wrong ones did so 7.6 and 22 times, right ones, stiff
        ones among them, 4.4 times at most.
    degree_left_out : int. Degree of products of states that are asked for beside given
        terms: log odds of the best one were 11 at least where friction was missing, 0.1
        to 1.8 with a sine in the place of a cube for four of six draws, and -0.4 at
        most in 78 fits with right kernels.
    explained : float. Distance of such a product from what terms that are there add up
        to, in units of its size, below which it is not asked for. That of terms was
        4e-15 at most in fits of the suite with two terms, that of others 4e-2 at least.
    agreement : float. Trajectories with equal terms whose errors differ by less than
        this part are the same minimum.
    smooth : float. Log odds of a smooth kernel of exact data to a rougher one, from
        which on states are smooth that cannot be exact: they were 7 to 122 of analytic
        functions that were seen 20 times or more, -1.5 and -95 of two others.
    met_smoothly : float. Mean square of the residuals of smooth states, in units of the
        noise levels of exact data, up to which they meet an equation: it was 0.016 at
        most with right ones.
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
    far_better: float = 0.5
    predicts_well: float = 0.1
    explains: float = 0.6
    unexplained: float = 0.02
    between: float = 0.05
    clear: float = 2.0
    supported: float = 1.0
    pulled: float = 0.05
    disagree: float = 0.1
    bent: float = 0.02
    bent_if_exact: float = 1e-3
    rival: float = 3.0
    very_strong: float = 5.0
    differs: float = 0.05
    bare: float = 1.0
    wider: float = 7.0
    elementary: float = 3.0
    driven: float = 3.0
    undriven: float = 0.02
    noise_limited: float = 2.0
    exact_size: float = 5e-3
    exact_noise: float = 1.5
    nothing_missed: float = 1e-7
    functions_miss: float = 4e-10
    missed: float = 3.0
    missed_if_exact: float = 1e-5
    interpolated: float = 5.0
    few_terms: int = 4
    unresolved: float = 2.0
    resolved: float = 2.5e-4
    random: float = 2.0
    systematic: float = 4.0
    related: float = 5e-3
    related_errors: float = 3.0
    conserved: float = 1e-7
    approximate: float = 0.01
    uncertain: float = 0.03
    uncertain_terms: float = 0.05
    uncertain_if_exact: float = 1e-3
    amplified: float = 0.1
    amplification: float = 6.0
    degree_left_out: int = 3
    explained: float = 1e-3
    agreement: float = 0.01
    smooth: float = 5.0
    met_smoothly: float = 0.02
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
    """By how many times exact states in space miss what two steps interpolate, or 0.

    They do beside noise that two steps see, too: it may be that of rounding errors.
    """
    if not fit.hypothesis.n_terms or leaves_noise_on_grid(fit, criteria):
        return 0.0
    factor = level_in_space(fit, two_step)
    return factor if factor > criteria.interpolated else 0.0


def level_in_space(fit, two_step, rounding=1e-6):
    """The noise beside exact states in space, in units of that of two steps."""
    levels = np.reshape(fit.problem.prior.noise, -1) / two_step.observation_noise
    return float(np.max(levels)) / (1 + rounding)


def few_terms_meet(fit, two_step, criteria):
    """Whether exact states in space with few terms meet data to the lowest noise."""
    is_short = len(fit.term_names) <= criteria.few_terms
    exact = not sees_noise(two_step)
    return exact and is_short and level_in_space(fit, two_step) <= 1.0


def nothing_missed(fit, criteria):
    """The error, in units of the size, up to which trajectories miss nothing.

    Many products of the states of one trajectory may come as near to it as functions.
    """
    n_unknown = sum(own.depends_on is not None for own in fit.learned.setup.equations)
    is_short = len(fit.term_names) <= criteria.few_terms * n_unknown
    if is_short or fit.has_functions:
        return criteria.nothing_missed
    return criteria.functions_miss


def predicts_within_noise(fit, two_step, criteria, own_noise=0.0):
    """Whether nothing better than exact states is to be looked for.

    Observations are predicted to a small part of their size, or as well as their
    noise, as it would be without an equation, allows; `own_noise` is that with it, if
    it counts where the other one confirms it.
    """
    limit = error_within_noise(two_step, criteria, own_noise)
    return fit.error < limit or leaves_noise_on_grid(fit, criteria)


def error_within_noise(two_step, criteria, own_noise=0.0):
    """The error of predictions below which nothing better is to be looked for."""
    scale = PredictionScale(two_step.observations)
    noise = scale.noise(two_step.observation_noise)
    own_noise = scale.noise(own_noise)
    if own_noise < criteria.exact_noise * noise:
        noise = max(noise, own_noise)
    return max(criteria.exact_size * scale.size, criteria.exact_noise * noise)


def meets_data(fit, two_step, criteria):
    """Whether exact states predict within the noise, and miss no exact data."""
    misses = missed_in_space(fit, two_step, criteria)
    return predicts_within_noise(fit, two_step, criteria) and not misses


def odds_between(fit, other, polynomials, wider, criteria):
    """Prior log odds of the hypothesis of a fit to that of another one.

    Whatever they are compared in turn with, hypotheses are as probable before data are
    seen: functions are more so than products of four operators, or of time. The odds
    against functions are in the evidence of the sets that have some.

    polynomials, wider : list of str. Names of the hypotheses of quadratic and cubic
        equations, and of those that count as less probable than functions.
    """
    if other.hypothesis.name in polynomials:  # beside noise in the equation
        return criteria.rival
    if not other.has_functions:
        return criteria.wider
    return -criteria.wider if fit.hypothesis.name in wider else 0.0


def correlation_of_neighbours(residuals, observations):
    """That of residuals which follow one another, in standard errors of random ones.

    They are in units of their noise. Observations of one operator of a function follow
    one another in time. An equation that lacks a term misses neighbours alike; noise
    does not.
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


def agree(fit, other, criteria):
    """Whether trajectories have equal terms and errors: they are one minimum."""
    same = set(fit.term_names) == set(other.term_names)
    return same and abs(fit.error - other.error) < criteria.agreement * other.error


def are_many(learned, context):
    """Whether functions are too many for all sets of terms and a fine grid."""
    return len(learned.observations.functions) > context.criteria.n_functions


class Judgement:
    """What is asked of exact states, of all that are compared for some observations.

    two_step : LearnedModel. The two-step solution.
    equation_noise : float, dict or None. What is given of the equations.
    criteria : Criteria. By how much things have to differ.

    size : float. That of the observations, in units of errors of predictions.
    """

    def __init__(self, two_step, equation_noise, criteria):
        self.two_step, self.equation_noise = two_step, equation_noise
        self.criteria = criteria
        self.size = PredictionScale(two_step.observations).size

    @property
    def is_in_time(self):
        """Whether equations are ordinary differential equations."""
        return len(self.two_step.variables) == 1

    @property
    def is_in_plane(self):
        """Whether space has two coordinates, so that grids are coarse."""
        return len(self.two_step.variables) > 2

    @property
    def sees_noise(self):
        """Whether there is noise: two steps find it, or equations are given some."""
        given = self.equation_noise
        levels = given.values() if isinstance(given, dict) else [given]
        return (self.is_in_time and any(levels)) or sees_noise(self.two_step)

    @property
    def is_of_fields(self):
        """Whether they are several equations in space and time."""
        return self.two_step.setup.is_system and not self.is_in_time

    def in_doubt(self, error):
        """Whether an equation that predicts so poorly may be another one."""
        return error >= self.criteria.predicts_well * self.size

    def convinces(self, fit):
        """Whether nothing that predicts better than a fit is to be looked for."""
        scale = PredictionScale(self.two_step.observations)
        limit = self.criteria.exact_noise * scale.noise(self.two_step.observation_noise)
        return fit.error < min(limit, self.criteria.explains * scale.spread)

    def leaves_but_noise(self, fit):
        """Whether trajectories leave noise, and predict what states alone do not.

        What two steps take for the noise is then that of states they do not know.
        """
        observations = self.two_step.observations
        alone = error_without_equation(self.two_step.states, observations)
        spread = self.criteria.explains * PredictionScale(observations).spread
        far_better = fit.error < min(self.criteria.far_better * alone, spread)
        return far_better and misses_at_random(fit, self.criteria)

    def calls_for_kernels(self, candidate):
        """Whether other kernels of states are compared: with one these predict poorly.

        Where states predict well with equations of many terms, starts from those of
        other kernels led to no better trajectories, and took half of the time.
        """
        return self.in_doubt(candidate.error) and not self.convinces(candidate)

    def agrees(self, fit, other):
        """Whether another start leads to what predicts well, or leaves but noise."""
        noise = self.sees_noise and misses_at_random(other, self.criteria)
        doubted = self.in_doubt(other.error) and not noise
        return fit is not None and not doubted and agree(fit, other, self.criteria)

    def are_noisy(self, *fits):
        """Whether two steps see noise, or what all of the fits leave looks like it."""
        return self.sees_noise or leave_noise(fits, self.size, self.criteria)

    def is_better(self, fit, other, polynomials):
        """Whether trajectories predict clearly better than others.

        Or better, and their terms are strongly more probable: those of one hypothesis
        from different starts have the same prior, and those of `polynomials`, a list of
        hypotheses, where both fits leave noise.
        """
        if fit.error < self.criteria.clearly_better * other.error:
            return True
        fits, known = (fit, other), {row.name for row in polynomials}
        names = {each.hypothesis.name for each in fits}
        have_one_prior = names <= known and self.are_noisy(*fits)
        if fit.error > other.error or not (len(names) == 1 or have_one_prior):
            return False
        evidence, others = (
            each.log_evidences.get(frozenset(each.term_names), np.nan) for each in fits
        )
        return evidence - others > self.criteria.rival


@dataclass(frozen=True)
class _StatesAlone:
    """States of two steps, with errors of predictions as linear models have them."""

    states: list

    def leave_one_out(self):
        return [state.leave_one_out() for state in self.states]


def error_without_equation(states, observations):
    """Error of predicting each observation from all others by states of two steps.

    Those that were never observed are not known without an equation: nan.
    """
    if states is None or not all(isinstance(own, KernelExpansion) for own in states):
        return np.nan
    return rms(left_out_errors(_StatesAlone(states), observations))


def predicts_worse_than_none(fit, criteria):
    """Whether no equation at all predicts observations clearly better than a fit.

    What is that smooth is not driven by noise.
    """
    error = error_without_equation(fit.two_step.states, fit.observations)
    return error < criteria.clearly_better * fit.error


def correlation_of_residuals(fit):
    """That of what exact states leave of neighbours, in standard errors."""
    weights = np.concatenate([data.weights for data in fit.observations.functions])
    residuals = fit.model.evaluation.residuals * np.sqrt(weights)
    return correlation_of_neighbours(residuals, fit.observations)


def misses_at_random(fit, criteria):
    """Whether trajectories leave residuals that are as random as noise is."""
    return correlation_of_residuals(fit) < criteria.random


def leaves_noise_on_grid(fit, criteria):
    """Whether exact states miss neighbours at random, whatever noise was found."""
    is_fine = fit.observations.is_condensed and len(fit.two_step.variables) > 1
    return is_fine and fit.is_exact and bool(misses_at_random(fit, criteria))


def leave_noise(fits, size, criteria):
    """Whether what trajectories leave looks like noise that two steps do not see.

    These take that of few values for a motion. There is none where one of the fits is
    None, or errors of its predictions are small beside the `size` of observations.
    """
    return all(
        fit is not None
        and fit.error > criteria.approximate * size
        and misses_at_random(fit, criteria)
        for fit in fits
    )

"""Equations that the data do not determine, or do not tell from others."""

from math import exp, log

import numpy as np

from keql._evolution.form import count_initial_values
from keql._numerics.linalg import rms, size_or_one
from keql.equation import number, rms_std, terms_of
from keql.fit_report._report import multiple, percent


def undetermined(learned, significant=3.0, in_two_steps=False):
    """Equations of a system that the data do not determine, each in a sentence.

    learned : LearnedModel. States and equations.
    significant : float. How many standard errors one of the coefficients of an equation
        is away from zero, at least, if the equation is determined.
    in_two_steps : bool. Whether it was learned from fitted states, of which its weights
        have the errors. Then one that is the only one is looked at, too.
    """
    if learned.setup is None or not (in_two_steps or learned.setup.is_system):
        return []
    seen = {s for L in learned.observations.operators for s in L.states}
    if seen < set(learned.observations.states):  # nothing tells the unit of the others
        return []
    sentences = {}
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        if equation.posterior is None or terms_of(equation) is None:
            continue
        unit = 1.0 if in_two_steps else _unit_of_errors(learned, equation)
        largest = _largest_ratio(equation, unit)
        if largest < significant:
            name = f" {terms.name}" if learned.setup.is_system else ""
            sentences[terms.name] = (
                f"the equation{name} is not determined: none of its "
                f"coefficients is more than {largest:.1f} standard errors away from "
                "zero. Observe more, or with less noise, or ask for fewer terms"
            )
    return list(sentences.values())


def with_advice_once(sentences, advice="Observe more, or with less noise, or "):
    """Sentences of which only the first one that gives an `advice` gives it."""
    said, found = False, []
    for text in sentences:
        found.append(text.replace(advice, "Or ") if said else text)
        said = said or advice in text
    return found


def exhausted(fit, least=10, share=0.7, many=12, many_with_functions=8):
    """Equations of a Fit that took all terms on offer, or many, each in a sentence.

    A sum of all products comes near to any smooth function. Only of at least so many
    terms does it say something. At collocation points, where an equation is met to its
    noise, the part `share` of them does: a quadratic polynomial with eight of ten terms
    was as good as an exponential function there. Of as `many` terms that were chosen
    anyone does, whatever was on offer: of 330 fits of the suite's problems right ones
    have seven at most, and 133 of five equations made up for noise. Of elementary
    functions fewer do: nine made up for u^2/(0.3 + v), which was not on offer.
    """
    sentences, learned = [], fit.learned
    for terms, equation, wide in zip(
        learned.setup.equations, learned.equations, fit.two_step.equations, strict=True
    ):
        is_open = fit.hypothesis.of_equation(terms.name).n_terms == "auto"
        if terms.depends_on is None or not is_open:
            continue
        own, all_ = (terms_of(each) for each in (equation, wide))
        if own is None or all_ is None:
            continue
        n_offered = len(all_.products)
        n_used = np.sum(own.coefficients @ equation.weights != 0)
        n_many = n_offered if fit.is_exact else share * n_offered
        is_told = n_offered >= least and n_used >= min(n_many, many)
        what = f"{n_used} of the {n_offered} terms that were tried"
        if fit.has_functions:
            is_told = n_used >= many_with_functions
            what = f"{n_used} terms with elementary functions among them"
        if is_told:
            name = f" {terms.name}" if learned.setup.is_system else ""
            sentences.append(
                f"the equation{name} has {what}, which together come near to many "
                "functions: it may be of another form. Try an equation_kernel of "
                "another form or a higher degree, or observe states that differ more"
            )
    return sentences


def interpolating(learned):
    """A sentence if there are no fewer unknown numbers than observations in time.

    Terms and initial values together then meet the observations whatever the equation
    is, and neither the misfit nor predictions of those left out say anything of it.
    Only of equations that have a list of terms, where each is counted.
    """
    setup, observations = learned.setup, learned.observations
    named = zip(setup.equations, learned.equations, strict=True)
    own = [terms_of(each) for terms, each in named if terms.depends_on is not None]
    if len(learned.variables) > 1 or None in own:
        return []
    n_terms = sum(len(equation.terms()) for equation in learned.equations)
    n_initial = count_initial_values(setup, observations)
    n_values = observations.n_places
    if n_terms + n_initial < n_values:
        return []
    return [
        f"{n_terms} terms and {n_initial} initial values are no fewer unknown numbers "
        f"than the {n_values} values at different places, which are met whatever the "
        "equation is. Observe more, or with less noise, or ask for fewer terms"
    ]


def uncertain(learned, most, factor=1.0, named=1.5):
    """Equations without a list of terms that are poorly known, each in a sentence.

    learned : LearnedModel. States and equations.
    most : float. Standard deviation of P where states are, in units of its size, from
        which on it is told. At other states it is more.
    factor : float. By what observations are predicted from each other with larger
        errors than kernels and noise levels say: then so may P be.
    named : float. The factor from which on the sentence names it.
    """
    sentences = []
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        if equation.posterior is None or terms_of(equation) is not None:
            continue
        S = equation.training_features[:, : equation.n_unknown_features]
        size = size_or_one(equation.basis.values(S, equation.weights))
        part = factor * rms_std(equation, S) / size
        if part > most:
            name = f" {terms.name}" if learned.setup.is_system else ""
            why = ""
            if factor > named:
                why = (
                    " (observations are predicted from each other with "
                    f"{multiple(factor)} times the errors that kernels and noise "
                    "levels say)"
                )
            sentences.append(
                f"the equation{name} has no list of terms and is uncertain by "
                f"{percent(part, 1.0)} of its size where states are{why}, and by more "
                "elsewhere. Observe more, or with less noise, or more functions"
            )
    return sentences


def uncertain_terms(learned, parts):
    """Equations with a list of terms that leave them uncertain, each in a sentence.

    learned : LearnedModel. States and equations.
    parts : dict of str to float. By their names the standard deviations of P where
        states are, in units of its size.
    """
    return [
        f"the equation{f' {name}' * learned.setup.is_system} is uncertain by "
        f"{percent(part, 1.0)} of its size where states are, by its coefficients and "
        "other terms that it may have. Observe more, or with less noise, or say more "
        "of the equation"
        for name, part in parts.items()
    ]


def amplifying(fit, most, factor):
    """Equations in time that amplify noise of the states, each in a sentence.

    Large terms that cancel where states are hold these together, as a stiff equation
    does, whatever else there is in it.

    fit : Fit. Told are those with exact states.
    most : float. Change of P, in units of its size, by states that are off by the noise
        of their observations, from which on it is told.
    factor : float. How many times as large it is, at least, as that noise is in units
        of the standard deviation of states.
    """
    learned, sentences = fit.learned, []
    if not fit.is_exact or len(learned.variables) > 1:
        return []
    operators = learned.observations.operators
    noise = np.reshape(fit.problem.prior.noise, -1)
    levels = {L.name: level for L, level in zip(operators, noise, strict=True)}
    for terms, equation in zip(learned.setup.equations, learned.equations, strict=True):
        S, names = equation.training_features, equation.feature_names
        seen = [i for i, name in enumerate(names) if name in levels]
        if terms.depends_on is None or not seen:
            continue
        slopes = equation.gradient(S)[:, seen] / size_or_one(equation.unknown_part(S))
        change = rms(slopes * [levels[names[i]] for i in seen]) * len(seen) ** 0.5
        in_spreads = rms(slopes * np.std(S[:, seen], axis=0)) * len(seen) ** 0.5
        if change > most and in_spreads > factor:
            name = f" {terms.name}" if learned.setup.is_system else ""
            sentences.append(
                f"terms of the equation{name} cancel nearly where states are: its "
                f"right side changes by {percent(change, 1.0)} of its size if states "
                "are off by the noise of observations, and other equations may hold "
                "them together as well. Observe more, or with less noise, or other "
                "initial values"
            )
    return sentences


def not_exact(is_missed, better_without):
    """Sentences on fields that do not obey the equation, or are better without it.

    is_missed : bool. Whether states could obey it exactly and do not.
    better_without : float. By how much observations are more probable, given all
        others, without the equation; 0 if they are not.
    """
    sentences = []
    if is_missed:
        sentences.append(
            "states that obey the equations exactly were not found, or predict worse, "
            "and terms were chosen with equations that hold at collocation points "
            "only: they may be others. Observe more, or with less noise, or ask for "
            "fewer terms"
        )
    if better_without:
        sentences.append(
            "observations are predicted better without the equation: given all others "
            f"they are {better_without:.2f} times as probable in the mean. Terms of "
            "the equation are not among those that were tried. Try more operators, or "
            "an equation_kernel of another form"
        )
    return sentences


def unsupported(gain):
    """A sentence if elementary functions predict no better than no equation, in a list.

    gain : Gain or None. By how much more probable observations are with the equation.
    """
    if gain is None:
        return []
    change = f"{abs(gain.total):.2g} {'higher' if gain.total > 0 else 'lower'}"
    return [
        "observations are predicted about as well without any equation: with it their "
        f"log density is {change} (standard error {gain.error:.2g}), and of the many "
        "functions that were tried some come near to any motion: terms may be others. "
        "Observe more, or with less noise, or say more of the equation"
    ]


def missed(factor, error=0.0):
    """A sentence if observations or equations are missed by more than noise allows.

    factor : float. How many times what it allows; 0 if it is not more.
    error : float. By what part of their size exact states miss observations: these
        alone can be missed, and the noise that they show beside each other may be less
        than the errors of measurement. 0 of states that are not exact.
    """
    if not factor:
        return []
    times = f"{multiple(factor)} times what" if factor > 1.5 else "more than"
    what = f"observations and equations are missed by {times} their noise allows"
    why = "terms of an equation are not among those that were tried"
    advice = ""
    if error:
        what = (
            f"observations are missed by {percent(error, 1.0)} of their size, {times} "
            "neighbouring ones show of their noise"
        )
        why = f"either {why}, or errors of measurement are larger than they seem"
        advice = "; or give observation_noise, which is believed"
    return [
        f"{what}: {why}. Try more operators, or an equation_kernel of another form"
        f"{advice}"
    ]


def missed_smoothly(factor):
    """A sentence if smooth states of exact data do not quite meet the equation.

    factor : float. By how many times more than right ones they miss it; 0: they do not.
    """
    if not factor:
        return []
    return [
        f"smooth states of exact data miss it {multiple(factor)} times more than they "
        "do a right equation: it may be of another form. Try more operators, or an "
        "equation_kernel of another form"
    ]


def coarse(error):
    """A sentence if observations are predicted from one another with a large error.

    error : float. In units of their size; 0 if it is small.
    """
    if not error:
        return []
    return [
        "observations are met, but each is predicted from all others and the equation "
        f"with an error of {percent(error, 1.0)} of their size, far above the noise: "
        "states between them are not known better. Observe more"
    ]


def differs_on_grid(part):
    """A sentence if a smooth joint fit has other coefficients than exact states.

    part : float. In units of its size where states are; 0 if it is small.
    """
    if not part:
        return []
    return [
        f"the equation differs by {percent(part, 1.0)} where states are from that with "
        "the same terms which exact states obey, on a grid that may be coarse: its "
        "coefficients are known no better. Observe more, or with less noise"
    ]


def unresolved(grid, change):
    """A sentence if exact states change by more than noise on a finer grid.

    grid : str. How finely they are integrated.
    change : float. Of observed states on a finer grid, in units of the noise; 0 if that
        is little.
    """
    if not change:
        return []
    return [
        f"states are not resolved: with {grid} they differ by {change:.2g} times the "
        "noise from those on a finer grid, and the terms may make up for that. Observe "
        "more, or ask for fewer terms"
    ]


def _unit_of_errors(learned, equation):
    """By what factor noise levels of a joint fit, and errors with them, are too small.

    The loss of a fit in its own units is half of the number of observations.
    """
    n_observed = sum(len(data.values) for data in learned.observations.functions)
    return max(1.0, 2 * equation.posterior.loss / n_observed) ** 0.5


def _largest_ratio(equation, unit):
    """The largest of the coefficients of an equation, in a unit times their errors."""
    # Features that are nearly zero everywhere have coefficients of any size.
    with np.errstate(over="ignore"):
        values, errors = equation.terms(return_std=True)
    ratios = [abs(v) / (unit * errors[name]) for name, v in values.items()]
    return max(ratios, default=np.inf)


def unexplained(residuals, most):
    """Equations of which a part is not explained, each in a sentence.

    residuals : dict of str to Residual. Those of equations are named so.
    most : float. The largest part of the size of its terms by which one may be missed.
    """
    sentences = []
    for name, residual in residuals.items():
        if name.startswith("equation") and residual.rms > most * residual.size:
            part = percent(residual.rms, residual.size)
            sentences.append(
                f"the {name} leaves {part} of its terms unexplained: operators or "
                "terms are missing, or derivatives are poorly known. Try more "
                "operators, or an equation_kernel of a higher degree or another form"
            )
    return sentences


def unexplained_between(parts, most):
    """Equations that do not hold between the points where they are imposed, in a list.

    parts : dict of str to float. By what part of the size of its terms one is missed.
    most : float. The largest part by which one may be missed.
    """
    return [
        f"the {name} is missed by {percent(part, 1.0)} of its terms between "
        "collocation points, so that states bend to meet it at these: observations may "
        "contradict it, or each other. Try more operators, or more collocation_points, "
        "and look at the units of what was observed"
        for name, part in parts.items()
        if part > most
    ]


def rivals_in_words(rivals, most=3):
    """Other terms that explain the data about as well, as a sentence, or empty.

    rivals : list of (set of str, float). Terms and log odds, those of the fit first.
    most : int. How many are told.
    """
    if len(rivals) < 2:
        return ""
    (chosen, _), *others = rivals
    texts = [f"{_difference(t, chosen)} ({_odds(o)})" for t, o in others[:most]]
    if len(others) > most:
        texts.append(f"{len(others) - most} more")
    return (
        f"the data do not tell the terms from others: {'; '.join(texts)}. Observe "
        "more, or with less noise, or say more of the equation"
    )


def wider_rivals_in_words(rivals, most=3):
    """Terms of wider hypotheses that the data alone do not exclude, in a list.

    rivals : list of (set of str, float). Terms, and by what part of its size their
        equation differs from that of the fit, whose terms come first.
    most : int. How many are told.
    """
    if len(rivals) < 2:
        return []
    return [
        "of equations of a wider kind, which count as improbable before data are seen, "
        f"the data alone do not exclude some that {_how_rivals_differ(rivals, most)}. "
        "Observe more, or with less noise, or give an equation_kernel"
    ]


def left_out_in_words(terms):
    """Terms that equations were not to have, each in a sentence.

    terms : list of LeftOut. With which the data are more probable.
    """
    return [
        f"the equation {left.equation} was not to have the term "
        f"{number(left.coefficient)} {left.term}, with which data are more probable "
        f"({_odds(left.log_odds)}): let it depend on more operators, or give it more "
        "terms"
        for left in terms
    ]


def rivals_of_other_orders_in_words(rivals, most=3):
    """Terms with other highest derivatives that predict no worse, in a list.

    The arguments are those of :func:`wider_rivals_in_words`.
    """
    if len(rivals) < 2:
        return []
    return [
        "of equations that leave more or fewer boundary values free, which count as so "
        "much less or more probable, some predict each observation from all others no "
        f"worse and {_how_rivals_differ(rivals, most)}. Observe more, or with less "
        "noise, or give an equation_kernel"
    ]


def _how_rivals_differ(rivals, most):
    """By what part and in which terms rivals differ, in words."""
    (chosen, _), *others = rivals
    texts = [_difference(terms, chosen) for terms, _ in others[:most]]
    if len(others) > most:
        texts.append(f"{len(others) - most} more")
    part = percent(max(part for _, part in others), 1.0)
    return f"differ by up to {part} from this one where states are: {'; '.join(texts)}"


def _odds(log_odds, most=1e6):
    """Odds as text, those beyond `most` as such."""
    if log_odds > log(most):
        return f"odds above {most:,.0f}"
    return f"odds {exp(log_odds):.2g}"


def _difference(terms, chosen):
    """What a set of terms has in place of another, in words."""
    more, less = sorted(terms - chosen), sorted(chosen - terms)
    if more and less:
        return f"{', '.join(more)} instead of {', '.join(less)}"
    return f"also {', '.join(more)}" if more else f"without {', '.join(less)}"

"""Why the equations of a fit may be others: the sentences of its warning and report."""

from keql._observations.data import PredictionScale
from keql.equation import number
from keql.fit_report._describe import at_points
from keql.fit_report._given import pulled, pulled_to_zero
from keql.fit_report._one_solution import (
    exchanged,
    reversible,
    travelling,
    varying_in_time,
)
from keql.fit_report._reasons import heteroscedastic
from keql.fit_report._related import (
    followed_too_rarely,
    known_up_to_constants,
    related,
    related_in_two_steps,
    saturated,
)
from keql.fit_report._report import percent
from keql.fit_report._undetermined import (
    amplifying,
    coarse,
    differs_on_grid,
    exhausted,
    interpolating,
    left_out_in_words,
    missed,
    missed_smoothly,
    not_exact,
    rivals_in_words,
    rivals_of_other_orders_in_words,
    uncertain,
    uncertain_terms,
    undetermined,
    unresolved,
    unsupported,
    wider_rivals_in_words,
    with_advice_once,
)


def doubts_of(selection, given):
    """Why the equations of a fit may be others, sentences of its warning and report.

    Of a fit whose terms are those of exact states they are the doubts about these, and
    what its own states leave open: that these miss an equation says nothing of terms.

    selection : Selection. The fit, and what it was chosen from.
    given : Hypothesis. What the user says.
    """
    if selection.is_constant:
        return [
            "all observed values are equal, which many equations allow: of how states "
            "change they tell nothing. Observe states on their way to where they stay"
        ]
    if selection.explains_little:
        return _explains_little(selection, given)
    if selection.terms_from is None:
        return with_advice_once(_of_equation(selection, given))
    doubts = _of_equation(selection.terms_from, given)
    doubts += _of_scales(selection, given) + _bent(selection.bent)
    doubts += coarse(selection.error_between)
    return with_advice_once(doubts)


def _explains_little(selection, given):
    """That errors of prediction are as large as the states vary."""
    scale = PredictionScale(selection.best.observations)
    times = f"{selection.error / scale.spread:.2g}"
    return [
        "the fit explains little: each observation is predicted from all others "
        f"with an error of {times} times their standard "
        "deviation. Observe more often or with less noise, label experiments "
        "(function_column), or try other operators; do not rely on the equations",
        *pulled_to_zero(given, selection.best.learned),
    ]


def _of_scales(selection, given):
    """Given kernels of equations that are too small."""
    fit, criteria = selection.best, selection.criteria
    scales = pulled_to_zero(given, fit.learned)
    return scales or pulled(given, fit, criteria.pulled, criteria.rival)


def _bent(part):
    """A sentence if an equation differs from that of exact states with its terms.

    part : float. In units of its size where states are; 0 if it is small.
    """
    if not part:
        return []
    return [
        f"the equation differs by {percent(part, 1.0)} where states are from that with "
        "the same terms which exact states obey: those in the span of kernel functions "
        "bend. Leave state_kernel and noise levels open, give more collocation_points, "
        "or use OneStepKEqL"
    ]


def _of_equation(selection, given):
    """What data leave open of the equations, and what these do not explain."""
    fit, criteria = selection.best, selection.criteria
    waves = travelling(fit.learned, criteria.unexplained)
    limits = selection.told_from_zero, selection.conserved
    states = selection.most_exact.learned
    waves = waves or related(states, *limits)
    if not waves and len(fit.learned.variables) > 1:
        waves = related_in_two_steps(fit.two_step, fit.learned)
    doubts = undetermined(fit.learned) + waves
    doubts += uncertain(fit.learned, *selection.uncertain)
    doubts += amplifying(fit, criteria.amplified, criteria.amplification)
    doubts += saturated(fit.learned) + known_up_to_constants(given, fit.learned)
    doubts += followed_too_rarely(given, fit.learned)
    doubts += reversible(fit.learned) + exchanged(fit.learned)
    doubts += varying_in_time(given, fit.learned)
    doubts += _of_scales(selection, given) + unresolved(*selection.unresolved)
    rivals = rivals_in_words(selection.rivals)
    doubts += interpolating(fit.learned)
    doubts += exhausted(fit) + ([rivals] if rivals else [])
    doubts += uncertain_terms(fit.learned, selection.uncertain_terms)
    doubts += left_out_in_words(selection.left_out(given))
    doubts += wider_rivals_in_words(selection.wider_rivals)
    doubts += rivals_of_other_orders_in_words(selection.rivals_of_other_orders)
    doubts += not_exact(selection.misses_exact_fields, selection.better_without)
    size = PredictionScale(fit.observations).size
    error = selection.error / size if fit.is_exact else 0.0
    if not given.equation_noise:
        doubts += differs_on_grid(selection.bent)
    doubts += unsupported(selection.unsupported)
    doubts += missed(selection.misses, error) + coarse(selection.error_between)
    doubts += missed_smoothly(selection.misses_smoothly)
    doubts += heteroscedastic(fit.learned)
    if selection.disagreement:
        other, part = selection.alternative, percent(selection.disagreement, 1)
        doubts.append(
            f"{selection.other_kind} predicts observations about as well (error "
            f"{number(other.error)} instead of {number(fit.error)}) and differs by "
            f"{part} from the equation where states are. Observe more, or with less "
            "noise, or give an equation_kernel"
        )
    if not fit.is_exact:
        limits = criteria.unexplained, criteria.between
        doubts += at_points(fit.learned, fit.hypothesis, *limits)
    return doubts

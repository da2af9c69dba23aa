"""Fits whose state kernels are given, beside exact states, which have none."""

from dataclasses import replace

from keql._regression.two_step import fit_two_steps
from keql.model_selection._candidates import (
    candidates,
    with_known_kernels,
    without_equation_noise,
)
from keql.model_selection._criteria import predicts_within_noise
from keql.model_selection._exact_fit import fit_hypothesis
from keql.model_selection._exact_states import ExactSearch
from keql.model_selection._selection import Selection


def search_with_given_kernels(two_step, given, table, context):
    """The fit whose state kernels are given, or trajectories, which have no kernel.

    These start from the states that observations alone suggest, and are taken if they
    convince, or predict clearly better: who gives a kernel does not lose them.

    two_step : LearnedModel. The two-step solution with the given kernels.
    given : Hypothesis. What the user says.
    table : Hypotheses. What may be tried.
    context : Context. How problems are solved.

    Returns selection : Selection.
    """
    if table.exact.why_not:
        joint = Selection(fit_hypothesis(given, two_step, context))
        return _beside_exact_states(joint, two_step, given, context)
    search = search_without_kernels(two_step, given, context)
    exact, learned = search.run(), two_step
    if exact is not None:  # what is given is what the fit has
        learned = replace(exact.problem.learned, state_kernel=learned.state_kernel)
        exact = replace(exact, problem=replace(exact.problem, learned=learned))
    if exact is not None and search.is_enough(exact):
        selection = Selection(exact=exact)
    else:
        joint = Selection(fit_hypothesis(given, two_step, context))
        selection = joint.or_exact(exact, context.criteria.clearly_better)
    said = {"not_tried": search.not_tried, "criteria": context.criteria}
    return replace(selection, integrable=True, **said)


def search_without_kernels(two_step, given, context):
    """The ExactSearch from the states that observations suggest without given kernels.

    See :func:`search_with_given_kernels`.
    """
    described = two_step.observations, two_step.variables, two_step.setup
    free = replace(given, state_kernel=None)
    open_ = fit_two_steps(free, *described, context.settings)
    if open_.is_stopped:  # what was given is the best so far
        raise KeyboardInterrupt
    known = with_known_kernels(given, two_step)
    return ExactSearch(open_, candidates(open_, known, context.settings), context)


def _beside_exact_states(selection, two_step, given, context):
    """A selection of what is given, beside exact states if these predict well.

    Terms of fields with given noise of the equation are those without which the loss
    rises, and have no rivals: exact states say whether there are others.
    """
    known = with_known_kernels(given, two_step)
    table = without_equation_noise(two_step, known, context.settings)
    if table is None or selection.joint.result.interrupted:
        return selection
    try:
        exact = ExactSearch(two_step, table, context).run()
    except KeyboardInterrupt:
        return selection.stopped()
    if exact is not None and exact.result.interrupted:
        return selection.stopped()
    if not (exact and predicts_within_noise(exact, two_step, context.criteria)):
        return selection
    return replace(selection, alternative=exact, criteria=context.criteria)

"""Terms of the reduced method: those of exact states, where there are such.

States in the span of few kernel functions never obey an equation exactly: they bend to
superfluous terms as well as to right ones, and predict observations no worse. Which
terms there are is told by states that obey the equation, of which the terms have an
evidence.
"""

from dataclasses import dataclass, replace

from keql._regression.two_step import refit_two_steps
from keql.model_selection._beside._given_kernels import search_without_kernels
from keql.model_selection._candidates import candidates, with_terms_of
from keql.model_selection._criteria import predicts_within_noise
from keql.model_selection._exact_states import ExactSearch
from keql.model_selection._fit import Fit
from keql.model_selection._selection import Selection


@dataclass(frozen=True)
class BesideExactStates:
    """Exact states of the data, for states that are not.

    exact : Fit or None. The exact states.
    convince : bool. Whether they predict well, so that their terms are taken.
    not_tried : list of (str, str). Names of hypotheses, and why they were left out.
    """

    exact: Fit | None = None
    convince: bool = False
    not_tried: tuple = ()

    def of_terms(self, two_step, given, context):
        """The two-step solution and the Hypothesis with the terms of exact states.

        Those that are given if exact states do not predict well.
        """
        if not self.convince:
            return two_step, given
        given = with_terms_of(self.exact, given)
        settings, kernel = context.settings, two_step.state_kernel
        return refit_two_steps(two_step, given, settings, kernel), given

    def beside(self, selection, criteria):
        """A Selection of states that are not exact, with what exact ones tell of it."""
        exact = self.exact
        if exact is None or selection.joint.result.interrupted:
            return selection
        if not self.convince:
            near = criteria.clearly_better * exact.error < selection.error
            return replace(selection, alternative=exact if near else None)
        own = {"integrable": True, "not_tried": self.not_tried, "criteria": criteria}
        return replace(
            selection,
            joint=replace(selection.joint, terms_path=exact.terms_path),
            integrated=exact,
            terms_from=Selection(exact=exact, **own),
        )


def exact_states_of(two_step, given, context):
    """The exact states that there would be if states were not reduced.

    They are looked for where terms are searched for. Raises KeyboardInterrupt if the
    search is interrupted: states of the reduced method are those of two steps then.

    two_step : LearnedModel. The two-step solution.
    given : Hypothesis. What the user says, with kernels as two steps have fitted them.
    context : Context. How problems are solved.

    Returns beside : BesideExactStates.
    """
    names = [t.name for t in two_step.setup.equations if t.depends_on is not None]
    if any(given.of_equation(name).n_terms is None for name in names):
        return BesideExactStates()
    settings = replace(context.settings, reduced=False, solver="auto")
    context = replace(context, settings=settings, previous=None)
    table = candidates(two_step, given, settings)
    if table[0].why_not:
        return BesideExactStates()
    if given.open_states(two_step.observations.states):
        search = ExactSearch(two_step, table, context)
    else:
        search = search_without_kernels(two_step, given, context)
    exact = search.run()
    if exact is None:
        return BesideExactStates()
    if exact.result.interrupted:
        raise KeyboardInterrupt
    known = two_step, context.criteria
    convince = predicts_within_noise(exact, *known) or not search.in_doubt(exact.error)
    return BesideExactStates(exact, convince, tuple(search.not_tried))

"""Terms of the reduced method: those of exact states, where there are such.

States in the span of few kernel functions never obey an equation exactly: they bend to
superfluous terms as well as to right ones, and predict observations no worse. Which
terms there are is told by states that obey the equation, of which the terms have an
evidence.
"""

from dataclasses import dataclass, replace

import numpy as np

from keql._numerics.linalg import size_or_one
from keql._regression.two_step import refit_two_steps
from keql.kernels import Constant
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
    integrable : bool. Whether they were looked for: states could obey the equations.
    not_tried : list of (str, str). Names of hypotheses, and why they were left out.
    """

    exact: Fit | None = None
    convince: bool = False
    integrable: bool = False
    not_tried: tuple = ()

    def of_terms(self, two_step, given, context):
        """The two-step solution, Hypothesis and Context with the terms of exact states.

        Joint problems start from these states. What is given if they do not predict
        well.
        """
        if not self.convince:
            return two_step, given, context
        given = _with_scales(self.exact, with_terms_of(self.exact, given))
        settings, kernel = context.settings, two_step.state_kernel
        two_step = refit_two_steps(two_step, given, settings, kernel)
        near = values_at_points(self.exact.learned.states, two_step)
        return two_step, given, replace(context, near=near)

    def beside(self, selection, criteria):
        """A Selection of states that are not exact, with what exact ones tell of it."""
        exact = self.exact
        if not self.integrable or selection.joint.result.interrupted:
            return selection
        if not self.convince:
            selection = replace(selection, integrable=True, criteria=criteria)
            if exact and criteria.clearly_better * exact.error < selection.error:
                selection = replace(selection, alternative=exact)
            return selection
        own = {"integrable": True, "not_tried": self._not_tried, "criteria": criteria}
        return replace(
            selection,
            joint=replace(selection.joint, terms_path=exact.terms_path),
            integrated=exact,
            terms_from=Selection(exact=exact, **own),
            **own,
        )

    @property
    def _not_tried(self):
        """What exact states were not tried with, and that they gave the terms only."""
        return [
            *self.not_tried,
            (
                "exact states, but for their terms",
                "states of the reduced method lie in the span of kernel functions",
            ),
        ]


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
    if table.exact.why_not:
        return BesideExactStates()
    if given.open_states(two_step.observations.states):
        search = ExactSearch(two_step, table, context)
    else:
        search = search_without_kernels(two_step, given, context)
    exact = search.run()
    if exact is None:
        return BesideExactStates(integrable=True)
    if exact.result.interrupted:
        raise KeyboardInterrupt
    convince = predicts_within_noise(exact, two_step, context.criteria)
    if search.is_in_time:  # two steps may take what they do not resolve for noise
        convince = convince or not search.in_doubt(exact.error)
    return BesideExactStates(exact, convince, True, tuple(search.not_tried))


def _with_scales(exact, given):
    """A Hypothesis whose equation kernels have the scales of the weights of exact ones.

    Weights of the root mean square one are the likeliest, whatever the units; the
    likelihood of states that do not obey the equation may take all of it for noise.
    """
    names = [terms.name for terms in exact.two_step.setup.equations]
    kernels = dict(given.equation_kernel)
    for name, equation in zip(names, exact.learned.equations, strict=True):
        if name in kernels:
            variance = Constant(size_or_one(equation.weights) ** 2, "fixed")
            kernels[name] = variance * kernels[name]
    return replace(given, equation_kernel=kernels)


def values_at_points(states, two_step):
    """Values of observed operators, then those of equations, a list for the functions.

    states : list of states. One for each function.
    two_step : LearnedModel. With the observations and the collocation points.
    """
    observations, setup, values = two_step.observations, two_step.setup, []
    parts = observations.functions, setup.collocation_points, states
    for data, points, state in zip(*parts, strict=True):
        observed = np.empty(len(data.values))
        for j, operator in enumerate(observations.operators):
            own = data.index == j
            observed[own] = state.evaluate(data.points[own], operator)
        imposed = [state.evaluate(points, operator) for operator in setup.operators]
        values.append(np.concatenate([observed, *imposed]))
    return values

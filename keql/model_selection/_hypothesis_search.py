"""What searches among hypotheses of exact states share."""

from keql._numerics.optimisation import or_stopped
from keql._regression.two_step import refit_two_steps
from keql.model_selection._criteria import Judgement, odds_between
from keql.model_selection._terms._functions import fit_elementary


class HypothesisSearch(Judgement):
    """What searches of exact states share.

    two_step : LearnedModel. The two-step solution.
    table : Hypotheses. What may be tried.
    context : Context. How problems are solved.

    not_tried : list of (str, str). Names of hypotheses, and why they were left out.
    so_far : Fit or None. The best until now.
    """

    def __init__(self, two_step, table, context):
        noise = table.exact.hypothesis.equation_noise
        super().__init__(two_step, noise, context.criteria)
        self.context, self.known = context, (two_step, context.criteria)
        self.table, self.so_far = table, None
        self.compared = []  # hypotheses with results of others
        self.plain = set()  # terms and errors of fits beside which are no functions
        pairs = ((row.hypothesis.name, row.why_not) for row in table)
        self.not_tried = [pair for pair in pairs if pair[1]]

    def _keep(self, fit):
        """A fit, or None, which is kept from now on if it is the best so far."""
        if fit and not (self.so_far and fit.error >= self.so_far.error):
            self.so_far = fit
        return fit

    def leave_out(self, rows, reason):
        """Tell why rows of the table are not tried, where no reason is known yet."""
        known, left = dict(self.not_tried), [row.hypothesis.name for row in rows]
        self.not_tried += [(name, reason) for name in left if name not in known]

    def begin(self, hypothesis):
        """Tell that a hypothesis of the table is tried."""
        self.not_tried = [p for p in self.not_tried if p[0] != hypothesis.name]
        if self.context.tried is not None:
            names = [row.hypothesis.name for row in self.table if not row.why_not]
            place = names.index(hypothesis.name) + 1
            self.context.tried(hypothesis.name, place, len(names))

    def two_steps(self, hypothesis, known=None):
        """The two-step solution with the equation kernel of a hypothesis, now tried.

        With the prior and noise of a `known` one, if they are not those of all.
        """
        self.begin(hypothesis)
        first, known = self.table.exact.hypothesis, known or self.two_step
        if known is self.two_step:
            if hypothesis.equation_kernel is first.equation_kernel:
                return known
        settings, kernel = self.context.settings, known.state_kernel
        return refit_two_steps(known, hypothesis, settings, kernel)

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

    @property
    def _elementary_rows(self):
        """The hypothesis of elementary functions, if it is tried."""
        row = self.table.functions
        return [] if row.why_not else [row.hypothesis]

    def _elementary(self, simpler):
        """Exact trajectories with elementary functions, from those of a polynomial.

        Or from two steps; then there are none where a state was never observed.
        """
        if simpler is not None and self.in_doubt(simpler.error):
            simpler = None
        if simpler is None and self.two_step.observations.hidden_states:
            return None
        known = simpler and (frozenset(simpler.term_names), f"{simpler.error:.2g}")
        if known in self.plain:
            return None
        [hypothesis] = self._elementary_rows
        self.begin(hypothesis)
        given = self.two_step, hypothesis, self.context, simpler
        enough = self.criteria.functions_miss * self.size
        found = or_stopped(simpler, fit_elementary, *given, enough)
        if found is None:
            self.plain.add(known)
        return found

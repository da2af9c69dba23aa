"""Sets of terms of joint fits, compared by their evidence."""

from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np

from keql._joint.assembly import equations_at, joint_basis
from keql._joint.cluster import minimise_joint
from keql._numerics.linalg import rms, size_or_one
from keql._numerics.optimisation import Damping, Stop
from keql._numerics.subsets import HighestEvidence
from keql._observations.data import left_out_errors
from keql._regression.term_scores import TermSets, TermTable
from keql.model_selection._terms._fewer import (
    TermCriteria,
    TermsStep,
    is_worse,
    start_with_fewer,
)
from keql.model_selection._terms._settings import TrajectorySearchSettings


def with_most_probable_terms(fit, context, criteria=None):
    """A joint fit, or that with other terms which are far more probable.

    States and weights are integrated out, with the kernels and the noise levels of the
    fit: how much the loss rises with fewer terms does not tell sets apart between which
    several terms are exchanged. More probable terms are taken if the log odds are
    strong, or if they are fewer, and observations are predicted no worse; those about
    as probable are told.

    fit : Fit. At collocation points, with polynomials.
    context : Context. How problems are solved.
    criteria : TermCriteria, default=None. None: the default ones.

    Returns fit : Fit. Its path has the log evidences.
    """
    search = _ByEvidence(fit, context, criteria or TermCriteria())
    first = search.kept
    try:
        search.run()
    except KeyboardInterrupt:  # the fit is the best so far
        return replace(fit, result=replace(fit.result, stop=Stop.KEYBOARD))
    path = [*fit.terms_path, *(step for step, _ in search.found.values())]
    chosen = search.chosen(first, context.criteria.rival)
    if chosen == first:
        return replace(fit, terms_path=path)
    problem, other = search.solutions[chosen]
    last = search.minimise(problem, other.solution, context.settings.tol)
    result = replace(
        last,
        loss_curve=fit.result.loss_curve + last.loss_curve,
        damping_curve=[*fit.result.damping_curve, 0.0, *last.damping_curve],
        n_iter=fit.result.n_iter + last.n_iter,
    )
    return replace(fit, problem=problem, result=result, terms_path=path)


def with_evidence(fit, context):
    """A joint fit whose path has the log evidence of its own terms."""
    search = _ByEvidence(fit, context, TermCriteria())
    step, _ = search.found[search.kept]
    return replace(fit, terms_path=[*fit.terms_path, step])


class _ByEvidence:
    """Sets of terms of a joint problem, those of the highest evidence solved for.

    kept : tuple of int. The best set so far, positions in a TermTable.
    found : dict. By set its TermsStep, and errors of predicting observations.
    solutions, models : dict. By set the problem and the Result; and the model that is
        linearised there with all terms, and a score of sets in it.
    """

    def __init__(self, fit, context, criteria):
        self.two_step, self.context, self.criteria = fit.two_step, context, criteria
        self.basis = joint_basis(self.two_step.equations)
        self.table = TermTable(self.two_step, self.basis, fit.hypothesis)
        self.everything = list(range(len(self.table.groups)))
        unit = np.eye(len(self.everything))
        self.single = self.table.weights(self.basis, self.everything, unit)
        search = TrajectorySearchSettings()
        sizes = search.few, search.share, search.n_compared
        self.prior, self.sets = search.prior, TermSets(self.table, *sizes)
        self.odds = self.table.odds(self.prior)
        self.found, self.solutions, self.models = {}, {}, {}
        names = set(fit.term_names)
        self.kept = tuple(i for i in self.everything if self.table.names[i] in names)
        self._record(self.kept, fit.problem, fit.result)

    def run(self):
        """Search, solve, and search again where the best solution is."""
        for _ in range(self.criteria.n_rounds):
            before, (model, score) = self.kept, self.models[self.kept]
            problem, _ = self.solutions[before]
            for kept in self._offers(score):
                values = score.values(kept)
                smaller = problem.with_basis(self.table.restricted(self.basis, kept))
                given = self.table, kept, values
                start = start_with_fewer(model, smaller, *given)
                self._record(tuple(kept), smaller, self.minimise(smaller, start))
            if self.kept == before:
                return

    def _offers(self, score):
        """Sets to be solved for: the best of all, and those near the best so far."""
        near, n = self.sets.neighbours(list(self.kept), score), self.criteria.n_tried
        fewer = [*self.sets.fewer(list(self.kept), score)]
        fewer = sorted(fewer, key=score, reverse=True)
        offers = [self.sets.best(score), *islice(near, n), *fewer[:n]]
        highest = max(score(kept) for kept in [*offers, list(self.kept)])
        least, sets = highest - self.criteria.margin, []
        for kept in offers:
            if tuple(kept) not in self.found and kept not in sets:
                sets.append(kept)
        return [kept for kept in sets if score(kept) > least]

    def minimise(self, problem, start, tol=None):
        """The Result of a problem from a start that is near its solution."""
        tol = self.criteria.tol if tol is None else tol
        result = minimise_joint(
            problem,
            start,
            Damping(self.criteria.damping * problem.evaluate(start).loss, tol),
            max_iter=self.context.settings.max_iter,
            report=partial(self.context.report, self.two_step, problem),
        )
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def _record(self, kept, problem, result):
        """Keep the solution for a set, and its evidence where it is."""
        table, solution = self.table, result.solution
        values = np.zeros(len(self.everything))
        values[[*kept]] = table.coefficients(problem.basis, kept) @ solution.weights
        whole = problem.with_basis(self.basis)
        weights = table.weights(self.basis, self.everything, values)
        iterate = whole.iterate(solution.coefficients, weights)
        model = whole.linearise(whole.evaluate(iterate))
        score = self._score(model)
        evidence = score(list(kept)) - model.half_log_determinant_of_states()
        own = problem.linearise(problem.evaluate(solution))
        errors = left_out_errors(own, self.two_step.observations)
        names, misfit = (table.names[i] for i in kept), problem.misfit(solution)
        equations = equations_at(self.two_step, problem, solution)
        figures = result.loss, misfit, rms(errors), evidence
        step = TermsStep(tuple(names), *figures, equations=equations)
        if not self.found or evidence > self.found[self.kept][0].log_evidence:
            self.kept = kept
        self.found[kept] = step, errors
        self.solutions[kept], self.models[kept] = (problem, result), (model, score)

    def _score(self, model):
        """The log evidence of sets in a problem that is linearised with all terms.

        A term contributes what it is expected to, to what its equation explains.
        """
        target, effects = model.whitened_weights()
        S, groups = np.concatenate(model.evaluation.features), self.table.groups
        values = model.problem.psi(S) @ self.single
        scales = [size_or_one(own) * len(own) ** 0.5 for own in self.two_step.targets]
        units = np.sqrt(np.sum(values**2, axis=0)) / np.array(scales)[groups]
        units = np.maximum(units, np.finfo(float).tiny)
        given = effects @ self.single, target
        precisions = [(units / size) ** 2 for size in self.prior.sizes]
        return HighestEvidence(*given, precisions, self.odds)

    def chosen(self, first, odds):
        """The best set if it beats the first one by log odds, or has fewer terms.

        And if it predicts no worse. Of the one that is taken terms are left out with
        which observations are predicted no better: where states bend to an equation,
        its evidence counts too much.
        """
        (own, errors), (best, others) = self.found[first], self.found[self.kept]
        is_better = best.log_evidence - own.log_evidence > odds
        is_better = is_better or len(self.kept) < len(first)
        is_better = is_better and not is_worse(others, errors, self.criteria)
        return self._simplest(self.kept if is_better else first)

    def _simplest(self, kept):
        """The most probable set of some of the terms that predicts no worse, or all."""
        most = self.found[kept][0].error
        fewer = {
            terms: step.log_evidence
            for terms, (step, _) in self.found.items()
            if {*terms} < {*kept} and step.error <= most
        }
        return max(fewer, key=fewer.get, default=kept)

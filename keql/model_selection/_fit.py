"""A fit: the problem that was solved, its solution, and what it predicts."""

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from sklearn.utils import check_random_state

from keql._joint.assembly import (
    assemble_learned,
    joint_weights,
    make_problem,
    state_kernels,
)
from keql._joint.cluster import minimise_joint
from keql._joint.hidden_states import with_hidden_state
from keql._joint.restarts import minimise_with_restarts
from keql._joint.starts import (
    LargeProblems,
    SubsampledProblem,
    linearised_start,
    start_at,
)
from keql._numerics.linalg import rms
from keql._numerics.optimisation import Damping, Result, Stop
from keql._numerics.parallel import client_of_cluster, n_threads_of, parallel_map
from keql._observations.data import PredictionScale, left_out_errors
from keql._regression.two_step import Hypothesis, refit_two_steps
from keql.equation import FixedUnknownPart, averaged, terms_of
from keql.model_selection._criteria import Criteria
from keql.model_selection._state_kernels import residual_dispersion
from keql.model_selection._terms._fewer import (
    TermCriteria,
    fit_with_fewer_terms,
    most_probable,
)


@dataclass(frozen=True)
class Context:
    """What all fits of one search share.

    settings : FitSettings. How hypotheses are fitted; with an own seed, so that the
        states of a problem that is stated again are in the same span.
    report : callable. Called after each accepted step with the two-step solution, the
        problem and the result so far; returns True to stop.
    previous : LearnedModel or None. An earlier solution to start from.
    criteria : Criteria. When one fit is better than another.
    tried : callable or None. Called with the name of a hypothesis that is tried, its
        number and how many there are.
    large : LargeProblems. Which problems are solved with fewer points first.
    near : list of ndarray or None. Values of an iterate that joint problems start from.
    """

    settings: object
    report: object
    previous: object = None
    criteria: Criteria = field(default_factory=Criteria)
    tried: object = None
    large: LargeProblems = field(default_factory=LargeProblems)
    near: object = None

    @property
    def rough(self):
        """That of fits which only start others: as those of TermCriteria are solved."""
        tol = max(self.settings.tol, TermCriteria.tol)
        most = min(self.settings.max_iter, TermCriteria.max_steps)
        settings = replace(self.settings, tol=tol, max_iter=most)
        return replace(self, settings=settings)


@dataclass(frozen=True)
class Fit:
    """A solution of the joint problem or of an evolution problem.

    hypothesis : Hypothesis. What was supposed.
    two_step : LearnedModel. What it started from: observations, setup, kernels and
        noise levels.
    problem : JointProblem or EvolutionProblem. The problem, with the features that the
        equation has in the end.
    result : Result. Of its minimisation.
    learned_with : Kernel. The state kernel with which the equation was learned.
    restarts : list of dict. What was tried from other starts.
    terms_path : list of TermsStep. Equations with other terms that were fitted.
    """

    hypothesis: Hypothesis
    two_step: object
    problem: object
    result: Result
    learned_with: object
    restarts: list = field(default_factory=list)
    terms_path: list = field(default_factory=list)

    @property
    def is_exact(self):
        """Whether states obey the equation exactly, or driven by noise."""
        return self.problem.is_exact

    @property
    def is_driven(self):
        """Whether states obey the equation with white noise on its right-hand side."""
        return self.problem.process is not None

    @property
    def finds_noise(self):
        """Whether the level of that noise was found with the states."""
        return self.is_driven and self.problem.prior.drive is not None

    @cached_property
    def model(self):
        """The problem linearised at the solution."""
        if self.is_exact:
            return self.result.model
        return self.problem.linearise(self.problem.evaluate(self.result.solution))

    @cached_property
    def learned(self):
        """States and equation."""
        if self.is_exact:
            return self._averaged(self.problem.assemble(self.model))
        is_held = isinstance(self.problem.basis, FixedUnknownPart)
        model = None if is_held else self.model  # factored once
        solved = self.problem, self.result.solution
        return assemble_learned(self.two_step, *solved, model)

    @cached_property
    def left_out_errors(self):
        """Errors (n,) of predicting each observation from all others.

        In the units of a PredictionScale. Those on the border of the box around a
        function's points are left out.
        """
        return left_out_errors(self.model, self.observations)

    @property
    def error(self):
        """Root mean square of the errors of prediction."""
        return rms(self.left_out_errors)

    @property
    def has_functions(self):
        """Whether elementary functions were found to be among the terms."""
        return self.hypothesis.has_functions

    @cached_property
    def resolution(self):
        """How finely exact states are integrated, as text; None of others.

        With it their change, in units of the noise, if they are integrated more finely.
        """
        if not self.is_exact:
            return None
        return self.problem.resolution(self.result.solution)

    @property
    def misfit(self):
        """Mean square of the residuals in units of the noise levels."""
        if self.is_exact:
            return self.model.regression.misfit
        return self.problem.misfit(self.result.solution)

    @property
    def observations(self):
        """The observations that were fitted."""
        return self.two_step.observations

    @property
    def n_weights(self):
        """Number of free weights of the equation."""
        return len(self.result.solution.weights)

    def predicts_poorly(self, criteria):
        """Whether errors of prediction are not small beside the observations."""
        size = PredictionScale(self.observations).size
        return self.error >= criteria.predicts_well * size

    def is_noise_limited(self, criteria):
        """Whether noise hides how well it predicts."""
        levels = self.two_step.observation_noise
        noise = PredictionScale(self.observations).noise(levels)
        return self.error <= criteria.noise_limited * noise

    @property
    def noise_part(self):
        """Noise that two steps find, relative to the spread of what was observed."""
        scale = PredictionScale(self.observations)
        return scale.noise(self.two_step.observation_noise) / scale.spread

    def noise_is_inactive(self, criteria):
        """Whether the noise levels are so high that they do not matter."""
        return self.misfit < criteria.inactive_misfit

    def needs_no_refinement(self, criteria):
        """Whether no better equation is sought.

        One that does not predict is not worth being held, and where noise hides the
        difference none is seen to be better than another.
        """
        return (
            self.result.interrupted
            or self.predicts_poorly(criteria)
            or self.is_noise_limited(criteria)
        )

    def lower_equation_noise(self, criteria):
        """A lower noise level (E,) of each equation, in the units of its forcing.

        That of the residuals where the level does not matter; levels that are given
        stay, and those of known constraints.
        """
        setup, level = self.two_step.setup, self.problem.equation_noise
        is_open = np.isnan(given_equation_noise(self.hypothesis, setup))
        is_learned = [terms.depends_on is not None for terms in setup.equations]
        return np.where(is_open & is_learned, self._lower_noise(criteria), level)

    def _lower_noise(self, criteria):
        if not self.noise_is_inactive(criteria):
            return criteria.less_noise * self.problem.equation_noise
        residuals = self.problem.evaluate(self.result.solution).residuals
        pairs = zip(self.problem.blocks, residuals, strict=True)
        imposed = [r[len(block.values) :] for block, r in pairs]
        parts = self.two_step.setup.split(np.concatenate(imposed))
        return np.array([rms(part) for part in parts])

    def unknown_part(self, criteria):
        """P with its posterior, to be held while other states are sought."""
        if self.is_exact:
            own = self.learned.equation
            return FixedUnknownPart(own.basis, own.weights, own.posterior)
        if isinstance(self.problem.basis, FixedUnknownPart):
            return self.problem.basis
        posterior = self.with_residual_dispersion(criteria).model.posterior_weights()
        weights = self.result.solution.weights
        return FixedUnknownPart(self.problem.basis, weights, posterior)

    def with_residual_dispersion(self, criteria):
        """The fit with its variances raised to its residuals, if it predicts well."""
        given = self.problem, self.result.solution, self.error, self.observations
        dispersion = residual_dispersion(*given, criteria)
        return replace(self, problem=self.problem.with_dispersion(dispersion))

    @property
    def term_names(self):
        """Names of listed terms; those of a system after the names of its equations."""
        source = self.result.solution if self.is_exact else self.learned
        setup, names = self.two_step.setup, []
        for terms, equation in zip(setup.equations, source.equations, strict=True):
            is_listed = terms.depends_on is not None and terms_of(equation) is not None
            own = equation.terms() if is_listed else {}
            names += [f"{terms.name}: {n}" if setup.is_system else n for n in own]
        return names

    def _averaged(self, learned):
        """A learned model whose coefficients are as uncertain as its terms are.

        Other terms that were solved for have their probabilities, given the
        observations (Hoeting et al., "Bayesian model averaging", Statistical Science
        14, 1999).
        """
        found = [step for step in self.terms_path if step.coefficients is not None]
        best = most_probable(found)
        if len(best) < 2 or frozenset(self.term_names) not in best:
            return learned
        logs = np.array([step.log_evidence for step in best.values()])
        shares = np.exp(logs - logs.max())
        shares, equations = shares / shares.sum(), []
        pairs = zip(learned.setup.equations, learned.equations, strict=True)
        for terms, equation in pairs:
            start = f"{terms.name}: " if learned.setup.is_system else ""
            others = [step.coefficients for step in best.values()]
            equations.append(averaged(equation, others, shares, start))
        return replace(learned, equations=tuple(equations))

    @property
    def log_evidences(self):
        """The highest log evidence of each set of terms that was solved for, a dict."""
        best = most_probable(self.terms_path)
        return {terms: step.log_evidence for terms, step in best.items()}

    @property
    def log_evidence(self):
        """That of its own terms; the lowest one if it is not known."""
        return self.log_evidences.get(frozenset(self.term_names), -np.inf)

    def or_more_probable(self, other, odds):
        """The fit, or another one of a wider hypothesis whose evidence is higher.

        `odds` are the prior log odds of this hypothesis to the wider one. Terms that
        are not solved for there keep their evidence: others' was 2 to 11 higher here.
        """
        own, evidence = self.log_evidences, other.log_evidences
        chosen, best = (frozenset(f.term_names) for f in (self, other))
        if chosen not in own or best not in evidence:
            return self
        shift = own[chosen] - evidence.get(chosen, own[chosen]) - odds
        steps = [
            step.less_probable(shift, odds)
            for step in other.terms_path
            if frozenset(step.terms) not in own
        ]
        better = best not in own and evidence[best] + shift > own[chosen]
        return replace(other if better else self, terms_path=[*self.terms_path, *steps])

    def stopped(self, stop):
        """The fit as the outcome of a search that was stopped."""
        return replace(self, result=replace(self.result, stop=stop))


@dataclass(frozen=True)
class JointFamily:
    """Joint problems that differ in their state kernel only.

    two_step : LearnedModel. Observations, setup and noise of the observations.
    hypothesis : Hypothesis. The equation kernel, and the noise of the equation unless
        that is given here.
    context : Context. How problems are solved.
    equation_noise : ndarray of shape (E,) or None. Of each equation, in the units of
        its forcing.
    unknown_part : FixedUnknownPart or None. P, if it is not sought.
    """

    two_step: object
    hypothesis: Hypothesis
    context: Context
    equation_noise: np.ndarray | None = None
    unknown_part: object = None

    @property
    def observations(self):
        """The observations that are fitted."""
        return self.two_step.observations

    def at(self, kernel, values=None):
        """The two-step solution, the problem and a start for a state kernel.

        The start is near given values of the states and operators, if there are any.
        """
        values = self.context.near if values is None else values
        if self.unknown_part is not None:
            two_step = replace(self.two_step, state_kernel=kernel, states=None)
        else:
            two_step = self._refit(kernel, values)
        return self._started(two_step, values)

    def problem_of(self, two_step):
        """The problem and a start for a two-step solution."""
        return self._started(two_step, self.context.near)[1:]

    def _refit(self, kernel, values):
        settings = self.context.settings
        return refit_two_steps(self.two_step, self.hypothesis, settings, kernel, values)

    def _started(self, two_step, values):
        """The two-step solution, the problem and a start.

        Two steps leave a state that was never observed at zero, and equations that do
        not depend on it: a saddle of the loss. There it is guessed from the equations.
        """
        problem, start = self._problem_of(two_step, values)
        if values is None and self.context.previous is None:
            values = with_hidden_state(two_step, problem, start)
            if values is not None:
                two_step = self._refit(two_step.state_kernel, values)
                problem, start = self._problem_of(two_step, values)
        return two_step, problem, start

    def _problem_of(self, two_step, values):
        settings, noise = self.context.settings, self.equation_noise
        if noise is None:
            noise = given_equation_noise(self.hypothesis, two_step.setup)
        problem = make_problem(
            two_step,
            state_kernels(two_step, settings),
            solver=settings.solver,
            equation_noise=noise,
            state_penalty=settings.state_penalty,
            map_blocks=partial(parallel_map, settings.n_jobs),
            n_threads=n_threads_of(settings.n_jobs),
            client=client_of_cluster(settings.n_jobs),
        )
        weights = joint_weights(two_step.equations)
        if self.unknown_part is not None:
            problem, weights = problem.with_basis(self.unknown_part), np.empty(0)
        if values is not None:
            return problem, linearised_start(problem, values, weights)
        return problem, _start(problem, two_step, self.context)


def given_equation_noise(hypothesis, setup):
    """The noise levels (E,) given for the equations; nan where they are open."""
    given = [hypothesis.of_equation(terms.name) for terms in setup.equations]
    return np.array([each.equation_noise for each in given], dtype=float)


def _start(problem, two_step, context):
    """The two-step solution as an iterate, or an earlier solution if there is one."""
    weights, previous = joint_weights(two_step.equations), context.previous
    if previous is not None:
        earlier = joint_weights(previous.equations)
        if earlier.shape != weights.shape:  # with fewer terms: the first step finds all
            earlier = weights
        # States that were integrated are represented outside of their box only.
        states = [getattr(state, "outside", state) for state in previous.states]
        states = [(state.functionals, state.coefficients) for state in states]
        if len(states) == len(problem.blocks):
            start = start_at(problem, states, earlier)
            if start is not None:
                return start
    # The prior of the two-step states is the kernel over lambda.
    penalty = context.settings.state_penalty
    states = [(s.functionals, s.coefficients / penalty) for s in two_step.states]
    return start_at(problem, states, weights)


def fit_jointly(family, two_step, problem, start, n_restarts=0):
    """Solve a joint problem, again if the minimum is poor, and take out terms.

    A large problem is solved with few collocation points first, then with more, and
    with all of them for the terms that were kept.
    """
    context = family.context
    if context.previous is not None or not context.large.is_large(problem):
        return _fit_with_terms(family, two_step, problem, start, n_restarts)
    fit = _fit_with_fewer_points(family, two_step, problem, start, n_restarts)
    if fit.result.interrupted:
        return fit
    given = fit.problem, fit.result.solution, context, context.large.damping
    return refit_states(fit, two_step, *given)


def _fit_with_fewer_points(family, two_step, problem, start, n_restarts):
    """A fit with a part of the collocation points, as one of the whole problem."""
    large = family.context.large
    few = SubsampledProblem(problem, large.n_points)
    given = few.problem, few.narrow(start), n_restarts, large.first
    fit = _fit_with_terms(family, two_step, *given)
    whole, result = few.widen_result(fit.result, fit.problem.basis)
    return replace(fit, problem=whole, result=result)


def _fit_with_terms(family, two_step, problem, start, n_restarts, first=()):
    """The joint fit of a problem, solved at `first` so many of its points before."""
    context, hypothesis = family.context, family.hypothesis
    settings = context.settings
    names = [terms.name for terms in two_step.setup.equations]
    asked = [hypothesis.of_equation(name).n_terms for name in names]
    is_first = any(n_terms is not None for n_terms in asked)
    rough = len(first) > 0 or (is_first and two_step.setup.is_system)
    problem, result, _, restarts = minimise_with_restarts(
        problem,
        start,
        n_restarts=n_restarts,
        rng=check_random_state(settings.random_state),
        report=partial(context.report, two_step),
        max_iter=settings.max_iter,
        tol=max(settings.tol, TermCriteria.tol) if rough else settings.tol,
        first=first,
    )
    path = []
    if is_first and not result.interrupted:
        given = problem, result, two_step, hypothesis, context
        try:
            problem, result, path = fit_with_fewer_terms(*given)
        except KeyboardInterrupt:  # that with all terms is the best so far
            result = replace(result, stop=Stop.KEYBOARD)
    origin = two_step.state_kernel, restarts, path
    return Fit(hypothesis, two_step, problem, result, *origin)


def refit_states(fit, two_step, problem, start, context, damping=1e-4):
    """The equation of a fit and its history, with the states of a problem that has it.

    `damping` is the first one relative to the loss: the states are near.
    """
    settings = context.settings
    states = minimise_joint(
        problem,
        start,
        Damping(damping * problem.evaluate(start).loss, settings.tol),
        max_iter=settings.max_iter,
        report=partial(context.report, two_step, problem),
    )
    equation = fit.result
    result = replace(
        states,
        loss_curve=equation.loss_curve,
        damping_curve=equation.damping_curve,
        n_iter=equation.n_iter + states.n_iter,
        stop=states.stop if equation.converged else equation.stop,
    )
    return replace(fit, two_step=two_step, problem=problem, result=result)

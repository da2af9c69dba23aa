"""Which fit is taken, and states found again with an equation that is held."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from keql import KernelPDESolver, OneStepKEqL
from keql._joint.assembly import assemble_learned
from keql._joint.starts import LargeProblems
from keql._numerics.optimisation import Damping, Result, Stop, minimise
from keql._observations.data import FunctionData, Observations
from keql._regression.two_step import FitSettings, Hypothesis
from keql.datasets import make_burgers
from keql.equation._basis import FixedUnknownPart, PolynomialBasis
from keql.exceptions import IdentifiabilityWarning
from keql.kernels import RBF, Constant, Polynomial, Restriction
from keql.metrics import relative_l2_error
from keql.model_selection import (
    _criteria,
    _exact_fit,
    _exact_states,
    _hypothesis_search,
    _search,
    _trajectory_search,
)
from keql.model_selection._beside._held import with_better_equation
from keql.model_selection._candidates import Candidate, Hypotheses
from keql.model_selection._criteria import Criteria, predicts_within_noise
from keql.model_selection._exact_states import ExactSearch
from keql.model_selection._fit import Context, Fit, JointFamily
from keql.model_selection._search import (
    fit_jointly,
    refit_states,
)
from keql.model_selection._selection import Selection
from keql.model_selection._state_kernels import KernelCandidate, WarmStart
from keql.model_selection._terms._fewer import TermsStep
from keql.model_selection._terms._settings import TermSearchSettings
from keql.model_selection._terms._trajectories import TrajectoriesFound
from keql.operators import identity_of, parse_operator

KERNEL = Constant(4.0, "fixed") * RBF([0.4, 0.2], "fixed")
NOISE = {"observation_noise": 1e-3, "equation_noise": 1e-2}
# Powers of t, x, u, u_x and u_xx in u u_x and u_xx, and in u and u_x.
TRUE = [(0, 0, 1, 1, 0), (0, 0, 0, 0, 1)]
FALSE = [(0, 0, 1, 0, 0), (0, 0, 0, 1, 0)]
CRITERIA = Criteria()
CONTEXT = Context(FitSettings(max_iter=100, tol=1e-9), lambda *_: False)


@pytest.fixture(scope="module")
def data():
    return make_burgers(40, collocation_shape=(12, 15), random_state=1)


def fitted(data, powers, solver="dual"):
    """A joint fit whose equation has terms of some powers of t, x, u, u_x, u_xx."""
    model = OneStepKEqL(
        **data.problem,
        **NOISE,
        state_kernel=KERNEL,
        equation_kernel=Restriction(Polynomial(2), powers),
    )
    two_step = model._learn_in_two_steps(data.X, data.y, None)
    settings = replace(CONTEXT.settings, solver=solver)
    family = JointFamily(
        two_step, model._hypothesis, replace(CONTEXT, settings=settings)
    )
    return family, fit_jointly(family, two_step, *family.problem_of(two_step))


@pytest.fixture(scope="module")
def right(data):
    return fitted(data, TRUE)


LARGE = LargeProblems(most_rows=100, n_points=80, first=(20, 40))


def fitted_large(data, **context):
    """A fit with terms taken out, of all points at once or with fewer first."""
    model = OneStepKEqL(
        **data.problem,
        **NOISE,
        state_kernel=KERNEL,
        equation_kernel=Polynomial(2),
    )
    two_step = model._learn_in_two_steps(data.X, data.y, None)
    settings = replace(model._settings, solver="dual", tol=1e-9)
    family = JointFamily(two_step, model._hypothesis, Context(settings, **context))
    problem, start = family.problem_of(two_step)
    return problem, fit_jointly(family, two_step, problem, start)


@pytest.mark.slow
def test_a_large_problem_with_fewer_points_first_has_the_same_solution(data):
    sizes = []

    def told(two_step, problem, result):
        sizes.append(sum(map(len, problem.precisions)))

    problem, direct = fitted_large(data, report=told)
    whole = sum(map(len, problem.precisions))
    assert set(sizes) == {whole}
    sizes.clear()
    _, staged = fitted_large(data, report=told, large=LARGE)
    n = len(problem.blocks[0].values)
    assert list(dict.fromkeys(sizes)) == [n + 20, n + 40, n + 80, whole]
    assert staged.result.converged
    assert staged.term_names == direct.term_names
    assert staged.result.loss == pytest.approx(direct.result.loss, rel=1e-6)
    assert sizes.count(whole) < 0.2 * len(sizes)
    for one, other in zip(
        staged.result.solution.values, direct.result.solution.values, strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-3 * np.max(np.abs(other)))


@pytest.mark.slow
@pytest.mark.parametrize("last", [20, 40, 80])
def test_a_large_problem_that_is_stopped_with_fewer_points_is_a_whole_one(data, last):
    def stop(two_step, problem, result):
        return len(problem.blocks[0].points) == last

    problem, fit = fitted_large(data, report=stop, large=LARGE)
    assert fit.result.stop is Stop.CALLBACK
    assert len(fit.problem.blocks[0].points) == len(problem.blocks[0].points)
    assert fit.result.loss == fit.problem.evaluate(fit.result.solution).loss
    assert fit.learned.states[0].functionals


@pytest.mark.slow
def test_states_are_those_of_the_model_that_is_there(right, monkeypatch):
    fit = replace(right[1])
    model, made = fit.model, []
    monkeypatch.setattr(type(fit.problem), "linearise", made.append)
    learned = fit.learned
    assert not made
    again = assemble_learned(fit.two_step, model.problem, fit.result.solution, model)
    point = np.array([[0.5, 0.5]])
    identity = parse_operator("u", fit.two_step.variables)
    for one, other in zip(learned.states, again.states, strict=True):
        assert one.variance(point, identity) == other.variance(point, identity)


@pytest.fixture(scope="module")
def wrong(data):
    return fitted(data, FALSE)


def test_the_equation_that_predicts_better_is_taken(right, wrong):
    right, wrong = right[1], wrong[1]
    assert with_better_equation(right, wrong, CONTEXT) is right
    best = with_better_equation(wrong, right, CONTEXT)
    assert best.two_step is wrong.two_step
    assert best.learned.equation.terms() == right.learned.equation.terms()
    assert best.result.loss_curve == right.result.loss_curve
    assert best.result.n_iter > right.result.n_iter


def test_only_equations_that_predict_are_held(right):
    fit = right[1]
    assert not fit.needs_no_refinement(CRITERIA)
    assert fit.stopped(Stop.KEYBOARD).needs_no_refinement(CRITERIA)
    data = fit.observations.functions[0]
    small = replace(data, values=1e-3 * data.values)
    observations = replace(fit.two_step.observations, functions=[small])
    two_step = replace(fit.two_step, observations=observations)
    assert replace(fit, two_step=two_step).needs_no_refinement(CRITERIA)
    noisy = replace(fit.two_step, observation_noise=np.array([0.1]))
    assert replace(fit, two_step=noisy).needs_no_refinement(CRITERIA)


def test_an_interrupted_fit_keeps_the_first_one(right, wrong):
    right, wrong = right[1], wrong[1]
    kept = with_better_equation(wrong, right.stopped(Stop.KEYBOARD), CONTEXT)
    assert kept.problem is wrong.problem
    assert kept.result.solution is wrong.result.solution
    assert kept.result.interrupted and not kept.result.converged
    assert "interrupted" in kept.result.message
    # A callback that stops the states' minimisation stops the comparison too.
    stop = replace(CONTEXT, report=lambda *_: True)
    assert with_better_equation(wrong, right, stop).result.interrupted


@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_states_of_a_held_equation_are_those_of_the_solver(data, solver):
    """Two ways to one problem: the equation known, data inside, the same noise."""
    _, fit = fitted(data, TRUE, solver)
    problem = fit.problem.with_basis(fit.unknown_part(CRITERIA))
    start = problem.iterate(fit.result.solution.coefficients, np.empty(0))
    held = minimise(problem, start, Damping(1e-9, 1e-12), max_iter=50)
    state = problem.linearise(problem.evaluate(held.solution)).posterior_states()[0]
    known = KernelPDESolver(
        fit.learned.equation,
        data.collocation_points,
        variables=data.variables,
        state_kernel=KERNEL,
        **NOISE,
    ).fit(data.X, data.y)
    at = data.X_test[::97], parse_operator("u", data.variables)
    expected = known.states_[0]
    np.testing.assert_allclose(state.evaluate(*at), expected.evaluate(*at), atol=2e-6)
    np.testing.assert_allclose(state.variance(*at), expected.variance(*at), rtol=1e-3)


def test_states_are_as_uncertain_as_if_the_equation_were_not_held(right):
    """The same place in the same problem: held or not, the same variances."""
    fit = right[1]
    free, held = fit.learned, fit.unknown_part(CRITERIA)
    iterate = replace(fit.result.solution, weights=np.empty(0))
    other = assemble_learned(fit.two_step, fit.problem.with_basis(held), iterate)
    identity = parse_operator("u", fit.two_step.variables)
    points = np.random.RandomState(0).uniform(size=(50, 2))
    np.testing.assert_array_equal(
        other.states[0].variance(points, identity),
        free.states[0].variance(points, identity),
    )
    assert other.equation.terms() == free.equation.terms()
    # The equation is as uncertain as where it was learned.
    np.testing.assert_allclose(other.equation.posterior.factor, held.posterior.factor)


def test_other_states_are_taken_if_they_predict_better(right):
    family, fit = right
    held = JointFamily(
        fit.two_step,
        family.hypothesis,
        CONTEXT,
        unknown_part=fit.unknown_part(CRITERIA),
    )
    values = fit.result.solution.values
    stiff = Constant(4.0, "fixed") * RBF([5.0, 5.0], "fixed")
    worse = refit_states(fit, *held.at(stiff, values), CONTEXT)
    good = refit_states(fit, *held.at(fit.two_step.state_kernel, values), CONTEXT)
    selection, worst, best = Selection(fit), Selection(worse), Selection(good)
    assert selection.or_better(worst) is selection
    assert worst.or_better(best) is best
    small = good.error / worse.error
    assert worst.or_better(best, 1.1 * small) is best
    assert worst.or_better(best, 0.9 * small) is worst
    unfinished = Selection(good.stopped(Stop.MAX_ITER))
    converged = Selection(worse.stopped(Stop.CONVERGED))
    assert converged.or_better(unfinished) is converged
    assert best.joint.learned.equation.terms() == fit.learned.equation.terms()
    assert best.joint.result.loss_curve == fit.result.loss_curve
    stopped = selection.or_better(Selection(good.stopped(Stop.CALLBACK)))
    assert stopped.joint.problem is fit.problem and stopped.joint.result.interrupted


def test_noise_that_does_not_matter_is_that_of_the_residuals(right):
    _, fit = right
    noise = fit.problem.equation_noise
    assert fit.lower_equation_noise(CRITERIA) == pytest.approx(noise)  # it is given
    fit = replace(fit, hypothesis=replace(fit.hypothesis, equation_noise=None))
    residual = fit.problem.evaluate(fit.result.solution).residuals[0]
    n = len(fit.problem.blocks[0].values)
    assert not fit.noise_is_inactive(CRITERIA)
    assert fit.lower_equation_noise(CRITERIA) == pytest.approx(0.1 * noise)
    idle = replace(fit, problem=fit.problem.with_dispersion(1e6))
    assert idle.noise_is_inactive(CRITERIA)
    expected = np.sqrt(np.mean(residual[n:] ** 2))
    assert idle.lower_equation_noise(CRITERIA) == pytest.approx(expected)


# --- the order in which hypotheses are tried ------------------------------------------


class Found:
    """What a search asks of a fit that is compared; observations are of size one."""

    is_exact = False
    left_out_errors = np.ones(1)
    term_names, equations = ["u"], ()
    observations = SimpleNamespace(is_condensed=False)

    def __init__(self, error, interrupted=False, n_weights=3, inactive=False):
        self.error, self.n_weights, self.inactive = error, n_weights, inactive
        stop = Stop.CALLBACK if interrupted else Stop.CONVERGED
        self.result = Result(None, 0.0, stop=stop)
        self.two_step = SimpleNamespace(state_kernel=None)
        self.refined = True
        self.learned = self

    def stopped(self, stop):
        return Found(self.error, True)

    def is_noise_limited(self, criteria):
        return self.error > 1

    def needs_no_refinement(self, criteria):
        return self.refined or self.result.interrupted

    def noise_is_inactive(self, criteria):
        return self.inactive

    def lower_equation_noise(self, criteria):
        return 0.03

    def with_residual_dispersion(self, criteria):
        return self


class FakeFamily:
    """Stands in for joint problems; fits are handed out in a given order."""

    def __init__(self, fits, equation_noise=None, **hypothesis):
        self.fits, self.equation_noise = iter(fits), equation_noise
        self.hypothesis = Hypothesis(**hypothesis)
        self.context, self.two_step = CONTEXT, None
        self.asked = []

    def problem_of(self, two_step):
        return None, None


def predicts_poorly(fit, two_step, in_doubt):
    return fit is None or in_doubt(fit.error)


def make_search(monkeypatch, exact=(), n_restarts=7, why_not=""):
    """A search whose fits come from its family, and exact states from a list."""
    exact, tries = iter(exact), []

    def fit(family, two_step, problem, start, n_restarts=0):
        tries.append(n_restarts)
        return next(family.fits)

    def compare(family, values=None, near=None):
        family.asked.append(family.equation_noise)
        return [KernelCandidate(len(family.asked), None, np.ones(1), 0.0)]

    def start(kernel, family):
        return WarmStart(None, None, None, kernel.error)

    monkeypatch.setattr(_search, "fit_jointly", fit)
    monkeypatch.setattr(_search, "compare_kernels", compare)
    monkeypatch.setattr(_search, "warm_start", start)

    def exactly(*_, settings=None):
        return next(exact, None)

    monkeypatch.setattr(_exact_states, "fit_hypothesis", exactly)
    monkeypatch.setattr(_exact_states, "fit_from_wave", lambda *_: None)
    monkeypatch.setattr(_exact_states, "or_more_terms", lambda fit, *_: fit)
    monkeypatch.setattr(_exact_states, "leads_nowhere", predicts_poorly)
    monkeypatch.setattr(_exact_states, "meets_data", predicts_within_noise)
    monkeypatch.setattr(_exact_states, "from_simpler", lambda *_: None)
    monkeypatch.setattr(_exact_states, "or_simpler", lambda fit, *_: fit)
    monkeypatch.setattr(ExactSearch, "_or_functions", lambda _, fit: fit)
    monkeypatch.setattr(_exact_states, "replace", with_changes)
    monkeypatch.setattr(_search, "replace", with_changes)
    of_state = np.zeros(3, dtype=int), [identity_of("u", 1)]
    values = np.array([1.0, -1.0, 1.0])
    data = FunctionData(np.zeros((3, 1)), values, np.ones(3), *of_state)
    setup = SimpleNamespace(is_system=False)
    two_step = SimpleNamespace(
        observations=Observations((None,), [data]),
        observation_noise=np.zeros(1),
        setup=setup,
        variables=("x", "t"),
    )
    context = replace(CONTEXT, settings=replace(CONTEXT.settings, n_restarts=7))
    rows = [Candidate(Hypothesis(), why_not)] * len(Hypotheses._fields)
    return _search._Search(two_step, Hypotheses(*rows), context), tries


def polynomials(names=("quadratic", "cubic")):
    """A table of which only exact states of two polynomials are tried."""
    table = Hypotheses(
        *(
            Candidate(Hypothesis(n_terms="auto", name=name), "none")
            for name in Hypotheses._fields
        )
    )
    rows = [Candidate(Hypothesis(n_terms="auto", name=name)) for name in names]
    return table._replace(exact=rows[0], exact_cubic=rows[1])


def with_changes(value, **changes):
    """Dataclasses are replaced; a family stays itself, but for its noise."""
    if isinstance(value, FakeFamily):
        value.equation_noise = changes["equation_noise"]
        return value
    return replace(value, **changes)


def kernels(n):
    return [KernelCandidate(i, None, np.ones(1), 0.0) for i in range(n)]


@pytest.mark.parametrize(
    "errors, best, n_fits",
    [
        ([0.05, 0.01], 0, 1),  # good enough
        ([0.3, 0.2, 0.04, 0.01], 2, 3),
        ([0.3, 0.2, 0.25], 1, 3),
        ([0.3, 0.25, 0.27], 0, 3),  # not clearly better
        ([1.5, 0.2], 0, 1),  # noise hides what is better
        ([0.5 * 0.9**i for i in range(30)], 7, 8),
    ],
)
def test_other_kernels_are_tried_while_predictions_are_poor(
    errors, best, n_fits, monkeypatch
):
    search, tries = make_search(monkeypatch)
    family = FakeFamily([Found(error) for error in errors])
    selection = search._finalist(family, kernels(len(errors)))
    assert selection.error == errors[best]
    assert tries == [7] + [0] * (n_fits - 1)


def test_exact_states_of_poor_fits_may_be_better(monkeypatch):
    exact = [None, Found(0.25), Found(0.02)]
    search, _ = make_search(monkeypatch, exact)
    found = [Found(0.4), Found(0.3), Found(0.2), Found(0.01)]
    selection = search._finalist(FakeFamily(found), kernels(4))
    assert selection.joint is found[2] and selection.best is exact[2]


@pytest.mark.parametrize(
    "error, in_time, enough, terms, taken",
    [
        (0.045, False, True, ["u_x"], True),
        (0.045, False, False, ["u"], False),
        (0.055, False, True, ["u_x"], False),
        (0.06, False, True, ["u"], True),
        (0.07, False, True, ["u"], False),
        (0.03, False, False, ["u_x"], True),
        (0.06, True, False, ["u_x"], True),
        (0.07, True, True, ["u"], False),
    ],
)
def test_exact_states_that_are_enough_need_not_be_clearly_better(
    error, in_time, enough, terms, taken, monkeypatch
):
    """Than the joint fit they started from; with its terms they may be a bit worse."""
    exact, (search, _) = Found(error), make_search(monkeypatch)
    exact.term_names = terms
    monkeypatch.setattr(search, "_exact_from", lambda *_: exact)
    search.two_step.variables = ("t",) if in_time else ("x", "t")
    monkeypatch.setattr(search.exact, "is_enough", lambda found: enough)
    selection = search._finalist(FakeFamily([Found(0.05)]), kernels(1))
    assert (selection.exact is exact) == taken


def test_an_interrupted_finalist_ends_the_search(monkeypatch):
    search, _ = make_search(monkeypatch)
    found = [Found(0.4), Found(0.3), Found(0.2, interrupted=True)]
    selection = search._finalist(FakeFamily(found), kernels(3))
    assert selection.error == 0.4 and selection.joint.result.interrupted


@pytest.mark.parametrize(
    "given, error, n_weights, inactive, chosen",
    [
        (None, 0.01, 3, False, 1),
        (None, 0.045, 3, False, 0),
        (None, 0.045, 2, False, 1),
        (None, 0.055, 2, False, 0),
        (None, 0.055, 3, True, 1),
        (None, 0.07, 3, True, 0),
        (0.3, 0.01, 3, False, 0),
    ],
)
def test_the_noise_of_an_equation_is_chosen_with_the_kernel(
    given, error, n_weights, inactive, chosen, monkeypatch
):
    """A tenth of it is taken if predictions are clearly better; only if it is free.

    If they are better with fewer terms, that is enough; if the noise does not matter,
    they need not be better.
    """
    search, _ = make_search(monkeypatch)
    first, second = Found(0.05, inactive=inactive), Found(error, n_weights=n_weights)
    first.refined = given is not None
    monkeypatch.setattr(_search, "with_better_equation", lambda fit, *_: settled(fit))
    family = FakeFamily([first, second, Found(1.0)], equation_noise=given)
    family.hypothesis = replace(family.hypothesis, equation_noise=given)
    selection = search._with_best_kernel(family, kernels(1))
    assert family.asked == ([pytest.approx(0.03)] if given is None else [])
    assert selection.error == [0.05, error][chosen]


def settled(fit):
    fit.refined = True
    return fit


@pytest.mark.parametrize(
    ("quadratic", "cubic", "chosen"),
    [
        (0.05, 0.001, "cubic"),
        (0.05, 0.02, "quadratic"),  # neither meets the data
        (0.004, None, "quadratic"),  # no other one is looked for
        (None, 0.001, "cubic"),
        (None, None, None),
    ],
)
def test_cubic_states_from_a_joint_fit_where_quadratic_ones_miss_the_data(
    quadratic, cubic, chosen, monkeypatch
):
    fits = [None if error is None else Found(error) for error in (quadratic, cubic)]
    search, _ = make_search(monkeypatch, fits)
    monkeypatch.setattr(_exact_states, "meets_data", lambda fit, *_: fit.error < 0.005)
    search.exact.table, family = polynomials(), FakeFamily([], n_terms="auto")
    family.two_step = search.exact.two_step
    monkeypatch.setattr(search.exact, "two_steps", lambda _: None)
    found = search.exact.from_joint_fit(family, Found(0.01))
    assert found is dict(zip(("quadratic", "cubic"), fits, strict=True)).get(chosen)


@pytest.mark.parametrize("factor, chosen", [(0.5, True), (0.9, False)])
def test_the_kernel_of_the_two_steps_is_taken_if_clearly_better(
    factor, chosen, monkeypatch
):
    """Its equation is tried with the other states in any case."""
    search, _ = make_search(monkeypatch)
    first, other = Found(0.05), Found(factor * 0.05)
    first.refined = False
    tried = []

    def better(fit, other, context):
        tried.append(other)
        return fit.stopped(Stop.CALLBACK)

    monkeypatch.setattr(_search, "with_better_equation", better)
    family = FakeFamily([first, other], equation_noise=0.1)
    family.hypothesis = replace(family.hypothesis, equation_noise=0.1)
    selection = search._with_best_kernel(family, kernels(1))
    assert tried == ([] if chosen else [other])
    assert len(selection.kernels) == (2 if chosen else 1)


@pytest.mark.parametrize(
    "ratio, asked, taken", [(0.5, 1, True), (0.9, 1, True), (1.1, 1, False)]
)
def test_exact_states_are_taken_if_they_predict_better(
    ratio, asked, taken, monkeypatch
):
    """They are looked for once from one joint fit."""
    exact = iter([Found(ratio * 0.05), Found(ratio * 0.05)])
    search, _ = make_search(monkeypatch, exact)
    selection = search._with_best_kernel(FakeFamily([Found(0.05)]), kernels(1))
    assert len(list(exact)) == 2 - asked
    assert (selection.exact is not None) == taken
    assert selection.error == min(ratio, 1) * 0.05


@pytest.mark.parametrize(
    ("error", "terms", "noise", "factor"),
    [
        (0.001, "u", 0.0, np.inf),  # they meet exact data
        (0.001, "u", 1e-2, 1 / 0.75),
        (0.001, "v", 0.0, 1.0),
        (0.05, "u", 0.0, 0.75),  # others are tried, too
        (None, "u", 0.0, 0.75),
    ],
)
def test_how_much_worse_exact_states_may_predict_than_a_joint_fit(
    error, terms, noise, factor, monkeypatch
):
    search, _ = make_search(monkeypatch)
    search.exact.two_step.observation_noise = np.full(1, noise)
    exact, joint = error and Found(error), Found(0.05)
    joint.term_names = [terms]
    assert search.exact.factor_beside(exact, joint) == factor


@pytest.mark.parametrize(
    ("noise", "n_weights", "variables", "explains"),
    [
        (0.04, 2, ("t", "x"), True),
        (0.06, 2, ("t", "x"), False),  # they miss more than it errs
        (0.04, 3, ("t", "x"), False),  # it has as few terms
        (0.0, 2, ("t", "x"), False),  # data are exact
        (0.04, 2, ("t",), False),  # trajectories are compared otherwise
    ],
)
def test_exact_states_that_explain_noisy_data_with_fewer_terms(
    noise, n_weights, variables, explains, monkeypatch
):
    """They are taken where they predict worse, if not clearly."""
    search, _ = make_search(monkeypatch)
    exact = Found(0.06, n_weights=n_weights)
    exact.observations = search.exact.two_step.observations
    exact.problem = SimpleNamespace(prior=SimpleNamespace(noise=noise))
    search.exact.two_step.observation_noise = np.full(1, min(noise, 0.03))
    search.exact.two_step.variables = variables
    joint = Found(0.05)
    assert search.exact.explains_more(exact, joint) is explains
    if variables != ("t",):
        factor = 1 / 0.75 if explains else 0.75
        assert search.exact.factor_beside(exact, joint) == factor
    assert not search.exact.explains_more(None, joint)


@pytest.mark.parametrize(
    "part, terms, first, failed, again",
    [
        (0.9, "u", 0.1, False, False),
        (0.5, "u", 0.1, False, True),  # clearly better states
        (0.9, "v", 0.1, False, True),
        (0.9, "u", None, False, True),  # none were found
        (0.9, "u", None, True, False),  # nor were any with all terms
        (0.5, "u", None, True, True),
    ],
)
def test_exact_states_from_a_joint_fit_like_another_one(
    part, terms, first, failed, again, monkeypatch
):
    found = [None if first is None else Found(first), Found(0.01)]
    search, _ = make_search(monkeypatch, iter(found))
    search.exact.joint_failed = failed
    family, joint, other = FakeFamily([]), Found(0.05), Found(part * 0.05)
    other.term_names = [terms]
    assert search._exact_from(family, joint) is found[0]
    assert search._exact_from(family, other) is found[int(again)]


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_few_terms_are_tried_where_joint_fits_failed(noise, monkeypatch):
    search, _ = make_search(monkeypatch)
    exact, asked = search.exact, []
    exact.two_step.observation_noise = np.array([noise])
    monkeypatch.setattr(
        _exact_states, "fit_hypothesis", lambda *given: asked.append(given[-1])
    )
    monkeypatch.setattr(ExactSearch, "_joint_degrees", [Hypothesis()])
    monkeypatch.setattr(ExactSearch, "_trajectories_from", lambda *_: None)
    rough = None, [SimpleNamespace(error=0.01)]
    monkeypatch.setattr(ExactSearch, "_with_all_terms", lambda *_: rough)
    family, joint = FakeFamily([]), Found(0.01)
    exact.from_joint_fit(family, joint)
    assert exact._from_joint_fits() is None
    exact.from_joint_fit(family, joint)
    few = TermSearchSettings.of_failed_states()
    assert few.n_tried < TermSearchSettings().n_tried
    assert asked == [None, None if noise else few]


def test_an_interrupted_fit_is_not_made_exact(monkeypatch):
    search, _ = make_search(monkeypatch, [Found(0.01)])
    stopped = Found(0.1, interrupted=True)
    assert search.exact.from_joint_fit(FakeFamily([]), stopped) is None
    selection = Selection(stopped)
    assert selection.or_exact(Found(0.01)) is selection


@pytest.mark.parametrize(
    "errors, chosen",
    [
        ((0.004, 0.001, 0.001), 0),
        ((0.2, 0.1, 0.09), 1),
        ((0.2, 0.19, None), 0),
        ((0.2, None, 0.1), 2),
        ((0.2, 0.1, 0.01), 2),
        ((0.2, 0.004, 0.001), 1),
        ((None, None), None),
        ((None, 0.1), 1),  # that of varying coefficients: no cubic one is tried
    ],
)
def test_a_wider_equation_is_taken_if_clearly_better(errors, chosen, monkeypatch):
    """Quadratic, cubic, with varying coefficients; None: no exact states.

    Errors are in units of the size of the observations.
    """
    search, _ = make_search(monkeypatch, [Found(0.05)])  # from two steps
    table = search.exact.table
    functions = replace(table.functions, why_not="not of these")
    search.exact.table = table._replace(functions=functions)
    found = [None if error is None else Found(error) for error in errors]
    fits = iter(found)
    monkeypatch.setattr(search.exact, "_exact_from_anywhere", lambda _: next(fits))
    assert search.exact._exact_states() is (None if chosen is None else found[chosen])
    reasons = dict(search.exact.not_tried)
    assert bool(reasons) == (0.004 in errors)


@pytest.mark.parametrize(
    "errors, chosen, grown",
    [
        ((0.001,), 0, 0),
        ((0.09, 0.001), 1, 0),
        ((0.09, 0.08), 0, 1),
        ((0.09, 0.05), 1, 1),
    ],
)
def test_cubic_terms_are_tried_before_other_starts(errors, chosen, grown, monkeypatch):
    """A diffusion that led to nothing better is not begun with again."""
    found, asked = [Found(error) for error in errors], []
    search, _ = make_search(monkeypatch, found)
    search.exact.table = polynomials()

    def grow(fit, *_):
        asked.append(fit)
        return fit

    monkeypatch.setattr(_exact_states, "or_from_diffusion", grow)
    assert search.exact._exact_states() is found[chosen]
    assert asked == found[:grown]


@pytest.mark.parametrize("poor", [0.2, None])
def test_other_starts_come_first_where_two_steps_lead_nowhere(poor, monkeypatch):
    """Cubic terms are left out if exact data are met from a diffusion."""
    first = None if poor is None else Found(poor)
    search, _ = make_search(monkeypatch, [first, Found(0.0)])
    search.exact.table = polynomials()
    grown = Found(0.001)
    monkeypatch.setattr(_exact_states, "or_from_diffusion", lambda *_: grown)
    assert search.exact._exact_states() is grown
    assert ("cubic", "a simpler equation predicts well") in search.exact.not_tried


def test_cubic_terms_grow_where_quadratic_ones_have_grown(monkeypatch):
    found, better = [Found(0.09), Found(0.085)], [Found(0.08), Found(0.02)]
    search, _ = make_search(monkeypatch, found)
    search.exact.table = polynomials()
    grown = iter(better)
    monkeypatch.setattr(_exact_states, "or_from_diffusion", lambda *_: next(grown))
    assert search.exact._exact_states() is better[1]


def test_a_diffusion_that_leads_to_less_than_cubic_terms_is_left(monkeypatch):
    """The quadratic equation has no states from two steps, and poor ones from it."""
    search, _ = make_search(monkeypatch, [None, Found(0.05)])
    search.exact.table = polynomials()
    grown = iter([Found(0.06), Found(0.01)])
    monkeypatch.setattr(_exact_states, "or_from_diffusion", lambda *_: next(grown))
    assert search.exact._exact_states().error == 0.06  # no cubic one is clearly better
    assert next(grown).error == 0.01  # not looked for


@pytest.mark.parametrize(
    ("noise", "error", "terms", "n_grown"),
    [
        (1e-3, 0.0199, ["u"], 1),
        (1e-3, 0.0199, ["v"], 2),  # another equation
        (1e-3, 0.019, ["u"], 2),  # another minimum
        (0.0, 0.0199, ["u"], 2),  # exact data would be met
    ],
)
def test_cubic_terms_are_not_grown_where_quadratic_ones_are_found_again(
    noise, error, terms, n_grown, monkeypatch
):
    """The cubic equation from two steps has the terms of the quadratic one."""
    search, asked = make_search(monkeypatch, [Found(0.02), Found(0.02)])[0], []
    search.exact.two_step.observation_noise = np.array([noise])
    search.exact.table, grown = polynomials(), Found(error)
    grown.term_names = terms

    def grow(fit, *_):
        asked.append(fit)
        return grown

    monkeypatch.setattr(_exact_states, "or_from_diffusion", grow)
    assert search.exact._exact_states() is grown
    assert len(asked) == n_grown


@pytest.mark.parametrize(
    "error, n_terms, n_tried", [(1e-9, 4, 0), (1e-9, 5, 1), (1e-11, 5, 0), (1e-3, 4, 1)]
)
def test_what_meets_exact_data_is_compared_with_no_more_terms(
    error, n_terms, n_tried, monkeypatch
):
    """Also where two steps, which know no equation, take a part of them for noise.

    More than few terms have to meet them to more digits.
    """
    search, _ = make_search(monkeypatch)
    search.exact.two_step.observation_noise = np.array([0.1])
    rows, tried, fit = (
        [Hypothesis(n_terms="auto", name=n) for n in "ab"],
        [],
        Found(error),
    )
    fit.hypothesis, fit.is_driven, fit.two_step = rows[0], False, "its own"
    fit.term_names = [f"u^{power}" for power in range(n_terms)]
    setup = SimpleNamespace(equations=[SimpleNamespace(depends_on=(0,))])
    fit.learned, fit.has_functions = SimpleNamespace(setup=setup), False
    monkeypatch.setattr(search.exact, "two_steps", lambda *given: tried.append(given))
    monkeypatch.setattr(_trajectory_search, "fit_trajectories", lambda *_: None)
    table = search.exact.table
    functions = replace(table.functions, why_not="not of these")
    search.exact.table = table._replace(functions=functions)
    assert search.exact._or_more_terms(fit, rows, []) is fit
    assert tried == [(rows[1], "its own")][:n_tried]  # beside the noise that it has


def test_what_joint_problems_say_is_found_once(monkeypatch):
    search, _ = make_search(monkeypatch)
    first, cubic = (SimpleNamespace(equation_kernel=object()) for _ in range(2))
    families, asked = [SimpleNamespace(hypothesis=h) for h in (first, cubic)], []

    def compare(family):
        asked.append(family)
        return len(asked)

    found = [search.exact.once(compare, family) for family in families * 2]
    assert found == [1, 2, 1, 2] and asked == families


def stub_starts(monkeypatch, **errors):
    """Joint problems with KernelCandidates of such errors; the names of those asked."""

    def finding(name):
        def find(*_):
            found.append(name)
            return [KernelCandidate(name, None, np.full(1, errors.get(name)), 0.0)]

        find.__name__ = name
        return find

    def impose(*_):
        found.append("Imposition")
        return SimpleNamespace(candidate=finding("candidate"), is_slow=False)

    found, impose.__name__ = [], "Imposition"
    for name in ("compare_lengths", "compare_kernels"):
        monkeypatch.setattr(_trajectory_search, name, finding(name))
    monkeypatch.setattr(_trajectory_search, "Imposition", impose)
    fit = SimpleNamespace(result=Result(None, 0.0), learned="learned")
    started = {"warm_start": lambda kernel, _: [kernel] * 3}
    for name, stub in (started | {"fit_jointly": lambda *_: fit}).items():
        monkeypatch.setattr(_trajectory_search, name, stub)
    return found


@pytest.mark.parametrize(("error", "compared"), [(0.05, False), (0.5, True)])
def test_kernels_are_compared_where_the_first_predicts_poorly(
    error, compared, monkeypatch
):
    """States that a joint fit predicts well were a start for trajectories already."""
    search, _ = make_search(monkeypatch)
    found = stub_starts(monkeypatch, compare_lengths=error, compare_kernels=0.01)
    lost = TrajectoriesFound(None, ["step"])

    class Found(str):
        error, log_evidences = 0.5, {}  # too poor to be measured against

    def search_from(learned, *_, known, reached):
        ends.append([*known])
        assert reached == -np.inf
        return lost if learned == "elsewhere" else TrajectoriesFound(Found(learned))

    ends = []
    monkeypatch.setattr(_trajectory_search, "search_trajectories", search_from)
    monkeypatch.setattr(search.exact, "two_steps", lambda _: "elsewhere")
    given = Hypothesis(n_terms="auto", name="polynomial"), None
    assert search.exact._trajectories_from(None, *given) is None
    first, second = (
        search.exact._trajectories_from(getattr(_trajectory_search, name), *given)
        for name in ("compare_lengths", "compare_kernels")
    )
    assert first == "learned" and (second == "learned") == compared
    assert ends[:2] == [[], [lost]] and [len(e) for e in ends[2:]] == [2] * compared
    assert found == ["Imposition", "compare_lengths"] + (
        ["compare_kernels"] if compared else []
    )


class Levels:
    """An Imposition whose levels lead to searches that find `fits`, in turn."""

    def __init__(self, fits, is_slow=True):
        self.fits, self.is_slow = list(fits), is_slow

    def levels(self):
        while self.is_slow and self.fits:
            yield self.fits.pop(0)


def found_with(names, error=0.01, evidence=None):
    """A fit with such terms, each of which lowers the log evidence by one."""
    fit = Found(error)
    fit.term_names = [*names]
    fit.log_evidence = -len(names) if evidence is None else evidence
    return fit


@pytest.mark.parametrize(
    ("found", "place", "noise"),
    [
        (["abc", "abc"], 1, 0.0),
        (["abc", "ab", "abc", "abc"], 2, 0.0),
        (["abc", None, "abc", "abc"], 2, 0.1),
        (["abcd", "abc", "cdef"], 1, 0.1),  # the most probable terms
        (["abcd", "abc", "cdef"], None, 0.0),  # nothing tells of exact data
        (["abc"], 0, 0.1),
        (["abc"], None, 0.0),
        ([("abc", 0.9), ("abc", 0.9)], None, 0.1),  # they miss the data
        ([None], None, 0.1),
        ([], None, 0.1),
    ],
)
def test_trajectories_that_levels_lead_to_are_enough(found, place, noise, monkeypatch):
    """Then neither other levels nor kernels are tried; or else these are."""
    search, _ = make_search(monkeypatch)
    exact = search.exact
    exact.two_step.variables = ("t",)
    exact.two_step.observation_noise = np.full(1, noise)
    fits = [f and found_with(*([f] if isinstance(f, str) else f)) for f in found]
    levels = Levels(fits)
    monkeypatch.setattr(exact, "_imposition", lambda _: (None, levels))
    monkeypatch.setattr(exact, "_searched", lambda learned, _: learned)
    monkeypatch.setattr(exact, "_misses_nothing", lambda fit: fit.error < 0.5)
    monkeypatch.setattr(_criteria, "misses_at_random", lambda *_: True)
    monkeypatch.setattr(exact, "_with_all_terms", lambda _: 1 / 0)
    monkeypatch.setattr(exact, "two_steps", lambda _: "elsewhere")
    given = _trajectory_search.compare_lengths, Hypothesis(n_terms="auto"), None
    if place is None:
        with pytest.raises(ZeroDivisionError):
            exact._trajectories_from(*given)
        assert not levels.fits
    else:
        assert exact._trajectories_from(*given) is fits[place]


@pytest.mark.parametrize(
    ("found", "best"),
    [
        ([None, None], None),
        ([None, ("ab", 3.0), ("abc", 5.0), ("abcd", 5.0)], "abc"),
        ([("abc", 5.0), None, ("ab", 3.0)], "abc"),
    ],
)
def test_the_most_probable_trajectories_of_all_guesses_are_taken(
    found, best, monkeypatch
):
    """Those of two steps are the first; the others' sets of terms are known as well."""
    search, _ = make_search(monkeypatch)
    fits = [own and found_with(own[0], evidence=own[1]) for own in found]
    guesses = lambda *_: iter(fits[1:])  # noqa: E731
    monkeypatch.setattr(_trajectory_search, "states_of_guesses", guesses)
    monkeypatch.setattr(search.exact, "two_steps", lambda _: fits[0])
    monkeypatch.setattr(search.exact, "_searched", lambda learned, _: learned)
    monkeypatch.setattr(_trajectory_search, "with_rivals", lambda *given: given)
    given = _trajectory_search.states_of_guesses, Hypothesis(n_terms="auto"), None
    taken = search.exact._trajectories_from(*given)
    if best is None:
        assert taken is None
    else:
        fit, rest = taken
        assert "".join(fit.term_names) == best
        assert [fit, *rest] == sorted(
            filter(None, fits), key=lambda own: own is not fit
        )


def test_an_interrupted_guess_is_the_last(monkeypatch):
    search, _ = make_search(monkeypatch)
    stopped = Found(0.01, interrupted=True)
    fits = [found_with("abc"), stopped, "is not asked for"]
    guesses = lambda *_: iter(fits[1:])  # noqa: E731
    monkeypatch.setattr(_trajectory_search, "states_of_guesses", guesses)
    monkeypatch.setattr(search.exact, "two_steps", lambda _: fits[0])
    monkeypatch.setattr(search.exact, "_searched", lambda learned, _: learned)
    given = _trajectory_search.states_of_guesses, Hypothesis(n_terms="auto"), None
    assert search.exact._trajectories_from(*given) is stopped


def test_levels_that_take_no_time_are_not_searched_one_by_one(monkeypatch):
    search, _ = make_search(monkeypatch)
    levels = Levels([found_with("abc")] * 2, is_slow=False)
    assert search.exact._from_any(levels.levels(), "hypothesis") is None
    assert len(levels.fits) == 2


def test_an_interrupted_level_is_the_last(monkeypatch):
    search, _ = make_search(monkeypatch)
    stopped = Found(0.01, interrupted=True)
    levels = Levels([stopped, found_with("abc")])
    monkeypatch.setattr(search.exact, "_searched", lambda learned, _: learned)
    assert search.exact._from_any(levels.levels(), "hypothesis") is stopped
    assert len(levels.fits) == 1


def test_searches_are_measured_against_those_that_predict_well(monkeypatch):
    search, _ = make_search(monkeypatch)
    fits = [
        SimpleNamespace(error=error, log_evidences=told)
        for error, told in [(0.01, {"a": 3.0, "b": 7.0}), (0.5, {"a": 9.0}), (0.02, {})]
    ]
    asked, left = [], iter([None, *fits])

    def search_from(*_, known, reached):
        asked.append(reached)
        return TrajectoriesFound(next(left))

    monkeypatch.setattr(_trajectory_search, "search_trajectories", search_from)
    hypothesis = Hypothesis(n_terms="auto", name="polynomial")
    assert [search.exact._searched("states", hypothesis) for _ in range(4)][1:] == fits
    assert asked == [-np.inf, -np.inf, 7.0, 7.0]


@pytest.mark.parametrize(
    ("noise", "error", "stopped", "found"),
    [
        (0.0, 0.01, None, "few"),
        (0.0, 0.06, None, "all"),  # the joint fit with few terms predicts better
        (0.0, None, None, "all"),
        (1e-3, 0.01, None, "few"),  # hardly any noise
        (1e-2, 0.01, None, "all"),
        (0.0, None, "joint", None),
        (0.0, 0.06, "few", "few"),
    ],
)
def test_exact_fields_begin_with_the_terms_of_a_joint_fit(
    noise, error, stopped, found, monkeypatch
):
    search, _ = make_search(monkeypatch)
    stub_starts(monkeypatch, compare_lengths=0.1)
    search.exact.two_step.setup.is_system = True
    search.exact.two_step.observation_noise = np.full(1, noise)
    few = None if error is None else Found(error, interrupted=stopped == "few")
    joint, everything = Found(0.05, interrupted=stopped == "joint"), Found(0.02)
    fits = {"few": few, "all": everything, None: None}
    monkeypatch.setattr(search.exact, "_exact_with_terms", lambda *_: (few, joint))
    monkeypatch.setattr(search.exact, "_searched", lambda *_: everything)
    given = _trajectory_search.compare_lengths, Hypothesis(n_terms="auto"), None
    monkeypatch.setattr(search.exact, "two_steps", lambda _: "elsewhere")
    assert search.exact._trajectories_from(*given) is fits[found]


@pytest.mark.parametrize(
    ("noise", "level", "nothing"),
    [(0.0, 1.0, True), (0.0, 10.0, False), (1e-3, 10.0, False), (1e-2, 0.1, True)],
)
def test_exact_data_that_are_missed_call_for_other_fields(
    noise, level, nothing, monkeypatch
):
    """In units of what two steps see of noise, though all is predicted well."""
    search, _ = make_search(monkeypatch)
    search.exact.two_step.observation_noise = np.full(1, noise or 1e-5)
    fit = Found(1e-3)
    fit.hypothesis = Hypothesis(n_terms="auto")
    fit.problem = SimpleNamespace(prior=SimpleNamespace(noise=level * (noise or 1e-5)))
    assert search.exact._misses_nothing(fit) == nothing


def with_states(search, *states):
    """A search for so many states, of which the first was observed."""
    two_step = search.exact.two_step
    two_step.observations = replace(two_step.observations, states=states)
    return search


@pytest.mark.parametrize("hidden", [[], ["z"]])
@pytest.mark.parametrize("error", [1e-3, 0.05])
def test_hidden_states_with_few_terms_are_a_start(error, hidden, monkeypatch):
    """Where trajectories from a good joint fit with all terms explode; once."""
    search = with_states(make_search(monkeypatch)[0], "u", *hidden)
    search.exact.table, asked = polynomials(), []
    [row, _] = search.exact._degrees[0]
    stopped = SimpleNamespace(interrupted=False)
    few = SimpleNamespace(result=stopped, learned="few terms")

    def fit_jointly(family, kernel):
        asked.append((family.hypothesis.name, kernel))
        return few

    monkeypatch.setattr(_trajectory_search, "warm_start", lambda kernel, _: [kernel])
    monkeypatch.setattr(_trajectory_search, "fit_jointly", fit_jointly)
    monkeypatch.setattr(search.exact, "_searched", lambda learned, _: learned)
    given = None, row.hypothesis, "kernel"
    found = [search.exact._from_joint_terms(*given, Found(error)) for _ in range(2)]
    is_start = bool(hidden) and error < 0.01
    assert found == 2 * ["few terms" if is_start else None]
    assert asked == [(search.exact.table.first.hypothesis.name, "kernel")][:is_start]


@pytest.mark.parametrize("hidden", [[], ["z"]])
def test_guesses_of_hidden_states_come_with_the_first(hidden, monkeypatch):
    search = with_states(make_search(monkeypatch)[0], "u", *hidden).exact
    search.two_step.setup.is_system = True
    monkeypatch.setattr(ExactSearch, "is_in_time", True)
    monkeypatch.setattr(ExactSearch, "_has_open_kernels", True)
    first, cubic, functions = "quadratic", "cubic", "functions"
    found = search._starts([first, cubic], [first], [functions])
    joint = [(_trajectory_search.compare_lengths, [first])]
    joint = [(search.repeated, [first, cubic]), *joint]
    expected = [(None, [first, cubic, functions]), *joint]
    if hidden:
        guesses = _trajectory_search.states_of_guesses, [first, cubic]
        expected = [guesses, *joint, (None, [functions])]
    assert found == [*expected, (_trajectory_search.compare_kernels, [first])]


def test_functions_do_not_explain_a_guess(monkeypatch):
    """Two steps guess states that were never observed."""
    search, asked = with_states(make_search(monkeypatch)[0], "u", "z"), []
    monkeypatch.setattr(
        _hypothesis_search, "fit_elementary", lambda *given: asked.append(given[3])
    )
    for simpler in (None, Found(0.5)):
        assert search.exact._elementary(simpler) is None
    known = Found(1e-3)
    search.exact._elementary(known)
    assert asked == [known]


@pytest.mark.parametrize(
    ("error", "names", "again"),
    [(1.001e-3, "ab", False), (1.1e-3, "ab", True), (1e-3, "abc", True)],
)
def test_functions_are_not_looked_for_twice_near_one_fit(
    error, names, again, monkeypatch
):
    """Other searches lead to its terms and states again; some are beside others."""
    search, asked = make_search(monkeypatch)[0].exact, []
    monkeypatch.setattr(
        _hypothesis_search, "fit_elementary", lambda *given: asked.append(given[3])
    )
    first, second = found_with("ab", 1e-3), found_with(names, error)
    assert search._elementary(first) is None and search._elementary(second) is None
    assert asked == [first, second][: 1 + again]


def test_functions_that_were_found_are_compared_with_other_fits(monkeypatch):
    search, asked = make_search(monkeypatch)[0].exact, []

    def fit_elementary(*given):
        asked.append(given[3])
        return "functions"

    monkeypatch.setattr(_hypothesis_search, "fit_elementary", fit_elementary)
    fits = [found_with("ab", 1e-3) for _ in range(2)]
    assert [search._elementary(fit) for fit in fits] == ["functions"] * 2
    assert asked == fits


class Known(Fit):
    """A fit whose terms, and evidence of sets of terms, are as given."""

    @property
    def term_names(self):
        return self.learned_with


def known(chosen, evidence, has_functions=False):
    path = [TermsStep(t, 0.0, 0.0, 0.0, log) for t, log in evidence.items()]
    hypothesis = Hypothesis(has_functions=has_functions, name=str(chosen))
    return Known(hypothesis, None, None, Result(None, 0.0), chosen, [], path)


@pytest.mark.parametrize(
    ("error", "terms", "noisy", "random", "agree"),
    [
        (0.05, "u", False, False, True),  # predicts well
        (0.5, "u", True, True, True),  # leaves noise
        (0.5, "u", True, False, False),
        (0.5, "u", False, True, False),
        (0.5, "v", True, True, False),
        (0.45, "u", True, True, False),  # another minimum
    ],
)
def test_equal_trajectories_from_two_starts(
    error, terms, noisy, random, agree, monkeypatch
):
    """They are the last word if they predict well, or leave nothing but noise."""
    search, _ = make_search(monkeypatch)
    monkeypatch.setattr(_criteria, "sees_noise", lambda _: noisy)
    for module in (_criteria, _exact_states):
        monkeypatch.setattr(module, "misses_at_random", lambda *_: random)
    fit, before = Found(1.001 * error), Found(0.5 if error > 0.1 else error)
    fit.term_names = [terms]
    assert search.exact.agrees(fit, before) == agree
    assert not search.exact.agrees(None, before)
    monkeypatch.setattr(ExactSearch, "is_in_time", True)
    monkeypatch.setattr(ExactSearch, "_misses_nothing", lambda *_: False)
    assert not search.exact.is_enough(before)
    search.exact.agreed = True
    assert search.exact.is_enough(before) == (noisy and random)


@pytest.mark.parametrize(
    ("error", "alone", "random", "enough"),
    [
        (0.2, 0.5, True, True),
        (0.2, 0.5, False, False),  # a term is missing
        (0.3, 0.5, True, False),  # states alone say nearly as much
        (0.65, 2.0, True, False),  # nothing is explained
        (0.2, np.nan, True, False),  # a state was never observed
    ],
)
def test_noise_that_states_alone_do_not_know(error, alone, random, enough, monkeypatch):
    """Trajectories with random errors that predict far better are enough."""
    search, _ = make_search(monkeypatch)
    for name, found in (
        ("sees_noise", True),
        ("misses_at_random", random),
        ("error_without_equation", alone),
    ):
        monkeypatch.setattr(_criteria, name, lambda *_, found=found: found)
    monkeypatch.setattr(ExactSearch, "is_in_time", True)
    of_state = np.zeros(4, dtype=int), [identity_of("u", 1)]
    values = np.array([1.0, -1.0, 1.0, -1.0])
    data = FunctionData(np.arange(4.0)[:, None], values, np.ones(4), *of_state)
    search.exact.two_step.observations = Observations((None,), [data])
    search.exact.two_step.states = None
    fit = Found(error)
    fit.is_driven = False
    assert not search.exact.convinces(fit)
    assert search.exact._misses_nothing(fit) == enough


@pytest.mark.parametrize("noise", ["sees_noise", "leave_noise"])
@pytest.mark.parametrize(
    ("has_functions", "gain"), [(True, 2.0), (True, 4.0), (False, 6.0), (False, 8.0)]
)
def test_noisy_trajectories_need_odds_for_more(has_functions, gain, noise, monkeypatch):
    """Strong evidence for functions, decisive evidence for products of four."""
    search, _ = make_search(monkeypatch)
    exact, simple, wide = search.exact, ("u",), ("w",)
    best = known(simple, {simple: 10.0})
    other = known(wide, {simple: 1.0, wide: 1.0 + gain}, has_functions)
    if has_functions:  # their evidence has the odds against them
        against = exact.criteria.elementary
        other.terms_path[1] = other.terms_path[1].less_probable(-against, against)
    for name in ("sees_noise", "leave_noise"):
        monkeypatch.setattr(_criteria, name, lambda *_: False)
    assert exact._by_evidence(best, other) == (best, other)
    monkeypatch.setattr(_criteria, noise, lambda *_: True)
    kept, left = exact._by_evidence(best, other)
    limit = exact.criteria.elementary if has_functions else exact.criteria.wider
    assert left is None
    assert frozenset(kept.term_names) == frozenset(wide if gain > limit else simple)
    if gain < limit:  # told beside the terms that stay, at their odds
        assert kept.log_evidences[frozenset(wide)] == pytest.approx(10 + gain - limit)
        told = {step.terms: step.prior_odds for step in kept.terms_path}
        assert told == {simple: 0.0, wide: limit}
        assert exact._is_compared(other.hypothesis, kept)
        # Of a still wider hypothesis the terms are known to be less probable.
        again = known(wide, {wide: 99.0})
        assert exact._by_evidence(kept, again) == (kept, None)


@pytest.mark.parametrize(
    ("errors", "gain", "noisy", "names", "better"),
    [
        ((0.7, 1.0), -9.0, False, "ab", True),  # predicts clearly better
        ((0.9, 1.0), 4.0, False, "aa", True),  # from another start
        ((0.9, 1.0), 4.0, False, "ab", False),  # exact data would tell more clearly
        ((0.9, 1.0), 4.0, True, "ab", True),
        ((0.9, 1.0), 2.0, True, "ab", False),
        ((1.1, 1.0), 4.0, True, "ab", False),
        ((0.9, 1.0), 4.0, True, "ac", False),  # no polynomial of few terms
    ],
)
def test_noisy_polynomials_are_compared_by_evidence(
    errors, gain, noisy, names, better, monkeypatch
):
    """Noise hides by how much a right equation predicts better."""
    search, _ = make_search(monkeypatch)
    monkeypatch.setattr(_criteria, "sees_noise", lambda *_: False)
    monkeypatch.setattr(_criteria, "leave_noise", lambda *_: noisy)
    rows = {name: Hypothesis(n_terms="auto", name=name) for name in "abc"}
    fit, other = (
        SimpleNamespace(
            error=error,
            hypothesis=rows[name],
            term_names=[name],
            log_evidences={frozenset(name): evidence},
        )
        for error, name, evidence in zip(errors, names, (gain, 0.0), strict=True)
    )
    assert search.exact.is_better(fit, other, [rows["a"], rows["b"]]) == better


def test_hypotheses_that_are_not_tried_have_reasons(monkeypatch):
    search, _ = make_search(monkeypatch, why_not="a forcing is given")
    assert search.exact._exact_states() is None
    assert search.exact.not_tried[0] == ("quadratic polynomial", "a forcing is given")


def test_a_fixed_equation_has_values_and_slopes_but_no_features():
    basis = PolynomialBasis(Polynomial(2, center=0.0, scale=1.0))
    S = np.random.RandomState(0).normal(size=(4, 2))
    weights = np.arange(6.0)
    fixed = FixedUnknownPart(basis, weights, None)
    assert fixed(S).shape == (4, 0)
    none = np.empty(0)
    np.testing.assert_array_equal(fixed.values(S, none), basis.values(S, weights))
    np.testing.assert_array_equal(fixed.gradient(S, none), basis.gradient(S, weights))


@pytest.mark.slow
def test_the_equation_of_a_rougher_kernel(monkeypatch):
    """Defaults find it where states that fill the gaps alone would bend it."""
    for module, name in (
        (_exact_fit, "fit_exact_states"),
        (_exact_states, "or_from_diffusion"),
    ):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(ExactSearch, "_tries_joint_fits", False)
    data = make_burgers(60, collocation_shape=(14, 17), random_state=5)
    model = OneStepKEqL(**data.problem, n_terms="auto")
    with pytest.warns(IdentifiabilityWarning, match="at collocation points only"):
        model.fit(data.X, data.y)
    terms = model.equation_.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(1, rel=0.01)
    assert terms["u_xx"] == pytest.approx(0.01, rel=0.01)
    assert relative_l2_error(data.y_test, model.predict(data.X_test)) < 0.03
    assert "Envelope" not in str(model.state_kernel_)
    assert "Envelope" in str(model.fit_report_), "which says what it was learned with"


class AnyFamily(FakeFamily):
    """A family whose problem starts from the states of another fit."""

    def at(self, kernel, values):
        return None, None, None


@pytest.mark.parametrize(
    "error, n_weights, taken, told",
    [
        (0.03, 9, True, False),  # clearly better
        (0.045, 9, False, True),
        (0.045, 2, True, True),  # better with fewer terms
        (0.055, 2, False, True),
        (0.08, 2, False, False),  # clearly worse
    ],
)
def test_a_cubic_equation_beside_a_joint_fit(
    error, n_weights, taken, told, monkeypatch
):
    search, _ = make_search(monkeypatch)
    first, other = Found(0.05, n_weights=3), Found(error, n_weights=n_weights)
    first.result = replace(first.result, solution=SimpleNamespace(values=None))
    monkeypatch.setattr(_search, "JointFamily", lambda *_: AnyFamily([other]))
    selection = search._or_cubic(Selection(first), search.table.cubic)
    assert selection.error == (error if taken else 0.05)
    kept = {True: first, False: other}[taken]
    assert (selection.alternative is kept) == told


def test_other_equations_that_predict_as_well_are_told():
    """u_xx + u_yy = f + u^3 with known noise: quadratic terms predict about as well."""
    rng = np.random.default_rng(4)
    X, side = rng.uniform(0, 1, (40, 2)), np.linspace(0.05, 0.95, 9)

    def wave(X):
        return np.sin(np.pi * X[:, 0]) * np.cos(2 * X[:, 1])

    def forcing(X):
        return -(np.pi**2 + 4) * wave(X) - (wave(X) + X[:, 1]) ** 3

    model = OneStepKEqL(
        ("u",),
        "u_xx + u_yy",
        variables=("x", "y"),
        n_terms="auto",
        forcing=forcing,
        observation_noise=0.01,
        collocation_points=np.array([(a, b) for a in side for b in side]),
    )
    y = wave(X) + X[:, 1] + 0.01 * rng.standard_normal(40)
    with pytest.warns(IdentifiabilityWarning, match="polynomial predicts observ"):
        model.fit(X, y)
    assert any("differs by" in text for text in model.fit_report_.concerns)

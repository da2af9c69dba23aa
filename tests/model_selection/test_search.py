"""The better law of two fits, and states found again with a law that is held."""

from collections import namedtuple
from dataclasses import replace

import numpy as np
import pytest
from keql.model_selection._joint_fit import fit_jointly, with_better_law

from keql import KernelPDESolver, OneStepKEqL
from keql._estimators import one_step
from keql._evolution.states import Followed
from keql._joint.assembly import assemble_learned
from keql._numerics.gauss_newton import Damping, Stop, minimise
from keql.datasets import make_burgers
from keql.equation._basis import FixedUnknownPart, PolynomialBasis
from keql.kernels import RBF, Constant, Polynomial, Restriction
from keql.metrics import relative_l2_error
from keql.model_selection import _search
from keql.model_selection._search import FINALISTS, KernelSearch, fit_finalists
from keql.model_selection._state_kernels import KernelCandidate, WarmStart
from keql.operators import parse_operator

KERNEL = Constant(4.0, "fixed") * RBF([0.4, 0.2], "fixed")
NOISE = {"observation_noise": 1e-3, "equation_noise": 1e-2}
# Powers of t, x, u, u_x and u_xx in u u_x and u_xx, and in u and u_x.
TRUE = [(0, 0, 1, 1, 0), (0, 0, 0, 0, 1)]
FALSE = [(0, 0, 1, 0, 0), (0, 0, 0, 1, 0)]
SETTINGS = {"max_iter": 100, "tol": 1e-9, "report": lambda *_: False}


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
        solver=solver,
        n_restarts=0,
    )
    two_step = model._learn_in_two_steps(data.X, data.y, None)
    problem, start = model._solve_jointly(two_step)
    rng = np.random.RandomState(0)
    fit = fit_jointly(
        two_step, problem, start, n_terms=None, n_restarts=0, rng=rng, **SETTINGS
    )
    return model, fit


@pytest.fixture(scope="module")
def right(data):
    return fitted(data, TRUE)


@pytest.fixture(scope="module")
def wrong(data):
    return fitted(data, FALSE)


def test_the_law_that_predicts_better_is_taken(right, wrong):
    right, wrong = right[1], wrong[1]
    assert with_better_law(right, wrong, **SETTINGS) is right
    best = with_better_law(wrong, right, **SETTINGS)
    assert best.two_step is wrong.two_step
    assert best.learned.equation.terms() == right.learned.equation.terms()
    assert best.result.loss_curve == right.result.loss_curve
    assert best.result.n_iter > right.result.n_iter


def test_only_laws_that_predict_are_held(right):
    fit = right[1]
    assert not fit.is_settled
    assert fit.interrupted(Stop.KEYBOARD).is_settled
    data = fit.two_step.observations.functions[0]
    small = replace(data, values=1e-3 * data.values)
    observations = replace(fit.two_step.observations, functions=[small])
    two_step = replace(fit.two_step, observations=observations)
    assert replace(fit, two_step=two_step).is_settled
    noisy = replace(fit.two_step, observation_noise=0.1)
    assert replace(fit, two_step=noisy).is_settled


def test_an_interrupted_fit_keeps_the_first_one(right, wrong):
    right, wrong = right[1], wrong[1]
    stopped = right.interrupted(Stop.KEYBOARD)
    kept = with_better_law(wrong, stopped, **SETTINGS)
    assert kept.problem is wrong.problem
    assert kept.result.solution is wrong.result.solution
    assert kept.result.interrupted and not kept.result.converged
    assert "interrupted" in kept.outcome["message_"]
    # A callback that stops the states' minimisation stops the comparison too.
    stop = SETTINGS | {"report": lambda *_: True}
    assert with_better_law(wrong, right, **stop).result.interrupted


@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_states_of_a_held_law_are_those_of_the_solver(data, solver):
    """Two ways to one problem: the equation known, data inside, the same noise."""
    model, fit = fitted(data, TRUE, solver)
    problem = fit.problem.with_basis(fit.law)
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


def test_states_are_as_uncertain_as_if_the_law_were_not_held(right):
    """The same place in the same problem: held or not, the same variances."""
    fit = right[1]
    free = fit.learned
    held = fit.problem.with_basis(fit.law)
    iterate = replace(fit.result.solution, weights=np.empty(0))
    other = assemble_learned(fit.two_step, held, iterate)
    identity = parse_operator("u", fit.two_step.variables)
    points = np.random.RandomState(0).uniform(size=(50, 2))
    np.testing.assert_array_equal(
        other.states[0].variance(points, identity),
        free.states[0].variance(points, identity),
    )
    assert other.equation.terms() == free.equation.terms()
    # The law is as uncertain as where it was learned.
    np.testing.assert_allclose(
        other.equation.posterior.factor, fit.law.posterior.factor
    )


def test_other_states_are_taken_if_they_predict_better(right):
    model, fit = right
    stiff = Constant(4.0, "fixed") * RBF([5.0, 5.0], "fixed")
    two_step = model._learn_from(fit.two_step, stiff, fit.result.solution.values)
    known = fit.result.solution.values, fit.law

    def held(two_step):
        start = two_step, *model._solve_jointly(two_step, *known)
        return WarmStart(*start, 0.0), fit.holding(*start, **SETTINGS)

    poor, worse = held(two_step)
    search, worst = KernelSearch(None, fit, []), KernelSearch(poor, worse, [])
    assert search.or_better(worst) is search
    fine, good = held(fit.two_step)
    best = KernelSearch(fine, good, [])
    better = worst.or_better(best)
    assert better is best
    small = good.error / worse.error
    assert worst.or_better(best, 1.1 * small) is best
    assert worst.or_better(best, 0.9 * small) is worst
    unfinished = replace(good, result=replace(good.result, converged=False))
    converged = replace(worse, result=replace(worse.result, converged=True))
    sure = KernelSearch(poor, converged, [])
    assert sure.or_better(KernelSearch(fine, unfinished, [])) is sure
    assert better.fit.learned.equation.terms() == fit.learned.equation.terms()
    assert better.fit.result.loss_curve == fit.result.loss_curve
    stopped = KernelSearch(fine, good.interrupted(Stop.CALLBACK), [])
    stopped = search.or_better(stopped)
    assert stopped.fit.problem is fit.problem and stopped.fit.result.interrupted


def error_of(error):
    """What is asked of a trajectory."""
    return namedtuple("Trajectory", ["error"])(error)


class Found:
    """What is asked of a fit that is compared."""

    def __init__(self, error, interrupted=False):
        self.error, self.size, self.is_hidden = error, 1.0, error > 1
        self.two_step = self.prior = self.candidate = self.learned = None
        self.result = Result(interrupted)

    def interrupted(self, message):
        return Found(self.error, True)

    def with_residual_dispersion(self):
        return self


Result = namedtuple(
    "Result", ["interrupted", "stop", "converged"], defaults=["stopped", True]
)


@pytest.mark.parametrize(
    "errors, best, n_fits",
    [
        ([0.05, 0.01], 0, 1),  # good enough
        ([0.3, 0.2, 0.04, 0.01], 2, 3),
        ([0.3, 0.2, 0.25], 1, 3),
        ([0.3, 0.25, 0.27], 0, 3),  # not clearly better
        ([1.5, 0.2], 0, 1),  # noise hides what is better
        ([0.5 * 0.9**i for i in range(30)], FINALISTS - 1, FINALISTS),
    ],
)
def test_other_kernels_are_tried_while_predictions_are_poor(errors, best, n_fits):
    tries = []

    def fit(two_step, problem, start, n_restarts):
        tries.append(n_restarts)
        return Found(errors[two_step])

    priors = (WarmStart(i, None, None, 0.0) for i in range(len(errors)))
    search = fit_finalists([], priors, fit, lambda learned: None, 7)
    assert search.prior.two_step == best and search.error == errors[best]
    assert tries == [7] + [0] * (n_fits - 1)
    assert len(list(priors)) == len(errors) - n_fits, "no prior is made in vain"


def test_states_of_poor_fits_may_follow_a_law_that_is_better():
    found = [Found(0.4), Found(0.3), Found(0.2), Found(0.01)]
    priors = [WarmStart(each, None, None, 0.0) for each in found]
    followed = iter(
        [
            None,
            Followed("wrong", error_of(0.25), []),
            Followed("right", error_of(0.02), []),
        ]
    )
    search = fit_finalists(
        [], priors, lambda each, *_: each, lambda _: next(followed), 0
    )
    assert search.prior is priors[2] and search.learned == "right"


def test_an_interrupted_finalist_ends_the_search():
    found = [Found(0.4), Found(0.3), Found(0.2, interrupted=True)]
    priors = [WarmStart(each, None, None, 0.0) for each in found]
    search = fit_finalists([], priors, lambda each, *_: each, lambda learned: None, 0)
    assert search.prior is priors[0]
    assert search.error == 0.4 and search.fit.result.interrupted


@pytest.mark.parametrize("factor, chosen", [(0.5, True), (0.9, False)])
def test_the_prior_of_the_two_steps_is_taken_if_clearly_better(
    right, factor, chosen, monkeypatch
):
    """Its law is tried with the prior of the other states in any case."""
    _, fit = right
    fit = replace(fit, problem=fit.problem.with_dispersion(1.0))
    other = replace(fit, two_step=replace(fit.two_step, equation_noise=None))
    other.__dict__["errors"] = factor * fit.errors
    tried = []

    def law(best, found, **_):
        tried.append(found)
        return best.interrupted(Stop.CALLBACK)

    monkeypatch.setattr(_search, "compare_kernels", lambda *_: [fit.candidate])
    monkeypatch.setattr(_search, "warm_start", lambda *_: fit.prior)
    monkeypatch.setattr(_search, "with_better_law", law)
    fits = iter([fit, other])
    search = _search.fit_with_best_kernel(
        fit.two_step,
        [fit.candidate],
        None,
        lambda *_, **__: (None, None),
        lambda *_: next(fits),
        lambda learned: None,
        n_restarts=0,
        free_noise=False,
        report=lambda two_step: SETTINGS["report"],
        **{name: SETTINGS[name] for name in ("max_iter", "tol")},
    )
    if chosen:
        assert not tried and len(search.kernels) == 2
    else:
        assert tried == [other] and len(search.kernels) == 1


@pytest.mark.parametrize(
    "free_noise, error, n_weights, is_idle, chosen",
    [
        (True, 0.01, 3, False, 1),
        (True, 0.045, 3, False, 0),
        (True, 0.045, 2, False, 1),
        (True, 0.055, 2, False, 0),
        (True, 0.055, 3, True, 1),
        (True, 0.07, 3, True, 0),
        (False, 0.01, 3, False, 0),
    ],
)
def test_the_noise_of_an_equation_is_chosen_with_the_kernel(
    free_noise, error, n_weights, is_idle, chosen, monkeypatch
):
    """A tenth of it is taken if predictions are clearly better; only if it is free.

    If they are better with fewer terms, that is enough; if the noise does not matter,
    they need not be better.
    """
    asked = []

    def compare(two_step, learn, solve):
        asked.append(getattr(solve, "keywords", {}).get("equation_noise"))
        return [KernelCandidate(len(asked), None, np.ones(1), 0.0)]

    def make(candidate, learn, solve):
        return WarmStart(candidate.kernel, None, None, 0.0)

    def fit(two_step, *_):
        found = Found([0.05, error][two_step == 2])
        found.n_weights = [3, n_weights][two_step == 2]
        found.is_idle, found.less_noise = is_idle, 0.03
        found.is_settled = two_step == 2 or not free_noise
        found.problem = Problem(equation_noise=0.3)
        return found

    monkeypatch.setattr(_search, "compare_kernels", compare)
    monkeypatch.setattr(_search, "warm_start", make)
    monkeypatch.setattr(_search, "with_better_law", lambda fit, *_, **__: settle(fit))

    def solve(two_step, equation_noise=None):
        return None, None

    search = _search.fit_with_best_kernel(
        None,
        compare(None, None, solve),
        None,
        solve,
        fit,
        lambda learned: None,
        n_restarts=0,
        free_noise=free_noise,
        report=lambda two_step: None,
    )
    assert asked == ([None, pytest.approx(0.03)] if free_noise else [None])
    assert search.fit.error == [0.05, error][chosen]
    assert search.kernels[0].kernel == chosen + 1


@pytest.mark.parametrize(
    "ratio, asked, taken", [(0.5, 1, True), (0.9, 2, True), (1.1, 2, False)]
)
def test_states_follow_the_law_if_they_predict_better(ratio, asked, taken, monkeypatch):
    """If clearly better from the first on, other laws are not looked for."""
    told = []

    def fit(*_):
        found = Found(0.05)
        found.is_settled = True
        return found

    def follow(learned):
        told.append(learned)
        return Followed("followed", error_of(ratio * 0.05), [])

    kernels = [KernelCandidate(0, None, np.ones(1), 0.0)]
    prior = WarmStart(None, None, None, 0.0)
    monkeypatch.setattr(_search, "warm_start", lambda *_: prior)
    search = _search.fit_with_best_kernel(
        None,
        kernels,
        None,
        None,
        fit,
        follow,
        n_restarts=0,
        free_noise=True,
        report=None,
    )
    assert len(told) == asked
    assert (search.followed is not None) == taken
    assert search.learned == ("followed" if taken else None)
    assert search.error == min(ratio, 1) * 0.05


def test_noise_that_does_not_matter_is_that_of_the_residuals(right):
    _, fit = right
    noise = fit.problem.equation_noise
    residual = fit.problem.evaluate(fit.result.solution).residuals[0]
    n = len(fit.problem.blocks[0].values)
    assert fit.misfit == fit.outcome["misfit_"] and not fit.is_idle
    assert fit.less_noise == pytest.approx(0.1 * noise)
    idle = replace(fit, problem=fit.problem.with_dispersion(1e6))
    assert idle.is_idle
    assert idle.less_noise == pytest.approx(np.sqrt(np.mean(residual[n:] ** 2)))


def test_an_interrupted_fit_is_not_followed():
    search = KernelSearch(None, Found(0.1, interrupted=True), [])
    assert search.following(None) is search


Problem = namedtuple("Problem", ["equation_noise"])


def settle(found):
    found.is_settled = True
    return found


def test_a_fixed_equation_has_values_and_slopes_but_no_features():
    basis = PolynomialBasis(Polynomial(2, center=0.0, scale=1.0))
    S = np.random.RandomState(0).normal(size=(4, 2))
    weights = np.arange(6.0)
    fixed = FixedUnknownPart(basis, weights, None)
    assert fixed(S).shape == (4, 0)
    none = np.empty(0)
    np.testing.assert_array_equal(fixed.values(S, none), basis.values(S, weights))
    np.testing.assert_array_equal(fixed.gradient(S, none), basis.gradient(S, weights))


def test_the_law_of_a_rougher_prior(monkeypatch):
    """Defaults find it where states that fill the gaps alone would bend it."""
    for name in ("follow_law", "grow_law"):
        monkeypatch.setattr(one_step, name, lambda *_, **__: None)
    data = make_burgers(60, collocation_shape=(14, 17), random_state=5)
    model = OneStepKEqL(**data.problem, n_terms="auto").fit(data.X, data.y)
    terms = model.equation_.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(-1, rel=0.01)
    assert terms["u_xx"] == pytest.approx(-0.01, rel=0.01)
    assert relative_l2_error(data.y_test, model.predict(data.X_test)) < 0.03
    assert "Envelope" not in str(model.state_kernel_)
    assert "Envelope" in str(model.fit_report_), "which says what it was learned with"

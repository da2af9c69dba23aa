"""The terms of an evolution equation, against evidence that is computed anew."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from exact_states import CONTEXT, fit_exactly
from known_equations import learn_cole_hopf
from numpy.testing import assert_allclose
from scipy import stats

from keql import OneStepKEqL, TwoStepKEqL
from keql._evolution.model import with_best_prior
from keql._evolution.problem import make_evolution_problem
from keql._numerics.optimisation import FullSteps, Stop, minimise
from keql._regression.screening import CandidateTerms
from keql.datasets import make_burgers
from keql.kernels import Constant, Matern, Polynomial, Restriction
from keql.model_selection._criteria import Criteria, predicts_within_noise
from keql.model_selection._starts._from_diffusion import or_polynomial
from keql.model_selection._terms import _evolution
from keql.model_selection._terms._evolution import TermSearch
from keql.model_selection._terms._settings import TermSearchSettings
from keql.operators import parse_operator

SETTINGS = TermSearchSettings()
S = np.random.RandomState(0).normal(size=(40, 6))


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(20)


@pytest.fixture(scope="module")
def three_terms(two_step):
    return fit_exactly(two_step, two_step.equation, 3).learned


@pytest.fixture(scope="module")
def candidates(two_step):
    return CandidateTerms(two_step.equation)


@pytest.fixture(scope="module")
def regression():
    rng = np.random.RandomState(1)
    return rng.normal(size=25), rng.normal(size=(25, 10))


def compared(candidates, regression, n_terms, best, **settings):
    settings = replace(SETTINGS, **settings)
    return candidates.compared(n_terms, best, *regression, settings)


def test_all_terms_are_on_offer(candidates, regression):
    """1, u, u_x, u_xx and their products."""
    assert len(candidates.exponents) == 10
    found = [terms for _, terms in compared(candidates, regression, "auto", None)]
    assert len(found) == len({*found}) == 10 + 45 + 120
    assert all(terms == tuple(sorted({*terms})) for terms in found)
    found = [terms for _, terms in compared(candidates, regression, 4, None)]
    assert len(found) == len({*found}) == 210 and {*map(len, found)} == {4}


def test_larger_sets_are_near_the_best(candidates, regression):
    found = compared(candidates, regression, "auto", (0, 1, 2, 3))
    found = {terms for _, terms in found}
    assert {(0, 1, 2, 3), (0, 1, 2, 3, 4), (0, 1, 3, 9), (1, 2, 3)} <= found
    assert (0, 1, 8, 9) not in found


def test_there_may_be_fewer_terms_than_sets_have(two_step):
    few = learn_cole_hopf(20, equation_kernel=Restriction(Polynomial(1), ["u"]))
    few = CandidateTerms(few.equation)
    rng = np.random.RandomState(1)
    data = rng.normal(size=25), rng.normal(size=(25, few.single.shape[0]))
    assert [terms for _, terms in compared(few, data, "auto", (0,))] == [(0,)]


def test_terms_that_make_up_for_one_another_may_go_together(candidates, regression):
    found = compared(candidates, regression, "auto", (0, 1, 2, 3, 4, 5, 6))
    found = {terms for _, terms in found if len(terms) in (4, 5)}
    assert found == {t for n in (4, 5) for t in combinations(range(7), n)}


@pytest.mark.parametrize("n_terms", ["auto", 5])
def test_sets_grow_to_those_that_no_exchange_leads_to(candidates, n_terms):
    """The best five terms are far from others, and there are too many sets of three."""
    rng = np.random.RandomState(3)
    features, terms = 100 * rng.normal(size=(60, 10)), (0, 2, 5, 7, 9)
    single = candidates.single / np.linalg.norm(candidates.single, axis=0)
    target = (features @ single)[:, list(terms)].sum(axis=1)
    given = candidates, (target, features), n_terms, (1, 3, 4, 6, 8)
    assert compared(*given, max_sets=50, grows=True)[0][1] == terms
    if n_terms == "auto":
        assert compared(*given, max_sets=50)[0][1] != terms
        from_nothing = (*given[:3], None)
        assert compared(*from_nothing, max_sets=50, grows=True)[0][1] == terms


def test_directions_are_those_of_equations_with_these_terms(candidates):
    terms, equation = (1, 4, 7), candidates.equation
    D = candidates.directions(terms)
    assert_allclose(D.T @ D, np.eye(3), atol=1e-12)
    powers, table = equation.basis.kernel.feature_polynomials(5)
    chosen = candidates.exponents[list(terms)].tolist()
    others = [i for i, each in enumerate(powers.tolist()) if each not in chosen]
    sizes = np.linalg.norm(table, axis=1, keepdims=True)
    assert np.all(np.abs((table @ D)[others]) < 1e-12 * sizes[others])


def test_evidence_is_the_density_of_a_gaussian_vector(candidates, regression):
    target, features = regression
    for best in (None, (1, 4, 5, 7, 9)):
        losses, sets = zip(
            *compared(candidates, regression, "auto", best, grows=True), strict=True
        )
        assert list(losses) == sorted(losses)
        expected = []
        for terms in sets:
            A = features @ candidates.directions(terms)
            density = stats.multivariate_normal(np.zeros(25), np.eye(25) + A @ A.T)
            expected.append(-candidates.log_odds(terms) - density.logpdf(target))
        # Up to a constant.
        assert_allclose(np.ptp(np.subtract(losses, expected)), 0, atol=1e-8)


def test_an_equation_is_the_ridge_regression_on_its_terms(candidates, regression):
    target, features = regression
    equation = candidates.most_probable((2, 5), target, features)
    assert candidates.terms_of(equation) == [2, 5]
    A = features @ candidates.directions((2, 5))
    weights = candidates.directions((2, 5)) @ np.linalg.solve(
        A.T @ A + np.eye(2), A.T @ target
    )
    expected = candidates.equation.basis(S[:, :5]) @ weights
    assert_allclose(equation.unknown_part(S), expected, atol=1e-10)


def test_the_complete_equation_is_the_same(candidates, regression):
    equation = candidates.most_probable((0, 6, 7), *regression)
    complete = candidates.complete(equation)
    assert len(complete.weights) == 10
    assert_allclose(complete(S), equation(S), atol=1e-9)
    assert not np.any(candidates.equation.weights)


def reported(learned, stop_at=None):
    """Exact states of chosen terms, and points in space of the grids of all steps."""
    sizes = []

    def report(learned, problem, result):
        sizes.append(problem.grid.n_points)
        return len(sizes) == stop_at

    context = replace(CONTEXT, report=report)
    exact = fit_exactly(learned, learned.equation, "auto", context=context)
    return exact, sizes


@pytest.fixture(scope="module")
def found(two_step):
    return reported(two_step)


@pytest.mark.slow
def test_terms_are_compared_on_a_coarse_grid_first(found):
    exact, sizes = found
    assert sizes == sorted(sizes) and set(sizes) == {40, 80}
    assert exact.problem.grid.n_points == 80
    assert len({step.terms for step in exact.terms_path}) > 1


def test_what_is_interrupted_on_the_coarse_grid_is_kept(two_step):
    exact, sizes = reported(two_step, stop_at=2)
    assert exact.result.interrupted and sizes == [40, 40]
    assert exact.problem.grid.n_points == 40
    data, u = two_step.observations.functions[0], parse_operator("u", ("t", "x"))
    missed = exact.learned.states[0].evaluate(data.points, u) - data.values
    assert np.std(missed) < 0.2 * np.std(data.values)


def test_the_equation_is_found(two_step, found):
    exact, _ = found
    terms = exact.learned.equation.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(1, rel=1e-3)
    assert terms["u_xx"] == pytest.approx(0.1, rel=1e-3)
    sizes = [len(step.terms) for step in exact.terms_path]
    assert sizes == sorted(sizes, reverse=True)
    best = max(exact.terms_path, key=lambda step: step.log_evidence)
    assert set(best.terms) == set(terms)
    assert predicts_within_noise(exact, two_step, Criteria())
    assert exact.learned.equation_noise == 0
    result = exact.result
    assert result.converged
    assert result.n_iter == len(result.loss_curve) - 1 >= 1
    u = parse_operator("u", ("t", "x"))
    data = two_step.observations.functions[0]
    missed = exact.learned.states[0].evaluate(data.points, u) - data.values
    misfit = np.mean(missed**2) / exact.learned.observation_noise**2
    assert exact.misfit == pytest.approx(misfit, rel=0.2, abs=1e-4)


@pytest.mark.slow
def test_a_prior_that_explains_less_is_given_up(two_step, found):
    """Steps with it go on where its likelihood has a maximum of its own."""

    def solve(problem, start):
        return minimise(problem, start, FullSteps(1e-6), max_iter=15)

    exact = found[0].result
    rough = Constant(1.0, "fixed") * Matern([0.02, 0.3], "fixed", nu=1.5)
    problem = exact.model.problem
    stuck = replace(problem, priors=(replace(problem.prior, kernel=rough),))
    poor = solve(stuck, exact.solution)
    assert poor.converged
    assert poor.model.log_evidence() < exact.model.log_evidence() - 10
    first = make_evolution_problem(two_step)
    better = with_best_prior(poor, first, solve)
    evidence = exact.model.log_evidence()
    assert better.model.log_evidence() == pytest.approx(evidence, abs=0.5)
    assert with_best_prior(better, first, solve) is better


@pytest.mark.slow
def test_as_many_terms_as_asked_for(three_terms):
    terms = three_terms.equation.terms()
    assert len(terms) == 3 and {"u u_x", "u_xx"} < set(terms)


@pytest.mark.slow
def test_superfluous_terms_go(two_step, three_terms):
    exact = fit_exactly(three_terms, two_step.equation, "auto")
    assert set(exact.learned.equation.terms()) == {"u u_x", "u_xx"}


@pytest.mark.slow
def test_without_a_number_of_terms_they_stay(three_terms):
    exact = fit_exactly(three_terms)
    terms = three_terms.equation.terms()
    assert set(exact.learned.equation.terms()) == set(terms)
    assert exact.terms_path == []


@pytest.mark.slow
def test_an_equation_that_noise_hides():
    """Without u_xx the joint problem predicts as well here."""
    data = make_burgers(100, noise=0.05, random_state=1)
    model = OneStepKEqL(**data.problem, n_terms="auto").fit(data.X, data.y)
    terms = model.equation_.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(1, rel=0.05)
    assert terms["u_xx"] == pytest.approx(0.01, rel=0.2)
    noise = np.std(data.y - data.truth(data.X))
    assert model.observation_noise_ == pytest.approx(noise, rel=0.2)
    report = str(model.fit_report_)
    assert "u u_x, u_xx\n" in report and "exact" in report
    assert "looks wrong\n  - nothing" in report


def test_what_is_convincing(two_step):
    class Found:
        error = 1e-2
        observations = two_step.observations

    def convinces(noise):
        learned = replace(two_step, observation_noise=np.array([noise]))
        return predicts_within_noise(Found, learned, Criteria())

    assert convinces(8e-3) and not convinces(5e-3)
    Found.error = 1e-5
    assert convinces(0.0)


@pytest.mark.parametrize(
    "levels, again",
    [((100.0, 90.0), False), ((100.0, 60.0), True), ((3.0, 3.0), True)],
)
def test_exact_data_that_are_missed_alike_are_not_searched_again(levels, again):
    """On a fine grid: 90 % of the noise on a coarse one; or less; or it is no more."""
    observations = SimpleNamespace(sizes=lambda: np.array([1.0]))
    learned = SimpleNamespace(
        observation_noise=np.array([1e-5]), observations=observations
    )
    search = TermSearch.__new__(TermSearch)
    search.problem = SimpleNamespace(learned=learned)
    search.coarse, search.best = (
        SimpleNamespace(
            model=SimpleNamespace(
                problem=SimpleNamespace(prior=SimpleNamespace(noise=1e-5 * level))
            )
        )
        for level in levels
    )
    assert search.misses_as_before(Criteria()) != again
    learned.observation_noise = np.array([1e-2])  # of noisy data
    assert not search.misses_as_before(Criteria())


@pytest.mark.parametrize("change, again", [(0.1, False), (10.0, True), (np.nan, True)])
def test_a_finer_grid_is_left_if_it_would_not_change_what_is_missed(change, again):
    """Steps with the terms of the coarse grid did not converge there.

    The change of the coarse states on a finer grid is in units of what they miss.
    """
    observations = SimpleNamespace(sizes=lambda: np.array([1.0]))
    learned = SimpleNamespace(
        observation_noise=np.array([1e-5]), observations=observations
    )
    search = TermSearch.__new__(TermSearch)
    search.problem, search.best = SimpleNamespace(learned=learned), None
    prior = SimpleNamespace(noise=1e-2)
    on_coarse = SimpleNamespace(prior=prior, resolution=lambda _: ("", change))
    search.coarse = SimpleNamespace(
        model=SimpleNamespace(problem=on_coarse), solution=None
    )
    assert search.misses_as_before(Criteria()) != again
    prior.noise = 3e-5  # data are met there
    assert not search.misses_as_before(Criteria())
    search.coarse = None
    assert not search.misses_as_before(Criteria())


def failing_search(change):
    """A search whose steps lead from the best terms to none of two other sets.

    On a finer grid the best states change by so much, in units of the noise.
    """
    search, asked = TermSearch.__new__(TermSearch), []
    problem = SimpleNamespace(learned=None, resolution=lambda _: ("", change))
    search.best = SimpleNamespace(model=SimpleNamespace(problem=problem), solution=None)
    search.problem, search.settings, search.stop = problem, SETTINGS, None
    search.tried, search.failed, search.failed_first = set(), set(), set()
    search.loss, search.n_terms = 0.0, "auto"
    ranked = [(float(i), (name,)) for i, name in enumerate(("u", "u^2", "u_xx"))]
    ways = None, lambda terms: bool(asked.append(terms))
    search._compared = lambda _: (ranked, ("u_xx",), *ways)
    return search, asked


@pytest.mark.parametrize("change, again", [(0.1, False), (10.0, True), (np.nan, True)])
def test_sets_that_failed_are_not_solved_for_again(change, again, monkeypatch):
    """As rivals never; on a finer grid if the coarse one resolves what noise leaves."""
    monkeypatch.setattr(_evolution, "sees_noise", lambda _: True)
    (coarse, on_coarse), (fine, on_fine) = (failing_search(change) for _ in range(2))
    coarse._round(None)
    coarse._try_rivals(None)
    assert on_coarse == [("u",), ("u^2",)]
    fine.leave_out_failed(coarse, Criteria())
    fine._round(None)
    assert (on_fine == on_coarse) == again and (on_fine == []) != again


@pytest.mark.parametrize(
    "n_terms, main, solved", [("auto", ("u",), 1), ("auto", (), 0), (2, ("u",), 0)]
)
def test_main_terms_are_tried_if_there_are_some_and_their_number_is_open(
    n_terms, main, solved, monkeypatch
):
    monkeypatch.setattr(_evolution, "sees_noise", lambda _: False)
    search, asked = failing_search(0.0)
    search.n_terms, search._main_terms = n_terms, lambda known: main
    search._try_main = lambda terms, offer: asked.append(terms)
    known = ("u", "u_xx")
    search._try_simpler([(0.0, known)], known, None, None)
    assert asked == solved * [main]


@pytest.mark.parametrize("noisy", [False, True])
def test_near_sets_without_some_of_the_terms_are_solved_for(noisy, monkeypatch):
    """Of exact data, once nothing better is found: a linearisation hardly tells."""
    monkeypatch.setattr(_evolution, "sees_noise", lambda _: noisy)
    search, asked = failing_search(0.0)
    known, near = ("u", "u^2", "u_xx"), [("u", "u_xx"), ("u^2",)]
    ranked = [(0.0, known), (5.0, near[0]), (6.0, ("u", "u_x")), (9.0, near[1])]
    ranked += [(11.0, ("u_xx",))]
    ways = None, lambda terms: bool(asked.append(terms))
    search._compared = lambda _: (ranked, known, *ways)
    search._main_terms = lambda own: ("u_xx",) if own == known else own
    search._try_main = lambda terms, offer: asked.append(terms)
    search._round(None)
    search.failed.add(("u_xx",))
    search._round(None)
    assert asked == ([] if noisy else [*near, ("u_xx",)])


@pytest.mark.parametrize("ends", ["converged", "failed", "gave up", "interrupted"])
def test_main_terms_are_solved_for_with_the_prior_that_suits_them(ends, monkeypatch):
    search, _ = failing_search(0.0)
    model = SimpleNamespace(problem=SimpleNamespace(iterate=lambda *given: given))
    search.best = SimpleNamespace(model=model, solution=SimpleNamespace(states="near"))
    outcome = {"converged": ends in ("converged", "interrupted")}
    outcome |= {"interrupted": ends == "interrupted", "stop": Stop.KEYBOARD}
    result, kept = SimpleNamespace(**outcome), []

    def solve(problem, iterate, factor):
        assert iterate == ("u_xx offered", "near") and factor == 10.0
        return None if ends == "failed" else result

    def refreshed(given, problem, solve):
        assert given is result and problem is search.problem
        return result

    monkeypatch.setattr(_evolution, "with_best_prior", refreshed)

    def record(own):
        kept.append(own)
        search.best = own

    equation = SimpleNamespace(terms=lambda: {"u_xx": 1.0})
    result.solution = SimpleNamespace(equation=equation)
    sets = ("u_xx",), ("u", "u_xx"), ("u",)
    search.steps = [SimpleNamespace(terms=own) for own in sets]
    search.solve, search.record = solve, record
    search._try_main(("u_xx",), lambda terms: f"{terms[0]} offered")
    assert kept == ([result] if ends == "converged" else [])
    rivals = [sets[0], sets[2]] if ends == "converged" else [*sets]
    assert [step.terms for step in search.steps] == rivals
    assert search.failed == ({("u_xx",)} if ends in ("failed", "gave up") else set())
    assert search.stop is (Stop.KEYBOARD if ends == "interrupted" else None)


def test_priors_of_a_coarse_grid_are_not_the_best_where_far_less_is_missed():
    """Its errors counted as noise."""
    for level, less in ((0.9, False), (0.4, True)):
        search, coarse = failing_search(0.0)[0], failing_search(0.0)[0].best
        coarse.model.problem.prior = SimpleNamespace(noise=np.array([1.0, 2.0]))
        noise = np.array([1.0, 2.0]) * [level, 1.0]
        search.best.model.problem.prior = SimpleNamespace(noise=noise)
        search.coarse = coarse
        assert search.misses_far_less(Criteria()) is less
        search.best = None
        assert not search.misses_far_less(Criteria())


def test_main_terms_make_up_the_equation_but_for_a_small_part():
    search, _ = failing_search(0.0)
    # The second of the candidates is not in the equation.
    parts = np.outer(np.sin(np.arange(50)), [1.0, 5.0, -0.5, 0.005])
    search.candidates = SimpleNamespace(contributions=lambda _: parts)
    search.best.solution = SimpleNamespace(equation=None)
    assert search._main_terms((0, 2, 3)) == (0, 2)
    parts[:, 3] *= 10
    assert search._main_terms((0, 2, 3)) == (0, 2, 3)


@pytest.mark.parametrize("noisy", [False, True])
def test_no_sets_are_near_where_nothing_can_be_linearised(noisy, monkeypatch):
    """With all terms beside those of the best set: neither simpler ones nor rivals."""
    monkeypatch.setattr(_evolution, "sees_noise", lambda _: noisy)
    search, asked = failing_search(0.0)
    search.candidates = SimpleNamespace(
        equation=None, terms_of=lambda _: [2], complete=lambda _: None
    )
    problem = SimpleNamespace(
        iterate=lambda *_: None, evaluate=lambda _: None, linearise=lambda _: None
    )
    model, equation = SimpleNamespace(problem=problem), SimpleNamespace(equation=None)
    equation.states = None
    search.best = SimpleNamespace(model=model, solution=equation)
    del search._compared
    search._round(None)
    search._try_rivals(None)
    assert asked == []


@pytest.mark.parametrize("n_coordinates", [1, 2])
def test_sets_have_a_term_more_for_a_second_coordinate(n_coordinates):
    """Each has its term of what spreads."""
    search, _ = failing_search(0.0)
    del search._compared
    search.best, search.highest, search.linearised = None, np.inf, np.nan
    search.failed_at, search.only_leading, asked = np.nan, False, []
    regression = SimpleNamespace(whitened=lambda: (None, None))
    prior = SimpleNamespace(scale=1.0)
    model = SimpleNamespace(
        loss=0.0, regression=regression, problem=SimpleNamespace(prior=prior)
    )
    search.problem = SimpleNamespace(
        grid=SimpleNamespace(space=(None,) * n_coordinates),
        iterate=lambda *_: None,
        evaluate=lambda _: None,
        linearise=lambda _: model,
    )
    search.candidates = SimpleNamespace(
        equation=None, compared=lambda *given: asked.append(given[-1].max_size) or []
    )
    search._compared(None)
    assert asked == [SETTINGS.max_size + n_coordinates - 1]


def test_sets_that_failed_on_a_coarse_grid_are_left_out_on_a_finer_one(monkeypatch):
    """Also once others have converged, if the first states are no others there."""
    monkeypatch.setattr(_evolution, "sees_noise", lambda _: False)
    for loss, again in ((100.5, False), (110.0, True)):
        search, asked = failing_search(0.0)
        search.best, search.highest, search.linearised = None, np.inf, np.nan
        search.failed_at, search.failed_there = 100.0, {("u^2",)}

        def solve(terms, search=search, asked=asked):
            search.failed = set()  # as of a new best one
            return not asked.append(terms)

        def compared(_, search=search, loss=loss, solve=solve):
            assert not search._is_in_vain(SimpleNamespace(loss=loss))
            return [(0.0, ("u",)), (1.0, ("u^2",))], None, None, solve

        search._compared = compared
        search._round(None)
        assert asked == [("u",), ("u^2",)][: 1 + again]


@pytest.mark.parametrize(
    "changes, in_vain",
    [
        ({}, False),
        ({"highest": 100.0}, False),
        ({"highest": 99.0}, True),
        ({"failed_at": 100.5}, True),  # the grid is not what is missing
        ({"failed_at": 110.0}, False),
        ({"failed_at": 100.5, "linearised": 100.0}, False),  # not at the first states
    ],
)
def test_sets_that_cannot_win_are_not_solved_for(
    two_step, candidates, changes, in_vain
):
    search = TermSearch(make_evolution_problem(two_step), candidates, 3, None, SETTINGS)
    vars(search).update(changes)
    assert search._is_in_vain(SimpleNamespace(loss=100.0)) == in_vain
    assert search.linearised == 100.0


def test_no_polynomial_is_solved_for_that_misses_what_other_terms_reach(found):
    exact, _ = found
    context, steps = replace(CONTEXT, report=lambda *_: steps.append(1)), []
    hypothesis = replace(exact.hypothesis, n_terms="auto")
    # Without the diffusion nothing is near.
    kernel = Restriction(Polynomial(2), ["u", "u^2", "u u_x", "u_x"])
    poor = TwoStepKEqL(
        operators=("u", "u_x", "u_xx"),
        known_part="u_t",
        variables=("t", "x"),
        equation_kernel=kernel,
    )
    data = exact.two_step.observations.functions[0]
    learned = poor._learn_in_two_steps(data.points, data.values, None)
    assert or_polynomial(exact, learned, hypothesis, context) is exact
    assert not steps
    assert or_polynomial(exact, exact.two_step, hypothesis, context) is not exact
    assert steps

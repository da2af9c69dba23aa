"""Exact states as a problem of the loop: from far away, and against differences."""

from dataclasses import replace

import numpy as np
import pytest
from known_equations import learn_cole_hopf
from numpy.testing import assert_allclose

from keql._evolution.problem import (
    EvolutionProblem,
    IntegratedProblem,
    make_evolution_problem,
)
from keql._numerics.optimisation import Backtracking, FullSteps, minimise
from keql._regression.screening import CandidateTerms


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(15)


@pytest.fixture(scope="module")
def full_steps(two_step):
    return make_evolution_problem(two_step).with_grid(15, 20)


@pytest.fixture(scope="module")
def integrated(full_steps):
    return IntegratedProblem(
        full_steps.learned,
        full_steps.grid,
        full_steps.observed,
        full_steps.priors,
        full_steps.forcing,
    )


@pytest.fixture(scope="module")
def equation(two_step):
    """A diffusion three times too fast, and nothing else yet."""
    candidates = CandidateTerms(two_step.equation)
    powers = candidates.exponents.tolist()
    terms = [powers.index(each) for each in ([0, 0, 1, 1, 0], [0, 0, 0, 0, 1])]
    return candidates.with_values(terms, np.array([0.0, -0.3]))


@pytest.fixture(scope="module")
def descent(integrated, equation):
    """The result, and the states that it went through."""
    start = integrated.iterate(equation, integrated.start().states)
    seen = [integrated.evaluate(start).iterate]
    result = minimise(
        integrated,
        start,
        Backtracking(),
        max_iter=11,
        report=lambda result: seen.append(result.solution),
    )
    return result, seen


def test_the_equation_is_reached_from_far_away(integrated, descent):
    result, _ = descent
    terms = result.solution.equation.terms()
    assert terms["u u_x"] == pytest.approx(1, rel=1e-2)
    assert terms["u_xx"] == pytest.approx(0.1, rel=1e-2)
    residuals = integrated.evaluate(result.solution).residuals
    assert np.sqrt(np.mean(residuals**2)) < 1e-3


def test_states_obey_their_equation_all_the_way(full_steps, descent):
    """Linearised where they are, the equation has them as its solution."""
    _, seen = descent
    assert len(seen) > 5
    for iterate in seen:
        again = full_steps.iterate(iterate.equation, iterate.states)
        assert_allclose(again.boundary[0], iterate.boundary[0], atol=1e-10)
        restored = replace(full_steps, priors=full_steps.priors[:1])
        model = restored.linearise(restored.evaluate(iterate))
        A = model.regression
        unknowns = np.r_[1, iterate.equation.weights, iterate.boundary[0]]
        found = A.maps[0] @ unknowns
        assert_allclose(found, full_steps.observed[0] @ iterate.states[0], atol=1e-5)


def test_it_ends_where_full_steps_end(full_steps, descent):
    result, _ = descent
    start = replace(full_steps, priors=result.model.problem.priors)
    full = minimise(start, result.solution, FullSteps(1e-5), max_iter=15)
    assert full.converged
    assert_allclose(full.solution.states[0], result.solution.states[0], atol=1e-4)
    evidence = result.model.laplace_log_evidence()
    assert evidence == pytest.approx(full.model.log_evidence(), abs=0.5)


def test_evidence_counts_residuals_that_are_still_there(integrated, equation, descent):
    """The linearised problem knows of none in the middle of a long step."""
    start = integrated.iterate(equation, integrated.start().states)
    first = integrated.linearise(integrated.evaluate(start))
    assert first.laplace_log_evidence() < first.log_evidence()
    assert first.with_laplace_evidence().log_evidence() == first.laplace_log_evidence()
    last = descent[0].model.laplace_log_evidence()
    assert first.laplace_log_evidence() < last - 10


def test_an_equation_that_cannot_be_integrated_leads_nowhere(integrated, two_step):
    candidates = CandidateTerms(two_step.equation)
    squares = candidates.exponents.tolist().index([0, 0, 2, 0, 0])
    blow_up = candidates.with_values([squares], np.array([-1e4]))
    start = integrated.iterate(blow_up, [np.ones(15 * 4 * 20)])
    assert integrated.evaluate(start) is None
    assert minimise(integrated, start, Backtracking(), max_iter=3) is None


def test_the_change_that_is_told_is_that_on_a_finer_grid(integrated, descent):
    """The equation itself integrated on both, from one function of the boundary."""
    result, _ = descent
    coarse = replace(integrated, priors=result.model.problem.priors).with_grid(8, 12)
    start = coarse.interpolate_from(integrated, result.solution)
    solved = coarse.evaluate(start)
    text, change = coarse.resolution(solved.iterate)
    assert text == "8 steps in time, 12 points in space"
    finer = coarse.with_grid(12, 18)
    again = finer.evaluate(finer.interpolate_from(coarse, solved.iterate))
    differences = (again.residuals - solved.residuals) / coarse.prior.noise
    expected = np.sqrt(np.mean(differences**2))
    assert change == pytest.approx(expected, rel=0.05)
    fine = replace(integrated, priors=coarse.priors)
    assert fine.resolution(result.solution)[1] < 0.1 * change


def test_priors_and_noise_are_started_from_others(integrated, descent):
    result, _ = descent
    prior = result.model.problem.prior
    again = replace(integrated, priors=(prior,))
    model = again.linearise(again.evaluate(result.solution))
    assert model.problem.prior.noise == pytest.approx(prior.noise, rel=0.05)


def test_given_noise_is_open_on_the_coarse_grid_alone(two_step):
    fine = make_evolution_problem(two_step, 1e-7)
    coarse = fine.on_coarse_grid()
    size = two_step.observations.sizes()[0]
    assert all(prior.free_noise for prior in coarse.priors)
    assert [prior.noise for prior in coarse.priors] == pytest.approx([1e-3 * size] * 2)
    found = replace(coarse, priors=(replace(coarse.prior, noise=0.02),))
    again = fine.with_priors_of(found)
    assert again.prior.noise == 1e-7 and not again.prior.free_noise
    open_ = make_evolution_problem(two_step).with_priors_of(found)
    assert open_.prior.noise == 0.02 and open_.prior.free_noise


def test_a_full_step_ends_where_the_linearised_objective_is_least(full_steps, descent):
    """Its loss is what the step promises, and any way from it leads up."""
    problem = full_steps
    model = problem.linearise(problem.evaluate(descent[1][4]))
    end, decrease = model.step(0.0)
    reached = EvolutionProblem.evaluate(model.problem, end)
    promised = model.evaluation.loss - decrease
    assert reached.loss == pytest.approx(promised, rel=1e-4)
    rng, p = np.random.RandomState(0), len(end.equation.weights)
    for _ in range(5):
        beside = model.problem.interpolate(end, end, 0.0)
        beside.equation.weights = end.equation.weights + 1e-2 * rng.normal(size=p)
        unknowns = np.r_[1, beside.equation.weights, end.boundary[0]]
        A = model.regression.maps[0]
        residuals = problem.functions[0].values - A @ unknowns
        misfit = np.sum(residuals**2) / model.problem.prior.noise**2
        moved = beside.equation.weights @ beside.equation.weights
        stayed = end.equation.weights @ end.equation.weights
        before = np.sum(reached.residuals**2) / model.problem.prior.noise**2
        scale = model.problem.prior.scale**2
        assert misfit + moved / scale > before + stayed / scale
    with pytest.raises(ValueError, match="not damped"):
        model.step(1.0)

"""Exact states that go on from those of the first observations."""

from dataclasses import replace

import numpy as np
import pytest
from exact_states import CONTEXT
from known_equations import cole_hopf, learn_cole_hopf
from numpy.testing import assert_allclose

from keql._evolution.problem import make_evolution_problem
from keql._regression.two_step import Hypothesis
from keql.model_selection._exact_fit import fit_exact_states
from keql.model_selection._starts import _early_times
from keql.model_selection._starts._early_times import (
    EarlySettings,
    _gone_on_with,
    _until,
    fit_from_early_times,
)
from keql.operators import parse_operator

AUTO = Hypothesis(n_terms="auto")
U = parse_operator("u", ("t", "x"))


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(60)


@pytest.mark.slow
def test_states_go_on_from_the_first_ones(two_step):
    """From a state of two steps that is nonsense at first."""
    settings = EarlySettings(part=0.6, fewest=20)
    fit = fit_from_early_times(two_step, AUTO, CONTEXT, settings)
    terms = fit.result.solution.equation.terms()
    assert set(terms) == {"u u_x", "u_xx"}
    assert terms["u u_x"] == pytest.approx(1, rel=1e-2)
    assert terms["u_xx"] == pytest.approx(0.1, rel=1e-2)
    X = np.random.RandomState(0).uniform(size=(50, 2))
    found = fit.learned.states[0].evaluate(X, U)
    assert_allclose(found, cole_hopf(*X.T), atol=1e-3)
    assert len(fit.observations.functions[0].values) == len(
        two_step.observations.functions[0].values
    )


def test_the_first_observations_are_those_up_to_a_time(two_step):
    early = _until(two_step, 0, 0.4)
    [data], [placed] = early.observations.functions, early.setup.collocation_points
    assert np.max(data.points[:, 0]) <= 0.4
    assert np.max(placed[:, 0]) <= 0.4
    [all_data] = two_step.observations.functions
    later = all_data.points[:, 0] > 0.4
    assert len(data.values) == len(all_data.values) - np.sum(later)
    assert_allclose(data.values, cole_hopf(*data.points.T))


@pytest.mark.slow
def test_two_steps_say_how_states_go_on(two_step):
    early = _until(two_step, 0, 0.5)
    fit = fit_exact_states(early, early, AUTO, CONTEXT)
    problem = make_evolution_problem(two_step)
    iterate = _gone_on_with(problem, fit)
    points = problem.grid.points.reshape(-1, 2)
    known = fit.problem.grid.contains(points)
    assert 0.2 < np.mean(known) < 0.9
    exact, start = cole_hopf(*points.T), problem.start().states[0]
    assert_allclose(iterate.states[0][known], exact[known], atol=1e-3)
    assert_allclose(iterate.states[0][~known], start[~known])
    assert iterate.equation is fit.result.solution.equation


@pytest.mark.slow
def test_what_two_steps_take_for_noise_is_no_hindrance(two_step):
    """Rough states of exact data may look like a little noise to them."""
    noisy = replace(two_step, observation_noise=np.array([1e-3]))
    fit = fit_from_early_times(noisy, AUTO, CONTEXT, EarlySettings(0.6, 20))
    assert set(fit.result.solution.equation.terms()) == {"u u_x", "u_xx"}


@pytest.mark.slow
def test_few_observations_may_be_met_and_predicted_poorly(two_step, monkeypatch):
    noisy = replace(two_step, observation_noise=np.array([1e-3]))
    monkeypatch.setattr(_early_times, "predicts_within_noise", lambda *_: False)
    fit = fit_from_early_times(noisy, AUTO, CONTEXT, EarlySettings(0.6, 20))
    assert set(fit.result.solution.equation.terms()) == {"u u_x", "u_xx"}


@pytest.mark.slow
@pytest.mark.parametrize("why", ["too few", "all terms", "poor", "missed"])
def test_other_states_do_not_begin_there(two_step, why, monkeypatch):
    settings = EarlySettings(fewest=1000 if why == "too few" else 1)
    hypothesis = Hypothesis() if why == "all terms" else AUTO
    if why == "poor":
        two_step = replace(two_step, observation_noise=np.array([1e-3]))
        monkeypatch.setattr(_early_times, "predicts_within_noise", lambda *_: False)
        monkeypatch.setattr(_early_times, "level_in_space", lambda *_: 2.0)
    if why == "missed":
        monkeypatch.setattr(_early_times, "missed_in_space", lambda *_: 10.0)
    assert fit_from_early_times(two_step, hypothesis, CONTEXT, settings) is None

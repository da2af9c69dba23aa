"""Descents from states far away, to where other steps would end and where not."""

from itertools import islice

import numpy as np
import pytest
from known_equations import learn_cole_hopf
from numpy.testing import assert_allclose

from keql._evolution.descent import descend
from keql._evolution.problem import find_evolution
from keql.model_selection._evolution_terms import CandidateTerms


@pytest.fixture(scope="module")
def two_step():
    return learn_cole_hopf(15)


@pytest.fixture(scope="module")
def evolution(two_step):
    return find_evolution(two_step).coarser(15, 20)


@pytest.fixture(scope="module")
def law(two_step):
    """A diffusion three times too fast, and nothing else yet."""
    candidates = CandidateTerms(two_step.equation)
    powers = candidates.exponents.tolist()
    terms = [powers.index(each) for each in ([0, 0, 1, 1, 0], [0, 0, 0, 0, 1])]
    return candidates.with_values(terms, np.array([0.0, -0.3]))


@pytest.fixture(scope="module")
def descents(evolution, law, two_step):
    states = evolution.states_of(two_step)
    return list(islice(descend(evolution, law, states), 12))


def test_the_law_is_reached_from_far_away(descents):
    terms = descents[-1].equation.terms()
    assert terms["u u_x"] == pytest.approx(-1, rel=1e-2)
    assert terms["u_xx"] == pytest.approx(-0.1, rel=1e-2)
    assert np.sqrt(np.mean(descents[-1].missed ** 2)) < 1e-3


def test_states_follow_their_law_all_the_way(evolution, descents):
    for each in descents:
        border = evolution.values_at(each.states[0], evolution.grid.border)
        assert_allclose(border, each.border[0], atol=1e-10)
        unknowns = np.r_[1, each.equation.weights, each.border[0]]
        found = (each.target.flows[0] @ unknowns).ravel()
        assert_allclose(found, each.states[0], atol=1e-5)
        data = evolution.functions[0]
        values = evolution.values_at(each.states[0], data.points)
        assert_allclose(each.missed, data.values - values)


def test_it_ends_where_other_steps_end(evolution, descents):
    last = descents[-1]
    settled = evolution.settle(last.equation, last.states, last.target.regression)
    assert_allclose(settled.states[0], last.states[0], atol=1e-5)
    assert last.negative_log_evidence == pytest.approx(
        settled.negative_log_likelihood, abs=0.5
    )


def test_evidence_counts_what_is_still_missed(descents):
    """The linearised problem knows of no residuals in the middle of a long step."""
    first = descents[0]
    density = first.target.regression.log_likelihood(
        first.target.regression.kernel,
        first.target.regression.noise,
        first.target.regression.scale,
    )[0]
    shift = len(first.missed) * np.log(first.target.regression.size)
    assert first.negative_log_evidence > -density - shift
    assert first.negative_log_evidence > descents[-1].negative_log_evidence + 10


def test_a_law_that_cannot_be_integrated_leads_nowhere(evolution, two_step):
    candidates = CandidateTerms(two_step.equation)
    squares = candidates.exponents.tolist().index([0, 0, 2, 0, 0])
    blow_up = candidates.with_values([squares], np.array([-1e4]))
    assert list(descend(evolution, blow_up, [np.ones(15 * 4 * 20)])) == []


def test_priors_and_noise_are_started_from_others(evolution, law, descents):
    near = descents[-1].target.regression
    states = descents[-1].states
    found = next(descend(evolution, descents[-1].equation, states, near))
    assert found.target.regression.noise == pytest.approx(near.noise, rel=0.05)

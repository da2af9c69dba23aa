"""Guesses of a state that was never observed."""

import numpy as np
import pytest

from keql import Equation, TwoStepKEqL
from keql._joint.hidden_states import (
    HiddenStateSettings,
    _Unexplained,
    _unexplained,
    guess_hidden_state,
    states_of_guesses,
    with_hidden_state,
)
from keql._regression.two_step import FitSettings, Hypothesis
from keql.datasets import make_lorenz
from keql.kernels import Polynomial

STATES = ("x", "y", "z")
EVERYTHING = {name: STATES for name in STATES}


def two_steps(unit=1.0, depends_on=None, noise=0.02, n_known=0):
    """Lorenz' equations with z hidden, or a few values of it, and its true values."""
    data = make_lorenz(150, t_end=6.0)
    y = data.y + noise * data.y.std(axis=0) * np.random.default_rng(0).standard_normal(
        data.y.shape
    )
    seen = unit * y
    seen[n_known:, 2] = np.nan
    laws = [
        (name, Equation(f"{name}_t", own))
        for name, own in (depends_on or EVERYTHING).items()
    ]
    model = TwoStepKEqL(equations=laws, states=STATES, variables=("t",))
    learned = model._learn_in_two_steps(data.X, seen, None)
    return learned, data.X[:, 0], data.y[:, 2]


def correlation(guess, times, truth):
    """That of a guess with the true values, at its points."""
    return np.corrcoef(guess.values, np.interp(guess.points[:, 0], times, truth))[0, 1]


@pytest.mark.slow
def test_the_likeliest_guess_of_noisy_states_is_near_the_truth():
    """z is multiplied by x in y_t = x (28 - z) - y, and x_t = 10 (y - x) has no z."""
    learned, times, z = two_steps()
    guesses = guess_hidden_state(learned, "z", HiddenStateSettings())
    assert len(guesses) == 7 and abs(correlation(guesses[0], times, z)) > 0.9
    evidences = [guess.evidence for guess in guesses]
    for own in (evidences[:5], evidences[5:]):  # of y_t, and of x_t
        assert own == sorted(own, reverse=True)
    for guess in guesses:
        assert np.mean(guess.values) == pytest.approx(0.0, abs=1e-12)
        assert np.mean(guess.values**2) == pytest.approx(1.0)
    # As if errors were independent from point to point, it is not the likeliest.
    white = guess_hidden_state(learned, "z", HiddenStateSettings(white=1.0))
    assert abs(correlation(white[0], times, z)) < abs(correlation(guesses[0], times, z))


@pytest.mark.slow
def test_units_of_states_do_not_matter():
    first, second = (
        guess_hidden_state(two_steps(unit)[0], "z", HiddenStateSettings())[0]
        for unit in (1.0, 1e4)
    )
    assert np.max(np.abs(first.values - second.values)) < 1e-3
    np.testing.assert_allclose(first.lengths, second.lengths)


def test_an_equation_that_knows_a_state_or_does_not_depend_on_it_tells_nothing():
    given = {"x": ("x", "y"), "y": ("x", "y"), "z": STATES}
    learned, *_ = two_steps(depends_on=given)
    assert guess_hidden_state(learned, "z", HiddenStateSettings()) == []
    assert with_hidden_state(learned, None, None) is None
    assert not [*states_of_guesses(learned, Hypothesis(), FitSettings())]


def test_states_go_through_a_guess_as_if_it_had_been_observed():
    learned, times, z = two_steps()
    hypothesis, points = Hypothesis(n_terms="auto"), times[:, None]
    first = next(states_of_guesses(learned, hypothesis, FitSettings()))
    assert first.observations is learned.observations
    assert first.observation_noise is learned.observation_noise
    operators = {operator.name: operator for operator in learned.setup.operators}
    values = first.states[0].evaluate(points, operators["z"])
    assert abs(np.corrcoef(values, z)[0, 1]) > 0.9
    # The states that were observed stay what they were.
    before, after = (
        own.states[0].evaluate(points, operators["x"]) for own in (learned, first)
    )
    np.testing.assert_allclose(before, after, atol=1e-9 * np.std(before))
    # Two steps without a guess leave the state at zero.
    assert np.all(learned.states[0].evaluate(points, operators["z"]) == 0.0)


def of_one_observed(values):
    """Two steps of x_t and y_t where x alone was observed, at times from 0 to 5."""
    t = np.linspace(0, 5, len(values))
    laws = [(name, Equation(f"{name}_t", ("x", "y"))) for name in ("x", "y")]
    model = TwoStepKEqL(equations=laws, states=("x", "y"), variables=("t",))
    seen = np.column_stack([values, np.full(len(t), np.nan)])
    return model._learn_in_two_steps(t[:, None], seen, None), t


@pytest.mark.parametrize(("lowest", "n"), [(0.0, 1), (1e-3, 1), (0.5, 2)])
def test_quotients_of_what_is_to_be_explained_are_guesses(lowest, n):
    """x_t = 1 y, and x_t = x y unless x comes near zero, up to its mean and size."""
    t = np.linspace(0, 5, 40)
    learned, t = of_one_observed(lowest + 1.0 + np.sin(t))
    [own] = _unexplained(learned, "y", HiddenStateSettings())
    found = [*own.quotients(HiddenStateSettings())]
    assert len(found) == n
    points = found[0].points[:, 0]
    for k, guess in enumerate(found):
        y = np.cos(points) / (lowest + 1 + np.sin(points)) ** k
        expected = (y - y.mean()) / np.std(y)
        sign = np.sign(guess.values @ expected)
        np.testing.assert_allclose(sign * guess.values, expected, atol=2e-3)


def test_quotients_come_before_other_guesses_where_one_state_was_observed():
    t = np.linspace(0, 5, 40)
    learned, _ = of_one_observed(2.0 + np.sin(t))
    n_others = len(guess_hidden_state(learned, "y", HiddenStateSettings()))
    found = [*states_of_guesses(learned, Hypothesis(n_terms="auto"), FitSettings())]
    assert len(found) == n_others + 2
    operators = {operator.name: operator for operator in learned.setup.operators}
    points = np.linspace(0.5, 4.5, 50)[:, None]
    y = found[0].states[0].evaluate(points, operators["y"])
    assert abs(np.corrcoef(y, np.cos(points[:, 0]))[0, 1]) > 0.999


def test_values_of_a_state_have_a_unit_that_a_guess_does_not():
    learned, *_ = two_steps(n_known=1)
    assert learned.observations.hidden_states == ["z"]
    assert not [*states_of_guesses(learned, Hypothesis(), FitSettings())]


def test_an_equation_of_nothing_else_tells_the_state_itself():
    """Of x_t = P(z) alone the guess is the slope, up to its mean and size."""
    t, laws = np.linspace(0, 6, 80), {"x": ("z",), "y": STATES, "z": STATES}
    equations = [(name, Equation(f"{name}_t", own)) for name, own in laws.items()]
    model = TwoStepKEqL(equations=equations, states=STATES, variables=("t",))
    seen = np.column_stack([np.sin(t), np.zeros_like(t), np.full(80, np.nan)])
    learned = model._learn_in_two_steps(t[:, None], seen, None)
    [guess] = guess_hidden_state(learned, "z", HiddenStateSettings())
    assert abs(correlation(guess, t, np.cos(t))) > 0.999


def test_many_states_have_few_products():
    """Of ten observed states there are 66 products of two, and 286 of three."""
    t = np.linspace(0, 4, 60)
    names = (*"abcdefghij", "z")
    cubic = {"kernel": Polynomial(3)}
    equations = [(name, Equation(f"{name}_t", names, **cubic)) for name in names]
    model = TwoStepKEqL(equations=equations, states=names, variables=("t",))
    model.set_params(collocation_points=60)
    seen = np.column_stack([np.sin((1 + 0.1 * k) * t + k) for k in range(11)])
    seen[:, -1] = np.nan
    learned = model._learn_in_two_steps(t[:, None], seen, None)
    unexplained = _Unexplained(learned, 0, "z", HiddenStateSettings())
    assert unexplained.highest == 2 and len(unexplained.degrees) == 66
    every = _Unexplained(learned, 0, "z", HiddenStateSettings.of_all_terms())
    assert every.highest == 2


def test_what_needs_no_hidden_state_has_a_guess_all_the_same():
    """x_t = 0 and y_t = 0, to the last digit: nothing is left for z."""
    t = np.linspace(0, 6, 80)
    equations = [(name, Equation(f"{name}_t", STATES)) for name in STATES]
    model = TwoStepKEqL(equations=equations, states=STATES, variables=("t",))
    seen = np.column_stack([np.zeros(80), np.ones(80), np.full(80, np.nan)])
    learned = model._learn_in_two_steps(t[:, None], seen, None)
    for settings in (HiddenStateSettings(), HiddenStateSettings.of_all_terms()):
        for guess in guess_hidden_state(learned, "z", settings):
            assert np.all(np.isfinite(guess.values))

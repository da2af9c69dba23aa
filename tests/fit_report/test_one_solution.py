"""What a single solution leaves open of the equation that it obeys."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from two_step_fields import field_of, soliton

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._numerics.elementary import Elementary
from keql._regression.two_step import Hypothesis
from keql.fit_report._one_solution import travelling, varying_in_time
from keql.fit_report._undetermined import undetermined
from keql.kernels import RBF, Dictionary, Polynomial

T = np.linspace(0.0, 12.0, 40)


def test_a_travelling_wave_is_named():
    (text,) = travelling(field_of(soliton), 0.02)
    speed = float(text.split("u_t = -")[1].split(" u_x")[0])
    assert speed == pytest.approx(4, rel=1e-3)
    assert "many equations have such solutions" in text
    assert undetermined(field_of(soliton)) == []


def test_a_steady_state_is_one_that_does_not_travel():
    (text,) = travelling(field_of(lambda X: np.sin(X[:, 1] / 3)), 0.02)
    assert "u_t = 0 to" in text


def test_a_wave_that_changes_and_several_functions_are_not_travelling():
    def spreading(X):
        return np.exp(-((X[:, 1] - 10 - X[:, 0]) ** 2) / (4 + X[:, 0]))

    assert travelling(field_of(spreading), 0.02) == []
    one = field_of(soliton)
    assert travelling(replace(one, states=one.states * 2), 0.02) == []


def doubts_of(terms, solutions, operators=("u",), known_part="u_t"):
    """What is told of an equation with given terms of one or several solutions."""
    functions = {function.name: function for function in terms}
    several = len(solutions) > 1
    model = OneStepKEqL(
        operators,
        known_part,
        variables=("t",),
        equation_kernel=Dictionary(functions),
        function_column=1 if several else None,
    )
    numbers = np.repeat(np.arange(len(solutions)), len(T))
    X = np.column_stack([np.tile(T, len(solutions)), numbers])
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(X if several else X[:, :1], np.concatenate(solutions))
    told = [w for w in caught if w.category is IdentifiabilityWarning]
    return " ".join(str(warning.message) for warning in told)


VALUE, SPEED = Elementary((("u", 1),)), Elementary((("u_t", 1),))
DECAY = Elementary((), "exp", "t", -0.3, is_held=True)
WAVE = Elementary((), "cos", "t", 0.7, is_held=True)


def taken_up(initial):
    """u_t = -1.2 u + 0.9 exp(-0.3 t)."""
    return (initial - 1) * np.exp(-1.2 * T) + np.exp(-0.3 * T)


def test_a_source_that_decays_may_change_places_with_the_decay():
    """In pharmacokinetics that is called flip-flop."""
    told = doubts_of([VALUE, DECAY], [taken_up(0.0)])
    assert "u_t = -0.300 u with a source in proportion to exp(-1.20 t)" in told


@pytest.mark.parametrize("initial", [(0.0, 2.0), (1.0,)])
def test_it_does_not_where_solutions_tell_or_nothing_decays_alone(initial):
    told = doubts_of([VALUE, DECAY], [taken_up(value) for value in initial])
    assert "change places" not in told


def test_what_a_source_alone_makes_has_nothing_to_change_places_with():
    told = doubts_of([DECAY], [np.exp(-0.3 * T)])
    assert "change places" not in told


def driven(phase):
    """u_tt = -2 u + 0.8 cos(0.7 t)."""
    return np.cos(2**0.5 * T + phase) + 0.8 / 1.51 * np.cos(0.7 * T)


@pytest.mark.parametrize("phase", [0.0, 0.5])
def test_frequencies_change_places_if_phases_are_equal(phase):
    told = doubts_of([VALUE, WAVE], [driven(phase)], ("u", "u_t"), "u_tt")
    assert ("u_tt = -0.490 u with a source in" in told) == (phase == 0)


def falling(start):
    """u_tt = -1 + u_t^2 / 4 from rest."""
    return start - 4 * np.log(np.cosh(T / 4))


def test_the_square_of_a_speed_may_stand_for_a_force():
    terms = [Elementary(), Elementary((("u_t", 2),))]
    told = doubts_of(terms, [falling(0.0)], ("u", "u_t"), "u_tt")
    assert "the square of u_t is a function of u" in told
    told = doubts_of(terms, [falling(0.0), falling(5.0)], ("u", "u_t"), "u_tt")
    assert "time runs backwards" not in told


def test_friction_tells_where_time_goes():
    told = doubts_of(
        [VALUE, SPEED], [np.exp(-0.2 * T) * np.cos(T)], ("u", "u_t"), "u_tt"
    )
    assert "time runs backwards" not in told


@pytest.mark.parametrize("n_functions, is_told", [(1, True), (2, True), (3, False)])
def test_coefficients_that_vary_follow_as_many_functions(n_functions, is_told):
    """u_t = a(t) u + b(t) of two functions: at each time two equations for a and b."""
    solutions = [taken_up(value) for value in (0.0, 1.0, 2.0)[:n_functions]]
    numbers = np.repeat(np.arange(n_functions), len(T))
    X = np.column_stack([np.tile(T, n_functions), numbers])
    kernel = RBF(5.0, active_dims=(0,)) * Polynomial(1)
    model = TwoStepKEqL(("u",), "u_t", variables=("t",), function_column=1)
    model.set_params(equation_kernel=kernel).fit(X, np.concatenate(solutions))
    learned = SimpleNamespace(
        variables=("t",),
        observations=SimpleNamespace(functions=range(n_functions)),
        setup=SimpleNamespace(equations=[SimpleNamespace(name="u_t")]),
        equations=[model.equation_],
    )
    told = varying_in_time(Hypothesis(), learned)
    assert len(told) == is_told
    assert not is_told or "any equation with 2 coefficients that vary with t" in told[0]
    assert varying_in_time(Hypothesis(equation_kernel=kernel), learned) == []

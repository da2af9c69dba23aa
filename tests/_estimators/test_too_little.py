"""Data that say nothing, and parameters that are none, are refused in a sentence."""

import numpy as np
import pytest

from keql import (
    Equation,
    LearnedEquation,
    OneStepKEqL,
    ReducedOneStepKEqL,
    TwoStepKEqL,
)
from keql.fit_report._report import multiple
from keql.fit_report._undetermined import with_advice_once
from keql.kernels import Polynomial, Restriction

T = np.linspace(0, 3, 12)[:, None]
DECAY = {"operators": ("u",), "known_part": "u_t", "variables": ("t",)}


@pytest.mark.parametrize("kind", [OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL])
def test_zero_everywhere_says_nothing(kind):
    with pytest.raises(ValueError, match="y is 0 in all rows"):
        kind(**DECAY).fit(T, np.zeros(12))


def test_one_of_two_functions_may_be_zero():
    X = np.hstack([np.vstack([T, T]), np.repeat([[0.0], [1.0]], 12, axis=0)])
    y = np.concatenate([np.exp(-T[:, 0]), np.zeros(12)])
    model = OneStepKEqL(**DECAY, function_column=1).fit(X, y)
    assert abs(model.equation_.terms()["u"] + 1) < 1e-3


@pytest.mark.parametrize("kind", [OneStepKEqL, ReducedOneStepKEqL])
@pytest.mark.parametrize(
    ("problem", "n_coordinates", "n_given", "needed"),
    [
        (DECAY, 1, 2, 3),
        (DECAY | {"known_part": "u_tt"}, 1, 3, 4),
        ({"operators": ("u", "u_xx"), "known_part": "u_t", "variables": "tx"}, 2, 2, 3),
    ],
)
def test_no_more_values_than_solutions_have(
    kind, problem, n_coordinates, n_given, needed
):
    problem = problem | {"variables": tuple(problem["variables"])}
    X = np.linspace(0, 1, 3 * n_coordinates).reshape(3, n_coordinates)[[0, 1, 2, 0]]
    rows = [0, 3, 0, 1] if n_given == 2 else [0, 1, 2, 3]  # places that occur again
    with pytest.raises(ValueError, match=f"{needed} values are needed"):
        kind(**problem).fit(X[rows], 1 + np.arange(4.0))


def test_few_values_are_enough_where_functions_are_several():
    X = np.array([[t, m] for m in range(3) for t in (0.0, 1.0)])
    y = (1 + X[:, 1]) * np.exp(-X[:, 0])
    model = OneStepKEqL(**DECAY, function_column=1, equation_kernel=Polynomial(1))
    assert abs(model.fit(X, y).equation_.terms()["u"] + 1) < 1e-3


@pytest.mark.parametrize(
    "name", ["n_jobs", "n_terms", "max_iter", "n_restarts", "tol", "observation_noise"]
)
@pytest.mark.parametrize("flag", [True, np.True_])
def test_flags_are_no_numbers(name, flag):
    with pytest.raises(ValueError, match=f"{name} is True"):
        OneStepKEqL(**DECAY | {name: flag}).fit(T, np.exp(-T[:, 0]))


def test_flags_are_no_numbers_of_terms_in_an_equation():
    equations = [("decay", Equation("u_t", ("u",), n_terms=True))]
    with pytest.raises(ValueError, match="n_terms is True"):
        OneStepKEqL(equations=equations, variables=("t",)).fit(T, np.exp(-T[:, 0]))


@pytest.mark.parametrize("parts", [(None,), ("u_t", None)])
def test_an_entry_of_known_parts_that_says_nothing(parts):
    model = TwoStepKEqL(**DECAY | {"known_part": parts})
    with pytest.raises(ValueError, match="known_part=.* has an entry None"):
        model.fit(T, np.exp(-T[:, 0]))


def test_advice_is_given_once():
    advice = "Observe more, or with less noise, or "
    told = with_advice_once([f"one. {advice}ask", "two", f"three. {advice}say"])
    assert told == [f"one. {advice}ask", "two", "three. Or say"]


def test_multiples_are_written_as_people_do():
    assert [multiple(x) for x in (2.345, 99.0, 8512.0)] == ["2.3", "99", "8,500"]


def test_a_kernel_that_is_restricted_twice_shows_the_inner_one_only():
    once = Restriction(Polynomial(2), ["u", "u^2"])
    assert repr(Restriction(once, ["u"])) == repr(Restriction(Polynomial(2), ["u"]))


def test_flags_are_neither_numbers_of_terms_nor_orders():
    model = TwoStepKEqL(**DECAY, equation_kernel=Polynomial(1))
    model.fit(T, np.exp(-T[:, 0]))
    with pytest.raises(ValueError, match="n_terms=True must be a whole number"):
        model.equation_.sparse(n_terms=True)
    with pytest.raises((TypeError, ValueError), match="operator"):
        model.predict_derivative(T, (True,))


def test_saved_features_have_a_column_for_each_operator():
    model = TwoStepKEqL(**DECAY, equation_kernel=Polynomial(1))
    plain = model.fit(T, np.exp(-T[:, 0])).equation_.to_dict()
    with pytest.raises(ValueError, match="training_features.* n_operators say 3"):
        LearnedEquation.from_dict(plain | {"training_features": [[1.0]]})


def test_a_part_that_equals_an_array():
    """No known part, but a forcing given as values at the collocation points."""
    t = np.linspace(0, 5, 40)[:, None]
    pair = {"operators": ("u", "v"), "states": ("u", "v"), "variables": ("t",)}
    pair |= {"known_part": ("u_t", None), "forcing": (None, np.cos(t[:, 0]))}
    model = TwoStepKEqL(**pair, equation_kernel=Polynomial(1), collocation_points=t)
    model.fit(t, np.column_stack([np.exp(-t[:, 0]), np.cos(t[:, 0])]))
    _, second = model.equation_.values()
    assert second.terms()["v"] == pytest.approx(1, abs=0.01)

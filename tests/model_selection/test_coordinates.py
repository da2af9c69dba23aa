"""Equations that are one law in other coordinates of a state never observed."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import IdentifiabilityWarning, OneStepKEqL
from keql.model_selection import _selection
from keql.model_selection._terms._coordinates import (
    ConvergedSet,
    are_one_law,
    in_fewest_terms,
    of_other_laws,
)
from keql.model_selection._terms._settings import TrajectorySearchSettings

TIMES = np.linspace(0, 14, 25)


def epidemic(_, y):
    """Susceptible and infected people."""
    return [-0.9 * y[0] * y[1], 0.9 * y[0] * y[1] - 0.4 * y[1]]


def infected():
    how = {"rtol": 1e-12, "atol": 1e-13, "method": "DOP853", "t_eval": TIMES}
    return solve_ivp(epidemic, (0, 14), [2.5, 0.02], **how).y[1]


def fit_infected():
    names = ("i", "s")
    given = {"operators": names, "known_part": ("i_t", "s_t"), "states": names}
    return OneStepKEqL(**given, variables=("t",)).fit(TIMES[:, None], infected())


def test_other_coordinates_of_a_hidden_state_are_no_doubt(monkeypatch):
    """i_t = i s - 0.4 i and s_t = -0.9 i s, or i_t = i s' with s' = s - 0.4.

    Or as short, i_t = -0.36 i r - 0.9 i^2 and r_t = i, where r are those who recovered,
    from another origin; rounding errors choose.
    """
    model = fit_infected()  # warnings are errors
    terms, hidden = (model.equation_[name].terms() for name in ("i_t", "s_t"))
    if "i" in terms:
        expected = {"i s": terms["i s"], "i": -0.4}, {"i s": -0.9}
    else:
        expected = {"i s": -0.36 / hidden["i"], "i^2": -0.9}, {"i": hidden["i"]}
    assert terms == pytest.approx(expected[0], rel=1e-6)
    assert hidden == pytest.approx(expected[1], rel=1e-6)
    rivals = []  # which rounding errors may choose, too
    monkeypatch.setattr(
        _selection,
        "of_other_laws",
        lambda _, found, most: rivals.extend(found) or found,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit_infected()
    assert {each.category for each in told} == (
        {IdentifiabilityWarning} if rivals else set()
    )


class Flows:
    """A problem whose equations are functions of nodes, with i and s in columns."""

    def __init__(self, times, hidden=(1,)):
        self.times, self.hidden = times, list(hidden)

    def flow(self, m, equations):
        def velocity(t, y, with_slopes):
            assert len(t) == len(y) == 2 * len(self.times[m])
            return np.column_stack(equations(*y.T)), None, None

        return SimpleNamespace(velocity=velocity)


def law(i, s):
    return i * s - 0.4 * i, -0.9 * i * s


def shifted(i, s):
    """With s = s' + 0.4."""
    return i * s, -0.9 * i * s - 0.36 * i


def in_other_units(i, s):
    """With s = 100 s'."""
    return 100 * i * s - 0.4 * i, -0.9 * i * s


def with_the_infected(i, s):
    """With s = s' - i / 2."""
    s_t = -0.9 * i * (s - i / 2) + 0.5 * (i * (s - i / 2) - 0.4 * i)
    return i * (s - i / 2) - 0.4 * i, s_t


def of_other_rates(i, s):
    """Fewer are infected, by a fifth: another law."""
    return i * s - 0.4 * i, -0.72 * i * s


def independent(i, s):
    """A law in which the hidden state does nothing."""
    return 0.1 * i, -0.9 * i * s


def unstable(i, s):
    return i * s + np.inf, -0.9 * i * s


def undefined(i, s):
    """Without a value where s is zero."""
    return i * np.log(s), -0.9 * i * s


@pytest.mark.parametrize(
    ("other", "is_one"),
    [
        (law, True),
        (shifted, True),
        (in_other_units, True),
        (with_the_infected, True),
        (of_other_rates, False),
        (independent, False),
        (unstable, False),
        (undefined, False),
    ],
)
@pytest.mark.parametrize("unit", [1.0, 1e5])
@pytest.mark.parametrize("n_functions", [1, 2])
def test_one_law_has_other_terms_in_other_coordinates(other, is_one, unit, n_functions):
    def in_units(equations):
        """The equations of i in another unit."""
        return lambda i, s: (
            unit * equations(i / unit, s)[0],
            equations(i / unit, s)[1],
        )

    problem = Flows([TIMES] * n_functions)
    how = {"rtol": 1e-10, "atol": 1e-12, "method": "DOP853", "t_eval": TIMES}
    nodes = [
        solve_ivp(lambda _, y: law(*y), (0, 14), [0.02, start], **how).y.T
        for start in (2.5, 1.6)[:n_functions]
    ]
    nodes = [own * [unit, 1.0] for own in nodes]
    iterate = SimpleNamespace(nodes=nodes, equations=in_units(law))
    before = [own.copy() for own in nodes]
    assert are_one_law(problem, iterate, in_units(other), 0.02) == is_one
    for own, old in zip(nodes, before, strict=True):
        np.testing.assert_array_equal(own, old)


def test_equal_rates_along_trajectories_alone_are_another_law():
    """Of x_t = z and z_t = -z along z = exp(-t), where 1 - x = z."""
    nodes = np.column_stack([1.0 - np.exp(-TIMES), np.exp(-TIMES)])
    iterate = SimpleNamespace(nodes=[nodes], equations=lambda x, z: (z, -z))
    others = {
        lambda x, z: (z, x - 1.0): False,
        lambda x, z: (1.0 - x, -z): False,
        lambda x, z: (-2.0 * z, -z): True,
    }
    for other, is_one in others.items():
        assert are_one_law(Flows([TIMES]), iterate, other, 0.02) == is_one


def test_of_two_hidden_states_or_none_all_rivals_are_told():
    iterate = SimpleNamespace(nodes=[np.ones((25, 2))], equations=law)
    assert not are_one_law(Flows([TIMES], hidden=(0, 1)), iterate, law, 0.02)
    observations = SimpleNamespace(hidden_states=[])
    rivals = [(frozenset("u"), -1.0)]
    assert (
        of_other_laws(SimpleNamespace(observations=observations), rivals, 0) is rivals
    )


def of_more_terms(i, s):
    """The law with s = s' + 0.1 i, of which one term says nothing."""
    s_t = -0.9 * i * (s + 0.1 * i) - 0.1 * (i * (s + 0.1 * i) - 0.4 * i)
    return i * (s + 0.1 * i) - 0.4 * i, s_t


@pytest.mark.parametrize(
    ("score", "equations", "converges", "is_taken"),
    [
        (9.0, law, True, True),
        (5.0, law, True, False),  # by far less probable
        (9.0, of_other_rates, True, False),
        (9.0, law, False, False),
    ],
)
def test_the_coordinates_with_fewest_terms_are_taken(
    score, equations, converges, is_taken
):
    how = {"rtol": 1e-10, "atol": 1e-12, "method": "DOP853", "t_eval": TIMES}
    nodes = [solve_ivp(lambda _, y: of_more_terms(*y), (0, 14), [0.02, 2.5], **how).y.T]
    solution = SimpleNamespace(nodes=nodes, equations=of_more_terms)
    problem = Flows([TIMES])
    best = SimpleNamespace(solution=solution, model=SimpleNamespace(problem=problem))
    there = SimpleNamespace(equations=equations)
    solved = SimpleNamespace(converged=converges)
    asked = []

    def solve(*given):
        asked.append(given)
        return solved

    coarse = "other times"
    ends = [ConvergedSet([0, 1, 2], score, coarse, there)]
    ends.append(ConvergedSet([0] * 5, 20.0, problem, None))
    settings = TrajectorySearchSettings.of_hidden_states()
    found = in_fewest_terms(best, 10.0, [0, 1, 2, 4], ends, solve, settings)
    assert found == (
        (solved, score, [0, 1, 2]) if is_taken else (best, 10.0, [0, 1, 2, 4])
    )
    assert asked == ([(coarse, there)] if is_taken or not converges else [])

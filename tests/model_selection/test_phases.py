"""Phases that pull each other: Kuramoto's oscillators, pendulums, a power grid."""

import pickle

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from keql import OneStepKEqL
from keql._numerics.elementary import Elementary
from keql.equation import LearnedSystem
from keql.exceptions import IdentifiabilityWarning

SPEEDS = np.array([1.2, 0.1, -0.9])


def oscillators(t, phases):
    """Kuramoto's, Lecture Notes in Physics 39, 1975, eq. 1: each pulls all others."""
    return SPEEDS + 0.3 * np.sum(np.sin(phases[:, None] - phases), axis=0)


def grid(t, state):
    """Three generators, as Filatrella, Nielsen and Pedersen write their swings."""
    a, b, c, *speeds = state
    ab, ac, bc = 1.2 * np.sin(a - b), 0.8 * np.sin(a - c), np.sin(b - c)
    power = np.array([0.5 - ab - ac, ab - bc - 0.2, ac + bc - 0.3])
    return [*speeds, *(power - 0.2 * np.array(speeds))]


def observed(rate, initial, t_end, n, noise=0.0):
    """Times (n, 1) and the first three states (n, 3), with a part of their size."""
    t = np.linspace(0, t_end, n)
    how = {"t_eval": t, "rtol": 1e-12, "atol": 1e-12}
    y = solve_ivp(rate, (0, t_end), initial, "DOP853", **how).y[:3].T
    errors = np.random.default_rng(0).standard_normal(y.shape)
    return t[:, None], y + noise * np.std(y, axis=0) * errors


@pytest.fixture(scope="module")
def model():
    """An estimator for three phases."""
    known_part = ("a_t", "b_t", "c_t")
    model = OneStepKEqL(("a", "b", "c"), known_part, variables=("t",))
    return model.set_params(states=("a", "b", "c"))


def expected(speeds):
    names, found = "abc", {}
    for own, speed in zip(names, speeds, strict=True):
        pulled = {f"sin({other} - {own})": 0.3 for other in names if other != own}
        found[f"{own}_t"] = {"1": speed, **pulled}
    return found


def test_exact_phases_that_pull_each_other(model, recwarn):
    model = model.fit(*observed(oscillators, [0.0, 1.5, 3.0], 12, 60))
    for name, terms in expected(SPEEDS).items():
        assert model.equation_[name].terms() == pytest.approx(terms, rel=1e-7)
    assert not [w for w in recwarn if w.category is IdentifiabilityWarning]
    again = pickle.loads(pickle.dumps(model))
    t = np.linspace(0, 12, 7)[:, None]
    np.testing.assert_array_equal(again.predict(t), model.predict(t))
    saved = LearnedSystem.from_dict(model.equation_.to_dict())
    assert str(saved) == str(model.equation_)
    assert r"\sin(b - a)" in model.equation_["a_t"].to_latex()


def test_noisy_phases_of_more_states_than_functions_of_each_are_tried_for(model):
    model.fit(*observed(oscillators, [0.0, 1.5, 3.0], 12, 60, 0.02))
    for name, terms in expected(SPEEDS).items():
        assert model.equation_[name].terms() == pytest.approx(terms, abs=0.03)


@pytest.mark.slow
def test_a_noisy_power_grid(model):
    known_part = ("a_tt", "b_tt", "c_tt")
    model = OneStepKEqL(
        ("a", "b", "c", "a_t", "b_t", "c_t"), known_part, variables=("t",)
    ).set_params(states=("a", "b", "c"))
    initial = [0.0, 1.2, -0.8, 1.0, -1.0, 0.3]
    with pytest.warns(IdentifiabilityWarning):
        model.fit(*observed(grid, initial, 14, 70, 0.02))
    lines = {"ab": 1.2, "ac": 0.8, "bc": 1.0}
    for own, power in zip("abc", (0.5, -0.2, -0.3), strict=True):
        terms = {"1": power, f"{own}_t": -0.2}
        for pair, size in lines.items():
            if own in pair:
                terms[f"sin({pair.replace(own, '')} - {own})"] = size
        assert model.equation_[f"{own}_tt"].terms() == pytest.approx(terms, abs=0.05)


def test_differences_in_symbols():
    sympy = pytest.importorskip("sympy")
    a, b = sympy.symbols("a b")
    wave = Elementary((), "cos", "a", 2.0, reference="b")
    assert wave.name == "cos(2 (a - b))"
    assert wave.latex({"a": "a", "b": "b"}) == r"\cos(2 \, (a - b))"
    assert sympy.simplify(wave.sympy(sympy, {"a": a, "b": b})) == sympy.cos(
        2.0 * (a - b)
    )
    assert wave.columns == ["a", "b"] and wave.depends_on == {"a", "b"}
    np.testing.assert_allclose(wave(2.0, 0.5), np.cos(3.0))

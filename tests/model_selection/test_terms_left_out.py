"""Terms that equations were not to have, with which data are far more probable."""

import warnings
from types import SimpleNamespace

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import solve_ivp

from keql import IdentifiabilityWarning, OneStepKEqL, TwoStepKEqL
from keql._evolution.trajectories import make_trajectory_problem
from keql._evolution.trajectory import TrajectoryLimits
from keql._regression.two_step import Hypothesis
from keql.kernels import Dictionary, Polynomial
from keql.model_selection._beside._left_out import (
    _features,
    _Force,
    _Forced,
    _forces,
    terms_left_out,
)
from keql.model_selection._criteria import Criteria

T = np.linspace(0, 15, 50)


def duffing(friction=0.2, noise=0.02, times=T, seed=0):
    """Values of u_tt = u - u^3 - friction u_t, with noise in parts of their spread."""
    u = solve_ivp(
        lambda t, y: [y[1], y[0] - y[0] ** 3 - friction * y[1]],
        times[[0, -1]],
        [1.8, 0.0],
        t_eval=times,
        rtol=1e-9,
        atol=1e-9,
    ).y[0]
    return u + noise * np.std(u) * np.random.default_rng(seed).standard_normal(len(u))


def fitted(y, **given):
    model = OneStepKEqL(known_part="u_tt", variables="t").set_params(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IdentifiabilityWarning)
        model.fit(T[:, None], y)
    return [text for text in model.fit_report_.concerns if "was not to have" in text]


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"equation_kernel": Polynomial(3)}, marks=pytest.mark.slow),
        {"equation_kernel": Polynomial(3), "equation_noise": 0.3},
    ],
)
def test_friction_that_was_forgotten_is_told(given):
    """Driving noise takes it, which is found or given."""
    [text] = fitted(duffing(), operators="u", **given)
    assert "u_t, with which data are more probable" in text
    coefficient = float(text.split("the term ")[1].split()[0])
    assert coefficient == pytest.approx(-0.2, abs=0.03)


@pytest.mark.parametrize(
    "known, friction", [("u_tt", 0.0), ({"u_tt": 1, "u_t": 0.2}, 0.2)]
)
def test_what_an_equation_does_not_need_is_not_told(known, friction):
    assert not fitted(duffing(friction), operators="u", known_part=known)


@pytest.mark.parametrize("has_friction", [False, True])
def test_terms_that_a_given_kernel_lacks_are_told(has_friction):
    terms = {"u": lambda u: u, "u3": lambda u: u**3}
    if has_friction:
        terms["u_t"] = lambda u_t: u_t
    given = {"equation_kernel": Dictionary(terms), "equation_noise": 0.3}
    found = fitted(duffing(), operators=("u", "u_t"), **given)
    assert len(found) == (not has_friction)
    assert has_friction or " u_t, with which" in found[0]


@pytest.mark.parametrize("name, wrong", [("u^3", False), ("sin(u)", True)])
def test_terms_that_make_data_a_little_more_probable_are_told(name, wrong):
    """Beside a sine in place of a cube, which noise hides; the cube needs no other."""
    function = anp.sin if wrong else (lambda u: u**3)
    terms = {"u": lambda u: u, "v": lambda u_t: u_t, name: lambda u: function(u)}
    given = {"operators": ("u", "u_t"), "equation_kernel": Dictionary(terms)}
    found = fitted(duffing(seed=2), **given)
    assert len(found) == wrong
    assert not wrong or "u^3, with which data are more probable" in found[0]


def test_terms_that_were_compared_are_no_others():
    """With these a fit has rivals, which are told as such."""
    problem = make_trajectory_problem(in_two_steps(duffing()), np.array([0.02]))
    fit = SimpleNamespace(
        is_exact=True,
        is_driven=False,
        two_step=problem.learned,
        problem=problem,
        result=SimpleNamespace(solution=problem.start()),
        term_names=["u", "u_t"],
        log_evidences={},
    )
    given = fit, Hypothesis(equation_kernel=Polynomial(1)), Criteria()
    [left] = terms_left_out(*given)
    assert left.term == "u^3"
    fit.log_evidences = {frozenset(["u", "u_t", "u^3"]): 0.0}
    assert "u^3" not in [other.term for other in terms_left_out(*given)]


@pytest.mark.parametrize("levels", [None, np.array([0.1])])
def test_forces_have_the_effects_of_terms(levels):
    """Also where noise drives states; the ends of steps are those of flows to 1e-3."""
    learned = in_two_steps()
    given = np.array([0.01]), TrajectoryLimits(steps_in_noise=200), levels
    problem = make_trajectory_problem(learned, *given)
    iterate, responses = problem.start(), problem.responses(problem.start())
    values = _features(problem, iterate, 0).T
    p, forces = len(values), [_Force("u_tt", "", -own, 1.0) for own in values]
    [array] = _Forced(problem, iterate, responses, forces).responses
    array = array if levels is None else array.added
    terms, found = array[:, :, 1 : 1 + p], array[:, :, 1 + p : 1 + 2 * p]
    assert_allclose(found, terms, atol=1e-3 * np.max(np.abs(terms)))


def in_two_steps(y=None):
    """A linear equation, of values that obey one, or of others."""
    y = np.exp(-0.1 * T) * np.cos(T) if y is None else y
    model = TwoStepKEqL(("u", "u_t"), "u_tt", variables="t")
    model.set_params(equation_kernel=Polynomial(1))
    return model._learn_in_two_steps(T[:, None], y, None)


def test_only_what_was_left_out_is_asked_for():
    problem = make_trajectory_problem(in_two_steps(), np.array([0.01]))
    given = problem, problem.start()
    assert _forces(*given, Hypothesis(), Criteria()) == []
    squares = Criteria(degree_left_out=2)
    found = _forces(*given, Hypothesis(equation_kernel=Polynomial(1)), squares)
    assert [force.term for force in found] == ["u^2", "u u_t", "u_t^2"]
    assert len(_forces(*given, Hypothesis(n_terms=2), Criteria())) == 7

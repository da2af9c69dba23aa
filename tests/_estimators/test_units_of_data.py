"""Equations in other units are the same equations, whatever is given."""

from functools import cache

import numpy as np
import pytest

from keql import IdentifiabilityWarning, OneStepKEqL, ReducedOneStepKEqL, TwoStepKEqL
from keql._evolution.trajectory import Trajectory
from keql.kernels import RBF, Constant, Polynomial

T = np.linspace(0, 6, 30)[:, None]
Y = np.sin(2 * T[:, 0])
# Units of time and of the state, one by one and together.
UNITS = [(1e-12, 1.0), (1e12, 1.0), (1.0, 1e-12), (1.0, 1e12), (2.3e-4, 3.7e5)]


def stiffness(model, kernel, seconds=1.0, volts=1.0, **parameters):
    """The c of u'' = -c u, in 1/s^2, from data in other units."""
    given = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    model = model(**given, equation_kernel=kernel, **parameters)
    equation = model.fit(T * seconds, Y * volts).equation_
    return equation.gradient([[seconds, 0.3 * volts, 0.0]])[0, 1] * seconds**2


@pytest.mark.parametrize("kernel", [Polynomial(1), 1.0 * Polynomial(1)])
@pytest.mark.parametrize("units", UNITS)
def test_the_scale_of_given_kernels_is_found(kernel, units):
    expected = stiffness(TwoStepKEqL, kernel)
    assert expected == pytest.approx(4, rel=1e-4)
    found = stiffness(TwoStepKEqL, kernel, *units)
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["dual", "primal"])
def test_the_scale_is_found_for_joint_fits(solver):
    expected = stiffness(OneStepKEqL, Polynomial(1), solver=solver)
    assert expected == pytest.approx(4, rel=1e-4)
    for units in UNITS:
        found = stiffness(OneStepKEqL, Polynomial(1), *units, solver=solver)
        assert found == pytest.approx(expected, rel=1e-6)


@cache
def noisy_fit(seconds, volts):
    """A model of noisy data in other units."""
    noise = 0.02 * np.random.default_rng(3).standard_normal(len(T))
    given = {"known_part": "u_tt", "variables": "t"}
    model = OneStepKEqL(("u", "u_t"), equation_kernel=Polynomial(1), **given)
    return model.fit(T * seconds, (Y + noise) * volts)


@pytest.mark.slow
@pytest.mark.parametrize("units", [UNITS[0], UNITS[-1]])
def test_exact_states_with_noise_have_no_unit(units):
    """How far steps go, and how far perturbations grow, is not a matter of units."""
    one, other = noisy_fit(1.0, 1.0), noisy_fit(*units)
    assert isinstance(other.states_[0], Trajectory)
    at = np.array([[1.0, 0.4, 0.7, 0.0]])
    scale = [units[0], units[1], units[1] / units[0], 1.0]
    P = other.equation_.unknown_part((at * scale)[:, :3]) * units[0] ** 2 / units[1]
    np.testing.assert_allclose(P, one.equation_.unknown_part(at[:, :3]), rtol=1e-9)


def test_moved_times_make_no_difference():
    """Of 1e9 and a multiple of 1/64: nothing is rounded by that."""
    t = np.round(T * 64) / 64
    model = OneStepKEqL(("u", "u_t"), "u_tt", variables="t")
    model.set_params(equation_kernel=Polynomial(1))
    here = model.fit(t, np.sin(2 * t[:, 0])).equation_.terms()
    there = model.fit(t + 1e9, np.sin(2 * t[:, 0])).equation_.terms()
    assert there == {n: pytest.approx(v, abs=1e-9) for n, v in here.items()}


def test_what_is_fixed_is_kept():
    given = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    fixed = Constant(3.0, "fixed") * RBF(1.0, "fixed")
    model = TwoStepKEqL(**given, equation_kernel=fixed).fit(T, Y)
    assert model.equation_kernel_.k1.constant_value == 3.0
    assert model.equation_kernel_.n_dims == 0
    kept = TwoStepKEqL(**given, equation_kernel=RBF(1.0), optimizer=None).fit(T, Y)
    assert isinstance(kept.equation_kernel_, RBF)


@pytest.mark.parametrize("bounds", ["fixed", (0.1, 1.0)])
def test_scales_that_are_too_small_are_told(bounds):
    given = {"operators": ("u",), "known_part": "u_tt", "variables": ("t",)}
    kernel = Constant(0.1, bounds) * Polynomial(1)
    model = TwoStepKEqL(**given, equation_kernel=kernel)
    with pytest.warns(IdentifiabilityWarning, match="Leave the scale open"):
        model.fit(T, 1e4 * Y)
    assert "pulled to zero" in str(model.fit_report_)
    # A small P that was found is no matter of its kernel.
    model.set_params(equation_kernel=Polynomial(1), known_part="u_t")
    with pytest.warns(IdentifiabilityWarning, match="is not determined"):
        model.fit(T, 1e4 * Y)
    assert "pulled to zero" not in str(model.fit_report_)


def test_reduced_states_have_no_unit():
    given = {"n_basis": 30, "random_state": 0}  # which points span them is drawn
    expected = stiffness(ReducedOneStepKEqL, Polynomial(1), **given)
    found = stiffness(ReducedOneStepKEqL, Polynomial(1), 1e-3, 1e3, **given)
    assert found == pytest.approx(expected, rel=1e-8)

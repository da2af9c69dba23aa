"""Equations with units and standard errors, as they are printed and drawn."""

import pickle

import numpy as np
import pandas as pd
import pytest

from keql import KernelPDESolver, TwoStepKEqL
from keql._numerics.elementary import Elementary
from keql.equation._notation import number_with_error, text_derivative
from keql.kernels import Dictionary, Polynomial
from keql.operators import parse_operator
from keql.plotting import EquationParityDisplay, PhasePortraitDisplay, StateDisplay

# By hand, from the rule: one digit of the error, two if it begins with a 1.
NUMBERS = [
    (-1.09481, 0.0068, "-1.095(7)"),
    (0.1182, 0.0064, "0.118(6)"),
    (0.25, 0.0123, "0.250(12)"),
    (3.0, 12.0, "3(12)"),
    (0.0312, 0.13, "0.03(13)"),
    (12345.0, 210.0, "12300(200)"),
    (2.5e-7, 3e-9, "2.50(3)e-07"),
    (1.7e8, 2e6, "1.70(2)e+08"),
    (0.5, 1e-12, "0.500000"),
    (0.5, np.nan, "0.500"),
    (0.5, 0.0, "0.500"),
    (0.0, 0.2, "0.0(2)"),
]


@pytest.mark.parametrize("value, error, text", NUMBERS)
def test_errors_are_in_the_last_digits(value, error, text):
    assert number_with_error(value, error) == text


@pytest.mark.parametrize(
    "operator, text",
    [
        ("u", "u"),
        ("u_t", "du/dt"),
        ("u_txx", "d3u/dtdx2"),
        ("u_x1x1", "d2u/dx1^2"),
        ("laplacian(u)", "laplacian(u)"),
        ("u_t + 2 u", "(u_t + 2 u)"),
    ],
)
def test_derivatives_are_fractions(operator, text):
    names = ("t", "x", "x1")
    assert text_derivative(parse_operator(operator, names), names) == text


def damped(t):
    return 30 * np.exp(-0.06 * t) * np.cos(1.04 * t)


T = np.linspace(0, 12, 60)
U = damped(T)
U = U + 0.3 * np.random.default_rng(0).standard_normal(60)


def fit(**params):
    """A damped oscillator in hours and millivolts."""
    given = {"known_part": "u_tt", "units": {"t": "h", "u": "mV"}} | params
    model = TwoStepKEqL(("u", "u_t"), variables="t", **given)
    model.set_params(equation_kernel=model.equation_kernel or Polynomial(1))
    return model.fit(T[:, None], U)


@pytest.fixture(scope="module")
def model():
    return fit()


def test_the_printed_equation(model):
    equation = model.equation_
    assert str(equation) == (
        "d2u/dt2 = -1.079(9) h^-2 u - 0.122(4) h^-1 du/dt + 0.06(13) mV h^-2"
    )
    assert r"-1.079(9)\,\mathrm{h^{-2}} u - 0.122(4)" in equation.to_latex()
    assert "0.06(13) mV h<sup>-2</sup>" in equation._repr_html_()
    assert "h^-2 u" in str(equation.sparse(n_terms=1))
    assert str(pickle.loads(pickle.dumps(equation))) == str(equation)
    plain = fit(units=None).equation_
    assert str(plain).startswith("u_tt = -1.08 u - 0.122 u_t") and plain.unit is None
    assert plain.terms() == equation.terms()


def test_products_and_powers():
    text = str(fit(equation_kernel=Polynomial(2)).equation_)
    for term in ("h^-2 mV^-1 u^2", "h^-1 mV^-1 u du/dt", "mV^-1 (du/dt)^2"):
        assert f") {term}" in text


def test_the_unit_of_the_equation():
    assert str(fit(known_part={"u_tt": 2, "u": 1}).equation_.unit) == "mV h^-2"
    by_function = fit(known_part=lambda u_tt: u_tt).equation_
    assert by_function.unit is None and ") u" in str(by_function)
    units = {"t": "h", "u": "mV", "f": "N"}
    forced = fit(known_part=None, forcing=lambda x: damped(x[:, 0]), units=units)
    assert str(forced.equation_.unit) == "N" and "N mV^-1" in str(forced.equation_)


def test_tables_and_reports_have_units(model):
    frame = model.equation_.to_frame()
    assert frame["unit"].to_dict() == {"u": "h^-2", "u_t": "h^-1", "1": "mV h^-2"}
    assert "unit" not in fit(units=None).equation_.to_frame()
    report = str(model.fit_report_)
    assert " mV  (fitted along" in report and "t 2.17 h" in report
    assert " mV h^-2  (fitted along" in report
    assert model.fit_report_.units == {"observations": "mV", "equation": "mV h^-2"}


def test_systems_have_units():
    y = pd.DataFrame({"T": np.exp(-T / 5), "c": np.exp(-T / 9)})
    units = {"t": "s", "T": "K", "c": "mol/L"}
    model = TwoStepKEqL(("T", "c"), ("T_t", "c_t"), variables="t", units=units)
    model.set_params(equation_kernel=Polynomial(1)).fit(T[:, None], y)
    lines = str(model.equation_.sparse(n_terms=2)).splitlines()
    assert lines[0].startswith("dT/dt = ") and "s^-1 T" in lines[0]
    assert "K L mol^-1 s^-1 c" in str(model.equation_)
    assert "observation noise  T: " in str(model.fit_report_)
    assert " K; c: " in str(model.fit_report_)


def test_axes_have_units(model):
    label = "u (mV)"
    state = StateDisplay.from_estimator(model, T[:, None], U)
    assert (state.ax_.get_xlabel(), state.ax_.get_ylabel()) == ("t (h)", label)
    phase = PhasePortraitDisplay.from_estimator(model)
    names = phase.ax_.get_xlabel(), phase.ax_.get_ylabel()
    assert names == (label, "u_t (mV h^-1)")
    parity = EquationParityDisplay.from_estimator(model)
    assert parity.ax_.get_xlabel() == "given: -d2u/dt2 (mV h^-2)"
    solver = model.pde_solver()
    assert solver.units == model.units
    solver = solver.set_params(equation="u_tt").fit(T[:20, None], U[:20])
    slope = StateDisplay.from_estimator(solver, T[:20, None], operator="u_t")
    assert slope.ax_.get_ylabel() == "u_t (mV h^-1)"


def test_functions_have_units():
    """Torricelli's root, a saturation beside its powers, a sine; no ratio, no unit."""
    functions = [
        Elementary((), "power", "u", 0.5),
        Elementary((("u", 2),), "peak", "u", 4.0),
        Elementary((), "sin", "u", 0.1),
        Elementary((), "power", "u", 0.123),
    ]
    kernel = Dictionary({function.name: function for function in functions})
    given = {"known_part": "u_t", "units": {"t": "h", "u": "mV"}}
    model = TwoStepKEqL(("u",), variables="t", equation_kernel=kernel, **given)
    model.fit(T[:, None], 2 + np.exp(-T / 5))
    units = model.equation_.to_frame()["unit"].to_dict()
    assert units == {
        "u^0.5": "mV^(1/2) h^-1",
        "u^2/(4 + u^2)": "mV h^-1",
        "sin(0.1 u)": "mV h^-1",
        "u^0.123": "",
    }


def test_wrong_units_are_refused():
    with pytest.raises(ValueError, match="units has an entry for 'V', .*t, u, or f"):
        fit(units={"V": "mV"})
    with pytest.raises(ValueError, match=r"units\['t'\]='h\^' does not parse"):
        fit(units={"t": "h^"})
    with pytest.raises(ValueError, match="units has an entry for 'v'"):
        KernelPDESolver(units={"v": "m"}).fit(T[:3, None], U[:3])

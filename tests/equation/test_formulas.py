"""Equations as LaTeX, HTML, sympy objects."""

import sys

import numpy as np
import pytest
import sympy
from test_equation import (
    SAMPLE,
    burgers,
    make_equation,
    monomial,
    pendulum,
    rbf_equation,
)

from keql.equation._formulas import sympy_operator
from keql.equation._notation import (
    html_name,
    latex_number,
    latex_operator,
    latex_symbol,
)
from keql.kernels import RBF, Constant, Dictionary
from keql.operators import parse_operator

POISSON = {"known_part": None, "has_forcing": True, "S": SAMPLE[:, :5]}


def compound():
    """An equation in operators that are sums."""
    kernel = Constant(1.0) + monomial(2, 2) + monomial(3)
    operators = ["laplacian(u)", "u_xx + 2 u"]
    return make_equation(operators, "u_t", kernel, [1, -2, 0.5], np.ones((3, 5)))


@pytest.mark.parametrize(
    ("equation", "latex"),
    [
        (burgers(), r"u_{t} = 0.500 u \, u_{x} + 0.0100 u_{xx}"),
        (burgers(**POISSON), r"-0.500 u \, u_{x} - 0.0100 u_{xx} = f"),
        (
            burgers(weights=[-1.0, 1.2345e-7]),
            r"u_{t} = u \, u_{x} - 1.23 \cdot 10^{-7} u_{xx}",
        ),
        (
            burgers(known_part=pendulum),
            r"\mathrm{pendulum}(u_{t}, x, u) = 0.500 u \, u_{x} + 0.0100 u_{xx}",
        ),
        (
            burgers(known_part={"u_tt": 1, "u_t": -0.5}),
            r"u_{tt} - 0.500 u_{t} = 0.500 u \, u_{x} + 0.0100 u_{xx}",
        ),
        (rbf_equation(), r"u_{t} = -P(x, u, u_{x})"),
        (
            compound(),
            r"u_{t} = 2.00 (\Delta u)^{2} - 1.00 - 0.500 (2 u + u_{xx})",
        ),
    ],
    ids=str,
)
def test_latex(equation, latex):
    assert equation.to_latex() == latex
    assert equation._repr_latex_() == rf"$\displaystyle {latex}$"


def test_latex_is_balanced_and_typesets():
    from matplotlib.mathtext import MathTextParser

    for equation in (burgers(), compound(), rbf_equation()):
        MathTextParser("agg").parse(f"${equation.to_latex()}$")


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        ("x", "x"),
        ("x1", "x_1"),
        ("x12", "x_{12}"),
        ("theta", r"\theta"),
        ("theta2", r"\theta_2"),
        ("depth", r"\mathrm{depth}"),
        ("θ", r"\theta"),
        ("λ2", r"\lambda_2"),
        ("Θ", r"\Theta"),
        ("Gamma", r"\Gamma"),
        ("größe", r"\mathrm{größe}"),
        ("t_hours", r"\mathrm{t\_hours}"),
    ],
)
def test_latex_of_coordinates(name, latex):
    assert latex_symbol(name) == latex


def test_numbers_and_names():
    assert latex_number("2.50e+12") == r"2.50 \cdot 10^{12}"
    assert latex_number("120") == "120"
    assert html_name("P(u, u_x1)") == "P(u, u<sub>x1</sub>)"
    states = ("T_c", "T", "T_c_in")
    assert html_name("P(T_c, T_c_xx)", states) == "P(T<sub>c</sub>, T<sub>c,xx</sub>)"
    assert html_name("T_c_in_t", states) == "T<sub>c,in,t</sub>"
    assert html_name("u_t_hours", states) == "u<sub>t_hours</sub>"


STATES = ("u", "v", "x1", "prey", "theta", "x_12", "t_a", "c_in_12")


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        ("v", "v"),
        ("v_tx", "v_{tx}"),
        ("prey_t", r"\mathrm{prey}_{t}"),
        ("theta_tt", r"\theta_{tt}"),
        ("x1", "x_1"),
        ("x1_t", "x_{1,t}"),
        ("x_12_x", "x_{12,x}"),
        ("t_a", "t_a"),
        ("t_a_x", "t_{a,x}"),
        ("c_in_12_tx", r"c_{\mathrm{in},12,tx}"),
        ("laplacian(t_a)", r"\Delta t_a"),
        ("laplacian(v)", r"\Delta v"),
        ("u_t - 2 v_x", "(u_{t} - 2 v_{x})"),
    ],
)
def test_latex_of_operators_of_named_states(name, latex):
    from matplotlib.mathtext import MathTextParser

    written = latex_operator(parse_operator(name, ("t", "x"), STATES), ("t", "x"))
    assert written == latex
    MathTextParser("agg").parse(f"${written}$")


def test_sympy_of_operators_of_named_states():
    t, x = sympy.symbols("t x")
    u, v = sympy.Function("u")(t, x), sympy.Function("v")(t, x)
    operator = parse_operator("u_t - 2 v_xx", ("t", "x"), STATES)
    expected = sympy.Derivative(u, t) - 2 * sympy.Derivative(v, (x, 2))
    assert sympy_operator(operator, ("t", "x")) == expected


def test_html():
    expected = "u<sub>t</sub> = 0.500 u u<sub>x</sub> + 0.0100 u<sub>xx</sub>"
    assert expected in burgers()._repr_html_()
    squared = burgers(kernel=monomial(2, 2, 3), weights=[2.0])
    assert "u<sup>2</sup> u<sub>x</sub>" in squared._repr_html_()


# --- sympy --------------------------------------------------------------------------


def test_sympy_of_burgers():
    t, x = sympy.symbols("t x")
    u = sympy.Function("u")(t, x)
    equation = burgers().to_sympy()
    assert equation.lhs == sympy.Derivative(u, t)
    expected = 0.5 * u * sympy.Derivative(u, x) + 0.01 * sympy.Derivative(u, (x, 2))
    assert sympy.simplify(equation.rhs - expected) == 0


@pytest.mark.parametrize(
    "equation",
    [
        burgers(weights=[1.0, -0.25]),
        burgers(known_part={"u_t": 2.0, "u_x": -0.3}),
        burgers(**POISSON),
        burgers(kernel=monomial(1, 1, 3) + monomial(0), weights=[2.0, 3.0]),
        compound(),
    ],
    ids=str,
)
def test_sympy_has_the_same_values(equation):
    t, x = sympy.symbols("t x")
    function = sympy.exp(-t) * sympy.sin(2 * x)
    formula = equation.to_sympy()
    difference = (formula.lhs - formula.rhs).subs(sympy.Function("u")(t, x), function)
    difference = difference.subs(sympy.Function("f")(t, x), 0).doit()
    points = np.random.RandomState(0).uniform(size=(6, 2))
    values = [float(difference.subs({t: a, x: b})) for a, b in points]

    def state(points):
        import autograd.numpy as anp

        return anp.exp(-points[:, 0]) * anp.sin(2 * points[:, 1])

    np.testing.assert_allclose(values, equation.apply(state, points), rtol=1e-12)


def test_sympy_without_terms():
    t, x = sympy.symbols("t x")
    u = sympy.Function("u")(t, x)
    equation = rbf_equation().to_sympy()
    unknown = sympy.Function("P")(x, u, sympy.Derivative(u, x))
    assert equation == sympy.Eq(sympy.Derivative(u, t), -unknown)
    nonlinear = burgers(known_part=pendulum).to_sympy()
    known = sympy.Function("pendulum")(sympy.Derivative(u, t), x, u)
    assert nonlinear.lhs == known


def test_variable_coefficients():
    # Two operators, each with a coefficient that depends on x; u_x is ten times u.
    kernel = RBF(1.0, active_dims=(1,)) * (monomial(2) + monomial(3))
    S = np.column_stack([np.ones((4, 2)), np.ones(4), 10 * np.ones(4), np.ones((4, 2))])
    S[:, 1] = np.arange(4)
    equation = burgers(kernel=kernel, weights=np.ones(4), S=S)
    assert str(equation) == "u_t = c0(x) u_x + c1(x) u"
    assert equation.coefficient_terms() == ["u_x", "u"]
    assert equation.to_latex() == r"u_{t} = c_0(x) \, u_{x} + c_1(x) \, u"
    assert "c0(x) u<sub>x</sub>" in equation._repr_html_()
    t, x = sympy.symbols("t x")
    u = sympy.Function("u")(t, x)
    coefficient = equation.to_sympy().rhs.coeff(sympy.Derivative(u, x))
    assert coefficient == sympy.Function("c0")(x)


def test_functions_of_a_dictionary():
    functions = {"u_xx^2": lambda u_xx: u_xx**2, "|u| < 1": lambda u: u}
    kernel = Dictionary(functions, scale=1.0).bind(["t", "x", "u", "u_x", "u_xx"])
    equation = burgers(kernel=kernel, weights=[1.5, -2.0], S=np.ones((3, 6)))
    assert str(equation) == "u_t = 2.00 |u| < 1 - 1.50 u_xx^2"
    latex = equation.to_latex()
    assert latex == r"u_{t} = 2.00 \mathrm{|u|\ <\ 1} - 1.50 \mathrm{u_{xx}^{2}}"
    assert "2.00 |u| &lt; 1 - 1.50 u<sub>xx</sub>^2" in equation._repr_html_()
    right = equation.to_sympy().rhs
    assert right.coeff(sympy.Symbol("|u| < 1")) == 2.0


@pytest.mark.parametrize(
    ("package", "method"), [("sympy", "to_sympy"), ("pandas", "to_frame")]
)
def test_missing_packages_are_named(monkeypatch, package, method):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"{method} needs {package}.*pip install"):
        getattr(burgers(), method)()

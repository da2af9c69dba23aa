"""Equations as JSON: they give the same numbers, and nothing in them is code."""

import json

import autograd.numpy as anp
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from keql import (
    Equation,
    KernelPDESolver,
    LearnedEquation,
    LearnedSystem,
    TwoStepKEqL,
)
from keql.equation._plain import from_plain, to_plain
from keql.kernels import (
    RBF,
    Constant,
    Dictionary,
    Envelope,
    Exponentiation,
    FunctionKernel,
    Matern,
    Periodic,
    Polynomial,
    RationalQuadratic,
    Restriction,
    SystemKernel,
)

T = np.linspace(0, 4, 30)[:, None]
U = np.cos(2 * T[:, 0]) + 0.01 * np.random.default_rng(0).standard_normal(30)
QUICK = {"collocation_points": 40, "n_inducing": 15, "random_state": 0}


def fit(kernel=None, known_part="u_tt", **params):
    model = TwoStepKEqL(("u", "u_t"), known_part, variables="t", **QUICK)
    return model.set_params(equation_kernel=kernel, **params).fit(T, U)


def again(learned):
    """An equation or a system after a way through text."""
    text = json.dumps(learned.to_dict(), allow_nan=False)
    return type(learned).from_dict(json.loads(text))


KERNELS = {
    "default": None,
    "linear": Polynomial(1),
    "inducing": RBF(2.0),
    "varying": RBF(1.0, active_dims=("t",)) * Polynomial(1),
    "restricted": Restriction(Polynomial(3), ["u", "u^3", "u_t"]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_equations_give_the_same_numbers(name):
    model = fit(KERNELS[name], units={"t": "s"}, known_part={"u_tt": 2, "u": 0.5})
    equation = model.equation_
    other = again(equation)
    S = equation.features(model, T)
    assert_array_equal(other(S), equation(S))
    assert_array_equal(other.gradient(S), equation.gradient(S))
    assert_array_equal(other.extrapolation(2 * S), equation.extrapolation(2 * S))
    assert str(other) == str(equation) and other.to_latex() == equation.to_latex()
    assert other.equation_kernel == equation.equation_kernel
    assert other.state_kernel == equation.state_kernel
    if name in {"default", "linear", "restricted"}:
        assert other.terms(True) == equation.terms(True)
        assert str(other.sparse(n_terms=1)) == str(equation.sparse(n_terms=1))


def test_what_a_sparse_equation_remembers():
    equation = fit().equation_.sparse(n_terms=1)
    equation.in_doubt = True
    other = again(equation)
    assert repr(other) == repr(equation) and "in doubt" in repr(other)
    assert other.loss_ratio == equation.loss_ratio > 1
    assert other.unexplained == equation.unexplained > 0
    start = [1.0, 0.0]
    expected = equation.simulate(T[:, 0], start)
    assert_array_equal(other.simulate(T[:, 0], start), expected)


def test_a_saved_equation_is_solved():
    model = fit(Polynomial(1))
    solver = model.pde_solver(collocation_points=T)
    expected = solver.fit(T[:2], U[:2]).predict(T)
    other = KernelPDESolver(again(model.equation_), T, variables="t")
    assert_array_equal(other.fit(T[:2], U[:2]).predict(T), expected)


def test_systems_and_known_equations():
    y = np.column_stack([np.sin(T), np.cos(T)])
    equations = [
        ("first", Equation("x_t", ("x", "y"), kernel=Polynomial(1))),
        ("second", Equation("y_t", ("x", "y"), kernel=Polynomial(1))),
        ("known", Equation({"x_t": 1, "y": -1})),
    ]
    model = TwoStepKEqL(states=("x", "y"), equations=equations, variables="t")
    system = model.set_params(collocation_points=30).fit(T, y).equation_
    other = again(system)
    assert isinstance(other, LearnedSystem) and str(other) == str(system)
    assert list(other) == list(system) and other["known"].terms() == {}
    with pytest.raises(
        ValueError, match="format 'keql system, version 1', expected is 'keq"
    ):
        LearnedEquation.from_dict(system.to_dict())
    with pytest.raises(ValueError, match="format 'keql equation, version 1', expected"):
        LearnedSystem.from_dict(system["first"].to_dict())


STATE_KERNELS = [
    2.0 * RBF([0.5, 0.3], "fixed") + Matern(1.0, nu=3.5),
    Constant(2.0, (1e-3, 1e3)) * Envelope([1.0, 2.0], [0.0, 0.1], "fixed"),
    RationalQuadratic(1.0, 0.5) * Periodic(1.0, 2.0, active_dims=("t",)),
    Exponentiation(RBF(1.0), 2),
    Restriction(Polynomial(2, scale=[1.0, 2.0]), ["u", (0, 1)]),
]


@pytest.mark.parametrize("kernel", STATE_KERNELS)
def test_kernels_are_the_same_after_it(kernel):
    text = json.dumps(to_plain(kernel))
    other = from_plain(json.loads(text))
    assert other == kernel and repr(other) == repr(kernel)
    assert_array_equal(other.theta, kernel.theta)
    assert_array_equal(other.bounds, kernel.bounds)
    several = SystemKernel({"a": kernel, "b": RBF(2.0)})
    same = from_plain(to_plain(several))
    assert same.of_state("a") == kernel and same.of_state("b") == RBF(2.0)


def test_functions_are_no_data():
    model = fit(known_part=lambda u_tt: 2 * u_tt)
    with pytest.raises(ValueError, match="known part of .* is a function, .* pickle"):
        model.equation_.to_dict()
    dictionary = Dictionary({"sin(u)": lambda u: anp.sin(u), "u": lambda u: u})
    with pytest.raises(ValueError, match="no data: save the model with pickle"):
        fit(dictionary).equation_.to_dict()
    with pytest.raises(ValueError, match="no data"):
        to_plain(FunctionKernel(lambda x, y: x * y))


@pytest.mark.parametrize("name", ["os", "as_kernel", "Nothing", None])
def test_only_kernels_are_made(name):
    with pytest.raises(ValueError, match="name the kernel .*: unknown"):
        from_plain({"kernel": name, "parameters": {}})
    with pytest.raises(ValueError, match="plain has the format 'list'"):
        LearnedEquation.from_dict([])

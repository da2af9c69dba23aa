"""Exact states on rings, against Fourier series, travelling waves and solitons."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
from known_equations import make_equation, monomial
from numpy.testing import assert_allclose, assert_array_equal

from keql import OneStepKEqL, TwoStepKEqL
from keql._evolution.forecast import EvolvedState
from keql._evolution.form import why_not_integrated
from keql._evolution.grid import EvolutionGrid
from keql._evolution.integration import integrate, linear_response
from keql.exceptions import ExtrapolationWarning, IdentifiabilityWarning
from keql.kernels import RBF, Periodic
from keql.operators import parse_operator

TX = ("t", "x")
K = 2 * np.pi * np.arange(1, 4)
SIZES = np.array([[1.0, 0.5, -0.3], [0.4, -0.6, 0.2]])


def series(x, damping=1.0):
    """A Fourier series on a ring of length 1."""
    phases = np.multiply.outer(x, K)
    return np.sum(damping * (SIZES[0] * np.cos(phases) + SIZES[1] * np.sin(phases)), -1)


def heat(points):
    """A solution of u_t = 0.02 u_xx."""
    t, x = points[..., 0], points[..., 1]
    return 0.7 + series(x, np.exp(-0.02 * np.multiply.outer(t, K**2)))


def advected(points, speed=0.7):
    """A solution of u_t = -speed u_x."""
    return 0.7 + series(points[..., 1] - speed * points[..., 0])


def waves(points):
    """A solution of u_tt = 0.49 u_xx."""
    return advected(points) + 0.5 * advected(points, -0.7)


def soliton(points, c=4.0, length=10.0):
    """A solution of u_t = -6 u u_x - u_xxx on a ring, to ten digits."""
    t, x = points[..., 0], points[..., 1]
    places = x - c * t - 3.0
    places = places - length * np.round(places / length)
    return c / 2 / np.cosh(c**0.5 / 2 * places) ** 2


def ring(length=1.0, duration=1.0, n_steps=20, n_along=30, **options):
    upper = np.array([duration, 0.0])
    grid = 0, n_steps, n_along
    return EvolutionGrid(np.zeros(2), upper, *grid, period=length, **options)


def test_values_at_the_points_are_themselves():
    """To the last digit: steps leave out the zeros."""
    operators = [parse_operator(name, TX) for name in ("u", "u_t")]
    for *_, in_space in ring().factors(operators):
        assert_array_equal(in_space, np.eye(31))


@pytest.mark.parametrize("order", range(5))
def test_trigonometric_polynomials_are_exact_everywhere(order):
    grid = ring(n_steps=2, n_along=8)
    assert grid.n_points == 9 and len(grid.ends) == 0
    values = series(grid.points[..., 1])[..., None]
    places = np.column_stack([np.full(9, 0.4), np.linspace(-1.3, 2.7, 9)])
    operator = parse_operator("u" + "_" * bool(order) + "x" * order, TX)
    found = grid.apply(values, places, operator)[:, 0]
    phases = np.multiply.outer(places[:, 1], K) + 0.5 * np.pi * order
    expected = (SIZES[0] * np.cos(phases) + SIZES[1] * np.sin(phases)) @ K**order
    assert_allclose(found, expected, atol=1e-10 * K[-1] ** order)
    assert np.all(grid.contains(places))


CASES = {
    "heat": (heat, ("u_xx",), "u_t", -0.02, 1e-7),
    "advection": (advected, ("u_x",), "u_t", 0.7, 2e-4),
    "waves": (waves, ("u_xx",), "u_tt", -0.49, 1e-3),
}


@pytest.mark.parametrize("case", CASES)
def test_linear_equations_are_integrated_around_rings(case):
    """To errors of order 4 or more: half the steps, a twelfth of the error or less."""
    solution, operators, known, weight, tolerance = CASES[case]
    equation, errors = make_equation(operators, known, monomial(2), [weight]), []
    order = known.count("t")
    for n_steps in (20, 40):
        grid = ring(n_steps=n_steps, order=order)
        start = [solution(grid.boundary[: grid.size])]
        if order == 2:
            after, before = (
                solution(grid.boundary[grid.size :] + [sign * 1e-5, 0.0])
                for sign in (1, -1)
            )
            start.append((after - before) / 2e-5)
        unknowns = np.concatenate([[1.0, weight], *start])
        response = linear_response(grid, equation, np.zeros(grid.points[..., 0].size))
        errors.append(np.abs(response @ unknowns - solution(grid.points)).max())
    assert errors[0] < 100 * tolerance and errors[1] < tolerance
    assert errors[0] > 12 * errors[1]


def test_a_soliton_goes_around():
    equation = make_equation(
        ("u", "u_x", "u_xxx"), "u_t", monomial(2, 3) + monomial(4), [6.0, 1.0]
    )
    grid = ring(10.0, 1.0, n_steps=100, n_along=100, grading=1.0)
    found = integrate(grid, equation, soliton(grid.points[0, 0]), None)
    assert_allclose(found.reshape(100, 4, -1), soliton(grid.points), atol=2e-3)


def observe(solution, n=60, seed=0, noise=0.0):
    rng = np.random.RandomState(seed)
    X = rng.uniform(size=(n, 2))
    y = solution(X)
    return X, y + noise * np.std(y) * rng.normal(size=n)


def learn(X, y, operators=("u", "u_x", "u_xx"), known="u_t", **changes):
    settings = {"variables": TX, "n_terms": "auto", "periods": {"x": 1.0}}
    return OneStepKEqL(operators, known, **settings | changes).fit(X, y)


def error_inside(model, solution):
    X = np.random.RandomState(7).uniform([0.05, -1.0], [0.95, 2.0], size=(200, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExtrapolationWarning)
        return np.linalg.norm(model.predict(X) - solution(X)) / np.linalg.norm(
            solution(X)
        )


@pytest.mark.slow
def test_heat_on_a_ring_is_found_wherever_it_begins():
    X, y = observe(heat)
    model = learn(X, y)
    assert isinstance(model.states_[0], EvolvedState)
    assert model.equation_.terms() == pytest.approx({"u_xx": 0.02}, rel=1e-4)
    assert error_inside(model, heat) < 1e-3
    turned = learn(np.column_stack([X[:, 0], (X[:, 1] + 0.37) % 1.0]), y)
    assert turned.equation_.terms() == pytest.approx({"u_xx": 0.02}, rel=1e-4)
    assert error_inside(turned, lambda X: heat(X - [0.0, 0.37])) < 1e-3
    later = np.column_stack([np.full(20, 1.5), np.linspace(-2, 2, 20)])
    found, std = model.forecast(later, return_std=True)
    assert_allclose(found, heat(later), atol=1e-3)
    assert np.all((std >= 0) & (std < 1e-2))


@pytest.mark.slow
@pytest.mark.parametrize("noise, most", [(0.0, 1e-3), (0.02, 0.01)])
@pytest.mark.parametrize("case", ["heat", "advection", "waves"])
def test_equations_on_rings_are_found(case, noise, most):
    solution, (operator,), known, weight, _ = CASES[case]
    told = nullcontext()
    if case == "advection":  # waves of one speed solve other equations too
        told = pytest.warns(IdentifiabilityWarning, match="does not change in one dir")
    with told:
        model = learn(*observe(solution, 200, noise=noise), known=known)
    assert isinstance(model.states_[0], EvolvedState)
    assert model.equation_.terms() == pytest.approx({operator: -weight}, rel=0.02)
    assert error_inside(model, solution) < most


def two_steps(operators, known, solution=heat, **changes):
    changes = {"variables": TX, "periods": {"x": 1.0}} | changes
    model = TwoStepKEqL(operators, known, **changes)
    return model._learn_in_two_steps(*observe(solution, 15), None)


def test_which_equations_have_exact_states_on_rings():
    assert not why_not_integrated(two_steps(("u_x",), "u_t"))
    assert not why_not_integrated(two_steps(("u", "u_xxxx"), "u_t"))
    assert "of order 2" in why_not_integrated(two_steps(("u_x",), "u_tt"))
    in_time = two_steps(("u_xx",), "u_t", periods={"t": 1.0})
    assert "of order 2" in why_not_integrated(in_time)


def test_fields_of_first_order_are_integrated_on_rings():
    """u_t = -0.7 v_x and v_t = -0.7 u_x: one wave each way."""
    X, _ = observe(heat, 40)
    there, back = advected(X), 0.5 * advected(X, -0.7)
    y = np.column_stack([there + back, there - back])
    model = TwoStepKEqL(
        ("u_x", "v_x"), ("u_t", "v_t"), variables=TX, states=("u", "v"),
        periods={"x": 1.0},
    )  # fmt: skip
    assert not why_not_integrated(model._learn_in_two_steps(X, y, None))


def test_states_and_kernels_repeat_themselves():
    X, y = observe(heat, 40)
    model = TwoStepKEqL(variables=TX, periods={"x": 1.0}).fit(X, y)
    around = X + [0.0, 3.0]
    for operator in ("u", "u_xx"):
        here = model.predict_derivative(X, operator)
        assert_allclose(model.predict_derivative(around, operator), here, rtol=1e-6)
    kernels = [
        RBF(0.3, "fixed", period=(np.inf, 1.0)),
        RBF(0.3, "fixed", active_dims="t") * Periodic(1.0, 1.0, "fixed", "fixed", "x"),
    ]
    for kernel in kernels:
        model.set_params(state_kernel=kernel).fit(X, y)
        assert_allclose(model.predict(around), model.predict(X), atol=1e-6)


def test_joint_fits_repeat_themselves():
    X, y = observe(heat, 30)
    kernel = RBF(0.4, "fixed", period=(np.inf, 1.0))
    changes = {"n_terms": None, "observation_noise": 0.01, "collocation_points": 60}
    model = learn(X, y, state_kernel=kernel, **changes)
    assert not isinstance(model.states_[0], EvolvedState)
    assert_allclose(model.predict(X + [0.0, 1.0]), model.predict(X), atol=1e-6)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"periods": {"y": 1.0}}, "periods names 'y', which is no coordinate"),
        ({"periods": {"x": -1.0}}, "periods has -1.0 for 'x': it must be the length"),
        ({"state_kernel": RBF(0.3)}, "state_kernel of u has not the period 1"),
    ],
)
def test_what_is_no_ring_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        two_steps(("u_xx",), "u_t", **changes)


def test_time_that_is_a_ring_has_no_trajectories():
    t = np.linspace(0, 3, 25)[:, None]
    model = OneStepKEqL(("u",), "u_tt", variables=("t",), periods={"t": np.pi})
    model.fit(t, np.sin(2 * t[:, 0]))
    assert "the time is a ring" in str(model.fit_report_)
    assert_allclose(model.predict(t + 2 * np.pi), np.sin(2 * t[:, 0]), atol=1e-3)
